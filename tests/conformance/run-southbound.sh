#!/usr/bin/env bash
# Runs the conformance suite's client scenarios with a gateway as the client:
#
#   run-southbound.sh --start 'my-gateway --upstream "$UPSTREAM_URL" --port 8080'
#                     --url http://127.0.0.1:8080/mcp [--header 'X-Api-Key: k']...
#                     [--mode auto|legacy|REVISION] [--revision R]... [--scenario S]...
#                     [--baseline FILE]... [--timeout SECONDS] [--out FOLDER]
#
# --start is run afresh for each scenario. Without it the driving client talks to
# the scenarios by itself, which shows what a score without a gateway is.
# Last line: `N passed, N failed`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$(SKIP_PYTHON=1 "$here/setup.sh")
exec "$cache/node" "$cache/southbound/run.mjs" "$@"
