//! The shipped policies say what the demo promises.

use super::*;

const PLATFORM: [&str; 8] = [
    "list_test_tasks",
    "get_test_task",
    "list_test_cases",
    "get_test_case",
    "get_test_run",
    "get_execution_result",
    "start_test_run",
    "stop_test_run",
];
const ORDERS: [&str; 5] =
    ["query_order", "list_orders", "add_order_note", "cancel_order", "refund_order"];

fn catalog() -> Vec<(&'static str, &'static str)> {
    let platforms = ["platform", "platform-mcp"]
        .into_iter()
        .flat_map(|upstream| PLATFORM.map(|name| (upstream, name)));
    platforms.chain(ORDERS.map(|name| ("orders", name))).collect()
}

/// What an employee of the directory sees of an upstream.
fn seen(id: &str, upstream: &str) -> Vec<&'static str> {
    let policies = compile(shipped_files());
    let catalog = catalog();
    let subjects: Vec<Subject<'_>> =
        catalog.iter().map(|(upstream, name)| Subject::tool(upstream, name)).collect();
    let set = policies.bind(&subjects);
    let id = crate::model::caller::EmployeeId::parse(id).unwrap();
    let employee = policies.directory().find(&id).unwrap();
    let view = set.view(&employee.tenant, &caller("demo-gateway"), &employee.roles);
    let tools = view.visible().iter().map(|index| catalog[index]);
    tools.filter(|(of, _)| *of == upstream).map(|(_, name)| name).collect()
}

fn shipped_files() -> Vec<PolicyFile> {
    super::super::shipped()
}

#[test]
fn the_shipped_files_are_those_in_the_folder_and_nothing_is_wrong_with_them() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let loaded = Policies::look(&folder);
    assert_eq!(told(&loaded.faults), Vec::<String>::new());
    let policies = loaded.policies.unwrap();
    assert_eq!(told(&policies.lint(None)), Vec::<String>::new());
    // The demo runs without the files that only test.
    let tests = std::fs::read_dir(folder.join("tests")).unwrap().count();
    assert_eq!(loaded.files, shipped_files().len() + tests);
    assert_eq!(policies.revision(), compile(shipped_files()).revision());
}

#[test]
fn every_rule_that_ships_is_tested_and_passes() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let report = Policies::load(&folder).unwrap().run_cases([]);
    for result in &report.results {
        assert_eq!(result.outcome, CaseOutcome::Passed, "{}", result.case.name);
    }
    let tested = report.coverage.iter().filter(|(_, cases)| *cases > 0).count();
    assert_eq!(tested, report.coverage.len());
}

#[test]
fn members_read_testers_start_and_the_admin_sees_all_seven() {
    for upstream in ["platform", "platform-mcp"] {
        for (id, count) in [("E1002", 6), ("E1003", 6), ("E1001", 7), ("E1009", 7), ("E2001", 6)] {
            assert_eq!(seen(id, upstream), PLATFORM[..count], "{id} {upstream}");
        }
    }
}

#[test]
fn orders_are_read_by_all_noted_by_the_admin_and_changed_by_nobody() {
    for (id, count) in [("E1001", 2), ("E1002", 2), ("E2001", 2), ("E1009", 3)] {
        assert_eq!(seen(id, "orders"), ORDERS[..count], "{id}");
    }
}

#[test]
fn raw_power_is_refused_whoever_asks_and_a_task_is_not() {
    let names = [
        "run_sql",
        "mysql.query",
        "shell",
        "bash",
        "run_command",
        "exec",
        "adb.push",
        "device_adb",
        "read_file",
        "write_file",
        "list_directory",
        "fetch",
        "http_get",
        "open_proxy",
        // These look like it and are none.
        "get_execution_result",
        "feedback.send",
        "roadblocks",
        "profile.read",
        "executive_summary",
        "proximity",
        "fetch_orders",
    ];
    let tools = "version: hangu/v1\nkind: Tools\nupstreams: { x: { default: { risk: read_low } } }";
    let mut files = shipped_files();
    files.push(file("x.yaml", tools));
    let policies = compile(files);
    let subjects = names.map(|name| Subject::tool("x", name));
    let view = policies.bind(&subjects).view(&tenant("acme"), &caller("g"), &roles(&["admin"]));
    let left: Vec<_> = view.visible().iter().map(|index| names[index]).collect();
    assert_eq!(left, names[14..]);
}

#[test]
fn starting_a_run_takes_its_key_from_the_tools_own_argument() {
    let tool = compile(shipped_files()).item(Subject::tool("platform", "start_test_run"));
    assert_eq!((tool.risk, tool.idempotency), (Risk::WriteLow, IdempotencyMode::Required));
    assert_eq!(tool.idempotency_argument.as_deref(), Some("idempotencyKey"));
}
