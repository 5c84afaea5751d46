//! Grants of employees: who has one is served with its token, which is renewed when it ends; who
//! has none is told where to give it.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::{
    sync::{Mutex, oneshot},
    time::{Instant, sleep},
};
use url::Url;

use super::{
    clients::{Clients, Known},
    crowd::Crowd,
    discover::metadata,
    exchange::{Endpoint, exchange},
    fetch::{Fetch, Named},
};
use crate::{
    approval::store::ApprovalStore,
    audit::Audit,
    clock::Clock,
    config::Consent as Settings,
    credential::{
        Credential, Given, Owner, Vault, VaultFault, Whose,
        oauth::{
            Asked, Asking, Challenge, Grant, INVITED_MS, OwnSettings, Refused, Token, TokenAnswer,
            TokenFault, TokenSource, TokensOf, union,
        },
        store::{Held, StoreFault},
    },
    identity::ticket::Tickets,
    model::{
        caller::{EmployeeId, TenantId},
        server_key::normalised,
    },
};

/// A token is renewed when it has less than this left.
const MARGIN_MS: u64 = 30_000;
/// After so long a renewal that was begun is given up for lost. It asks three times at most, and
/// each time ends by itself.
const CLAIM_MS: u64 = 60_000;
/// How long a renewal by another replica is waited for, and how often it is looked at.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);

/// What all servers share at which employees have grants.
pub(super) struct Shared {
    pub fetch: Fetch,
    pub clock: Clock,
    pub vault: Arc<Vault>,
    pub tickets: Arc<Tickets>,
    pub clients: Clients,
    /// Where employees' browsers reach the gateway; without it nobody can connect.
    pub public_url: Option<String>,
    /// What is good once, for all replicas of a store.
    pub once: Arc<dyn ApprovalStore>,
    /// Grants that are being renewed.
    pub renewing: DashMap<Whose, Arc<Mutex<()>>>,
    /// Those who are on their way to an authorization server, or back.
    pub crowd: Arc<Crowd>,
    pub audit: Arc<Audit>,
}

/// One server.
pub(super) struct Consent {
    pub shared: Arc<Shared>,
    pub name: String,
    pub server_key: Arc<str>,
    pub server: Url,
    /// How the server itself is asked.
    pub fetch: Fetch,
    pub named: Named,
    pub settings: Said,
}

/// Who says as which client the gateway comes, and what it asks for.
pub(super) enum Said {
    /// The operator.
    Written(Settings),
    /// The employee who brought the server.
    Owner(EmployeeId),
}

/// As which client the gateway comes, what it asks for, and under whose name the server is: what
/// follows from that is kept there.
pub(super) struct Terms {
    pub settings: Settings,
    pub by: Whose,
}

/// An invitation to connect: who, to which server, with what.
#[derive(Serialize, Deserialize)]
pub(super) struct Invitation {
    pub tenant: String,
    pub employee: String,
    pub server_key: String,
    pub name: String,
    pub server: String,
    pub written: bool,
    /// Who brought the server, where an employee did.
    pub owner: Option<String>,
    pub scope: Option<String>,
    pub resource_metadata: Option<String>,
    /// Of the client that was told the link, where it has one.
    pub session: Option<[u8; 8]>,
    pub until_ms: u64,
}

pub(super) fn whose(tenant: &str, employee: &str, server_key: &str) -> Option<Whose> {
    Some(Whose {
        tenant: TenantId::new(tenant),
        owner: Owner::Employee(EmployeeId::parse(employee)?),
        server_key: server_key.into(),
    })
}

/// What is kept for a server, and goes nowhere else.
pub(super) fn at(server: &Url, credential: Credential) -> Given {
    Given { credential, address: Some(normalised(server)) }
}

