//! Answers that a client of the handshake era takes up again after its connection broke.

use std::time::Duration;

use crate::support::{
    Answer, Client, Gateway, Reply, Request, Signal, Speaks, Upstream, client::open_session,
    wait_for,
};

const PROGRESS: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":{{token}},\"progress\":1}}\n\n";
const END: &str = "data: {\"jsonrpc\":\"2.0\",\"id\":{{id}},\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}}\n\n";
const CALL: &str = r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"slow","arguments":{},"_meta":{"progressToken":"p"}}}"#;

const SECOND: Duration = Duration::from_secs(1);

fn call(session: &str, version: &str) -> Request {
    Request::plain(CALL).header("MCP-Protocol-Version", version).header("Mcp-Session-Id", session)
}

fn resume(session: &str, last: &str) -> Request {
    Request::new("GET", "/mcp/up", "")
        .header("Accept", "text/event-stream")
        .header("Mcp-Session-Id", session)
        .header("Last-Event-ID", last)
}

fn id_of(event: &str) -> String {
    let id = event.lines().find_map(|line| line.strip_prefix("id: "));
    id.unwrap_or_else(|| panic!("no id: {event}")).to_owned()
}

fn ids_of(reply: &Reply) -> Vec<String> {
    reply.text().lines().filter_map(|line| line.strip_prefix("id: ")).map(Into::into).collect()
}

