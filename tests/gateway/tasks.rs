//! The Tasks extension: a client that speaks it asks for its task under a sealed id, and for one
//! that does not the gateway sees the task through.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::support::{
    Answer, Client, Gateway, OK, Received, Reply, Request, Speaks, Upstream, client::open_session,
    member, wait_for,
};

const SOON: Duration = Duration::from_secs(5);

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// One caller who names its employee, or is E1; everybody is a member.
const CALLERS: &str = "callers:
  tests: { keys: [{ env: KEY }], tenant: acme, identity: { header: true, fallback: { empId: E1, roles: [member] } } }
";

const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: read, effect: allow, risk: [read_low] }
  - { id: slow, effect: allow, roles: [member], tools: [up/slow] }
---
version: hangu/v1
kind: Tools
upstreams: { up: { default: { risk: read_low }, tools: { slow: { risk: write_low, idempotency: optional } } } }
---
version: hangu/v1
kind: Directory
employees:
  E2: { tenant: acme, roles: [member] }
  E3: { tenant: acme, roles: [guest] }
";

const WORKING: &str = r#""status":"working","pollIntervalMs":100"#;
const DONE: &str =
    r#""status":"completed","result":{"content":[{"type":"text","text":"done"}],"isError":false}"#;

fn result(members: &str) -> Answer {
    Answer::json(format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{{{members}}}}}"#))
}

fn error(status: &'static str, code: i64, message: &str, data: &str) -> Answer {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"error":{{"code":{code},"message":"{message}"{data}}}}}"#
    );
    Answer::new(status, "application/json", body)
}

