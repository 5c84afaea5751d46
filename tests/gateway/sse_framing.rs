//! Event streams of servers, however they are cut and spelled (C14-C18).

use std::time::Duration;

use tokio::time::Instant;

use crate::support::{Answer, ECHO, Gateway, OK, Reply, Request, Speaks, Upstream};

const SPEAKS: [Speaks; 2] = [Speaks::Handshake("2025-11-25"), Speaks::Stateless];

/// Asks once for each era of a server; every answer must come within two seconds.
fn each(answer: Answer, check: impl Fn(&Reply)) {
    for speaks in SPEAKS {
        let upstream = Upstream::answering(speaks, answer.clone());
        let gateway = Gateway::before(&upstream);
        let begun = Instant::now();
        let reply = Request::handshake(ECHO).ask(&gateway);
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert_eq!((reply.status, reply.id().as_deref()), (200, Some("1")), "{}", reply.text());
        check(&reply);
        assert_eq!(upstream.calls().len(), 1);
        gateway.audited("the call", |record| record["tool"] == "up/echo");
    }
}

fn good(reply: &Reply) {
    assert_eq!(reply.member(&["result", "content"]).as_deref(), Some(CONTENT), "{}", reply.text());
    // Nothing came before the answer, so it is a plain one.
    assert_eq!(reply.header("content-type"), Some("application/json"));
}

const CONTENT: &str = r#"[{"type":"text","text":"ok"}]"#;

/// C14.
#[test]
fn lines_end_with_any_of_three_line_ends() {
    for end in ["\r\n", "\n", "\r"] {
        let event = format!("event: message{end}data: {OK}{end}{end}");
        each(Answer::events([event.clone()]).then_close(), good);
        // One byte at a time, so that a line end is cut in two.
        each(Answer::events([event]).cut(1), good);
    }
}

/// C15.
#[test]
fn the_data_lines_of_an_event_are_one_message() {
    let lines = "data: {\"jsonrpc\":\"2.0\",\"id\":{{id}},\ndata:\"result\":{\"content\":\ndata: [{\"type\":\"text\",\"text\":\"ok\"}]}}\n";
    each(Answer::events([format!("{lines}\n")]).then_close(), good);
    // An event that was not ended may be dropped; a stream without an answer is a failure.
    each(Answer::events([lines]).then_close(), |reply| {
        assert!(reply.is_error(), "{}", reply.text());
        assert_eq!(reply.refusal().as_deref(), Some("external_service_error"));
    });
}

/// C16, comments, unknown fields and a byte order mark.
#[test]
fn what_is_no_message_is_passed_over() {
    for before in [
        "id: 0\nretry: 3000\ndata:\n\n",
        "data\n\n",
        ": keep-alive\n\n",
        ":\n\n\n\n",
        "event: endpoint\nunknown: field\n\n",
        "\u{feff}id: 0\n\n",
    ] {
        let event = format!("id: 1\ndata: {OK}\n\n");
        each(Answer::events([before, &event]).then_close(), good);
    }
}

/// C17.
#[test]
fn a_character_may_be_cut_in_two() {
    let text = "你好 🌍";
    let event = format!("data: {}\n\n", OK.replace("ok", text));
    each(Answer::events([event]).cut(1), |reply| {
        let text = format!("\"{text}\"");
        assert!(reply.text().contains(&text), "{}", reply.text());
        assert!(!reply.text().contains('\u{fffd}'));
    });
}

/// C18.
#[test]
fn an_event_may_be_as_large_as_an_answer() {
    for size in [122_880, 2_097_152] {
        let text = "x".repeat(size);
        let event = format!("data: {}\n\n", OK.replace("ok", &text));
        each(Answer::events([event]), |reply| {
            let content = reply.member(&["result", "content"]).unwrap();
            assert_eq!(content.len(), CONTENT.len() - "ok".len() + size);
        });
    }
}

/// The limit is the upstream's own setting, and has its own error.
#[test]
fn an_event_that_is_too_large_is_refused_by_its_own_name() {
    let text = "x".repeat(100_000);
    let body = OK.replace("ok", &text);
    for answer in [Answer::events([format!("data: {body}\n\n")]), Answer::json(body)] {
        let upstream = Upstream::answering(SPEAKS[0], answer);
        let gateway = Gateway::before_with(&upstream, "max_response_bytes: 64KiB", "");
        let reply = Request::handshake(ECHO).ask(&gateway);
        assert_eq!(reply.status, 200);
        assert_eq!(reply.refusal().as_deref(), Some("payload_too_large"), "{}", reply.text());
    }
}
