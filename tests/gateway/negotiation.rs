//! What a client may say about types and revisions, and that each hop agrees on its own
//! (C09-C13).

use crate::support::{Answer, ECHO, Gateway, OK, Request, Speaks, Upstream, client::open_session};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;

fn upstream() -> Upstream {
    Upstream::answering(Speaks::Handshake("2025-11-25"), Answer::json(OK))
}

/// C09: `Accept` is not held against a client.
#[test]
fn any_accept_is_good_enough() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream);
    for accept in [
        Some("*/*"),
        None,
        Some("application/json, text/event-stream;q=0.5"),
        Some("application/json"),
        Some("text/event-stream"),
        Some("text/html"),
    ] {
        for body in [LIST, ECHO] {
            let request = Request::handshake(body).without("Accept");
            let request = accept
                .into_iter()
                .fold(request, |request, accept| request.header("Accept", accept));
            let reply = request.ask(&gateway);
            assert_eq!(reply.status, 200, "{accept:?}");
            assert_eq!(reply.header("content-type"), Some("application/json"), "{accept:?}");
        }
    }
}

/// C10.
#[test]
fn the_media_type_of_a_body_is_json_however_it_is_spelled() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream);
    for content_type in [
        "Application/JSON",
        "application/json; charset=utf-8",
        r#"application/json;charset="UTF-8""#,
        "application/json ; x=y",
    ] {
        let reply = Request::handshake(ECHO).set("Content-Type", content_type).ask(&gateway);
        assert_eq!(reply.status, 200, "{content_type}");
    }
    let calls = upstream.calls().len();
    for content_type in ["text/plain", "application/jsonx", "application/json-rpc", "json", ""] {
        let reply = Request::handshake(ECHO).set("Content-Type", content_type).ask(&gateway);
        assert_eq!(reply.status, 415, "{content_type}");
    }
    assert_eq!(Request::handshake(ECHO).without("Content-Type").ask(&gateway).status, 415);
    assert_eq!(upstream.calls().len(), calls);
}

/// C11.
#[test]
fn a_revision_that_is_not_spoken_is_refused() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-11-25");
    let check = |version: Option<&str>, status: u16| {
        let request = Request::plain(ECHO).header("Mcp-Session-Id", &session);
        let request = match version {
            Some(version) => request.header("MCP-Protocol-Version", version),
            None => request,
        };
        assert_eq!(request.ask(&gateway).status, status, "{version:?}");
    };
    for version in ["1900-01-01", "not-a-version", "2024-11-05", "2025-11-25x", "", "2026-07-28"] {
        check(Some(version), 400);
    }
    assert_eq!(upstream.calls().len(), 0);
    for version in [None, Some("2025-11-25"), Some("2025-06-18"), Some("2025-03-26")] {
        check(version, 200);
    }
}

/// C12.
#[test]
fn a_mirrored_header_must_name_the_tool_of_the_body() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream);
    for (header, name) in
        [("read_doc", "wipe"), ("wipe", "read_doc"), ("", "echo"), ("Echo", "echo")]
    {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{{}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
        );
        let reply = Request::stateless(&body).set("Mcp-Name", header).ask(&gateway);
        assert_eq!((reply.status, reply.rpc_code()), (400, Some(-32020)), "{header} {name}");
        assert_eq!(reply.id().as_deref(), Some("1"));
    }
    assert_eq!(upstream.calls().len(), 0);
}

/// C13.
#[test]
fn an_upstream_hears_the_revision_that_it_agreed_on() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let upstream = Upstream::answering(Speaks::Handshake(version), Answer::json(OK));
        let gateway = Gateway::before(&upstream);
        assert_eq!(Request::handshake(ECHO).ask(&gateway).status, 200);
        assert_eq!(upstream.calls().len(), 1);
        let inside = ["tools/list", "tools/call", "notifications/initialized"];
        for request in inside.into_iter().flat_map(|method| upstream.of(method)) {
            assert_eq!(request.header("mcp-protocol-version"), Some(version));
            assert_eq!(request.header("mcp-session-id"), Some("session-of-the-server"));
        }
        for request in upstream.of("initialize") {
            assert_eq!(request.header("mcp-session-id"), None);
        }
    }
    let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
    let gateway = Gateway::before(&upstream);
    assert_eq!(Request::handshake(ECHO).ask(&gateway).status, 200);
    let call = upstream.calls().pop().unwrap();
    assert_eq!(call.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(call.header("mcp-method"), Some("tools/call"));
    assert_eq!(call.header("mcp-name"), Some("echo"));
    assert_eq!(call.header("mcp-session-id"), None);
}