/// What a token endpoint gave, as it is kept.
pub(super) fn granted(
    given: TokenAnswer,
    before: Option<&Grant>,
    endpoint: &Endpoint,
    client_id: &str,
    scope: &str,
    now_ms: u64,
) -> Grant {
    let life = given.expires_in.map(|seconds| seconds.saturating_mul(1_000));
    Grant {
        access: given.access,
        // One that is not replaced stays good.
        refresh: given.refresh.or_else(|| before.and_then(|grant| grant.refresh.clone())),
        expires_ms: life.map(|life| now_ms.saturating_add(life)),
        scope: given.scope.unwrap_or_else(|| scope.to_owned()),
        issuer: endpoint.audience.clone(),
        token_endpoint: endpoint.url.to_string(),
        resource: endpoint.resource.clone(),
        client_id: client_id.to_owned(),
    }
}

impl Terms {
    /// Of a server in the configuration.
    pub fn of_operator(settings: Settings, name: &str) -> Self {
        Self { settings, by: operators(name) }
    }
}

/// A server of the configuration, in the place of a credential's owner.
pub(super) fn operators(name: &str) -> Whose {
    // No tenant is called so.
    Whose { tenant: TenantId::new(""), owner: Owner::Gateway, server_key: name.into() }
}

impl Shared {
    /// What the employee says who brought a server.
    pub async fn said_by(
        &self,
        tenant: &TenantId,
        owner: &EmployeeId,
        server_key: &Arc<str>,
        server: &Url,
    ) -> Result<Terms, TokenFault> {
        let place = OwnSettings::place(tenant.clone(), owner.clone(), server_key);
        let kept = self.vault.open_for(&place, Some(&normalised(server))).await?;
        let OwnSettings { client, scope } =
            kept.as_ref().and_then(OwnSettings::of).unwrap_or_default();
        let owner = Owner::Employee(owner.clone());
        let by = Whose { tenant: tenant.clone(), owner, server_key: server_key.clone() };
        Ok(Terms { settings: Settings { client, scope, ..Settings::default() }, by })
    }

    /// Whether this is the first one, at whichever replica, to take what is good once.
    pub async fn take(&self, token: [u8; 32], until_ms: u64) -> Result<bool, StoreFault> {
        let (tell, told) = oneshot::channel();
        self.once.take(token, until_ms, Box::new(move |taken| _ = tell.send(taken)));
        told.await.ok().and_then(Result::ok).ok_or(StoreFault::Unavailable)
    }
}

impl Consent {
    /// Where an employee connects.
    pub fn invite(
        &self,
        whose: &Whose,
        challenge: Option<&Challenge>,
        scope: &str,
        session: Option<[u8; 8]>,
    ) -> Option<String> {
        let base = self.shared.public_url.as_deref()?;
        let Owner::Employee(employee) = &whose.owner else { return None };
        let wanted = challenge.and_then(|challenge| challenge.scope.as_deref());
        let scope = match wanted {
            Some(wanted) => Some(union(scope, wanted)),
            None => (!scope.is_empty()).then(|| scope.to_owned()),
        };
        let invitation = Invitation {
            tenant: whose.tenant.as_str().to_owned(),
            employee: employee.as_str().to_owned(),
            server_key: self.server_key.to_string(),
            name: self.name.clone(),
            server: self.server.to_string(),
            written: self.named == Named::Written,
            owner: self.owner().map(|owner| owner.as_str().to_owned()),
            scope,
            resource_metadata: challenge.and_then(|it| it.resource_metadata.clone()),
            session,
            until_ms: self.shared.clock.now_ms().saturating_add(INVITED_MS),
        };
        let text = serde_json::to_vec(&invitation).ok()?;
        let ticket = self.shared.tickets.seal(&text).ok()?;
        Some(super::pages::link(base, &ticket))
    }

    async fn token(self: &Arc<Self>, asked: Asked) -> Result<Token, TokenFault> {
        let listing = asked.whose.is_none();
        let whose = asked.whose.or_else(|| self.listing()).ok_or(TokenFault::Nobody)?;
        let refused = asked.refused.as_ref();
        let ask = |scope: &str| {
            let challenge = refused.map(|refused| &refused.challenge);
            // What listings need is no employee's call: nobody reads what it says.
            let invite = || self.invite(&whose, challenge, scope, asked.session);
            let url = (!listing).then(invite).flatten();
            Err(TokenFault::Consent { url })
        };
        let Some((held, grant)) = self.grant(&whose).await? else { return ask("") };
        match self.fits(&held, &grant, refused) {
            Fits::Yes => Ok(token(&held, &grant)),
            Fits::Wider => ask(&grant.scope),
            Fits::Renew if grant.refresh.is_none() => ask(&grant.scope),
            Fits::Renew => match self.renew(&whose, &held, refused.cloned()).await {
                Err(TokenFault::Refused(_)) => ask(&grant.scope),
                renewed => renewed,
            },
        }
    }

