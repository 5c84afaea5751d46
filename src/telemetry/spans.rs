//! Spans, made from the facts of an exchange when it has ended and handed to the SDK's processor.
//!
//! Names, kinds, parents, links and attributes are the contract's. Whether a trace is recorded
//! was decided when the exchange began; how spans are sent is the exporter's matter.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::{
    Array, InstrumentationScope, KeyValue, SpanId, StringValue, TraceFlags, TraceId, Value,
    trace::{Link, SpanContext, SpanKind, Status, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tokio::time::Instant;

use super::{
    env::Limits,
    labels::{ErrorType, http_version, named},
    names::{EXECUTE_TOOL, SERVICE, attribute},
};
use crate::{
    mcp::Method,
    model::{
        call_source::CallSource,
        exchange::{Attempt, Facts, HttpFacts, Outcome},
        ids,
        trace::{TraceParent, to_hex},
    },
};

/// Most characters of a JSON-RPC id in a span.
const RPC_ID: usize = 64;

/// The spans of one exchange.
pub(super) struct Spans<'a> {
    pub facts: &'a Facts,
    pub started: Instant,
    pub started_ms: u64,
    pub ended: Instant,
    pub limits: Limits,
    pub scope: &'a InstrumentationScope,
}

impl Spans<'_> {
    /// Gives each span that is to be recorded, children first.
    pub fn each(&self, mut give: impl FnMut(SpanData)) {
        let trace = &self.facts.trace;
        if let Some(method) = self.facts.method.filter(|_| trace.sampled) {
            for attempt in &self.facts.attempts {
                give(self.client(attempt));
            }
            give(self.server(method));
        }
        if let Some(http) = self.facts.http.filter(|_| trace.http_sampled && !self.facts.part) {
            give(self.http(http));
        }
    }

    fn http(&self, http: HttpFacts) -> SpanData {
        let trace = &self.facts.trace;
        let mut attributes = Attributes::default();
        attributes.add(attribute::HTTP_REQUEST_METHOD, http.method);
        attributes.add(attribute::HTTP_ROUTE, http.route);
        attributes.add(attribute::NETWORK_PROTOCOL_NAME, "http");
        attributes.add(attribute::NETWORK_PROTOCOL_VERSION, http_version(http.version));
        self.client_address(&mut attributes);
        let mut status = Status::Unset;
        if let Some(code) = self.facts.status {
            attributes.add(attribute::HTTP_RESPONSE_STATUS_CODE, i64::from(code));
            if code >= 500 {
                attributes.add(attribute::ERROR_TYPE, code.to_string());
                status = Status::Error { description: "".into() };
            }
        }
        // Without an MCP span this one is all there is to tell the caller's trace apart by.
        let link = trace.link.filter(|_| self.facts.method.is_none() || !trace.sampled);
        self.span(Span {
            trace_id: trace.http_trace,
            id: trace.http_span,
            parent: trace.http_parent.map(|parent| (parent.span_id, true)),
            kind: SpanKind::Server,
            name: format!("{} {}", http.method, http.route),
            links: [link, None],
            attributes,
            status,
            from: self.started,
            to: self.ended,
        })
    }

    fn server(&self, method: Method) -> SpanData {
        let facts = self.facts;
        let trace = &facts.trace;
        let http_span = TraceParent {
            trace_id: trace.http_trace,
            span_id: trace.http_span,
            sampled: trace.http_sampled,
        };
        let has_http = facts.http.is_some();
        let (parent, link) = match (trace.meta_parent, trace.http_parent) {
            (Some(meta), _) => (Some((meta.span_id, true)), Some(http_span).filter(|_| has_http)),
            (None, _) if has_http => (Some((trace.http_span, false)), None),
            (None, http_parent) => (http_parent.map(|parent| (parent.span_id, true)), None),
        };
        self.span(Span {
            trace_id: trace.trace_id,
            id: trace.span_id,
            parent,
            kind: SpanKind::Server,
            name: name(method, named(method, facts.tool_alias.as_deref())),
            links: [link, trace.link],
            attributes: self.server_attributes(method),
            status: status(facts.outcome, false),
            from: self.started,
            // What a stream tells later has spans of its own.
            to: facts.acknowledged.unwrap_or(self.ended),
        })
    }

    fn server_attributes(&self, method: Method) -> Attributes {
        let facts = self.facts;
        let mut it = Attributes::default();
        it.add(attribute::MCP_METHOD_NAME, method.as_str());
        it.maybe(attribute::METHOD_ORIGINAL, facts.method_original.as_deref());
        let version = facts.dialect.and_then(|dialect| dialect.version());
        it.maybe(attribute::MCP_PROTOCOL_VERSION, version.map(|version| version.as_str()));
        it.maybe(attribute::MCP_SESSION_ID, facts.session_hash.map(|hash| to_hex(&hash)));
        it.maybe(attribute::JSONRPC_REQUEST_ID, facts.rpc_id.as_deref().and_then(rpc_id));
        it.maybe(attribute::RPC_RESPONSE_STATUS_CODE, facts.rpc_code.map(|code| code.to_string()));
        it.error(ErrorType::of_exchange(facts));
        it.target(method, facts.tool_alias.as_deref());
        it.network(facts.http.map(|http| http.version), false);
        self.client_address(&mut it);
        it.maybe(attribute::PRINCIPAL_HASH, facts.employee_hash.map(|hash| hash.to_string()));
        if !facts.roles.is_empty() {
            let roles = facts.roles.iter().map(|role| StringValue::from(role.as_str().to_owned()));
            it.add(attribute::ROLES, Value::Array(Array::String(roles.collect())));
        }
        it.maybe(attribute::DECISION, facts.decision.map(|decision| decision.as_str()));
        it.maybe(attribute::REASON, facts.reason);
        let shadow =
            facts.shadow.map(|(kind, _)| kind).filter(|kind| facts.decision != Some(*kind));
        it.maybe(attribute::POLICY_SHADOW, shadow.map(|kind| kind.as_str()));
        it.maybe(attribute::POLICY_RULE_ID, facts.rules.first().map(|rule| &**rule));
        it.maybe(attribute::POLICY_REVISION, facts.policy_revision.as_deref());
        it.maybe(attribute::IDEMPOTENCY, facts.idempotency);
        it.maybe(attribute::AUDIT_ID, facts.audit_id.map(ids::uuid_text));
        self.both_sides(&mut it);
        it.maybe(attribute::OUTCOME, facts.outcome.map(|outcome| outcome.as_str()));
        it.maybe(attribute::ERROR_CODE, facts.code.map(|code| code.as_str()));
        it
    }

    fn client(&self, attempt: &Attempt) -> SpanData {
        let error = ErrorType::of_attempt(attempt);
        self.span(Span {
            trace_id: self.facts.trace.trace_id,
            id: attempt.span_id,
            parent: Some((self.facts.trace.span_id, false)),
            kind: SpanKind::Client,
            name: name(attempt.method, named(attempt.method, attempt.tool.as_deref())),
            links: [None, None],
            attributes: self.client_attributes(attempt, error),
            status: status(Some(attempt.outcome), error.is_some()),
            from: attempt.started,
            to: attempt.ended.unwrap_or(self.ended),
        })
    }

    fn client_attributes(&self, attempt: &Attempt, error: Option<ErrorType>) -> Attributes {
        let mut it = Attributes::default();
        it.add(attribute::MCP_METHOD_NAME, attempt.method.as_str());
        let version = attempt.version.map(|version| version.as_str());
        it.maybe(attribute::MCP_PROTOCOL_VERSION, version);
        let rpc_code = attempt.rpc_code.map(|code| code.to_string());
        it.maybe(attribute::RPC_RESPONSE_STATUS_CODE, rpc_code);
        it.error(error);
        it.target(attempt.method, attempt.tool.as_deref());
        it.network(attempt.http_version, attempt.is_pipe);
        if let Some((address, port)) = &attempt.server {
            it.add(attribute::SERVER_ADDRESS, address.to_string());
            it.add(attribute::SERVER_PORT, i64::from(*port));
        }
        it.add(attribute::UPSTREAM, attempt.upstream.to_string());
        if attempt.number > 1 {
            it.add(attribute::ATTEMPT, i64::from(attempt.number));
        }
        self.both_sides(&mut it);
        it.add(attribute::OUTCOME, attempt.outcome.as_str());
        let code = attempt.code.or(self.facts.code).filter(|_| error.is_some());
        it.maybe(attribute::ERROR_CODE, code.map(|code| code.as_str()));
        it
    }

    /// What the contract wants on SERVER and CLIENT spans alike.
    fn both_sides(&self, it: &mut Attributes) {
        let facts = self.facts;
        it.maybe(attribute::TENANT, facts.tenant.as_ref().map(|tenant| tenant.as_str()));
        it.maybe(attribute::RISK, facts.risk.map(|risk| risk.as_str()));
        let call_id = facts.call_id.filter(|_| facts.method == Some(Method::CallTool));
        it.maybe(attribute::GEN_AI_TOOL_CALL_ID, call_id.map(ids::uuid_text));
        it.maybe(attribute::ARGS_HASH, facts.args_hash.map(|hash| hash.to_string()));
        it.maybe(attribute::RESULT_REF, facts.result_ref.map(|digest| digest.to_string()));
        it.maybe(attribute::SERVER_KEY, facts.server_key.as_deref());
        it.maybe(attribute::CALL_SOURCE, facts.call_source().map(CallSource::as_str));
    }

    fn client_address(&self, it: &mut Attributes) {
        it.maybe(attribute::CLIENT_ADDRESS, self.facts.address.map(|address| address.to_string()));
        it.maybe(attribute::CLIENT_PORT, self.facts.port.map(i64::from));
    }

    fn span(&self, span: Span) -> SpanData {
        let mut attributes = span.attributes.0;
        let dropped = attributes.len().saturating_sub(self.limits.attributes);
        attributes.truncate(self.limits.attributes);
        if self.limits.value < usize::MAX {
            attributes.iter_mut().for_each(|attribute| cut(attribute, self.limits.value));
        }
        let mut links = SpanLinks::default();
        let wanted = span.links.into_iter().flatten().take(self.limits.links);
        links.links.extend(wanted.map(|link| Link::with_context(context(link))));
        let (parent_span_id, parent_span_is_remote) =
            span.parent.map_or((SpanId::INVALID, false), |(id, is_remote)| {
                (SpanId::from_bytes(id), is_remote)
            });
        SpanData {
            span_context: SpanContext::new(
                TraceId::from_bytes(span.trace_id),
                SpanId::from_bytes(span.id),
                TraceFlags::SAMPLED,
                false,
                self.trace_state(span.trace_id),
            ),
            parent_span_id,
            parent_span_is_remote,
            span_kind: span.kind,
            name: span.name.into(),
            start_time: self.time(span.from),
            end_time: self.time(span.to),
            attributes,
            dropped_attributes_count: u32::try_from(dropped).unwrap_or(u32::MAX),
            events: SpanEvents::default(),
            links,
            status: span.status,
            instrumentation_scope: self.scope.clone(),
        }
    }

    /// The state that came with the trace that the span is in.
    fn trace_state(&self, trace_id: [u8; 16]) -> TraceState {
        let trace = &self.facts.trace;
        let state = trace.tracestate.as_deref().filter(|_| trace_id == trace.trace_id);
        state.and_then(|state| state.parse().ok()).unwrap_or_default()
    }

    fn time(&self, at: Instant) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.started_ms) + (at - self.started)
    }
}

