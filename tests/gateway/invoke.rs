//! `POST /v1/invoke`: what is called by it, what it answers, where calls say that they come from,
//! and how it ends where something is wrong.

mod command;
mod ends;

use std::time::Duration;

use hangu::model::server_key::server_key;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Answer, Gateway, LITE_OK, OK, Reply, Request, Speaks, Upstream};

/// A key whose caller may say nothing of where its calls come from.
const QUIET: &str = "key-of-a-quiet-one";

const EVERY: [Speaks; 3] = [Speaks::Stateless, Speaks::Handshake("2025-11-25"), Speaks::Lite];

const RULES: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: member-read, effect: allow, roles: [member], risk: [read_low, write_low] }
";

const TOOLS: &str = "version: hangu/v1
kind: Tools
upstreams:
  up:
    default: { risk: read_low }
    tools: { wipe: { risk: write_high }, slow: { risk: write_low, idempotency: optional } }
  dark: { default: { risk: write_high } }
";

fn good(speaks: Speaks) -> Answer {
    Answer::json(if matches!(speaks, Speaks::Lite) { LITE_OK } else { OK })
}

fn callers() -> String {
    let digest: String = Sha256::digest(QUIET).iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "callers:\n  \
         tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: {{ empId: E1, roles: [member] }}, \
         call_sources: [agent, web, cli] }}\n  \
         quiet: {{ keys: [{{ sha256: {digest} }}], tenant: acme, identity: {{ empId: E1, roles: [member] }} }}\n"
    )
}

fn gateway_with(upstream: &Upstream, of_upstream: &str, of_file: &str, rules: &[&str]) -> Gateway {
    let (url, dialect) = (upstream.url(), upstream.dialect());
    let yaml = format!(
        "{of_file}\n{}upstreams:\n  up: {{ url: \"{url}\", dialect: {dialect}{of_upstream} }}\n",
        callers()
    );
    Gateway::start(&yaml, &[&[RULES, TOOLS], rules].concat())
}

fn gateway(upstream: &Upstream) -> Gateway {
    gateway_with(upstream, "", "", &[])
}

fn post(body: impl Into<Vec<u8>>) -> Request {
    Request::new("POST", "/v1/invoke", body).header("Content-Type", "application/json")
}

fn call(tool: &str, arguments: &Value) -> Request {
    post(json!({ "upstream": "up", "toolName": tool, "arguments": arguments }).to_string())
}

fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

/// The status, and the code of the refusal.
fn refusal(reply: &Reply) -> (u16, String) {
    (reply.status, body(reply)["error"]["code"].as_str().unwrap_or("none").to_owned())
}

fn key_of(upstream: &Upstream) -> String {
    server_key(&url::Url::parse(&upstream.url()).unwrap()).to_string()
}

#[test]
fn arguments_and_results_are_the_bytes_that_came() {
    const ARGUMENTS: &str =
        r#"{"n": 1.0,"big":123456789012345678901, "s":"\u00e9","x":{"b":1,"a":2}}"#;
    const RESULT: &str = r#""content":[{"text":"two\u00e9","type":"text"}], "structuredContent": {"n": 1.0,"big":12345678901234567890123},"own":true"#;
    for speaks in EVERY {
        let answer = match speaks {
            Speaks::Lite => format!("{{{RESULT}}}"),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{{{RESULT}}}}}"#),
        };
        let upstream = Upstream::answering(speaks, Answer::json(answer));
        let gateway = gateway(&upstream);
        for server in
            [r#""upstream":"up""#.to_owned(), format!(r#""serverKey":"{}""#, key_of(&upstream))]
        {
            let body = format!(r#"{{ {server},"toolName":"echo","arguments":{ARGUMENTS} }}"#);
            let reply = post(body).ask(&gateway);
            let text = reply.text();
            assert_eq!(reply.status, 200, "{speaks:?} {text}");
            assert!(text.contains(RESULT), "{speaks:?} {text}");
            assert_eq!(self::body(&reply)["isError"], false, "as MCP-Lite has it");
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            assert_eq!(reply.header("x-trace-id").map(str::len), Some(32));
            let seen = upstream.calls().pop().unwrap();
            assert_eq!(seen.arguments(), ARGUMENTS, "{speaks:?}");
            assert_eq!(seen.header("x-trace-id"), reply.header("x-trace-id"));
        }
    }
}

