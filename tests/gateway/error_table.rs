//! Every refusal and failure as clients meet it: each cause, in each dialect and revision, in one
//! table. What must hold of all of them is asserted beside it, so that no new table can break it.

mod causes;
mod stage;

use std::{fmt::Write as _, thread};

use serde_json::Value;

use self::{
    causes::{Cause, Telling},
    stage::{Ask, Speaks, Stage, redacted},
};
use crate::process_support::Response;

/// What no answer may hold: bodies of upstreams, addresses, words of libraries.
const NEVER: [&str; 7] =
    [stage::UPSTREAM_TEXT, "127.0.0.1:", "os error", "hyper", "pingora", "sqlx", "src/"];

/// Codes for which the gateway or an upstream is to blame; no other is ever told as 5xx.
const FAILURES: [&str; 3] = ["external_service_error", "timeout", "internal"];

const NEXT: [&str; 6] = ["repair_args", "retry", "wait", "degrade", "ask_human", "stop"];

#[test]
fn every_cause_is_told_by_the_one_table() {
    let stage = Stage::start();
    let (mut table, mut wrong) = (String::new(), String::new());
    for cause in causes::all() {
        let _ = writeln!(table, "=== {}", cause.name);
        let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
        for speaks in Speaks::ALL {
            let Some(answer) = (cause.provoke)(&stage, speaks) else { continue };
            for fault in faults(&cause, speaks, &answer) {
                let (name, speaks) = (&cause.name, speaks.name());
                let (status, text) = (answer.status, answer.text());
                let _ = writeln!(wrong, "{name}, {speaks}: {fault}: {status} {text}");
            }
            let row = redacted(&answer);
            match rows.iter_mut().find(|(known, _)| *known == row) {
                Some((_, who)) => who.push(speaks.name()),
                None => rows.push((row, vec![speaks.name()])),
            }
        }
        assert!(!rows.is_empty(), "{}: nobody met it", cause.name);
        for (row, who) in rows {
            let _ = write!(table, "{}: {row}", who.join(", "));
        }
    }
    insta::assert_snapshot!("error_table", table);
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// What does not hold of an answer, and must of every refusal and failure.
fn faults(cause: &Cause, speaks: Speaks, answer: &Response) -> Vec<&'static str> {
    let mut faults = Vec::new();
    let mut must = |holds: bool, what: &'static str| {
        if !holds {
            faults.push(what);
        }
    };
    let text = answer.text();
    // A challenge names the document that tells more, by the Host that the client named.
    let challenged = answer.header("www-authenticate").is_some();
    let header = |never: &str| answer.headers.iter().any(|(_, value)| value.contains(never));
    for never in NEVER {
        must(!text.contains(never) && (challenged || !header(never)), "it tells what is inside");
    }
    let trace = answer.header("x-trace-id").unwrap_or_default();
    must(trace.len() == 32, "no trace id");
    if cause.telling == Telling::Silent {
        must(answer.body.is_empty(), "a notification has no answer");
        return faults;
    }
    let message = answer.json();
    if speaks != Speaks::Lite {
        let id = if cause.telling == Telling::Unread { Value::Null } else { 7.into() };
        must(message["jsonrpc"] == "2.0" && message["id"] == id, "another id");
    }
    let fault = answer.fault();
    if cause.telling == Telling::Theirs && speaks != Speaks::Lite {
        must(fault.is_null(), "the object of the taxonomy in words of somebody else");
        return faults;
    }
    if cause.telling == Telling::Protocol && fault.is_null() {
        must(message["error"]["data"].is_object(), "nothing that the protocol lays down");
        return faults;
    }
    let code = fault["code"].as_str().unwrap_or_default();
    must(!code.is_empty(), "no code");
    must(fault["retryable"].is_boolean(), "no `retryable`");
    must(NEXT.contains(&fault["next"].as_str().unwrap_or_default()), "no `next`");
    must(fault["message"].as_str().is_some_and(|message| !message.is_empty()), "no message");
    must(fault["traceId"] == trace, "another trace id in the body");
    must(answer.status < 500 || FAILURES.contains(&code), "a refusal is told as a failure");
    if let Some(wait) = fault["retryAfterMs"].as_u64() {
        let header = answer.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
        must(header.is_some_and(|seconds| seconds * 1_000 >= wait), "an earlier Retry-After");
    }
    must((answer.status == 401) == (code == "unauthenticated"), "401 is `unauthenticated`");
    must(challenged == (answer.status == 401), "a challenge belongs to 401");
    faults
}

#[test]
fn what_is_hidden_answers_like_what_does_not_exist_to_the_byte() {
    let stage = Stage::start();
    for speaks in Speaks::ALL {
        for (path, hidden, unknown) in
            [("/mcp/up", "hidden", "nobody"), ("/mcp", "up__hidden", "up__nobody")]
        {
            let asked = |name: &str| {
                let answer = Ask::call(name).at(path).send(&stage, speaks);
                let trace = answer.header("x-trace-id").unwrap().to_owned();
                let text = answer.text().replace(&trace, "T").replace(name, "NAME");
                let mut headers = answer.headers.clone();
                headers.retain(|(name, _)| name != "x-trace-id" && name != "date");
                (answer.status, headers, text)
            };
            assert_eq!(asked(hidden), asked(unknown), "{speaks:?} {path}");
        }
    }
}

/// What the table says holds also when many meet it at once: an error is never another call's.
#[test]
fn each_of_many_gets_its_own_id_and_trace() {
    let stage = Stage::start();
    thread::scope(|scope| {
        for n in 0..8_u64 {
            let stage = &stage;
            scope.spawn(move || {
                for round in 0..20 {
                    let id = 100 * n + round;
                    let answer = Ask::call("nobody").id(id).send(stage, Speaks::Era("2025-11-25"));
                    assert_eq!(answer.json()["id"], id, "{answer:?}");
                    let fault = answer.fault();
                    assert_eq!(fault["traceId"], answer.header("x-trace-id").unwrap());
                }
            });
        }
    });
}
