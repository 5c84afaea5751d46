//! The id of an answer is the token that the client sent, and each answer finds its own request
//! (C01-C04).

use std::thread;

use crate::support::{
    Answer, Client, ECHO, Gateway, OK, Received, Reply, Request, Signal, Speaks, Upstream,
    client::open_session,
};

fn call(id: &str) -> String {
    ECHO.replace(r#""id":1,"#, &format!(r#""id":{id},"#))
}

/// C01, C02.
#[test]
fn an_answer_carries_the_id_as_it_was_written() {
    let upstream = Upstream::answering(Speaks::Handshake("2025-11-25"), Answer::json(OK));
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-11-25");
    for id in [
        r#""1""#,
        "1",
        r#""req-a""#,
        "9007199254740993",
        "12345678901234567890123",
        "0",
        "-7",
        r#""""#,
        r#""\u00e9""#,
        r#""é \" \\ \/""#,
    ] {
        let body = call(id);
        let in_session = Request::handshake(body.clone()).header("Mcp-Session-Id", &session);
        let stateless = body.replace(
            r#"}}}"#,
            r#"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
        );
        for request in [in_session, Request::handshake(body), Request::stateless(&stateless)] {
            let reply = request.ask(&gateway);
            assert_eq!((reply.status, reply.id().as_deref()), (200, Some(id)), "{}", reply.text());
            assert!(reply.text().contains("ok"));
        }
    }
    // Southbound ids are the gateway's own, each used once.
    let mut ids: Vec<_> = upstream.calls().iter().map(|call| call.member(&["id"])).collect();
    let sent = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), sent);
}

/// C03.
#[test]
fn two_calls_under_one_id_get_each_its_own_answer() {
    let held = Signal::new();
    let signal = held.clone();
    let echo = move |call: &Received| {
        let value = call.member(&["params", "arguments", "v"]).unwrap();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{{"content":[],"structuredContent":{{"v":{value}}}}}}}"#
        );
        // The first comes last.
        if value == r#""first""# {
            Answer::json(body).stepwise(&signal)
        } else {
            Answer::json(body)
        }
    };
    let upstream = Upstream::scripted(Speaks::Handshake("2025-11-25"), echo);
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-11-25");
    let ask = |value: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"name":"echo","arguments":{{"v":"{value}"}}}}}}"#
        );
        Request::handshake(body).header("Mcp-Session-Id", &session)
    };
    let check = |reply: &Reply, own: &str, other: &str| {
        assert_eq!((reply.status, reply.id().as_deref()), (200, Some("5")));
        assert!(reply.text().contains(own) && !reply.text().contains(other), "{}", reply.text());
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| ask("first").ask(&gateway));
        crate::support::wait_for("the first is there", std::time::Duration::from_secs(5), || {
            upstream.calls().len() == 1
        });
        check(&ask("second").ask(&gateway), "second", "first");
        held.give();
        check(&first.join().unwrap(), "first", "second");
    });
}

/// C04.
#[test]
fn an_unreadable_message_is_answered_without_an_id() {
    let upstream = Upstream::answering(Speaks::Handshake("2025-11-25"), Answer::json(OK));
    let gateway = Gateway::before(&upstream);
    let mut connection = Client::of(&gateway);
    let good = connection.ask(&Request::handshake(call("4")));
    assert_eq!((good.status, good.id().as_deref()), (200, Some("4")));
    for broken in [r#"{"jsonrpc":"2.0","id":5,"method""#, "", "{", "\u{feff}{}", "nonsense"] {
        let reply = connection.ask(&Request::handshake(broken));
        assert_eq!((reply.status, reply.rpc_code()), (400, Some(-32700)), "{broken:?}");
        assert_eq!(reply.id(), None, "{broken:?}");
    }
    // The connection still serves.
    assert_eq!(connection.ask(&Request::handshake(call("6"))).id().as_deref(), Some("6"));
    assert_eq!(upstream.calls().len(), 2);
}
