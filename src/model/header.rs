//! Headers that may be set on requests to a server: their names, and values that arrive as they
//! were sent.

use http::{HeaderName, HeaderValue};

/// Headers that the gateway or the connection sets; beginnings end in `-`.
const RESERVED: [&str; 25] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "last-event-id",
    "mcp-",
    "origin",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-call-source",
    "x-trace-id",
];

/// Why a header cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    #[error("is not a header's name")]
    NotOne,
    #[error("is the gateway's own to set")]
    Reserved,
}

/// The name of a header that may be set.
pub fn settable(text: &str) -> Result<HeaderName, NameFault> {
    let name = HeaderName::try_from(text).map_err(|_| NameFault::NotOne)?;
    let reserved = RESERVED.iter().any(|reserved| match reserved.ends_with('-') {
        true => name.as_str().starts_with(reserved),
        false => name.as_str() == *reserved,
    });
    if reserved { Err(NameFault::Reserved) } else { Ok(name) }
}

/// Whether a value arrives as it was sent.
pub fn fits(text: &str) -> bool {
    !text.is_empty()
        && text.trim() == text
        && text.bytes().all(|b| matches!(b, b' '..=b'~'))
        && HeaderValue::from_str(text).is_ok()
}
