//! Every instrument of the gateway, and where each of them is recorded.
//!
//! What one exchange adds is recorded once, from its facts, when it has ended. How the numbers
//! are printed is in `exposition.rs`.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    labels::{
        Answered, Decided, Names, Operation, OwnedDecided, OwnedOperation, Plain, Tenants,
        http_version,
    },
    names::attribute,
    series::{Counter, Exemplar, Family, Gauge, HTTP, Histogram, OPERATION, OWN},
};
use crate::{
    clock::Clock,
    mcp::{Method, Version},
    model::{
        exchange::{Facts, HttpFacts},
        trace::TraceContext,
    },
};

/// The instruments of this process.
pub struct Metrics {
    pub(super) server: Family<OwnedOperation, Histogram>,
    pub(super) client: Family<OwnedOperation, Histogram>,
    pub(super) server_session: Family<Plain<7, SessionLabels>, Histogram>,
    pub(super) client_session: Family<Plain<7, SessionLabels>, Histogram>,
    pub(super) overhead: Methods<Histogram>,
    pub(super) active: Methods<Gauge>,
    pub(super) streams: Family<Plain<1, UpstreamLabels>, Gauge>,
    pub(super) http: Family<Answered, Histogram>,
    pub(super) decisions: Family<OwnedDecided, Counter>,
    pub(super) limit_rejections: Family<Plain<3, LimitLabels>, Counter>,
    pub(super) limit_fallbacks: Family<Plain<2, FallbackLabels>, Counter>,
    /// In thousandths.
    pub(super) quota_utilization: Family<Plain<2, QuotaLabels>, Gauge>,
    pub(super) idempotency: Family<Plain<1, IdempotencyLabels>, Counter>,
    pub(super) approvals: Family<Plain<1, ApprovalLabels>, Counter>,
    pub(super) approval_wait: Family<Plain<1, ApprovalLabels>, Histogram>,
    pub(super) upstream_up: Family<Plain<1, UpstreamLabels>, Gauge>,
    pub(super) retries: Family<Plain<2, RetryLabels>, Counter>,
    pub(super) breaker: Family<Plain<1, UpstreamLabels>, Gauge>,
    pub(super) breaker_rejections: Family<Plain<1, UpstreamLabels>, Counter>,
    pub(super) catalog_tools: Family<Plain<1, UpstreamLabels>, Gauge>,
    pub(super) pin_mismatches: Family<Plain<1, UpstreamLabels>, Counter>,
    pub(super) audit_records: Family<Plain<2, AuditLabels>, Counter>,
    pub(super) audit_write: Histogram,
    pub(super) audit_depth: Gauge,
    pub(super) trace_context_invalid: Counter,
    pub(super) policy_reloads: Family<Plain<1, ReloadLabels>, Counter>,
    pub(super) policy_revision: Mutex<Option<Arc<str>>>,
    pub(super) approval_notices: Family<Plain<1, NoticeLabels>, Counter>,
    tenants: Tenants,
    exemplars: AtomicBool,
    clock: Clock,
}

/// What became of an attempt to load the policy anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    Applied,
    Rejected,
    Unchanged,
}

/// What became of a notice of approvals, or of one attempt to send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeResult {
    Delivered,
    /// An attempt failed; there will be another one.
    Failed,
    /// It is not tried any more.
    GivenUp,
    /// Too many others wait.
    Dropped,
}

/// What became of a call that could be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    Sent,
    /// The upstream's budget is spent.
    OverBudget,
    /// The call has no time left for it.
    TooLate,
    /// The upstream is not called for now.
    BreakerOpen,
}

/// One of something for every method.
pub(super) struct Methods<T>([T; Method::ALL.len()]);

/// A request that is being served; it is counted as active until this is dropped.
pub struct Active {
    metrics: Arc<Metrics>,
    method: Method,
}

/// An event stream of a server that somebody reads; it is counted as active until this is dropped.
pub struct OpenStream {
    metrics: Arc<Metrics>,
    upstream: Arc<str>,
}

/// A session of a handshake revision, as it ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedSession<'a> {
    pub version: Version,
    pub http: Option<http::Version>,
    /// The server is a child process.
    pub is_pipe: bool,
    /// The gateway was its client: the address of the server.
    pub server: Option<(&'a str, u16)>,
    /// What ended it, where that was an error.
    pub error: Option<&'static str>,
}

