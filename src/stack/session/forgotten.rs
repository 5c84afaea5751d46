//! Whether a server says that it does not know the session: then the request did not run.
//!
//! The protocol says 404. Many servers, among them the official example that others were copied
//! from, say 400 instead, with a JSON-RPC error that names the session.

use http::{Response, StatusCode, header};

use super::super::{answer, stage::HeldSession};
use crate::{
    body::Body,
    error::Error,
    json::{self, Doc, Value},
};

/// What a server answers of a session that it does not know is short.
const MAX_BYTES: u64 = 4 * 1024;

/// What a server may say with any error of its own.
const SERVER_ERROR: i64 = -32000;

/// The answer, as it came; nothing where the server has forgotten the session.
pub(super) async fn known(
    response: Response<Body>,
    session: &HeldSession,
    upstream: &str,
) -> Result<Option<Response<Body>>, Error> {
    if session.id.is_none() {
        return Ok(Some(response));
    }
    match response.status() {
        StatusCode::NOT_FOUND => Ok(None),
        StatusCode::BAD_REQUEST if is_short_json(&response) => {
            let (head, body) = response.into_parts();
            let most = usize::try_from(MAX_BYTES).unwrap_or(usize::MAX);
            let text = answer::collect(body, most, upstream).await?;
            if names_session(&text) {
                return Ok(None);
            }
            Ok(Some(Response::from_parts(head, text.into())))
        }
        _ => Ok(Some(response)),
    }
}

fn is_short_json(response: &Response<Body>) -> bool {
    let headers = response.headers();
    let says = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let length = says(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    let is_json =
        says(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json"));
    is_json && length.is_some_and(|length| length <= MAX_BYTES)
}

/// Whether it is the error of a server that does not know the session, and no answer to the
/// request: it has the one code that servers may use as they like, and the word in its message.
fn names_session(text: &bytes::Bytes) -> bool {
    let limits = json::Limits { depth: 32, duplicates: json::Duplicates::Allow, outline: 2 };
    let Ok(doc) = Doc::parse(text.clone(), &limits) else { return false };
    let Some(error) = doc.root().get("error") else { return false };
    let code = error.get("code").and_then(Value::as_i64);
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    code == Some(SERVER_ERROR) && message.to_ascii_lowercase().contains("session")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_about_the_session_is_one() {
        for (text, is_one) in [
            (
                r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":7}"#,
                true,
            ),
            (
                r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Session not found"},"id":null}"#,
                true,
            ),
            (
                r#"{"jsonrpc":"2.0","error":{"code":-32602,"message":"the session is no number"},"id":7}"#,
                false,
            ),
            (
                r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"too many rows"},"id":7}"#,
                false,
            ),
            (r#"{"error":"session"}"#, false),
            ("session", false),
        ] {
            assert_eq!(names_session(&text.into()), is_one, "{text}");
        }
    }
}
