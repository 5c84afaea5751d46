//! What is one employee's, one address's or an operator's stays apart from what only looks like it:
//! credentials, sessions, settings, ranks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    DIRECTORY, POLICY, ask, bring, call, collisions::pair, gateway, json_of, server, tools,
};
use crate::support::{Answer, Gateway, Reply, Signal, Speaks, Upstream, wait_for};

/// What operators say of their own server.
const CRM: &str = "version: hangu/v1
kind: Tools
upstreams: { crm: { default: { risk: read_low }, tools: { pay: { risk: write_high } } } }
";

/// Nobody opens a secret there, and nobody asks often.
const RULES: &str = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: no-secrets, effect: deny, tools: [crm/secret], callers: [gate] }
limits:
  - { id: few, per: [principal], upstreams: [crm], rate: 3/1h, burst: 3 }
";

const LISTED: &str = r#"[{"name":"echo","description":"Says it.","inputSchema":{"type":"object"}},
{"name":"pay","description":"Pays.","inputSchema":{"type":"object"}},
{"name":"secret","description":"Tells.","inputSchema":{"type":"object"}}]"#;

/// A gateway whose operator has the server, too.
fn beside_operator(server: &Upstream, policies: &[&str]) -> Gateway {
    let yaml = format!(
        "store: memory
egress: {{ allow: [127.0.0.1] }}
callers:
  gate: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, call_sources: [agent] }}
upstreams:
  crm: {{ url: \"{}\", headers: {{ X-From: operator }} }}
",
        server.url()
    );
    Gateway::start(&yaml, &[&[POLICY, DIRECTORY, CRM], policies].concat())
}

/// Registers a server that needs no credential, and says there from where.
#[track_caller]
fn bring_open(gateway: &Gateway, who: &str, url: &str, from: &str) -> String {
    let options =
        json!({ "headers": { "X-From": format!("{from}-$ctx.tenant") }, "stateless": true });
    let body = json!({ "url": url, "options": options });
    let reply = ask(gateway, who, "POST", "/v1/servers", &body);
    assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    json_of(&reply, reply.status)["serverKey"].as_str().unwrap().to_owned()
}

#[track_caller]
fn share(gateway: &Gateway, who: &str, key: &str) {
    let path = format!("/v1/servers/{key}/share");
    json_of(&ask(gateway, who, "PUT", &path, &json!({ "team": "payments" })), 200);
}

fn invoke(gateway: &Gateway, who: &str, key: &str, tool: &str) -> Reply {
    let body = json!({ "serverKey": key, "toolName": tool, "arguments": {} });
    ask(gateway, who, "POST", "/v1/invoke", &body)
}

/// What the last call carried.
fn last(server: &Upstream, header: &str) -> Option<String> {
    server.calls().last().and_then(|call| call.header(header).map(str::to_owned))
}

#[test]
fn a_credential_goes_to_the_address_that_it_was_given_for() {
    let (gateway, server) = (gateway(), server(Speaks::Stateless));
    let (first, second) = pair(&server);
    let register = |url: &str| {
        let auth = json!({ "type": "bearer", "token": "token-of-E1" });
        let told = ask(&gateway, "E1", "POST", "/v1/servers", &json!({ "url": url, "auth": auth }));
        let key = json_of(&told, 201)["serverKey"].as_str().unwrap().to_owned();
        share(&gateway, "E1", &key);
        key
    };
    let key = register(&first);
    let (place, path) = (format!("/v1/servers/{key}"), format!("/mcp/{key}"));
    let own = json!({ "type": "bearer", "token": "token-of-E2" });
    let set = || ask(&gateway, "E2", "PUT", &format!("{place}/credential"), &own);
    let has = || {
        let one = json_of(&ask(&gateway, "E2", "GET", &place, &Value::Null), 200);
        let all = json_of(&ask(&gateway, "E2", "GET", "/v1/servers", &Value::Null), 200);
        assert_eq!(one["hasCredential"], all["servers"][0]["hasCredential"], "{all}");
        one["hasCredential"].as_bool().unwrap()
    };
    json_of(&set(), 200);
    assert!(call(&gateway, "E2", &path, "echo", &json!({})).text().contains("said") && has());
    // The key is another address's from now on; what a member gave for it is still there.
    json_of(&ask(&gateway, "E1", "DELETE", &place, &Value::Null), 200);
    assert_eq!(register(&second), key);
    assert!(!has());
    let reply = call(&gateway, "E2", &path, "echo", &json!({}));
    assert!(reply.text().contains("\"server_not_configured\""), "{}", reply.text());
    let there = |request: &&crate::support::Received| {
        request.path() == &second[second.find("/mcp").unwrap()..]
    };
    let received = server.received();
    let got: Vec<_> =
        received.iter().filter(there).filter_map(|it| it.header("authorization")).collect();
    assert!(!got.is_empty() && got.iter().all(|got| *got == "Bearer token-of-E1"), "{got:?}");
    // Given anew, it is good.
    json_of(&set(), 200);
    assert!(call(&gateway, "E2", &path, "echo", &json!({})).text().contains("said") && has());
    assert_eq!(last(&server, "authorization").as_deref(), Some("Bearer token-of-E2"));
}

