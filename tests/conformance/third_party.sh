#!/usr/bin/env bash
# Puts servers that nobody here wrote behind a Hangu, by URL, and through the life of a
# definition: listed, called, pinned, changed, quarantined, compared, approved, rolled
# back.
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
  local folder=$work/$1 port admin at gateway start more= tool named
  local arguments changed says changed_says
  mkdir -p "$folder/policies"
  read -r port admin at < <(free_ports 3)
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
  configure "$folder" "$port" "$admin" "$1" "http://127.0.0.1:$at/mcp" "store: sqlite:hangu.db"
  sed -i "s|^admin: .*|admin: { listen: 127.0.0.1:$admin, token: { env: HANGU_ADMIN_TOKEN } }|" "$folder/hangu.yaml"
  sed -i "s|^\(  $1: { url: .*\) }|\1, poll: 1s$more }|" "$folder/hangu.yaml"
  # What is looked at twice, and by a person first.
  sed -i "s|^    default: { risk: read_low }|&\n    tools: { $tool: { risk: read_high, pin: approve } }|" "$folder/policies/all.yaml"

  "$hangu" serve --config "$folder/hangu.yaml" > "$folder/hangu.log" 2>&1 &
  gateway=$!
  pids+=("$gateway")
  await_ready "$admin" "$gateway" "$folder/hangu.log"
  "$cache/node" "$cache/third_party/drive.mjs" --gateway "http://127.0.0.1:$port" \
    --admin "http://127.0.0.1:$admin" --hangu "$hangu" --upstream "$1" --start "$start" \
    --tool "$tool" --arguments "$arguments" --says "$says" --changed-arguments "$changed" \
    --changed-says "$changed_says" --differs parameter_added_required --named "$named" 2>&1 | tee "$folder/drive.log" | { grep -E '^not ok|Error' || true; }
  count "server $1" "$folder/drive.log"
  if ! grep -q ' 0 failed$' "$folder/drive.log"; then
    echo "-- end of the gateway's log, server $1"
    tail -20 "$folder/hangu.log"
  fi
  stop
}

for server in "${servers[@]}"; do judge "$server"; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
