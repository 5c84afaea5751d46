//! What a server's HTTP answer means: whether it is one at all, and the taxonomy's word for it
//! where it is a failure.
//!
//! Bodies of failures are never shown; only the message of a provider's well-formed error object
//! passes, bounded and marked as the provider's.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header as http_header};

use super::stage::Upstream;
use crate::{
    body::{self, Body, CollectError},
    credential::{VaultFault, oauth::TokenFault},
    dialect::{jsonrpc, south},
    error::{Code, Error, Next, Trouble},
    json::{self, Doc, Kind, Value},
    mcp::rpc,
    model::{
        caller::Caller,
        reply::{Final, ResultBody},
    },
};

/// The most that is read of a failure's body.
const FAILURE_BYTES: usize = 64 * 1024;
/// The longest message of a provider that passes, in characters.
const MESSAGE_CHARS: usize = 300;

/// The kind of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    EventStream,
    Html,
    Other,
}

pub(crate) fn media(headers: &HeaderMap) -> Media {
    let Some(value) = headers.get(http_header::CONTENT_TYPE).and_then(|v| v.to_str().ok()) else {
        return Media::Other;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Media::Json
    } else if essence.eq_ignore_ascii_case("text/event-stream") {
        Media::EventStream
    } else if essence.eq_ignore_ascii_case("text/html") {
        Media::Html
    } else {
        Media::Other
    }
}

/// A failure of the upstream, named for the caller by the upstream's configured name alone.
pub(crate) fn failure(upstream: &str, what: &str) -> Error {
    Error::new(Code::ExternalServiceError, format!("`{upstream}` {what}"))
        .with_kind("malformed")
        .with_unknown_outcome()
        .from_upstream()
}

/// The server forgot the session that a call is made in.
pub(crate) fn session_lost(upstream: &str) -> Error {
    failure(upstream, "lost the session in which the call was made").with_kind("session_lost")
}

/// The caller has no credential for a server that takes each employee's own.
pub(crate) fn no_credential(upstream: &Upstream, caller: &Caller) -> Error {
    let name = &upstream.name;
    let message = match &caller.principal.employee {
        Some(_) => {
            format!("you have set no credential for `{name}`, which takes each employee's own")
        }
        None => format!("`{name}` takes each employee's own credential, and no employee is named"),
    };
    Error::new(Code::ServerNotConfigured, message).with_known_outcome()
}

/// A credential cannot be looked up or opened: our own failure, not the server's.
pub(crate) fn vault_failed(upstream: &Upstream, fault: VaultFault) -> Error {
    let error = Error::new(
        Code::Internal,
        format!("the credential for `{}` cannot be opened, so nothing was sent", upstream.name),
    )
    .with_known_outcome();
    let error = match &fault {
        VaultFault::Store(_) => error
            .with_kind("store_unavailable")
            .with_reason("store_unavailable")
            .with_advice(true, Next::Wait)
            .with_retry_after(Duration::from_secs(5)),
        _ => error.with_kind("credential"),
    };
    error.with_cause(fault)
}

/// There is no token for a server.
pub(crate) fn no_token(upstream: &Upstream, fault: TokenFault) -> Error {
    let name = &upstream.name;
    let error = match &fault {
        TokenFault::Consent { url: Some(url) } => Error::new(
            Code::ServerNotConfigured,
            format!("`{name}` needs your consent first: open {url} and call again"),
        )
        .with_connect(url.as_str()),
        TokenFault::Consent { url: None } => Error::new(
            Code::ServerNotConfigured,
            format!("you have not connected to `{name}`, which takes each employee's own grant"),
        ),
        TokenFault::Nobody => Error::new(
            Code::ServerNotConfigured,
            format!("`{name}` takes each employee's own grant, and no employee is named"),
        ),
        TokenFault::Refused(_) | TokenFault::NotTaken => Error::new(
            Code::PermissionDenied,
            format!("`{name}` or its authorization server refused the gateway's own credential"),
        )
        .with_kind("401")
        .from_upstream()
        .with_advice(false, Next::AskHuman),
        TokenFault::Distrusted(_) => Error::new(
            Code::ExternalServiceError,
            format!("what `{name}` says of its authorization cannot be trusted"),
        )
        .with_kind("malformed")
        .from_upstream(),
        TokenFault::Unreachable(_) => Error::new(
            Code::ExternalServiceError,
            format!("the authorization server of `{name}` cannot be asked"),
        )
        .with_kind("authorization_server")
        .from_upstream()
        .with_advice(true, Next::Retry)
        .with_retry_after(Duration::from_secs(5)),
        TokenFault::Vault(fault) => return vault_failed(upstream, fault.clone()),
    };
    error.with_known_outcome().with_cause(fault)
}