#[test]
fn what_somebody_shares_comes_behind_the_operators_upstream() {
    let server = server(Speaks::Stateless);
    let gateway = beside_operator(&server, &[]);
    let key = bring_open(&gateway, "E1", &server.url(), "colleague");
    share(&gateway, "E1", &key);
    let from = |who: &str| {
        for by in ["invoke", "path"] {
            let reply = match by {
                "invoke" => invoke(&gateway, who, &key, "echo"),
                _ => call(&gateway, who, &format!("/mcp/{key}"), "echo", &json!({})),
            };
            assert!(reply.text().contains("said"), "{who} {by}: {}", reply.text());
        }
        let calls = server.calls();
        let [.., one, other] = &calls[..] else { panic!("{} calls", calls.len()) };
        assert_eq!(one.header("x-from"), other.header("x-from"));
        one.header("x-from").unwrap().to_owned()
    };
    // Who brought it has his own first, all others the operator's.
    assert_eq!((from("E1"), from("E2")), ("colleague-acme".to_owned(), "operator".to_owned()));
    // Nor does one stand in the way for which somebody has nothing that opens it.
    assert_eq!(bring(&gateway, "E3", &server, "token-of-E3"), key);
    share(&gateway, "E3", &key);
    assert_eq!(from("E2"), "operator");
    json_of(&ask(&gateway, "E1", "DELETE", &format!("/v1/servers/{key}"), &Value::Null), 200);
    assert_eq!((from("E1"), from("E2")), ("operator".to_owned(), "operator".to_owned()));
}

#[test]
fn an_operators_word_on_his_address_holds_for_whoever_brings_it_too() {
    let server = server(Speaks::Stateless);
    server.lists(LISTED);
    let gateway = beside_operator(&server, &[RULES]);
    let key = bring_open(&gateway, "E1", &server.url(), "own");
    share(&gateway, "E1", &key);
    for who in ["E1", "E2"] {
        assert_eq!(tools(&gateway, who, &format!("/mcp/{key}")), ["echo"], "{who}");
        let named =
            tools(&gateway, who, "/mcp").into_iter().filter(|name| name.starts_with("mcp_"));
        assert_eq!(named.collect::<Vec<_>>(), [format!("{key}__echo")], "{who}");
    }
    for tool in ["pay", "secret"] {
        let reply = invoke(&gateway, "E1", &key, tool);
        assert_eq!(json_of(&reply, 404)["error"]["code"], "not_found", "{tool}");
    }
    assert!(server.calls().is_empty());
    // His limits count it, whichever way it is called.
    for (path, tool) in [(format!("/mcp/{key}"), "echo"), ("/mcp/crm".into(), "echo")] {
        assert!(call(&gateway, "E1", &path, tool, &json!({})).text().contains("said"), "{path}");
    }
    assert!(invoke(&gateway, "E1", &key, "echo").text().contains("said"));
    let told = json_of(&invoke(&gateway, "E1", &key, "echo"), 429);
    assert_eq!(told["error"]["code"], "rate_limited", "{told}");
}

