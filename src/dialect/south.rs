//! Requests to servers, and what comes back of them, in each dialect a server may speak.
//!
//! The envelope and the headers are always written anew from what the gateway sends; nothing is
//! copied from the client's head.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header as http_header};

use super::{SERVER_INFO, header_value, jsonrpc, mcp_lite};
use crate::{
    body::Pieces,
    error::{Code, Error},
    json::{self, Doc},
    mcp::{Capabilities, LogLevel, Method, Version, header, meta, rpc},
    model::{
        call::{Meta, RawMembers},
        caller::Caller,
        reply::{Final, Notification, ResultBody},
    },
};

/// How one hop is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speech {
    Modern(Version),
    /// The version the session agreed on.
    Legacy(Version),
    Lite,
}

/// One request to a server, as facts.
pub struct Outbound<'a> {
    pub speech: Speech,
    /// The id on this hop; unique within the process.
    pub id: u64,
    pub method: Method,
    /// The server's own name of the tool.
    pub tool: Option<&'a str>,
    pub arguments: Option<&'a Bytes>,
    pub others: &'a RawMembers,
    pub cursor: Option<&'a str>,
    pub meta: &'a Meta,
    /// The client's capabilities, as it wrote them.
    pub capabilities: Option<&'a [u8]>,
    /// Context of this hop's client span.
    pub traceparent: &'a str,
    pub tracestate: Option<&'a str>,
    /// For providers that are told who calls.
    pub user: Option<&'a Caller>,
}

/// `_meta` members that belong to one hop, or to the gateway, and never go on as they came.
const OWN_META: [&str; 9] = [
    meta::PROTOCOL_VERSION,
    meta::CLIENT_CAPABILITIES,
    meta::CLIENT_INFO,
    meta::LOG_LEVEL,
    meta::PROGRESS_TOKEN,
    meta::TRACEPARENT,
    meta::TRACESTATE,
    meta::BAGGAGE,
    meta::IDEMPOTENCY_KEY,
];

