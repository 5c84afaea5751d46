//! Sessions of the handshake revisions: sealed state that belongs to whoever opened it.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hangu::{app, cli::check};
use serde_json::json;

use crate::process_support::{
    Answer, BOTH_KEY, Client, Dialect, FIXED_KEY, GLOBEX_KEY, Home, KEY, Process, Seen, Setup,
    Upstream, text_result, tool, until,
};

fn start(config: &str) -> (Upstream, Process) {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = Setup::new().upstream("up", &up, "", "").config(config).start();
    (up, gateway)
}

/// Ids that are none.
const INVENTED: [&str; 6] = [
    "0f9b7c1e-dead-4000-8000-000000000000",
    "ab",
    "",
    "ab\t\u{7f}",
    "\u{1}\u{2}",
    "AAAAAAAAAAAAAAAAAAAAAAAA",
];

/// C23, first and third part.
#[test]
fn an_id_that_is_none_is_not_found_and_calls_nothing() {
    let (up, gateway) = start("");
    let client = gateway.client("/mcp/up", Dialect::Legacy);
    let (session, _) = client.initialize();
    let good = session.call("echo", json!({}));
    assert_eq!(good.word(), "ok", "{good:?}");
    let before = up.calls().len();
    for id in INVENTED {
        let client = client.clone().header("Mcp-Session-Id", id);
        let answer = client.call("echo", json!({}));
        // What cannot stand in a head is refused as such.
        assert!(matches!(answer.status, 404 | 400), "{id:?}: {answer:?}");
        if !id.contains(['\u{1}', '\u{7f}']) {
            assert_eq!(answer.status, 404, "{id:?}: {answer:?}");
            assert_eq!(answer.json()["error"]["code"], -32600, "{id:?}: {answer:?}");
            assert_eq!(answer.json()["id"], 7, "{id:?}: {answer:?}");
        }
        let ended = client.method("DELETE");
        assert!(matches!(ended.status, 404 | 400), "{id:?}: {ended:?}");
    }
    assert_eq!(up.calls().len(), before);
}

/// Of two sessions or two revisions nobody can say which is meant.
#[test]
fn a_header_that_stands_twice_is_refused_and_calls_nothing() {
    let (up, gateway) = start("");
    let (session, answer) = gateway.client("/mcp/up", Dialect::Legacy).initialize();
    let id = answer.header("mcp-session-id").expect("a session");
    assert_eq!(session.call("echo", json!({})).word(), "ok");
    let before = up.calls().len();
    for (name, value) in [
        ("Mcp-Session-Id", id),
        ("Mcp-Session-Id", "another"),
        ("MCP-Protocol-Version", "2025-06-18"),
    ] {
        let answer = session.clone().header(name, value).call("echo", json!({}));
        assert_eq!(answer.status, 400, "{name} {value}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"], -32600, "{name} {value}: {answer:?}");
    }
    let ended = session.clone().header("Mcp-Session-Id", "another").method("DELETE");
    assert_eq!(ended.status, 400, "{ended:?}");
    assert_eq!(up.calls().len(), before);
    assert_eq!(session.call("echo", json!({})).word(), "ok");
}

/// C23, second part.
#[test]
fn a_session_is_required_only_where_the_configuration_says_so() {
    for (config, status) in [("", 200), ("sessions: required", 400)] {
        let (up, gateway) = start(config);
        let client = gateway.client("/mcp/up", Dialect::Legacy);
        let answer = client.call("echo", json!({}));
        assert_eq!(answer.status, status, "{config}: {answer:?}");
        assert_eq!(up.calls().len(), usize::from(status == 200), "{config}");
        assert_eq!(client.initialize().0.call("echo", json!({})).word(), "ok", "{config}");
        // The stateless revision and MCP-Lite have none.
        for dialect in [Dialect::Modern, Dialect::Lite] {
            let answer = gateway.client("/mcp/up", dialect).call("echo", json!({}));
            assert_eq!(answer.word(), "ok", "{config} {dialect:?}: {answer:?}");
        }
    }
}

