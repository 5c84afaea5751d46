//! Reading a tool's definition as its server listed it.
//!
//! The object stays as it is; what the gateway needs of it is found and kept beside it.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{
    catalog::Definition,
    key_argument::KEY_ARGUMENT,
    param_header::{self, MarkFault},
    schema::{ArgumentSchema, SchemaFault},
};
use crate::json::{self, Kind, Value};

/// Members that a pin covers: everything a model or a client acts on.
const PINNED: [&str; 6] =
    ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// Why a listed tool is not taken into the catalog; it costs only itself.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DefinitionFault {
    #[error("a listed tool is not a JSON object")]
    NotAnObject,
    #[error("a listed tool has no name")]
    NoName,
    #[error("tool `{0}`: {1}")]
    Schema(String, SchemaFault),
    #[error("tool `{0}`: {1}")]
    Mark(String, MarkFault),
}

/// Reads one element of a listing's `tools`.
pub fn read_definition(tool: Value<'_>) -> Result<Definition, DefinitionFault> {
    if tool.kind() != Kind::Object {
        return Err(DefinitionFault::NotAnObject);
    }
    let raw: Bytes = tool.bytes();
    let name_value = tool.get("name").ok_or(DefinitionFault::NoName)?;
    let name = name_value.as_str().filter(|name| !name.is_empty());
    let name: Arc<str> = name.ok_or(DefinitionFault::NoName)?.into();
    let arguments = ArgumentSchema::compile(tool.get("inputSchema").map(Value::raw))
        .map_err(|fault| DefinitionFault::Schema(name.chars().take(128).collect(), fault))?;
    let params = tool.get("inputSchema").map_or(Ok(Vec::new()), param_header::read);
    let params =
        params.map_err(|fault| DefinitionFault::Mark(name.chars().take(128).collect(), fault))?;
    // Both are slices of the same buffer: the distance of their starts is an offset.
    let start = name_value.raw().as_ptr() as usize - raw.as_ptr() as usize;
    Ok(Definition {
        digest: digest(tool),
        params: params.into(),
        has_output_schema: tool.get("outputSchema").is_some(),
        has_key_argument: tool
            .get("inputSchema")
            .and_then(|schema| schema.get("properties"))
            .is_some_and(|properties| properties.get(KEY_ARGUMENT).is_some()),
        name_span: start..start + name_value.raw().len(),
        name,
        raw,
        arguments,
    })
}

/// SHA-256 over the canonical form of the pinned members, in the order of `PINNED`.
fn digest(tool: Value<'_>) -> [u8; 32] {
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
