//! A registration as the stack knows it: where it is, how it is spoken to, what opens it.

use std::{sync::Arc, time::Duration};

use moka::sync::Cache;

use crate::{
    app::oauth::Oauth,
    channel::{Channels, HttpSse, HttpSseConfig},
    mcp::Version,
    model::{
        caller::{EmployeeId, TenantId},
        server::{DialectKind, UpstreamName},
        server_key::normalised,
        template::HeaderSource,
    },
    registry::server::{Archive, AuthKind, Registration, Spoken},
    stack::stage::{Era, Serial, Upstream, UpstreamAuth},
    upstream::{
        Breaker, BreakerConfig, Cluster, ClusterConfig, ClusterError, Egress, Endpoint, Guard,
        Reach, Retries, RetryConfig, Transport,
    },
};

/// A session that nobody used for so long is ended.
const SESSION_IDLE: Duration = Duration::from_secs(5 * 60);
/// Sessions at one server at once, of all who share it.
const MAX_SESSIONS: usize = 256;
/// Servers whose connections and era are remembered.
const REMEMBERED: u64 = 10_000;
/// And for how long without a call.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// Tenant, owner and serverKey.
type Place = (TenantId, EmployeeId, Arc<str>);

/// Makes upstreams of registrations.
pub(in crate::app) struct Maker {
    pub transport: Transport,
    pub egress: Arc<Egress>,
    pub channels: Arc<Channels>,
    pub oauth: Oauth,
    pub limits: Limits,
    known: Cache<Place, (Arc<Registration>, Arc<Upstream>)>,
}

/// What every server of an employee's has of the operator's.
#[derive(Debug, Clone, Copy)]
pub(in crate::app) struct Limits {
    pub timeout: Duration,
    pub max_time: Duration,
    pub connect_timeout: Duration,
    pub max_request_bytes: usize,
    pub max_response_bytes: usize,
}

/// Why a registration is no upstream.
#[derive(Debug, thiserror::Error)]
pub(in crate::app) enum Unfit {
    #[error("its key is none")]
    Key,
    #[error("{0}")]
    Cluster(#[from] ClusterError),
}

// === impl Maker ===

impl Maker {
    pub fn new(
        transport: Transport,
        egress: Arc<Egress>,
        channels: Arc<Channels>,
        oauth: Oauth,
        limits: Limits,
    ) -> Self {
        let known = Cache::builder().max_capacity(REMEMBERED).time_to_idle(IDLE).build();
        Self { transport, egress, channels, oauth, limits, known }
    }

    /// The upstream of a registration as it is kept: the same one for all who see it, so that its
    /// connections and what was learnt of it are.
    pub fn known(&self, registration: &Registration) -> Result<Arc<Upstream>, Unfit> {
        let Registration { tenant, owner, server_key, .. } = registration;
        let place = (tenant.clone(), owner.clone(), server_key.clone());
        let upstream = match self.known.get(&place) {
            Some((of, upstream)) if is_same(&of, registration) => {
                if of.revision == registration.revision {
                    return Ok(upstream);
                }
                upstream
            }
            _ => self.make(registration)?,
        };
        self.known.insert(place, (Arc::new(registration.clone()), upstream.clone()));
        Ok(upstream)
    }

