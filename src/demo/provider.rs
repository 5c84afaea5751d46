//! What a provider of tools is, whichever dialect it is asked in: its tools, whom it admits,
//! what it answers.
//!
//! No HTTP status but the one a failure stands for, and no framing: `mcp_server.rs` has
//! standard MCP, `platform/lite.rs` MCP-Lite.

use std::{borrow::Cow, collections::HashMap};

use http::HeaderMap;
use jsonschema::Validator;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    http::StartError,
    journal::{Entry, Journal},
};
use crate::error::Code;

/// A server of tools.
pub(super) trait Provider: Send + Sync + 'static {
    /// For whom a tool acts.
    type Caller: Send;

    fn about(&self) -> &About;
    fn toolbox(&self) -> &Toolbox;
    fn journal(&self) -> &Journal;

    /// Whether the sender may speak to this server at all.
    fn admit(&self, headers: &HeaderMap) -> Result<(), Failure>;

    /// For whom the sender asks, by its headers.
    fn caller(
        &self,
        headers: &HeaderMap,
    ) -> impl Future<Output = Result<Self::Caller, Failure>> + Send;

    /// The name of the caller in the journal.
    fn employee(caller: &Self::Caller) -> Option<&str>;

    /// Runs one of its tools; the arguments fit the tool's `inputSchema`.
    fn call(
        &self,
        caller: Self::Caller,
        tool: &str,
        arguments: &Value,
    ) -> impl Future<Output = Result<Value, Failure>> + Send;
}

/// How a server introduces itself.
#[derive(Debug)]
pub(super) struct About {
    pub name: &'static str,
    pub title: &'static str,
    pub instructions: &'static str,
    /// `public` where the listing is the same for the whole world.
    pub cache_scope: &'static str,
}

/// A refusal or failure of a tool, in the words of the gateway's taxonomy, which is as good as
/// any and saves a translation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub code: Code,
    pub message: Cow<'static, str>,
}

/// The tools of a server: as listed, and with their input schemas compiled.
#[derive(Debug)]
pub(super) struct Toolbox {
    listing: Vec<Value>,
    inputs: HashMap<String, Validator>,
}

/// One call, in either dialect.
pub(super) struct ToolCall<'a> {
    pub headers: &'a HeaderMap,
    pub tool: &'a str,
    pub arguments: &'a Value,
}

/// Journals a call, checks its arguments, runs it and logs it: the one way to a tool.
pub(super) async fn perform<P: Provider>(
    provider: &P,
    call: ToolCall<'_>,
    caller: Result<P::Caller, Failure>,
) -> Result<Value, Failure> {
    let started = Instant::now();
    let mut entry = Entry::of("tools/call", call.headers).with_tool(call.tool);
    entry.emp_id = caller.as_ref().ok().and_then(P::employee).map(str::to_owned);
    if entry.idempotency_key.is_none() {
        let argument = call.arguments.get("idempotencyKey").and_then(Value::as_str);
        entry.idempotency_key = argument.map(super::journal::short);
    }
    provider.journal().note(entry.clone(), provider.toolbox().contains(call.tool));

    let outcome = match caller.and_then(|caller| {
        provider.toolbox().check(call.tool, call.arguments)?;
        Ok(caller)
    }) {
        Ok(caller) => provider.call(caller, call.tool, call.arguments).await,
        Err(failure) => Err(failure),
    };
    tracing::info!(
        provider = provider.about().name,
        tool.name = entry.tool,
        call.source = entry.call_source,
        trace_id = entry.trace_id,
        outcome = outcome.as_ref().map_or_else(|failure| failure.code.as_str(), |_| "ok"),
        duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "answered a call"
    );
    outcome
}

/// Journals what is no call of a tool.
pub(super) fn note_method<P: Provider>(provider: &P, method: &str, headers: &HeaderMap) {
    let entry = Entry::of(method, headers);
    tracing::info!(
        provider = provider.about().name,
        mcp.method = entry.method,
        call.source = entry.call_source,
        trace_id = entry.trace_id,
        "answered a request"
    );
    provider.journal().note(entry, false);
}

