//! When a server is not called for a while, and when it is called again; what counts, and what does
//! not.

use std::{io::Write, net::TcpStream, thread, time::Duration};

use serde_json::{Value, json};

use crate::process_support::{self as process, Dialect, Setup, exchange, text_result, tool, until};

const BREAKER: &str = "retries: { max: 0 }, breaker: { failures: 3, pause: 1s }";

fn state_of(gateway: &process::Process, upstream: &str) -> (String, String) {
    let answer = exchange(gateway.admin, "GET", "/readyz", &[], b"").unwrap();
    assert_eq!(answer.status, 200, "an upstream makes nobody unready");
    let page: Value = serde_json::from_slice(&answer.body).unwrap();
    let all = page["upstreams"].as_array().unwrap();
    let own = all.iter().find(|own| own["name"] == upstream).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&page["status"]), text(&own["state"]))
}

#[test]
fn a_server_that_keeps_failing_is_left_alone_and_tried_again() {
    let (ill, well) =
        (process::Upstream::start(&[tool("echo")]), process::Upstream::start(&[tool("echo")]));
    let gateway = Setup::new()
        .upstream("ill", &ill, BREAKER, "")
        .upstream("well", &well, BREAKER, "")
        .start();
    let call = |name: &str| {
        gateway.client(&format!("/mcp/{name}"), Dialect::Modern).call("echo", json!({}))
    };
    let gauge = |state: u8| {
        let line = format!("hangu_upstream_breaker_state{{hangu_upstream=\"ill\"}} {state}");
        assert!(gateway.metrics().contains(&line), "{line}\n{}", gateway.metrics());
    };
    assert_eq!(call("ill").word(), "ok");
    gauge(0);
    ill.on_call(|_| process::Answer::body(503, "text/plain", "no"));
    for _ in 0..3 {
        assert_eq!(call("ill").word(), "external_service_error");
    }
    ill.forget();
    for _ in 0..5 {
        let answer = call("ill");
        let fault = answer.fault();
        assert_eq!(fault["code"], "external_service_error", "{fault}");
        assert_eq!(
            (&fault["retryable"], &fault["next"]),
            (&true.into(), &"wait".into()),
            "{fault}"
        );
        assert!((1..=1_000).contains(&fault["retryAfterMs"].as_u64().unwrap()), "{fault}");
        assert!(fault.get("outcome").is_none(), "{fault}");
        assert_eq!(call("well").word(), "ok");
        let record = gateway.record_of(&answer);
        assert_eq!(
            (&record["outcome"], &record["code"]),
            (&"upstream_error".into(), &"external_service_error".into())
        );
    }
    assert_eq!(ill.calls().len(), 0, "nothing leaves");
    gauge(2);
    let (status, state) = state_of(&gateway, "ill");
    assert_eq!((&*status, state.contains("not called for now")), ("degraded", true), "{state}");
    assert!(
        gateway
            .metrics()
            .contains("hangu_upstream_breaker_rejections_total{hangu_upstream=\"ill\"} 5")
    );
    // Still ill when it is tried: once, and the pause is longer.
    until("it is tried", || {
        call("ill");
        ill.calls().len() == 1
    });
    let fault = call("ill").fault();
    assert!(fault["retryAfterMs"].as_u64().unwrap() > 1_000, "{fault}");
    ill.on_call(|seen| seen.result(text_result("ok")));
    until("it is called again", || call("ill").word() == "ok");
    gauge(0);
    assert_eq!(call("ill").word(), "ok");
    assert_eq!(state_of(&gateway, "ill").0, "ready");
    let log = gateway.log();
    for said in ["keeps failing and is not called for a while", "answers and is called again"] {
        assert_eq!(log.matches(said).count(), 1, "{log}");
    }
}

#[test]
fn what_is_no_fault_of_the_server_opens_no_breaker() {
    let up = process::Upstream::start(&[tool("echo")]);
    let gateway = Setup::new().upstream("up", &up, &format!("{BREAKER}, timeout: 2s"), "").start();
    let client = gateway.client("/mcp/up", Dialect::Modern);
    let call = || client.call("echo", json!({})).word();
    assert_eq!(call(), "ok");
    type Answers = fn(&process::Seen) -> process::Answer;
    let cases: [(&str, Answers, &str); 6] = [
        (
            "a failed tool",
            |seen| seen.result(json!({ "content": [], "isError": true })),
            "tool_error",
        ),
        ("a JSON-RPC error", process::Seen::unknown_method, "-32601"),
        ("400", |_| process::Answer::body(400, "text/plain", "no"), "invalid_args"),
        ("404", |_| process::Answer::body(404, "text/plain", "no"), "not_found"),
        ("429", |_| process::Answer::body(429, "text/plain", "no"), "rate_limited"),
        (
            "a web page",
            |_| process::Answer::body(200, "text/html", "<p>no</p>"),
            "external_service_error",
        ),
    ];
    for (what, answer, expected) in cases {
        up.on_call(answer);
        for _ in 0..5 {
            assert_eq!(call(), expected, "{what}");
        }
    }
    // A caller that leaves says nothing of the server.
    up.on_call(|seen| seen.result(text_result("late")).after(Duration::from_millis(300)));
    for _ in 0..5 {
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let head = format!(
            "POST /mcp/up HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nSSO-Emp-Id: E1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            gateway.address,
            process::KEY,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    up.on(|_| None);
    assert_eq!(call(), "ok");
    assert_eq!(state_of(&gateway, "up").0, "ready");
    // Silence does; and off is off.
    up.on_call(|seen| seen.result(text_result("late")).after(Duration::from_secs(4)));
    for _ in 0..3 {
        assert_eq!(call(), "timeout");
    }
    assert_eq!(state_of(&gateway, "up").0, "degraded");
    let off = Setup::new().upstream("up", &up, "retries: { max: 0 }, breaker: off", "").start();
    up.on_call(|_| process::Answer::body(503, "text/plain", "no"));
    up.forget();
    let client = off.client("/mcp/up", Dialect::Modern);
    for _ in 0..30 {
        client.call("echo", json!({}));
    }
    assert_eq!(up.calls().len(), 30);
}
