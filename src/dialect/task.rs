//! Tasks as servers write them, and what the gateway asks about them: the extension
//! `io.modelcontextprotocol/tasks` of 2026-07-28.
//!
//! What is done with a task is decided in the layer of that name.

use std::time::Duration;

use bytes::Bytes;

use super::north;
use crate::{
    error::{Code, Error},
    json::{
        self, Kind, Value,
        splice::{self, Edits},
    },
    mcp::{Method, rpc},
    model::{
        call::{Ask, RawMember, RawMembers, Target},
        reply::{ResultBody, RpcError},
    },
};

/// The extension's name.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

const ID: &str = "taskId";
const TYPE: &str = "resultType";

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Working,
    /// It waits for answers to these, a JSON object.
    InputRequired(Bytes),
    /// The result of the call, a JSON object.
    Completed(Bytes),
    Failed(RpcError),
    Cancelled,
}

/// What a server says of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub id: Box<str>,
    /// How long its server keeps it, in milliseconds; `None`: as long as it likes.
    pub ttl_ms: Option<u64>,
    /// How often its server wants to be asked.
    pub poll: Option<Duration>,
    pub standing: Standing,
}

/// Whether a result is a task instead of what the call was for.
pub fn is_created(body: &ResultBody) -> bool {
    if !body.shape.has_type || body.shape.complete {
        return false;
    }
    let Some(doc) = splice::document(&body.raw) else { return false };
    doc.root().get(TYPE).is_some_and(|word| word.is_str("task"))
}

/// Reads a task, from the result that created it or one of `tasks/get`.
///
/// # Errors
/// `external_service_error` for what is no task.
pub fn read(body: &ResultBody) -> Result<Task, Error> {
    let doc = splice::document(&body.raw).ok_or_else(|| malformed("it cannot be read"))?;
    let root = doc.root();
    let id = root.get(ID).and_then(Value::as_str).filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| malformed("it has no `taskId`"))?.into();
    let millis = |member: &str| {
        let value = root.get(member).and_then(Value::as_i64);
        value.and_then(|value| u64::try_from(value).ok())
    };
    let object = |member: &'static str| {
        root.get(member).filter(|value| value.kind() == Kind::Object).ok_or(member)
    };
    let without = |member| malformed(&format!("it has no `{member}`"));
    let word = root.get("status").and_then(Value::as_str).unwrap_or_default();
    let standing = match &*word {
        "working" => Standing::Working,
        // The result that creates a task never says what is asked; `tasks/get` does.
        "input_required" => match object("inputRequests") {
            Ok(questions) => Standing::InputRequired(questions.bytes()),
            Err(_) => Standing::Working,
        },
        "completed" => match object("result") {
            Ok(result) => Standing::Completed(result.bytes()),
            Err(_) if is_created(body) => Standing::Working,
            Err(member) => return Err(without(member)),
        },
        "failed" => match object("error") {
            Ok(error) => Standing::Failed(read_error(error)?),
            Err(_) if is_created(body) => Standing::Working,
            Err(member) => return Err(without(member)),
        },
        "cancelled" => Standing::Cancelled,
        _ => return Err(malformed("its `status` is none of the protocol's")),
    };
    let poll = millis("pollIntervalMs").map(Duration::from_millis);
    Ok(Task { id, ttl_ms: millis("ttlMs"), poll, standing })
}

fn read_error(error: Value<'_>) -> Result<RpcError, Error> {
    let code = error.get("code").and_then(Value::as_i64);
    let message = error.get("message").filter(|message| message.kind() == Kind::String);
    match (code, message) {
        (Some(code), Some(message)) => Ok(RpcError {
            code,
            message: message.bytes(),
            data: error.get("data").map(Value::bytes),
        }),
        _ => Err(malformed("its `error` is none of JSON-RPC")),
    }
}

/// A result about a task, with another id in it. An answer to `tasks/get` is complete, whatever
/// its server says of that.
pub fn renamed(body: &ResultBody, id: &str, complete: bool) -> ResultBody {
    let Some(doc) = splice::document(&body.raw) else { return body.clone() };
    let mut edits = Edits::default();
    if let Some(own) = doc.root().get(ID) {
        edits.put_str(own, id);
    }
    if let Some(word) = doc.root().get(TYPE).filter(|_| complete && !body.shape.complete) {
        edits.put_str(word, "complete");
    }
    if edits.is_empty() { body.clone() } else { reread(edits.apply(&body.raw)) }
}

/// The id in a server's notice of how a task stands.
pub fn named(notice: &Bytes) -> Option<Box<str>> {
    let doc = splice::document(notice)?;
    Some(doc.root().get(ID)?.as_str()?.into())
}

