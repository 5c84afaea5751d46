//! The answer to a request that gets no further than the edge.
//!
//! Such a request has no id yet, and no dialect: the body is a JSON-RPC error without an id.

use http::{HeaderValue, Response, StatusCode, header};

use crate::body::Body;

/// A refusal with this status and JSON-RPC code. The message is a literal of ours and needs no
/// escaping.
pub fn refuse(status: StatusCode, code: i32, message: &'static str) -> Response<Body> {
    let body =
        format!("{{\"jsonrpc\":\"2.0\",\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}");
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
