//! Employees are asked for grants through their own clients: by a result that asks (2026-07-28), by
//! an error with a link (2025-11-25), and not at all where a client has no form for it.

use std::thread;

use serde_json::{Value, json};

use super::{
    Pair,
    consent::{self, Browser, POLICY, PUBLIC, connect_url, query, yaml},
};
use crate::{
    process_support::{Answer, Seen, text_result},
    support::{Client, Gateway, Reply, Request},
};

mod governed;

/// What a client says that it can be asked.
fn links() -> Value {
    json!({ "elicitation": { "url": {} } })
}

fn gateway(pair: &Pair, of_auth: &str, of_file: &str) -> Gateway {
    Gateway::start(&yaml(pair, of_auth, &format!("store: memory\n{of_file}")), &[POLICY])
}

/// A request of 2026-07-28, with what it brings.
fn modern(method: &str, params: &Value, capabilities: &Value, more: &Value) -> Request {
    let mut params = params.clone();
    params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                              "io.modelcontextprotocol/clientCapabilities": capabilities });
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    Request::stateless(&body.to_string())
}

pub fn echo(arguments: &Value, more: &Value) -> Request {
    let params = json!({ "name": "echo", "arguments": arguments });
    modern("tools/call", &params, &links(), more).header("SSO-Emp-Id", "E1")
}

fn message(reply: &Reply) -> Value {
    serde_json::from_str(&reply.message()).unwrap_or_else(|_| panic!("{}", reply.text()))
}

/// The link of an answer that asks, and its state.
#[track_caller]
pub fn asked(reply: &Reply) -> (String, String) {
    let message = message(reply);
    assert_eq!(message["result"]["resultType"], "input_required", "{message}");
    let requests = message["result"]["inputRequests"].as_object().unwrap();
    assert_eq!(requests.keys().collect::<Vec<_>>(), ["connect"]);
    let question = &requests["connect"];
    assert_eq!(question["method"], "elicitation/create");
    let params = question["params"].as_object().unwrap();
    assert_eq!(params.keys().collect::<Vec<_>>(), ["mode", "url", "message"], "and no id");
    assert_eq!(params["mode"], "url");
    assert!(params["message"].as_str().unwrap().contains("`up`"), "{message}");
    let url = params["url"].as_str().unwrap();
    assert!(url.starts_with(PUBLIC), "{url}");
    (url.to_owned(), message["result"]["requestState"].as_str().unwrap().to_owned())
}

pub fn says(action: &str, state: &str) -> Value {
    json!({ "inputResponses": { "connect": { "action": action } }, "requestState": state })
}

/// The call comes back, and its client says nothing of where its person is.
fn only(state: &str) -> Value {
    json!({ "requestState": state })
}

#[track_caller]
fn connect(gateway: &Gateway, pair: &Pair, url: &str) {
    let done = Browser::default().connect(gateway, pair, url);
    assert!(done.status == 200 && done.text().contains("is connected"), "{done:?}");
}

#[track_caller]
pub fn ran(reply: &Reply) {
    let message = message(reply);
    assert!(message["result"].is_object() && !reply.is_error(), "{message}");
    assert_ne!(message["result"]["resultType"], "input_required", "{message}");
}

/// A server that has prompts and resources, too.
fn serves_everything(pair: &Pair) {
    pair.up.before(|seen: &Seen| {
        let result = match &*seen.method {
            "server/discover" => json!({ "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {}, "prompts": {}, "resources": {} } }),
            "prompts/list" => json!({ "prompts": [{ "name": "greet" }] }),
            "resources/list" => json!({ "resources": [{ "uri": "a://b", "name": "b" }] }),
            "resources/templates/list" => json!({ "resourceTemplates": [] }),
            "prompts/get" => json!({ "messages": [] }),
            "resources/read" => json!({ "contents": [{ "uri": "a://b", "text": "read" }] }),
            _ => return None,
        };
        let mut whole = json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "public" });
        whole.as_object_mut().unwrap().extend(result.as_object().unwrap().clone());
        Some(seen.result(whole))
    });
}

// === 2026-07-28 ===

