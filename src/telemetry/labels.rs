//! The label sets of the instruments, and the bounds on what they may hold.
//!
//! Whatever a caller or an upstream can choose freely is `_OTHER` here, or absent.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hash, Hasher},
    sync::Arc,
};

use arc_swap::ArcSwap;

use super::{
    names::{EXECUTE_TOOL, OTHER, TOOL_ERROR, attribute},
    series::{Labels, Mix},
};
use crate::{
    error::Code,
    mcp::{Method, Version, rpc},
    model::{
        exchange::{Attempt, DecisionKind, Facts, Outcome},
        server::Risk,
    },
};

/// `error.type`: a fixed word, or the number of a JSON-RPC error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ErrorType {
    Name(&'static str),
    Rpc(i64),
}

impl ErrorType {
    /// Of the SERVER side; span and metric say the same.
    pub fn of_exchange(facts: &Facts) -> Option<Self> {
        match facts.outcome? {
            Outcome::ToolError => Some(Self::Name(TOOL_ERROR)),
            outcome if outcome.is_error() => Some(
                facts
                    .error
                    .map(Self::Name)
                    .or(facts.rpc_code.map(Self::Rpc))
                    .unwrap_or(Self::Name(OTHER)),
            ),
            _ => None,
        }
    }

    /// Of the CLIENT side, where every error an upstream answers with counts as one.
    pub fn of_attempt(attempt: &Attempt) -> Option<Self> {
        attempt.error.map(Self::Name).or(attempt.rpc_code.map(Self::Rpc)).or_else(|| match attempt
            .outcome
        {
            Outcome::ToolError => Some(Self::Name(TOOL_ERROR)),
            outcome if outcome.is_error() => Some(Self::Name(OTHER)),
            _ => None,
        })
    }

    /// The same, without the numbers that an upstream has made up.
    fn bounded(self) -> Self {
        match self {
            Self::Rpc(code) if !is_known(code) => Self::Name(OTHER),
            known => known,
        }
    }
}

/// JSON-RPC codes that are somebody's convention; others are as many as an upstream likes.
fn is_known(code: i64) -> bool {
    const NAMED: [i32; 8] = [
        rpc::PARSE_ERROR,
        rpc::INVALID_REQUEST,
        rpc::METHOD_NOT_FOUND,
        rpc::INVALID_PARAMS,
        rpc::INTERNAL,
        rpc::HEADER_MISMATCH,
        rpc::MISSING_CAPABILITY,
        rpc::UNSUPPORTED_VERSION,
    ];
    /// A server's own error, a resource that is not there, a URL that the user has to visit.
    const CUSTOM: [i64; 3] = [-32_000, -32_002, -32_042];
    NAMED.iter().any(|named| i64::from(*named) == code)
        || CUSTOM.contains(&code)
        || Code::all().any(|own| i64::from(own.json_rpc()) == code)
}

/// The name of an HTTP version in `network.protocol.version`.
pub(super) fn http_version(version: http::Version) -> &'static str {
    match version {
        http::Version::HTTP_09 => "0.9",
        http::Version::HTTP_10 => "1.0",
        http::Version::HTTP_11 => "1.1",
        http::Version::HTTP_2 => "2",
        http::Version::HTTP_3 => "3",
        _ => OTHER,
    }
}

/// What a call is about, where that may stand in a span's name and on a metric: the name of a tool
/// or of a prompt, and never a URI.
pub(super) fn named(method: Method, target: Option<&str>) -> Option<&str> {
    target.filter(|_| matches!(method, Method::CallTool | Method::GetPrompt))
}

/// Labels of both operation histograms, as they are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation<'a> {
    pub method: Method,
    /// Or the prompt.
    pub tool: Option<&'a str>,
    pub version: Option<Version>,
    pub http: Option<http::Version>,
    pub is_pipe: bool,
    /// `None` inside for a code that is nobody's convention.
    pub rpc_code: Option<Option<i64>>,
    pub error: Option<ErrorType>,
    pub code: Option<Code>,
    pub outcome: Option<Outcome>,
    pub tenant: Option<&'a str>,
    pub upstream: Option<&'a str>,
    pub server: Option<(&'a str, u16)>,
}

