//! Servers that employees bring: registered through a running gateway, used by whoever has set a
//! credential, and by nobody else.

mod apart;
mod collisions;
mod command;
mod oauth;
mod who;

use std::{sync::Arc, thread, time::Duration};

use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Reply, Request, Speaks, Upstream, wait_for};

const DIRECTORY: &str = "version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member], teams: [payments] }
  E2: { tenant: acme, roles: [member], teams: [payments] }
  E3: { tenant: acme, roles: [member], teams: [payments] }
  E4: { tenant: acme, roles: [guest] }
";

pub const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
self_service:
  roles: [member]
  hosts: [\"127.0.0.1:*\"]
  share: { roles: [member] }
  default: { risk: read_low, pin: first_use }
rules:
  - { id: member-read, effect: allow, roles: [member], risk: [read_low] }
";

/// What must never be told.
const SECRET: &str = "planted-secret-of-the-tests";

/// A gateway that knows no server, and may dial this machine.
fn gateway() -> Gateway {
    gateway_with("")
}

fn gateway_with(more: &str) -> Gateway {
    let yaml = format!(
        "store: memory
egress: {{ allow: [127.0.0.1] }}
callers:
  gate: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, call_sources: [agent] }}
upstreams: {{}}
{more}"
    );
    Gateway::start(&yaml, &[POLICY, DIRECTORY])
}

fn ask(gateway: &Gateway, who: &str, method: &'static str, path: &str, body: &Value) -> Reply {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::new(method, path, text).header("SSO-Emp-Id", who);
    let request =
        if body.is_null() { request } else { request.header("Content-Type", "application/json") };
    request.ask(gateway)
}

#[track_caller]
fn json_of(reply: &Reply, status: u16) -> Value {
    let told: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(reply.status, status, "{told}");
    assert!(!told.to_string().contains(SECRET), "{told}");
    told
}

/// Registers a server, opened by a token.
#[track_caller]
fn bring(gateway: &Gateway, who: &str, server: &Upstream, token: &str) -> String {
    let body = json!({
        "url": server.url(),
        "dialect": server.dialect(),
        "auth": { "type": "bearer", "token": token },
    });
    let told = json_of(&ask(gateway, who, "POST", "/v1/servers", &body), 201);
    told["serverKey"].as_str().unwrap().to_owned()
}

fn call(gateway: &Gateway, who: &str, path: &str, tool: &str, arguments: &Value) -> Reply {
    Request::call(tool, arguments).at(path).header("SSO-Emp-Id", who).ask(gateway)
}

/// Names of the tools that somebody sees there.
fn tools(gateway: &Gateway, who: &str, path: &str) -> Vec<String> {
    let request = Request::modern("tools/list", json!({})).at(path).header("SSO-Emp-Id", who);
    let reply = request.ask(gateway);
    let told: Value = serde_json::from_slice(&reply.body).unwrap();
    let tools = told["result"]["tools"].as_array();
    tools.into_iter().flatten().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// A server that says something to whatever is called.
fn server(speaks: Speaks) -> Upstream {
    Upstream::scripted(speaks, |call| {
        let result = r#"{"resultType":"complete","content":[{"type":"text","text":"said"}],"isError":false}"#;
        match call.member(&["id"]) {
            Some(id) => Answer::json(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)),
            None => Answer::json(result),
        }
    })
}

