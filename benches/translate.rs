//! What the dialects cost: reading a client's call, writing it for a server, reading the server's
//! answer, writing it for the client, and rendering a list.
//!
//!     cargo bench --bench translate [-- FILTER]
//!
//! Without `--bench`, as `cargo test --benches` calls it, each runs once, to show that it does.
//! Nothing is sent; bytes per second are those of the whole message.
//!
//! Measured 2026-11-30 on two shared cores of an Intel Xeon (a slow hour of a noisy machine: the
//! ratios count), medians of a quick run:
//!
//! | request | 330 B | 10 KB | 1 MB |
//! |---|---|---|---|
//! | parse, duplicates refused | 935 ns | 30.2 µs | 3.36 ms |
//! | canonical arguments | 358 ns | 62.3 µs | 7.46 ms |
//! | read headers and params | 1.38 µs | 1.35 µs | 1.30 µs |
//! | write for 2026-07-28 | 853 ns | 1.50 µs | 906 ns |
//! | write for MCP-Lite | 415 ns | 927 ns | 433 ns |
//!
//! | result | 300 B | 10 KB | 1 MB |
//! |---|---|---|---|
//! | read | 934 ns | 7.08 µs | 692 µs |
//! | write for 2026-07-28 | 401 ns | 697 ns | 355 ns |
//! | write for the handshake revisions | 234 ns | 496 ns | 192 ns |
//!
//! A list of 20 tools is rendered in 3.3 µs and of 1,000 in 81 µs; kept, either costs 0.8 µs.

mod common;

use std::{future::ready, hint::black_box, sync::Arc};

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::FutureExt;
use hangu::{
    clock::Clock,
    dialect::{
        jsonrpc::{self, Message},
        north,
        south::{self, Incoming, Outbound, Speech},
        streamable_http,
    },
    error::{Code, Error},
    identity::{
        cursor::{self, Cursors},
        seal::Sealer,
    },
    json::{self, Doc, Value},
    mcp::{Family, Method, Version},
    model::{
        call::{Call, Client, Meta, Request, Surface, ToolCall},
        exchange::{Exchange, NorthDialect},
        reply::{Content, Final, Reply},
        trace::TraceContext,
    },
    stack::{
        route::RouteLayer,
        stage::{ListConfig, Permitted, Routed, Upstreams, World},
    },
};
use http::HeaderMap;
use tokio::time::Instant;
use tower::{Layer, Service, service_fn};

const TOOL: &str = "tool_0005";
/// Of a request to a server.
const ID: u64 = 4_711;

/// The call that a message holds.
fn read(headers: &HeaderMap, doc: &Doc) -> Option<(Box<ToolCall>, Meta)> {
    let Ok(Message::Request { method, params, .. }) = jsonrpc::read(doc) else { return None };
    match streamable_http::read_request(headers, &method, params) {
        Ok((Request::CallTool(call), meta)) => Some((call, meta)),
        _ => None,
    }
}

fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("request");
    let headers = common::headers(Method::CallTool, Some(TOOL));
    for (name, size) in common::CALLS {
        let text = common::call(TOOL, size);
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(BenchmarkId::new("parse", name), |b| {
            b.iter(|| Doc::parse(black_box(text.clone()), &common::NORTH));
        });

        let doc = common::parse(text);
        let arguments = doc.root().get("params").and_then(|params| params.get("arguments"));
        let arguments = arguments.map(Value::bytes).expect("a call has arguments");
        let mut out = Vec::with_capacity(size);
        group.bench_function(BenchmarkId::new("canonical arguments", name), |b| {
            b.iter(|| {
                out.clear();
                json::canonical(black_box(&arguments), &mut out);
                out.len()
            });
        });

        let (call, meta) = read(&headers, &doc).expect("it is a good call");
        assert_eq!((&*call.name, call.arguments.as_ref()), (TOOL, Some(&arguments)));
        group.bench_function(BenchmarkId::new("read_request", name), |b| {
            b.iter(|| read(black_box(&headers), black_box(&doc)));
        });

        let speeches = [("modern", Speech::Modern(Version::LATEST)), ("mcp-lite", Speech::Lite)];
        for (speech, of) in speeches {
            group.bench_function(BenchmarkId::new(format!("write for {speech}"), name), |b| {
                b.iter(|| {
                    let outbound = outbound(black_box(of), &call, &meta);
                    (outbound.body(), outbound.headers())
                });
            });
        }
    }
    group.finish();
}

