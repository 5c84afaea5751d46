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
    let view =
        set.view_of_employee(&employee.tenant, &caller("demo-gateway"), &id, &employee.roles);
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
    // E1001 is one of the testers to whom the eighth is open already.
    for upstream in ["platform", "platform-mcp"] {
        for (id, count) in [("E1002", 6), ("E1003", 6), ("E1001", 8), ("E1009", 7), ("E2001", 6)] {
            assert_eq!(seen(id, upstream), PLATFORM[..count], "{id} {upstream}");
        }
    }
}

#[test]
fn orders_are_read_by_all_and_changed_by_the_admin_and_those_who_try_it_first() {
    for (id, count) in
        [("E1001", 2), ("E1002", 2), ("E1003", 2), ("E2001", 2), ("E1004", 3), ("E1009", 5)]
    {
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
        "raw_query",
        "RunQuery",
        "executeCommand",
        "remote.ssh",
        "readFile",
        "fetchUrl",
        "wget",
        // These look like it and are none.
        "get_execution_result",
        "feedback.send",
        "roadblocks",
        "profile.read",
        "executive_summary",
        "proximity",
        "fetch_orders",
        "delete_file",
        "sshd_status",
    ];
    let tools = "version: hangu/v1\nkind: Tools\nupstreams: { x: { default: { risk: read_low } } }";
    let mut files = shipped_files();
    files.push(file("x.yaml", tools));
    let policies = compile(files);
    let subjects = names.map(|name| Subject::tool("x", name));
    let view = policies.bind(&subjects).view(&tenant("acme"), &caller("g"), &roles(&["admin"]));
    let left: Vec<_> = view.visible().iter().map(|index| names[index]).collect();
    assert_eq!(left, names[21..]);
}

#[test]
fn starting_a_run_takes_its_key_from_the_tools_own_argument() {
    let tool = compile(shipped_files()).item(Subject::tool("platform", "start_test_run"));
    assert_eq!((tool.risk, tool.idempotency), (Risk::WriteLow, IdempotencyMode::Required));
    assert_eq!(tool.idempotency_argument.as_deref(), Some("idempotencyKey"));
}

#[test]
fn a_second_person_is_asked_about_what_is_sent_opened_deleted_or_granted() {
    let asked = [
        ("send_email", "approve-mail"),
        ("gmail.send", "approve-mail"),
        ("mailSend", "approve-mail"),
        ("slack_send_message", "approve-mail"),
        ("reply_to_mail", "approve-mail"),
        ("create_issue", "approve-tickets"),
        ("jira_create_ticket", "approve-tickets"),
        ("openIncident", "approve-tickets"),
        ("issues.create", "approve-tickets"),
        ("delete_file", "approve-deletion"),
        ("removeAttachment", "approve-deletion"),
        ("documents.delete", "approve-deletion"),
        ("SendEmail", "approve-mail"),
        ("DeleteFile", "approve-deletion"),
        ("grant_access", "approve-rights"),
        ("permissions.update", "approve-rights"),
        ("share_document", "approve-rights"),
        ("add_team_member", "approve-rights"),
        ("assignRole", "approve-rights"),
    ];
    let not = ["create_order", "update_page", "note", "comment_on_ticket", "delete_order_note"];
    let tools =
        "version: hangu/v1\nkind: Tools\nupstreams: { x: { default: { risk: write_low } } }";
    let rule =
        "version: hangu/v1\nkind: Policy\nscope: platform\nrules: [{ id: all, effect: allow }]";
    let files = [file("x.yaml", tools), file("all.yaml", rule)];
    let policies = compile(shipped_files().into_iter().chain(files).collect());
    let names = asked.iter().map(|(name, _)| *name).chain(not);
    let subjects: Vec<_> = names.clone().map(|name| Subject::tool("x", name)).collect();
    let view = policies.bind(&subjects).view(&tenant("acme"), &caller("g"), &roles(&["member"]));
    for (index, name) in names.enumerate() {
        let decision = view.decide(ItemIndex::new(index));
        let by = decision.asks.iter().map(|rule| &*rule.id).next();
        let wanted = asked.iter().find(|(own, _)| *own == name).map(|(_, rule)| *rule);
        assert_eq!(by, wanted, "{name}");
    }
}
