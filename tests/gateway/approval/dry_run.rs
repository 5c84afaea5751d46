//! Dry runs: every check, and no trace at the server, in the limits or in the store.

use serde_json::{Value, json};

use super::{CLIENTS, Fixture, RULES, fault, ran, request, value, with_meta};
use crate::support::{Answer, OK, Reply, Request, Speaks, Upstream};

const LIMITED: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: all, effect: allow, roles: [member] }
  - { id: no, effect: deny, tools: [up/slow], when: { arg: /n, eq: 1 }, say: Not one. }
limits:
  - { id: few, per: [tenant, tool], tools: [up/echo], rate: 3/1h, burst: 3 }
";

const TOOLS: &str = r#"[{"name":"echo","description":"Says it again.","inputSchema":{"type":"object"}},
{"name":"slow","description":"Takes its time.","inputSchema":{"type":"object"}},
{"name":"shaped","description":"Has a shape.","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}},
{"name":"strict","description":"Wants a number.","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}},
{"name":"wipe","description":"Deletes.","inputSchema":{"type":"object"}}]"#;

fn fixture(rules: &str) -> Fixture {
    let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
    upstream.lists(TOOLS);
    Fixture::before(upstream, rules)
}

fn dry(client: &str, tool: &str, arguments: &Value) -> Request {
    request(client, tool, arguments).header("X-Dry-Run", "true")
}

/// What a dry run found.
#[track_caller]
fn found(reply: &Reply) -> Value {
    let message = value(reply);
    let result = message.get("result").unwrap_or(&message);
    let found = result["_meta"]["dev.hangu/dryRun"].clone();
    assert_eq!(found["dryRun"], true, "{message}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("Dry run of `") && text.ends_with("Nothing was sent."), "{text}");
    found
}

#[test]
fn every_dialect_says_what_would_happen_and_nothing_does() {
    let it = fixture(LIMITED);
    for client in CLIENTS {
        let arguments = json!({ "of": client });
        let meta = json!({ "dev.hangu/dryRun": true });
        for call in [dry(client, "echo", &arguments), with_meta(client, "echo", &arguments, &meta)]
        {
            // More often than the limit would let through.
            for _ in 0..3 {
                let reply = call.ask(&it.gateway);
                let found = found(&reply);
                assert_eq!((reply.status, &found["wouldRun"]), (200, &json!(true)), "{found}");
                assert_eq!(
                    (&found["decision"], &found["risk"]),
                    (&json!("allow"), &json!("read_low"))
                );
                assert_eq!(found["traceId"], reply.header("x-trace-id").unwrap());
                let message = value(&reply);
                let result = message.get("result").unwrap_or(&message);
                assert_eq!(
                    (&result["isError"], &result["structuredContent"]),
                    (&json!(false), &found)
                );
                assert_eq!(reply.header("ratelimit"), None);
            }
        }
    }
    assert_eq!(it.made(), 0);
    it.gateway.audited("it was a dry run", |record| {
        record["dryRun"] == true && record["outcome"] == "ok" && record["decision"] == "allow"
    });
    assert!(it.gateway.audit().iter().all(|record| record["resultRef"].is_null()));
    for made in 1..=3 {
        let call = with_meta("mcp-lite", "echo", &json!({}), &json!({ "dev.hangu/dryRun": false }));
        ran(&call.header("X-Dry-Run", "false").ask(&it.gateway));
        assert_eq!(it.made(), made);
    }
    let limited = fault(&dry("mcp-lite", "echo", &json!({})).ask(&it.gateway));
    assert_eq!((&limited["code"], &limited["limit"]), (&json!("rate_limited"), &json!("few")));
}

#[test]
fn what_would_be_refused_is_refused_alike() {
    let it = fixture(LIMITED);
    for client in CLIENTS {
        for (tool, arguments, code) in [
            ("strict", json!({}), "invalid_args"),
            ("slow", json!({ "n": 1 }), "permission_denied"),
        ] {
            let strip = |reply: &Reply| {
                let mut fault = fault(reply);
                fault["traceId"] = Value::Null;
                fault
            };
            let tried = strip(&dry(client, tool, &arguments).ask(&it.gateway));
            assert_eq!(tried["code"], code, "{client}");
            assert_eq!(tried, strip(&request(client, tool, &arguments).ask(&it.gateway)));
        }
        let unknown = dry(client, "nothing", &json!({})).ask(&it.gateway);
        assert!(unknown.text().contains("unknown tool: nothing"), "{}", unknown.text());
    }
    assert_eq!(it.made(), 0);
}

#[test]
fn a_key_is_looked_at_and_not_taken() {
    let it = fixture(LIMITED);
    let keyed = |call: Request| call.header("Idempotency-Key", "k1");
    let tried = |n: u32| keyed(dry("2026-07-28", "wipe", &json!({ "n": n }))).ask(&it.gateway);
    for n in [1, 2] {
        let found = found(&tried(n));
        assert_eq!((&found["idempotency"], &found["wouldRun"]), (&json!("new"), &json!(true)));
    }
    ran(&keyed(request("2026-07-28", "wipe", &json!({ "n": 1 }))).ask(&it.gateway));
    let replayed = tried(1);
    let found = found(&replayed);
    assert_eq!((&found["idempotency"], &found["wouldRun"]), (&json!("replayed"), &json!(false)));
    assert_eq!(replayed.header("idempotency-replayed"), None, "it is no replay");
    assert_eq!(fault(&tried(2))["code"], "conflict");
    assert_eq!(it.made(), 1);
}

#[test]
fn an_approval_is_looked_at_and_not_asked_for() {
    let it = fixture(RULES);
    for (made, client) in CLIENTS.into_iter().enumerate() {
        let arguments = json!({ "of": client });
        let tried = || found(&dry(client, "wipe", &arguments).ask(&it.gateway));
        let stands = |found: &Value, state: &str, runs: bool| {
            assert_eq!(found["decision"], "require_approval", "{found}");
            assert_eq!(found["approval"]["state"], state, "{client}: {found}");
            assert_eq!(found["wouldRun"], runs, "{client}: {found}");
        };
        stands(&tried(), "needed", false);
        stands(&tried(), "needed", false);
        let id = it.waits(client, &arguments);
        let found = tried();
        stands(&found, "waiting", false);
        assert_eq!(found["approval"]["approvalId"], id);
        it.decide(&id, "E2", true);
        stands(&tried(), "approved", true);
        stands(&tried(), "approved", true);
        ran(&it.call(client, &arguments));
        assert_eq!(it.made(), made + 1);
        stands(&tried(), "needed", false);
        let id = it.waits(client, &arguments);
        it.decide(&id, "E2", false);
        stands(&tried(), "refused", false);
    }
    let requests = it.gateway.audit().into_iter().filter(|r| r["event"] == "approval_request");
    assert_eq!(requests.count(), 2 * CLIENTS.len(), "none of a dry run");
}

#[test]
fn a_tool_with_a_shape_gets_no_other_shape() {
    let it = fixture(LIMITED);
    for client in CLIENTS {
        let reply = dry(client, "shaped", &json!({})).ask(&it.gateway);
        assert_eq!(found(&reply)["wouldRun"], true);
        let message = value(&reply);
        let result = message.get("result").unwrap_or(&message);
        assert_eq!(result["isError"], true, "{message}");
        assert!(result.get("structuredContent").is_none(), "{message}");
    }
}

#[test]
fn what_is_no_plain_wish_is_refused() {
    let it = fixture(LIMITED);
    for client in CLIENTS {
        let reply = request(client, "echo", &json!({})).header("X-Dry-Run", "yes").ask(&it.gateway);
        assert_eq!(reply.status, 400, "{}", reply.text());
        let meta = json!({ "dev.hangu/dryRun": "true" });
        let reply = with_meta(client, "echo", &json!({}), &meta).ask(&it.gateway);
        assert!(reply.text().contains("must be true or false"), "{}", reply.text());
    }
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a:b"}}"#;
    let reply = Request::handshake(body).header("X-Dry-Run", "true").ask(&it.gateway);
    assert_eq!(fault(&reply)["code"], "invalid_args", "{}", reply.text());
    assert!(reply.text().contains("tools/call alone"), "{}", reply.text());
    assert_eq!(it.made(), 0);
}
