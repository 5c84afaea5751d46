//! Grants of employees: who has one is served with its token, which is renewed when it ends; who
//! has none is told where to give it.

use std::sync::Arc;

use dashmap::DashMap;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use url::Url;

use super::{
    clients::Clients,
    discover::metadata,
    exchange::{Endpoint, exchange},
    fetch::{Fetch, Named},
};
use crate::{
    approval::store::ApprovalStore,
    clock::Clock,
    config::Consent as Settings,
    credential::{
        Credential, Owner, Vault, Whose,
        oauth::{
            Asked, Asking, Challenge, Grant, INVITED_MS, OwnSettings, Refused, Token, TokenAnswer,
            TokenFault, TokenSource, TokensOf, union,
        },
        store::Held,
    },
    identity::ticket::Tickets,
    model::caller::{EmployeeId, TenantId},
};

/// A token is renewed when it has less than this left.
const MARGIN_MS: u64 = 30_000;

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

impl Shared {
    /// What the employee says who brought a server.
    pub async fn said_by(
        &self,
        tenant: &TenantId,
        owner: &EmployeeId,
        server_key: &str,
    ) -> Result<Settings, TokenFault> {
        let place = OwnSettings::place(tenant.clone(), owner.clone(), server_key);
        let kept = self.vault.open(&place).await?;
        let OwnSettings { client, scope } =
            kept.as_ref().and_then(OwnSettings::of).unwrap_or_default();
        Ok(Settings { client, scope, ..Settings::default() })
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

    async fn token(&self, asked: Asked) -> Result<Token, TokenFault> {
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
            Fits::Renew => match self.renew(&whose, &held, refused).await {
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

    async fn settings(&self, tenant: &TenantId) -> Result<Settings, TokenFault> {
        match &self.settings {
            Said::Written(settings) => Ok(settings.clone()),
            Said::Owner(owner) => self.shared.said_by(tenant, owner, &self.server_key).await,
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
        let Some(held) = self.shared.vault.held(whose).await? else { return Ok(None) };
        match self.shared.vault.reveal(&held).await? {
            Credential::OAuth(grant) => Ok(Some((held, grant))),
            // Of another kind: from a time when the server took another one.
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
        &self,
        whose: &Whose,
        before: &Held,
        refused: Option<&Refused>,
    ) -> Result<Token, TokenFault> {
        let place = self.shared.renewing.entry(whose.clone()).or_default().clone();
        let _alone = place.lock().await;
        let renewed = self.renew_alone(whose, before, refused).await;
        self.shared.renewing.remove_if(whose, |_, place| Arc::strong_count(place) <= 2);
        renewed
    }

    async fn renew_alone(
        &self,
        whose: &Whose,
        before: &Held,
        refused: Option<&Refused>,
    ) -> Result<Token, TokenFault> {
        let gone = || TokenFault::Refused("the grant is gone".to_owned());
        let (held, grant) = self.grant(whose).await?.ok_or_else(gone)?;
        if serial(&held) != serial(before) && matches!(self.fits(&held, &grant, refused), Fits::Yes)
        {
            return Ok(token(&held, &grant));
        }
        let document = metadata(&self.shared.fetch, &grant.issuer, Named::Elsewhere).await?;
        let settings = self.settings(&whose.tenant).await?;
        let client = self.shared.clients.known(&document, &settings).await?;
        let client = client.filter(|client| client.id == grant.client_id).ok_or_else(gone)?;
        let endpoint =
            Endpoint::of(document, Named::Elsewhere, grant.resource.clone(), String::new())?;
        let refresh = grant.refresh.as_ref().ok_or_else(gone)?;
        let parameters = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose_secret()),
            ("resource", &*grant.resource),
        ];
        let now_ms = self.shared.clock.now_ms();
        let given = exchange(&self.shared.fetch, &endpoint, &client, &parameters, now_ms).await?;
        let anew = granted(given, Some(&grant), &endpoint, &client.id, &grant.scope, now_ms);
        if !self.shared.vault.renew(&held, Credential::OAuth(anew)).await? {
            tracing::debug!(upstream.name = self.name, "a grant was replaced while it was renewed");
        }
        let (held, grant) = self.grant(whose).await?.ok_or_else(gone)?;
        Ok(token(&held, &grant))
    }
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
