//! Questions that nobody answers: cancelled, forgotten, left behind, or asked by a server that is
//! gone.

use super::*;

#[test]
fn a_question_that_nobody_answers_ends_with_its_time() {
    let asker = Asker::start(ERAS[0]);
    let gateway = gateway(&asker, "", "questions: { answer: 1s }");
    let arguments = json!({ "rounds": [[elicit(), sample()]] });
    let asking = message(&modern(&arguments, &everything(), &json!({})).ask(&gateway));
    assert!(asker.responses().is_empty());
    wait_for("the server is told", SOON, || asker.of("notifications/cancelled").len() == 1);
    let told = asker.responses();
    assert_eq!(told[0]["result"], json!({ "action": "cancel" }), "{told:?}");
    assert_eq!(told[1]["error"]["code"], -32603, "{told:?}");
    let call = asker.of("tools/call").pop().unwrap();
    let cancelled = asker.of("notifications/cancelled").pop().unwrap();
    assert_eq!(cancelled.member(&["params", "requestId"]), call.member(&["id"]));
    assert_eq!(cancelled.header("mcp-session-id"), call.header("mcp-session-id"));
    let late = modern(&arguments, &everything(), &answers(&asking)).ask(&gateway);
    assert_eq!((late.status, late.rpc_code()), (200, Some(-32602)), "{}", late.text());
    assert!(late.text().contains("start again"), "{}", late.text());
}

#[test]
fn a_client_that_was_asked_and_says_nothing_gets_a_timeout() {
    for speaks in ERAS {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "", "questions: { answer: 1s }");
        let legacy = Legacy::open(&gateway, "2025-11-25", &everything());
        let mut client = legacy.call(&json!({ "rounds": [[elicit()]] }));
        let asked = next(&mut client).unwrap();
        let end = next(&mut client).unwrap();
        assert_eq!(end["result"]["isError"], true, "{end}");
        let text = end.to_string();
        assert!(text.contains("timeout") && text.contains("`up`"), "{text}");
        // Too late, and nobody minds.
        assert_eq!(legacy.answer(&asked, "result", &answer_to(&asked)), 202);
        // The time that nobody answered in was not the gateway's.
        gateway.audited("the call and its own time", |record| {
            let time = |member: &str| record[member].as_u64().unwrap();
            // Nor is it anything that the server's people must hear of.
            time("durationUs") >= 1_000_000
                && time("overhead_us") < 900_000
                && record["outcome"] == "caller_error"
        });
        if matches!(speaks, Speaks::Handshake(_)) {
            wait_for("the server is told", SOON, || asker.of("notifications/cancelled").len() == 1);
        }
    }
}

#[test]
fn a_call_can_be_cancelled_while_it_asks() {
    for speaks in ERAS {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "", "");
        let legacy = Legacy::open(&gateway, "2025-11-25", &everything());
        let mut client = legacy.call(&json!({ "rounds": [[elicit()]] }));
        next(&mut client).unwrap();
        let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
                             "params": { "requestId": 7 } });
        assert_eq!(legacy.request(&cancel).ask(&gateway).status, 202);
        assert_eq!(next(&mut client), None, "the stream ends without an answer");
        if matches!(speaks, Speaks::Handshake(_)) {
            wait_for("the server is told", SOON, || asker.of("notifications/cancelled").len() == 1);
            assert_eq!(asker.responses()[0]["result"], json!({ "action": "cancel" }));
        } else {
            assert_eq!(asker.of("tools/call").len(), 1);
        }
    }
}

#[test]
fn a_client_that_is_gone_is_not_waited_for() {
    let asker = Asker::start(ERAS[0]);
    // It may come back for as long as its stream is kept, and no longer.
    for kept in ["streams: { resume_window: 0s }", "streams: { resume_window: 1s }"] {
        let before = asker.of("notifications/cancelled").len();
        let gateway = gateway(&asker, "", kept);
        let legacy = Legacy::open(&gateway, "2025-11-25", &everything());
        let mut client = legacy.call(&json!({ "rounds": [[elicit()]] }));
        next(&mut client).unwrap();
        drop(client);
        wait_for("the server is told", SOON, || {
            asker.of("notifications/cancelled").len() == before + 1
        });
    }
}

