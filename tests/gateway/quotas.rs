//! Quotas: what a spent one stops, how it is told, what costs nothing, and what survives.

mod shared;

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};

use crate::process_support::{
    Answer, Client, Dialect, GLOBEX_KEY, Home, KEY, Process, Response, Setup, Upstream,
    text_result, tool, until,
};

const TOOLS: &str = "dear: { risk: read_low, cost: 20 }, cheap: { risk: read_low, cost: 1 }, \
                     free: { risk: read_low, cost: 0 }";

/// A quota of a hundred, so narrowed, with these steps.
fn quota(per: &str, steps: &str) -> String {
    format!(
        "version: hangu/v1\nkind: Policy\nscope: platform\nquotas:\n  \
         - {{ id: year-cost, per: [{per}], budget: {{ cost: 100, every: year, zone: Europe/Paris }}, \
         steps: [{steps}] }}\n"
    )
}

const HIDE: &str =
    "{ at: 80%, do: warn }, { at: 100%, do: hide, cost_at_least: 5 }, { at: 110%, do: deny }";

fn setup(per: &str, steps: &str) -> (Upstream, Setup) {
    let up = Upstream::start(&[tool("dear"), tool("cheap"), tool("free")]);
    let setup =
        Setup::new().upstream("up", &up, "", TOOLS).policy("quota.yaml", &quota(per, steps));
    (up, setup)
}

fn ready(gateway: &Process) {
    until("it is listed", || !gateway.client("/mcp/up", Dialect::Lite).list().is_empty());
}

fn start(per: &str, steps: &str) -> (Upstream, Process) {
    let (up, setup) = setup(per, steps);
    let gateway = setup.start();
    ready(&gateway);
    (up, gateway)
}

fn meta(answer: &Response, key: &str) -> Value {
    answer.result()["_meta"][key].clone()
}

/// Every listed tool can be called, and no other.
#[track_caller]
fn lists_what_it_calls(client: &Client, expected: &[&str]) {
    let listed = client.list();
    assert_eq!(listed, expected);
    for name in ["dear", "cheap", "free"] {
        let answer = client.call(name, json!({}));
        let through = answer.word() == "ok";
        assert_eq!(through, listed.iter().any(|known| known == name), "{name}: {answer:?}");
        assert!(through || answer.word() == "quota_exhausted", "{name}: {answer:?}");
    }
}

#[test]
fn a_spent_quota_warns_then_hides_what_is_dear_then_refuses_all() {
    for dialect in Dialect::ALL {
        let (up, gateway) = start("tenant", HIDE);
        let client = gateway.client("/mcp/up", dialect);
        for n in 1..=3 {
            let answer = client.call("dear", json!({}));
            assert_eq!(meta(&answer, "dev.hangu/quota"), Value::Null, "{n}: {answer:?}");
        }
        let warned = client.call("dear", json!({}));
        let note = &meta(&warned, "dev.hangu/quota")[0];
        assert_eq!((&note["id"], &note["used"]), (&json!("year-cost"), &json!(80)), "{warned:?}");
        assert_eq!((&note["budget"], &note["reached"]), (&json!(100), &json!("80%")));
        let record = gateway.record_of(&warned);
        assert_eq!(record["cost"], 20, "{record:#}");
        let spent = json!([{ "id": "year-cost", "used": 80, "budget": 100 }]);
        assert_eq!(record["quota"], spent, "{record:#}");
        assert_eq!(client.list(), ["dear", "cheap", "free"]);
        assert_eq!(client.call("dear", json!({})).word(), "ok");
        // From here on what costs five and more is gone: from lists and from calls.
        assert_eq!(client.list(), ["cheap", "free"], "{dialect:?}");
        let refused = client.call("dear", json!({}));
        let fault = refused.fault();
        assert_eq!(fault["code"], "quota_exhausted", "{refused:?}");
        assert_eq!((&fault["limit"], &fault["next"]), (&json!("year-cost"), &json!("degrade")));
        assert_eq!(fault["retryable"], false, "{fault}");
        let message = fault["message"].as_str().unwrap();
        assert!(message.contains("100 of 100 for this year"), "{message}");
        assert!(message.contains("-01-01 00:00 (Europe/Paris)"), "{message}");
        let wait = fault["retryAfterMs"].as_u64().unwrap();
        assert!(wait < 366 * 86_400_000, "{wait}");
        let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!(seconds * 1000 >= wait, "{seconds} s and {wait} ms");
        assert_eq!(refused.status, if dialect == Dialect::Lite { 429 } else { 200 });
        let record = gateway.record_of(&refused);
        assert_eq!(
            (&record["outcome"], &record["code"], &record["limits"]),
            (&json!("quota_exhausted"), &json!("quota_exhausted"), &json!(["year-cost"])),
            "{record:#}"
        );
        assert_eq!(record.get("cost"), None, "{record:#}");
        lists_what_it_calls(&client, &["cheap", "free"]);
        while client.call("cheap", json!({})).word() == "ok" {}
        lists_what_it_calls(&client, &["free"]);
        assert_eq!(up.calls().iter().filter(|seen| seen.tool() == "cheap").count(), 10);
        // Another tenant has its own.
        let globex = Client::new(gateway.address, "/mcp/up", dialect).key(GLOBEX_KEY);
        lists_what_it_calls(&globex.employee("G1"), &["dear", "cheap", "free"]);
        let metrics = gateway.metrics();
        let line = |begin: &str| metrics.lines().find(|line| line.starts_with(begin));
        let refusals = "hangu_limit_rejections_total{hangu_limit_name=\"year-cost\",\
                        hangu_limit_kind=\"quota\"";
        assert!(line(refusals).is_some(), "{metrics}");
        until("how much is spent is told", || {
            gateway.metrics().lines().any(|line| {
                line.starts_with("hangu_quota_utilization{hangu_limit_name=\"year-cost\"")
                    && line.contains("acme")
                    && line.ends_with(" 1.100")
            })
        });
    }
}

