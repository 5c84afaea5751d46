//! Protocol revisions, and the names of the headers and `_meta` keys that carry them.

use std::fmt;

/// A revision of the Model Context Protocol that the gateway speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Spoken to servers only, over HTTP+SSE and stdio.
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl Version {
    pub const LATEST_LEGACY: Version = Version::V2025_11_25;
    pub const LATEST: Version = Version::V2026_07_28;
    /// What a handshake-era request without a version header is taken for.
    pub const ASSUMED: Version = Version::V2025_03_26;
    /// What clients may speak.
    pub const ALL: [Version; 4] =
        [Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    pub const fn as_str(self) -> &'static str {
        match self {
            Version::V2024_11_05 => "2024-11-05",
            Version::V2025_03_26 => "2025-03-26",
            Version::V2025_06_18 => "2025-06-18",
            Version::V2025_11_25 => "2025-11-25",
            Version::V2026_07_28 => "2026-07-28",
        }
    }

    /// A revision that a client names.
    pub fn parse(text: &str) -> Option<Version> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// A revision that a server names.
    pub fn of_server(text: &str) -> Option<Version> {
        let oldest = Some(Version::V2024_11_05).filter(|version| version.as_str() == text);
        oldest.or_else(|| Self::parse(text))
    }

    /// Stateless, every request describes itself.
    pub fn is_modern(self) -> bool {
        self >= Version::V2026_07_28
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// HTTP header names, in the form the `http` crate wants them.
pub mod header {
    use http::HeaderName;

    pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
    pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
    pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
    pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
    pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
    pub const EMPLOYEE: HeaderName = HeaderName::from_static("sso-emp-id");
    pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
    pub const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
    pub const DRY_RUN: HeaderName = HeaderName::from_static("x-dry-run");
    pub const TRACE_ID: HeaderName = HeaderName::from_static("x-trace-id");
    pub const CALL_SOURCE: HeaderName = HeaderName::from_static("x-call-source");
    pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
    pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
    pub const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
    pub const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
    pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
    pub const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
}

/// Keys of `_meta`.
pub mod meta {
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    pub const PROGRESS_TOKEN: &str = "progressToken";
    pub const TRACEPARENT: &str = "traceparent";
    pub const TRACESTATE: &str = "tracestate";
    pub const BAGGAGE: &str = "baggage";
    pub const IDEMPOTENCY_KEY: &str = "dev.hangu/idempotencyKey";
    pub const DRY_RUN: &str = "dev.hangu/dryRun";
    pub const REPLAYED: &str = "dev.hangu/replayed";
    pub const QUOTA: &str = "dev.hangu/quota";
    /// Which tool was called, and which ran.
    pub const DEGRADED: &str = "dev.hangu/degraded";
    pub const ERROR: &str = "dev.hangu/error";
    /// Upstreams that are missing from a listing of the aggregate.
    pub const UNAVAILABLE: &str = "dev.hangu/unavailable";
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
}

/// JSON-RPC codes that the protocol names.
pub mod rpc {
    pub const PARSE_ERROR: i32 = -32_700;
    pub const INVALID_REQUEST: i32 = -32_600;
    pub const METHOD_NOT_FOUND: i32 = -32_601;
    pub const INVALID_PARAMS: i32 = -32_602;
    pub const INTERNAL: i32 = -32_603;
    pub const HEADER_MISMATCH: i32 = -32_020;
    pub const MISSING_CAPABILITY: i32 = -32_021;
    pub const UNSUPPORTED_VERSION: i32 = -32_022;
    /// Of the handshake revisions only.
    pub const RESOURCE_NOT_FOUND: i32 = -32_002;
    /// Of the handshake revisions only.
    pub const URL_ELICITATION_REQUIRED: i32 = -32_042;
}
