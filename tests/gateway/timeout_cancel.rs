//! Calls that take too long and calls that nobody wants any more (C55 and what is near it).

use std::time::Duration;

use tokio::time::Instant;

use crate::support::{
    Answer, Client, Gateway, OK, Request, Speaks, Upstream, client::open_session, wait_for,
};

const HANDSHAKE: Speaks = Speaks::Handshake("2025-11-25");

const SLOW: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{},"_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// The same of the handshake era.
const SLOW_BEFORE: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{}}}"#;

/// A third of what the servers here take for their answers; a second would do on a machine that
/// does nothing else.
const SOON: Duration = Duration::from_secs(3);

fn late() -> Answer {
    Answer::json(OK).delayed(Duration::from_secs(10))
}

/// C55, first part: told under the server's own id, or by the connection's end.
#[test]
fn a_cancellation_reaches_the_server() {
    for speaks in [HANDSHAKE, Speaks::Stateless, Speaks::Lite] {
        let upstream = Upstream::answering(speaks, late());
        let gateway = Gateway::before(&upstream);
        let session = open_session(&gateway, "2025-11-25");
        let mut client = Client::of(&gateway);
        client.send(&Request::handshake(SLOW_BEFORE).header("Mcp-Session-Id", &session));
        wait_for("the call is there", SOON, || upstream.calls().len() == 1);
        let cancel = |id: &str, session: &str| {
            let body = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            );
            Request::handshake(body).header("Mcp-Session-Id", session).ask(&gateway)
        };
        // Another id, and another session's id of the same name, cancel nothing.
        let other = open_session(&gateway, "2025-11-25");
        assert_eq!(cancel(r#""7""#, &session).status, 202);
        assert_eq!(cancel("7", &other).status, 202);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!((upstream.hang_ups(), upstream.of("notifications/cancelled").len()), (0, 0));

        let reply = cancel("7", &session);
        assert_eq!((reply.status, reply.text().as_str()), (202, ""));
        if matches!(speaks, Speaks::Handshake(_)) {
            let told = || upstream.of("notifications/cancelled").pop();
            wait_for("the server is told", SOON, || told().is_some());
            let given = upstream.calls()[0].member(&["id"]);
            assert_eq!(told().unwrap().member(&["params", "requestId"]), given);
            assert_eq!(told().unwrap().header("mcp-session-id"), Some("session-of-the-server"));
        }
        wait_for("the connection is let go", SOON, || upstream.hang_ups() == 1);
        gateway.audited("the cancelled call", |record| record["outcome"] == "cancelled");
        assert_eq!(upstream.calls().len(), 1);
    }
}

/// C55, second part.
#[test]
fn a_stateless_client_cancels_by_leaving() {
    for speaks in [HANDSHAKE, Speaks::Stateless, Speaks::Lite] {
        let upstream = Upstream::answering(speaks, late());
        let gateway = Gateway::before(&upstream);
        let mut client = Client::of(&gateway);
        client.send(&Request::stateless(SLOW));
        wait_for("the call is there", SOON, || upstream.calls().len() == 1);
        drop(client);
        wait_for("the connection is let go", SOON, || upstream.hang_ups() == 1);
        if matches!(speaks, Speaks::Handshake(_)) {
            let told = || upstream.of("notifications/cancelled").pop();
            wait_for("the server is told", SOON, || told().is_some());
            let given = upstream.calls()[0].member(&["id"]);
            assert_eq!(told().unwrap().member(&["params", "requestId"]), given);
        }
        gateway.audited("the cancelled call", |record| record["outcome"] == "cancelled");
    }
}

/// The same once its stream has begun.
#[test]
fn a_stateless_client_cancels_by_leaving_its_stream() {
    let progress = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":{{token}},\"progress\":1}}\n\n";
    for speaks in [HANDSHAKE, Speaks::Stateless] {
        let upstream = Upstream::scripted(speaks, move |_| {
            Answer::events([progress, "data: never\n\n"])
                .paused_before_last(Duration::from_secs(10))
        });
        let gateway = Gateway::before(&upstream);
        let mut client = Client::of(&gateway);
        client.send(&Request::stateless(SLOW));
        assert_eq!(client.head().header("content-type"), Some("text/event-stream"));
        assert!(client.event().unwrap().contains("notifications/progress"));
        drop(client);
        wait_for("the connection is let go", SOON, || upstream.hang_ups() == 1);
        gateway.audited("the cancelled call", |record| record["outcome"] == "cancelled");
    }
}

/// C56: many that leave, and nothing of them stays.
#[test]
fn nothing_stays_of_clients_that_left() {
    const CLIENTS: usize = 50;
    let progress = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":{{token}},\"progress\":1}}\n\n";
    let answer =
        Answer::events([progress, "data: never\n\n"]).paused_before_last(Duration::from_secs(10));
    let upstream = Upstream::answering(Speaks::Stateless, answer);
    let gateway = Gateway::before(&upstream);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::of(&gateway);
            client.send(&Request::stateless(SLOW));
            client
        })
        .collect();
    wait_for("every call is there", SOON, || upstream.calls().len() == CLIENTS);
    drop(clients);
    wait_for("every connection is let go", SOON, || upstream.hang_ups() == CLIENTS);
    wait_for("every call is audited", SOON, || {
        let cancelled = |record: &serde_json::Value| record["outcome"] == "cancelled";
        gateway.audit().iter().filter(|record| cancelled(record)).count() == CLIENTS
    });
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert_eq!(Request::handshake(list).ask(&gateway).status, 200);
}

