//! `notifications/tasks`: told to whose task it is, under the id by which it is known there.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ERAS, Era, Listener, SECOND, Server, everything, gateway, listen};
use crate::support::{Gateway, Request, wait_for};

const TOLD: &str = "notifications/tasks";
const EXTENSION: &str = "io.modelcontextprotocol/tasks";

fn declared() -> Value {
    let mut all = everything();
    all["extensions"] = json!({ EXTENSION: {} });
    all
}

fn modern(path: &str, employee: &str, method: &str, params: &Value, speaks: bool) -> Request {
    let mut params = params.clone();
    let extensions = if speaks { json!({ EXTENSION: {} }) } else { json!({}) };
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "extensions": extensions },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 9, "method": method, "params": params });
    Request::stateless(&body.to_string()).at(path).header("SSO-Emp-Id", employee)
}

/// Calls a tool; the server makes a task of this name of it. Gives the id for the client.
fn task(gateway: &Gateway, employee: &str, own: &str) -> String {
    let params = json!({ "name": "open", "arguments": { "becomes": own } });
    let reply = modern("/mcp/up", employee, "tools/call", &params, true).ask(gateway);
    let id = reply.member(&["result", "taskId"]);
    serde_json::from_str(&id.unwrap_or_else(|| panic!("{}", reply.text()))).unwrap()
}

fn watch(gateway: &Gateway, path: &str, employee: &str, ids: &[&str]) -> (Listener, Value) {
    let params = json!({ "notifications": { "taskIds": ids } });
    let mut listener =
        Listener::open(gateway, &modern(path, employee, "subscriptions/listen", &params, true));
    let first = listener.message().unwrap();
    (listener, first["params"]["notifications"].clone())
}

/// The tasks of the newest stream for an employee.
fn ids_of(server: &Server, employee: &str) -> Vec<String> {
    let seen = server.seen("subscriptions/listen");
    let newest = seen.iter().rev().find(|seen| seen.header("x-employee") == Some(employee));
    let ids = &newest.unwrap().message["params"]["notifications"]["taskIds"];
    let mut ids: Vec<String> = serde_json::from_value(ids.clone()).unwrap_or_default();
    ids.sort();
    ids
}

fn tell(server: &Server, own: &str, status: &str) {
    let result = json!({ "content": [{ "type": "text", "text": status }] });
    server.tell(None, TOLD, &json!({ "taskId": own, "status": status, "result": result }));
}

#[test]
fn a_task_is_told_of_under_the_id_its_client_has() {
    let server = Server::start(Era::Stateless, declared());
    let gateway = gateway(&server, "");
    let first = task(&gateway, "E1", "own-1");
    let second = task(&gateway, "E1", "own-2");
    let (mut one, honoured) = watch(&gateway, "/mcp/up", "E1", &[&first, &first]);
    assert_eq!(honoured, json!({ "taskIds": [first] }));
    let (mut both, honoured) = watch(&gateway, "/mcp", "E1", &[&second, &first]);
    assert_eq!(honoured["taskIds"].as_array().unwrap().len(), 2);
    // One stream at the server, with its own ids, and the extension declared.
    let asked = server.seen("subscriptions/listen").pop().unwrap();
    assert_eq!(ids_of(&server, "E1"), ["own-1", "own-2"]);
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    let told = &asked.message["params"]["_meta"][capabilities]["extensions"];
    assert_eq!(told, &json!({ EXTENSION: {} }));
    wait_for("the old stream has gone", 5 * SECOND, || {
        server.streams().iter().filter(|of| *of == "E1").count() == 1
    });
    tell(&server, "own-2", "working");
    tell(&server, "own-3", "working");
    tell(&server, "own-1", "working");
    tell(&server, "own-1", "completed");
    let expected = |id: &str, status: &str| {
        json!({ "jsonrpc": "2.0", "method": TOLD, "params": {
            "taskId": id, "status": status,
            "result": { "content": [{ "type": "text", "text": status }] },
            "_meta": { "io.modelcontextprotocol/subscriptionId": 9 },
        }})
    };
    for status in ["working", "completed"] {
        assert_eq!(one.message().unwrap(), expected(&first, status));
    }
    assert_eq!(both.message().unwrap(), expected(&second, "working"));
    assert_eq!(both.message().unwrap(), expected(&first, "working"));
    assert_eq!(both.message().unwrap(), expected(&first, "completed"));
    drop((one, both));
    wait_for("nothing is watched", 5 * SECOND, || server.streams() == [""]);
}

#[test]
fn what_is_not_the_callers_is_left_out() {
    let server = Server::start(Era::Stateless, declared());
    let gateway = gateway(&server, "");
    let (own, refused) = (task(&gateway, "E1", "own-1"), task(&gateway, "E1", "refused-1"));
    let foreign = task(&gateway, "E2", "own-2");
    let ids = [&*own, &*refused, &*foreign, "own-1", "AQAA", ""];
    let (mut listener, honoured) = watch(&gateway, "/mcp/up", "E1", &ids);
    assert_eq!(honoured, json!({ "taskIds": [own] }));
    let (mut other, honoured) = watch(&gateway, "/mcp/up", "E2", &[&own, &foreign]);
    assert_eq!(honoured, json!({ "taskIds": [foreign] }));
    let mut since = None;
    wait_for("only what is honoured is asked for", 5 * SECOND, || {
        let is_so = server.streams().iter().filter(|of| *of == "E1").count() == 1
            && ids_of(&server, "E1") == ["own-1"];
        // For a moment the one that is counted may be the one that is replaced.
        since = since.filter(|_| is_so).or_else(|| is_so.then(Instant::now));
        since.is_some_and(|since: Instant| since.elapsed() > SECOND / 4)
    });
    // A server that tells of everything to everybody is not believed.
    tell(&server, "own-2", "working");
    tell(&server, "own-1", "working");
    assert_eq!(listener.message().unwrap()["params"]["taskId"], own);
    assert_eq!(other.message().unwrap()["params"]["taskId"], foreign);
    let undeclared = json!({ "notifications": { "taskIds": [own] } });
    let undeclared = modern("/mcp/up", "E1", "subscriptions/listen", &undeclared, false);
    let undeclared = undeclared.ask(&gateway);
    assert_eq!((undeclared.status, undeclared.rpc_code()), (400, Some(-32_021)));
    assert!(undeclared.text().contains(EXTENSION), "{}", undeclared.text());
}

/// Nothing is asked of a server that keeps no tasks; the id of one it had once is no fault.
#[test]
fn a_server_without_tasks_is_not_asked_for_them() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway(&server, "");
        let (_, honoured) = watch(&gateway, "/mcp/up", "E1", &["AQAA"]);
        assert_eq!(honoured, json!({}), "{era:?}");
        assert!(server.filter_of("E1").is_empty());
        let nothing = listen("/mcp/up", "E1", "1", &json!({ "taskIds": "AQAA" })).ask(&gateway);
        assert_eq!(nothing.rpc_code(), Some(-32_602));
    }
}
