//! Servers of employees' own that are opened by OAuth: whoever sees one grants his own token.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hangu::{
    credential::Owner,
    model::caller::{EmployeeId, TenantId},
};
use serde_json::{Value, json};

use super::{
    DIRECTORY, POLICY, SECRET, ask, call,
    command::{ended, run},
    tools,
};
use crate::{
    oauth::{
        Pair,
        consent::{Browser, PUBLIC, connect_url, query},
    },
    process_support::Answer,
    support::{Gateway, Reply, Request, wait_for},
};

const SOON: Duration = Duration::from_secs(5);

fn gateway(more: &str) -> Gateway {
    let yaml = format!(
        "store: memory
egress: {{ allow: [127.0.0.1] }}
{more}
callers:
  gate: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, call_sources: [agent] }}
upstreams: {{}}
"
    );
    Gateway::start(&yaml, &[POLICY, DIRECTORY])
}

fn reachable() -> Gateway {
    gateway(&format!("public_url: {PUBLIC}"))
}

/// What is answered holds nothing that was given in confidence.
#[track_caller]
fn json_of(reply: &Reply, status: u16) -> Value {
    let told: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(reply.status, status, "{told}");
    assert!(!told.to_string().contains("planted"), "{told}");
    told
}

fn get(gateway: &Gateway, who: &str, path: &str) -> Value {
    json_of(&ask(gateway, who, "GET", path, &Value::Null), 200)
}

fn post(gateway: &Gateway, who: &str, path: &str) -> Reply {
    ask(gateway, who, "POST", path, &Value::Null)
}

/// Registers the server: its key, and where to connect.
#[track_caller]
fn bring(gateway: &Gateway, pair: &Pair, auth: &Value, status: u16) -> (String, String) {
    let body = json!({ "url": pair.up.url(), "auth": auth });
    let told = json_of(&ask(gateway, "E1", "POST", "/v1/servers", &body), status);
    assert_eq!((&told["auth"], &told["hasCredential"]), (&json!("oauth"), &json!(false)));
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    (text("serverKey"), text("connectUrl"))
}

fn bearer(pair: &Pair) -> String {
    pair.up.calls().last().unwrap().header("authorization").unwrap().to_owned()
}

#[test]
fn the_owner_connects_and_is_served_with_tokens_that_are_renewed() {
    let (gateway, pair) = (reachable(), Pair::start());
    let auth = json!({ "type": "oauth", "scopes": ["base", "more"] });
    let (key, url) = bring(&gateway, &pair, &auth, 201);
    let (place, refresh) = (format!("/v1/servers/{key}"), format!("/v1/servers/{key}/refresh"));
    assert_eq!(get(&gateway, "E1", &place)["health"], "unknown", "it is kept");
    // Before he has connected, it says so.
    let refused = post(&gateway, "E1", &refresh);
    let why = json_of(&refused, 502)["error"]["message"].to_string();
    assert!(why.contains("/v1/oauth/connect/") && !why.contains("?t="), "{why}");
    let kept = get(&gateway, "E1", &place)["lastError"].to_string();
    assert!(kept.contains("connect") && !kept.contains("?t="), "no invitation is kept: {kept}");
    assert!(pair.up.calls().is_empty());
    let mut browser = Browser::default();
    let location = browser.leave(&gateway, &url);
    let asked = query(&location);
    assert_eq!((&*asked["scope"], &*asked["client_id"]), ("base more", "registered"));
    let back = browser.consent(&pair, &location);
    let done = browser.get(&gateway, &back);
    assert!(done.status == 200 && done.text().contains("is connected"), "{done:?}");
    // It is listed without anybody asking for it.
    wait_for("it is listed", SOON, || get(&gateway, "E1", &place)["health"] == "ok");
    let told = get(&gateway, "E1", &place);
    assert_eq!((&told["toolCount"], &told["hasCredential"]), (&json!(1), &json!(true)), "{told}");
    assert_eq!((&told["health"], told.get("connectUrl")), (&json!("ok"), None));
    let path = format!("/mcp/{key}");
    assert_eq!(tools(&gateway, "E1", &path), ["echo"]);
    let echo = || call(&gateway, "E1", &path, "echo", &json!({}));
    assert!(!echo().is_error());
    assert_eq!(bearer(&pair), "Bearer planted-token-1");
    pair.revoke();
    let reply = echo();
    assert!(!reply.is_error(), "renewed on the way: {}", reply.text());
    assert_eq!(bearer(&pair), "Bearer planted-token-2");
    // He has withdrawn it.
    pair.revoke();
    pair.rules.lock().refresh.clear();
    let url = connect_url(&echo());
    assert_eq!(Browser::default().connect(&gateway, &pair, &url).status, 200);
    assert!(!echo().is_error());
    let audit = gateway.audit().iter().map(Value::to_string).collect::<String>();
    for text in [audit, gateway.metrics(), done.text()] {
        assert!(!text.contains("planted"), "{text}");
    }
}