/// In the handshake era a broken connection ends nothing: the call runs to its end.
#[test]
fn a_handshake_client_that_leaves_cancels_nothing() {
    let answer = Answer::json(OK).delayed(Duration::from_millis(400));
    let upstream = Upstream::answering(HANDSHAKE, answer);
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-11-25");
    let mut client = Client::of(&gateway);
    client.send(&Request::handshake(SLOW_BEFORE).header("Mcp-Session-Id", &session));
    wait_for("the call is there", SOON, || upstream.calls().len() == 1);
    drop(client);
    gateway.audited("the call that ran to its end", |record| record["tool"] == "up/slow");
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!((upstream.hang_ups(), upstream.of("notifications/cancelled").len()), (0, 0));
}

/// Silence has its limit, and the server is told where its era has a word for it.
#[test]
fn a_server_that_says_nothing_runs_into_its_timeout() {
    for speaks in [HANDSHAKE, Speaks::Stateless, Speaks::Lite] {
        let upstream = Upstream::answering(speaks, late());
        let gateway = Gateway::before_with(&upstream, "timeout: 200ms", "");
        let begun = Instant::now();
        let reply = Request::handshake(SLOW_BEFORE).ask(&gateway);
        assert!(begun.elapsed() < SOON);
        assert_eq!((reply.status, reply.id().as_deref()), (200, Some("7")));
        assert!(reply.is_error());
        assert_eq!(reply.refusal().as_deref(), Some("timeout"), "{}", reply.text());
        assert!(reply.text().contains(r#""outcome":"unknown""#));
        wait_for("the connection is let go", SOON, || upstream.hang_ups() == 1);
        if matches!(speaks, Speaks::Handshake(_)) {
            wait_for("the server is told", SOON, || {
                upstream.of("notifications/cancelled").len() == 1
            });
        }
        let lite = Request::lite("tools/call", r#"{"name":"slow","arguments":{}}"#).ask(&gateway);
        assert_eq!((lite.status, lite.refusal().as_deref()), (504, Some("timeout")));
    }
}

/// C54 in short times: progress starts the clock of silence anew, not that of the whole call.
#[test]
fn progress_keeps_a_call_alive_up_to_its_longest_time() {
    let progress = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":{{token}},\"progress\":1}}\n\n";
    let end = format!("data: {OK}\n\n");
    let every = Duration::from_millis(150);
    for (events, good) in [(10, true), (60, false)] {
        let pieces = std::iter::repeat_n(progress, events).chain([end.as_str()]);
        let answer = Answer::events(pieces).every(every);
        let upstream = Upstream::answering(Speaks::Stateless, answer);
        let gateway = Gateway::before_with(&upstream, "timeout: 1s, max_time: 3s", "");
        let begun = Instant::now();
        let reply = Request::stateless(SLOW).ask(&gateway);
        assert!(begun.elapsed() < Duration::from_secs(6));
        let text = reply.text();
        assert_eq!(reply.id().as_deref(), Some("7"), "{text}");
        assert!(text.matches(r#""progressToken":"p""#).count() >= 6, "{text}");
        assert_eq!(reply.is_error(), !good, "{text}");
        assert_eq!(reply.refusal().as_deref(), (!good).then_some("timeout"));
    }
}
