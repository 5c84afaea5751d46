//! How an invocation ends where a limit, a rule, a person or the server is in its way.

use super::*;
use crate::support::Asker;

#[test]
fn limits_are_told_as_on_every_other_entrance() {
    let upstream = Upstream::answering(Speaks::Lite, good(Speaks::Lite));
    let limits = "version: hangu/v1\nkind: Policy\nscope: platform\nlimits:\n  - { id: few, per: [principal], rate: 2/1h }\n";
    let gateway = gateway_with(&upstream, "", "", &[limits]);
    for left in [1, 0] {
        let reply = call("echo", &json!({})).ask(&gateway);
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("ratelimit-policy"), Some("\"few\";q=2;w=3600"));
        let state = reply.header("ratelimit").unwrap();
        assert!(state.starts_with(&format!("\"few\";r={left};t=")), "{state}");
    }
    let reply = call("echo", &json!({})).ask(&gateway);
    let error = &body(&reply)["error"];
    assert_eq!(
        (reply.status, &error["code"], &error["limit"]),
        (429, &json!("rate_limited"), &json!("few"))
    );
    assert_eq!((&error["retryable"], &error["next"]), (&json!(true), &json!("wait")));
    assert!(reply.header("retry-after").is_some() && reply.header("ratelimit").is_some());
    // In a runtime's form the model is told, and its program by the headers.
    let gemini =
        post(r#"{"functionCall":{"name":"up__echo","args":{}}}"#).at("/v1/invoke?format=gemini");
    let reply = gemini.ask(&gateway);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(
        body(&reply)["functionResponse"]["response"]["error"].as_str().unwrap().contains("`few`")
    );
    assert!(reply.header("retry-after").is_some() && reply.header("ratelimit").is_some());
    assert_eq!(upstream.calls().len(), 2);
}

#[test]
fn a_tool_that_fails_is_an_answer() {
    let failed = r#"{"content":[{"type":"text","text":"no such thing"}],"isError":true}"#;
    let upstream = Upstream::answering(Speaks::Lite, Answer::json(failed));
    let gateway = gateway(&upstream);
    let reply = call("echo", &json!({})).ask(&gateway);
    assert_eq!((reply.status, reply.text().as_str()), (200, failed));
    gateway.audited("a failed tool", |record| record["outcome"] == "tool_error");
}

#[test]
fn a_server_that_fails_is_told_by_its_code() {
    let upstream = Upstream::answering(Speaks::Lite, good(Speaks::Lite));
    let gateway = gateway_with(
        &upstream,
        ", timeout: 300ms, max_response_bytes: 1KiB, max_request_bytes: 2KiB, breaker: off",
        "edge: { max_body: 8KiB }",
        &[],
    );
    let large = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(4_000));
    let refused = r#"{"error":{"code":"invalid_args","message":"what is that"}}"#;
    for (answer, status, code) in [
        (Answer::json(LITE_OK).delayed(Duration::from_secs(3)), 504, "timeout"),
        (Answer::json(large), 413, "payload_too_large"),
        (Answer::json("{"), 502, "external_service_error"),
        (Answer::none(), 502, "external_service_error"),
        (
            Answer::new("500 Oops", "text/plain", "secret stack trace"),
            502,
            "external_service_error",
        ),
        (Answer::new("401 No", "application/json", "{}"), 403, "permission_denied"),
        (Answer::new("422 No", "application/json", refused), 400, "invalid_args"),
    ] {
        upstream.answers(answer);
        let reply = call("echo", &json!({})).ask(&gateway);
        assert_eq!(refusal(&reply), (status, code.to_owned()), "{}", reply.text());
        assert!(!reply.text().contains("stack trace"));
    }
    upstream.answers(good(Speaks::Lite));
    let before = upstream.calls().len();
    for length in [3_000, 9_000] {
        let reply = call("echo", &json!({ "x": "x".repeat(length) })).ask(&gateway);
        assert_eq!(refusal(&reply), (413, "payload_too_large".to_owned()), "{}", reply.text());
    }
    assert_eq!(upstream.calls().len(), before);
}

#[test]
fn a_server_that_nobody_reaches_is_no_unknown_tool() {
    let yaml = format!(
        "{}upstreams:\n  up: {{ url: \"http://127.0.0.1:1/mcp\", dialect: mcp-lite }}\n",
        callers()
    );
    let gateway = Gateway::start(&yaml, &[RULES, TOOLS]);
    let key = server_key(&url::Url::parse("http://127.0.0.1:1/mcp").unwrap());
    let by_key = post(json!({ "serverKey": &*key, "toolName": "echo" }).to_string());
    for request in [call("echo", &json!({})), by_key] {
        let reply = request.ask(&gateway);
        assert_eq!(refusal(&reply), (502, "external_service_error".to_owned()), "{}", reply.text());
        assert_eq!(body(&reply)["error"]["next"], "retry");
    }
}

#[test]
fn who_calls_here_cannot_be_asked_and_is_told_so() {
    let asker = Asker::start(Speaks::Stateless);
    let yaml = format!("{}upstreams:\n  up: {{ url: \"{}\" }}\n", callers(), asker.url());
    let gateway = Gateway::start(&yaml, &[RULES, TOOLS]);
    let sample =
        json!({ "method": "sampling/createMessage", "params": { "maxTokens": 1, "messages": [] } });
    for arguments in [json!({ "needs": { "sampling": {} } }), json!({ "rounds": [[sample]] })] {
        let reply = call("ask", &arguments).ask(&gateway);
        assert_eq!(refusal(&reply), (422, "capability_missing".to_owned()), "{}", reply.text());
    }
    assert_eq!(call("ask", &json!({})).ask(&gateway).status, 200);
}

#[test]
fn a_call_that_waits_for_a_yes_runs_once_it_has_it() {
    let upstream = Upstream::answering(Speaks::Lite, good(Speaks::Lite));
    let rules = "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\nrules:\n  - { id: ask, effect: require_approval, tools: [up/slow], approval: { roles: [owner], expires: 1h } }\n";
    let people = "version: hangu/v1\nkind: Directory\nemployees: { E1: { tenant: acme, roles: [member] }, E2: { tenant: acme, roles: [owner] } }\n";
    let url = upstream.url();
    let yaml = format!(
        "callers:\n  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, call_sources: [agent] }}\nupstreams:\n  up: {{ url: \"{url}\", dialect: mcp-lite }}\n"
    );
    let gateway = Gateway::start(&yaml, &[RULES, TOOLS, rules, people]);
    let stop = || call("slow", &json!({ "n": 1 })).header("SSO-Emp-Id", "E1").ask(&gateway);
    let waits = stop();
    assert_eq!(refusal(&waits), (403, "approval_required".to_owned()), "{}", waits.text());
    let id = body(&waits)["error"]["approvalId"].as_str().unwrap().to_owned();
    assert!(upstream.calls().is_empty());
    let yes =
        Request::new("POST", &format!("/v1/approvals/{id}/approve"), "").header("SSO-Emp-Id", "E2");
    assert_eq!(yes.ask(&gateway).status, 200);
    assert_eq!(stop().status, 200);
    assert_eq!(refusal(&stop()), (403, "approval_required".to_owned()), "a yes is good once");
    assert_eq!(upstream.calls().len(), 1);
    // Nobody is named: a person is called for, not a program.
    let nobody = call("slow", &json!({})).ask(&gateway);
    assert_eq!(refusal(&nobody), (403, "permission_denied".to_owned()), "{}", nobody.text());
}
