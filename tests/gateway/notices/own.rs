//! Streams about servers that employees bring: as about operators' servers, and no longer than the
//! server, and what opens it, are the listener's.

use serde_json::{Value, json};

use super::{ERAS, Era, Listener, SECOND, Server, TOOLS_CHANGED, everything, get, listen, updated};
use crate::support::{Gateway, Reply, Request, wait_for};

const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
self_service:
  roles: [member]
  hosts: [\"127.0.0.1:*\"]
  share: { roles: [member] }
  default: { risk: read_low, pin: first_use }
rules:
  - { id: members, effect: allow, roles: [member], tools: [\"*/open*\"], resources: [\"*/a://*\"] }
---
version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member], teams: [payments] }
  E2: { tenant: acme, roles: [member], teams: [payments] }
  E3: { tenant: acme, roles: [member], teams: [others] }
---
version: hangu/v1
kind: Tools
upstreams:
  crm: { default: { risk: read_low } }
";

fn gateway(upstreams: &str) -> Gateway {
    let yaml = format!(
        "store: memory
egress: {{ allow: [127.0.0.1] }}
callers:
  gate: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, catalog_roles: [member], call_sources: [agent] }}
upstreams: {upstreams}\n"
    );
    Gateway::start(&yaml, &[POLICY])
}

#[track_caller]
fn api(gateway: &Gateway, who: &str, method: &'static str, path: &str, body: &Value) -> Value {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::new(method, path, text).header("SSO-Emp-Id", who);
    let reply = request.header("Content-Type", "application/json").ask(gateway);
    assert!(reply.status < 300, "{method} {path}: {}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

/// Registers it for E1, opened by a token; gives its key.
fn bring(gateway: &Gateway, server: &Server) -> String {
    let body = json!({
        "url": server.url(),
        "auth": { "type": "bearer", "token": "one" },
        "options": { "headers": { "X-Employee": "$ctx.user.empId" } },
    });
    api(gateway, "E1", "POST", "/v1/servers", &body)["serverKey"].as_str().unwrap().to_owned()
}

fn token(token: &str) -> Value {
    json!({ "type": "bearer", "token": token })
}

fn watch(uri: &str) -> Value {
    json!({ "resourceSubscriptions": [uri] })
}

/// The credential that the newest stream for an employee was opened with.
fn opened_with(server: &Server, era: Era, who: &str) -> Option<String> {
    let seen = server.seen(if era == Era::Stateless { "subscriptions/listen" } else { "GET" });
    let newest = seen.iter().rev().find(|seen| seen.header("x-employee") == Some(who))?;
    newest.header("authorization").map(str::to_owned)
}

/// It ends in good order.
#[track_caller]
fn assert_ended(mut listener: Listener, era: Era) {
    let end = listener.message().unwrap();
    assert!(end["result"].is_object(), "{era:?}: {end}");
    assert_eq!(listener.message(), None, "{era:?}");
}

/// What is acknowledged to somebody who may watch nothing there.
#[track_caller]
fn assert_unwatched(gateway: &Gateway, who: &str, path: &str) {
    let reply = listen(path, who, "1", &watch("a://one"));
    let mut client = crate::support::Client::of(gateway);
    client.send(&reply);
    let head = client.head();
    if head.status == 200 {
        let event = client.event().unwrap();
        assert!(!event.contains("a://one"), "{who} {path}: {event}");
    } else {
        assert_eq!(head.status, 404, "{who} {path}");
    }
}

fn in_session(gateway: &Gateway, path: &str, session: &str, method: &str, uri: &str) -> Reply {
    let body = json!({ "jsonrpc": "2.0", "id": 5, "method": method, "params": { "uri": uri } });
    Request::handshake(body.to_string())
        .at(path)
        .header("Mcp-Session-Id", session)
        .header("SSO-Emp-Id", "E1")
        .ask(gateway)
}

#[test]
fn a_resource_of_an_employees_own_server_is_watched() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway("{}");
        let key = bring(&gateway, &server);
        let path = format!("/mcp/{key}");
        let (mut own, first) = Listener::modern(&gateway, &path, "E1", "1", &watch("a://one"));
        assert_eq!(first["params"]["notifications"], watch("a://one"), "{era:?}");
        let public = format!("{}+a://one", key.replace('_', "."));
        let (mut all, first) = Listener::modern(&gateway, "/mcp", "E1", "2", &watch(&public));
        assert_eq!(first["params"]["notifications"], watch(&public), "{era:?}");
        // In sessions, on both paths.
        let mut sessions = Vec::new();
        for (path, uri) in [(path.as_str(), "a://one"), ("/mcp", public.as_str())] {
            let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
            let reply = Request::plain(body).at(path).header("SSO-Emp-Id", "E1").ask(&gateway);
            let session = reply.header("mcp-session-id").unwrap().to_owned();
            let listener = Listener::open(&gateway, &get(&session, "E1").at(path));
            let reply = in_session(&gateway, path, &session, "resources/subscribe", uri);
            assert_eq!(reply.member(&["result"]).as_deref(), Some("{}"), "{}", reply.text());
            sessions.push((listener, uri));
        }
        wait_for("one stream for all of them", 5 * SECOND, || server.streams() == ["E1"]);
        assert_eq!(opened_with(&server, era, "E1").as_deref(), Some("Bearer one"));
        server.updated("a://one");
        assert_eq!(own.told(), updated("a://one"), "{era:?}");
        assert_eq!(all.told(), updated(&public), "{era:?}");
        for (listener, uri) in &mut sessions {
            assert_eq!(listener.told(), updated(uri), "{era:?}");
        }
        // Whoever has nothing there watches nothing.
        for (who, path) in [("E2", path.as_str()), ("E3", "/mcp")] {
            assert_unwatched(&gateway, who, path);
        }
        drop((own, all, sessions));
    }
}