/// Only of what tells most series apart, and in few words: this is on every call's path, and
/// series of one hash are still told apart by all of their labels.
impl Hash for Operation<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let outcome = self.outcome.map_or(0, |outcome| outcome as u8 + 1);
        let code = self.code.map_or(0, |code| code as u8 + 1);
        let version = self.version.map_or(0, |version| version as u8 + 1);
        state.write_u64(u32::from_le_bytes([self.method as u8, outcome, code, version]).into());
        for text in [self.tool, self.tenant, self.upstream].into_iter().flatten() {
            state.write(text.as_bytes());
        }
    }
}

impl<'a> Operation<'a> {
    pub fn of_exchange(facts: &'a Facts, tenant: Option<&'a str>) -> Self {
        Operation {
            method: facts.method.unwrap_or(Method::Other),
            tool: match is_personal(facts.upstream.as_deref()) {
                false => named(facts.method.unwrap_or(Method::Other), facts.tool_alias.as_deref()),
                true => Some(OTHER),
            },
            version: facts.dialect.and_then(|dialect| dialect.version()),
            http: facts.http.map(|http| http.version),
            is_pipe: false,
            rpc_code: facts.rpc_code.map(|code| Some(code).filter(|code| is_known(*code))),
            error: ErrorType::of_exchange(facts).map(ErrorType::bounded),
            code: facts.code,
            outcome: facts.outcome,
            tenant,
            upstream: None,
            server: None,
        }
    }

    pub fn of_attempt(attempt: &'a Attempt, facts: &Facts, tenant: Option<&'a str>) -> Self {
        let personal = is_personal(Some(&attempt.upstream));
        Operation {
            method: attempt.method,
            tool: if personal {
                Some(OTHER)
            } else {
                named(attempt.method, attempt.tool.as_deref())
            },
            version: attempt.version,
            http: attempt.http_version,
            is_pipe: attempt.is_pipe,
            rpc_code: attempt.rpc_code.map(|code| Some(code).filter(|code| is_known(*code))),
            error: ErrorType::of_attempt(attempt).map(ErrorType::bounded),
            code: attempt.code.or(facts.code).filter(|_| attempt.outcome.is_error()),
            outcome: Some(attempt.outcome),
            tenant,
            upstream: Some(if personal { PERSONAL } else { &attempt.upstream }),
            server: attempt
                .server
                .as_ref()
                .filter(|_| !personal)
                .map(|(address, port)| (&**address, *port)),
        }
    }
}

/// What stands for every server of an employee's own: there may be as many as there are employees.
const PERSONAL: &str = "personal";

/// Whether an upstream's name is the key of a server that an employee registered.
fn is_personal(upstream: Option<&str>) -> bool {
    upstream.is_some_and(|name| name.contains('_'))
}

/// The same, as it is kept.
pub(super) struct OwnedOperation {
    of: Operation<'static>,
    tool: Option<Box<str>>,
    tenant: Option<Box<str>>,
    upstream: Option<Box<str>>,
    server: Option<(Box<str>, u16)>,
}

impl OwnedOperation {
    fn parts(&self) -> Operation<'_> {
        Operation {
            tool: self.tool.as_deref(),
            tenant: self.tenant.as_deref(),
            upstream: self.upstream.as_deref(),
            server: self.server.as_ref().map(|(address, port)| (&**address, *port)),
            ..self.of
        }
    }
}

impl Labels for OwnedOperation {
    type Parts<'a> = Operation<'a>;

