//! OpenAI: function tools of Chat Completions ("Function calling" in the API's guide, `tools` in
//! its reference), calls of it and of the Responses API, and their results.
//!
//! Tools are declared without `strict`: strict schemas want every argument required, which would
//! say something else than their servers do.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    CallFault, Declaration, Note, RuntimeCall, Shape, Tool, content::Content, id, plain, text,
};
use crate::json;

/// The longest description of a function, in characters.
const DESCRIPTION: usize = 1_024;

pub(super) fn declare(tool: &Tool<'_>) -> Declaration {
    let mut notes = Vec::new();
    let parameters = plain::arguments(tool.schema, plain::Demands::default(), &mut notes);
    let mut description = tool.description.to_owned();
    if let Some((end, _)) = description.char_indices().nth(DESCRIPTION) {
        description.truncate(end);
        let text = format!("the tool's description is cut after {DESCRIPTION} characters");
        notes.push(Note { pointer: String::new(), text });
    }
    let function =
        json!({ "name": tool.name, "description": description, "parameters": parameters });
    Declaration { json: json!({ "type": "function", "function": function }), notes }
}

/// Reads `{id, type: function, function: {name, arguments}}`, or an item `{type: function_call,
/// call_id, name, arguments}`. In both, arguments are JSON in a string.
pub(super) fn read_call(call: json::Value<'_>) -> Result<RuntimeCall, CallFault> {
    if call.get("type").is_some_and(|kind| kind.is_str("function_call")) {
        return Ok(RuntimeCall {
            name: text(call, "name", "/name")?.into(),
            arguments: arguments(call, "/arguments")?,
            id: id(call, "call_id", "/call_id")?,
            shape: Shape::Item,
        });
    }
    let function = call.get("function").filter(|function| function.kind() == json::Kind::Object);
    let Some(function) = function else {
        return Err(CallFault::new("/function", "`function` must be an object: {name, arguments}"));
    };
    Ok(RuntimeCall {
        name: text(function, "name", "/function/name")?.into(),
        arguments: arguments(function, "/function/arguments")?,
        id: id(call, "id", "/id")?,
        shape: Shape::Usual,
    })
}

fn arguments(of: json::Value<'_>, pointer: &'static str) -> Result<Option<Bytes>, CallFault> {
    let Some(value) = of.get("arguments").filter(|value| !value.is_null()) else { return Ok(None) };
    let Some(text) = value.as_str() else {
        return Err(CallFault::new(pointer, "`arguments` must be JSON in a string"));
    };
    // Models write nothing where a function takes nothing.
    if text.trim().is_empty() {
        return Ok(None);
    }
    let text = Bytes::from(text.into_owned());
    let limits = json::Limits { depth: 128, duplicates: json::Duplicates::Refuse, outline: 1 };
    let doc = json::Doc::parse(text, &limits).map_err(|fault| {
        CallFault::new(pointer, format!("what `arguments` holds is not JSON: {fault}"))
    })?;
    match doc.root().kind() {
        json::Kind::Object => Ok(Some(doc.root().bytes())),
        _ => Err(CallFault::new(pointer, "what `arguments` holds must be a JSON object")),
    }
}

/// A message of the role `tool`, or an item of the type `function_call_output`. Neither has a
/// mark for errors, so the text says it.
pub(super) fn result(call: &RuntimeCall, told: &Content) -> Value {
    let text = match told.is_error {
        true => format!("Error: {}", told.text()),
        false => told.text(),
    };
    let (id, mut out) = match call.shape {
        Shape::Usual => ("tool_call_id", json!({ "role": "tool", "content": text })),
        Shape::Item => ("call_id", json!({ "type": "function_call_output", "output": text })),
    };
    if let Some(value) = &call.id {
        out[id] = (&**value).into();
    }
    out
}
