//! Payloads pass as they were written, both ways and in every dialect; what two parsers would
//! read differently is refused (C34-C36).

use std::{fmt::Write, time::Duration};

use tokio::time::Instant;

use crate::support::{Answer, ECHO, Gateway, LITE_OK, OK, Reply, Request, Speaks, Upstream};

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

const NORTH: [&str; 3] = ["handshake", "stateless", "lite"];

const SOUTH: [Speaks; 3] = [Speaks::Handshake("2025-11-25"), Speaks::Stateless, Speaks::Lite];

/// A call in a northbound dialect; `members` are the params but for `_meta`.
fn call(dialect: &str, members: &str) -> Request {
    match dialect {
        "handshake" => Request::handshake(format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{members}}}}}"#
        )),
        "stateless" => Request::stateless(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{members},{META}}}}}"#
        )),
        _ => Request::lite("tools/call", format!("{{{members}}}")),
    }
}

/// A result in the dialect of a server.
fn result(speaks: Speaks, result: &str) -> Answer {
    match speaks {
        Speaks::Lite => Answer::json(result),
        _ => Answer::json(format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{result}}}"#)),
    }
}

fn ok(speaks: Speaks) -> Answer {
    match speaks {
        Speaks::Lite => Answer::json(LITE_OK),
        _ => Answer::json(OK),
    }
}

