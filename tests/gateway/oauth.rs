//! The gateway as an OAuth client of the servers behind it.

mod asked;
mod believed;
pub mod consent;
mod exchanged;
mod misled;
mod own;
mod replicas;
mod signed;

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use hangu::{
    clock::Clock,
    credential::{CacheLimits, Keeper, KeyringFile},
};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, jwk::JwkSet};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    process_support::{Answer, Seen, Upstream, exchange, tool},
    support::Gateway,
};

/// An authorization server that gives tokens, and the server that takes them.
pub struct Pair {
    pub auth: Upstream,
    pub up: Upstream,
    pub rules: Arc<Mutex<Rules>>,
}

/// How the two behave.
#[derive(Default)]
pub struct Rules {
    given: usize,
    /// Tokens that are good.
    good: Vec<String>,
    /// What a token needs, where the server has said so.
    scope: Option<String>,
    /// Instead of a token.
    pub refuses: Option<(u16, Value)>,
    issuer: Option<String>,
    resource: Option<String>,
    /// No token is good at the server.
    takes_none: bool,
    pub expires_in: Option<u64>,
    methods: Option<Value>,
    /// Only calls need a token.
    pub open_lists: bool,
    no_pkce: bool,
    /// Answers name the issuer.
    names_issuer: bool,
    /// It takes clients that describe themselves.
    takes_documents: bool,
    pub registered: usize,
    /// It takes clients by the documents that they publish, and reads them here.
    documents_at: Option<SocketAddr>,
    /// Whom each token was given for in exchange for what somebody said of him.
    given_for: HashMap<String, String>,
    /// Of an answer to an exchange: its members in the place of the usual ones.
    exchanged: Option<Value>,
    /// A scope that is given to nobody.
    too_much: Option<String>,
    /// As which client it registers the gateway.
    pub client_id: Option<String>,
    /// Where that client's browsers come back to.
    redirects: Vec<String>,
    /// Whom the server names instead.
    pub named: Option<String>,
    /// What a token is said to be good for.
    given_scope: Option<String>,
    /// Codes, and what they are good for: the challenge, and the scope.
    codes: HashMap<String, (String, String)>,
    /// Refresh tokens that are good, and how often one was brought that was not.
    pub refresh: Vec<String>,
    stale: usize,
}

impl Pair {
    pub fn start() -> Self {
        let rules = Arc::new(Mutex::new(Rules::default()));
        let none = SocketAddr::from(([127, 0, 0, 1], 0));
        let auth = Upstream::at(none, &[]);
        let (base, own) = (base(&auth), rules.clone());
        let issuer = base.clone();
        auth.on(move |seen| Some(authorize(seen, &issuer, &own)));
        let up = Upstream::start(&[tool("echo")]);
        let (address, own) = (self::base(&up), rules.clone());
        up.on(move |seen| serve(seen, &address, &base, &own));
        Self { auth, up, rules }
    }

    pub fn requests_for_tokens(&self) -> Vec<Seen> {
        let all = self.auth.requests("");
        all.into_iter().filter(|seen| seen.path == "/token").collect()
    }

    pub fn revoke(&self) {
        self.rules.lock().good.clear();
    }
}

fn base(upstream: &Upstream) -> String {
    format!("http://{}", upstream.address())
}

pub fn form(seen: &Seen) -> HashMap<String, String> {
    url::form_urlencoded::parse(seen.body.as_bytes()).into_owned().collect()
}

