//! What `/metrics` says.

use super::*;

fn finish(metrics: &Metrics, facts: &Facts, took: Duration) {
    let started = Instant::now();
    metrics.finish(facts, started, started + took);
}

fn prometheus(metrics: &Metrics) -> String {
    metrics.expose(Format::Prometheus)
}

/// The value of the sample that begins with this.
fn value(page: &str, sample: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.starts_with(sample))?;
    line.split('#').next()?.trim_end().rsplit(' ').next()?.parse().ok()
}

fn lines<'p>(page: &'p str, prefix: &'p str) -> impl Iterator<Item = &'p str> {
    page.lines().filter(move |line| line.starts_with(prefix))
}

#[test]
fn one_exchange_is_told_by_every_instrument_it_concerns() {
    let metrics = new_metrics();
    let started = Instant::now();
    let mut facts = call_facts();
    facts.attempts.push(attempt(1, started));
    facts.waited = Duration::from_millis(30);
    facts.idempotency = Some("stored");
    metrics.finish(&facts, started, started + Duration::from_millis(31));
    let page = prometheus(&metrics);

    let common = "gen_ai_operation_name=\"execute_tool\",gen_ai_tool_name=";
    let server = format!(
        "{{mcp_method_name=\"tools/call\",{common}\"platform__start_test_run\",\
         mcp_protocol_version=\"2026-07-28\",network_transport=\"tcp\",\
         network_protocol_name=\"http\",network_protocol_version=\"2\",\
         hangu_outcome=\"ok\",hangu_tenant=\"acme\"}}"
    );
    let client = format!(
        "{{mcp_method_name=\"tools/call\",{common}\"start_test_run\",\
         mcp_protocol_version=\"2025-11-25\",network_transport=\"tcp\",\
         network_protocol_name=\"http\",network_protocol_version=\"1.1\",\
         hangu_outcome=\"ok\",hangu_tenant=\"acme\",hangu_upstream=\"platform\",\
         server_address=\"127.0.0.1\",server_port=\"7001\"}}"
    );
    for (sample, expected) in [
        (format!("mcp_server_operation_duration_seconds_count{server} "), 1.0),
        (format!("mcp_server_operation_duration_seconds_sum{server} "), 0.031),
        (format!("mcp_client_operation_duration_seconds_sum{client} "), 0.03),
        ("hangu_overhead_duration_seconds_sum{mcp_method_name=\"tools/call\"} ".into(), 0.001),
        (
            "hangu_policy_decisions_total{hangu_decision=\"allow\",hangu_risk=\"write_low\",\
             hangu_tenant=\"acme\",hangu_policy_mode=\"enforce\"} "
                .into(),
            1.0,
        ),
        ("hangu_idempotency_requests_total{hangu_idempotency=\"stored\"} ".into(), 1.0),
        (
            "http_server_request_duration_seconds_count{http_request_method=\"POST\",\
             http_route=\"/mcp\",http_response_status_code=\"200\",\
             network_protocol_version=\"2\"} "
                .into(),
            1.0,
        ),
    ] {
        assert_eq!(value(&page, &sample), Some(expected), "{sample}\n{page}");
    }
}

#[test]
fn buckets_are_those_of_the_contract() {
    let metrics = new_metrics();
    for took in [Duration::from_millis(10), Duration::from_nanos(10_000_001)] {
        finish(&metrics, &call_facts(), took);
    }
    finish(&metrics, &call_facts(), Duration::from_secs(301));
    let page = prometheus(&metrics);
    let buckets: Vec<(&str, &str)> = lines(&page, "mcp_server_operation_duration_seconds_bucket")
        .filter_map(|line| line.split_once("le=\"")?.1.split_once("\"} "))
        .collect();
    assert_eq!(
        buckets,
        [
            ("0.01", "1"),
            ("0.02", "2"),
            ("0.05", "2"),
            ("0.1", "2"),
            ("0.2", "2"),
            ("0.5", "2"),
            ("1.0", "2"),
            ("2.0", "2"),
            ("5.0", "2"),
            ("10.0", "2"),
            ("30.0", "2"),
            ("60.0", "2"),
            ("120.0", "2"),
            ("300.0", "2"),
            ("+Inf", "3"),
        ]
    );
    let own: Vec<&str> = lines(&page, "hangu_overhead_duration_seconds_bucket")
        .filter_map(|line| line.split_once("le=\"")?.1.split('"').next())
        .collect();
    assert_eq!(
        own.join(" "),
        "0.00001 0.000025 0.00005 0.0001 0.00025 0.0005 0.001 0.0025 0.005 0.01 0.05 0.1 +Inf"
    );
}

