//! What employees, operators and strangers do.

use serde_json::{Value, json};

use super::{House, Told, kinds::secret, told};
use crate::{
    oauth::{Pair, consent::Browser, consent::query, form},
    process_support::{Dialect, exchange, until},
};

/// A sealed text is looked for behind what begins all of its kind.
const BEGINNING: usize = 24;

pub fn name_secrets(house: &mut House) {
    const PLACE: &str = "/admin/api/secrets/named";
    let refused = secret("a named secret that was refused");
    for (token, method, path, body) in [
        ("the security token", "PUT", PLACE, refused.clone()),
        ("the security token", "PUT", PLACE, json!({ "value": [refused] }).to_string()),
        (
            "the security token",
            "PUT",
            PLACE,
            json!({ "value": format!("{refused}\n") }).to_string(),
        ),
        ("the security token", "PUT", PLACE, json!({ "value": "x", &*refused: 1 }).to_string()),
        ("the security token", "PUT", PLACE, format!("{{\"value\":\"{refused}")),
        (
            "the security token",
            "PUT",
            "/admin/api/secrets/a%20b",
            json!({ "value": refused }).to_string(),
        ),
        ("the security token", "POST", PLACE, json!({ "value": refused }).to_string()),
    ] {
        let answer = house.admin(token, method, path, &body);
        assert!(answer.status >= 400, "{answer:?}");
    }
    for kind in ["a named secret of before", "a named secret"] {
        let body = json!({ "value": secret(kind) }).to_string();
        let answer = house.admin("the security token", "PUT", PLACE, &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    house.admin("the admin token", "GET", "/admin/api/secrets", "");
}

/// Each employee has a credential of another kind.
pub fn credentials(house: &mut House) {
    for (who, auth) in [
        ("E1", json!({ "type": "bearer", "token": secret("an employee's token") })),
        (
            "E2",
            json!({ "type": "basic", "user": "ann", "password": secret("an employee's password") }),
        ),
        (
            "E3",
            json!({ "type": "headers",
                    "headers": { "X-Provider-Key": secret("an employee's header") } }),
        ),
    ] {
        let client = house.client("/mcp/own", Dialect::Modern, who);
        until("the server is listed", || !client.list().is_empty());
        let path = "/v1/servers/own/credential";
        let answer = house.ask(who, "PUT", path, &auth.to_string(), Told::Nothing);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// E1 grants a token; others see nothing of it.
pub fn consent(house: &mut House) {
    let pair = &house.granted;
    pair.rules.lock().expires_in = Some(1);
    let client = house.client("/mcp/granted", Dialect::Modern, "E1");
    until("the server is listed", || !client.list().is_empty());
    let invited = || {
        let refused = client.call("look", json!({}));
        assert_eq!(refused.word(), "server_not_configured", "{refused:?}");
        let url = refused.fault()["connectUrl"].as_str().unwrap().to_owned();
        (refused, url)
    };
    let (refused, url) = invited();
    // Each is good once.
    let others = [(); 4].map(|()| invited().1);
    let invitation = query(&url)["t"].clone();
    let mut browser = Browser::default();
    let page = browser.get(house.gateway.address, &url);
    let away = browser.go(house.gateway.address, &url);
    let location = away.header("location").unwrap().to_owned();
    let state = query(&location)["state"].clone();
    let cookie = browser.cookies.last().unwrap().split_once('=').unwrap().1.to_owned();
    let back = browser.consent(pair, &location);
    let mut pages = vec![Browser::default().get(house.gateway.address, &back)];
    let done = browser.get(house.gateway.address, &back);
    assert_eq!(done.status, 200, "{done:?}");
    pages.extend([done, browser.get(house.gateway.address, &back)]);
    // Answers that are not taken; a state is good for one.
    let word = secret("a word in a broken body");
    type Change<'a> = &'a dyn Fn(String) -> String;
    let changes: [Change<'_>; 4] = [
        &|back| format!("{back}&code={word}"),
        &|back| back.replace("code=", "kode="),
        &|back| format!("{back}&error={word}"),
        &|back| back.replace("state=", "state=A"),
    ];
    for (change, url) in changes.into_iter().zip(others) {
        let mut browser = Browser::default();
        let location = browser.leave(house.gateway.address, &url);
        let back = change(browser.consent(pair, &location));
        pages.push(browser.get(house.gateway.address, &back));
    }
    let verifier = form(&pair.requests_for_tokens()[0])["code_verifier"].clone();
    for (name, text) in [("an invitation", &*invitation), ("a state", &state)] {
        house.search.add(name, &text.as_bytes()[BEGINNING..]);
    }
    house.search.add("a cookie", cookie.as_bytes());
    house.search.add("a verifier", verifier.as_bytes());
    house.said("a call without a grant", &refused, Told::These(&["an invitation"]));
    house.said("the page of an invitation", &page, Told::These(&["an invitation"]));
    house.said("the way to the authorization server", &away, Told::These(&["a state", "a cookie"]));
    for page in pages {
        house.said("the way back", &page, Told::Nothing);
    }
    // Renewed, as it is over at once; and withdrawn.
    until("it is granted", || client.call("look", json!({})).word() == "ok");
    let connect = house.ask("E2", "POST", "/v1/oauth/connect/granted", "", Told::Nothing);
    assert_eq!(connect.status, 200, "{connect:?}");
}

/// Requests of people whom the gateway does not know, or not as they say.
pub fn strangers(house: &mut House) {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    let none = secret("a token that is none");
    let unknown = secret("a key that nobody has");
    let expired = secret("a key that has expired");
    let file = secret("the caller's key from a file");
    let good = secret("the caller's key");
    let bearer = format!("Bearer {none}");
    let parts = format!("Bearer e30.{none}.{none}");
    let basic = format!("Basic {none}");
    let word = secret("a word in a broken body");
    // No employee's: one that might be is whom the caller names, and stands in the record.
    let nobody = format!("E1 {word}");
    let cookie = format!("sid={}", secret("a client's cookie"));
    let requests: Vec<Vec<(&str, &str)>> = vec![
        vec![("X-Api-Key", &unknown)],
        vec![("X-Api-Key", &expired)],
        vec![("X-Api-Key", &unknown), ("X-Api-Key", &good)],
        vec![("X-Api-Key", &file)],
        vec![("Authorization", &bearer)],
        vec![("Authorization", &parts)],
        vec![("Authorization", &basic)],
        vec![("X-Api-Key", &good), ("Authorization", &parts)],
        vec![("X-Api-Key", &good), ("SSO-Emp-Id", &nobody)],
        vec![
            ("X-Api-Key", &good),
            ("Cookie", &cookie),
            ("baggage", &cookie),
            ("tracestate", &cookie),
        ],
        vec![("X-Api-Key", &good), ("X-Call-Source", &word)],
        vec![("X-Api-Key", &good), ("MCP-Protocol-Version", &word)],
        vec![("X-Api-Key", &good), ("Mcp-Session-Id", &word)],
        vec![("X-Api-Key", &good), ("Origin", &word)],
        vec![("X-Api-Key", &good), ("traceparent", &word)],
        vec![("X-Api-Key", &good), ("Content-Type", &word)],
        vec![("X-Api-Key", &good), ("Transfer-Encoding", &word)],
    ];
    for headers in requests {
        for path in ["/mcp", "/mcp/fixed", "/mcp/tools/list", "/v1/tools", "/v1/invoke"] {
            let mut all = vec![("Accept", "application/json, text/event-stream")];
            if headers.iter().all(|(name, _)| *name != "Content-Type") {
                all.push(("Content-Type", "application/json"));
            }
            all.extend(&headers);
            let method = if path == "/v1/tools" { "GET" } else { "POST" };
            let text = if method == "GET" { String::new() } else { body.to_string() };
            let address = house.gateway.address;
            let answer = exchange(address, method, path, &all, text.as_bytes()).unwrap();
            house.said(&format!("{method} {path} of a stranger"), &answer, Told::Nothing);
        }
    }
    for path in ["/nowhere", "/mcp", "/v1/approvals", "/v1/tools"] {
        let path = format!("{path}?api_key={unknown}&token={none}");
        let headers = [("X-Api-Key", &*good), ("SSO-Emp-Id", "E1")];
        let answer = exchange(house.gateway.address, "GET", &path, &headers, b"").unwrap();
        house.said("a query", &answer, Told::Nothing);
    }
    house.admin("an admin token that nobody has", "GET", "/admin/api/config", "");
    let path = format!("/admin/api/config?token={}", secret("an admin token that nobody has"));
    let answer = exchange(house.gateway.admin, "GET", &path, &[], b"").unwrap();
    house.said("a token in a query", &answer, Told::Nothing);
}

/// Servers of employees' own.
pub fn servers(house: &mut House) {
    let url = house.brought.up.url();
    let refused = secret("a token that the server refuses");
    let auth = json!({ "type": "bearer", "token": refused });
    for (way, _) in super::WAYS {
        *house.brought.listing.lock() = Some(way);
        let body = json!({ "url": url, "auth": auth }).to_string();
        let answer = house.ask("E1", "POST", "/v1/servers", &body, Told::Nothing);
        assert!(answer.status >= 400, "{way}: {answer:?}");
    }
    *house.brought.listing.lock() = None;
    let headers = json!({ "X-Provider-Key": secret("an employee's header") });
    let options =
        json!({ "headers": { "X-Api-Key": secret("a sealed header of options"), "X-Team": "a" } });
    let body = json!({ "url": url, "name": "Mine", "options": options,
                       "auth": { "type": "headers", "headers": headers } });
    let answer = house.ask("E1", "POST", "/v1/servers", &body.to_string(), Told::Nothing);
    assert_eq!(answer.status, 201, "{answer:?}");
    let key = super::told(&answer)["serverKey"].as_str().unwrap().to_owned();
    let place = |below: &str| format!("/v1/servers/{key}{below}");
    let team = json!({ "team": "payments" }).to_string();
    house.ask("E1", "PUT", &place("/share"), &team, Told::Nothing);
    let client = house.client(&format!("/mcp/{key}"), Dialect::Modern, "E1");
    for (way, may) in super::WAYS.into_iter().chain([("ok", true)]) {
        let arguments = json!({ "do": way, "said": secret("an argument") });
        let answer = client.call("look", arguments);
        super::keep(house, &format!("one's own server {way}"), &answer, may);
        *house.brought.listing.lock() = Some(way);
        house.ask("E1", "POST", &place("/refresh"), "", Told::Nothing);
        house.ask("E1", "GET", &place(""), "", Told::Nothing);
        house.ask("E2", "GET", &place(""), "", Told::Nothing);
        let own = json!({ "type": "headers", "headers": { "X-Provider-Key": refused } });
        house.ask("E2", "PUT", &place("/credential"), &own.to_string(), Told::Nothing);
        *house.brought.listing.lock() = None;
    }
    house.ask("E1", "POST", &place("/refresh"), "", Told::Nothing);
    let asset = house.ask("E1", "GET", &place("/asset"), "", Told::Nothing);
    for (who, method, path, body) in [
        ("E3", "POST", "/v1/servers/import".to_owned(), asset.text()),
        ("E3", "PUT", place("/credential"), auth.to_string()),
        ("E3", "DELETE", place(""), String::new()),
        ("E1", "GET", "/v1/servers".to_owned(), String::new()),
        ("E2", "GET", "/v1/servers".to_owned(), String::new()),
        ("E2", "DELETE", place("/credential"), String::new()),
        ("E1", "DELETE", place("/share"), String::new()),
        ("E1", "DELETE", place(""), String::new()),
        ("E1", "DELETE", place(""), String::new()),
    ] {
        house.ask(who, method, &path, &body, Told::Nothing);
    }
    let password = secret("a password in an address");
    let in_query = secret("a token in an address");
    for url in [
        format!("https://ann:{password}@partner.example/mcp"),
        format!("https://{password}@partner.example/mcp"),
        format!("https://partner.example/mcp?token={in_query}"),
        format!("http://127.0.0.1:1/mcp?exampleApiKey={in_query}&a=b"),
        format!("ftp://ann:{password}@partner.example/"),
        format!("https://ann:{password}@[::/mcp"),
        password.clone(),
    ] {
        let clients = json!({ "mcpServers": { "a": { "url": url, "headers": { "X-Api-Key": password } },
            "b": { "command": "sh", "env": { "KEY": password }, "args": [password] } } });
        let body = json!({ "url": url }).to_string();
        house.ask("E1", "POST", "/v1/servers", &body, Told::Nothing);
        house.ask("E1", "POST", "/v1/servers/import", &clients.to_string(), Told::Nothing);
    }
    owned_client(house);
}

/// A server that is opened by OAuth, as a client of the owner's.
fn owned_client(house: &mut House) {
    let pair = Pair::start();
    let auth = json!({ "type": "oauth", "client_id": "mine",
                       "client_secret": secret("an owner's client secret") });
    let body = json!({ "url": pair.up.url(), "auth": auth }).to_string();
    let answer = house.ask("E1", "POST", "/v1/servers", &body, Told::Nothing);
    assert_eq!(answer.status, 201, "{answer:?}");
    let told = told(&answer);
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    let (key, url) = (text("serverKey"), text("connectUrl"));
    pair.rules.lock().refuses = Some((
        400,
        json!({ "error": secret("a word in a broken body"),
        "error_description": secret("an owner's client secret") }),
    ));
    let failed = Browser::default().connect(house.gateway.address, &pair, &url);
    house.said("a grant that is refused", &failed, Told::Nothing);
    pair.rules.lock().refuses = None;
    let another = house.ask("E1", "POST", &format!("/v1/oauth/connect/{key}"), "", Told::Nothing);
    let url = self::told(&another)["connectUrl"].as_str().unwrap().to_owned();
    let done = Browser::default().connect(house.gateway.address, &pair, &url);
    assert_eq!(done.status, 200, "{done:?}");
    house.said("a grant", &done, Told::Nothing);
    for (method, below) in [("POST", "/refresh"), ("GET", ""), ("GET", "/asset"), ("DELETE", "")] {
        house.ask("E1", method, &format!("/v1/servers/{key}{below}"), "", Told::Nothing);
    }
}

pub fn operators(house: &mut House) {
    let argument = json!({ "said": secret("an argument") }).to_string();
    let argument: String = url::form_urlencoded::byte_serialize(argument.as_bytes()).collect();
    let explain =
        format!("/admin/api/explain?tenant=acme&roles=member&tool=fixed/look&args={argument}");
    for path in [
        "/admin/api/config",
        "/admin/api/policy",
        &explain,
        "/admin/api/connections",
        "/admin/api/servers",
        "/admin/api/servers/own",
        "/admin/api/servers/fixed",
        "/admin/api/tools",
        "/admin/api/tools/fixed__look",
        "/admin/api/pins",
        "/admin/api/pins?owner=acme/E1",
        "/admin/api/pins/history?upstream=fixed&tool=look",
        "/admin/api/pins/diff?upstream=fixed&tool=look",
        "/admin/api/openapi.json",
        "/admin/api/secrets",
        "/metrics",
        "/readyz",
        "/version",
    ] {
        house.admin("the admin token", "GET", path, "");
    }
    let word = secret("a word in a broken body");
    for (method, path) in [
        ("PUT", "/admin/api/log-level"),
        ("POST", "/admin/api/pins/approve"),
        ("POST", "/admin/api/pins/rollback"),
        ("POST", "/admin/api/reload"),
        ("PUT", "/admin/api/secrets/named"),
    ] {
        for body in super::v1::broken_bodies(&word) {
            // A list of one text is taken for a filter, which is told back.
            if !(path.ends_with("/log-level") && body.starts_with("[\"")) {
                house.admin("the admin token", method, path, &body);
            }
        }
    }
    let filter = json!({ "filter": format!("info,{word}=loud") }).to_string();
    house.admin("the admin token", "PUT", "/admin/api/log-level", &filter);
}

pub fn commands(house: &mut House) {
    let url = format!("http://{}", house.gateway.address);
    let admin = format!("http://{}", house.gateway.admin);
    let server = house.brought.up.url();
    let said = house.run(&["servers", "add", &server, "--auth", "bearer", "--url", &url]);
    let key = said.split(':').next().unwrap().to_owned();
    assert!(key.starts_with("mcp_"), "{said}");
    let password = secret("a password in an address");
    let refused = format!("https://ann:{password}@partner.example/mcp");
    for args in [
        vec!["servers", "ls", "--url", &url],
        vec!["servers", "show", &key, "--url", &url],
        vec!["servers", "show", &key, "--format", "json", "--url", &url],
        vec!["servers", "asset", &key, "--url", &url],
        vec!["servers", "refresh", &key, "--url", &url],
        vec!["servers", "credential", "set", &key, "--auth", "bearer", "--url", &url],
        vec!["servers", "credential", "rm", &key, "--url", &url],
        vec!["servers", "rm", &key, "--url", &url],
        vec!["servers", "add", &refused, "--url", &url],
        vec!["approvals", "ls", "--url", &url],
        vec!["call", "fixed/look", "--args", "{\"do\":\"500\"}", "--url", &url],
        vec!["pins", "ls", "--url", &admin],
        vec!["policy", "fetch", "--url", &admin],
        vec!["keys", "status"],
        vec!["keys", "status", "--format", "json"],
        vec!["check"],
        vec!["check", "--format", "json"],
        vec!["healthcheck", "--admin", &house.gateway.admin.to_string()],
    ] {
        house.run(&args);
    }
    let gone: Value = told(&house.ask("E3", "GET", "/v1/servers", "", Told::Nothing));
    assert_eq!(gone["servers"], json!([]), "what was added was deleted");
}
