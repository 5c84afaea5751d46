//! `/v1/steps`: what is compiled, what runs of it and for whom, and what is told and recorded.

mod command;
mod failing;
mod own;
mod whole;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Answer, Gateway, Received, Reply, Request, Speaks, Upstream, gateway::KEY};

const GLOBEX: &str = "key-of-globex";
/// Of a caller that may not say `script`.
const AGENT: &str = "key-of-an-agent";
/// Two replicas share it.
const SECRET: [u8; 32] = [7; 32];

const DIRECTORY: &str = "version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member, owner] }
  E2: { tenant: acme, roles: [member] }
  G1: { tenant: globex, roles: [member] }
";

/// Members look, owners act; what nobody may do is nobody's in globex either.
const POLICY: &str = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: members-look, effect: allow, roles: [member], risk: [read_low] }
";

const OWNERS: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: owners-act, effect: allow, roles: [owner], risk: [write_low] }
";

const TOOLS: &str = "version: hangu/v1
kind: Tools
upstreams:
  one:
    default: { risk: read_low }
    tools:
      pay: { risk: write_low }
      named: { risk: write_low, idempotency_argument: key }
      secret: { risk: write_high }
  two: { default: { risk: read_low } }
  three: { default: { risk: read_low } }
";

const LISTED: &str = r#"[{"name":"query","inputSchema":{"type":"object","properties":{"orderId":{"type":"string"}},"required":["orderId"]}},
{"name":"echo","inputSchema":{"type":"object"}},
{"name":"pay","inputSchema":{"type":"object","properties":{"n":{}},"additionalProperties":false}},
{"name":"named","inputSchema":{"type":"object","properties":{"n":{},"key":{"type":"string"}},"required":["key"]}},
{"name":"secret","inputSchema":{"type":"object"}}]"#;

/// A server that says what it was called with.
fn server() -> Upstream {
    let upstream = Upstream::scripted(Speaks::Stateless, |call| result(&structured(call)));
    upstream.lists(LISTED);
    upstream
}

fn structured(call: &Received) -> String {
    let arguments = call.arguments();
    format!(r#"{{"content":[],"structuredContent":{{"given":{arguments}}}}}"#)
}

fn result(result: &str) -> Answer {
    Answer::json(format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{result}}}"#))
}

/// With further keys of the file, and further policies.
fn gateway_with(servers: &[(&str, &Upstream)], more: &str, policies: &[&str]) -> Gateway {
    let hash = |key: &str| -> String {
        Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let servers: String = servers
        .iter()
        .map(|(name, server)| format!("  {name}: {{ url: \"{}\", poll: 1s }}\n", server.url()))
        .collect();
    let yaml = format!(
        "{more}\ncallers:\n  gate: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, call_sources: [script] }}\n  \
         other: {{ keys: [{{ sha256: {} }}], tenant: globex, identity: header, call_sources: [script] }}\n  \
         agents: {{ keys: [{{ sha256: {} }}], tenant: acme, identity: header, call_sources: [agent] }}\nupstreams:\n{servers}",
        hash(GLOBEX),
        hash(AGENT)
    );
    let policies = [&[DIRECTORY, POLICY, OWNERS, TOOLS], policies].concat();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    Gateway::start_in(folder, Some(SECRET), &yaml, &policies)
}

fn gateway(servers: &[(&str, &Upstream)], more: &str) -> Gateway {
    gateway_with(servers, more, &[])
}

/// The serverKey of an upstream.
fn key_of(gateway: &Gateway, name: &str) -> String {
    let upstreams = &gateway.engines().upstreams;
    let found = upstreams.iter().find(|upstream| upstream.name.as_str() == name).unwrap();
    found.server_key.to_string()
}

/// A call of a tool with these inputs, and further members.
fn step(index: u64, server_key: &str, tool: &str, inputs: Value, more: Value) -> Value {
    let mut mcp = json!({ "serverKey": server_key, "toolName": tool, "inputBindings": inputs });
    for (name, value) in more.as_object().unwrap() {
        mcp[name] = value.clone();
    }
    json!({ "stepIndex": index, "type": "mcpCall", "mcp": mcp })
}

fn constant(value: Value) -> Value {
    json!({ "source": "const", "value": value })
}

fn post(path: &str, employee: &str, body: impl Into<Vec<u8>>) -> Request {
    let request = Request::new("POST", path, body).header("Content-Type", "application/json");
    request.header("SSO-Emp-Id", employee)
}

fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

fn compile(gateway: &Gateway, employee: &str, steps: &Value) -> Reply {
    post("/v1/steps/compile", employee, json!({ "steps": steps }).to_string()).ask(gateway)
}

/// What E2, who may only look, compiles.
#[track_caller]
fn compiled(gateway: &Gateway, steps: &Value) -> Value {
    let reply = compile(gateway, "E2", steps);
    assert_eq!(reply.status, 200, "{}", reply.text());
    body(&reply)["compiled"].take()
}

/// Runs what was compiled, with further members of the body.
fn run(gateway: &Gateway, employee: &str, compiled: &Value, more: Value) -> Reply {
    let mut asked = json!({ "compiled": compiled });
    for (name, value) in more.as_object().unwrap() {
        asked[name] = value.clone();
    }
    post("/v1/steps/run", employee, asked.to_string()).ask(gateway)
}

/// The answer to a run, and how each of its steps stands.
#[track_caller]
fn ran(reply: &Reply) -> (Value, Vec<String>) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let told = body(reply);
    let stands = |step: &Value| match step["error"]["code"].as_str() {
        Some(code) => format!("{} {code}", step["state"].as_str().unwrap()),
        None => step["state"].as_str().unwrap().to_owned(),
    };
    let steps = told["steps"].as_array().unwrap().iter().map(stands).collect();
    (told, steps)
}

