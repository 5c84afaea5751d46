//! Limits: what is refused, how it is told, and what it costs.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use serde_json::json;

use crate::process_support::{
    Client, Dialect, GLOBEX_KEY, KEY, Process, Response, Setup, Upstream, text_result, tool,
};

fn start(limits: &str, config: &str) -> (Upstream, Process) {
    let up = Upstream::start(&[tool("echo"), tool("other")]);
    let policy = format!("version: hangu/v1\nkind: Policy\nscope: platform\nlimits:\n{limits}");
    let gateway = Setup::new()
        .upstream("up", &up, "", "")
        .policy("limits.yaml", &policy)
        .config(config)
        .start();
    (up, gateway)
}

fn number(answer: &Response, name: &str) -> u64 {
    let text = answer.header(name).unwrap_or_else(|| panic!("{name}: {answer:?}"));
    assert!(!text.starts_with('0') && !text.is_empty(), "{name}: {text}");
    text.parse().unwrap()
}

/// C50.
#[test]
fn calls_over_the_rate_are_told_how_long_to_wait() {
    let (up, gateway) = start("  - { id: few, per: [principal], rate: 5/10s }\n", "");
    for (dialect, employee) in Dialect::ALL.into_iter().zip(["E1", "E2", "E3"]) {
        let before = up.calls().len();
        // E3 is nobody the directory knows, so another caller's fixed employee stands in.
        let client = match employee {
            "E3" => Client::new(gateway.address, "/mcp/up", dialect)
                .key(crate::process_support::FIXED_KEY),
            _ => gateway.client("/mcp/up", dialect).employee(employee),
        };
        let answers: Vec<Response> =
            (0..8).map(|n| client.call("echo", json!({ "n": n }))).collect();
        let (through, refused) = answers.split_at(5);
        for (n, answer) in through.iter().enumerate() {
            assert_eq!(answer.word(), "ok", "{dialect:?}: {answer:?}");
            assert_eq!(answer.header("ratelimit-policy"), Some("\"few\";q=5;w=10"));
            let state = answer.header("ratelimit").unwrap();
            assert!(state.starts_with(&format!("\"few\";r={};t=", 4 - n)), "{n}: {state}");
            assert_eq!(answer.header("retry-after"), None);
        }
        for answer in refused {
            let fault = answer.fault();
            assert_eq!(fault["code"], "rate_limited", "{dialect:?}: {answer:?}");
            assert_eq!(fault["limit"], "few", "{fault}");
            assert_eq!((&fault["retryable"], &fault["next"]), (&json!(true), &json!("wait")));
            let wait = fault["retryAfterMs"].as_u64().unwrap();
            assert!((1..=2_000).contains(&wait), "{fault}");
            let seconds = number(answer, "retry-after");
            assert!(seconds * 1000 >= wait && seconds <= 10, "{seconds} s and {wait} ms");
            assert_eq!(answer.header("ratelimit-policy"), Some("\"few\";q=5;w=10"));
            let state = answer.header("ratelimit").unwrap();
            assert!(state.starts_with("\"few\";r=0;t="), "{state}");
            let status = if dialect == Dialect::Lite { 429 } else { 200 };
            assert_eq!(answer.status, status, "{answer:?}");
            let message = fault["message"].as_str().unwrap();
            assert!(message.contains("`few`"), "{message}");
            let record = gateway.record_of(answer);
            assert_eq!(record["limits"], json!(["few"]), "{record:#}");
            assert_eq!(
                (&record["outcome"], &record["code"]),
                (&json!("throttled"), &json!("rate_limited"))
            );
        }
        assert_eq!(up.calls().len(), before + 5, "{dialect:?}");
        // One call comes back every two seconds.
        if dialect == Dialect::Modern {
            thread::sleep(Duration::from_millis(2_100));
            assert_eq!(client.call("echo", json!({})).word(), "ok");
        }
    }
}

#[test]
fn a_refused_call_is_charged_nowhere() {
    // `other` is used up at once; that must not cost the tenant.
    let (up, gateway) = start(
        "  - { id: tenant, per: [tenant], rate: 4/1h }\n  \
           - { id: other, per: [tenant], tools: [up/other], rate: 1/1h }\n",
        "",
    );
    let client = gateway.client("/mcp/up", Dialect::Modern);
    assert_eq!(client.call("other", json!({})).word(), "ok");
    for _ in 0..10 {
        let answer = client.call("other", json!({}));
        assert_eq!(answer.fault()["limit"], "other", "{answer:?}");
    }
    // What may not be called, and what is called wrongly, costs nothing either.
    assert_ne!(client.call("nope", json!({})).word(), "ok");
    assert_eq!(client.call("echo", json!([])).word(), "invalid_args");
    for _ in 0..3 {
        assert_eq!(client.call("echo", json!({})).word(), "ok");
    }
    let answer = client.call("echo", json!({}));
    assert_eq!(answer.fault()["limit"], "tenant", "{answer:?}");
    // Another tenant has its own.
    let globex = Client::new(gateway.address, "/mcp/up", Dialect::Lite).key(GLOBEX_KEY);
    assert_eq!(globex.employee("G1").call("echo", json!({})).word(), "ok");
    assert_eq!(up.calls().len(), 5);
}