struct Span {
    trace_id: [u8; 16],
    id: [u8; 8],
    /// Its id, and whether it is a peer's.
    parent: Option<([u8; 8], bool)>,
    kind: SpanKind,
    name: String,
    links: [Option<TraceParent>; 2],
    attributes: Attributes,
    status: Status,
    from: Instant,
    to: Instant,
}

#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(name, value));
    }

    fn maybe(&mut self, name: &'static str, value: Option<impl IntoAttribute>) {
        if let Some(value) = value {
            self.add(name, value.into_attribute());
        }
    }

    fn error(&mut self, error: Option<ErrorType>) {
        match error {
            Some(ErrorType::Name(name)) => self.add(attribute::ERROR_TYPE, name),
            Some(ErrorType::Rpc(code)) => self.add(attribute::ERROR_TYPE, code.to_string()),
            None => {}
        }
    }

    fn target(&mut self, method: Method, target: Option<&str>) {
        match method {
            Method::CallTool => {
                self.maybe(attribute::GEN_AI_TOOL_NAME, target);
                self.add(attribute::GEN_AI_OPERATION_NAME, EXECUTE_TOOL);
            }
            Method::GetPrompt => self.maybe(attribute::GEN_AI_PROMPT_NAME, target),
            Method::ReadResource | Method::Subscribe | Method::Unsubscribe => {
                self.maybe(attribute::MCP_RESOURCE_URI, target.map(public_uri));
            }
            _ => {}
        }
    }

    fn network(&mut self, version: Option<http::Version>, is_pipe: bool) {
        if is_pipe {
            self.add(attribute::NETWORK_TRANSPORT, "pipe");
        }
        if let Some(version) = version {
            self.add(attribute::NETWORK_TRANSPORT, "tcp");
            self.add(attribute::NETWORK_PROTOCOL_NAME, "http");
            self.add(attribute::NETWORK_PROTOCOL_VERSION, http_version(version));
        }
    }
}

