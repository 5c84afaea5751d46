//! What each of the platform's tools does with the database; how they are described is in
//! `catalog.rs`.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    runs::{RunId, Runs, Start, Stop},
    store::{Employee, Store},
};
use crate::{
    demo::provider::{Failure, unknown_tool},
    error::Code,
};

/// Runs a tool for an employee. The arguments have been checked against its schema.
pub(super) async fn call(
    store: &Store,
    runs: &Runs,
    who: &Employee,
    tool: &str,
    arguments: &Value,
) -> Result<Value, Failure> {
    match tool {
        "list_test_tasks" => {
            let tasks = store.tasks(who).await?;
            Ok(json!({ "total": tasks.len(), "tasks": tasks }))
        }
        "get_test_task" => found(store.task(who, text(arguments, "taskId")?).await?, "test task"),
        "list_test_cases" => {
            let cases = store.cases(who, text(arguments, "taskId")?).await?;
            let cases = cases.ok_or_else(|| not_found("test task"))?;
            Ok(json!({ "total": cases.len(), "cases": cases }))
        }
        "get_test_case" => found(store.case(who, text(arguments, "caseId")?).await?, "test case"),
        "start_test_run" => start(runs, who, arguments).await,
        "get_test_run" => found(runs.run(who, run_id(arguments)?).await?, "test run"),
        "get_execution_result" => match runs.outcome(who, run_id(arguments)?).await? {
            None => Err(not_found("test run")),
            Some(Ok(outcome)) => json_of(outcome),
            Some(Err(status)) => Err(Failure::new(
                Code::Conflict,
                format!("the run is {status}: ask for its result when it has ended"),
            )),
        },
        "stop_test_run" => match runs.stop(who, run_id(arguments)?).await? {
            Stop::Stopped(run) => json_of(run),
            Stop::NoRun => Err(not_found("test run")),
            Stop::Finished(status) => {
                Err(Failure::new(Code::Conflict, format!("the run has ended already: {status}")))
            }
        },
        _ => Err(unknown_tool()),
    }
}

async fn start(runs: &Runs, who: &Employee, arguments: &Value) -> Result<Value, Failure> {
    let task_id = text(arguments, "taskId")?;
    match runs.start(who, task_id, text(arguments, "idempotencyKey")?).await? {
        Start::Run(run) => json_of(run),
        Start::NoTask => Err(not_found("test task")),
        Start::KeyTaken => Err(Failure::new(
            Code::Conflict,
            "this idempotencyKey has started a run of another task",
        )),
    }
}

fn text<'a>(arguments: &'a Value, name: &str) -> Result<&'a str, Failure> {
    arguments
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| Failure::new(Code::InvalidArgs, format!("/{name} must be a string")))
}

/// The run's id; what is not written like one is no run's.
fn run_id(arguments: &Value) -> Result<RunId, Failure> {
    RunId::parse(text(arguments, "runId")?).ok_or_else(|| not_found("test run"))
}

fn found(value: Option<impl Serialize>, what: &str) -> Result<Value, Failure> {
    value.map_or_else(|| Err(not_found(what)), json_of)
}

/// The same words for what does not exist and for what is somebody else's.
fn not_found(what: &str) -> Failure {
    Failure::new(Code::NotFound, format!("you have no {what} of this id"))
}

fn json_of(value: impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| {
        tracing::error!(%error, "the platform could not write its answer");
        Failure::new(Code::Internal, "the platform failed to answer")
    })
}