/// Reads a whole body up to a cap. One piece is passed on as it is.
pub(crate) async fn collect(body: Body, cap: usize, upstream: &str) -> Result<Bytes, Error> {
    body::collect(body, cap).await.map_err(|error| match error {
        CollectError::TooLarge => Error::new(
            Code::PayloadTooLarge,
            format!("the answer of `{upstream}` is larger than {cap} bytes"),
        )
        .with_kind("response_too_large")
        .with_unknown_outcome()
        .from_upstream(),
        CollectError::Failed(cause) => broken(upstream, cause),
    })
}

/// The connection ended before the answer did.
pub(crate) fn broken(
    upstream: &str,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    // What carries a server's messages may know better what became of it.
    let cause = match cause.into().downcast::<Error>() {
        Ok(error) if error.is_from_upstream() => return *error,
        Ok(error) => error as Box<dyn std::error::Error + Send + Sync>,
        Err(cause) => cause,
    };
    failure(upstream, "broke off its answer")
        .with_kind("connection_reset")
        .with_trouble(Trouble::Lost)
        .with_cause(cause)
}

/// What a standard server answered with a status that is no success.
pub(crate) async fn standard_failure(
    status: StatusCode,
    headers: &HeaderMap,
    body: Body,
    id: u64,
    upstream: &str,
) -> Result<Final, Error> {
    if media(headers) == Media::Json
        && let Ok(text) = collect(body, FAILURE_BYTES, upstream).await
        && let Ok(south::Incoming::End(end)) = south::read_message(text.clone(), id)
        && answers(&text)
    {
        return Ok(end);
    }
    Err(by_status(status, headers, upstream, None))
}

/// A server that finds fault with headers or revision finds it with the gateway, which wrote
/// them; to the caller that says nothing.
pub(crate) fn not_ours(end: Final, upstream: &str) -> Result<Final, Error> {
    let ours = [rpc::HEADER_MISMATCH, rpc::UNSUPPORTED_VERSION].map(i64::from);
    match end {
        Final::Error(error) if ours.contains(&error.code) => {
            let message = format!("`{upstream}` did not take the gateway's own request");
            // Its words may repeat headers, and with them arguments and secrets.
            let cause = format!("JSON-RPC error {}", error.code);
            Err(Error::new(Code::Internal, message).with_kind("internal").with_cause(cause))
        }
        end => Ok(end),
    }
}

/// Whether an error response names the request it answers; one without an id speaks of the
/// transport, not of the call.
fn answers(text: &Bytes) -> bool {
    let limits = json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 1 };
    Doc::parse(text.clone(), &limits)
        .is_ok_and(|doc| doc.root().get("id").is_some_and(|id| id.kind() != Kind::Null))
}

/// A provider's failure: its status, and the message of its error object if it has one.
pub(crate) async fn provider_failure(
    status: StatusCode,
    headers: &HeaderMap,
    body: Body,
    upstream: &str,
) -> Error {
    let message = match media(headers) {
        Media::Json if status.is_client_error() => {
            let text = collect(body, FAILURE_BYTES, upstream).await.ok();
            text.and_then(|text| provider_message(&text, upstream))
        }
        _ => None,
    };
    by_status(status, headers, upstream, message)
}

