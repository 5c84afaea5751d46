//! One key, one execution, whatever becomes of the process.

use std::{
    collections::HashMap,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};

use crate::{
    process_support::{
        self, Client, Dialect, Home, Process, Response, Setup, Upstream, exchange, text_result,
        tool, until,
    },
    support::{self, Answer, Gateway, Reply, Request, Speaks, postgres},
};

const PAY: &str = "pay: { risk: write_low, idempotency: optional }";

fn start(setup: Setup) -> (Upstream, Home) {
    let up = Upstream::start(&[tool("pay")]);
    let home = setup.upstream("up", &up, "", PAY).write();
    (up, home)
}

fn keyed(gateway: &Process, dialect: Dialect, key: &str) -> Client {
    gateway.client("/mcp/up", dialect).header("Idempotency-Key", key)
}

fn kill(mut gateway: Process) {
    gateway.signal(9);
    gateway.wait();
}

pub fn create_database(server: &str, name: &str) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut conn = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        conn.execute(create).await.unwrap();
    });
}

/// The call was made once, and what came of it is not known, or no longer.
#[track_caller]
fn refused(answer: &Response, outcome: &Value) {
    assert_eq!(answer.word(), "conflict", "{answer:?}");
    let fault = answer.fault();
    assert_eq!(fault["outcome"], *outcome, "{fault}");
    assert_eq!(fault["retryable"], false, "{fault}");
}

#[test]
fn a_call_that_a_kill_cut_short_is_never_sent_again() {
    let (up, home) = start(Setup::new());
    up.on_call(|seen| seen.result(text_result("late")).after(Duration::from_secs(3)));
    let gateway = home.serve(&[]);
    assert_eq!(gateway.client("/mcp/up", Dialect::Lite).list().len(), 1);
    thread::scope(|scope| {
        for dialect in Dialect::ALL {
            let client = keyed(&gateway, dialect, &format!("{dialect:?}"));
            // Its connection breaks.
            scope.spawn(move || {
                let call = json!({ "name": "pay", "arguments": { "n": 1 } });
                assert!(client.try_send("tools/call", call).is_err());
            });
        }
        until("the calls are under way", || up.calls().len() == 3);
        gateway.signal(9);
    });
    drop(gateway);
    up.on_call(|seen| seen.result(text_result("fine")));
    for round in 0..2 {
        let gateway = home.serve(&[]);
        for dialect in Dialect::ALL {
            let client = keyed(&gateway, dialect, &format!("{dialect:?}"));
            let answer = client.call("pay", json!({ "n": 1 }));
            refused(&answer, &json!("unknown"));
            assert_eq!(answer.fault()["next"], "ask_human", "{round}: {answer:?}");
            let record = gateway.record_of(&answer);
            assert_eq!(record["idempotency"], "unknown", "{record:#}");
        }
        assert_eq!(up.calls().len(), 3, "{round}");
        kill(gateway);
    }
}

#[test]
fn a_call_that_was_answered_is_not_made_again_after_a_kill() {
    let (up, home) = start(Setup::new());
    let gateway = home.serve(&[]);
    for dialect in Dialect::ALL {
        let client = keyed(&gateway, dialect, &format!("{dialect:?}"));
        assert_eq!(client.call("pay", json!({})).word(), "ok");
    }
    // At once: what was answered was written before.
    kill(gateway);
    let gateway = home.serve(&[]);
    for dialect in Dialect::ALL {
        let answer = keyed(&gateway, dialect, &format!("{dialect:?}")).call("pay", json!({}));
        // The keys of the process are gone, and the result with them.
        refused(&answer, &Value::Null);
        assert!(answer.fault()["message"].as_str().unwrap().contains("completed"), "{answer:?}");
    }
    assert_eq!(up.calls().len(), 3);
}

