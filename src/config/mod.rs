//! The configuration as it is meant: complete, consistent, and with nothing left to check.
//!
//! `raw` holds the file as it is written; `build` turns that into these types and gathers every
//! fault. What other parts need of it, `app.rs` hands them in their own types.

mod build;
mod callers;
mod load;
mod net;
mod raw;
mod secret;
mod sensitive;
mod store;
mod upstreams;

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use http::HeaderName;
use url::Url;

use crate::{
    mcp::Version,
    model::{
        caller::{CallerId, EmployeeId, Roles, TenantId},
        server::{DialectKind, Risk, UpstreamName},
    },
};

pub use crate::model::template::{HeaderSource, HeaderTemplate, Part, TemplateFault};
pub use load::{Loaded, Places, process_env};
pub use net::{Network, Origin};
pub use sensitive::is_sensitive;
pub use store::Store;

/// Everything that `hangu.yaml` says, or leaves to its defaults.
#[derive(Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// `None`: one per core.
    pub workers: Option<NonZeroUsize>,
    pub admin: Admin,
    /// The folder; `None` if there is none, and then nothing is allowed.
    pub policies: Option<PathBuf>,
    pub audit: Audit,
    /// In the order of the file.
    pub callers: Vec<Caller>,
    /// In the order of the file.
    pub upstreams: Vec<Upstream>,
    pub tls: Option<Tls>,
    /// Browsers' origins that may call.
    pub origins: Vec<Origin>,
    pub trusted_proxies: Vec<Network>,
    pub trace: Trace,
    pub telemetry: Telemetry,
    pub errors: Errors,
    pub sessions: Sessions,
    pub drain: Drain,
    pub edge: Edge,
    pub idempotency: Idempotency,
    pub store: Store,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admin {
    pub listen: SocketAddr,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    pub file: PathBuf,
    /// Calls of these risks do not happen while their record cannot be kept.
    pub strict: Vec<Risk>,
}

/// A program with API keys.
#[derive(Debug, Clone)]
pub struct Caller {
    pub id: CallerId,
    pub tenant: TenantId,
    /// At least one.
    pub keys: Vec<ApiKey>,
    pub identity: Identity,
    /// What a list without an employee shows.
    pub catalog_roles: Roles,
}

/// A key as it is kept: its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiKey {
    /// SHA-256.
    pub digest: [u8; 32],
    /// Milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// How a caller's employee is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// `SSO-Emp-Id` is believed; otherwise it is refused.
    pub header: bool,
    /// Who calls where no header is sent.
    pub fixed: Option<FixedEmployee>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedEmployee {
    pub id: EmployeeId,
    pub roles: Roles,
}

/// A server behind the gateway.
#[derive(Debug)]
pub struct Upstream {
    pub name: UpstreamName,
    /// At least one; `http` or `https`, without user info, query secrets or fragment.
    pub urls: Vec<Url>,
    pub dialect: DialectKind,
    /// `None`: probed.
    pub protocol: Option<Version>,
    pub headers: Vec<Header>,
    /// Headers of the client's that pass. None is the gateway's own.
    pub forward_headers: Vec<HeaderName>,
    /// MCP-Lite: add the `user` object to calls.
    pub inject_user: bool,
    /// Employees may share its sessions.
    pub stateless: bool,
    /// Without an answer.
    pub timeout: Duration,
    /// Whatever arrives.
    pub max_time: Duration,
    pub connect_timeout: Duration,
    /// Between two looks at its tools.
    pub poll: Duration,
    pub max_concurrency: NonZeroUsize,
    pub max_request_bytes: u64,
    pub max_response_bytes: u64,
}

/// A header that the gateway sets on every request to an upstream.
#[derive(Debug)]
pub struct Header {
    pub name: HeaderName,
    pub value: HeaderSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    pub trust: TraceTrust,
}

/// Whose trace context is continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceTrust {
    Authenticated,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Telemetry {
    /// Tenants that are told apart in metrics.
    pub max_tenants: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errors {
    pub tools_call: ToolsCallErrors,
}

/// How the refusal of a `tools/call` is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolsCallErrors {
    /// A result with `isError`, which reaches the model.
    Result,
    /// A JSON-RPC error.
    JsonRpc,
    /// A JSON-RPC error with the HTTP status of its code.
    Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sessions {
    /// Handshake revisions: a request outside a session is refused.
    pub required: bool,
    pub ttl: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// From "not ready" to not accepting.
    pub delay: Duration,
    /// How long calls in flight are waited for.
    pub timeout: Duration,
}

/// Bounds of what clients may do before anything is known of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub header_timeout: Duration,
    pub idle_timeout: Duration,
    pub body_timeout: Duration,
    pub max_connections: usize,
    pub max_body: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idempotency {
    pub capacity_bytes: u64,
    pub max_keys: usize,
    /// How long a record stays.
    pub ttl: Duration,
    /// How long a repeated call waits for the first one.
    pub wait: Duration,
    /// The largest result that is kept.
    pub max_body: u64,
}

#[cfg(test)]
mod tests;
