//! A request of a client, read but not yet decided on.
//!
//! The envelope is parsed, the payload is not: arguments and everything unknown are slices of
//! the bytes that came in.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    caller::Caller,
    exchange::{Exchange, NorthDialect},
    server::UpstreamName,
};
use crate::mcp::{Method, Version};

/// Which tools a path shows, and under which names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Surface {
    /// `/mcp`: every upstream's, named `upstream__tool`.
    Aggregate,
    /// `/mcp/{upstream}`: one upstream's, under its own names.
    Upstream(UpstreamName),
}

/// Where a request came from: the peer, or behind trusted proxies the first untrusted hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddr {
    pub ip: std::net::IpAddr,
    pub port: u16,
}

/// What a path on the data listener is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Standard MCP.
    Mcp(Surface),
    /// MCP-Lite, with the method that its path names.
    Lite(Surface, Method),
}

/// A member of a JSON object as it was written: the key without its quotes but still escaped,
/// and the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawMember {
    pub key: Bytes,
    pub value: Bytes,
}

/// The members of an object, in the order in which they came.
pub type RawMembers = Vec<RawMember>;

/// `_meta` of the request: what the gateway reads of it, and all of it.
#[derive(Debug, Clone, Default)]
pub struct Meta {
    pub members: RawMembers,
    /// The JSON token as the client wrote it.
    pub progress_token: Option<Bytes>,
    pub idempotency_key: Option<Box<str>>,
    pub traceparent: Option<Box<str>>,
    pub tracestate: Option<Box<str>>,
}

/// `tools/call`.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// As the caller names it on this surface.
    pub name: Box<str>,
    /// The JSON object as it came; absent stays absent.
    pub arguments: Option<Bytes>,
    /// Members of `params` that are neither `name`, `arguments` nor `_meta`.
    pub others: RawMembers,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub enum Request {
    /// The version is the negotiated one.
    Initialize {
        version: Version,
        capabilities: Vec<Box<str>>,
    },
    Discover,
    Ping,
    ListTools {
        cursor: Option<Box<str>>,
    },
    CallTool(Box<ToolCall>),
    /// Accepted, and nothing comes of it here.
    Notification(Method),
}

impl Request {
    pub fn method(&self) -> Method {
        match self {
            Request::Initialize { .. } => Method::Initialize,
            Request::Discover => Method::Discover,
            Request::Ping => Method::Ping,
            Request::ListTools { .. } => Method::ListTools,
            Request::CallTool(_) => Method::CallTool,
            Request::Notification(method) => *method,
        }
    }
}

/// A request of a client whose key and employee are known.
#[derive(Debug)]
pub struct Call {
    pub exchange: Arc<Exchange>,
    pub caller: Caller,
    pub dialect: NorthDialect,
    pub surface: Surface,
    pub request: Request,
    pub meta: Meta,
    /// From the `Idempotency-Key` header.
    pub idempotency_key: Option<Box<str>>,
    /// The client's headers. Only `stack/credential.rs` looks here, and only at names that the
    /// operator lists in `forward_headers`.
    pub headers: http::HeaderMap,
}
