//! The order of checks on a request of 2026-07-28: each row fails alone and together with what a
//! later row would refuse, and the first wins.

use crate::support::{Answer, ECHO, Gateway, OK, Reply, Request, Speaks, Upstream};

const VERSION: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
const FUTURE: &str = r#""io.modelcontextprotocol/protocolVersion":"2027-01-01""#;
const CAPABILITIES: &str = r#""io.modelcontextprotocol/clientCapabilities":{}"#;

/// A body with `_meta` members, and before them whatever else the params hold.
fn body(method: &str, params: &str, meta: &[&str]) -> String {
    let meta = meta.join(",");
    format!(
        r#"{{"jsonrpc":"2.0","id":"c-7","method":"{method}","params":{{{params}"_meta":{{{meta}}}}}}}"#
    )
}

fn good() -> String {
    body("tools/call", r#""name":"echo","arguments":{"x":1},"#, &[VERSION, CAPABILITIES])
}

struct Table {
    upstream: Upstream,
    gateway: Gateway,
}

impl Table {
    fn new() -> Self {
        let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
        let gateway = Gateway::before_with(&upstream, "", "origins: [\"https://app.example\"]");
        Self { upstream, gateway }
    }

    /// What is refused with a JSON-RPC code, and whether it names the request.
    fn row(
        &self,
        what: &str,
        request: &Request,
        status: u16,
        code: i64,
        id: Option<&str>,
    ) -> Reply {
        let reply = request.ask(&self.gateway);
        let (got, text) = ((reply.status, reply.rpc_code()), reply.text());
        assert_eq!(got, (status, Some(code)), "{what}: {text}");
        assert_eq!(reply.id().as_deref(), id, "{what}: {text}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{what}");
        assert!(reply.header("x-trace-id").is_some(), "{what}");
        reply
    }
}

const ID: Option<&str> = Some(r#""c-7""#);

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.upstream.calls().len(), 0, "something reached the server");
        }
    }
}

#[test]
fn rows_1_to_3_origin_then_key_then_method() {
    let table = Table::new();
    let keyless = Request::stateless(&good()).without("X-Api-Key");
    let evil = keyless.clone().header("Origin", "https://evil.example");
    table.row("1: origin, and no key", &evil, 403, -31403, None);
    let host = keyless.clone().set("Host", "evil.example");
    table.row("1: host, and no key", &host, 403, -31403, None);

    let get = Request::new("GET", "/mcp/up", "").without("X-Api-Key");
    for request in [keyless.clone(), get, keyless.with_body("no JSON")] {
        let reply = table.row("2: no key", &request, 401, -31401, None);
        assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer"));
    }
    let wrong = Request::stateless(&good()).set("X-Api-Key", "wrong");
    table.row("2: wrong key", &wrong, 401, -31401, None);

    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let request = Request::new(method, "/mcp/up", "");
        let reply = request.ask(&table.gateway);
        assert_eq!(reply.status, 405, "3: {method}");
        assert!(reply.header("allow").unwrap().contains("POST"), "3: {method}");
    }
}

#[test]
fn row_4_a_body_that_is_no_message() {
    let table = Table::new();
    let bare = Request::plain("");
    for (text, code) in [
        ("no JSON", -32700),
        ("", -32700),
        ("{\"a\":\"\u{1}\"}", -32700),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"tools/call"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/call"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#, -32600),
    ] {
        // With the headers of the revision, and without any.
        let with = Request::stateless(&good()).with_body(text);
        table.row(text, &with, 400, code, None);
        table.row(text, &bare.clone().with_body(text), 400, code, None);
    }
}

