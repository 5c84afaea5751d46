#!/usr/bin/env bash
# Runs the conformance suite and the real clients through a Hangu in front of the
# upstream test server:
#
#   gateway.sh [--hangu BINARY] [--upstream dual|legacy|modern|paged|tasks]...
#              [--suite-only | --clients-only] [--long-seconds N] [--out FOLDER]
#
# One gateway for each kind of upstream: `dual` speaks every revision, `legacy` only
# the handshake ones, `modern` only 2026-07-28, `paged` lists its tools in pages of
# ten (without the suite, which reads one page), and `tasks` is the server with the
# Tasks extension (`cargo build --example tasks_upstream`). What one kind shows that
# cannot be translated is in KIND-upstream.baseline, line by line.
# Everything started here listens on a free loopback port and is stopped at the end.
# Last line: `N passed, N failed`.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

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
[ ${#upstreams[@]} -gt 0 ] || upstreams=(dual legacy modern paged tasks)
find_hangu "$hangu"

cache=$("$here/setup.sh")
out=${out:-$work/out}

# Starts an upstream and says its URL.
upstream() { # kind, folder
  local arguments=()
  case $1 in
    dual) ;;
    legacy | modern) arguments=(--only "$1") ;;
    paged) arguments=(--page-size 10) ;;
    tasks)
      "$(dirname "$hangu")/examples/tasks_upstream" > "$2/upstream.log" 2>&1 &
      pids+=($!)
      url=$(await_line "$2/upstream.log" '^tasks upstream on \(.*\)')
      return
      ;;
    *) echo "unknown kind of upstream: $1" >&2; exit 2 ;;
  esac
  "$cache/node" "$cache/everything/server.mjs" --port 0 --quiet "${arguments[@]}" > "$2/upstream.log" 2>&1 &
  pids+=($!)
  url=$(await_line "$2/upstream.log" '^everything server on \(.*\)')
}

judge() { # kind of upstream
  local kind=$1 folder=$work/$1 url port admin gateway more= before=$failed
  mkdir -p "$folder"
  upstream "$kind" "$folder"

  read -r port admin < <(free_ports 2)
  # Pages on both sides.
  if [ "$kind" = paged ]; then more='lists: { page_size: 10 }'; fi
  configure "$folder" "$port" "$admin" everything "$url" "$more"
  "$hangu" serve --config "$folder/hangu.yaml" > "$folder/hangu.log" 2>&1 &
  gateway=$!
  pids+=("$gateway")
  await_ready "$admin" "$gateway" "$folder/hangu.log"
  url=http://127.0.0.1:$port/mcp/everything

  if [ "$suite" = 1 ] && [ "$kind" != paged ]; then
    local scenarios=(--revision 2025-11-25 --revision 2026-07-28 --all --without 'tasks-*') baselines=()
    if [ "$kind" = tasks ]; then scenarios=(--revision 2026-07-28 --scenario 'tasks-*'); fi
    if [ -e "$here/$kind-upstream.baseline" ]; then
      baselines+=(--baseline "$here/$kind-upstream.baseline")
    fi
    "$here/run.sh" "$url" "${headers[@]}" "${scenarios[@]}" "${baselines[@]}" \
      --out "$out/$kind" 2>&1 | tee "$folder/suite.log" || true
    count "suite, $kind upstream" "$folder/suite.log"
  fi
  if [ "$clients" = 1 ] && [ "$kind" != tasks ]; then
    local options=(--long-seconds 1)
    case $kind in
      dual) options=(--long-seconds "$long") ;;
      paged) options+=(--only ts-v1,ts-v2:2026-07-28 --expect-pages) ;;
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
