//! The way to an authorization server.

use http::{HeaderValue, Response, StatusCode, header};
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    super::{
        clients::Known,
        consent::Invitation,
        discover::{discover, distrusted},
        fetch::Named,
    },
    Pages,
    browser::{Browser, Lasting, digest, random},
    link,
};
use crate::{
    body::Body,
    credential::oauth::{Challenge, INVITED_MS, TokenFault, union},
    identity::ticket::name_of,
};

/// What is known of somebody who was sent away.
#[derive(Serialize, Deserialize)]
pub(super) struct Away {
    pub tenant: String,
    pub employee: String,
    pub server_key: String,
    pub name: String,
    /// Its address: what is granted goes nowhere else.
    pub server: String,
    pub owner: Option<String>,
    pub verifier: String,
    pub issuer: String,
    /// The answer has to name the issuer.
    pub names_issuer: bool,
    pub resource: String,
    pub scope: String,
    pub client: String,
    /// Where he has to come back to.
    pub redirect: String,
    /// In which session the link was told, and its name there.
    pub told: Option<([u8; 8], String)>,
    /// Of the cookie.
    pub browser: String,
    pub until_ms: u64,
}

impl Pages {
    /// To the authorization server, with a cookie to be known by.
    pub(super) async fn send_away(
        &self,
        browser: &Browser,
        invitation: &Invitation,
        ticket: &str,
    ) -> Result<Response<Body>, TokenFault> {
        let fault = |what: &str| TokenFault::Distrusted(what.to_owned());
        let server = Url::parse(&invitation.server).map_err(|_| fault("no address"))?;
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
        let terms = self.terms(tenant, owner.as_deref(), server_key, &server).await?;
        let endpoint = found.server.authorization_endpoint().map_err(distrusted)?;
        let mut url = Url::parse(endpoint).map_err(|_| fault("no address"))?;
        let Known { client, redirect } = self.shared.clients.client(&found.server, &terms).await?;
        let mut scope = found.challenge.scope.or(terms.settings.scope).or(found.scope);
        let offline = found.server.scopes_supported.iter().flatten();
        if offline.into_iter().any(|scope| scope == "offline_access") {
            scope = Some(union(scope.as_deref().unwrap_or_default(), "offline_access"));
        }
        let scope = scope.unwrap_or_default();
        let (verifier, kept) = (random(), random());
        let away = Away {
            tenant: invitation.tenant.clone(),
            employee: invitation.employee.clone(),
            server_key: invitation.server_key.clone(),
            name: invitation.name.clone(),
            server: invitation.server.clone(),
            owner: invitation.owner.clone(),
            verifier: verifier.clone(),
            issuer: found.server.issuer.clone(),
            names_issuer: found.server.authorization_response_iss_parameter_supported,
            resource: found.resource.clone(),
            scope: scope.clone(),
            client: client.id.clone(),
            redirect: redirect.clone(),
            told: self.told(invitation, ticket),
            browser: digest(&kept),
            until_ms: self.now_ms().saturating_add(INVITED_MS),
        };
        let text = serde_json::to_vec(&away).map_err(|_| fault("no state"))?;
        let state = self.shared.tickets.seal(&text);
        let state = state.map_err(|_| fault("what is asked for is too long for an address"))?;
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
        browser.keep(&mut response, &state, &kept, Lasting::ThereAndBack);
        let location = HeaderValue::try_from(url.as_str()).map_err(|_| fault("no address"))?;
        let headers = response.headers_mut();
        headers.insert(header::LOCATION, location);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        Ok(response)
    }

    /// In which session a link was told, and its name there.
    fn told(&self, invitation: &Invitation, ticket: &str) -> Option<([u8; 8], String)> {
        let base = self.shared.public_url.as_deref()?;
        Some((invitation.session?, name_of(&link(base, ticket))))
    }
}
