//! What is known of one exchange with a client, gathered as the layers learn it.
//!
//! `stack/trace.rs` opens it and closes it; the audit record, the span and the metrics of the
//! exchange are all made from it. It decides nothing.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    argument_facts::ArgumentFacts,
    call_source::CallSource,
    caller::{Auth, CallerId, EmployeeId, Roles, TenantId},
    ids,
    server::Risk,
    trace::TraceContext,
};
use crate::{
    error::{CLIENT_SILENT, Code, Error},
    mcp::{Method, Version},
};

/// How the client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NorthDialect {
    /// 2026-07-28: stateless.
    Modern,
    /// A handshake revision.
    Legacy(Version),
    /// The platform's REST form.
    McpLite,
}

impl NorthDialect {
    pub fn as_str(self) -> &'static str {
        match self {
            NorthDialect::Modern | NorthDialect::Legacy(_) => "mcp",
            NorthDialect::McpLite => "mcp-lite",
        }
    }

    /// The revision spoken, for standard MCP.
    pub fn version(self) -> Option<Version> {
        match self {
            NorthDialect::Modern => Some(Version::LATEST),
            NorthDialect::Legacy(version) => Some(version),
            NorthDialect::McpLite => None,
        }
    }
}

/// What became of an exchange (`telemetry.md` section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Ok,
    InputRequired,
    Cancelled,
    CallerError,
    Denied,
    /// It waits for somebody's yes.
    ApprovalPending,
    Throttled,
    QuotaExhausted,
    Conflict,
    ToolError,
    UpstreamError,
    GatewayError,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::InputRequired => "input_required",
            Outcome::Cancelled => "cancelled",
            Outcome::CallerError => "caller_error",
            Outcome::Denied => "denied",
            Outcome::ApprovalPending => "approval_pending",
            Outcome::Throttled => "throttled",
            Outcome::QuotaExhausted => "quota_exhausted",
            Outcome::Conflict => "conflict",
            Outcome::ToolError => "tool_error",
            Outcome::UpstreamError => "upstream_error",
            Outcome::GatewayError => "gateway_error",
        }
    }

    /// What a refusal or failure counts as.
    pub fn of(error: &Error) -> Outcome {
        match error.code() {
            Code::Internal => Outcome::GatewayError,
            // No server's fault: nobody is to be called out of bed for it.
            Code::Timeout if error.kind() == Some(CLIENT_SILENT) => Outcome::CallerError,
            // A provider's judgement of the arguments is a tool's failure like any other.
            Code::InvalidArgs | Code::NotFound | Code::Conflict if error.is_from_upstream() => {
                Outcome::ToolError
            }
            _ if error.is_from_upstream() => Outcome::UpstreamError,
            Code::ExternalServiceError | Code::Timeout => Outcome::UpstreamError,
            Code::RateLimited => Outcome::Throttled,
            Code::QuotaExhausted => Outcome::QuotaExhausted,
            Code::Conflict => Outcome::Conflict,
            Code::PermissionDenied | Code::UnsafeActionBlocked => Outcome::Denied,
            Code::ApprovalRequired => Outcome::ApprovalPending,
            // A hidden tool answers like an unknown one, but the record knows better.
            Code::NotFound | Code::InvalidArgs if error.reason().is_some() => Outcome::Denied,
            Code::InvalidArgs
            | Code::Unauthenticated
            | Code::CapabilityMissing
            | Code::NotFound
            | Code::PayloadTooLarge
            | Code::ServerNotConfigured => Outcome::CallerError,
        }
    }

    /// Whether a span with this outcome has the status `ERROR`.
    pub fn is_error(self) -> bool {
        matches!(self, Outcome::ToolError | Outcome::UpstreamError | Outcome::GatewayError)
    }
}

/// What policy said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecisionKind {
    Allow,
    Hide,
    Deny,
    /// Once somebody has said yes.
    RequireApproval,
}

impl DecisionKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            DecisionKind::Allow => "allow",
            DecisionKind::Hide => "hide",
            DecisionKind::Deny => "deny",
            DecisionKind::RequireApproval => "require_approval",
        }
    }
}

/// A keyed digest as it is written into records: `hmac-sha256:<key id>:<hex>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyedDigest {
    pub key: u32,
    pub digest: [u8; 32],
}

impl fmt::Display for KeyedDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hmac-sha256:{:x}:", self.key)?;
        self.digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitKind {
    Rate,
    Concurrency,
    Quota,
}

impl LimitKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            LimitKind::Rate => "rate",
            LimitKind::Concurrency => "concurrency",
            LimitKind::Quota => "quota",
        }
    }
}

/// A limit that refused the call, by the id of its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitHit {
    pub id: Arc<str>,
    pub kind: LimitKind,
}

