#!/usr/bin/env bash
# Runs every client against a server or gateway that exposes the tools of
# ../everything/server.mjs:
#
#   clients/run.sh URL [--header 'X-Api-Key: k']... [--prefix P] [--long-seconds N]
#                      [--expect-pages] [--tools-only] [--only NAME[,NAME]]
#
# Names: ts-v1, ts-v2:REVISION, mcp:MODE, fastmcp:MODE, rmcp:MODE, inspector:MODE,
# with the modes legacy (sessions) and auto (2026-07-28 where it is offered).
# rmcp is built with cargo, which takes about a minute the first time; SKIP_RUST=1
# leaves it out.
# Last line: `N passed, N failed`, counting checks over all clients.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$("$here/../setup.sh")

only=
args=()
while [ $# -gt 0 ]; do
  case $1 in
    --only) only=,$2, ; shift 2 ;;
    *) args+=("$1"); shift ;;
  esac
done

passed=0
failed=0
summary=
client() {
  local name=$1 line code=0
  shift
  if [ -n "$only" ] && [[ $only != *",$name,"* ]]; then return; fi
  timeout 300 "$@" "${args[@]}" > "$cache/client.log" 2>&1 || code=$?
  cat "$cache/client.log"
  echo
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$cache/client.log" | tail -1 || true)
  if [ -z "$line" ]; then line="0 passed, 1 failed (exit status $code)"; fi
  passed=$((passed + ${line%% passed*}))
  line_failed=${line#*, }
  failed=$((failed + ${line_failed%% failed*}))
  summary+=$(printf '%-18s %s' "$name" "$line")$'\n'
}

rust=
if [ "${SKIP_RUST:-0}" != 1 ] && command -v cargo > /dev/null && { [ -z "$only" ] || [[ $only == *,rmcp:* ]]; }; then
  (cd "$cache/clients/rmcp" && CARGO_TARGET_DIR=$cache/rmcp-target cargo build --quiet --locked) >&2
  rust=$cache/rmcp-target/debug/rmcp-client
fi

client ts-v1 "$cache/node" "$cache/clients/ts-v1.mjs"
for revision in 2025-03-26 2025-06-18 2025-11-25 2026-07-28; do
  client "ts-v2:$revision" "$cache/node" "$cache/clients/ts-v2.mjs" --mode "$revision"
done
for mode in legacy auto; do
  client "mcp:$mode" "$cache/venv/bin/python" "$cache/clients/py_mcp.py" --mode "$mode"
  client "fastmcp:$mode" "$cache/venv/bin/python" "$cache/clients/py_fastmcp.py" --mode "$mode"
  if [ -n "$rust" ]; then client "rmcp:$mode" "$rust" --mode "$mode"; fi
  client "inspector:$mode" "$cache/node" "$cache/clients/inspector.mjs" --mode "$mode"
done

echo "$summary"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
