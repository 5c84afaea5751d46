//! The order server over TCP.

use http::StatusCode;

use super::*;
use crate::demo::testing::{ANY_PORT, modern, plain, post};

async fn orders() -> Running {
    start(ANY_PORT).await.unwrap()
}

/// Calls a tool; either what it answered, or the code of its refusal.
async fn call(running: &Running, tool: &str, args: Value) -> Result<Value, String> {
    let params = json!({ "name": tool, "arguments": args });
    let answer = modern(running.addr(), MCP_PATH, &[], "tools/call", params).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let result = &answer.json()["result"];
    let content = result["structuredContent"].clone();
    match &result["isError"] {
        Value::Bool(false) => Ok(content),
        _ => Err(content["error"]["code"].as_str().unwrap().to_owned()),
    }
}

#[tokio::test]
async fn tells_an_order_with_its_decimals() {
    let running = orders().await;
    let params = json!({ "name": "query_order", "arguments": { "orderId": "O-1001" } });
    let answer = plain(running.addr(), MCP_PATH, &[], "tools/call", params).await;
    let text = std::str::from_utf8(&answer.bytes).unwrap();
    assert!(text.contains(r#""total":129.90"#), "{text}");
    assert!(text.contains(r#""price":104.00"#), "{text}");
    let order = &answer.json()["result"]["structuredContent"];
    assert_eq!(order["status"], "shipped");
    assert_eq!(order["currency"], "EUR");
    assert_eq!(order["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn lists_all_orders_or_those_in_one_state() {
    let running = orders().await;
    assert_eq!(call(&running, "list_orders", json!({})).await.unwrap()["total"], 4);
    let paid = call(&running, "list_orders", json!({ "status": "paid" })).await.unwrap();
    assert_eq!(paid["orders"][0]["orderId"], "O-1002");
    let lost = call(&running, "list_orders", json!({ "status": "lost" })).await;
    assert_eq!(lost.unwrap_err(), "invalid_args");
}

#[tokio::test]
async fn an_order_that_does_not_exist_is_not_found() {
    let running = orders().await;
    for id in ["O-9999", "' OR '1'='1", "o-1001"] {
        for tool in ["query_order", "cancel_order", "refund_order"] {
            let missing = call(&running, tool, json!({ "orderId": id })).await;
            assert_eq!(missing.unwrap_err(), "not_found", "{tool} {id}");
        }
    }
}

#[tokio::test]
async fn cancels_until_it_is_shipped() {
    let running = orders().await;
    for _ in 0..2 {
        let cancelled = call(&running, "cancel_order", json!({ "orderId": "O-1003" })).await;
        assert_eq!(cancelled.unwrap()["status"], "cancelled");
    }
    let shipped = call(&running, "cancel_order", json!({ "orderId": "O-1001" })).await;
    assert_eq!(shipped.unwrap_err(), "conflict");
}

#[tokio::test]
async fn refunds_no_more_than_was_paid() {
    let running = orders().await;
    let refund = async |id: &str, amount: &str| {
        let args = format!(r#"{{"orderId":"{id}","amount":{amount}}}"#);
        let args = serde_json::from_str(&args).unwrap();
        call(&running, "refund_order", args).await.map(|order| order["refunded"].to_string())
    };
    assert_eq!(refund("O-1002", "100.5").await.as_deref(), Ok("100.50"));
    assert_eq!(refund("O-1002", "100.5").await.as_deref(), Ok("201.00"));
    assert_eq!(refund("O-1002", "7.01").await.unwrap_err(), "conflict");
    assert_eq!(refund("O-1003", "1").await.unwrap_err(), "conflict");
    for bad in ["0", "-1", "1.005", "1e2", "\"7\"", "99999999999999999999"] {
        assert_eq!(refund("O-1002", bad).await.unwrap_err(), "invalid_args", "{bad}");
    }
    let rest = call(&running, "refund_order", json!({ "orderId": "O-1002" })).await.unwrap();
    assert_eq!(rest["refunded"].to_string(), "208.00");
    let more = call(&running, "refund_order", json!({ "orderId": "O-1002" })).await;
    assert_eq!(more.unwrap_err(), "conflict");
}

#[tokio::test]
async fn takes_notes_but_not_for_ever() {
    let running = orders().await;
    for count in 1..=Order::MAX_NOTES {
        let args = json!({ "orderId": "O-1001", "note": "call back" });
        let order = call(&running, "add_order_note", args).await.unwrap();
        assert_eq!(order["notes"].as_array().unwrap().len(), count);
    }
    let args = json!({ "orderId": "O-1001", "note": "one more" });
    assert_eq!(call(&running, "add_order_note", args).await.unwrap_err(), "conflict");
}

#[tokio::test]
async fn every_answer_fits_the_output_schema_and_so_does_every_refusal() {
    let running = orders().await;
    let listing = modern(running.addr(), MCP_PATH, &[], "tools/list", json!({})).await.json();
    let tools = listing["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 5);
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        let schema = jsonschema::draft202012::new(&tool["outputSchema"]).unwrap();
        let args = match name {
            "list_orders" => json!({}),
            "add_order_note" => json!({ "orderId": "O-1002", "note": "n" }),
            _ => json!({ "orderId": "O-1002" }),
        };
        for args in [args, json!({ "user": { "empId": "E1001" } })] {
            let params = json!({ "name": name, "arguments": args });
            let answer = modern(running.addr(), MCP_PATH, &[], "tools/call", params).await.json();
            schema.validate(&answer["result"]["structuredContent"]).unwrap();
        }
        let reads = matches!(name, "query_order" | "list_orders");
        assert_eq!(tool["annotations"]["readOnlyHint"], reads, "{name}");
    }
}

#[tokio::test]
async fn has_nothing_beside_its_one_path() {
    let running = orders().await;
    for path in ["/", "/mcp/", "/mcp/http", "/mcp/tools/list"] {
        let answer = post(running.addr(), path, &[], "{}").await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
}
