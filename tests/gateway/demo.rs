//! The demo as `design.md` describes it: the four rows over both ways to the platform, and who
//! sees what.

use std::{path::Path, time::Duration};

use hangu::{
    clock::Clock,
    demo::{self, gateway, orders, platform},
};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, time::Instant};

use crate::process_support::{Client, Dialect, Process, Response, exchange, until};

const GATEWAY: &str = gateway::GATEWAY_KEY;
const DEV: &str = gateway::DEV_KEY;
const GLOBEX: &str = gateway::GLOBEX_KEY;

/// The ways to the platform: a path, and what tools are called there.
const WAYS: [(&str, &str); 4] = [
    ("/mcp/platform", ""),
    ("/mcp/platform-mcp", ""),
    ("/mcp", "platform__"),
    ("/mcp", "platform-mcp__"),
];

/// The demo's parts in this process, so that a test can ask the platform what it saw.
struct Demo {
    // In the order in which they end.
    gateway: Option<hangu::app::Running>,
    platform: demo::Running,
    _orders: demo::Running,
    _runtime: Runtime,
    _folder: tempfile::TempDir,
}

impl Demo {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let loopback = "127.0.0.1:0".parse().unwrap();
        let key = secrecy::SecretString::from("the-platform's-own-key");
        let config = platform::PlatformConfig {
            listen: loopback,
            gateway_key: key.clone(),
            token_employee: None,
            run_step: Duration::from_millis(20),
            database: None,
            clock: Clock::system(),
        };
        let platform = runtime.block_on(platform::start(config)).unwrap();
        let orders = runtime.block_on(orders::start(loopback)).unwrap();
        let places = gateway::Places {
            listen: loopback,
            admin: loopback,
            platform: platform.addr(),
            orders: orders.addr(),
            platform_key: &key,
            audit: &folder.path().join(Path::new("audit.jsonl")),
        };
        let gateway = gateway::app(&places).unwrap().start().unwrap();
        Self {
            gateway: Some(gateway),
            platform,
            _orders: orders,
            _runtime: runtime,
            _folder: folder,
        }
    }

    fn client(&self, path: &str, dialect: Dialect) -> Client {
        Client::new(self.gateway.as_ref().unwrap().address(), path, dialect)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.stop(Duration::from_secs(1));
        }
    }
}

fn total(answer: &Response) -> Value {
    answer.result()["structuredContent"]["total"].clone()
}