#[test]
fn a_member_of_the_team_connects_for_himself_and_what_is_deleted_is_gone() {
    let (gateway, pair) = (reachable(), Pair::start());
    let (key, url) = bring(&gateway, &pair, &json!({ "type": "oauth" }), 201);
    let (place, path) = (format!("/v1/servers/{key}"), format!("/mcp/{key}"));
    let connect = format!("/v1/oauth/connect/{key}");
    json_of(&post(&gateway, "E2", &connect), 404);
    assert_eq!(Browser::default().connect(&gateway, &pair, &url).status, 200);
    json_of(&post(&gateway, "E1", &format!("{place}/refresh")), 200);
    let team = json!({ "team": "payments" });
    json_of(&ask(&gateway, "E1", "PUT", &format!("{place}/share"), &team), 200);
    // What the owner has granted is not his.
    let echo = |who: &str| call(&gateway, who, &path, "echo", &json!({}));
    connect_url(&echo("E2"));
    assert!(pair.up.calls().is_empty());
    assert!(get(&gateway, "E2", &place)["connectUrl"].is_string());
    let told = json_of(&post(&gateway, "E2", &connect), 200);
    let url = told["connectUrl"].as_str().unwrap();
    assert_eq!(Browser::default().connect(&gateway, &pair, url).status, 200);
    assert!(!echo("E2").is_error());
    assert_eq!(bearer(&pair), "Bearer planted-token-2");
    assert!(!echo("E1").is_error());
    assert_eq!(bearer(&pair), "Bearer planted-token-1");
    assert_eq!(pair.rules.lock().registered, 1, "the gateway is registered once");
    // Without the server there is no grant, and nothing to connect to.
    json_of(&ask(&gateway, "E1", "DELETE", &place, &Value::Null), 200);
    assert_eq!(echo("E1").status, 404);
    json_of(&post(&gateway, "E1", &connect), 404);
    bring(&gateway, &pair, &json!({ "type": "oauth" }), 201);
    let refused = post(&gateway, "E1", &format!("{place}/refresh"));
    assert!(refused.text().contains("/v1/oauth/connect/"), "{}", refused.text());
    assert_eq!(get(&gateway, "E1", &place)["toolCount"], 0);
}

#[test]
fn the_client_that_the_owner_names_is_used_and_told_to_nobody() {
    let (gateway, pair) = (reachable(), Pair::start());
    let own =
        json!({ "type": "oauth", "client_id": "of-owner", "client_secret": "planted-own-secret" });
    let (key, url) = bring(&gateway, &pair, &own, 201);
    let mut browser = Browser::default();
    let location = browser.leave(&gateway, &url);
    assert_eq!(query(&location)["client_id"], "of-owner");
    let back = browser.consent(&pair, &location);
    assert_eq!(browser.get(&gateway, &back).status, 200);
    let requests = pair.requests_for_tokens();
    let proof = requests[0].header("authorization").unwrap();
    // of-owner:planted-own-secret
    assert_eq!(proof, "Basic b2Ytb3duZXI6cGxhbnRlZC1vd24tc2VjcmV0");
    assert_eq!(pair.rules.lock().registered, 0);
    let place = format!("/v1/servers/{key}");
    json_of(&post(&gateway, "E1", &format!("{place}/refresh")), 200);
    for path in ["/v1/servers".to_owned(), place.clone(), format!("{place}/asset")] {
        get(&gateway, "E1", &path);
    }
    let audit = gateway.audit().iter().map(Value::to_string).collect::<String>();
    assert!(!audit.contains("planted"), "{audit}");
    // Registered anew without it, it is forgotten.
    json_of(&ask(&gateway, "E1", "DELETE", &place, &Value::Null), 200);
    let (_, url) = bring(&gateway, &pair, &json!({ "type": "oauth" }), 201);
    let location = Browser::default().leave(&gateway, &url);
    assert_eq!(query(&location)["client_id"], "registered");
}

