//! What passes between the layers: how far a call has come is its type.
//!
//! `Call` → `Permitted` (only `policy` makes one) → `Routed` → `upstream::Outgoing`.
//! Also the world that decides calls at one moment, swapped whole, so that no call mixes two
//! revisions of anything.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderName;
use moka::sync::Cache;
use parking_lot::RwLock;
use tokio::{sync::watch, time::Instant};

use crate::{
    body::Pieces,
    error::Error,
    mcp::{Family, Served, Version},
    model::{
        call::{Ask, Call, Client, Meta, RawMembers, Surface},
        caller::Caller,
        exchange::{Exchange, NorthDialect},
        server::{DialectKind, IdempotencyMode, Risk, UpstreamName},
        template::HeaderSource,
        trace::TraceContext,
    },
    policy::{self, Permit, ToolPolicy, View},
    registry::{Catalog, Tool},
    upstream::Reach,
};

/// A layer's future, where it has to wait for something.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

// === The world ===

/// The catalog and the rules bound to it.
pub struct World {
    pub catalog: Arc<Catalog>,
    pub rules: Arc<policy::Set>,
    /// Rendered listings. A view is part of the key by its address, and kept alive by the entry.
    lists: Cache<ListKey, (Arc<View>, Bytes)>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListKey {
    view: usize,
    surface: Surface,
    dialect: NorthDialect,
}

/// Bytes of rendered listings that one world keeps; the least used are rendered again.
const LISTS_BYTES: u64 = 64 << 20;

impl World {
    pub fn new(catalog: Arc<Catalog>, rules: Arc<policy::Set>) -> Self {
        let weight = |_: &ListKey, (_, list): &(Arc<View>, Bytes)| {
            u32::try_from(list.len()).unwrap_or(u32::MAX)
        };
        let lists = Cache::builder().max_capacity(LISTS_BYTES).weigher(weight).build();
        Self { catalog, rules, lists }
    }

    /// The rendered listing of a view, rendered at most once while it is kept.
    pub fn listing(
        &self,
        view: &Arc<View>,
        surface: &Surface,
        dialect: NorthDialect,
        render: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let key = ListKey { view: Arc::as_ptr(view) as usize, surface: surface.clone(), dialect };
        if let Some(kept) = self.lists.get(&key) {
            return kept.1;
        }
        let rendered = render();
        self.lists.insert(key, (view.clone(), rendered.clone()));
        rendered
    }
}

/// The world in force, and word of its changes.
pub struct Worlds {
    current: ArcSwap<World>,
    changed: watch::Sender<u64>,
    generation: AtomicU64,
}

impl Worlds {
    pub fn new(world: World) -> Self {
        Self {
            current: ArcSwap::from_pointee(world),
            changed: watch::Sender::new(0),
            generation: AtomicU64::new(0),
        }
    }

    pub fn current(&self) -> Arc<World> {
        self.current.load_full()
    }

    pub fn replace(&self, world: World) {
        self.current.store(Arc::new(world));
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        self.changed.send_replace(generation);
    }

    /// Sees each replacement after this moment.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

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
    pub name: UpstreamName,
    pub server_key: Arc<str>,
    pub dialect: DialectKind,
    /// The one revision to speak, if the operator pinned it.
    pub pinned: Option<Version>,
    /// Its addresses, or what stands in for them.
    pub reach: Reach,
    /// Sent with each request, in this order.
    pub headers: Vec<(HeaderName, HeaderSource)>,
    /// Client headers that go on.
    pub forward: Vec<HeaderName>,
    pub inject_user: bool,
    /// Employees may share a session.
    pub stateless: bool,
    /// Without an answer; progress starts it anew.
    pub timeout: Duration,
    /// Of a call, whatever arrives.
    pub max_time: Duration,
    pub max_request_bytes: usize,
    pub max_response_bytes: usize,
    /// Learnt by probing, and forgotten when it proves wrong.
    pub era: RwLock<Option<Era>>,
    /// What the server declared that it serves, when it was last asked.
    pub served: AtomicU16,
}

impl Upstream {
    pub fn era(&self) -> Option<Era> {
        *self.era.read()
    }

