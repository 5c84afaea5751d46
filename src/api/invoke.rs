//! `POST /v1/invoke`: one call of one tool, its answer the tool's result as MCP-Lite has it.

use http::{HeaderValue, Response, header as http_header};

use super::{
    calls::{Answer, Invocation, Made, Server, ToolCalls, one_header, source},
    input::{self, Input, wrong},
};
use crate::{
    body::Body,
    error::Error,
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
    input::query(request.parts.uri.query(), [])?;
    let invocation = read(request)?;
    let Made { result, .. } = tools.make(calls, request, &request.exchange, invocation).await;
    Ok(told(result?))
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
    for (name, value) in headers {
        own.append(name, value);
    }
    response
}