#[test]
fn a_server_that_lists_too_much_is_told_so_and_keeps_what_it_listed_before() {
    let gateway = gateway_with("servers: { max_list_bytes: 4KiB, max_tools: 3 }\n");
    let tools = |count: usize, description: &str| {
        let tool =
            |n| json!({ "name": format!("t{n}"), "description": description, "inputSchema": {} });
        Value::from((0..count).map(tool).collect::<Vec<_>>()).to_string()
    };
    let (long, few) = ("x".repeat(5_000), tools(3, "It is so."));
    for (listed, why) in [(tools(4, "It."), "more than 3 `tools`"), (tools(1, &long), "4096 bytes")]
    {
        let server = self::server(Speaks::Stateless);
        server.lists(&listed);
        let body = json!({ "url": server.url() });
        let told = json_of(&ask(&gateway, "E1", "POST", "/v1/servers", &body), 502);
        assert!(told["error"]["message"].as_str().unwrap().contains(why), "{told}");

        server.lists(&few);
        let key = bring(&gateway, "E1", &server, SECRET);
        server.lists(&listed);
        let place = format!("/v1/servers/{key}");
        let told = ask(&gateway, "E1", "POST", &format!("{place}/refresh"), &Value::Null);
        assert_eq!(told.status, 502, "{}", told.text());
        let told = json_of(&ask(&gateway, "E1", "GET", &place, &Value::Null), 200);
        assert_eq!((&told["health"], &told["toolCount"]), (&json!("failing"), &json!(3)));
        assert!(told["lastError"]["message"].as_str().unwrap().contains(why), "{told}");
    }
}

#[test]
fn an_employee_brings_a_server_of_any_dialect_and_nobody_else_has_it() {
    for speaks in [Speaks::Stateless, Speaks::Handshake("2025-11-25"), Speaks::Lite] {
        let (gateway, server) = (gateway(), self::server(speaks));
        let key = bring(&gateway, "E1", &server, SECRET);
        let told =
            json_of(&ask(&gateway, "E1", "GET", &format!("/v1/servers/{key}"), &Value::Null), 200);
        assert_eq!((&told["health"], &told["toolCount"]), (&json!("ok"), &json!(5)), "{told}");
        let echo = &told["tools"][0];
        let standing = (&echo["new"], &echo["held"], &echo["risk"]);
        assert_eq!(standing, (&json!(false), &json!(false), &json!("read_low")), "{echo}");
        let path = format!("/mcp/{key}");
        assert!(tools(&gateway, "E1", &path).contains(&"echo".to_owned()));
        let name = tools(&gateway, "E1", "/mcp").into_iter().find(|name| name.ends_with("echo"));
        let name = name.expect("it is in the owner's list");
        assert!(name.starts_with("mcp_"), "{name}");
        for (path, tool) in [(path.as_str(), "echo"), ("/mcp", name.as_str())] {
            let reply = call(&gateway, "E1", path, tool, &json!({}));
            assert!(reply.text().contains("said"), "{speaks:?} {path}: {}", reply.text());
        }
        let calls = server.calls();
        assert_eq!(calls.len(), 2);
        for request in server.received() {
            let bearer = format!("Bearer {SECRET}");
            assert_eq!(request.header("authorization"), Some(bearer.as_str()), "{}", request.head);
        }
        // For another there is no such thing, by whatever way.
        assert!(tools(&gateway, "E2", "/mcp").is_empty());
        assert_eq!(call(&gateway, "E2", &path, "echo", &json!({})).status, 404);
        let other = ask(&gateway, "E2", "GET", &format!("/v1/servers/{key}"), &Value::Null);
        let told = json_of(&other, 424);
        assert_eq!(told["error"]["code"], "server_not_configured");
        assert_eq!(told["error"]["alias"], "MCP_SERVER_NOT_CONFIGURED");
        assert_eq!(server.calls().len(), 2);
        // And when it is deleted, for nobody.
        json_of(&ask(&gateway, "E1", "DELETE", &format!("/v1/servers/{key}"), &Value::Null), 200);
        assert_eq!(call(&gateway, "E1", &path, "echo", &json!({})).status, 404);
        assert!(tools(&gateway, "E1", "/mcp").is_empty());
    }
}