#[test]
fn what_a_quota_of_one_employee_hides_others_see() {
    let (_up, gateway) = start("principal", "{ at: 100%, do: hide, cost_at_least: 2 }");
    let clients = |employee: &str| {
        [Dialect::Modern, Dialect::Lite]
            .map(|dialect| gateway.client("/mcp/up", dialect).employee(employee))
    };
    let [one, _] = clients("E1");
    for _ in 0..5 {
        assert_eq!(one.call("dear", json!({})).word(), "ok");
    }
    for client in clients("E1") {
        lists_what_it_calls(&client, &["cheap", "free"]);
    }
    for client in clients("E2") {
        lists_what_it_calls(&client, &["dear", "cheap", "free"]);
    }
}

/// A stream of notices of an employee's.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(gateway: &Process, employee: &str) -> Self {
        let body = json!({ "jsonrpc": "2.0", "id": "a", "method": "subscriptions/listen",
            "params": { "notifications": { "toolsListChanged": true }, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {} } } })
        .to_string();
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let request = format!(
            "POST /mcp/up HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {KEY}\r\n\
             SSO-Emp-Id: {employee}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
             Mcp-Method: subscriptions/listen\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut stream = Self(BufReader::new(socket));
        stream.until("acknowledged");
        stream
    }

    fn until(&mut self, word: &str) {
        let mut text = String::new();
        while !text.contains(word) {
            let read = self.0.read_line(&mut text).unwrap_or(0);
            assert!(read > 0, "it ended without `{word}`: {text}");
        }
    }

    /// Whether nothing of the kind has come for a while.
    fn stays_silent(mut self) -> bool {
        self.0.get_ref().set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut text = String::new();
        while self.0.read_line(&mut text).is_ok_and(|read| read > 0) {}
        !text.contains("list_changed")
    }
}

#[test]
fn whoever_listens_hears_when_a_list_changes_and_nobody_else() {
    let (_up, gateway) = start("principal", "{ at: 100%, do: hide, cost_at_least: 2 }");
    let (mut own, other) = (Stream::open(&gateway, "E1"), Stream::open(&gateway, "E2"));
    let client = gateway.client("/mcp/up", Dialect::Modern);
    for _ in 0..5 {
        assert_eq!(client.call("dear", json!({})).word(), "ok");
    }
    own.until("notifications/tools/list_changed");
    assert_eq!(client.list(), ["cheap", "free"]);
    assert!(other.stays_silent());
}