macro_rules! labels {
    ($($name:ident = [$($label:ident),*];)*) => {$(
        pub(super) struct $name;

        impl Names<{ [$(attribute::$label),*].len() }> for $name {
            const NAMES: [&'static str; [$(attribute::$label),*].len()] =
                [$(attribute::$label),*];
        }
    )*};
}

labels! {
    LimitLabels = [LIMIT_NAME, LIMIT_KIND, TENANT];
    FallbackLabels = [LIMIT_NAME, FALLBACK];
    QuotaLabels = [LIMIT_NAME, TENANT];
    IdempotencyLabels = [IDEMPOTENCY];
    ApprovalLabels = [APPROVAL_STATE];
    ReloadLabels = [RELOAD_RESULT];
    SessionLabels = [
        MCP_PROTOCOL_VERSION,
        NETWORK_TRANSPORT,
        NETWORK_PROTOCOL_NAME,
        NETWORK_PROTOCOL_VERSION,
        ERROR_TYPE,
        SERVER_ADDRESS,
        SERVER_PORT
    ];
    UpstreamLabels = [UPSTREAM];
    RetryLabels = [UPSTREAM, RETRY_RESULT];
    AuditLabels = [AUDIT_SINK, AUDIT_RESULT];
    NoticeLabels = [NOTICE_RESULT];
}

// === impl Metrics ===

impl Metrics {
    /// Instruments that give series of their own to the first `max_tenants` tenants.
    pub fn new(max_tenants: usize, clock: Clock) -> Self {
        Self {
            server: Family::new(|| Histogram::new(OPERATION)),
            client: Family::new(|| Histogram::new(OPERATION)),
            server_session: Family::new(|| Histogram::new(OPERATION)),
            client_session: Family::new(|| Histogram::new(OPERATION)),
            overhead: Methods::new(|| Histogram::new(OWN)),
            active: Methods::new(Gauge::default),
            streams: Family::new(Gauge::default),
            http: Family::new(|| Histogram::new(HTTP)),
            decisions: Family::new(Counter::default),
            limit_rejections: Family::new(Counter::default),
            limit_fallbacks: Family::new(Counter::default),
            quota_utilization: Family::new(Gauge::default),
            idempotency: Family::new(Counter::default),
            approvals: Family::new(Counter::default),
            approval_wait: Family::new(|| Histogram::new(OPERATION)),
            upstream_up: Family::new(Gauge::default),
            retries: Family::new(Counter::default),
            breaker: Family::new(Gauge::default),
            breaker_rejections: Family::new(Counter::default),
            catalog_tools: Family::new(Gauge::default),
            pin_mismatches: Family::new(Counter::default),
            audit_records: Family::new(Counter::default),
            audit_write: Histogram::new(OWN),
            audit_depth: Gauge::default(),
            trace_context_invalid: Counter::default(),
            policy_reloads: Family::new(Counter::default),
            policy_revision: Mutex::new(None),
            approval_notices: Family::new(Counter::default),
            tenants: Tenants::new(max_tenants),
            exemplars: AtomicBool::new(false),
            clock,
        }
    }

    /// Records everything of an exchange that has ended, its attempts included.
    pub fn finish(&self, facts: &Facts, started: Instant, ended: Instant) {
        let took = facts.acknowledged.unwrap_or(ended) - started;
        let tenant = facts.tenant.as_ref().map(|tenant| self.tenants.label(tenant.as_str()));
        let exemplar = |span_id| self.exemplar(&facts.trace, span_id);
        // What the guard turned away, and what the gateway asks of its own, is no operation.
        // Nor is what is asked for under `/v1`.
        if facts.method.is_some() || facts.entered && facts.api_route().is_none() {
            self.server.with(Operation::of_exchange(facts, tenant), |series| {
                series.observe(took, exemplar(facts.trace.span_id));
            });
            let method = facts.method.unwrap_or(Method::Other);
            self.overhead.of(method).observe(took.saturating_sub(facts.waited), None);
        }
        for attempt in &facts.attempts {
            let took = attempt.ended.unwrap_or(ended) - attempt.started;
            self.client.with(Operation::of_attempt(attempt, facts, tenant), |series| {
                series.observe(took, exemplar(attempt.span_id));
            });
        }
        if let Some(decision) = facts.decision {
            let Facts { reason, risk, .. } = *facts;
            let decided = Decided { decision, reason, risk, tenant, shadow: false };
            self.decisions.with(decided, |series| series.add(1));
            if let Some((decision, reason)) = facts.shadow {
                let decided =
                    Decided { decision, reason: Some(reason), risk, tenant, shadow: true };
                self.decisions.with(decided, |series| series.add(1));
            }
        }
        for limit in &facts.limits {
            self.limit_rejections
                .with([&limit.id, limit.kind.as_str(), tenant.unwrap_or("")], |series| {
                    series.add(1)
                });
        }
        if let Some(what) = facts.idempotency {
            self.idempotency.with([what], |series| series.add(1));
        }
        if let (Some(http), Some(status), false) = (facts.http, facts.status, facts.part) {
            self.http(http, status, ended - started);
        }
    }

    /// Records a request that was answered before there was an exchange.
    pub fn http(&self, http: HttpFacts, status: u16, took: Duration) {
        let HttpFacts { method, route, version } = http;
        self.http.with(Answered { method, route, status, version }, |series| {
            series.observe(took, None);
        });
    }

    /// Counts a request as active, under the method it turns out to have.
    pub fn enter(self: &Arc<Self>, method: Method) -> Active {
        self.active.of(method).add(1);
        Active { metrics: self.clone(), method }
    }

    /// Counts a server's event stream as active.
    pub fn stream(self: &Arc<Self>, upstream: Arc<str>) -> OpenStream {
        self.streams.with([&upstream], |series| series.add(1));
        OpenStream { metrics: self.clone(), upstream }
    }

    /// A client's session has ended.
    pub fn server_session(&self, session: EndedSession<'_>, lasted: Duration) {
        session.each(|labels| {
            self.server_session.with(labels, |series| series.observe(lasted, None));
        });
    }

    /// A session at a server has ended.
    pub fn client_session(&self, session: EndedSession<'_>, lasted: Duration) {
        session.each(|labels| {
            self.client_session.with(labels, |series| series.observe(lasted, None));
        });
    }

    /// Counts a call that a limit let through, or not, without the store that it counts in.
    pub fn limit_fallback(&self, limit: &str, fallback: &str) {
        self.limit_fallbacks.with([limit, fallback], |series| series.add(1));
    }

    /// How much of quotas tenants have spent, as parts of one: these, and no others any more.
    pub fn quota_utilization<'a>(&self, all: impl Iterator<Item = (&'a str, &'a str, f64)>) {
        let mut kept = HashSet::new();
        for (quota, tenant, share) in all {
            let tenant = self.tenants.label(tenant);
            #[expect(clippy::cast_possible_truncation, reason = "a cast to an integer saturates")]
            let thousandths = (share * 1_000.0).round() as i64;
            self.quota_utilization.with([quota, tenant], |series| series.set(thousandths));
            kept.insert((quota.to_owned(), tenant.to_owned()));
        }
        self.quota_utilization.retain(|labels, _| {
            let [quota, tenant] = labels.values();
            kept.contains(&(quota.to_owned(), tenant.to_owned()))
        });
    }

    pub fn upstream_up(&self, upstream: &str, up: bool) {
        self.upstream_up.with([upstream], |series| series.set(up.into()));
    }

    /// A call that could be sent again, and whether it was.
    pub fn retry(&self, upstream: &str, what: Retried) {
        let result = match what {
            Retried::Sent => "sent",
            Retried::OverBudget => "over_budget",
            Retried::TooLate => "too_late",
            Retried::BreakerOpen => "breaker_open",
        };
        self.retries.with([upstream, result], |series| series.add(1));
    }

    /// Where an upstream's breaker stands: 0 closed, 1 half open, 2 open.
    pub fn breaker(&self, upstream: &str, state: i64) {
        self.breaker.with([upstream], |series| series.set(state));
    }

    /// A call that an open breaker did not let through.
    pub fn breaker_rejection(&self, upstream: &str) {
        self.breaker_rejections.with([upstream], |series| series.add(1));
    }

    /// A tool's definition is another than the approved one, or than before.
    pub fn pin_mismatch(&self, upstream: &str) {
        self.pin_mismatches.with([upstream], |series| series.add(1));
    }

    pub fn catalog_tools(&self, upstream: &str, tools: usize) {
        let tools = i64::try_from(tools).unwrap_or(i64::MAX);
        self.catalog_tools.with([upstream], |series| series.set(tools));
    }

    /// Ends the gauges of upstreams that are not configured any more.
    pub fn keep_upstreams(&self, is_configured: impl Fn(&str) -> bool) {
        self.upstream_up.retain(|labels, _| is_configured(labels.first()));
        self.catalog_tools.retain(|labels, _| is_configured(labels.first()));
        self.breaker.retain(|labels, _| is_configured(labels.first()));
        // A stream of one that has gone may still be read.
        self.streams.retain(|labels, open| is_configured(labels.first()) || open.value() != 0);
    }

    /// A request for approval has ended: `granted`, `refused` or `expired`.
    pub fn approval_ended(&self, state: &'static str, waited: Duration) {
        self.approvals.with([state], |series| series.add(1));
        self.approval_wait.with([state], |series| series.observe(waited, None));
    }

    /// Counts an attempt to load the policy anew.
    pub fn policy_reload(&self, reload: Reload) {
        let result = match reload {
            Reload::Applied => "applied",
            Reload::Rejected => "rejected",
            Reload::Unchanged => "unchanged",
        };
        self.policy_reloads.with([result], |series| series.add(1));
    }

    /// Counts what became of a notice of approvals.
    pub fn approval_notice(&self, result: NoticeResult) {
        let result = match result {
            NoticeResult::Delivered => "delivered",
            NoticeResult::Failed => "failed",
            NoticeResult::GivenUp => "given_up",
            NoticeResult::Dropped => "dropped",
        };
        self.approval_notices.with([result], |series| series.add(1));
    }

    /// The revision of the policy in force.
    pub fn policy_revision(&self, revision: Arc<str>) {
        *self.policy_revision.lock() = Some(revision);
    }

    pub fn trace_context_invalid(&self) {
        self.trace_context_invalid.add(1);
    }

    pub fn audit_written(&self, records: u64, took: Duration) {
        self.audit("written", records);
        self.audit_write.observe(took, None);
    }

    pub fn audit_dropped(&self, records: u64) {
        self.audit("dropped", records);
    }

    pub fn audit_failed(&self, records: u64) {
        self.audit("failed", records);
    }

    pub fn audit_depth(&self, records: u64) {
        self.audit_depth.set(i64::try_from(records).unwrap_or(i64::MAX));
    }

    fn audit(&self, result: &'static str, records: u64) {
        self.audit_records.with(["file", result], |series| series.add(records));
    }

    /// Whether traces exist that an exemplar could lead to.
    pub(super) fn set_exemplars(&self, on: bool) {
        self.exemplars.store(on, Ordering::Relaxed);
    }

    fn exemplar(&self, trace: &TraceContext, span_id: [u8; 8]) -> Option<Exemplar> {
        (trace.sampled && self.exemplars.load(Ordering::Relaxed)).then(|| Exemplar {
            trace_id: trace.trace_id,
            span_id,
            nanos: 0,
            ms: self.clock.now_ms(),
        })
    }
}

