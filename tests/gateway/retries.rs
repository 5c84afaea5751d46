//! Which calls are sent again, how often, and what their server sees of it.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    process_support::{self as process, Dialect, Setup, free_address, text_result, tool, until},
    support::{Answer, Gateway, LITE_OK, OK, Received, Reply, Request, Speaks, Upstream},
};

const HANDSHAKE: Speaks = Speaks::Handshake("2025-11-25");

/// What the tools are to their operator.
const TOOLS: &str = "version: hangu/v1
kind: Tools
upstreams:
  up:
    default: { risk: read_low }
    tools:
      echo: { retry_safe: true }
      slow: {}
      read_doc: { risk: write_low, idempotency: optional }
      strict: { risk: write_low, upstream_idempotent: true }
      wipe: { risk: write_low, upstream_idempotent: true, idempotency_argument: n }
    prompts: { safe: { retry_safe: true } }
    resources: { \"file:///safe\": { retry_safe: true } }
";

const SAFE: &str = "echo";
const READ: &str = "slow";
const WRITE: &str = "read_doc";
const HONOURED: &str = "strict";
const BY_ARGUMENT: &str = "wipe";

const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules: [{ id: all, effect: allow, roles: [member], risk: [read_low, write_low] }]
";

fn gateway(urls: &[&Upstream], more: &str) -> Gateway {
    let listed: Vec<String> = urls.iter().map(|up| format!("\"{}\"", up.url())).collect();
    let yaml = format!(
        "callers:\n  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: {{ empId: E1, roles: [member] }} }}\n\
         store: memory\nupstreams:\n  up: {{ urls: [{}], dialect: {}, {more} }}\n",
        listed.join(", "),
        urls[0].dialect()
    );
    Gateway::start(&yaml, &[POLICY, TOOLS])
}

/// Budgets that get in nobody's way.
const FREE: &str = "retries: { reserve: 10000, backoff: 1ms }, breaker: off";

fn ask(gateway: &Gateway, tool: &str, key: &str, arguments: &str) -> Reply {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    );
    let request = Request::handshake(body);
    let request = if key.is_empty() { request } else { request.header("Idempotency-Key", key) };
    request.ask(gateway)
}

/// The word of a refusal; `ok` of a good answer.
fn word(reply: &Reply) -> String {
    match reply.refusal() {
        Some(word) => word,
        None if reply.is_error() => "tool_error".into(),
        None => "ok".into(),
    }
}

fn good(speaks: Speaks) -> Answer {
    Answer::json(if matches!(speaks, Speaks::Lite) { LITE_OK } else { OK })
}

fn status(status: &'static str) -> Answer {
    Answer::new(status, "text/plain", "no")
}

/// How a call can fail, and whether what failed can be better the next time: before a standard
/// server and before a provider.
fn failures() -> Vec<(&'static str, Answer, bool, bool)> {
    vec![
        ("closed", Answer::none(), true, true),
        ("reset", Answer::none().then_reset(), true, true),
        ("half a head", Answer::raw("HTTP/1.1 200 OK\r\nContent-Ty").then_break(), true, true),
        (
            "half a body",
            Answer::raw(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
            )
            .then_break(),
            true,
            true,
        ),
        ("502", status("502 Bad Gateway"), true, true),
        ("503", status("503 Service Unavailable"), true, true),
        ("504", status("504 Gateway Timeout"), true, true),
        ("500", status("500 Internal Server Error"), false, true),
        ("507", status("507 Insufficient Storage"), false, true),
        ("501", status("501 Not Implemented"), false, false),
        ("no HTTP", Answer::raw("hello\r\n\r\n").then_break(), false, false),
        ("HTML", Answer::new("200 OK", "text/html", "<p>no</p>"), false, false),
        ("400", status("400 Bad Request"), false, false),
        ("403", status("403 Forbidden"), false, false),
        ("409", status("409 Conflict"), false, false),
        ("429", status("429 Too Many Requests"), false, false),
        ("303", status("303 See Other"), false, false),
    ]
}