#[test]
fn what_never_left_costs_nothing_and_what_failed_does() {
    for dialect in Dialect::ALL {
        let (mut up, gateway) = start("tenant", "{ at: 100%, do: deny }");
        let client = gateway.client("/mcp/up", dialect);
        let used = |answer: &Response| gateway.record_of(answer)["quota"][0]["used"].clone();
        // A failed tool has worked.
        up.on_call(|seen| seen.result(json!({ "content": [], "isError": true })));
        let failed = client.call("dear", json!({}));
        assert_eq!((failed.word(), used(&failed)), ("tool_error".to_owned(), json!(20)));
        // So has one of which nobody knows what it did.
        up.on_call(|_| Answer::body(500, "text/plain", "no"));
        let broken = client.call("dear", json!({}));
        assert_eq!(broken.word(), "external_service_error", "{broken:?}");
        assert_eq!(used(&broken), 40, "{broken:?}");
        // A connection that never came about has not.
        up.stop();
        for _ in 0..10 {
            let refused = client.call("dear", json!({}));
            assert_eq!(refused.word(), "external_service_error", "{refused:?}");
            let record = gateway.record_of(&refused);
            assert_eq!((&record["cost"], &record["quota"][0]["used"]), (&json!(0), &json!(40)));
        }
        let address = up.address();
        let up = Upstream::at(address, &[tool("dear"), tool("cheap"), tool("free")]);
        until("it answers again", || client.call("free", json!({})).word() == "ok");
        for n in 1..=3 {
            let answer = client.call("dear", json!({}));
            assert_eq!((answer.word(), used(&answer)), ("ok".to_owned(), json!(40 + n * 20)));
        }
        assert_eq!(client.call("dear", json!({})).word(), "quota_exhausted", "{dialect:?}");
        drop(up);
    }
}

#[test]
fn a_replay_costs_nothing_and_comes_through_a_spent_quota() {
    let up = Upstream::start(&[tool("pay")]);
    let gateway = Setup::new()
        .upstream("up", &up, "", "pay: { risk: write_low, idempotency: optional, cost: 60 }")
        .policy("quota.yaml", &quota("tenant", "{ at: 100%, do: deny }"))
        .start();
    let keyed =
        |key: &str| gateway.client("/mcp/up", Dialect::Modern).header("Idempotency-Key", key);
    until("it is paid", || keyed("k1").call("pay", json!({})).word() == "ok");
    for _ in 0..3 {
        let answer = keyed("k1").call("pay", json!({}));
        assert_eq!(answer.header("idempotency-replayed"), Some("true"), "{answer:?}");
        let record = gateway.record_of(&answer);
        assert_eq!((record.get("cost"), record.get("quota")), (None, None), "{record:#}");
    }
    // It does not fit any more. The key was not used: it is free once there is room.
    for _ in 0..2 {
        assert_eq!(keyed("k2").call("pay", json!({})).word(), "quota_exhausted");
    }
    assert_eq!(keyed("k1").call("pay", json!({})).word(), "ok");
    assert_eq!(up.calls().len(), 1);
}

#[test]
fn dear_calls_run_as_a_cheaper_tool_and_both_are_named() {
    let schema = json!({ "type": "object", "properties": { "q": { "type": "string" } },
                         "required": ["q"] });
    let with = |name: &str| json!({ "name": name, "inputSchema": schema });
    for dialect in Dialect::ALL {
        let up = Upstream::start(&[with("large"), tool("odd")]);
        let other = Upstream::start(&[with("small")]);
        other.on_call(|seen| {
            let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a" });
            let said = json!({ "type": "text", "text": seen.tool() });
            seen.result(json!({ "content": [said, link] }))
        });
        let mut gateway = Setup::new()
            .upstream(
                "up",
                &up,
                "",
                "large: { risk: read_low, cost: 20 }, odd: { risk: read_low, cost: 20 }",
            )
            .upstream("other", &other, "", "small: { risk: read_low, cost: 1 }")
            .policy(
                "quota.yaml",
                &quota(
                    "tenant",
                    "{ at: 40%, do: degrade, to: other/small }, { at: 50%, do: deny }",
                ),
            )
            .start();
        let client = gateway.client("/mcp", dialect);
        until("all are listed", || client.list().len() == 3);
        let call = || client.call("up__large", json!({ "q": "x" }));
        assert_eq!([call().said(), call().said()], ["ok", "ok"]);
        // What has nothing to stand in for it is gone.
        assert_eq!(client.list(), ["up__large", "other__small"], "{dialect:?}");
        assert_eq!(client.call("up__odd", json!({})).word(), "quota_exhausted");
        let answer = call();
        assert_eq!(answer.said(), "small", "{answer:?}");
        let note = meta(&answer, "dev.hangu/degraded");
        let named = json!({ "from": "up/large", "to": "other/small", "quota": "year-cost" });
        assert_eq!(note, named, "{answer:?}");
        // In the names of the server that answered.
        assert_eq!(answer.result()["content"][1]["uri"], "other+file:///a", "{answer:?}");
        let record = gateway.record_of(&answer);
        assert_eq!(
            (&record["tool"], &record["degradedTo"], &record["upstream"], &record["cost"]),
            (&json!("up/large"), &json!("other/small"), &json!("other"), &json!(1)),
            "{record:#}"
        );
        // Its own arguments are checked as ever.
        assert_eq!(client.call("up__large", json!({ "q": 1 })).word(), "invalid_args");
        while call().word() == "ok" {}
        assert_eq!(client.list(), [""; 0]);
        assert_eq!(call().word(), "quota_exhausted");
        assert_eq!((up.calls().len(), other.calls().len()), (2, 10));
        gateway.wait_for_log("sends calls of `up/odd` to `other/small`");
    }
}

