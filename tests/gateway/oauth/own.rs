//! Tokens of the gateway itself: client credentials.

use std::{sync::Arc, thread, time::Duration};

use jsonwebtoken::{Algorithm, DecodingKey, Validation, jwk::JwkSet};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Pair, base, form};
use crate::{
    process_support::{Dialect, Process, Response, Setup, exchange, until},
    support::{Gateway, Reply, Request, gateway::ALL_OF_UP},
};

/// `more`: of `auth:`.
fn gateway(pair: &Pair, more: &str) -> Gateway {
    gateway_in(Arc::new(tempfile::tempdir().unwrap()), pair, more)
}

fn gateway_in(folder: Arc<TempDir>, pair: &Pair, more: &str) -> Gateway {
    let yaml = format!(
        "store: memory\negress: {{ allow: [127.0.0.1] }}
callers:
  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: {{ empId: E1, roles: [member] }} }}
upstreams:
  up: {{ url: \"{}\", auth: {{ type: client_credentials, client_id: hangu, {more} }} }}\n",
        pair.up.url()
    );
    Gateway::start_in(folder, None, &yaml, &[ALL_OF_UP])
}

const SECRET: &str = "client_secret: { env: KEY }";

fn call(gateway: &Gateway) -> Reply {
    Request::call("echo", &json!({})).ask(gateway)
}

#[test]
fn one_token_is_good_for_all_until_the_server_takes_it_no_more() {
    let pair = Pair::start();
    let gateway = gateway(&pair, SECRET);
    let many = || {
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    let reply = call(&gateway);
                    assert!(!reply.is_error(), "{}", reply.text());
                });
            }
        });
    };
    many();
    assert_eq!(pair.requests_for_tokens().len(), 1);
    let asked = form(&pair.requests_for_tokens()[0]);
    assert_eq!(asked["grant_type"], "client_credentials");
    assert_eq!(asked["resource"], format!("{}/mcp", base(&pair.up)));
    // Withdrawn, but not so soon that another one would fare the same.
    thread::sleep(Duration::from_millis(10_100));
    pair.revoke();
    many();
    assert_eq!(pair.requests_for_tokens().len(), 2, "whoever comes together asks once");
    let audit = gateway.audit().iter().map(Value::to_string).collect::<String>();
    for text in [audit, gateway.metrics(), call(&gateway).text().to_owned()] {
        assert!(!text.contains("planted") && !text.contains("key-of-a-test"), "{text}");
    }
}

#[test]
fn tokens_are_where_the_file_or_the_server_says() {
    for place in ["", "issuer: ISSUER", "token_url: ISSUER/token"] {
        let pair = Pair::start();
        let more = format!("{SECRET}, {}", place.replace("ISSUER", &base(&pair.auth)));
        let more =
            more.replace("issuer: http", "issuer: \"http").replace("url: http", "url: \"http");
        let more = if place.is_empty() { SECRET.to_owned() } else { format!("{more}\"") };
        let gateway = gateway(&pair, &more);
        let reply = call(&gateway);
        assert!(!reply.is_error(), "{place} {}", reply.text());
        let documents = pair.auth.requests("").len() - pair.requests_for_tokens().len();
        assert_eq!(documents, usize::from(!place.starts_with("token_url")), "{place}");
    }
}

#[test]
fn a_client_proves_itself_by_its_secret_or_its_key() {
    for (more, methods) in [
        (SECRET.to_owned(), json!(["client_secret_basic"])),
        (SECRET.to_owned(), json!(["client_secret_post"])),
        (format!("{SECRET}, secret_in: body"), json!(["client_secret_basic"])),
    ] {
        let pair = Pair::start();
        pair.rules.lock().methods = Some(methods.clone());
        let gateway = gateway(&pair, &more);
        assert!(!call(&gateway).is_error());
        let request = &pair.requests_for_tokens()[0];
        let in_header = more == SECRET && methods == json!(["client_secret_basic"]);
        let expected = in_header.then_some("Basic aGFuZ3U6a2V5LW9mLWEtdGVzdA==");
        assert_eq!(request.header("authorization"), expected);
        let form = form(request);
        let in_body = form.get("client_secret").map(String::as_str);
        assert_eq!(in_body, (!in_header).then_some("key-of-a-test"));
    }
    let pair = Pair::start();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
    let gateway = gateway_in(folder, &pair, "key: { file: key.pem }");
    assert!(!call(&gateway).is_error());
    let assertion = form(&pair.requests_for_tokens()[0])["client_assertion"].clone();
    let point = &key.public_key_raw()[1..];
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let part = |bytes| URL_SAFE_NO_PAD.encode::<&[u8]>(bytes);
    let public = DecodingKey::from_ec_components(&part(&point[..32]), &part(&point[32..])).unwrap();
    assert_eq!(claims(&assertion, &public, &base(&pair.auth))["sub"], "hangu");
}

fn claims(assertion: &str, key: &DecodingKey, audience: &str) -> Value {
    let mut validation = Validation::new(Algorithm::ES256);
    validation.set_audience(&[audience]);
    jsonwebtoken::decode::<Value>(assertion, key, &validation).unwrap().claims
}

