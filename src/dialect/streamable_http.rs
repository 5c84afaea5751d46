//! MCP 2026-07-28 over HTTP, northbound: stateless, and headers that must agree with the body.
//!
//! The order of the checks is the order in which the specification's errors win over each other.

use http::HeaderMap;

use super::{declared, header_value, request};
use crate::{
    error::{Code, Error},
    json::{Kind, Value},
    mcp::{Method, Served, Version, header, meta, rpc},
    model::call::{Meta, Request},
};

/// Methods of this revision that the gateway serves.
const SERVED: [Method; 13] = [
    Method::Discover,
    Method::ListTools,
    Method::CallTool,
    Method::ListPrompts,
    Method::GetPrompt,
    Method::ListResources,
    Method::ListTemplates,
    Method::ReadResource,
    Method::Complete,
    Method::GetTask,
    Method::UpdateTask,
    Method::CancelTask,
    Method::Listen,
];

fn mismatch(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::protocol(Code::InvalidArgs, rpc::HEADER_MISMATCH, 400, message)
}

/// Whether a request is of this era: it says so in `_meta`, or its version header is none of
/// the handshake revisions.
pub fn is_modern(headers: &HeaderMap, params: Option<Value<'_>>) -> bool {
    if declared(params).is_some() {
        return true;
    }
    headers.get(header::PROTOCOL_VERSION).is_some_and(|value| {
        let version = value.to_str().ok().and_then(|text| Version::parse(text.trim()));
        version.is_none_or(Version::is_modern)
    })
}

/// The version that `_meta` declares.
fn declared(params: Option<Value<'_>>) -> Option<Value<'_>> {
    let meta = params.filter(|p| p.kind() == Kind::Object)?.get("_meta")?;
    if meta.kind() == Kind::Object { meta.get(meta::PROTOCOL_VERSION) } else { None }
}

/// Checks a request's headers against its body and reads it.
///
/// # Errors
/// `-32020` where a header is missing or disagrees, `-32602` where `_meta` is incomplete,
/// `-32022` for a revision that is not spoken, `-32601` for a method that is not served.
pub fn read_request(
    headers: &HeaderMap,
    method_name: &str,
    params: Option<Value<'_>>,
) -> Result<(Request, Meta), Error> {
    let version = single(headers, &header::PROTOCOL_VERSION)?
        .ok_or_else(|| mismatch("the header MCP-Protocol-Version is missing"))?;
    let declared = complete_meta(params)?;
    if version != &*declared {
        return Err(mismatch("MCP-Protocol-Version differs from the version in _meta"));
    }
    if Version::parse(&declared).is_none_or(|version| !version.is_modern()) {
        return Err(unsupported(&declared));
    }
    let method_header = single(headers, &header::METHOD)?
        .ok_or_else(|| mismatch("the header Mcp-Method is missing"))?;
    if method_header != method_name {
        return Err(mismatch("Mcp-Method differs from the method in the body"));
    }
    let method = Method::parse(method_name);
    if !SERVED.contains(&method) {
        return Err(unserved(method_name));
    }
    let name = named_by(method).map_or(Ok(()), |named| check_name(headers, params, named));
    request::served_first(method, params, name.and_then(|()| request::read(method, params)))
}

/// The error for a revision that is not spoken.
fn unsupported(requested: &str) -> Error {
    let mut data = Vec::new();
    data.extend_from_slice(b"{\"supported\":[\"");
    data.extend_from_slice(Version::LATEST.as_str().as_bytes());
    data.extend_from_slice(b"\"],\"requested\":");
    crate::json::write_str(&mut data, &requested.chars().take(64).collect::<String>());
    data.push(b'}');
    let message = "unsupported protocol version";
    Error::protocol(Code::InvalidArgs, rpc::UNSUPPORTED_VERSION, 400, message).with_data(data)
}

/// The error for a method that is not served. Older revisions are told the same with 200.
pub fn unserved(method: &str) -> Error {
    let shown: String = method.chars().take(64).collect();
    Error::protocol(
        Code::NotFound,
        rpc::METHOD_NOT_FOUND,
        404,
        format!("method not found: {shown}"),
    )
}

/// `_meta` with its two required members; gives the version.
fn complete_meta(params: Option<Value<'_>>) -> Result<Box<str>, Error> {
    let invalid = |message: &'static str| {
        Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 400, message)
    };
    let params = params.filter(|params| params.kind() == Kind::Object);
    let meta = params
        .and_then(|params| params.get("_meta"))
        .filter(|meta| meta.kind() == Kind::Object)
        .ok_or_else(|| invalid("`params._meta` is missing"))?;
    let version = meta.get(meta::PROTOCOL_VERSION).and_then(Value::as_str);
    let version = version.ok_or_else(|| {
        invalid("`_meta` needs \"io.modelcontextprotocol/protocolVersion\", a string")
    })?;
    meta.get(meta::CLIENT_CAPABILITIES).filter(|value| value.kind() == Kind::Object).ok_or_else(
        || invalid("`_meta` needs \"io.modelcontextprotocol/clientCapabilities\", an object"),
    )?;
    Ok(version.into())
}

/// The member of a method's params that `Mcp-Name` repeats.
pub fn named_by(method: Method) -> Option<&'static str> {
    match method {
        Method::CallTool | Method::GetPrompt => Some("name"),
        Method::ReadResource => Some("uri"),
        Method::GetTask | Method::UpdateTask | Method::CancelTask => Some("taskId"),
        _ => None,
    }
}

/// `Mcp-Name` must be what the body names, after decoding.
fn check_name(headers: &HeaderMap, params: Option<Value<'_>>, named: &str) -> Result<(), Error> {
    let name = params.and_then(|params| params.get(named)).and_then(Value::as_str);
    let sent = match single_bytes(headers, &header::NAME)? {
        None => return Err(mismatch("the header Mcp-Name is missing")),
        Some(value) => header_value::decode(value)
            .map_err(|_| mismatch("the header Mcp-Name is badly encoded"))?,
    };
    match name {
        Some(name) if name == sent => Ok(()),
        _ => Err(mismatch(format!("Mcp-Name differs from `params.{named}`"))),
    }
}

/// The value of a header that may stand only once, without the white space around it.
fn single_bytes<'a>(
    headers: &'a HeaderMap,
    name: &http::HeaderName,
) -> Result<Option<&'a [u8]>, Error> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(mismatch(format!("the header {name} is sent twice")));
    }
    Ok(first.map(|value| value.as_bytes().trim_ascii()))
}

fn single<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Result<Option<&'a str>, Error> {
    let value = single_bytes(headers, name)?;
    value
        .map(|value| {
            std::str::from_utf8(value)
                .map_err(|_| mismatch(format!("the header {name} is not plain text")))
        })
        .transpose()
}

/// The body of `server/discover`.
pub fn discover_result(served: Served, instructions: Option<&str>, ttl_ms: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(320);
    out.extend_from_slice(b"{\"resultType\":\"complete\",\"supportedVersions\":[\"");
    out.extend_from_slice(Version::LATEST.as_str().as_bytes());
    out.extend_from_slice(b"\"],\"capabilities\":");
    declared::write_capabilities(&mut out, served);
    out.push(b',');
    declared::write_instructions(&mut out, instructions);
    out.extend_from_slice(b"\"ttlMs\":");
    out.extend_from_slice(itoa::Buffer::new().format(ttl_ms).as_bytes());
    out.extend_from_slice(b",\"cacheScope\":\"private\",\"_meta\":{");
    out.extend_from_slice(super::SERVER_INFO_MEMBER.as_bytes());
    out.extend_from_slice(b"}}");
    out
}
