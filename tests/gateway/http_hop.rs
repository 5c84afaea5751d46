//! One hop of HTTP is not the next: codings, connections, hop-by-hop headers, redirects and
//! trailers (C37-C41).

use std::{thread, time::Duration};

use tokio::time::Instant;

use crate::support::{
    Answer, Client, ECHO, Gateway, LITE_OK, OK, Received, Reply, Request, Speaks, Upstream,
    wait_for,
};

const HANDSHAKE: Speaks = Speaks::Handshake("2025-11-25");

const LITE_CALL: &str = r#"{"name":"echo","arguments":{"x":1}}"#;

/// C37.
#[test]
fn a_coded_answer_is_decoded_on_its_own_hop() {
    let event = format!("data: {OK}\n\n");
    for (what, answer) in [
        ("JSON", Answer::json(OK).gzip()),
        ("JSON in pieces", Answer::json(OK).gzip().cut(1)),
        ("events", Answer::events([event.clone()]).gzip().then_close()),
        ("events in pieces", Answer::events([event]).gzip().cut(1)),
    ] {
        let upstream = Upstream::answering(HANDSHAKE, answer);
        let gateway = Gateway::before(&upstream);
        let request = Request::handshake(ECHO).header("Accept-Encoding", "gzip, deflate");
        let reply = request.ask(&gateway);
        assert_eq!(reply.status, 200, "{what}");
        let content = reply.member(&["result", "content"]);
        assert_eq!(content.as_deref(), Some(r#"[{"type":"text","text":"ok"}]"#), "{what}");
        assert_eq!(reply.header("content-encoding"), None, "{what}");
        let length = reply.header("content-length").map(|value| value.parse().unwrap());
        assert_eq!(length, Some(reply.body.len()), "{what}");
        let sent = upstream.calls().pop().unwrap();
        assert_eq!(sent.header("accept-encoding"), None, "{what}: the client's, passed on");
    }
    // What nobody asked for and nobody can read is a failure, not text.
    let unknown = Answer::json(OK).header("Content-Encoding", "br");
    let broken = Answer::json(OK).header("Content-Encoding", "gzip");
    for answer in [unknown, broken] {
        let upstream = Upstream::answering(HANDSHAKE, answer);
        let gateway = Gateway::before(&upstream);
        let reply = Request::handshake(ECHO).ask(&gateway);
        assert_eq!(reply.refusal().as_deref(), Some("external_service_error"));
        assert_eq!(upstream.calls().len(), 1);
    }
}

/// C38: a connection that was closed while it was idle costs no call, and where a server closes
/// just as a call is written to it, the call fails and is not sent twice.
#[test]
fn a_pooled_connection_that_was_closed_costs_no_call() {
    const IDLE: Duration = Duration::from_millis(40);
    /// Of the call that comes before those that are looked at.
    const FIRST: usize = 100;
    let run = |speaks: Speaks, answer: &'static str| {
        // Every third connection is kept, however slow this machine is: otherwise its end and the
        // next call would meet.
        let upstream = Upstream::scripted(speaks, move |call| {
            let arguments = call.arguments();
            let number = arguments.trim_matches(|c: char| !c.is_ascii_digit());
            let number: usize = number.parse().unwrap();
            let answer = Answer::json(answer);
            let kept = number == FIRST || number < 30 && number % 3 == 2;
            if kept { answer.keeping(Duration::from_secs(60)) } else { answer }
        });
        upstream.close_idle(IDLE);
        let gateway = Gateway::before(&upstream);
        let ask = |number: usize| {
            let n = format!(r#"{{"x":{number}}}"#);
            match speaks {
                Speaks::Lite => Request::lite("tools/call", LITE_CALL.replace(r#"{"x":1}"#, &n)),
                _ => Request::handshake(ECHO.replace(r#"{"x":1}"#, &n)),
            }
            .ask(&gateway)
        };
        let is_good = |reply: &Reply| reply.text().contains(r#""text":"ok""#);
        // Its listing, or the session, may have met the end of a connection.
        wait_for("it is listed", Duration::from_secs(20), || is_good(&ask(FIRST)));
        // The connection is closed, or it is not: each call is carried out.
        for number in 0..30 {
            if number % 3 != 0 {
                let closed = || upstream.connections() == 0;
                wait_for("idle connections are closed", Duration::from_secs(5), closed);
                // The thread that owns the connection may be waiting for a processor: a call
                // that is written before it has seen the end belongs to the second part.
                thread::sleep(IDLE);
            }
            let reply = ask(number);
            assert!(is_good(&reply), "{speaks:?} {number}: {}", reply.text());
        }
        let seen = || -> Vec<String> {
            let all = upstream.calls();
            let arguments = all.iter().map(Received::arguments);
            arguments.filter(|own| !own.contains(&FIRST.to_string())).collect()
        };
        assert_eq!(seen().len(), 30, "{speaks:?}");
        // At the very moment at which it closes.
        for number in 30..45 {
            thread::sleep(IDLE);
            let reply = ask(number);
            if !is_good(&reply) {
                let refusal = reply.refusal();
                assert_eq!(refusal.as_deref(), Some("external_service_error"), "{speaks:?}");
                assert!(reply.text().contains(r#""outcome":"unknown""#), "{}", reply.text());
            }
        }
        let mut seen = seen();
        let calls = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), calls, "{speaks:?}: a call came twice");
    };
    thread::scope(|scope| {
        scope.spawn(|| run(HANDSHAKE, OK));
        scope.spawn(|| run(Speaks::Stateless, OK));
        run(Speaks::Lite, LITE_OK);
    });
}

/// C38, third part: what was read is not sent again.
#[test]
fn a_call_that_was_read_is_never_sent_again() {
    for (speaks, first) in [(HANDSHAKE, OK), (Speaks::Stateless, OK), (Speaks::Lite, LITE_OK)] {
        let upstream = Upstream::answering(speaks, Answer::json(first));
        let gateway = Gateway::before(&upstream);
        let ask = || match speaks {
            Speaks::Lite => Request::lite("tools/call", LITE_CALL).ask(&gateway),
            _ => Request::handshake(ECHO).ask(&gateway),
        };
        for warm in [false, true] {
            upstream.answers(Answer::json(first));
            if warm {
                assert_eq!(ask().status, 200);
            }
            for (how, answer) in [
                ("closed", Answer::none()),
                ("reset", Answer::none().then_reset()),
                ("half a head", Answer::raw("HTTP/1.1 200 OK\r\nContent-Ty").then_break()),
                ("no HTTP", Answer::raw("hello\r\n\r\n").then_break()),
                (
                    "half a body",
                    Answer::raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{").then_break(),
                ),
            ] {
                upstream.answers(answer);
                let begun = Instant::now();
                let reply = ask();
                assert!(begun.elapsed() < Duration::from_secs(2), "{how}");
                let refusal = reply.refusal();
                assert_eq!(refusal.as_deref(), Some("external_service_error"), "{how}");
                assert!(reply.text().contains(r#""outcome":"unknown""#), "{how}: {}", reply.text());
                assert_eq!(upstream.calls().len(), 1, "{how} {speaks:?}");
            }
        }
    }
}

/// C39.
#[test]
fn headers_of_one_hop_stay_on_it() {
    let answer = Answer::json(OK)
        .header("Connection", "X-Up")
        .header("X-Up", "1")
        .header("Keep-Alive", "timeout=5")
        .header("Proxy-Authenticate", "Basic")
        .header("Set-Cookie", "a=b")
        .header("Server", "up");
    let upstream = Upstream::answering(HANDSHAKE, answer);
    // Even where the operator lists one that the client names a hop's own.
    let gateway = Gateway::before_with(&upstream, "forward_headers: [X-Wanted, X-Secret-Hop]", "");
    let request = Request::handshake(ECHO)
        .header("Connection", "close, X-Secret-Hop")
        .header("X-Secret-Hop", "1")
        .header("X-Wanted", "yes")
        .header("X-Unlisted", "1")
        .header("TE", "trailers")
        .header("Proxy-Authorization", "Basic eA==")
        .header("Upgrade", "h2c")
        .header("Cookie", "a=b")
        .header("Authorization", "Bearer of-the-client")
        .header("Forwarded", "for=192.0.2.1");
    let reply = request.ask(&gateway);
    assert_eq!(reply.status, 200);
    for name in ["x-up", "keep-alive", "proxy-authenticate", "set-cookie", "server"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    let sent = upstream.calls().pop().unwrap();
    assert_eq!(sent.header("x-wanted"), Some("yes"));
    for name in [
        "x-secret-hop",
        "te",
        "proxy-authorization",
        "upgrade",
        "connection",
        "x-unlisted",
        "cookie",
        "authorization",
        "forwarded",
        "x-api-key",
        "origin",
    ] {
        assert_eq!(sent.header(name), None, "{name}: {}", sent.head);
    }
}

/// What the operator lets pass is passed as it is or not at all.
#[test]
fn a_forwarded_value_that_would_break_a_header_is_refused() {
    let upstream = Upstream::answering(HANDSHAKE, Answer::json(OK));
    let gateway = Gateway::before_with(&upstream, "forward_headers: [X-Wanted]", "");
    for value in ["\u{fc}".as_bytes(), b"a\xffb"] {
        let reply = Request::handshake(ECHO).header("X-Wanted", value).ask(&gateway);
        assert_eq!(reply.refusal().as_deref(), Some("invalid_args"), "{}", reply.text());
    }
    // What is no header at all does not come in.
    for value in ["a\rX-Role: admin", "a\0b"] {
        let reply = Request::handshake(ECHO).header("X-Wanted", value).ask(&gateway);
        assert_eq!(reply.status, 400, "{value:?}");
    }
    assert_eq!(upstream.calls().len(), 0);
    let twice = Request::handshake(ECHO).header("X-Wanted", "a").header("X-Wanted", "b");
    assert_eq!(twice.ask(&gateway).status, 200);
    let sent = upstream.calls().pop().unwrap();
    let lines: Vec<_> = sent.head.lines().filter(|line| line.starts_with("x-wanted")).collect();
    assert_eq!(lines, ["x-wanted: a", "x-wanted: b"]);
}

/// C40.
#[test]
fn one_redirect_within_the_origin_is_followed_and_none_is_shown() {
    let to = |status: &'static str, location: &'static str| {
        move |call: &Received| {
            if call.path() == "/mcp" || location == "/mcp" {
                Answer::new(status, "", "").header("Location", location)
            } else {
                Answer::json(OK)
            }
        }
    };
    for (status, location, calls, good) in [
        ("307 Temporary Redirect", "/mcp/", 2, true),
        ("308 Permanent Redirect", "/mcp/", 2, true),
        ("301 Moved Permanently", "/mcp/", 1, false),
        ("302 Found", "/mcp/", 1, false),
        ("303 See Other", "/mcp/", 1, false),
        ("307 Temporary Redirect", "/mcp", 2, false),
        ("307 Temporary Redirect", "http://127.0.0.1:1/mcp/", 1, false),
        ("307 Temporary Redirect", "//evil.example/mcp/", 1, false),
        ("308 Permanent Redirect", "https://evil.example/mcp/", 1, false),
        ("307 Temporary Redirect", "", 2, false),
        ("304 Not Modified", "/mcp/", 1, false),
        ("300 Multiple Choices", "/mcp/", 1, false),
    ] {
        let what = format!("{status} to {location:?}");
        let upstream = Upstream::scripted(HANDSHAKE, to(status, location));
        let gateway = Gateway::before(&upstream);
        let reply = Request::handshake(ECHO).ask(&gateway);
        assert_eq!((reply.status, reply.id().as_deref()), (200, Some("1")), "{what}");
        assert_eq!(reply.header("location"), None, "{what}");
        let received = upstream.calls();
        assert_eq!(received.len(), calls, "{what}");
        if good {
            assert!(reply.text().contains(r#""text":"ok""#), "{what}: {}", reply.text());
            assert!(received.iter().all(|call| call.head.starts_with("POST ")), "{what}");
            assert_eq!(received[0].body, received[1].body, "{what}");
        } else {
            assert_eq!(reply.refusal().as_deref(), Some("external_service_error"), "{what}");
            assert!(reply.text().contains("redirect"), "{what}: {}", reply.text());
            assert!(!reply.text().contains("evil.example"), "{what}");
        }
        let lite = Request::lite("tools/call", LITE_CALL).ask(&gateway);
        assert_eq!(lite.status, if good { 200 } else { 502 }, "{what}");
    }
}

/// C41.
#[test]
fn trailers_are_read_and_dropped() {
    let (first, rest) = OK.split_at(20);
    let upstream = Upstream::scripted(HANDSHAKE, {
        let (first, rest) = (first.to_owned(), rest.to_owned());
        move |call: &Received| {
            let id = call.member(&["id"]).unwrap();
            let (first, rest) = (first.replace("{{id}}", &id), rest.replace("{{id}}", &id));
            Answer::raw(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\nX-Sum: abc\r\nTransfer-Encoding: x\r\n\r\n",
                first.len(),
                rest.len()
            ))
        }
    });
    let gateway = Gateway::before(&upstream);
    let mut client = Client::of(&gateway);
    for _ in 0..3 {
        let reply = client.ask(&Request::handshake(ECHO));
        assert_eq!(reply.status, 200);
        assert!(reply.text().contains(r#""text":"ok""#), "{}", reply.text());
        for name in ["x-sum", "trailer"] {
            assert_eq!(reply.header(name), None, "{name}");
        }
    }
    let mut connections: Vec<_> = upstream.calls().iter().map(|call| call.connection).collect();
    assert_eq!(connections.len(), 3);
    connections.dedup();
    assert_eq!(connections.len(), 1, "the connection was not used again");
}

/// How a client frames its request is the business of its own hop.
#[test]
fn a_request_body_may_come_in_pieces() {
    let upstream = Upstream::answering(HANDSHAKE, Answer::json(OK));
    let gateway = Gateway::before(&upstream);
    let head = "POST /mcp/up HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: key-of-a-test\r\nContent-Type: application/json\r\n";
    let mut client = Client::of(&gateway);
    let (first, rest) = ECHO.split_at(30);
    client.send_raw(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes());
    for part in [first, rest] {
        client.send_raw(format!("{:x};ext=1\r\n{part}\r\n", part.len()).as_bytes());
        thread::sleep(Duration::from_millis(20));
    }
    client.send_raw(b"0\r\nX-Trailer: 1\r\n\r\n");
    assert_eq!(client.read().status, 200);

    // The connection goes on, and a client may ask first whether its body is welcome.
    let length = ECHO.len();
    let ask = format!("{head}Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n");
    client.send_raw(ask.as_bytes());
    assert_eq!(client.head().status, 100);
    client.send_raw(ECHO.as_bytes());
    assert_eq!(client.read().status, 200);
    let sent = upstream.calls();
    assert_eq!(sent.len(), 2);
    for call in sent {
        assert_eq!(call.arguments(), r#"{"x":1}"#);
        for name in ["transfer-encoding", "expect", "trailer", "x-trailer"] {
            assert_eq!(call.header(name), None, "{name}");
        }
    }

    // Two requests written at once are answered in turn.
    let both = format!("{head}Content-Length: {length}\r\n\r\n{ECHO}");
    let other = both.replace(r#""id":1"#, r#""id":2"#);
    client.send_raw(format!("{both}{other}").as_bytes());
    assert_eq!(client.read().id().as_deref(), Some("1"));
    assert_eq!(client.read().id().as_deref(), Some("2"));
}

/// Where two readers could disagree on where a request ends, nobody reads on.
#[test]
fn a_request_of_unclear_length_is_refused() {
    let upstream = Upstream::answering(HANDSHAKE, Answer::json(OK));
    let gateway = Gateway::before(&upstream);
    let length = ECHO.len();
    let head = "POST /mcp/up HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: key-of-a-test\r\nContent-Type: application/json\r\n";
    for framing in [
        format!("Content-Length: {length}\r\nContent-Length: 5\r\n"),
        format!("Content-Length: {length}, 5\r\n"),
        "Content-Length: -1\r\n".to_owned(),
        "Content-Length: +5\r\n".to_owned(),
        "Content-Length: 0x10\r\n".to_owned(),
        "Transfer-Encoding: chunked, identity\r\n".to_owned(),
        "Transfer-Encoding: xchunked\r\n".to_owned(),
        "X y: 1\r\n".to_owned(),
        "X-A : 1\r\n".to_owned(),
    ] {
        let mut client = Client::of(&gateway);
        client.send_raw(format!("{head}{framing}\r\n{ECHO}").as_bytes());
        let reply = client.read();
        assert_eq!(reply.status, 400, "{framing:?}");
    }
    assert_eq!(upstream.calls().len(), 0);
}
