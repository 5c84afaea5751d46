//! The gateway as an OAuth client: where tokens for upstreams come from.
//!
//! What is asked and what is believed is the engine's (`credential/oauth`); here are the
//! connections.
//!
//! `tokens.rs` has tokens at hand that are got by one of three ways: client credentials (`own.rs`),
//! an exchange for what the gateway says of an employee (`exchanged.rs`), and what it signs itself
//! (`signed.rs`); `asks.rs` is what the first two have in common. `consent.rs` serves grants of
//! employees, which `pages.rs` has them give.

mod asks;
mod clients;
mod consent;
mod crowd;
mod discover;
mod exchange;
mod exchanged;
mod fetch;
mod issuers;
mod own;
mod pages;
mod signed;
mod tokens;

use std::sync::Arc;

use dashmap::DashMap;
use url::Url;

use super::StartError;
use crate::{
    approval::store::ApprovalStore,
    audit::Audit,
    clock::Clock,
    config,
    credential::{
        Vault,
        oauth::{Identity, TokenSource},
    },
    identity::ticket::Tickets,
    model::{caller::Caller, server_key::server_key},
    registry::server::Registration,
    stack::stage::UpstreamAuth,
    upstream::{Egress, PeerTls, Transport},
};

pub(super) use self::pages::{Granted, OnGrant, Pages};
use self::{
    asks::{Asks, First},
    clients::Clients,
    consent::{Consent, Said, Shared, Source, operators},
    crowd::Crowd,
    discover::canonical,
    exchanged::Exchanged,
    fetch::{Fetch, Named},
    issuers::FirstIssuers,
    own::Own,
    signed::Signed,
    tokens::{Gets, Places, Tokens},
};

/// What sources of tokens are made with.
pub(super) struct Parts {
    pub transport: Transport,
    pub egress: Arc<Egress>,
    pub clock: Clock,
    pub vault: Arc<Vault>,
    pub tickets: Arc<Tickets>,
    /// What is good once, for all replicas of a store.
    pub once: Arc<dyn ApprovalStore>,
    /// Where employees' browsers reach the gateway.
    pub public_url: Option<String>,
    /// The gateway's own keys, where there is a keyring.
    pub identity: Option<Arc<Identity>>,
    /// Tokens of employees that are at hand at once.
    pub entries: u64,
    pub audit: Arc<Audit>,
}

/// Makes sources of tokens, and serves those who grant them.
#[derive(Clone)]
pub(super) struct Oauth {
    fetch: Fetch,
    clock: Clock,
    identity: Option<Arc<Identity>>,
    places: Places,
    issuers: Arc<FirstIssuers>,
    pub pages: Arc<Pages>,
}

impl Oauth {
    pub fn new(parts: Parts) -> Self {
        let Parts { transport, egress, clock, vault, tickets, once, .. } = parts;
        let Parts { public_url, identity, entries, audit, .. } = parts;
        let fetch = Fetch { transport, egress, own: None };
        let issuers = Arc::new(FirstIssuers::new(vault.clone()));
        let clients = Clients {
            fetch: fetch.clone(),
            vault: vault.clone(),
            clock: clock.clone(),
            issuers: issuers.clone(),
            public_url: public_url.clone(),
        };
        let shared = Shared {
            fetch: fetch.clone(),
            clock: clock.clone(),
            vault,
            tickets,
            clients,
            public_url,
            once,
            renewing: DashMap::new(),
            crowd: Arc::new(Crowd::new()),
            audit,
        };
        let (places, pages) = (Places::new(entries), Arc::new(Pages::new(Arc::new(shared))));
        Self { fetch, clock, identity, places, issuers, pages }
    }

    /// Where the calling employee connects to the server of this key in the configuration; nothing
    /// where he does not have to, or is nobody. Whether he sees it, others know.
    pub fn invitation(&self, server_key: &str, caller: &Caller) -> Option<String> {
        let consent = self.pages.consents.get(server_key)?.clone();
        invite(&consent, caller)
    }

    /// The same, for a server that an employee brought.
    pub fn invitation_of(&self, registration: &Registration, caller: &Caller) -> Option<String> {
        invite(&self.brought(registration), caller)
    }