fn provider_message(text: &Bytes, upstream: &str) -> Option<String> {
    let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 2 };
    let doc = Doc::parse(text.clone(), &limits).ok()?;
    let error = doc.root().get("error").filter(|error| error.kind() == Kind::Object)?;
    let message = error.get("message").and_then(Value::as_str)?;
    let shown: String = message.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS).collect();
    Some(format!("{upstream} says: {shown}"))
}

/// The taxonomy's word for a status.
fn by_status(
    status: StatusCode,
    headers: &HeaderMap,
    upstream: &str,
    message: Option<String>,
) -> Error {
    let (code, text) = match status.as_u16() {
        400 | 422 => (Code::InvalidArgs, "refused the arguments"),
        // It may have been sent none.
        401 => (Code::PermissionDenied, "wants a credential, or another one than it was sent"),
        403 => (Code::PermissionDenied, "does not allow this with what it was sent"),
        404 => (Code::NotFound, "knows nothing of the kind"),
        409 => (Code::Conflict, "reports a conflict"),
        413 => (Code::PayloadTooLarge, "refused the request for its size"),
        429 => (Code::RateLimited, "asks for fewer calls"),
        300..=399 => (Code::ExternalServiceError, "answered with a redirect"),
        _ => (Code::ExternalServiceError, "failed"),
    };
    let mut error = match message {
        // Its own credential is the gateway's affair; the provider's words on it stay inside.
        Some(message) if code != Code::PermissionDenied => Error::new(code, message).confidential(),
        _ => Error::new(code, format!("`{upstream}` {text} (HTTP {})", status.as_u16())),
    };
    error = error.with_kind(status_kind(status)).from_upstream();
    if status.is_server_error() {
        let trouble = match status.as_u16() {
            502..=504 => Trouble::Unavailable,
            _ => Trouble::Broken,
        };
        error = error.with_unknown_outcome().with_trouble(trouble);
    }
    if let Some(after) = retry_after(headers) {
        error = error.with_retry_after(after);
    } else if code == Code::RateLimited {
        error = error.with_retry_after(Duration::from_secs(1));
    }
    if code == Code::PermissionDenied {
        error = error.with_advice(false, Next::AskHuman);
    }
    error
}

/// `error.type` of a status: the number as a string, for those that upstreams really send.
fn status_kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        405 => "405",
        408 => "408",
        409 => "409",
        413 => "413",
        415 => "415",
        422 => "422",
        429 => "429",
        500 => "500",
        501 => "501",
        502 => "502",
        503 => "503",
        504 => "504",
        status if status < 400 => "3xx",
        status if status < 500 => "4xx",
        _ => "5xx",
    }
}

/// Delay-seconds of `Retry-After`; a date is not worth a second clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(http_header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.min(86_400)))
}

/// A provider's success: the body must look like a result of the method.
pub(crate) fn provider_result(
    text: Bytes,
    upstream: &str,
    member: &str,
) -> Result<ResultBody, Error> {
    let body = south::read_lite(text).map_err(|error| {
        failure(upstream, "answered something that is no JSON object").with_cause(error)
    })?;
    let limits = json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 1 };
    let looks_right = Doc::parse(body.raw.clone(), &limits)
        .is_ok_and(|doc| doc.root().get(member).is_some_and(|v| v.kind() == Kind::Array));
    if looks_right {
        Ok(body)
    } else {
        Err(failure(upstream, "answered something that is no result of the method"))
    }
}

/// Whether a body is a JSON-RPC response at all; for telling a wrong endpoint by its name.
pub(crate) fn is_json_rpc(text: Bytes) -> bool {
    let limits = json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 2 };
    Doc::parse(text, &limits).is_ok_and(|doc| jsonrpc::read(&doc).is_ok())
}
