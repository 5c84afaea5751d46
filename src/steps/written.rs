//! The one form in which steps are written: members in a fixed order, defaults written out,
//! constants and steps of other types byte for byte.

use super::{Binding, Call, MCP_CALL, Path, Step};
use crate::json::write_str;

/// Appends the list of steps.
pub(super) fn steps(steps: &[Step], out: &mut Vec<u8>) {
    out.push(b'[');
    for (place, step) in steps.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        match step {
            Step::Call(call) => self::call(call, out),
            Step::Other(other) => out.extend_from_slice(&other.raw),
        }
    }
    out.push(b']');
}

fn call(call: &Call, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"mcp\":{\"failurePolicy\":");
    write_str(out, call.policy.as_str());
    if let Some(key) = &call.key {
        out.extend_from_slice(b",\"idempotencyKey\":");
        binding(key, out);
    }
    out.extend_from_slice(b",\"inputBindings\":{");
    for (place, input) in call.inputs.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_str(out, &input.name);
        out.push(b':');
        binding(&input.binding, out);
    }
    out.push(b'}');
    if let Some(name) = &call.save_as {
        out.extend_from_slice(b",\"saveAs\":");
        write_str(out, name);
    }
    out.extend_from_slice(b",\"serverKey\":");
    write_str(out, &call.server_key);
    out.extend_from_slice(b",\"toolName\":");
    write_str(out, &call.tool);
    out.extend_from_slice(b"},\"stepIndex\":");
    out.extend_from_slice(itoa::Buffer::new().format(call.index).as_bytes());
    out.extend_from_slice(b",\"type\":");
    write_str(out, MCP_CALL);
    out.push(b'}');
}

fn binding(binding: &Binding, out: &mut Vec<u8>) {
    let mut from = |path: Option<&str>, source: &[&str]| {
        out.push(b'{');
        if let Some(path) = path {
            out.extend_from_slice(b"\"path\":");
            write_str(out, path);
            out.push(b',');
        }
        out.extend_from_slice(b"\"source\":");
        write_str(out, &source.concat());
    };
    let whole = |path: &Path| (!path.is_empty()).then(|| path.as_str().to_owned());
    match binding {
        Binding::Const(value) => {
            from(None, &["const"]);
            out.extend_from_slice(b",\"value\":");
            out.extend_from_slice(value);
        }
        Binding::PageUrl(parameter) => from(parameter.as_deref(), &["page.url"]),
        Binding::Page { field, path } => from(whole(path).as_deref(), &["page.", field]),
        Binding::Step { name, path } => from(whole(path).as_deref(), &["steps.", name]),
    }
    out.push(b'}');
}