fn authorize(seen: &Seen, base: &str, rules: &Mutex<Rules>) -> Answer {
    let mut rules = rules.lock();
    let (path, query) = seen.path.split_once('?').unwrap_or((&seen.path, ""));
    match path {
        "/register" => {
            rules.registered += 1;
            let asked: Value = serde_json::from_str(&seen.body).unwrap();
            let redirects = asked["redirect_uris"].as_array().unwrap().iter();
            rules.redirects.extend(redirects.map(|one| one.as_str().unwrap().to_owned()));
            let id = rules.client_id.as_deref().unwrap_or("registered");
            let client = json!({ "client_id": id, "client_secret": "planted-client" });
            Answer::json(201, &client)
        }
        "/authorize" => {
            let asked: HashMap<_, _> =
                url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
            if let Some(address) = rules.documents_at
                && !describes(address, &asked)
            {
                return Answer::json(400, &json!({ "error": "invalid_client" }));
            }
            let is_known = rules.redirects.contains(&asked["redirect_uri"]);
            if asked["client_id"] == "registered" && !is_known {
                let head = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
                return Answer::Raw(head.into());
            }
            let code = format!("planted-code-{}", rules.codes.len());
            let scope = asked.get("scope").cloned().unwrap_or_default();
            rules.codes.insert(code.clone(), (asked["code_challenge"].clone(), scope));
            let mut back =
                format!("{}?code={code}&state={}", asked["redirect_uri"], asked["state"]);
            if rules.names_issuer {
                back += &format!("&iss={base}");
            }
            // And closes: the tests' browser reads to the end.
            let head =
                format!("HTTP/1.1 302 Found\r\nLocation: {back}\r\nContent-Length: 0\r\n\r\n");
            Answer::Raw(head.into_bytes())
        }
        "/.well-known/oauth-authorization-server" => {
            let methods = rules.methods.clone().unwrap_or(json!(["client_secret_basic"]));
            Answer::json(
                200,
                &json!({
                    "issuer": rules.issuer.as_deref().unwrap_or(base),
                    "token_endpoint": format!("{base}/token"),
                    "authorization_endpoint": format!("{base}/authorize"),
                    "registration_endpoint": format!("{base}/register"),
                    "code_challenge_methods_supported":
                        if rules.no_pkce { json!(["plain"]) } else { json!(["S256"]) },
                    "authorization_response_iss_parameter_supported": rules.names_issuer,
                    "token_endpoint_auth_methods_supported": methods,
                    "client_id_metadata_document_supported":
                        rules.takes_documents || rules.documents_at.is_some(),
                }),
            )
        }
        "/token" => {
            if let Some((status, body)) = &rules.refuses {
                return Answer::json(*status, body);
            }
            let asked = form(seen);
            let scope = asked.get("scope").cloned().unwrap_or_default();
            if rules.too_much.as_ref().is_some_and(|it| scope.contains(&**it)) {
                return Answer::json(400, &json!({ "error": "invalid_scope" }));
            }
            if let Err(word) = redeem(&asked, &mut rules) {
                return Answer::json(400, &json!({ "error": word }));
            }
            rules.given += 1;
            let token = format!("planted-token-{}", rules.given);
            rules.good.push(token.clone());
            if rules.scope.as_deref() == form(seen).get("scope").map(String::as_str) {
                rules.scope = None;
            }
            let mut given = json!({ "access_token": token, "token_type": "Bearer" });
            if let Some(subject) = asked.get("subject_token") {
                let employee = unchecked(subject)["sub"].as_str().unwrap().to_owned();
                rules.given_for.insert(token, employee);
                given["issued_token_type"] = "urn:ietf:params:oauth:token-type:access_token".into();
                for (name, value) in rules.exchanged.iter().flat_map(|it| it.as_object().unwrap()) {
                    given[name] = value.clone();
                }
            } else if asked["grant_type"] != "client_credentials" {
                let refresh = format!("planted-refresh-{}", rules.given);
                rules.refresh.push(refresh.clone());
                given["refresh_token"] = refresh.into();
            }
            if let Some(scope) = &rules.given_scope {
                given["scope"] = scope.as_str().into();
            }
            given["expires_in"] = rules.expires_in.unwrap_or(3_600).into();
            Answer::json(200, &given)
        }
        _ => Answer::json(404, &json!({})),
    }
}

