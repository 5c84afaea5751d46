//! Sessions at servers of the handshake era: whose they are, how long they last, what log messages
//! come of them, and streams that go on where they broke off.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Asker, Gateway, Reply, Request, Speaks, wait_for};

const HANDSHAKE: Speaks = Speaks::Handshake("2025-11-25");

const SOON: Duration = Duration::from_secs(8);

fn gateway(asker: &Asker, of_upstream: &str) -> Gateway {
    let callers = "callers:
  tests: { keys: [{ env: KEY }], tenant: acme, identity: { header: true, fallback: { empId: E1, roles: [member] } } }
";
    let policy = "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\nrules:\n  - { id: read, effect: allow, risk: [read_low] }\n---\nversion: hangu/v1\nkind: Tools\nupstreams: { up: { default: { risk: read_low } } }\n";
    let comma = if of_upstream.is_empty() { "" } else { ", " };
    let yaml =
        format!("{callers}upstreams:\n  up: {{ url: \"{}\"{comma}{of_upstream} }}\n", asker.url());
    Gateway::start(&yaml, &[policy])
}

fn call(gateway: &Gateway, employee: &str, capabilities: &Value, arguments: &Value) -> Reply {
    called(gateway, employee, capabilities, arguments, &json!({}))
}

fn called(
    gateway: &Gateway,
    employee: &str,
    capabilities: &Value,
    arguments: &Value,
    meta: &Value,
) -> Reply {
    let mut all = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                          "io.modelcontextprotocol/clientCapabilities": capabilities });
    for (key, value) in meta.as_object().unwrap() {
        all[key] = value.clone();
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "ask", "arguments": arguments, "_meta": all } });
    let reply = Request::stateless(&body.to_string()).header("SSO-Emp-Id", employee).ask(gateway);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(!reply.is_error(), "{}", reply.text());
    reply
}

/// The session of the last call.
fn last_session(asker: &Asker) -> String {
    asker.of("tools/call").pop().unwrap().header("mcp-session-id").unwrap().to_owned()
}