/// A value of an attribute; borrowed text is copied.
trait IntoAttribute {
    fn into_attribute(self) -> Value;
}

impl IntoAttribute for &str {
    fn into_attribute(self) -> Value {
        self.to_owned().into()
    }
}

impl IntoAttribute for String {
    fn into_attribute(self) -> Value {
        self.into()
    }
}

impl IntoAttribute for i64 {
    fn into_attribute(self) -> Value {
        self.into()
    }
}

/// The scope that all spans are of.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(SERVICE).with_version(env!("CARGO_PKG_VERSION")).build()
}

/// Method and target; what is not in the catalog has no name here.
fn name(method: Method, target: Option<&str>) -> String {
    match target {
        Some(target) => format!("{} {target}", method.as_str()),
        None => method.as_str().to_owned(),
    }
}

/// A URI without who and what else it may name: user information, query and fragment are gone.
fn public_uri(uri: &str) -> String {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let uri = &uri[..end];
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.to_owned() };
    let path = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(path);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

fn status(outcome: Option<Outcome>, is_error: bool) -> Status {
    let description = match outcome {
        Some(Outcome::ToolError) => "The tool reported an error.",
        Some(Outcome::UpstreamError) => "The upstream failed.",
        Some(Outcome::GatewayError) => "The gateway failed.",
        _ if is_error => "The upstream answered with an error.",
        _ => return Status::Unset,
    };
    Status::Error { description: description.into() }
}