/// Such a notice with another id in it, and without the mark of the stream it came on.
pub fn relabelled(notice: &Bytes, id: &str) -> Option<Bytes> {
    let doc = splice::document(notice)?;
    let mut edits = Edits::default();
    edits.put_str(doc.root().get(ID)?, id);
    edits.remove(&doc, doc.root(), |key| key.is("_meta"));
    Some(edits.apply(notice))
}

/// The result of a task's call, as an answer to the call.
pub fn result(raw: Bytes) -> ResultBody {
    reread(raw)
}

/// What a task asks, in the form in which a call asks; `state` brings the answers back to it.
pub fn question(input_requests: &[u8], state: &str) -> ResultBody {
    let mut out = Vec::with_capacity(input_requests.len() + state.len() + 96);
    out.extend_from_slice(b"{\"resultType\":\"input_required\",\"inputRequests\":");
    out.extend_from_slice(input_requests);
    out.extend_from_slice(b",\"requestState\":");
    json::write_str(&mut out, state);
    out.push(b'}');
    reread(out.into())
}

fn reread(raw: Bytes) -> ResultBody {
    let shape = splice::document(&raw).map(|doc| north::shape(doc.root()));
    ResultBody::upstream(raw, shape.unwrap_or_default())
}

/// `tasks/get` or `tasks/cancel`.
pub fn ask(method: Method, id: &str) -> Ask {
    Ask { method, target: Target::Task(id.into()), params: RawMembers::new() }
}

/// `tasks/update`.
pub fn update(id: &str, input_responses: Bytes) -> Ask {
    let answers = RawMember { key: Bytes::from_static(b"inputResponses"), value: input_responses };
    Ask { params: vec![answers], ..ask(Method::UpdateTask, id) }
}

/// Whether a server refused a call for nothing but that the extension was not declared.
pub fn wants_extension(error: &RpcError) -> bool {
    if error.code != i64::from(rpc::MISSING_CAPABILITY) {
        return false;
    }
    let Some(doc) = error.data.as_ref().and_then(splice::document) else { return false };
    let Some(required) = doc.root().get("requiredCapabilities") else { return false };
    let extensions = required.get("extensions").filter(|all| all.kind() == Kind::Object);
    let alone = |value: Value<'_>| value.members().count() == 1;
    extensions.is_some_and(|all| alone(required) && alone(all) && all.get(EXTENSION).is_some())
}

/// The error for a client that asks for a task without having declared the extension.
pub fn undeclared() -> Error {
    let data = format!("{{\"requiredCapabilities\":{{\"extensions\":{{\"{EXTENSION}\":{{}}}}}}}}");
    let message = "tasks need the extension io.modelcontextprotocol/tasks to be declared";
    Error::protocol(Code::CapabilityMissing, rpc::MISSING_CAPABILITY, 400, message).with_data(data)
}

/// The error for an id that names no task of this caller, for whatever reason.
pub fn unknown() -> Error {
    let message = "the task is unknown or has expired";
    Error::protocol(Code::NotFound, rpc::INVALID_PARAMS, 200, message)
}