#[test]
fn a_client_of_2026_is_asked_and_makes_the_call_again() {
    for (method, params) in [
        ("tools/call", json!({ "name": "echo", "arguments": { "n": 12345678901234567890_u64 } })),
        ("prompts/get", json!({ "name": "greet" })),
        ("resources/read", json!({ "uri": "a://b" })),
    ] {
        let pair = Pair::start();
        serves_everything(&pair);
        let gateway = gateway(&pair, "", "");
        let ask = |more: &Value| {
            modern(method, &params, &links(), more).header("SSO-Emp-Id", "E1").ask(&gateway)
        };
        let (url, state) = asked(&ask(&json!({})));
        assert!(pair.up.requests(method).is_empty(), "{method}");
        connect(&gateway, &pair, &url);
        ran(&ask(&says("accept", &state)));
        let sent = pair.up.requests(method);
        assert_eq!(sent.len(), 1, "{method}");
        assert_eq!(sent[0].header("authorization"), Some("Bearer planted-token-1"));
        assert!(!sent[0].body.contains("requestState") && !sent[0].body.contains("inputResp"));
        gateway.audited("the call that was asked about", |record| {
            record["method"] == method
                && record["outcome"] == "input_required"
                && record["code"] == "server_not_configured"
        });
        let audit = gateway.audit().iter().map(Value::to_string).collect::<String>();
        assert!(!audit.contains("planted") && !audit.contains("?t="), "{audit}");
    }
}

#[test]
fn who_declines_or_cancels_is_not_called_for_and_may_be_asked_again() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "", "");
    for action in ["decline", "cancel"] {
        let (_, state) = asked(&echo(&json!({}), &json!({})).ask(&gateway));
        let reply = echo(&json!({}), &says(action, &state)).ask(&gateway);
        let refusal = consent::refusal(&reply);
        let told = (&refusal["code"], &refusal["next"], refusal.get("outcome"));
        assert_eq!(told, (&json!("server_not_configured"), &json!("stop"), None), "{action}");
        assert_eq!(refusal["alias"], "MCP_SERVER_NOT_CONFIGURED");
        // Also where the person could be called for by now.
        assert!(refusal.get("connectUrl").is_none(), "{refusal}");
    }
    let (url, state) = asked(&echo(&json!({}), &json!({})).ask(&gateway));
    connect(&gateway, &pair, &url);
    let reply = echo(&json!({}), &says("decline", &state)).ask(&gateway);
    assert_eq!(consent::refusal(&reply)["code"], "server_not_configured", "{}", reply.text());
    assert!(pair.up.calls().is_empty());
    ran(&echo(&json!({}), &json!({})).ask(&gateway));
}

#[test]
fn a_client_is_asked_so_often_and_no_more() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "", "questions: { rounds: 3 }");
    let mut more = json!({});
    for _ in 0..3 {
        let (_, state) = asked(&echo(&json!({}), &more).ask(&gateway));
        more = only(&state);
    }
    let url = connect_url(&echo(&json!({}), &more).ask(&gateway));
    connect(&gateway, &pair, &url);
    ran(&echo(&json!({}), &more).ask(&gateway));
}

#[test]
fn a_person_who_is_still_in_the_browser_is_waited_for() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "", "");
    let (url, state) = asked(&echo(&json!({}), &json!({})).ask(&gateway));
    // He does not come: then he is asked again.
    let (_, again) = asked(&echo(&json!({}), &says("accept", &state)).ask(&gateway));
    // He does: whenever that is, it is before he would be asked once more.
    let came = thread::scope(|scope| {
        let came = scope.spawn(|| {
            let mut more = says("accept", &again);
            for _ in 0..6 {
                let reply = echo(&json!({}), &more).ask(&gateway);
                if message(&reply)["result"]["resultType"] != "input_required" {
                    return reply;
                }
                more = says("accept", &asked(&reply).1);
            }
            panic!("asked again and again");
        });
        connect(&gateway, &pair, &url);
        came.join().unwrap()
    });
    ran(&came);
    assert_eq!(pair.up.calls().len(), 1);
}

