//! Runs that do not go well: what is not configured, not allowed, out of time, gone.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::support::{Client, wait_for};

/// Steps that each call `echo`, of these upstreams.
fn echoes(gateway: &Gateway, servers: &[&str], policy: &str) -> Value {
    let steps = (1..).zip(servers).map(|(index, server)| {
        let more = json!({ "saveAs": format!("s{index}"), "failurePolicy": policy });
        step(index, &key_of(gateway, server), "echo", json!({}), more)
    });
    compiled(gateway, &Value::Array(steps.collect()))
}

/// There is no pre-flight: what a step lacks shows when it is reached.
#[test]
fn a_step_whose_server_is_not_configured_fails_when_it_is_reached() {
    let (one, two, three) = (server(), server(), server());
    let author = gateway(&[("one", &one), ("two", &two), ("three", &three)], "");
    let compiled = echoes(&author, &["one", "two", "three", "one"], "required");
    let runner = gateway(&[("one", &one), ("two", &two)], "");
    let (told, states) = ran(&run(&runner, "E2", &compiled, json!({})));
    assert_eq!(states, ["ok", "ok", "failed server_not_configured", "not_reached"]);
    assert_eq!(told["state"], "failed");
    assert_eq!(told["steps"][2]["error"]["alias"], "MCP_SERVER_NOT_CONFIGURED");
    assert_eq!((one.calls().len(), two.calls().len(), three.calls().len()), (1, 1, 0));
    assert_eq!(told["variables"].as_object().unwrap().keys().collect::<Vec<_>>(), ["s1", "s2"]);
    let is = |record: &Value| record["code"] == "server_not_configured";
    runner.audited("the third step", |record| is(record) && record["tool"] == "echo");
}

#[test]
fn who_lacks_the_right_is_told_so_when_the_step_is_reached() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "");
    let key = key_of(&gateway, "one");
    let n = json!({ "n": constant(json!(1)) });
    let steps = json!([
        step(1, &key, "echo", json!({}), json!({})),
        step(2, &key, "pay", n, json!({})),
        step(3, &key, "echo", json!({}), json!({})),
    ]);
    let compiled = compiled(&gateway, &steps);
    let (told, states) = ran(&run(&gateway, "E2", &compiled, json!({})));
    assert_eq!(states, ["ok", "failed permission_denied", "not_reached"], "{told}");
    gateway.audited("the second step", |record| {
        record["tool"] == "one/pay" && record["code"] == "permission_denied"
    });
    assert_eq!(ran(&run(&gateway, "E1", &compiled, json!({}))).1, ["ok"; 3]);
}

#[test]
fn an_optional_step_that_fails_leaves_null() {
    let (one, two) = (server(), server());
    let gateway = gateway(&[("one", &one), ("two", &two)], "");
    one.answers(result(r#"{"isError":true,"content":[{"type":"text","text":"no such order"}]}"#));
    two.answers(Answer::none().then_close());
    let compiled = echoes(&gateway, &["one", "two"], "optional");
    let (told, states) = ran(&run(&gateway, "E2", &compiled, json!({})));
    let both = "failed external_service_error";
    assert_eq!(states, [both, both], "{told}");
    assert_eq!(told["state"], "completed");
    assert_eq!(told["variables"], json!({ "s1": null, "s2": null }));
    // What the tool says is told, what went wrong on the way is not.
    assert_eq!(told["steps"][0]["result"]["content"][0]["text"], "no such order");
    assert!(told["steps"][1]["result"].is_null());
    gateway.audited("the tool's error", |record| record["outcome"] == "tool_error");
}

#[test]
fn a_run_ends_with_its_client() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "");
    let compiled = echoes(&gateway, &["one", "one"], "optional");
    one.answers(result("{\"content\":[]}").delayed(Duration::from_secs(10)));
    let asked = json!({ "compiled": compiled }).to_string();
    let mut client = Client::of(&gateway);
    client.send(&post("/v1/steps/run", "E2", asked));
    wait_for("the first call is there", SOON, || one.calls().len() == 1);
    drop(client);
    wait_for("the connection is let go", SOON, || one.hang_ups() == 1);
    gateway.audited("the call", |record| {
        record["tool"] == "one/echo" && record["outcome"] == "cancelled"
    });
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(one.calls().len(), 1);
}