/// What a call answers whose client can be told a link.
fn asking(gateway: &Gateway, who: &str, key: &str, more: &Value) -> Value {
    let mut params = json!({ "name": "echo", "arguments": {}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "url": {} } } } });
    for (name, value) in more.as_object().unwrap() {
        params[name] = value.clone();
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let request = Request::stateless(&body.to_string()).at(&format!("/mcp/{key}"));
    let reply = request.header("SSO-Emp-Id", who).ask(gateway);
    serde_json::from_slice::<Value>(&reply.body).unwrap()["result"].clone()
}

#[test]
fn whoever_sees_the_server_is_asked_by_his_own_client() {
    let (gateway, pair) = (reachable(), Pair::start());
    let (key, url) = bring(&gateway, &pair, &json!({ "type": "oauth" }), 201);
    let place = format!("/v1/servers/{key}");
    assert_eq!(Browser::default().connect(&gateway, &pair, &url).status, 200);
    wait_for("it is listed", SOON, || get(&gateway, "E1", &place)["health"] == "ok");
    let team = json!({ "team": "payments" });
    json_of(&ask(&gateway, "E1", "PUT", &format!("{place}/share"), &team), 200);
    pair.revoke();
    pair.rules.lock().refresh.clear();
    for who in ["E1", "E2"] {
        let asked = asking(&gateway, who, &key, &json!({}));
        let question = &asked["inputRequests"]["connect"]["params"];
        assert!(question["message"].as_str().unwrap().contains(&key), "{asked}");
        let back = json!({ "requestState": asked["requestState"],
                           "inputResponses": { "connect": { "action": "accept" } } });
        let url = question["url"].as_str().unwrap();
        assert_eq!(Browser::default().connect(&gateway, &pair, url).status, 200);
        let done = asking(&gateway, who, &key, &back);
        assert_eq!(done["content"][0]["text"], "ok", "{done}");
    }
}

#[test]
fn a_server_that_is_away_when_its_owner_connects_is_listed_when_it_is_back() {
    let (gateway, pair) = (reachable(), Pair::start());
    let (key, url) = bring(&gateway, &pair, &json!({ "type": "oauth" }), 201);
    let place = format!("/v1/servers/{key}");
    let away = Arc::new(AtomicBool::new(true));
    let mut browser = Browser::default();
    let location = browser.leave(&gateway, &url);
    let is_away = away.clone();
    pair.up.before(move |_| {
        is_away.load(Ordering::Relaxed).then(|| Answer::body(503, "text/plain", "away"))
    });
    let back = browser.consent(&pair, &location);
    let done = browser.get(&gateway, &back);
    assert!(done.status == 200 && done.text().contains("is connected"), "{done:?}");
    let said = || get(&gateway, "E1", &place)["lastError"].to_string();
    wait_for("it is known that it could not be listed", SOON, || said().contains("failed"));
    assert_eq!(get(&gateway, "E1", &place)["hasCredential"], true);
    away.store(false, Ordering::Relaxed);
    json_of(&post(&gateway, "E1", &format!("{place}/refresh")), 200);
    assert_eq!(get(&gateway, "E1", &place)["health"], "ok");
}

#[test]
fn another_credential_is_not_left_where_a_grant_is_to_be() {
    let (gateway, pair) = (reachable(), Pair::start());
    pair.rules.lock().open_lists = true;
    let body = json!({ "url": pair.up.url(), "auth": { "type": "bearer", "token": "planted" } });
    let told = json_of(&ask(&gateway, "E1", "POST", "/v1/servers", &body), 201);
    let (key, _) = bring(&gateway, &pair, &json!({ "type": "oauth" }), 200);
    assert_eq!(told["serverKey"], *key);
    let path = format!("/v1/servers/{key}/credential");
    let told = json_of(&ask(&gateway, "E1", "PUT", &path, &json!({ "type": "oauth" })), 400);
    assert!(told["error"]["message"].as_str().unwrap().contains("/v1/oauth/connect/"), "{told}");
}

#[test]
fn where_browsers_cannot_come_back_none_is_registered() {
    let (gateway, pair) = (gateway(""), Pair::start());
    let body = json!({ "url": pair.up.url(), "auth": { "type": "oauth" } });
    let told = json_of(&ask(&gateway, "E1", "POST", "/v1/servers", &body), 400);
    assert_eq!(told["error"]["pointer"], "/auth/type", "{told}");
    assert!(told["error"]["message"].as_str().unwrap().contains("public_url"), "{told}");
    assert_eq!(get(&gateway, "E1", "/v1/servers")["servers"], json!([]));
}

