//! The framing, with the order server behind it, since it asks for no key.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    demo::{
        Running,
        orders::{self, MCP_PATH},
        testing::{ANY_PORT, Answer, Headers, modern, modern_body, plain, post, send},
    },
    mcp::meta,
};

const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

async fn server() -> Running {
    orders::start(ANY_PORT).await.unwrap()
}

async fn raw(running: &Running, headers: Headers<'_>, body: impl Into<String>) -> Answer {
    post(running.addr(), MCP_PATH, headers, body.into()).await
}

fn check(answer: &Answer, status: u16, code: i64) {
    assert_eq!((answer.status.as_u16(), answer.rpc_code()), (status, code), "{answer:?}");
}

// === 2026-07-28 ===

#[tokio::test]
async fn discovery_tells_what_is_served() {
    let running = server().await;
    let answer = modern(running.addr(), MCP_PATH, &[], "server/discover", json!({})).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.json()["id"], "m-1");
    let result = &answer.json()["result"];
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(result["capabilities"], json!({ "tools": {} }));
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(30_000), &json!("public")));
    assert_eq!(result["_meta"][meta::SERVER_INFO]["name"], "orders");
    assert!(answer.headers.get("mcp-session-id").is_none());
}

#[tokio::test]
async fn modern_results_are_marked_and_only_lists_may_be_cached() {
    let running = server().await;
    let list = modern(running.addr(), MCP_PATH, &[], "tools/list", json!({})).await.json();
    assert_eq!(list["result"]["resultType"], "complete");
    assert_eq!(list["result"]["ttlMs"], 30_000);
    let params = json!({ "name": "list_orders" });
    let called = modern(running.addr(), MCP_PATH, &[], "tools/call", params).await.json();
    assert_eq!(called["result"]["resultType"], "complete");
    assert_eq!(called["result"]["_meta"][meta::SERVER_INFO]["name"], "orders");
    assert!(called["result"].get("ttlMs").is_none());
}

