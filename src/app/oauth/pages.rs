//! What employees' browsers are shown on their way to an authorization server and back, and the
//! document that says who the gateway is there.
//!
//! A browser brings no key. An invitation says whose grant it will be, and the page says so to
//! whoever opens it: that he has seen it, only the page's own form says, in the browser that was
//! shown it. Who comes back has to be the one who was sent away, which a cookie says, and comes back
//! once. `pages/away.rs` sends away, `pages/back.rs` takes back, `pages/browser.rs` knows what
//! browsers send and keep, `pages/page.rs` what they are shown.

mod away;
mod back;
mod browser;
mod page;

use std::{
    future::ready,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use dashmap::DashMap;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Response, StatusCode, header, request};
use sha2::{Digest, Sha256};

use self::{
    browser::{Browser, Lasting},
    page::{Form, Page},
};
use super::{
    consent::{Consent, Invitation, Said, Shared, Terms},
    crowd::Guest,
};
use crate::{
    body::Body,
    credential::{Whose, oauth::TokenFault},
    error::Code,
    model::{
        caller::{EmployeeId, TenantId},
        exchange::Exchange,
    },
};

pub(super) const CONNECT: &str = "/v1/oauth/connect";
pub(super) const CALLBACK: &str = "/v1/oauth/callback";
pub(super) const CLIENT: &str = "/v1/oauth/client.json";

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
        let below = path.strip_prefix(CALLBACK);
        matches!(path, CONNECT | CLIENT)
            || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Answers a request to such a path.
    pub fn answer(
        self: &Arc<Self>,
        request: &request::Parts,
        exchange: Option<Arc<Exchange>>,
    ) -> BoxFuture<'static, Response<Body>> {
        let (method, path) = (request.method.clone(), request.uri.path().to_owned());
        let is_read = matches!(method, Method::GET | Method::HEAD);
        let may = is_read || path == CONNECT && method == Method::POST;
        if !may {
            let page = Page::refused(Code::InvalidArgs, "method", "This page is only read.");
            let mut response = page.with_status(StatusCode::METHOD_NOT_ALLOWED).response();
            let allow = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(header::ALLOW, allow);
            return Box::pin(ready(response));
        }
        let browser = Browser::of(request, self.shared.public_url.clone());
        let pages = self.clone();
        Box::pin(async move {
            let answered = match &*path {
                CLIENT => return pages.document(),
                CONNECT if is_read => pages.show(&browser),
                CONNECT => pages.go(&browser).await,
                _ => pages.callback(&path, &browser, exchange.as_deref()).await,
            };
            answered.unwrap_or_else(Page::response)
        })
    }

    fn document(&self) -> Response<Body> {
        let Some(document) = self.shared.clients.document() else {
            let page = Page::refused(Code::NotFound, "no_document", "There is nothing here.");
            return page.with_status(StatusCode::NOT_FOUND).response();
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

    /// The invitation that a browser was led here with, and its ticket.
    fn invitation<'b>(&self, browser: &'b Browser) -> Result<(Invitation, &'b str), Page> {
        let ticket = browser.parameter("t").unwrap_or_default();
        let opened = self.shared.tickets.open(ticket);
        let invitation = opened.and_then(|text| serde_json::from_slice::<Invitation>(&text).ok());
        let invitation = invitation.filter(|it| self.now_ms() < it.until_ms);
        let text = "This link is not good any more. Call the tool again for another one.";
        let old = || Page::refused(Code::InvalidArgs, "link", text);
        Ok((invitation.ok_or_else(old)?, ticket))
    }

    /// Says whom the link connects, and to what. It leads on by its form alone, with what this
    /// browser, and no other, is given to keep.
    fn show(&self, browser: &Browser) -> Result<Response<Body>, Page> {
        let (invitation, ticket) = self.invitation(browser)?;
        let shown = browser::random();
        let form = Form {
            action: format!("{CONNECT}?t={ticket}&n={}", browser::digest(&shown)),
            invitation: &invitation,
        };
        let mut response = form.page().response();
        browser.keep(&mut response, ticket, &shown, Lasting::OnThisSite);
        Ok(response)
    }

    /// Sends whoever has seen the page to the authorization server. The link has done its work then,
    /// however that ends: each one has the gateway ask others once.
    async fn go(&self, browser: &Browser) -> Result<Response<Body>, Page> {
        let (invitation, ticket) = self.invitation(browser)?;
        let shown = browser.parameter("n").unwrap_or_default();
        if !browser.is_of_our_page() || !browser.kept(ticket, shown) {
            let text = "Open the link in this browser, and go on from the page that it shows.";
            return Err(Page::refused(Code::PermissionDenied, "not_shown", text));
        }
        let _place = self.enter(&invitation.tenant, &invitation.employee).await?;
        let used = "This link has been used already. Call the tool again for another one.";
        self.take(Sha256::digest(ticket).into(), invitation.until_ms, used).await?;
        self.send_away(browser, &invitation, ticket).await.map_err(Page::failed)
    }

    async fn enter(&self, tenant: &str, employee: &str) -> Result<Guest, Page> {
        let crowd = self.shared.crowd.enter(tenant, employee).await;
        let text = "Too many are being connected at present. Load this page again in a moment.";
        let full = || Page::refused(Code::RateLimited, "crowd", text);
        crowd.ok_or_else(|| full().with_status(StatusCode::SERVICE_UNAVAILABLE))
    }

    /// What is good once, at whichever replica.
    async fn take(&self, token: [u8; 32], until_ms: u64, used: &str) -> Result<(), Page> {
        match self.shared.take(token, until_ms).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Page::refused(Code::InvalidArgs, "used", used)),
            Err(_) => {
                let text = "The gateway's store cannot be used at present. Try again in a while.";
                let page = Page::refused(Code::Internal, "store_unavailable", text);
                Err(page.with_status(StatusCode::SERVICE_UNAVAILABLE))
            }
        }
    }

    /// The operator's terms, or those of the employee who brought the server.
    async fn terms(
        &self,
        tenant: &str,
        owner: Option<&str>,
        server_key: &str,
    ) -> Result<Terms, TokenFault> {
        let gone = |what: &str| TokenFault::Refused(what.to_owned());
        if let Some(owner) = owner {
            let owner = EmployeeId::parse(owner);
            let owner = owner.ok_or_else(|| gone("there is no such employee"))?;
            let server_key = server_key.into();
            return self.shared.said_by(&TenantId::new(tenant), &owner, &server_key).await;
        }
        let known = self.consents.get(server_key).map(|known| known.clone());
        let known = known.ok_or_else(|| gone("the configuration has no such server"))?;
        match &known.settings {
            Said::Written(settings) => Ok(Terms::of_operator(settings.clone(), &known.name)),
            Said::Owner(_) => Err(gone("the configuration has no such server")),
        }
    }
}

/// Where an employee with this ticket connects.
pub(super) fn link(base: &str, ticket: &str) -> String {
    format!("{base}{CONNECT}?t={ticket}")
}
