# What the scripts around the gateway share; sourced by gateway.sh and southbound.sh.
# Everything they start is stopped when they end, and known by its process id.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
pids=()
passed=0
failed=0

stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
}
trap 'stop; rm -rf "$work"' EXIT

find_hangu() { # what --hangu said
  hangu=${1:-${CARGO_TARGET_DIR:-$here/../../target}/debug/hangu}
  [ -x "$hangu" ] || { echo "no gateway at $hangu: build it, or name it with --hangu" >&2; exit 2; }
}

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

# A gateway that lets its one employee use everything that its one upstream offers: a
# rule that names no family is about tools, prompts and resources.
configure() { # folder, port, admin port, upstream, its URL, more settings
  mkdir -p "$1/policies"
  cat > "$1/hangu.yaml" << YAML
version: hangu/v1
listen: 127.0.0.1:$2
admin: { listen: 127.0.0.1:$3 }
policies: policies/
audit: { file: audit.jsonl }
${6:-}
callers:
  conformance:
    keys: [{ env: CONFORMANCE_KEY }]
    tenant: acme
    identity: header
    catalog_roles: [member]
upstreams:
  $4: { url: "$5" }
YAML
  cat > "$1/policies/all.yaml" << YAML
version: hangu/v1
kind: Tools
upstreams:
  $4:
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