impl Outbound<'_> {
    /// The request's body. Arguments of some size are sent as they are, never copied.
    pub fn body(&self) -> Pieces {
        let mut head = Vec::with_capacity(640);
        let lite = self.speech == Speech::Lite;
        if !lite {
            head.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
            head.extend_from_slice(itoa::Buffer::new().format(self.id).as_bytes());
            head.extend_from_slice(b",\"method\":\"");
            head.extend_from_slice(self.method.as_str().as_bytes());
            head.extend_from_slice(b"\",\"params\":");
        }
        head.push(b'{');
        if let Some(tool) = self.tool {
            head.extend_from_slice(b"\"name\":");
            json::write_str(&mut head, tool);
            head.push(b',');
        }
        if let Some(cursor) = self.cursor {
            head.extend_from_slice(b"\"cursor\":");
            json::write_str(&mut head, cursor);
            head.push(b',');
        }
        for member in self.others {
            write_member(&mut head, &member.key, &member.value);
            head.push(b',');
        }
        if let Some(user) = self.user {
            head.extend_from_slice(b"\"user\":");
            mcp_lite::write_user(&mut head, user);
            head.push(b',');
        }
        self.write_meta(&mut head);
        let tail: &'static [u8] = if lite { b"}" } else { b"}}" };
        let Some(arguments) = self.arguments else {
            if head.last() == Some(&b',') {
                head.pop();
            }
            head.extend_from_slice(tail);
            return Bytes::from(head).into();
        };
        head.extend_from_slice(b"\"arguments\":");
        if arguments.len() <= COPIED {
            head.extend_from_slice(arguments);
            head.extend_from_slice(tail);
            return Bytes::from(head).into();
        }
        Pieces::new([head.into(), arguments.clone(), Bytes::from_static(tail)])
    }

    fn write_meta(&self, head: &mut Vec<u8>) {
        let start = head.len();
        head.extend_from_slice(b"\"_meta\":{");
        let empty = head.len();
        for member in &self.meta.members {
            let own = std::str::from_utf8(&member.key).is_ok_and(|key| OWN_META.contains(&key));
            if !own {
                write_member(head, &member.key, &member.value);
                head.push(b',');
            }
        }
        if let Speech::Modern(version) = self.speech {
            write_member(head, meta::PROTOCOL_VERSION.as_bytes(), &quoted(version.as_str()));
            head.push(b',');
            let capabilities = self.capabilities.unwrap_or(b"{}");
            write_member(head, meta::CLIENT_CAPABILITIES.as_bytes(), capabilities);
            head.push(b',');
            write_member(head, meta::CLIENT_INFO.as_bytes(), SERVER_INFO.as_bytes());
            head.push(b',');
        }
        // A listing needs no context of its own in a dialect that has no place for it.
        if self.speech != Speech::Lite {
            if self.meta.progress_token.is_some() {
                head.extend_from_slice(b"\"progressToken\":");
                head.extend_from_slice(itoa::Buffer::new().format(self.id).as_bytes());
                head.push(b',');
            }
            write_member(head, meta::TRACEPARENT.as_bytes(), &quoted(self.traceparent));
            head.push(b',');
            if let Some(state) = self.tracestate {
                let mut value = Vec::with_capacity(state.len() + 2);
                json::write_str(&mut value, state);
                write_member(head, meta::TRACESTATE.as_bytes(), &value);
                head.push(b',');
            }
        }
        if head.len() == empty {
            head.truncate(start);
        } else {
            head.pop();
            head.extend_from_slice(b"},");
        }
    }

    /// The headers that the protocol asks for on this hop.
    pub fn headers(&self) -> HeaderMap {
        const JSON: HeaderValue = HeaderValue::from_static("application/json");
        const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(http_header::CONTENT_TYPE, JSON);
        match self.speech {
            Speech::Modern(version) => {
                headers.insert(http_header::ACCEPT, BOTH);
                headers
                    .insert(header::PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
                headers.insert(header::METHOD, HeaderValue::from_static(self.method.as_str()));
                let name = self.tool.and_then(|tool| {
                    HeaderValue::from_bytes(header_value::encode(tool).as_bytes()).ok()
                });
                if let Some(name) = name {
                    headers.insert(header::NAME, name);
                }
            }
            Speech::Legacy(version) => {
                headers.insert(http_header::ACCEPT, BOTH);
                if self.method != Method::Initialize {
                    headers.insert(
                        header::PROTOCOL_VERSION,
                        HeaderValue::from_static(version.as_str()),
                    );
                }
            }
            Speech::Lite => {
                headers.insert(http_header::ACCEPT, JSON);
            }
        }
        headers
    }
}

/// Arguments up to this size are copied into the one piece that is sent.
const COPIED: usize = 16 * 1024;

fn write_member(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
}

/// A string that needs no escapes, quoted.
fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::write_str(&mut out, text);
    out
}

/// The body of `initialize`. It declares what the client for whom the session is opened can be
/// asked for in the middle of its calls.
pub fn initialize_body(id: u64, version: Version, capabilities: Capabilities) -> Bytes {
    let capabilities = capabilities.to_json(version);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"initialize\",\"params\":{{\
         \"protocolVersion\":\"{version}\",\"capabilities\":{capabilities},\
         \"clientInfo\":{SERVER_INFO}}}}}"
    )
    .into()
}

/// The body of `logging/setLevel`.
pub fn set_level_body(id: u64, level: LogLevel) -> Bytes {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"logging/setLevel\",\
         \"params\":{{\"level\":\"{}\"}}}}",
        level.as_str()
    )
    .into()
}

/// The body of `notifications/initialized`.
pub const INITIALIZED: Bytes =
    Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");

/// The body of `notifications/cancelled` for a request of ours.
pub fn cancelled_body(id: u64) -> Bytes {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\
         \"params\":{{\"requestId\":{id},\"reason\":\"the call was given up\"}}}}"
    )
    .into()
}