#[test]
fn errors_are_told_as_on_the_span() {
    let cases = [
        (Outcome::Denied, Some("rule_deny"), Some(-31_403), None, "error_type", None),
        (Outcome::ToolError, None, None, None, "error_type", Some("tool_error")),
        (Outcome::UpstreamError, Some("timeout"), None, None, "error_type", Some("timeout")),
        (Outcome::UpstreamError, None, Some(-32_603), None, "error_type", Some("-32603")),
        (Outcome::UpstreamError, None, Some(4711), None, "error_type", Some("_OTHER")),
        (Outcome::GatewayError, None, None, None, "error_type", Some("_OTHER")),
        (
            Outcome::CallerError,
            None,
            Some(-32_602),
            None,
            "rpc_response_status_code",
            Some("-32602"),
        ),
        (Outcome::CallerError, None, Some(1), None, "rpc_response_status_code", Some("_OTHER")),
        (
            Outcome::Throttled,
            None,
            None,
            Some(Code::RateLimited),
            "hangu_error_code",
            Some("rate_limited"),
        ),
    ];
    for (outcome, error, rpc_code, code, label, expected) in cases {
        let metrics = new_metrics();
        let facts = Facts { outcome: Some(outcome), error, rpc_code, code, ..call_facts() };
        finish(&metrics, &facts, Duration::ZERO);
        let page = prometheus(&metrics);
        let count = lines(&page, "mcp_server_operation_duration_seconds_count").next().unwrap();
        let label = format!(",{label}=\"");
        let found = count.split_once(&label).and_then(|(_, rest)| rest.split('"').next());
        assert_eq!(found, expected, "{outcome:?} {count}");
    }
}

#[test]
fn ten_thousand_invented_names_add_one_series() {
    let metrics = new_metrics();
    for number in 0..10_000 {
        let facts = Facts {
            tool: None,
            tool_alias: None,
            upstream: None,
            tool_asked: Some(format!("invented-{number}").into()),
            method_original: Some(format!("method-{number}").into()),
            method: Some(Method::Other),
            outcome: Some(Outcome::CallerError),
            ..call_facts()
        };
        finish(&metrics, &facts, Duration::ZERO);
    }
    let page = prometheus(&metrics);
    let counts: Vec<&str> = lines(&page, "mcp_server_operation_duration_seconds_count").collect();
    assert_eq!(counts.len(), 1, "{counts:?}");
    assert!(counts[0].ends_with(" 10000"), "{counts:?}");
    assert!(!page.contains("invented") && !page.contains("method-1"));
}

#[test]
fn an_instrument_has_no_more_series_than_its_cap() {
    let metrics = new_metrics();
    for number in 0..3000 {
        let alias = format!("tool-{number}");
        let facts = Facts { tool_alias: Some(alias.into()), ..call_facts() };
        finish(&metrics, &facts, Duration::ZERO);
    }
    let page = prometheus(&metrics);
    assert_eq!(lines(&page, "mcp_server_operation_duration_seconds_count").count(), 2001);
    let other = lines(&page, "mcp_server_operation_duration_seconds_count")
        .find(|line| line.contains("gen_ai_tool_name=\"_OTHER\""))
        .unwrap();
    assert!(other.ends_with(" 1000"), "{other}");
}

#[test]
fn tenants_past_the_maximum_share_a_series() {
    let metrics = Arc::new(Metrics::new(2, Clock::manual(NOW)));
    for tenant in ["a", "b", "c", "d", "a"] {
        let facts = Facts { tenant: Some(TenantId::new(tenant)), ..call_facts() };
        finish(&metrics, &facts, Duration::ZERO);
    }
    let page = prometheus(&metrics);
    for (tenant, expected) in [("a", 2.0), ("b", 1.0), ("_OTHER", 2.0)] {
        let line = lines(&page, "mcp_server_operation_duration_seconds_count")
            .find(|line| line.contains(&format!("hangu_tenant=\"{tenant}\"")))
            .unwrap();
        assert_eq!(value(line, "mcp"), Some(expected), "{line}");
    }
}

#[test]
fn a_request_is_active_while_it_is_served() {
    let metrics = new_metrics();
    let active = |method: &str| {
        let sample = format!("hangu_requests_active{{mcp_method_name=\"{method}\"}} ");
        value(&prometheus(&metrics), &sample).unwrap()
    };
    let mut request = metrics.enter(Method::Other);
    assert_eq!((active("_OTHER"), active("tools/call")), (1.0, 0.0));
    request.set_method(Method::CallTool);
    assert_eq!((active("_OTHER"), active("tools/call")), (0.0, 1.0));
    drop(request);
    assert_eq!((active("_OTHER"), active("tools/call")), (0.0, 0.0));
}