/// C25.
#[test]
fn a_session_opens_for_nobody_else() {
    let (up, gateway) = start("");
    let (session, _) = gateway.client("/mcp/up", Dialect::Legacy).initialize();
    let others = [
        ("another employee", session.clone().employee("E2")),
        ("nobody", session.clone().without("SSO-Emp-Id")),
        ("another caller", session.clone().key(FIXED_KEY).without("SSO-Emp-Id")),
        ("another caller for the same employee", session.clone().key(BOTH_KEY)),
        ("another tenant", session.clone().key(GLOBEX_KEY).employee("G1")),
    ];
    for (who, other) in &others {
        let call = other.call("echo", json!({}));
        assert_eq!(call.status, 404, "{who}: {call:?}");
        let ended = other.method("DELETE");
        assert_eq!(ended.status, 404, "{who}: {ended:?}");
        let stream = other.clone().header("Accept", "text/event-stream").method("GET");
        assert!(matches!(stream.status, 404 | 405), "{who}: {stream:?}");
    }
    // An id says nothing of who calls.
    assert_eq!(session.clone().without("X-Api-Key").call("echo", json!({})).status, 401);
    assert_eq!(up.calls().len(), 0);
    assert_eq!(session.call("echo", json!({})).word(), "ok");
}

#[test]
fn a_session_opened_without_an_employee_serves_each_of_the_callers() {
    let (_up, gateway) = start("");
    let hello = gateway.client("/mcp/up", Dialect::Legacy).without("SSO-Emp-Id");
    let (session, _) = hello.initialize();
    for employee in ["E1", "E2"] {
        let client = session.clone().employee(employee);
        assert_eq!(client.call("echo", json!({})).word(), "ok", "{employee}");
    }
    let other = session.clone().key(GLOBEX_KEY).employee("G1");
    assert_eq!(other.call("echo", json!({})).status, 404);
}

#[test]
fn an_ended_session_is_gone() {
    let (up, gateway) = start("");
    let client = gateway.client("/mcp/up", Dialect::Legacy);
    let ((session, _), (other, _)) = (client.initialize(), client.initialize());
    assert_eq!(session.call("echo", json!({})).word(), "ok");
    let ended = session.method("DELETE");
    assert!((200..300).contains(&ended.status), "{ended:?}");
    for _ in 0..2 {
        assert_eq!(session.call("echo", json!({})).status, 404);
        assert_eq!(session.send("tools/list", json!({})).status, 404);
        assert_eq!(session.send("ping", json!({})).status, 404);
        assert_eq!(session.method("DELETE").status, 404);
    }
    // The other one is another one.
    assert_eq!(other.call("echo", json!({})).word(), "ok");
    assert_eq!(up.calls().len(), 2);
}

#[test]
fn there_is_no_stream_without_a_session() {
    let (_up, gateway) = start("");
    let client = gateway.client("/mcp/up", Dialect::Legacy);
    for client in [client, gateway.client("/mcp", Dialect::Modern)] {
        let answer = client.header("Accept", "text/event-stream").method("GET");
        assert_eq!(answer.status, 405, "{answer:?}");
        assert!(answer.header("allow").is_some_and(|allow| allow.contains("POST")), "{answer:?}");
    }
}

#[test]
fn a_session_ends_with_its_time() {
    let (_up, gateway) = start("session_ttl: 1s");
    let (session, _) = gateway.client("/mcp/up", Dialect::Legacy).initialize();
    assert_eq!(session.call("echo", json!({})).word(), "ok");
    until("it has expired", || session.call("echo", json!({})).status == 404);
}

/// A gateway in this process, with a secret of the test's choice.
fn replica(home: &Home, secret: [u8; 32]) -> app::Running {
    let env = |name: &str| {
        let keys = [
            ("KEY", KEY),
            ("FIXED_KEY", FIXED_KEY),
            ("BOTH_KEY", BOTH_KEY),
            ("GLOBEX_KEY", GLOBEX_KEY),
        ];
        keys.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    };
    let checked = check::check(&home.path("hangu.yaml"), &env);
    let (config, policies) = checked.accepted.unwrap();
    let options =
        app::Options { instance: "replica".to_owned(), secret: Some(secret), ..Default::default() };
    app::App::new(config, policies, &options).unwrap().start().unwrap()
}

#[test]
fn a_session_is_good_at_every_replica_with_the_same_secret() {
    let up = Upstream::start(&[tool("echo")]);
    let setup = Setup::new().upstream("up", &up, "", "");
    let homes = [setup.write(), setup.write(), setup.write()];
    let (first, second, stranger) =
        (replica(&homes[0], [7; 32]), replica(&homes[1], [7; 32]), replica(&homes[2], [8; 32]));
    let client = Client::new(first.address(), "/mcp/up", Dialect::Legacy).key(KEY).employee("E1");
    let (mut session, _) = client.initialize();
    assert_eq!(session.call("echo", json!({})).word(), "ok");
    session.address = second.address();
    assert_eq!(session.call("echo", json!({})).word(), "ok");
    assert_eq!(session.clone().employee("E2").call("echo", json!({})).status, 404);
    session.address = stranger.address();
    assert_eq!(session.call("echo", json!({})).status, 404);
    for gateway in [first, second, stranger] {
        gateway.stop(Duration::from_secs(1));
    }
}

