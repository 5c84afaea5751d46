//! Reading a method's `params`, which every dialect spells alike.
//!
//! Arguments and unknown members stay slices of the body. A member named `user` is never taken
//! from a client: it is how the gateway tells a provider who calls.

use crate::{
    error::{Code, Error},
    json::{Kind, Value},
    mcp::{Capabilities, Family, LogLevel, Method, meta, rpc},
    model::call::{Meta, RawMember, Request, ToolCall},
};

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 200, message)
}

/// The method's request, and the `_meta` that came with it. The caller has checked that the
/// method is one that is served.
pub fn read(method: Method, params: Option<Value<'_>>) -> Result<(Request, Meta), Error> {
    if params.is_some_and(|params| params.kind() != Kind::Object) {
        return Err(invalid("`params` must be an object"));
    }
    let meta = read_meta(params)?;
    let request = match method {
        Method::Discover => Request::Discover,
        Method::Ping => Request::Ping,
        Method::ListTools => list(Family::Tools, params)?,
        Method::ListPrompts => list(Family::Prompts, params)?,
        Method::ListResources => list(Family::Resources, params)?,
        Method::ListTemplates => list(Family::Templates, params)?,
        Method::CallTool => Request::CallTool(Box::new(read_tool_call(params)?)),
        other => Request::Notification(other),
    };
    Ok((request, meta))
}

fn list(family: Family, params: Option<Value<'_>>) -> Result<Request, Error> {
    let cursor = match params.and_then(|params| params.get("cursor")) {
        None => None,
        Some(cursor) if cursor.kind() == Kind::Null => None,
        // An empty one too is a cursor, and none of ours.
        Some(cursor) => {
            let text = cursor.as_str().ok_or_else(|| invalid("`cursor` is no string"))?;
            Some(text.into())
        }
    };
    Ok(Request::List { family, cursor })
}

/// What a client declares in its `capabilities`, of whatever revision.
pub fn capabilities(declared: Value<'_>) -> Capabilities {
    let mut all = Capabilities::NONE;
    for (name, value) in declared.members() {
        let has = |member: &str| value.get(member).is_some();
        match &*name.unescaped() {
            "roots" => all = all | Capabilities::ROOTS,
            "sampling" => {
                all = all | Capabilities::SAMPLING;
                if has("tools") {
                    all = all | Capabilities::SAMPLING_TOOLS;
                }
                if has("context") {
                    all = all | Capabilities::SAMPLING_CONTEXT;
                }
            }
            // An empty object means forms, as it did before there was anything else.
            "elicitation" => {
                if has("form") || !has("url") {
                    all = all | Capabilities::ELICITATION;
                }
                if has("url") {
                    all = all | Capabilities::ELICITATION_URL;
                }
            }
            "extensions" if has("io.modelcontextprotocol/tasks") => {
                all = all | Capabilities::TASKS;
            }
            _ => {}
        }
    }
    all
}

fn read_tool_call(params: Option<Value<'_>>) -> Result<ToolCall, Error> {
    let params = params.ok_or_else(|| invalid("`params.name` is missing"))?;
    let (mut name, mut arguments) = (None, None);
    let mut others = Vec::new();
    for (key, value) in params.members() {
        let unescaped = key.unescaped();
        match &*unescaped {
            "name" => {
                let text = value.as_str().ok_or_else(|| invalid("`params.name` is no string"))?;
                name = Some(text.into());
            }
            "arguments" if value.kind() == Kind::Object => arguments = Some(value.bytes()),
            "arguments" => return Err(invalid("`params.arguments` must be an object")),
            // `user` is the gateway's to say; `task` belongs to a draft that is not served.
            "_meta" | "user" | "task" => {}
            _ => others.push(RawMember { key: key.bytes(), value: value.bytes() }),
        }
    }
    let name = name.ok_or_else(|| invalid("`params.name` is missing"))?;
    Ok(ToolCall { name, arguments, others })
}

fn read_meta(params: Option<Value<'_>>) -> Result<Meta, Error> {
    let Some(value) = params.and_then(|params| params.get("_meta")) else {
        return Ok(Meta::default());
    };
    if value.kind() != Kind::Object {
        return Err(invalid("`_meta` must be an object"));
    }
    let mut read = Meta::default();
    for (key, value) in value.members() {
        match &*key.unescaped() {
            meta::PROGRESS_TOKEN => match value.kind() {
                Kind::String | Kind::Number => read.progress_token = Some(value.bytes()),
                _ => return Err(invalid("`progressToken` must be a string or an integer")),
            },
            meta::IDEMPOTENCY_KEY => {
                let text = value.as_str();
                let text = text.ok_or_else(|| invalid("the idempotency key must be a string"))?;
                read.idempotency_key = Some(text.into());
            }
            meta::CLIENT_CAPABILITIES => read.capabilities = capabilities(value),
            meta::LOG_LEVEL => {
                let level = value.as_str().and_then(|text| LogLevel::parse(&text));
                read.log_level = Some(level.ok_or_else(|| invalid("the log level is unknown"))?);
            }
            meta::TRACEPARENT => read.traceparent = value.as_str().map(Into::into),
            meta::TRACESTATE => read.tracestate = value.as_str().map(Into::into),
            _ => {}
        }
        read.members.push(RawMember { key: key.bytes(), value: value.bytes() });
    }
    Ok(read)
}
