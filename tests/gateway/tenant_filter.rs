//! What a tenant may not see does not exist for it: in lists, in calls, in what is kept.

use serde_json::{Value, json};

use crate::process_support::{
    Client, Dialect, GLOBEX_KEY, KEY, Response, Setup, Upstream, tool, until,
};

/// Members of acme may use `echo`, those of globex everything.
const RULES: &str = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: echo, effect: allow, roles: [member], tools: [up/echo] }
---
version: hangu/v1
kind: Policy
scope: { tenant: globex }
rules:
  - { id: all, effect: allow, roles: [member], tools: [\"up/*\"] }
";

/// All that a caller sees of an answer, but for what is different each time.
fn shape(answer: &Response, name: &str) -> (u16, Vec<(String, String)>, String) {
    let trace = answer.header("x-trace-id").unwrap_or_default().to_owned();
    let varies = ["x-trace-id", "date"];
    let headers = answer.headers.iter().filter(|(name, _)| !varies.contains(&&**name));
    let body = answer.text().replace(&trace, "TRACE").replace(name, "NAME");
    (answer.status, headers.cloned().collect(), body)
}

/// C57.
#[test]
fn a_hidden_tool_answers_like_one_that_does_not_exist() {
    let up = Upstream::start(&[tool("echo"), tool("wipe")]);
    let gateway = Setup::new()
        .upstream("up", &up, "", "")
        .policy("platform.yaml", RULES)
        .policy(
            "limits.yaml",
            "version: hangu/v1\nkind: Policy\nscope: platform\nlimits:\n  \
                                - { id: l, per: [principal], rate: 1000/1m }\n",
        )
        .start();
    for dialect in Dialect::ALL {
        for (path, prefix) in [("/mcp/up", ""), ("/mcp", "up__")] {
            let client = gateway.client(path, dialect);
            assert_eq!(client.list(), [format!("{prefix}echo")], "{dialect:?} {path}");
            let (hidden, unknown) = (format!("{prefix}wipe"), format!("{prefix}nope"));
            // Also with arguments, keys and a session that would be looked at for a real one.
            let clients = [
                ("plain", client.clone()),
                ("keyed", client.clone().header("Idempotency-Key", "k1")),
                ("wrongly keyed", client.clone().header("Idempotency-Key", &"k".repeat(300))),
                ("nobody", client.clone().without("SSO-Emp-Id")),
            ];
            for (named, client) in clients {
                for arguments in [json!({}), json!({ "x": [1] })] {
                    let answers =
                        [&hidden, &unknown].map(|name| client.call(name, arguments.clone()));
                    assert_eq!(
                        shape(&answers[0], &hidden),
                        shape(&answers[1], &unknown),
                        "{dialect:?} {path}"
                    );
                    let word = answers[0].word();
                    let wanted = match dialect {
                        // Nobody may call anything, and learns nothing of names either.
                        _ if named == "nobody" => "permission_denied",
                        _ => "not_found",
                    };
                    assert_eq!(word, wanted, "{dialect:?}: {:?}", answers[0]);
                }
            }
            let denied = client.call(&hidden, json!({}));
            let record = gateway.record_of(&denied);
            assert_eq!(record["outcome"], "denied", "{record:#}");
            assert_eq!(record["tool"], "up/wipe", "{record:#}");
            assert_eq!(record["decision"], "hide", "{record:#}");
        }
    }
    assert_eq!(up.calls().len(), 0);
}

/// C58.
#[test]
fn each_tenant_gets_its_own_server_behind_one_name() {
    let (first, second) = (Upstream::start(&[tool("search")]), Upstream::start(&[tool("search")]));
    let gateway = Setup::new()
        .upstream("first", &first, "", "")
        .upstream("second", &second, "", "")
        .policy(
            "platform.yaml",
            "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules: [{ id: a, effect: allow, roles: [member], tools: [\"first/*\"] }]
---
version: hangu/v1
kind: Policy
scope: { tenant: globex }
rules: [{ id: b, effect: allow, roles: [member], tools: [\"second/*\"] }]
",
        )
        .start();
    for dialect in Dialect::ALL {
        let tenants: [(&str, &str, &str, &Upstream); 2] =
            [(KEY, "E1", "first__search", &first), (GLOBEX_KEY, "G1", "second__search", &second)];
        for _ in 0..2 {
            for (key, employee, name, upstream) in tenants {
                let client = Client::new(gateway.address, "/mcp", dialect);
                let client = client.key(key).employee(employee);
                let before = upstream.calls().len();
                assert_eq!(client.list(), [name], "{dialect:?}");
                assert_eq!(client.call(name, json!({})).word(), "ok", "{dialect:?}");
                assert_eq!(upstream.calls().len(), before + 1, "{dialect:?}");
                // The other tenant's is not there.
                let other =
                    if name == "first__search" { "second__search" } else { "first__search" };
                assert_ne!(client.call(other, json!({})).word(), "ok", "{dialect:?}");
            }
        }
    }
    assert_eq!((first.calls().len(), second.calls().len()), (6, 6));
}

#[test]
fn one_key_of_two_tenants_is_two_keys() {
    let up = Upstream::start(&[tool("pay")]);
    let gateway = Setup::new().upstream("up", &up, "", "pay: { risk: write_low }").start();
    for dialect in Dialect::ALL {
        let who: [(&str, &str); 3] = [(KEY, "E1"), (KEY, "E2"), (GLOBEX_KEY, "G1")];
        let before = up.calls().len();
        for (key, employee) in who {
            let client = Client::new(gateway.address, "/mcp/up", dialect).key(key);
            let client =
                client.employee(employee).header("Idempotency-Key", &format!("k-{dialect:?}"));
            let first = client.call("pay", json!({ "n": 1 }));
            assert_eq!(first.header("idempotency-replayed"), None, "{employee}");
            let again = client.call("pay", json!({ "n": 1 }));
            assert_eq!(again.header("idempotency-replayed"), Some("true"), "{employee}");
        }
        assert_eq!(up.calls().len(), before + 3);
    }
}

#[test]
fn a_list_is_exactly_what_may_be_called() {
    let names = ["a", "b", "shell_run", "read_file", "c"];
    let up = Upstream::start(&names.map(tool));
    let rules = include_str!("../../policies/platform.yaml");
    let gateway = Setup::new()
        .upstream("up", &up, "", "b: { risk: write_high }")
        .policy("rules.yaml", rules)
        .start();
    for dialect in Dialect::ALL {
        let client = gateway.client("/mcp/up", dialect);
        let listed = client.list();
        for name in names {
            let answer = client.call(name, json!({}));
            let called = answer.word() == "ok";
            assert_eq!(called, listed.iter().any(|one| one == name), "{dialect:?} {name}");
        }
        assert_eq!(listed, ["a", "c"], "{dialect:?}");
    }
}

#[test]
fn a_tool_that_is_gone_from_the_listing_is_gone() {
    let up = Upstream::start(&[tool("stays"), tool("goes")]);
    let gateway = Setup::new().upstream("up", &up, "", "").start();
    let client = gateway.client("/mcp/up", Dialect::Modern);
    assert_eq!(client.call("goes", json!({})).word(), "ok");
    up.on(|seen| {
        let tools: Vec<Value> = vec![tool("stays")];
        let listing = json!({ "resultType": "complete", "tools": tools, "ttlMs": 0,
                              "cacheScope": "public" });
        (seen.method == "tools/list").then(|| seen.result(listing))
    });
    until("the tool is gone", || client.list() == ["stays"]);
    assert_eq!(client.call("goes", json!({})).word(), "not_found");
}