/// The call goes on without its client, and the client gets the rest of it and no more.
#[test]
fn a_broken_answer_is_taken_up_where_it_broke() {
    for (version, primed) in [("2025-11-25", true), ("2025-06-18", false), ("2025-03-26", false)] {
        for speaks in [Speaks::Handshake("2025-11-25"), Speaks::Stateless] {
            let signal = Signal::new();
            let answer = Answer::events([PROGRESS, PROGRESS, END]).stepwise(&signal);
            let upstream = Upstream::answering(speaks, answer);
            let gateway = Gateway::before(&upstream);
            let session = open_session(&gateway, version);
            let mut client = Client::of(&gateway);
            client.send(&call(&session, version));
            signal.give();
            assert_eq!(client.head().header("content-type"), Some("text/event-stream"));
            if primed {
                let first = client.event().unwrap();
                assert!(first.starts_with("id: ") && first.ends_with("\ndata: \n\n"), "{first}");
                assert!(first.contains("\nretry: "), "{first}");
            }
            let progress = client.event().unwrap();
            assert!(progress.contains("notifications/progress"), "{progress}");
            drop(client);
            signal.give();
            signal.give();
            let reply = resume(&session, &id_of(&progress)).ask(&gateway);
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert_eq!(reply.header("content-type"), Some("text/event-stream"));
            let text = reply.text();
            assert_eq!(text.matches("notifications/progress").count(), 1, "{text}");
            assert!(reply.message().contains(r#""id":8"#) && text.contains("done"), "{text}");
            assert_eq!(ids_of(&reply).len(), 2, "{text}");
            // Again, and after the end: what is kept is what is left.
            let last = ids_of(&reply).pop().unwrap();
            let again = resume(&session, &ids_of(&reply)[0]).ask(&gateway);
            assert_eq!(ids_of(&again), std::slice::from_ref(&last));
            let nothing = resume(&session, &last).ask(&gateway);
            assert_eq!((nothing.status, nothing.text().as_str()), (200, ""));
            assert_eq!(upstream.calls().len(), 1);
        }
    }
}

/// A client that comes back while the call still runs waits for it as before.
#[test]
fn a_client_that_is_back_in_time_sees_the_call_end() {
    let signal = Signal::new();
    let answer = Answer::events([PROGRESS, END]).stepwise(&signal);
    let upstream = Upstream::answering(Speaks::Stateless, answer);
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-11-25");
    let mut client = Client::of(&gateway);
    client.send(&call(&session, "2025-11-25"));
    signal.give();
    client.head();
    let primed = id_of(&client.event().unwrap());
    drop(client);
    let mut client = Client::of(&gateway);
    client.send(&resume(&session, &primed));
    assert_eq!(client.head().status, 200);
    assert!(client.event().unwrap().contains("notifications/progress"));
    signal.give();
    assert!(client.event().unwrap().contains("done"));
    assert_eq!(client.event(), None);
}

/// An id is good in its session alone, and nothing is made up where nothing is kept.
#[test]
fn what_is_not_kept_is_not_given() {
    let events = || Answer::events([PROGRESS, END]);
    let upstream = Upstream::answering(Speaks::Stateless, events());
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-11-25");
    let other = open_session(&gateway, "2025-11-25");
    let reply = call(&session, "2025-11-25").ask(&gateway);
    let ids = ids_of(&reply);
    assert_eq!(ids.len(), 3, "{}", reply.text());
    assert_eq!(resume(&session, &ids[0]).ask(&gateway).status, 200);
    for (session, id) in
        [(&other, &*ids[0]), (&session, "1"), (&session, "0000000000000000-0"), (&session, "")]
    {
        let refused = resume(session, id).ask(&gateway);
        // 404 would say that the session is gone.
        assert_eq!((refused.status, refused.rpc_code()), (400, Some(-32600)), "{id}");
    }
    assert_eq!(resume("nonsense", &ids[0]).ask(&gateway).status, 404);
    // Outside a session there is nothing to come back to, and no id says otherwise.
    let alone = call("", "2025-11-25").without("Mcp-Session-Id").ask(&gateway);
    assert_eq!(ids_of(&alone), Vec::<String>::new());
    let stateless = CALL.replace(
        r#""progressToken""#,
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken""#,
    );
    let stateless = Request::stateless(&stateless).ask(&gateway);
    assert!(stateless.text().contains("done") && ids_of(&stateless).is_empty());
    let end = Request::new("DELETE", "/mcp/up", "").header("Mcp-Session-Id", &session);
    assert_eq!(end.ask(&gateway).status, 204);
    assert_eq!(resume(&session, &ids[0]).ask(&gateway).status, 404);
}

/// A plain answer stays plain; and where the operator keeps nothing, no ids are given.
#[test]
fn only_streams_are_kept_and_only_where_they_may_be() {
    let plain = Answer::json(crate::support::OK);
    let upstream = Upstream::answering(Speaks::Stateless, plain);
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-11-25");
    let reply = call(&session, "2025-11-25").ask(&gateway);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    upstream.answers(Answer::events([PROGRESS, END]));
    let off = Gateway::before_with(&upstream, "", "streams: { resume_window: 0s }");
    let session = open_session(&off, "2025-11-25");
    let reply = call(&session, "2025-11-25").ask(&off);
    assert!(reply.text().contains("done"));
    assert_eq!(ids_of(&reply), Vec::<String>::new());
}

/// Only a cancellation ends a call in this era, also one that nobody reads.
#[test]
fn a_call_that_nobody_reads_can_be_cancelled() {
    let signal = Signal::new();
    let answer = Answer::events([PROGRESS, END]).stepwise(&signal);
    let upstream = Upstream::answering(Speaks::Stateless, answer);
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-11-25");
    let mut client = Client::of(&gateway);
    client.send(&call(&session, "2025-11-25"));
    signal.give();
    client.head();
    let primed = id_of(&client.event().unwrap());
    drop(client);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}"#;
    let cancel = Request::handshake(cancel).header("Mcp-Session-Id", &session);
    assert_eq!(cancel.ask(&gateway).status, 202);
    let rest = resume(&session, &primed).ask(&gateway);
    assert!(!rest.text().contains("done"), "{}", rest.text());
    gateway.audited("the call was cancelled", |record| record["outcome"] == "cancelled");
    wait_for("the server was left", 5 * SECOND, || {
        signal.give();
        upstream.hang_ups() == 1 || upstream.connections() <= 1
    });
}
