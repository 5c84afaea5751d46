//! Reading a tool's definition, and the objects of other families, as their server listed them.
//!
//! The object stays as it is; what the gateway needs of it is found and kept beside it.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{
    key_argument::KEY_ARGUMENT,
    param_header::{self, MarkFault, ParamHeader},
    quality::Quality,
    schema::{ArgumentSchema, SchemaFault},
};
use crate::{
    json::{self, Kind, Value},
    mcp::Family,
};

/// The largest definition that is taken into a catalog, in bytes. It is compared with others, kept,
/// and looked at: twice the largest `inputSchema` is more than any has.
pub const MAX_DEFINITION: usize = 512 * 1024;

/// Members that a pin covers: everything a model or a client acts on.
pub(super) const PINNED: [&str; 6] =
    ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// A tool's definition as its server sent it, read and pinned.
#[derive(Debug)]
pub struct Definition {
    pub name: Arc<str>,
    /// The whole JSON object.
    pub raw: Bytes,
    /// SHA-256 over the canonical definition.
    pub digest: [u8; 32],
    pub arguments: ArgumentSchema,
    /// Arguments that requests of 2026-07-28 repeat in headers.
    pub params: Box<[ParamHeader]>,
    pub has_output_schema: bool,
    /// The tool itself has an argument named as the gateway's for the idempotency key.
    pub has_key_argument: bool,
    /// Where the value of `name` stands in `raw`.
    name_span: Range<usize>,
    /// What is wrong with it, once somebody has looked.
    quality: OnceLock<Quality>,
}

/// A prompt, resource or resource template as its server sent it.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub family: Family,
    /// The name, the URI, the template: whatever names it.
    pub own: Arc<str>,
    /// The whole JSON object.
    pub raw: Bytes,
    /// Where the value that names it stands in `raw`.
    own_span: Range<usize>,
}

impl Definition {
    /// What is wrong with it; looked at once.
    pub fn quality(&self) -> &Quality {
        self.quality.get_or_init(|| Quality::of(&self.raw))
    }

    /// The definition under another name.
    pub(super) fn renamed(&self, name: &str) -> Bytes {
        replaced(&self.raw, &self.name_span, name)
    }
}

impl Entry {
    /// The object under another name.
    pub(super) fn renamed(&self, name: &str) -> Bytes {
        replaced(&self.raw, &self.own_span, name)
    }
}

pub(super) fn replaced(raw: &Bytes, span: &Range<usize>, text: &str) -> Bytes {
    let mut out = Vec::with_capacity(raw.len() + text.len() + 2);
    out.extend_from_slice(&raw[..span.start]);
    json::write_str(&mut out, text);
    out.extend_from_slice(&raw[span.end..]);
    out.into()
}

/// Why something listed is not taken into the catalog; it costs only itself.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DefinitionFault {
    #[error("a listed tool is not a JSON object")]
    NotAnObject,
    #[error("a listed tool has no name")]
    NoName,
    #[error("an element of `{0}` is larger than {MAX_DEFINITION} bytes")]
    TooLarge(&'static str),
    #[error("an element of `{0}` is not a JSON object")]
    NoObject(&'static str),
    #[error("an element of `{family}` has no `{key}`")]
    NoKey { family: &'static str, key: &'static str },
    #[error("tool `{0}`: {1}")]
    Schema(String, SchemaFault),
    #[error("tool `{0}`: {1}")]
    Mark(String, MarkFault),
}

/// Reads one element of a listing's `tools`.
pub fn read_definition(tool: Value<'_>) -> Result<Definition, DefinitionFault> {
    read(tool, |schema| ArgumentSchema::compile(schema.map(Value::raw)))
}

/// Reads an element that was read when it was listed, and is known since: whoever knows many of
/// which few are called has no schema compiled before somebody calls.
pub fn read_known(tool: Value<'_>) -> Result<Definition, DefinitionFault> {
    read(tool, |schema| Ok(ArgumentSchema::known(schema.map(Value::bytes))))
}

fn read(
    tool: Value<'_>,
    schema: impl FnOnce(Option<Value<'_>>) -> Result<ArgumentSchema, SchemaFault>,
) -> Result<Definition, DefinitionFault> {
    if tool.kind() != Kind::Object {
        return Err(DefinitionFault::NotAnObject);
    }
    if tool.raw().len() > MAX_DEFINITION {
        return Err(DefinitionFault::TooLarge(Family::Tools.member()));
    }
    let raw: Bytes = tool.bytes();
    let name_value = tool.get("name").ok_or(DefinitionFault::NoName)?;
    let name = name_value.as_str().filter(|name| !name.is_empty());
    let name: Arc<str> = name.ok_or(DefinitionFault::NoName)?.into();
    let arguments = schema(tool.get("inputSchema"))
        .map_err(|fault| DefinitionFault::Schema(name.chars().take(128).collect(), fault))?;
    let params = tool.get("inputSchema").map_or(Ok(Vec::new()), param_header::read);
    let params =
        params.map_err(|fault| DefinitionFault::Mark(name.chars().take(128).collect(), fault))?;
    Ok(Definition {
        digest: digest(tool),
        params: params.into(),
        has_output_schema: tool.get("outputSchema").is_some(),
        has_key_argument: tool
            .get("inputSchema")
            .and_then(|schema| schema.get("properties"))
            .is_some_and(|properties| properties.get(KEY_ARGUMENT).is_some()),
        name_span: span_in(tool, name_value),
        name,
        raw,
        arguments,
        quality: OnceLock::new(),
    })
}

/// Reads one element of a listing of prompts, resources or templates.
///
/// # Errors
/// Where it is no object, or nothing names it.
pub fn read_entry(family: Family, element: Value<'_>) -> Result<Entry, DefinitionFault> {
    if element.kind() != Kind::Object {
        return Err(DefinitionFault::NoObject(family.member()));
    }
    if element.raw().len() > MAX_DEFINITION {
        return Err(DefinitionFault::TooLarge(family.member()));
    }
    let unnamed = DefinitionFault::NoKey { family: family.member(), key: family.key() };
    let Some(value) = element.get(family.key()) else { return Err(unnamed) };
    let Some(own) = value.as_str().filter(|own| !own.is_empty()) else { return Err(unnamed) };
    Ok(Entry { family, own: own.into(), raw: element.bytes(), own_span: span_in(element, value) })
}

/// Reads a definition that was kept; `None` where it cannot be read any more.
pub fn read_kept(definition: Bytes) -> Option<Definition> {
    let limits =
        json::Limits { depth: usize::MAX, duplicates: json::Duplicates::Allow, outline: 2 };
    read_definition(json::Doc::parse(definition, &limits).ok()?.root()).ok()
}

/// Where a value stands in the text of an object that holds it.
pub(super) fn span_in(object: Value<'_>, value: Value<'_>) -> Range<usize> {
    let start = value.offset() - object.offset();
    start..start + value.raw().len()
}

/// The form of digests. One that a store has in another form is made again from the text.
pub const DIGEST_FORM: i64 = 1;

/// SHA-256 over the canonical form of the pinned members, in the order of `PINNED`.
pub(super) fn digest(tool: Value<'_>) -> [u8; 32] {
    let mut canonical = Vec::with_capacity(tool.raw().len());
    canonical.extend_from_slice(b"hangu.pin.v1");
    for member in PINNED {
        canonical.push(b'\n');
        if let Some(value) = tool.get(member) {
            json::canonical(value.raw(), &mut canonical);
        }
    }
    Sha256::digest(&canonical).into()
}