    fn owner(&self) -> Option<&EmployeeId> {
        match &self.settings {
            Said::Written(_) => None,
            Said::Owner(owner) => Some(owner),
        }
    }

    async fn terms(&self, tenant: &TenantId) -> Result<Terms, TokenFault> {
        match &self.settings {
            Said::Written(settings) => Ok(Terms::of_operator(settings.clone(), &self.name)),
            Said::Owner(owner) => {
                self.shared.said_by(tenant, owner, &self.server_key, &self.server).await
            }
        }
    }

    fn listing(&self) -> Option<Whose> {
        let Said::Written(settings) = &self.settings else { return None };
        let (tenant, employee) = settings.listing.as_ref()?;
        Some(Whose {
            tenant: tenant.clone(),
            owner: Owner::Employee(employee.clone()),
            server_key: self.server_key.clone(),
        })
    }

    async fn grant(&self, whose: &Whose) -> Result<Option<(Arc<Held>, Grant)>, TokenFault> {
        let held = self.shared.vault.held(whose).await?;
        self.opened(held).await
    }

    /// As the store has it now: another replica may have renewed it a moment ago.
    async fn grant_now(&self, whose: &Whose) -> Result<(Arc<Held>, Grant), TokenFault> {
        let held = self.shared.vault.held_now(whose).await?;
        self.opened(held).await?.ok_or_else(gone)
    }

    async fn opened(
        &self,
        held: Option<Arc<Held>>,
    ) -> Result<Option<(Arc<Held>, Grant)>, TokenFault> {
        let Some(held) = held else { return Ok(None) };
        match self.shared.vault.reveal_for(&held, Some(&normalised(&self.server))).await? {
            Some(Credential::OAuth(grant)) => Ok(Some((held, grant))),
            // Of another kind, from a time when the server took another one; or of another address.
            _ => Ok(None),
        }
    }

    fn fits(&self, held: &Held, grant: &Grant, refused: Option<&Refused>) -> Fits {
        let refused = refused.filter(|refused| refused.serial == Some(serial(held)));
        if refused.is_some_and(|refused| refused.challenge.wants_more_scopes()) {
            return Fits::Wider;
        }
        let soon = self.shared.clock.now_ms().saturating_add(MARGIN_MS);
        let ends = grant.expires_ms.is_some_and(|expires| expires <= soon);
        if ends || refused.is_some() { Fits::Renew } else { Fits::Yes }
    }

