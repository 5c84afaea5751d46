//! JSON-RPC 2.0 as MCP uses it: one message read strictly, envelopes written around raw parts.
//!
//! It knows neither revisions nor headers; `streamable_http*.rs` do.

use bytes::Bytes;

use crate::{
    error::{Code, Error},
    json::{self, Doc, Kind, Value},
    mcp::rpc,
    model::reply::{Question, RpcError},
};

/// One message, as a view of the document it came in.
pub enum Message<'a> {
    Request { id: Bytes, method: Box<str>, params: Option<Value<'a>> },
    Notification { method: Box<str>, params: Option<Value<'a>> },
    Result { id: Bytes, result: Value<'a> },
    Error { id: Option<Bytes>, error: RpcError },
}

fn invalid(message: &'static str) -> Error {
    Error::http(Code::InvalidArgs, 400, message).with_rpc_code(rpc::INVALID_REQUEST)
}

/// Turns a fault of the JSON itself into the error that JSON-RPC has for it.
pub fn unreadable(fault: &json::Fault) -> Error {
    let code = match fault.kind {
        json::FaultKind::DuplicateKey | json::FaultKind::Depth => rpc::INVALID_REQUEST,
        _ => rpc::PARSE_ERROR,
    };
    Error::http(Code::InvalidArgs, 400, format!("the body cannot be read as JSON: {fault}"))
        .with_rpc_code(code)
}

/// Reads a document as one message.
///
/// # Errors
/// A batch, a message of no kind, an id that is neither a string nor an integer: `-32600`.
pub fn read(doc: &Doc) -> Result<Message<'_>, Error> {
    let root = doc.root();
    match root.kind() {
        Kind::Object => {}
        Kind::Array => return Err(invalid("a batch is not accepted: send one message a POST")),
        _ => return Err(invalid("the body is not a JSON-RPC message")),
    }
    let (mut version, mut id, mut method, mut params) = (None, None, None, None);
    let (mut result, mut error) = (None, None);
    for (key, value) in root.members() {
        match &*key.name() {
            b"jsonrpc" => version = Some(value),
            b"id" => id = Some(value),
            b"method" => method = Some(value),
            b"params" => params = Some(value),
            b"result" => result = Some(value),
            b"error" => error = Some(value),
            _ => {}
        }
    }
    if version.is_none_or(|v| !v.is_str("2.0")) {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    if let Some(method) = method {
        let Some(method) = method.as_str() else {
            return Err(invalid("`method` must be a string"));
        };
        // `params: null` is taken for absent; anything else must be an object.
        let params = params.filter(|params| params.kind() != Kind::Null);
        let method = method.into();
        return match id {
            None => Ok(Message::Notification { method, params }),
            Some(id) => Ok(Message::Request { id: request_id(id)?, method, params }),
        };
    }
    if let Some(result) = result {
        let id = id.ok_or_else(|| invalid("a response needs an id"))?;
        return Ok(Message::Result { id: request_id(id)?, result });
    }
    if let Some(error) = error {
        let id = id.filter(|id| id.kind() != Kind::Null).map(request_id).transpose()?;
        return Ok(Message::Error { id, error: rpc_error(error)? });
    }
    Err(invalid("the body is neither a request nor a notification"))
}

/// The raw token of an id; presence makes a request, so 0 and "" are ids like any other.
fn request_id(id: Value<'_>) -> Result<Bytes, Error> {
    let whole = match id.kind() {
        Kind::String => true,
        Kind::Number => {
            let digits = id.raw().strip_prefix(b"-").unwrap_or(id.raw());
            digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    };
    whole.then(|| id.bytes()).ok_or_else(|| invalid("`id` must be a string or an integer"))
}

fn rpc_error(error: Value<'_>) -> Result<RpcError, Error> {
    let code = error.get("code").and_then(|code| code.as_i64());
    let code = code.ok_or_else(|| invalid("`error` has no integer code"))?;
    let message = error
        .get("message")
        .filter(|message| message.kind() == Kind::String)
        .map_or(Bytes::from_static(b"\"\""), Value::bytes);
    let data = error.get("data").map(Value::bytes);
    Ok(RpcError { code, message, data })
}

/// The start of a response with a result, and room for so much more; the result and a `}` follow.
pub fn result_head(id: &[u8], room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(id.len() + 48 + room);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id);
    out.extend_from_slice(b",\"result\":");
    out
}

/// A whole error response. Without an id the member is left out: 2026-07-28 has no null id.
pub fn error_response(id: Option<&[u8]>, code: i64, message: &[u8], data: Option<&[u8]>) -> Bytes {
    let mut out = Vec::with_capacity(96 + message.len() + data.map_or(0, <[u8]>::len));
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    if let Some(id) = id {
        out.extend_from_slice(b",\"id\":");
        out.extend_from_slice(id);
    }
    out.extend_from_slice(b",\"error\":{\"code\":");
    out.extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
    out.extend_from_slice(b",\"message\":");
    out.extend_from_slice(message);
    if let Some(data) = data {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(data);
    }
    out.extend_from_slice(b"}}");
    out.into()
}

/// A whole request to a client.
pub fn question(question: &Question) -> Vec<u8> {
    let params = question.params.as_deref();
    let mut out = Vec::with_capacity(96 + params.map_or(0, <[u8]>::len));
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    json::write_str(&mut out, &question.id);
    out.extend_from_slice(b",\"method\":");
    json::write_str(&mut out, question.method.as_str());
    if let Some(params) = params {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params);
    }
    out.push(b'}');
    out
}

/// A whole notification.
pub fn notification(method: &str, params: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + method.len() + params.map_or(0, <[u8]>::len));
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    json::write_str(&mut out, method);
    if let Some(params) = params {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params);
    }
    out.push(b'}');
    out
}
