//! The answer to a run: its variables, and what became of each step.

use std::time::Duration;

use crate::{
    json::write_str,
    model::ids::push_uuid,
    stack::respond,
    steps::{CallFacts, MCP_CALL, Outcome, Report, Step},
};

/// The whole answer, as JSON. Variables are in it as they came.
pub(super) fn run(id: u128, outcome: &Outcome<'_>, trace_id: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + outcome.variables.size() + 512 * outcome.reports.len());
    out.extend_from_slice(b"{\"runId\":\"");
    push_uuid(&mut out, id);
    out.extend_from_slice(b"\",\"state\":");
    write_str(&mut out, outcome.ended.as_str());
    out.extend_from_slice(b",\"variables\":{");
    for (place, (name, value)) in outcome.variables.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_str(&mut out, name);
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.extend_from_slice(b"},\"steps\":[");
    for (place, report) in outcome.reports.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        step(report, trace_id, &mut out);
    }
    out.extend_from_slice(b"]}");
    out
}

fn step(report: &Report<'_>, trace_id: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"stepIndex\":");
    match report.step.index() {
        Some(index) => out.extend_from_slice(itoa::Buffer::new().format(index).as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
    let kind = match report.step {
        Step::Call(_) => MCP_CALL,
        Step::Other(other) => &other.kind,
    };
    text("type", kind, out);
    text("state", report.state.as_str(), out);
    if let Step::Call(call) = report.step {
        text("serverKey", &call.server_key, out);
        text("toolName", &call.tool, out);
        if let Some(name) = &call.save_as {
            text("saveAs", name, out);
        }
    }
    if let Some(facts) = &report.facts {
        call(facts, out);
    }
    if let Some(latency) = report.latency {
        out.extend_from_slice(b",\"latencyMs\":");
        out.extend_from_slice(milliseconds(latency).as_bytes());
    }
    if let Some(finding) = &report.finding {
        out.extend_from_slice(b",\"error\":");
        out.extend_from_slice(&respond::object(&finding.error, trace_id));
        if let Some(result) = &finding.result {
            out.extend_from_slice(b",\"result\":");
            out.extend_from_slice(result);
        }
    }
    out.push(b'}');
}

fn call(facts: &CallFacts, out: &mut Vec<u8>) {
    if let Some(id) = facts.call_id {
        out.extend_from_slice(b",\"toolCallId\":\"");
        push_uuid(out, id);
        out.push(b'"');
    }
    for (name, digest) in [("argsHash", facts.args_hash), ("resultRef", facts.result_ref)] {
        if let Some(digest) = digest {
            text(name, &digest.to_string(), out);
        }
    }
    if facts.replayed {
        out.extend_from_slice(b",\"replayed\":true");
    }
    if facts.redefined {
        out.extend_from_slice(b",\"definitionChanged\":true");
    }
}

fn text(name: &str, value: &str, out: &mut Vec<u8>) {
    out.push(b',');
    write_str(out, name);
    out.push(b':');
    write_str(out, value);
}

/// To the microsecond.
fn milliseconds(time: Duration) -> String {
    format!("{}.{:03}", time.as_millis(), time.subsec_micros() % 1_000)
}
