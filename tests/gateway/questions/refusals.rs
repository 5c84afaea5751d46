//! Clients that refuse, that cannot be asked, or have no form for a question; and servers that
//! need no answer at all.

use super::*;

#[test]
fn a_client_that_refuses_is_heard() {
    let error = json!({ "code": -1, "message": "no" });
    for speaks in ERAS {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "", "");
        let legacy = Legacy::open(&gateway, "2025-11-25", &everything());
        for question in [elicit(), sample()] {
            let mut client = legacy.call(&json!({ "rounds": [[question]] }));
            let asked = next(&mut client).unwrap();
            assert_eq!(legacy.answer(&asked, "error", &error), 202);
            let end = next(&mut client).unwrap();
            match (speaks, question["method"].as_str().unwrap()) {
                // A server of the same era is told just that.
                (Speaks::Handshake(_), _) => assert_eq!(said(&end)[0]["code"], -1, "{end}"),
                (_, "elicitation/create") => {
                    assert_eq!(said(&end), json!([{ "action": "cancel" }]), "{end}");
                }
                _ => {
                    assert_eq!(end["result"]["isError"], true, "{end}");
                    let text = end["result"]["content"][0]["text"].as_str().unwrap();
                    assert!(text.contains("refused"), "{text}");
                }
            }
        }
    }
}

#[test]
fn whoever_cannot_be_asked_is_told_what_is_missing() {
    let needs = json!({ "sampling": {} });
    let asker = Asker::start(Speaks::Stateless);
    let gateway = gateway(&asker, "", "");
    // The server says so itself.
    let arguments = json!({ "needs": needs });
    let reply = modern(&arguments, &json!({}), &json!({})).ask(&gateway);
    assert_eq!((reply.status, reply.rpc_code()), (400, Some(-32021)), "{}", reply.text());
    let lite =
        Request::lite("tools/call", json!({ "name": "ask", "arguments": arguments }).to_string());
    let reply = lite.ask(&gateway);
    let body: Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!((reply.status, &body["error"]["code"]), (422, &json!("capability_missing")));
    assert_eq!(body["error"]["requiredCapabilities"], needs, "{body}");
    // It asks all the same.
    let arguments = json!({ "rounds": [[sample()]] });
    let lite =
        Request::lite("tools/call", json!({ "name": "ask", "arguments": arguments }).to_string());
    assert_eq!(lite.ask(&gateway).status, 502);
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                       "params": { "name": "ask", "arguments": arguments } });
    let outside = Request::handshake(call.to_string()).ask(&gateway);
    assert_eq!(outside.refusal().as_deref(), Some("capability_missing"), "{}", outside.text());
    let session = Legacy::open(&gateway, "2025-11-25", &json!({ "elicitation": {} }));
    let inside = session.request(&call).ask(&gateway);
    assert_eq!(inside.refusal().as_deref(), Some("capability_missing"), "{}", inside.text());
    assert!(inside.text().contains(r#""requiredCapabilities":{"sampling":{}}"#));
    assert!(inside.is_error());
}

#[test]
fn a_server_of_the_handshake_era_learns_only_what_its_client_declared() {
    let asker = Asker::start(ERAS[0]);
    let gateway = gateway(&asker, "", "");
    let arguments = json!({ "rounds": [[sample()]] });
    let declared = json!({ "elicitation": {}, "extensions": { "x.y/z": {} } });
    let reply = message(&modern(&arguments, &declared, &json!({})).ask(&gateway));
    // Its question is refused, and the call goes on.
    assert_eq!(said(&reply)[0]["code"], -32601, "{reply}");
    let told = asker.of("initialize").pop().unwrap();
    let told: Value =
        serde_json::from_str(&told.member(&["params", "capabilities"]).unwrap()).unwrap();
    assert_eq!(told, json!({ "elicitation": {} }));
}

#[test]
fn a_stateless_server_learns_what_the_client_declared_and_the_gateway_carries() {
    let asker = Asker::start(Speaks::Stateless);
    let gateway = gateway(&asker, "", "");
    let told = || {
        let call = asker.of("tools/call").pop().unwrap();
        let path = ["params", "_meta", "io.modelcontextprotocol/clientCapabilities"];
        serde_json::from_str::<Value>(&call.member(&path).unwrap()).unwrap()
    };
    let declared = json!({ "sampling": { "x": 1 }, "extensions": { "x.y/z": {} }, "roots": {} });
    modern(&json!({}), &declared, &json!({})).ask(&gateway);
    assert_eq!(told(), json!({ "sampling": { "x": 1 }, "roots": {} }));
    let declared = json!({ "roots": { "listChanged": true }, "elicitation": {}, "sampling": {} });
    for (version, expected) in [
        ("2025-11-25", json!({ "roots": {}, "sampling": {}, "elicitation": {} })),
        ("2025-03-26", json!({ "roots": {}, "sampling": {} })),
    ] {
        let session = Legacy::open(&gateway, version, &declared);
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                           "params": { "name": "ask", "arguments": {} } });
        session.request(&call).ask(&gateway);
        assert_eq!(told(), expected, "{version}");
    }
}