#[test]
fn a_record_tells_the_call_and_where_it_came_from() {
    let upstream = Upstream::answering(Speaks::Stateless, good(Speaks::Stateless));
    let headers = ", headers: { X-From: $ctx.callSource }";
    let gateway = gateway_with(&upstream, headers, "", &[]);
    for (said, source) in [(None, "agent"), (Some("web"), "web"), (Some("cli"), "cli")] {
        let request = call("echo", &json!({ "x": 1 }));
        let reply =
            said.iter().fold(request, |it, said| it.header("X-Call-Source", said)).ask(&gateway);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let seen = upstream.calls().pop().unwrap();
        assert_eq!(
            (seen.header("x-call-source"), seen.header("x-from")),
            (Some(source), Some(source))
        );
        gateway.audited("the call", |record| record["callSource"] == source);
        let records = gateway.audit();
        let record = records.iter().rfind(|record| record["event"] == "call").unwrap();
        for (name, value) in [
            ("callSource", source),
            ("method", "tools/call"),
            ("tool", "up/echo"),
            ("upstream", "up"),
            ("outcome", "ok"),
            ("decision", "allow"),
            ("serverKey", &key_of(&upstream)),
        ] {
            assert_eq!(record[name], value, "{record:#}");
        }
        assert_eq!(record["traceId"], reply.header("x-trace-id").unwrap());
        for name in ["toolCallId", "argsHash", "resultRef", "principal", "bytesIn", "bytesOut"] {
            assert!(!record[name].is_null(), "{name}: {record:#}");
        }
    }
    // What came by MCP, by the same caller, is no agent's.
    Request::lite("tools/call", r#"{"name":"echo","arguments":{}}"#).ask(&gateway);
    gateway.audited("a call by MCP", |record| record["callSource"] == "mcp");
    assert_eq!(upstream.calls().pop().unwrap().header("x-from"), Some("mcp"));
}

#[test]
fn a_caller_says_of_its_calls_what_it_may_say() {
    let upstream = Upstream::answering(Speaks::Lite, good(Speaks::Lite));
    let gateway = gateway(&upstream);
    let request = || call("echo", &json!({}));
    for (request, status, code, says) in [
        (
            request().header("X-Call-Source", "script"),
            403,
            "permission_denied",
            "`tests` may not call as `script`",
        ),
        (
            request().header("X-Call-Source", "post_action"),
            403,
            "permission_denied",
            "`call_sources`",
        ),
        (
            request().set("X-Api-Key", QUIET),
            403,
            "permission_denied",
            "`quiet` may not call as `agent`",
        ),
        (request().header("X-Call-Source", "mcp"), 400, "invalid_args", "known are `agent`"),
        (request().header("X-Call-Source", "Web"), 400, "invalid_args", "known are `agent`"),
        (request().header("X-Call-Source", ""), 400, "invalid_args", "known are `agent`"),
        (
            request().header("X-Call-Source", "web").header("X-Call-Source", "web"),
            400,
            "invalid_args",
            "sent twice",
        ),
    ] {
        let reply = request.ask(&gateway);
        assert_eq!(refusal(&reply), (status, code.to_owned()), "{}", reply.text());
        let message = body(&reply)["error"]["message"].to_string();
        assert!(message.contains(says), "{message}");
    }
    assert!(upstream.calls().is_empty());
    gateway.audited("a refusal", |record| {
        record["callSource"] == "script" && record["reason"] == "call_source"
    });
    // Whatever asks under /v1 says where it comes from, or counts as an agent's.
    let asks = |said: &str| Request::new("GET", "/v1/approvals", "").header("X-Call-Source", said);
    assert_eq!(asks("web").ask(&gateway).status, 200);
    assert_eq!(refusal(&asks("script").ask(&gateway)), (403, "permission_denied".to_owned()));
    gateway.audited("a list of approvals", |record| {
        record["method"] == "GET /v1/approvals" && record["callSource"] == "web"
    });
    assert_eq!(
        Request::new("GET", "/v1/approvals", "").set("X-Api-Key", QUIET).ask(&gateway).status,
        200
    );
}

/// Without what names the call and its trace.
fn bare(reply: &Reply, name: &str) -> (u16, Vec<(String, String)>, String) {
    let trace = reply.header("x-trace-id").unwrap();
    let text = reply.text().replace(trace, "TRACE").replace(name, "NAME");
    let headers = reply.headers.iter().filter(|(name, _)| {
        !["date", "x-trace-id", "content-length"].contains(&&*name.to_ascii_lowercase())
    });
    (reply.status, headers.cloned().collect(), text)
}

#[test]
fn what_is_hidden_answers_like_what_does_not_exist() {
    let upstream = Upstream::answering(Speaks::Lite, good(Speaks::Lite));
    let dark = Upstream::answering(Speaks::Lite, good(Speaks::Lite));
    let yaml = format!(
        "{}upstreams:\n  up: {{ url: \"{}\", dialect: mcp-lite }}\n  dark: {{ url: \"{}\", dialect: mcp-lite }}\n",
        callers(),
        upstream.url(),
        dark.url(),
    );
    let gateway = Gateway::start(&yaml, &[RULES, TOOLS]);
    let ask = |server: &Value, tool: &str| {
        let mut body = json!({ "toolName": tool, "arguments": {} });
        body.as_object_mut().unwrap().extend(server.as_object().unwrap().clone());
        post(body.to_string()).ask(&gateway)
    };
    // A tool of a server whose others he sees.
    for server in [json!({ "upstream": "up" }), json!({ "serverKey": key_of(&upstream) })] {
        let (hidden, unknown) = (ask(&server, "wipe"), ask(&server, "wope"));
        assert_eq!(refusal(&hidden), (404, "not_found".to_owned()), "{}", hidden.text());
        assert_eq!(bare(&hidden, "wipe"), bare(&unknown, "wope"));
    }
    // A server of which he sees nothing is none of his.
    let key = key_of(&dark);
    let (hidden, unknown) = (
        ask(&json!({ "serverKey": key }), "echo"),
        ask(&json!({ "serverKey": "mcp_nobody_00000000" }), "echo"),
    );
    assert_eq!(refusal(&hidden), (424, "server_not_configured".to_owned()), "{}", hidden.text());
    assert_eq!(body(&hidden)["error"]["alias"], "MCP_SERVER_NOT_CONFIGURED");
    assert_eq!(body(&hidden)["error"]["next"], "ask_human");
    assert_eq!(bare(&hidden, &key), bare(&unknown, "mcp_nobody_00000000"));
    // The names of upstreams are no secret, but what they have is.
    let (hidden, unknown) =
        (ask(&json!({ "upstream": "dark" }), "echo"), ask(&json!({ "upstream": "dark" }), "ocho"));
    assert_eq!(bare(&hidden, "echo"), bare(&unknown, "ocho"));
    for name in ["nobody", "No Body", "mcp_nobody_00000000"] {
        let reply = ask(&json!({ "upstream": name }), "echo");
        assert_eq!(refusal(&reply), (404, "not_found".to_owned()), "{}", reply.text());
        assert!(reply.text().contains("there is no upstream"), "{}", reply.text());
    }
    gateway.audited("a call of nobody's server", |record| {
        record["code"] == "server_not_configured"
            && record["serverKey"] == "mcp_nobody_00000000"
            && record["tool"] == "echo"
            && record["outcome"] == "caller_error"
    });
    assert!(upstream.calls().is_empty() && dark.calls().is_empty());
}

#[test]
fn a_request_that_is_none_says_what_is_wrong() {
    let upstream = Upstream::answering(Speaks::Lite, good(Speaks::Lite));
    let gateway = gateway(&upstream);
    for (text, pointer, says) in [
        ("", "", "name the server"),
        ("{", "", "the body is not JSON"),
        ("[]", "", "must be a JSON object"),
        ("{}", "", "either by `serverKey` or by `upstream`"),
        (r#"{"upstream":"up","serverKey":"k","toolName":"echo"}"#, "", "either by"),
        (r#"{"upstream":"up"}"#, "/toolName", "`toolName` is missing"),
        (r#"{"upstream":"","toolName":"echo"}"#, "/upstream", "a text that is not empty"),
        (r#"{"upstream":"up","toolName":7}"#, "/toolName", "a text that is not empty"),
        (
            r#"{"upstream":"up","toolName":"echo","arguments":[]}"#,
            "/arguments",
            "must be an object",
        ),
        (
            r#"{"upstream":"up","toolName":"echo","arguments":{"a":1,"a":2}}"#,
            "",
            "duplicate object key",
        ),
        (r#"{"upstream":"up","toolName":"echo","dryRun":"yes"}"#, "/dryRun", "true or false"),
        (
            r#"{"upstream":"up","toolName":"echo","user":{"empId":"E9"}}"#,
            "/user",
            "unknown member `user`",
        ),
        (r#"{"upstream":"up","toolName":"echo","idempotencyKey":1}"#, "/idempotencyKey", "a text"),
        (
            r#"{"upstream":"up","toolName":"strict","arguments":{"n":"x"}}"#,
            "/n",
            "the argument at /n",
        ),
    ] {
        let reply = post(text).ask(&gateway);
        assert_eq!(refusal(&reply), (400, "invalid_args".to_owned()), "{text}: {}", reply.text());
        let error = &body(&reply)["error"];
        assert_eq!(error["pointer"].as_str().unwrap_or_default(), pointer, "{text}: {error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{text}: {error}");
    }
    let good = r#"{"upstream":"up","toolName":"echo"}"#;
    for (request, status, says) in [
        (post(good).set("Content-Type", "text/plain"), 415, "application/json"),
        (post(good).without("Content-Type"), 415, "application/json"),
        (post(good).header("X-Dry-Run", "yes"), 400, "X-Dry-Run"),
        (
            post(good).header("Idempotency-Key", "a").header("Idempotency-Key", "a"),
            400,
            "sent twice",
        ),
        (post(good).at("/v1/invoke?formt=mcp"), 400, "unknown parameter `formt`"),
        (post(good).at("/v1/invoke?format=soap"), 400, "unknown format `soap`"),
        (post(good).at("/v1/invok"), 404, "nothing is served"),
        (post(good).set("X-Api-Key", "wrong"), 401, "API key"),
    ] {
        let reply = request.ask(&gateway);
        assert_eq!(reply.status, status, "{}", reply.text());
        assert!(reply.text().contains(says), "{}", reply.text());
    }
    for method in ["GET", "PUT", "DELETE"] {
        let reply = Request::new(method, "/v1/invoke", "").ask(&gateway);
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")), "{method}");
    }
    assert!(upstream.calls().is_empty());
    // A null is what is not given, and a slash at the end is forgiven.
    let body =
        r#"{"upstream":"up","serverKey":null,"toolName":"echo","arguments":null,"dryRun":null}"#;
    assert_eq!(post(body).at("/v1/invoke/").ask(&gateway).status, 200);
}

#[test]
fn a_dry_run_is_told_and_sends_nothing() {
    let upstream = Upstream::answering(Speaks::Lite, good(Speaks::Lite));
    let gateway = gateway(&upstream);
    let body_says =
        post(json!({ "upstream": "up", "toolName": "slow", "dryRun": true }).to_string());
    let header_says = call("slow", &json!({})).header("X-Dry-Run", "true");
    let runtime = post(r#"{"type":"tool_use","id":"c","name":"up__slow","input":{}}"#)
        .at("/v1/invoke?format=anthropic")
        .header("X-Dry-Run", "true");
    for request in [body_says, header_says] {
        let reply = request.ask(&gateway);
        let told = body(&reply);
        assert_eq!((reply.status, &told["isError"]), (200, &json!(false)), "{told}");
        let found = &told["structuredContent"];
        assert_eq!((&found["dryRun"], &found["wouldRun"]), (&json!(true), &json!(true)), "{told}");
    }
    let told = body(&runtime.ask(&gateway));
    assert!(told["content"][0]["text"].as_str().unwrap().starts_with("Dry run of"), "{told}");
    // What would be refused is.
    let wrong = call("strict", &json!({ "n": "x" })).header("X-Dry-Run", "true").ask(&gateway);
    assert_eq!(refusal(&wrong), (400, "invalid_args".to_owned()));
    assert!(upstream.calls().is_empty());
    gateway
        .audited("a dry run", |record| record["dryRun"] == true && record["callSource"] == "agent");
}

#[test]
fn one_key_is_one_call() {
    let upstream = Upstream::answering(Speaks::Stateless, good(Speaks::Stateless));
    let gateway = gateway(&upstream);
    let keyed = |key: &str, n: u8| {
        let body = json!({ "upstream": "up", "toolName": "slow", "arguments": { "n": n }, "idempotencyKey": key });
        post(body.to_string())
    };
    let first = keyed("a", 1).ask(&gateway);
    assert_eq!(
        (first.status, first.header("idempotency-replayed")),
        (200, None),
        "{}",
        first.text()
    );
    let header = call("slow", &json!({ "n": 1 })).header("Idempotency-Key", "a");
    let mcp = Request::lite("tools/call", r#"{"name":"slow","arguments":{"n":1}}"#)
        .header("Idempotency-Key", "a");
    for again in [keyed("a", 1), header, keyed("a", 1).header("Idempotency-Key", "a"), mcp] {
        let reply = again.ask(&gateway);
        assert_eq!(
            (reply.status, reply.header("idempotency-replayed")),
            (200, Some("true")),
            "{}",
            reply.text()
        );
        assert_eq!(body(&reply)["_meta"]["dev.hangu/replayed"], true);
    }
    assert_eq!(refusal(&keyed("a", 2).ask(&gateway)), (409, "conflict".to_owned()));
    let two = keyed("a", 1).header("Idempotency-Key", "b").ask(&gateway);
    assert_eq!(refusal(&two), (400, "invalid_args".to_owned()), "{}", two.text());
    assert_eq!(upstream.calls().len(), 1);
    gateway.audited("a replay", |record| {
        record["idempotency"] == "replayed" && record["callSource"] == "agent"
    });
}
