//! Batches of 2025-03-26: who may send one, what refuses one, and how each message of one is
//! answered, recorded, cancelled and kept apart from the others (C05 is the other revisions').

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    Answer, Client, ECHO, Gateway, OK, Reply, Request, Signal, Speaks, Upstream,
    client::open_session, member, wait_for,
};

const SOON: Duration = Duration::from_secs(5);

fn echo(id: &str) -> String {
    call(id, "echo", "")
}

fn call(id: &str, tool: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"n":{id}}}{meta}}}}}"#
    )
}

fn batch(messages: &[String]) -> String {
    format!("[{}]", messages.join(","))
}

/// Says which arguments it was given.
fn mirror() -> Upstream {
    Upstream::scripted(Speaks::Handshake("2025-11-25"), |request| {
        let text = json!(request.arguments());
        Answer::json(format!(
            r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#
        ))
    })
}

fn array(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/json"), "{}", reply.text());
    serde_json::from_str(&reply.text()).unwrap()
}

#[test]
fn only_the_revision_that_has_batches_takes_one() {
    let upstream = mirror();
    let gateway = Gateway::before(&upstream);
    let body = batch(&[echo("1"), echo("2")]);
    let in_session = |version| {
        let session = open_session(&gateway, version);
        Request::plain(body.clone()).header("Mcp-Session-Id", session)
    };
    let named = |version| Request::plain(body.clone()).header("MCP-Protocol-Version", version);
    for (what, request, status) in [
        ("agreed on", in_session("2025-03-26"), 200),
        (
            "agreed on and named",
            in_session("2025-03-26").header("MCP-Protocol-Version", "2025-03-26"),
            200,
        ),
        ("named", named("2025-03-26"), 200),
        ("assumed", Request::plain(body.clone()), 200),
        ("agreed on 2025-06-18", in_session("2025-06-18"), 400),
        ("agreed on 2025-11-25", in_session("2025-11-25"), 400),
        ("named 2025-06-18", named("2025-06-18"), 400),
        ("named 2025-11-25", named("2025-11-25"), 400),
        ("named 2026-07-28", named("2026-07-28"), 400),
        ("named another", named("1900-01-01"), 400),
        ("no such session", Request::plain(body.clone()).header("Mcp-Session-Id", "x"), 404),
    ] {
        let before = upstream.calls().len();
        let reply = request.ask(&gateway);
        assert_eq!(reply.status, status, "{what}: {}", reply.text());
        let ran = upstream.calls().len() - before;
        assert_eq!(ran, if status == 200 { 2 } else { 0 }, "{what}");
        if status != 200 {
            assert_eq!((reply.rpc_code(), reply.id()), (Some(-32600), None), "{what}");
        }
    }
    let required = Gateway::before_with(&upstream, "", "sessions: required");
    assert_eq!(Request::plain(body).ask(&required).status, 400);
}

