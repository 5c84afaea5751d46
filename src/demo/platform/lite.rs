//! MCP-Lite in front of the platform: the body is the `params`, the answer is the `result`.
//!
//! A failure has no `isError` here: it is an HTTP status with `{"error": {code, message}}`, as
//! REST services tell theirs. So a task that is not the employee's is a 404.

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Platform;
use crate::{
    body::Body,
    demo::{
        http as web,
        provider::{self, Failure, Provider, ToolCall},
    },
    error::Code,
    model::caller::{EmployeeId, TenantId},
};

/// Answers one HTTP request that is not for the MCP path.
pub(super) async fn handle(platform: &Platform, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    if let Err(failure) = platform.admit(&head.headers) {
        let mut response = web::refuse(&failure);
        let challenge = HeaderValue::from_static("ApiKey");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        return response;
    }
    let lists = match head.uri.path() {
        "/mcp/tools/list" => true,
        "/mcp/tools/call" => false,
        _ => return web::refuse(&Failure::new(Code::NotFound, "there is nothing at this path")),
    };
    if head.method != Method::POST {
        let mut response = web::empty(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let bytes = match web::json_body(&head, body).await {
        Ok(bytes) => bytes,
        Err(error) => {
            return web::json(error.status, &Failure::new(error.code, error.message).to_json());
        }
    };
    let outcome = if lists {
        list(platform, &head.headers, &bytes)
    } else {
        call(platform, &head.headers, &bytes).await
    };
    match outcome {
        Ok(result) => web::json(StatusCode::OK, &result),
        Err(failure) => web::refuse(&failure),
    }
}

/// The body of a list. Members that are not named here mean nothing to this provider.
#[derive(Deserialize)]
struct ListParams {
    cursor: Option<Value>,
}

/// The body of a call, `_meta` and whatever else may come left aside.
#[derive(Deserialize)]
struct CallParams {
    name: String,
    #[serde(default)]
    arguments: Option<Value>,
    user: Option<User>,
}

/// The employee as the gateway injects it. The roles it adds are its own policy's affair: here
/// ownership decides.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct User {
    emp_id: String,
    tenant: Option<String>,
}

fn list(platform: &Platform, headers: &HeaderMap, body: &[u8]) -> Result<Value, Failure> {
    provider::note_method(platform, "tools/list", headers);
    let params: ListParams = read(body)?;
    // All tools fit one page, so no cursor was ever given out.
    if params.cursor.is_some() {
        return Err(Failure::new(Code::InvalidArgs, "there is no such cursor"));
    }
    Ok(json!({ "tools": platform.toolbox().listing() }))
}

async fn call(platform: &Platform, headers: &HeaderMap, body: &[u8]) -> Result<Value, Failure> {
    let params: CallParams = read(body)?;
    let claimed = params.user.map(User::parse).transpose();
    let caller = match claimed {
        Ok(claimed) => platform.employee(headers, claimed).await,
        Err(failure) => Err(failure),
    };
    let arguments = params.arguments.unwrap_or_else(|| Value::Object(Map::new()));
    let call = ToolCall { headers, tool: &params.name, arguments: &arguments };
    let value = provider::perform(platform, call, caller).await?;
    Ok(provider::tool_result(&value, false))
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        Failure::new(Code::InvalidArgs, format!("the body is not what was expected: {error}"))
    })
}

// === impl User ===

impl User {
    fn parse(self) -> Result<(EmployeeId, Option<TenantId>), Failure> {
        let emp_id = EmployeeId::parse(&self.emp_id).ok_or_else(|| {
            Failure::new(Code::InvalidArgs, "user.empId must be one employee's id")
        })?;
        Ok((emp_id, self.tenant.map(TenantId::new)))
    }
}
