//! One key, one execution.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::process_support::{
    Answer, Client, Dialect, Process, Response, Setup, Upstream, text_result, tool, until,
};

const TOOLS: &str = "pay: { risk: write_low, idempotency: optional }, \
                     must: { risk: write_low }, \
                     named: { risk: write_low, idempotency: required, idempotency_argument: key }, \
                     none: { risk: write_low, idempotency: none }";

fn start(more: &str) -> (Upstream, Process) {
    let up = Upstream::start(&["pay", "must", "named", "none"].map(tool));
    let runs = Arc::new(AtomicU32::new(0));
    up.on_call(move |seen| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        seen.result(text_result(&format!("run {run}")))
    });
    let gateway = Setup::new().upstream("up", &up, more, TOOLS).start();
    (up, gateway)
}

fn replayed(answer: &Response) -> bool {
    let header = answer.header("idempotency-replayed") == Some("true");
    let meta = answer.json().to_string().contains("\"dev.hangu/replayed\":true");
    assert_eq!(header, meta, "{answer:?}");
    header
}

/// C51.
#[test]
fn first_calls_with_one_key_run_once() {
    let (up, gateway) = start("");
    up.on_call(|seen| seen.result(text_result("paid")).after(Duration::from_millis(300)));
    for dialect in Dialect::ALL {
        let before = up.calls().len();
        let client =
            gateway.client("/mcp/up", dialect).header("Idempotency-Key", &format!("{dialect:?}"));
        let answers: Vec<Response> = thread::scope(|scope| {
            let calls: Vec<_> =
                (0..20).map(|_| scope.spawn(|| client.call("pay", json!({ "n": 1 })))).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        assert_eq!(up.calls().len(), before + 1, "{dialect:?}");
        let (mut first, mut again) = (0, 0);
        for answer in &answers {
            match &*answer.word() {
                "ok" if replayed(answer) => again += 1,
                "ok" => first += 1,
                "conflict" => assert!(answer.fault()["retryAfterMs"].is_u64(), "{answer:?}"),
                word => panic!("{word}: {answer:?}"),
            }
        }
        assert_eq!(first, 1, "{dialect:?}");
        assert!(again > 0, "{dialect:?}");
    }
}

/// C52: 1 and 1.0 are one number.
#[test]
fn a_key_stands_for_its_arguments_in_whatever_order() {
    let (up, gateway) = start("");
    for dialect in Dialect::ALL {
        let before = up.calls().len();
        let client = gateway
            .client("/mcp/up", dialect)
            .header("Idempotency-Key", &format!("k2-{dialect:?}"));
        // arguments, word, replayed
        let steps = [
            (r#"{"a":1,"b":2}"#, "ok", false),
            (r#"{"b":2,"a":1}"#, "ok", true),
            (r#"{"a":1,"b":3}"#, "conflict", false),
            (r#"{"a":1.0,"b":2}"#, "ok", true),
            (r#"{"a":1,"b":2,"c":null}"#, "conflict", false),
            (r#"{"a":1,"b":"2"}"#, "conflict", false),
            (r#"{ "a" : 10e-1, "b" : 2 }"#, "ok", true),
            (r#"{"a":1.0000000000000000001,"b":2}"#, "conflict", false),
        ];
        for (text, word, again) in steps {
            let arguments: Value = serde_json::from_str(text).unwrap();
            let answer = client.call("pay", arguments);
            assert_eq!(answer.word(), word, "{dialect:?} {text}: {answer:?}");
            assert_eq!(replayed(&answer), again, "{dialect:?} {text}: {answer:?}");
            if word == "conflict" {
                assert_eq!(answer.fault()["next"], "repair_args", "{answer:?}");
                let wanted = if dialect == Dialect::Lite { 409 } else { 200 };
                assert_eq!(answer.status, wanted);
            }
        }
        assert_eq!(up.calls().len(), before + 1, "{dialect:?}");
    }
}

#[test]
fn the_key_may_stand_in_three_places_that_must_agree() {
    let (up, gateway) = start("");
    for dialect in Dialect::ALL {
        // header, _meta, argument, and whether they agree
        let cases = [
            (Some("a"), None, None, true),
            (None, Some("b"), None, true),
            (None, None, Some("c"), true),
            (Some("d"), Some("d"), Some("d"), true),
            (Some("e"), Some("f"), None, false),
            (Some("g"), None, Some("h"), false),
            (None, Some("i"), Some("j"), false),
        ];
        for (header, meta, argument, agree) in cases {
            let before = up.calls().len();
            let name = |key: &str| format!("{key}-{dialect:?}");
            let mut client = gateway.client("/mcp/up", dialect);
            if let Some(key) = header {
                client = client.header("Idempotency-Key", &name(key));
            }
            if let Some(key) = meta {
                client = client.meta("dev.hangu/idempotencyKey", json!(name(key)));
            }
            let arguments = match argument {
                Some(key) => json!({ "n": 1, "key": name(key) }),
                None => json!({ "n": 1 }),
            };
            let answers = [(); 2].map(|()| client.call("named", arguments.clone()));
            let at = format!("{dialect:?} {header:?} {meta:?} {argument:?}: {answers:?}");
            if agree {
                assert_eq!(answers[0].word(), "ok", "{at}");
                assert!(!replayed(&answers[0]) && replayed(&answers[1]), "{at}");
                assert_eq!(answers[0].said(), answers[1].said(), "{at}");
                assert_eq!(up.calls().len(), before + 1, "{at}");
                // Where the key stands does not change what the call is.
                let key = header.or(meta).or(argument).unwrap();
                let elsewhere = gateway.client("/mcp/up", dialect);
                let elsewhere = elsewhere.header("Idempotency-Key", &name(key));
                let answer = elsewhere.call("named", arguments);
                assert!(replayed(&answer), "{at} {answer:?}");
            } else {
                assert_eq!(answers[0].word(), "invalid_args", "{at}");
                assert_eq!(up.calls().len(), before, "{at}");
            }
        }
    }
}

#[test]
fn a_key_is_required_where_it_is_and_without_meaning_where_it_has_none() {
    let (up, gateway) = start("");
    for dialect in Dialect::ALL {
        let client = gateway.client("/mcp/up", dialect);
        // A write without a word on keys wants one.
        for (tool, word) in
            [("must", "invalid_args"), ("named", "invalid_args"), ("pay", "ok"), ("none", "ok")]
        {
            let answer = client.call(tool, json!({}));
            assert_eq!(answer.word(), word, "{dialect:?} {tool}: {answer:?}");
        }
        let keyed = client.clone().header("Idempotency-Key", "x");
        for _ in 0..2 {
            assert!(!replayed(&keyed.call("none", json!({}))), "{dialect:?}");
        }
        let before = up.calls().len();
        let long = "k".repeat(256);
        for bad in ["", "\u{e9}", &long] {
            let answer = client.clone().header("Idempotency-Key", bad).call("must", json!({}));
            assert_eq!(answer.word(), "invalid_args", "{dialect:?} {bad:?}: {answer:?}");
        }
        let twice = client.header("Idempotency-Key", "a").header("Idempotency-Key", "b");
        assert_eq!(twice.call("must", json!({})).word(), "invalid_args", "{dialect:?}");
        assert_eq!(up.calls().len(), before, "{dialect:?}");
    }
}

#[test]
fn the_argument_for_the_key_is_published_where_the_gateway_needs_one() {
    let tool = |name: &str, properties: &str| -> Value {
        let text = format!(
            r#"{{"name":"{name}","description":"Does it.","inputSchema":{{"type":"object",
                "properties":{properties},"additionalProperties":false}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    };
    // `must` knows no key, `own` has an argument of that name, `free` needs none.
    let plain = r#"{"n":{"type":"integer"}}"#;
    let own = r#"{"n":{"type":"integer"},"idempotencyKey":{"type":"string"}}"#;
    let up = Upstream::start(&[tool("must", plain), tool("own", own), tool("free", plain)]);
    let gateway = Setup::new()
        .upstream(
            "up",
            &up,
            "",
            "must: { risk: write_low }, own: { risk: write_low }, \
             free: { risk: write_low, idempotency: optional }",
        )
        .start();
    for dialect in Dialect::ALL {
        for (path, prefix) in [("/mcp/up", ""), ("/mcp", "up__")] {
            let client = gateway.client(path, dialect);
            let listing = client.send("tools/list", json!({})).result();
            let schema = |index: usize| listing["tools"][index]["inputSchema"].clone();
            let at = format!("{dialect:?} {path} {listing}");
            assert_eq!(schema(0)["properties"]["idempotencyKey"]["type"], "string", "{at}");
            assert_eq!(schema(0)["properties"]["n"], json!({ "type": "integer" }), "{at}");
            assert_eq!(schema(1)["properties"], serde_json::from_str::<Value>(own).unwrap());
            assert_eq!(schema(2)["properties"], serde_json::from_str::<Value>(plain).unwrap());

            let key = format!("k-{dialect:?}-{prefix}");
            let arguments = json!({ "n": 1, "idempotencyKey": key });
            for (name, reaches) in [("must", json!({ "n": 1 })), ("own", arguments.clone())] {
                let name = format!("{prefix}{name}");
                let before = up.calls().len();
                assert_eq!(client.call(&name, arguments.clone()).word(), "ok", "{at}");
                assert!(replayed(&client.call(&name, arguments.clone())), "{at}");
                let calls = up.calls();
                assert_eq!(calls.len(), before + 1, "{at}");
                assert_eq!(calls[before].params["arguments"], reaches, "{at}");
                for wrong in [json!({ "n": 1 }), json!({ "n": 1, "idempotencyKey": 7 })] {
                    let answer = client.call(&name, wrong);
                    assert_eq!(answer.word(), "invalid_args", "{at} {answer:?}");
                }
                let other = client.clone().header("Idempotency-Key", "another");
                assert_eq!(other.call(&name, arguments.clone()).word(), "invalid_args", "{at}");
            }
            // The same key in the header is the same key.
            let header = client.clone().header("Idempotency-Key", &key);
            assert!(replayed(&header.call(&format!("{prefix}must"), json!({ "n": 1 }))), "{at}");
            // Where none was published, an argument of that name is one too many.
            let free = client.call(&format!("{prefix}free"), arguments);
            assert_eq!(free.word(), "invalid_args", "{at} {free:?}");
        }
    }
}

/// C53: what nobody knows stays in doubt.
#[test]
fn only_what_ran_is_kept() {
    // What the server does, the word for it, and the word for the next call with the key.
    type Case =
        (&'static str, fn(&crate::process_support::Seen) -> Answer, &'static str, &'static str);
    let cases: [Case; 6] = [
        // The server said that it did not run.
        ("429", |_| Answer::body(429, "text/plain", "slow down"), "rate_limited", "again"),
        // A failure of the tool is its result.
        (
            "isError",
            |seen| seen.result(json!({ "content": [], "isError": true })),
            "tool_error",
            "replay",
        ),
        // Nobody knows.
        (
            "late",
            |seen| seen.result(text_result("late")).after(Duration::from_millis(900)),
            "timeout",
            "doubt",
        ),
        (
            "cut",
            |_| Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{".to_vec()),
            "external_service_error",
            "doubt",
        ),
        ("reset", |_| Answer::Raw(Vec::new()), "external_service_error", "doubt"),
        ("500", |_| Answer::body(500, "text/plain", "x"), "external_service_error", "doubt"),
    ];
    let (up, gateway) = start("timeout: 400ms");
    for dialect in Dialect::ALL {
        for (name, answer, word, next) in cases {
            let key = format!("{name}-{dialect:?}");
            let client = gateway.client("/mcp/up", dialect).header("Idempotency-Key", &key);
            up.on_call(answer);
            let first = client.call("pay", json!({}));
            assert_eq!(first.word(), word, "{dialect:?} {name}: {first:?}");
            if next == "doubt" {
                assert_eq!(first.fault()["outcome"], "unknown", "{dialect:?} {name}: {first:?}");
            }
            up.on_call(|seen| seen.result(text_result("fine")));
            let before = up.calls().len();
            let second = client.call("pay", json!({}));
            let at = format!("{dialect:?} {name}: {second:?}");
            match next {
                "again" => {
                    assert_eq!((second.word(), replayed(&second)), ("ok".into(), false), "{at}");
                    assert!(replayed(&client.call("pay", json!({}))), "{at}");
                }
                "replay" => {
                    assert_eq!(second.word(), "tool_error", "{at}");
                    assert!(replayed(&second), "{at}");
                    assert_eq!(up.calls().len(), before, "{at}");
                }
                _ => {
                    assert_eq!(second.word(), "conflict", "{at}");
                    assert_eq!(second.fault()["outcome"], "unknown", "{at}");
                    assert_eq!(second.fault()["next"], "ask_human", "{at}");
                    assert_eq!(up.calls().len(), before, "{at}");
                }
            }
        }
    }
}

/// C53, where nothing was sent.
#[test]
fn a_refused_connection_frees_the_key() {
    let (mut up, gateway) = start("");
    let clients: Vec<Client> = Dialect::ALL
        .map(|dialect| {
            gateway
                .client("/mcp/up", dialect)
                .header("Idempotency-Key", &format!("free-{dialect:?}"))
        })
        .into();
    // The listing is known, so that only the call fails.
    assert_eq!(clients[0].list().len(), 4);
    up.stop();
    for client in &clients {
        let answer = client.call("pay", json!({}));
        assert_eq!(answer.word(), "external_service_error", "{answer:?}");
        assert_ne!(answer.fault()["outcome"], "unknown", "{answer:?}");
    }
    let up = Upstream::at(up.address(), &["pay", "must", "named", "none"].map(tool));
    for client in &clients {
        until("the server is back", || client.call("pay", json!({})).word() == "ok");
        assert!(replayed(&client.call("pay", json!({}))));
    }
    assert_eq!(up.calls().len(), 3);
}

#[test]
fn a_replay_carries_the_id_of_the_request_that_asks() {
    let (_up, gateway) = start("");
    let call = |id: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"pay","arguments":{{}}}}}}"#
        );
        let headers = [
            ("X-Api-Key", crate::process_support::KEY),
            ("SSO-Emp-Id", "E1"),
            ("MCP-Protocol-Version", "2025-11-25"),
            ("Idempotency-Key", "ids"),
        ];
        let client = gateway.client("/mcp/up", Dialect::Legacy);
        client.raw("/mcp/up", &headers, body.as_bytes()).unwrap()
    };
    assert!(!replayed(&call("1")));
    for id in ["2", "\"2\"", "9007199254740993"] {
        let answer = call(id);
        assert!(replayed(&answer));
        assert!(answer.text().contains(&format!("\"id\":{id},")), "{id}: {answer:?}");
    }
}