#[test]
fn states_are_told_as_they_are_now() {
    let metrics = new_metrics();
    metrics.upstream_up("platform", true);
    metrics.upstream_up("orders", true);
    metrics.upstream_up("orders", false);
    metrics.catalog_tools("platform", 7);
    metrics.policy_revision("3f9a1c20b7d4".into());
    metrics.policy_reload(Reload::Rejected);
    metrics.audit_written(3, Duration::from_micros(40));
    metrics.audit_dropped(2);
    metrics.audit_depth(5);
    let page = prometheus(&metrics);
    for line in [
        "hangu_upstream_up{hangu_upstream=\"platform\"} 1",
        "hangu_upstream_up{hangu_upstream=\"orders\"} 0",
        "hangu_catalog_tools{hangu_upstream=\"platform\"} 7",
        "hangu_policy_reloads_total{hangu_reload_result=\"rejected\"} 1",
        "hangu_policy_info{hangu_policy_revision=\"3f9a1c20b7d4\"} 1",
        "hangu_audit_records_total{hangu_audit_sink=\"file\",hangu_audit_result=\"written\"} 3",
        "hangu_audit_records_total{hangu_audit_sink=\"file\",hangu_audit_result=\"dropped\"} 2",
        "hangu_audit_write_duration_seconds_sum 0.00004",
        "hangu_audit_queue_depth 5",
        "hangu_trace_context_invalid_total 0",
    ] {
        assert!(page.lines().any(|own| own == line), "{line}\n{page}");
    }
    metrics.policy_revision("b7d43f9a1c20".into());
    metrics.keep_upstreams(|name| name == "platform");
    let page = prometheus(&metrics);
    assert_eq!(lines(&page, "hangu_policy_info{").count(), 1);
    assert_eq!(lines(&page, "hangu_upstream_up{").count(), 1);
}

#[test]
fn a_limit_that_was_hit_is_named() {
    let metrics = new_metrics();
    let hit = LimitHit { id: "user-rate".into(), kind: LimitKind::Rate };
    let facts = Facts { limits: smallvec![hit], outcome: Some(Outcome::Throttled), ..call_facts() };
    finish(&metrics, &facts, Duration::ZERO);
    let line = "hangu_limit_rejections_total{hangu_limit_name=\"user-rate\",\
                hangu_limit_kind=\"rate\",hangu_tenant=\"acme\"} 1";
    assert!(prometheus(&metrics).lines().any(|own| own == line));
}

#[test]
fn labels_are_escaped() {
    let metrics = new_metrics();
    let facts = Facts { tool_alias: Some("a\"b\\c\nd".into()), ..call_facts() };
    finish(&metrics, &facts, Duration::ZERO);
    let page = prometheus(&metrics);
    assert!(page.contains("gen_ai_tool_name=\"a\\\"b\\\\c\\nd\""), "{page}");
}

#[test]
fn the_form_is_the_scrapers_choice() {
    for (accept, expected) in [
        (None, Format::Prometheus),
        (Some("*/*"), Format::Prometheus),
        (Some("text/plain;version=0.0.4"), Format::Prometheus),
        (Some("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"), Format::OpenMetrics),
        (Some("text/plain, application/openmetrics-text; q=0"), Format::Prometheus),
    ] {
        assert_eq!(Format::negotiate(accept), expected, "{accept:?}");
    }
}

#[test]
fn openmetrics_names_families_and_ends() {
    let metrics = new_metrics();
    finish(&metrics, &call_facts(), Duration::ZERO);
    let page = metrics.expose(Format::OpenMetrics);
    assert!(page.ends_with("\n# EOF\n"));
    assert!(page.contains("# TYPE hangu_policy_decisions counter\n"));
    assert!(page.contains("# UNIT mcp_server_operation_duration_seconds seconds\n"));
    let older = prometheus(&metrics);
    assert!(older.contains("# TYPE hangu_policy_decisions_total counter\n"));
    assert!(!older.contains("# UNIT") && !older.contains("# EOF"));
}