#[test]
fn a_state_is_good_for_the_same_call_of_the_same_employee() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "", "");
    let (url, state) = asked(&echo(&json!({ "n": 1 }), &json!({})).ask(&gateway));
    connect(&gateway, &pair, &url);
    let cases = [
        ("another employee", echo(&json!({ "n": 1 }), &only(&state)).set("SSO-Emp-Id", "E2")),
        ("other arguments", echo(&json!({ "n": 2 }), &only(&state))),
        (
            "more than there was",
            echo(&json!({ "n": 1 }), &json!({ "requestState": state, "x": 1 })),
        ),
        ("a changed state", echo(&json!({ "n": 1 }), &only(&format!("{state}A")))),
        ("none of ours", echo(&json!({ "n": 1 }), &only("connect:AAAA"))),
    ];
    for (name, call) in cases {
        let reply = call.ask(&gateway);
        assert_eq!(reply.rpc_code(), Some(-32602), "{name}: {}", reply.text());
    }
    assert!(pair.up.calls().is_empty());
    ran(&echo(&json!({ "n": 1 }), &only(&state)).ask(&gateway));
}

#[test]
fn more_scopes_are_asked_for_in_the_same_way() {
    let pair = Pair::start();
    let gateway = gateway(&pair, ", scope: base", "");
    let (url, state) = asked(&echo(&json!({}), &json!({})).ask(&gateway));
    connect(&gateway, &pair, &url);
    ran(&echo(&json!({}), &only(&state)).ask(&gateway));
    pair.rules.lock().scope = Some("base write".to_owned());
    let (url, state) = asked(&echo(&json!({}), &json!({})).ask(&gateway));
    let mut browser = Browser::default();
    let location = browser.leave(&gateway, &url);
    assert_eq!(query(&location)["scope"], "base write");
    let back = browser.consent(&pair, &location);
    assert_eq!(browser.get(&gateway, &back).status, 200);
    ran(&echo(&json!({}), &says("accept", &state)).ask(&gateway));
}

#[test]
fn a_grant_that_was_withdrawn_is_asked_for_anew() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "", "");
    let (url, _) = asked(&echo(&json!({}), &json!({})).ask(&gateway));
    connect(&gateway, &pair, &url);
    pair.revoke();
    pair.rules.lock().refresh.clear();
    let (url, state) = asked(&echo(&json!({}), &json!({})).ask(&gateway));
    connect(&gateway, &pair, &url);
    ran(&echo(&json!({}), &says("accept", &state)).ask(&gateway));
}

// === 2025-11-25 ===

/// A session of an employee, in which this was declared.
fn session(gateway: &Gateway, version: &str, capabilities: &Value, employee: &str) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": { "protocolVersion": version, "capabilities": capabilities,
                    "clientInfo": { "name": "t", "version": "1" } } });
    let reply = Request::plain(body.to_string()).header("SSO-Emp-Id", employee).ask(gateway);
    reply.header("mcp-session-id").unwrap().to_owned()
}

fn legacy(version: &str, session: Option<&str>) -> Request {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                       "params": { "name": "echo", "arguments": {} } });
    let request = Request::plain(body.to_string())
        .header("MCP-Protocol-Version", version)
        .header("SSO-Emp-Id", "E1");
    match session {
        Some(session) => request.header("Mcp-Session-Id", session),
        None => request,
    }
}

/// The stream of a session.
fn stream(gateway: &Gateway, session: &str, employee: &str) -> Client {
    let mut client = Client::of(gateway);
    client.send(
        &Request::new("GET", "/mcp/up", "")
            .header("Accept", "text/event-stream")
            .header("MCP-Protocol-Version", "2025-11-25")
            .header("Mcp-Session-Id", session)
            .header("SSO-Emp-Id", employee),
    );
    assert_eq!(client.head().status, 200);
    client
}

/// The next message of a stream; what is only there to be taken up again is none.
fn told(client: &mut Client) -> Value {
    loop {
        let event = client.event().expect("the stream goes on");
        let data = event.lines().find_map(|line| line.strip_prefix("data:")).map(str::trim);
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            return serde_json::from_str(data).unwrap();
        }
    }
}

/// The one link of the error that wants it followed.
#[track_caller]
fn wanted(reply: &Reply) -> Value {
    assert_eq!(reply.rpc_code(), Some(-32042), "{}", reply.text());
    let message = message(reply);
    let data = &message["error"]["data"];
    for (name, value) in [
        ("code", json!("server_not_configured")),
        ("alias", json!("MCP_SERVER_NOT_CONFIGURED")),
        ("retryable", json!(false)),
    ] {
        assert_eq!(data[name], value, "{data}");
    }
    assert!(data["traceId"].is_string() && data.get("outcome").is_none(), "{data}");
    let links = data["elicitations"].as_array().unwrap();
    assert_eq!(links.len(), 1);
    assert_eq!(links[0]["url"], data["connectUrl"]);
    assert_eq!(links[0]["mode"], "url");
    assert!(links[0]["message"].as_str().unwrap().contains("`up`"), "{data}");
    links[0].clone()
}