fn malformed(what: &str) -> Error {
    Error::new(
        Code::ExternalServiceError,
        format!("the server made a task of the call, but {what}"),
    )
    .with_kind("malformed")
    .with_unknown_outcome()
    .from_upstream()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(raw: &str) -> ResultBody {
        reread(Bytes::copy_from_slice(raw.as_bytes()))
    }

    fn standing(rest: &str) -> Result<Standing, &'static str> {
        let task = read(&body(&format!(r#"{{"taskId":"1",{rest}}}"#)));
        task.map(|task| task.standing).map_err(|error| error.kind().unwrap())
    }

    #[test]
    fn a_task_is_read_as_its_server_writes_it() {
        let made = body(
            r#"{"resultType":"task","taskId":"t\u0031","status":"working","createdAt":"x","lastUpdatedAt":"x","ttlMs":60000,"pollIntervalMs":500}"#,
        );
        assert!(is_created(&made));
        let task = Task {
            id: "t1".into(),
            ttl_ms: Some(60_000),
            poll: Some(Duration::from_millis(500)),
            standing: Standing::Working,
        };
        assert_eq!(read(&made).unwrap(), task);
        let kept = body(r#"{"taskId":"1","status":"working","ttlMs":null}"#);
        assert!(!is_created(&kept));
        let kept = read(&kept).unwrap();
        assert_eq!((kept.ttl_ms, kept.poll), (None, None));

        for (rest, expected) in [
            (r#""status":"working""#, Ok(Standing::Working)),
            (
                r#""status":"input_required","inputRequests":{"a":{"method":"x"}}"#,
                Ok(Standing::InputRequired(Bytes::from(r#"{"a":{"method":"x"}}"#))),
            ),
            (
                r#""status":"completed","result":{"content":[],"isError":true}"#,
                Ok(Standing::Completed(Bytes::from(r#"{"content":[],"isError":true}"#))),
            ),
            (
                r#""status":"failed","error":{"code":-32603,"message":"m\n","data":[1e2]}"#,
                Ok(Standing::Failed(RpcError {
                    code: -32603,
                    message: Bytes::from(r#""m\n""#),
                    data: Some(Bytes::from("[1e2]")),
                })),
            ),
            (r#""status":"cancelled""#, Ok(Standing::Cancelled)),
            // A task that is over when it is made says how only when it is asked.
            (r#""resultType":"task","status":"completed""#, Ok(Standing::Working)),
            (r#""resultType":"task","status":"failed""#, Ok(Standing::Working)),
            (r#""status":"completed""#, Err("malformed")),
            (r#""status":"completed","result":[]"#, Err("malformed")),
            (r#""status":"failed","error":{"code":"x"}"#, Err("malformed")),
            (r#""status":"resting""#, Err("malformed")),
            (r#""ttlMs":1"#, Err("malformed")),
        ] {
            assert_eq!(standing(rest), expected, "{rest}");
        }
        for raw in [r#"{"status":"working"}"#, r#"{"taskId":7,"status":"working"}"#, "{}"] {
            assert!(read(&body(raw)).is_err(), "{raw}");
        }
    }

    #[test]
    fn only_the_id_changes() {
        for (raw, complete, expected) in [
            (
                r#"{"resultType":"task","taskId":"1","x":{"taskId":"1"},"n":1.0}"#,
                false,
                r#"{"resultType":"task","taskId":"s","x":{"taskId":"1"},"n":1.0}"#,
            ),
            (
                r#"{"taskId" : "1","resultType":"task"}"#,
                true,
                r#"{"taskId" : "s","resultType":"complete"}"#,
            ),
            (r#"{"resultType":"complete"}"#, true, r#"{"resultType":"complete"}"#),
        ] {
            let body = renamed(&body(raw), "s", complete);
            assert_eq!(body.raw, expected);
            assert_eq!(body.shape.complete, expected.contains("\"complete\""), "{raw}");
        }
    }

    #[test]
    fn a_notice_goes_on_under_another_id_and_without_its_mark() {
        for (notice, expected) in [
            (r#"{"taskId":"1","status":"working"}"#, r#"{"taskId":"s","status":"working"}"#),
            (
                r#"{"_meta":{"a":1},"taskId":"1","x":{"taskId":"1","_meta":{}}}"#,
                r#"{"taskId":"s","x":{"taskId":"1","_meta":{}}}"#,
            ),
            (r#"{"n":1.0,"taskId":"1", "_meta":{}}"#, r#"{"n":1.0,"taskId":"s"}"#),
        ] {
            let notice = Bytes::from(notice);
            assert_eq!(named(&notice).as_deref(), Some("1"));
            assert_eq!(relabelled(&notice, "s").unwrap(), expected);
        }
        for notice in [r#"{"status":"working"}"#, r#"{"taskId":1}"#, "[]", ""] {
            assert_eq!(named(&Bytes::from(notice)), None, "{notice}");
        }
    }

    #[test]
    fn a_server_that_lacks_the_extension_alone_is_told_from_others() {
        let error = |code: i64, data: Option<&'static str>| RpcError {
            code,
            message: Bytes::from_static(b"\"m\""),
            data: data.map(Bytes::from),
        };
        let named =
            r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        assert!(wants_extension(&error(-32_021, Some(named))));
        for (code, data) in [
            (-32_602, Some(named)),
            (-32_021, None),
            (-32_021, Some("1")),
            (-32_021, Some(r#"{"requiredCapabilities":{"sampling":{}}}"#)),
            (-32_021, Some(r#"{"requiredCapabilities":{"extensions":{"x/y":{}}}}"#)),
            (-32_021, Some(r#"{"requiredCapabilities":["extensions"]}"#)),
            (
                -32_021,
                Some(
                    r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}},"sampling":{}}}"#,
                ),
            ),
        ] {
            assert!(!wants_extension(&error(code, data)), "{code} {data:?}");
        }
    }

    #[test]
    fn a_question_of_a_task_looks_like_one_of_its_call() {
        let body = question(br#"{"a":{"method":"elicitation/create"}}"#, "s\"");
        assert_eq!(
            body.raw,
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}},"requestState":"s\""}"#
        );
        assert!(body.shape.has_type && !body.shape.complete);
        assert!(!is_created(&body));
    }
}
