#!/usr/bin/env bash
# Runs the conformance suite's client scenarios about authorization with a Hangu as the
# OAuth client, and an employee with a browser behind it:
#
#   oauth.sh [--hangu BINARY] [--revision R]... [--scenario S]... [--out FOLDER]
#
# A fresh gateway meets each scenario's server (southbound/gateway.mjs starts it). What is
# not expected to pass is in oauth.baseline, with the reason.
# Last line: `N passed, N failed`.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

hangu=
scenarios=()
revisions=()
out=
while [ $# -gt 0 ]; do
  case $1 in
    --hangu) hangu=$2; shift 2 ;;
    --revision) revisions+=("$1" "$2"); shift 2 ;;
    --scenario) scenarios+=("$1" "$2"); shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done
[ ${#revisions[@]} -gt 0 ] || revisions=(--revision 2026-07-28)
if [ ${#scenarios[@]} -eq 0 ]; then
  for name in metadata-default metadata-var1 metadata-var2 metadata-var3 \
    scope-from-www-authenticate scope-from-scopes-supported scope-omitted-when-undefined \
    scope-step-up scope-retry-limit token-endpoint-auth-basic token-endpoint-auth-post \
    token-endpoint-auth-none pre-registration resource-mismatch offline-access-scope \
    offline-access-not-supported authorization-server-migration iss-supported \
    iss-not-advertised iss-supported-missing iss-wrong-issuer iss-unexpected iss-normalized \
    metadata-issuer-mismatch client-credentials-jwt client-credentials-basic basic-cimd; do
    scenarios+=(--scenario "auth/$name")
  done
fi
find_hangu "$hangu"
hangu=$(realpath "$hangu")

cache=$(SKIP_PYTHON=1 "$here/setup.sh")
out=${out:-$work/out}
read -r port admin < <(free_ports 2)
export HANGU=$hangu GATEWAY_FOLDER=$work/gateway GATEWAY_PORT=$port GATEWAY_ADMIN_PORT=$admin
"$here/run-southbound.sh" --start "exec '$cache/node' '$cache/southbound/gateway.mjs'" \
  --url "http://127.0.0.1:$port/mcp/s" "${headers[@]}" --mode auto "${revisions[@]}" \
  "${scenarios[@]}" --baseline "$here/oauth.baseline" --out "$out" 2>&1 | tee "$work/log" || true
count "gateway as an OAuth client" "$work/log"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