#[test]
fn an_answer_that_streams_is_written_before_its_end() {
    let (up, home) = start(Setup::new());
    up.on_call(|seen| {
        let request: Value = serde_json::from_str(&seen.body).unwrap();
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/message",
                           "params": { "level": "info", "data": "under way" } });
        let end = json!({ "jsonrpc": "2.0", "id": request["id"], "result": text_result("done") });
        let events = format!("data: {note}\n\ndata: {end}\n\n");
        process_support::Answer::body(200, "text/event-stream", &events)
    });
    let gateway = home.serve(&[]);
    for dialect in Dialect::ALL {
        let client = keyed(&gateway, dialect, &format!("{dialect:?}"));
        let answers = [(); 2].map(|()| client.call("pay", json!({})));
        assert!(answers.iter().all(|answer| answer.said() == "done"), "{answers:?}");
        assert_eq!(answers[1].header("idempotency-replayed"), Some("true"), "{answers:?}");
    }
    kill(gateway);
    let gateway = home.serve(&[]);
    for dialect in Dialect::ALL {
        let answer = keyed(&gateway, dialect, &format!("{dialect:?}")).call("pay", json!({}));
        refused(&answer, &Value::Null);
    }
    assert_eq!(up.calls().len(), 3);
}

#[test]
fn a_kill_at_any_moment_sends_no_call_twice() {
    let (up, home) = start(Setup::new());
    up.on_call(|seen| seen.result(text_result("paid")).after(Duration::from_millis(8)));
    let next = AtomicU32::new(0);
    for round in 0..8_u64 {
        let gateway = home.serve(&[]);
        assert_eq!(gateway.client("/mcp/up", Dialect::Lite).list().len(), 1);
        // All that were begun before; some of them are done, some unknown, some were never sent.
        let known = next.load(Ordering::Relaxed);
        let call = |gateway: &Process, n: u32| {
            let client = keyed(gateway, Dialect::ALL[n as usize % 3], &format!("key-{n}"));
            let params = json!({ "name": "pay", "arguments": { "n": n } });
            client.try_send("tools/call", params)
        };
        for n in 0..known {
            let answer = call(&gateway, n).unwrap();
            assert!(["ok", "conflict"].contains(&&*answer.word()), "{answer:?}");
        }
        thread::scope(|scope| {
            for _ in 0..3 {
                let (gateway, next, call) = (&gateway, &next, &call);
                scope.spawn(move || {
                    // Until the gateway is gone.
                    while call(gateway, next.fetch_add(1, Ordering::Relaxed)).is_ok() {}
                });
            }
            until("calls are under way", || next.load(Ordering::Relaxed) > known + 6);
            thread::sleep(Duration::from_millis(17 * round));
            gateway.signal(9);
        });
    }
    let mut sent: HashMap<u64, u32> = HashMap::new();
    for seen in up.calls() {
        *sent.entry(seen.params["arguments"]["n"].as_u64().unwrap()).or_default() += 1;
    }
    // Of each round at least those that were answered before the kill.
    assert!(sent.len() >= 8 * 3, "{sent:?}");
    assert!(sent.values().all(|times| *times == 1), "{sent:?}");
}