/// What became of the asking, where a call had to be approved or confirmed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalFact {
    /// Of the request for approval; none where the client alone was asked.
    pub id: Option<u128>,
    /// `waiting`, `granted`, `refused`, `confirming`, `confirmed`, `declined`, `cancelled`,
    /// `unanswered`.
    pub state: &'static str,
}

/// How a quota stands that is about the call, after it was charged or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUse {
    pub id: Arc<str>,
    pub used: u64,
    pub budget: u64,
}

/// The HTTP request around an exchange.
#[derive(Debug, Clone, Copy)]
pub struct HttpFacts {
    /// `GET`, `POST`, …; what is none of the usual ones is `_OTHER`.
    pub method: &'static str,
    /// The path's template, such as `/mcp/{upstream}`; never the path itself.
    pub route: &'static str,
    pub version: http::Version,
}

/// One attempt at an upstream, for its CLIENT span and its metric.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub upstream: Arc<str>,
    pub method: Method,
    /// The upstream's own name of the tool or prompt, or the URI of the resource.
    pub tool: Option<Arc<str>>,
    pub version: Option<Version>,
    pub span_id: [u8; 8],
    pub started: Instant,
    pub ended: Option<Instant>,
    pub server: Option<(Arc<str>, u16)>,
    /// The HTTP version that the attempt used, once it is connected.
    pub http_version: Option<http::Version>,
    /// The server is a child process: there is no network between.
    pub is_pipe: bool,
    pub outcome: Outcome,
    /// `error.type`, where the attempt failed.
    pub error: Option<&'static str>,
    /// The JSON-RPC code of the upstream's answer, if it was an error.
    pub rpc_code: Option<i64>,
    /// The taxonomy's word, where the attempt failed.
    pub code: Option<Code>,
    /// Counts from 1.
    pub number: u8,
}

/// The facts; every field is absent until somebody knows it.
#[derive(Debug, Default)]
pub struct Facts {
    /// From the HTTP headers at first; `_meta` of the request may name another parent.
    pub trace: TraceContext,
    pub http: Option<HttpFacts>,
    pub dialect: Option<NorthDialect>,
    /// What a request under `/v1` says of where it comes from.
    pub source: Option<CallSource>,
    pub method: Option<Method>,
    /// The raw name of a method that is `Method::Other`, at most 64 characters.
    pub method_original: Option<Box<str>>,
    /// The JSON-RPC id as the client wrote it.
    pub rpc_id: Option<Bytes>,
    pub tenant: Option<TenantId>,
    pub caller: Option<CallerId>,
    pub employee: Option<EmployeeId>,
    /// Keyed hash of the employee, for spans and for records that must not name them.
    pub employee_hash: Option<KeyedDigest>,
    pub roles: Roles,
    pub auth: Option<Auth>,
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
    pub session_hash: Option<[u8; 8]>,
    /// The tool as records name it, `upstream/tool`, and a prompt or a resource likewise; set only
    /// for what is in the catalog, and for resources of which the upstream is known.
    pub tool: Option<Arc<str>>,
    /// The same as the caller named it; set only for what he may see.
    pub tool_alias: Option<Arc<str>>,
    /// What the caller asked for where no such tool is to be seen, at most 128 characters.
    pub tool_asked: Option<Box<str>>,
    pub upstream: Option<Arc<str>>,
    pub server_key: Option<Arc<str>>,
    /// UUIDv7 of the call (`toolCallId`).
    pub call_id: Option<u128>,
    /// UUID of the run of steps that the call is one of.
    pub run_id: Option<u128>,
    pub risk: Option<Risk>,
    pub decision: Option<DecisionKind>,
    pub reason: Option<&'static str>,
    /// What policies would have said, and why, that are only looked at.
    pub shadow: Option<(DecisionKind, &'static str)>,
    pub rules: SmallVec<[Arc<str>; 2]>,
    pub policy_revision: Option<Arc<str>>,
    pub args_hash: Option<KeyedDigest>,
    /// The arguments that some rule looked at.
    pub arguments: ArgumentFacts,
    pub result_ref: Option<KeyedDigest>,
    pub pin: Option<[u8; 32]>,
    /// Limits that refused the call.
    pub limits: SmallVec<[LimitHit; 1]>,
    /// What the call cost, where a quota is about it.
    pub cost: Option<u64>,
    pub quota: Vec<QuotaUse>,
    /// The cheaper tool that ran instead, `upstream/tool`.
    pub degraded_to: Option<Arc<str>>,
    pub idempotency: Option<&'static str>,
    pub approval: Option<ApprovalFact>,
    /// Only what would happen was asked.
    pub dry_run: bool,
    pub outcome: Option<Outcome>,
    pub code: Option<Code>,
    /// `error.type` of the server span.
    pub error: Option<&'static str>,
    /// JSON-RPC code of the answer.
    pub rpc_code: Option<i64>,
    pub status: Option<u16>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Time that was not the gateway's: upstream, queue, another call's result, slow client.
    pub waited: Duration,
    pub attempts: SmallVec<[Attempt; 1]>,
    /// When a stream of notices had begun: what comes after that is no part of the operation.
    pub acknowledged: Option<Instant>,
    /// What went wrong inside, for the log; never for the caller.
    pub cause: Option<Box<str>>,
    /// The request reached the layer that asks who is calling: from here on it leaves a record.
    pub entered: bool,
    /// The tool publishes an `outputSchema`, against which some clients check even errors.
    pub has_output_schema: bool,
    /// A refused call of a visible tool is told as a result that the model reads.
    pub refusals_as_results: bool,
    /// UUIDv7 of the audit record, once it is queued.
    pub audit_id: Option<u128>,
    /// The intent of a write has been written; its completion record must follow.
    pub intent: bool,
    /// The tool was one the caller may see: a refusal from here on is a tool result.
    pub admitted: bool,
    /// One of several messages in one HTTP request, of which another exchange tells.
    pub part: bool,
    /// What somebody said to a request for approval, where that is what it is about.
    pub answer: Option<Box<ApprovalAnswer>>,
    /// What somebody did to a server of his own, or to his credential for one.
    pub server_change: Option<Box<ServerChange>>,
}

/// What somebody did, or wanted to do, to a server of his own; which one is the facts' `server_key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerChange {
    /// `register`, `replace`, `delete`, …
    pub what: &'static str,
    /// With whom it is shared from here on.
    pub team: Option<Arc<str>>,
    /// With whom somebody was to grant a token, where he came back from there.
    pub issuer: Option<Arc<str>>,
}

