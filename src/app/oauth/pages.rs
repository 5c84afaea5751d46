//! What employees' browsers are shown on their way to an authorization server and back, and the
//! document that says who the gateway is there.
//!
//! A browser brings no key. An invitation says whose grant it will be, and the page says so to
//! whoever opens it; who comes back has to be the one who was sent away, which a cookie says, and
//! comes back once.

use std::{
    future::ready,
    sync::{Arc, OnceLock},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use dashmap::DashMap;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::oneshot;
use url::Url;

use super::{
    consent::{Consent, Invitation, Said, Shared, granted, whose},
    discover::{discover, metadata},
    exchange::{Endpoint, exchange},
    fetch::Named,
};
use crate::{
    body::Body,
    config::Consent as Settings,
    credential::{
        Credential, Whose,
        oauth::{Challenge, INVITED_MS, TokenFault, union},
    },
    identity::ticket::name_of,
    model::caller::{EmployeeId, TenantId},
};

pub(super) const CONNECT: &str = "/v1/oauth/connect";
pub(super) const CALLBACK: &str = "/v1/oauth/callback";
pub(super) const CLIENT: &str = "/v1/oauth/client.json";

/// Where the cookie is sent.
const COOKIE_PATH: &str = "/v1/oauth";

/// Serves the pages.
pub(in crate::app) struct Pages {
    pub(super) shared: Arc<Shared>,
    /// Servers of the configuration, by their keys.
    pub(super) consents: DashMap<Arc<str>, Arc<Consent>>,
    /// Whoever is told that a grant has come.
    on_grant: OnceLock<OnGrant>,
}

/// Told that a grant has come.
pub(in crate::app) type OnGrant = Box<dyn Fn(Granted) + Send + Sync>;

/// A grant that has come.
pub(in crate::app) struct Granted {
    pub whose: Whose,
    /// Who brought the server, where an employee did.
    pub owner: Option<EmployeeId>,
    /// The session in which the link was told, and the link's name there.
    pub told: Option<([u8; 8], String)>,
}

/// What is known of somebody who was sent away.
#[derive(Serialize, Deserialize)]
struct Away {
    tenant: String,
    employee: String,
    server_key: String,
    name: String,
    owner: Option<String>,
    verifier: String,
    issuer: String,
    /// The answer has to name the issuer.
    names_issuer: bool,
    resource: String,
    scope: String,
    client: String,
    /// In which session the link was told, and its name there.
    told: Option<([u8; 8], String)>,
    /// Of the cookie.
    browser: String,
    until_ms: u64,
}

/// A page for a person: what to say, and where to go on.
struct Page {
    status: StatusCode,
    title: &'static str,
    text: String,
    go: Option<String>,
}

impl Pages {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, consents: DashMap::new(), on_grant: OnceLock::new() }
    }

    /// Has somebody told of grants that come.
    pub fn telling(&self, on_grant: OnGrant) {
        let _ = self.on_grant.set(on_grant);
    }

    /// Whether a path is one of these.
    pub fn has(path: &str) -> bool {
        matches!(path, CONNECT | CALLBACK | CLIENT)
    }

    /// Answers a request to such a path.
    pub fn answer(
        self: &Arc<Self>,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> BoxFuture<'static, Response<Body>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let mut response = Page::refused(status, "This page is only read.").response();
            let allow = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(header::ALLOW, allow);
            return Box::pin(ready(response));
        }
        let query = uri.query().unwrap_or_default();
        let query = Query(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect());
        let cookies = headers.get_all(header::COOKIE).iter();
        let cookies = cookies.filter_map(|value| value.to_str().ok().map(str::to_owned));
        let (pages, path) = (self.clone(), uri.path().to_owned());
        let cookies: Vec<String> = cookies.collect();
        Box::pin(async move {
            let answered = match &*path {
                CLIENT => return pages.document(),
                CONNECT => pages.connect(&query).await,
                _ => pages.callback(&query, &cookies).await,
            };
            answered.unwrap_or_else(Page::response)
        })
    }

    fn document(&self) -> Response<Body> {
        let Some(document) = self.shared.clients.document() else {
            return Page::refused(StatusCode::NOT_FOUND, "There is nothing here.").response();
        };
        let mut response = Response::new(Body::from(Bytes::from(document.to_string())));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
        response
    }

    fn now_ms(&self) -> u64 {
        self.shared.clock.now_ms()
    }

    async fn connect(&self, query: &Query) -> Result<Response<Body>, Page> {
        let opened = query.get("t").and_then(|ticket| self.shared.tickets.open(ticket));
        let invitation = opened.and_then(|text| serde_json::from_slice::<Invitation>(&text).ok());
        let invitation = invitation.filter(|it| self.now_ms() < it.until_ms);
        let Some(invitation) = invitation else {
            let text = "This link is not good any more. Call the tool again for another one.";
            return Err(Page::refused(StatusCode::BAD_REQUEST, text));
        };
        if query.get("go").is_none() {
            let ticket = query.get("t").unwrap_or_default();
            return Err(Page {
                status: StatusCode::OK,
                title: "Connect a server",
                text: format!(
                    "You are about to let {} of {} use the server {} ({}) with the account that \
                     you sign in with next. Go on only if this is you, and if you asked for it.",
                    invitation.employee, invitation.tenant, invitation.name, invitation.server
                ),
                go: Some(format!("{CONNECT}?t={ticket}&go=1")),
            });
        }
        let ticket = query.get("t").unwrap_or_default();
        self.send_away(&invitation, ticket).await.map_err(Page::failed)
    }

    /// To the authorization server, with a cookie to be known by.
    async fn send_away(
        &self,
        invitation: &Invitation,
        ticket: &str,
    ) -> Result<Response<Body>, TokenFault> {
        let distrusted = |what: &str| TokenFault::Distrusted(what.to_owned());
        let server = Url::parse(&invitation.server).map_err(|_| distrusted("no address"))?;
        let named = if invitation.written { Named::Written } else { Named::Elsewhere };
        let challenge = Challenge {
            resource_metadata: invitation.resource_metadata.clone(),
            scope: invitation.scope.clone(),
            error: None,
        };
        let Invitation { tenant, owner, server_key, .. } = invitation;
        let known = self.consents.get(&**server_key).filter(|_| invitation.written);
        let fetch = known.map_or_else(|| self.shared.fetch.clone(), |known| known.fetch.clone());
        let found = discover(&fetch, &server, named, Some(&challenge)).await?;
        let settings = self.settings(tenant, owner.as_deref(), server_key).await?;
        let endpoint = found.server.authorization_endpoint();
        let endpoint = endpoint.map_err(super::discover::distrusted)?;
        let mut url = Url::parse(endpoint).map_err(|_| distrusted("no address"))?;
        let client = self.shared.clients.client(&found.server, &settings).await?;
        let redirect = self.shared.clients.redirect_uri();
        let redirect = redirect.ok_or_else(|| distrusted("no address of our own"))?;
        let listed = || found.scopes.as_ref().map(|scopes| scopes.join(" "));
        let mut scope = found.challenge.scope.clone().or(settings.scope).or_else(listed);
        let offline = found.server.scopes_supported.iter().flatten();
        if offline.into_iter().any(|scope| scope == "offline_access") {
            scope = Some(union(scope.as_deref().unwrap_or_default(), "offline_access"));
        }
        let scope = scope.unwrap_or_default();
        let (verifier, browser) = (random(), random());
        let away = Away {
            tenant: invitation.tenant.clone(),
            employee: invitation.employee.clone(),
            server_key: invitation.server_key.clone(),
            name: invitation.name.clone(),
            owner: invitation.owner.clone(),
            verifier: verifier.clone(),
            issuer: found.server.issuer.clone(),
            names_issuer: found.server.authorization_response_iss_parameter_supported,
            resource: found.resource.clone(),
            scope: scope.clone(),
            client: client.id.clone(),
            told: self.told(invitation, ticket),
            browser: digest(&browser),
            until_ms: self.now_ms().saturating_add(INVITED_MS),
        };
        let text = serde_json::to_vec(&away).map_err(|_| distrusted("no state"))?;
        let state = self.shared.tickets.seal(&text).map_err(|_| distrusted("no state"))?;
        let name = cookie_name(&state);
        {
            let mut pairs = url.query_pairs_mut();
            pairs.append_pair("response_type", "code");
            pairs.append_pair("client_id", &client.id);
            pairs.append_pair("redirect_uri", &redirect);
            pairs.append_pair("state", &state);
            pairs.append_pair("code_challenge", &digest(&verifier));
            pairs.append_pair("code_challenge_method", "S256");
            pairs.append_pair("resource", &found.resource);
            if !scope.is_empty() {
                pairs.append_pair("scope", &scope);
            }
        }
        let mut response = Response::new(Body::Empty);
        *response.status_mut() = StatusCode::SEE_OTHER;
        let secure = if redirect.starts_with("https:") { "; Secure" } else { "" };
        let cookie = format!(
            "{name}={browser}; Path={COOKIE_PATH}; Max-Age={}; HttpOnly; SameSite=Lax{secure}",
            INVITED_MS / 1_000
        );
        let headers = response.headers_mut();
        for (name, value) in [(header::LOCATION, url.to_string()), (header::SET_COOKIE, cookie)] {
            let value = HeaderValue::try_from(value).map_err(|_| distrusted("no address"))?;
            headers.insert(name, value);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        Ok(response)
    }

    async fn callback(&self, query: &Query, cookies: &[String]) -> Result<Response<Body>, Page> {
        let state = query.get("state").unwrap_or_default();
        let opened = self.shared.tickets.open(state);
        let away = opened.and_then(|text| serde_json::from_slice::<Away>(&text).ok());
        let Some(away) = away.filter(|away| self.now_ms() < away.until_ms) else {
            let text = "This answer belongs to no question, or came too late. Call the tool again.";
            return Err(Page::refused(StatusCode::BAD_REQUEST, text));
        };
        let name = cookie_name(state);
        let brought = cookies.iter().flat_map(|line| line.split(';')).find_map(|pair| {
            let (known, value) = pair.trim().split_once('=')?;
            (known == name).then_some(value)
        });
        let same = |value: &str| digest(value).as_bytes().ct_eq(away.browser.as_bytes()).into();
        if !brought.is_some_and(same) {
            let text = "This browser is not the one that was sent to sign in. Begin again in it.";
            return Err(Page::refused(StatusCode::BAD_REQUEST, text));
        }
        self.take(state, away.until_ms).await?;
        let iss = query.get("iss");
        let is_missing = away.names_issuer && iss.is_none();
        if is_missing || iss.is_some_and(|iss| iss != away.issuer) {
            let text = "The answer does not come from the authorization server that was asked.";
            return Err(Page::refused(StatusCode::BAD_REQUEST, text));
        }
        if query.get("error").is_some() {
            let text = "The authorization server gave no permission. Call the tool again to retry.";
            return Err(Page::refused(StatusCode::BAD_REQUEST, text));
        }
        let Some(code) = query.get("code") else {
            let text = "The answer holds no code.";
            return Err(Page::refused(StatusCode::BAD_REQUEST, text));
        };
        self.keep(&away, code).await.map_err(Page::failed)?;
        let text = format!("{} is connected. You can close this page, and call again.", away.name);
        Err(Page { status: StatusCode::OK, title: "Connected", text, go: None })
    }

    /// Both the answer and its refusal are good once, at whichever replica.
    async fn take(&self, state: &str, until_ms: u64) -> Result<(), Page> {
        let (tell, told) = oneshot::channel();
        let then = Box::new(move |taken| _ = tell.send(taken));
        self.shared.once.take(Sha256::digest(state).into(), until_ms, then);
        match told.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => {
                let text = "This answer has been given already. Call the tool again.";
                Err(Page::refused(StatusCode::BAD_REQUEST, text))
            }
            Ok(Err(_)) | Err(_) => {
                let text = "The gateway's store cannot be used at present. Call the tool again \
                            in a while.";
                Err(Page::refused(StatusCode::SERVICE_UNAVAILABLE, text))
            }
        }
    }

    /// In which session a link was told, and its name there.
    fn told(&self, invitation: &Invitation, ticket: &str) -> Option<([u8; 8], String)> {
        let base = self.shared.public_url.as_deref()?;
        Some((invitation.session?, name_of(&link(base, ticket))))
    }

    /// Exchanges the code, and keeps what it gives.
    async fn keep(&self, away: &Away, code: &str) -> Result<(), TokenFault> {
        let gone = |what: &str| TokenFault::Refused(what.to_owned());
        let fetch = &self.shared.fetch;
        let document = metadata(fetch, &away.issuer, Named::Elsewhere).await?;
        let Away { tenant, owner, server_key, .. } = away;
        let settings = self.settings(tenant, owner.as_deref(), server_key).await?;
        let client = self.shared.clients.known(&document, &settings).await?;
        let client = client.filter(|client| client.id == away.client);
        let client = client.ok_or_else(|| gone("the client is another one by now"))?;
        let resource = away.resource.clone();
        let endpoint = Endpoint::of(document, Named::Elsewhere, resource, String::new())?;
        let redirect = self.shared.clients.redirect_uri().unwrap_or_default();
        let parameters = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &*redirect),
            ("code_verifier", &*away.verifier),
            ("resource", &*away.resource),
        ];
        let now_ms = self.now_ms();
        let given = exchange(fetch, &endpoint, &client, &parameters, now_ms).await?;
        let grant = granted(given, None, &endpoint, &client.id, &away.scope, now_ms);
        let whose = whose(&away.tenant, &away.employee, &away.server_key);
        let whose = whose.ok_or_else(|| gone("there is no such employee"))?;
        self.shared.vault.put(whose.clone(), Credential::OAuth(grant)).await?;
        if let Some(on_grant) = self.on_grant.get() {
            let owner = away.owner.as_deref().and_then(EmployeeId::parse);
            on_grant(Granted { whose, owner, told: away.told.clone() });
        }
        Ok(())
    }

    /// The operator's, or what the employee says who brought the server.
    async fn settings(
        &self,
        tenant: &str,
        owner: Option<&str>,
        server_key: &str,
    ) -> Result<Settings, TokenFault> {
        if let Some(owner) = owner {
            let gone = || TokenFault::Refused("there is no such employee".to_owned());
            let owner = EmployeeId::parse(owner).ok_or_else(gone)?;
            return self.shared.said_by(&TenantId::new(tenant), &owner, server_key).await;
        }
        let known = self.consents.get(server_key);
        Ok(match known.as_ref().map(|consent| &consent.settings) {
            Some(Said::Written(settings)) => settings.clone(),
            Some(Said::Owner(_)) | None => Settings::default(),
        })
    }
}