#[test]
fn slots_are_held_as_long_as_calls_last() {
    let (up, gateway) =
        start("  - { id: slots, per: [upstream], concurrency: 2, queue: 1, wait: 5s }\n", "");
    up.on_call(|seen| seen.result(text_result("ok")).after(Duration::from_millis(400)));
    let client = gateway.client("/mcp/up", Dialect::Modern);
    let words: Vec<String> = thread::scope(|scope| {
        let calls: Vec<_> =
            (0..5).map(|_| scope.spawn(|| client.call("echo", json!({})).word())).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let refused = words.iter().filter(|word| *word == "rate_limited").count();
    // Two at once, one in the queue.
    assert_eq!((words.len() - refused, refused), (3, 2), "{words:?}");
    assert_eq!(client.call("echo", json!({})).word(), "ok");
}

#[test]
fn an_address_is_counted_before_its_body_is_read() {
    let (_up, gateway) = start("  - { id: door, per: [address], rate: 5/10s }\n", "");
    let client = gateway.client("/mcp/up", Dialect::Modern);
    for _ in 0..5 {
        assert_eq!(client.call("echo", json!({})).word(), "ok");
    }
    for dialect in Dialect::ALL {
        let answer = gateway.client("/mcp/up", dialect).call("echo", json!({}));
        assert_eq!(answer.status, 429, "{answer:?}");
        number(&answer, "retry-after");
        assert_eq!(answer.header("ratelimit-policy"), Some("\"door\";q=5;w=10"));
        assert_eq!(answer.fault()["code"], "rate_limited", "{answer:?}");
        assert!(answer.json().get("id").is_none(), "no id is known yet: {answer:?}");
    }
    // It is counted like every other limit, though nobody is known who could be recorded.
    let metrics = gateway.metrics();
    let counted = metrics
        .lines()
        .find(|line| line.starts_with("hangu_limit_rejections") && line.contains("\"door\""));
    assert!(counted.is_some_and(|line| line.ends_with(" 3")), "{counted:?}");
    // Also with a wrong key, and before a body that never comes.
    let wrong = Client::new(gateway.address, "/mcp/up", Dialect::Modern).key("wrong");
    assert_eq!(wrong.call("echo", json!({})).status, 429);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n",
        gateway.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 429");
}

/// C43.
#[test]
fn whose_address_it_is_nobody_but_a_trusted_proxy_says() {
    const LIMIT: &str = "  - { id: door, per: [address], rate: 5/1h }\n";
    // From somebody who is no proxy the header is so much text.
    let (_up, gateway) = start(LIMIT, "");
    for dialect in [Dialect::Modern] {
        let mut statuses = [0, 0];
        for n in 0..20 {
            let client = gateway
                .client("/mcp/up", dialect)
                .header("X-Forwarded-For", &format!("198.51.100.{n}"))
                .header("Forwarded", &format!("for=198.51.100.{n}"));
            let answer = client.call("echo", json!({}));
            match answer.status {
                200 => {
                    statuses[0] += 1;
                    let record = gateway.record_of(&answer);
                    assert_eq!(record["source"]["address"], "127.0.0.1", "{record:#}");
                }
                429 => statuses[1] += 1,
                _ => panic!("{answer:?}"),
            }
        }
        assert_eq!(statuses, [5, 15], "{dialect:?}");
    }
    // Behind one, the first hop from the right that is no proxy counts.
    let (_up, gateway) = start(LIMIT, "trusted_proxies: [127.0.0.1, 203.0.113.9]");
    let cases: [(&[&str], &str); 5] = [
        (&["198.51.100.9, 203.0.113.7"], "203.0.113.7"),
        (&["198.51.100.9, 203.0.113.8, 203.0.113.9"], "203.0.113.8"),
        (&["198.51.100.9", "203.0.113.6"], "203.0.113.6"),
        (&[], "127.0.0.1"),
        (&["203.0.113.9"], "203.0.113.9"),
    ];
    for (forwarded, address) in cases {
        let client = gateway.client("/mcp/up", Dialect::Lite);
        let client =
            forwarded.iter().fold(client, |client, one| client.header("X-Forwarded-For", one));
        let answer = client.call("echo", json!({}));
        assert_eq!(answer.word(), "ok", "{forwarded:?}: {answer:?}");
        let record = gateway.record_of(&answer);
        assert_eq!(record["source"]["address"], address, "{forwarded:?}");
    }
}

#[test]
fn a_listing_over_the_rate_is_refused_as_an_error() {
    let (_up, gateway) = start("  - { id: all, per: [principal], rate: 1/1h }\n", "");
    assert_eq!(gateway.client("/mcp/up", Dialect::Modern).list().len(), 2);
    for (dialect, status) in Dialect::ALL.into_iter().zip([429, 200, 429]) {
        let answer = gateway.client("/mcp/up", dialect).send("tools/list", json!({}));
        assert_eq!(answer.status, status, "{dialect:?}: {answer:?}");
        assert_eq!(answer.fault()["code"], "rate_limited", "{dialect:?}: {answer:?}");
        assert_eq!(answer.fault()["limit"], "all", "{dialect:?}: {answer:?}");
        let message = answer.json();
        if dialect != Dialect::Lite {
            let told = (&message["id"], &message["error"]["code"]);
            assert_eq!(told, (&json!(7), &json!(-31429)), "{dialect:?}: {answer:?}");
        }
        number(&answer, "retry-after");
    }
}

#[test]
fn another_form_of_refusal_can_be_chosen() {
    for (form, status) in [("jsonrpc", 429), ("status", 429)] {
        let (_up, gateway) = start(
            "  - { id: one, per: [principal], rate: 1/1h }\n",
            &format!("errors: {{ tools_call: {form} }}"),
        );
        let client = gateway.client("/mcp/up", Dialect::Modern);
        assert_eq!(client.call("echo", json!({})).word(), "ok");
        let answer = client.call("echo", json!({}));
        assert_eq!(answer.status, status, "{form}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"], -31429, "{form}: {answer:?}");
        assert_eq!(answer.fault()["limit"], "one", "{form}: {answer:?}");
    }
}
