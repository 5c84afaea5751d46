//! An error in the form of each dialect: the refusal a model reads, the JSON-RPC error, the
//! REST error object.
//!
//! `stack/respond.rs` makes the HTTP answer of it; the end of a stream needs the body alone.

use bytes::Bytes;

use super::jsonrpc;
use crate::{
    error::{Error, Form},
    json,
    mcp::{Method, Version},
    model::exchange::{Facts, NorthDialect},
};

/// The refusal object of the taxonomy, as one JSON object.
pub fn object(error: &Error, trace_id: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(192 + error.message().len());
    out.extend_from_slice(b"{\"code\":\"");
    out.extend_from_slice(error.code().as_str().as_bytes());
    out.extend_from_slice(b"\",\"message\":");
    json::write_str(&mut out, error.message());
    out.extend_from_slice(b",\"retryable\":");
    out.extend_from_slice(if error.retryable() { b"true" } else { b"false" });
    out.extend_from_slice(b",\"next\":\"");
    out.extend_from_slice(error.next().as_str().as_bytes());
    out.push(b'"');
    if let Some(after) = error.retry_after() {
        out.extend_from_slice(b",\"retryAfterMs\":");
        let ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        out.extend_from_slice(itoa::Buffer::new().format(ms).as_bytes());
    }
    let mut text = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            out.push(b',');
            json::write_str(&mut out, name);
            out.push(b':');
            json::write_str(&mut out, value);
        }
    };
    text("limit", error.limit());
    text("pointer", error.pointer());
    text("approvalId", error.approval());
    text("connectUrl", error.connect());
    text("outcome", error.unknown_outcome().then_some("unknown"));
    text("alias", error.code().alias());
    text("traceId", Some(trace_id));
    if let Some(links) = error.elicitations() {
        out.extend_from_slice(b",\"elicitations\":");
        out.extend_from_slice(links);
    }
    if let Some(required) = error.required_capabilities() {
        out.extend_from_slice(b",\"requiredCapabilities\":");
        out.extend_from_slice(required);
    }
    if let Some(faults) = error.faults() {
        out.extend_from_slice(b",\"faults\":");
        out.extend_from_slice(faults);
    }
    out.push(b'}');
    out
}

/// A refused call as a tool result: one sentence for the model, and the object.
///
/// `structured` is false for a tool with an `outputSchema`: widespread clients check it even on
/// errors, and the sentence would never reach the model.
pub fn tool_result(
    error: &Error,
    dialect: NorthDialect,
    trace_id: &str,
    structured: bool,
) -> Vec<u8> {
    let object = object(error, trace_id);
    let mut out = Vec::with_capacity(256 + 2 * object.len() + error.message().len());
    out.push(b'{');
    if dialect == NorthDialect::Modern {
        out.extend_from_slice(b"\"resultType\":\"complete\",");
    }
    out.extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":");
    json::write_str(&mut out, error.message());
    out.extend_from_slice(b"}],");
    // Revisions before 2025-06-18 have no such member.
    let knows = dialect.version().is_none_or(|version| version >= Version::V2025_06_18);
    if structured && knows {
        out.extend_from_slice(b"\"structuredContent\":");
        out.extend_from_slice(&object);
        out.push(b',');
    }
    out.extend_from_slice(b"\"isError\":true,\"_meta\":{\"dev.hangu/error\":");
    out.extend_from_slice(&object);
    if dialect == NorthDialect::Modern {
        out.push(b',');
        out.extend_from_slice(super::SERVER_INFO_MEMBER.as_bytes());
    }
    out.extend_from_slice(b"}}");
    out
}

/// Whether the model gets to read the refusal.
pub fn told_as_result(error: &Error, facts: &Facts) -> bool {
    facts.refusals_as_results
        && facts.method == Some(Method::CallTool)
        && facts.admitted
        && facts.rpc_id.is_some()
        && *error.form() == Form::Taxonomy
}

/// The answer of standard MCP to a request that failed, as what is known of it wants it told.
pub fn message(error: &Error, facts: &mut Facts, dialect: NorthDialect) -> Bytes {
    let trace_id = facts.trace.trace_id_hex();
    if let Some(id) = facts.rpc_id.as_deref().filter(|_| told_as_result(error, facts)) {
        let mut text = jsonrpc::result_head(id, 112);
        let structured = !facts.has_output_schema;
        text.extend_from_slice(&tool_result(error, dialect, &trace_id, structured));
        text.push(b'}');
        return text.into();
    }
    facts.rpc_code = Some(i64::from(rpc_code(error)));
    rpc_response(error, facts.rpc_id.as_deref(), &trace_id)
}

/// The JSON-RPC code under which an error is told.
pub fn rpc_code(error: &Error) -> i32 {
    match error.form() {
        Form::Protocol { rpc_code, .. } => *rpc_code,
        Form::Http { rpc_code: Some(code), .. } => *code,
        Form::Http { rpc_code: None, .. } | Form::Taxonomy => error.code().json_rpc(),
    }
}

/// A whole JSON-RPC error response.
pub fn rpc_response(error: &Error, id: Option<&[u8]>, trace_id: &str) -> Bytes {
    let mut message = Vec::with_capacity(error.message().len() + 2);
    json::write_str(&mut message, error.message());
    let code = i64::from(rpc_code(error));
    match error.form() {
        // The protocol says what some of its own errors carry.
        Form::Protocol { data: Some(data), .. } => {
            jsonrpc::error_response(id, code, &message, Some(data))
        }
        _ => jsonrpc::error_response(id, code, &message, Some(&object(error, trace_id))),
    }
}

/// The body of a REST refusal.
pub fn rest_body(error: &Error, trace_id: &str) -> Vec<u8> {
    let mut out = b"{\"error\":".to_vec();
    out.extend_from_slice(&object(error, trace_id));
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::Code;

    /// Two who add the same word to the object would have it there twice, which many readers of
    /// JSON do not mind and some refuse.
    #[test]
    fn an_error_says_each_thing_once_and_in_one_order() {
        let error = Error::new(Code::ServerNotConfigured, "m")
            .with_retry_after(Duration::from_millis(5))
            .with_limit("l")
            .with_pointer("/p")
            .with_approval("a")
            .with_connect("https://gw.example/c")
            .with_elicitations(-32_042, "[]")
            .with_required_capabilities("{}".into())
            .with_faults("[]")
            .with_unknown_outcome();
        let strict =
            json::Limits { depth: 8, duplicates: json::Duplicates::Refuse, outline: usize::MAX };
        let doc = json::Doc::parse(object(&error, "t").into(), &strict).unwrap();
        let names: Vec<_> = doc.root().members().map(|(name, _)| name.unescaped()).collect();
        let expected = [
            "code",
            "message",
            "retryable",
            "next",
            "retryAfterMs",
            "limit",
            "pointer",
            "approvalId",
            "connectUrl",
            "outcome",
            "alias",
            "traceId",
            "elicitations",
            "requiredCapabilities",
            "faults",
        ];
        assert_eq!(names, expected);
    }
}
