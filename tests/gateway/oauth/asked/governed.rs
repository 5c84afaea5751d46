//! A call that ended because somebody has to connect first has done nothing: its key is free, it
//! has cost nothing, and whoever said yes to it need not say so again.

use hangu::{
    approval::ApprovalId,
    model::caller::{EmployeeId, Role, Roles, TenantId},
};

use super::*;

const RULES: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: all, effect: allow, roles: [member] }
  - { id: approve, effect: require_approval, when: { arg: /n, in: [1] }, approval: { roles: [owner], expires: 1h } }
  - { id: confirm, effect: require_approval, when: { arg: /n, in: [2] }, approval: { confirm: requester } }
quotas:
  - { id: year-cost, per: [tenant], budget: { cost: 100, every: year, zone: UTC }, steps: [{ at: 100%, do: deny }] }
---
version: hangu/v1
kind: Directory
employees: { E1: { tenant: acme, roles: [member] }, E2: { tenant: acme, roles: [member, owner] } }
---
version: hangu/v1
kind: Tools
upstreams: { up: { default: { risk: write_low, idempotency: optional, cost: 60 } } }
";

fn governed(pair: &Pair) -> Gateway {
    Gateway::start(&yaml(pair, "", "store: memory"), &[RULES])
}

/// Makes a call with these arguments, and without a key.
fn unkeyed(arguments: &Value, more: &Value) -> Request {
    let params = json!({ "name": "echo", "arguments": arguments });
    let both = json!({ "elicitation": { "form": {}, "url": {} } });
    modern("tools/call", &params, &both, more).header("SSO-Emp-Id", "E1")
}

fn keyed(arguments: &Value, more: &Value) -> Request {
    unkeyed(arguments, more).header("Idempotency-Key", "k")
}

#[test]
fn a_key_is_free_and_nothing_is_spent() {
    let pair = Pair::start();
    let gateway = governed(&pair);
    let mut more = json!({});
    let mut url = String::new();
    // Of a hundred, sixty each time: the second would be one too many.
    for _ in 0..3 {
        let (link, state) = asked(&keyed(&json!({}), &more).ask(&gateway));
        (url, more) = (link, only(&state));
    }
    // By the error of 2025-11-25, too, and by the one of everybody else.
    let session = session(&gateway, "2025-11-25", &links(), "E1");
    let key = |request: Request| request.header("Idempotency-Key", "k");
    wanted(&key(legacy("2025-11-25", Some(&session))).ask(&gateway));
    connect_url(&key(legacy("2025-11-25", None)).ask(&gateway));
    connect(&gateway, &pair, &url);
    ran(&keyed(&json!({}), &more).ask(&gateway));
    assert_eq!(pair.up.calls().len(), 1);
    // Whoever comes back too late is answered as the first one was.
    let again = keyed(&json!({}), &more).ask(&gateway);
    assert_eq!(again.header("idempotency-replayed"), Some("true"), "{}", again.text());
    assert_eq!(pair.up.calls().len(), 1);
    gateway.audited("a call that was asked about", |record| {
        record["outcome"] == "input_required" && record["cost"] == 0
    });
    gateway
        .audited("the call that ran", |record| record["outcome"] == "ok" && record["cost"] == 60);
}

fn waits(reply: &Reply) -> String {
    let refusal = consent::refusal(reply);
    assert_eq!(refusal["code"], "approval_required", "{}", reply.text());
    refusal["approvalId"].as_str().unwrap().to_owned()
}

fn approve(gateway: &Gateway, id: &str) {
    let (acme, by) = (TenantId::new("acme"), EmployeeId::parse("E2").unwrap());
    let owner = Roles::new([Role::new("owner")]);
    let id = ApprovalId::parse(id).unwrap();
    let decided = gateway.approvals().decide(&acme, id, &by, &owner, true, None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(decided).unwrap();
}

#[test]
fn an_approval_is_good_for_the_call_that_comes_back_and_for_one_that_begins_anew() {
    for anew in [false, true] {
        let pair = Pair::start();
        let gateway = governed(&pair);
        let call = |more: &Value| unkeyed(&json!({ "n": 1 }), more).ask(&gateway);
        let id = waits(&call(&json!({})));
        approve(&gateway, &id);
        let (url, state) = asked(&call(&json!({})));
        connect(&gateway, &pair, &url);
        ran(&call(&if anew { json!({}) } else { says("accept", &state) }));
        assert_eq!(pair.up.calls().len(), 1);
        assert_ne!(waits(&call(&json!({}))), id, "it was used by that one");
    }
}

#[test]
fn who_has_confirmed_a_call_does_not_confirm_it_again() {
    let pair = Pair::start();
    let gateway = governed(&pair);
    let call = |more: &Value| unkeyed(&json!({ "n": 2 }), more).ask(&gateway);
    let asking = message(&call(&json!({})));
    assert_eq!(asking["result"]["inputRequests"]["confirm"]["params"]["mode"], "form", "{asking}");
    let confirms = json!({ "inputResponses": { "confirm": { "action": "accept", "content": {} } },
                           "requestState": asking["result"]["requestState"] });
    let (url, state) = asked(&call(&confirms));
    connect(&gateway, &pair, &url);
    ran(&call(&says("accept", &state)));
    // What was confirmed is good once, whoever keeps it.
    let reply = call(&says("accept", &state));
    assert_eq!(reply.rpc_code(), Some(-32602), "{}", reply.text());
    assert_eq!(pair.up.calls().len(), 1);
}

/// The error comes at the end of a stream then.
#[test]
fn who_confirms_in_the_middle_of_a_call_is_told_the_link_at_its_end() {
    let pair = Pair::start();
    let gateway = governed(&pair);
    let both = json!({ "elicitation": { "form": {}, "url": {} } });
    let session = session(&gateway, "2025-11-25", &both, "E1");
    let in_session = |body: &Value| {
        Request::handshake(body.to_string())
            .header("Mcp-Session-Id", &session)
            .header("SSO-Emp-Id", "E1")
    };
    let call = || {
        let params = json!({ "name": "echo", "arguments": { "n": 2 } });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let mut client = Client::of(&gateway);
        client.send(&in_session(&body));
        assert_eq!(client.head().status, 200);
        let question = told(&mut client);
        assert_eq!(question["params"]["mode"], "form", "{question}");
        let yes = json!({ "action": "accept", "content": {} });
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": yes });
        assert_eq!(in_session(&answer).ask(&gateway).status, 202);
        told(&mut client)
    };
    let end = call();
    assert_eq!(end["error"]["code"], -32042, "{end}");
    let link = &end["error"]["data"]["elicitations"][0];
    connect(&gateway, &pair, link["url"].as_str().unwrap());
    let end = call();
    assert_eq!(end["result"]["content"][0]["text"], "ok", "{end}");
    assert_eq!(pair.up.calls().len(), 1);
}

#[test]
fn a_dry_run_asks_nobody() {
    let pair = Pair::start();
    let gateway = governed(&pair);
    let reply = keyed(&json!({}), &json!({})).header("X-Dry-Run", "true").ask(&gateway);
    let found = &message(&reply)["result"]["_meta"]["dev.hangu/dryRun"];
    assert_eq!(found["dryRun"], true, "{}", reply.text());
    assert!(pair.up.calls().is_empty());
}
