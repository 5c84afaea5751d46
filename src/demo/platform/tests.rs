//! The platform over TCP, in both of its dialects: who may enter, and who sees what.

mod runs;
mod wire;

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::demo::testing::{ANY_PORT, Answer, modern, plain, post, send};

const KEY: &str = "a-key-for-tests";

fn config() -> PlatformConfig {
    PlatformConfig {
        listen: ANY_PORT,
        gateway_key: KEY.into(),
        token_employee: None,
        run_step: Duration::from_millis(5),
        database: None,
        clock: Clock::system(),
    }
}

async fn platform() -> Running {
    start(config()).await.unwrap()
}

/// A platform whose runs stay where they are.
async fn platform_at_rest() -> Running {
    start(PlatformConfig { run_step: Duration::from_secs(3_600), ..config() }).await.unwrap()
}

/// The ways to reach a tool, and to say for whom.
#[derive(Debug, Clone, Copy)]
enum Way {
    LiteUser,
    LiteHeader,
    Handshake,
    Modern,
}

const WAYS: [Way; 4] = [Way::LiteUser, Way::LiteHeader, Way::Handshake, Way::Modern];

/// Calls a tool; either what it answered, or the object `{code, message}`.
async fn call(
    running: &Running,
    way: Way,
    emp: &str,
    tool: &str,
    args: Value,
) -> Result<Value, Value> {
    let (addr, key, header) = (running.addr(), ("x-api-key", KEY), ("sso-emp-id", emp));
    let params = json!({ "name": tool, "arguments": args });
    match way {
        Way::LiteUser => {
            let tenant = if emp.starts_with("E2") { "globex" } else { "acme" };
            let mut params = params;
            params["user"] = json!({ "empId": emp, "tenant": tenant, "roles": ["member"] });
            lite_outcome(&post(addr, "/mcp/tools/call", &[key], params.to_string()).await)
        }
        Way::LiteHeader => {
            let headers = [key, header];
            lite_outcome(&post(addr, "/mcp/tools/call", &headers, params.to_string()).await)
        }
        Way::Handshake => {
            mcp_outcome(&plain(addr, MCP_PATH, &[key, header], "tools/call", params).await)
        }
        Way::Modern => {
            mcp_outcome(&modern(addr, MCP_PATH, &[key, header], "tools/call", params).await)
        }
    }
}

fn lite_outcome(answer: &Answer) -> Result<Value, Value> {
    let body = answer.json();
    if answer.status == StatusCode::OK {
        assert_eq!(body["isError"], json!(false));
        Ok(structured(&body))
    } else {
        let code = Code::from_name(body["error"]["code"].as_str().unwrap()).unwrap();
        assert_eq!(answer.status.as_u16(), code.rest_status());
        Err(body["error"].clone())
    }
}

fn mcp_outcome(answer: &Answer) -> Result<Value, Value> {
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let result = &answer.json()["result"];
    match &result["isError"] {
        Value::Bool(false) => Ok(structured(result)),
        Value::Bool(true) => Err(structured(result)["error"].clone()),
        other => panic!("isError is {other}: {answer:?}"),
    }
}

/// The structured content, which the text repeats.
fn structured(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), result["structuredContent"]);
    result["structuredContent"].clone()
}

fn code(outcome: Result<Value, Value>) -> String {
    outcome.unwrap_err()["code"].as_str().unwrap().to_owned()
}

