//! What passes between the layers: how far a call has come is its type.
//!
//! `Call` → `Permitted` (only `policy` makes one) → `Routed` → `upstream::Outgoing`.
//! Also the world that decides calls at one moment (`stage/world.rs`).

mod auth;
mod brought;
mod personal;
mod trial;
mod world;

use std::{
    any::Any,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::{
    body::Pieces,
    credential::{
        Owner, Whose,
        store::{Held, Stamp},
    },
    error::Error,
    limit,
    mcp::{Capabilities, Family, LogLevel, Served, Version},
    model::{
        call::{Ask, Call, Client, Meta, Notices, RawMembers, Request},
        caller::Caller,
        exchange::{Exchange, NorthDialect},
        reply::RpcError,
        server::{DialectKind, IdempotencyMode, Risk, UpstreamName},
        template::HeaderSource,
        trace::TraceContext,
    },
    policy::{ItemPolicy, Permit},
    registry::{Item, Tool},
    upstream::{Breaker, Reach, Retries, Tried},
};

pub use self::auth::UpstreamAuth;
pub use self::brought::{Brought, is_brought, not_good, said};
pub use self::personal::{
    Beside, Loading, Own, Personal, is_of_both, is_taken, may_be_own, of_operator,
};
pub use self::trial::{Trial, TrialApproval};
pub use self::world::{ListConfig, Page, PageKey, Rendered, World, Worlds};

/// A layer's future, where it has to wait for something.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

// === Upstreams ===

/// How a server turned out to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Stateless, by this revision.
    Modern(Version),
    /// By handshake; the revision is agreed on for each session.
    Legacy,
    /// MCP-Lite.
    Lite,
}

impl Era {
    pub fn as_str(self) -> &'static str {
        match self {
            Era::Modern(_) => "modern",
            Era::Legacy => "legacy",
            Era::Lite => "mcp-lite",
        }
    }
}

/// An upstream as configured.
pub struct Upstream {
    /// Tells one that was made from any other, of whatever name: what was opened with the
    /// settings of one serves no other.
    pub serial: Serial,
    pub name: UpstreamName,
    pub server_key: Arc<str>,
    /// What the key is of, in its normal form; a process has none.
    pub address: Option<Box<str>>,
    pub dialect: DialectKind,
    /// The one revision to speak, if the operator pinned it.
    pub pinned: Option<Version>,
    /// Its addresses, or what stands in for them.
    pub reach: Reach,
    pub auth: UpstreamAuth,
    /// Sent with each request, in this order.
    pub headers: Vec<(HeaderName, HeaderSource)>,
    /// Client headers that go on.
    pub forward: Vec<HeaderName>,
    pub inject_user: bool,
    /// The server keeps nothing of a session.
    pub stateless: bool,
    /// A server of the handshake era may ask, and its call is held open until somebody answers.
    pub park: bool,
    /// A session that nobody used for so long is ended.
    pub session_idle: Duration,
    /// Sessions of the handshake era at once.
    pub max_sessions: usize,
    /// Without an answer; progress starts it anew.
    pub timeout: Duration,
    /// Of a call, whatever arrives.
    pub max_time: Duration,
    pub max_request_bytes: usize,
    pub max_response_bytes: usize,
    /// How many calls may be sent again.
    pub retries: Retries,
    /// Whether it is called at all for now.
    pub breaker: Arc<Breaker>,
    /// Learnt by probing, and forgotten when it proves wrong.
    pub era: RwLock<Option<Era>>,
    /// What the server declared that it serves, when it was last asked.
    pub served: AtomicU16,
    /// What it told then to those who use it.
    pub instructions: RwLock<Option<Arc<str>>>,
    /// Who it said it is, when it was last asked.
    pub introduced: RwLock<Option<Arc<Introduced>>>,
}

/// Who a server says it is; nothing is decided by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduced {
    pub name: Option<Box<str>>,
    pub version: Option<Box<str>>,
    /// What was agreed on, in the handshake era.
    pub revision: Option<Version>,
}