#[test]
fn a_degraded_call_is_replayed_as_what_it_was() {
    let up = Upstream::start(&[tool("large"), tool("small")]);
    up.on_call(|seen| seen.result(text_result(seen.tool())));
    let gateway = Setup::new()
        .upstream(
            "up",
            &up,
            "",
            "large: { risk: write_low, idempotency: optional, cost: 60 }, \
             small: { risk: write_low, idempotency: optional, cost: 1 }",
        )
        .policy("quota.yaml", &quota("tenant", "{ at: 50%, do: degrade, to: up/small }"))
        .start();
    let client = gateway.client("/mcp/up", Dialect::Modern).header("Idempotency-Key", "k1");
    until("it runs", || client.call("large", json!({})).word() == "ok");
    for _ in 0..2 {
        let answer = client.call("large", json!({}));
        assert_eq!(answer.said(), "small", "{answer:?}");
        assert_eq!(answer.header("idempotency-replayed"), Some("true"), "{answer:?}");
        assert_eq!(meta(&answer, "dev.hangu/degraded")["to"], "up/small", "{answer:?}");
    }
    assert_eq!(up.calls().len(), 1);
}

#[test]
fn a_cheaper_tool_that_the_caller_may_not_use_is_no_way_out() {
    let up = Upstream::start(&[tool("large"), tool("small")]);
    let gateway = Setup::new()
        .upstream("up", &up, "", "large: { risk: read_low, cost: 60 }, small: { risk: read_high }")
        .policy("quota.yaml", &quota("tenant", "{ at: 50%, do: degrade, to: up/small }"))
        .start();
    let client = gateway.client("/mcp/up", Dialect::Modern);
    until("the catalog is known", || client.send("tools/list", json!({})).status == 200);
    assert_eq!(client.list(), [""; 0]);
    let answer = client.call("large", json!({}));
    assert_eq!(answer.word(), "quota_exhausted", "{answer:?}");
    assert!(!answer.text().contains("read_high"), "{answer:?}");
    assert_eq!(up.calls().len(), 0);
}