/// What somebody said, or wanted to say, to a request for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// The request's id, as it was asked for.
    pub id: u128,
    pub yes: bool,
    /// How the request stands after it; nothing where the answer was not taken.
    pub state: Option<&'static str>,
}

impl Facts {
    /// The path's template, where this is a request under `/v1`: no operation of MCP's.
    pub fn api_route(&self) -> Option<HttpFacts> {
        self.http.filter(|http| http.route.starts_with("/v1"))
    }

    /// Where the call comes from: every dialect on the data listener's `/mcp` counts as MCP.
    pub fn call_source(&self) -> Option<CallSource> {
        self.source.or(self.dialect.map(|_| CallSource::Mcp))
    }

    /// Adds what a refusal or a failure means.
    pub fn failed(&mut self, error: &Error) {
        self.code = Some(error.code());
        self.outcome = Some(Outcome::of(error));
        // Who is denied what policy lets pass is not denied for policy's reason.
        let denied_later =
            self.outcome == Some(Outcome::Denied) && self.decision == Some(DecisionKind::Allow);
        if self.reason.is_none() || denied_later && error.reason().is_some() {
            self.reason = error.reason();
        }
        self.error =
            error.kind().or_else(|| (error.code() == Code::Internal).then_some("internal"));
        self.cause = error.cause().map(|cause| cause.to_string().into());
    }
}

/// Takes what is known of an exchange when it is over.
pub trait Closing: Send + Sync {
    fn close(&self, exchange: &Exchange, facts: Facts);
}

/// One exchange with a client. Shared by the layers of its call, and by nobody else; when the
/// last of them lets go of it, on whatever path, it is over and its record is made.
pub struct Exchange {
    pub started: Instant,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    facts: Mutex<Facts>,
    closing: Option<Arc<dyn Closing>>,
}

impl Exchange {
    pub fn new(
        trace: TraceContext,
        started: Instant,
        started_ms: u64,
        closing: Option<Arc<dyn Closing>>,
    ) -> Self {
        let facts = Mutex::new(Facts { trace, ..Facts::default() });
        Self { started, started_ms, facts, closing }
    }

    /// The exchange of one of the messages that came together in this one's HTTP request: from
    /// the same caller and in the same trace, with a record and a span of its own.
    pub fn part(&self, started: Instant, started_ms: u64) -> Self {
        let facts = self.facts.lock();
        let part = Facts {
            trace: TraceContext { span_id: ids::span_id(), ..facts.trace.clone() },
            http: facts.http,
            source: facts.source,
            run_id: facts.run_id,
            tenant: facts.tenant.clone(),
            caller: facts.caller.clone(),
            employee: facts.employee.clone(),
            roles: facts.roles.clone(),
            auth: facts.auth,
            address: facts.address,
            port: facts.port,
            refusals_as_results: facts.refusals_as_results,
            entered: true,
            part: true,
            ..Facts::default()
        };
        Self { started, started_ms, facts: Mutex::new(part), closing: self.closing.clone() }
    }

    /// The facts, to read or to add to. Never held across an await.
    pub fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(closing) = self.closing.take() {
            let facts = std::mem::take(self.facts.get_mut());
            closing.close(self, facts);
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("started_ms", &self.started_ms).finish_non_exhaustive()
    }
}