#[test]
fn a_server_that_is_gone_fails_the_call_that_brings_the_answer() {
    let asker = Asker::start(ERAS[0]);
    let gateway = gateway(&asker, "", "");
    let arguments = json!({ "rounds": [[elicit()]] });
    let asking = message(&modern(&arguments, &everything(), &json!({})).ask(&gateway));
    asker.stop();
    let reply = modern(&arguments, &everything(), &answers(&asking)).ask(&gateway);
    assert_eq!(reply.refusal().as_deref(), Some("external_service_error"), "{}", reply.text());
}

#[test]
fn a_session_that_is_lost_while_somebody_is_asked_is_named() {
    let asker = Asker::start(ERAS[0]);
    let gateway = gateway(&asker, "", "");
    let arguments = json!({ "rounds": [[elicit()]] });
    let asking = message(&modern(&arguments, &everything(), &json!({})).ask(&gateway));
    asker.forget();
    let reply = modern(&arguments, &everything(), &answers(&asking)).ask(&gateway);
    assert_eq!(reply.refusal().as_deref(), Some("external_service_error"), "{}", reply.text());
    assert!(reply.text().contains("lost the session"), "{}", reply.text());
    // The next call opens another.
    let again = message(&modern(&arguments, &everything(), &json!({})).ask(&gateway));
    assert_eq!(again["result"]["resultType"], "input_required", "{again}");
}

#[test]
fn no_more_questions_are_open_than_may_be() {
    let asker = Asker::start(ERAS[0]);
    let gateway = gateway(&asker, "", "questions: { max_open_each: 2 }");
    let arguments = json!({ "rounds": [[elicit()]] });
    let call = |employee: &str| {
        modern(&arguments, &everything(), &json!({})).header("SSO-Emp-Id", employee).ask(&gateway)
    };
    let asking = message(&call("E1"));
    call("E1");
    let third = call("E1");
    assert_eq!(third.refusal().as_deref(), Some("rate_limited"), "{}", third.text());
    assert!(third.text().contains("questions.max_open_each"), "{}", third.text());
    wait_for("the server is told", SOON, || asker.of("notifications/cancelled").len() == 1);
    assert_eq!(message(&call("E2"))["result"]["resultType"], "input_required");
    let answered = modern(&arguments, &everything(), &answers(&asking)).header("SSO-Emp-Id", "E1");
    assert_eq!(said(&message(&answered.ask(&gateway))), json!([answer_to(&elicit())]));
    assert_eq!(message(&call("E1"))["result"]["resultType"], "input_required");
}

/// Nobody's place is taken by one who is asked something, and nobody gets past the queue with an
/// answer.
#[test]
fn a_call_that_goes_on_waits_for_a_place_again() {
    let asker = Asker::start(Speaks::Stateless);
    let gateway = gateway(&asker, "max_concurrency: 1", "");
    let legacy = Legacy::open(&gateway, "2025-11-25", &everything());
    let mut asked = legacy.call(&json!({ "rounds": [[elicit()]] }));
    let question = next(&mut asked).unwrap();
    let mut busy = legacy.begin(&json!({ "pauses": 4 }));
    wait_for("the other call runs", SOON, || asker.of("tools/call").len() == 2);
    assert_eq!(legacy.answer(&question, "result", &answer_to(&question)), 202);
    let end = next(&mut asked).unwrap();
    assert_eq!(said(&end), json!([answer_to(&elicit())]));
    let calls: Vec<bool> = asker
        .of("tools/call")
        .iter()
        .map(|call| call.member(&["params", "inputResponses"]).is_some())
        .collect();
    assert_eq!(calls, [false, false, false, false, false, false, true]);
    assert_eq!(busy.head().status, 200);
}

