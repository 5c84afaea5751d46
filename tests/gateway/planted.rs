//! Secrets are told to nobody: one of each kind is planted in a gateway that has everything, all
//! that it can do is done, well and badly, and then they are looked for in whatever came out:
//! answers, the log with everything in it, traces, metrics, the audit file, the store, what
//! commands say. Servers give away what they were sent in every answer.
//!
//! What a tool answers is its caller's, byte for byte, whatever stands in it; so is an error
//! response of a server that speaks MCP.

mod checked;
mod house;
mod kinds;
mod people;
mod search;
mod servers;
mod v1;

use serde_json::{Value, json};

use self::{
    house::{House, Told},
    kinds::secret,
    search::Search,
    servers::WAYS,
};
use crate::process_support::{Dialect, Response, exchange, until};

const NAMES: [&str; 8] = ["fixed", "rest", "own", "legacy", "token", "signed", "pem", "granted"];

#[test]
fn no_secret_is_to_be_seen_anywhere() {
    let mut house = House::start();
    people::name_secrets(&mut house);
    people::credentials(&mut house);
    people::consent(&mut house);
    ready(&house);
    people::strangers(&mut house);
    calls(&mut house);
    beside_calls(&mut house);
    writes(&mut house);
    approvals(&mut house);
    people::servers(&mut house);
    v1::use_it(&mut house);
    v1::broken(&mut house);
    listings(&mut house);
    people::operators(&mut house);
    people::commands(&mut house);
    house.judge();
}

/// Waits until every server that can be listed is.
fn ready(house: &House) {
    for name in NAMES {
        let client = house.client(&format!("/mcp/{name}"), Dialect::Modern, "E1");
        until(name, || client.call("look", json!({})).word() == "ok");
    }
    let client = house.client("/mcp/child", Dialect::Modern, "E1");
    until("the process is listed", || client.call("echo", json!({})).word() == "ok");
}

fn keep(house: &mut House, what: &str, answer: &Response, told: bool) {
    let told = if told || answer.word() == "ok" { Told::Everything } else { Told::Nothing };
    house.said(what, answer, told);
}

fn calls(house: &mut House) {
    let more = [("ok", true), ("tool-error", true)];
    for dialect in Dialect::ALL {
        for name in NAMES.iter().chain(&["dead"]) {
            for (way, told) in WAYS.into_iter().chain(more) {
                for who in ["E1", "E2", "E3"].into_iter().take(if *name == "own" { 3 } else { 1 }) {
                    let client = house.client(&format!("/mcp/{name}"), dialect, who);
                    let client = client
                        .header("Cookie", &format!("sid={}", secret("a client's cookie")))
                        .header("X-Vault-Token", &secret("a client's cookie"));
                    let arguments = json!({ "do": way, "said": secret("an argument") });
                    let answer = client.call("look", arguments);
                    // MCP-Lite knows no error responses.
                    let told = told && (*name != "rest" || way != "rpc");
                    keep(house, &format!("{dialect:?} {name} {way} by {who}"), &answer, told);
                    if *name == "dead" {
                        assert_ne!(answer.word(), "ok", "{answer:?}");
                    }
                }
            }
        }
        // A message about an argument is for whoever sent it.
        let client = house.client("/mcp/fixed", dialect, "E1");
        let answer = client.call("strict", json!({ "said": secret("an argument") }));
        house.said("a wrong argument", &answer, Told::These(&["an argument"]));
        let client = house.client("/mcp/child", dialect, "E1");
        for tool in ["echo", "env", "noise", "crash", "echo"] {
            let arguments = json!({ "lines": 2, "said": secret("an argument") });
            let answer = client.call(tool, arguments);
            keep(house, &format!("{dialect:?} child {tool}"), &answer, false);
        }
    }
}