    /// Where tokens come from for a server that an employee brought: each who sees it grants his.
    pub fn source_of(&self, registration: &Registration) -> Arc<dyn TokenSource> {
        Arc::new(Source(Arc::new(self.brought(registration))))
    }

    fn brought(&self, registration: &Registration) -> Consent {
        let Registration { owner, server_key, url, name, .. } = registration;
        Consent {
            shared: self.pages.shared.clone(),
            name: name.as_ref().unwrap_or(server_key).to_string(),
            server_key: server_key.clone(),
            server: url.clone(),
            fetch: self.fetch.clone(),
            named: Named::Elsewhere,
            settings: Said::Owner(owner.clone()),
        }
    }

    /// How requests to an upstream are authenticated. `tls` is how it is reached.
    ///
    /// # Errors
    /// The gateway has no keys of its own, and would need them.
    pub fn auth(
        &self,
        upstream: &config::Upstream,
        tls: Option<&PeerTls>,
    ) -> Result<UpstreamAuth, StartError> {
        // A process has no headers, and `check` has said so.
        let Some(server) = upstream.urls.first() else { return Ok(UpstreamAuth::None) };
        let asks = |as_client: &config::AsClient, resource: &Option<String>| {
            let (fetch, identity) = (self.fetch.towards(server, tls), self.identity.clone());
            let place = operators(upstream.name.as_str());
            let first = First { issuers: self.issuers.clone(), place };
            Asks::new(fetch, server.clone(), as_client.clone(), first, resource.clone(), identity)
        };
        let source = match &upstream.auth {
            config::UpstreamAuth::None => return Ok(UpstreamAuth::None),
            config::UpstreamAuth::Employee => return Ok(UpstreamAuth::Employee),
            config::UpstreamAuth::Consent(settings) => {
                self.consent(upstream, server, settings, tls)
            }
            config::UpstreamAuth::Client(settings) => {
                if settings.as_client.own_key {
                    self.identity(upstream)?;
                }
                let asks = asks(&settings.as_client, &settings.resource);
                self.tokens(Own { asks, scope: settings.scope.clone() })
            }
            config::UpstreamAuth::Signed(settings) => self.tokens(Signed {
                identity: self.identity(upstream)?,
                settings: settings.clone(),
                audience: settings.audience.clone().unwrap_or_else(|| canonical(server)),
            }),
            config::UpstreamAuth::Exchange(settings) => self.tokens(Exchanged {
                asks: asks(&settings.as_client, &settings.resource),
                identity: self.identity(upstream)?,
                settings: settings.clone(),
                server_key: server_key(server),
            }),
        };
        Ok(UpstreamAuth::Tokens(source))
    }

    fn tokens(&self, gets: impl Gets) -> Arc<dyn TokenSource> {
        Tokens::source(gets, self.clock.clone(), self.places.clone())
    }

    fn identity(&self, upstream: &config::Upstream) -> Result<Arc<Identity>, StartError> {
        let missing =
            || format!("`{}` needs the gateway's own key, and there is none", upstream.name);
        self.identity.clone().ok_or_else(|| StartError::Keyring(missing()))
    }

    fn consent(
        &self,
        upstream: &config::Upstream,
        server: &Url,
        settings: &config::Consent,
        tls: Option<&PeerTls>,
    ) -> Arc<dyn TokenSource> {
        let consent = Arc::new(Consent {
            shared: self.pages.shared.clone(),
            name: upstream.name.to_string(),
            server_key: server_key(server),
            server: server.clone(),
            fetch: self.fetch.towards(server, tls),
            named: Named::Written,
            settings: Said::Written(settings.clone()),
        });
        self.pages.consents.insert(consent.server_key.clone(), consent.clone());
        Arc::new(Source(consent))
    }
}

fn invite(consent: &Consent, caller: &Caller) -> Option<String> {
    let employee = caller.principal.employee.as_ref()?;
    let key = &consent.server_key;
    let whose = consent::whose(caller.tenant.as_str(), employee.as_str(), key)?;
    consent.invite(&whose, None, "", None)
}
