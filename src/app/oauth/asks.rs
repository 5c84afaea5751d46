//! Whom the gateway asks for tokens of one upstream, and as which client: what every grant has
//! in common in which no employee takes part.

use std::sync::Arc;

use tokio::sync::Mutex;
use url::Url;

use super::{
    discover::{canonical, discover, metadata},
    exchange::{Endpoint, exchange},
    fetch::{Fetch, Named},
    issuers::FirstIssuers,
};
use crate::{
    config::{AsClient, TokensAt},
    credential::{
        Whose,
        oauth::{Challenge, Client, ClientProof, Identity, TokenAnswer, TokenFault, union},
    },
};

/// Whom a client that nobody bound to an authorization server was first used at.
pub(super) struct First {
    pub issuers: Arc<FirstIssuers>,
    /// The server, as one of the operator's.
    pub place: Whose,
}

pub(super) struct Asks {
    fetch: Fetch,
    server: Url,
    as_client: AsClient,
    first: First,
    /// `None`: the server's own word for itself, or its address.
    resource: Option<String>,
    /// With whose key the client proves itself, where that is the gateway's own.
    identity: Option<Arc<Identity>>,
    /// Held by whoever finds it out.
    found: Mutex<Option<Endpoint>>,
}

impl Asks {
    pub fn new(
        fetch: Fetch,
        server: Url,
        as_client: AsClient,
        first: First,
        resource: Option<String>,
        identity: Option<Arc<Identity>>,
    ) -> Self {
        let identity = identity.filter(|_| as_client.own_key);
        Self { fetch, server, as_client, first, resource, identity, found: Mutex::default() }
    }

    /// What the authorization server calls the client.
    pub fn client_id(&self) -> &str {
        &self.as_client.client.id
    }

    /// Where tokens are given. With a challenge it is found out anew: the server may have moved
    /// to another one.
    pub async fn endpoint(&self, challenge: Option<&Challenge>) -> Result<Endpoint, TokenFault> {
        let mut found = self.found.lock().await;
        match &*found {
            Some(known) if challenge.is_none() => Ok(known.clone()),
            _ => {
                *found = None;
                Ok(found.insert(self.find(challenge).await?).clone())
            }
        }
    }

    /// One request for a token.
    pub async fn ask(
        &self,
        endpoint: &Endpoint,
        parameters: &[(&str, &str)],
        now_ms: u64,
    ) -> Result<TokenAnswer, TokenFault> {
        let asked = exchange(&self.fetch, endpoint, &self.client()?, parameters, now_ms).await;
        if matches!(asked, Err(TokenFault::Unreachable(_) | TokenFault::Distrusted(_))) {
            // It may be elsewhere by now.
            *self.found.lock().await = None;
        }
        asked
    }

    fn client(&self) -> Result<Client, TokenFault> {
        let mut client = self.as_client.client.clone();
        if let Some(identity) = &self.identity {
            let signer = identity.signer();
            client.proof =
                ClientProof::Key(signer.map_err(|fault| TokenFault::Refused(fault.to_string()))?);
        }
        Ok(client)
    }

    async fn find(&self, challenge: Option<&Challenge>) -> Result<Endpoint, TokenFault> {
        let own = self.resource.clone();
        let resource = || own.clone().unwrap_or_else(|| canonical(&self.server));
        match &self.as_client.at {
            TokensAt::Url(url) => Ok(Endpoint {
                url: url.clone(),
                audience: url.to_string(),
                named: Named::Written,
                metadata: None,
                resource: resource(),
                scope: String::new(),
            }),
            TokensAt::Issuer(issuer) => {
                let document = metadata(&self.fetch, issuer, Named::Written).await?;
                Endpoint::of(document, Named::Written, resource(), String::new())
            }
            TokensAt::Discovered => {
                let found = discover(&self.fetch, &self.server, Named::Written, challenge).await?;
                // Neither secrets nor what is said of employees goes to any other.
                let issuer = &found.server.issuer;
                self.first.issuers.admit(&self.first.place, self.client_id(), issuer).await?;
                let scope = found.challenge.scope.or(found.scope).unwrap_or_default();
                let resource = own.clone().unwrap_or(found.resource);
                Endpoint::of(found.server, Named::Elsewhere, resource, scope)
            }
        }
    }
}

/// The scopes to ask for: those of the file, all that were asked for so far, and what the server
/// wants; where nobody says anything, what the server's documents list.
pub(super) fn scopes(
    written: Option<&str>,
    so_far: &str,
    challenge: Option<&Challenge>,
    listed: &str,
) -> String {
    let wanted = challenge.and_then(|challenge| challenge.scope.as_deref());
    let known = union(written.unwrap_or_default(), so_far);
    match wanted {
        Some(wanted) => union(&known, wanted),
        None if known.is_empty() => listed.to_owned(),
        None => known,
    }
}
