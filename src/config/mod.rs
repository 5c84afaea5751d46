//! The configuration as it is meant: complete, consistent, and with nothing left to check.
//!
//! `raw` holds the file as it is written; `build` turns that into these types and gathers every
//! fault. What other parts need of it, `app.rs` hands them in their own types.

mod admin;
mod approvals;
mod build;
mod callers;
mod credentials;
mod egress;
mod failing;
mod hidden;
mod issuers;
mod keyring;
mod load;
mod net;
mod peer_tls;
mod process;
mod raw;
mod secret;
mod servers;
mod shown;
mod store;
mod upstreams;

use std::{fmt, net::SocketAddr, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use http::HeaderName;
use secrecy::SecretString;
use url::Url;

use crate::{
    approval::webhook::SigningKey,
    credential::VaultLimits,
    mcp::Version,
    model::{
        call_source::CallSources,
        caller::{CallerId, EmployeeId, Roles, TenantId},
        server::{DialectKind, Risk, UpstreamName},
    },
    upstream::{BreakerConfig, EgressConfig, PeerTlsFiles, RetryConfig},
};

pub use crate::{model::network::Network, registry::Names};

pub use crate::model::sensitive::is_sensitive;
pub use crate::model::template::{HeaderSource, HeaderTemplate, Part, TemplateFault};
pub use credentials::{
    AsClient, ClientCredentials, Consent, SignedJwt, TokenExchange, TokensAt, UpstreamAuth,
};
pub use keyring::Keyring;
pub use load::{Loaded, Places, process_env};
pub use net::Origin;
pub use raw::{AdminRole, Algorithm};
pub use servers::Servers;
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
    /// Whose tokens are taken. Without one, `Authorization` is not looked at.
    pub issuers: Vec<Issuer>,
    /// What clients reach the gateway by; `None`: by the Host that they name.
    pub public_url: Option<Origin>,
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
    pub streams: Streams,
    pub edge: Edge,
    pub idempotency: Idempotency,
    pub questions: Questions,
    /// How tools and prompts are named where every upstream's stand side by side.
    pub names: Names,
    pub lists: Lists,
    pub store: Store,
    pub approvals: Approvals,
    /// What may be dialled beside what this file names.
    pub egress: EgressConfig,
    pub steps: Steps,
    pub pins: Pins,
    /// `None`: keys live in memory.
    pub keyring: Option<Keyring>,
    /// What of sealed credentials is kept in memory.
    pub credentials: VaultLimits,
    /// Of employees' own.
    pub servers: Servers,
}

/// Somebody who is told by HTTP.
#[derive(Debug)]
pub struct Webhook {
    /// `http` or `https`, without user info, query secrets or fragment.
    pub url: Url,
    pub key: SigningKey,
    /// For one attempt.
    pub timeout: Duration,
    /// How long a notice is tried.
    pub give_up: Duration,
    /// Notices that may wait.
    pub queue: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    pub listen: SocketAddr,
    /// Who may use its API; without one there is none.
    pub tokens: Vec<AdminToken>,
}

/// A token as it is kept: its digest.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken {
    pub name: Arc<str>,
    /// SHA-256.
    pub digest: [u8; 32],
    pub role: AdminRole,
}

/// The digest of a token that somebody chose may be guessed from.
impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminToken")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
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
    /// What it may say of where its calls under `/v1` come from.
    pub call_sources: CallSources,
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

/// Somebody whose tokens are believed.
#[derive(Debug, Clone)]
pub struct Issuer {
    pub name: CallerId,
    /// The `iss` of its tokens, to the letter.
    pub issuer: String,
    /// `https`, or `http` on this machine.
    pub jwks: Url,
    /// One of these must be in `aud`. At least one.
    pub audience: Vec<String>,
    /// At least one.
    pub algorithms: Vec<Algorithm>,
    pub tenant: IssuerTenant,
    /// The claim that names the employee, or a JSON pointer to it.
    pub employee: String,
    pub roles: Option<String>,
    /// How far clocks may differ, both ways.
    pub leeway: Duration,
    /// Between two fetches of its keys.
    pub refresh: Duration,
    /// Between two fetches that a token with an unknown key asks for.
    pub min_refresh: Duration,
    /// How long keys are believed that cannot be fetched anew.
    pub stale: Duration,
    pub scopes: IssuerScopes,
    /// As a caller's.
    pub call_sources: CallSources,
}

/// Of which tenant an issuer's tokens are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuerTenant {
    Always(TenantId),
    /// As this claim says.
    Claim(String),
}

