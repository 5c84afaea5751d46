//! What goes in and out: both dialects, their refusals, the journal.

use super::*;

#[tokio::test]
async fn both_paths_list_and_answer_the_same() {
    let running = platform().await;
    let (addr, headers) = (running.addr(), [("x-api-key", KEY), ("sso-emp-id", "E1001")]);
    let lite = post(addr, "/mcp/tools/list", &headers, "{}").await.json();
    let old = plain(addr, MCP_PATH, &headers, "tools/list", json!({})).await.json();
    let new = modern(addr, MCP_PATH, &headers, "tools/list", json!({})).await.json();
    assert_eq!(lite["tools"], old["result"]["tools"]);
    assert_eq!(lite["tools"], new["result"]["tools"]);
    let names: Vec<_> =
        lite["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "list_test_tasks",
            "get_test_task",
            "list_test_cases",
            "get_test_case",
            "start_test_run",
            "get_test_run",
            "get_execution_result",
            "stop_test_run"
        ]
    );
    for (tool, args) in [
        ("list_test_tasks", json!({})),
        ("get_test_case", json!({ "caseId": "C-1005" })),
        ("get_execution_result", json!({ "runId": "R-1002" })),
        ("get_execution_result", json!({ "runId": "R-9999" })),
    ] {
        let first = call(&running, WAYS[0], "E1001", tool, args.clone()).await;
        for way in &WAYS[1..] {
            assert_eq!(call(&running, *way, "E1001", tool, args.clone()).await, first, "{tool}");
        }
    }
}

