#!/usr/bin/env bash
# Runs the conformance suite's client scenarios with a Hangu as the client, once for
# each way in which its own client may speak to it:
#
#   southbound.sh [--hangu BINARY] [--mode auto|legacy|REVISION]... [--revision R]...
#                 [--scenario S]... [--out FOLDER]
#
# A fresh gateway meets each scenario's server (run-southbound.sh starts it).
# Last line: `N passed, N failed`.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

hangu=
modes=()
scenarios=()
out=
while [ $# -gt 0 ]; do
  case $1 in
    --hangu) hangu=$2; shift 2 ;;
    --mode) modes+=("$2"); shift 2 ;;
    --revision | --scenario) scenarios+=("$1" "$2"); shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done
[ ${#modes[@]} -gt 0 ] || modes=(auto legacy 2026-07-28)
find_hangu "$hangu"

cache=$(SKIP_PYTHON=1 "$here/setup.sh")
out=${out:-$work/out}

read -r port admin < <(free_ports 2)
# The scenario's server is named by the one that starts the gateway.
configure "$work/gateway" "$port" "$admin" s '${UPSTREAM_URL}'
for mode in "${modes[@]}"; do
  "$here/run-southbound.sh" --start "exec '$hangu' serve --config '$work/gateway/hangu.yaml'" \
    --url "http://127.0.0.1:$port/mcp/s" "${headers[@]}" --mode "$mode" "${scenarios[@]}" \
    --out "$out/$mode" 2>&1 | tee "$work/$mode.log" || true
  count "gateway as a client, its own client in mode $mode" "$work/$mode.log"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
