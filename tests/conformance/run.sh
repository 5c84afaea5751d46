#!/usr/bin/env bash
# Runs the official conformance suite against a server:
#
#   run.sh URL [--revision R]... [--header 'X-Api-Key: k']... [--baseline FILE]...
#              [--scenario NAME|PREFIX*]... [--all [--without NAME|PREFIX*]...]
#              [--out FOLDER]
#
# Only the scenarios that a revision requires are counted; --all adds those that
# the suite runs for information (extensions such as Tasks, pending scenarios), but
# for what --without names.
# A failed check that a baseline names does not count; a line of a baseline that no
# longer fails does. Last line: `N passed, N failed`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$(SKIP_PYTHON=1 "$here/setup.sh")
exec "$cache/node" "$cache/suite/run.mjs" "$@"