#[test]
fn what_refuses_a_batch_refuses_all_of_it() {
    let upstream = mirror();
    let gateway = Gateway::before_with(&upstream, "", "edge: { max_batch: 3 }");
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let modern = call(
        "2",
        "echo",
        r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#,
    );
    let keyed = Request::plain(batch(&[echo("1"), echo("2")])).header("Idempotency-Key", "k");
    let plain = |messages: &[String]| Request::plain(batch(messages));
    for (request, why) in [
        (plain(&[]), "empty"),
        (Request::plain(" [ ] "), "empty"),
        (plain(&[echo("1"), initialize.into()]), "`initialize`"),
        (plain(&[echo("1"), modern]), "2026-07-28"),
        (plain(&["1", "2", "3", "4"].map(echo)), "holds 4 messages, and at most 3"),
        (plain(&[echo("1"), echo("1")]), "same id"),
        (plain(&[echo(r#""a""#), echo(r#""\u0061""#)]), "same id"),
        (keyed, "Idempotency-Key"),
    ] {
        let reply = request.ask(&gateway);
        assert_eq!((reply.status, reply.rpc_code()), (400, Some(-32600)), "{why}");
        let message = reply.member(&["error", "message"]).unwrap();
        assert!(message.contains(why), "{why}: {message}");
    }
    assert_eq!(upstream.calls().len(), 0);
    // A number and a string are two ids.
    let reply = Request::plain(batch(&[echo("1"), echo(r#""1""#)])).ask(&gateway);
    assert_eq!(array(&reply).len(), 2);
}

#[test]
fn each_message_is_answered_for_itself() {
    let upstream = mirror();
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-03-26");
    let messages = [
        echo("7"),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.into(),
        r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#.into(),
        r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#.into(),
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#.into(),
        call("8", "wipe", ""),
        r#"{"jsonrpc":"2.0","id":9,"method":"no/such"}"#.into(),
        "5".into(),
        r#"{"jsonrpc":"2.0","id":10}"#.into(),
        r#"[{"jsonrpc":"2.0","id":11,"method":"ping"}]"#.into(),
        echo(r#""é""#),
    ];
    let request = Request::plain(batch(&messages)).header("Mcp-Session-Id", &session);
    let answers = array(&request.ask(&gateway));
    let code = |answer: &Value| answer["error"]["code"].as_i64();
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    let none = Value::Null;
    let expected = [
        &json!(7),
        &json!("l"),
        &json!("p"),
        &json!(8),
        &json!(9),
        &none,
        &none,
        &none,
        &json!("é"),
    ];
    assert_eq!(ids, expected, "{answers:#?}");
    assert_eq!(answers[0]["result"]["content"][0]["text"], r#"{"n":7}"#);
    assert!(answers[1]["result"]["tools"].as_array().unwrap().iter().any(|t| t["name"] == "echo"));
    assert_eq!(answers[2]["result"], json!({}));
    let codes: Vec<_> = answers[3..8].iter().map(code).collect();
    let codes: Vec<_> = codes.into_iter().flatten().collect();
    assert_eq!(codes, [-32602, -32601, -32600, -32600, -32600]);
    // An error without an id has none, not a null one.
    assert!(answers[5].get("id").is_none());
    assert_eq!(answers[8]["result"]["content"][0]["text"], r#"{"n":"é"}"#);
    assert_eq!(upstream.calls().len(), 2);
}

#[test]
fn what_wants_no_answer_is_accepted() {
    let upstream = mirror();
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-03-26");
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for body in [format!("[{note}]"), format!("[{note},{response}]"), format!("[{response}]")] {
        let reply = Request::plain(body.clone()).header("Mcp-Session-Id", &session).ask(&gateway);
        assert_eq!((reply.status, reply.text().as_str()), (202, ""), "{body}");
        assert_eq!(reply.header("content-type"), None);
    }
}

/// How many calls the server has at once, and has had at most.
#[derive(Default)]
struct Load {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[test]
fn so_many_run_at_once_and_no_more() {
    let load = Arc::new(Load::default());
    let of_server = load.clone();
    let upstream = Upstream::scripted(Speaks::Stateless, move |_| {
        let now = of_server.now.fetch_add(1, Ordering::SeqCst) + 1;
        of_server.most.fetch_max(now, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(60));
        of_server.now.fetch_sub(1, Ordering::SeqCst);
        Answer::json(OK)
    });
    let gateway = Gateway::before_with(&upstream, "", "edge: { batch_concurrency: 3 }");
    let ids: Vec<String> = (0..12).map(|id| id.to_string()).collect();
    let calls: Vec<String> = ids.iter().map(|id| echo(id)).collect();
    let answers = array(&Request::plain(batch(&calls)).ask(&gateway));
    let answered: Vec<String> = answers.iter().map(|answer| answer["id"].to_string()).collect();
    assert_eq!(answered, ids, "in the order of the requests");
    assert_eq!(load.most.load(Ordering::SeqCst), 3);
}

#[test]
fn one_answer_that_streams_makes_a_stream_of_all() {
    let progress = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":{{token}},\"progress\":1}}\n\n";
    let go_on = Signal::new();
    let signal = go_on.clone();
    let upstream = Upstream::scripted(Speaks::Stateless, move |request| {
        let slow = request.member(&["params", "name"]).as_deref() == Some(r#""slow""#);
        let end =
            format!("data: {}\n\n", OK.replace("\"ok\"", &format!("{:?}", request.arguments())));
        match slow {
            true => Answer::events([format!("{progress}{progress}"), end]).stepwise(&signal),
            false => Answer::json(OK),
        }
    });
    let gateway = Gateway::before(&upstream);
    let token = |token: &str| format!(r#","_meta":{{"progressToken":{token}}}"#);
    let body = batch(&[
        echo("1"),
        call("2", "slow", &token("\"p\"")),
        call("3", "slow", &token("7")),
        r#"{"jsonrpc":"2.0","id":4,"method":"tools/list"}"#.into(),
    ]);
    let mut client = Client::of(&gateway);
    client.send(&Request::plain(body));
    (0..4).for_each(|_| go_on.give());
    let head = client.head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    let mut events = Vec::new();
    while let Some(event) = client.event() {
        let data = event.lines().filter_map(|line| line.strip_prefix("data: "));
        events.push(data.collect::<String>());
    }
    let mut ids: Vec<String> = events.iter().filter_map(|event| member(event, &["id"])).collect();
    ids.sort();
    assert_eq!(ids, ["1", "2", "3", "4"], "{events:#?}");
    for (id, token) in [("2", "\"p\""), ("3", "7")] {
        let end = events.iter().position(|event| member(event, &["id"]).as_deref() == Some(id));
        let own =
            |event: &&String| member(event, &["params", "progressToken"]).as_deref() == Some(token);
        let before = events[..end.unwrap()].iter().filter(own).count();
        let all = events.iter().filter(own).count();
        assert_eq!((before, all), (2, 2), "{events:#?}");
    }
}

#[test]
fn each_call_leaves_its_own_record_in_one_trace() {
    let upstream = mirror();
    let gateway = Gateway::before(&upstream);
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let body = batch(&[echo("1"), note.into(), call("2", "wipe", ""), echo("3")]);
    let reply = Request::plain(body).ask(&gateway);
    let trace = reply.header("x-trace-id").unwrap().to_owned();
    let of_batch = || -> Vec<Value> {
        let is = |record: &Value| record["event"] == "call" && record["traceId"] == *trace;
        gateway.audit().into_iter().filter(is).collect()
    };
    wait_for("each message has left a record", SOON, || of_batch().len() == 4);
    let records = of_batch();
    let calls: Vec<&Value> = records.iter().filter(|r| r["method"] == "tools/call").collect();
    assert_eq!(calls.len(), 3, "{records:#?}");
    let distinct = |name: &str| calls.iter().map(|r| r[name].to_string()).collect::<HashSet<_>>();
    assert_eq!(distinct("id").len(), 3);
    let ran: Vec<_> = calls.iter().filter(|record| record["outcome"] == "ok").collect();
    assert_eq!(ran.len(), 2, "{records:#?}");
    assert_ne!(ran[0]["toolCallId"], ran[1]["toolCallId"]);
    assert!(ran[0]["toolCallId"].is_string(), "{records:#?}");
    assert_ne!(ran[0]["argsHash"], ran[1]["argsHash"]);
    assert_eq!(calls.iter().filter(|record| record["outcome"] == "denied").count(), 1);
    for record in &records {
        assert_eq!((&record["tenant"], &record["dialect"]), (&json!("acme"), &json!("mcp")));
        assert!(record["method"].is_string(), "{record:#?}");
    }
    // The server was told of the same trace, by two spans of it.
    let spans: HashSet<String> = upstream
        .calls()
        .iter()
        .map(|request| request.header("traceparent").unwrap().to_owned())
        .collect();
    assert_eq!(spans.len(), 2);
    assert!(spans.iter().all(|parent| parent.contains(&trace)), "{spans:?}");
    // A batch that was refused leaves the one record of its request.
    let refused = Request::plain("[]").ask(&gateway);
    let trace = refused.header("x-trace-id").unwrap().to_owned();
    gateway.audited("the refused batch", |record| {
        record["traceId"] == *trace && record["outcome"] == "caller_error"
    });
}

#[test]
fn one_call_of_a_batch_can_be_cancelled() {
    let upstream = Upstream::scripted(Speaks::Stateless, |request| {
        let slow = request.member(&["params", "name"]).as_deref() == Some(r#""slow""#);
        let wait = if slow { Duration::from_secs(10) } else { Duration::ZERO };
        Answer::json(OK).delayed(wait)
    });
    let gateway = Gateway::before(&upstream);
    let session = open_session(&gateway, "2025-03-26");
    let mut client = Client::of(&gateway);
    let body = batch(&[echo("1"), call("2", "slow", "")]);
    client.send(&Request::plain(body).header("Mcp-Session-Id", &session));
    wait_for("both calls are there", SOON, || upstream.calls().len() == 2);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    let reply = Request::plain(cancel).header("Mcp-Session-Id", &session).ask(&gateway);
    assert_eq!(reply.status, 202);
    let answers = array(&client.read());
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(1)], "nothing is sent for what was cancelled");
    wait_for("the server sees it", SOON, || upstream.hang_ups() == 1);
    gateway.audited("the cancelled call", |record| record["outcome"] == "cancelled");
}

/// Also of those whose turn had not come.
#[test]
fn a_client_that_leaves_ends_none_of_its_calls() {
    let upstream = Upstream::answering(
        Speaks::Stateless,
        Answer::json(OK).delayed(Duration::from_millis(150)),
    );
    let gateway = Gateway::before_with(&upstream, "", "edge: { batch_concurrency: 1 }");
    let mut client = Client::of(&gateway);
    client.send(&Request::plain(batch(&["1", "2", "3"].map(echo))));
    wait_for("the first call is there", SOON, || upstream.calls().len() == 1);
    drop(client);
    wait_for("the last call is there", SOON, || upstream.calls().len() == 3);
    wait_for("all of them ended well", SOON, || {
        let ok = |record: &Value| record["method"] == "tools/call" && record["outcome"] == "ok";
        gateway.audit().iter().filter(|record| ok(record)).count() == 3
    });
    assert_eq!(upstream.hang_ups(), 0);
    assert_eq!(Request::plain(format!("[{ECHO}]")).ask(&gateway).status, 200);
}