#[test]
fn what_cannot_be_only_tried_is_refused_and_not_done() {
    let (gateway, server) = (gateway(), self::server(Speaks::Stateless));
    let key = bring(&gateway, "E1", &server, SECRET);
    let below = |below: &str| format!("/v1/servers/{key}{below}");
    let body = json!({ "url": format!("{}?n=1", server.url()) }).to_string();
    for (method, path, body) in [
        ("POST", "/v1/servers".to_owned(), &*body),
        ("POST", "/v1/servers/import".to_owned(), "{}"),
        ("POST", below("/refresh"), ""),
        ("PUT", below("/credential"), "{}"),
        ("DELETE", below("/credential"), ""),
        ("PUT", below("/share"), "{}"),
        ("DELETE", below("/share"), ""),
        ("DELETE", below(""), ""),
    ] {
        let request = Request::new(method, &path, body).header("SSO-Emp-Id", "E1");
        let request = request.header("Content-Type", "application/json");
        let reply = request.header("X-Dry-Run", "true").ask(&gateway);
        assert_eq!(
            (reply.status, reply.refusal().as_deref()),
            (400, Some("invalid_args")),
            "{path}"
        );
        assert!(reply.text().contains("only tried"), "{}", reply.text());
    }
    let told = json_of(&ask(&gateway, "E1", "GET", "/v1/servers", &Value::Null), 200);
    let servers = told["servers"].as_array().unwrap();
    assert_eq!((servers.len(), &servers[0]["hasCredential"]), (1, &json!(true)), "{told}");
}

#[test]
fn each_change_leaves_a_record_and_no_secret_anywhere() {
    let (gateway, server) = (gateway(), self::server(Speaks::Stateless));
    let key = bring(&gateway, "E1", &server, SECRET);
    let path = |below: &str| format!("/v1/servers/{key}{below}");
    let null = Value::Null;
    let token = json!({ "type": "bearer", "token": SECRET });
    json_of(&ask(&gateway, "E1", "PUT", &path("/share"), &json!({ "team": "payments" })), 200);
    json_of(&ask(&gateway, "E2", "PUT", &path("/credential"), &token), 200);
    json_of(&ask(&gateway, "E2", "DELETE", &path(""), &null), 403);
    json_of(&ask(&gateway, "E1", "POST", &path("/refresh"), &null), 200);
    json_of(&ask(&gateway, "E4", "POST", "/v1/servers", &json!({ "url": server.url() })), 403);
    let file = json!({ "mcpServers": { "a": { "url": server.url(), "headers": { "X-Api-Key": SECRET } } } });
    json_of(&ask(&gateway, "E1", "POST", "/v1/servers/import", &file), 200);
    json_of(&ask(&gateway, "E1", "DELETE", &path("/share"), &null), 200);
    json_of(&ask(&gateway, "E1", "DELETE", &path("/credential"), &null), 200);
    json_of(&ask(&gateway, "E1", "DELETE", &path(""), &null), 200);
    let expected = [
        ("E1", "register", "ok"),
        ("E1", "share", "ok"),
        ("E2", "set_credential", "ok"),
        ("E2", "delete", "denied"),
        ("E1", "refresh", "ok"),
        ("E4", "register", "denied"),
        ("E1", "replace", "ok"),
        ("E1", "import", "ok"),
        ("E1", "unshare", "ok"),
        ("E1", "delete_credential", "ok"),
        ("E1", "delete", "ok"),
    ];
    let changes = || {
        let records = gateway.audit().into_iter();
        records.filter(|record| record["event"] == "server_change").collect::<Vec<_>>()
    };
    wait_for("every change is recorded", Duration::from_secs(5), || {
        changes().len() == expected.len()
    });
    for (record, (who, what, outcome)) in changes().iter().zip(expected) {
        let found = (&record["principal"]["empId"], &record["change"]["what"], &record["outcome"]);
        assert_eq!(found, (&json!(who), &json!(what), &json!(outcome)), "{record}");
        if what != "import" && who != "E4" {
            assert_eq!(record["serverKey"], key.as_str(), "{record}");
        }
    }
    assert_eq!(changes()[1]["change"]["team"], "payments");
    let audit = std::fs::read_to_string(gateway.audit_file()).unwrap();
    assert!(!audit.contains(SECRET) && !gateway.metrics().contains(SECRET));
}