fn missing_extension() -> Answer {
    let data =
        format!(r#","data":{{"requiredCapabilities":{{"extensions":{{"{EXTENSION}":{{}}}}}}}}"#);
    error("400 Bad Request", -32_021, "needs tasks", &data)
}

fn declared(request: &Received) -> bool {
    let path = ["params", "_meta", "io.modelcontextprotocol/clientCapabilities", "extensions"];
    request.member(&path).is_some_and(|all| member(&all, &[EXTENSION]).is_some())
}

/// A server that makes a task of each call of `slow`, and refuses those who do not speak of
/// tasks. How the task stands is what `stands` holds, one look after the other, the last for
/// ever.
struct Server {
    upstream: Upstream,
    stands: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(stands: &[&str]) -> Self {
        let upstream = Upstream::scripted(Speaks::Stateless, |received| {
            let slow = received.member(&["params", "name"]).as_deref() == Some("\"slow\"");
            match (slow, declared(received)) {
                (false, _) => Answer::json(OK),
                (true, false) => missing_extension(),
                (true, true) => result(&format!(
                    r#""resultType":"task","taskId":"own-1",{WORKING},"createdAt":"2026-08-01T00:00:00Z","lastUpdatedAt":"2026-08-01T00:00:00Z","ttlMs":60000,"x":1.0"#
                )),
            }
        });
        let stands = Arc::new(Mutex::new(stands.iter().map(|&one| one.to_owned()).collect()));
        let looks: Arc<Mutex<Vec<String>>> = Arc::clone(&stands);
        upstream.declares(&format!(r#""extensions":{{"{EXTENSION}":{{}}}}"#));
        upstream.beside(move |received| {
            let method = received.method();
            if !method.starts_with("tasks/") {
                return None;
            }
            if !declared(received) {
                return Some(missing_extension());
            }
            if received.member(&["params", "taskId"]).as_deref() != Some("\"own-1\"") {
                let message = "unknown task: own-1";
                return Some(error("200 OK", -32_602, message, ""));
            }
            if method != "tasks/get" {
                return Some(result(r#""resultType":"complete""#));
            }
            let mut looks = looks.lock();
            let now = if looks.len() > 1 { looks.remove(0) } else { looks[0].clone() };
            if let Some(message) = now.strip_prefix("error ") {
                return Some(error("200 OK", -32_602, message, ""));
            }
            Some(result(&format!(
                r#""resultType":"task","taskId":"own-1",{now},"createdAt":"2026-08-01T00:00:00Z","lastUpdatedAt":"2026-08-01T00:00:00Z","ttlMs":60000"#
            )))
        });
        Self { upstream, stands }
    }

    fn stands(&self, looks: &[&str]) {
        *self.stands.lock() = looks.iter().map(|&one| one.to_owned()).collect();
    }

    fn gateway(&self) -> Gateway {
        self.gateway_with("")
    }

    fn gateway_with(&self, of_upstream: &str) -> Gateway {
        let url = self.upstream.url();
        let yaml = format!("{CALLERS}upstreams:\n  up: {{ url: \"{url}\"{of_upstream} }}\n");
        Gateway::start(&yaml, &[POLICY])
    }

    fn looks(&self) -> usize {
        self.upstream.of("tasks/get").len()
    }

    fn cancelled(&self) -> bool {
        self.upstream.of("tasks/cancel").iter().any(|request| {
            request.member(&["params", "taskId"]).as_deref() == Some("\"own-1\"")
                && request.header("mcp-name") == Some("own-1")
                && declared(request)
        })
    }
}

fn stateless(method: &str, params: &str, capabilities: &str) -> Request {
    Request::stateless(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}"#
    ))
}

const SPEAKS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

fn slow() -> Request {
    stateless("tools/call", r#""name":"slow","arguments":{}"#, SPEAKS)
}

fn about(method: &str, id: &str) -> Request {
    stateless(method, &format!(r#""taskId":{id}"#), SPEAKS)
}

/// The task's id, as the JSON string in a result.
fn id_of(reply: &Reply) -> String {
    assert_eq!((reply.status, reply.rpc_code()), (200, None), "{}", reply.text());
    reply.member(&["result", "taskId"]).unwrap()
}

const SLOW_BEFORE: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{}}}"#;

fn text_of(reply: &Reply) -> String {
    let path: &[&str] =
        if reply.member(&["content"]).is_some() { &["content"] } else { &["result", "content"] };
    reply.member(path).unwrap_or_else(|| panic!("{}", reply.text()))
}

// === Clients that speak of tasks ===

#[test]
fn a_task_is_asked_for_under_its_sealed_id() {
    let server = Server::start(&[WORKING, DONE]);
    let gateway = server.gateway();
    let created = slow().ask(&gateway);
    let id = id_of(&created);
    assert!(!created.text().contains("own-1"), "{}", created.text());
    assert_eq!(created.member(&["result", "resultType"]).as_deref(), Some("\"task\""));
    assert_eq!(created.member(&["result", "x"]).as_deref(), Some("1.0"));
    assert_eq!(created.member(&["result", "ttlMs"]).as_deref(), Some("60000"));

    for status in ["\"working\"", "\"completed\""] {
        let task = about("tasks/get", &id).ask(&gateway);
        assert_eq!(id_of(&task), id, "the id by which the client knows it");
        assert_eq!(task.member(&["result", "status"]).as_deref(), Some(status));
        assert_eq!(task.member(&["result", "resultType"]).as_deref(), Some("\"complete\""));
        assert!(!task.text().contains("own-1"), "{}", task.text());
    }
    let asked = server.upstream.of("tasks/get").pop().unwrap();
    assert_eq!(asked.header("mcp-name"), Some("own-1"));
    assert_eq!(asked.header("mcp-method"), Some("tasks/get"));

    let params = format!(r#""taskId":{id},"inputResponses":{{"a":{{"action":"accept","n":1.0}}}}"#);
    let update = stateless("tasks/update", &params, SPEAKS).ask(&gateway);
    assert_eq!(update.member(&["result", "resultType"]).as_deref(), Some("\"complete\""));
    let told = server.upstream.of("tasks/update").pop().unwrap();
    let answers = told.member(&["params", "inputResponses"]);
    assert_eq!(answers.as_deref(), Some(r#"{"a":{"action":"accept","n":1.0}}"#));

    let cancel = about("tasks/cancel", &id).ask(&gateway);
    assert_eq!(cancel.member(&["result", "resultType"]).as_deref(), Some("\"complete\""));
    assert!(server.cancelled());
    gateway.audited("the request about a task", |record| {
        record["method"] == "tasks/cancel" && record["tool"] == "up/slow"
    });
}

#[test]
fn a_task_is_nobody_elses() {
    let server = Server::start(&[WORKING]);
    let gateway = server.gateway();
    let id = id_of(&slow().ask(&gateway));
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        for (what, request) in [
            ("another employee", about(method, &id).header("SSO-Emp-Id", "E2")),
            ("the server's own id", about(method, "\"own-1\"")),
            ("an invented one", about(method, "\"AQAA\"")),
            ("none", about(method, "\"\"")),
        ] {
            let reply = request.ask(&gateway);
            assert_eq!((reply.status, reply.rpc_code()), (200, Some(-32_602)), "{method} {what}");
            let message = reply.member(&["error", "message"]);
            assert_eq!(message.as_deref(), Some("\"the task is unknown or has expired\""));
        }
        let undeclared = stateless(method, &format!(r#""taskId":{id}"#), "{}").ask(&gateway);
        assert_eq!((undeclared.status, undeclared.rpc_code()), (400, Some(-32_021)), "{method}");
        let needed = undeclared.member(&["error", "data", "requiredCapabilities", "extensions"]);
        assert!(needed.unwrap().contains(EXTENSION));
        let mismatch = about(method, &id).set("Mcp-Name", "another").ask(&gateway);
        assert_eq!((mismatch.status, mismatch.rpc_code()), (400, Some(-32_020)), "{method}");
    }
    // Nor does a stream of notices that names it.
    let filter = format!(r#""notifications":{{"taskIds":[{id}]}}"#);
    let deaf = stateless("subscriptions/listen", &filter, "{}").ask(&gateway);
    assert_eq!((deaf.status, deaf.rpc_code()), (400, Some(-32_021)), "{}", deaf.text());
    assert_eq!(server.looks(), 0, "refused before anything left");
    // The server forgot it: its own id is not told.
    server.stands(&["error unknown task: own-1"]);
    let gone = about("tasks/get", &id).ask(&gateway);
    assert_eq!((gone.status, gone.rpc_code()), (200, Some(-32_602)));
    assert!(!gone.text().contains("own-1"), "{}", gone.text());
    // Keys that were made by chance end with the process, as sessions do.
    let another = server.gateway();
    assert_eq!(about("tasks/get", &id).ask(&another).rpc_code(), Some(-32_602));
}

#[test]
fn policy_decides_each_time() {
    let server = Server::start(&[WORKING]);
    let yaml = format!("{CALLERS}upstreams:\n  up: {{ url: \"{}\" }}\n", server.upstream.url());
    let gateway = Gateway::start(&yaml, &[POLICY]);
    let guest = slow().header("SSO-Emp-Id", "E3").ask(&gateway);
    assert_eq!(guest.rpc_code(), Some(-32_602), "hidden: {}", guest.text());
    assert_eq!(server.upstream.calls().len(), 0);
    let id = id_of(&slow().header("SSO-Emp-Id", "E2").ask(&gateway));
    let asked = about("tasks/get", &id).header("SSO-Emp-Id", "E2").ask(&gateway);
    assert_eq!(id_of(&asked), id);
    // The tool is gone from the catalog, and with it whatever it was asked to do.
    server.upstream.lists(r#"[{"name":"echo","inputSchema":{"type":"object"}}]"#);
    let other = Gateway::start(&yaml, &[POLICY]);
    let echo = stateless("tools/call", r#""name":"echo","arguments":{}"#, SPEAKS).ask(&other);
    assert_eq!((echo.status, echo.rpc_code()), (200, None));
    assert_eq!(about("tasks/get", &id).ask(&other).rpc_code(), Some(-32_602));
}

#[test]
fn what_is_not_served_is_no_method() {
    let plain = Upstream::answering(Speaks::Stateless, Answer::json(OK));
    let yaml = format!("{CALLERS}upstreams:\n  up: {{ url: \"{}\" }}\n", plain.url());
    let without = Gateway::start(&yaml, &[POLICY]);
    let server = Server::start(&[WORKING]);
    let with = server.gateway();
    let discover = |gateway: &Gateway| {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        Request::stateless(body).ask(gateway).text().contains(EXTENSION)
    };
    assert!(discover(&with));
    assert!(!discover(&without));
    for (gateway, method) in [
        (&without, "tasks/get"),
        (&without, "tasks/cancel"),
        (&with, "tasks/result"),
        (&with, "tasks/list"),
    ] {
        let reply = about(method, "\"AQAA\"").ask(gateway);
        assert_eq!((reply.status, reply.rpc_code()), (404, Some(-32_601)), "{method}");
    }
    let legacy = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"AQAA"}}"#;
    let reply = Request::handshake(legacy).ask(&with);
    assert_eq!((reply.status, reply.rpc_code()), (200, Some(-32_601)));
    // A server that has no tasks is not told of a client that would take them.
    stateless("tools/call", r#""name":"slow","arguments":{}"#, SPEAKS).ask(&without);
    assert!(!declared(&plain.calls()[0]), "{}", plain.calls()[0].text());
}

#[test]
fn a_client_of_its_revision_is_told_what_to_declare() {
    let server = Server::start(&[DONE]);
    let gateway = server.gateway();
    let refused = stateless("tools/call", r#""name":"slow","arguments":{}"#, "{}").ask(&gateway);
    assert_eq!((refused.status, refused.rpc_code()), (400, Some(-32_021)), "{}", refused.text());
    assert_eq!((server.upstream.calls().len(), server.looks()), (1, 0));
}

#[test]
fn a_key_gets_the_same_task_again() {
    let server = Server::start(&[WORKING]);
    let gateway = server.gateway();
    let call = slow().header("Idempotency-Key", "one-and-the-same");
    let (first, again) = (call.ask(&gateway), call.ask(&gateway));
    assert_eq!(id_of(&first), id_of(&again));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(server.upstream.calls().len(), 1, "one task");
}

// === Clients that do not ===

/// The same call in each form that knows no tasks.
fn forms() -> [Request; 2] {
    [
        Request::handshake(SLOW_BEFORE),
        Request::lite("tools/call", r#"{"name":"slow","arguments":{}}"#),
    ]
}

#[test]
fn a_task_is_seen_through_for_a_client_that_has_no_form_for_it() {
    for form in forms() {
        let server = Server::start(&[WORKING, WORKING, DONE]);
        let gateway = server.gateway();
        let reply = form.ask(&gateway);
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(text_of(&reply).contains("\"done\""), "{}", reply.text());
        assert!(!reply.text().contains("resultType"), "{}", reply.text());
        let calls = server.upstream.calls();
        assert_eq!(calls.iter().map(declared).collect::<Vec<_>>(), [false, true]);
        assert_eq!(server.looks(), 3);
        assert!(!server.cancelled());
        gateway.audited("one call", |record| record["method"] == "tools/call");
    }
}

#[test]
fn a_call_that_needs_no_task_goes_up_as_it_is() {
    for (request, _) in [
        (Request::handshake(SLOW_BEFORE.replace("slow", "echo")), ()),
        (Request::lite("tools/call", r#"{"name":"echo","arguments":{}}"#), ()),
    ] {
        let server = Server::start(&[WORKING]);
        let gateway = server.gateway();
        assert!(text_of(&request.ask(&gateway)).contains("ok"));
        let calls = server.upstream.calls();
        assert_eq!(calls.iter().map(declared).collect::<Vec<_>>(), [false]);
    }
}

#[test]
fn how_a_task_ends_is_how_its_call_ends() {
    let failed =
        r#""status":"failed","error":{"code":-32603,"message":"it broke","data":{"n":1.0}}"#;
    let tool_error =
        r#""status":"completed","result":{"content":[{"type":"text","text":"no"}],"isError":true}"#;
    let server = Server::start(&[WORKING]);
    let gateway = server.gateway();
    let ask = |stands: &[&str]| {
        server.stands(stands);
        Request::handshake(SLOW_BEFORE).ask(&gateway)
    };
    let reply = ask(&[failed]);
    assert_eq!((reply.status, reply.rpc_code()), (200, Some(-32_603)), "{}", reply.text());
    assert_eq!(reply.member(&["error", "data"]).as_deref(), Some(r#"{"n":1.0}"#));
    let reply = ask(&[tool_error]);
    assert!(reply.is_error() && reply.text().contains("\"no\""), "{}", reply.text());
    for stands in [r#""status":"cancelled""#, "error unknown task: own-1", r#""status":"resting""#]
    {
        let reply = ask(&[stands]);
        assert_eq!(reply.refusal().as_deref(), Some("external_service_error"), "{stands}");
        assert!(!reply.text().contains("own-1"), "{}", reply.text());
    }
}

#[test]
fn a_look_that_fails_is_repeated() {
    let server = Server::start(&[r#""status":"resting""#, WORKING, DONE]);
    let gateway = server.gateway();
    let reply = Request::handshake(SLOW_BEFORE).ask(&gateway);
    assert!(text_of(&reply).contains("\"done\""), "{}", reply.text());
    assert_eq!(server.looks(), 3);
    assert_eq!(server.upstream.calls().len(), 2, "the call itself is not");
}

#[test]
fn a_caller_that_gives_up_cancels_the_task() {
    let server = Server::start(&[WORKING]);
    let gateway = server.gateway();
    let session = open_session(&gateway, "2025-11-25");
    let mut client = Client::of(&gateway);
    client.send(&Request::handshake(SLOW_BEFORE).header("Mcp-Session-Id", &session));
    wait_for("the task is looked at", SOON, || server.looks() > 0);
    assert!(!server.cancelled());
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    Request::handshake(cancel).header("Mcp-Session-Id", &session).ask(&gateway);
    wait_for("its server is told", SOON, || server.cancelled());

    let server = Server::start(&[WORKING]);
    let gateway = server.gateway();
    let mut client = Client::of(&gateway);
    client.send(&forms()[1]);
    wait_for("the task is looked at", SOON, || server.looks() > 0);
    drop(client);
    wait_for("its server is told", SOON, || server.cancelled());
}

#[test]
fn a_task_has_no_more_time_than_its_call() {
    let server = Server::start(&[WORKING]);
    let gateway = server.gateway_with(", timeout: 1s, max_time: 1s");
    let reply = Request::handshake(SLOW_BEFORE).ask(&gateway);
    assert_eq!(reply.refusal().as_deref(), Some("timeout"), "{}", reply.text());
    assert!(reply.text().contains("`up`"), "{}", reply.text());
    wait_for("its server is told", SOON, || server.cancelled());
}

const ASKS: &str = r#""status":"input_required","inputRequests":{"ok":{"method":"elicitation/create","params":{"mode":"form","message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}}"#;

#[test]
fn what_a_task_asks_of_a_client_that_cannot_answer_ends_it() {
    let server = Server::start(&[WORKING, ASKS]);
    let gateway = server.gateway();
    let [legacy, lite] = forms();
    let reply = lite.ask(&gateway);
    assert_eq!(reply.status, 502, "{}", reply.text());
    wait_for("its server is told", SOON, || server.cancelled());
    let reply = legacy.ask(&gateway);
    assert_eq!(reply.refusal().as_deref(), Some("capability_missing"), "{}", reply.text());
    wait_for("again", SOON, || server.upstream.of("tasks/cancel").len() == 2);
}

#[test]
fn what_a_task_asks_reaches_a_client_in_the_middle_of_its_call() {
    let server = Server::start(&[WORKING, ASKS, WORKING, DONE]);
    let gateway = server.gateway();
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}"#;
    let opened = Request::plain(initialize).ask(&gateway);
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let mut client = Client::of(&gateway);
    client.send(&Request::handshake(SLOW_BEFORE).header("Mcp-Session-Id", &session));
    assert_eq!(client.head().status, 200);
    let mut next = |holds: &str| loop {
        let event = client.event().unwrap_or_else(|| panic!("the stream ended before {holds}"));
        let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or_default();
        if data.contains(holds) {
            return data.to_owned();
        }
    };
    let question = next("elicitation/create");
    assert!(question.contains("Sure?"), "{question}");
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"action":"accept","content":{{"n":1.0}}}}}}"#,
        member(&question, &["id"]).unwrap()
    );
    let taken = Request::handshake(answer).header("Mcp-Session-Id", &session).ask(&gateway);
    assert_eq!(taken.status, 202);
    assert_eq!(member(&next("\"result\""), &["id"]).as_deref(), Some("7"));
    let told = server.upstream.of("tasks/update").pop().unwrap();
    assert_eq!(
        told.member(&["params", "inputResponses", "ok"]).as_deref(),
        Some(r#"{"action":"accept","content":{"n":1.0}}"#)
    );
    assert_eq!(server.upstream.calls().len(), 2, "one task");
    assert!(!server.cancelled());
}