#[tokio::test]
async fn every_answer_fits_the_output_schema_and_so_does_every_refusal() {
    let running = platform().await;
    let listing = post(running.addr(), "/mcp/tools/list", &[("x-api-key", KEY)], "{}").await.json();
    for tool in listing["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let schema = jsonschema::draft202012::new(&tool["outputSchema"]).unwrap();
        let args = match name {
            "list_test_tasks" => json!({}),
            "get_test_task" | "list_test_cases" => json!({ "taskId": "T-1002" }),
            "get_test_case" => json!({ "caseId": "C-1005" }),
            "start_test_run" => json!({ "taskId": "T-1002", "idempotencyKey": "k" }),
            "stop_test_run" => {
                let args = json!({ "taskId": "T-1002", "idempotencyKey": "k" });
                let run = call(&running, Way::Modern, "E1001", "start_test_run", args).await;
                json!({ "runId": run.unwrap()["runId"] })
            }
            _ => json!({ "runId": "R-1002" }),
        };
        let outcome = call(&running, Way::Modern, "E1001", name, args).await;
        // The run may have ended before it could be stopped.
        let answer = outcome.unwrap_or_else(|error| json!({ "error": error }));
        assert!(name == "stop_test_run" || answer.get("error").is_none(), "{name}: {answer}");
        schema.validate(&answer).unwrap();
        let refused = call(&running, Way::Modern, "E1001", name, json!({ "bad": 1 })).await;
        schema.validate(&json!({ "error": refused.unwrap_err() })).unwrap();
        assert!(!schema.is_valid(&json!({})), "{name}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], json!(false));
        assert!(tool["title"].is_string() && tool["description"].is_string());
        assert_eq!(tool["annotations"]["readOnlyHint"], !name.starts_with('s'), "{name}");
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused_and_say_where() {
    let running = platform().await;
    for way in WAYS {
        for (tool, args, place) in [
            ("get_test_task", json!({}), "taskId"),
            ("get_test_task", json!({ "taskId": 1001 }), "/taskId"),
            ("get_test_task", json!({ "taskId": "" }), "/taskId"),
            ("get_test_task", json!({ "taskId": "x".repeat(65) }), "/taskId"),
            ("get_test_task", json!({ "taskId": "T-1001", "extra": 1 }), "extra"),
            ("start_test_run", json!({ "taskId": "T-1001" }), "idempotencyKey"),
            ("list_test_tasks", json!([]), "arguments"),
            ("list_test_tasks", json!("x"), "arguments"),
        ] {
            let refused = call(&running, way, "E1001", tool, args.clone()).await.unwrap_err();
            assert_eq!(refused["code"], "invalid_args", "{way:?} {tool} {args}");
            assert!(refused["message"].as_str().unwrap().contains(place), "{refused}");
        }
    }
}

#[tokio::test]
async fn ids_that_look_like_sql_are_only_ids() {
    let running = platform().await;
    for id in [
        "' OR '1'='1",
        "T-1001' OR '1'='1' --",
        "T-1001'; DROP TABLE task; --",
        "T-1001\" UNION SELECT * FROM employee --",
        "%",
        "T-100_",
        "T-1001\0",
        "R-1001 OR 1=1",
        "R-01001",
        "R-+1001",
        "R-99999999999999999999",
    ] {
        for way in WAYS {
            for (tool, args) in [
                ("get_test_task", json!({ "taskId": id })),
                ("get_test_case", json!({ "caseId": id })),
                ("get_test_run", json!({ "runId": id })),
                ("start_test_run", json!({ "taskId": id, "idempotencyKey": id })),
            ] {
                assert_eq!(
                    code(call(&running, way, "E1001", tool, args).await),
                    "not_found",
                    "{id}"
                );
            }
        }
    }
    let emp = "E1001' OR '1'='1";
    let body = json!({ "name": "list_test_tasks", "user": { "empId": emp } }).to_string();
    let answer = post(running.addr(), "/mcp/tools/call", &[("x-api-key", KEY)], body).await;
    assert_eq!(code(lite_outcome(&answer)), "invalid_args");
    let body = json!({
        "name": "list_test_tasks", "user": { "empId": "E1002", "tenant": "acme' OR '1'='1" },
    });
    let headers = [("x-api-key", KEY)];
    let answer = post(running.addr(), "/mcp/tools/call", &headers, body.to_string()).await;
    assert_eq!(lite_outcome(&answer).unwrap()["total"], 0);
    let tasks = call(&running, Way::Modern, "E1001", "list_test_tasks", json!({})).await.unwrap();
    assert_eq!(tasks["total"], 3);
}

#[tokio::test]
async fn an_unknown_tool_is_told_in_each_dialects_words() {
    let running = platform().await;
    let (addr, headers) = (running.addr(), [("x-api-key", KEY), ("sso-emp-id", "E1001")]);
    let params = json!({ "name": "drop_everything", "arguments": {} });
    let lite = post(addr, "/mcp/tools/call", &headers, params.to_string()).await;
    assert_eq!(code(lite_outcome(&lite)), "not_found");
    let mcp = modern(addr, MCP_PATH, &headers, "tools/call", params).await;
    assert_eq!((mcp.status, mcp.rpc_code()), (StatusCode::OK, -32_602));
    assert_eq!(running.journal().count("drop_everything"), 0);
}

#[tokio::test]
async fn lite_refuses_what_is_no_request_of_its_own() {
    let running = platform().await;
    let (addr, key) = (running.addr(), [("x-api-key", KEY)]);
    for (path, body) in [
        ("/mcp/tools/list", ""),
        ("/mcp/tools/list", "{"),
        ("/mcp/tools/list", "\"x\""),
        ("/mcp/tools/list", r#"{"cursor":"2"}"#),
        ("/mcp/tools/call", "{}"),
        ("/mcp/tools/call", r#"{"name":1}"#),
        ("/mcp/tools/call", r#"{"name":"a","name":"b"}"#),
    ] {
        let answer = post(addr, path, &key, body).await;
        assert_eq!(code(lite_outcome(&answer)), "invalid_args", "{path} {body}");
    }
    let answer = post(addr, "/mcp/tools", &key, "{}").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    let answer = send(addr, Method::GET, "/mcp/tools/list", &key, "").await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(answer.headers["allow"], "POST");
    let answer = send(addr, Method::POST, "/mcp/tools/list", &key, "{}").await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let large = format!(r#"{{"cursor":"{}"}}"#, "x".repeat(1024 * 1024));
    let answer = post(addr, "/mcp/tools/list", &key, large).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn the_journal_has_what_the_gateway_says_of_a_call() {
    let running = platform().await;
    let headers = [
        ("x-api-key", KEY),
        ("sso-emp-id", "E1001"),
        ("x-call-source", "mcp"),
        ("x-trace-id", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("idempotency-key", "from-the-header"),
    ];
    let params = json!({ "name": "list_test_tasks", "arguments": {} });
    post(running.addr(), "/mcp/tools/call", &headers, params.to_string()).await;
    modern(running.addr(), MCP_PATH, &headers, "tools/call", params).await;
    modern(running.addr(), MCP_PATH, &headers, "server/discover", json!({})).await;
    let entries = running.journal().entries();
    assert_eq!(entries.len(), 3);
    for entry in &entries[..2] {
        assert_eq!(entry.method, "tools/call");
        assert_eq!(entry.tool.as_deref(), Some("list_test_tasks"));
        assert_eq!(entry.emp_id.as_deref(), Some("E1001"));
        assert_eq!(entry.call_source.as_deref(), Some("mcp"));
        assert_eq!(entry.trace_id.as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(entry.idempotency_key.as_deref(), Some("from-the-header"));
        assert!(entry.headers.contains(&header::API_KEY));
    }
    assert_eq!(entries[2].method, "server/discover");
    assert_eq!(running.journal().count("list_test_tasks"), 2);
}

#[tokio::test]
async fn only_requests_from_this_machine_are_answered() {
    let running = platform().await;
    for headers in [
        [("x-api-key", KEY), ("origin", "https://evil.example")],
        [("x-api-key", KEY), ("host", "evil.example")],
    ] {
        let answer = post(running.addr(), "/mcp/tools/list", &headers, "{}").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{headers:?}");
    }
    assert!(running.journal().entries().is_empty());
}

#[tokio::test]
async fn the_log_tells_where_a_call_came_from_and_no_more() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
    // The server runs on this thread, as everything in this test does.
    let _guard = tracing::subscriber::set_default(subscriber);
    // With one subscriber alone, a line first reached by another test's thread, which has none,
    // would be silent for all.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let running = platform().await;
    let headers = [
        ("x-api-key", KEY),
        ("sso-emp-id", "E1001"),
        ("x-call-source", "cli"),
        ("x-trace-id", "4bf92f3577b34da6a3ce929d0e0e4736"),
    ];
    let params = json!({ "name": "get_test_task", "arguments": { "taskId": "T-9999" } });
    post(running.addr(), "/mcp/tools/call", &headers, params.to_string()).await;
    modern(running.addr(), MCP_PATH, &headers, "tools/call", params).await;
    let text = log.text();
    let calls: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].clone())
        .filter(|fields| fields["message"] == "answered a call")
        .collect();
    assert_eq!(calls.len(), 2, "{text}");
    for call in calls {
        assert_eq!(call["call.source"], "cli");
        assert_eq!(call["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(call["tool.name"], "get_test_task");
        assert_eq!(call["outcome"], "not_found");
    }
    for private in [KEY, "E1001", "T-9999"] {
        assert!(!text.contains(private), "{private}: {text}");
    }
}

/// What a test's subscriber wrote.
#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