/// A number that no other has in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Serial(u64);

impl Serial {
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Set once the server has said what it serves, which may be nothing.
const DECLARED: u16 = 1 << 15;

impl Upstream {
    pub fn era(&self) -> Option<Era> {
        *self.era.read()
    }

    pub fn set_era(&self, era: Option<Era>) {
        *self.era.write() = era;
    }

    /// Whether employees share its sessions: it keeps nothing of them, and they were not opened
    /// with anybody's own credential.
    pub fn shares_sessions(&self) -> bool {
        self.stateless && !self.auth.is_employees()
    }

    /// Whose credential a caller's requests carry, where it is his own; nobody's where no employee
    /// is named.
    pub fn credential_of(&self, caller: &Caller) -> Option<Whose> {
        let employee = caller.principal.employee.clone()?;
        Some(Whose {
            tenant: caller.tenant.clone(),
            owner: Owner::Employee(employee),
            server_key: self.server_key.clone(),
        })
    }

    /// What the server declared that it serves; nothing, until it was asked.
    pub fn served(&self) -> Served {
        Served::from_bits(self.served.load(Ordering::Relaxed) & !DECLARED)
    }

    /// Whether the server has said what it serves.
    pub fn has_declared(&self) -> bool {
        self.served.load(Ordering::Relaxed) != 0
    }

    pub fn set_served(&self, served: Served) {
        self.served.store(served.bits() | DECLARED, Ordering::Relaxed);
    }

    /// What a session of the handshake era declares for a client: what it can be asked for, as
    /// far as the gateway can carry it.
    pub fn declares(&self, client: &Client, dialect: Option<NorthDialect>) -> Capabilities {
        match dialect {
            Some(NorthDialect::Modern | NorthDialect::Legacy(_)) if self.park => {
                client.capabilities.without(Capabilities::TASKS)
            }
            _ => Capabilities::NONE,
        }
    }

    /// What the gateway's own discovery declares: all that a client of its could be asked for. A
    /// server may show a tool only to those who can be asked what it needs; whose client cannot,
    /// learns that from the call.
    pub fn discovers(&self) -> Capabilities {
        match self.era() {
            Some(Era::Legacy) if !self.park => Capabilities::NONE,
            _ => Capabilities::CARRIED.without(Capabilities::TASKS),
        }
    }

    pub fn instructions(&self) -> Option<Arc<str>> {
        self.instructions.read().clone()
    }

    pub fn introduced(&self) -> Option<Arc<Introduced>> {
        self.introduced.read().clone()
    }

    pub fn set_introduced(&self, introduced: Introduced) {
        *self.introduced.write() = Some(Arc::new(introduced));
    }

    pub fn set_instructions(&self, instructions: Option<String>) {
        *self.instructions.write() = instructions.map(Into::into);
    }
}

/// Every upstream, in configuration order.
pub type Upstreams = Arc<[Arc<Upstream>]>;

// === Stages ===

/// What an `Ask` is about, now that it is known whose it is.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What the catalog has under the name. A resource need not be listed: a template has more
    /// expansions than anybody lists.
    pub item: Option<Arc<Item>>,
    pub upstream: UpstreamName,
    /// Position of its upstream in the configuration.
    pub upstream_index: usize,
    /// As its upstream names it.
    pub own: Box<str>,
}

/// A call that policy let through.
pub struct Permitted {
    pub call: Call,
    pub permit: Permit,
    pub world: Arc<World>,
    /// The tool of a `tools/call`, and of no other method.
    pub tool: Option<Arc<Tool>>,
    /// What an `Ask` is about, and of no other method.
    pub asked: Option<Asked>,
    /// The key that makes the call happen once, if it has one: where it is an argument that only
    /// the gateway knows, set by `validate`, which takes it out; else by `idempotency`.
    pub idempotency_key: Option<Box<str>>,
    /// To be set before a byte of the call can leave; `None` where that is of no matter, or done.
    pub leaving: Option<Arc<AtomicBool>>,
    /// Nothing is to leave: what would happen is gathered here, and told by `dry_run`.
    pub trial: Option<Box<Trial>>,
    /// What an employee has of his own, of a list that has it after everybody's.
    pub beside: Option<Box<Beside>>,
}