/// Everything that a careless reader changes.
fn payload(size: usize) -> String {
    let text = "é\u{1f30d}x\\n".repeat(size / 8);
    let mut out = String::from(r#"{ "z":1.0 ,"a":12345678901234567890,"m":{"#);
    out.push_str(r#""k2":[1e2,-0,0.10,1E400,117.63331139400017,9007199254740991.0],"k1":null},"#);
    out.push_str(r#""\u0065sc":"\u00e9\/\ud83c\udf0d\"\\ \u0000 \b","lone":"\ud800","#);
    out.push_str(r#""":[[],{},[{"":0}]],"@x-unknown":true,	"#);
    let _ = write!(out, r#""text":"{text}"}}"#);
    out
}

/// C34, and each pair of dialects.
#[test]
fn arguments_and_results_pass_unchanged_between_all_dialects() {
    let small = payload(64);
    let large = payload(1024 * 1024);
    for speaks in SOUTH {
        let upstream = Upstream::answering(speaks, ok(speaks));
        let limits = "max_request_bytes: 4MiB, max_response_bytes: 8MiB";
        let gateway = Gateway::before_with(&upstream, limits, "edge: { max_body: 4MiB }");
        for (dialect, payload) in
            NORTH.into_iter().flat_map(|dialect| [(dialect, &small), (dialect, &large)])
        {
            let shown = payload.len();
            let inner = format!(
                r#""content":[{{"b":1.0,"type":"text","text":"t","a":2}}],"x-vendor":[1e2],"structuredContent":{payload}"#
            );
            upstream.answers(result(speaks, &format!("{{{inner}}}")));
            let members =
                format!(r#""x-own":{{"b":1.0,"a":[1E400]}},"name":"echo","arguments":{payload}"#);
            let reply = call(dialect, &members).ask(&gateway);
            assert_eq!(reply.status, 200, "{dialect} to {speaks:?}, {shown}: {}", reply.text());
            let sent = upstream.calls().pop().unwrap();
            assert!(sent.arguments() == *payload, "{dialect} to {speaks:?}, {shown}");
            assert!(sent.text().contains(r#""x-own":{"b":1.0,"a":[1E400]}"#), "{dialect}");
            assert!(reply.text().contains(&inner), "{dialect} from {speaks:?}, {shown}");
        }
    }
}

/// What the gateway does not know of `_meta` is the server's to read.
#[test]
fn members_of_meta_that_are_nobodys_pass() {
    for speaks in SOUTH {
        let upstream = Upstream::answering(speaks, ok(speaks));
        let gateway = Gateway::before(&upstream);
        let own = r#""com.example/trace":{"n":1.0,"big":12345678901234567890}"#;
        let members = format!(r#""name":"echo","arguments":{{}},"_meta":{{{own}}}"#);
        for dialect in ["handshake", "lite"] {
            assert_eq!(call(dialect, &members).ask(&gateway).status, 200);
            let sent = upstream.calls().pop().unwrap();
            assert!(sent.text().contains(own), "{dialect} to {speaks:?}: {}", sent.text());
        }
    }
}

/// C35, at any depth and however the name is spelled.
#[test]
fn a_member_named_twice_is_refused_at_any_depth() {
    let speaks = Speaks::Handshake("2025-11-25");
    let upstream = Upstream::answering(speaks, ok(speaks));
    let gateway = Gateway::before(&upstream);
    let deep = |inner: &str| {
        format!(
            r#""name":"read_doc","arguments":{{"a":{}{inner}{}}}"#,
            r#"{"k":["#.repeat(50),
            "]}".repeat(50)
        )
    };
    let wide: String = (0..200).fold(String::new(), |mut out, number| {
        let _ = write!(out, r#""k{number}":1,"#);
        out
    });
    for members in [
        r#""name":"read_doc","name":"wipe","arguments":{}"#.to_owned(),
        r#""name":"wipe","n\u0061me":"read_doc","arguments":{}"#.to_owned(),
        r#""name":"read_doc","arguments":{},"arguments":{"x":1}"#.to_owned(),
        r#""name":"read_doc","arguments":{"x":1,"y":2,"x":1}"#.to_owned(),
        r#""name":"read_doc","arguments":{"\ud83c\udf0d":1,"🌍":2}"#.to_owned(),
        r#""name":"read_doc","arguments":{"":1,"":2}"#.to_owned(),
        r#""name":"read_doc","arguments":{},"x":[{"y":{"z":1,"z":1}}]"#.to_owned(),
        deep(r#"{"a":1,"\u0061":2}"#),
        format!(r#""name":"read_doc","arguments":{{{wide}"k7":1}}"#),
    ] {
        for dialect in NORTH {
            let reply = call(dialect, &members).ask(&gateway);
            assert_eq!(reply.status, 400, "{dialect} {members}");
            if dialect == "lite" {
                assert_eq!(reply.refusal().as_deref(), Some("invalid_args"), "{members}");
            } else {
                assert_eq!((reply.rpc_code(), reply.id()), (Some(-32600), None), "{members}");
            }
        }
    }
    let twice = format!(
        r#"{{"jsonrpc":"2.0","id":1,"id":2,{}"#,
        &ECHO[r#"{"jsonrpc":"2.0","id":1,"#.len()..]
    );
    assert_eq!(Request::handshake(twice).ask(&gateway).rpc_code(), Some(-32600));
    assert_eq!(upstream.calls().len(), 0);
}

/// Two seconds for what is shipped; a build for debugging reads half a million numbers slower.
const AT_ONCE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 8 } else { 2 });

/// C36.
#[test]
fn depth_is_bounded_and_answered_at_once() {
    let speaks = Speaks::Handshake("2025-11-25");
    let upstream = Upstream::answering(speaks, ok(speaks));
    let gateway = Gateway::before(&upstream);
    let objects = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    let arrays = format!(r#"{{"a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let unclosed = format!(r#"{{"a":{}"#, "[".repeat(400_000));
    let check = |dialect: &str, arguments: &str| -> Reply {
        let begun = Instant::now();
        let members = format!(r#""name":"echo","arguments":{arguments}"#);
        let request = if dialect == "stateless" {
            // Too deep for the test's own reader of names, too.
            call(dialect, r#""name":"echo""#).with_body(format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{members},{META}}}}}"#
            ))
        } else {
            call(dialect, &members)
        };
        let reply = request.ask(&gateway);
        assert!(begun.elapsed() < AT_ONCE, "{dialect}");
        reply
    };
    for dialect in NORTH {
        for nested in [&objects, &arrays, &unclosed] {
            let reply = check(dialect, nested);
            assert_eq!(reply.status, 400, "{dialect}");
            if dialect != "lite" {
                assert_eq!(reply.rpc_code(), Some(-32600), "{dialect}");
            }
        }
    }
    assert_eq!(upstream.calls().len(), 0);
    // Wide is not deep: it is a call like any other.
    let flat = format!(r#"{{"a":[{}0]}}"#, "0,".repeat(499_999));
    for dialect in NORTH {
        assert_eq!(check(dialect, &flat).status, 200, "{dialect}");
        let sent = upstream.calls().pop().unwrap();
        assert_eq!(sent.arguments().len(), flat.len());
    }
    assert_eq!(Request::handshake(ECHO).ask(&gateway).status, 200);
}