/// Whether the document that a client is named by is its own, and knows where it is sent back.
fn describes(address: SocketAddr, asked: &HashMap<String, String>) -> bool {
    let id = &asked["client_id"];
    let path = &url::Url::parse(id).unwrap()[url::Position::BeforePath..];
    let document = exchange(address, "GET", path, &[], b"").unwrap();
    let document = document.json();
    let back = json!(asked["redirect_uri"]);
    document["client_id"] == json!(id)
        && document["redirect_uris"].as_array().unwrap().contains(&back)
        && document["token_endpoint_auth_method"] == "none"
}

/// Codes and refresh tokens are good once.
fn redeem(asked: &HashMap<String, String>, rules: &mut Rules) -> Result<(), &'static str> {
    match &*asked["grant_type"] {
        "authorization_code" => {
            let (challenge, scope) = rules.codes.remove(&asked["code"]).ok_or("invalid_grant")?;
            if s256(&asked["code_verifier"]) != challenge {
                return Err("invalid_grant");
            }
            if rules.scope.as_deref() == Some(&*scope) {
                rules.scope = None;
            }
            Ok(())
        }
        "refresh_token" => {
            let brought = &asked["refresh_token"];
            let known = rules.refresh.iter().position(|known| known == brought);
            let Some(known) = known else {
                rules.stale += 1;
                return Err("invalid_grant");
            };
            rules.refresh.remove(known);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What a token says, whoever signed it.
fn unchecked(token: &str) -> Value {
    jsonwebtoken::dangerous::insecure_decode::<Value>(token).unwrap().claims
}

/// What the gateway says in a token that it signed with a key that it publishes.
fn said(gateway: &Gateway, token: &str, audience: &str) -> Value {
    let path = "/.well-known/jwks.json";
    let published = exchange(gateway.address(), "GET", path, &[], b"").unwrap();
    let keys: JwkSet = serde_json::from_value(published.json()).unwrap();
    let id = jsonwebtoken::decode_header(token).unwrap().kid.unwrap();
    let key = DecodingKey::from_jwk(keys.find(&id).unwrap()).unwrap();
    let mut validation = Validation::new(Algorithm::ES256);
    validation.set_audience(&[audience]);
    jsonwebtoken::decode::<Value>(token, &key, &validation).unwrap().claims
}

/// A folder with a `keyring.json` in it.
fn folder_with_keys() -> Arc<TempDir> {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let file = KeyringFile::new(folder.path().join("keyring.json"));
    let cache = CacheLimits { age: Duration::from_secs(1), uses: 1 };
    Keeper::new(file, None, cache, Clock::system()).create().unwrap();
    folder
}

/// The token that a request carries.
fn bearer(seen: &Seen) -> &str {
    seen.header("authorization").unwrap().strip_prefix("Bearer ").unwrap()
}

fn s256(verifier: &str) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use sha2::{Digest, Sha256};
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

fn serve(seen: &Seen, own: &str, issuer: &str, rules: &Mutex<Rules>) -> Option<Answer> {
    let rules = rules.lock();
    if seen.path == "/.well-known/oauth-protected-resource/mcp" {
        let resource = rules.resource.clone().unwrap_or(format!("{own}/mcp"));
        let issuer = rules.named.as_deref().unwrap_or(issuer);
        let document = json!({ "resource": resource, "authorization_servers": [issuer] });
        return Some(Answer::json(200, &document));
    }
    let sent = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let is_good = sent.is_some_and(|token| rules.good.iter().any(|good| good == token));
    let is_open = rules.open_lists && seen.method != "tools/call" && !seen.method.is_empty();
    if !is_open && (!is_good || rules.takes_none) {
        let place = format!("{own}/.well-known/oauth-protected-resource/mcp");
        let challenge = format!("Bearer resource_metadata=\"{place}\"");
        let answer = Answer::json(401, &json!({ "error": "planted-words" }));
        return Some(answer.with_header("WWW-Authenticate", &challenge));
    }
    if let Some(scope) = rules.scope.as_ref().filter(|_| seen.method == "tools/call") {
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
        let answer = Answer::json(403, &json!({}));
        return Some(answer.with_header("WWW-Authenticate", &challenge));
    }
    None
}