/// Where an employee with this ticket connects.
pub(super) fn link(base: &str, ticket: &str) -> String {
    format!("{base}{CONNECT}?t={ticket}")
}

/// The parameters of a query; one that stands there twice is none.
struct Query(Vec<(String, String)>);

impl Query {
    fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(known, _)| known == name);
        let value = found.next().map(|(_, value)| &**value);
        value.filter(|_| found.next().is_none())
    }
}

/// 256 bits, as text.
fn random() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

fn digest(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

/// Of its own for each state: somebody may connect to two servers at once.
fn cookie_name(state: &str) -> String {
    format!(
        "hangu-{}",
        digest(state).chars().filter(char::is_ascii_alphanumeric).take(12).collect::<String>()
    )
}

impl Page {
    fn refused(status: StatusCode, text: &str) -> Self {
        Self { status, title: "Not connected", text: text.to_owned(), go: None }
    }

    /// What went wrong is for the log; the page says no more than what to do.
    fn failed(fault: TokenFault) -> Self {
        tracing::warn!(error = %fault, "An employee could not be connected to a server");
        let (status, text) = match fault {
            TokenFault::Unreachable(_) => {
                (StatusCode::BAD_GATEWAY, "The authorization server cannot be asked. Try again.")
            }
            TokenFault::Vault(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "The grant could not be kept. Ask whoever runs this gateway.",
            ),
            _ => (
                StatusCode::BAD_GATEWAY,
                "The authorization server and the gateway do not agree. Ask whoever runs this \
                 gateway: its log says why.",
            ),
        };
        Self::refused(status, text)
    }

    fn response(self) -> Response<Body> {
        let go = self.go.map_or_else(String::new, |go| {
            format!("<p><a href=\"{}\" rel=\"noreferrer\">Continue</a></p>", escaped(&go))
        });
        let html = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{}</title>\
             <h1>{}</h1><p>{}</p>{go}</html>",
            escaped(self.title),
            escaped(self.title),
            escaped(&self.text)
        );
        let mut response = Response::new(Body::from(Bytes::from(html)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CACHE_CONTROL, "no-store"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
