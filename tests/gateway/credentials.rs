//! Credentials on calls: each employee's own, with sessions that go with them, and secrets that
//! operators have given names to.

use std::{fs, sync::Arc, thread};

use hangu::{
    credential::{Credential, Owner, Vault, Whose},
    model::{
        caller::{EmployeeId, TenantId},
        server_key::server_key,
    },
};
use serde_json::{Value, json};

use crate::{
    process_support::{self, Dialect, Process, Response, Setup, exchange, until},
    support::{Answer, Asker, Gateway, Reply, Request, Speaks, Upstream, gateway::ALL_OF_UP},
};

const ERAS: [Speaks; 2] = [Speaks::Stateless, Speaks::Handshake("2025-11-25")];

const CALLERS: &str = "store: memory
callers:
  tests: { keys: [{ env: KEY }], tenant: acme, identity: { header: true, fallback: { empId: E9, roles: [member] } } }
";

fn gateway(url: &str, of_upstream: &str) -> Gateway {
    let yaml = format!(
        "{CALLERS}upstreams:\n  up: {{ url: \"{url}\", auth: {{ type: employee }}{of_upstream} }}\n"
    );
    Gateway::start(&yaml, &[ALL_OF_UP])
}

fn whose(url: &str, employee: &str) -> Whose {
    Whose {
        tenant: TenantId::new("acme"),
        owner: Owner::Employee(EmployeeId::parse(employee).unwrap()),
        server_key: server_key(&url.parse().unwrap()),
    }
}

