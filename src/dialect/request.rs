//! Reading a method's `params`, which every dialect spells alike.
//!
//! Arguments and unknown members stay slices of the body. A member named `user` is never taken
//! from a client: it is how the gateway tells a provider who calls.

use crate::{
    error::{Code, Error, Form},
    json::{Kind, Value},
    mcp::{Capabilities, Family, LogLevel, Method, meta, rpc},
    model::call::{Ask, Meta, Misread, Notices, RawMember, RawMembers, Request, Target, ToolCall},
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
        Method::ListTools => read_list(Family::Tools, params)?,
        Method::ListPrompts => read_list(Family::Prompts, params)?,
        Method::ListResources => read_list(Family::Resources, params)?,
        Method::ListTemplates => read_list(Family::Templates, params)?,
        Method::CallTool => Request::CallTool(Box::new(read_tool_call(params)?)),
        Method::GetPrompt => read_ask(method, params, "name", Target::Prompt)?,
        Method::ReadResource | Method::Subscribe | Method::Unsubscribe => {
            read_ask(method, params, "uri", Target::Resource)?
        }
        Method::GetTask | Method::UpdateTask | Method::CancelTask => {
            read_ask(method, params, "taskId", Target::Task)?
        }
        Method::Complete => read_complete(params)?,
        Method::SetLevel => {
            let level = params.and_then(|params| params.get("level")).and_then(Value::as_str);
            let level = level.and_then(|level| LogLevel::parse(&level));
            Request::SetLevel(level.ok_or_else(|| invalid("`params.level` is no log level"))?)
        }
        Method::Listen => Request::Listen(Box::new(read_notices(params)?)),
        other => Request::Notification(other),
    };
    Ok((request, meta))
}

/// Sees to it that a fault of a request is told after it is known that its family is served.
pub fn served_first(
    method: Method,
    params: Option<Value<'_>>,
    read: Result<(Request, Meta), Error>,
) -> Result<(Request, Meta), Error> {
    let asks = matches!(
        method,
        Method::GetPrompt
            | Method::ReadResource
            | Method::Complete
            | Method::GetTask
            | Method::UpdateTask
            | Method::CancelTask
    );
    let fault = match read {
        Err(fault) if asks => fault,
        other => return other,
    };
    let Form::Protocol { rpc_code, status, .. } = *fault.form() else { return Err(fault) };
    // Where it is wrong itself, that is the fault.
    let Ok(meta) = read_meta(params.filter(|params| params.kind() == Kind::Object)) else {
        return Err(fault);
    };
    let message = fault.message().into();
    Ok((Request::Misread(Box::new(Misread { method, code: rpc_code, status, message })), meta))
}

