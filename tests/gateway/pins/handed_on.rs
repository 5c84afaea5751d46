//! A server's description that goes from one gateway to another: the history of its tools goes with
//! it, and nobody's yes.

use std::slice::from_ref;

use serde_json::{Value, json};

use super::{EYES, asked, pins, with_tokens};
use crate::process_support::{
    Dialect, KEY, Process, Response, Setup, Upstream, exchange, tool, until,
};

fn policy(pin: &str) -> String {
    format!(
        "version: hangu/v1
kind: Policy
scope: {{ tenant: acme }}
self_service:
  roles: [member]
  hosts: [\"127.0.0.1:*\"]
  default: {{ risk: read_low, pin: {pin} }}
rules: []
"
    )
}

fn gateway(pin: &str) -> Process {
    let setup = Setup::new().config("egress: { allow: [127.0.0.1] }");
    with_tokens(setup).policy("own.yaml", &policy(pin)).start()
}

fn ask(gateway: &Process, who: &str, method: &str, path: &str, body: &Value) -> Response {
    let headers = [("X-Api-Key", KEY), ("SSO-Emp-Id", who), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    exchange(gateway.address, method, path, &headers, body.as_bytes()).unwrap()
}

fn described(text: &str) -> Value {
    let mut tool = tool("echo");
    tool["description"] = text.into();
    tool
}

/// How the tool stands there.
fn state(gateway: &Process, who: &str) -> Value {
    let all = asked(gateway, &["ls", "--owner", &format!("acme/{who}")]);
    all["pins"][0].clone()
}

fn asset(gateway: &Process, who: &str, key: &str) -> Value {
    let told = ask(gateway, who, "GET", &format!("/v1/servers/{key}/asset"), &Value::Null);
    assert_eq!(told.status, 200, "{told:?}");
    told.json()
}

#[track_caller]
fn import(gateway: &Process, who: &str, asset: &Value) {
    let told = ask(gateway, who, "POST", "/v1/servers/import", asset);
    assert_eq!(told.json()["servers"][0]["outcome"], "registered", "{told:?}");
}

fn call(gateway: &Process, who: &str, key: &str) -> String {
    let client = gateway.client(&format!("/mcp/{key}"), Dialect::Modern).employee(who);
    client.call("echo", json!({})).word()
}

#[test]
fn what_is_handed_on_keeps_its_numbers_and_approves_nothing() {
    let (first, second) = (described("First."), described("Second."));
    let up = Upstream::start(from_ref(&first));
    let home = gateway("first_use");
    let url = json!({ "url": up.url() });
    let told = ask(&home, "E1", "POST", "/v1/servers", &url);
    let key = told.json()["serverKey"].as_str().unwrap().to_owned();
    assert_eq!(call(&home, "E1", &key), "ok");
    up.lists(&[second]);
    let refreshed = ask(&home, "E1", "POST", &format!("/v1/servers/{key}/refresh"), &Value::Null);
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
    until("the second one is kept", || state(&home, "E1")["schemaVersion"]["ordinal"] == 2);

    let file = asset(&home, "E1", &key);
    let pin = &file["pins"][0];
    let versions = pin["versions"].as_array().unwrap();
    let numbers: Vec<_> = versions.iter().map(|version| version["version"].clone()).collect();
    assert_eq!(numbers, [1, 2], "{pin}");
    assert_eq!(pin["approved"], versions[0]["digest"], "{pin}");
    // What it lists stands in the file once.
    assert_eq!(versions[0]["definition"]["description"], "First.", "{pin}");
    assert!(versions[1].get("definition").is_none(), "{pin}");

    // Where the first one seen will do, it is the one that was approved there, and no other.
    let other = gateway("first_use");
    import(&other, "E1", &file);
    let stands = state(&other, "E1");
    assert_eq!(stands["schemaVersion"]["ordinal"], 2, "{stands}");
    assert_eq!(stands["schemaVersion"]["digest"], versions[1]["digest"], "{stands}");
    assert_eq!((&stands["held"], &stands["approved"]), (&json!("new"), &Value::Null), "{stands}");
    assert_eq!(call(&other, "E1", &key), "unsafe_action_blocked");
    let history = asked(&other, &["diff", &format!("acme/E1/{key}/echo"), "--from", "1"]);
    assert_eq!(history["from"]["version"], 1, "{history}");
    let (_, text) = pins(&other, EYES, &["ls", &format!("acme/E1/{key}/echo")]);
    assert!(text.lines().next().unwrap().ends_with("approved elsewhere"), "{text}");
    // It comes out as it went in, but for the yes, which is nobody's here.
    let again = asset(&other, "E1", &key);
    assert_eq!(again["pins"][0]["versions"], pin["versions"]);
    assert!(again["pins"][0].get("approved").is_none(), "{again}");
    // The server goes back to what was approved.
    up.lists(&[first]);
    ask(&other, "E1", "POST", &format!("/v1/servers/{key}/refresh"), &Value::Null);
    until("it is approved by being seen", || call(&other, "E1", &key) == "ok");
    let stands = state(&other, "E1");
    assert_eq!(
        (&stands["approvedVersion"], &stands["approvedHow"]),
        (&json!(1), &json!("first_use"))
    );

    // Where a person has to look, one has to look.
    let strict = gateway("approve");
    import(&strict, "E2", &file);
    assert_eq!(call(&strict, "E2", &key), "unsafe_action_blocked");
    let named = format!("acme/E2/{key}/echo");
    let (code, text) = pins(&strict, EYES, &["approve", &named]);
    assert_eq!(code, Some(0), "{text}");
    until("it is approved", || call(&strict, "E2", &key) == "ok");
    let stands = state(&strict, "E2");
    assert_eq!(
        (&stands["approvedVersion"], &stands["approvedHow"]),
        (&json!(1), &json!("approve"))
    );
}