/// Whether the gateway publishes an argument for the idempotency key: the tool is not called
/// without one, and has no argument for it.
pub fn publishes_key(tool: &Tool, policy: &ItemPolicy) -> bool {
    policy.idempotency == IdempotencyMode::Required
        && policy.idempotency_argument.is_none()
        && !tool.definition.has_key_argument
}

impl Permitted {
    /// A call that policy has just decided on.
    pub fn new(
        call: Call,
        permit: Permit,
        world: Arc<World>,
        tool: Option<Arc<Tool>>,
        asked: Option<Asked>,
    ) -> Self {
        let trial = call.meta.dry_run.then(Box::default);
        let (idempotency_key, leaving, beside) = (None, None, None);
        Self { call, permit, world, tool, asked, idempotency_key, leaving, trial, beside }
    }

    /// What the call may do at worst; the worst there is where nobody has said.
    pub fn risk(&self) -> Risk {
        self.permit.policy().map_or(Risk::WriteHigh, |policy| policy.risk)
    }

    /// What limits and quotas are asked about.
    pub fn subject(&self) -> limit::Subject<'_> {
        let tool = match (&self.call.request, &self.tool) {
            (Request::CallTool(_), Some(tool)) => Some(limit::Tool {
                name: &tool.qualified,
                upstream: tool.upstream.as_str(),
                risk: self.risk(),
            }),
            _ => None,
        };
        let other = self
            .asked
            .as_ref()
            .map(|asked| limit::Other { upstream: asked.upstream.as_str(), risk: self.risk() });
        limit::Subject::new(&self.call.caller, tool).about(other)
    }
}

/// What is asked of an upstream.
#[derive(Clone)]
pub enum SouthRequest {
    /// Which era it is of, and what it declares of itself; never a call that acts.
    Probe,
    List {
        family: Family,
        cursor: Option<Box<str>>,
    },
    CallTool {
        tool: Arc<Tool>,
        arguments: Option<Bytes>,
        others: RawMembers,
        timeout: Duration,
        max_time: Duration,
    },
    /// A stream of notices: of these, under the server's own names.
    Listen(Box<Notices>),
    /// Towards servers of the handshake era: notices of this resource, on or off.
    Subscribe {
        uri: Box<str>,
        on: bool,
    },
    /// The target is named as the server names it.
    Ask {
        ask: Box<Ask>,
        timeout: Duration,
        max_time: Duration,
    },
}

impl SouthRequest {
    /// The tool that is called.
    pub fn tool(&self) -> Option<&Arc<Tool>> {
        match self {
            SouthRequest::CallTool { tool, .. } => Some(tool),
            _ => None,
        }
    }

    /// How long the server may say nothing, where the request has its own time.
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            SouthRequest::CallTool { timeout, .. } | SouthRequest::Ask { timeout, .. } => {
                Some(*timeout)
            }
            SouthRequest::Probe
            | SouthRequest::List { .. }
            | SouthRequest::Listen(_)
            | SouthRequest::Subscribe { .. } => None,
        }
    }
}

/// Whether a request may be sent again that may have been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repeat {
    Never,
    /// It is a read that the operator calls safe.
    Safe,
    /// It has a key that the server honours, as its operator says: in this argument, or in a
    /// header.
    UnderKey {
        argument: Option<Arc<str>>,
    },
}