#[test]
fn a_change_of_the_budget_is_no_fresh_start() {
    let (_up, gateway) = start("tenant", "{ at: 100%, do: deny }");
    let client = gateway.client("/mcp/up", Dialect::Modern);
    for _ in 0..5 {
        assert_eq!(client.call("dear", json!({})).word(), "ok");
    }
    assert_eq!(client.list(), ["free"]);
    let file = gateway.home().path("policies/quota.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("cost: 100", "cost: 120")).unwrap();
    until("there is room again", || client.list().len() == 3);
    assert_eq!(client.call("dear", json!({})).word(), "ok");
    assert_eq!(client.call("cheap", json!({})).word(), "quota_exhausted");
}

fn kill(mut gateway: Process) {
    gateway.signal(9);
    gateway.wait();
}

#[test]
fn a_kill_and_a_restart_forget_nothing() {
    let (up, setup) = setup("principal", HIDE);
    let home: Home = setup.write();
    let mut sent = 0;
    for round in 0..5 {
        let gateway = home.serve(&[]);
        ready(&gateway);
        let client = gateway.client("/mcp/up", Dialect::ALL[round % 3]);
        let answer = client.call("dear", json!({}));
        assert_eq!(answer.word(), "ok", "{answer:?}");
        sent += 20;
        let record = gateway.record_of(&answer);
        assert_eq!(record["quota"][0]["used"], sent, "{record:#}");
        kill(gateway);
    }
    let gateway = home.serve(&[]);
    // A list knows it before anybody has called.
    until("it is listed", || {
        let listed = gateway.client("/mcp/up", Dialect::Modern).employee("E2").list();
        listed == ["dear", "cheap", "free"]
    });
    for dialect in Dialect::ALL {
        lists_what_it_calls(&gateway.client("/mcp/up", dialect), &["cheap", "free"]);
    }
    assert_eq!(up.calls().iter().filter(|seen| seen.tool() == "dear").count(), 5);
}

#[test]
fn a_case_and_the_command_line_know_quotas() {
    let (_up, setup) = setup("tenant", HIDE);
    let home = setup
        .policy(
            "tests.yaml",
            "version: hangu/v1\nkind: PolicyTest\ncases:\n  \
             - { name: spent, as: { tenant: acme, roles: [member] }, \
             given: { quota: { year-cost: 100% } }, list: { hidden: [up/dear], visible: [up/cheap] } }\n  \
             - { name: refused, as: { tenant: acme, roles: [member] }, \
             given: { quota: { year-cost: 110% } }, call: up/cheap, \
             expect: { decision: deny, reason: quota_exhausted, rule: year-cost } }\n  \
             - { name: misspelt, as: { tenant: acme, roles: [member] }, \
             given: { quota: { year-cots: 100% } }, list: { visible: [up/cheap] } }\n",
        )
        .write();
    let ran = home.run(&["policy", "test", "policies"]);
    assert!(ran.contains("there is no quota `year-cots` for acme"), "{ran}");
    assert!(ran.contains("2 passed"), "{ran}");
    let ask =
        ["policy", "explain", "--policies", "policies", "--tenant", "acme", "--roles", "member"];
    let ran = home.run(&[&ask[..], &["--tool", "up/dear"]].concat());
    assert!(ran.contains("hidden where it would go beyond 100% of 100 per year"), "{ran}");
}

#[test]
fn a_lost_store_is_met_as_each_quota_says() {
    let up = Upstream::start(&[tool("dear"), tool("cheap"), tool("free")]);
    let tools = "dear: { risk: read_low, cost: 1 }, cheap: { risk: read_low, cost: 1 }, \
                 free: { risk: read_low, cost: 1 }";
    let one = |id: &str, tool: &str, rule: &str| {
        format!(
            "  - {{ id: {id}, per: [tenant], tools: [up/{tool}], budget: {{ cost: 90, every: year, \
             zone: UTC }}, steps: [{{ at: 100%, do: deny }}], store_down: {rule} }}\n"
        )
    };
    let quotas = format!(
        "version: hangu/v1\nkind: Policy\nscope: platform\nquotas:\n{}{}{}",
        one("shut", "dear", "closed"),
        one("share", "cheap", "local"),
        one("wide", "free", "open")
    );
    let setup = Setup::new().upstream("up", &up, "", tools).policy("quota.yaml", &quotas);
    // Files may be as large as they like, until none may grow any more.
    let mut gateway = setup.file_blocks(1 << 20).start();
    ready(&gateway);
    let client = gateway.client("/mcp/up", Dialect::Modern);
    let pid = gateway.pid().to_string();
    let limit = |size: &str| {
        let done =
            Command::new("prlimit").args(["--pid", &*pid, &format!("--fsize={size}:")]).status();
        assert!(done.unwrap().success());
    };
    for name in ["dear", "cheap", "free"] {
        assert_eq!(client.call(name, json!({})).word(), "ok");
    }
    limit("1");
    assert_eq!(client.call("dear", json!({})).word(), "internal");
    gateway.wait_for_log("The store cannot be used for quotas");
    let answers: Vec<Response> = (0..100).map(|_| client.call("dear", json!({}))).collect();
    for answer in &answers {
        let fault = answer.fault();
        assert_eq!((&fault["code"], &fault["retryable"]), (&json!("internal"), &json!(true)));
        assert!(fault["message"].as_str().unwrap().contains("store"), "{fault}");
    }
    let through = (0..100).filter(|_| client.call("cheap", json!({})).word() == "ok").count();
    assert!((1..=9).contains(&through), "{through}");
    assert_eq!(client.call("free", json!({})).word(), "ok");
    let metrics = gateway.metrics();
    for (id, rule) in [("shut", "closed"), ("share", "local"), ("wide", "open")] {
        let begin = format!(
            "hangu_limit_fallbacks_total{{hangu_limit_name=\"{id}\",hangu_fallback=\"{rule}\"}}"
        );
        assert!(metrics.lines().any(|line| line.starts_with(&begin)), "{begin}: {metrics}");
    }
    // Room again, and it goes on by itself; what was let through meanwhile counts.
    limit("unlimited");
    gateway.wait_for_log("The store can be used for quotas again");
    until("it is counted again", || client.call("dear", json!({})).word() == "ok");
    let left = (0..100).filter(|_| client.call("cheap", json!({})).word() == "ok").count();
    assert_eq!(1 + through + left, 90);
}