#[test]
fn a_command_adds_such_a_server_and_says_where_to_connect() {
    let (gateway, pair) = (reachable(), Pair::start());
    let url = pair.up.url();
    let add = |args: &[&str], input: &str| {
        run(&gateway, "E1", &[&["add", &url, "--auth", "oauth"], args].concat(), input)
    };
    let added = ended(&add(&["--scope", "base", "--scope", "more"], ""), 0);
    let key = added.split(':').next().unwrap().to_owned();
    assert!(added.contains("asked what it has once you have connected"), "{added}");
    let connect = added.lines().find(|line| line.trim().starts_with(PUBLIC)).unwrap().trim();
    let mut browser = Browser::default();
    let location = browser.leave(&gateway, connect);
    assert_eq!(&*query(&location)["scope"], "base more");
    let shown = ended(&run(&gateway, "E1", &["show", &key], ""), 0);
    assert!(shown.contains("opened by  oauth (you have set none)"), "{shown}");
    assert!(shown.contains("connect at"), "{shown}");
    // With a client of his own, whose secret is read as any other.
    let client = ["--client-id", "mine", "--secret-file", "-"];
    let again = ended(&add(&client, &format!("{SECRET}\n")), 0);
    assert!(again.contains(PUBLIC), "{again}");
    for (args, says) in [
        (&["add", &url, "--scope", "base"][..], "go with `--auth oauth`"),
        (&["add", &url, "--auth", "bearer", "--client-id", "x"], "go with `--auth oauth`"),
        (&["add", &url, "--auth", "oauth", "--secret-file", "-"], "say `--client-id` too"),
        (&["add", &url, "--auth", "oauth", "--user", "x"], "`--user` goes with `--auth basic`"),
        (&["credential", "set", &key, "--auth", "oauth"], "is granted in a browser"),
    ] {
        let error = ended(&run(&gateway, "E1", args, SECRET), 2);
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

#[test]
fn what_the_gateway_is_there_goes_with_the_server() {
    let (gateway, pair) = (reachable(), Pair::start());
    let vault = gateway.engines().vault.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kept = |what: &str| {
        let owner = Owner::Employee(EmployeeId::parse("E1").unwrap());
        let listed = runtime.block_on(vault.list(TenantId::new("acme"), owner)).unwrap();
        listed.iter().filter(|one| one.server_key.starts_with(what)).count()
    };
    let all = || ["oauth-client:", "oauth-issuer:", "oauth-settings:", "mcp_"].map(kept);
    // Each time the server names another authorization server, as which it registers the gateway.
    let (key, url) = bring(&gateway, &pair, &json!({ "type": "oauth" }), 201);
    Browser::default().leave(&gateway, &url);
    let others = [Pair::start(), Pair::start()];
    let place = format!("/v1/servers/{key}");
    for other in &others {
        pair.rules.lock().named = Some(format!("http://{}", other.auth.address()));
        let told = json_of(&post(&gateway, "E1", &format!("/v1/oauth/connect/{key}")), 200);
        Browser::default().leave(&gateway, told["connectUrl"].as_str().unwrap());
        assert_eq!(all(), [1, 0, 1, 0]);
    }
    json_of(&ask(&gateway, "E1", "DELETE", &place, &Value::Null), 200);
    assert_eq!(all(), [0; 4]);
    // A client that its owner names is of one authorization server, until he says it anew.
    let own = json!({ "type": "oauth", "client_id": "of-owner", "client_secret": "planted" });
    let (_, url) = bring(&gateway, &pair, &own, 201);
    Browser::default().leave(&gateway, &url);
    assert_eq!(all(), [0, 1, 1, 0]);
    pair.rules.lock().named = None;
    let told = json_of(&post(&gateway, "E1", &format!("/v1/oauth/connect/{key}")), 200);
    let refused = Browser::default().go(&gateway, told["connectUrl"].as_str().unwrap());
    assert_eq!(refused.status, 502, "{refused:?}");
    let (_, url) = bring(&gateway, &pair, &own, 200);
    Browser::default().leave(&gateway, &url);
    json_of(&ask(&gateway, "E1", "DELETE", &place, &Value::Null), 200);
    assert_eq!(all(), [0; 4]);
}

#[test]
fn the_page_says_where_an_employee_s_server_is() {
    let (gateway, pair) = (reachable(), Pair::start());
    let (key, url) = bring(&gateway, &pair, &json!({ "type": "oauth" }), 201);
    let page = Browser::default().get(&gateway, &url).text();
    assert!(page.contains(&key) && page.contains("at 127.0.0.1"), "{page}");
}