#[test]
fn a_client_of_2025_11_is_told_the_link_and_hears_that_it_was_followed() {
    let pair = Pair::start();
    let gateway = gateway(&pair, ", scope: base", "");
    let open = |employee| session(&gateway, "2025-11-25", &links(), employee);
    let (own, beside, other) = (open("E1"), open("E1"), open("E2"));
    let mut hears = stream(&gateway, &own, "E1");
    let mut hears_not = [stream(&gateway, &beside, "E1"), stream(&gateway, &other, "E2")];
    let call = || legacy("2025-11-25", Some(&own)).ask(&gateway);
    for scope in ["base", "base write"] {
        let link = wanted(&call());
        let url = link["url"].as_str().unwrap();
        let id = link["elicitationId"].as_str().unwrap();
        assert!(id.len() >= 32 && !url.contains(id), "{link}");
        connect(&gateway, &pair, url);
        let heard = told(&mut hears);
        assert_eq!(heard["method"], "notifications/elicitation/complete");
        assert_eq!(heard["params"], json!({ "elicitationId": id }));
        let reply = call();
        assert!(!reply.is_error(), "{scope}: {}", reply.text());
        pair.rules.lock().scope = Some("base write".to_owned());
    }
    gateway.audited("the call that was refused", |record| {
        record["code"] == "server_not_configured" && record["outcome"] == "caller_error"
    });
    // Who was not told the link has not heard of it: the next thing that either hears is another.
    for (client, session, employee) in
        hears_not.iter_mut().zip([(&beside, "E1"), (&other, "E2")]).map(|(c, (s, e))| (c, s, e))
    {
        pair.revoke();
        pair.rules.lock().refresh.clear();
        pair.rules.lock().scope = None;
        let call = || legacy("2025-11-25", Some(session)).set("SSO-Emp-Id", employee).ask(&gateway);
        let link = wanted(&call());
        connect(&gateway, &pair, link["url"].as_str().unwrap());
        assert_eq!(told(client)["params"]["elicitationId"], link["elicitationId"]);
    }
}

#[test]
fn a_session_without_a_stream_is_told_nothing_and_calls_again() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "", "");
    let session = session(&gateway, "2025-11-25", &links(), "E1");
    let call = || legacy("2025-11-25", Some(&session)).ask(&gateway);
    connect(&gateway, &pair, wanted(&call())["url"].as_str().unwrap());
    assert!(!call().is_error());
}

#[test]
fn a_server_of_the_handshake_era_is_connected_to_alike() {
    let pair = Pair::start();
    pair.up.before(|seen: &Seen| match &*seen.method {
        "server/discover" => Some(seen.unknown_method()),
        "initialize" => Some(seen.result(json!({ "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": "1" } }))),
        "notifications/initialized" => Some(Answer::body(202, "application/json", "")),
        _ => None,
    });
    let gateway = gateway(&pair, "", "");
    let (url, state) = asked(&echo(&json!({}), &json!({})).ask(&gateway));
    connect(&gateway, &pair, &url);
    ran(&echo(&json!({}), &says("accept", &state)).ask(&gateway));
    let session = session(&gateway, "2025-11-25", &links(), "E2");
    let call = || legacy("2025-11-25", Some(&session)).set("SSO-Emp-Id", "E2").ask(&gateway);
    connect(&gateway, &pair, wanted(&call())["url"].as_str().unwrap());
    assert!(!call().is_error());
}

// === Everybody else ===