#[test]
fn a_wrong_endpoint_is_told_as_everywhere_and_nothing_stays() {
    let (gateway, server) = (gateway(), self::server(Speaks::Lite));
    let body = json!({ "url": server.url(), "auth": { "type": "bearer", "token": SECRET } });
    let told = json_of(&ask(&gateway, "E1", "POST", "/v1/servers", &body), 502);
    assert_eq!(told["error"]["code"], "external_service_error");
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains("dialect: mcp-lite"), "{message}");
    let listed = json_of(&ask(&gateway, "E1", "GET", "/v1/servers", &Value::Null), 200);
    assert_eq!(listed["servers"], json!([]));
    // Where nobody listens, where nobody may look, and what policy does not have.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (url, status, word) in [
        (format!("http://{free}/mcp"), 502, "cannot be listed"),
        ("http://127.0.0.1:9/mcp".to_owned(), 403, "may not call `127.0.0.1:9`"),
        ("https://internal.example/mcp".to_owned(), 403, "not among the hosts"),
    ] {
        let told =
            json_of(&ask(&gateway, "E1", "POST", "/v1/servers", &json!({ "url": url })), status);
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains(word), "{url}: {message}");
    }
    let listed = json_of(&ask(&gateway, "E1", "GET", "/v1/servers", &Value::Null), 200);
    assert_eq!(listed["servers"], json!([]));
}

#[test]
fn an_upstream_that_takes_each_employees_own_credential_gets_it_here() {
    let server = self::server(Speaks::Stateless);
    let yaml = format!(
        "store: memory
callers:
  gate: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, catalog_roles: [member] }}
upstreams:
  crm: {{ url: \"{}\", auth: {{ type: employee }} }}
",
        server.url()
    );
    let tools =
        "version: hangu/v1\nkind: Tools\nupstreams: { crm: { default: { risk: read_low } } }\n";
    let gateway = Gateway::start(&yaml, &[POLICY, DIRECTORY, tools]);
    let reply = call(&gateway, "E1", "/mcp/crm", "echo", &json!({}));
    assert!(reply.text().contains("server_not_configured"), "{}", reply.text());
    let own = json!({ "type": "basic", "user": "E1", "password": SECRET });
    let told = json_of(&ask(&gateway, "E1", "PUT", "/v1/servers/crm/credential", &own), 200);
    let key = told["serverKey"].as_str().unwrap().to_owned();
    let reply = call(&gateway, "E1", "/mcp/crm", "echo", &json!({}));
    assert!(reply.text().contains("said"), "{}", reply.text());
    assert!(server.calls()[0].header("authorization").unwrap().starts_with("Basic "));
    // Whoever sees nothing of it does not hear that it is there.
    json_of(&ask(&gateway, "E4", "PUT", "/v1/servers/crm/credential", &own), 424);
    let path = format!("/v1/servers/{key}/credential");
    json_of(&ask(&gateway, "E1", "DELETE", &path, &Value::Null), 200);
    let reply = call(&gateway, "E1", "/mcp/crm", "echo", &json!({}));
    assert!(reply.text().contains("server_not_configured"), "{}", reply.text());
}