/// A request on its way to one upstream.
#[derive(Clone)]
pub struct Routed {
    pub exchange: Arc<Exchange>,
    /// `None`: the gateway's own discovery.
    pub caller: Option<Arc<Caller>>,
    pub upstream: Arc<Upstream>,
    pub request: SouthRequest,
    /// How the client speaks; `None`: the gateway's own discovery.
    pub dialect: Option<NorthDialect>,
    pub client: Client,
    pub meta: Meta,
    pub idempotency_key: Option<Box<str>>,
    pub repeat: Repeat,
    /// Questions of the server that the client answered with an error, by their keys; only a
    /// server of the handshake era can be told.
    pub refusals: Vec<(Box<str>, RpcError)>,
    /// The client's headers, of which only the listed ones go on.
    pub headers: Arc<http::HeaderMap>,
}

/// The session at a server that a request was made in. While anybody has this, it is in use.
#[derive(Clone)]
pub struct HeldSession {
    /// A server may do without.
    pub id: Option<HeaderValue>,
    /// Whose credential it was opened with, where it was an employee's own.
    pub credential: Option<Stamp>,
    /// What was agreed on.
    pub version: Version,
    /// What the server declared when the session was opened.
    pub served: Served,
    /// The server turned out to have forgotten it.
    pub lost: Arc<AtomicBool>,
    /// Its place in the pool, which is not idle as long as this is there.
    pub place: Arc<dyn Any + Send + Sync>,
}

/// A request that is written, on its way through the layers that know the server's session and
/// credential. `credential` makes an `upstream::Outgoing` of it.
///
/// Where it was made in a session, the answer has the [`HeldSession`] in its extensions.
#[derive(Clone)]
pub struct Hop {
    pub exchange: Arc<Exchange>,
    pub caller: Option<Arc<Caller>>,
    pub upstream: Arc<Upstream>,
    pub method: http::Method,
    /// Below the upstream's own path, for dialects that have paths.
    pub path: &'static str,
    pub headers: http::HeaderMap,
    pub body: Pieces,
    /// The request belongs into a session of a handshake revision.
    pub session: bool,
    /// What its session declares that can be asked for ([`Upstream::declares`]): sessions that
    /// declare different things are different ones.
    pub capabilities: Capabilities,
    /// Log messages from this level up are wanted of its session.
    pub log_level: Option<LogLevel>,
    /// The sealed credential that goes with it, where one was looked up already.
    pub credential: Option<Arc<Held>>,
    /// The very session it belongs into; if that is gone, so is what the request is about.
    pub held: Option<HeldSession>,
    /// Where earlier attempts of the same call went, if that matters.
    pub tried: Option<Arc<Tried>>,
    /// The client's headers, of which only the listed ones go on.
    pub client_headers: Arc<http::HeaderMap>,
}

impl Hop {
    /// A request of the gateway's own, without a body.
    pub fn own(upstream: Arc<Upstream>, method: http::Method) -> Hop {
        Self::in_session(upstream, None, Capabilities::NONE, method)
    }

    /// A request in the pooled session of a caller, without headers and body: the stream that a
    /// session offers by `GET`, for one.
    pub fn in_session(
        upstream: Arc<Upstream>,
        caller: Option<Arc<Caller>>,
        capabilities: Capabilities,
        method: http::Method,
    ) -> Hop {
        let exchange = Exchange::new(TraceContext::default(), Instant::now(), 0, None);
        Hop {
            exchange: Arc::new(exchange),
            caller,
            upstream,
            method,
            path: "",
            headers: http::HeaderMap::new(),
            body: Pieces::default(),
            session: true,
            capabilities,
            log_level: None,
            credential: None,
            held: None,
            tried: None,
            client_headers: Arc::default(),
        }
    }

    /// Another request beside this one, in the same session and for the same caller.
    pub fn beside(&self, headers: http::HeaderMap, body: Pieces) -> Hop {
        Hop { headers, body, log_level: None, tried: None, ..self.clone() }
    }
}

/// The id of a request to a server: unique within the process, so that a server that takes
/// progress tokens for its own never meets one twice.
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
