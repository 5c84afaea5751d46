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
use crate::mcp::{Capabilities, Family, LogLevel, Method, Version};

/// Which tools a path shows, and under which names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Surface {
    /// `/mcp`: every upstream's, named `upstream__tool`.
    Aggregate,
    /// `/mcp/{upstream}`: one upstream's, under its own names.
    Upstream(UpstreamName),
}

impl Surface {
    /// Whether an upstream is on it.
    pub fn shows(&self, upstream: &UpstreamName) -> bool {
        match self {
            Surface::Aggregate => true,
            Surface::Upstream(name) => name == upstream,
        }
    }
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
    /// What is under `/v1`, whether or not something is served there.
    V1,
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
    /// Only what would happen is asked, here or in the header X-Dry-Run.
    pub dry_run: bool,
    pub traceparent: Option<Box<str>>,
    pub tracestate: Option<Box<str>>,
    /// What the client declares on this request; only 2026-07-28 does.
    pub capabilities: Capabilities,
    /// The least severe log messages that the client wants; only 2026-07-28 says so here.
    pub log_level: Option<LogLevel>,
}

impl Meta {
    /// The client of a stateless request, which says everything with each request.
    pub fn client(&self) -> Client {
        Client { capabilities: self.capabilities, log_level: self.log_level, session: None }
    }
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

/// What of a server a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By its name.
    Prompt(Box<str>),
    /// By its URI.
    Resource(Box<str>),
    /// By its text. Only completion is about templates.
    Template(Box<str>),
    /// By its id.
    Task(Box<str>),
}

impl Target {
    /// The name, URI, template or id.
    pub fn name(&self) -> &str {
        match self {
            Target::Prompt(name)
            | Target::Resource(name)
            | Target::Template(name)
            | Target::Task(name) => name,
        }
    }

    /// The same kind of thing under another name.
    #[must_use]
    pub fn renamed(self, name: Box<str>) -> Self {
        match self {
            Target::Prompt(_) => Target::Prompt(name),
            Target::Resource(_) => Target::Resource(name),
            Target::Template(_) => Target::Template(name),
            Target::Task(_) => Target::Task(name),
        }
    }
}

/// A request about one thing of one server that is no tool: `prompts/get`, `resources/read`,
/// `resources/subscribe` and `…/unsubscribe`, `completion/complete`, `tasks/…`.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: Method,
    /// As the caller names it on this surface.
    pub target: Target,
    /// Members of `params` that neither name the target nor are `_meta`. The reference of a
    /// completion, which does name it, is among them: it may hold more than the name.
    pub params: RawMembers,
}

/// What is wrong with a request, to be told to whoever has the family that it is of: where nobody
/// has, that is what is told.
#[derive(Debug, Clone)]
pub struct Misread {
    pub method: Method,
    /// Of JSON-RPC.
    pub code: i32,
    /// For 2026-07-28.
    pub status: u16,
    pub message: Box<str>,
}

/// What a client wants to hear of: the filter of `subscriptions/listen`, or all that the stream
/// of a handshake session carries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notices {
    pub tools: bool,
    pub prompts: bool,
    pub resources: bool,
    /// URIs, as the caller names them on this surface.
    pub updates: Vec<Box<str>>,
    /// Ids, as the caller has them.
    pub tasks: Vec<Box<str>>,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub enum Request {
    /// The version is the negotiated one.
    Initialize {
        version: Version,
        capabilities: Capabilities,
    },
    Discover,
    Ping,
    List {
        family: Family,
        cursor: Option<Box<str>>,
    },
    CallTool(Box<ToolCall>),
    Ask(Box<Ask>),
    /// A request of a family that may not be served at all, and is not what it should be.
    Misread(Box<Misread>),
    /// `logging/setLevel` of a handshake session.
    SetLevel(LogLevel),
    /// `subscriptions/listen`, or the GET stream of a handshake session.
    Listen(Box<Notices>),
    /// Accepted, and nothing comes of it here.
    Notification(Method),
}

impl Request {
    pub fn method(&self) -> Method {
        match self {
            Request::Initialize { .. } => Method::Initialize,
            Request::Discover => Method::Discover,
            Request::Ping => Method::Ping,
            Request::List { family, .. } => family.list_method(),
            Request::CallTool(_) => Method::CallTool,
            Request::Ask(ask) => ask.method,
            Request::Misread(misread) => misread.method,
            Request::SetLevel(_) => Method::SetLevel,
            Request::Listen(_) => Method::Listen,
            Request::Notification(method) => *method,
        }
    }
}

/// What the client of a request can take beside its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Client {
    /// What it can be asked for: declared on this request, or when its session was opened.
    pub capabilities: Capabilities,
    /// Log messages from this level up, on this request's stream; `None`: none.
    pub log_level: Option<LogLevel>,
    /// Its session of a handshake revision, by the name that records use.
    pub session: Option<[u8; 8]>,
}

/// A request of a client whose key and employee are known.
#[derive(Debug)]
pub struct Call {
    pub exchange: Arc<Exchange>,
    /// One for all that keep it while the call is under way.
    pub caller: Arc<Caller>,
    pub dialect: NorthDialect,
    pub surface: Surface,
    pub request: Request,
    pub client: Client,
    pub meta: Meta,
    /// From the `Idempotency-Key` header.
    pub idempotency_key: Option<Box<str>>,
    /// The client's headers. Only `stack/credential.rs` looks here, and only at names that the
    /// operator lists in `forward_headers`.
    pub headers: http::HeaderMap,
}

// === impl Call ===

impl Call {
    /// Whether its client can be told a link to follow.
    pub fn can_follow_links(&self) -> bool {
        let declared = self.client.capabilities.contains(Capabilities::ELICITATION_URL);
        declared && (self.dialect == NorthDialect::Modern || self.links_have_ids())
    }

    /// Whether links that its client is told have ids, under which it hears that they were
    /// followed: in sessions of 2025-11-25 alone.
    pub fn links_have_ids(&self) -> bool {
        let declared = self.client.capabilities.contains(Capabilities::ELICITATION_URL);
        let revision = self.dialect == NorthDialect::Legacy(Version::V2025_11_25);
        declared && revision && self.client.session.is_some()
    }
}
