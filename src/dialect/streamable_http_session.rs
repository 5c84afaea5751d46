//! The handshake revisions, 2025-03-26 to 2025-11-25, northbound.
//!
//! Session ids are sealed elsewhere; here is what a request of this era must look like.

use http::HeaderMap;

use super::{declared, request, streamable_http::unserved};
use crate::{
    error::{Code, Error},
    json::{self, Doc, Kind, Value},
    mcp::{Capabilities, Method, Served, Version, header, rpc},
    model::call::{Meta, Request},
};

/// Methods of these revisions that the gateway serves.
const SERVED: [Method; 13] = [
    Method::Initialize,
    Method::Ping,
    Method::ListTools,
    Method::CallTool,
    Method::ListPrompts,
    Method::GetPrompt,
    Method::ListResources,
    Method::ListTemplates,
    Method::ReadResource,
    Method::Complete,
    Method::SetLevel,
    Method::Subscribe,
    Method::Unsubscribe,
];

/// The version named by the header; absent, the one that the specification assumes.
///
/// # Errors
/// 400 where it is no handshake revision, or more than one.
pub fn version_of(headers: &HeaderMap) -> Result<Option<Version>, Error> {
    let mut values = headers.get_all(header::PROTOCOL_VERSION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let message = "the header MCP-Protocol-Version is sent twice";
        return Err(
            Error::http(Code::InvalidArgs, 400, message).with_rpc_code(rpc::INVALID_REQUEST)
        );
    }
    let version = value.to_str().ok().and_then(|text| Version::parse(text.trim()));
    match version {
        Some(version) if !version.is_modern() => Ok(Some(version)),
        _ => Err(Error::http(Code::InvalidArgs, 400, "unsupported MCP-Protocol-Version")
            .with_rpc_code(rpc::INVALID_REQUEST)),
    }
}

/// Reads a request of these revisions.
///
/// # Errors
/// `-32601` for a method that is not served, `-32602` for params of the wrong shape.
pub fn read_request(
    method_name: &str,
    params: Option<Value<'_>>,
) -> Result<(Request, Meta), Error> {
    let method = Method::parse(method_name);
    if !SERVED.contains(&method) {
        return Err(unserved(method_name));
    }
    if method == Method::Initialize {
        let (_, meta) = request::read(Method::Ping, params)?;
        let capabilities = params
            .and_then(|params| params.get("capabilities"))
            .map_or(Capabilities::NONE, request::capabilities);
        return Ok((Request::Initialize { version: negotiate(params)?, capabilities }, meta));
    }
    request::served_first(method, params, request::read(method, params))
}

/// The version asked for if it is spoken in this era, else the latest of the era: never a
/// stateless one, whatever was asked.
fn negotiate(params: Option<Value<'_>>) -> Result<Version, Error> {
    let invalid = |message: &'static str| {
        Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 200, message)
    };
    let params = params.ok_or_else(|| invalid("`params` of initialize is missing"))?;
    let asked = params.get("protocolVersion").filter(|value| value.kind() == Kind::String);
    let asked = asked.ok_or_else(|| invalid("`protocolVersion` must be a string"))?;
    let asked = asked.as_str().and_then(|text| Version::parse(&text));
    Ok(asked.filter(|version| !version.is_modern()).unwrap_or(Version::LATEST_LEGACY))
}

/// The body of the answer to `initialize`.
pub fn initialize_result(version: Version, served: Served, instructions: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(192);
    out.extend_from_slice(b"{\"protocolVersion\":\"");
    out.extend_from_slice(version.as_str().as_bytes());
    out.extend_from_slice(b"\",\"capabilities\":");
    declared::write_capabilities(&mut out, served);
    out.push(b',');
    declared::write_instructions(&mut out, instructions);
    out.extend_from_slice(b"\"serverInfo\":");
    out.extend_from_slice(super::SERVER_INFO.as_bytes());
    out.push(b'}');
    out
}

/// What a message of a client that is not a request asks for: the id that a
/// `notifications/cancelled` names, as the client wrote it.
pub fn cancelled_id(params: Option<Value<'_>>) -> Option<bytes::Bytes> {
    params.filter(|p| p.kind() == Kind::Object)?.get("requestId").map(Value::bytes)
}

/// The id that a client's response names, where it is one that the gateway gives: a string.
pub fn answered_id(id: &bytes::Bytes) -> Option<String> {
    let limits = json::Limits { depth: 1, duplicates: json::Duplicates::Allow, outline: 0 };
    let doc = Doc::parse(id.clone(), &limits).ok()?;
    doc.root().as_str().map(Into::into)
}