#[test]
fn two_registrations_of_one_address_share_no_session() {
    let (gateway, server) = (gateway(), server(Speaks::Handshake("2025-11-25")));
    server.beside(|request| {
        (request.method() == "initialize").then(|| {
            let result = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
            let session = format!("of-{}", request.header("x-from").unwrap_or_default());
            Answer::json(format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{result}}}"#))
                .header("Mcp-Session-Id", &session)
        })
    });
    let key = bring_open(&gateway, "E1", &server.url(), "one");
    assert_eq!(bring_open(&gateway, "E2", &server.url(), "two"), key);
    // What was opened with other settings is another's, though the owner be the same.
    let again = bring_open(&gateway, "E1", &server.url(), "three");
    assert_eq!(again, key);
    for who in ["E1", "E2", "E1"] {
        let reply = call(&gateway, who, &format!("/mcp/{key}"), "echo", &json!({}));
        assert!(reply.text().contains("said"), "{who}: {}", reply.text());
    }
    assert_eq!(server.calls().len(), 3);
    for request in server.received() {
        let Some(session) = request.header("mcp-session-id") else { continue };
        let own = format!("of-{}", request.header("x-from").unwrap());
        assert_eq!(session, own, "{}", request.head);
    }
}

#[test]
fn what_was_deleted_and_brought_again_has_its_new_settings() {
    let (gateway, server) = (gateway(), server(Speaks::Stateless));
    let mut key = String::new();
    for from in ["one", "two"] {
        key = bring_open(&gateway, "E1", &server.url(), from);
        let reply = call(&gateway, "E1", &format!("/mcp/{key}"), "echo", &json!({}));
        assert!(reply.text().contains("said"), "{from}: {}", reply.text());
        assert_eq!(last(&server, "x-from"), Some(format!("{from}-acme")));
        json_of(&ask(&gateway, "E1", "DELETE", &format!("/v1/servers/{key}"), &Value::Null), 200);
    }
    // Also what opens it.
    assert_eq!(bring(&gateway, "E1", &server, "token-of-E1"), key);
    assert!(
        call(&gateway, "E1", &format!("/mcp/{key}"), "echo", &json!({})).text().contains("said")
    );
    assert_eq!(last(&server, "authorization").as_deref(), Some("Bearer token-of-E1"));
    assert_eq!(last(&server, "x-from"), None);
}

#[test]
fn who_has_servers_asked_that_do_not_answer_waits_for_two_of_them() {
    let (gateway, server) = (Arc::new(gateway()), server(Speaks::Stateless));
    let (silent, signal) = (Arc::new(AtomicBool::new(true)), Signal::new());
    let (holds, until) = (silent.clone(), signal.clone());
    server.beside(move |request| {
        let holds = request.method() == "server/discover" && holds.load(Ordering::Relaxed);
        holds.then(|| Answer::new("500 Internal Server Error", "", "late").stepwise(&until))
    });
    let post = |gateway: &Gateway, who: &str, url: &str| {
        ask(gateway, who, "POST", "/v1/servers", &json!({ "url": url }))
    };
    let waiting: Vec<_> = (0..2)
        .map(|number| {
            let (gateway, url) = (gateway.clone(), format!("{}?n={number}", server.url()));
            thread::spawn(move || post(&gateway, "E1", &url).status)
        })
        .collect();
    wait_for("both are asked", Duration::from_secs(10), || server.of("server/discover").len() == 2);
    let third = format!("{}?n=3", server.url());
    let reply = post(&gateway, "E1", &third);
    let told = json_of(&reply, 429);
    assert_eq!(told["error"]["code"], "rate_limited", "{told}");
    assert!(reply.header("retry-after").is_some());
    silent.store(false, Ordering::Relaxed);
    // It keeps nobody else from his own.
    assert_eq!(post(&gateway, "E2", &third).status, 201);
    (0..2).for_each(|_| signal.give());
    waiting.into_iter().for_each(|thread| _ = thread.join().unwrap());
    assert_eq!(post(&gateway, "E1", &third).status, 201);
}

#[test]
fn requests_about_servers_count_like_all_others() {
    let rules = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
limits: [{ id: few, per: [principal], rate: 2/1h, burst: 2 }]
";
    let gateway = Gateway::start(
        "store: memory
callers:
  gate: { keys: [{ env: KEY }], tenant: acme, identity: header, call_sources: [agent] }
upstreams: {}
",
        &[POLICY, DIRECTORY, rules],
    );
    for who in ["E1", "E2"] {
        let list = || ask(&gateway, who, "GET", "/v1/servers", &Value::Null);
        json_of(&list(), 200);
        assert!(list().header("ratelimit").is_some());
        let told = json_of(&list(), 429);
        assert_eq!(told["error"]["code"], "rate_limited", "{told}");
    }
}
