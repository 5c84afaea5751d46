//! The record of each call, whatever became of it, and what never gets into one (C76-C78).

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};

use crate::process_support::{
    Answer, Client, Dialect, FIXED_KEY, KEY, Process, Response, Seen, Setup, Upstream, text_result,
    tool,
};

const PAY: &str = "pay: { risk: write_low, idempotency: optional }, hidden: { risk: write_high }";

fn strict_tool() -> Value {
    json!({ "name": "strict", "inputSchema": { "type": "object", "required": ["n"],
            "properties": { "n": { "type": "integer" } } } })
}

fn start() -> (Upstream, Upstream, Process) {
    let up = Upstream::start(&[tool("echo"), tool("pay"), tool("hidden"), strict_tool()]);
    let mut dead = Upstream::start(&[tool("echo")]);
    up.on_call(|seen| match seen.params["arguments"]["do"].as_str() {
        Some("fail") => seen.result(json!({ "content": [], "isError": true })),
        Some("wait") => seen.result(text_result("late")).after(Duration::from_secs(2)),
        _ => seen.result(text_result("ok")),
    });
    let gateway = Setup::new()
        .upstream("up", &up, "timeout: 500ms", PAY)
        .upstream("dead", &dead, "timeout: 1s", "")
        .policy(
            "limits.yaml",
            "version: hangu/v1\nkind: Policy\nscope: platform\nlimits:\n  \
             - { id: few, per: [principal], upstreams: [dead], rate: 2/1h }\n",
        )
        .start();
    assert_eq!(gateway.client("/mcp", Dialect::Lite).list().len(), 4);
    dead.stop();
    (up, dead, gateway)
}

/// One exit: how to get there, and members of the record by their pointers.
type Exit = (&'static str, Box<dyn Fn(&Client) -> Response>, Vec<(&'static str, Value)>);

