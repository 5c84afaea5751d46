//! The platform's tools as it lists them.

use serde_json::{Value, json};

use crate::demo::provider::schema::{
    Effect, count, input, list, one_of, output, record, string, text,
};

const STATUSES: [&str; 5] = ["queued", "running", "passed", "failed", "stopped"];

/// All tools, in the order in which they are listed.
pub(super) fn descriptors() -> Vec<Value> {
    vec![
        list_test_tasks(),
        get_test_task(),
        list_test_cases(),
        get_test_case(),
        start_test_run(),
        get_test_run(),
        get_execution_result(),
        stop_test_run(),
    ]
}

fn list_test_tasks() -> Value {
    json!({
        "name": "list_test_tasks",
        "title": "List test tasks",
        "description": "Lists the test tasks that are the employee's own or shared with them.",
        "inputSchema": input([], &[]),
        "outputSchema": output([("total", count()), ("tasks", list(record(task())))]),
        "annotations": Effect::Reads.annotations(),
    })
}

fn get_test_task() -> Value {
    let [task_id, name, target, owner, access, case_count] = task();
    json!({
        "name": "get_test_task",
        "title": "Get a test task",
        "description": "Tells everything about one test task, but for its cases.",
        "inputSchema": input([task_id_argument()], &["taskId"]),
        "outputSchema": output([
            task_id, name, target, owner, access, case_count,
            ("description", string()),
            ("createdAt", string()),
        ]),
        "annotations": Effect::Reads.annotations(),
    })
}

fn list_test_cases() -> Value {
    json!({
        "name": "list_test_cases",
        "title": "List the cases of a test task",
        "description": "Lists the cases of one test task in the order in which a run takes them.",
        "inputSchema": input([task_id_argument()], &["taskId"]),
        "outputSchema": output([("total", count()), ("cases", list(record(case())))]),
        "annotations": Effect::Reads.annotations(),
    })
}

fn get_test_case() -> Value {
    let [case_id, name, priority] = case();
    json!({
        "name": "get_test_case",
        "title": "Get a test case",
        "description": "Tells the steps of one test case and what is expected at their end.",
        "inputSchema": input(
            [("caseId", text(64, "The id of a case, as list_test_cases gives it."))],
            &["caseId"],
        ),
        "outputSchema": output([
            case_id, name, priority,
            ("taskId", string()),
            ("steps", list(string())),
            ("expected", string()),
        ]),
        "annotations": Effect::Reads.annotations(),
    })
}

fn start_test_run() -> Value {
    json!({
        "name": "start_test_run",
        "title": "Start a test run",
        "description": "Starts a run of all cases of a test task and returns at once. A second \
                        call with the same idempotencyKey starts nothing and returns the same run.",
        "inputSchema": input(
            [
                task_id_argument(),
                ("idempotencyKey", text(255, "Any text that is new for each run wanted.")),
            ],
            &["taskId", "idempotencyKey"],
        ),
        "outputSchema": output([("runId", string()), ("status", one_of(&STATUSES))]),
        "annotations": Effect::AddsOnce.annotations(),
    })
}

fn get_test_run() -> Value {
    let mut run = output([
        ("runId", string()),
        ("taskId", string()),
        ("status", one_of(&STATUSES)),
        ("progress", record([("done", count()), ("total", count())])),
        ("startedBy", string()),
        ("createdAt", string()),
    ]);
    // These two come when it has begun, and when it has ended.
    run["properties"]["startedAt"] = string();
    run["properties"]["finishedAt"] = string();
    json!({
        "name": "get_test_run",
        "title": "Get a test run",
        "description": "Tells how far a test run has come.",
        "inputSchema": input([run_id_argument()], &["runId"]),
        "outputSchema": run,
        "annotations": Effect::Reads.annotations(),
    })
}

fn get_execution_result() -> Value {
    let mut case = record([
        ("caseId", string()),
        ("name", string()),
        ("outcome", one_of(&["passed", "failed", "not_run"])),
    ]);
    case["properties"]["durationMs"] = count();
    case["properties"]["message"] = string();
    json!({
        "name": "get_execution_result",
        "title": "Get the result of a test run",
        "description": "Tells what a test run found, case by case. The run must have ended.",
        "inputSchema": input([run_id_argument()], &["runId"]),
        "outputSchema": output([
            ("runId", string()),
            ("taskId", string()),
            ("status", one_of(&["passed", "failed", "stopped"])),
            ("passed", count()),
            ("failed", count()),
            ("cases", list(case)),
        ]),
        "annotations": Effect::Reads.annotations(),
    })
}

fn stop_test_run() -> Value {
    json!({
        "name": "stop_test_run",
        "title": "Stop a test run",
        "description": "Stops a test run that has not ended; its remaining cases are not run.",
        "inputSchema": input([run_id_argument()], &["runId"]),
        "outputSchema": output([("runId", string()), ("status", one_of(&STATUSES))]),
        "annotations": Effect::EndsOnce.annotations(),
    })
}

fn task_id_argument() -> (&'static str, Value) {
    ("taskId", text(64, "The id of a test task, as list_test_tasks gives it."))
}

fn run_id_argument() -> (&'static str, Value) {
    ("runId", text(64, "The id of a test run, as start_test_run gives it."))
}

fn task() -> [(&'static str, Value); 6] {
    [
        ("taskId", string()),
        ("name", string()),
        ("target", string()),
        ("owner", string()),
        ("access", one_of(&["own", "shared"])),
        ("caseCount", count()),
    ]
}

fn case() -> [(&'static str, Value); 3] {
    [("caseId", string()), ("name", string()), ("priority", one_of(&["P0", "P1", "P2"]))]
}