#[test]
fn a_run_has_a_time_for_all_its_calls() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "steps: { max_time: 1s }");
    let compiled = echoes(&gateway, &["one", "one", "one"], "optional");
    one.answers(result("{\"content\":[]}").delayed(Duration::from_millis(600)));
    let (told, states) = ran(&run(&gateway, "E2", &compiled, json!({})));
    assert_eq!(states, ["ok", "failed timeout", "not_reached"], "{told}");
    assert_eq!(told["state"], "out_of_time");
    assert_eq!(told["steps"][1]["error"]["outcome"], "unknown");
    wait_for("the call is given up", SOON, || one.hang_ups() == 1);
    gateway.audited("the call", |record| {
        record["tool"] == "one/echo" && record["outcome"] == "cancelled"
    });
}

#[test]
fn there_are_bounds_for_steps_and_for_what_they_bring() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "steps: { max_steps: 2, max_variables: 1KiB }");
    let key = key_of(&gateway, "one");
    let all: Vec<Value> = (0..3)
        .map(|index| step(index, &key, "echo", json!({}), json!({ "saveAs": format!("s{index}") })))
        .collect();
    let reply = compile(&gateway, "E2", &json!(all));
    assert_eq!(body(&reply)["error"]["faults"][0]["fault"], "too_many_steps");
    let compiled = compiled(&gateway, &json!(all[..2]));
    let large = json!({ "variables": { "x": "x".repeat(1024) } });
    let reply = run(&gateway, "E2", &compiled, large);
    assert_eq!((reply.status, reply.refusal().as_deref()), (413, Some("payload_too_large")));
    let text = "x".repeat(1024);
    one.answers(result(&json!({ "content": [{ "type": "text", "text": text }] }).to_string()));
    let states = ran(&run(&gateway, "E2", &compiled, json!({}))).1;
    assert_eq!(states, ["failed payload_too_large", "not_reached"]);
}

#[test]
fn another_definition_than_was_compiled_against_is_told_and_decides_nothing() {
    let one = server();
    let before = gateway(&[("one", &one)], "");
    let key = key_of(&before, "one");
    let steps =
        |value: Value| json!([step(1, &key, "echo", json!({ "n": constant(value) }), json!({}))]);
    let (number, text) =
        (compiled(&before, &steps(json!(1))), compiled(&before, &steps(json!("1"))));
    one.lists(r#"[{"name":"echo","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}]"#);
    let after = gateway(&[("one", &one)], "");
    let (told, states) = ran(&run(&after, "E2", &number, json!({})));
    assert_eq!(states, ["ok"]);
    assert_eq!(told["steps"][0]["definitionChanged"], true);
    let (told, states) = ran(&run(&after, "E2", &text, json!({})));
    assert_eq!(states, ["failed invalid_args"]);
    assert_eq!(told["steps"][0]["error"]["pointer"], "/n");
    one.lists("[]");
    let gone = gateway(&[("one", &one)], "");
    let states = ran(&run(&gone, "E2", &number, json!({}))).1;
    assert_eq!(states, ["failed server_not_configured"]);
}

/// What somebody has to say yes to is one and the same call whenever its run goes on.
#[test]
fn a_step_that_waits_for_a_yes_runs_when_its_run_goes_on() {
    const ASK: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: two-eyes, effect: require_approval, tools: [one/named], approval: { roles: [member] } }
";
    let one = server();
    let gateway = gateway_with(&[("one", &one)], "", &[ASK]);
    let key = key_of(&gateway, "one");
    let n = json!({ "n": constant(json!(1)) });
    let steps = json!([
        step(1, &key, "echo", json!({}), json!({ "saveAs": "a" })),
        step(2, &key, "named", n, json!({})),
    ]);
    let compiled = compiled(&gateway, &steps);
    let (told, states) = ran(&run(&gateway, "E1", &compiled, json!({})));
    assert_eq!(states, ["ok", "failed approval_required"], "{told}");
    let id = told["steps"][1]["error"]["approvalId"].as_str().unwrap();
    let decided = post(&format!("/v1/approvals/{id}/approve"), "E2", "{}").ask(&gateway);
    assert_eq!(decided.status, 200, "{}", decided.text());
    let go_on = json!({ "stepIndex": 2, "runId": told["runId"], "variables": told["variables"] });
    let (told, states) = ran(&run(&gateway, "E1", &compiled, go_on));
    assert_eq!(states, ["ok"], "{told}");
    assert_eq!(one.calls().len(), 2);
}
