//! Tools in the function-calling schemas of agent runtimes, and the map back: one file per
//! runtime.
//!
//! A runtime takes less than JSON Schema has, and other names. What it lacks is rewritten or
//! dropped, always so that more is allowed and never less: arguments that are good stay good, and
//! the server's own schema, which decides, is asked later anyway. What was lost is noted.
//! Nothing here knows who calls, nor makes a call.

mod anthropic;
mod content;
mod gemini;
mod names;
mod openai;
mod openapi;
mod plain;
mod source;
#[cfg(test)]
mod tests;
mod top;

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;

pub use self::names::{is_rewritten, runtime_name};
use crate::json;

/// How a runtime wants tools, their calls and their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// As MCP has them.
    Mcp,
    OpenAi,
    Anthropic,
    Gemini,
}

/// A tool as a runtime is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    pub json: Value,
    pub notes: Vec<Note>,
}

/// What a schema lost on its way to a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// JSON pointer into the tool's `inputSchema`.
    pub pointer: String,
    pub text: String,
}

/// Notes on one tool: more nobody reads, and each has a place in a schema of any length.
const MAX_NOTES: usize = 100;

/// A tool as it is published: what of it any runtime has a place for.
#[derive(Debug, Clone, Copy)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    schema: Option<&'a Value>,
}

/// A call as a runtime writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeCall {
    /// The tool, as [`runtime_name`] has it.
    pub name: Box<str>,
    /// A JSON object as it was written.
    pub arguments: Option<Bytes>,
    /// Under which the runtime knows the call; not all give one.
    pub id: Option<Box<str>>,
    shape: Shape,
}

/// In which of a runtime's forms a call came: its result goes back in the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Usual,
    /// An item of OpenAI's Responses API.
    Item,
}

/// A result to be told to a runtime.
#[derive(Debug, Clone, Copy)]
pub enum Told<'a> {
    /// A result object of MCP, as its server wrote it.
    Result(&'a [u8]),
    /// A call that was refused, in one sentence for the model.
    Refused(&'a str),
}

/// Why something is no call of a runtime's: where, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallFault {
    pub pointer: &'static str,
    pub message: Cow<'static, str>,
}

// === impl Format ===

impl Format {
    pub const ALL: [Format; 4] = [Format::Mcp, Format::OpenAi, Format::Anthropic, Format::Gemini];

    pub const fn as_str(self) -> &'static str {
        match self {
            Format::Mcp => "mcp",
            Format::OpenAi => "openai",
            Format::Anthropic => "anthropic",
            Format::Gemini => "gemini",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == text)
    }

    /// A tool of a listing under another name, as the runtime is told of it; nothing for MCP,
    /// which has it as it is.
    pub fn declare(self, tool: &Value, name: &str) -> Option<Declaration> {
        let text =
            |at: &Value, member: &str| at.get(member).and_then(Value::as_str).map(str::to_owned);
        let description = text(tool, "description")
            .filter(|text| !text.is_empty())
            .or_else(|| text(tool, "title"))
            .or_else(|| text(tool.get("annotations")?, "title"))
            .unwrap_or_else(|| name.to_owned());
        let tool = Tool { name, description: &description, schema: tool.get("inputSchema") };
        match self {
            Format::Mcp => None,
            Format::OpenAi => Some(openai::declare(&tool)),
            Format::Anthropic => Some(anthropic::declare(&tool)),
            Format::Gemini => Some(gemini::declare(&tool)),
        }
    }

    /// What a runtime's request takes as its `tools`.
    pub fn tools(self, declarations: Vec<Value>) -> Value {
        match self {
            Format::Gemini if declarations.is_empty() => Value::Array(Vec::new()),
            Format::Gemini => serde_json::json!([{ "functionDeclarations": declarations }]),
            _ => Value::Array(declarations),
        }
    }

    /// Reads a call in a runtime's form.
    ///
    /// # Errors
    /// Where it is none. MCP's own form is not read here.
    pub fn read_call(self, call: json::Value<'_>) -> Result<RuntimeCall, CallFault> {
        match self {
            Format::Mcp => Err(CallFault::new("", "MCP's own form is no runtime's")),
            Format::OpenAi => openai::read_call(call),
            Format::Anthropic => anthropic::read_call(call),
            Format::Gemini => gemini::read_call(call),
        }
    }

    /// A call's result in the runtime's form.
    pub fn result(self, call: &RuntimeCall, told: Told<'_>) -> Value {
        let told = content::Content::of(told);
        match self {
            Format::Mcp | Format::OpenAi => openai::result(call, &told),
            Format::Anthropic => anthropic::result(call, &told),
            Format::Gemini => gemini::result(call, &told),
        }
    }
}

// === impl Note ===

impl Note {
    /// Takes a note, as long as there are few.
    fn take(notes: &mut Vec<Note>, pointer: &str, text: impl Into<String>) {
        match notes.len() {
            ..MAX_NOTES => notes.push(Note { pointer: pointer.to_owned(), text: text.into() }),
            MAX_NOTES => {
                let text = "more of the schema is lost than is noted".to_owned();
                notes.push(Note { pointer: String::new(), text });
            }
            _ => {}
        }
    }
}

// === impl CallFault ===

impl CallFault {
    fn new(pointer: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { pointer, message: message.into() }
    }
}

/// A text member that must be there.
fn text<'a>(
    object: json::Value<'a>,
    name: &str,
    pointer: &'static str,
) -> Result<Cow<'a, str>, CallFault> {
    let text = object.get(name).and_then(json::Value::as_str).filter(|text| !text.is_empty());
    text.ok_or_else(|| {
        CallFault::new(pointer, format!("`{name}` must be a text that is not empty"))
    })
}

/// A text member that may be there.
fn id(
    object: json::Value<'_>,
    name: &str,
    pointer: &'static str,
) -> Result<Option<Box<str>>, CallFault> {
    match object.get(name).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(_) => text(object, name, pointer).map(|text| Some(text.into())),
    }
}

/// An object member that may be there, as it was written.
fn object(
    of: json::Value<'_>,
    name: &str,
    pointer: &'static str,
) -> Result<Option<Bytes>, CallFault> {
    match of.get(name).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(value) if value.kind() == json::Kind::Object => Ok(Some(value.bytes())),
        Some(_) => Err(CallFault::new(pointer, format!("`{name}` must be an object"))),
    }
}