fn outbound<'a>(speech: Speech, call: &'a ToolCall, meta: &'a Meta) -> Outbound<'a> {
    Outbound {
        speech,
        id: ID,
        method: Method::CallTool,
        tool: Some(TOOL),
        arguments: call.arguments.as_ref(),
        target: None,
        others: &call.others,
        cursor: None,
        meta,
        log_level: None,
        capabilities: Some(b"{}"),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tracestate: None,
        user: None,
    }
}

/// The end that a server's message holds.
fn end(text: Bytes) -> Option<Final> {
    match south::read_message(text, ID) {
        Ok(Incoming::End(end)) => Some(end),
        _ => None,
    }
}

fn results(c: &mut Criterion) {
    let mut group = c.benchmark_group("result");
    let dialects = [
        ("modern", NorthDialect::Modern),
        ("handshake", NorthDialect::Legacy(Version::LATEST_LEGACY)),
    ];
    for (name, size) in common::RESULTS {
        let text = common::answer(ID.to_string().as_bytes(), &common::result(size));
        group.throughput(Throughput::Bytes(text.len() as u64));
        let result = end(text.clone()).expect("it answers our request");
        group.bench_function(BenchmarkId::new("read_message", name), |b| {
            b.iter(|| end(black_box(text.clone())));
        });
        for (dialect, of) in dialects {
            group.bench_function(BenchmarkId::new(format!("write for {dialect}"), name), |b| {
                b.iter(|| north::response(black_box(b"17"), black_box(&result), of));
            });
        }
    }
    group.finish();
}

// === Lists ===

/// A listing that policy let through, in a world of its own.
fn listing(world: &Arc<World>) -> Permitted {
    let caller = common::caller();
    let view = world.rules.view(&caller.tenant, &caller.id, &caller.principal.roles);
    let exchange = Exchange::new(TraceContext::default(), Instant::now(), 0, None);
    let call = Call {
        exchange: Arc::new(exchange),
        caller: caller.into(),
        dialect: NorthDialect::Modern,
        surface: Surface::Aggregate,
        request: Request::List { family: Family::Tools, cursor: None },
        client: Client::default(),
        meta: Meta::default(),
        idempotency_key: None,
        headers: HeaderMap::new(),
    };
    let permit = view.permit_listing();
    Permitted::new(call, permit, world.clone(), None, None)
}

fn lists(c: &mut Criterion) {
    let mut group = c.benchmark_group("list");
    let lost = |_: Routed| ready(Err::<Reply, _>(Error::new(Code::Internal, "it lists nothing")));
    let cursors = Cursors::new(Sealer::random(cursor::PURPOSE).expect("there is randomness"));
    let config = ListConfig::default();
    let layer = RouteLayer::new(Arc::new(cursors), config, Clock::system());
    let mut router = layer.layer(service_fn(lost));
    let mut answer = |permitted| match router.call(permitted).now_or_never() {
        Some(Ok(Reply { content: Content::Final(Final::Result(body)), .. })) => Some(body.raw),
        _ => None,
    };
    for tools in [20, 1_000] {
        let catalog = Arc::new(common::catalog(&[common::SERVER], tools));
        let rules = Arc::new(common::bind(&common::policies(100), &catalog));
        let world = || Arc::new(World::new(catalog.clone(), Upstreams::from([]), rules.clone()));
        let kept = world();
        let raw = answer(listing(&kept)).expect("it is answered at once");
        let doc = Doc::parse(raw.clone(), &common::NORTH).expect("it is JSON");
        let listed = doc.root().get("tools").map_or(0, |tools| tools.elements().count());
        assert_eq!(listed, tools, "every tool is listed");
        group.throughput(Throughput::Bytes(raw.len() as u64));
        // The first of its kind in a new world.
        group.bench_function(BenchmarkId::new("rendered", tools), |b| {
            let fresh = || {
                let world = world();
                (listing(&world), world)
            };
            b.iter_batched(
                fresh,
                |(permitted, world)| (answer(permitted), world),
                BatchSize::LargeInput,
            );
        });
        // All the others.
        group.bench_function(BenchmarkId::new("kept", tools), |b| {
            b.iter_batched(|| listing(&kept), &mut answer, BatchSize::SmallInput);
        });
    }
    group.finish();
}

criterion_group!(benches, requests, results, lists);
criterion_main!(benches);
