#!/usr/bin/env bash
# Puts servers that nobody here wrote behind a Hangu, by URL, and through the life of a
# definition: listed, called, pinned, changed, quarantined, compared, approved, rolled
# back. Each twice: as an upstream of `hangu.yaml`, and as employees bring it themselves.
#
#   third_party.sh [--hangu BINARY] [--server everything|fastmcp|fastmcp-sessions|typescript]...
#
# `everything` is npm's server-everything (sessions), whose next release is made here by
# a change of its `echo`; `fastmcp` a server on FastMCP, in the era that it prefers and
# pinned to sessions; `typescript` one on version 2 of the TypeScript SDK (stateless).
# Last line: `N passed, N failed`.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

hangu=
servers=()
while [ $# -gt 0 ]; do
  case $1 in
    --hangu) hangu=$2; shift 2 ;;
    --server) servers+=("$2"); shift 2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done
[ ${#servers[@]} -gt 0 ] || servers=(everything fastmcp fastmcp-sessions typescript)
find_hangu "$hangu"
cache=$("$here/setup.sh")

export HANGU_API_KEY=$CONFORMANCE_KEY
export GLOBEX_KEY=globex-$RANDOM$RANDOM$RANDOM
export HANGU_ADMIN_TOKEN=third-party-$RANDOM$RANDOM$RANDOM

# server-everything, as it comes and as its next release might: `echo` wants another
# argument. A copy beside the packages that it needs.
everything() { # folder
  local package=$cache/node_modules/@modelcontextprotocol/server-everything release
  for release in first changed; do
    mkdir -p "$1/$release"
    cp -r "$package/dist" "$package/package.json" "$1/$release/"
    ln -sfn "$cache/node_modules" "$1/$release/node_modules"
  done
  local echo=$1/changed/dist/tools/echo.js
  sed -i 's|^    message: z.*|&\n    volume: z.string().describe("How loud to echo"),|' "$echo"
  sed -i 's|`Echo: ${validatedArgs.message}`|`Echo ${validatedArgs.volume}: ${validatedArgs.message}`|' "$echo"
  cmp -s "$1/first/dist/tools/echo.js" "$echo" && { echo "server-everything's echo is not as it was" >&2; exit 1; }
  cat > "$1/start" << SH
#!/usr/bin/env bash
PORT=\$1 exec "$cache/node" "$1/\$2/dist/index.js" streamableHttp 2> "$1/server.log"
SH
  chmod +x "$1/start"
}

judge() { # kind
  local folder=$work/$1 at start more= tool named arguments changed says changed_says
  mkdir -p "$folder"
  at=$(free_ports 1)
  case $1 in
    everything)
      everything "$folder/server"
      start="'$folder/server/start' $at"
      tool=echo named=mcp-servers/everything
      arguments='{"message":"a door"}' says='Echo: a door'
      changed='{"message":"a door","volume":"low"}' changed_says='Echo low: a door'
      ;;
    fastmcp | fastmcp-sessions)
      start="'$cache/venv/bin/python' '$cache/third_party/fastmcp_server.py' $at"
      if [ "$1" = fastmcp-sessions ]; then more=', protocol: "2025-11-25"'; fi
      tool=find_part named=parts
      arguments='{"name":"bolt"}' says='part bolt: shelf 7'
      changed='{"name":"bolt","store":"north"}' changed_says='shelf 7 of north'
      ;;
    typescript)
      start="'$cache/node' '$cache/third_party/typescript_server.mjs' $at"
      tool=find_book named=library
      arguments='{"title":"Walden"}' says='book Walden: row 7'
      changed='{"title":"Walden","branch":"north"}' changed_says='book Walden: north 7'
      ;;
    *) echo "unknown server: $1" >&2; exit 2 ;;
  esac
  as_upstream "$1"
  as_own "$1"
}

# The two use what `judge` has found out of the server.