async fn finished(running: &Running, emp: &str, run: &str) -> Value {
    for _ in 0..2_000 {
        let args = json!({ "runId": run });
        let seen = call(running, Way::LiteHeader, emp, "get_test_run", args).await.unwrap();
        if !matches!(seen["status"].as_str(), Some("queued" | "running")) {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{run} did not end");
}

// === who sees what ===

#[tokio::test]
async fn an_employee_sees_what_is_his_own_or_shared_with_him() {
    let running = platform().await;
    for way in WAYS {
        for (emp, tasks) in [
            ("E1001", &["T-1001", "T-1002", "T-1003"][..]),
            ("E1002", &[]),
            ("E1003", &["T-1002"]),
            ("E1009", &[]),
            ("E2001", &[]),
            ("E9999", &[]),
        ] {
            let listed = call(&running, way, emp, "list_test_tasks", json!({})).await.unwrap();
            assert_eq!(listed["total"], tasks.len(), "{way:?} {emp}");
            let ids: Vec<_> = listed["tasks"].as_array().unwrap().iter().collect();
            let ids: Vec<_> = ids.iter().map(|task| task["taskId"].as_str().unwrap()).collect();
            assert_eq!(ids, tasks, "{way:?} {emp}");
        }
    }
}

#[tokio::test]
async fn what_is_anothers_is_answered_like_what_does_not_exist() {
    let running = platform_at_rest().await;
    for way in WAYS {
        for (tool, mine, nobodys) in [
            ("get_test_task", json!({"taskId": "T-1001"}), json!({"taskId": "T-9999"})),
            ("list_test_cases", json!({"taskId": "T-1001"}), json!({"taskId": "T-9999"})),
            ("get_test_case", json!({"caseId": "C-1001"}), json!({"caseId": "C-9999"})),
            ("get_test_run", json!({"runId": "R-1001"}), json!({"runId": "R-9999"})),
            ("get_execution_result", json!({"runId": "R-1001"}), json!({"runId": "R-9999"})),
            ("stop_test_run", json!({"runId": "R-1001"}), json!({"runId": "R-9999"})),
            (
                "start_test_run",
                json!({"taskId": "T-1001", "idempotencyKey": format!("{way:?}")}),
                json!({"taskId": "T-9999", "idempotencyKey": format!("{way:?}")}),
            ),
        ] {
            let missing = call(&running, way, "E1001", tool, nobodys).await.unwrap_err();
            assert_eq!(missing["code"], "not_found", "{way:?} {tool}");
            for emp in ["E1002", "E1003", "E1009", "E2001", "E9999"] {
                let refused = call(&running, way, emp, tool, mine.clone()).await.unwrap_err();
                assert_eq!(refused, missing, "{way:?} {tool} {emp}");
            }
            if tool != "stop_test_run" {
                call(&running, way, "E1001", tool, mine).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_share_opens_a_task_its_cases_and_its_runs() {
    let running = platform().await;
    for (tool, args) in [
        ("get_test_task", json!({"taskId": "T-1002"})),
        ("list_test_cases", json!({"taskId": "T-1002"})),
        ("get_test_case", json!({"caseId": "C-1004"})),
        ("get_test_run", json!({"runId": "R-1002"})),
        ("get_execution_result", json!({"runId": "R-1002"})),
    ] {
        call(&running, Way::Modern, "E1003", tool, args).await.unwrap();
    }
}

#[tokio::test]
async fn another_tenants_employee_of_the_same_id_owns_nothing() {
    let running = platform().await;
    let body = json!({
        "name": "list_test_tasks", "arguments": {},
        "user": { "empId": "E1001", "tenant": "globex", "roles": [] },
    });
    let headers = [("x-api-key", KEY)];
    let answer = post(running.addr(), "/mcp/tools/call", &headers, body.to_string()).await;
    assert_eq!(lite_outcome(&answer).unwrap()["total"], 0);
}

#[tokio::test]
async fn a_share_does_not_cross_tenants() {
    let store = Store::open(None, Clock::system()).await.unwrap();
    let who = Employee {
        emp_id: EmployeeId::parse("E2001").unwrap(),
        tenant: Some(TenantId::new("globex")),
    };
    sqlx::raw_sql("INSERT INTO share (task_id, emp_id) VALUES ('T-1001', 'E2001')")
        .execute(&store.pool)
        .await
        .unwrap();
    assert!(store.tasks(&who).await.unwrap().is_empty());
    assert!(store.task(&who, "T-1001").await.unwrap().is_none());
}

#[tokio::test]
async fn the_injected_user_goes_before_the_header_and_the_header_before_the_tokens_employee() {
    let employee = Employee {
        emp_id: EmployeeId::parse("E1003").unwrap(),
        tenant: Some(TenantId::new("acme")),
    };
    let running =
        start(PlatformConfig { token_employee: Some(employee), ..config() }).await.unwrap();
    let key = ("x-api-key", KEY);
    let total = async |headers: &[(&str, &str)], user: Option<Value>| {
        let mut body = json!({ "name": "list_test_tasks" });
        if let Some(user) = user {
            body["user"] = user;
        }
        let answer = post(running.addr(), "/mcp/tools/call", headers, body.to_string()).await;
        lite_outcome(&answer).unwrap()["total"].as_i64().unwrap()
    };
    let owner = json!({ "empId": "E1001" });
    assert_eq!(total(&[key], None).await, 1);
    assert_eq!(total(&[key, ("sso-emp-id", "E1002")], None).await, 0);
    assert_eq!(total(&[key, ("sso-emp-id", "E1002")], Some(owner)).await, 3);
    let named: Vec<_> =
        running.journal().entries().into_iter().map(|entry| entry.emp_id.unwrap()).collect();
    assert_eq!(named, ["E1003", "E1002", "E1001"]);
}

#[tokio::test]
async fn a_call_for_nobody_is_refused() {
    let running = platform().await;
    let body = json!({ "name": "list_test_tasks" }).to_string();
    let answer = post(running.addr(), "/mcp/tools/call", &[("x-api-key", KEY)], body).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let params = json!({ "name": "list_test_tasks" });
    let headers = [("x-api-key", KEY)];
    let answer = modern(running.addr(), MCP_PATH, &headers, "tools/call", params).await;
    assert_eq!(code(mcp_outcome(&answer)), "permission_denied");
}

#[tokio::test]
async fn arguments_are_never_an_identity() {
    let running = platform().await;
    for way in WAYS {
        let args = json!({ "user": { "empId": "E1001", "tenant": "acme" } });
        let refused = call(&running, way, "E1002", "list_test_tasks", args).await;
        assert_eq!(code(refused), "invalid_args", "{way:?}");
    }
    // Nor is a `user` beside the arguments on the path that does not know it.
    let params = json!({ "name": "list_test_tasks", "user": { "empId": "E1001" } });
    let headers = [("x-api-key", KEY), ("sso-emp-id", "E1002")];
    let answer = plain(running.addr(), MCP_PATH, &headers, "tools/call", params).await;
    assert_eq!(mcp_outcome(&answer).unwrap()["total"], 0);
}

#[tokio::test]
async fn an_employee_who_is_not_named_properly_is_refused() {
    let running = platform().await;
    let body = json!({ "name": "list_test_tasks" });
    for headers in [
        &[("x-api-key", KEY), ("sso-emp-id", "E1001"), ("sso-emp-id", "E1002")][..],
        &[("x-api-key", KEY), ("sso-emp-id", "")],
        &[("x-api-key", KEY), ("sso-emp-id", "E1001, E1002")],
    ] {
        let answer = post(running.addr(), "/mcp/tools/call", headers, body.to_string()).await;
        assert_eq!(code(lite_outcome(&answer)), "invalid_args", "{headers:?}");
    }
    for user in [json!("E1001"), json!({}), json!({ "empId": 1001 }), json!({ "empId": "" })] {
        let mut body = body.clone();
        body["user"] = user;
        let headers = [("x-api-key", KEY), ("sso-emp-id", "E1001")];
        let answer = post(running.addr(), "/mcp/tools/call", &headers, body.to_string()).await;
        assert_eq!(code(lite_outcome(&answer)), "invalid_args", "{body}");
    }
}

// === the key ===

#[tokio::test]
async fn without_the_gateways_key_everything_is_401() {
    let running = platform().await;
    let wrong: [&[(&str, &str)]; 5] = [
        &[],
        &[("x-api-key", "")],
        &[("x-api-key", "a-key-for-test")],
        &[("x-api-key", "a-key-for-tests2")],
        &[("x-api-key", KEY), ("x-api-key", KEY)],
    ];
    let user = json!({ "name": "list_test_tasks", "user": { "empId": "E1001" } }).to_string();
    for headers in wrong {
        for path in ["/mcp/tools/call", "/mcp/tools/list", "/mcp", "/elsewhere"] {
            let answer = post(running.addr(), path, headers, user.clone()).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} {headers:?}");
            assert!(answer.headers.contains_key("www-authenticate"));
            assert_eq!(answer.json()["error"]["code"], "unauthenticated");
        }
        let answer = modern(running.addr(), MCP_PATH, headers, "server/discover", json!({})).await;
        assert_eq!((answer.status, answer.rpc_code()), (StatusCode::UNAUTHORIZED, -31_401));
        assert!(answer.headers.contains_key("www-authenticate"));
        assert!(answer.json().get("id").is_none());
    }
    assert!(running.journal().entries().is_empty());
}
