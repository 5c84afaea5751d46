//! What a failure costs: the one call, and never another server, another call or a record.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process_support::{
    Answer, Client, Dialect, GLOBEX_KEY, Response, Setup, Upstream, exchange, free_address,
    text_result, tool, until,
};

const PAY: &str = "pay: { risk: write_low, idempotency: optional }";

fn tools() -> [Value; 2] {
    [tool("echo"), tool("pay")]
}

fn timed(call: impl FnOnce() -> Response) -> (Response, Duration) {
    let begun = Instant::now();
    (call(), begun.elapsed())
}

#[test]
fn a_dead_provider_is_an_error_in_time_and_hurts_nobody_else() {
    let (mut dead, slow, fine) =
        (Upstream::start(&tools()), Upstream::start(&tools()), Upstream::start(&tools()));
    let gateway = Setup::new()
        .upstream("dead", &dead, "timeout: 2s", "")
        .upstream("slow", &slow, "timeout: 600ms", "")
        .upstream("fine", &fine, "timeout: 2s", "")
        .start();
    assert_eq!(gateway.client("/mcp", Dialect::Lite).list().len(), 6);
    dead.stop();
    slow.on_call(|seen| seen.result(text_result("late")).after(Duration::from_secs(3)));
    let stop = AtomicBool::new(false);
    let slowest = thread::scope(|scope| {
        let fast = scope.spawn(|| {
            let client = gateway.client("/mcp/fine", Dialect::Modern);
            let mut slowest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let (answer, took) = timed(|| client.call("echo", json!({})));
                assert_eq!(answer.word(), "ok", "{answer:?}");
                slowest = slowest.max(took);
            }
            slowest
        });
        for dialect in Dialect::ALL {
            let client = gateway.client("/mcp/dead", dialect);
            let (answer, took) = timed(|| client.call("echo", json!({})));
            assert_eq!(answer.word(), "external_service_error", "{answer:?}");
            assert!(took < Duration::from_secs(2), "{dialect:?}: {took:?}");
            assert!(answer.fault()["message"].as_str().unwrap().contains("`dead`"), "{answer:?}");
            let record = gateway.record_of(&answer);
            assert_eq!(record["outcome"], "upstream_error", "{record:#}");

            let client = gateway.client("/mcp", dialect);
            let (answer, took) = timed(|| client.call("slow__echo", json!({})));
            assert_eq!(answer.word(), "timeout", "{answer:?}");
            let (least, most) = (Duration::from_millis(550), Duration::from_millis(1_500));
            assert!(least < took && took < most, "{dialect:?}: {took:?}");
            assert!(answer.fault()["message"].as_str().unwrap().contains("`slow`"), "{answer:?}");
            let status = if dialect == Dialect::Lite { 504 } else { 200 };
            assert_eq!(answer.status, status, "{answer:?}");
            // No address, no port, no word of a library.
            assert!(!answer.text().contains("127.0.0.1"), "{answer:?}");
        }
        stop.store(true, Ordering::Relaxed);
        fast.join().unwrap()
    });
    // What waits for the others takes their time: 550 ms and more, each.
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    let fine = gateway.client("/mcp", Dialect::Lite).list();
    assert!(fine.iter().any(|name| name == "fine__echo"), "{fine:?}");
}

