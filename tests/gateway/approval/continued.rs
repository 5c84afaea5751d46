//! A call that has its yes, and whose server asks something first: what brings the answer needs
//! no second yes, and is good once.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{decide, fault, start, value, waiting};
use crate::support::{Asker, Gateway, Request, Speaks};

const RULES: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: all, effect: allow, roles: [member] }
  - { id: ask, effect: require_approval, tools: [up/other], approval: { roles: [owner] } }
";

fn call(arguments: &Value, more: &Value) -> Request {
    let mut params = json!({ "name": "other", "arguments": arguments,
        "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                   "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } } });
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    Request::stateless(&body.to_string())
}

/// Answers whatever was asked.
fn answers(asking: &Value) -> Value {
    let requests = asking["result"]["inputRequests"].as_object().unwrap();
    let accept = json!({ "action": "accept", "content": { "n": 1 } });
    let given: serde_json::Map<String, Value> =
        requests.keys().map(|key| (key.clone(), accept.clone())).collect();
    json!({ "inputResponses": given, "requestState": asking["result"]["requestState"] })
}

fn rounds() -> Value {
    let question = json!({ "method": "elicitation/create", "params": { "message": "Sure?",
        "requestedSchema": { "type": "object", "properties": {} } } });
    json!({ "rounds": [[question], [question]] })
}

fn gateway(asker: &Asker) -> Gateway {
    start(&Arc::new(tempfile::tempdir().unwrap()), &asker.url(), RULES)
}

#[test]
fn what_a_server_asks_of_an_approved_call_needs_no_second_yes() {
    for speaks in [Speaks::Stateless, Speaks::Handshake("2025-11-25")] {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker);
        let arguments = rounds();
        let id = waiting(&call(&arguments, &json!({})).ask(&gateway));
        decide(&gateway, &id, "E2", true);
        let asking = value(&call(&arguments, &json!({})).ask(&gateway));
        assert_eq!(asking["result"]["resultType"], "input_required", "{speaks:?}: {asking}");
        // Another call's, or another person's, it is not.
        let foreign = call(&json!({ "rounds": [] }), &answers(&asking)).ask(&gateway);
        assert_eq!(foreign.rpc_code(), Some(-32602), "{}", foreign.text());
        let second = call(&arguments, &answers(&asking));
        let more = value(&second.ask(&gateway));
        assert_eq!(more["result"]["resultType"], "input_required", "{speaks:?}: {more}");
        let end = value(&call(&arguments, &answers(&more)).ask(&gateway));
        assert_eq!(end["result"]["resultType"], "complete", "{speaks:?}: {end}");
        let before = asker.of("tools/call").len();
        for spent in [&asking, &more] {
            let again = call(&arguments, &answers(spent)).ask(&gateway);
            assert_eq!(again.rpc_code(), Some(-32602), "{speaks:?}: {}", again.text());
        }
        assert_eq!(asker.of("tools/call").len(), before, "{speaks:?}: nothing left");
        let next = fault(&call(&arguments, &json!({})).ask(&gateway));
        assert_ne!(next["approvalId"], *id, "{speaks:?}");
    }
}