    fn own(parts: Operation<'_>) -> Self {
        let of = Operation {
            method: parts.method,
            version: parts.version,
            http: parts.http,
            is_pipe: parts.is_pipe,
            rpc_code: parts.rpc_code,
            error: parts.error,
            code: parts.code,
            outcome: parts.outcome,
            tool: None,
            tenant: None,
            upstream: None,
            server: None,
        };
        OwnedOperation {
            of,
            tool: parts.tool.map(Box::from),
            tenant: parts.tenant.map(Box::from),
            upstream: parts.upstream.map(Box::from),
            server: parts.server.map(|(address, port)| (address.into(), port)),
        }
    }

    fn is(&self, parts: &Operation<'_>) -> bool {
        self.parts() == *parts
    }

    fn fold<'a>(parts: Self::Parts<'a>) -> Self::Parts<'a> {
        Operation {
            tool: parts.tool.map(|_| OTHER),
            tenant: parts.tenant.map(|_| OTHER),
            upstream: parts.upstream.map(|_| OTHER),
            rpc_code: parts.rpc_code.map(|_| None),
            server: None,
            ..parts
        }
    }

    fn each(&self, give: &mut dyn FnMut(&'static str, &str)) {
        let parts = self.parts();
        give(attribute::MCP_METHOD_NAME, parts.method.as_str());
        if parts.method == Method::CallTool {
            give(attribute::GEN_AI_OPERATION_NAME, EXECUTE_TOOL);
        }
        if let Some(tool) = parts.tool {
            match parts.method {
                Method::GetPrompt => give(attribute::GEN_AI_PROMPT_NAME, tool),
                _ => give(attribute::GEN_AI_TOOL_NAME, tool),
            }
        }
        if let Some(version) = parts.version {
            give(attribute::MCP_PROTOCOL_VERSION, version.as_str());
        }
        if parts.is_pipe {
            give(attribute::NETWORK_TRANSPORT, "pipe");
        }
        if let Some(version) = parts.http {
            give(attribute::NETWORK_TRANSPORT, "tcp");
            give(attribute::NETWORK_PROTOCOL_NAME, "http");
            give(attribute::NETWORK_PROTOCOL_VERSION, http_version(version));
        }
        match parts.rpc_code {
            Some(Some(code)) => give(attribute::RPC_RESPONSE_STATUS_CODE, &code.to_string()),
            Some(None) => give(attribute::RPC_RESPONSE_STATUS_CODE, OTHER),
            None => {}
        }
        match parts.error {
            Some(ErrorType::Name(name)) => give(attribute::ERROR_TYPE, name),
            Some(ErrorType::Rpc(code)) => give(attribute::ERROR_TYPE, &code.to_string()),
            None => {}
        }
        if let Some(code) = parts.code {
            give(attribute::ERROR_CODE, code.as_str());
        }
        if let Some(outcome) = parts.outcome {
            give(attribute::OUTCOME, outcome.as_str());
        }
        if let Some(tenant) = parts.tenant {
            give(attribute::TENANT, tenant);
        }
        if let Some(upstream) = parts.upstream {
            give(attribute::UPSTREAM, upstream);
        }
        if let Some((address, port)) = parts.server {
            give(attribute::SERVER_ADDRESS, address);
            give(attribute::SERVER_PORT, &port.to_string());
        }
    }
}

/// Labels of decisions, as they are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Decided<'a> {
    pub decision: DecisionKind,
    pub reason: Option<&'static str>,
    pub risk: Option<Risk>,
    pub tenant: Option<&'a str>,
    /// By policies that are only looked at.
    pub shadow: bool,
}