#[test]
fn half_an_answer_is_none() {
    let up = Upstream::start(&tools());
    let gateway = Setup::new().upstream("up", &up, "timeout: 500ms", "").start();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let cases: [(&str, Vec<u8>); 8] = [
        ("cut", format!("{head}Content-Length: 90\r\n\r\n{{\"jsonrpc\"").into()),
        ("cut chunks", format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\n{{\"js").into()),
        ("nothing", Vec::new()),
        ("no HTTP", b"SSH-2.0-x\r\n".to_vec()),
        ("no JSON", format!("{head}Content-Length: 4\r\n\r\noops").into()),
        ("no message", format!("{head}Content-Length: 2\r\n\r\n{{}}").into()),
        ("a list", format!("{head}Content-Length: 2\r\n\r\n[]").into()),
        (
            "events without an end",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n".to_vec(),
        ),
    ];
    for (name, bytes) in cases {
        up.on_call(move |_| Answer::Raw(bytes.clone()));
        for dialect in Dialect::ALL {
            let answer = gateway.client("/mcp/up", dialect).call("echo", json!({}));
            assert_eq!(answer.word(), "external_service_error", "{name} {dialect:?}: {answer:?}");
            let wanted = if dialect == Dialect::Lite { 502 } else { 200 };
            assert_eq!(answer.status, wanted, "{name} {dialect:?}: {answer:?}");
        }
    }
    up.on(|_| None);
    let answer = gateway.client("/mcp/up", Dialect::Modern).call("echo", json!({}));
    assert_eq!(answer.word(), "ok", "{answer:?}");
}

#[test]
fn a_provider_that_was_never_listed_is_said_to_be_one() {
    let (hung, fine) = (Upstream::start(&tools()), Upstream::start(&tools()));
    hung.on(|seen| Some(seen.result(json!({})).after(Duration::from_secs(60))));
    let gateway = Setup::new()
        .upstream_at("dead", &format!("http://{}/mcp", free_address()), "timeout: 1s", "")
        .upstream("hung", &hung, "timeout: 1s", "")
        .upstream("fine", &fine, "timeout: 1s", "")
        .start();
    for dialect in Dialect::ALL {
        // Whoever asks for all gets what there is.
        let (answer, took) =
            timed(|| gateway.client("/mcp", dialect).send("tools/list", json!({})));
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(
            gateway.client("/mcp", dialect).list(),
            ["fine__echo", "fine__pay"],
            "{dialect:?}"
        );
        for upstream in ["dead", "hung"] {
            let client = gateway.client(&format!("/mcp/{upstream}"), dialect);
            let all = gateway.client("/mcp", dialect);
            let answers = [
                client.call("echo", json!({})),
                client.send("tools/list", json!({})),
                all.call(&format!("{upstream}__echo"), json!({})),
            ];
            for answer in answers {
                assert_eq!(answer.fault()["code"], "external_service_error", "{answer:?}");
                let message = answer.fault()["message"].to_string();
                assert!(message.contains(&format!("`{upstream}`")), "{message}");
            }
        }
        assert_eq!(gateway.client("/mcp/fine", dialect).call("echo", json!({})).word(), "ok");
    }
    let log = gateway.log();
    assert!(log.contains("\"upstream.name\":\"dead\""), "{log}");
    assert!(log.contains("\"upstream.name\":\"hung\""), "{log}");
    until("the metrics tell", || {
        let metrics = gateway.metrics();
        let down = |name: &str| {
            metrics.lines().any(|line| {
                line.starts_with("hangu_upstream_up")
                    && line.contains(&format!("\"{name}\""))
                    && line.ends_with(" 0")
            })
        };
        down("dead")
    });
    // It loses nobody's readiness.
    assert_eq!(exchange(gateway.admin, "GET", "/readyz", &[], b"").unwrap().status, 200);
}

#[test]
fn nothing_is_answered_from_a_catalog_that_is_not_there_yet() {
    let up = Upstream::start(&tools());
    up.on(|seen| {
        let listing = json!({ "resultType": "complete", "tools": tools(), "ttlMs": 0,
                              "cacheScope": "public" });
        (seen.method == "tools/list")
            .then(|| seen.result(listing).after(Duration::from_millis(600)))
    });
    let gateway = Setup::new().upstream("up", &up, "timeout: 5s", "").start();
    thread::scope(|scope| {
        for dialect in Dialect::ALL {
            let gateway = &gateway;
            scope.spawn(move || {
                let client = gateway.client("/mcp", dialect);
                assert_eq!(client.list(), ["up__echo", "up__pay"], "{dialect:?}");
            });
            scope.spawn(move || {
                let client = gateway.client("/mcp/up", dialect);
                assert_eq!(client.call("echo", json!({})).word(), "ok", "{dialect:?}");
            });
        }
    });
}

#[test]
fn a_provider_that_comes_back_is_used_again() {
    let address = free_address();
    let gateway =
        Setup::new().upstream_at("up", &format!("http://{address}/mcp"), "timeout: 1s", "").start();
    let client = gateway.client("/mcp/up", Dialect::Modern);
    assert_eq!(client.call("echo", json!({})).word(), "external_service_error");
    let mut up = Upstream::at(address, &tools());
    until("it is listed", || client.call("echo", json!({})).word() == "ok");
    up.stop();
    assert_eq!(client.call("echo", json!({})).word(), "external_service_error");
    // The last good listing stays.
    assert_eq!(client.list(), ["echo", "pay"]);
    let _up = Upstream::at(address, &tools());
    until("it serves again", || client.call("echo", json!({})).word() == "ok");
}

#[test]
fn an_endpoint_that_speaks_something_else_is_named_for_what_it_is() {
    let (rest, html) = (Upstream::start(&tools()), Upstream::start(&tools()));
    rest.on(|seen| {
        (!seen.path.contains("/tools/"))
            .then(|| Answer::json(404, &json!({ "error": "no such path" })))
    });
    html.on(|_| Some(Answer::body(200, "text/html", "<html><title>Sign in</title></html>")));
    let gateway =
        Setup::new().upstream("rest", &rest, "", "").upstream("page", &html, "", "").start();
    for dialect in Dialect::ALL {
        for (upstream, words) in [
            ("rest", &["REST endpoint", "`dialect: mcp-lite`"][..]),
            ("page", &["`page` answered with a web page"]),
        ] {
            let client = gateway.client(&format!("/mcp/{upstream}"), dialect);
            for answer in [client.call("echo", json!({})), client.send("tools/list", json!({}))] {
                let fault = answer.fault();
                assert_eq!(fault["code"], "external_service_error", "{dialect:?} {answer:?}");
                for word in words {
                    assert!(fault["message"].as_str().unwrap().contains(word), "{fault}");
                }
                assert!(!answer.text().contains("Sign in"), "{answer:?}");
            }
        }
    }
    let log = gateway.log();
    assert!(log.contains("set `dialect: mcp-lite`"), "{log}");
}

#[test]
fn a_full_disk_stops_writes_and_no_reads() {
    let up = Upstream::start(&tools());
    // The log alone: what a full disk means for the store is in `durable.rs`.
    let setup = Setup::new().config("store: memory").upstream("up", &up, "", PAY);
    let gateway = setup.file_blocks(8).start();
    let mut refused = None;
    for n in 0..40 {
        let client = gateway.client("/mcp/up", Dialect::ALL[n % 3]);
        let answer = client.call("pay", json!({ "n": n }));
        if answer.word() != "ok" {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.unwrap();
    let fault = refused.fault();
    assert_eq!((&fault["code"], &fault["retryable"]), (&json!("internal"), &json!(true)));
    assert!(fault["message"].as_str().unwrap().contains("audit"), "{fault}");
    let before = up.calls().len();
    for dialect in Dialect::ALL {
        let client = gateway.client("/mcp/up", dialect);
        assert_eq!(client.call("echo", json!({})).word(), "ok", "{dialect:?}");
        let answer = client.call("pay", json!({}));
        assert_eq!(answer.fault()["code"], "internal", "{dialect:?}: {answer:?}");
        assert_eq!(answer.status, if dialect == Dialect::Lite { 500 } else { 200 }, "{answer:?}");
    }
    let paid = up.calls()[before..].iter().filter(|seen| seen.tool() == "pay").count();
    assert_eq!(paid, 0, "a write left without its intent");
    // Every write that left has its intent in the file.
    let done = up.calls().iter().filter(|seen| seen.tool() == "pay").count();
    let intents = gateway.home().audit().iter().filter(|r| r["event"] == "intent").count();
    assert_eq!(intents, done);
    assert_eq!(exchange(gateway.admin, "GET", "/readyz", &[], b"").unwrap().status, 503);
}

#[test]
fn one_tenant_that_waits_costs_another_nothing() {
    let up = Upstream::start(&tools());
    up.on_call(|seen| {
        let slow = seen.params["arguments"]["slow"] == true;
        let answer = seen.result(text_result("done"));
        if slow { answer.after(Duration::from_millis(800)) } else { answer }
    });
    let gateway = Setup::new().upstream("up", &up, "", PAY).start();
    assert_eq!(gateway.client("/mcp/up", Dialect::Lite).list().len(), 2);
    thread::scope(|scope| {
        let slow: Vec<_> = (0..16)
            .map(|_| {
                let client = gateway.client("/mcp/up", Dialect::Modern);
                scope.spawn(move || client.call("echo", json!({ "slow": true })).word())
            })
            .collect();
        until("they wait", || up.calls().len() >= 16);
        let globex =
            Client::new(gateway.address, "/mcp/up", Dialect::Modern).key(GLOBEX_KEY).employee("G1");
        let (answer, took) = timed(|| globex.call("echo", json!({})));
        assert_eq!(answer.word(), "ok", "{answer:?}");
        assert!(took < Duration::from_millis(300), "{took:?}");
        for call in slow {
            assert_eq!(call.join().unwrap(), "ok");
        }
    });
}
