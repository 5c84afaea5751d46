//! The way back from an authorization server: whoever comes is the one who was sent, to where he was
//! sent, once; what he brings is exchanged, and kept. Each leaves a record, however it ends.

use std::sync::Arc;

use http::{Response, StatusCode};
use sha2::{Digest, Sha256};
use url::Url;

use super::{
    super::{
        clients::Known,
        consent::{granted, whose},
        discover::metadata,
        exchange::{Endpoint, exchange},
        fetch::Named,
    },
    CALLBACK, Granted, Pages,
    away::Away,
    browser::Browser,
    page::{Fault, Page},
};
use crate::{
    api::recordable,
    body::Body,
    credential::{Credential, oauth::TokenFault},
    error::{Code, Error},
    model::{
        caller::{EmployeeId, TenantId},
        exchange::{Exchange, Outcome, ServerChange},
        server::Risk,
    },
};

impl Pages {
    pub(super) async fn callback(
        &self,
        path: &str,
        browser: &Browser,
        exchange: Option<&Exchange>,
    ) -> Result<Response<Body>, Page> {
        let state = browser.parameter("state").unwrap_or_default();
        let opened = self.shared.tickets.open(state);
        let away = opened.and_then(|text| serde_json::from_slice::<Away>(&text).ok());
        let Some(away) = away.filter(|away| self.now_ms() < away.until_ms) else {
            let text = "This answer belongs to no question, or came too late. Call the tool again.";
            return Err(Page::refused(Code::InvalidArgs, "state", text));
        };
        if let Some(exchange) = exchange {
            note(exchange, &away);
        }
        let done = self.come_back(&away, state, path, browser).await;
        if let Some(exchange) = exchange {
            let fault = done.as_ref().err().and_then(|page| page.fault);
            end(exchange, fault);
        }
        done?;
        let text = format!("{} is connected. You can close this page, and call again.", away.name);
        Ok(Page::good("Connected", &text).response())
    }

    async fn come_back(
        &self,
        away: &Away,
        state: &str,
        path: &str,
        browser: &Browser,
    ) -> Result<(), Page> {
        let refused = |reason, text| Err(Page::refused(Code::PermissionDenied, reason, text));
        if !browser.kept(state, &away.browser) {
            let text = "This browser is not the one that was sent to sign in. Begin again in it.";
            return refused("other_browser", text);
        }
        if recordable(&self.shared.audit, Risk::WriteLow).is_err() {
            let text = "The gateway cannot record what is done at present. Try again in a while.";
            let page = Page::refused(Code::Internal, "audit_unavailable", text);
            return Err(page.with_status(StatusCode::SERVICE_UNAVAILABLE));
        }
        let _place = self.enter(&away.tenant, &away.employee).await?;
        // Both the answer and its refusal are good once.
        let used = "This answer has been given already. Call the tool again.";
        self.take(Sha256::digest(state).into(), away.until_ms, used).await?;
        let iss = browser.parameter("iss");
        let is_missing = away.names_issuer && iss.is_none();
        let is_elsewhere = Url::parse(&away.redirect).map_or(true, |url| url.path() != path);
        if is_elsewhere || is_missing || iss.is_some_and(|iss| iss != away.issuer) {
            let text = "The answer does not come from the authorization server that was asked.";
            return refused("other_issuer", text);
        }
        if browser.parameter("error").is_some() {
            let text = "The authorization server gave no permission. Call the tool again to retry.";
            return refused("not_granted", text);
        }
        let Some(code) = browser.parameter("code") else {
            return refused("no_code", "The answer holds no code.");
        };
        self.keep(away, code).await.map_err(Page::failed)
    }

    /// Exchanges the code, and keeps what it gives.
    async fn keep(&self, away: &Away, code: &str) -> Result<(), TokenFault> {
        let gone = |what: &str| TokenFault::Refused(what.to_owned());
        let fetch = &self.shared.fetch;
        let document = metadata(fetch, &away.issuer, Named::Elsewhere).await?;
        let Away { tenant, owner, server_key, .. } = away;
        let terms = self.terms(tenant, owner.as_deref(), server_key).await?;
        let known = self.shared.clients.known(&document, &terms).await?;
        let same =
            |known: &Known| known.client.id == away.client && known.redirect == away.redirect;
        let known = known.filter(same);
        let Known { client, redirect } =
            known.ok_or_else(|| gone("the client is another one by now"))?;
        let resource = away.resource.clone();
        let endpoint = Endpoint::of(document, Named::Elsewhere, resource, String::new())?;
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
}

/// Whose grant it would be, and of whom: from here on it leaves a record.
fn note(exchange: &Exchange, away: &Away) {
    let mut facts = exchange.facts();
    facts.entered = true;
    facts.tenant = Some(TenantId::new(&*away.tenant));
    facts.employee = EmployeeId::parse(&away.employee);
    facts.server_key = Some(Arc::from(&*away.server_key));
    let issuer = Some(Arc::from(&*away.issuer));
    facts.server_change = Some(Box::new(ServerChange { what: "connect", team: None, issuer }));
    if let Some(http) = &mut facts.http {
        http.route = CALLBACK;
    }
}

fn end(exchange: &Exchange, fault: Option<Fault>) {
    let mut facts = exchange.facts();
    match fault {
        None => facts.outcome = Some(Outcome::Ok),
        Some(Fault { code, reason }) => {
            facts.failed(&Error::new(code, "not connected").with_reason(reason));
        }
    }
}
