//! Anthropic: client tools of the Messages API ("Tool use" in its guide, `tools` in its
//! reference), `tool_use` blocks and `tool_result` blocks.
//!
//! An `input_schema` is JSON Schema of 2020-12 whose top is an object and no choice; the names of
//! arguments are letters, digits, `_`, `.` and `-`, up to 64.

use serde_json::{Value, json};

use super::{
    CallFault, Declaration, RuntimeCall, Shape, Tool, content::Content, id, object, plain, text,
};
use crate::json;

pub(super) fn declare(tool: &Tool<'_>) -> Declaration {
    let mut notes = Vec::new();
    let demands = plain::Demands { names: Some(is_argument) };
    let schema = plain::arguments(tool.schema, demands, &mut notes);
    let json = json!({
        "name": tool.name,
        "description": tool.description,
        "input_schema": schema,
    });
    Declaration { json, notes }
}

pub(super) fn is_argument(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(legal)
}

/// Reads `{type: tool_use, id, name, input}`.
pub(super) fn read_call(call: json::Value<'_>) -> Result<RuntimeCall, CallFault> {
    if call.get("type").is_some_and(|kind| !kind.is_str("tool_use")) {
        return Err(CallFault::new("/type", "`type` must be tool_use"));
    }
    Ok(RuntimeCall {
        name: text(call, "name", "/name")?.into(),
        arguments: object(call, "input", "/input")?,
        id: id(call, "id", "/id")?,
        shape: Shape::Usual,
    })
}

pub(super) fn result(call: &RuntimeCall, told: &Content) -> Value {
    let content: Vec<Value> = match (told.blocks.is_empty(), &told.structured) {
        (true, Some(structured)) => vec![json!({ "type": "text", "text": structured.get() })],
        _ => told.blocks.iter().map(super::content::Block::anthropic).collect(),
    };
    let mut out = json!({ "type": "tool_result", "content": content, "is_error": told.is_error });
    if let Some(id) = &call.id {
        out["tool_use_id"] = (&**id).into();
    }
    out
}