    /// With the refresh token, which may be good once: one at a time, and whoever waited takes
    /// what the other has brought.
    async fn renew(
        self: &Arc<Self>,
        whose: &Whose,
        before: &Held,
        refused: Option<Refused>,
    ) -> Result<Token, TokenFault> {
        let (consent, whose, before) = (self.clone(), whose.clone(), serial(before));
        #[allow(
            clippy::disallowed_methods,
            reason = "it ends within the times of the store and of the authorization server, and \
                      what is cut off is what a killed process leaves behind"
        )]
        // Carried through, though the call be gone: what was spent is to be followed by what came.
        let renewing = tokio::spawn(async move {
            let place = consent.shared.renewing.entry(whose.clone()).or_default().clone();
            let _alone = place.lock().await;
            let renewed = consent.renew_alone(&whose, before, refused.as_ref()).await;
            let renewing = &consent.shared.renewing;
            renewing.remove_if(&whose, |_, place| Arc::strong_count(place) <= 2);
            renewed
        });
        let lost = |_| Err(TokenFault::Unreachable("the renewal came to no end".to_owned()));
        renewing.await.unwrap_or_else(lost)
    }

    /// Alone in this process; among replicas whoever takes the claim is. A refresh token that is
    /// brought twice may end the grant, so nobody brings one on the word of a cache.
    async fn renew_alone(
        &self,
        whose: &Whose,
        before: u64,
        refused: Option<&Refused>,
    ) -> Result<Token, TokenFault> {
        let end = Instant::now() + PATIENCE;
        let mut refusal = None;
        loop {
            let (held, grant) = self.grant_now(whose).await?;
            let now = serial(&held);
            if now != before && self.fits(&held, &grant, refused) == Fits::Yes {
                return Ok(token(&held, &grant));
            }
            if let Some((_, fault)) = refusal.take_if(|(of, _)| *of == now) {
                return Err(fault);
            }
            let claim = Sha256::new().chain_update("renewal").chain_update(&held.sealed);
            let claim: [u8; 32] = claim.finalize().into();
            let until_ms = self.shared.clock.now_ms().saturating_add(CLAIM_MS);
            let claimed = self.shared.take(claim, until_ms).await;
            if claimed.map_err(|fault| TokenFault::Vault(VaultFault::Store(fault)))? {
                match self.spend(&held, &grant).await {
                    Ok(token) => return Ok(token),
                    Err(fault) => {
                        self.shared.once.put_back(claim, Box::new(|_| {}));
                        let TokenFault::Refused(_) = fault else { return Err(fault) };
                        // Unless there is another one by now: then this one was spent.
                        refusal = Some((now, fault));
                        continue;
                    }
                }
            }
            if Instant::now() >= end {
                let message = "another replica renews the grant, and comes to no end";
                return Err(TokenFault::Unreachable(message.to_owned()));
            }
            sleep(LOOK).await;
        }
    }

    /// Exchanges the refresh token for another grant, and keeps that.
    async fn spend(&self, held: &Held, grant: &Grant) -> Result<Token, TokenFault> {
        let whose = &held.whose;
        let document = metadata(&self.shared.fetch, &grant.issuer, Named::Elsewhere).await?;
        let terms = self.terms(&whose.tenant).await?;
        let known = self.shared.clients.known(&document, &terms).await?;
        let Known { client, .. } =
            known.filter(|known| known.client.id == grant.client_id).ok_or_else(gone)?;
        let endpoint =
            Endpoint::of(document, Named::Elsewhere, grant.resource.clone(), String::new())?;
        // What one place gave is shown to no other, though its issuer name another one now.
        let gave = Url::parse(&grant.token_endpoint).map_err(|_| gone())?;
        if gave.origin() != endpoint.url.origin() {
            return Err(gone());
        }
        let refresh = grant.refresh.as_ref().ok_or_else(gone)?;
        let parameters = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose_secret()),
            ("resource", &*grant.resource),
        ];
        let now_ms = self.shared.clock.now_ms();
        let given = exchange(&self.shared.fetch, &endpoint, &client, &parameters, now_ms).await?;
        let anew = granted(given, Some(grant), &endpoint, &client.id, &grant.scope, now_ms);
        let anew = at(&self.server, Credential::OAuth(anew));
        if !self.shared.vault.renew(held, anew).await? {
            tracing::debug!(upstream.name = self.name, "a grant was replaced while it was renewed");
        }
        let (held, grant) = self.grant_now(whose).await?;
        Ok(token(&held, &grant))
    }
}

fn gone() -> TokenFault {
    TokenFault::Refused("the grant is gone".to_owned())
}

/// What is to be done with a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fits {
    Yes,
    Renew,
    /// The server wants scopes that nobody has granted.
    Wider,
}

fn token(held: &Held, grant: &Grant) -> Token {
    Token { value: grant.access.clone(), serial: serial(held) }
}

/// Tells one sealed form from another.
fn serial(held: &Held) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(&held.sealed));
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// As a source of tokens.
pub(super) struct Source(pub Arc<Consent>);

impl TokenSource for Source {
    fn token(&self, asked: Asked) -> Asking {
        let consent = self.0.clone();
        Box::pin(async move { consent.token(asked).await })
    }

    fn of(&self) -> TokensOf {
        TokensOf::Granted
    }
}