#[test]
fn steps_are_compiled_and_run_in_order() {
    let (one, two) = (server(), server());
    let gateway = gateway(&[("one", &one), ("two", &two)], "");
    let (first, second) = (key_of(&gateway, "one"), key_of(&gateway, "two"));
    let steps = json!([
        step(3, &first, "query", json!({ "orderId": { "source": "page.url", "path": "orderId" } }),
            json!({ "saveAs": "order", "failurePolicy": "required" })),
        { "type": "click", "stepIndex": 4, "at": "#buy" },
        step(5, &second, "echo", json!({
            "id": { "source": "steps.order", "path": "given.orderId" },
            "user": { "source": "page.user", "path": "/name" },
        }), json!({})),
    ]);
    let compiled = compiled(&gateway, &steps);
    assert_eq!(compiled["steps"][1], steps[1]);
    let context = json!({ "url": "https://shop.example/o?orderId=O%201", "user": { "name": "é" } });
    let (told, states) = ran(&run(
        &gateway,
        "E2",
        &compiled,
        json!({ "context": context, "variables": { "kept": 1 } }),
    ));
    assert_eq!(states, ["ok", "other_type", "ok"], "{told}");
    assert_eq!(told["state"], "completed");
    assert_eq!(told["variables"], json!({ "kept": 1, "order": { "given": { "orderId": "O 1" } } }));
    assert_eq!(two.calls()[0].arguments(), r#"{"id":"O 1","user":"é"}"#);
    assert_eq!(one.calls()[0].header("x-call-source"), Some("script"));
    let called = &told["steps"][0];
    for member in ["toolCallId", "argsHash", "resultRef"] {
        assert!(called[member].as_str().is_some_and(|text| text.len() > 30), "{member}: {told}");
    }
    assert!(called["latencyMs"].as_f64().is_some_and(|latency| latency > 0.0), "{told}");
    // The run's own record, and one of each call; all of them name the run.
    let of_run = |record: &Value| record["runId"] == told["runId"];
    for tool in ["one/query", "two/echo"] {
        gateway.audited(tool, |record| of_run(record) && record["tool"] == tool);
    }
    gateway.audited("the run", |record| of_run(record) && record["tool"].is_null());
    let records = gateway.audit();
    let records: Vec<&Value> = records.iter().filter(|record| of_run(record)).collect();
    assert_eq!(records.len(), 3, "{records:?}");
    assert!(records.iter().all(|record| record["callSource"] == "script"), "{records:?}");
    let ids = |record: &&&Value| record["toolCallId"] == called["toolCallId"];
    let recorded = records.iter().find(ids).unwrap();
    assert_eq!(recorded["argsHash"], called["argsHash"]);
    assert_eq!(recorded["resultRef"], called["resultRef"]);
}

#[test]
fn the_same_input_compiles_to_the_same_bytes_at_every_replica() {
    let one = server();
    let (a, b) = (gateway(&[("one", &one)], ""), gateway(&[("one", &one)], ""));
    let key = key_of(&a, "one");
    let text = format!(
        r#"{{"steps":[{{"type":"x", "n":[1.0,12345678901234567890]}},{{"stepIndex":1,"type":"mcpCall","mcp":{{"toolName":"echo","serverKey":"{key}","inputBindings":{{"n":{{"source":"const","value":{{"b":1.0, "a":12345678901234567890123,"c":"\u00e9"}}}}}}}}}}]}}"#
    );
    let first = post("/v1/steps/compile", "E2", text.clone()).ask(&a);
    assert_eq!(first.status, 200, "{}", first.text());
    let again = post("/v1/steps/compile", "E1", text).ask(&b);
    assert_eq!(first.text(), again.text());
    assert!(first.text().contains(r#"{"type":"x", "n":[1.0,12345678901234567890]}"#));
    // And a constant reaches the server as it was written.
    let compiled = first.member(&["compiled"]).unwrap();
    let reply = post("/v1/steps/run", "E2", format!(r#"{{"compiled":{compiled}}}"#)).ask(&b);
    assert_eq!(ran(&reply).1, ["other_type", "ok"]);
    assert_eq!(
        one.calls()[0].arguments(),
        r#"{"n":{"b":1.0, "a":12345678901234567890123,"c":"\u00e9"}}"#
    );
}

#[test]
fn all_faults_of_steps_are_told_with_their_places() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "");
    let key = key_of(&gateway, "one");
    let steps = json!([
        step(1, &key, "query", json!({ "orderId": constant(json!(7)) }), json!({})),
        step(2, &key, "query", json!({}), json!({ "saveAs": "a b" })),
        step(3, &key, "echo", json!({ "token": constant(json!("hunter2")) }), json!({})),
        step(4, "mcp_nobody_00000000", "echo", json!({}), json!({})),
    ]);
    let reply = compile(&gateway, "E2", &steps);
    assert_eq!((reply.status, reply.refusal().as_deref()), (400, Some("invalid_args")));
    assert!(!reply.text().contains("hunter2"), "{}", reply.text());
    let error = &body(&reply)["error"];
    let faults: Vec<String> = error["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| {
            format!(
                "{} {} {}",
                fault["fault"].as_str().unwrap(),
                fault["stepIndex"],
                fault["pointer"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        faults,
        [
            "wrong_value 1 /steps/0/mcp/inputBindings/orderId/value",
            "bad_value 2 /steps/1/mcp/saveAs",
            "missing_input 2 /steps/1/mcp/inputBindings",
            "credential 3 /steps/2/mcp/inputBindings/token/value",
            "unknown_server 4 /steps/3/mcp/serverKey",
        ]
    );
    assert_eq!(error["pointer"], "/steps/0/mcp/inputBindings/orderId/value");
    assert!(one.calls().is_empty());
    let reply = post("/v1/steps/compile", "E2", "{}").ask(&gateway);
    assert_eq!((reply.status, body(&reply)["error"]["pointer"].as_str()), (400, Some("/steps")));
}

#[test]
fn an_upstream_of_which_nothing_is_open_in_the_tenant_is_like_none() {
    let (one, internal) = (server(), server());
    let gateway = gateway(&[("one", &one), ("internal", &internal)], "");
    let fault = |key: &str, tool: &str| {
        let steps = json!([step(1, key, tool, json!({}), json!({}))]);
        let reply = compile(&gateway, "E1", &steps);
        let faults = body(&reply)["error"]["faults"].to_string();
        (reply.status, faults.replace(key, "KEY").replace(tool, "TOOL"))
    };
    let none = fault("mcp_nobody_00000000", "echo");
    assert!(none.1.contains("unknown_server"), "{}", none.1);
    let key = key_of(&gateway, "internal");
    for tool in ["echo", "nothing"] {
        assert_eq!(fault(&key, tool), none, "{tool}");
    }
    let known = fault(&key_of(&gateway, "one"), "nothing");
    assert!(known.1.contains("unknown_tool"), "{}", known.1);
}

#[test]
fn a_tool_that_is_open_to_nobody_in_the_tenant_is_like_none() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "");
    let key = key_of(&gateway, "one");
    let fault = |request: Request, tool: &str| {
        let steps = json!({ "steps": [step(1, &key, tool, json!({ "n": constant(json!(1)) }), json!({}))] });
        let reply = request.with_body(steps.to_string()).ask(&gateway);
        let error = body(&reply)["error"].clone();
        (reply.status, error["faults"].to_string().replace(tool, "X"))
    };
    let compile = |employee| post("/v1/steps/compile", employee, "");
    let none = fault(compile("E1"), "nothing");
    assert_eq!(none.0, 400);
    assert_eq!(fault(compile("E1"), "secret"), none);
    // What owners may do is compiled by those who may not.
    assert_eq!(fault(compile("E2"), "pay").0, 200);
    let globex = |tool| fault(compile("G1").set("X-Api-Key", GLOBEX), tool);
    assert_eq!(globex("pay"), globex("nothing"));
    assert_eq!(globex("echo").0, 200);
}

#[test]
fn what_was_not_compiled_here_for_this_tenant_does_not_run() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "");
    let key = key_of(&gateway, "one");
    let steps = json!([step(1, &key, "echo", json!({ "n": constant(json!(1)) }), json!({}))]);
    let good = compiled(&gateway, &steps);
    let with = |pointer: &str, value: Value| {
        let mut other = good.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        other
    };
    for bad in [
        json!({ "steps": steps }),
        json!(steps),
        json!("x"),
        with("/steps/0/mcp/inputBindings/n/value", json!(2)),
        with("/steps/0/mcp/toolName", json!("pay")),
        with("/definitions", json!([])),
        with("/digest", json!("hmac-sha256:1:00")),
        with("/v", json!(2)),
    ] {
        let reply = run(&gateway, "E1", &bad, json!({}));
        assert_eq!(
            (reply.status, reply.refusal().as_deref()),
            (400, Some("invalid_args")),
            "{bad}"
        );
        assert_eq!(body(&reply)["error"]["pointer"], "/compiled");
    }
    let asked = json!({ "compiled": good }).to_string();
    let reply = post("/v1/steps/run", "G1", asked.clone()).set("X-Api-Key", GLOBEX).ask(&gateway);
    assert_eq!((reply.status, reply.refusal().as_deref()), (400, Some("invalid_args")));
    assert!(reply.text().contains("another tenant"), "{}", reply.text());
    assert!(one.calls().is_empty());
    // A caller has to be one that runs scripts.
    let reply = post("/v1/steps/run", "E1", asked.clone()).set("X-Api-Key", AGENT).ask(&gateway);
    assert_eq!((reply.status, reply.refusal().as_deref()), (403, Some("permission_denied")));
    // Its author is of no matter.
    assert_eq!(ran(&run(&gateway, "E1", &good, json!({}))).1, ["ok"]);
    for (member, value) in [
        ("stepIndex", json!(2)),
        ("stepIndex", json!("1")),
        ("context", json!([])),
        ("variables", json!(1)),
        ("runId", json!("x")),
        ("dryRun", json!(true)),
    ] {
        let reply = run(&gateway, "E1", &good, json!({ member: value }));
        let pointer = body(&reply)["error"]["pointer"].as_str().map(str::to_owned);
        assert_eq!((reply.status, pointer), (400, Some(format!("/{member}"))), "{member} {value}");
    }
    for (header, value) in [("Idempotency-Key", "k"), ("X-Dry-Run", "true")] {
        let reply = post("/v1/steps/run", "E1", asked.clone()).header(header, value).ask(&gateway);
        assert_eq!(reply.status, 400, "{header}");
    }
    assert_eq!(one.calls().len(), 1);
}

#[test]
fn one_step_runs_alone_with_what_it_is_given() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "");
    let key = key_of(&gateway, "one");
    let steps = json!([
        step(1, &key, "echo", json!({}), json!({ "saveAs": "a" })),
        { "type": "browse", "stepIndex": 2, "saveAs": "page" },
        step(3, &key, "query", json!({ "orderId": { "source": "steps.page", "path": "id" } }), json!({ "saveAs": "b" })),
    ]);
    let compiled = compiled(&gateway, &steps);
    let (told, states) = ran(&run(&gateway, "E2", &compiled, json!({ "stepIndex": 1 })));
    assert_eq!((states, &told["state"]), (vec!["ok".to_owned()], &json!("completed")));
    let mut variables = told["variables"].clone();
    variables["page"] = json!({ "id": "O-1" });
    let more = json!({ "stepIndex": 3, "variables": variables, "runId": told["runId"] });
    let (again, states) = ran(&run(&gateway, "E2", &compiled, more));
    assert_eq!(states, ["ok"]);
    assert_eq!(again["runId"], told["runId"]);
    assert_eq!(again["variables"]["b"], json!({ "given": { "orderId": "O-1" } }));
    // What another engine has not brought is told with its place.
    let (told, states) = ran(&run(&gateway, "E2", &compiled, json!({})));
    assert_eq!(states, ["ok", "other_type", "failed invalid_args"]);
    let error = &told["steps"][2]["error"];
    assert_eq!(error["pointer"], "/steps/2/mcp/inputBindings/orderId/source");
    let reply = run(&gateway, "E2", &compiled, json!({ "stepIndex": 2 }));
    assert_eq!(reply.status, 400);
}

