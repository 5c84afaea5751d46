//! Standard MCP in front of a [`Provider`]: one path, POST only, no sessions, JSON answers.
//!
//! 2026-07-28 is served request by request with every check the revision asks of a server; the
//! handshake revisions are served beside it, without a session, which they allow. There are
//! tools and nothing else: what is not served is not advertised.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Map, Value, json};

use super::{
    http as web,
    provider::{self, Failure, Provider, ToolCall},
};
use crate::{
    body::Body,
    mcp::{Version, header, meta, rpc},
};

/// Of the handshake revisions, also the one this server does not speak.
const HANDSHAKE: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const LIST_TTL_MS: u64 = 30_000;

/// Answers one HTTP request on the path where a provider speaks MCP.
pub(super) async fn handle<P: Provider>(
    provider: &P,
    request: Request<Incoming>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    if let Err(failure) = provider.admit(&head.headers) {
        return refuse_entry(&failure);
    }
    if head.method != Method::POST {
        let mut response = web::empty(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let bytes = match web::json_body(&head, body).await {
        Ok(bytes) => bytes,
        Err(error) => {
            return Fault::new(error.status, rpc::INVALID_REQUEST, error.message).respond(None);
        }
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Array(batch)) => answer_batch(provider, &head.headers, batch).await,
        Ok(message) => answer(provider, &head.headers, message).await,
        Err(_) => Fault::bad_request(rpc::PARSE_ERROR, "the body is not JSON").respond(None),
    }
}

/// An HTTP status and a JSON-RPC error; the handshake revisions get 200 once a method has run.
#[derive(Debug)]
struct Fault {
    status: StatusCode,
    code: i32,
    message: Cow<'static, str>,
    data: Option<Value>,
}

/// A request or a notification.
#[derive(Debug)]
struct Message {
    id: Option<Value>,
    method: String,
    params: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Era {
    Handshake,
    Modern,
}

async fn answer<P: Provider>(provider: &P, headers: &HeaderMap, message: Value) -> Response<Body> {
    let id = proper_id(&message);
    let message = match Message::parse(message) {
        Ok(message) => message,
        Err(fault) => return fault.respond(id.as_ref()),
    };
    let era = match era_of(headers, &message) {
        Ok(era) => era,
        Err(fault) => return fault.respond(message.id.as_ref()),
    };
    let Some(id) = &message.id else {
        provider::note_method(provider, &message.method, headers);
        return web::empty(StatusCode::ACCEPTED);
    };
    let outcome = match era {
        Era::Handshake => handshake_method(provider, headers, &message).await,
        Era::Modern => match check_head(headers, &message) {
            Ok(()) => modern_method(provider, headers, &message).await,
            Err(fault) => return fault.respond(Some(id)),
        },
    };
    match outcome {
        Ok(result) => web::json(StatusCode::OK, &success(id, &result)),
        Err(fault) if era == Era::Handshake => web::json(StatusCode::OK, &fault.to_json(Some(id))),
        Err(fault) => fault.respond(Some(id)),
    }
}

/// 2025-03-26 alone has batches, and a request without a version counts as of that revision.
async fn answer_batch<P: Provider>(
    provider: &P,
    headers: &HeaderMap,
    batch: Vec<Value>,
) -> Response<Body> {
    let version = headers.get(header::PROTOCOL_VERSION).map(HeaderValue::as_bytes);
    let batches = version.is_none_or(|v| v == Version::V2025_03_26.as_str().as_bytes());
    if !batches || batch.is_empty() {
        let message = "the body must be one request or notification";
        return Fault::bad_request(rpc::INVALID_REQUEST, message).respond(None);
    }
    let mut answers = Vec::new();
    for message in batch {
        let id = proper_id(&message);
        let message = match Message::parse(message) {
            Ok(message) => message,
            Err(fault) => {
                answers.push(fault.to_json(id.as_ref()));
                continue;
            }
        };
        let Some(id) = &message.id else {
            provider::note_method(provider, &message.method, headers);
            continue;
        };
        let outcome = if message.method == "initialize" || message.declared_version().is_some() {
            Err(Fault::bad_request(rpc::INVALID_REQUEST, "this request must come alone"))
        } else {
            handshake_method(provider, headers, &message).await
        };
        answers.push(match outcome {
            Ok(result) => success(id, &result),
            Err(fault) => fault.to_json(Some(id)),
        });
    }
    if answers.is_empty() {
        web::empty(StatusCode::ACCEPTED)
    } else {
        web::json(StatusCode::OK, &answers)
    }
}

async fn handshake_method<P: Provider>(
    provider: &P,
    headers: &HeaderMap,
    message: &Message,
) -> Result<Value, Fault> {
    match message.method.as_str() {
        "initialize" => {
            provider::note_method(provider, &message.method, headers);
            initialize(provider, &message.params)
        }
        "ping" => {
            provider::note_method(provider, &message.method, headers);
            Ok(json!({}))
        }
        "tools/list" => list_tools(provider, headers, &message.params),
        "tools/call" => call_tool(provider, headers, &message.params).await,
        other => {
            provider::note_method(provider, other, headers);
            Err(Fault::unknown_method(other))
        }
    }
}

async fn modern_method<P: Provider>(
    provider: &P,
    headers: &HeaderMap,
    message: &Message,
) -> Result<Value, Fault> {
    let mut result = match message.method.as_str() {
        "server/discover" => {
            provider::note_method(provider, &message.method, headers);
            cacheable(provider, discover(provider))
        }
        "tools/list" => cacheable(provider, list_tools(provider, headers, &message.params)?),
        "tools/call" => {
            check_name(headers, &message.params)?;
            call_tool(provider, headers, &message.params).await?
        }
        other => {
            provider::note_method(provider, other, headers);
            return Err(Fault::unknown_method(other));
        }
    };
    if let Value::Object(members) = &mut result {
        members.insert("resultType".to_owned(), "complete".into());
        members.insert("_meta".to_owned(), json!({ meta::SERVER_INFO: server_info(provider) }));
    }
    Ok(result)
}

fn initialize<P: Provider>(provider: &P, params: &Map<String, Value>) -> Result<Value, Fault> {
    let asked = params.get("protocolVersion").and_then(Value::as_str).ok_or_else(|| {
        Fault::bad_request(rpc::INVALID_PARAMS, "params.protocolVersion must be a string")
    })?;
    // Never a revision that has no handshake, whatever was asked for.
    let version = Version::parse(asked)
        .filter(|version| !version.is_modern())
        .unwrap_or(Version::LATEST_LEGACY);
    Ok(json!({
        "protocolVersion": version.as_str(),
        "capabilities": { "tools": {} },
        "serverInfo": server_info(provider),
        "instructions": provider.about().instructions,
    }))
}

fn discover<P: Provider>(provider: &P) -> Value {
    json!({
        "supportedVersions": [Version::LATEST.as_str()],
        "capabilities": { "tools": {} },
        "instructions": provider.about().instructions,
    })
}

fn server_info<P: Provider>(provider: &P) -> Value {
    let about = provider.about();
    json!({ "name": about.name, "title": about.title, "version": env!("CARGO_PKG_VERSION") })
}

fn cacheable<P: Provider>(provider: &P, mut result: Value) -> Value {
    if let Value::Object(members) = &mut result {
        members.insert("ttlMs".to_owned(), LIST_TTL_MS.into());
        members.insert("cacheScope".to_owned(), provider.about().cache_scope.into());
    }
    result
}

fn list_tools<P: Provider>(
    provider: &P,
    headers: &HeaderMap,
    params: &Map<String, Value>,
) -> Result<Value, Fault> {
    provider::note_method(provider, "tools/list", headers);
    // All tools fit one page, so no cursor was ever given out.
    if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
        return Err(Fault::invalid_params("there is no such cursor"));
    }
    Ok(json!({ "tools": provider.toolbox().listing() }))
}

async fn call_tool<P: Provider>(
    provider: &P,
    headers: &HeaderMap,
    params: &Map<String, Value>,
) -> Result<Value, Fault> {
    let Some(tool) = params.get("name").and_then(Value::as_str) else {
        return Err(Fault::invalid_params("params.name must be a string"));
    };
    if !provider.toolbox().contains(tool) {
        provider::note_method(provider, "tools/call", headers);
        return Err(Fault::invalid_params(provider::unknown_tool().message));
    }
    let none = Value::Object(Map::new());
    let arguments = params.get("arguments").unwrap_or(&none);
    let caller = provider.caller(headers).await;
    let call = ToolCall { headers, tool, arguments };
    Ok(match provider::perform(provider, call, caller).await {
        Ok(value) => provider::tool_result(&value, false),
        Err(failure) => provider::tool_result(&failure.to_json(), true),
    })
}

/// Tells the eras apart: a declared version, or a version header that is no handshake
/// revision's, makes a request modern.
fn era_of(headers: &HeaderMap, message: &Message) -> Result<Era, Fault> {
    let version = single(headers, header::PROTOCOL_VERSION)?;
    let handshake = version.is_none_or(|version| HANDSHAKE.contains(&version));
    if message.declared_version().is_some() || !handshake {
        Ok(Era::Modern)
    } else if version.is_some_and(|version| Version::parse(version).is_none()) {
        Err(Fault::bad_request(rpc::INVALID_REQUEST, "this revision is not spoken here"))
    } else {
        Ok(Era::Handshake)
    }
}

/// What 2026-07-28 demands of the head of a request, in the order in which it is checked.
fn check_head(headers: &HeaderMap, message: &Message) -> Result<(), Fault> {
    let mismatch = |text| Err(Fault::bad_request(rpc::HEADER_MISMATCH, text));
    let Some(version) = single(headers, header::PROTOCOL_VERSION)? else {
        return mismatch("the header MCP-Protocol-Version is missing");
    };
    let Some(declared) = message.declared_version().and_then(Value::as_str) else {
        let text = format!("params._meta needs the string `{}`", meta::PROTOCOL_VERSION);
        return Err(Fault::bad_request(rpc::INVALID_PARAMS, text));
    };
    if !message.meta(meta::CLIENT_CAPABILITIES).is_some_and(Value::is_object) {
        let text = format!("params._meta needs the object `{}`", meta::CLIENT_CAPABILITIES);
        return Err(Fault::bad_request(rpc::INVALID_PARAMS, text));
    }
    if version != declared {
        return mismatch("MCP-Protocol-Version does not match params._meta");
    }
    if !Version::parse(version).is_some_and(Version::is_modern) {
        let data = json!({ "supported": [Version::LATEST.as_str()], "requested": version });
        let mut fault =
            Fault::bad_request(rpc::UNSUPPORTED_VERSION, "unsupported protocol version");
        fault.data = Some(data);
        return Err(fault);
    }
    match single(headers, header::METHOD)? {
        Some(method) if method == message.method => Ok(()),
        Some(_) => mismatch("Mcp-Method does not match the method"),
        None => mismatch("the header Mcp-Method is missing"),
    }
}

fn check_name(headers: &HeaderMap, params: &Map<String, Value>) -> Result<(), Fault> {
    let mismatch = |text| Err(Fault::bad_request(rpc::HEADER_MISMATCH, text));
    let Some(name) = single(headers, header::NAME)? else {
        return mismatch("the header Mcp-Name is missing");
    };
    let Some(name) = decode(name) else {
        return mismatch("Mcp-Name is badly encoded");
    };
    if params.get("name").and_then(Value::as_str).is_some_and(|tool| tool != name) {
        return mismatch("Mcp-Name does not match params.name");
    }
    Ok(())
}

/// A header that may come once only.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Fault> {
    let mut values = headers.get_all(&name).iter();
    let first = values.next();
    let text = first.map(|value| value.to_str().map(str::trim)).transpose();
    match (text, values.next()) {
        (Ok(text), None) => Ok(text),
        _ => Err(Fault::bad_request(
            rpc::HEADER_MISMATCH,
            format!("the header {name} must be plain text and come once"),
        )),
    }
}