#[tokio::test]
async fn head_and_body_must_agree() {
    let running = server().await;
    let call = modern_body("tools/call", json!({ "name": "list_orders" })).to_string();
    let list = modern_body("tools/list", json!({})).to_string();
    let (method, name) = (("mcp-method", "tools/call"), ("mcp-name", "list_orders"));
    let rows: &[(&str, Headers<'_>)] = &[
        (&call, &[]),
        (&call, &[method, name]),
        (&call, &[("mcp-protocol-version", "2025-11-25"), method, name]),
        (&call, &[VERSION, VERSION, method, name]),
        (&call, &[VERSION]),
        (&call, &[VERSION, name]),
        (&call, &[VERSION, ("mcp-method", "tools/list"), name]),
        (&call, &[VERSION, ("mcp-method", "Tools/Call"), name]),
        (&call, &[VERSION, method, method, name]),
        (&call, &[VERSION, method]),
        (&call, &[VERSION, method, ("mcp-name", "query_order")]),
        (&call, &[VERSION, method, ("mcp-name", "=?base64?bGlzdF9vcmRlcnM?=")]),
        (&call, &[VERSION, method, ("mcp-name", "=?base64?cXVlcnlfb3JkZXI=?=")]),
        (&list, &[VERSION, method]),
    ];
    for (body, headers) in rows {
        let answer = raw(&running, headers, *body).await;
        assert_eq!((answer.status.as_u16(), answer.rpc_code()), (400, -32_020), "{headers:?}");
        assert_eq!(answer.json()["id"], "m-1");
    }
    for headers in [
        &[VERSION, method, name][..],
        &[VERSION, method, ("mcp-name", "=?base64?bGlzdF9vcmRlcnM=?=")],
        &[VERSION, method, ("mcp-name", "  list_orders ")],
        &[VERSION, method, name, ("mcp-session-id", "anything"), ("mcp-param-x", "y")],
    ] {
        assert_eq!(raw(&running, headers, call.as_str()).await.status, 200, "{headers:?}");
    }
    assert_eq!(running.journal().count("list_orders"), 4);
}

#[tokio::test]
async fn a_request_must_describe_itself() {
    let running = server().await;
    let headers = [VERSION, ("mcp-method", "tools/list")];
    for meta in [
        json!({}),
        json!({ meta::PROTOCOL_VERSION: "2026-07-28" }),
        json!({ meta::PROTOCOL_VERSION: "2026-07-28", meta::CLIENT_CAPABILITIES: [] }),
        json!({ meta::PROTOCOL_VERSION: 20260728, meta::CLIENT_CAPABILITIES: {} }),
        json!({ meta::CLIENT_CAPABILITIES: {} }),
        json!("x"),
    ] {
        let params = json!({ "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": params });
        check(&raw(&running, &headers, body.to_string()).await, 400, -32_602);
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
    check(&raw(&running, &headers, body.to_string()).await, 400, -32_602);
}

#[tokio::test]
async fn an_unknown_revision_is_told_which_are_known() {
    let running = server().await;
    let mut body = modern_body("tools/list", json!({}));
    for version in ["2027-01-01", "2025-11-25", "banana"] {
        body["params"]["_meta"][meta::PROTOCOL_VERSION] = version.into();
        let headers = [("mcp-protocol-version", version), ("mcp-method", "tools/list")];
        let answer = raw(&running, &headers, body.to_string()).await;
        check(&answer, 400, -32_022);
        let data = json!({ "supported": ["2026-07-28"], "requested": version });
        assert_eq!(answer.json()["error"]["data"], data);
    }
}

#[tokio::test]
async fn what_2026_took_away_is_unknown_there() {
    let running = server().await;
    for method in
        ["initialize", "ping", "logging/setLevel", "resources/list", "prompts/list", "tools/CALL"]
    {
        check(&modern(running.addr(), MCP_PATH, &[], method, json!({})).await, 404, -32_601);
    }
}

#[tokio::test]
async fn faults_of_params_are_answers_of_the_method() {
    let running = server().await;
    for (method, params) in [
        ("tools/call", json!({ "name": "no_such_tool" })),
        ("tools/list", json!({ "cursor": "2" })),
        ("tools/list", json!({ "cursor": "" })),
    ] {
        let new = modern(running.addr(), MCP_PATH, &[], method, params.clone()).await;
        check(&new, 200, -32_602);
        check(&plain(running.addr(), MCP_PATH, &[], method, params).await, 200, -32_602);
    }
    check(&plain(running.addr(), MCP_PATH, &[], "tools/call", json!({})).await, 200, -32_602);
}

// === the handshake revisions ===

#[tokio::test]
async fn initialize_agrees_on_a_revision_with_a_handshake() {
    let running = server().await;
    for (asked, given) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("banana", "2025-11-25"),
    ] {
        let params = json!({
            "protocolVersion": asked, "capabilities": {},
            "clientInfo": { "name": "t", "version": "1" },
        });
        let answer = plain(running.addr(), MCP_PATH, &[], "initialize", params).await;
        let result = &answer.json()["result"];
        assert_eq!(result["protocolVersion"], given, "{asked}");
        assert_eq!(result["capabilities"], json!({ "tools": {} }));
        assert_eq!(result["serverInfo"]["name"], "orders");
        assert!(result.get("resultType").is_none());
        assert!(answer.headers.get("mcp-session-id").is_none());
    }
    check(&plain(running.addr(), MCP_PATH, &[], "initialize", json!({})).await, 200, -32_602);
}

#[tokio::test]
async fn every_handshake_revision_is_served_without_a_session() {
    let running = server().await;
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let headers = [("mcp-protocol-version", version)];
        let list = plain(running.addr(), MCP_PATH, &headers, "tools/list", json!({})).await.json();
        assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 5, "{version}");
        assert_eq!(list["result"].as_object().unwrap().len(), 1);
        let params = json!({ "name": "query_order", "arguments": { "orderId": "O-1002" } });
        let called = plain(running.addr(), MCP_PATH, &headers, "tools/call", params).await.json();
        assert_eq!(called["result"]["isError"], json!(false));
        assert!(called["result"].get("resultType").is_none());
        let pong = plain(running.addr(), MCP_PATH, &headers, "ping", json!({})).await.json();
        assert_eq!(pong, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
        let other = plain(running.addr(), MCP_PATH, &headers, "prompts/list", json!({})).await;
        check(&other, 200, -32_601);
    }
    let headers = [("mcp-protocol-version", "2024-11-05")];
    check(&plain(running.addr(), MCP_PATH, &headers, "ping", json!({})).await, 400, -32_600);
}

