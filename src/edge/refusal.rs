//! The answer to a request that gets no further than the edge.
//!
//! Such a request has no id yet. It is told in the form of its path: a JSON-RPC error without an
//! id, or the error object of REST; with the same object in either.

use std::sync::Arc;

use http::{Extensions, HeaderValue, Response, StatusCode, header};

use crate::{
    body::Body,
    error::Code,
    model::{call::Route, exchange::Exchange},
};

/// A refusal with this status and JSON-RPC code, of a request with these extensions. The message
/// is a literal of ours and needs no escaping.
pub fn refuse(
    status: StatusCode,
    code: i32,
    message: &'static str,
    of: &Extensions,
) -> Response<Body> {
    let word = match status {
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        _ => Code::InvalidArgs,
    };
    let trace = of.get::<Arc<Exchange>>().map_or(String::new(), |exchange| {
        format!(",\"traceId\":\"{}\"", exchange.facts().trace.trace_id_hex())
    });
    // Nobody can repair what only another request would be.
    let object = format!(
        "{{\"code\":\"{word}\",\"message\":\"{message}\",\"retryable\":false,\"next\":\"stop\"{trace}}}"
    );
    let body = match of.get::<Route>() {
        Some(Route::Lite(..) | Route::V1) => format!("{{\"error\":{object}}}"),
        _ => format!(
            "{{\"jsonrpc\":\"2.0\",\"error\":{{\"code\":{code},\"message\":\"{message}\",\"data\":{object}}}}}"
        ),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The gateway's own JSON-RPC code for an HTTP status.
pub(super) fn rpc_code(status: StatusCode) -> i32 {
    -(31_000 + i32::from(status.as_u16()))
}
