//! The gateway as an OAuth client: where tokens for upstreams come from.
//!
//! What is asked and what is believed is the engine's (`credential/oauth`); here are the
//! connections.

mod clients;
mod consent;
mod crowd;
mod discover;
mod exchange;
mod fetch;
mod issuers;
mod own;
mod pages;

use std::sync::Arc;

use dashmap::DashMap;

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
    upstream::{Egress, Transport},
};

pub(super) use self::pages::{Granted, OnGrant, Pages};
use self::{
    clients::Clients,
    consent::{Consent, Said, Shared, Source, operators},
    crowd::Crowd,
    fetch::{Fetch, Named},
    issuers::FirstIssuers,
    own::{OwnTokens, State},
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
    pub audit: Arc<Audit>,
}

/// Makes sources of tokens, and serves those who grant them.
#[derive(Clone)]
pub(super) struct Oauth {
    fetch: Fetch,
    clock: Clock,
    identity: Option<Arc<Identity>>,
    issuers: Arc<FirstIssuers>,
    pub pages: Arc<Pages>,
}

impl Oauth {
    pub fn new(parts: Parts) -> Self {
        let Parts { transport, egress, clock, vault, tickets, once, public_url, identity, audit } =
            parts;
        let fetch = Fetch { transport, egress };
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
        Self { fetch, clock, identity, issuers, pages: Arc::new(Pages::new(Arc::new(shared))) }
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
            named: Named::Elsewhere,
            settings: Said::Owner(owner.clone()),
        }
    }

    fn consent(
        &self,
        upstream: &config::Upstream,
        settings: &config::Consent,
    ) -> Option<Arc<dyn TokenSource>> {
        let server = upstream.urls.first()?.clone();
        let consent = Arc::new(Consent {
            shared: self.pages.shared.clone(),
            name: upstream.name.to_string(),
            server_key: server_key(&server),
            server,
            named: Named::Written,
            settings: Said::Written(settings.clone()),
        });
        self.pages.consents.insert(consent.server_key.clone(), consent.clone());
        Some(Arc::new(Source(consent)))
    }

    /// How requests to an upstream are authenticated.
    pub fn auth(&self, upstream: &config::Upstream) -> UpstreamAuth {
        match &upstream.auth {
            config::UpstreamAuth::None => UpstreamAuth::None,
            config::UpstreamAuth::Employee => UpstreamAuth::Employee,
            // A process has no headers, and `check` has said so.
            config::UpstreamAuth::Client(settings) => {
                self.own(upstream, settings).map_or(UpstreamAuth::None, UpstreamAuth::Tokens)
            }
            config::UpstreamAuth::Consent(settings) => {
                self.consent(upstream, settings).map_or(UpstreamAuth::None, UpstreamAuth::Tokens)
            }
        }
    }

    fn own(
        &self,
        upstream: &config::Upstream,
        settings: &config::ClientCredentials,
    ) -> Option<Arc<dyn TokenSource>> {
        let source = OwnTokens {
            fetch: self.fetch.clone(),
            clock: self.clock.clone(),
            server: upstream.urls.first()?.clone(),
            place: operators(upstream.name.as_str()),
            settings: settings.clone(),
            issuers: self.issuers.clone(),
            identity: self.identity.clone().filter(|_| settings.own_key),
            state: State::default(),
        };
        Some(source.source())
    }
}

fn invite(consent: &Consent, caller: &Caller) -> Option<String> {
    let employee = caller.principal.employee.as_ref()?;
    let key = &consent.server_key;
    let whose = consent::whose(caller.tenant.as_str(), employee.as_str(), key)?;
    consent.invite(&whose, None, "", None)
}
