//! Tokens of the gateway itself: client credentials (RFC 6749, 4.4).
//!
//! One token is good for all calls until shortly before its end. Whoever needs another one waits
//! for the one who fetches it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;
use url::Url;

use super::{
    discover::{canonical, discover, metadata},
    exchange::{Endpoint, exchange},
    fetch::{Fetch, Named},
    issuers::FirstIssuers,
};
use crate::{
    clock::Clock,
    config::{ClientCredentials, TokensAt},
    credential::{
        Whose,
        oauth::{
            Asked, Asking, Challenge, ClientProof, Identity, Refused, Token, TokenFault,
            TokenSource, union,
        },
    },
};

/// A token is not used when it has less than this left, or a tenth of its life.
const MARGIN_MS: u64 = 30_000;
/// How long a token is believed whose end nobody said.
const UNSAID_MS: u64 = 300_000;
/// A server that refuses a token as young as this will refuse the next one, too.
const YOUNG_MS: u64 = 10_000;

/// Brings the gateway's own tokens for one upstream.
pub(super) struct OwnTokens {
    pub fetch: Fetch,
    pub clock: Clock,
    pub server: Url,
    /// The server, as one of the operator's.
    pub place: Whose,
    pub settings: ClientCredentials,
    pub issuers: Arc<FirstIssuers>,
    /// With whose key the client proves itself, where that is the gateway's own.
    pub identity: Option<Arc<Identity>>,
    pub state: State,
}

#[derive(Default)]
pub(super) struct State {
    current: ArcSwapOption<Kept>,
    /// Held by whoever fetches.
    fetching: Mutex<Known>,
    serial: AtomicU64,
}

struct Kept {
    token: Token,
    since_ms: u64,
    until_ms: u64,
}

#[derive(Default)]
struct Known {
    endpoint: Option<Endpoint>,
    /// What servers have asked for so far.
    scope: String,
}

impl OwnTokens {
    pub fn source(self) -> Arc<dyn TokenSource> {
        Arc::new(Shared(Arc::new(self)))
    }

    fn known(&self, refused: Option<&Refused>) -> Option<Result<Token, TokenFault>> {
        let kept = self.state.current.load_full()?;
        let now_ms = self.clock.now_ms();
        match refused.filter(|refused| refused.serial == Some(kept.token.serial)) {
            None => (now_ms < kept.until_ms).then(|| Ok(kept.token.clone())),
            Some(refused) if refused.challenge.wants_more_scopes() => None,
            Some(_) => (now_ms < kept.since_ms + YOUNG_MS).then_some(Err(TokenFault::NotTaken)),
        }
    }

    async fn token(&self, refused: Option<Refused>) -> Result<Token, TokenFault> {
        if let Some(known) = self.known(refused.as_ref()) {
            return known;
        }
        let mut known = self.state.fetching.lock().await;
        // Whoever was here before has brought one.
        if let Some(known) = self.known(refused.as_ref()) {
            return known;
        }
        let challenge = refused.as_ref().map(|refused| &refused.challenge);
        if refused.is_some() {
            // The server may have moved to another one.
            known.endpoint = None;
        }
        let endpoint = match &known.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => known.endpoint.insert(self.find(challenge).await?).clone(),
        };
        let wanted = challenge.and_then(|challenge| challenge.scope.as_deref());
        known.scope = match (&self.settings.scope, wanted) {
            (Some(scope), None) => union(scope, &known.scope),
            (Some(scope), Some(wanted)) => union(&union(scope, &known.scope), wanted),
            (None, Some(wanted)) => union(&known.scope, wanted),
            (None, None) if known.scope.is_empty() => endpoint.scope.clone(),
            (None, None) => known.scope.clone(),
        };
        let parameters = [
            ("grant_type", "client_credentials"),
            ("scope", &*known.scope),
            ("resource", &*endpoint.resource),
        ];
        let now_ms = self.clock.now_ms();
        let mut client = self.settings.client.clone();
        if let Some(identity) = &self.identity {
            let signer = identity.signer();
            client.proof =
                ClientProof::Key(signer.map_err(|fault| TokenFault::Refused(fault.to_string()))?);
        }
        let given = exchange(&self.fetch, &endpoint, &client, &parameters, now_ms).await?;
        let life = given.expires_in.map_or(UNSAID_MS, |seconds| seconds.saturating_mul(1_000));
        let serial = self.state.serial.fetch_add(1, Ordering::Relaxed) + 1;
        let token = Token { value: given.access, serial };
        let until_ms = now_ms.saturating_add(life - MARGIN_MS.min(life / 10));
        let kept = Kept { token: token.clone(), since_ms: now_ms, until_ms };
        self.state.current.store(Some(Arc::new(kept)));
        Ok(token)
    }

    async fn find(&self, challenge: Option<&Challenge>) -> Result<Endpoint, TokenFault> {
        let own = self.settings.resource.clone();
        let resource = || own.clone().unwrap_or_else(|| canonical(&self.server));
        match &self.settings.at {
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
                let (id, issuer) = (&self.settings.client.id, &found.server.issuer);
                self.issuers.admit(&self.place, id, issuer).await?;
                let scope = found.challenge.scope.or(found.scope).unwrap_or_default();
                let resource = own.clone().unwrap_or(found.resource);
                Endpoint::of(found.server, Named::Elsewhere, resource, scope)
            }
        }
    }
}

struct Shared(Arc<OwnTokens>);

impl TokenSource for Shared {
    fn token(&self, asked: Asked) -> Asking {
        let own = self.0.clone();
        Box::pin(async move { own.token(asked.refused).await })
    }

    fn is_employees(&self) -> bool {
        false
    }
}