fn vault(gateway: &Gateway) -> Arc<Vault> {
    gateway.engines().vault.clone()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn bearer(gateway: &Gateway, url: &str, employee: &str, token: &str) {
    let credential = Credential::Bearer(token.into());
    wait(vault(gateway).put(whose(url, employee), credential)).unwrap();
}

fn call(gateway: &Gateway, tool: &str, employee: &str, arguments: &Value) -> Reply {
    Request::call(tool, arguments).header("SSO-Emp-Id", employee).ask(gateway)
}

#[test]
fn two_employees_at_one_server_are_each_told_by_their_own_credential() {
    for era in ERAS {
        let asker = Asker::start(era);
        // Also where a server keeps nothing of its sessions.
        for of_upstream in ["", ", stateless: true"] {
            let gateway = gateway(&asker.url(), of_upstream);
            bearer(&gateway, &asker.url(), "E1", "token-of-E1");
            bearer(&gateway, &asker.url(), "E2", "token-of-E2");
            thread::scope(|scope| {
                for number in 0..64 {
                    let gateway = &gateway;
                    scope.spawn(move || {
                        for round in 0..4 {
                            let employee = if (number + round) % 2 == 0 { "E1" } else { "E2" };
                            let reply = call(gateway, "ask", employee, &json!({ "of": employee }));
                            assert!(!reply.is_error(), "{}", reply.text());
                        }
                    });
                }
            });
            let calls = asker.of("tools/call");
            assert!(calls.len() >= 256, "{}", calls.len());
            for received in calls {
                let arguments: Value = serde_json::from_str(&received.arguments()).unwrap();
                let expected = format!("Bearer token-of-{}", arguments["of"].as_str().unwrap());
                assert_eq!(received.header("authorization"), Some(&*expected), "{era:?}");
            }
            // A session has been opened with one credential, and serves no other.
            for received in asker.by("POST") {
                let session = received.header("mcp-session-id");
                let sent = received.header("authorization");
                let others = asker
                    .by("POST")
                    .into_iter()
                    .filter(|other| session.is_some() && other.header("mcp-session-id") == session);
                for other in others.take(3) {
                    assert_eq!(other.header("authorization"), sent, "{era:?}");
                }
            }
        }
    }
}

#[test]
fn each_kind_of_credential_is_written_as_its_server_expects_it() {
    let asker = Asker::start(Speaks::Stateless);
    // What an operator has configured is for listings; on a call the employee's own stands there.
    let gateway = gateway(&asker.url(), ", headers: { Authorization: { env: KEY } }");
    assert_eq!(asker.of("tools/list")[0].header("authorization"), Some("key-of-a-test"));
    for (credential, name, value) in [
        (Credential::Bearer("t".into()), "authorization", "Bearer t"),
        (
            Credential::Basic { user: "ann".to_owned(), password: "pass:word".into() },
            "authorization",
            "Basic YW5uOnBhc3M6d29yZA==",
        ),
        (Credential::Headers(vec![("X-Token".to_owned(), "v".into())]), "x-token", "v"),
    ] {
        let vault = vault(&gateway);
        wait(vault.put(whose(&asker.url(), "E1"), credential)).unwrap();
        let reply = call(&gateway, "ask", "E1", &json!({}));
        assert!(!reply.is_error(), "{}", reply.text());
        assert_eq!(asker.of("tools/call").pop().unwrap().header(name), Some(value));
    }
}

#[test]
fn who_has_set_no_credential_is_told_so_and_nothing_leaves() {
    for era in ERAS {
        let asker = Asker::start(era);
        let gateway = gateway(&asker.url(), "");
        bearer(&gateway, &asker.url(), "E1", "token");
        let reply = call(&gateway, "ask", "E2", &json!({}));
        let refusal = reply.fault();
        assert_eq!(refusal["code"], "server_not_configured", "{}", reply.text());
        assert_eq!(refusal["alias"], "MCP_SERVER_NOT_CONFIGURED");
        assert_eq!((&refusal["next"], &refusal["retryable"]), (&json!("ask_human"), &json!(false)));
        assert!(asker.of("tools/call").is_empty());
        let lite = Request::lite("tools/call", r#"{"name":"ask","arguments":{}}"#);
        assert_eq!(lite.header("SSO-Emp-Id", "E2").ask(&gateway).status, 424);
    }
}

#[test]
fn a_session_of_a_credential_that_was_replaced_or_deleted_serves_no_more() {
    let asker = Asker::start(ERAS[1]);
    let gateway = gateway(&asker.url(), "");
    let url = asker.url();
    let last = || {
        let received = asker.of("tools/call").pop().unwrap();
        let of = |name| received.header(name).unwrap().to_owned();
        (of("mcp-session-id"), of("authorization"))
    };
    bearer(&gateway, &url, "E1", "first");
    bearer(&gateway, &url, "E2", "other");
    for employee in ["E2", "E1", "E1"] {
        assert!(!call(&gateway, "ask", employee, &json!({})).is_error());
    }
    let (first, _) = last();
    assert_eq!(asker.of("initialize").len(), 3, "discovery's, and one for each");
    bearer(&gateway, &url, "E1", "second");
    assert!(!call(&gateway, "ask", "E1", &json!({})).is_error());
    let (second, sent) = last();
    assert_ne!(second, first);
    assert_eq!(sent, "Bearer second");
    // Every request in a session has the credential that it was opened with.
    let of_first =
        asker.by("POST").into_iter().filter(|it| it.header("mcp-session-id") == Some(&first));
    assert!(of_first.into_iter().all(|it| it.header("authorization") == Some("Bearer first")));
    assert!(wait(vault(&gateway).delete(whose(&url, "E1"))).unwrap());
    let before = asker.received().len();
    let reply = call(&gateway, "ask", "E1", &json!({}));
    assert_eq!(reply.fault()["code"], "server_not_configured", "{}", reply.text());
    assert_eq!(asker.received().len(), before);
    // Nobody else's is touched.
    assert!(!call(&gateway, "ask", "E2", &json!({})).is_error());
    assert_eq!(last().1, "Bearer other");
}

#[test]
fn a_credential_that_the_server_refuses_is_the_employee_s_to_mend() {
    for speaks in [Speaks::Stateless, Speaks::Handshake("2025-11-25"), Speaks::Lite] {
        let body = r#"{"jsonrpc":"2.0","id":{{id}},"error":{"code":1,"message":"planted-words"}}"#;
        let answer = Answer::new("401 Unauthorized", "application/json", body);
        let up = Upstream::answering(speaks, answer);
        let yaml = format!(
            "{CALLERS}upstreams:\n  up: {{ url: \"{}\", dialect: {}, auth: {{ type: employee }} }}\n",
            up.url(),
            up.dialect()
        );
        let gateway = Gateway::start(&yaml, &[ALL_OF_UP]);
        bearer(&gateway, &up.url(), "E1", "stale");
        let reply = call(&gateway, "echo", "E1", &json!({}));
        let refusal = reply.fault();
        assert_eq!(refusal["code"], "permission_denied", "{speaks:?} {}", reply.text());
        assert!(refusal["message"].as_str().unwrap().contains("refused your credential"));
        assert!(!reply.text().contains("planted-words"), "{}", reply.text());
        assert_eq!(up.calls().len(), 1, "it is not tried again");
    }
}

// === secrets by name ===

const SECURITY: &str = "a-security-token-of-the-tests";
const OPERATOR: &str = "an-operators-token-of-the-tests";

fn setup(up: &process_support::Upstream) -> Setup {
    Setup::new()
        .config("keyring: { file: keyring.json }\ncredentials: { cache_age: 100ms }")
        .admin_more(
            "tokens: { sec: { token: { env: SEC }, role: security }, \
             ops: { token: { env: OPS }, role: operator } }",
        )
        .env("SEC", SECURITY)
        .env("OPS", OPERATOR)
        .upstream("up", up, "headers: { X-Provider-Key: { secret: provider } }", "")
}

fn ask(gateway: &Process, token: &str, method: &str, path: &str, body: &str) -> Response {
    let bearer = format!("Bearer {token}");
    let headers = [("Content-Type", "application/json"), ("Authorization", &*bearer)];
    exchange(gateway.admin, method, path, &headers, body.as_bytes()).unwrap()
}

fn put(gateway: &Process, value: &str) -> Response {
    let body = json!({ "value": value }).to_string();
    ask(gateway, SECURITY, "PUT", "/admin/api/secrets/provider", &body)
}

fn sent(up: &process_support::Upstream) -> Option<String> {
    up.calls().pop().unwrap().header("x-provider-key").map(str::to_owned)
}

fn new_keyring(home: &process_support::Home) {
    let made = home.output(&["keys", "new"]);
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn a_secret_is_set_by_its_name_and_used_from_the_next_request_on() {
    let up = process_support::Upstream::start(&[process_support::tool("echo")]);
    let home = setup(&up).write();
    new_keyring(&home);
    // It serves without, and says what is missing.
    let mut gateway = home.serve(&[]);
    for (token, method, status) in [
        (OPERATOR, "PUT", 403),
        (OPERATOR, "DELETE", 403),
        (OPERATOR, "GET", 405),
        (SECURITY, "DELETE", 404),
    ] {
        let body = json!({ "value": "planted-refused" }).to_string();
        let answer = ask(&gateway, token, method, "/admin/api/secrets/provider", &body);
        assert_eq!(answer.status, status, "{method} {answer:?}");
    }
    for (name, body) in [
        ("provider", "planted-not-json".to_owned()),
        ("provider", json!({ "value": "planted\nbreak" }).to_string()),
        ("provider", json!({ "value": " planted-blank" }).to_string()),
        ("provider", json!({ "value": "" }).to_string()),
        ("provider", json!({ "value": "planted", "more": 1 }).to_string()),
        ("a%20b", json!({ "value": "planted" }).to_string()),
    ] {
        let path = format!("/admin/api/secrets/{name}");
        let answer = ask(&gateway, SECURITY, "PUT", &path, &body);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(!answer.text().contains("planted"), "{answer:?}");
    }
    let mut seen = Vec::new();
    seen.push(put(&gateway, "planted-one").text());
    let client = gateway.client("/mcp/up", Dialect::Modern);
    until("the server is listed", || client.call("echo", json!({})).word() == "ok");
    assert_eq!(sent(&up).as_deref(), Some("planted-one"));
    seen.push(put(&gateway, "planted-two").text());
    assert_eq!(client.call("echo", json!({})).word(), "ok");
    assert_eq!(sent(&up).as_deref(), Some("planted-two"), "without a restart");
    let listed = ask(&gateway, OPERATOR, "GET", "/admin/api/secrets", "");
    assert_eq!(listed.json()["secrets"][0]["name"], "provider", "{listed:?}");
    seen.push(listed.text());
    seen.push(ask(&gateway, OPERATOR, "GET", "/admin/api/config", "").text());
    // It is there after a restart.
    gateway.signal(15);
    gateway.wait();
    seen.push(gateway.log());
    let gateway = home.serve(&[]);
    let client = gateway.client("/mcp/up", Dialect::Modern);
    assert_eq!(client.call("echo", json!({})).word(), "ok");
    assert_eq!(sent(&up).as_deref(), Some("planted-two"));
    let gone = ask(&gateway, SECURITY, "DELETE", "/admin/api/secrets/provider", "");
    assert_eq!(gone.status, 200, "{gone:?}");
    let refused = client.call("echo", json!({}));
    assert_eq!(refused.word(), "server_not_configured", "{refused:?}");
    assert!(refused.text().contains("the secret `provider`"), "{refused:?}");
    seen.push(refused.text());
    seen.push(gateway.metrics());
    let records = gateway.audit_until(|records| {
        records.iter().filter(|it| it["action"] == "secret_delete").count() >= 2
    });
    assert!(
        records.iter().any(|it| it["action"] == "secret_put" && it["target"] == "provider"),
        "{records:#?}"
    );
    seen.push(json!(records).to_string());
    seen.push(gateway.log());
    for text in &seen {
        assert!(!text.contains("planted"), "{text}");
    }
    for entry in fs::read_dir(home.path("")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            assert!(!bytes.windows(7).any(|part| part == b"planted"), "{}", path.display());
        }
    }
}