#[test]
fn employees_share_a_servers_session_only_where_it_may_be_shared() {
    for (more, shared) in [("", false), ("stateless: true", true)] {
        let up = Upstream::start(&[tool("echo")]);
        let opened = AtomicU32::new(0);
        up.on(move |seen: &Seen| match &*seen.method {
            "initialize" => {
                let id = opened.fetch_add(1, Ordering::SeqCst);
                let result = json!({ "protocolVersion": "2025-06-18",
                                     "capabilities": { "tools": {} },
                                     "serverInfo": { "name": "old", "version": "1" } });
                Some(seen.result(result).with_header("Mcp-Session-Id", &format!("s-{id}")))
            }
            "server/discover" => Some(Answer::body(400, "text/plain", "no session")),
            "notifications/initialized" => Some(Answer::body(202, "text/plain", "")),
            _ => None,
        });
        let gateway = Setup::new().upstream("up", &up, more, "").start();
        let globex = Client::new(gateway.address, "/mcp/up", Dialect::Modern).key(GLOBEX_KEY);
        let first = gateway.client("/mcp/up", Dialect::Modern);
        let clients = [first.clone(), first.clone().employee("E2"), globex.employee("G1"), first];
        for client in &clients {
            assert_eq!(client.call("echo", json!({})).word(), "ok", "{more}");
        }
        let ids: Vec<String> = up
            .calls()
            .iter()
            .map(|seen| seen.header("mcp-session-id").unwrap().to_owned())
            .collect();
        let apart: HashSet<&String> = ids.iter().collect();
        // The first employee comes twice.
        assert_eq!(ids[0], ids[3], "{more}: {ids:?}");
        assert_eq!(apart.len(), if shared { 1 } else { 3 }, "{more}: {ids:?}");
    }
}

/// C24.
#[test]
fn a_server_that_forgot_its_session_is_met_anew() {
    let up = Upstream::start(&[tool("echo")]);
    let opened = Arc::new(AtomicU32::new(0));
    let valid = Arc::new(AtomicU32::new(0));
    let (count, good) = (opened.clone(), valid.clone());
    // A server of the handshake era, whose sessions end when the test says so.
    up.on(move |seen: &Seen| match &*seen.method {
        "initialize" => {
            let id = count.fetch_add(1, Ordering::SeqCst) + 1;
            good.fetch_max(id, Ordering::SeqCst);
            let result = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                                 "serverInfo": { "name": "old", "version": "1" } });
            Some(seen.result(result).with_header("Mcp-Session-Id", &format!("s-{id}")))
        }
        "server/discover" => Some(Answer::body(400, "text/plain", "no session")),
        "notifications/initialized" => Some(Answer::body(202, "text/plain", "")),
        _ => {
            let id: u32 =
                seen.header("mcp-session-id").and_then(|id| id[2..].parse().ok()).unwrap_or(0);
            if id < good.load(Ordering::SeqCst) && seen.method == "tools/call" {
                return Some(Answer::body(404, "text/plain", "no such session"));
            }
            (seen.method == "tools/call").then(|| seen.result(text_result("ok")))
        }
    });
    let gateway = Setup::new().upstream("up", &up, "stateless: true", "").start();
    for dialect in Dialect::ALL {
        let client = gateway.client("/mcp/up", dialect);
        assert_eq!(client.call("echo", json!({})).word(), "ok", "{dialect:?}");
        let before = opened.load(Ordering::SeqCst);
        // Every session there was is forgotten.
        valid.store(before + 1, Ordering::SeqCst);
        let answer = client.call("echo", json!({}));
        assert_eq!(answer.word(), "ok", "{dialect:?}: {answer:?}");
        let after = opened.load(Ordering::SeqCst);
        assert_eq!(after, before + 1, "{dialect:?}");
        assert_eq!(client.call("echo", json!({})).word(), "ok", "{dialect:?}");
        assert_eq!(opened.load(Ordering::SeqCst), after, "{dialect:?}");
    }
}