#[test]
fn only_the_session_that_was_asked_can_answer() {
    let asker = Asker::start(Speaks::Stateless);
    let gateway = gateway(&asker, "", "");
    let legacy = Legacy::open(&gateway, "2025-11-25", &everything());
    let other = Legacy::open(&gateway, "2025-11-25", &everything());
    let mut client = legacy.call(&json!({ "rounds": [[elicit()]] }));
    let asked = next(&mut client).unwrap();
    let forged = json!({ "action": "accept", "content": { "n": 0 } });
    assert_eq!(other.answer(&asked, "result", &forged), 202, "accepted, and of no effect");
    let mut invented = asked.clone();
    invented["id"] = json!("g-1");
    assert_eq!(legacy.answer(&invented, "result", &forged), 202);
    assert_eq!(legacy.answer(&asked, "result", &answer_to(&asked)), 202);
    assert_eq!(said(&next(&mut client).unwrap()), json!([answer_to(&asked)]));
}

#[test]
fn a_call_with_a_key_stays_one_call_over_its_questions() {
    for speaks in ERAS {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "", "");
        let arguments = json!({ "rounds": [[elicit()]], "idempotencyKey": "k" });
        let call = |more: &Value| {
            let mut more = more.clone();
            more["name"] = json!("other");
            modern(&arguments, &everything(), &more).set("Mcp-Name", "other").ask(&gateway)
        };
        let asking = message(&call(&json!({})));
        assert_eq!(asking["result"]["resultType"], "input_required", "{asking}");
        let done = call(&answers(&asking));
        assert_eq!(said(&message(&done)), json!([answer_to(&elicit())]), "{}", done.text());
        let calls = asker.of("tools/call").len();
        let again = call(&json!({}));
        assert_eq!(again.header("idempotency-replayed"), Some("true"), "{}", again.text());
        assert_eq!(said(&message(&again)), json!([answer_to(&elicit())]));
        assert_eq!(asker.of("tools/call").len(), calls);
    }
}

#[test]
fn who_waits_for_a_human_keeps_nobody_from_the_server() {
    for speaks in ERAS {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "max_concurrency: 1", "");
        let legacy = Legacy::open(&gateway, "2025-11-25", &everything());
        let mut client = legacy.call(&json!({ "rounds": [[elicit()]] }));
        let asked = next(&mut client).unwrap();
        let other = modern(&json!({ "rounds": [[sample()]] }), &everything(), &json!({}));
        let asking = message(&other.ask(&gateway));
        assert_eq!(asking["result"]["resultType"], "input_required", "{asking}");
        assert_eq!(legacy.answer(&asked, "result", &answer_to(&asked)), 202);
        assert_eq!(said(&next(&mut client).unwrap()), json!([answer_to(&asked)]));
    }
}

#[test]
fn more_sessions_do_not_open_more_questions() {
    let asker = Asker::start(Speaks::Stateless);
    let gateway = gateway(&asker, "", "questions: { max_open_each: 2 }");
    let open = || Legacy::open(&gateway, "2025-11-25", &everything());
    let arguments = json!({ "rounds": [[elicit()]] });
    let mut clients = [open(), open()].map(|legacy| legacy.call(&arguments));
    for client in &mut clients {
        assert_eq!(next(client).unwrap()["method"], "elicitation/create");
    }
    let body = json!({ "jsonrpc": "2.0", "id": 8, "method": "tools/call",
        "params": { "name": "ask", "arguments": arguments } });
    let third = open().request(&body).ask(&gateway);
    assert_eq!(third.refusal().as_deref(), Some("rate_limited"), "{}", third.text());
    assert!(third.text().contains("questions.max_open_each"), "{}", third.text());
}