#[test]
fn no_question_is_held_open_where_the_operator_will_not_have_it() {
    let asker = Asker::start(ERAS[0]);
    let gateway = gateway(&asker, "park: false", "");
    let arguments = json!({ "rounds": [[elicit()]] });
    let reply = message(&modern(&arguments, &everything(), &json!({})).ask(&gateway));
    assert_eq!(said(&reply)[0]["code"], -32601, "{reply}");
    let legacy = Legacy::open(&gateway, "2025-11-25", &everything());
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                       "params": { "name": "ask", "arguments": arguments } });
    let reply = message(&legacy.request(&call).ask(&gateway));
    assert_eq!(said(&reply)[0]["code"], -32601, "{reply}");
    for opened in asker.of("initialize") {
        assert_eq!(opened.member(&["params", "capabilities"]).as_deref(), Some("{}"));
    }
}

#[test]
fn a_server_that_only_wants_to_be_called_again_is() {
    let asker = Asker::start(Speaks::Stateless);
    let gateway = gateway(&asker, "", "");
    let arguments = json!({ "pauses": 2, "rounds": [] });
    let lite =
        Request::lite("tools/call", json!({ "name": "ask", "arguments": arguments }).to_string());
    let reply = lite.ask(&gateway);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(!reply.text().contains("input_required"));
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                       "params": { "name": "ask", "arguments": arguments } });
    let reply = message(&Request::handshake(call.to_string()).ask(&gateway));
    assert_eq!(said(&reply), json!([]), "{reply}");
    // Whoever has a form for it does it himself.
    let asking = message(&modern(&arguments, &everything(), &json!({})).ask(&gateway));
    assert_eq!(asking["result"]["resultType"], "input_required");
    assert!(asking["result"].get("inputRequests").is_none(), "{asking}");
    assert_eq!(asker.of("tools/call").len(), 3 + 3 + 1);
}

#[test]
fn a_server_that_never_comes_to_an_end_runs_into_the_longest_time() {
    let asker = Asker::start(Speaks::Stateless);
    let gateway = gateway(&asker, "timeout: 1s, max_time: 1s", "");
    let arguments = json!({ "pauses": 1000, "rounds": [] });
    let call = json!({ "name": "ask", "arguments": arguments });
    let reply = Request::lite("tools/call", call.to_string()).ask(&gateway);
    assert_eq!((reply.status, reply.refusal().as_deref()), (504, Some("timeout")));
    assert!(reply.text().contains("`up`"), "{}", reply.text());
}

#[test]
fn links_that_a_server_wants_followed_reach_who_can_follow_them() {
    let asker = Asker::start(ERAS[0]);
    let gateway = gateway(&asker, "", "");
    let arguments = |number: u64| {
        json!({ "number": number, "rounds": [], "links": [{ "mode": "url", "elicitationId": "e",
                "url": "https://a.example/", "message": "Sign in." }] })
    };
    let asking = message(&modern(&arguments(1), &everything(), &json!({})).ask(&gateway));
    let link = &asking["result"]["inputRequests"]["link-1"];
    assert_eq!(
        link["params"],
        json!({ "mode": "url", "url": "https://a.example/", "message": "Sign in." })
    );
    assert!(asking["result"].get("requestState").is_none(), "{asking}");
    let followed = json!({ "inputResponses": { "link-1": { "action": "accept" } } });
    let done = message(&modern(&arguments(1), &everything(), &followed).ask(&gateway));
    assert_eq!(said(&done), json!([]), "{done}");
    assert!(!asker.of("tools/call").pop().unwrap().text().contains("inputResponses"));

    let forms = json!({ "elicitation": {} });
    let reply = modern(&arguments(2), &forms, &json!({})).ask(&gateway);
    assert_eq!((reply.status, reply.rpc_code()), (400, Some(-32021)), "{}", reply.text());
    assert!(reply.text().contains(r#""requiredCapabilities":{"elicitation":{"url":{}}}"#));
    let call = |number| {
        json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                "params": { "name": "ask", "arguments": arguments(number) } })
    };
    // Its own revision has the error, an older one has none.
    let same = Legacy::open(&gateway, "2025-11-25", &everything());
    assert_eq!(same.request(&call(3)).ask(&gateway).rpc_code(), Some(-32042));
    let older = Legacy::open(&gateway, "2025-06-18", &everything());
    let reply = older.request(&call(4)).ask(&gateway);
    assert_eq!(reply.refusal().as_deref(), Some("capability_missing"), "{}", reply.text());
}

#[test]
fn a_link_gets_an_id_where_the_revision_has_them() {
    let link = json!({ "method": "elicitation/create", "params": { "mode": "url",
                       "url": "https://a.example/", "message": "Sign in." } });
    let asker = Asker::start(Speaks::Stateless);
    let gateway = gateway(&asker, "", "");
    let arguments = json!({ "rounds": [[link]] });
    let legacy = Legacy::open(&gateway, "2025-11-25", &everything());
    let mut client = legacy.call(&arguments);
    let asked = next(&mut client).unwrap();
    assert!(asked["params"]["elicitationId"].as_str().is_some_and(|id| id.len() > 8), "{asked}");
    assert_eq!(asked["params"]["url"], "https://a.example/");
    legacy.answer(&asked, "result", &json!({ "action": "accept" }));
    assert_eq!(said(&next(&mut client).unwrap()), json!([{ "action": "accept" }]));
    let older = Legacy::open(&gateway, "2025-06-18", &everything());
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                       "params": { "name": "ask", "arguments": arguments } });
    let reply = older.request(&call).ask(&gateway);
    assert_eq!(reply.refusal().as_deref(), Some("capability_missing"), "{}", reply.text());
}
