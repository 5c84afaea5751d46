//! As which client an authorization server knows the gateway: registered beforehand, by a document
//! that the gateway publishes, or by asking (RFC 7591), in this order.
//!
//! With each client goes where browsers come back to. All authorization servers could share one
//! address only if each said in its answers who it is: one that a server names could send a browser
//! on to another one, and be given the code that comes back. So the shared address is for those that
//! promise to say it (RFC 9207), and for the one that an operator wrote down; every other has an
//! address of its own, which is all that a client that is known to it may use. The gateway's document
//! is shown to everybody alike, so it is for the former, too.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{
    consent::Terms,
    fetch::{Fetch, Named},
    issuers::FirstIssuers,
    pages,
};
use crate::{
    clock::Clock,
    credential::{
        Vault,
        oauth::{AuthorizationServer, Client, ClientProof, Registered, TokenFault, bounded},
    },
    identity::ticket::name_of,
};

/// What the gateway calls itself.
const NAME: &str = "Hangu";
/// The longest name or secret of a client that is taken, in bytes.
const MAX_TEXT: usize = 2 * 1024;

pub(super) struct Clients {
    pub fetch: Fetch,
    pub vault: Arc<Vault>,
    pub clock: Clock,
    pub issuers: Arc<FirstIssuers>,
    pub public_url: Option<String>,
}

/// A client, and where browsers come back to with what it is given.
pub(super) struct Known {
    pub client: Client,
    pub redirect: String,
}

/// The answer to a registration.
#[derive(Deserialize)]
struct Given {
    client_id: String,
    client_secret: Option<String>,
    /// In seconds; 0: never.
    client_secret_expires_at: Option<u64>,
}

impl Clients {
    /// The client that a server knows already.
    pub async fn known(
        &self,
        server: &AuthorizationServer,
        terms: &Terms,
    ) -> Result<Option<Known>, TokenFault> {
        let Terms { settings, by } = terms;
        let shared = self.redirect().ok_or_else(nowhere)?;
        let own = format!("{shared}/{}", name_of(&server.issuer));
        let written = settings.issuer.as_ref();
        let is_written = written == Some(&server.issuer);
        if let Some(client) = settings.client.clone() {
            if is_written {
                return Ok(Some(Known { client, redirect: shared }));
            }
            if written.is_none() {
                self.issuers.admit(by, &client.id, &server.issuer).await?;
                return Ok(Some(Known { client, redirect: own }));
            }
        }
        if server.client_id_metadata_document_supported
            && (is_written || server.authorization_response_iss_parameter_supported)
            && let Some(id) = self.document_url()
        {
            let client = Client { id, proof: ClientProof::None };
            return Ok(Some(Known { client, redirect: shared }));
        }
        let kept = self.vault.open(&Registered::place(by)).await?;
        let now_ms = self.clock.now_ms();
        let fits = |kept: &Registered| {
            let ends = kept.until_ms.is_some_and(|until_ms| until_ms <= now_ms);
            kept.issuer == server.issuer && kept.redirect == own && !ends
        };
        let kept = kept.as_ref().and_then(Registered::of).filter(fits);
        Ok(kept.map(|Registered { client, redirect, .. }| Known { client, redirect }))
    }

    /// The client, registered if need be.
    pub async fn client(
        &self,
        server: &AuthorizationServer,
        terms: &Terms,
    ) -> Result<Known, TokenFault> {
        if let Some(known) = self.known(server, terms).await? {
            return Ok(known);
        }
        let strange = || {
            let message = "the authorization server takes no client that it does not know: name \
                           one by `client_id`";
            TokenFault::Refused(message.to_owned())
        };
        let endpoint = server.registration_endpoint.as_deref().ok_or_else(strange)?;
        let endpoint = Url::parse(endpoint).map_err(|_| strange())?;
        let methods = ["client_secret_basic", "client_secret_post", "none"];
        let method = methods.into_iter().find(|method| server.takes(method)).unwrap_or("none");
        let shared = self.redirect().ok_or_else(nowhere)?;
        let redirect = format!("{shared}/{}", name_of(&server.issuer));
        let mut document = self.metadata(method, &redirect);
        let scope = server.scopes_supported.as_ref().and_then(|all| bounded(all.join(" ")));
        if let Some(scope) = scope {
            document["scope"] = scope.into();
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
        let given = serde_json::from_slice::<Given>(&answer.text).ok().filter(Given::is_sound);
        let given = given.ok_or_else(|| {
            TokenFault::Distrusted("the registration has no answer that can be kept".to_owned())
        })?;
        let registered = Registered {
            issuer: server.issuer.clone(),
            redirect: redirect.clone(),
            until_ms: given.until_ms(),
            client: given.client(),
        };
        let unwritable = || TokenFault::Distrusted("the registration cannot be kept".to_owned());
        let sealed = registered.to_credential().ok_or_else(unwritable)?;
        // In the place of the one before: what the server names next makes no more of them.
        self.vault.put(Registered::place(&terms.by), sealed).await?;
        Ok(Known { client: registered.client, redirect })
    }

    /// Where the gateway describes itself; only where others can be sure that it is it.
    fn document_url(&self) -> Option<String> {
        let base = self.public_url.as_deref().filter(|_| self.is_secure())?;
        Some(format!("{base}{}", pages::CLIENT))
    }

    fn is_secure(&self) -> bool {
        self.public_url.as_deref().is_some_and(|base| base.starts_with("https://"))
    }

    /// Where browsers come back to from whoever says who he is.
    fn redirect(&self) -> Option<String> {
        Some(format!("{}{}", self.public_url.as_deref()?, pages::CALLBACK))
    }

    /// The document about the gateway as a client.
    pub fn document(&self) -> Option<Value> {
        let mut document = self.metadata("none", &self.redirect()?);
        document["client_id"] = self.document_url()?.into();
        Some(document)
    }

    fn metadata(&self, method: &str, redirect: &str) -> Value {
        json!({
            "client_name": NAME,
            "client_uri": self.public_url,
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            // What comes back without TLS stays on this machine.
            "application_type": if self.is_secure() { "web" } else { "native" },
            "token_endpoint_auth_method": method,
        })
    }
}

// === impl Given ===

impl Given {
    /// Whether it is what such texts are like: it is kept, and sent in addresses.
    fn is_sound(&self) -> bool {
        let fits = |text: &str| text.len() <= MAX_TEXT && !text.contains(char::is_control);
        let secret = self.client_secret.as_deref();
        !self.client_id.is_empty() && fits(&self.client_id) && secret.is_none_or(fits)
    }

    fn until_ms(&self) -> Option<u64> {
        let seconds = self.client_secret_expires_at.filter(|seconds| *seconds > 0)?;
        Some(seconds.saturating_mul(1_000))
    }

    fn client(self) -> Client {
        let secret = self.client_secret.filter(|secret| !secret.is_empty());
        let proof = secret.map(SecretString::from);
        let proof = proof.map_or(ClientProof::None, ClientProof::Secret);
        Client { id: self.client_id, proof }
    }
}

fn nowhere() -> TokenFault {
    TokenFault::Distrusted("the gateway has no address of its own".to_owned())
}
