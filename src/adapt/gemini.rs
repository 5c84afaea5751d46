//! Gemini: `functionDeclarations`, `functionCall` and `functionResponse` ("Function calling" in
//! the API's guide; `FunctionDeclaration` and `Schema` in its reference, and Vertex AI's).

use serde_json::{Value, json};

use super::{
    CallFault, Declaration, RuntimeCall, Shape, Tool, content::Content, id, object, openapi, text,
};
use crate::json;

/// A tool without arguments has no `parameters`: an object without properties is refused there.
pub(super) fn declare(tool: &Tool<'_>) -> Declaration {
    let mut notes = Vec::new();
    let mut json = json!({ "name": tool.name, "description": tool.description });
    if let Some(parameters) = openapi::arguments(tool.schema, &mut notes) {
        json["parameters"] = parameters;
    }
    Declaration { json, notes }
}

/// Reads `{functionCall: {name, args, id}}`.
pub(super) fn read_call(call: json::Value<'_>) -> Result<RuntimeCall, CallFault> {
    let call = call.get("functionCall").filter(|call| call.kind() == json::Kind::Object);
    let Some(call) = call else {
        let message = "`functionCall` must be an object: {name, args}";
        return Err(CallFault::new("/functionCall", message));
    };
    Ok(RuntimeCall {
        name: text(call, "name", "/functionCall/name")?.into(),
        arguments: object(call, "args", "/functionCall/args")?,
        id: id(call, "id", "/functionCall/id")?,
        shape: Shape::Usual,
    })
}

/// What came of it is under `output` or `error`, as the reference has it.
pub(super) fn result(call: &RuntimeCall, told: &Content) -> Value {
    let structured = told.structured.as_ref();
    let said: Option<Value> = structured.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let said = said.unwrap_or_else(|| told.text().into());
    let key = if told.is_error { "error" } else { "output" };
    let mut response = json!({ "name": &*call.name, "response": { key: said } });
    if let Some(id) = &call.id {
        response["id"] = (&**id).into();
    }
    json!({ "functionResponse": response })
}
