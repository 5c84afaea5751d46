//! Grants of employees: the code flow with a browser, renewal, and what is not taken.

use std::{collections::HashMap, net::SocketAddr, thread};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Pair, base, form};
use crate::{
    process_support::{Dialect, Response, Setup, exchange, until},
    support::{Gateway, Reply, Request},
};

pub use crate::support::gateway::ALL_OF_UP as POLICY;

/// Where browsers are sent back; the tests' browser knows where that is.
pub const PUBLIC: &str = "http://127.0.0.1:4711";

fn gateway(pair: &Pair, more: &str) -> Gateway {
    gateway_at(PUBLIC, pair, more)
}

fn gateway_at(public: &str, pair: &Pair, more: &str) -> Gateway {
    let yaml = yaml(pair, more, "store: memory").replace(PUBLIC, public);
    Gateway::start(&yaml, &[POLICY])
}

/// The configuration, with further keys of how the server is opened, and of the file.
pub fn yaml(pair: &Pair, of_auth: &str, of_file: &str) -> String {
    pair.rules.lock().open_lists = true;
    format!(
        "{of_file}\negress: {{ allow: [127.0.0.1] }}\npublic_url: {PUBLIC}
callers:
  tests: {{ keys: [{{ env: KEY }}], tenant: acme, call_sources: [agent, script], identity: {{ header: true, fallback: {{ empId: E9, roles: [member] }} }} }}
upstreams:
  up: {{ url: \"{}\", timeout: 2s, auth: {{ type: oauth{of_auth} }} }}\n",
        pair.up.url()
    )
}

pub fn call(gateway: &Gateway, employee: &str) -> Reply {
    Request::call("echo", &json!({})).header("SSO-Emp-Id", employee).ask(gateway)
}

pub fn refusal(reply: &Reply) -> Value {
    reply.fault()
}

/// Where a refused call sends its employee.
#[track_caller]
pub fn connect_url(reply: &Reply) -> String {
    let refusal = reply.fault();
    assert_eq!(refusal["code"], "server_not_configured", "{}", reply.text());
    let url = refusal["connectUrl"].as_str().unwrap().to_owned();
    assert!(refusal["message"].as_str().unwrap().contains(&url));
    url
}

/// A browser: it keeps cookies and follows what it is told by hand.
#[derive(Default, Clone)]
pub struct Browser {
    pub cookies: Vec<String>,
}

impl Browser {
    pub fn get(&mut self, gateway: impl Into<SocketAddr>, url: &str) -> Response {
        self.ask(gateway, "GET", url, &[])
    }

    /// A request with its cookies, and with what a browser says of where it comes from.
    pub fn ask(
        &mut self,
        gateway: impl Into<SocketAddr>,
        method: &str,
        url: &str,
        from: &[(&str, &str)],
    ) -> Response {
        // Wherever the gateway says it is.
        let path = match url::Url::parse(url) {
            Ok(whole) => whole[url::Position::BeforePath..].to_owned(),
            Err(_) => url.to_owned(),
        };
        let path = &*path;
        let cookies = self.cookies.join("; ");
        let mut headers = vec![("Cookie", &*cookies)];
        headers.extend(from);
        let answer = exchange(gateway.into(), method, path, &headers, b"").unwrap();
        if let Some(cookie) = answer.header("set-cookie") {
            assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite="), "{cookie}");
            let pair = cookie.split(';').next().unwrap().to_owned();
            let name = pair.split_inclusive('=').next().unwrap();
            self.cookies.retain(|known| !known.starts_with(name));
            self.cookies.push(pair);
        }
        answer
    }

    /// Opens an invitation: where the page's form leads.
    pub fn open(&mut self, gateway: impl Into<SocketAddr>, url: &str) -> String {
        let page = self.get(gateway, url);
        assert_eq!(page.status, 200, "{page:?}");
        let text = page.text();
        assert!(text.contains("<form method=\"post\""), "{text}");
        let action = text.split("action=\"").nth(1).unwrap().split('"').next().unwrap();
        action.replace("&amp;", "&")
    }

    /// From the invitation on, with the page's form.
    pub fn go(&mut self, gateway: impl Into<SocketAddr>, url: &str) -> Response {
        let gateway = gateway.into();
        let action = self.open(gateway, url);
        let origin = url::Url::parse(url).unwrap().origin().ascii_serialization();
        self.ask(gateway, "POST", &action, &[("Origin", &origin)])
    }

    /// From the invitation to the authorization server: what it is asked.
    pub fn leave(&mut self, gateway: impl Into<SocketAddr>, url: &str) -> String {
        let away = self.go(gateway, url);
        assert_eq!(away.status, 303, "{away:?}");
        away.header("location").unwrap().to_owned()
    }

    /// To the authorization server, which consents at once: where it sends the browser.
    pub fn consent(&self, pair: &Pair, location: &str) -> String {
        let path = location.strip_prefix(&base(&pair.auth)).unwrap();
        let answer = exchange(pair.auth.address(), "GET", path, &[], b"").unwrap();
        answer.header("location").unwrap().to_owned()
    }

    pub fn connect(&mut self, gateway: impl Into<SocketAddr>, pair: &Pair, url: &str) -> Response {
        let gateway = gateway.into();
        let location = self.leave(gateway, url);
        let back = self.consent(pair, &location);
        self.get(gateway, &back)
    }
}

pub fn query(url: &str) -> HashMap<String, String> {
    url::Url::parse(url).unwrap().query_pairs().into_owned().collect()
}

#[test]
fn an_employee_consents_once_and_calls_with_a_token_of_his_own() {
    let pair = Pair::start();
    let gateway = gateway(&pair, ", scope: base");
    let url = connect_url(&call(&gateway, "E1"));
    assert!(pair.up.calls().is_empty());
    let mut browser = Browser::default();
    let page = browser.get(&gateway, &url);
    assert!(page.text().contains("E1 of acme") && page.text().contains("up"), "{page:?}");
    assert_eq!(
        page.header("content-security-policy").unwrap().split(';').next(),
        Some("default-src 'none'")
    );
    let location = browser.leave(&gateway, &url);
    let asked = query(&location);
    assert_eq!(asked["response_type"], "code");
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["client_id"], "registered");
    assert_eq!(asked["resource"], format!("{}/mcp", base(&pair.up)));
    assert!(
        asked["redirect_uri"].starts_with(&format!("{PUBLIC}/v1/oauth/callback/")),
        "{asked:?}"
    );
    assert_eq!(asked["scope"], "base");
    let back = browser.consent(&pair, &location);
    let done = browser.get(&gateway, &back);
    assert!(done.status == 200 && done.text().contains("is connected"), "{done:?}");
    let reply = call(&gateway, "E1");
    assert!(!reply.is_error(), "{}", reply.text());
    assert_eq!(pair.up.calls()[0].header("authorization"), Some("Bearer planted-token-1"));
    let token = form(&pair.requests_for_tokens()[0]);
    assert_eq!(token["resource"], asked["resource"]);
    // Nobody else's.
    let other = connect_url(&call(&gateway, "E2"));
    assert!(Browser::default().connect(&gateway, &pair, &other).text().contains("is connected"));
    assert!(!call(&gateway, "E2").is_error());
    assert_eq!(pair.up.calls()[1].header("authorization"), Some("Bearer planted-token-2"));
    assert_eq!(pair.rules.lock().registered, 1, "the gateway is registered once");
    let audit = gateway.audit().iter().map(Value::to_string).collect::<String>();
    for text in [audit, gateway.metrics(), page.text(), done.text(), reply.text().to_owned()] {
        assert!(!text.contains("planted"), "{text}");
    }
}

#[test]
fn a_grant_is_renewed_by_one_for_all_and_each_refresh_token_is_used_once() {
    let pair = Pair::start();
    // So short that every call needs another one.
    pair.rules.lock().expires_in = Some(1);
    let gateway = gateway(&pair, "");
    let url = connect_url(&call(&gateway, "E1"));
    assert_eq!(Browser::default().connect(&gateway, &pair, &url).status, 200);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let reply = call(&gateway, "E1");
                assert!(!reply.is_error(), "{}", reply.text());
            });
        }
    });
    assert_eq!(pair.rules.lock().stale, 0, "a rotated token that is brought again ends the grant");
    // The employee has withdrawn it.
    pair.rules.lock().refresh.clear();
    connect_url(&call(&gateway, "E1"));
}

