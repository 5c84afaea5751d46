//! Tokens of issuers: whom a request speaks for, and what one without good credentials is told.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::process_support::{
    Client, Dialect, GLOBEX_KEY, KEY, Process, Setup, Upstream, exchange, tool, until,
};

/// An issuer: its keys, and the endpoint that publishes them.
struct Issuer {
    address: SocketAddr,
    /// The body that is served; nothing: the endpoint fails.
    set: Arc<Mutex<Option<String>>>,
    fetches: Arc<AtomicUsize>,
}

struct Pair {
    id: String,
    key: EncodingKey,
}

fn pair(id: &str) -> Pair {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    Pair { id: id.to_owned(), key: EncodingKey::from_ec_der(pair.serialized_der()) }
}

impl Pair {
    fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(self.id.clone());
        serde_json::to_value(jwk).unwrap()
    }

    /// A good token of an employee, changed.
    fn token(&self, employee: &str, change: Value) -> String {
        let mut claims = json!({
            "iss": "https://sso.example", "sub": employee, "aud": ["gw"],
            "exp": now() + 300, "roles": ["member"], "tenant": "acme", "scope": "mcp read",
        });
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.id.clone());
        jsonwebtoken::encode(&header, &claims, &self.key).unwrap()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

impl Issuer {
    fn start(keys: &[&Pair]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = Self {
            address: listener.local_addr().unwrap(),
            set: Arc::default(),
            fetches: Arc::default(),
        };
        issuer.publish(keys);
        let (set, fetches) = (issuer.set.clone(), issuer.fetches.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let asked = lines.next().and_then(Result::ok).unwrap_or_default();
                while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
                // Health is looked at by connecting.
                if asked.is_empty() {
                    continue;
                }
                fetches.fetch_add(1, Ordering::Relaxed);
                let answer = match &*set.lock() {
                    Some(text) => format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                        text.len()
                    ),
                    None => "HTTP/1.1 503 Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                        .to_owned(),
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        issuer
    }

    fn publish(&self, keys: &[&Pair]) {
        let keys: Vec<Value> = keys.iter().map(|pair| pair.jwk()).collect();
        *self.set.lock() = Some(json!({ "keys": keys }).to_string());
    }

    fn fail(&self) {
        *self.set.lock() = None;
    }

    fn config(&self, more: &str) -> String {
        format!(
            "issuers:\n  corp:\n    issuer: https://sso.example\n    jwks: http://{}/keys\n    \
             audience: gw\n    min_refresh: 1s\n    claims: {{ tenant: tenant, roles: roles }}\n{more}",
            self.address
        )
    }
}

fn start(issuer: &Issuer, more: &str) -> (Upstream, Process) {
    let up = Upstream::start(&[tool("echo"), tool("write")]);
    let gateway = Setup::new()
        .upstream("up", &up, "", "write: { risk: write_low, idempotency: none }")
        .config(&issuer.config(more))
        .start();
    until("the keys are fetched", || gateway.log().contains("the issuer's keys are known"));
    (up, gateway)
}

fn bare(gateway: &Process, dialect: Dialect) -> Client {
    Client::new(gateway.address, "/mcp/up", dialect)
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn a_token_alone_is_enough_and_says_who_calls() {
    let key = pair("k1");
    let issuer = Issuer::start(&[&key]);
    let (up, gateway) = start(&issuer, "");
    for dialect in Dialect::ALL {
        let token = key.token("E1", json!({}));
        let client = bare(&gateway, dialect).header("Authorization", &bearer(&token));
        let answer = client.call("echo", json!({}));
        assert_eq!(answer.word(), "ok", "{answer:?}");
        let record = gateway.record_of(&answer);
        assert_eq!(record["tenant"], "acme");
        assert_eq!(record["principal"]["empId"], "E1");
        assert_eq!(record["principal"]["caller"], "corp");
        assert_eq!(record["principal"]["auth"], "token");
        // Nothing of it is passed on, and nothing of it is written down.
        let seen = format!("{:?}", up.calls().pop().unwrap());
        assert!(!seen.contains(&token) && !seen.contains("authorization"), "{seen}");
        assert!(!gateway.log().contains(&token));
        assert!(!format!("{:?}", gateway.home().audit()).contains(&token));
    }
}

#[test]
fn beside_a_key_the_token_is_the_employee() {
    let key = pair("k1");
    let issuer = Issuer::start(&[&key]);
    let (_up, gateway) = start(&issuer, "");
    let token = bearer(&key.token("E1", json!({})));
    let foreign = bearer(&key.token("E1", json!({ "tenant": "globex" })));
    // Key, employee's header, token, and what comes of it.
    for (api_key, employee, token, status, caller) in [
        (KEY, None, &token, 200, "gate"),
        (KEY, Some("E1"), &token, 200, "gate"),
        (KEY, Some("E2"), &token, 403, "gate"),
        (GLOBEX_KEY, None, &token, 403, "globex"),
        (KEY, None, &foreign, 403, "gate"),
        ("wrong", None, &token, 401, ""),
    ] {
        let client = bare(&gateway, Dialect::Modern).key(api_key).header("Authorization", token);
        let client = employee.iter().fold(client, |client, id| client.employee(id));
        let answer = client.call("echo", json!({}));
        assert_eq!(answer.status, status, "{api_key} {employee:?}: {answer:?}");
        if !caller.is_empty() {
            assert_eq!(gateway.record_of(&answer)["principal"]["caller"], caller);
        }
    }
}

/// C68.
#[test]
fn schemes_have_no_case_and_empty_credentials_are_none() {
    let key = pair("k1");
    let issuer = Issuer::start(&[&key]);
    let (_up, gateway) = start(&issuer, "");
    let (good, bad) = (key.token("E1", json!({})), pair("k1").token("E1", json!({})));
    for dialect in Dialect::ALL {
        for (value, status) in [
            (format!("bearer {good}"), 200),
            (format!("BEARER  {good}"), 200),
            (format!("Bearer {good} "), 200),
            ("Bearer".to_owned(), 401),
            ("Bearer  ".to_owned(), 401),
            (format!("Bearer {good}, Bearer {bad}"), 401),
            (format!("Token {good}"), 401),
            (format!("Bearer {bad}"), 401),
        ] {
            let client = bare(&gateway, dialect).header("Authorization", &value);
            let answer = client.call("echo", json!({}));
            assert_eq!(answer.status, status, "{dialect:?} {value:.20} {answer:?}");
        }
        let twice = bare(&gateway, dialect)
            .header("Authorization", &bearer(&good))
            .header("Authorization", &bearer(&good));
        assert_eq!(twice.call("echo", json!({})).status, 401);
        // A bad token is refused beside a good key: it was meant to say who calls.
        let beside = gateway.client("/mcp/up", dialect).header("Authorization", &bearer(&bad));
        assert_eq!(beside.call("echo", json!({})).status, 401);
    }
}

/// C65.
#[test]
fn a_new_key_is_fetched_when_it_is_first_seen_and_an_old_one_forgotten() {
    let (one, two) = (pair("k1"), pair("k2"));
    let issuer = Issuer::start(&[&one]);
    let (_up, gateway) = start(&issuer, "");
    let call = |pair: &Pair| {
        let token = bearer(&pair.token("E1", json!({})));
        bare(&gateway, Dialect::Modern).header("Authorization", &token).call("echo", json!({}))
    };
    assert_eq!(call(&one).status, 200);
    let before = issuer.fetches.load(Ordering::Relaxed);
    issuer.publish(&[&one, &two]);
    thread::sleep(Duration::from_millis(1_100));
    assert_eq!(call(&two).status, 200);
    assert_eq!(call(&one).status, 200);
    assert_eq!(issuer.fetches.load(Ordering::Relaxed), before + 1);
    // A storm of keys that nobody publishes asks once more, if at all.
    thread::scope(|scope| {
        for index in 0..16 {
            let call = &call;
            scope.spawn(move || assert_eq!(call(&pair(&format!("x{index}"))).status, 401));
        }
    });
    assert!(issuer.fetches.load(Ordering::Relaxed) <= before + 3);
    // A fetch that fails changes nothing.
    issuer.fail();
    thread::sleep(Duration::from_millis(1_100));
    assert_eq!(call(&pair("y")).status, 401);
    assert_eq!((call(&one).status, call(&two).status), (200, 200));
    // What is published no more is believed no more.
    issuer.publish(&[&two]);
    thread::sleep(Duration::from_millis(1_100));
    assert_eq!(call(&pair("z")).status, 401);
    assert_eq!((call(&one).status, call(&two).status), (401, 200));
}

#[test]
fn an_issuer_whose_keys_were_never_fetched_is_told_apart_from_a_bad_token() {
    let key = pair("k1");
    let issuer = Issuer::start(&[&key]);
    issuer.fail();
    let up = Upstream::start(&[tool("echo")]);
    let gateway = Setup::new().upstream("up", &up, "", "").config(&issuer.config("")).start();
    let token = bearer(&key.token("E1", json!({})));
    let client = bare(&gateway, Dialect::Modern).header("Authorization", &token);
    let answer = client.call("echo", json!({}));
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.header("retry-after").is_some());
    issuer.publish(&[&key]);
    until("the keys are fetched", || client.call("echo", json!({})).status == 200);
}

#[test]
fn who_has_no_good_token_is_told_where_to_get_one() {
    let key = pair("k1");
    let issuer = Issuer::start(&[&key]);
    let more = "    scopes: { base: [mcp], read_low: [read], write_low: [write] }\n";
    let (_up, gateway) = start(&issuer, more);
    let address = gateway.address;
    let metadata = format!(
        "resource_metadata=\"http://{address}/.well-known/oauth-protected-resource/mcp/up\""
    );
    let none = bare(&gateway, Dialect::Modern).call("echo", json!({}));
    assert_eq!(none.status, 401);
    let challenge = none.header("www-authenticate").unwrap();
    assert_eq!(challenge, format!("Bearer scope=\"mcp\", {metadata}"));
    let with = |scope: &str, name: &str| {
        let token = bearer(&key.token("E1", json!({ "scope": scope })));
        bare(&gateway, Dialect::Modern).header("Authorization", &token).call(name, json!({}))
    };
    let bad = bare(&gateway, Dialect::Modern).header("Authorization", "Bearer x.y.z");
    let bad = bad.call("echo", json!({}));
    let challenge = bad.header("www-authenticate").unwrap();
    assert!(challenge.starts_with("Bearer error=\"invalid_token\""), "{challenge}");
    // All scopes that an operation needs, at once.
    for (scope, name, status, missing) in [
        ("mcp read", "echo", 200, ""),
        ("mcp write", "echo", 200, ""),
        ("read", "echo", 403, "mcp"),
        ("mcp", "echo", 403, "mcp read"),
        ("mcp read", "write", 403, "mcp write"),
        ("mcp write", "write", 200, ""),
    ] {
        let answer = with(scope, name);
        assert_eq!(answer.status, status, "{scope} {name}: {answer:?}");
        if status == 403 {
            let challenge = answer.header("www-authenticate").unwrap();
            let expected =
                format!("Bearer error=\"insufficient_scope\", scope=\"{missing}\", {metadata}");
            assert_eq!(challenge, expected, "{scope} {name}");
        }
    }
}

#[test]
fn the_documents_about_resources_are_open_to_everybody() {
    let key = pair("k1");
    let issuer = Issuer::start(&[&key]);
    let (_up, gateway) = start(&issuer, "    scopes: { base: [mcp] }\n");
    let address = gateway.address;
    let get = |path: &str| exchange(address, "GET", path, &[], b"").unwrap();
    for (path, resource) in [("", "/mcp"), ("/mcp", "/mcp"), ("/mcp/up", "/mcp/up")] {
        let answer = get(&format!("/.well-known/oauth-protected-resource{path}"));
        assert_eq!(answer.status, 200, "{path}");
        let document: Value = serde_json::from_str(&answer.text()).unwrap();
        assert_eq!(document["resource"], format!("http://{address}{resource}"));
        assert_eq!(document["authorization_servers"], json!(["https://sso.example"]));
        assert_eq!(document["scopes_supported"], json!(["mcp"]));
    }
    for path in ["/other", "/mcp/nobody", "/mcp/tools/list", "x"] {
        let answer = get(&format!("/.well-known/oauth-protected-resource{path}"));
        assert_eq!(answer.status, 404, "{path}");
    }
    let posted = exchange(address, "POST", "/.well-known/oauth-protected-resource", &[], b"");
    assert_eq!(posted.unwrap().status, 405);
}

#[test]
fn without_issuers_authorization_is_not_looked_at() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = Setup::new().upstream("up", &up, "", "").start();
    for dialect in Dialect::ALL {
        let client = gateway.client("/mcp/up", dialect).header("Authorization", "Bearer anything");
        assert_eq!(client.call("echo", json!({})).word(), "ok");
    }
    let path = "/.well-known/oauth-protected-resource";
    assert_eq!(exchange(gateway.address, "GET", path, &[], b"").unwrap().status, 404);
}