#[test]
fn a_write_happens_once_however_often_its_run_goes_on() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "");
    let key = key_of(&gateway, "one");
    let n = json!({ "n": constant(json!(1)) });
    let steps = json!([
        step(1, &key, "pay", n.clone(), json!({})),
        step(2, &key, "named", n.clone(), json!({})),
        step(3, &key, "named", json!({ "key": constant(json!("own")) }), json!({})),
        step(
            4,
            &key,
            "pay",
            n,
            json!({ "idempotencyKey": { "source": "page.order", "path": "id" } })
        ),
    ]);
    let compiled = compiled(&gateway, &steps);
    let context = json!({ "order": { "id": "O-1" } });
    let first = run(&gateway, "E1", &compiled, json!({ "context": context }));
    let (first, states) = ran(&first);
    assert_eq!(states, ["ok"; 4], "{first}");
    let calls = one.calls();
    assert_eq!(calls.len(), 4);
    assert!(calls[1].arguments().contains(r#","key":"step-"#), "{}", calls[1].arguments());
    assert_eq!(calls[2].arguments(), r#"{"key":"own"}"#);
    let go_on = json!({ "context": context, "runId": first["runId"] });
    let (again, states) = ran(&run(&gateway, "E1", &compiled, go_on));
    assert_eq!(states, ["ok"; 4], "{again}");
    let replayed = |told: &Value, step: usize| told["steps"][step]["replayed"] == true;
    assert!((0..4).all(|step| replayed(&again, step) && !replayed(&first, step)), "{again}");
    assert_eq!(one.calls().len(), 4);
    // Another run is another intent, but for the keys that are bound.
    let (other, states) = ran(&run(&gateway, "E1", &compiled, json!({ "context": context })));
    assert_eq!(states, ["ok"; 4]);
    let replays: Vec<bool> = (0..4).map(|step| replayed(&other, step)).collect();
    assert_eq!(replays, [false, false, true, true]);
    assert_ne!(first["runId"], other["runId"]);
}

/// Waits as long as a test may.
const SOON: Duration = Duration::from_secs(5);