#[test]
fn a_token_that_is_refused_is_renewed_and_then_asked_for_anew() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "");
    let url = connect_url(&call(&gateway, "E1"));
    assert_eq!(Browser::default().connect(&gateway, &pair, &url).status, 200);
    pair.revoke();
    assert!(!call(&gateway, "E1").is_error(), "renewed on the way");
    pair.revoke();
    pair.rules.lock().refresh.clear();
    connect_url(&call(&gateway, "E1"));
}

#[test]
fn more_scopes_need_another_consent_for_all_of_them() {
    let pair = Pair::start();
    let gateway = gateway(&pair, ", scope: base");
    let url = connect_url(&call(&gateway, "E1"));
    let mut browser = Browser::default();
    assert_eq!(browser.connect(&gateway, &pair, &url).status, 200);
    pair.rules.lock().scope = Some("base write".to_owned());
    let url = connect_url(&call(&gateway, "E1"));
    let location = browser.leave(&gateway, &url);
    assert_eq!(query(&location)["scope"], "base write");
    let back = browser.consent(&pair, &location);
    assert_eq!(browser.get(&gateway, &back).status, 200);
    assert!(!call(&gateway, "E1").is_error());
}

#[test]
fn an_answer_that_is_not_this_browser_s_first_from_the_right_server_is_not_taken() {
    for names_issuer in [true, false] {
        let pair = Pair::start();
        pair.rules.lock().names_issuer = names_issuer;
        let gateway = gateway(&pair, "");
        let iss = format!("&iss={}", base(&pair.auth));
        type Change = fn(&str, &str) -> String;
        let mut cases: Vec<(&str, bool, Change)> = vec![
            ("another browser", false, |back, _| back.to_owned()),
            ("another issuer", true, |back, iss| {
                back.replace(iss, "") + "&iss=https://evil.example"
            }),
            ("a slash more", true, |back, iss| back.replace(iss, "") + iss + "/"),
            ("two codes", true, |back, _| format!("{back}&code=x")),
            ("no code", true, |back, _| back.replace("code=", "kode=")),
            ("refused", true, |back, _| format!("{back}&error=access_denied")),
            ("a state of nobody's", true, |back, _| back.replace("state=", "state=A")),
        ];
        if names_issuer {
            cases.push(("no issuer", true, |back, iss| back.replace(iss, "")));
        }
        for (name, same_browser, change) in cases {
            let url = connect_url(&call(&gateway, "E1"));
            let mut browser = Browser::default();
            let location = browser.leave(&gateway, &url);
            let back = change(&browser.consent(&pair, &location), &iss);
            let mut browser = if same_browser { browser } else { Browser::default() };
            let answer = browser.get(&gateway, &back);
            assert_eq!(answer.status, 400, "{name} {answer:?}");
            assert!(pair.requests_for_tokens().is_empty(), "{name}");
        }
        let url = connect_url(&call(&gateway, "E1"));
        let mut browser = Browser::default();
        let location = browser.leave(&gateway, &url);
        let back = browser.consent(&pair, &location);
        assert_eq!(browser.get(&gateway, &back).status, 200);
        assert_eq!(browser.get(&gateway, &back).status, 400, "it is good once");
        assert_eq!(pair.requests_for_tokens().len(), 1);
    }
}