#[test]
fn more_scopes_are_asked_for_where_a_call_needs_them() {
    let pair = Pair::start();
    let gateway = gateway(&pair, &format!("{SECRET}, scope: read"));
    pair.rules.lock().scope = Some("read write".to_owned());
    let reply = call(&gateway);
    assert!(!reply.is_error(), "{}", reply.text());
    let scopes: Vec<_> =
        pair.requests_for_tokens().iter().map(|it| form(it)["scope"].clone()).collect();
    assert_eq!(scopes, ["read", "read write"]);
    // Not without end.
    pair.rules.lock().scope = Some("never".to_owned());
    pair.up.forget();
    let reply = call(&gateway);
    assert_eq!(reply.fault()["code"], "permission_denied", "{}", reply.text());
    assert!(pair.up.calls().len() <= 3, "{}", pair.up.calls().len());
}

#[test]
fn the_secret_goes_to_the_first_authorization_server_alone() {
    let (pair, other) = (Pair::start(), Pair::start());
    let gateway = gateway(&pair, SECRET);
    assert!(!call(&gateway).is_error());
    {
        // Asked for another token, the gateway asks who gives it.
        let mut rules = pair.rules.lock();
        (rules.named, rules.scope) = (Some(base(&other.auth)), Some("more".to_owned()));
    }
    let reply = call(&gateway);
    assert_eq!(reply.fault()["code"], "external_service_error", "{}", reply.text());
    assert!(other.requests_for_tokens().is_empty());
    // Back at the first one, all is well again.
    pair.rules.lock().named = None;
    let reply = call(&gateway);
    assert!(!reply.is_error(), "{}", reply.text());
}

#[test]
fn no_secret_goes_where_a_document_cannot_be_believed() {
    for (issuer, resource) in
        [(Some("http://127.0.0.1:1"), None), (None, Some("https://evil.example/mcp"))]
    {
        let pair = Pair::start();
        {
            let mut rules = pair.rules.lock();
            rules.issuer = issuer.map(str::to_owned);
            rules.resource = resource.map(str::to_owned);
        }
        let gateway = gateway(&pair, SECRET);
        let reply = call(&gateway);
        assert_eq!(reply.fault()["code"], "external_service_error", "{}", reply.text());
        assert_eq!(pair.requests_for_tokens().len(), 0, "{issuer:?} {resource:?}");
    }
}

#[test]
fn what_an_authorization_server_refuses_is_told_without_its_words() {
    for (status, body, code, retryable) in [
        (
            401,
            json!({ "error": "invalid_client", "error_description": "planted-words" }),
            "permission_denied",
            false,
        ),
        (503, json!({ "error": "planted-words" }), "external_service_error", true),
        (200, json!({ "access_token": "t", "token_type": "mac" }), "external_service_error", false),
    ] {
        let pair = Pair::start();
        // Soon to be asked for again.
        pair.rules.lock().expires_in = Some(1);
        let gateway = gateway(&pair, SECRET);
        assert!(!call(&gateway).is_error());
        pair.rules.lock().refuses = Some((status, body));
        thread::sleep(Duration::from_millis(1_100));
        pair.up.forget();
        let reply = call(&gateway);
        let refusal = reply.fault();
        assert_eq!(refusal["code"], code, "{}", reply.text());
        assert_eq!(refusal["retryable"], retryable, "{}", reply.text());
        assert!(!reply.text().contains("planted"), "{}", reply.text());
        assert!(pair.up.calls().is_empty(), "without a token nothing is sent");
    }
    // One that takes no token is not asked without end.
    let pair = Pair::start();
    let gateway = gateway(&pair, SECRET);
    pair.rules.lock().takes_none = true;
    let reply = call(&gateway);
    assert_eq!(reply.fault()["code"], "permission_denied", "{}", reply.text());
    assert!(pair.up.calls().len() <= 3 && pair.requests_for_tokens().len() <= 3);
    assert!(!reply.text().contains("planted"), "{}", reply.text());
}

// === the gateway's own key ===

const TOKEN: &str = "the-one-token-of-the-tests";

fn get(gateway: &Process, path: &str) -> Response {
    exchange(gateway.address, "GET", path, &[], b"").unwrap()
}

#[test]
fn the_gateway_s_own_key_is_published_and_signs_for_it() {
    let pair = Pair::start();
    let auth = "auth: { type: client_credentials, client_id: hangu, key: gateway }";
    let home = Setup::new()
        .config("keyring: { file: keyring.json }\negress: { allow: [127.0.0.1] }")
        .admin_more("token: { env: ADMIN }")
        .env("ADMIN", TOKEN)
        .upstream("up", &pair.up, auth, "")
        .write();
    assert!(home.output(&["keys", "new"]).status.success());
    let gateway = home.serve(&[]);
    let client = gateway.client("/mcp/up", Dialect::Modern);
    until("the server is listed", || client.call("echo", json!({})).word() == "ok");
    let published = get(&gateway, "/.well-known/jwks.json");
    assert_eq!(published.status, 200);
    let keys: JwkSet = serde_json::from_value(published.json()).unwrap();
    assert!(!published.text().contains("\"d\""), "{published:?}");
    let assertion = form(&pair.requests_for_tokens()[0])["client_assertion"].clone();
    let head = jsonwebtoken::decode_header(&assertion).unwrap();
    let key = DecodingKey::from_jwk(keys.find(head.kid.as_deref().unwrap()).unwrap()).unwrap();
    assert_eq!(claims(&assertion, &key, &base(&pair.auth))["iss"], "hangu");
    // A key that will sign next is known before it does.
    assert!(home.output(&["keys", "rotate"]).status.success());
    until("it is published", || {
        let keys: JwkSet =
            serde_json::from_value(get(&gateway, "/.well-known/jwks.json").json()).unwrap();
        keys.keys.len() == 2
    });
    assert_eq!(
        exchange(gateway.address, "POST", "/.well-known/jwks.json", &[], b"").unwrap().status,
        405
    );
}