/// The value of a mirrored header: plain, or Base64 between the protocol's markers.
fn decode(value: &str) -> Option<Cow<'_, str>> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="))
    else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = BASE64.decode(inner).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn success(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// The answer to one who may not enter: nothing of the request is looked at, its id neither.
fn refuse_entry(failure: &Failure) -> Response<Body> {
    let status = StatusCode::from_u16(failure.code.rest_status())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut fault = Fault::new(status, failure.code.json_rpc(), failure.message.clone());
    fault.data = Some(json!({ "code": failure.code.as_str() }));
    let mut response = fault.respond(None);
    response
        .headers_mut()
        .insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("ApiKey"));
    response
}

// === impl Message ===

impl Message {
    fn parse(message: Value) -> Result<Self, Fault> {
        let fault = |text| Err(Fault::bad_request(rpc::INVALID_REQUEST, text));
        let Value::Object(mut members) = message else {
            return fault("the body must be one request or notification");
        };
        let id = members.remove("id");
        if !id.as_ref().is_none_or(is_id) {
            return fault("the id must be a string or an integer");
        }
        if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return fault("`jsonrpc` must be \"2.0\"");
        }
        let Some(Value::String(method)) = members.remove("method") else {
            return fault("`method` must be a string");
        };
        match members.remove("params") {
            None => Ok(Self { id, method, params: Map::new() }),
            Some(Value::Object(params)) => Ok(Self { id, method, params }),
            Some(_) => fault("`params` must be an object"),
        }
    }

    fn meta(&self, key: &str) -> Option<&Value> {
        self.params.get("_meta")?.get(key)
    }

    fn declared_version(&self) -> Option<&Value> {
        self.meta(meta::PROTOCOL_VERSION)
    }
}

/// The id to echo in an error, where the message has a proper one.
fn proper_id(message: &Value) -> Option<Value> {
    message.get("id").filter(|id| is_id(id)).cloned()
}

/// A string, or a number written without fraction and exponent.
fn is_id(id: &Value) -> bool {
    match id {
        Value::String(_) => true,
        Value::Number(number) => {
            number.to_string().bytes().all(|byte| byte == b'-' || byte.is_ascii_digit())
        }
        _ => false,
    }
}

// === impl Fault ===

impl Fault {
    fn new(status: StatusCode, code: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }

    fn bad_request(code: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// Found while running the method, so no fault of the HTTP request.
    fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::OK, rpc::INVALID_PARAMS, message)
    }

    fn unknown_method(method: &str) -> Self {
        let message = format!("method not found: {}", super::journal::short(method));
        Self::new(StatusCode::NOT_FOUND, rpc::METHOD_NOT_FOUND, message)
    }

    fn respond(&self, id: Option<&Value>) -> Response<Body> {
        web::json(self.status, &self.to_json(id))
    }

    fn to_json(&self, id: Option<&Value>) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        match id {
            Some(id) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
            None => json!({ "jsonrpc": "2.0", "error": error }),
        }
    }
}

#[cfg(test)]
mod tests;