fn read_list(family: Family, params: Option<Value<'_>>) -> Result<Request, Error> {
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

/// A request about what the member `named` names.
fn read_ask(
    method: Method,
    params: Option<Value<'_>>,
    named: &str,
    target: fn(Box<str>) -> Target,
) -> Result<Request, Error> {
    let missing = || invalid(format!("`params.{named}` is missing"));
    let mut name = None;
    let mut others = RawMembers::new();
    for (key, value) in params.ok_or_else(missing)?.members() {
        match &*key.unescaped() {
            member if member == named => {
                let text = value.as_str();
                let text = text.ok_or_else(|| invalid(format!("`params.{named}` is no string")))?;
                name = Some(target(text.into()));
            }
            "arguments" if value.kind() != Kind::Object => {
                return Err(invalid("`params.arguments` must be an object"));
            }
            "_meta" | "user" => {}
            _ => others.push(RawMember { key: key.bytes(), value: value.bytes() }),
        }
    }
    let target = name.ok_or_else(missing)?;
    Ok(Request::Ask(Box::new(Ask { method, target, params: others })))
}

/// The reference stays among the params as it came: it may hold more than a name.
fn read_complete(params: Option<Value<'_>>) -> Result<Request, Error> {
    let missing = || invalid("`params.ref` is missing");
    let params = params.ok_or_else(missing)?;
    let reference = params.get("ref").ok_or_else(missing)?;
    let kind = reference.get("type").and_then(Value::as_str).unwrap_or_default();
    let text = |member: &str| {
        let text = reference.get(member).and_then(Value::as_str).map(Box::from);
        text.ok_or_else(|| invalid(format!("`params.ref.{member}` must be a string")))
    };
    let target = match &*kind {
        "ref/prompt" => Target::Prompt(text("name")?),
        "ref/resource" => Target::Template(text("uri")?),
        _ => {
            return Err(invalid("`params.ref.type` must be \"ref/prompt\" or \"ref/resource\""));
        }
    };
    let argument = params.get("argument");
    let has = |member: &str| {
        let value = argument.and_then(|argument| argument.get(member));
        value.is_some_and(|value| value.kind() == Kind::String)
    };
    if !has("name") || !has("value") {
        return Err(invalid("`params.argument` needs `name` and `value`, both strings"));
    }
    if params.get("context").is_some_and(|context| context.kind() != Kind::Object) {
        return Err(invalid("`params.context` must be an object"));
    }
    let members = params.members().filter(|(key, _)| !key.is("_meta") && !key.is("user"));
    let params =
        members.map(|(key, value)| RawMember { key: key.bytes(), value: value.bytes() }).collect();
    Ok(Request::Ask(Box::new(Ask { method: Method::Complete, target, params })))
}

/// The filter of `subscriptions/listen`; kinds of notices that are not known are left out, as
/// the acknowledgement will say.
fn read_notices(params: Option<Value<'_>>) -> Result<Notices, Error> {
    let filter = params.and_then(|params| params.get("notifications"));
    let filter = filter.filter(|filter| filter.kind() == Kind::Object);
    read_filter(filter.ok_or_else(|| invalid("`params.notifications` must be an object"))?)
}

/// The members of such a filter, a client's or a server's.
pub(super) fn read_filter(filter: Value<'_>) -> Result<Notices, Error> {
    let wanted = |member: &str| match filter.get(member) {
        None => Ok(false),
        Some(value) => value
            .as_bool()
            .ok_or_else(|| invalid(format!("`params.notifications.{member}` is no boolean"))),
    };
    let texts = |member: &str| {
        let Some(value) = filter.get(member) else { return Ok(Vec::new()) };
        let wrong = || invalid(format!("`params.notifications.{member}` is no list of strings"));
        if value.kind() != Kind::Array {
            return Err(wrong());
        }
        value.elements().map(|text| text.as_str().map(Box::from).ok_or_else(wrong)).collect()
    };
    Ok(Notices {
        tools: wanted("toolsListChanged")?,
        prompts: wanted("promptsListChanged")?,
        resources: wanted("resourcesListChanged")?,
        updates: texts("resourceSubscriptions")?,
        tasks: texts("taskIds")?,
    })
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
        match &*key.name() {
            b"name" => {
                let text = value.as_str().ok_or_else(|| invalid("`params.name` is no string"))?;
                name = Some(text.into());
            }
            b"arguments" if value.kind() == Kind::Object => arguments = Some(value.bytes()),
            b"arguments" => return Err(invalid("`params.arguments` must be an object")),
            // `user` is the gateway's to say; `task` belongs to a draft that is not served.
            b"_meta" | b"user" | b"task" => {}
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
        match &*key.name() {
            name if name == meta::PROGRESS_TOKEN.as_bytes() => match value.kind() {
                Kind::String | Kind::Number => read.progress_token = Some(value.bytes()),
                _ => return Err(invalid("`progressToken` must be a string or an integer")),
            },
            name if name == meta::IDEMPOTENCY_KEY.as_bytes() => {
                let text = value.as_str();
                let text = text.ok_or_else(|| invalid("the idempotency key must be a string"))?;
                read.idempotency_key = Some(text.into());
            }
            name if name == meta::DRY_RUN.as_bytes() => {
                let wrong = || invalid("`dev.hangu/dryRun` must be true or false");
                read.dry_run = value.as_bool().ok_or_else(wrong)?;
            }
            name if name == meta::CLIENT_CAPABILITIES.as_bytes() => {
                read.capabilities = capabilities(value)
            }
            name if name == meta::LOG_LEVEL.as_bytes() => {
                let level = value.as_str().and_then(|text| LogLevel::parse(&text));
                read.log_level = Some(level.ok_or_else(|| invalid("the log level is unknown"))?);
            }
            name if name == meta::TRACEPARENT.as_bytes() => {
                read.traceparent = value.as_str().map(Into::into)
            }
            name if name == meta::TRACESTATE.as_bytes() => {
                read.tracestate = value.as_str().map(Into::into)
            }
            _ => {}
        }
        read.members.push(RawMember { key: key.bytes(), value: value.bytes() });
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::json::{Doc, Duplicates, Limits};

    fn read_params(method: Method, params: &str) -> Result<Request, String> {
        let limits = Limits { depth: 64, duplicates: Duplicates::Refuse, outline: 3 };
        let doc = Doc::parse(Bytes::copy_from_slice(params.as_bytes()), &limits).unwrap();
        match read(method, Some(doc.root())) {
            Ok((request, _)) => Ok(request),
            Err(error) => {
                assert_eq!(super::super::fault::rpc_code(&error), rpc::INVALID_PARAMS);
                Err(error.message().to_owned())
            }
        }
    }

    fn ask(method: Method, params: &str) -> (Target, String) {
        let Ok(Request::Ask(ask)) = read_params(method, params) else { panic!("{params}") };
        assert_eq!(ask.method, method);
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let members = ask.params.iter().map(|m| format!("{}={}", text(&m.key), text(&m.value)));
        (ask.target, members.collect::<Vec<_>>().join(";"))
    }

    #[test]
    fn what_a_request_is_about_is_read_and_the_rest_stays_as_it_came() {
        for (method, params, target, rest) in [
            (
                Method::GetPrompt,
                r#"{"arguments":{"n": 1.0},"name":"a\u0062","_meta":{},"user":1,"\u0061b":[1e2]}"#,
                Target::Prompt("ab".into()),
                r#"arguments={"n": 1.0};\u0061b=[1e2]"#,
            ),
            (
                Method::ReadResource,
                r#"{"uri":"file:///a","requestState":"s","later":12345678901234567890}"#,
                Target::Resource("file:///a".into()),
                r#"requestState="s";later=12345678901234567890"#,
            ),
            (Method::Subscribe, r#"{"uri":"a:b"}"#, Target::Resource("a:b".into()), ""),
            (Method::Unsubscribe, r#"{"uri":"a:b"}"#, Target::Resource("a:b".into()), ""),
            (Method::GetTask, r#"{"taskId":"t"}"#, Target::Task("t".into()), ""),
            (
                Method::UpdateTask,
                r#"{"taskId":"t","inputResponses":{}}"#,
                Target::Task("t".into()),
                "inputResponses={}",
            ),
            (
                Method::Complete,
                r#"{"ref":{"type":"ref/prompt","name":"p","title":"T"},"argument":{"name":"a","value":""},"context":{}}"#,
                Target::Prompt("p".into()),
                r#"ref={"type":"ref/prompt","name":"p","title":"T"};argument={"name":"a","value":""};context={}"#,
            ),
            (
                Method::Complete,
                r#"{"ref":{"type":"ref/resource","uri":"a:{b}"},"argument":{"name":"b","value":"x"}}"#,
                Target::Template("a:{b}".into()),
                r#"ref={"type":"ref/resource","uri":"a:{b}"};argument={"name":"b","value":"x"}"#,
            ),
        ] {
            assert_eq!(ask(method, params), (target, rest.to_owned()), "{params}");
        }
    }

    #[test]
    fn params_of_another_shape_are_refused() {
        let argument = r#""argument":{"name":"a","value":"v"}"#;
        for (method, params) in [
            (Method::GetPrompt, "{}".to_owned()),
            (Method::GetPrompt, r#"{"name":1}"#.to_owned()),
            (Method::GetPrompt, r#"{"name":"a","arguments":[]}"#.to_owned()),
            (Method::GetPrompt, r#"{"name":"a","arguments":null}"#.to_owned()),
            (Method::ReadResource, r#"{"uri":null}"#.to_owned()),
            (Method::ReadResource, r#"{"name":"a"}"#.to_owned()),
            (Method::CancelTask, r#"{"taskId":7}"#.to_owned()),
            (Method::Complete, format!("{{{argument}}}")),
            (Method::Complete, format!(r#"{{"ref":"p",{argument}}}"#)),
            (Method::Complete, format!(r#"{{"ref":{{"type":"ref/tool","name":"p"}},{argument}}}"#)),
            (
                Method::Complete,
                format!(r#"{{"ref":{{"type":"ref/prompt","uri":"p"}},{argument}}}"#),
            ),
            (Method::Complete, r#"{"ref":{"type":"ref/prompt","name":"p"}}"#.to_owned()),
            (
                Method::Complete,
                r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":1}}"#
                    .to_owned(),
            ),
            (
                Method::Complete,
                format!(r#"{{"ref":{{"type":"ref/prompt","name":"p"}},{argument},"context":1}}"#),
            ),
            (Method::SetLevel, r#"{"level":"loud"}"#.to_owned()),
            (Method::SetLevel, "{}".to_owned()),
            (Method::Listen, "{}".to_owned()),
            (Method::Listen, r#"{"notifications":{"toolsListChanged":1}}"#.to_owned()),
            (Method::Listen, r#"{"notifications":{"resourceSubscriptions":[1]}}"#.to_owned()),
            (Method::Listen, r#"{"notifications":{"taskIds":"t"}}"#.to_owned()),
            (Method::ListPrompts, r#"{"cursor":1}"#.to_owned()),
            (Method::ListTemplates, "[]".to_owned()),
        ] {
            assert!(read_params(method, &params).is_err(), "{method:?} {params}");
        }
    }

    #[test]
    fn every_family_is_listed_by_its_method() {
        for family in Family::ALL {
            let read = read_params(family.list_method(), r#"{"cursor":"c"}"#).unwrap();
            let Request::List { family: of, cursor } = read else { panic!("{family:?}") };
            assert_eq!((of, cursor.as_deref()), (family, Some("c")));
        }
    }

    #[test]
    fn a_filter_names_what_is_to_be_heard_of() {
        let params = r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["a:b"],"taskIds":["t"],"later":{}}}"#;
        let Ok(Request::Listen(notices)) = read_params(Method::Listen, params) else { panic!() };
        let expected = Notices {
            tools: true,
            prompts: false,
            resources: false,
            updates: vec!["a:b".into()],
            tasks: vec!["t".into()],
        };
        assert_eq!(*notices, expected);
    }

    #[test]
    fn a_level_is_read() {
        let read = read_params(Method::SetLevel, r#"{"level":"warning"}"#);
        assert!(matches!(read, Ok(Request::SetLevel(LogLevel::Warning))), "{read:?}");
    }
}