#[test]
fn rows_5_to_8_the_revision() {
    let table = Table::new();
    let of = |text: &str| Request::stateless(text);
    // 5, with 6 and 9 wrong too.
    let text = body("tools/call", r#""name":"echo","#, &[VERSION]);
    let request = of(&text).without("MCP-Protocol-Version").without("Mcp-Method");
    table.row("5: no version header", &request, 400, -32020, ID);
    let twice = of(&good()).header("MCP-Protocol-Version", "2026-07-28");
    table.row("5: the header twice", &twice, 400, -32020, ID);

    // 6, with 7 or 8 and 9 wrong too.
    for (what, meta) in [
        ("6: both missing", &[][..]),
        ("6: no capabilities", &[FUTURE]),
        ("6: no version", &[CAPABILITIES]),
        ("6: version no string", &[r#""io.modelcontextprotocol/protocolVersion":1"#, CAPABILITIES]),
        (
            "6: capabilities no object",
            &[FUTURE, r#""io.modelcontextprotocol/clientCapabilities":[]"#],
        ),
    ] {
        let request = of(&body("tools/call", "", meta)).without("Mcp-Method");
        table.row(what, &request, 400, -32602, ID);
    }
    for params in ["", r#","params":{}"#, r#","params":{"_meta":1}"#, r#","params":null"#] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":"c-7","method":"tools/list"{params}}}"#);
        table.row("6: no _meta", &of(&text).without("Mcp-Method"), 400, -32602, ID);
    }

    // 7, with 8 and 9 wrong too.
    let request = of(&body("tools/call", "", &[FUTURE, CAPABILITIES])).without("Mcp-Method");
    table.row("7: the header differs", &request, 400, -32020, ID);
    let older = of(&good()).set("MCP-Protocol-Version", "2025-11-25");
    table.row("7: an older header", &older, 400, -32020, ID);

    // 8, with 9 and 10 wrong too.
    let text = body("no/such", "", &[FUTURE, CAPABILITIES]);
    let request = of(&text).set("MCP-Protocol-Version", "2027-01-01").without("Mcp-Method");
    let reply = table.row("8: a revision of the future", &request, 400, -32022, ID);
    let data = reply.member(&["error", "data"]).unwrap();
    assert_eq!(data, r#"{"supported":["2026-07-28"],"requested":"2027-01-01"}"#);
    let text = good().replace("2026-07-28", "2025-11-25");
    let request = of(&text).set("MCP-Protocol-Version", "2025-11-25");
    table.row("8: a handshake revision in _meta", &request, 400, -32022, ID);
}

#[test]
fn rows_9_to_11_the_mirrored_headers() {
    let table = Table::new();
    let unknown = body("no/such", "", &[VERSION, CAPABILITIES]);
    // 9, with 10 wrong too.
    let request = Request::stateless(&unknown).without("Mcp-Method");
    table.row("9: no Mcp-Method", &request, 400, -32020, ID);
    let request = Request::stateless(&unknown).set("Mcp-Method", "tools/call");
    table.row("9: Mcp-Method differs", &request, 400, -32020, ID);
    let request = Request::stateless(&good()).set("Mcp-Method", "TOOLS/CALL").without("Mcp-Name");
    table.row("9: Mcp-Method in capitals", &request, 400, -32020, ID);

    // 10, with 11 wrong too.
    for method in [
        "no/such",
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/list",
        "resources/read",
        "prompts/get",
        "completion/complete",
        "tasks/get",
        "Tools/Call",
        "",
    ] {
        let text = body(method, r#""name":"echo","#, &[VERSION, CAPABILITIES]);
        let request = Request::stateless(&text).without("Mcp-Name");
        table.row(&format!("10: {method}"), &request, 404, -32601, ID);
    }

    // 11, with 13 wrong too.
    for name in ["echo", "no_such"] {
        let text = good().replace(r#""echo""#, &format!(r#""{name}""#));
        let text = text.replace(r#"{"x":1}"#, "[]");
        let request = Request::stateless(&text);
        for (what, value) in [
            ("11: another name", "read_doc"),
            ("11: badly encoded", "=?base64?ZWNoby?="),
            ("11: no UTF-8", "=?base64?/w==?="),
            ("11: empty", ""),
        ] {
            table.row(what, &request.clone().set("Mcp-Name", value), 400, -32020, ID);
        }
        table.row("11: no Mcp-Name", &request.clone().without("Mcp-Name"), 400, -32020, ID);
        let twice = request.clone().header("Mcp-Name", name);
        table.row("11: Mcp-Name twice", &twice, 400, -32020, ID);
        table.row("11: raw UTF-8", &request.set("Mcp-Name", "é"), 400, -32020, ID);
    }
}

#[test]
fn row_13_what_the_method_does_not_know() {
    let table = Table::new();
    let call =
        |params: &str| Request::stateless(&body("tools/call", params, &[VERSION, CAPABILITIES]));
    let unknown = call(r#""name":"no_such","arguments":{},"#);
    table.row("13: unknown tool", &unknown, 200, -32602, ID);
    let hidden = call(r#""name":"wipe","arguments":{},"#);
    table.row("13: hidden tool", &hidden, 200, -32602, ID);
    for params in [
        r#""name":"echo","arguments":[],"#,
        r#""name":"echo","arguments":null,"#,
        r#""name":"echo","arguments":{},"requestState":"s","#,
    ] {
        table.row(params, &call(params), 200, -32602, ID);
    }
    let list =
        |params: &str| Request::stateless(&body("tools/list", params, &[VERSION, CAPABILITIES]));
    for params in [r#""cursor":"c","#, r#""cursor":"","#, r#""cursor":1,"#] {
        table.row(params, &list(params), 200, -32602, ID);
    }
    let plain = list("").ask(&table.gateway);
    assert_eq!((plain.status, plain.id().as_deref()), (200, ID));
}

#[test]
fn row_16_arguments_that_fail_their_schema_are_a_result() {
    let table = Table::new();
    for arguments in ["{}", r#"{"n":"1"}"#, r#"{"n":1.5}"#, r#"{"n":null}"#] {
        let params = format!(r#""name":"strict","arguments":{arguments},"#);
        let text = body("tools/call", &params, &[VERSION, CAPABILITIES]);
        let reply = Request::stateless(&text).ask(&table.gateway);
        assert_eq!((reply.status, reply.id().as_deref()), (200, ID), "{arguments}");
        assert!(reply.is_error(), "{}", reply.text());
        assert_eq!(reply.refusal().as_deref(), Some("invalid_args"));
        assert_eq!(reply.member(&["result", "resultType"]).as_deref(), Some(r#""complete""#));
    }
}

/// The same request with nothing wrong passes, so each row fails for its own reason.
#[test]
fn a_request_with_nothing_wrong_passes() {
    let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
    let gateway = Gateway::before_with(&upstream, "", "origins: [\"https://app.example\"]");
    let reply = Request::stateless(&good()).header("Origin", "https://app.example").ask(&gateway);
    assert_eq!((reply.status, reply.id().as_deref()), (200, ID));
    let encoded = Request::stateless(&good()).set("Mcp-Name", "=?base64?ZWNobw==?=");
    assert_eq!(encoded.ask(&gateway).status, 200);
    let aggregate = good().replace(r#""echo""#, r#""up__echo""#);
    assert_eq!(Request::stateless(&aggregate).at("/mcp").ask(&gateway).status, 200);
    assert_eq!(upstream.calls().len(), 3);
    // A handshake message needs none of it.
    assert_eq!(Request::handshake(ECHO).ask(&gateway).status, 200);
}
