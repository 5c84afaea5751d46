//! The person a call is made for confirms it through his own client: in the answer (2026-07-28),
//! in the middle of the call (handshake), and not at all where the client cannot be asked.

use std::{sync::Arc, thread, time::Duration};

use serde_json::{Value, json};

use super::{CALLER, CLIENTS, Fixture, PEOPLE, SECRET, fault, ran, request, value, waiting};
use crate::support::{Answer, Client, Gateway, OK, Reply, Request, Speaks, Upstream, wait_for};

const CONFIRM: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: all, effect: allow, roles: [member] }
  - { id: mean-it, effect: require_approval, tools: [up/wipe], say: This deletes things., approval: { confirm: requester } }
";

/// A call of 2026-07-28 by a client that can be asked.
fn modern(arguments: &Value, more: &Value) -> Request {
    let mut params = json!({ "name": "wipe", "arguments": arguments,
        "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                   "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } } });
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    Request::stateless(&body.to_string())
}

/// The question of an answer, and its state.
#[track_caller]
fn asked(reply: &Reply) -> (Value, String) {
    let message = value(reply);
    assert_eq!(message["result"]["resultType"], "input_required", "{message}");
    let question = message["result"]["inputRequests"]["confirm"].clone();
    assert_eq!(question["method"], "elicitation/create", "{message}");
    assert_eq!(question["params"]["mode"], "form");
    assert_eq!(
        question["params"]["requestedSchema"],
        json!({ "type": "object", "properties": {} })
    );
    (question, message["result"]["requestState"].as_str().unwrap().to_owned())
}

fn says(action: &str, state: &str) -> Value {
    json!({ "inputResponses": { "confirm": { "action": action } }, "requestState": state })
}

#[test]
fn a_client_of_2026_is_asked_in_the_answer() {
    let it = Fixture::with(CONFIRM);
    for (action, runs, word) in [
        ("accept", true, "confirmed"),
        ("decline", false, "declined"),
        ("cancel", false, "cancelled"),
    ] {
        let before = it.made();
        let arguments = json!({ "of": action, "n": 12345678901234567890_u64 });
        let (question, state) = asked(&modern(&arguments, &json!({})).ask(&it.gateway));
        let message = question["params"]["message"].as_str().unwrap();
        for part in ["This deletes things.", "`up/wipe`", "12345678901234567890", action] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert_eq!(it.made(), before);
        let call = modern(&arguments, &says(action, &state));
        let reply = call.ask(&it.gateway);
        if runs {
            ran(&reply);
            let sent = it.upstream.calls().pop().unwrap();
            assert!(!sent.text().contains("requestState") && !sent.text().contains("inputResp"));
        } else {
            let fault = fault(&reply);
            assert_eq!(
                (&fault["code"], &fault["next"]),
                (&json!("permission_denied"), &json!("stop"))
            );
        }
        assert_eq!(it.made(), before + usize::from(runs));
        it.gateway.audited("what was said", |record| {
            record["approval"] == json!({ "state": word })
                && record["decision"] == "require_approval"
        });
        // The word was heard once.
        let again = call.ask(&it.gateway);
        assert_eq!(again.rpc_code(), Some(-32602), "{}", again.text());
        assert_eq!(it.made(), before + usize::from(runs));
    }
    it.gateway.audited("it was asked", |record| record["outcome"] == "input_required");
}

#[test]
fn a_yes_of_a_client_is_good_for_the_call_that_was_asked_about() {
    let it = Fixture::with(CONFIRM);
    let arguments = json!({ "n": 1 });
    let (_, state) = asked(&modern(&arguments, &json!({})).ask(&it.gateway));
    let changed = format!("{}x", &state[..state.len() - 1]);
    for (call, what) in [
        (modern(&json!({ "n": 2 }), &says("accept", &state)), "other arguments"),
        (modern(&arguments, &says("accept", &state)).header("SSO-Emp-Id", "E3"), "another person"),
        (modern(&arguments, &says("accept", &changed)), "another state"),
        (modern(&arguments, &says("accept", &format!("{state}.x"))), "a server's state"),
        (modern(&arguments, &json!({ "inputResponses": {} })), "no state"),
        (modern(&arguments, &json!({ "requestState": 1 })), "no text"),
    ] {
        let reply = call.ask(&it.gateway);
        assert_eq!(reply.rpc_code(), Some(-32602), "{what}: {}", reply.text());
    }
    assert_eq!(it.made(), 0);
    // An answer that is none is no yes, and spends the question.
    let more = json!({ "inputResponses": { "other": {} }, "requestState": state });
    let silent = fault(&modern(&arguments, &more).ask(&it.gateway));
    assert_eq!(silent["code"], "approval_required", "{silent}");
    assert_eq!(it.made(), 0);
}