    /// A new one.
    pub fn make(&self, registration: &Registration) -> Result<Arc<Upstream>, Unfit> {
        let Registration { server_key, options, dialect, .. } = registration;
        let name = UpstreamName::of_key(server_key).ok_or(Unfit::Key)?;
        let timeout = options.timeout.unwrap_or(self.limits.timeout);
        let headers = options.headers.iter();
        Ok(Arc::new(Upstream {
            serial: Serial::next(),
            reach: self.reach(registration, &name, timeout)?,
            server_key: server_key.clone(),
            address: Some(normalised(&registration.url).into()),
            dialect: *dialect,
            pinned: options.protocol,
            headers: headers
                .map(|(name, value)| (name.clone(), HeaderSource::Template(value.clone())))
                .collect(),
            forward: Vec::new(),
            inject_user: options.inject_user.unwrap_or(true),
            stateless: options.stateless,
            park: options.park.unwrap_or(true),
            session_idle: SESSION_IDLE,
            max_sessions: MAX_SESSIONS,
            timeout,
            max_time: options.max_time.unwrap_or(self.limits.max_time),
            max_request_bytes: self.limits.max_request_bytes,
            max_response_bytes: self.limits.max_response_bytes,
            auth: match registration.auth {
                AuthKind::None => UpstreamAuth::None,
                AuthKind::Bearer | AuthKind::Basic | AuthKind::Headers => UpstreamAuth::Employee,
                AuthKind::Oauth => UpstreamAuth::Tokens(self.oauth.source_of(registration)),
            },
            retries: Retries::new(RetryConfig::default()),
            // Without metrics: there may be as many servers as there are employees.
            breaker: Arc::new(Breaker::new(name.shared(), Some(BreakerConfig::default()))),
            era: None.into(),
            served: 0.into(),
            instructions: None.into(),
            introduced: None.into(),
            name,
        }))
    }

    fn reach(
        &self,
        registration: &Registration,
        name: &UpstreamName,
        timeout: Duration,
    ) -> Result<Reach, Unfit> {
        let endpoint = Endpoint::parse(registration.url.as_str()).map_err(ClusterError::from)?;
        // Whatever it does not let pass, whoever calls is told of, in the same words each time.
        let guard = Guard::public(&self.egress);
        let cluster = ClusterConfig {
            suffixes: &["", "/tools/list", "/tools/call"],
            connect_timeout: self.limits.connect_timeout,
            on_demand: true,
            ..ClusterConfig::new(name.shared(), vec![endpoint], guard)
        };
        let cluster = Cluster::new(cluster, &self.transport)?;
        let event_stream = || {
            let config = HttpSseConfig {
                name: name.shared(),
                max_message: self.limits.max_response_bytes,
                opening: timeout,
                // What one employee's credential has opened carries nobody else's calls.
                shared: registration.options.stateless && registration.auth == AuthKind::None,
            };
            HttpSse::new(config, cluster.clone(), self.channels.clone())
        };
        Ok(match registration.dialect {
            DialectKind::HttpSse => Reach::either(cluster.clone(), event_stream(), true),
            DialectKind::Auto => Reach::either(cluster.clone(), event_stream(), false),
            _ => cluster.into(),
        })
    }
}

/// Whether a server has only been shared, or not any more, since: then those who listen to it go
/// on. One that was registered anew is asked anew how it speaks.
fn is_same(before: &Registration, now: &Registration) -> bool {
    let settings = (&before.url, before.dialect, &before.options, before.auth)
        == (&now.url, now.dialect, &now.options, now.auth);
    before.revision == now.revision || (settings && before.team != now.team)
}

/// How the server spoke when it was listed, so that its first call need not find out.
pub(super) fn recall(upstream: &Upstream, archive: &Archive) {
    if upstream.era().is_some() {
        return;
    }
    let era = match archive.spoken {
        Some(Spoken::Modern(Version::LATEST)) => Some(Era::Modern(Version::LATEST)),
        Some(Spoken::Handshake(_)) => Some(Era::Legacy),
        Some(Spoken::Lite) => Some(Era::Lite),
        Some(Spoken::Modern(_)) | None => None,
    };
    upstream.set_era(era);
    if let Some(served) = archive.served {
        upstream.set_served(served);
    }
}

/// The same, as an archive has it.
pub(super) fn spoken(era: Era, revision: Option<Version>) -> Spoken {
    match era {
        Era::Modern(version) => Spoken::Modern(version),
        Era::Legacy => Spoken::Handshake(revision),
        Era::Lite => Spoken::Lite,
    }
}