#[test]
fn exemplars_lead_to_sampled_spans_only() {
    let metrics = new_metrics();
    let started = Instant::now();
    let mut facts = call_facts();
    facts.trace.trace_id = [0x4b; 16];
    facts.trace.span_id = [0x0f; 8];
    facts.attempts.push(attempt(1, started));
    let finish = |facts: &Facts| {
        metrics.finish(facts, started, started + Duration::from_millis(31));
        let page = metrics.expose(Format::OpenMetrics);
        lines(&page, "mcp_").filter(|line| line.contains(" # {")).map(str::to_owned).collect()
    };
    facts.trace.sampled = true;
    assert_eq!(finish(&facts), Vec::<String>::new(), "nothing is exported");
    metrics.set_exemplars(true);
    facts.trace.sampled = false;
    assert_eq!(finish(&facts), Vec::<String>::new(), "the trace is not sampled");
    facts.trace.sampled = true;
    let found: Vec<String> = finish(&facts);
    let [server, client] = &found[..] else { panic!("{found:?}") };
    let (trace, time) = ("4b".repeat(16), "1796030047.481");
    assert!(server.contains("le=\"0.05\"") && client.contains("le=\"0.05\""));
    let span = "0f".repeat(8);
    assert!(
        server.ends_with(&format!("# {{trace_id=\"{trace}\",span_id=\"{span}\"}} 0.031 {time}")),
        "{server}"
    );
    assert!(client.contains("span_id=\"0101010101010101\"} 0.03 "), "{client}");
    assert!(!prometheus(&metrics).contains("trace_id"));
}

#[test]
fn a_method_is_the_index_of_its_place() {
    for (index, method) in Method::ALL.into_iter().enumerate() {
        assert_eq!(method as usize, index, "{method:?}");
    }
}

#[test]
fn a_stream_of_an_upstream_is_active_while_it_is_read() {
    let metrics = new_metrics();
    let active = |upstream: &str| {
        let sample = format!("hangu_streams_active{{hangu_upstream=\"{upstream}\"}} ");
        value(&prometheus(&metrics), &sample)
    };
    let streams = ["a", "a", "b"].map(|name| metrics.stream(name.into()));
    assert_eq!((active("a"), active("b")), (Some(2.0), Some(1.0)));
    // What has gone from the configuration goes with its last stream.
    metrics.keep_upstreams(|_| false);
    assert_eq!((active("a"), active("b")), (Some(2.0), Some(1.0)));
    drop(streams);
    assert_eq!((active("a"), active("b")), (Some(0.0), Some(0.0)));
    metrics.keep_upstreams(|name| name == "a");
    assert_eq!((active("a"), active("b")), (Some(0.0), None));
}

#[test]
fn a_session_is_measured_on_the_side_that_it_was_on() {
    let metrics = new_metrics();
    let ended = EndedSession {
        version: Version::V2025_06_18,
        http: Some(http::Version::HTTP_11),
        is_pipe: false,
        server: None,
        error: None,
    };
    metrics.server_session(ended, Duration::from_secs(3));
    let server = Some(("10.0.0.1", 8443));
    metrics.client_session(EndedSession { server, error: Some("404"), ..ended }, Duration::ZERO);
    metrics.client_session(EndedSession { http: None, is_pipe: true, ..ended }, Duration::ZERO);
    let page = prometheus(&metrics);
    let http = "mcp_protocol_version=\"2025-06-18\",network_transport=\"tcp\",\
                network_protocol_name=\"http\",network_protocol_version=\"1.1\"";
    for (name, labels) in [
        ("mcp_server", http.to_owned()),
        (
            "mcp_client",
            format!("{http},error_type=\"404\",server_address=\"10.0.0.1\",server_port=\"8443\""),
        ),
        ("mcp_client", r#"mcp_protocol_version="2025-06-18",network_transport="pipe""#.to_owned()),
    ] {
        let sample = format!("{name}_session_duration_seconds_count{{{labels}}} ");
        assert_eq!(value(&page, &sample), Some(1.0), "{sample} in {page}");
    }
    let sum = format!("mcp_server_session_duration_seconds_sum{{{http}}} ");
    assert_eq!(value(&page, &sum), Some(3.0));
}

#[test]
fn a_stream_of_notices_is_measured_to_its_acknowledgement() {
    let metrics = new_metrics();
    let started = Instant::now();
    let acknowledged = Some(started + Duration::from_millis(15));
    let facts = Facts { method: Some(Method::Listen), acknowledged, ..call_facts() };
    metrics.finish(&facts, started, started + Duration::from_secs(600));
    let page = prometheus(&metrics);
    let line = lines(&page, "mcp_server_operation_duration_seconds_sum").next().unwrap();
    assert!(line.ends_with(" 0.015"), "{line}");
    let line = lines(&page, "http_server_request_duration_seconds_sum").next().unwrap();
    assert!(line.ends_with(" 600"), "{line}");
}