    pub fn set_era(&self, era: Option<Era>) {
        *self.era.write() = era;
    }

    /// What the server declared that it serves; nothing, until it was asked.
    pub fn served(&self) -> Served {
        Served::from_bits(self.served.load(Ordering::Relaxed))
    }

    pub fn set_served(&self, served: Served) {
        self.served.store(served.bits(), Ordering::Relaxed);
    }
}

/// Every upstream, in configuration order.
pub type Upstreams = Arc<[Arc<Upstream>]>;

// === Stages ===

/// A call that policy let through.
pub struct Permitted {
    pub call: Call,
    pub permit: Permit,
    pub world: Arc<World>,
    /// The tool of a `tools/call`, and of no other method.
    pub tool: Option<Arc<Tool>>,
    /// The key that makes the call happen once, if it has one: where it is an argument that only
    /// the gateway knows, set by `validate`, which takes it out; else by `idempotency`.
    pub idempotency_key: Option<Box<str>>,
}

/// Whether the gateway publishes an argument for the idempotency key: the tool is not called
/// without one, and has no argument for it.
pub fn publishes_key(tool: &Tool, policy: &ToolPolicy) -> bool {
    policy.idempotency == IdempotencyMode::Required
        && policy.idempotency_argument.is_none()
        && !tool.definition.has_key_argument
}

impl Permitted {
    /// What the call may do at worst; the worst there is where nobody has said.
    pub fn risk(&self) -> Risk {
        self.permit.policy().map_or(Risk::WriteHigh, |policy| policy.risk)
    }
}

/// What is asked of an upstream.
pub enum SouthRequest {
    /// Which era it is of; never a call that acts.
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
    /// The target is named as the server names it.
    Ask {
        ask: Box<Ask>,
        timeout: Duration,
        max_time: Duration,
    },
}

/// A request on its way to one upstream.
pub struct Routed {
    pub exchange: Arc<Exchange>,
    /// `None`: the gateway's own discovery.
    pub caller: Option<Caller>,
    pub upstream: Arc<Upstream>,
    pub request: SouthRequest,
    /// How the client speaks; `None`: the gateway's own discovery.
    pub dialect: Option<NorthDialect>,
    pub client: Client,
    pub meta: Meta,
    pub idempotency_key: Option<Box<str>>,
    /// The client's headers, of which only the listed ones go on.
    pub headers: http::HeaderMap,
}

/// A request that is written, on its way through the layers that know the server's session and
/// credential. `credential` makes an `upstream::Outgoing` of it.
#[derive(Clone)]
pub struct Hop {
    pub exchange: Arc<Exchange>,
    pub caller: Option<Caller>,
    pub upstream: Arc<Upstream>,
    pub method: http::Method,
    /// Below the upstream's own path, for dialects that have paths.
    pub path: &'static str,
    pub headers: http::HeaderMap,
    pub body: Pieces,
    /// The request belongs into a session of a handshake revision.
    pub session: bool,
    /// The client's headers, of which only the listed ones go on.
    pub client_headers: Arc<http::HeaderMap>,
}

impl Hop {
    /// A request of the gateway's own, without a body.
    pub fn own(upstream: Arc<Upstream>, method: http::Method) -> Hop {
        let exchange = Exchange::new(TraceContext::default(), Instant::now(), 0, None);
        Hop {
            exchange: Arc::new(exchange),
            caller: None,
            upstream,
            method,
            path: "",
            headers: http::HeaderMap::new(),
            body: Pieces::default(),
            session: true,
            client_headers: Arc::default(),
        }
    }

    /// Another request beside this one, in the same session and for the same caller.
    pub fn beside(&self, headers: http::HeaderMap, body: Pieces) -> Hop {
        Hop { headers, body, ..self.clone() }
    }
}