#[test]
fn nobody_is_sent_where_it_is_not_safe() {
    type Change = fn(&Pair);
    let cases: [Change; 3] = [
        |pair| pair.rules.lock().no_pkce = true,
        |pair| pair.rules.lock().issuer = Some("http://127.0.0.1:1".to_owned()),
        |pair| pair.rules.lock().resource = Some("https://evil.example/mcp".to_owned()),
    ];
    for change in cases {
        let pair = Pair::start();
        change(&pair);
        let gateway = gateway(&pair, "");
        let url = connect_url(&call(&gateway, "E1"));
        let answer = Browser::default().go(&gateway, &url);
        assert_eq!((answer.status, answer.header("location")), (502, None), "{answer:?}");
        assert_eq!(pair.rules.lock().registered, 0);
    }
    let pair = Pair::start();
    let gateway = gateway(&pair, "");
    let mut browser = Browser::default();
    for path in ["/v1/oauth/connect", "/v1/oauth/connect?t=AAAA", "/v1/oauth/callback"] {
        assert_eq!(browser.get(&gateway, path).status, 400, "{path}");
    }
    let posted = exchange(gateway.address(), "POST", "/v1/oauth/callback", &[], b"").unwrap();
    assert_eq!(posted.status, 405);
    assert_eq!(browser.get(&gateway, "/v1/oauth/client.json").status, 404, "without https");
}