#[test]
fn each_employee_and_each_set_of_capabilities_has_a_session_of_its_own() {
    for (of_upstream, shared) in [("", false), ("stateless: true", true)] {
        let asker = Asker::start(HANDSHAKE);
        let gateway = gateway(&asker, of_upstream);
        let session = |employee: &str, capabilities: Value| {
            call(&gateway, employee, &capabilities, &json!({}));
            last_session(&asker)
        };
        let first = session("E1", json!({}));
        assert_eq!(session("E1", json!({})), first);
        assert_eq!(session("E2", json!({})) == first, shared, "{of_upstream}");
        let roots = session("E1", json!({ "roots": {} }));
        assert_ne!(roots, first);
        // What cannot be carried makes no difference.
        let more = json!({ "roots": { "listChanged": true }, "extensions": { "a.b/c": {} } });
        assert_eq!(session("E1", more), roots);
        let declared: Vec<_> = asker
            .of("initialize")
            .iter()
            .map(|opened| opened.member(&["params", "capabilities"]).unwrap())
            .collect();
        assert!(declared.contains(&r#"{"roots":{}}"#.to_owned()), "{declared:?}");
        // Discovery has one of its own, and declares all that some client can be asked for: a
        // server may show a tool only to those.
        let all = r#"{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}"#;
        assert_eq!(declared[0], all);
        assert_eq!(declared.len(), if shared { 3 } else { 4 }, "{declared:?}");
    }
}

#[test]
fn a_session_that_nobody_uses_is_ended() {
    let asker = Asker::start(HANDSHAKE);
    let gateway = gateway(&asker, "session_idle: 1s");
    call(&gateway, "E1", &json!({}), &json!({}));
    let first = last_session(&asker);
    let ended =
        || asker.by("DELETE").iter().any(|gone| gone.header("mcp-session-id") == Some(&first));
    wait_for("the session is ended", SOON, ended);
    call(&gateway, "E1", &json!({}), &json!({}));
    assert_ne!(last_session(&asker), first);
    assert_eq!(asker.of("tools/call").len(), 2, "no call met a session that is gone");
}

#[test]
fn where_there_are_as_many_as_may_be_the_oldest_gives_way() {
    let asker = Asker::start(HANDSHAKE);
    // One of them is discovery's.
    let gateway = gateway(&asker, "max_sessions: 2");
    call(&gateway, "E1", &json!({}), &json!({}));
    let first = last_session(&asker);
    for employee in ["E2", "E3"] {
        call(&gateway, employee, &json!({}), &json!({}));
    }
    wait_for("the session is ended", SOON, || {
        asker.by("DELETE").iter().any(|gone| gone.header("mcp-session-id") == Some(&first))
    });
    call(&gateway, "E1", &json!({}), &json!({}));
    assert_ne!(last_session(&asker), first);
}

#[test]
fn a_session_that_was_forgotten_is_opened_again_with_what_it_declared() {
    for by_the_letter in [true, false] {
        let asker = Asker::start(HANDSHAKE);
        if !by_the_letter {
            asker.say_400();
        }
        let gateway = gateway(&asker, "");
        let capabilities = json!({ "sampling": {} });
        call(&gateway, "E1", &capabilities, &json!({}));
        asker.forget();
        call(&gateway, "E1", &capabilities, &json!({}));
        let opened = asker.of("initialize").pop().unwrap();
        let declared = opened.member(&["params", "capabilities"]);
        assert_eq!(declared.as_deref(), Some(r#"{"sampling":{}}"#));
        // The call that met no session, and the one that did.
        assert_eq!(asker.of("tools/call").len(), 3);
    }
}

// === Log messages ===

const LOGGED: &str = r#"{"log":["debug","info","warning","error"]}"#;

/// The levels of the messages that came.
fn levels(reply: &Reply) -> Vec<String> {
    reply
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .filter_map(|data| serde_json::from_str::<Value>(data).ok())
        .filter(|message| message["method"] == "notifications/message")
        .map(|message| message["params"]["level"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn log_messages_come_from_the_level_on_that_was_asked_for() {
    let arguments: Value = serde_json::from_str(LOGGED).unwrap();
    for speaks in [HANDSHAKE, Speaks::Stateless] {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "");
        let logged = |level: &str| {
            let meta = json!({ "io.modelcontextprotocol/logLevel": level });
            levels(&called(&gateway, "E1", &json!({}), &arguments, &meta))
        };
        assert_eq!(levels(&call(&gateway, "E1", &json!({}), &arguments)), [""; 0]);
        assert_eq!(logged("warning"), ["warning", "error"]);
        assert_eq!(logged("error"), ["error"]);
        assert_eq!(logged("debug"), ["debug", "info", "warning", "error"]);
        assert_eq!(logged("warning"), ["warning", "error"]);
        if matches!(speaks, Speaks::Handshake(_)) {
            // The server is told the least that is needed, and each only once.
            let told: Vec<_> = asker
                .of("logging/setLevel")
                .iter()
                .map(|told| told.member(&["params", "level"]).unwrap())
                .collect();
            assert_eq!(told, [r#""warning""#, r#""debug""#]);
        } else {
            let path = ["params", "_meta", "io.modelcontextprotocol/logLevel"];
            let calls = asker.of("tools/call");
            assert_eq!(calls[0].member(&path), None);
            assert_eq!(calls[1].member(&path).as_deref(), Some(r#""warning""#));
        }
    }
}

#[test]
fn a_session_of_a_client_gets_what_most_want_until_it_says_otherwise() {
    let arguments: Value = serde_json::from_str(LOGGED).unwrap();
    for speaks in [HANDSHAKE, Speaks::Stateless] {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "");
        let session = crate::support::client::open_session(&gateway, "2025-11-25");
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                           "params": { "name": "ask", "arguments": arguments } });
        let request = Request::handshake(body.to_string());
        let inside = request.clone().header("Mcp-Session-Id", &session).ask(&gateway);
        assert_eq!(levels(&inside), ["info", "warning", "error"], "{}", inside.text());
        // Outside a session nobody has asked for any.
        assert_eq!(levels(&request.ask(&gateway)), [""; 0]);
    }
}

// === Streams that go on ===

#[test]
fn a_stream_that_ended_too_early_goes_on_by_its_last_id() {
    for cuts in [1, 4] {
        let asker = Asker::start(HANDSHAKE);
        let gateway = gateway(&asker, "");
        let begun = tokio::time::Instant::now();
        let reply = call(&gateway, "E1", &json!({}), &json!({ "cut": cuts, "rounds": [] }));
        assert!(begun.elapsed() >= Duration::from_millis(120), "the server said how long");
        assert!(reply.text().contains(r#""text":"[]""#), "{}", reply.text());
        let resumed = asker.by("GET");
        assert_eq!(resumed.len(), cuts);
        let call = &asker.of("tools/call")[0];
        for (number, resumed) in resumed.iter().enumerate() {
            assert_eq!(resumed.header("mcp-session-id"), call.header("mcp-session-id"));
            assert_eq!(resumed.header("accept"), Some("text/event-stream"));
            assert!(resumed.header("last-event-id").unwrap().ends_with(&format!("-{number}")));
        }
        assert_eq!(asker.of("tools/call").len(), 1, "the call is not made again");
    }
}

// === The stream of a session ===

#[test]
fn what_a_server_asks_on_its_sessions_stream_reaches_the_call() {
    let asker = Asker::start(HANDSHAKE);
    asker.offer_streams();
    let gateway = gateway(&asker, "");
    let capabilities = json!({ "roots": {} });
    let arguments = json!({ "aside": true, "rounds": [[{ "method": "roots/list" }]] });
    for round in 1..=3 {
        let asking = call(&gateway, "E1", &capabilities, &arguments);
        let asked: Value = serde_json::from_str(&asking.message()).unwrap();
        let key = asked["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap();
        let answers = json!({ key: { "roots": [{ "uri": "file:///a" }] } });
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                           "io.modelcontextprotocol/clientCapabilities": capabilities });
        let body = json!({ "jsonrpc": "2.0", "id": 8, "method": "tools/call",
            "params": { "name": "ask", "arguments": arguments, "inputResponses": answers,
                        "requestState": asked["result"]["requestState"], "_meta": meta } });
        let done = Request::stateless(&body.to_string()).header("SSO-Emp-Id", "E1").ask(&gateway);
        assert!(done.text().contains("file:///a"), "{}", done.text());
        assert_eq!(asker.of("tools/call").len(), round, "one call, whatever it asks");
    }
    // One stream for all of them, and none for who cannot be asked.
    assert_eq!(asker.by("GET").len(), 1);
    call(&gateway, "E1", &json!({}), &json!({}));
    assert_eq!(asker.by("GET").len(), 1);
}

/// C22: a server that offers no stream is believed.
#[test]
fn a_stream_that_is_not_offered_is_asked_for_once() {
    let asker = Asker::start(HANDSHAKE);
    let gateway = gateway(&asker, "");
    for employee in ["E1", "E1", "E2"] {
        call(&gateway, employee, &json!({ "roots": {} }), &json!({}));
    }
    assert_eq!(asker.by("GET").len(), 1);
}