fn context(of: TraceParent) -> SpanContext {
    let flags = if of.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace_id, span_id) = (TraceId::from_bytes(of.trace_id), SpanId::from_bytes(of.span_id));
    SpanContext::new(trace_id, span_id, flags, true, TraceState::NONE)
}

/// A JSON-RPC id as text: a string's content, a number as it was written; `null` is none.
fn rpc_id(raw: &[u8]) -> Option<String> {
    let text = match raw.first()? {
        b'"' => serde_json::from_slice(raw).ok()?,
        b'n' => return None,
        _ => String::from_utf8_lossy(raw).into_owned(),
    };
    Some(text.chars().take(RPC_ID).collect())
}

/// Cuts a text attribute to so many characters.
fn cut(attribute: &mut KeyValue, limit: usize) {
    if let Value::String(text) = &attribute.value
        && let Some((end, _)) = text.as_str().char_indices().nth(limit)
    {
        let kept = text.as_str()[..end].to_owned();
        attribute.value = kept.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_in_a_span_names_nobody_and_asks_nothing() {
        for (uri, shown) in [
            ("file:///a/b", "file:///a/b"),
            ("up+https://u:p@h:1/a?token=t#f", "up+https://h:1/a"),
            ("https://u@h", "https://h"),
            ("urn:a@b?c", "urn:a@b"),
            ("https://h/a@b", "https://h/a@b"),
        ] {
            assert_eq!(public_uri(uri), shown);
        }
    }
}