/// The scopes that calls ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IssuerScopes {
    /// Every request.
    pub base: Vec<Box<str>>,
    /// Calls of a risk, from `read_low` to `write_high`.
    pub by_risk: [Vec<Box<str>>; 4],
}

/// A server behind the gateway.
#[derive(Debug)]
pub struct Upstream {
    pub name: UpstreamName,
    /// `http` or `https`, without user info, query secrets or fragment. At least one, unless it
    /// is a process.
    pub urls: Vec<Url>,
    pub process: Option<Process>,
    pub dialect: DialectKind,
    /// `None`: probed.
    pub protocol: Option<Version>,
    pub auth: UpstreamAuth,
    /// `None`: nothing is shown, and the system's roots vouch.
    pub tls: Option<PeerTlsFiles>,
    pub headers: Vec<Header>,
    /// Headers of the client's that pass. None is the gateway's own.
    pub forward_headers: Vec<HeaderName>,
    /// MCP-Lite: add the `user` object to calls.
    pub inject_user: bool,
    /// Employees may share its sessions.
    pub stateless: bool,
    /// A call in which it asks something is held open until somebody answers.
    pub park: bool,
    /// A session that nobody used for so long is ended.
    pub session_idle: Duration,
    pub max_sessions: usize,
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
    pub retries: RetryConfig,
    /// `None`: it is called however often it fails.
    pub breaker: Option<BreakerConfig>,
}

/// A server that is a command.
#[derive(Debug)]
pub struct Process {
    /// A path, or a name to be looked up in `PATH`.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Besides `PATH`, `HOME` and `LANG` of the gateway itself.
    pub env: Vec<(String, EnvSource)>,
    /// From closing its input to SIGTERM, and from that to SIGKILL.
    pub stop_wait: Duration,
    /// At a time.
    pub max_processes: usize,
}

/// Where a variable's value comes from.
#[derive(Debug, Clone)]
pub enum EnvSource {
    Plain(String),
    Secret(SecretString),
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

/// How many streams of notices there may be, and what is kept for clients whose connection broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// Streams of one employee, or of a caller where no employee is named.
    pub per_principal: usize,
    pub total: usize,
    /// Resources that one stream or session watches.
    pub subscriptions: usize,
    /// Sessions that keep a log level, a stream or subscriptions.
    pub sessions: usize,
    /// How long an answer can be taken up again. Zero: not at all.
    pub resume_window: Duration,
    /// Kept of one answer.
    pub resume_bytes: u64,
    /// Kept of all.
    pub resume_total: u64,
}

/// Bounds of what clients may do before anything is known of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub header_timeout: Duration,
    pub idle_timeout: Duration,
    pub body_timeout: Duration,
    pub max_connections: usize,
    pub max_body: u64,
    /// How long the head of an answer is held for its first byte; then a stream begins, for
    /// clients that take one.
    pub hold: Duration,
    /// How many messages a batch of 2025-03-26 may hold, and how many of them run at once.
    pub max_batch: usize,
    pub batch_concurrency: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lists {
    /// Entries of a page.
    pub page_size: usize,
    /// How long a list waits for upstreams that were never listed.
    pub wait: Duration,
    /// All that an upstream lists.
    pub max_bytes: u64,
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

/// Calls that wait for somebody's yes.
#[derive(Debug)]
pub struct Approvals {
    /// Is told that a call waits, and what was decided.
    pub webhook: Option<Webhook>,
    /// How long a request can be looked at after its time is over.
    pub keep: Duration,
    /// The longest arguments that are kept for those who decide.
    pub max_arguments: u64,
    /// Requests that wait at once, and those of one requester.
    pub max_waiting: usize,
    pub max_waiting_each: usize,
}

/// Bounds of declarative steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// Of one list.
    pub max_steps: usize,
    /// Of one run.
    pub limits: crate::steps::Limits,
}

/// Definitions of tools that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pins {
    /// Of one tool; those that were ever approved are kept beside them.
    pub versions: usize,
    /// Tools of one upstream, listed or not.
    pub max_tools: usize,
    /// How long a tool is remembered that is listed no more, and of which nobody ever approved a
    /// definition.
    pub unlisted: Duration,
}

/// What servers ask clients in the middle of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Questions {
    /// How long an answer may take.
    pub answer: Duration,
    /// How often one call may ask.
    pub rounds: usize,
    /// Calls that wait for an answer at once.
    pub max_open: usize,
    /// The same of one employee at one upstream, in however many sessions.
    pub max_open_each: usize,
}

#[cfg(test)]
mod tests;
