//! Error → response in the caller's dialect: the only place that makes an answer of an error.
//!
//! It notes what became of the exchange; it logs nothing.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderValue, Request, Response, StatusCode, header as http_header};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::{
    body::Body,
    dialect::fault,
    error::{Code, Error, Form},
    mcp::header,
    model::{
        call::Route,
        exchange::{Exchange, Facts, NorthDialect},
    },
};

/// The scheme alone would be no challenge: RFC 6750, section 3, wants a parameter with it.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"hangu\"");

/// How a refused `tools/call` of a visible tool is told on standard MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolsCallErrors {
    /// A result with `isError`, which the model gets to read.
    #[default]
    Result,
    /// A JSON-RPC error.
    JsonRpc,
    /// A JSON-RPC error under the REST status of its code.
    Status,
}

/// Renders the errors of everything inside.
#[derive(Debug, Clone, Copy, Default)]
pub struct RespondLayer(pub ToolsCallErrors);

impl<S> Layer<S> for RespondLayer {
    type Service = Respond<S>;

    fn layer(&self, inner: S) -> Respond<S> {
        Respond { inner, tools_call: self.0 }
    }
}

#[derive(Debug, Clone)]
pub struct Respond<S> {
    inner: S,
    tools_call: ToolsCallErrors,
}

impl<S, B> Service<Request<B>> for Respond<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Error>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = RespondFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // An inner service that cannot be ready says why when it is called.
        self.inner.poll_ready(cx).map(|_| Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let exchange = request.extensions().get::<Arc<Exchange>>().cloned();
        if let Some(exchange) = &exchange {
            exchange.facts().refusals_as_results = self.tools_call == ToolsCallErrors::Result;
        }
        let lite = matches!(request.extensions().get(), Some(Route::Lite(..) | Route::V1));
        RespondFuture {
            exchange,
            lite,
            tools_call: self.tools_call,
            inner: self.inner.call(request),
        }
    }
}

pin_project! {
    pub struct RespondFuture<F> {
        exchange: Option<Arc<Exchange>>,
        lite: bool,
        tools_call: ToolsCallErrors,
        #[pin]
        inner: F,
    }
}

impl<F> Future for RespondFuture<F>
where
    F: Future<Output = Result<Response<Body>, Error>>,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let error = match ready!(this.inner.poll(cx)) {
            Ok(response) => return Poll::Ready(Ok(response)),
            Err(error) => error,
        };
        let response = match this.exchange {
            Some(exchange) => {
                let mut facts = exchange.facts();
                facts.failed(&error);
                respond(&error, &mut facts, *this.lite, *this.tools_call)
            }
            None => respond(&error, &mut Facts::default(), *this.lite, *this.tools_call),
        };
        Poll::Ready(Ok(response))
    }
}

/// The object of an error that is told inside a good answer.
pub fn object(error: &Error, trace_id: &str) -> Vec<u8> {
    fault::object(error, trace_id)
}

fn respond(
    error: &Error,
    facts: &mut Facts,
    lite: bool,
    tools_call: ToolsCallErrors,
) -> Response<Body> {
    let trace_id = facts.trace.trace_id_hex();
    let dialect = match facts.dialect {
        Some(dialect) => dialect,
        None if lite => NorthDialect::McpLite,
        None => NorthDialect::Modern,
    };
    let (status, body) = match dialect {
        NorthDialect::McpLite => (rest_status(error), fault::rest_body(error, &trace_id).into()),
        _ => {
            let as_result = fault::told_as_result(error, facts);
            let status =
                if as_result { 200 } else { rpc_status(error, dialect, facts, tools_call) };
            (status, fault::message(error, facts, dialect))
        }
    };
    facts.status = Some(status);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    headers.insert(http_header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in error.headers() {
        headers.append(name, value.clone());
    }
    if let Some(after) = error.retry_after() {
        // Delay-seconds, rounded up, and never earlier than what the body says.
        let seconds = after.as_millis().div_ceil(1000).max(1);
        if let Ok(seconds) = HeaderValue::from_str(&seconds.to_string()) {
            headers.insert(http_header::RETRY_AFTER, seconds);
        }
    }
    if status == 401 && !headers.contains_key(http_header::WWW_AUTHENTICATE) {
        headers.insert(http_header::WWW_AUTHENTICATE, CHALLENGE);
    }
    if facts.idempotency == Some("replayed") {
        headers.insert(header::IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

fn rest_status(error: &Error) -> u16 {
    match error.form() {
        Form::Http { status, .. } => *status,
        // A protocol error's own status is for JSON-RPC; REST has the taxonomy's.
        Form::Protocol { .. } | Form::Taxonomy => error.code().rest_status(),
    }
}

fn rpc_status(
    error: &Error,
    dialect: NorthDialect,
    facts: &Facts,
    tools_call: ToolsCallErrors,
) -> u16 {
    let modern = dialect == NorthDialect::Modern;
    match error.form() {
        Form::Http { status, .. } => *status,
        Form::Protocol { status, .. } if modern => *status,
        // Older clients take anything but 200 for a failure of the transport.
        Form::Protocol { .. } => 200,
        Form::Taxonomy if facts.rpc_id.is_none() => error.code().rest_status(),
        Form::Taxonomy if tools_call == ToolsCallErrors::Status => error.code().rest_status(),
        Form::Taxonomy if modern && error.code() == Code::RateLimited => 429,
        Form::Taxonomy => 200,
    }
}