#[tokio::test]
async fn batches_belong_to_2025_03_26() {
    let running = server().await;
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/cancelled" },
        { "jsonrpc": "2.0", "id": 2, "method": "nothing" },
        { "jsonrpc": "2.0", "id": 3, "method": "initialize" },
        7,
    ])
    .to_string();
    for headers in [&[][..], &[("mcp-protocol-version", "2025-03-26")]] {
        let answer = raw(&running, headers, batch.as_str()).await;
        assert_eq!(answer.status, StatusCode::OK);
        let answers = answer.json();
        let codes: Vec<_> = answers
            .as_array()
            .unwrap()
            .iter()
            .map(|answer| (answer["id"].clone(), answer["error"]["code"].as_i64()))
            .collect();
        assert_eq!(
            codes,
            [
                (json!(1), None),
                (json!(2), Some(-32_601)),
                (json!(3), Some(-32_600)),
                (Value::Null, Some(-32_600)),
            ]
        );
        let notices = json!([{ "jsonrpc": "2.0", "method": "notifications/initialized" }]);
        let answer = raw(&running, headers, notices.to_string()).await;
        assert_eq!((answer.status, answer.bytes.len()), (StatusCode::ACCEPTED, 0));
        check(&raw(&running, headers, "[]").await, 400, -32_600);
    }
    for version in ["2025-06-18", "2025-11-25", "2026-07-28"] {
        let headers = [("mcp-protocol-version", version)];
        check(&raw(&running, &headers, batch.as_str()).await, 400, -32_600);
    }
}

// === both ===

#[tokio::test]
async fn notifications_are_accepted_without_a_word() {
    let running = server().await;
    let params = json!({ "_meta": { meta::PROTOCOL_VERSION: "2026-07-28" } });
    for (headers, params) in [
        (&[][..], json!({})),
        (&[("mcp-protocol-version", "2025-11-25")], json!({})),
        (&[VERSION], params),
        (&[VERSION], json!({})),
    ] {
        for method in ["notifications/initialized", "notifications/cancelled"] {
            let body = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            let answer = raw(&running, headers, body.to_string()).await;
            assert_eq!((answer.status, answer.bytes.len()), (StatusCode::ACCEPTED, 0));
        }
    }
}

#[tokio::test]
async fn what_is_no_message_is_refused_with_the_id_it_had() {
    let running = server().await;
    for (body, code, id) in [
        ("", -32_700, None),
        ("{", -32_700, None),
        ("7", -32_600, None),
        ("null", -32_600, None),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32_600, None),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32_600, None),
        (r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#, -32_600, None),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32_600, None),
        (r#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#, -32_600, Some(json!(5))),
        (r#"{"id":5,"method":"ping"}"#, -32_600, Some(json!(5))),
        (r#"{"jsonrpc":"2.0","id":"a"}"#, -32_600, Some(json!("a"))),
        (r#"{"jsonrpc":"2.0","id":"a","method":7}"#, -32_600, Some(json!("a"))),
        (r#"{"jsonrpc":"2.0","id":"a","result":{}}"#, -32_600, Some(json!("a"))),
        (r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":[]}"#, -32_600, Some(json!("a"))),
    ] {
        let answer = raw(&running, &[], body).await;
        check(&answer, 400, code);
        assert_eq!(answer.json().get("id"), id.as_ref(), "{body}");
    }
}

#[tokio::test]
async fn ids_come_back_as_they_were() {
    let running = server().await;
    for id in ["0", "-7", "\"7\"", "\"\"", "12345678901234567890", "\"é\\u0000\""] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let answer = raw(&running, &[], body).await;
        let text = std::str::from_utf8(&answer.bytes).unwrap();
        assert!(text.contains(&format!(r#""id":{id},"#)), "{text}");
    }
}

#[tokio::test]
async fn only_json_by_post_is_taken() {
    let running = server().await;
    for method in [Method::GET, Method::DELETE, Method::PUT] {
        let answer = send(running.addr(), method, MCP_PATH, &[VERSION], "").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers["allow"], "POST");
    }
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let headers = [("content-type", "text/plain")];
    let answer = send(running.addr(), Method::POST, MCP_PATH, &headers, ping).await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let headers = [("content-type", "Application/JSON; charset=utf-8")];
    let answer = send(running.addr(), Method::POST, MCP_PATH, &headers, ping).await;
    assert_eq!(answer.status, StatusCode::OK);
}