/// Lists, prompts and resources, also on the path of all servers.
fn beside_calls(house: &mut House) {
    for dialect in [Dialect::Modern, Dialect::Legacy] {
        for path in ["/mcp", "/mcp/fixed", "/mcp/own", "/mcp/legacy"] {
            let client = house.client(path, dialect, "E1");
            for method in
                ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
            {
                let answer = client.send(method, json!({}));
                house.said(&format!("{dialect:?} {method} at {path}"), &answer, Told::Nothing);
            }
        }
        for (way, told) in WAYS.into_iter().chain([("ok", true)]) {
            let client = house.client("/mcp/fixed", dialect, "E1");
            let arguments = json!({ "do": way, "said": secret("an argument of a prompt") });
            let got =
                client.send("prompts/get", json!({ "name": "greet", "arguments": arguments }));
            keep(house, &format!("{dialect:?} prompts/get {way}"), &got, told);
            let uri = json!({ "uri": format!("file:///a?do={way}") });
            let read = client.send("resources/read", uri);
            keep(house, &format!("{dialect:?} resources/read {way}"), &read, told);
        }
        let (client, answer) = house.client("/mcp/legacy", Dialect::Legacy, "E1").initialize();
        house.search.add("a client's session", answer.header("mcp-session-id").unwrap().as_bytes());
        house.said("initialize", &answer, Told::These(&["a client's session"]));
        keep(house, "a call in a session", &client.call("look", json!({})), true);
        house.said("the end of a session", &client.method("DELETE"), Told::Nothing);
        house.said("after its end", &client.call("look", json!({})), Told::Nothing);
    }
}

/// Under a key: done, done again, conflicting, and failed.
fn writes(house: &mut House) {
    for dialect in Dialect::ALL {
        for (way, told) in WAYS.into_iter().chain([("ok", true), ("tool-error", true)]) {
            let client = house.client("/mcp/fixed", dialect, "E1");
            let client = client.header("Idempotency-Key", &format!("{dialect:?}-{way}"));
            let kept = secret("an argument under a key");
            for said in [kept.clone(), kept.clone(), format!("{kept} other")] {
                let answer = client.call("write", json!({ "do": way, "said": said }));
                keep(house, &format!("{dialect:?} write {way}"), &answer, told);
            }
        }
        let client = house.client("/mcp/fixed", dialect, "E1").header("X-Dry-Run", "true");
        for tool in ["look", "write", "purge", "none"] {
            let said = secret("an argument of a dry run");
            let answer = client.call(tool, json!({ "said": said }));
            house.said(&format!("{dialect:?} dry run of {tool}"), &answer, Told::Nothing);
        }
    }
}

fn approvals(house: &mut House) {
    const ARGUMENT: &str = "an argument that waits for a yes";
    for (number, verb) in ["approve", "refuse"].into_iter().enumerate() {
        let client = house.client("/mcp/fixed", Dialect::Modern, "E1");
        let arguments = json!({ "n": number, "said": secret(ARGUMENT) });
        let waits = client.call("purge", arguments.clone());
        assert_eq!(waits.word(), "approval_required", "{waits:?}");
        house.said("a call that waits", &waits, Told::Nothing);
        let id = waits.fault()["approvalId"].as_str().unwrap().to_owned();
        let path = format!("/v1/approvals/{id}");
        // Whoever asked and whoever decides see the arguments, and nobody else.
        for (who, told) in [
            ("E1", Told::These(&[ARGUMENT])),
            ("E2", Told::These(&[ARGUMENT])),
            ("E3", Told::Nothing),
        ] {
            house.ask(who, "GET", &path, "", told);
            house.ask(who, "GET", "/v1/approvals", "", Told::Nothing);
        }
        let decided =
            house.ask("E2", "POST", &format!("{path}/{verb}"), "", Told::These(&[ARGUMENT]));
        assert_eq!(decided.status, 200, "{decided:?}");
        keep(house, "the call after that", &client.call("purge", arguments), false);
    }
}

/// What operators see of servers that fail while they are listed.
fn listings(house: &mut House) {
    const FAILING: [&str; 7] =
        ["401", "500", "json-401", "rpc", "malformed", "redirect", "broken-stream"];
    for way in FAILING {
        let all = [&house.fixed, &house.lite, &house.own, &house.legacy];
        for listing in all.map(|echo| &echo.listing).into_iter().chain([&house.listing]) {
            *listing.lock() = Some(way);
        }
        let asked = || {
            let of = |method| house.fixed.up.requests(method).len();
            of("tools/list") + of("server/discover")
        };
        let before = asked();
        until("it is listed again", || asked() > before);
        for path in ["/admin/api/servers", "/admin/api/connections", "/admin/api/tools"] {
            house.admin("the admin token", "GET", path, "");
        }
        let ready = exchange(house.gateway.admin, "GET", "/readyz", &[], b"").unwrap();
        house.said("readyz", &ready, Told::Nothing);
        let client = house.client("/mcp", Dialect::Modern, "E1");
        house.said("a list meanwhile", &client.send("tools/list", json!({})), Told::Nothing);
    }
}

/// The members of an answer, which is a JSON object.
fn told(answer: &Response) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}