/// The answer to a question of a server: nothing but a ping can be asked of the gateway.
pub fn answer_body(id: &[u8], method: &str) -> Bytes {
    if Method::parse(method) == Method::Ping {
        let mut out = jsonrpc::result_head(id);
        out.extend_from_slice(b"{}}");
        return out.into();
    }
    let code = i64::from(rpc::METHOD_NOT_FOUND);
    jsonrpc::error_response(Some(id), code, b"\"method not found\"", None)
}

/// One message of a server, as far as a call is concerned.
pub enum Incoming {
    /// The answer to our request.
    End(Final),
    Notification(Notification),
    /// A question of the server, which awaits an answer under its own id.
    Question {
        id: Bytes,
        method: Box<str>,
    },
}

/// Outline: root, result or params, `_meta`.
const LIMITS: json::Limits =
    json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 3 };

fn malformed(what: &'static str) -> Error {
    Error::new(Code::ExternalServiceError, format!("the server's answer is malformed: {what}"))
        .with_kind("malformed")
        .from_upstream()
}

/// Reads a message of a standard server.
///
/// # Errors
/// `external_service_error` for whatever is no JSON-RPC message, or answers another request.
pub fn read_message(text: Bytes, id: u64) -> Result<Incoming, Error> {
    let doc = Doc::parse(text, &LIMITS).map_err(|fault| malformed("not JSON").with_cause(fault))?;
    let message =
        jsonrpc::read(&doc).map_err(|error| malformed("no JSON-RPC message").with_cause(error))?;
    let ours = |raw: &Bytes| raw == itoa::Buffer::new().format(id).as_bytes();
    match message {
        jsonrpc::Message::Result { id, result } if ours(&id) => {
            if result.kind() != json::Kind::Object {
                return Err(malformed("the result is no object"));
            }
            Ok(Incoming::End(Final::Result(read_result(result))))
        }
        jsonrpc::Message::Error { id, error } if id.as_ref().is_none_or(ours) => {
            Ok(Incoming::End(Final::Error(error)))
        }
        jsonrpc::Message::Result { .. } | jsonrpc::Message::Error { .. } => {
            Err(malformed("it answers another request"))
        }
        jsonrpc::Message::Notification { method, params } => {
            let params = params.map(json::Value::bytes);
            Ok(Incoming::Notification(Notification { method, params }))
        }
        jsonrpc::Message::Request { id, method, .. } => Ok(Incoming::Question { id, method }),
    }
}

/// Reads a provider's answer: the body is the result.
pub fn read_lite(text: Bytes) -> Result<ResultBody, Error> {
    let doc = Doc::parse(text, &LIMITS).map_err(|fault| malformed("not JSON").with_cause(fault))?;
    let root = doc.root();
    if root.kind() != json::Kind::Object {
        return Err(malformed("no JSON object"));
    }
    Ok(read_result(root))
}

fn read_result(result: json::Value<'_>) -> ResultBody {
    ResultBody::upstream(result.bytes(), super::north::shape(result))
}

/// A page of a listing: the document, of which the caller reads `tools` and `nextCursor`.
pub fn read_page(raw: Bytes) -> Result<Doc, Error> {
    let limits = json::Limits { outline: 3, ..LIMITS };
    Doc::parse(raw, &limits).map_err(|fault| malformed("not JSON").with_cause(fault))
}

/// Progress for the client: the same params under the token that the client gave.
pub fn progress_for(params: &Bytes, ours: u64, token: &Bytes) -> Option<Bytes> {
    let doc = Doc::parse(params.clone(), &LIMITS).ok()?;
    let root = doc.root();
    let value = root.get("progressToken")?;
    if value.raw() != itoa::Buffer::new().format(ours).as_bytes() {
        return None;
    }
    let start = value.raw().as_ptr() as usize - root.raw().as_ptr() as usize;
    let raw = root.raw();
    let mut out = Vec::with_capacity(raw.len() + token.len());
    out.extend_from_slice(&raw[..start]);
    out.extend_from_slice(token);
    out.extend_from_slice(&raw[start + value.raw().len()..]);
    Some(out.into())
}
