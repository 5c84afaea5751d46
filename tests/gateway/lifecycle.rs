//! How the process ends, and the next one begins: killed, stopped, replaced.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process_support::{
    Dialect, Response, Setup, Upstream, exchange, free_address, records, text_result, tool, until,
};

const PAY: &str = "pay: { risk: write_low, idempotency: optional }";

fn tools() -> [Value; 2] {
    [tool("echo"), tool("pay")]
}

#[test]
fn a_killed_gateway_has_written_what_it_answered() {
    let up = Upstream::start(&tools());
    let home = Setup::new().upstream("up", &up, "", PAY).write();
    let mut known: Vec<Value> = Vec::new();
    for round in 0..3 {
        let mut gateway = home.serve(&[]);
        let answers: Vec<Response> = thread::scope(|scope| {
            let calls: Vec<_> = (0..6)
                .map(|n| {
                    let client = gateway.client("/mcp/up", Dialect::ALL[n % 3]);
                    scope.spawn(move || client.call("pay", json!({ "n": n })))
                })
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        gateway.signal(9);
        gateway.wait();
        let records = home.audit();
        // What was there is there, and unchanged.
        assert_eq!(records[..known.len()], known[..], "{round}");
        for answer in &answers {
            assert_eq!(answer.word(), "ok", "{answer:?}");
            let trace = answer.header("x-trace-id").unwrap();
            let intent = records
                .iter()
                .any(|record| record["event"] == "intent" && record["traceId"] == trace);
            assert!(intent, "{round}: no intent of {trace} in {records:#?}");
        }
        known = records;
    }
    let starts = known.iter().filter(|record| record["event"] == "start").count();
    assert_eq!(starts, 3);
}

#[test]
fn a_write_that_a_kill_cut_short_left_its_intent() {
    let up = Upstream::start(&tools());
    up.on_call(|seen| seen.result(text_result("late")).after(Duration::from_secs(3)));
    let home = Setup::new().upstream("up", &up, "", PAY).write();
    let mut gateway = home.serve(&[]);
    assert_eq!(gateway.client("/mcp/up", Dialect::Lite).list().len(), 2);
    thread::scope(|scope| {
        for dialect in Dialect::ALL {
            let client = gateway.client("/mcp/up", dialect);
            // Its connection breaks.
            scope.spawn(move || {
                let call = json!({ "name": "pay", "arguments": {} });
                assert!(client.try_send("tools/call", call).is_err());
            });
        }
        until("the calls are under way", || up.calls().len() == 3);
        gateway.signal(9);
    });
    gateway.wait();
    let records = home.audit();
    // What the server was told is what the file tells, and that it has no end.
    for seen in up.calls() {
        let trace = seen.header("x-trace-id").unwrap();
        let of: Vec<&Value> = records.iter().filter(|record| record["traceId"] == trace).collect();
        assert_eq!(of.len(), 1, "{records:#?}");
        assert_eq!((&of[0]["event"], &of[0]["tool"]), (&json!("intent"), &json!("up/pay")));
    }
}

#[test]
fn a_torn_line_is_told_and_the_chain_goes_on() {
    let up = Upstream::start(&tools());
    let home = Setup::new().upstream("up", &up, "", PAY).write();
    let mut gateway = home.serve(&[]);
    let client = gateway.client("/mcp/up", Dialect::Modern);
    assert_eq!(client.call("pay", json!({})).word(), "ok");
    gateway.signal(9);
    gateway.wait();
    let path = home.path("audit/hangu.jsonl");
    let before = home.audit();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"argsHash\":\"hmac-sha2").unwrap();
    drop(file);
    let gateway = home.serve(&[]);
    let client = gateway.client("/mcp/up", Dialect::Modern);
    assert_eq!(client.call("pay", json!({})).word(), "ok");
    let text = fs::read_to_string(&path).unwrap();
    let whole: Vec<&str> = text.lines().filter(|line| line.ends_with('}')).collect();
    let read = records(&(whole.join("\n") + "\n"));
    let gap = read.iter().find(|record| record["event"] == "gap").unwrap();
    assert_eq!((&gap["reason"], &gap["torn"]), (&json!("torn_line"), &json!(1)));
    assert_eq!(read[..before.len()], before[..]);
}

#[test]
fn a_stop_drops_no_call_under_way() {
    let up = Upstream::start(&tools());
    up.on_call(|seen| seen.result(text_result("done")).after(Duration::from_millis(600)));
    let home = Setup::new().upstream("up", &up, "", PAY).write();
    let mut gateway = home.serve(&[]);
    // The catalog is there before the calls are counted.
    assert_eq!(gateway.client("/mcp/up", Dialect::Lite).list().len(), 2);
    let answers: Vec<Response> = thread::scope(|scope| {
        let calls: Vec<_> = (0..20)
            .map(|n| {
                let client = gateway.client("/mcp/up", Dialect::ALL[n % 3]);
                let tool = if n % 2 == 0 { "echo" } else { "pay" };
                scope.spawn(move || client.call(tool, json!({ "n": n })))
            })
            .collect();
        until("all calls are under way", || up.calls().len() == 20);
        gateway.signal(15);
        until("no new connection is taken", || {
            exchange(gateway.address, "GET", "/mcp", &[], b"").is_err()
        });
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!(answer.word(), "ok", "{answer:?}");
        assert_eq!(answer.said(), "done");
    }
    assert!(gateway.wait().success(), "{}", gateway.log());
    let records = home.audit();
    let calls = records.iter().filter(|r| r["event"] == "call" && r["method"] == "tools/call");
    assert_eq!(calls.filter(|record| record["outcome"] == "ok").count(), 20);
    assert_eq!(records.last().unwrap()["event"], "stop");
}

#[test]
fn an_idle_connection_does_not_hold_up_a_stop() {
    let up = Upstream::start(&tools());
    let mut gateway = Setup::new().upstream("up", &up, "", PAY).start();
    let idle: Vec<TcpStream> = (0..4)
        .map(|n| {
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            // Two have asked before, two have not said a word.
            if n < 2 {
                let head = format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n\r\n", gateway.address);
                stream.write_all(head.as_bytes()).unwrap();
                let mut status = [0; 12];
                stream.read_exact(&mut status).unwrap();
                assert_eq!(&status, b"HTTP/1.1 401");
            }
            stream
        })
        .collect();
    let begun = Instant::now();
    gateway.signal(15);
    assert!(gateway.wait().success());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    drop(idle);
}

#[test]
fn a_hang_up_ends_nothing_and_says_what_was_loaded() {
    let up = Upstream::start(&tools());
    let home = Setup::new().upstream("up", &up, "", PAY).write();
    let mut gateway = home.serve(&[]);
    gateway.signal(1);
    gateway.wait_for_log("SIGHUP: loaded anew what can be");
    assert_eq!(gateway.client("/mcp/up", Dialect::Lite).list().len(), 2);
}

#[test]
fn a_new_process_takes_over_and_no_connection_is_refused() {
    let up = Upstream::start(&tools());
    up.on_call(|seen| seen.result(text_result("done")).after(Duration::from_millis(30)));
    let admin = free_address();
    let home = Setup::new().upstream("up", &up, "", PAY).admin(admin).write();
    let mut old = home.serve(&[]);
    assert_eq!(old.client("/mcp/up", Dialect::Lite).list().len(), 2);
    let (stop, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut new = thread::scope(|scope| {
        let calls: Vec<_> = (0..6)
            .map(|n| {
                let client = old.client("/mcp/up", Dialect::ALL[n % 3]);
                let (stop, answered) = (&stop, &answered);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let answer = client
                            .try_send("tools/call", json!({ "name": "echo", "arguments": {} }))
                            .unwrap();
                        assert_eq!(answer.word(), "ok", "{answer:?}");
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        until("calls are made", || answered.load(Ordering::Relaxed) > 20);
        let mut new = home.launch(&["--upgrade"]);
        until("it waits for the sockets", || home.path("hangu-upgrade-0.sock").exists());
        // The socket is made once to try, and then for good.
        thread::sleep(Duration::from_millis(300));
        old.signal(3);
        new.wait_until_ready();
        assert!(old.wait().success(), "{}", old.log());
        let before = answered.load(Ordering::Relaxed);
        until("the new one serves", || answered.load(Ordering::Relaxed) > before + 20);
        stop.store(true, Ordering::Relaxed);
        for call in calls {
            call.join().unwrap();
        }
        new
    });
    assert_eq!((new.address, new.admin), (old.address, admin));
    let ready = exchange(new.admin, "GET", "/readyz", &[], b"").unwrap();
    assert_eq!(ready.status, 200, "{ready:?}");
    new.signal(15);
    assert!(new.wait().success());
    let records = home.audit();
    assert_eq!(records.iter().filter(|record| record["event"] == "stop").count(), 2);
}