#[test]
fn a_client_that_cannot_be_asked_is_told() {
    let it = Fixture::with(CONFIRM);
    for client in CLIENTS {
        let fault = fault(&request(client, "wipe", &json!({})).ask(&it.gateway));
        assert_eq!(
            (&fault["code"], &fault["next"]),
            (&json!("approval_required"), &json!("ask_human"))
        );
        assert!(fault.get("approvalId").is_none(), "{fault}");
        let message = fault["message"].as_str().unwrap();
        assert!(
            message.contains("This deletes things.") && message.contains("cannot ask"),
            "{message}"
        );
    }
    let mute = Session::open(&it.gateway, &json!({}));
    let fault = fault(&mute.request(&mute.body(&json!({}))).ask(&it.gateway));
    assert_eq!(fault["code"], "approval_required", "{fault}");
    assert_eq!(it.made(), 0);
}

// === In the middle of a call ===

struct Session<'a> {
    gateway: &'a Gateway,
    id: String,
}

impl<'a> Session<'a> {
    fn open(gateway: &'a Gateway, capabilities: &Value) -> Self {
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": { "protocolVersion": "2025-11-25", "capabilities": capabilities,
                        "clientInfo": { "name": "t", "version": "1" } } });
        let reply = Request::plain(body.to_string()).ask(gateway);
        assert_eq!(reply.status, 200, "{}", reply.text());
        Self { gateway, id: reply.header("mcp-session-id").unwrap().to_owned() }
    }

    fn body(&self, arguments: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                "params": { "name": "wipe", "arguments": arguments } })
    }

    fn request(&self, body: &Value) -> Request {
        Request::handshake(body.to_string()).header("Mcp-Session-Id", &self.id)
    }

    /// A call, up to its question.
    fn call(&self, arguments: &Value, key: Option<&str>) -> (Client, Value) {
        let mut client = Client::of(self.gateway);
        let request = self.request(&self.body(arguments));
        client.send(&match key {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        });
        assert_eq!(client.head().header("content-type"), Some("text/event-stream"));
        let question = next(&mut client);
        assert_eq!(question["method"], "elicitation/create", "{question}");
        (client, question)
    }

    fn answer(&self, question: &Value, member: &str, value: &Value) -> u16 {
        let body = json!({ "jsonrpc": "2.0", "id": question["id"], member: value });
        self.request(&body).ask(self.gateway).status
    }
}

/// The next message that is a question or the end.
fn next(client: &mut Client) -> Value {
    loop {
        let event = client.event().expect("the stream has an end");
        let data: String =
            event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
        if let Ok(message) = serde_json::from_str::<Value>(&data)
            && message.get("id").is_some()
        {
            return message;
        }
    }
}

#[test]
fn a_client_with_a_session_is_asked_in_the_middle_of_its_call() {
    let it = Fixture::with(CONFIRM);
    let session = Session::open(&it.gateway, &json!({ "elicitation": {} }));
    for (member, answer, word) in [
        ("result", json!({ "action": "accept", "content": {} }), None),
        ("result", json!({ "action": "decline" }), Some("permission_denied")),
        ("result", json!({ "action": "cancel" }), Some("permission_denied")),
        ("result", json!({ "nothing": 1 }), Some("approval_required")),
        ("error", json!({ "code": -32601, "message": "no" }), Some("approval_required")),
    ] {
        let before = it.made();
        let (mut client, question) = session.call(&json!({ "n": 1 }), None);
        assert!(question["params"]["message"].as_str().unwrap().contains("`up/wipe`"));
        assert_eq!(it.made(), before);
        assert_eq!(session.answer(&question, member, &answer), 202);
        let end = next(&mut client);
        assert_eq!(end["id"], 7, "{end}");
        match word {
            None => assert_eq!(end["result"]["content"][0]["text"], "ok", "{end}"),
            Some(word) => {
                assert_eq!(end["result"]["isError"], true, "{end}");
                assert_eq!(end["result"]["_meta"]["dev.hangu/error"]["code"], word, "{end}");
            }
        }
        assert_eq!(it.made(), before + usize::from(word.is_none()));
        assert_eq!(session.answer(&question, "result", &json!({ "action": "accept" })), 202);
        assert_eq!(it.made(), before + usize::from(word.is_none()), "an answer counts once");
    }
    it.gateway.audited("it was confirmed", |record| {
        record["approval"] == json!({ "state": "confirmed" }) && record["outcome"] == "ok"
    });
}