fn exits() -> Vec<Exit> {
    fn call(
        name: &'static str,
        upstream: &'static str,
        tool: &'static str,
        arguments: Value,
        wanted: Vec<(&'static str, Value)>,
    ) -> Exit {
        let full = format!("{upstream}__{tool}");
        (name, Box::new(move |client| client.call(&full, arguments.clone())), wanted)
    }
    fn key(client: &Client) -> Client {
        client.clone().header("Idempotency-Key", &format!("k-{:?}", client.dialect))
    }
    vec![
        call(
            "ok",
            "up",
            "echo",
            json!({ "n": 1 }),
            vec![
                ("/outcome", json!("ok")),
                ("/decision", json!("allow")),
                ("/reason", json!("rule_allow")),
                ("/rules", json!(["members"])),
                ("/risk", json!("read_low")),
                ("/tool", json!("up/echo")),
                ("/code", Value::Null),
            ],
        ),
        call(
            "tool error",
            "up",
            "echo",
            json!({ "do": "fail" }),
            vec![("/outcome", json!("tool_error")), ("/tool", json!("up/echo"))],
        ),
        call(
            "invalid",
            "up",
            "strict",
            json!({ "n": "x" }),
            vec![
                ("/outcome", json!("caller_error")),
                ("/code", json!("invalid_args")),
                ("/tool", json!("up/strict")),
            ],
        ),
        call(
            "hidden",
            "up",
            "hidden",
            json!({}),
            vec![
                ("/outcome", json!("denied")),
                ("/decision", json!("hide")),
                ("/tool", json!("up/hidden")),
                ("/risk", json!("write_high")),
            ],
        ),
        call(
            "unknown",
            "up",
            "nothing",
            json!({}),
            vec![
                ("/outcome", json!("denied")),
                ("/reason", json!("unknown_tool")),
                ("/tool", json!("up__nothing")),
            ],
        ),
        call(
            "timeout",
            "up",
            "echo",
            json!({ "do": "wait" }),
            vec![
                ("/outcome", json!("upstream_error")),
                ("/code", json!("timeout")),
                ("/upstream", json!("up")),
            ],
        ),
        call(
            "write",
            "up",
            "pay",
            json!({ "n": 2 }),
            vec![("/outcome", json!("ok")), ("/risk", json!("write_low"))],
        ),
        (
            "first of a key",
            Box::new(|client| key(client).call("up__pay", json!({ "n": 1 }))),
            vec![("/outcome", json!("ok")), ("/idempotency", json!("stored"))],
        ),
        (
            "replay",
            Box::new(|client| key(client).call("up__pay", json!({ "n": 1 }))),
            vec![("/outcome", json!("ok")), ("/idempotency", json!("replayed"))],
        ),
        (
            "conflict",
            Box::new(|client| key(client).call("up__pay", json!({ "n": 3 }))),
            vec![
                ("/outcome", json!("conflict")),
                ("/code", json!("conflict")),
                ("/idempotency", json!("mismatch")),
            ],
        ),
        (
            "nobody's call",
            Box::new(|client| client.clone().without("SSO-Emp-Id").call("up__echo", json!({}))),
            vec![
                ("/outcome", json!("denied")),
                ("/code", json!("permission_denied")),
                ("/reason", json!("employee_missing")),
                ("/principal/caller", json!("gate")),
            ],
        ),
        (
            "a header from whom it is not believed",
            Box::new(|client| client.clone().key(FIXED_KEY).call("up__echo", json!({}))),
            vec![
                ("/outcome", json!("denied")),
                ("/code", json!("permission_denied")),
                ("/reason", json!("header_not_trusted")),
                ("/status", json!(403)),
                ("/tenant", json!("acme")),
            ],
        ),
        (
            "another tenant's employee",
            Box::new(|client| client.clone().employee("G1").call("up__echo", json!({}))),
            vec![("/outcome", json!("denied")), ("/reason", json!("tenant_boundary"))],
        ),
        (
            "a wrong key",
            Box::new(|client| client.clone().key("wrong").call("up__echo", json!({}))),
            vec![
                ("/outcome", json!("caller_error")),
                ("/code", json!("unauthenticated")),
                ("/reason", json!("key_unknown")),
                ("/status", json!(401)),
                ("/tenant", Value::Null),
            ],
        ),
        (
            "no key",
            Box::new(|client| client.clone().without("X-Api-Key").call("up__echo", json!({}))),
            vec![("/code", json!("unauthenticated")), ("/reason", json!("key_missing"))],
        ),
        (
            "a list",
            Box::new(|client| client.send("tools/list", json!({}))),
            vec![("/outcome", json!("ok")), ("/method", json!("tools/list"))],
        ),
    ]
}

#[test]
fn every_exit_leaves_one_record_that_says_what_happened() {
    let (up, _dead, gateway) = start();
    let mut sent = 0;
    for dialect in Dialect::ALL {
        let client = gateway.client("/mcp", dialect);
        for (name, exit, wanted) in exits() {
            let answer = exit(&client);
            sent += 1;
            let record = gateway.record_of(&answer);
            let at = format!("{dialect:?} {name}: {record:#}\n{answer:?}");
            for (pointer, value) in wanted {
                let found = record.pointer(pointer).cloned().unwrap_or_default();
                assert_eq!(found, value, "{pointer} of {at}");
            }
            common(&record, &answer, &at);
            if record["tool"] == "up/echo" && record["principal"]["empId"] == "E1" {
                called(&record, &at);
            }
        }
    }
    // By connections that are refused, and then by the limit.
    let client = gateway.client("/mcp/dead", Dialect::Modern);
    for (code, outcome) in [
        ("external_service_error", "upstream_error"),
        ("external_service_error", "upstream_error"),
        ("rate_limited", "throttled"),
    ] {
        let answer = client.call("echo", json!({}));
        sent += 1;
        let record = gateway.record_of(&answer);
        assert_eq!((&record["code"], &record["outcome"]), (&json!(code), &json!(outcome)));
        assert_eq!(record["upstream"], "dead", "{record:#}");
    }
    let records = gateway.audit_until(|_| true);
    let calls: Vec<&Value> = records.iter().filter(|record| record["event"] == "call").collect();
    // One more is the list that `start` waits for.
    assert_eq!(calls.len(), sent + 1);
    // For each write that left, its intent before it, under the same id.
    let paid = up.calls().iter().filter(|seen| seen.tool() == "pay").count();
    let intents: Vec<&Value> =
        records.iter().filter(|record| record["event"] == "intent").collect();
    assert_eq!(intents.len(), paid);
    for intent in intents {
        let end = calls.iter().find(|call| call["toolCallId"] == intent["toolCallId"]).unwrap();
        assert!(end["seq"].as_u64() > intent["seq"].as_u64());
        for member in ["traceId", "tenant", "tool", "argsHash", "principal", "risk", "revision"] {
            assert_eq!(intent[member], end[member], "{member}");
        }
    }
}

/// What every record has.
#[track_caller]
fn common(record: &Value, answer: &Response, at: &str) {
    for member in ["id", "ts", "instance", "version", "spanId", "traceId"] {
        assert!(record[member].as_str().is_some_and(|text| !text.is_empty()), "{member} of {at}");
    }
    assert_eq!((&record["v"], &record["event"]), (&json!(1), &json!("call")), "{at}");
    assert_eq!(record["status"], json!(answer.status), "{at}");
    assert_eq!(record["bytesOut"], json!(answer.body.len()), "{at}");
    assert_eq!(record["source"]["address"], "127.0.0.1", "{at}");
    let (all, own) = (record["durationUs"].as_u64(), record["overhead_us"].as_u64());
    assert!(own <= all && all.is_some(), "{at}");
}

/// What a record of a call has that was decided on.
#[track_caller]
fn called(record: &Value, at: &str) {
    let digest = |member: &str| {
        let text = record[member].as_str().unwrap_or_default();
        let hex = text.rsplit(':').next().unwrap();
        assert!(text.starts_with("hmac-sha256:") && hex.len() == 64, "{member} of {at}");
    };
    digest("argsHash");
    if record["outcome"] == "ok" || record["outcome"] == "tool_error" {
        digest("resultRef");
    }
    assert!(record["serverKey"].as_str().unwrap().starts_with("mcp_"), "{at}");
    assert_eq!(record["toolCallId"].as_str().map(str::len), Some(36), "{at}");
    assert_eq!(record["callSource"], "mcp", "{at}");
    assert!(["mcp", "mcp-lite"].contains(&record["dialect"].as_str().unwrap()), "{at}");
    assert_eq!(record["method"], "tools/call", "{at}");
    assert!(record["revision"].as_str().is_some_and(|revision| revision.len() == 12), "{at}");
    assert!(record["pin"].as_str().unwrap().starts_with("sha256:"), "{at}");
    assert!(record["bytesIn"].as_u64() > Some(0), "{at}");
    let principal = json!({ "auth": "header", "caller": "gate", "empId": "E1",
                            "roles": ["member"] });
    assert_eq!((&record["principal"], &record["tenant"]), (&principal, &json!("acme")), "{at}");
}

#[test]
fn a_caller_who_leaves_is_recorded_as_gone() {
    let up = Upstream::start(&[tool("echo")]);
    up.on_call(|seen| seen.result(text_result("late")).after(Duration::from_millis(1_500)));
    let gateway = Setup::new().upstream("up", &up, "timeout: 5s", "").start();
    assert_eq!(gateway.client("/mcp", Dialect::Lite).list().len(), 1);
    let body = json!({ "name": "echo", "arguments": {} }).to_string();
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    let head = format!(
        "POST /mcp/up/tools/call HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {KEY}\r\nSSO-Emp-Id: E1\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        gateway.address,
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    crate::process_support::until("the call is under way", || up.calls().len() == 1);
    drop(stream);
    let gone = |record: &Value| record["event"] == "call" && record["outcome"] == "cancelled";
    let records = gateway.audit_until(|records| records.iter().any(gone));
    let record = records.into_iter().find(gone).unwrap();
    assert_eq!(record["tool"], "up/echo", "{record:#}");
    assert!(record["durationUs"].as_u64() < Some(1_400_000), "{record:#}");
}

#[test]
fn a_forged_line_stays_within_its_own() {
    let (_up, _dead, gateway) = start();
    let forged = [
        "x\nCRITICAL audit ok user=boss",
        "x\r\n{\"v\":1,\"event\":\"call\"}",
        "\u{1b}[2J\u{2028}\u{2029}\u{85}x",
        "\u{202e}reversed",
    ];
    let mut answers = Vec::new();
    for dialect in Dialect::ALL {
        for name in forged {
            let client = gateway.client("/mcp", dialect);
            answers.push(client.call(name, json!({ "a": "\u{1b}[2J\u{2028}" })));
            let client = client.meta("progressToken", json!("t\nCRITICAL"));
            answers.push(client.call("up__echo", json!({ name: name })));
            // A long one is cut.
            answers.push(client.call(&name.repeat(100), json!({})));
        }
    }
    for answer in &answers {
        let record = gateway.record_of(answer);
        assert!(record.to_string().len() < 4_000, "{record}");
    }
    let text = fs::read_to_string(gateway.home().path("audit/hangu.jsonl")).unwrap();
    let odd: Vec<char> = text.chars().filter(|c| c.is_control() && *c != '\n').collect();
    assert!(odd.is_empty(), "{odd:?}");
    for bad in ['\u{2028}', '\u{2029}', '\u{202e}', '\u{1b}'] {
        assert!(!text.contains(bad), "{bad:?}");
    }
    // One call, one line, each of them JSON: `records` parses every one.
    let calls = text.lines().filter(|line| line.contains("\"event\":\"call\"")).count();
    assert_eq!(calls, answers.len() + 1);
    for text in [text, gateway.log()] {
        assert!(!text.contains("\nCRITICAL"), "{text}");
    }
    for line in gateway.log().lines().filter(|line| line.starts_with('{')) {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn no_secret_gets_out() {
    const UPSTREAM: &str = "UPSECRET-9f27b1";
    let (up, html) = (Upstream::start(&[tool("echo")]), Upstream::start(&[tool("echo")]));
    let mut refused = Upstream::start(&[tool("echo")]);
    let broken = Upstream::start(&[tool("echo")]);
    broken.on_call(|_| Answer::body(500, "text/plain", "UPBODY-55d2"));
    // A server that says back what it was told.
    html.on_call(|seen: &Seen| Answer::body(401, "text/html", &format!("{:?}", seen.headers)));
    let headers = "timeout: 1s, headers: { Authorization: { env: UP }, X-Api-Key: { env: UP } }";
    let gateway = Setup::new()
        .upstream("up", &up, headers, "")
        .upstream("html", &html, headers, "")
        .upstream("refused", &refused, headers, "")
        .upstream("broken", &broken, headers, "")
        .env("UP", UPSTREAM)
        .env("RUST_LOG", "trace")
        .start();
    assert_eq!(gateway.client("/mcp", Dialect::Lite).list().len(), 4);
    refused.stop();
    let mut answers = Vec::new();
    for dialect in Dialect::ALL {
        for name in ["up__echo", "html__echo", "refused__echo", "broken__echo", "up__none"] {
            let client = gateway
                .client("/mcp", dialect)
                .header("Authorization", "Bearer NSECRET-1b")
                .header("Proxy-Authorization", "Basic NSECRET-1b")
                .header("Cookie", "a=CSECRET-2c");
            answers.push(client.call(name, json!({ "x": "ARGSECRET-3d" })));
        }
        let wrong = gateway.client("/mcp", dialect).key("WRONGKEY-4e");
        answers.push(wrong.call("up__echo", json!({})));
    }
    assert!(up.calls().iter().all(|seen| seen.header("authorization") == Some(UPSTREAM)));
    let mut log = gateway.log();
    crate::process_support::until("the log is there", || {
        log = gateway.log();
        log.contains("An upstream failed")
    });
    assert!(log.contains("\"DEBUG\""), "the log tells less than it was asked to");
    for answer in &answers {
        gateway.record_of(answer);
    }
    let audit = fs::read_to_string(gateway.home().path("audit/hangu.jsonl")).unwrap();
    let bodies: String = answers.iter().map(Response::text).collect();
    let places =
        [("log", log), ("audit", audit), ("metrics", gateway.metrics()), ("answers", bodies)];
    for (place, text) in places {
        for secret in [UPSTREAM, KEY, "NSECRET", "CSECRET", "WRONGKEY", "ARGSECRET", "UPBODY-55d2"]
        {
            if let Some(at) = text.find(secret) {
                let start = text[..at].rfind('\n').map_or(0, |start| start + 1);
                let line = text[start..].lines().next().unwrap();
                let shown: String = line.chars().take(600).collect();
                panic!("{secret} in the {place}: {shown}");
            }
        }
    }
    let mut stream = TcpStream::connect(gateway.admin).unwrap();
    stream.write_all(b"GET /version HTTP/1.0\r\n\r\n").unwrap();
    let mut version = String::new();
    stream.read_to_string(&mut version).unwrap();
    assert!(!version.contains(UPSTREAM), "{version}");
}

#[test]
fn a_trace_goes_through_the_gateway() {
    const META: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const HEAD: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01";
    const M: Option<&str> = Some("4bf92f3577b34da6a3ce929d0e0e4736");
    const H: Option<&str> = Some("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    // header, _meta, the trace's id
    let cases = [
        (None, Some(META), M),
        (Some(HEAD), None, H),
        // What the message itself says goes before what carried it.
        (Some(HEAD), Some(META), M),
        (None, None, None),
        (Some("00-zz-01"), None, None),
        (None, Some("00-zz-01"), None),
        (Some("00-zz-01"), Some(META), M),
        (Some(HEAD), Some("nonsense"), H),
        (Some("00-00000000000000000000000000000000-bbbbbbbbbbbbbbbb-01"), None, None),
        (Some("00-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-bbbbbbbbbbbbbbbb-01"), None, None),
        (Some("ff-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"), None, None),
        (Some("cc-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01-more"), None, H),
    ];
    for kind in ["", "dialect: mcp-lite"] {
        let up = Upstream::start(&[tool("echo")]);
        let gateway = Setup::new().upstream("up", &up, kind, "").start();
        for dialect in Dialect::ALL {
            for (header, meta, wanted) in cases {
                let mut client = gateway.client("/mcp/up", dialect);
                if let Some(header) = header {
                    client = client.header("traceparent", header).header("tracestate", "a=1,b=2");
                }
                if let Some(meta) = meta {
                    client = client.meta("traceparent", json!(meta));
                    client = client.meta("tracestate", json!("m=1"));
                }
                let answer = client.call("echo", json!({}));
                let at = format!("{kind} {dialect:?} {header:?} {meta:?}: {answer:?}");
                assert_eq!(answer.word(), "ok", "{at}");
                let trace = answer.header("x-trace-id").unwrap();
                match wanted {
                    Some(wanted) => assert_eq!(trace, wanted, "{at}"),
                    None => {
                        let given = [HEAD, META].iter().any(|context| context.contains(trace));
                        assert!(trace.len() == 32 && !given, "{at}");
                    }
                }
                // A child of the gateway's own: the same trace, another span.
                let seen = up.calls().pop().unwrap();
                let parent = seen.header("traceparent").unwrap();
                let parts: Vec<&str> = parent.split('-').collect();
                assert_eq!((parts[0], parts[1], parts.len()), ("00", trace, 4), "{at} {parent}");
                assert!(![HEAD, META].iter().any(|context| context.contains(parts[2])), "{parent}");
                let state = match (wanted, meta.is_some() && wanted == M) {
                    (Some(_), true) => Some("m=1"),
                    (Some(_), false) => Some("a=1,b=2"),
                    (None, _) => None,
                };
                assert_eq!(seen.header("tracestate"), state, "{at}");
                assert_eq!(seen.header("x-trace-id"), Some(trace), "{at}");
                if kind.is_empty() {
                    let told = &seen.params["_meta"];
                    assert_eq!(told["traceparent"], parent, "{at} {seen:?}");
                    assert_eq!(told.get("tracestate").and_then(Value::as_str), state, "{at}");
                } else {
                    assert!(!seen.body.contains("traceparent"), "{at} {seen:?}");
                }
                assert_eq!(gateway.record_of(&answer)["traceId"], trace, "{at}");
            }
        }
    }
}
