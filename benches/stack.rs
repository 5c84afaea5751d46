//! What one request costs in the whole stack, from its head to the last byte of its answer, with
//! everything on: identity, policy, limits, validation, audit, traces, metrics.
//!
//!     cargo bench --bench stack [-- FILTER]
//!
//! Without `--bench`, as `cargo test --benches` calls it, each runs once, to show that it does.
//! One core, one request at a time, no socket: the server is a function that answers at once.
//! Records of the audit log are made and chained, and go to the null device. What sockets add is
//! in `end_to_end`.
//!
//! Measured 2026-11-30 on two shared cores of an Intel Xeon (a slow hour of a noisy machine: the
//! ratios count), medians of a quick run:
//!
//! | request | 2026-07-28 | MCP-Lite |
//! |---|---|---|
//! | tools/call, 300 B | 20.5 µs | 19.5 µs |
//! | tools/call, 10 KB | 37.5 µs | 40.1 µs |
//! | tools/list, 1,000 tools | 9.4 µs | 6.2 µs |

mod common;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use hangu::{
    body::Body,
    error::Error,
    mcp::Method,
    model::{
        call::{ClientAddr, Route, Surface},
        server::UpstreamName,
    },
    stack::{
        self,
        trace::{Closer, TraceLayer},
    },
    upstream::Outgoing,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header as http_header};
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};

const TOOLS: usize = 1_000;
const RULES: usize = 100;
/// Requests that are made beforehand, so that making them is not measured.
const BATCH: u64 = 64;

