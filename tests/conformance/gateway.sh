#!/usr/bin/env bash
# Runs the conformance suite and the real clients through a Hangu in front of the
# upstream test server:
#
#   gateway.sh [--hangu BINARY] [--upstream dual|legacy|modern|paged]...
#              [--suite-only | --clients-only] [--long-seconds N] [--out FOLDER]
#
# One gateway for each kind of upstream: `dual` speaks every revision, `legacy` only
# the handshake ones, `modern` only 2026-07-28, `paged` lists its tools in pages of
# ten (without the suite, which reads one page). Known failures are in *.baseline.
# Everything started here listens on a free loopback port and is stopped at the end.
# Last line: `N passed, N failed`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

hangu=
upstreams=()
suite=1
clients=1
long=5
out=
while [ $# -gt 0 ]; do
  case $1 in
    --hangu) hangu=$2; shift 2 ;;
    --upstream) upstreams+=("$2"); shift 2 ;;
    --suite-only) clients=0; shift ;;
    --clients-only) suite=0; shift ;;
    --long-seconds) long=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done
[ ${#upstreams[@]} -gt 0 ] || upstreams=(dual legacy modern paged)
hangu=${hangu:-${CARGO_TARGET_DIR:-$here/../../target}/debug/hangu}
[ -x "$hangu" ] || { echo "no gateway at $hangu: build it, or name it with --hangu" >&2; exit 2; }

cache=$("$here/setup.sh")
work=$(mktemp -d)
out=${out:-$work/out}
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
}
trap 'stop; rm -rf "$work"' EXIT

free_ports() { # count
  "$cache/node" -e '
    const net = require("node:net");
    const open = Array.from({ length: Number(process.argv[1]) }, () => net.createServer());
    Promise.all(open.map(server => new Promise(done => server.listen(0, "127.0.0.1", done)))).then(() => {
      console.log(open.map(server => server.address().port).join(" "));
      open.forEach(server => server.close());
    });' "$1"
}

await_line() { # file, pattern: prints what the pattern captures
  for _ in $(seq 100); do
    if grep -q "$2" "$1" 2>/dev/null; then
      sed -n "s/$2/\1/p" "$1" | head -1
      return
    fi
    sleep 0.1
  done
  echo "no line like \"$2\":" >&2
  cat "$1" >&2
  return 1
}

await_ready() { # admin port, pid, log
  for _ in $(seq 300); do
    if ! kill -0 "$2" 2>/dev/null; then break; fi
    if curl --silent --fail --output /dev/null "http://127.0.0.1:$1/readyz"; then return; fi
    sleep 0.1
  done
  echo "the gateway did not become ready:" >&2
  cat "$3" >&2
  return 1
}

# A gateway that lets its one employee call everything the upstream offers.
configure() { # folder, port, admin port, upstream URL
  mkdir -p "$1/policies"
  cat > "$1/hangu.yaml" << YAML
version: hangu/v1
listen: 127.0.0.1:$2
admin: { listen: 127.0.0.1:$3 }
policies: policies/
audit: { file: audit.jsonl }
callers:
  conformance:
    keys: [{ env: CONFORMANCE_KEY }]
    tenant: acme
    identity: header
    catalog_roles: [member]
upstreams:
  everything: { url: $4 }
YAML
  cat > "$1/policies/all.yaml" << 'YAML'
version: hangu/v1
kind: Tools
upstreams:
  everything:
    default: { risk: read_low }
---
version: hangu/v1
kind: Directory
employees:
  E1001: { tenant: acme, roles: [member] }
---
version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: everything, effect: allow, roles: [member] }
YAML
}

passed=0
failed=0
count() { # name, log
  local line
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$2" | tail -1 || true)
  line=${line:-0 passed, 1 failed}
  echo "== $1: $line"
  passed=$((passed + ${line%% passed*}))
  line=${line#*, }
  failed=$((failed + ${line%% failed*}))
}

export CONFORMANCE_KEY=conformance-$RANDOM$RANDOM$RANDOM
headers=(--header "X-Api-Key: $CONFORMANCE_KEY" --header 'SSO-Emp-Id: E1001')

judge() { # kind of upstream
  local kind=$1 folder=$work/$1 arguments=() url port admin gateway before=$failed
  mkdir -p "$folder"
  case $kind in
    dual) ;;
    legacy | modern) arguments=(--only "$kind") ;;
    paged) arguments=(--page-size 10) ;;
    *) echo "unknown kind of upstream: $kind" >&2; exit 2 ;;
  esac
  "$cache/node" "$cache/everything/server.mjs" --port 0 --quiet "${arguments[@]}" > "$folder/upstream.log" 2>&1 &
  pids+=($!)
  url=$(await_line "$folder/upstream.log" '^everything server on \(.*\)')

  read -r port admin < <(free_ports 2)
  configure "$folder" "$port" "$admin" "$url"
  "$hangu" serve --config "$folder/hangu.yaml" > "$folder/hangu.log" 2>&1 &
  gateway=$!
  pids+=("$gateway")
  await_ready "$admin" "$gateway" "$folder/hangu.log"
  url=http://127.0.0.1:$port/mcp/everything

  if [ "$suite" = 1 ] && [ "$kind" != paged ]; then
    local baselines=(--baseline "$here/everything.baseline")
    if [ -e "$here/everything-$kind.baseline" ]; then
      baselines+=(--baseline "$here/everything-$kind.baseline")
    fi
    "$here/run.sh" "$url" "${headers[@]}" --revision 2025-11-25 --revision 2026-07-28 --all \
      "${baselines[@]}" --out "$out/$kind" 2>&1 | tee "$folder/suite.log" || true
    count "suite, $kind upstream" "$folder/suite.log"
  fi
  if [ "$clients" = 1 ]; then
    local options=(--tools-only --long-seconds 1)
    case $kind in
      dual) options=(--tools-only --long-seconds "$long") ;;
      paged) options+=(--only ts-v1,ts-v2:2026-07-28) ;;
    esac
    "$here/clients/run.sh" "$url" "${headers[@]}" "${options[@]}" > "$folder/clients.log" 2>&1 || true
    grep -E '^(#|not ok)' "$folder/clients.log" | grep -B1 '^not ok' || true
    count "clients, $kind upstream" "$folder/clients.log"
  fi
  if [ "$failed" -gt "$before" ]; then
    echo "-- end of the gateway's log, $kind upstream"
    tail -20 "$folder/hangu.log"
  fi
  stop
}

for kind in "${upstreams[@]}"; do judge "$kind"; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
