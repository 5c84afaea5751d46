//! Requests to servers, and what comes back of them, in each dialect a server may speak.
//!
//! The envelope and the headers are always written anew from what the gateway sends; nothing is
//! copied from the client's head.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header as http_header};

use super::{SERVER_INFO, header_value, jsonrpc, mcp_lite, streamable_http};
use crate::{
    body::Pieces,
    error::{Code, Error},
    json::{self, Doc, splice},
    mcp::{Capabilities, LogLevel, Method, Version, header, meta, rpc},
    model::{
        call::{Ask, Meta, RawMembers, Target},
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
    /// What is asked about, as the server names it.
    pub target: Option<&'a Target>,
    pub others: &'a RawMembers,
    pub cursor: Option<&'a str>,
    pub meta: &'a Meta,
    /// What the client can be asked for, as one JSON object.
    pub capabilities: Option<&'a [u8]>,
    /// Log messages from this level up are wanted.
    pub log_level: Option<LogLevel>,
    /// Context of this hop's client span.
    pub traceparent: &'a str,
    pub tracestate: Option<&'a str>,
    /// For providers that are told who calls.
    pub user: Option<&'a Caller>,
}

/// What is asked about under the name that its server knows.
pub fn renamed(mut ask: Ask, own: Box<str>) -> Ask {
    if ask.method == Method::Complete {
        let reference = ask.params.iter_mut().find(|member| member.key.as_ref() == b"ref");
        if let Some(member) = reference
            && let Some(doc) = splice::document(&member.value)
        {
            let name = if matches!(ask.target, Target::Prompt(_)) { "name" } else { "uri" };
            let mut edits = splice::Edits::default();
            if let Some(value) = doc.root().get(name).filter(|value| !value.is_str(&own)) {
                edits.put_str(value, &own);
                member.value = edits.apply(&member.value);
            }
        }
    }
    Ask { target: ask.target.renamed(own), ..ask }
}

/// `_meta` members that belong to one hop, or to the gateway, and never go on as they came.
const OWN_META: [&str; 10] = [
    meta::PROTOCOL_VERSION,
    meta::CLIENT_CAPABILITIES,
    meta::CLIENT_INFO,
    meta::LOG_LEVEL,
    meta::PROGRESS_TOKEN,
    meta::TRACEPARENT,
    meta::TRACESTATE,
    meta::BAGGAGE,
    meta::IDEMPOTENCY_KEY,
    meta::DRY_RUN,
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
        if let Some((member, name)) = self.named() {
            head.push(b'"');
            head.extend_from_slice(member.as_bytes());
            head.extend_from_slice(b"\":");
            json::write_str(&mut head, name);
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

    /// The member of the params that names the target, and the name. A completion's stands in its
    /// reference.
    fn named(&self) -> Option<(&'static str, &str)> {
        let member = match self.method {
            Method::Complete => None,
            Method::Subscribe | Method::Unsubscribe => Some("uri"),
            other => streamable_http::named_by(other),
        }?;
        Some((member, self.target?.name()))
    }

    fn write_meta(&self, head: &mut Vec<u8>) {
        let start = head.len();
        head.extend_from_slice(b"\"_meta\":{");
        let empty = head.len();
        for member in &self.meta.members {
            let own = OWN_META.iter().any(|own| member.key == own.as_bytes());
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
            if let Some(level) = self.log_level {
                write_member(head, meta::LOG_LEVEL.as_bytes(), &quoted(level.as_str()));
                head.push(b',');
            }
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
                let name = self.tool.or_else(|| self.named().map(|(_, name)| name));
                let name = name.filter(|_| streamable_http::named_by(self.method).is_some());
                let name = name.and_then(|name| {
                    HeaderValue::from_bytes(header_value::encode(name).as_bytes()).ok()
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
        let mut out = jsonrpc::result_head(id, 112);
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
        /// The raw `params` object, if any.
        params: Option<Bytes>,
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
        jsonrpc::Message::Request { id, method, params } => {
            Ok(Incoming::Question { id, method, params: params.map(json::Value::bytes) })
        }
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

/// The level of a log message.
pub fn level_of(params: &Bytes) -> Option<LogLevel> {
    let doc = Doc::parse(params.clone(), &LIMITS).ok()?;
    doc.root().get("level").and_then(json::Value::as_str).and_then(|text| LogLevel::parse(&text))
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::*;
    use crate::model::call::{RawMember, Request};

    fn ask(method: Method, params: &'static str) -> Ask {
        let doc = splice::document(&Bytes::from(params)).unwrap();
        match super::super::request::read(method, Some(doc.root())) {
            Ok((Request::Ask(ask), _)) => *ask,
            _ => panic!("{params}"),
        }
    }

    /// The params and the name header of a request to a server.
    fn written(speech: Speech, ask: &Ask) -> (String, Option<String>) {
        let outbound = Outbound {
            speech,
            id: 7,
            method: ask.method,
            tool: None,
            arguments: None,
            target: Some(&ask.target),
            others: &ask.params,
            cursor: None,
            meta: &Meta {
                members: vec![RawMember { key: "k".into(), value: "1.0".into() }],
                ..Meta::default()
            },
            capabilities: None,
            log_level: None,
            traceparent: "t",
            tracestate: None,
            user: None,
        };
        let body = crate::body::Body::from(outbound.body()).collect().now_or_never();
        let body = body.unwrap().unwrap().to_bytes();
        let doc = splice::document(&body).unwrap();
        assert!(doc.root().get("method").unwrap().is_str(ask.method.as_str()));
        let params = String::from_utf8(doc.root().get("params").unwrap().raw().to_vec()).unwrap();
        let name = outbound.headers().get(header::NAME).map(|name| name.to_str().unwrap().into());
        (params, name)
    }

    #[test]
    fn what_is_asked_about_goes_under_the_servers_own_name() {
        let legacy = Speech::Legacy(Version::V2025_06_18);
        let meta = r#""_meta":{"k":1.0,"traceparent":"t"}"#;
        for (method, params, own, expected, name) in [
            (
                Method::GetPrompt,
                r#"{"name":"up__p","arguments":{"a": "1"}}"#,
                "pé",
                r#"{"name":"pé","arguments":{"a": "1"},"#,
                Some("=?base64?cMOp?="),
            ),
            (Method::ReadResource, r#"{"uri":"up+a:b"}"#, "a:b", r#"{"uri":"a:b","#, Some("a:b")),
            (Method::Subscribe, r#"{"uri":"up+a:b"}"#, "a:b", r#"{"uri":"a:b","#, None),
            (
                Method::Complete,
                r#"{"argument":{"name":"n","value":""},"ref":{"type":"ref/prompt","name":"up__p","title":"T"}}"#,
                "p",
                r#"{"argument":{"name":"n","value":""},"ref":{"type":"ref/prompt","name":"p","title":"T"},"#,
                None,
            ),
            (
                Method::Complete,
                r#"{"ref":{"uri":"up+a:{b}","type":"ref/resource"},"argument":{"name":"b","value":""}}"#,
                "a:{b}",
                r#"{"ref":{"uri":"a:{b}","type":"ref/resource"},"argument":{"name":"b","value":""},"#,
                None,
            ),
        ] {
            let ask = renamed(ask(method, params), own.into());
            let (params, sent) = written(legacy, &ask);
            assert_eq!((params, sent), (format!("{expected}{meta}}}"), None));
            let (params, sent) = written(Speech::Modern(Version::LATEST), &ask);
            assert!(params.starts_with(expected), "{params}");
            assert_eq!(sent.as_deref(), name);
        }
    }
}
