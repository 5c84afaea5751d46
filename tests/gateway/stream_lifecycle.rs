//! Streams that end early, that the caller cannot take, and that must not be held back
//! (C19-C22).

use std::time::Duration;

use tokio::time::Instant;

use crate::support::{
    Answer, Client, Gateway, Request, Signal, Speaks, Upstream, client::open_session, wait_for,
};

const SPEAKS: [Speaks; 2] = [Speaks::Handshake("2025-11-25"), Speaks::Stateless];

const PROGRESS: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":{{token}},\"progress\":1}}\n\n";

const LOG: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"hi\"}}\n\n";

fn call(id: &str, token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"slow","arguments":{{}},"_meta":{{"progressToken":{token}}}}}}}"#
    )
}

/// C19: one result, with what it says of itself.
#[test]
fn a_lite_caller_gets_the_one_result_of_a_stream() {
    let end = "data: {\"jsonrpc\":\"2.0\",\"id\":{{id}},\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"quota gone\"}],\"isError\":true}}\n\n";
    for speaks in SPEAKS {
        for token in ["", r#","_meta":{"progressToken":"p"}"#] {
            let progress = PROGRESS.replace("{{token}}", r#""p""#);
            let own = PROGRESS.to_owned();
            let events =
                if token.is_empty() { [progress, LOG.to_owned()] } else { [own, LOG.to_owned()] };
            let answer = Answer::events(events.into_iter().chain([end.to_owned()])).then_close();
            let upstream = Upstream::answering(speaks, answer);
            let gateway = Gateway::before(&upstream);
            let body = format!(r#"{{"name":"echo","arguments":{{"x":1}}{token}}}"#);
            let reply = Request::lite("tools/call", body).ask(&gateway);
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert_eq!(reply.member(&["isError"]).as_deref(), Some("true"), "{}", reply.text());
            let text = reply.text();
            assert!(text.contains("quota gone"), "{text}");
            assert!(!text.contains("data:") && !text.contains("notifications"), "{text}");
        }
    }
}

/// C20: failed at once, under its id, and never sent again.
#[test]
fn a_stream_that_ends_before_the_answer_fails_the_call() {
    for speaks in SPEAKS {
        let upstream = Upstream::answering(speaks, Answer::none());
        let gateway = Gateway::before(&upstream);
        for first in [LOG, PROGRESS] {
            let events = || Answer::events([first, "data: {\"jsonrpc\":\"2.0\",\"id\":"]);
            for (how, answer) in [
                ("close", events().then_close()),
                ("end", events()),
                ("break", events().then_break()),
                ("reset", events().then_reset()),
            ] {
                upstream.answers(answer);
                let begun = Instant::now();
                let reply = Request::handshake(call("8", "\"p\"")).ask(&gateway);
                assert!(begun.elapsed() < Duration::from_secs(2), "{how}");
                let text = reply.text();
                assert_eq!(
                    (reply.status, reply.id().as_deref()),
                    (200, Some("8")),
                    "{how}: {text}"
                );
                assert!(reply.is_error(), "{how}: {text}");
                assert_eq!(reply.refusal().as_deref(), Some("external_service_error"), "{how}");
                let error = ["result", "_meta", "dev.hangu/error", "outcome"];
                assert_eq!(reply.member(&error).as_deref(), Some(r#""unknown""#), "{how}: {text}");
                assert_eq!(upstream.calls().len(), 1, "{how}");
                assert_eq!(upstream.of("notifications/cancelled").len(), 0, "{how}");
            }
        }
    }
}

/// C21: in lockstep: the server sends nothing more before the client has what was sent.
#[test]
fn events_are_passed_on_one_by_one() {
    let end = "data: {\"jsonrpc\":\"2.0\",\"id\":{{id}},\"result\":{\"content\":[]}}\n\n";
    for speaks in SPEAKS {
        for token in [r#""p1""#, "7", "12345678901234567890", r#""\u00e9""#] {
            for coded in [false, true] {
                let signal = Signal::new();
                let events = [PROGRESS, PROGRESS, LOG, PROGRESS, end];
                let answer = Answer::events(events).stepwise(&signal);
                let answer = if coded { answer.gzip() } else { answer };
                let upstream = Upstream::answering(speaks, answer);
                let gateway = Gateway::before(&upstream);
                let session = open_session(&gateway, "2025-11-25");
                let mut client = Client::of(&gateway);
                let request = Request::handshake(call("1", token));
                client.send(&request.header("Mcp-Session-Id", &session));
                signal.give();
                let head = client.head();
                assert_eq!(head.status, 200);
                assert_eq!(head.header("content-type"), Some("text/event-stream"));
                assert_eq!(head.header("x-accel-buffering"), Some("no"));
                assert_eq!(head.header("content-encoding"), None);
                let own = format!(r#""progressToken":{token}"#);
                assert!(client.event().unwrap().contains(&own));
                signal.give();
                assert!(client.event().unwrap().contains(&own));
                // What the caller did not ask for is left out.
                signal.give();
                signal.give();
                assert!(client.event().unwrap().contains(&own));
                signal.give();
                let last = client.event().unwrap();
                assert!(last.contains(r#""id":1,"result""#), "{last}");
                assert_eq!(client.event(), None);
                let sent = upstream.calls().pop().unwrap();
                let id = sent.member(&["id"]);
                assert_eq!(sent.member(&["params", "_meta", "progressToken"]), id);
            }
        }
    }
}

/// A stream that has begun and then breaks ends with the response of its request.
#[test]
fn a_stream_that_has_begun_ends_with_a_response() {
    for speaks in SPEAKS {
        let signal = Signal::new();
        let events = Answer::events([PROGRESS, PROGRESS]).stepwise(&signal).then_break();
        let upstream = Upstream::answering(speaks, events);
        let gateway = Gateway::before(&upstream);
        let mut client = Client::of(&gateway);
        client.send(&Request::handshake(call("9", "1")));
        signal.give();
        assert_eq!(client.head().header("content-type"), Some("text/event-stream"));
        assert!(client.event().unwrap().contains("notifications/progress"));
        signal.give();
        assert!(client.event().unwrap().contains("notifications/progress"));
        let last = client.event().unwrap();
        assert!(last.contains(r#""id":9"#) && last.contains(r#""isError":true"#), "{last}");
        assert!(last.contains("external_service_error"), "{last}");
        assert_eq!(client.event(), None);
        wait_for("one call", Duration::from_secs(1), || upstream.calls().len() == 1);
    }
}

/// A server may ask whether the gateway is there; for anything else it gets a refusal, not
/// silence, and its call goes on.
#[test]
fn a_question_of_a_server_is_answered_beside_its_call() {
    let signal = Signal::new();
    let question = |id: &str, method: &str| {
        format!(
            "data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{}}}}\n\n"
        )
    };
    let ask =
        [question("\"q-1\"", "ping"), PROGRESS.to_owned(), question("44", "elicitation/create")];
    let end = "data: {\"jsonrpc\":\"2.0\",\"id\":{{id}},\"result\":{\"content\":[]}}\n\n";
    let events = Answer::events(ask.into_iter().chain([end.to_owned()])).stepwise(&signal);
    let upstream = Upstream::answering(SPEAKS[0], events);
    let gateway = Gateway::before(&upstream);
    let answered = |id: &str| {
        let of =
            |request: &crate::support::Received| request.member(&["id"]).as_deref() == Some(id);
        upstream.received().into_iter().find(of)
    };
    let mut client = Client::of(&gateway);
    client.send(&Request::handshake(call("1", "\"p\"")));
    signal.give();
    wait_for("the ping is answered", Duration::from_secs(3), || answered("\"q-1\"").is_some());
    let pong = answered("\"q-1\"").unwrap();
    assert_eq!(pong.member(&["result"]).as_deref(), Some("{}"));
    assert_eq!(pong.header("mcp-session-id"), Some("session-of-the-server"));
    signal.give();
    assert_eq!(client.head().header("content-type"), Some("text/event-stream"));
    assert!(client.event().unwrap().contains("notifications/progress"));
    signal.give();
    wait_for("the question is refused", Duration::from_secs(3), || answered("44").is_some());
    assert_eq!(answered("44").unwrap().member(&["error", "code"]).as_deref(), Some("-32601"));
    signal.give();
    assert!(client.event().unwrap().contains("\"result\""));
    assert_eq!(client.event(), None);
    assert_eq!(upstream.of("notifications/cancelled").len(), 0);
}

/// Each answer costs the gateway a request, so a call has only so many.
#[test]
fn a_server_that_does_nothing_but_ask_is_left() {
    let ping = "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"ping\"}\n\n";
    let upstream = Upstream::answering(SPEAKS[0], Answer::events([ping.repeat(1_000)]));
    let gateway = Gateway::before(&upstream);
    let reply = Request::handshake(call("1", "1")).ask(&gateway);
    assert_eq!(reply.refusal().as_deref(), Some("external_service_error"), "{}", reply.text());
    assert!(upstream.received().len() < 100);
}

/// C22: a server that offers no stream outside of calls has said so, and is not asked again.
#[test]
fn a_server_without_a_stream_of_its_own_is_not_asked_again_and_again() {
    let ok = || Answer::json(crate::support::OK);
    let upstream = Upstream::answering(SPEAKS[0], ok());
    let gateway = Gateway::before_with(&upstream, "poll: 1s", "");
    let session = open_session(&gateway, "2025-11-25");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
        for body in [list, &call("2", "1")] {
            let request = Request::handshake(body).header("Mcp-Session-Id", &session);
            assert_eq!(request.ask(&gateway).status, 200);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(upstream.of("tools/list").len() >= 2, "it is polled meanwhile");
    assert!(upstream.gets() <= 2, "asked {} times", upstream.gets());
}