#[test]
fn the_four_rows_hold_on_every_way_and_in_every_dialect() {
    let demo = Demo::start();
    for dialect in Dialect::ALL {
        for (path, prefix) in WAYS {
            let client = demo.client(path, dialect);
            let tool = format!("{prefix}list_test_tasks");
            let at = format!("{dialect:?} {path} {tool}");

            // 1. Who it is, for the key alone.
            let hello = match dialect {
                Dialect::Modern => client.clone().key(GATEWAY).send("server/discover", json!({})),
                Dialect::Legacy => client.clone().key(GATEWAY).initialize().1,
                Dialect::Lite => client.clone().key(GATEWAY).send("tools/list", json!({})),
            };
            assert_eq!(hello.status, 200, "{at}: {hello:?}");
            let named = match dialect {
                Dialect::Modern => {
                    hello.result()["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].clone()
                }
                Dialect::Legacy => hello.result()["serverInfo"]["name"].clone(),
                Dialect::Lite => json!("hangu"),
            };
            assert_eq!(named, "hangu", "{at}: {hello:?}");

            // 2. and 3. To each employee what is his.
            let rows = [
                (GATEWAY, Some("E1001"), 3),
                (GATEWAY, Some("E1002"), 0),
                (GATEWAY, Some("E1003"), 1),
                (DEV, None, 3),
                (GLOBEX, Some("E2001"), 0),
            ];
            for (key, employee, tasks) in rows {
                let client = client.clone().key(key);
                let client = employee.into_iter().fold(client, Client::employee);
                let answer = client.call(&tool, json!({}));
                assert_eq!(
                    (answer.status, total(&answer)),
                    (200, json!(tasks)),
                    "{at}: {answer:?}"
                );
                assert_ne!(answer.result()["isError"], true, "{at}");
            }

            // 4. Nothing without the right key, whoever it is said to be for.
            for key in [Some("wrong"), Some("DEMO-GATEWAY-KEY"), Some(""), None] {
                for employee in [Some("E1001"), None] {
                    let client = key.into_iter().fold(client.clone(), Client::key);
                    let client = employee.into_iter().fold(client, Client::employee);
                    let answer = client.call(&tool, json!({}));
                    assert_eq!(answer.status, 401, "{at}: {answer:?}");
                    let challenge = answer.header("www-authenticate");
                    assert_eq!(challenge, Some("Bearer realm=\"hangu\""), "{at}");
                    assert_eq!(answer.fault()["code"], "unauthenticated", "{at}: {answer:?}");
                    let envelope = answer.json().get("jsonrpc").cloned();
                    let rpc = (dialect != Dialect::Lite).then(|| json!("2.0"));
                    assert_eq!(envelope, rpc, "{at}: {answer:?}");
                }
            }
        }
    }
}

#[test]
fn an_employee_is_believed_only_where_the_caller_may_name_one() {
    let demo = Demo::start();
    // key, employees sent, and the answer's status and word
    let cases: [(&str, &[&str], u16, &str); 11] = [
        (GATEWAY, &["E1001"], 200, "ok"),
        (DEV, &[], 200, "ok"),
        // From whoever may name nobody the header is refused, also if it says the truth.
        (DEV, &["E1002"], 403, "permission_denied"),
        (DEV, &["E1001"], 403, "permission_denied"),
        // Of another tenant.
        (GATEWAY, &["E2001"], 403, "permission_denied"),
        (GLOBEX, &["E1001"], 403, "permission_denied"),
        // Not one employee.
        (GATEWAY, &["E1001", "E1001"], 400, "invalid_args"),
        (GATEWAY, &["E1001", "E1002"], 400, "invalid_args"),
        (GATEWAY, &["E 1001"], 400, "invalid_args"),
        (GATEWAY, &[""], 400, "invalid_args"),
        (GATEWAY, &["E1001,E1002"], 400, "invalid_args"),
    ];
    for dialect in Dialect::ALL {
        for (key, employees, status, word) in cases {
            let client = demo.client("/mcp/platform", dialect).key(key);
            let client =
                employees.iter().fold(client, |client, one| client.header("SSO-Emp-Id", one));
            let answer = client.call("list_test_tasks", json!({}));
            let told = (answer.status, answer.word());
            assert_eq!(told, (status, word.to_owned()), "{dialect:?} {key} {employees:?}");
        }
        let long = "E".repeat(65);
        let client = demo.client("/mcp/platform", dialect).key(GATEWAY).employee(&long);
        assert_eq!(client.call("list_test_tasks", json!({})).status, 400);
    }
}

#[test]
fn a_key_alone_opens_and_lists_but_does_not_call() {
    let demo = Demo::start();
    for dialect in Dialect::ALL {
        let client = demo.client("/mcp", dialect).key(GATEWAY);
        // What the caller's `catalog_roles` would see.
        let seen = demo.client("/mcp", dialect).key(GATEWAY).employee("E1002").list();
        assert_eq!(client.list(), seen, "{dialect:?}");
        if dialect == Dialect::Legacy {
            let (session, answer) = client.initialize();
            assert_eq!(answer.status, 200);
            assert_eq!(session.send("ping", json!({})).result(), json!({}));
            assert_eq!(session.list(), seen);
        }
        let before = demo.platform.journal().count("list_test_tasks");
        let answer = client.call("platform__list_test_tasks", json!({}));
        assert_ne!(answer.word(), "ok", "{dialect:?}: {answer:?}");
        assert_eq!(demo.platform.journal().count("list_test_tasks"), before, "{dialect:?}");
    }
}

#[test]
fn nothing_in_a_body_is_an_identity() {
    let demo = Demo::start();
    let user = json!({ "empId": "E1001", "tenant": "acme", "roles": ["admin"] });
    for dialect in Dialect::ALL {
        for (path, prefix) in WAYS {
            let tool = format!("{prefix}list_test_tasks");
            let other = demo.client(path, dialect).key(GATEWAY).employee("E1002");
            let bodies = [
                json!({ "name": tool, "arguments": {}, "user": user }),
                json!({ "name": tool, "arguments": {}, "SSO-Emp-Id": "E1001", "empId": "E1001" }),
                json!({ "name": tool, "arguments": {}, "_meta": { "user": user,
                        "SSO-Emp-Id": "E1001", "dev.hangu/empId": "E1001" } }),
                json!({ "name": tool, "arguments": { "user": user, "empId": "E1001" } }),
            ];
            for body in bodies {
                let answer = other.send("tools/call", body.clone());
                // Arguments that the tool does not have may be refused, never believed.
                let refused = answer.word() == "invalid_args";
                let fine = refused || total(&answer) == json!(0);
                assert!(fine, "{dialect:?} {path} {body}: {answer:?}");
            }
            // Without a header there is nobody, whatever the body says.
            let nobody = demo.client(path, dialect).key(GATEWAY);
            let body = json!({ "name": tool, "arguments": {}, "user": user });
            assert_ne!(nobody.send("tools/call", body).word(), "ok", "{dialect:?} {path}");
        }
    }
}

#[test]
fn a_run_is_started_once_for_one_key() {
    let demo = Demo::start();
    for (turn, dialect) in Dialect::ALL.into_iter().enumerate() {
        for (path, prefix) in WAYS {
            let tool = format!("{prefix}start_test_run");
            let client = demo.client(path, dialect).key(GATEWAY).employee("E1001");
            let key = format!("try-{turn}-{path}-{prefix}");
            let start =
                |task: &str| client.call(&tool, json!({ "taskId": task, "idempotencyKey": key }));
            let first = start("T-1001");
            assert_eq!(first.word(), "ok", "{dialect:?} {path}: {first:?}");
            let count = demo.platform.journal().count("start_test_run");
            let again = start("T-1001");
            let run = |answer: &Response| answer.result()["structuredContent"]["runId"].clone();
            assert!(run(&first).is_string(), "{first:?}");
            assert_eq!(run(&again), run(&first), "{dialect:?} {path}");
            assert_eq!(again.header("idempotency-replayed"), Some("true"), "{again:?}");
            assert_eq!(again.result()["_meta"]["dev.hangu/replayed"], true, "{again:?}");
            let other = start("T-1002");
            assert_eq!(other.word(), "conflict", "{dialect:?} {path}: {other:?}");
            assert_eq!(demo.platform.journal().count("start_test_run"), count);
            // And none without a key.
            let bare = client.call(&tool, json!({ "taskId": "T-1001" }));
            assert_eq!(bare.word(), "invalid_args", "{bare:?}");
        }
    }
}

#[test]
fn a_run_goes_on_and_ends_and_only_its_owner_sees_it() {
    let demo = Demo::start();
    let client = |employee: &str| {
        demo.client("/mcp/platform", Dialect::Modern).key(GATEWAY).employee(employee)
    };
    let owner = client("E1001");
    let started =
        owner.call("start_test_run", json!({ "taskId": "T-1001", "idempotencyKey": "k" }));
    let run = started.result()["structuredContent"]["runId"].clone();
    let asked = json!({ "runId": run });
    until("the run passes", || {
        let state = owner.call("get_test_run", asked.clone()).result();
        state["structuredContent"]["status"] == "passed"
    });
    let result = owner.call("get_execution_result", asked.clone());
    assert_eq!(result.word(), "ok", "{result:?}");
    for employee in ["E1002", "E1003"] {
        let answer = client(employee).call("get_test_run", asked.clone());
        assert!(answer.text().contains("not_found"), "{employee}: {answer:?}");
    }
    // One task is shared, with its cases; the others are not there.
    let shared = client("E1003");
    for (task, there) in [("T-1002", true), ("T-1001", false), ("T-9999", false)] {
        let answer = shared.call("get_test_task", json!({ "taskId": task }));
        assert_eq!(answer.word() == "ok", there, "{task}: {answer:?}");
    }
}

#[test]
fn a_wrong_argument_never_reaches_the_platform() {
    let demo = Demo::start();
    let cases = [
        ("get_test_task", json!({ "taskId": 7 }), "/taskId"),
        ("get_test_task", json!({ "taskId": null }), "/taskId"),
        ("get_test_task", json!({}), "/taskId"),
        ("start_test_run", json!({ "taskId": ["T-1001"], "idempotencyKey": "k" }), "/taskId"),
    ];
    for dialect in Dialect::ALL {
        for (path, prefix) in WAYS {
            let client = demo.client(path, dialect).key(GATEWAY).employee("E1001");
            for (tool, arguments, pointer) in &cases {
                let answer = client.call(&format!("{prefix}{tool}"), arguments.clone());
                let fault = answer.fault();
                assert_eq!(fault["code"], "invalid_args", "{dialect:?} {path}: {answer:?}");
                assert_eq!(fault["next"], "repair_args");
                let told = fault["pointer"].as_str().unwrap_or_default();
                assert!(pointer.starts_with(told), "{dialect:?} {arguments}: {fault}");
                let name = pointer.trim_start_matches('/');
                assert!(fault["message"].as_str().unwrap().contains(name), "{fault}");
            }
        }
    }
    for (tool, ..) in cases {
        assert_eq!(demo.platform.journal().count(tool), 0, "{tool}");
    }
}

#[test]
fn each_role_sees_its_tools_and_no_others() {
    let demo = Demo::start();
    const READS: [&str; 6] = [
        "get_execution_result",
        "get_test_case",
        "get_test_run",
        "get_test_task",
        "list_test_cases",
        "list_test_tasks",
    ];
    // key, employee, whether runs may be started, the order server's tools
    let cases: [(&str, Option<&str>, bool, &[&str]); 6] = [
        (GATEWAY, Some("E1001"), true, &["list_orders", "query_order"]),
        (GATEWAY, Some("E1002"), false, &["list_orders", "query_order"]),
        (
            GATEWAY,
            Some("E1009"),
            true,
            &["add_order_note", "cancel_order", "list_orders", "query_order", "refund_order"],
        ),
        (DEV, None, true, &["list_orders", "query_order"]),
        (GLOBEX, Some("E2001"), false, &["list_orders", "query_order"]),
        // Nobody the directory knows: no roles, no tools.
        (GATEWAY, Some("E7777"), false, &[]),
    ];
    for dialect in Dialect::ALL {
        for (key, employee, starts, orders) in cases {
            let at = |path: &str| {
                let client = demo.client(path, dialect).key(key);
                let client = employee.into_iter().fold(client, Client::employee);
                let mut names = client.list();
                names.sort_unstable();
                names
            };
            let mut platform: Vec<String> = READS.map(str::to_owned).into();
            if orders.is_empty() {
                platform.clear();
            }
            if starts {
                platform.push("start_test_run".to_owned());
            }
            // Open to a part of the testers already, once somebody has said yes.
            if key == DEV || employee == Some("E1001") {
                platform.push("stop_test_run".to_owned());
            }
            assert_eq!(at("/mcp/platform"), platform, "{dialect:?} {key} {employee:?}");
            assert_eq!(at("/mcp/platform-mcp"), platform, "{dialect:?} {key} {employee:?}");
            assert_eq!(at("/mcp/orders"), orders, "{dialect:?} {key} {employee:?}");
            let mut all: Vec<String> =
                orders.iter().map(|name| format!("orders__{name}")).collect();
            for upstream in ["platform", "platform-mcp"] {
                all.extend(platform.iter().map(|name| format!("{upstream}__{name}")));
            }
            all.sort_unstable();
            assert_eq!(at("/mcp"), all, "{dialect:?} {key} {employee:?}");
        }
    }
}

#[test]
fn the_platform_is_told_who_calls_and_from_where() {
    let demo = Demo::start();
    for path in ["/mcp/platform", "/mcp/platform-mcp"] {
        let client = demo.client(path, Dialect::Modern).key(GATEWAY).employee("E1003");
        let answer = client.header("Cookie", "sid=1").call("list_test_tasks", json!({}));
        let trace = answer.header("x-trace-id").unwrap().to_owned();
        let entries = demo.platform.journal().entries();
        let entry = entries
            .iter()
            .find(|entry| entry.trace_id.as_ref() == Some(&trace))
            .unwrap_or_else(|| panic!("{path}: {entries:#?}"));
        assert_eq!(entry.emp_id.as_deref(), Some("E1003"), "{path}");
        assert_eq!(entry.call_source.as_deref(), Some("mcp"), "{path}");
        assert!(!entry.headers.iter().any(|name| name == "cookie"), "{path}: {entry:?}");
    }
}

#[test]
fn it_is_up_within_two_seconds_and_what_it_prints_works() {
    let begun = Instant::now();
    let demo = Process::demo();
    let answer = exchange(demo.admin, "GET", "/readyz", &[], b"").unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let log = demo.log();
    let commands: Vec<String> = log
        .replace("\\\n", " ")
        .lines()
        .filter(|line| line.starts_with("curl "))
        .map(str::to_owned)
        .collect();
    assert_eq!(commands.len(), 5, "{log}");
    let answers: Vec<Response> = commands.iter().map(|command| run_curl(command)).collect();
    let names = |answer: &Response| answer.result()["tools"].as_array().map_or(0, Vec::len);
    assert_eq!(names(&answers[0]), 14, "{:?}", answers[0]);
    assert_eq!(total(&answers[1]), json!(3), "{:?}", answers[1]);
    assert_eq!(answers[2].word(), "ok", "{:?}", answers[2]);
    let again = run_curl(&commands[2]);
    assert_eq!(again.header("idempotency-replayed"), Some("true"), "{again:?}");
    assert_eq!((answers[3].status, answers[3].word()), (400, "invalid_args".into()));
    assert_eq!((answers[4].status, answers[4].word()), (403, "approval_required".into()));
    // Its keys are public, so it listens to this machine alone.
    assert!(demo.address.ip().is_loopback() && demo.admin.ip().is_loopback());
}

/// Sends what a printed command line would: address, headers and body of `curl -s`.
#[track_caller]
fn run_curl(command: &str) -> Response {
    let mut words = Vec::new();
    for (index, part) in command.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    let url = words.iter().find_map(|word| word.strip_prefix("http://")).unwrap();
    let (address, path) = url.split_once('/').unwrap();
    let (mut headers, mut body) = (Vec::new(), "");
    for pair in words.windows(2) {
        match &*pair[0] {
            "-H" => headers.push(pair[1].split_once(": ").unwrap()),
            "-d" => body = &pair[1],
            _ => {}
        }
    }
    let path = format!("/{path}");
    exchange(address.parse().unwrap(), "POST", &path, &headers, body.as_bytes()).unwrap()
}

/// The call that the demo prints last: it waits, somebody says yes, and it leaves once.
#[test]
fn a_run_is_stopped_when_somebody_has_said_yes() {
    let demo = Demo::start();
    let address = demo.gateway.as_ref().unwrap().address();
    for (number, (path, prefix)) in (0_u64..).zip(WAYS) {
        let tester = demo.client(path, Dialect::Lite).key(GATEWAY).employee("E1001");
        let stop = |key: &str| {
            let arguments = json!({ "runId": format!("R-900{number}"),
                                    "idempotencyKey": format!("{key}-{number}") });
            tester.call(&format!("{prefix}stop_test_run"), arguments)
        };
        let waits = stop("a");
        assert_eq!(waits.word(), "approval_required", "{path}: {waits:?}");
        let id = waits.fault()["approvalId"].as_str().unwrap().to_owned();
        let say = |employee: &str| {
            let headers = [("X-Api-Key", GATEWAY), ("SSO-Emp-Id", employee)];
            let path = format!("/v1/approvals/{id}/approve");
            exchange(address, "POST", &path, &headers, b"").unwrap().status
        };
        // Neither himself nor who has no say.
        assert_eq!((say("E1001"), say("E1002"), say("E1010")), (403, 404, 200), "{path}");
        assert_eq!(demo.platform.journal().count("stop_test_run"), number);
        for _ in 0..2 {
            stop("a");
            assert_eq!(demo.platform.journal().count("stop_test_run"), number + 1, "{path}");
        }
        assert_eq!(stop("b").word(), "approval_required", "a yes is good once");
    }
}
