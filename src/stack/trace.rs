//! Opens the exchange: its trace, its record, its clock; and closes it on whatever path it ends.
//!
//! The record is made when the last who knows of the exchange lets go of it: after the last byte
//! of a stream, after a call that outlived its connection, or when a caller leaves.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::{
    audit::{Audit, Keys, Record},
    body::{Body, BoxBody, BoxError},
    clock::Clock,
    mcp::{Method, header},
    model::{
        call::{ClientAddr, Route, Surface},
        exchange::{Closing, Exchange, Facts, HttpFacts, Outcome},
    },
    telemetry::Telemetry,
};

/// Opens an exchange for every request.
#[derive(Clone)]
pub struct TraceLayer {
    telemetry: Arc<Telemetry>,
    closing: Arc<dyn Closing>,
    clock: Clock,
}

impl TraceLayer {
    pub fn new(telemetry: Arc<Telemetry>, closing: Arc<dyn Closing>, clock: Clock) -> Self {
        Self { telemetry, closing, clock }
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Trace<S> {
        Trace { inner, layer: self.clone() }
    }
}

#[derive(Clone)]
pub struct Trace<S> {
    inner: S,
    layer: TraceLayer,
}

impl<S, B> Service<Request<B>> for Trace<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = TraceFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let layer = &self.layer;
        let trace = layer.telemetry.begin(request.headers());
        let closing = Some(layer.closing.clone());
        let exchange =
            Arc::new(Exchange::new(trace, Instant::now(), layer.clock.now_ms(), closing));
        {
            let mut facts = exchange.facts();
            facts.http = Some(HttpFacts {
                method: method_name(request.method()),
                route: template(request.extensions().get()),
                version: request.version(),
            });
            if let Some(client) = request.extensions().get::<ClientAddr>() {
                facts.address = Some(client.ip);
                facts.port = Some(client.port);
            }
        }
        request.extensions_mut().insert(exchange.clone());
        TraceFuture { inner: self.inner.call(request), exchange: Some(exchange) }
    }
}

fn method_name(method: &http::Method) -> &'static str {
    match *method {
        http::Method::GET => "GET",
        http::Method::POST => "POST",
        http::Method::DELETE => "DELETE",
        http::Method::OPTIONS => "OPTIONS",
        http::Method::HEAD => "HEAD",
        http::Method::PUT => "PUT",
        http::Method::PATCH => "PATCH",
        _ => "_OTHER",
    }
}

/// The path's template; a path itself may name anything.
fn template(route: Option<&Route>) -> &'static str {
    match route {
        Some(Route::Mcp(Surface::Aggregate)) => "/mcp",
        Some(Route::Mcp(Surface::Upstream(_))) => "/mcp/{upstream}",
        Some(Route::Lite(Surface::Aggregate, Method::CallTool)) => "/mcp/tools/call",
        Some(Route::Lite(Surface::Aggregate, _)) => "/mcp/tools/list",
        Some(Route::Lite(Surface::Upstream(_), Method::CallTool)) => "/mcp/{upstream}/tools/call",
        // Who serves it says more exactly what it is.
        Some(Route::V1) => "/v1",
        Some(Route::Lite(Surface::Upstream(_), _)) => "/mcp/{upstream}/tools/list",
        None => "_OTHER",
    }
}

pin_project! {
    pub struct TraceFuture<F> {
        #[pin]
        inner: F,
        exchange: Option<Arc<Exchange>>,
    }
}

impl<F> Future for TraceFuture<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(mut response) = ready!(this.inner.poll(cx));
        let Some(exchange) = this.exchange.take() else { return Poll::Ready(Ok(response)) };
        let trace_id = {
            let mut facts = exchange.facts();
            facts.status.get_or_insert(response.status().as_u16());
            facts.bytes_out = response.body().len().unwrap_or(0);
            facts.trace.trace_id_digits()
        };
        if let Ok(trace_id) = HeaderValue::from_bytes(&trace_id) {
            response.headers_mut().insert(header::TRACE_ID, trace_id);
        }
        // What is whole is as good as sent; a stream keeps its exchange open to its end.
        let response = response.map(|body| match body {
            Body::Stream(inner) => Body::stream(Recorded { inner, exchange, sent: 0 }),
            whole => whole,
        });
        Poll::Ready(Ok(response))
    }
}

/// A streamed body that keeps its exchange open and counts what went out.
struct Recorded {
    inner: BoxBody,
    exchange: Arc<Exchange>,
    sent: u64,
}

impl HttpBody for Recorded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(self.inner.as_mut().poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.sent += data.len() as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.exchange.facts().bytes_out = self.sent;
    }
}

// === The end of an exchange ===

/// Makes the record, the spans, the metrics and the one log line of an exchange.
pub struct Closer {
    telemetry: Arc<Telemetry>,
    audit: Arc<Audit>,
    keys: Arc<Keys>,
}

impl Closer {
    pub fn new(telemetry: Arc<Telemetry>, audit: Arc<Audit>, keys: Arc<Keys>) -> Self {
        Self { telemetry, audit, keys }
    }
}

impl Closing for Closer {
    fn close(&self, exchange: &Exchange, mut facts: Facts) {
        let ended = Instant::now();
        // Nobody said how it ended: whoever waited for it is gone.
        let outcome = *facts.outcome.get_or_insert(Outcome::Cancelled);
        if facts.entered {
            if self.telemetry.is_exporting()
                && let (Some(tenant), Some(employee)) = (&facts.tenant, &facts.employee)
            {
                facts.employee_hash = Some(self.keys.principal(tenant, employee));
            }
            let took = ended.saturating_duration_since(exchange.started);
            let id = self.audit.append(&Record::call(&facts, exchange.started_ms, took));
            facts.audit_id = Some(id);
            log(&facts, outcome);
        }
        self.telemetry.finish(&facts, exchange.started, exchange.started_ms, ended);
    }
}

/// A failure is logged once, here, and only if it is somebody's to act on.
fn log(facts: &Facts, outcome: Outcome) {
    // A URI may hold what belongs into no log.
    let named = matches!(facts.method, Some(Method::CallTool | Method::GetPrompt));
    let tool = facts.tool.as_deref().filter(|_| named).unwrap_or_default();
    let fields = || {
        (
            facts.trace.trace_id_hex(),
            facts.code.map_or("", |code| code.as_str()),
            tool,
            facts.cause.as_deref().unwrap_or_default(),
        )
    };
    match outcome {
        Outcome::GatewayError => {
            let (trace_id, code, tool, cause) = fields();
            tracing::error!(
                trace_id,
                code,
                tool.name = tool,
                cause,
                "A call failed in the gateway"
            );
        }
        Outcome::UpstreamError => {
            let (trace_id, code, tool, cause) = fields();
            let upstream = facts.upstream.as_deref().unwrap_or_default();
            tracing::warn!(
                trace_id,
                code,
                upstream.name = upstream,
                tool.name = tool,
                cause,
                "An upstream failed"
            );
        }
        _ if tracing::enabled!(tracing::Level::DEBUG) => {
            let (trace_id, code, tool, cause) = fields();
            let outcome = outcome.as_str();
            tracing::debug!(trace_id, outcome, code, tool.name = tool, cause, "A call ended");
        }
        _ => {}
    }
}
