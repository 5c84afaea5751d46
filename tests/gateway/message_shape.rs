//! Messages that are not one request: batches, notifications, and odd `params` (C05-C08).

use crate::support::{Answer, ECHO, Gateway, OK, Request, Speaks, Upstream, client::open_session};

fn upstream() -> Upstream {
    Upstream::answering(Speaks::Handshake("2025-11-25"), Answer::json(OK))
}

/// C05: nothing of a batch is carried out, whatever is in it.
#[test]
fn a_batch_is_refused_before_anything_of_it_runs() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-11-25");
    let wipe = ECHO.replace("echo", "wipe");
    for batch in [format!("[{ECHO},{wipe}]"), format!("[{ECHO}]"), "[]".to_owned(), "[1]".into()] {
        let reply =
            Request::handshake(batch.clone()).header("Mcp-Session-Id", &session).ask(&gateway);
        assert_eq!((reply.status, reply.rpc_code()), (400, Some(-32600)), "{batch}");
        assert_eq!(reply.id(), None, "{batch}");
    }
    assert_eq!(upstream.calls().len(), 0);
}

/// C06.
#[test]
fn a_notification_is_accepted_without_a_body() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-11-25");
    let before = upstream.received().len();
    for method in ["notifications/initialized", "notifications/cancelled", "notifications/other"] {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
        let plain = Request::handshake(body.clone());
        for request in [plain.clone(), plain.header("Mcp-Session-Id", &session)] {
            let reply = request.ask(&gateway);
            assert_eq!((reply.status, reply.text().as_str()), (202, ""), "{method}");
            assert_eq!(reply.header("content-type"), None);
        }
    }
    assert_eq!(upstream.received().len(), before, "a notification of a client went on");
}

/// C07.
#[test]
fn arguments_are_an_object_or_absent() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream);
    let ask = |arguments: &str| {
        let body = ECHO.replace(r#","arguments":{"x":1}"#, arguments);
        Request::handshake(body).ask(&gateway)
    };
    assert_eq!(ask("").status, 200);
    let sent = upstream.calls().pop().unwrap();
    let arguments = sent.member(&["params", "arguments"]);
    assert!(matches!(arguments.as_deref(), None | Some("{}")), "{arguments:?}");

    assert_eq!(ask(r#","arguments":{"k":null}"#).status, 200);
    let sent = upstream.calls().pop().unwrap();
    assert_eq!(sent.member(&["params", "arguments"]).as_deref(), Some(r#"{"k":null}"#));

    let calls = upstream.calls().len();
    for wrong in ["[]", r#""x""#, "null", "1", "true", r#"[{"x":1}]"#] {
        let reply = ask(&format!(r#","arguments":{wrong}"#));
        assert_eq!((reply.status, reply.rpc_code()), (200, Some(-32602)), "{wrong}");
        assert_eq!(reply.id().as_deref(), Some("1"), "{wrong}");
    }
    assert_eq!(upstream.calls().len(), calls);
}

/// C08: northbound `params: null` is taken for absent; southbound it is never written.
#[test]
fn params_that_are_null_are_absent() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream);
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}"#;
    let reply = Request::handshake(list).ask(&gateway);
    assert_eq!(reply.status, 200);
    assert!(reply.member(&["result", "tools"]).unwrap().contains("echo"));

    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}"#;
    assert_eq!(Request::handshake(call).ask(&gateway).rpc_code(), Some(-32602));
    for params in ["[]", "1", r#""x""#] {
        let list = list.replace("null", params);
        assert_eq!(Request::handshake(list).ask(&gateway).rpc_code(), Some(-32602), "{params}");
    }
    for request in upstream.received() {
        assert!(!request.text().contains(r#""params":null"#));
    }
}

/// What is no message of any kind.
#[test]
fn what_is_no_message_is_an_invalid_request() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream);
    for body in [
        "1",
        "null",
        r#""tools/call""#,
        "{}",
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1e0,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    ] {
        let reply = Request::handshake(body).ask(&gateway);
        assert_eq!((reply.status, reply.rpc_code()), (400, Some(-32600)), "{body}");
    }
    assert_eq!(upstream.calls().len(), 0);
}

/// Both caps, the gateway's own before the body is read and the server's before it is sent.
#[test]
fn a_message_that_is_too_large_goes_nowhere() {
    let upstream = upstream();
    let of_file = "edge: { max_body: 64KiB }";
    let gateway = Gateway::before_with(&upstream, "max_request_bytes: 16KiB", of_file);
    let call = |size: usize| {
        let body = ECHO.replace(r#"{"x":1}"#, &format!(r#"{{"x":"{}"}}"#, "y".repeat(size)));
        Request::handshake(body).ask(&gateway)
    };
    assert_eq!(call(15_000).status, 200);
    assert_eq!(upstream.calls().len(), 1);
    let reply = call(17_000);
    assert_eq!((reply.status, reply.id().as_deref()), (200, Some("1")));
    assert_eq!(reply.refusal().as_deref(), Some("payload_too_large"), "{}", reply.text());
    let reply = call(66_000);
    assert_eq!((reply.status, reply.id()), (413, None), "{}", reply.text());
    let body = format!(r#"{{"name":"echo","arguments":{{"x":"{}"}}}}"#, "y".repeat(66_000));
    let reply = Request::lite("tools/call", body).ask(&gateway);
    let got = (reply.status, reply.refusal());
    assert_eq!(got, (413, Some("payload_too_large".to_owned())));
    assert_eq!(upstream.calls().len(), 1);
    assert_eq!(call(1).status, 200);
}

/// A body that is not JSON-RPC, and one that is, each on the other's path.
#[test]
fn each_dialect_takes_its_own_form() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream);
    let bare = r#"{"name":"echo","arguments":{}}"#;
    assert_eq!(Request::handshake(bare).ask(&gateway).rpc_code(), Some(-32600));
    for body in [ECHO, "[]", "1", "null", "", r#"{"arguments":{}}"#, r#"{"name":1}"#] {
        let reply = Request::lite("tools/call", body).ask(&gateway);
        let got = (reply.status, reply.refusal());
        assert_eq!(got, (400, Some("invalid_args".to_owned())), "{body}: {}", reply.text());
        assert_eq!(reply.member(&["jsonrpc"]), None, "{body}");
    }
    for body in ["", "{}", r#"{"_meta":{}}"#] {
        let reply = Request::lite("tools/list", body).ask(&gateway);
        assert_eq!(reply.status, 200, "{body}");
        assert!(reply.member(&["tools"]).unwrap().contains("echo"), "{body}");
    }
    for method in ["GET", "PUT", "DELETE"] {
        let reply = Request::new(method, "/mcp/up/tools/list", "").ask(&gateway);
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")), "{method}");
    }
    assert_eq!(upstream.calls().len(), 0);
}
