//! Failures of a server in the terms of the client (C48, C49), and of a server that is not there.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::{Answer, ECHO, Gateway, LITE_OK, OK, Reply, Request, Speaks, Upstream};

const HANDSHAKE: Speaks = Speaks::Handshake("2025-11-25");

const LITE_CALL: &str = r#"{"name":"echo","arguments":{"x":1}}"#;

const STATELESS_ECHO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"x":1},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

fn refused_as_result(reply: &Reply, code: &str, what: &str) {
    let text = reply.text();
    assert_eq!((reply.status, reply.id().as_deref()), (200, Some("1")), "{what}: {text}");
    assert!(reply.is_error(), "{what}: {text}");
    assert_eq!(reply.refusal().as_deref(), Some(code), "{what}: {text}");
    assert_eq!(reply.header("content-type"), Some("application/json"), "{what}");
}

/// C48, and every status of the taxonomy, for each northbound dialect.
#[test]
fn a_providers_status_is_an_outcome_of_the_call() {
    let upstream = Upstream::answering(Speaks::Lite, Answer::json(LITE_OK));
    let gateway = Gateway::before(&upstream);
    for (status, code, rest) in [
        ("400 Bad Request", "invalid_args", 400),
        ("401 Unauthorized", "permission_denied", 403),
        ("403 Forbidden", "permission_denied", 403),
        ("404 Not Found", "not_found", 404),
        ("409 Conflict", "conflict", 409),
        ("413 Content Too Large", "payload_too_large", 413),
        ("422 Unprocessable Content", "invalid_args", 400),
        ("429 Too Many Requests", "rate_limited", 429),
        ("500 Internal Server Error", "external_service_error", 502),
        ("503 Service Unavailable", "external_service_error", 502),
    ] {
        let body = r#"{"code":"CONFLICT","message":"exists"}"#;
        upstream.answers(
            Answer::new(status, "application/json", body)
                .header("WWW-Authenticate", "Bearer resource_metadata=\"https://as.example\""),
        );
        for request in [Request::handshake(ECHO), Request::stateless(STATELESS_ECHO)] {
            let reply = request.ask(&gateway);
            refused_as_result(&reply, code, status);
            assert!(!reply.text().contains("exists"), "a body that is no error object is shown");
            assert_eq!(reply.header("www-authenticate"), None, "{status}");
        }
        let reply = Request::lite("tools/call", LITE_CALL).ask(&gateway);
        assert_eq!((reply.status, reply.refusal().as_deref()), (rest, Some(code)), "{status}");
        assert_eq!(reply.header("www-authenticate"), None, "{status}");
    }
    // The message of a well-formed error object passes, and is marked as the provider's.
    let object = r#"{"error":{"code":"conflict","message":"exists already"}}"#;
    upstream.answers(Answer::new("409 Conflict", "application/json", object));
    let reply = Request::handshake(ECHO).ask(&gateway);
    refused_as_result(&reply, "conflict", "error object");
    assert!(reply.text().contains("up says: exists already"), "{}", reply.text());
    // Afterwards it serves as before.
    upstream.answers(Answer::json(LITE_OK));
    let reply = Request::handshake(ECHO.replace(r#""id":1"#, r#""id":5"#)).ask(&gateway);
    assert_eq!((reply.status, reply.id().as_deref()), (200, Some("5")));
    assert!(!reply.is_error());
}

/// C48, second half: what the tool says of itself passes.
#[test]
fn a_tool_that_failed_says_so_in_its_own_words() {
    let body = r#"{"jsonrpc":"2.0","id":{{id}},"result":{"content":[{"type":"text","text":"no"}],"isError":true}}"#;
    for speaks in [HANDSHAKE, Speaks::Stateless] {
        let upstream = Upstream::answering(speaks, Answer::json(body));
        let gateway = Gateway::before(&upstream);
        for request in [Request::handshake(ECHO), Request::stateless(STATELESS_ECHO)] {
            let reply = request.ask(&gateway);
            assert_eq!(reply.status, 200);
            assert!(reply.is_error());
            let content = reply.member(&["result", "content"]);
            assert_eq!(content.as_deref(), Some(r#"[{"type":"text","text":"no"}]"#));
            assert_eq!(reply.refusal(), None);
        }
        let reply = Request::lite("tools/call", LITE_CALL).ask(&gateway);
        assert_eq!((reply.status, reply.member(&["isError"]).as_deref()), (200, Some("true")));
    }
}

/// A JSON-RPC error of a server is its answer, in the client's era.
#[test]
fn a_json_rpc_error_of_a_server_passes() {
    for (code, modern) in [(-32602, 200), (-32603, 200), (-32601, 404), (-32099, 200), (42, 200)] {
        let data = r#"{"why":1.0}"#;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"error":{{"code":{code},"message":"m \u00e9","data":{data}}}}}"#
        );
        let upstream = Upstream::answering(HANDSHAKE, Answer::json(body.clone()));
        let gateway = Gateway::before(&upstream);
        for status in ["200 OK", "400 Bad Request", "404 Not Found", "500 Internal Server Error"] {
            upstream.answers(Answer::new(status, "application/json", body.clone()));
            for (request, expected) in
                [(Request::handshake(ECHO), 200), (Request::stateless(STATELESS_ECHO), modern)]
            {
                let reply = request.ask(&gateway);
                let text = reply.text();
                let got = (reply.status, reply.rpc_code(), reply.id());
                assert_eq!(got, (expected, Some(code), Some("1".to_owned())), "{status}: {text}");
                assert_eq!(reply.member(&["error", "data"]).as_deref(), Some(data));
                let message = reply.member(&["error", "message"]);
                assert_eq!(message.as_deref(), Some(r#""m \u00e9""#));
            }
        }
    }
}

/// C49.
#[test]
fn an_answer_that_is_no_json_rpc_fails_the_call_under_its_id() {
    for speaks in [HANDSHAKE, Speaks::Stateless] {
        let upstream = Upstream::answering(speaks, Answer::none());
        let gateway = Gateway::before(&upstream);
        for (what, answer) in [
            ("other JSON", Answer::json(r#"{"Output":1}"#)),
            ("a page", Answer::new("200 OK", "text/html", "<html>hi</html>")),
            ("a page that claims to be JSON", Answer::json("<html>hi</html>")),
            ("nothing", Answer::json("")),
            ("204", Answer::new("204 No Content", "", "")),
            ("202", Answer::new("202 Accepted", "", "")),
            ("no type", Answer::new("200 OK", "", OK)),
            ("another id", Answer::json(OK.replace("{{id}}", "999999"))),
            ("the id as a string", Answer::json(OK.replace("{{id}}", "\"{{id}}\""))),
            ("a batch", Answer::json(format!("[{OK}]"))),
            ("a notification", Answer::json(r#"{"jsonrpc":"2.0","method":"m"}"#)),
            (
                "a result that is a list",
                Answer::json(r#"{"jsonrpc":"2.0","id":{{id}},"result":[]}"#),
            ),
            ("half an answer", Answer::json(&OK[..40])),
            ("bad UTF-8", Answer::json("{\"a\":\"").then_close()),
            ("an empty stream", Answer::events([""; 0])),
            ("a stream of something else", Answer::events(["data: <html>hi</html>\n\n"])),
        ] {
            upstream.answers(answer);
            let begun = Instant::now();
            let reply = Request::handshake(ECHO).ask(&gateway);
            assert!(begun.elapsed() < Duration::from_secs(2), "{what}");
            refused_as_result(&reply, "external_service_error", what);
            assert!(!reply.text().contains("<html>"), "{what}");
            assert_eq!(upstream.calls().len(), 1, "{what}");
            let reply = Request::lite("tools/call", LITE_CALL).ask(&gateway);
            let got = (reply.status, reply.refusal());
            assert_eq!(got, (502, Some("external_service_error".to_owned())), "{what}");
        }
    }
}

/// The same for providers.
#[test]
fn an_answer_that_is_no_result_fails_the_call() {
    let upstream = Upstream::answering(Speaks::Lite, Answer::none());
    let gateway = Gateway::before(&upstream);
    for (what, answer) in [
        ("an object of some other kind", Answer::json(r#"{"Output":1}"#)),
        ("a list", Answer::json("[]")),
        ("a page", Answer::new("200 OK", "text/html", "<html>hi</html>")),
        ("nothing", Answer::json("")),
        ("204", Answer::new("204 No Content", "", "")),
        ("content that is no list", Answer::json(r#"{"content":{}}"#)),
        ("an envelope", Answer::json(OK.replace("{{id}}", "1"))),
    ] {
        upstream.answers(answer);
        let reply = Request::handshake(ECHO).ask(&gateway);
        refused_as_result(&reply, "external_service_error", what);
        assert!(!reply.text().contains("<html>"), "{what}");
        assert_eq!(upstream.calls().len(), 1, "{what}");
    }
}

/// A server that is away hurts nobody else, and its own callers are told in time.
#[test]
fn a_server_that_is_away_leaves_the_others_alone() {
    let good = Upstream::answering(HANDSHAKE, Answer::json(OK));
    let (good_url, gone_url) = (good.url(), Upstream::answering(HANDSHAKE, Answer::none()).url());
    let yaml = format!(
        "callers:\n  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: {{ empId: E1, roles: [member] }} }}\nupstreams:\n  up: {{ url: \"{good_url}\" }}\n  gone: {{ url: \"{gone_url}\", timeout: 500ms }}\n"
    );
    let rule = "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\nrules:\n  - { id: r, effect: allow, roles: [member], risk: [read_low] }\n";
    let tools = "version: hangu/v1\nkind: Tools\nupstreams:\n  up: { default: { risk: read_low } }\n  gone: { default: { risk: read_low } }\n";
    let gateway = Gateway::start(&yaml, &[rule, tools]);
    let begun = Instant::now();
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let reply = Request::handshake(list).at("/mcp").ask(&gateway);
    assert!(reply.text().contains("up__echo"), "{}", reply.text());
    let call = ECHO.replace(r#""echo""#, r#""up__echo""#);
    assert!(!Request::handshake(call).at("/mcp").ask(&gateway).is_error());
    for (path, name) in [("/mcp", "gone__echo"), ("/mcp/gone", "echo")] {
        let call = ECHO.replace(r#""echo""#, &format!("{name:?}"));
        let reply = Request::handshake(call).at(path).ask(&gateway);
        assert_eq!(reply.refusal().as_deref(), Some("external_service_error"), "{}", reply.text());
        assert_eq!(reply.id().as_deref(), Some("1"));
    }
    assert!(begun.elapsed() < Duration::from_secs(2));
}