/// The same, as it is kept.
pub(super) struct OwnedDecided(Decided<'static>, Option<Box<str>>);

impl Labels for OwnedDecided {
    type Parts<'a> = Decided<'a>;

    fn own(parts: Decided<'_>) -> Self {
        let tenant = parts.tenant.map(Box::from);
        Self(
            Decided {
                tenant: None,
                decision: parts.decision,
                reason: parts.reason,
                risk: parts.risk,
                shadow: parts.shadow,
            },
            tenant,
        )
    }

    fn is(&self, parts: &Decided<'_>) -> bool {
        Decided { tenant: self.1.as_deref(), ..self.0 } == *parts
    }

    fn fold<'a>(parts: Self::Parts<'a>) -> Self::Parts<'a> {
        Decided { tenant: parts.tenant.map(|_| OTHER), ..parts }
    }

    fn each(&self, give: &mut dyn FnMut(&'static str, &str)) {
        give(attribute::DECISION, self.0.decision.as_str());
        if let Some(reason) = self.0.reason {
            give(attribute::REASON, reason);
        }
        if let Some(risk) = self.0.risk {
            give(attribute::RISK, risk.as_str());
        }
        if let Some(tenant) = &self.1 {
            give(attribute::TENANT, tenant);
        }
        give(attribute::POLICY_MODE, if self.0.shadow { "shadow" } else { "enforce" });
    }
}

/// Labels of HTTP requests: nothing in them is a caller's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Answered {
    pub method: &'static str,
    pub route: &'static str,
    pub status: u16,
    pub version: http::Version,
}

impl Labels for Answered {
    type Parts<'a> = Answered;

    fn own(parts: Answered) -> Self {
        parts
    }

    fn is(&self, parts: &Answered) -> bool {
        self == parts
    }

    fn fold<'a>(parts: Self::Parts<'a>) -> Self::Parts<'a> {
        Answered { route: OTHER, ..parts }
    }

    fn each(&self, give: &mut dyn FnMut(&'static str, &str)) {
        give(attribute::HTTP_REQUEST_METHOD, self.method);
        give(attribute::HTTP_ROUTE, self.route);
        give(attribute::HTTP_RESPONSE_STATUS_CODE, &self.status.to_string());
        give(attribute::NETWORK_PROTOCOL_VERSION, http_version(self.version));
    }
}

/// Labels of the smaller instruments: names that are known beforehand, an empty value for none.
pub(super) struct Plain<const N: usize, S: Names<N>> {
    values: [Box<str>; N],
    names: std::marker::PhantomData<fn() -> S>,
}

/// The names of an instrument's labels.
pub(super) trait Names<const N: usize> {
    const NAMES: [&'static str; N];
}

impl<const N: usize, S: Names<N>> Plain<N, S> {
    pub fn first(&self) -> &str {
        self.values.first().map_or("", |value| value)
    }

    pub fn values(&self) -> [&str; N] {
        self.values.each_ref().map(|value| &**value)
    }
}

impl<const N: usize, S: Names<N>> Labels for Plain<N, S> {
    type Parts<'a> = [&'a str; N];

    fn own(parts: [&str; N]) -> Self {
        Self { values: parts.map(Box::from), names: std::marker::PhantomData }
    }

    fn is(&self, parts: &[&str; N]) -> bool {
        self.values.iter().zip(parts).all(|(own, other)| **own == **other)
    }

    fn fold<'a>(parts: Self::Parts<'a>) -> Self::Parts<'a> {
        parts.map(|value| if value.is_empty() { "" } else { OTHER })
    }

    fn each(&self, give: &mut dyn FnMut(&'static str, &str)) {
        for (name, value) in S::NAMES.into_iter().zip(&self.values) {
            if !value.is_empty() {
                give(name, value);
            }
        }
    }
}

/// The tenants that have series of their own: the first so many that are seen.
pub(super) struct Tenants {
    known: ArcSwap<HashSet<Arc<str>, BuildHasherDefault<Mix>>>,
    max: usize,
}

impl Tenants {
    pub fn new(max: usize) -> Self {
        Self { known: ArcSwap::default(), max }
    }

    /// The label of a tenant.
    pub fn label<'a>(&self, tenant: &'a str) -> &'a str {
        let known = self.known.load();
        if known.contains(tenant) {
            return tenant;
        }
        if known.len() >= self.max {
            return OTHER;
        }
        self.known.rcu(|known| {
            let mut more = HashSet::clone(known);
            if more.len() < self.max {
                more.insert(tenant.into());
            }
            more
        });
        if self.known.load().contains(tenant) { tenant } else { OTHER }
    }
}