as_upstream() { # kind
  local port admin
  read -r port admin < <(free_ports 2)
  configure "$folder" "$port" "$admin" "$1" "http://127.0.0.1:$at/mcp" "store: sqlite:hangu.db"
  sed -i "s|^admin: .*|admin: { listen: 127.0.0.1:$admin, token: { env: HANGU_ADMIN_TOKEN } }|" "$folder/hangu.yaml"
  sed -i "s|^\(  $1: { url: .*\) }|\1, poll: 1s$more }|" "$folder/hangu.yaml"
  # What is looked at twice, and by a person first.
  sed -i "s|^    default: { risk: read_low }|&\n    tools: { $tool: { risk: read_high, pin: approve } }|" "$folder/policies/all.yaml"
  drive "server $1" "$folder" "$port" "$admin" drive.mjs --upstream "$1" --named "$named"
}

as_own() { # kind
  local own=$folder/own port admin options='{}'
  read -r port admin < <(free_ports 2)
  if [ "$1" = fastmcp-sessions ]; then options='{"protocol":"2025-11-25"}'; fi
  configure_own "$own" "$port" "$admin"
  drive "server $1, an employee's own" "$own" "$port" "$admin" own.mjs --name "$1" \
    --url "http://127.0.0.1:$at/mcp" --options "$options"
}

# A gateway without an upstream, whose tenants let employees bring what is on this machine: one
# takes its tools for harmless, the other does not.
configure_own() { # folder, port, admin port
  mkdir -p "$1/policies"
  cat > "$1/hangu.yaml" << YAML
version: hangu/v1
listen: 127.0.0.1:$2
admin: { listen: 127.0.0.1:$3, token: { env: HANGU_ADMIN_TOKEN } }
policies: policies/
audit: { file: audit.jsonl }
store: sqlite:hangu.db
egress: { allow: [127.0.0.1] }
callers:
  acme: { keys: [{ env: CONFORMANCE_KEY }], tenant: acme, identity: header }
  globex: { keys: [{ env: GLOBEX_KEY }], tenant: globex, identity: header }
upstreams: {}
YAML
  cat > "$1/policies/directory.yaml" << YAML
version: hangu/v1
kind: Directory
employees:
  E1001: { tenant: acme, roles: [member] }
  E2001: { tenant: globex, roles: [member] }
YAML
  local tenant
  for tenant in acme:read_low globex:read_high; do
    cat > "$1/policies/${tenant%:*}.yaml" << YAML
version: hangu/v1
kind: Policy
scope: { tenant: ${tenant%:*} }
self_service:
  roles: [member]
  hosts: ["127.0.0.1:*"]
  default: { risk: ${tenant#*:}, pin: first_use }
rules:
  - { id: everything, effect: allow, roles: [member] }
YAML
  done
}

drive() { # what is counted, folder, port, admin port, driver, more of its options
  local name=$1 folder=$2 port=$3 admin=$4 driver=$5 gateway
  shift 5
  "$hangu" serve --config "$folder/hangu.yaml" > "$folder/hangu.log" 2>&1 &
  gateway=$!
  pids+=("$gateway")
  await_ready "$admin" "$gateway" "$folder/hangu.log"
  "$cache/node" "$cache/third_party/$driver" --gateway "http://127.0.0.1:$port" \
    --admin "http://127.0.0.1:$admin" --hangu "$hangu" --start "$start" \
    --tool "$tool" --arguments "$arguments" --says "$says" --changed-arguments "$changed" \
    --changed-says "$changed_says" --differs parameter_added_required "$@" 2>&1 | tee "$folder/drive.log" | { grep -E '^not ok|Error' || true; }
  count "$name" "$folder/drive.log"
  if ! grep -q ' 0 failed$' "$folder/drive.log"; then
    echo "-- end of the gateway's log, $name"
    tail -20 "$folder/hangu.log"
  fi
  stop
}

for server in "${servers[@]}"; do judge "$server"; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
