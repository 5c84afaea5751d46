//! Contexts taken in, and the spans that come of an exchange.

use std::{collections::BTreeMap, time::UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SimpleSpanProcessor, SpanData};

use super::*;
use crate::{mcp::header, model::trace::TraceParent};

const REMOTE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const META: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn telemetry(trust: Trust, settings: &Settings) -> (Telemetry, InMemorySpanExporter) {
    let exporter = InMemorySpanExporter::default();
    let processor = Box::new(SimpleSpanProcessor::new(exporter.clone()));
    (Telemetry::with_processor(settings, trust, new_metrics(), Some(processor)), exporter)
}

fn trusting() -> (Telemetry, InMemorySpanExporter) {
    telemetry(Trust::Authenticated, &Settings::default())
}

fn headers(pairs: &[(http::HeaderName, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
}

fn invalid(telemetry: &Telemetry) -> bool {
    telemetry.metrics().expose(Format::Prometheus).contains("hangu_trace_context_invalid_total 1")
}

fn parsed(text: &str) -> TraceParent {
    TraceParent::parse(text).unwrap()
}

#[test]
fn a_good_context_is_continued() {
    let (telemetry, _) = trusting();
    let context = telemetry.begin(&headers(&[
        (header::TRACEPARENT, REMOTE),
        (header::TRACESTATE, "a=1"),
        (header::TRACESTATE, "b=2"),
    ]));
    let remote = parsed(REMOTE);
    assert_eq!(context.trace_id, remote.trace_id);
    assert_eq!(context.http_parent, Some(remote));
    assert!(context.sampled);
    assert_eq!(context.tracestate.as_deref(), Some("a=1,b=2"));
    assert_ne!(context.span_id, context.http_span);
    assert!(!invalid(&telemetry));
}

#[test]
fn a_bad_context_starts_a_trace_and_is_counted() {
    let upper = "00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01";
    for values in [&["00-bad-01"][..], &[upper], &[""], &[REMOTE, META]] {
        let (telemetry, _) = trusting();
        let mut pairs: Vec<_> = values.iter().map(|v| (header::TRACEPARENT, *v)).collect();
        pairs.push((header::TRACESTATE, "a=1"));
        let context = telemetry.begin(&headers(&pairs));
        assert_eq!((context.http_parent, &context.tracestate), (None, &None), "{values:?}");
        assert_ne!(context.trace_id, [0; 16]);
        assert!(invalid(&telemetry), "{values:?}");
    }
}

#[test]
fn a_state_alone_is_dropped_and_a_bad_one_spoils_nothing() {
    let (telemetry, _) = trusting();
    let alone = telemetry.begin(&headers(&[(header::TRACESTATE, "a=1")]));
    assert_eq!(alone.tracestate, None);
    let bad = headers(&[(header::TRACEPARENT, REMOTE), (header::TRACESTATE, "a=1,no entry")]);
    let context = telemetry.begin(&bad);
    assert_eq!((context.trace_id, context.tracestate), (parsed(REMOTE).trace_id, None));
    assert!(!invalid(&telemetry));
}

#[test]
fn a_state_is_kept_to_512_characters_in_whole_entries() {
    let (telemetry, _) = trusting();
    let long = format!("long={}", "x".repeat(200));
    let entries: Vec<String> = (10..40).map(|n| format!("k{n}={}", "v".repeat(20))).collect();
    let state = format!("{long},{}", entries.join(" , "));
    let mut headers = headers(&[(header::TRACEPARENT, REMOTE)]);
    headers.insert(header::TRACESTATE, HeaderValue::from_str(&state).unwrap());
    let kept = telemetry.begin(&headers).tracestate.unwrap();
    assert!(kept.len() <= 512 && kept.len() > 480, "{}", kept.len());
    assert_eq!(kept.split(',').collect::<Vec<_>>(), entries[..kept.split(',').count()]);
}

#[test]
fn the_context_of_meta_becomes_the_parent() {
    let (telemetry, _) = trusting();
    let mut context = telemetry.begin(&headers(&[(header::TRACEPARENT, REMOTE)]));
    telemetry.adopt_meta(&mut context, None, Some("a=1"));
    assert_eq!((context.meta_parent, &context.tracestate), (None, &None));
    telemetry.adopt_meta(&mut context, Some(META), Some("a=1"));
    assert_eq!(context.trace_id, parsed(META).trace_id);
    assert_eq!(context.http_trace, parsed(REMOTE).trace_id);
    assert_eq!(context.meta_parent, Some(parsed(META)));
    assert_eq!(context.tracestate.as_deref(), Some("a=1"));
    let before = context.clone();
    telemetry.adopt_meta(&mut context, Some("00-bad"), None);
    assert_eq!(context.trace_id, before.trace_id);
    assert!(invalid(&telemetry));
    let outgoing = context.outgoing([1; 8]).render();
    assert_eq!(outgoing, "00-0af7651916cd43dd8448eb211c80319c-0101010101010101-01");
}

#[test]
fn who_is_not_trusted_is_linked_and_decides_nothing() {
    let off = read(&[("OTEL_TRACES_SAMPLER", "parentbased_always_off")]);
    let headers = headers(&[(header::TRACEPARENT, REMOTE)]);
    let (never, _) = telemetry(Trust::Never, &off);
    let mut context = never.begin(&headers);
    assert_ne!(context.trace_id, parsed(REMOTE).trace_id);
    assert_eq!((context.link, context.sampled), (Some(parsed(REMOTE)), false));
    never.adopt_meta(&mut context, Some(META), None);
    assert_eq!((context.link, context.meta_parent), (Some(parsed(META)), None));

    let (authenticated, _) = telemetry(Trust::Authenticated, &off);
    let mut context = authenticated.begin(&headers);
    assert!(context.sampled, "so far the caller may turn out to be known");
    authenticated.distrust(&mut context);
    assert_ne!(context.trace_id, parsed(REMOTE).trace_id);
    assert_eq!((context.link, context.http_parent), (Some(parsed(REMOTE)), None));
    assert!(!context.sampled && !context.http_sampled);

    let (always, _) = telemetry(Trust::Always, &off);
    let mut context = always.begin(&headers);
    always.distrust(&mut context);
    assert_eq!(context.trace_id, parsed(REMOTE).trace_id);
}

#[test]
fn a_share_of_the_traces_is_sampled() {
    let quarter =
        read(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.25")]);
    let (telemetry, _) = telemetry(Trust::Authenticated, &quarter);
    let sampled = (0..4000).filter(|_| telemetry.begin(&HeaderMap::new()).sampled).count();
    assert!((800..1200).contains(&sampled), "{sampled}");
}

#[test]
fn without_an_exporter_a_callers_decision_is_passed_on() {
    let settings = Settings::default();
    let telemetry = Telemetry::with_processor(&settings, Trust::default(), new_metrics(), None);
    assert!(telemetry.begin(&headers(&[(header::TRACEPARENT, REMOTE)])).sampled);
    assert!(!telemetry.begin(&HeaderMap::new()).sampled);
}

/// Spans of an exchange by name, as text.
fn golden(
    context: TraceContext,
    facts: Facts,
    exporter: &InMemorySpanExporter,
    telemetry: &Telemetry,
) -> BTreeMap<String, SpanData> {
    let started = facts.attempts.first().map_or_else(Instant::now, |attempt| attempt.started);
    let facts = Facts { trace: context, ..facts };
    telemetry.finish(&facts, started, NOW, started + Duration::from_millis(31));
    let spans = exporter.get_finished_spans().unwrap();
    spans.into_iter().map(|span| (format!("{:?} {}", span.span_kind, span.name), span)).collect()
}

fn text(span: &SpanData) -> String {
    span.attributes.iter().map(|a| format!("{}={}\n", a.key, a.value.as_str())).collect()
}

#[test]
fn a_call_has_a_span_on_each_side() {
    let (telemetry, exporter) = trusting();
    let mut context = telemetry.begin(&headers(&[(header::TRACEPARENT, REMOTE)]));
    telemetry.adopt_meta(&mut context, Some(META), None);
    let mut facts = call_facts();
    facts.args_hash = Some(KeyedDigest { key: 0xa3, digest: [0x5d; 32] });
    facts.audit_id = Some(1);
    facts.attempts.push(attempt(1, Instant::now()));
    let spans = golden(context.clone(), facts, &exporter, &telemetry);
    assert_eq!(
        spans.keys().collect::<Vec<_>>(),
        [
            "Client tools/call start_test_run",
            "Server POST /mcp",
            "Server tools/call platform__start_test_run"
        ]
    );
    let [client, http, server] = spans.values().collect::<Vec<_>>()[..] else { panic!() };

    assert_eq!(http.span_context.trace_id().to_bytes(), parsed(REMOTE).trace_id);
    assert_eq!(http.parent_span_id.to_bytes(), parsed(REMOTE).span_id);
    assert!(http.parent_span_is_remote && http.links.is_empty());

    assert_eq!(server.span_context.trace_id().to_bytes(), parsed(META).trace_id);
    assert_eq!(server.parent_span_id.to_bytes(), parsed(META).span_id);
    assert!(server.parent_span_is_remote);
    let [link] = &server.links.links[..] else { panic!("{:?}", server.links) };
    assert_eq!(link.span_context.span_id(), http.span_context.span_id());
    assert_eq!(link.span_context.trace_id(), http.span_context.trace_id());

    assert_eq!(client.span_context.trace_id(), server.span_context.trace_id());
    assert_eq!(client.parent_span_id, server.span_context.span_id());
    assert!(!client.parent_span_is_remote);
    assert_eq!(client.span_context.span_id().to_bytes(), [1; 8]);

    let since = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).unwrap();
    assert_eq!(since(server.start_time), Duration::from_millis(NOW));
    assert_eq!(since(server.end_time), Duration::from_millis(NOW + 31));
    assert_eq!(since(client.end_time), Duration::from_millis(NOW + 30));

    let (args, person) = ("5d".repeat(32), "11".repeat(32));
    assert_eq!(
        text(server),
        format!(
            "mcp.method.name=tools/call\nmcp.protocol.version=2026-07-28\n\
             jsonrpc.request.id=req-1\ngen_ai.tool.name=platform__start_test_run\n\
             gen_ai.operation.name=execute_tool\nnetwork.transport=tcp\n\
             network.protocol.name=http\nnetwork.protocol.version=2\n\
             client.address=10.0.0.7\nclient.port=50000\n\
             hangu.principal.hash=hmac-sha256:a3:{person}\n\
             hangu.roles=[\"member\",\"tester\"]\nhangu.decision=allow\n\
             hangu.policy.rule.id=tester-run\nhangu.policy.revision=3f9a1c20b7d4\n\
             hangu.audit.id=00000000-0000-0000-0000-000000000001\nhangu.tenant=acme\n\
             hangu.risk=write_low\ngen_ai.tool.call.id=0198f2aa-bbcc-7ddd-8eee-ffff00001111\n\
             hangu.args.hash=hmac-sha256:a3:{args}\nhangu.call.source=mcp\nhangu.outcome=ok\n"
        )
    );
    assert_eq!(
        text(client),
        format!(
            "mcp.method.name=tools/call\nmcp.protocol.version=2025-11-25\n\
             gen_ai.tool.name=start_test_run\ngen_ai.operation.name=execute_tool\n\
             network.transport=tcp\nnetwork.protocol.name=http\nnetwork.protocol.version=1.1\n\
             server.address=127.0.0.1\nserver.port=7001\nhangu.upstream=platform\n\
             hangu.tenant=acme\nhangu.risk=write_low\n\
             gen_ai.tool.call.id=0198f2aa-bbcc-7ddd-8eee-ffff00001111\n\
             hangu.args.hash=hmac-sha256:a3:{args}\nhangu.call.source=mcp\nhangu.outcome=ok\n"
        )
    );
    assert_eq!(
        text(http),
        "http.request.method=POST\nhttp.route=/mcp\nnetwork.protocol.name=http\n\
         network.protocol.version=2\nclient.address=10.0.0.7\nclient.port=50000\n\
         http.response.status_code=200\n"
    );
    assert!(!format!("{spans:?}").contains("E1001"), "no employee in traces");
}

#[test]
fn without_meta_the_http_span_is_the_parent() {
    let (telemetry, exporter) = trusting();
    let context = telemetry.begin(&HeaderMap::new());
    let spans = golden(context, call_facts(), &exporter, &telemetry);
    let [http, server] = spans.values().collect::<Vec<_>>()[..] else { panic!("{spans:?}") };
    assert_eq!(server.parent_span_id, http.span_context.span_id());
    assert!(!server.parent_span_is_remote && server.links.is_empty());
    assert_eq!(http.parent_span_id, opentelemetry::SpanId::INVALID);
}

#[test]
fn one_of_several_messages_has_its_own_span_below_that_of_the_request() {
    let (telemetry, exporter) = trusting();
    let context = telemetry.begin(&HeaderMap::new());
    let whole = crate::model::exchange::Exchange::new(context.clone(), Instant::now(), NOW, None);
    let part = whole.part(Instant::now(), NOW);
    let trace = part.facts().trace.clone();
    assert_eq!(trace.trace_id, context.trace_id);
    assert_ne!(trace.span_id, context.span_id);
    let facts = Facts { part: part.facts().part, ..call_facts() };
    let spans = golden(trace.clone(), facts, &exporter, &telemetry);
    let [server] = spans.values().collect::<Vec<_>>()[..] else { panic!("{spans:?}") };
    assert_eq!(server.span_context.span_id().to_bytes(), trace.span_id);
    assert_eq!(server.parent_span_id.to_bytes(), context.http_span);
    assert!(!server.parent_span_is_remote);
    // Nor is it another HTTP request for the metrics, but another operation.
    let page = telemetry.metrics().expose(Format::Prometheus);
    let count = |family: &str| page.lines().filter(|line| line.starts_with(family)).count();
    assert_eq!(count("http_server_request_duration_seconds_count"), 0);
    assert_eq!(count("mcp_server_operation_duration_seconds_count"), 1, "{page}");
}

#[test]
fn a_refused_call_has_no_client_span_and_is_no_error() {
    let (telemetry, exporter) = trusting();
    let facts = Facts {
        decision: Some(DecisionKind::Deny),
        reason: Some("rule_deny"),
        outcome: Some(Outcome::Denied),
        code: Some(Code::PermissionDenied),
        ..call_facts()
    };
    let spans = golden(telemetry.begin(&HeaderMap::new()), facts, &exporter, &telemetry);
    assert_eq!(
        spans.keys().collect::<Vec<_>>(),
        ["Server POST /mcp", "Server tools/call platform__start_test_run"]
    );
    let server = &spans["Server tools/call platform__start_test_run"];
    assert_eq!(server.status, opentelemetry::trace::Status::Unset);
    let text = text(server);
    for expected in [
        "hangu.decision=deny\n",
        "hangu.reason=rule_deny\n",
        "hangu.error.code=permission_denied\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert!(!text.contains("error.type"));
}

#[test]
fn each_attempt_is_a_sibling_of_its_own() {
    let (telemetry, exporter) = trusting();
    let started = Instant::now();
    let mut facts = call_facts();
    facts.attempts.push(Attempt {
        outcome: Outcome::UpstreamError,
        error: Some("connection_refused"),
        http_version: None,
        ..attempt(1, started)
    });
    facts.attempts.push(attempt(2, started));
    let facts = Facts { trace: telemetry.begin(&HeaderMap::new()), ..facts };
    telemetry.finish(&facts, started, NOW, started + Duration::from_millis(31));
    let spans = exporter.get_finished_spans().unwrap();
    let [first, second, server, _http] = &spans[..] else { panic!("{spans:?}") };
    for attempt in [first, second] {
        assert_eq!(attempt.parent_span_id, server.span_context.span_id());
    }
    assert_eq!(first.status, opentelemetry::trace::Status::error("The upstream failed."));
    assert!(text(first).contains("error.type=connection_refused\n"));
    assert!(!text(first).contains("hangu.attempt") && !text(first).contains("network."));
    assert_eq!(second.status, opentelemetry::trace::Status::Unset);
    assert!(text(second).contains("hangu.attempt=2\n"));
    assert_eq!(server.status, opentelemetry::trace::Status::Unset);
}

#[test]
fn an_attempt_at_a_process_goes_through_a_pipe() {
    let (telemetry, exporter) = trusting();
    let started = Instant::now();
    let mut facts = call_facts();
    let piped = Attempt { http_version: None, server: None, is_pipe: true, ..attempt(1, started) };
    facts.attempts.push(piped);
    let facts = Facts { trace: telemetry.begin(&HeaderMap::new()), ..facts };
    telemetry.finish(&facts, started, NOW, started + Duration::from_millis(31));
    let spans = exporter.get_finished_spans().unwrap();
    let shown = text(&spans[0]);
    assert!(shown.contains("network.transport=pipe\n"), "{shown}");
    assert!(!shown.contains("network.protocol") && !shown.contains("server."), "{shown}");
}

#[test]
fn status_follows_the_table_of_outcomes() {
    for outcome in [
        Outcome::Ok,
        Outcome::InputRequired,
        Outcome::Cancelled,
        Outcome::CallerError,
        Outcome::Denied,
        Outcome::ApprovalPending,
        Outcome::Throttled,
        Outcome::QuotaExhausted,
        Outcome::Conflict,
        Outcome::ToolError,
        Outcome::UpstreamError,
        Outcome::GatewayError,
    ] {
        let (telemetry, exporter) = trusting();
        let facts = Facts { outcome: Some(outcome), error: Some("timeout"), ..call_facts() };
        let spans = golden(telemetry.begin(&HeaderMap::new()), facts, &exporter, &telemetry);
        let server = &spans["Server tools/call platform__start_test_run"];
        let is_error = server.status != opentelemetry::trace::Status::Unset;
        assert_eq!(is_error, outcome.is_error(), "{outcome:?}");
        assert_eq!(text(server).contains("error.type"), outcome.is_error(), "{outcome:?}");
    }
}

#[test]
fn names_that_are_not_in_the_catalog_are_not_in_span_names() {
    let (telemetry, exporter) = trusting();
    let facts = Facts {
        method: Some(Method::Other),
        method_original: Some("made/up".into()),
        tool_alias: None,
        tool_asked: Some("made-up".into()),
        rpc_id: Some("null".into()),
        ..call_facts()
    };
    let spans = golden(telemetry.begin(&HeaderMap::new()), facts, &exporter, &telemetry);
    let server = &spans["Server _OTHER"];
    assert!(text(server).contains("hangu.method.original=made/up\n"));
    assert!(!text(server).contains("jsonrpc.request.id") && !text(server).contains("made-up"));
}

#[test]
fn a_request_that_was_never_read_has_its_http_span_only() {
    let (telemetry, exporter) = trusting();
    let mut context = telemetry.begin(&headers(&[(header::TRACEPARENT, REMOTE)]));
    telemetry.distrust(&mut context);
    let facts = Facts { http: call_facts().http, status: Some(503), ..Facts::default() };
    let spans = golden(context, facts, &exporter, &telemetry);
    let [http] = spans.values().collect::<Vec<_>>()[..] else { panic!("{spans:?}") };
    assert_eq!(http.links.links[0].span_context.trace_id().to_bytes(), parsed(REMOTE).trace_id);
    assert!(text(http).contains("error.type=503\n"));
    assert!(matches!(http.status, opentelemetry::trace::Status::Error { .. }));
}

#[test]
fn what_is_not_sampled_leaves_no_span() {
    let (telemetry, exporter) = trusting();
    let unsampled = headers(&[(
        header::TRACEPARENT,
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
    )]);
    let spans = golden(telemetry.begin(&unsampled), call_facts(), &exporter, &telemetry);
    assert!(spans.is_empty(), "{spans:?}");
}

#[test]
fn limits_of_the_environment_bound_a_span() {
    let settings = read(&[
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "4"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3"),
    ]);
    let (telemetry, exporter) = telemetry(Trust::default(), &settings);
    let spans = golden(telemetry.begin(&HeaderMap::new()), call_facts(), &exporter, &telemetry);
    let server = &spans["Server tools/call platform__start_test_run"];
    assert_eq!(server.attributes.len(), 4);
    assert!(server.dropped_attributes_count > 10);
    assert!(text(server).starts_with("mcp.method.name=too\n"));
}

#[test]
fn a_stream_of_notices_has_a_span_to_its_acknowledgement_and_one_for_each_notice() {
    let (telemetry, exporter) = trusting();
    let trace = telemetry.begin(&headers(&[(header::TRACEPARENT, REMOTE)]));
    let started = Instant::now();
    let stream = Exchange::new(trace.clone(), started, NOW, None);
    *stream.facts() = Facts {
        method: Some(Method::Listen),
        acknowledged: Some(started + Duration::from_millis(15)),
        trace,
        ..call_facts()
    };
    telemetry.told(&stream, Method::ToolsChanged);
    telemetry.finish(&stream.facts(), started, NOW, started + Duration::from_secs(600));
    let spans = exporter.get_finished_spans().unwrap();
    let [notice, opened, _http] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(opened.name, "subscriptions/listen");
    let took = opened.end_time.duration_since(opened.start_time).unwrap();
    assert_eq!(took, Duration::from_millis(15));
    assert_eq!(notice.name, "notifications/tools/list_changed");
    assert_ne!(notice.span_context.trace_id(), opened.span_context.trace_id());
    let [link] = &notice.links.links[..] else { panic!("{notice:?}") };
    assert_eq!(link.span_context.span_id(), opened.span_context.span_id());
    assert_eq!(link.span_context.trace_id(), opened.span_context.trace_id());
    assert!(text(notice).contains("hangu.tenant=acme\n"), "{}", text(notice));
    // A trace that is not recorded has no notices either.
    stream.facts().trace.sampled = false;
    telemetry.told(&stream, Method::ToolsChanged);
    assert_eq!(exporter.get_finished_spans().unwrap().len(), 3);
}