#[test]
fn its_lists_are_told_of() {
    let server = Server::start(Era::Stateless, everything());
    let gateway = gateway("{}");
    let key = bring(&gateway, &server);
    let wanted = json!({ "toolsListChanged": true });
    let path = format!("/mcp/{key}");
    let (mut own, _) = Listener::modern(&gateway, &path, "E1", "1", &wanted);
    let (mut all, _) = Listener::modern(&gateway, "/mcp", "E1", "2", &wanted);
    server.lists_tools(&["open", "open_too"]);
    api(&gateway, "E1", "POST", &format!("/v1/servers/{key}/refresh"), &Value::Null);
    assert_eq!(own.told().0, TOOLS_CHANGED);
    assert_eq!(all.told().0, TOOLS_CHANGED);
}

#[test]
fn another_credential_opens_the_stream_anew_and_none_ends_it() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway("{}");
        let key = bring(&gateway, &server);
        let credential = format!("/v1/servers/{key}/credential");
        let path = format!("/mcp/{key}");
        let (mut own, _) = Listener::modern(&gateway, &path, "E1", "1", &watch("a://one"));
        api(&gateway, "E1", "PUT", &credential, &token("two"));
        wait_for("it is opened anew", 15 * SECOND, || {
            opened_with(&server, era, "E1").as_deref() == Some("Bearer two")
                && server.streams() == ["E1"]
        });
        if era == Era::Handshake {
            wait_for("and subscribed anew", 15 * SECOND, || {
                let seen = server.seen("resources/subscribe");
                seen.last().unwrap().header("authorization") == Some("Bearer two")
            });
        }
        server.updated("a://one");
        assert_eq!(own.told(), updated("a://one"), "{era:?}");
        api(&gateway, "E1", "DELETE", &credential, &Value::Null);
        assert_ended(own, era);
        wait_for("nobody listens at the server", 15 * SECOND, || server.streams().is_empty());
        // Nobody watches without one.
        assert_unwatched(&gateway, "E1", &path);
        assert!(server.streams().is_empty());
    }
}

/// The same where the server is an operator's, and each employee opens it himself.
#[test]
fn an_operators_server_that_each_opens_himself_is_left_with_the_credential() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let upstreams = format!(
            "{{ crm: {{ url: \"{}\", poll: 60s, auth: {{ type: employee }}, headers: {{ X-Employee: \"$ctx.user.empId\" }} }} }}",
            server.url()
        );
        let gateway = gateway(&upstreams);
        api(&gateway, "E1", "PUT", "/v1/servers/crm/credential", &token("one"));
        let (own, _) = Listener::modern(&gateway, "/mcp/crm", "E1", "1", &watch("a://one"));
        wait_for("it is watched", 5 * SECOND, || server.streams().contains(&"E1".to_owned()));
        api(&gateway, "E1", "PUT", "/v1/servers/crm/credential", &token("two"));
        wait_for("it is opened anew", 15 * SECOND, || {
            opened_with(&server, era, "E1").as_deref() == Some("Bearer two")
        });
        api(&gateway, "E1", "DELETE", "/v1/servers/crm/credential", &Value::Null);
        assert_ended(own, era);
    }
}

#[test]
fn what_is_deleted_or_not_shared_any_more_tells_nobody_anything() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway("{}");
        let key = bring(&gateway, &server);
        let (path, of) = (format!("/mcp/{key}"), format!("/v1/servers/{key}"));
        let share = format!("{of}/share");
        api(&gateway, "E1", "PUT", &share, &json!({ "team": "payments" }));
        api(&gateway, "E2", "PUT", &format!("{of}/credential"), &token("of-E2"));
        let lists = json!({ "toolsListChanged": true });
        let (mut own, _) = Listener::modern(&gateway, &path, "E1", "1", &watch("a://one"));
        let (own_lists, _) = Listener::modern(&gateway, &path, "E1", "2", &lists);
        let (mut shared, _) = Listener::modern(&gateway, &path, "E2", "3", &watch("a://one"));
        let (shared_lists, _) = Listener::modern(&gateway, &path, "E2", "4", &lists);
        wait_for("both are told", 5 * SECOND, || server.streams().len() == 2);
        assert_eq!(opened_with(&server, era, "E2").as_deref(), Some("Bearer of-E2"));
        server.updated("a://one");
        assert_eq!(own.told(), updated("a://one"), "{era:?}");
        assert_eq!(shared.told(), updated("a://one"), "{era:?}");

        api(&gateway, "E1", "DELETE", &share, &Value::Null);
        assert_ended(shared, era);
        assert_ended(shared_lists, era);
        assert_unwatched(&gateway, "E2", &path);
        // Its owner goes on.
        wait_for("E2 has left", 15 * SECOND, || server.streams() == ["E1"]);
        server.updated("a://one");
        assert_eq!(own.told(), updated("a://one"), "{era:?}");

        api(&gateway, "E1", "DELETE", &of, &Value::Null);
        assert_ended(own, era);
        assert_ended(own_lists, era);
        wait_for("nobody listens at the server", 15 * SECOND, || server.streams().is_empty());
    }
}