/// The server: a result of one size, in the dialect that is asked for by the path.
async fn serve(outgoing: Outgoing, result: Bytes) -> Result<Response<Body>, Error> {
    const ID: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
    let body = if outgoing.suffix.is_empty() {
        let sent = outgoing.request.into_body().collect().await;
        let sent = sent.map_or_else(|_| Bytes::new(), |sent| sent.to_bytes());
        let id = sent.strip_prefix(ID).unwrap_or_default();
        let id = id.split(|byte| *byte == b',').next().unwrap_or_default();
        common::answer(id, &result)
    } else {
        result
    };
    let mut response = Response::new(Body::from(body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(http_header::CONTENT_TYPE, json);
    Ok(response)
}

/// The stack before such a server, with the layer that opens and closes exchanges around it.
fn gateway(
    engines: &stack::Engines,
    result: usize,
) -> impl Service<Request<Full<Bytes>>, Response = Response<Body>, Error = Infallible> + Clone {
    let result = common::result(result);
    let terminal = service_fn(move |outgoing| serve(outgoing, result.clone()));
    let (telemetry, audit, keys) = (&engines.telemetry, &engines.audit, &engines.keys);
    let closer = Arc::new(Closer::new(telemetry.clone(), audit.clone(), keys.clone()));
    let trace = TraceLayer::new(telemetry.clone(), closer, engines.clock.clone());
    trace.layer(stack::build(engines, terminal))
}

/// A request as it comes from the edge, any number of times.
struct Template {
    route: Route,
    headers: HeaderMap,
    body: Bytes,
}

impl Template {
    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = http::Method::POST;
        *request.headers_mut() = self.headers.clone();
        let client = ClientAddr { ip: std::net::Ipv4Addr::LOCALHOST.into(), port: 50_000 };
        request.extensions_mut().insert(client);
        request.extensions_mut().insert(self.route.clone());
        request
    }
}

/// Sends a request and reads its answer to the end.
async fn send<S>(stack: &mut S, request: Request<Full<Bytes>>) -> (StatusCode, usize)
where
    S: Service<Request<Full<Bytes>>, Response = Response<Body>, Error = Infallible>,
{
    let Ok(ready) = stack.ready().await;
    let Ok(response) = ready.call(request).await;
    let status = response.status();
    let mut body = response.into_body();
    let mut length = 0;
    while let Some(Ok(frame)) = body.frame().await {
        length += frame.data_ref().map_or(0, Bytes::len);
    }
    (status, length)
}

/// Sends as many, batch by batch, and measures all but making them. An answer of another length
/// than the first had would be another answer: a refusal, say.
async fn measure<S>(stack: &mut S, template: &Template, length: usize, count: u64) -> Duration
where
    S: Service<Request<Full<Bytes>>, Response = Response<Body>, Error = Infallible>,
{
    let (mut took, mut left) = (Duration::ZERO, count);
    while left > 0 {
        let batch: Vec<_> = (0..left.min(BATCH)).map(|_| template.request()).collect();
        left -= batch.len() as u64;
        let started = Instant::now();
        for request in batch {
            assert_eq!(send(stack, request).await, (StatusCode::OK, length));
        }
        took += started.elapsed();
    }
    took
}

/// Sees that the answer is the one to be measured, by something that it holds and by its size,
/// give or take the envelope of the dialect. Gives its length.
async fn check<S>(stack: &mut S, template: &Template, size: usize, holds: &str) -> usize
where
    S: Service<Request<Full<Bytes>>, Response = Response<Body>, Error = Infallible>,
{
    let Ok(ready) = stack.ready().await;
    let Ok(response) = ready.call(template.request()).await;
    let (status, body) = (response.status(), response.into_body().collect().await);
    let body = body.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
    let text = String::from_utf8_lossy(&body);
    let shown: String = text.chars().take(300).collect();
    assert_eq!(status, StatusCode::OK, "{shown}");
    assert!(body.len() * 10 >= size * 9 && text.contains(holds), "{} bytes: {shown}", body.len());
    assert!(!text.contains("\"isError\":true"), "{shown}");
    body.len()
}

fn whole(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("there is a runtime");
    let engines = common::engines(TOOLS, RULES);
    let mut group = c.benchmark_group("stack");
    for dialect in ["modern", "mcp-lite"] {
        for (name, size) in common::RESULTS.into_iter().take(2) {
            let mut stack = gateway(&engines, size);
            let call = template(dialect, Method::CallTool);
            let length = runtime.block_on(check(&mut stack, &call, size, "order 4711"));
            group.bench_function(BenchmarkId::new(format!("call, {dialect}"), name), |b| {
                b.iter_custom(|count| runtime.block_on(measure(&mut stack, &call, length, count)));
            });
        }
        // A kept list, as all but the first caller of a kind get it.
        let mut stack = gateway(&engines, 0);
        let list = template(dialect, Method::ListTools);
        let last = format!("\"{}\"", common::tool_name(TOOLS - 1));
        let length = runtime.block_on(check(&mut stack, &list, TOOLS * 300, &last));
        group.bench_function(BenchmarkId::new(format!("list, {dialect}"), TOOLS), |b| {
            b.iter_custom(|count| runtime.block_on(measure(&mut stack, &list, length, count)));
        });
    }
    group.finish();
    runtime.block_on(engines.audit.stop()).expect("the null device takes every record");
}

/// The request of a method in a dialect; the upstream speaks the same one.
fn template(dialect: &str, method: Method) -> Template {
    let is_lite = dialect == "mcp-lite";
    let upstream = if is_lite { common::PROVIDER } else { common::SERVER };
    let surface = Surface::Upstream(UpstreamName::parse(upstream).expect("it is a name"));
    let tool = (method == Method::CallTool).then(|| common::tool_name(TOOLS / 2));
    let tool = tool.as_deref();
    if is_lite {
        let body = tool.map_or(Bytes::from_static(b"{}"), common::lite_call);
        return Template {
            route: Route::Lite(surface, method),
            headers: common::lite_headers(),
            body,
        };
    }
    let (_, size) = common::CALLS[0];
    let body = tool.map_or_else(common::list, |tool| common::call(tool, size));
    Template { route: Route::Mcp(surface), headers: common::headers(method, tool), body }
}

criterion_group!(benches, whole);
criterion_main!(benches);