/// What may have been processed is sent again only where the operator says so, and never more
/// than three times in all; a write that nobody vouches for exactly once.
#[test]
fn how_often_a_server_sees_a_call_that_fails() {
    for speaks in [HANDSHAKE, Speaks::Stateless, Speaks::Lite] {
        let up = Upstream::answering(speaks, good(speaks));
        let gateway = gateway(&[&up], FREE);
        for (number, (failure, answer, standard, lite)) in failures().into_iter().enumerate() {
            let passing = if matches!(speaks, Speaks::Lite) { lite } else { standard };
            let key = format!("k{number}");
            let argument = format!(r#"{{"n":"{key}"}}"#);
            for (what, tool, key, arguments, vouched) in [
                ("a safe read", SAFE, "", "{}", true),
                ("a safe read with a key", SAFE, "safe", "{}", true),
                ("a read", READ, "", "{}", false),
                ("a read with a key", READ, &*key, "{}", false),
                ("a write", WRITE, "", "{}", false),
                ("a write with a key", WRITE, &*key, "{}", false),
                ("under a key that is honoured", HONOURED, &*key, r#"{"n":1}"#, true),
                ("under a key in its argument", BY_ARGUMENT, "", &*argument, true),
            ] {
                let attempts = if passing && vouched { 3 } else { 1 };
                let what = format!("{failure} {what} {speaks:?}");
                up.answers(answer.clone());
                let reply = ask(&gateway, tool, key, arguments);
                assert_ne!(word(&reply), "ok", "{what}");
                let calls = up.calls();
                assert_eq!(calls.len(), attempts, "{what}: {}", reply.text());
                // Each is a request of its own with the same arguments.
                let ids: HashSet<_> = calls.iter().map(|call| call.member(&["id"])).collect();
                let lite = matches!(speaks, Speaks::Lite);
                assert!(lite || ids.len() == attempts, "{what}");
                assert!(calls.iter().all(|call| call.arguments() == arguments), "{what}");
                if passing {
                    let safe = tool == SAFE;
                    let said = reply.text().contains(r#""retryable":true"#);
                    assert_eq!(said, safe, "{what}: {}", reply.text());
                    assert!(reply.text().contains(r#""outcome":"unknown""#), "{what}");
                }
            }
        }
    }
}

/// A call that is sent again gets the answer of the attempt that had one.
#[test]
fn a_failure_that_passes_costs_no_call() {
    for speaks in [HANDSHAKE, Speaks::Stateless, Speaks::Lite] {
        for failed in [1, 2] {
            let counter = Mutex::new(0);
            let up = Upstream::scripted(speaks, move |_| {
                let mut count = counter.lock();
                *count += 1;
                if *count <= failed { Answer::none() } else { good(speaks) }
            });
            let gateway = gateway(&[&up], FREE);
            let reply = ask(&gateway, SAFE, "", "{}");
            assert_eq!(word(&reply), "ok", "{speaks:?}: {}", reply.text());
            assert_eq!(up.calls().len(), failed + 1, "{speaks:?}");
            let sent = format!(
                "hangu_upstream_retries_total{{hangu_upstream=\"up\",hangu_retry_result=\"sent\"}} {failed}"
            );
            let metrics = gateway.metrics();
            assert!(metrics.contains(&sent), "{metrics}");
            // Each attempt is an operation of the client's side, and the call one of the other.
            let counted = |name: &str, outcome: &str| -> usize {
                let of = |line: &&str| {
                    line.starts_with(name)
                        && line.contains("\"tools/call\"")
                        && line.contains(&format!("hangu_outcome=\"{outcome}\""))
                };
                let lines = metrics.lines().filter(of);
                lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
            };
            let client = "mcp_client_operation_duration_seconds_count";
            assert_eq!(counted(client, "upstream_error"), failed, "{metrics}");
            assert_eq!(counted(client, "ok"), 1, "{metrics}");
            assert_eq!(counted("mcp_server_operation_duration_seconds_count", "ok"), 1);
        }
    }
}

#[test]
fn prompts_and_resources_are_read_again_where_that_is_safe() {
    for (method, params, attempts) in [
        ("prompts/get", r#"{"name":"safe"}"#, 3),
        ("prompts/get", r#"{"name":"other"}"#, 1),
        ("resources/read", r#"{"uri":"file:///safe"}"#, 3),
        ("resources/read", r#"{"uri":"file:///other"}"#, 1),
    ] {
        let up = Upstream::answering(HANDSHAKE, Answer::none());
        up.declares(r#""prompts":{},"resources":{}"#);
        up.gives("prompts/list", r#"{"prompts":[{"name":"safe"},{"name":"other"}]}"#);
        up.gives(
            "resources/list",
            r#"{"resources":[{"uri":"file:///safe","name":"a"},{"uri":"file:///other","name":"b"}]}"#,
        );
        up.gives("resources/templates/list", r#"{"resourceTemplates":[]}"#);
        let gateway = gateway(&[&up], FREE);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let reply = Request::handshake(body).ask(&gateway);
        assert_eq!(word(&reply), "external_service_error", "{method}: {}", reply.text());
        assert_eq!(up.of(method).len(), attempts, "{method} {params}");
    }
}

/// The key that a server honours goes with each attempt, and is no other caller's.
#[test]
fn a_key_that_the_server_honours_reaches_it() {
    let keys = |up: &Upstream| -> Vec<Option<String>> {
        let key = |call: &Received| call.header("idempotency-key").map(str::to_owned);
        up.calls().iter().map(key).collect()
    };
    for speaks in [HANDSHAKE, Speaks::Stateless] {
        let up = Upstream::answering(speaks, Answer::none());
        let gateway = gateway(&[&up], FREE);
        ask(&gateway, HONOURED, "one", r#"{"n":1}"#);
        let first = keys(&up);
        assert!(first[0].as_ref().is_some_and(|key| key.len() == 64), "{first:?}");
        assert_eq!(first, vec![first[0].clone(); 3]);
        ask(&gateway, HONOURED, "two", r#"{"n":1}"#);
        assert_ne!(keys(&up)[3], first[0]);
        // One that is in an argument is nowhere else, and one that is not there does not count.
        for (tool, key, arguments, attempts) in [
            (BY_ARGUMENT, "", r#"{"n":"a"}"#, 3),
            (BY_ARGUMENT, "b", "{}", 1),
            (WRITE, "c", "{}", 1),
        ] {
            up.answers(Answer::none());
            ask(&gateway, tool, key, arguments);
            assert_eq!(keys(&up), vec![None; attempts], "{tool} {key}");
        }
    }
    let up = Upstream::answering(Speaks::Lite, Answer::none());
    let gateway = gateway(&[&up], FREE);
    ask(&gateway, HONOURED, "one", r#"{"n":1}"#);
    assert_eq!(keys(&up), vec![Some("one".to_owned()); 3], "a provider is told whose it is");
}

/// What is in doubt under a key stays in doubt, but for what is safe.
#[test]
fn a_call_in_doubt_runs_again_under_its_key_only_if_it_is_a_safe_read() {
    let up = Upstream::answering(HANDSHAKE, good(HANDSHAKE));
    let gateway = gateway(&[&up], FREE);
    for (tool, arguments, word_after, calls) in [
        (SAFE, "{}", "ok", 1),
        (READ, "{}", "conflict", 0),
        (WRITE, "{}", "conflict", 0),
        (HONOURED, r#"{"n":1}"#, "conflict", 0),
    ] {
        up.answers(Answer::none());
        assert_eq!(word(&ask(&gateway, tool, "k", arguments)), "external_service_error", "{tool}");
        up.answers(good(HANDSHAKE));
        let reply = ask(&gateway, tool, "k", arguments);
        assert_eq!(word(&reply), word_after, "{tool}: {}", reply.text());
        assert_eq!(up.calls().len(), calls, "{tool}");
    }
}

#[test]
fn all_attempts_together_have_the_time_of_one() {
    let slow = Answer::none().delayed(Duration::from_millis(300));
    let up = Upstream::answering(HANDSHAKE, slow);
    let gateway =
        gateway(&[&up], "timeout: 500ms, retries: { backoff: 1ms, reserve: 100 }, breaker: off");
    let begun = Instant::now();
    let reply = ask(&gateway, SAFE, "", "{}");
    let took = begun.elapsed();
    assert_eq!(word(&reply), "timeout", "{}", reply.text());
    assert!((500..1_500).contains(&took.as_millis()), "{took:?}");
    assert_eq!(up.calls().len(), 2);

    // What its server wants waited for is waited for, where there is time.
    for (after, calls, least) in [("1", 3, 2_000), ("60", 1, 0)] {
        let up = Upstream::answering(
            HANDSHAKE,
            status("503 Service Unavailable").header("Retry-After", after),
        );
        let gateway = self::gateway(&[&up], FREE);
        let begun = Instant::now();
        let reply = ask(&gateway, SAFE, "", "{}");
        assert_eq!(up.calls().len(), calls, "{after}: {}", reply.text());
        assert!(begun.elapsed().as_millis() >= least, "{after}");
        assert!(
            reply.text().contains(&format!(r#""retryAfterMs":{after}000"#)),
            "{}",
            reply.text()
        );
    }
}

#[test]
fn nothing_is_sent_again_once_the_client_has_some_of_the_answer() {
    let progress = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":{{token}},\"progress\":1}}\n\n";
    let up = Upstream::answering(HANDSHAKE, Answer::events([progress]).then_break());
    let gateway = gateway(&[&up], FREE);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{"progressToken":"t"}}}"#;
    let reply = Request::handshake(body).ask(&gateway);
    assert!(reply.text().contains("notifications/progress"), "{}", reply.text());
    assert_eq!(word(&reply), "external_service_error", "{}", reply.text());
    assert_eq!(up.calls().len(), 1);
}

#[test]
fn an_attempt_after_a_failure_goes_to_another_address() {
    let good_one = Upstream::answering(Speaks::Lite, good(Speaks::Lite));
    let bad = Upstream::answering(Speaks::Lite, status("503 Service Unavailable"));
    let gateway = gateway(&[&bad, &good_one], FREE);
    for _ in 0..20 {
        let reply = ask(&gateway, SAFE, "", "{}");
        assert_eq!(word(&reply), "ok", "{}", reply.text());
    }
    assert_eq!(good_one.calls().len(), 20);
    assert!((1..=20).contains(&bad.calls().len()), "once for a call at most");
}

#[test]
fn the_budget_bounds_what_is_sent_again() {
    let up = Upstream::answering(HANDSHAKE, Answer::none());
    let gateway =
        gateway(&[&up], "retries: { budget: 10, reserve: 3, backoff: 1ms }, breaker: off");
    let calls = 40;
    for _ in 0..calls {
        ask(&gateway, SAFE, "", "{}");
    }
    let again = up.calls().len() - calls;
    // Three at once, one for ten calls, and what comes back with the time that this takes.
    assert!((6..20).contains(&again), "{again}");
    let over = "hangu_retry_result=\"over_budget\"";
    assert!(gateway.metrics().contains(over), "{}", gateway.metrics());

    let up = Upstream::answering(HANDSHAKE, Answer::none());
    let gateway = self::gateway(&[&up], "retries: { max: 0 }, breaker: off");
    ask(&gateway, SAFE, "", "{}");
    assert_eq!(up.calls().len(), 1);
}

/// What surely did not arrive may be sent again whatever it is.
#[test]
fn a_write_waits_out_a_server_that_is_just_starting() {
    let address = free_address();
    let first = process::Upstream::at(address, &[tool("pay")]);
    let more = "retries: { backoff: 800ms }";
    let gateway = Setup::new().upstream("up", &first, more, "pay: { risk: write_low }").start();
    let client = gateway.client("/mcp/up", Dialect::Modern);
    let pay = |key: &str| client.clone().header("Idempotency-Key", key).call("pay", json!({}));
    assert_eq!(pay("one").word(), "ok");
    drop(first);
    let answer = thread::scope(|scope| {
        let call = scope.spawn(|| pay("two"));
        thread::sleep(Duration::from_millis(300));
        let again = process::Upstream::at(address, &[tool("pay")]);
        let answer = call.join().unwrap();
        (answer, again.calls().len())
    });
    assert_eq!((&*answer.0.word(), answer.1), ("ok", 1), "{answer:?}");
    // Gone for good, the call was sent nowhere, and may simply be made again.
    let answer = pay("three");
    let fault = answer.fault();
    assert_eq!(fault["code"], "external_service_error", "{answer:?}");
    assert_eq!((&fault["retryable"], &fault["next"]), (&true.into(), &"retry".into()), "{fault}");
    assert!(fault.get("outcome").is_none(), "{fault}");
}

/// Every attempt has a span of its own, beside the others and below the call's.
#[test]
fn each_attempt_is_a_span() {
    let up = process::Upstream::start(&[tool("echo")]);
    let gateway = Setup::new()
        .upstream("up", &up, "retries: { backoff: 1ms }", "echo: { retry_safe: true }")
        .env("OTEL_TRACES_EXPORTER", "console")
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .start();
    let count = AtomicUsize::new(0);
    up.on_call(move |seen| match count.fetch_add(1, Ordering::Relaxed) {
        0 => process::Answer::Raw(Vec::new()),
        1 => process::Answer::body(503, "text/plain", "no"),
        _ => seen.result(text_result("ok")),
    });
    let answer = gateway.client("/mcp/up", Dialect::Modern).call("echo", json!({}));
    assert_eq!(answer.word(), "ok");
    let trace = answer.header("x-trace-id").unwrap();
    let spans = || -> Vec<String> {
        let log = gateway.log();
        let of = |line: &&str| line.contains(trace) && line.contains("name=\"tools/call echo\"");
        log.lines().filter(of).map(str::to_owned).collect()
    };
    until("the spans are there", || spans().len() == 4);
    let word = |span: &str, name: &str| -> Option<String> {
        let (_, rest) = span.split_once(&format!(" {name}="))?;
        Some(rest.split(' ').next().unwrap().trim_matches('"').to_owned())
    };
    let (mut server, mut clients) = (Vec::new(), Vec::new());
    for span in spans() {
        if span.contains("kind=Server") { server.push(span) } else { clients.push(span) }
    }
    let call = word(&server[0], "span_id").unwrap();
    let told: Vec<_> = clients
        .iter()
        .map(|span| {
            assert_eq!(word(span, "parent_id").as_ref(), Some(&call), "{span}");
            let port = word(span, "server.port");
            assert_eq!(port, Some(up.address().port().to_string()), "{span}");
            (word(span, "hangu.attempt"), word(span, "hangu.outcome"), word(span, "error.type"))
        })
        .collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        told,
        [
            (None, text("upstream_error"), text("connection_closed")),
            (text("2"), text("upstream_error"), text("503")),
            (text("3"), text("ok"), None),
        ]
    );
    // Each attempt told its server the span that it is.
    let own: Vec<_> = clients.iter().map(|span| word(span, "span_id").unwrap()).collect();
    let context = |seen: &process::Seen| seen.header("traceparent").unwrap().to_owned();
    let told: Vec<_> = up.calls().iter().map(context).collect();
    for (own, told) in own.iter().zip(&told) {
        assert_eq!(told.split('-').nth(2), Some(&**own));
    }
    assert_eq!((own.len(), told.len()), (3, 3));
}