#[test]
fn whoever_has_no_form_for_it_is_told_where_to_connect() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "", "");
    let forms = json!({ "elicitation": {} });
    let open = |version, capabilities| session(&gateway, version, capabilities, "E1");
    let call = json!({ "name": "echo", "arguments": {} });
    for (name, request) in [
        ("nothing declared", modern("tools/call", &call, &json!({}), &json!({}))),
        ("forms alone", modern("tools/call", &call, &forms, &json!({}))),
        ("forms of 2025-11-25", legacy("2025-11-25", Some(&open("2025-11-25", &forms)))),
        ("no session", legacy("2025-11-25", None)),
        ("no such revision", legacy("2025-06-18", Some(&open("2025-06-18", &links())))),
        ("the oldest", legacy("2025-03-26", Some(&open("2025-03-26", &links())))),
    ] {
        let reply = request.set("SSO-Emp-Id", "E1").ask(&gateway);
        assert_eq!(reply.status, 200, "{name}");
        connect_url(&reply);
    }
    let lite = Request::lite("tools/call", call.to_string());
    let invoke = json!({ "upstream": "up", "toolName": "echo", "arguments": {} });
    let invoke = Request::new("POST", "/v1/invoke", invoke.to_string())
        .header("Content-Type", "application/json");
    for request in [lite, invoke] {
        let reply = request.header("SSO-Emp-Id", "E1").ask(&gateway);
        let told: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((reply.status, &told["error"]["code"]), (424, &json!("server_not_configured")));
        assert!(told["error"]["connectUrl"].as_str().unwrap().starts_with(PUBLIC), "{told}");
        assert!(told["error"].get("elicitations").is_none(), "{told}");
    }
    assert!(pair.up.calls().is_empty());
}

#[test]
fn a_step_says_where_to_connect() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "", "");
    let world = gateway.engines().worlds.current();
    let key = world.upstreams[0].server_key.to_string();
    let post = |path: &str, body: &Value| {
        let reply = Request::new("POST", path, body.to_string())
            .header("Content-Type", "application/json")
            .header("SSO-Emp-Id", "E1")
            .ask(&gateway);
        assert_eq!(reply.status, 200, "{}", reply.text());
        serde_json::from_slice::<Value>(&reply.body).unwrap()
    };
    let steps = json!([{ "stepIndex": 1, "type": "mcpCall", "mcp": {
        "serverKey": key, "toolName": "echo", "inputBindings": {}, "failurePolicy": "required" } }]);
    let compiled = post("/v1/steps/compile", &json!({ "steps": steps }));
    let run = json!({ "compiled": compiled["compiled"], "context": {}, "variables": {} });
    let told = post("/v1/steps/run", &run);
    let error = &told["steps"][0]["error"];
    assert_eq!(error["code"], "server_not_configured", "{told}");
    connect(&gateway, &pair, error["connectUrl"].as_str().unwrap());
    assert_eq!(post("/v1/steps/run", &run)["state"], "completed", "{told}");
}

#[test]
fn a_server_that_asks_and_then_wants_a_grant_gets_its_answer() {
    let pair = Pair::start();
    // It asks something first; whoever brings an answer is served.
    pair.up.before(|seen: &Seen| {
        let answered = !seen.params["inputResponses"].is_null();
        (seen.method == "tools/call" && seen.params["name"] == "echo").then(|| {
            let bearer = seen.header("authorization").is_some_and(|value| value.ends_with("-2"));
            match (answered, bearer) {
                (false, _) => seen.result(json!({ "resultType": "input_required",
                    "inputRequests": { "n": { "method": "elicitation/create",
                        "params": { "mode": "url", "url": "https://a.example/", "message": "m" } } },
                    "requestState": "of the server" })),
                (true, true) => {
                    let given = json!([seen.params["inputResponses"], seen.params["requestState"]]);
                    seen.result(text_result(&given.to_string()))
                }
                (true, false) => Answer::json(401, &json!({})),
            }
        })
    });
    let gateway = gateway(&pair, "", "");
    let (url, state) = asked(&echo(&json!({}), &json!({})).ask(&gateway));
    connect(&gateway, &pair, &url);
    let asking = message(&echo(&json!({}), &only(&state)).ask(&gateway));
    let servers = asking["result"]["requestState"].as_str().unwrap();
    assert_eq!(asking["result"]["inputRequests"]["n"]["params"]["url"], "https://a.example/");
    // Meanwhile the grant is gone.
    pair.rules.lock().refresh.clear();
    let answer = json!({ "n": { "action": "accept" } });
    let brought = json!({ "inputResponses": answer, "requestState": servers });
    let (url, state) = asked(&echo(&json!({}), &brought).ask(&gateway));
    connect(&gateway, &pair, &url);
    let done = message(&echo(&json!({}), &says("accept", &state)).ask(&gateway));
    let text = done["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{done}"));
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), json!([answer, "of the server"]));
}