#[test]
fn a_restart_replays_byte_for_byte() {
    let body = r#"{"jsonrpc":"2.0","id":{{id}},"result":{"content":[{"type":"text","text":"p\u00e4id"}],"structuredContent":{"z":1.0,"a":9007199254740993,"z2":1e2},"isError":false}}"#;
    let up = support::Upstream::answering(Speaks::Handshake("2025-11-25"), Answer::json(body));
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let start = |secret: u8| {
        let yaml = format!(
            "store: sqlite:hangu.db\nupstreams: {{ up: {{ url: \"{}\" }} }}\n\
             callers: {{ tests: {{ keys: [{{ env: KEY }}], tenant: acme, \
             identity: {{ empId: E1, roles: [member] }} }} }}\n",
            up.url()
        );
        Gateway::start_in(
            folder.clone(),
            Some([secret; 32]),
            &yaml,
            &[
                "version: hangu/v1\nkind: Policy\nscope: platform\nrules:\n  - { id: a, effect: allow }\n",
                "version: hangu/v1\nkind: Tools\nupstreams:\n  up:\n    default: { risk: write_low, idempotency: optional }\n",
            ],
        )
    };
    let call = |gateway: &Gateway| -> Reply {
        Request::handshake(support::ECHO).header("Idempotency-Key", "k1").ask(gateway)
    };
    let gateway = start(1);
    let first = call(&gateway);
    drop(gateway);
    let gateway = start(1);
    let again = call(&gateway);
    drop(gateway);
    assert_eq!(again.header("idempotency-replayed"), Some("true"), "{again:?}");
    let part = |reply: &Reply, name| reply.member(&["result", name]).unwrap();
    for name in ["content", "structuredContent", "isError"] {
        assert_eq!(part(&first, name), part(&again, name));
    }
    assert_eq!(part(&again, "structuredContent"), r#"{"z":1.0,"a":9007199254740993,"z2":1e2}"#);
    // Another secret opens nothing, and nothing is sent for that.
    let other = call(&start(2));
    assert!(other.text().contains("completed"), "{other:?}");
    assert_eq!(up.calls().len(), 1);
}

#[test]
fn two_processes_with_one_database_send_once() {
    let Some(server) = postgres::shared() else { return };
    let name = format!("hangu_gateway_{:016x}", rand::random::<u64>());
    create_database(&server, &name);
    let up = Upstream::start(&[tool("pay")]);
    up.on_call(|seen| seen.result(text_result("paid")).after(Duration::from_millis(30)));
    let setup = Setup::new()
        .config("store: { env: DATABASE }")
        .env("DATABASE", &format!("{server}/{name}"))
        .upstream("up", &up, "", PAY);
    let gateways = [setup.start(), setup.start()];
    for gateway in &gateways {
        assert_eq!(gateway.client("/mcp/up", Dialect::Lite).list().len(), 1);
    }
    for round in 0..10 {
        let key = format!("key-{round}");
        let answers: Vec<Response> = thread::scope(|scope| {
            let calls: Vec<_> = (0..12)
                .map(|n| {
                    let client = keyed(&gateways[n % 2], Dialect::ALL[n % 3], &key);
                    scope.spawn(move || client.call("pay", json!({ "n": 1 })))
                })
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        assert_eq!(up.calls().len(), round + 1, "{answers:?}");
        let ok = answers.iter().filter(|answer| answer.word() == "ok").count();
        // Those of the other process cannot open the answer: they have no secret in common.
        assert!(ok >= 6, "{answers:?}");
        assert!(answers.iter().all(|a| ["ok", "conflict"].contains(&&*a.word())), "{answers:?}");
    }
    for gateway in &gateways {
        assert!(!gateway.log().contains(&name) && !gateway.log().contains("postgres://"));
    }
}

#[test]
fn a_full_disk_stops_keys_and_nothing_else_until_there_is_room() {
    let up = Upstream::start(&[tool("pay"), tool("echo")]);
    let setup = Setup::new().upstream("up", &up, "", PAY).file_blocks(512);
    let mut gateway = setup.start();
    let mut down = None;
    let mut sent = 0;
    for n in 0..60 {
        let answer =
            keyed(&gateway, Dialect::ALL[n % 3], &format!("key-{n}")).call("pay", json!({}));
        if answer.word() != "ok" {
            down = Some((n, answer));
            break;
        }
        sent += 1;
    }
    let (n, answer) = down.unwrap();
    let fault = answer.fault();
    assert_eq!((&fault["code"], &fault["retryable"]), (&json!("internal"), &json!(true)));
    assert!(fault["message"].as_str().unwrap().contains("store"), "{fault}");
    let record = gateway.record_of(&answer);
    assert_eq!(record["outcome"], "gateway_error", "{record:#}");
    assert_eq!(up.calls().len(), sent);
    for dialect in Dialect::ALL {
        let client = gateway.client("/mcp/up", dialect);
        assert_eq!(client.call("pay", json!({})).word(), "ok", "{dialect:?}");
        assert_eq!(client.call("echo", json!({})).word(), "ok", "{dialect:?}");
    }
    gateway.wait_for_log("The store cannot be written");
    let ready = exchange(gateway.admin, "GET", "/readyz", &[], b"").unwrap();
    assert_eq!(ready.status, 200, "{ready:?}");
    assert!(ready.text().contains("sqlite, failing"), "{ready:?}");
    // Room again, and it goes on by itself; the key was never sent.
    let room = Command::new("prlimit")
        .args(["--pid", &gateway.pid().to_string(), "--fsize=unlimited:"])
        .status()
        .unwrap();
    assert!(room.success());
    let client = keyed(&gateway, Dialect::Modern, &format!("key-{n}"));
    until("it is written again", || client.call("pay", json!({})).word() == "ok");
    gateway.wait_for_log("The store can be written again");
    assert_eq!(client.call("pay", json!({})).header("idempotency-replayed"), Some("true"));
}