#[test]
fn an_employee_can_ask_where_to_connect() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "");
    let ask = |path: &str| Request::new("POST", path, "").header("SSO-Emp-Id", "E1").ask(&gateway);
    let told = ask("/v1/oauth/connect/up");
    assert_eq!(told.status, 200, "{}", told.text());
    let told: Value = serde_json::from_slice(&told.body).unwrap();
    let url = told["connectUrl"].as_str().unwrap();
    assert_eq!(Browser::default().connect(&gateway, &pair, url).status, 200);
    assert!(!call(&gateway, "E1").is_error());
    assert_eq!(ask("/v1/oauth/connect/other").status, 404);
}

#[test]
fn an_invitation_is_sealed_under_the_key_that_is_primary() {
    let pair = Pair::start();
    pair.rules.lock().open_lists = true;
    let config = format!(
        "keyring: {{ file: keyring.json }}\negress: {{ allow: [127.0.0.1] }}\npublic_url: {PUBLIC}"
    );
    let setup = Setup::new().config(&config);
    let home = setup.upstream("up", &pair.up, "auth: { type: oauth }", "").write();
    let keys = |verb: &str| assert!(home.output(&["keys", verb]).status.success(), "{verb}");
    keys("new");
    let gateway = home.serve(&[]);
    let client = gateway.client("/mcp/up", Dialect::Modern);
    let key_of_invitation = || {
        let refused = client.call("echo", json!({})).fault();
        let ticket = query(refused["connectUrl"].as_str()?)["t"].clone();
        // Behind what says how it is sealed.
        Some(URL_SAFE_NO_PAD.decode(ticket).unwrap()[1..5].to_vec())
    };
    until("the server is listed", || key_of_invitation().is_some());
    let first = key_of_invitation();
    keys("rotate");
    keys("promote");
    until("another key is used", || key_of_invitation() != first);
}

#[test]
fn the_gateway_is_known_by_the_document_that_it_publishes_where_that_is_taken() {
    const SECURE: &str = "https://gw.example";
    let pair = Pair::start();
    let gateway = gateway_at(SECURE, &pair, "");
    {
        let mut rules = pair.rules.lock();
        (rules.documents_at, rules.names_issuer) = (Some(gateway.address()), true);
    }
    let id = format!("{SECURE}/v1/oauth/client.json");
    let mut browser = Browser::default();
    let published = browser.get(&gateway, &id);
    assert_eq!(published.status, 200, "{published:?}");
    assert_eq!(published.header("content-type"), Some("application/json"));
    let document = published.json();
    assert_eq!((&document["client_id"], &document["client_uri"]), (&json!(id), &json!(SECURE)));
    assert_eq!(document["redirect_uris"], json!([format!("{SECURE}/v1/oauth/callback")]));
    assert_eq!(document["grant_types"], json!(["authorization_code", "refresh_token"]));
    let url = connect_url(&call(&gateway, "E1"));
    let location = browser.leave(&gateway, &url);
    assert_eq!(query(&location)["client_id"], id);
    let back = browser.consent(&pair, &location);
    assert!(back.starts_with(SECURE), "{back}");
    assert_eq!(browser.get(&gateway, &back).status, 200);
    assert!(!call(&gateway, "E1").is_error());
    // It proves nothing but that it is where the document is.
    let asked = form(&pair.requests_for_tokens()[0]);
    assert_eq!((asked.get("client_id"), asked.get("client_secret")), (Some(&id), None));
    assert_eq!(pair.requests_for_tokens()[0].header("authorization"), None);
    // Nor when a grant is renewed.
    pair.revoke();
    assert!(!call(&gateway, "E1").is_error());
    assert_eq!(form(&pair.requests_for_tokens()[1])["client_id"], id);
    assert_eq!(pair.rules.lock().registered, 0, "who has a document does not register");
}

#[test]
fn without_https_or_where_it_is_not_taken_the_document_is_no_client() {
    for (public, taken) in [("https://gw.example", false), (PUBLIC, true)] {
        let pair = Pair::start();
        let gateway = gateway_at(public, &pair, "");
        {
            let mut rules = pair.rules.lock();
            rules.documents_at = taken.then(|| gateway.address());
            rules.names_issuer = true;
        }
        let url = connect_url(&call(&gateway, "E1"));
        let location = Browser::default().leave(&gateway, &url);
        assert_eq!(query(&location)["client_id"], "registered", "{public}");
        assert_eq!(pair.rules.lock().registered, 1);
    }
}