#[test]
fn a_call_that_waits_for_its_client_holds_no_key() {
    let it = Fixture::with(CONFIRM);
    let session = Session::open(&it.gateway, &json!({ "elicitation": {} }));
    let (client, _) = session.call(&json!({}), Some("k1"));
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
                         "params": { "requestId": 7 } });
    assert_eq!(session.request(&cancel).ask(&it.gateway).status, 202);
    drop(client);
    // Nothing had left, so the key is as good as new.
    let mut done = false;
    wait_for("the key is free", Duration::from_secs(5), || {
        let reply = modern(&json!({}), &json!({})).header("Idempotency-Key", "k1").ask(&it.gateway);
        done = value(&reply)["result"]["resultType"] == "input_required";
        done
    });
    assert!(done && it.made() == 0);
}

#[test]
fn who_does_not_answer_keeps_nobody_and_nothing_runs() {
    let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let yaml = format!(
        "questions: {{ answer: 1s }}\n{CALLER}upstreams:\n  up: {{ url: \"{}\", max_concurrency: 1 }}\n",
        upstream.url()
    );
    let gateway = Gateway::start_in(folder, Some(SECRET), &yaml, &[CONFIRM, PEOPLE]);
    let session = Session::open(&gateway, &json!({ "elicitation": {} }));
    let (mut client, _) = session.call(&json!({}), None);
    // The only slot is free while a person thinks.
    ran(&request("mcp-lite", "echo", &json!({})).ask(&gateway));
    let end = next(&mut client);
    let fault = &end["result"]["_meta"]["dev.hangu/error"];
    assert_eq!(fault["code"], "approval_required", "{end}");
    assert!(fault["message"].as_str().unwrap().contains("within 1 s"), "{end}");
    // The same for a client that brings its answer too late.
    let (_, state) = asked(&modern(&json!({}), &json!({})).ask(&gateway));
    thread::sleep(Duration::from_millis(1_100));
    let late = modern(&json!({}), &says("accept", &state)).ask(&gateway);
    assert_eq!(late.rpc_code(), Some(-32602), "{}", late.text());
    assert_eq!(upstream.calls().len(), 1);
}

// === With others ===

#[test]
fn others_decide_first_and_the_person_confirms_then() {
    let both = CONFIRM.replace(
        "  - { id: mean-it",
        "  - { id: ask, effect: require_approval, tools: [up/wipe], approval: { roles: [owner] } }\n  - { id: mean-it",
    );
    let it = Fixture::with(&both);
    let arguments = json!({ "n": 1 });
    let first = || modern(&arguments, &json!({})).ask(&it.gateway);
    let id = waiting(&first());
    // Nobody is bothered for a client that could not be asked.
    let mute = fault(&request("2026-07-28", "wipe", &arguments).ask(&it.gateway));
    assert!(mute.get("approvalId").is_none(), "{mute}");
    it.decide(&id, "E2", true);
    let (_, declined) = asked(&first());
    let no = modern(&arguments, &says("decline", &declined)).ask(&it.gateway);
    assert_eq!(fault(&no)["code"], "permission_denied");
    // The others' yes is still there, and two questions are open; one call runs.
    let ((_, one), (_, two)) = (asked(&first()), asked(&first()));
    ran(&modern(&arguments, &says("accept", &one)).ask(&it.gateway));
    let late = modern(&arguments, &says("accept", &two)).ask(&it.gateway);
    assert_ne!(waiting(&late), id);
    assert_eq!(it.made(), 1);
    it.gateway.audited("both said yes", |record| {
        record["approval"] == json!({ "id": id, "state": "granted" }) && record["outcome"] == "ok"
    });
}
