//! `POST /v1/invoke`: one call of one tool. Its answer is the tool's result as MCP-Lite has it,
//! or with `?format=` in the form of the agent runtime whose call it was.

use http::{HeaderName, HeaderValue, Response, header as http_header};

use super::{
    answer,
    calls::{Answer, Invocation, Made, Server, ToolCalls, one_header, source},
    input::{self, Input, wrong},
    tools::read_format,
};
use crate::{
    adapt::{Format, RuntimeCall, Told},
    body::Body,
    error::{Code, Error, Form},
    mcp::header,
    model::call_source::CallSource,
    stack::v1::{ApiRequest, Calls},
};

const MEMBERS: [&str; 6] =
    ["serverKey", "upstream", "toolName", "arguments", "idempotencyKey", "dryRun"];

pub(super) async fn invoke(
    tools: &ToolCalls,
    request: &ApiRequest,
    calls: Calls,
) -> Result<Response<Body>, Error> {
    source(request, CallSource::Agent)?;
    let [format] = input::query(request.parts.uri.query(), ["format"])?;
    match read_format(format.as_deref())? {
        Format::Mcp => {
            let invocation = read(request)?;
            let made = tools.make(calls, request, &request.exchange, invocation).await;
            Ok(told(made.result?))
        }
        format => runtime(tools, request, calls, format).await,
    }
}

/// The call that a body describes.
fn read(request: &ApiRequest) -> Result<Invocation, Error> {
    let input = Input::read(&request.parts.headers, request.body.clone(), &MEMBERS)?;
    let server = match (input.word("serverKey")?, input.word("upstream")?) {
        (Some(key), None) => Server::Key(key),
        (None, Some(name)) => Server::Upstream(name),
        _ => {
            let message = "name the server, either by `serverKey` or by `upstream`";
            return Err(wrong(message.to_owned()));
        }
    };
    let Some(tool) = input.word("toolName")? else {
        return Err(wrong("`toolName` is missing".to_owned()).with_pointer("/toolName"));
    };
    Ok(Invocation {
        server,
        tool,
        arguments: input.object("arguments")?,
        idempotency_key: input.word("idempotencyKey")?,
        key_header: key_header(request)?,
        dry_run: input.flag("dryRun")? | dry_run_header(request)?,
    })
}

fn key_header(request: &ApiRequest) -> Result<Option<Box<str>>, Error> {
    Ok(one_header(request, &header::IDEMPOTENCY_KEY)?.map(Into::into))
}

/// Whether the header says that only what would happen is asked.
fn dry_run_header(request: &ApiRequest) -> Result<bool, Error> {
    match one_header(request, &header::DRY_RUN)? {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        // Who means one is not to be served as if he did not.
        Some(_) => Err(wrong("the header X-Dry-Run is true or false".to_owned())),
    }
}

fn told(mut answer: Answer) -> Response<Body> {
    let headers = std::mem::take(&mut answer.headers);
    let mut response = Response::new(answer.into_body());
    let own = response.headers_mut();
    own.insert(http_header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    own.insert(http_header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    append(&mut response, headers);
    response
}

fn append(
    response: &mut Response<Body>,
    headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) {
    for (name, value) in headers {
        response.headers_mut().append(name, value);
    }
}

// === Agent runtimes ===

/// Makes a call that a runtime wrote, and answers as it wants its results.
async fn runtime(
    tools: &ToolCalls,
    request: &ApiRequest,
    calls: Calls,
    format: Format,
) -> Result<Response<Body>, Error> {
    let doc = input::document(&request.parts.headers, request.body.clone())?;
    let call = format
        .read_call(doc.root())
        .map_err(|fault| wrong(fault.message.into_owned()).with_pointer(fault.pointer))?;
    let invocation = Invocation {
        server: Server::Any,
        tool: tools.named(&request.caller, &call.name).await?,
        arguments: call.arguments.clone(),
        idempotency_key: None,
        key_header: key_header(request)?,
        dry_run: dry_run_header(request)?,
    };
    let Made { result, facts } = tools.make(calls, request, &request.exchange, invocation).await;
    match result {
        Ok(answer) => {
            let mut response = in_form(format, &call, Told::Result(answer.raw()))?;
            append(&mut response, answer.headers);
            Ok(response)
        }
        Err(error) if facts.admitted && is_for_the_model(request, &error) => {
            let mut response = in_form(format, &call, Told::Refused(error.message()))?;
            append(&mut response, error.headers().iter().cloned());
            append(&mut response, retry_after(&error));
            Ok(response)
        }
        Err(error) => Err(error),
    }
}

/// When the call may be made again, in whole seconds.
fn retry_after(error: &Error) -> Option<(HeaderName, HeaderValue)> {
    let seconds = error.retry_after()?.as_millis().div_ceil(1_000).max(1);
    let value = HeaderValue::from_str(&seconds.to_string()).ok()?;
    Some((http_header::RETRY_AFTER, value))
}

/// Whether a refusal is told as a result, as on `/mcp`: there, too, the model reads why a tool
/// that it can see was not called, unless the operator wants it otherwise.
fn is_for_the_model(request: &ApiRequest, error: &Error) -> bool {
    let mut facts = request.exchange.facts();
    let is = facts.refusals_as_results && *error.form() == Form::Taxonomy;
    if is {
        facts.status = Some(200);
    }
    is
}

fn in_form(format: Format, call: &RuntimeCall, told: Told<'_>) -> Result<Response<Body>, Error> {
    let json = serde_json::to_vec(&format.result(call, told)).map_err(|error| {
        Error::new(Code::Internal, "the result could not be told").with_cause(error)
    })?;
    Ok(answer(json))
}
