//! As which client an authorization server knows the gateway: registered beforehand, by a document
//! that the gateway publishes, or by asking (RFC 7591), in this order.
//!
//! A registration is kept with the issuer that gave it, and shown to no other.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{
    fetch::{Fetch, Named},
    pages,
};
use crate::{
    config::Consent as Settings,
    credential::{
        Credential, Owner, Vault, Whose,
        oauth::{AuthorizationServer, Client, ClientProof, TokenFault},
    },
    model::caller::TenantId,
};

/// What the gateway calls itself.
const NAME: &str = "Hangu";

pub(super) struct Clients {
    pub fetch: Fetch,
    pub vault: Arc<Vault>,
    pub public_url: Option<String>,
}

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<String>,
}

impl Clients {
    /// The client that a server knows already.
    pub async fn known(
        &self,
        server: &AuthorizationServer,
        settings: &Settings,
    ) -> Result<Option<Client>, TokenFault> {
        let is_for = |issuer: &String| *issuer == server.issuer;
        if let Some(client) = settings.client.as_ref()
            && settings.issuer.as_ref().is_none_or(is_for)
        {
            return Ok(Some(client.clone()));
        }
        if server.client_id_metadata_document_supported
            && let Some(id) = self.document_url()
        {
            return Ok(Some(Client { id, proof: ClientProof::None }));
        }
        Ok(match self.vault.open(&self.registration(&server.issuer)).await? {
            Some(Credential::Basic { user, password }) => {
                Some(Client { id: user, proof: proof(password) })
            }
            _ => None,
        })
    }

    /// The client, registered if need be.
    pub async fn client(
        &self,
        server: &AuthorizationServer,
        settings: &Settings,
    ) -> Result<Client, TokenFault> {
        if let Some(known) = self.known(server, settings).await? {
            return Ok(known);
        }
        let nowhere = || {
            let message = "the authorization server takes no client that it does not know: name \
                           one by `client_id`";
            TokenFault::Refused(message.to_owned())
        };
        let endpoint = server.registration_endpoint.as_deref().ok_or_else(nowhere)?;
        let endpoint = Url::parse(endpoint).map_err(|_| nowhere())?;
        let methods = ["client_secret_basic", "client_secret_post", "none"];
        let method = methods.into_iter().find(|method| server.takes(method)).unwrap_or("none");
        let mut document = self.metadata(method).ok_or_else(nowhere)?;
        if let Some(scopes) = &server.scopes_supported {
            document["scope"] = scopes.join(" ").into();
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let body = document.to_string().into();
        let answer = self.fetch.post(&endpoint, headers, body, Named::Elsewhere).await?;
        if !answer.status.is_success() {
            let message = format!("the registration is answered with {}", answer.status);
            return Err(TokenFault::Refused(message));
        }
        let Registered { client_id, client_secret } = serde_json::from_slice(&answer.text)
            .map_err(|_| TokenFault::Distrusted("the registration has no answer".to_owned()))?;
        let secret = SecretString::from(client_secret.unwrap_or_default());
        let credential = Credential::Basic { user: client_id.clone(), password: secret.clone() };
        self.vault.put(self.registration(&server.issuer), credential).await?;
        Ok(Client { id: client_id, proof: proof(secret) })
    }

    /// Where the gateway describes itself; only where others can be sure that it is it.
    fn document_url(&self) -> Option<String> {
        let base = self.public_url.as_deref().filter(|_| self.is_secure())?;
        Some(format!("{base}{}", pages::CLIENT))
    }

    fn is_secure(&self) -> bool {
        self.public_url.as_deref().is_some_and(|base| base.starts_with("https://"))
    }

    pub fn redirect_uri(&self) -> Option<String> {
        Some(format!("{}{}", self.public_url.as_deref()?, pages::CALLBACK))
    }

    /// The document about the gateway as a client.
    pub fn document(&self) -> Option<Value> {
        let mut document = self.metadata("none")?;
        document["client_id"] = self.document_url()?.into();
        Some(document)
    }

    /// Where a registration is kept: it is of one issuer, and of one address of the gateway's.
    fn registration(&self, issuer: &str) -> Whose {
        let own = self.public_url.as_deref().unwrap_or_default();
        Whose {
            tenant: TenantId::new(""),
            owner: Owner::Gateway,
            server_key: format!("oauth-client:{own} {issuer}").into(),
        }
    }

    fn metadata(&self, method: &str) -> Option<Value> {
        Some(json!({
            "client_name": NAME,
            "client_uri": self.public_url,
            "redirect_uris": [self.redirect_uri()?],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            // What comes back without TLS stays on this machine.
            "application_type": if self.is_secure() { "web" } else { "native" },
            "token_endpoint_auth_method": method,
        }))
    }
}

fn proof(secret: SecretString) -> ClientProof {
    match secret.expose_secret() {
        "" => ClientProof::None,
        _ => ClientProof::Secret(secret),
    }
}
