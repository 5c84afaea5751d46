//! `x-mcp-header`: arguments that are repeated in headers are compared on the way in and
//! written anew on the way out.

use crate::support::{Answer, Gateway, LITE_OK, OK, Request, Speaks, Upstream};

const TOOLS: &str = r#"[{"name":"echo","description":"d","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}},{"name":"bad","description":"d","inputSchema":{"type":"object","properties":{"l":{"type":"array","items":{"type":"string","x-mcp-header":"L"}}}}}]"#;

fn call(arguments: &str) -> Request {
    Request::stateless(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    ))
}

fn marked() -> Upstream {
    let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
    upstream.lists(TOOLS);
    upstream
}

#[test]
fn a_marked_argument_and_its_header_must_agree() {
    let upstream = marked();
    let gateway = Gateway::before(&upstream);
    for (arguments, header, right) in [
        (r#"{"region":"eu"}"#, Some("eu"), true),
        (r#"{"region":"Hello"}"#, Some("=?base64?SGVsbG8=?="), true),
        (r#"{"region":"SGVsbG8="}"#, Some("SGVsbG8="), true),
        (r#"{"region":"=?base64?SGVsbG8="}"#, Some("=?base64?SGVsbG8="), true),
        (r#"{"region":null}"#, None, true),
        ("{}", None, true),
        (r#"{"region":"eu"}"#, None, false),
        (r#"{"region":"eu"}"#, Some("us"), false),
        (r#"{"region":"Hello"}"#, Some("=?base64?SGVsbG8?="), false),
        (r#"{"region":"Hello"}"#, Some("=?base64?SGVs!!!bG8=?="), false),
        ("{}", Some("eu"), false),
    ] {
        let calls = upstream.calls().len();
        let request = header
            .into_iter()
            .fold(call(arguments), |request, value| request.header("Mcp-Param-Region", value));
        let reply = request.ask(&gateway);
        // A null where the schema wants a string is the schema's to refuse, not the header's.
        let expected = if right { (200, None) } else { (400, Some(-32020)) };
        assert_eq!((reply.status, reply.rpc_code()), expected, "{arguments} {header:?}");
        if !right {
            assert_eq!(upstream.calls().len(), calls, "{arguments} {header:?}: it left");
        }
    }
}

#[test]
fn a_marked_argument_is_compared_under_the_name_of_the_aggregate_too() {
    let upstream = marked();
    let gateway = Gateway::before(&upstream);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo","arguments":{"region":"eu"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    for (header, right) in [(Some("eu"), true), (Some("us"), false), (None, false)] {
        let request = Request::stateless(body).at("/mcp");
        let request = header
            .into_iter()
            .fold(request, |request, value| request.header("Mcp-Param-Region", value));
        let reply = request.ask(&gateway);
        let expected = if right { (200, None) } else { (400, Some(-32020)) };
        assert_eq!((reply.status, reply.rpc_code()), expected, "{header:?} {}", reply.text());
    }
    let sent = upstream.calls().pop().unwrap();
    assert_eq!(sent.header("mcp-name"), Some("echo"));
    assert_eq!(sent.header("mcp-param-region"), Some("eu"));
}

#[test]
fn a_wrong_mark_is_taken_out_where_no_header_goes() {
    let upstream = Upstream::answering(Speaks::Lite, Answer::json(LITE_OK));
    upstream.lists(TOOLS);
    let gateway = Gateway::before(&upstream);
    let list = Request::lite("tools/list", "{}").ask(&gateway).text();
    assert!(list.contains(r#""name":"bad""#), "{list}");
    assert!(!list.contains(r#""x-mcp-header":"L""#), "{list}");
    let call = Request::lite("tools/call", r#"{"name":"bad","arguments":{}}"#).ask(&gateway);
    assert_eq!(call.status, 200, "{}", call.text());
}

#[test]
fn headers_are_written_anew_for_the_server_whoever_calls() {
    let upstream = marked();
    let gateway = Gateway::before(&upstream);
    let text = r#"{"region":"Zoë","n":1e1}"#;
    let reply = Request::lite("tools/call", format!(r#"{{"name":"echo","arguments":{text}}}"#))
        .header("Mcp-Param-Region", "forged")
        .ask(&gateway);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let sent = upstream.received().pop().unwrap();
    assert_eq!(sent.header("mcp-param-region"), Some("=?base64?Wm/Dqw==?="));
    assert_eq!(sent.header("mcp-param-n"), Some("10"));
}

#[test]
fn a_tool_whose_mark_stands_wrong_is_left_out_and_costs_only_itself() {
    let upstream = marked();
    let gateway = Gateway::before(&upstream);
    let list = Request::lite("tools/list", "{}").ask(&gateway).text();
    assert!(list.contains(r#""name":"echo""#) && !list.contains(r#""name":"bad""#), "{list}");
}

// === Marks that change under way ===

/// A server that lists `before` until the gateway has seen it, and `now` to all who look again;
/// it takes calls that bear exactly this header.
fn changing(now: &'static str, wanted: &'static str) -> (Upstream, Gateway) {
    let upstream = Upstream::scripted(Speaks::Stateless, move |received| {
        if received.header(wanted) == Some("eu") && received.header("mcp-param-region").is_none() {
            return Answer::json(OK);
        }
        let body =
            r#"{"jsonrpc":"2.0","id":{{id}},"error":{"code":-32020,"message":"headers disagree"}}"#;
        Answer::new("400 Bad Request", "application/json", body.to_owned())
    });
    upstream.lists(TOOLS);
    let gateway = Gateway::before(&upstream);
    let listed = call(r#"{"region":"us"}"#).header("Mcp-Param-Region", "us").ask(&gateway);
    assert_eq!(listed.refusal().as_deref(), Some("internal"), "{}", listed.text());
    upstream.lists(now);
    (upstream, gateway)
}

const MOVED: &str = r#"[{"name":"other","inputSchema":{"type":"object"}},{"name":"echo","description":"d","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Zone"}}}}]"#;

#[test]
fn a_call_goes_out_once_more_where_the_marks_have_changed() {
    let (upstream, gateway) = changing(MOVED, "mcp-param-zone");
    let (calls, lists) = (upstream.calls().len(), upstream.of("tools/list").len());
    let reply = call(r#"{"region":"eu"}"#).header("Mcp-Param-Region", "eu").ask(&gateway);
    assert_eq!((reply.status, reply.rpc_code()), (200, None), "{}", reply.text());
    assert_eq!(upstream.calls().len(), calls + 2);
    assert_eq!(upstream.of("tools/list").len(), lists + 1);
    let sent = upstream.calls().pop().unwrap();
    assert_eq!(sent.arguments(), r#"{"region":"eu"}"#);
    let reply = Request::lite("tools/call", r#"{"name":"echo","arguments":{"region":"eu"}}"#);
    assert_eq!(reply.ask(&gateway).status, 200);
}

#[test]
fn a_call_that_is_refused_again_is_not_tried_a_third_time() {
    let (upstream, gateway) = changing(MOVED, "mcp-param-elsewhere");
    let calls = upstream.calls().len();
    let reply = call(r#"{"region":"eu"}"#).header("Mcp-Param-Region", "eu").ask(&gateway);
    assert_eq!(reply.refusal().as_deref(), Some("internal"), "{}", reply.text());
    assert_eq!(upstream.calls().len(), calls + 2);
}

#[test]
fn a_call_is_not_repeated_where_nothing_has_changed() {
    for now in [TOOLS, r#"[{"name":"other","inputSchema":{"type":"object"}}]"#] {
        let (upstream, gateway) = changing(now, "mcp-param-zone");
        let calls = upstream.calls().len();
        let reply = call(r#"{"region":"eu"}"#).header("Mcp-Param-Region", "eu").ask(&gateway);
        assert_eq!(reply.refusal().as_deref(), Some("internal"), "{}", reply.text());
        assert_eq!(upstream.calls().len(), calls + 1);
    }
}