#[test]
fn who_shares_one_server_opens_it_with_his_own_credential() {
    const EACH: usize = 16;
    let gateway = Arc::new(gateway());
    let server = Arc::new(self::server(Speaks::Stateless));
    let key = bring(&gateway, "E1", &server, "token-of-E1");
    assert_eq!(bring(&gateway, "E2", &server, "token-of-E2"), key, "one address, one key");
    let share = json!({ "team": "payments" });
    json_of(&ask(&gateway, "E1", "PUT", &format!("/v1/servers/{key}/share"), &share), 200);
    let path = format!("/mcp/{key}");
    // The third sees it, and has nothing that opens it.
    assert!(tools(&gateway, "E3", &path).contains(&"echo".to_owned()));
    let reply = call(&gateway, "E3", &path, "echo", &json!({}));
    assert!(reply.text().contains("\"server_not_configured\""), "{}", reply.text());
    assert!(reply.text().contains("MCP_SERVER_NOT_CONFIGURED"), "{}", reply.text());
    assert!(server.calls().is_empty());
    let own = json!({ "type": "bearer", "token": "token-of-E3" });
    json_of(&ask(&gateway, "E3", "PUT", &format!("/v1/servers/{key}/credential"), &own), 200);

    let threads: Vec<_> = (0..64)
        .map(|number| {
            let (gateway, path) = (gateway.clone(), path.clone());
            let who = ["E1", "E2", "E3"][number % 3];
            thread::spawn(move || {
                for _ in 0..EACH {
                    let reply = call(&gateway, who, &path, "echo", &json!({ "who": who }));
                    assert!(reply.text().contains("said"), "{}", reply.text());
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let calls = server.calls();
    assert_eq!(calls.len(), 64 * EACH);
    for request in calls {
        let arguments: Value = serde_json::from_str(&request.arguments()).unwrap();
        let who = arguments["who"].as_str().unwrap();
        let expected = format!("Bearer token-of-{who}");
        assert_eq!(request.header("authorization"), Some(expected.as_str()), "{who}");
    }
}

/// Also where it listed the same for a while, and has a session open for calls meanwhile: what
/// changes later is seen, and what does not stays.
#[test]
fn a_server_in_use_is_looked_at_again_and_again() {
    for speaks in [Speaks::Stateless, Speaks::Handshake("2025-11-25")] {
        let (gateway, server) = (gateway_with("servers: { refresh: 1s }\n"), server(speaks));
        let key = bring(&gateway, "E1", &server, SECRET);
        let path = format!("/mcp/{key}");
        let look = |path: &str| {
            let reply = ask(
                &gateway,
                "E1",
                if path.is_empty() { "GET" } else { "POST" },
                &format!("/v1/servers/{key}{path}"),
                &Value::Null,
            );
            json_of(&reply, 200)
        };
        wait_for("it is listed four times", Duration::from_secs(20), || {
            assert!(tools(&gateway, "E1", &path).contains(&"echo".to_owned()), "{speaks:?}");
            let reply = call(&gateway, "E1", &path, "echo", &json!({}));
            assert!(reply.text().contains("said"), "{speaks:?}: {}", reply.text());
            server.of("tools/list").len() >= 4
        });
        assert_eq!(look("/refresh")["toolCount"], 5, "{speaks:?}");
        let told = look("");
        let revision =
            if let Speaks::Handshake(revision) = speaks { revision } else { "2026-07-28" };
        assert_eq!(
            (&told["toolCount"], &told["revision"]),
            (&json!(5), &json!(revision)),
            "{told}"
        );
        let greets = matches!(speaks, Speaks::Handshake(_));
        assert_eq!(told["serverInfo"]["name"].is_string(), greets, "{told}");
        server
            .lists(r#"[{"name":"later","description":"Later.","inputSchema":{"type":"object"}}]"#);
        wait_for("what it lists later is seen", Duration::from_secs(20), || {
            tools(&gateway, "E1", &path) == ["later"]
        });
    }
}

/// Lists in the forms of runtimes are kept, and yet never those of before.
#[test]
fn a_runtime_is_told_of_a_server_as_long_as_it_is_there() {
    let (gateway, server) = (gateway(), self::server(Speaks::Stateless));
    let told = |who: &str, format: &str| {
        let path = format!("/v1/tools?format={format}");
        let one = json_of(&ask(&gateway, who, "GET", &path, &Value::Null), 200);
        // And the same again.
        assert_eq!(json_of(&ask(&gateway, who, "GET", &path, &Value::Null), 200), one);
        one["map"].as_object().unwrap().clone()
    };
    for format in ["mcp", "openai", "anthropic", "gemini"] {
        assert!(told("E1", format).is_empty());
        let key = bring(&gateway, "E1", &server, SECRET);
        let map = told("E1", format);
        let place = &map[&format!("{key}__echo")];
        assert_eq!(*place, json!({ "serverKey": key, "toolName": "echo" }), "{format}");
        assert!(told("E2", format).is_empty());
        json_of(&ask(&gateway, "E1", "DELETE", &format!("/v1/servers/{key}"), &Value::Null), 200);
        assert!(told("E1", format).is_empty());
    }
}
