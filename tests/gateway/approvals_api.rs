//! `/v1/approvals`: who sees what waits, who decides, and what is said of it; the command that
//! does the same, and the webhook that tells of it.

mod command;
mod webhook;
mod whole;

use std::sync::Arc;

use hangu::{
    approval::{Approval, ApprovalId, Demand, Request as Asking, Standing, Subject},
    model::{
        caller::{CallerId, EmployeeId, Role, TenantId},
        exchange::KeyedDigest,
        server::Risk,
    },
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::{Gateway, Reply, Request, gateway::KEY};

const GLOBEX: &str = "key-of-globex";
const BARE: &str = "key-without-an-employee";

const DIRECTORY: &str = "version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member, owner] }
  E2: { tenant: acme, roles: [owner] }
  E3: { tenant: acme, roles: [owner, security] }
  E4: { tenant: acme, roles: [member] }
  G1: { tenant: globex, roles: [owner] }
";

/// A gateway of two tenants, with further keys of the file.
fn gateway_with(more: &str) -> (Gateway, Arc<TempDir>) {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    (gateway_in(&folder, more), folder)
}

fn gateway_in(folder: &Arc<TempDir>, more: &str) -> Gateway {
    let hash = |key: &str| -> String {
        Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let yaml = format!(
        "{more}\ncallers:\n  gate: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header }}\n  \
         other: {{ keys: [{{ sha256: {} }}], tenant: globex, identity: header }}\n  \
         bare: {{ keys: [{{ sha256: {} }}], tenant: acme }}\nupstreams:\n  {{}}\n",
        hash(GLOBEX),
        hash(BARE)
    );
    Gateway::start_in(folder.clone(), None, &yaml, &[DIRECTORY])
}

fn gateway() -> Gateway {
    gateway_with("").0
}

/// What is asked for: by whom, with which arguments, and how many owners it wants.
fn asking(gateway: &Gateway, requester: Option<&str>, arguments: u8, owners: u32) -> Asking {
    let now_ms = gateway.approvals().now_ms();
    Asking {
        subject: Subject {
            tenant: TenantId::new("acme"),
            caller: CallerId::new("gate"),
            requester: requester.map(|id| EmployeeId::parse(id).unwrap()),
            tool: "crm/contacts.purge".into(),
            arguments: KeyedDigest { key: 0, digest: [arguments; 32] },
            revision: "3f9a1c20b7d4".into(),
        },
        demands: vec![Demand {
            rule: "two-eyes".into(),
            roles: [Role::new("owner")].into(),
            count: owners,
        }],
        risk: Risk::WriteHigh,
        sealed: None,
        asked_ms: now_ms,
        expires_ms: now_ms + 900_000,
    }
}

/// Asks the engine, as the path of a call does.
fn ask(gateway: &Gateway, asking: Asking) -> Standing {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(gateway.approvals().ask(asking)).unwrap()
}

/// Asks for what nobody has asked for yet, no sooner than a moment after the last one: ids are in
/// the order of milliseconds.
fn waiting(gateway: &Gateway, requester: Option<&str>, arguments: u8) -> Approval {
    std::thread::sleep(std::time::Duration::from_millis(2));
    match ask(gateway, asking(gateway, requester, arguments, 1)) {
        Standing::Waiting { approval, new: true } => approval,
        other => panic!("{other:?}"),
    }
}

fn get(path: &str, employee: &str) -> Request {
    Request::new("GET", path, "").header("SSO-Emp-Id", employee)
}

fn post(path: &str, employee: &str, body: &str) -> Request {
    let request = Request::new("POST", path, body).header("SSO-Emp-Id", employee);
    request.header("Content-Type", "application/json")
}

fn decide(gateway: &Gateway, id: ApprovalId, verb: &str, employee: &str) -> Reply {
    post(&format!("/v1/approvals/{id}/{verb}"), employee, "{}").ask(gateway)
}

fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

fn ids(reply: &Reply) -> Vec<String> {
    let listed = body(reply);
    let all = listed["approvals"].as_array().unwrap_or_else(|| panic!("{reply:?}"));
    all.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_person_sees_his_own_requests_and_those_he_may_decide_on() {
    let gateway = gateway();
    let own = waiting(&gateway, Some("E4"), 1).id.to_string();
    let nobodys = waiting(&gateway, None, 2).id.to_string();
    for (key, employee, expected) in [
        (KEY, "E4", vec![&own]),
        (KEY, "E2", vec![&nobodys, &own]),
        (KEY, "E3", vec![&nobodys, &own]),
        (KEY, "E9", vec![]),
        (GLOBEX, "G1", vec![]),
    ] {
        let reply = get("/v1/approvals", employee).set("X-Api-Key", key).ask(&gateway);
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert!(reply.header("x-trace-id").is_some());
        assert_eq!(ids(&reply).iter().collect::<Vec<_>>(), expected, "{employee}");
        for (id, holder) in [(&own, "E4"), (&nobodys, "")] {
            let reply = get(&format!("/v1/approvals/{id}"), employee);
            let reply = reply.set("X-Api-Key", key).ask(&gateway);
            let sees = expected.contains(&id);
            assert_eq!(reply.status, if sees { 200 } else { 404 }, "{employee} {holder}");
        }
    }
}

#[test]
fn a_request_is_told_in_full() {
    let gateway = gateway();
    let asked = waiting(&gateway, Some("E1"), 7);
    let reply = get(&format!("/v1/approvals/{}", asked.id), "E2").ask(&gateway);
    let told = body(&reply);
    let time = |name: &str| told[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let waits = time("expiresAt").duration_since(time("askedAt"));
    assert_eq!(waits.as_secs(), 900);
    assert_eq!(
        told,
        json!({
            "id": asked.id.to_string(), "state": "waiting", "tool": "crm/contacts.purge",
            "risk": "write_high", "caller": "gate", "requester": "E1",
            "argsHash": format!("hmac-sha256:0:{}", "07".repeat(32)), "revision": "3f9a1c20b7d4",
            "askedAt": told["askedAt"], "expiresAt": told["expiresAt"],
            "rules": [{ "rule": "two-eyes", "roles": ["owner"], "count": 1, "missing": 1 }],
            "decisions": [], "mayDecide": true, "argumentsKept": false,
        })
    );
    let own = body(&get(&format!("/v1/approvals/{}", asked.id), "E1").ask(&gateway));
    assert_eq!(own["mayDecide"], false, "an owner, but of his own request");
}

#[test]
fn requests_are_listed_by_their_state() {
    let gateway = gateway();
    let waits = waiting(&gateway, Some("E4"), 1).id;
    let approved = waiting(&gateway, Some("E4"), 2).id;
    let refused = waiting(&gateway, Some("E4"), 3).id;
    let used = waiting(&gateway, Some("E4"), 4).id;
    let mut late = asking(&gateway, Some("E4"), 5, 1);
    late.expires_ms = late.asked_ms;
    let Standing::Waiting { approval: expired, .. } = ask(&gateway, late) else { panic!() };
    for (id, verb) in [(approved, "approve"), (refused, "refuse"), (used, "approve")] {
        assert_eq!(decide(&gateway, id, verb, "E2").status, 200);
    }
    let again = asking(&gateway, Some("E4"), 4, 1);
    assert!(matches!(ask(&gateway, again), Standing::Granted(_)));
    for (state, id) in [
        ("waiting", waits),
        ("approved", approved),
        ("refused", refused),
        ("used", used),
        ("expired", expired.id),
    ] {
        let reply = get(&format!("/v1/approvals?state={state}"), "E4").ask(&gateway);
        assert_eq!(ids(&reply), [id.to_string()], "{state}");
    }
    assert_eq!(ids(&get("/v1/approvals", "E4").ask(&gateway)).len(), 5);
}

#[test]
fn who_may_decide_and_what_the_others_are_told() {
    let gateway = gateway();
    let asked = match ask(&gateway, asking(&gateway, Some("E1"), 1, 2)) {
        Standing::Waiting { approval, .. } => approval.id,
        other => panic!("{other:?}"),
    };
    // In this order: what one does shows in what the next is told.
    for (key, employee, verb, status, word) in [
        (KEY, "E1", "approve", 403, "permission_denied"),
        (KEY, "E1", "refuse", 403, "permission_denied"),
        (KEY, "E4", "approve", 404, "not_found"),
        (KEY, "E9", "approve", 404, "not_found"),
        (GLOBEX, "G1", "approve", 404, "not_found"),
        (KEY, "E2", "approve", 200, "waiting"),
        (KEY, "E2", "approve", 409, "conflict"),
        (KEY, "E2", "refuse", 409, "conflict"),
        (KEY, "E3", "approve", 200, "approved"),
        (KEY, "E3", "approve", 409, "conflict"),
        (KEY, "E3", "refuse", 409, "conflict"),
    ] {
        let path = format!("/v1/approvals/{asked}/{verb}");
        let reply = post(&path, employee, "").set("X-Api-Key", key).ask(&gateway);
        assert_eq!(reply.status, status, "{employee} {verb}: {}", reply.text());
        let told = body(&reply);
        let found = told["state"].as_str().or(told["error"]["code"].as_str());
        assert_eq!(found, Some(word), "{employee} {verb}");
    }
    let told = body(&get(&format!("/v1/approvals/{asked}"), "E1").ask(&gateway));
    let by = |place: usize| told["decisions"][place]["by"].clone();
    assert_eq!((by(0), by(1)), (json!("E2"), json!("E3")));
    assert!(matches!(ask(&gateway, asking(&gateway, Some("E1"), 1, 2)), Standing::Granted(_)));
}

#[test]
fn what_is_unknown_foreign_or_hidden_answers_alike() {
    let gateway = gateway();
    let hidden = waiting(&gateway, Some("E1"), 1).id;
    let other = ApprovalId::new(1);
    let alike = |request: Request| {
        let reply = request.ask(&gateway);
        let mut told = body(&reply);
        told["error"]["traceId"] = Value::Null;
        (reply.status, told)
    };
    for verb in ["", "/approve", "/refuse"] {
        let to = |id: &str, employee: &str| match verb {
            "" => get(&format!("/v1/approvals/{id}"), employee),
            verb => post(&format!("/v1/approvals/{id}{verb}"), employee, "{}"),
        };
        let unknown = alike(to(&other.to_string(), "E4"));
        assert_eq!(unknown.0, 404);
        assert_eq!(alike(to(&hidden.to_string(), "E4")), unknown, "hidden {verb}");
        assert_eq!(alike(to("no-id-at-all", "E4")), unknown, "malformed {verb}");
        let foreign = to(&hidden.to_string(), "G1").set("X-Api-Key", GLOBEX);
        assert_eq!(alike(foreign), unknown, "foreign {verb}");
    }
}

#[test]
fn only_a_named_employee_is_let_in() {
    let gateway = gateway();
    let asked = waiting(&gateway, Some("E1"), 1).id;
    let path = format!("/v1/approvals/{asked}/approve");
    for (request, status, advice) in [
        (Request::new("POST", &path, ""), 403, "SSO-Emp-Id"),
        (Request::new("POST", &path, "").set("X-Api-Key", BARE), 403, "no employee"),
        (Request::new("GET", "/v1/approvals", ""), 403, "SSO-Emp-Id"),
        (get("/v1/approvals", "E1").set("X-Api-Key", BARE), 403, "may not name an employee"),
        (get("/v1/approvals", "G1"), 403, "another tenant"),
        (get("/v1/approvals", "E1").set("X-Api-Key", "wrong"), 401, "key"),
        (get("/v1/approvals", "E1").without("X-Api-Key"), 401, "X-Api-Key"),
    ] {
        let reply = request.ask(&gateway);
        let message = body(&reply)["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(reply.status, status, "{message}");
        assert!(message.contains(advice), "{message}");
    }
}

#[test]
fn what_is_wrong_with_a_request_is_said() {
    let gateway = gateway();
    let asked = waiting(&gateway, Some("E1"), 1).id;
    let list = |query: &str| get(&format!("/v1/approvals{query}"), "E2");
    let path = format!("/v1/approvals/{asked}/refuse");
    let said = |body: &str| post(&path, "E2", body);
    let long = format!(r#"{{"comment":"{}"}}"#, "ä".repeat(1_001));
    for (request, status, says) in [
        (list("?state=waitng"), 400, "unknown state `waitng`: known are `waiting`"),
        (list("?stat=waiting"), 400, "unknown parameter `stat`: only `state` is known"),
        (list("?state=used&state=used"), 400, "the parameter `state` is there twice"),
        (list("?%73tate=%00"), 400, "unknown state ``"),
        (get(&format!("/v1/approvals/{asked}?x"), "E2"), 400, "unknown parameter `x`"),
        (said("{"), 400, "the body is not JSON"),
        (said("[]"), 400, "must be a JSON object"),
        (said(r#"{"comment":"a","comment":"b"}"#), 400, "duplicate object key"),
        (said(r#"{"coment":"a"}"#), 400, "unknown member `coment`: only `comment` is known"),
        (said(r#"{"comment":1}"#), 400, "`comment` must be a text"),
        (said(r#"{"comment":"\u0007"}"#), 400, "`comment` holds control characters"),
        (said(&long), 400, "`comment` has 1001 characters, more than 1000"),
        (said("{}").set("Content-Type", "text/plain"), 415, "application/json"),
        (post("/v1/approvals", "E2", "{}"), 405, "one can only GET"),
        (get(&path, "E2"), 405, "one can only POST"),
        (Request::new("DELETE", &path, "").header("SSO-Emp-Id", "E2"), 405, "only POST"),
        (get("/v1/approvals/x/y/z", "E2"), 404, "nothing is served at /v1/approvals/x/y/z"),
        (get("/v1/", "E2"), 404, "nothing is served at /v1/"),
    ] {
        let reply = request.ask(&gateway);
        let message = body(&reply)["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(reply.status, status, "{message}");
        assert!(message.contains(says), "{message}");
        let allowed = (status == 405).then(|| if says.contains("GET") { "GET" } else { "POST" });
        assert_eq!(reply.header("allow"), allowed, "{message}");
    }
    let pointed = body(&said(r#"{"coment":"a"}"#).ask(&gateway));
    assert_eq!(pointed["error"]["pointer"], "/coment");
    // None of it was a decision.
    assert_eq!(body(&said(r#"{"comment":" why "}"#).ask(&gateway))["state"], "refused");
    let told = body(&get(&format!("/v1/approvals/{asked}"), "E1").ask(&gateway));
    assert_eq!(told["decisions"][0]["comment"], "why");
}

#[test]
fn of_two_who_decide_at_once_one_is_told_that_it_is_over() {
    let gateway = gateway();
    for arguments in 0..20 {
        let asked = waiting(&gateway, Some("E1"), arguments).id;
        let mut told: Vec<u16> = std::thread::scope(|scope| {
            let gateway = &gateway;
            let yes = scope.spawn(move || decide(gateway, asked, "approve", "E2").status);
            let no = scope.spawn(move || decide(gateway, asked, "refuse", "E3").status);
            vec![yes.join().unwrap(), no.join().unwrap()]
        });
        told.sort_unstable();
        assert_eq!(told, [200, 409]);
    }
}

#[test]
fn every_answer_leaves_a_record() {
    let gateway = gateway();
    let asked = waiting(&gateway, Some("E1"), 7).id;
    let told = |reply: &Reply| reply.header("x-trace-id").unwrap().to_owned();
    let taken = decide(&gateway, asked, "approve", "E2");
    let late = decide(&gateway, asked, "refuse", "E3");
    let hidden = decide(&gateway, asked, "approve", "E4");
    let list = get("/v1/approvals", "E2").ask(&gateway);
    let lost = get("/v1/nothing", "E2").ask(&gateway);
    let stranger = get("/v1/approvals", "E2").set("X-Api-Key", "wrong").ask(&gateway);
    let (tool, id) = (json!("crm/contacts.purge"), json!(asked.to_string()));
    let decision = |answer: &str, state: Value| {
        let mut told = json!({ "answer": answer, "id": id });
        if !state.is_null() {
            told["state"] = state;
        }
        told
    };
    let verb = |verb: &str| json!(format!("POST /v1/approvals/{{id}}/{verb}"));
    let none = Value::Null;
    for (reply, event, method, employee, outcome, tool, approval) in [
        (
            &taken,
            "approval_answer",
            verb("approve"),
            "E2",
            "ok",
            &tool,
            decision("yes", json!("approved")),
        ),
        (
            &late,
            "approval_answer",
            verb("refuse"),
            "E3",
            "conflict",
            &tool,
            decision("no", Value::Null),
        ),
        (
            &hidden,
            "approval_answer",
            verb("approve"),
            "E4",
            "caller_error",
            &none,
            decision("yes", Value::Null),
        ),
        (&list, "call", json!("GET /v1/approvals"), "E2", "ok", &none, Value::Null),
        (&lost, "call", json!("GET /v1"), "E2", "caller_error", &none, Value::Null),
        (&stranger, "call", json!("GET /v1"), "", "caller_error", &none, Value::Null),
    ] {
        let trace = told(reply);
        let mut found = Value::Null;
        crate::support::wait_for("the record", std::time::Duration::from_secs(5), || {
            let all = gateway.audit();
            found = all.into_iter().find(|one| one["traceId"] == *trace).unwrap_or_default();
            !found.is_null()
        });
        let empty = json!("");
        let who = found["principal"].get("empId").unwrap_or(&empty).clone();
        let facts = (&found["event"], &found["method"], &who, &found["outcome"]);
        assert_eq!(facts, (&json!(event), &method, &json!(employee), &json!(outcome)), "{found}");
        assert_eq!((&found["tool"], &found["approval"]), (tool, &approval), "{found}");
        assert_eq!(found["status"], reply.status);
    }
    let text = std::fs::read_to_string(gateway.audit_file()).unwrap();
    assert!(crate::process_support::records(&text).len() > 5, "the chain holds");
}

#[test]
fn metrics_name_the_path_and_count_no_operation_of_mcp() {
    let gateway = gateway();
    let asked = waiting(&gateway, Some("E1"), 1).id;
    assert_eq!(decide(&gateway, asked, "approve", "E2").status, 200);
    assert_eq!(get("/v1/approvals", "E2").set("X-Api-Key", "wrong").ask(&gateway).status, 401);
    let page = gateway.metrics();
    let line = page.lines().find(|line| {
        line.starts_with("http_server_request_duration_seconds_count")
            && line.contains("http_route=\"/v1/approvals/{id}/approve\"")
    });
    assert!(line.is_some_and(|line| line.ends_with(" 1")), "{page}");
    assert!(!page.contains(&asked.to_string()));
    let operations = page.lines().filter(|line| line.starts_with("mcp_server_operation"));
    assert_eq!(operations.count(), 0, "{page}");
}