/// A tool's answer as a `CallToolResult`: the value, and the same JSON as text.
pub(super) fn tool_result(value: &Value, is_error: bool) -> Value {
    json!({
        "content": [{ "type": "text", "text": value.to_string() }],
        "structuredContent": value,
        "isError": is_error,
    })
}

// === impl Failure ===

impl Failure {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// `{"error": {code, message}}`, in both dialects.
    pub fn to_json(&self) -> Value {
        json!({ "error": { "code": self.code.as_str(), "message": self.message } })
    }
}

// === impl Toolbox ===

impl Toolbox {
    pub fn new(listing: Vec<Value>) -> Result<Self, StartError> {
        let mut inputs = HashMap::new();
        for tool in &listing {
            let name = tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
            match jsonschema::draft202012::new(schema) {
                Ok(validator) => inputs.insert(name, validator),
                Err(error) => {
                    return Err(StartError::Schema { tool: name, message: error.to_string() });
                }
            };
        }
        Ok(Self { listing, inputs })
    }

    pub fn listing(&self) -> &[Value] {
        &self.listing
    }

    pub fn contains(&self, tool: &str) -> bool {
        self.inputs.contains_key(tool)
    }

    /// Refuses arguments that do not fit, and says where.
    pub fn check(&self, tool: &str, arguments: &Value) -> Result<(), Failure> {
        let Some(validator) = self.inputs.get(tool) else {
            return Err(unknown_tool());
        };
        validator.validate(arguments).map_err(|error| {
            let pointer = error.instance_path().as_str();
            let place = if pointer.is_empty() { "the arguments" } else { pointer };
            // Masked: what was sent may be no business of whoever reads the message.
            Failure::new(Code::InvalidArgs, format!("{place}: {}", error.masked()))
        })
    }
}

pub(super) fn unknown_tool() -> Failure {
    Failure::new(Code::NotFound, "there is no such tool")
}

/// Pieces of tool descriptors.
pub(super) mod schema {
    use serde_json::{Map, Value, json};

    /// What a tool does to the world, honestly.
    #[derive(Debug, Clone, Copy)]
    pub enum Effect {
        Reads,
        /// Adds something; repeating it with the same arguments adds nothing more.
        AddsOnce,
        Adds,
        /// Takes something away; repeating it changes nothing more.
        EndsOnce,
        Ends,
    }

    impl Effect {
        pub fn annotations(self) -> Value {
            let (read_only, destructive, idempotent) = match self {
                Effect::Reads => (true, false, true),
                Effect::AddsOnce => (false, false, true),
                Effect::Adds => (false, false, false),
                Effect::EndsOnce => (false, true, true),
                Effect::Ends => (false, true, false),
            };
            json!({
                "readOnlyHint": read_only,
                "destructiveHint": destructive,
                "idempotentHint": idempotent,
                "openWorldHint": false,
            })
        }
    }

    /// A text of 1 to `max` characters.
    pub fn text(max: u32, description: &str) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": max, "description": description })
    }

    /// Arguments: these properties and no others.
    pub fn input<const N: usize>(properties: [(&str, Value); N], required: &[&str]) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": object(properties),
            "required": required,
            "additionalProperties": false,
        })
    }

    /// An answer: either all of these properties, or the `error` that a refusal has in their
    /// place, so that clients which check failed results too find them valid.
    pub fn output<const N: usize>(properties: [(&str, Value); N]) -> Value {
        let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
        let mut all = object(properties);
        let error = record([("code", json!({ "type": "string" })), ("message", string())]);
        all.insert("error".to_owned(), error);
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": all,
            "oneOf": [{ "required": required }, { "required": ["error"] }],
        })
    }

    /// An object inside an answer: these properties, all of them always there.
    pub fn record<const N: usize>(properties: [(&str, Value); N]) -> Value {
        let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
        json!({ "type": "object", "required": required, "properties": object(properties) })
    }

    pub fn list(items: Value) -> Value {
        json!({ "type": "array", "items": items })
    }

    pub fn string() -> Value {
        json!({ "type": "string" })
    }

    pub fn count() -> Value {
        json!({ "type": "integer", "minimum": 0 })
    }

    pub fn one_of(values: &[&str]) -> Value {
        json!({ "type": "string", "enum": values })
    }

    fn object<const N: usize>(properties: [(&str, Value); N]) -> Map<String, Value> {
        properties.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