// === impl Methods ===

impl<T> Methods<T> {
    fn new(make: impl Fn() -> T) -> Self {
        Self(Method::ALL.map(|_| make()))
    }

    pub fn of(&self, method: Method) -> &T {
        // `ALL` has every variant, and a test says that it has them in order.
        &self.0[method as usize]
    }
}

// === impl OpenStream ===

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.metrics.streams.with([&self.upstream], |series| series.add(-1));
    }
}

// === impl EndedSession ===

impl EndedSession<'_> {
    fn each(self, give: impl FnOnce([&str; 7])) {
        let (transport, protocol) = match (self.is_pipe, self.http) {
            (true, _) => ("pipe", ""),
            (false, Some(_)) => ("tcp", "http"),
            (false, None) => ("", ""),
        };
        let version = self.http.filter(|_| !self.is_pipe).map_or("", http_version);
        let (address, port) = self.server.unwrap_or(("", 0));
        let port = if address.is_empty() { String::new() } else { port.to_string() };
        let error = self.error.unwrap_or("");
        give([self.version.as_str(), transport, protocol, version, error, address, &port]);
    }
}

// === impl Active ===

impl Active {
    /// The method, as soon as it is known.
    pub fn set_method(&mut self, method: Method) {
        self.metrics.active.of(method).add(1);
        self.metrics.active.of(self.method).add(-1);
        self.method = method;
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.metrics.active.of(self.method).add(-1);
    }
}
