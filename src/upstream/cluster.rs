//! One upstream's addresses, and which of them takes the next call.
//!
//! What addresses there are is `directory.rs`'s to say. Where somebody watches the cluster, pingora
//! balances and keeps the results of the health checks (`health.rs` runs them); where nobody does,
//! calls take turns and find out for themselves. A cluster is shared by all cores; what it does
//! for a call takes no lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use pingora_load_balancing::{Backend, Backends, LoadBalancer, selection::RoundRobin};
use tokio::time::{Instant, timeout};

use super::{
    directory::{Directory, Discovery, Peer, Unknown},
    egress::Guard,
    endpoint::{Endpoint, EndpointError},
    failure::{EGRESS_DENIED, Scene},
    health::TcpCheck,
    peer_tls::PeerTls,
    transport::Transport,
};
use crate::error::Error;

/// How long what came of a look-up that brought nothing is answered again, where calls look up.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);

/// How long a call waits for a newer answer than the one there is.
const NEWER_WAIT: Duration = Duration::from_secs(1);

/// How one upstream is reached.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// The configured name: the only thing about an upstream that callers are told.
    pub name: Arc<str>,
    /// At least one; calls go to them in turn.
    pub endpoints: Vec<Endpoint>,
    /// What calls will put behind the endpoints' paths.
    pub suffixes: &'static [&'static str],
    /// From the first packet to the end of the TLS handshake; for look-ups too. Default 5 s.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept. Servers commonly close theirs after 60 s or more,
    /// so the default is 55 s.
    pub idle_timeout: Duration,
    /// Unused connections kept for each address and core. Default 64.
    pub pool_size: usize,
    /// The head of an answer, in bytes. Default 64 KiB.
    pub max_header_bytes: usize,
    /// Between two health checks of an address. Default 10 s.
    pub health_interval: Duration,
    /// How long a health check may take. Default 1 s.
    pub health_timeout: Duration,
    /// Between two look-ups of the endpoints' names. By default what the guard says: 30 s, unless
    /// its operator says otherwise.
    pub resolve_interval: Duration,
    /// How long an address that refused a connection is passed over. Default 5 s.
    pub ejection: Duration,
    /// Follow one 307 or 308 within the same origin. Default yes.
    pub redirects: bool,
    /// Which of the endpoints' addresses may be dialled.
    pub guard: Guard,
    /// What its servers are shown, and who vouches for them; `None`: nothing, and the system's
    /// roots.
    pub tls: Option<PeerTls>,
    /// Nobody watches it: names are looked up by the calls that find them unknown or old, and a
    /// dead address is found by the call that meets it. It has no task, and what it had goes with
    /// it. For servers of which there may be thousands. Default no.
    pub on_demand: bool,
}

impl ClusterConfig {
    pub fn new(name: impl Into<Arc<str>>, endpoints: Vec<Endpoint>, guard: Guard) -> Self {
        Self {
            name: name.into(),
            endpoints,
            suffixes: &[""],
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(55),
            pool_size: 64,
            max_header_bytes: 64 * 1024,
            health_interval: Duration::from_secs(10),
            health_timeout: Duration::from_secs(1),
            resolve_interval: guard.resolve_interval(),
            ejection: Duration::from_secs(5),
            redirects: true,
            guard,
            tls: None,
            on_demand: false,
        }
    }
}

/// Why an upstream cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("an upstream needs at least one URL")]
    NoEndpoint,
    #[error("{0}")]
    Endpoint(#[from] EndpointError),
    #[error("the root certificates cannot be used: {0}")]
    Roots(String),
}

/// An upstream, as every core sees it.
pub struct Cluster {
    config: ClusterConfig,
    born: Instant,
    directory: Arc<Directory>,
    /// None where nobody watches.
    balancer: Option<LoadBalancer<RoundRobin>>,
    /// Whose turn it is, without a balancer.
    turn: AtomicUsize,
    /// Look-ups never overlap: pingora forbids it, and one is enough.
    updating: Arc<tokio::sync::Mutex<()>>,
    /// Milliseconds since `born` at which a look-up ended last; 0: none has.
    looked_up: AtomicU64,
    /// What came of it then, where it brought nothing.
    unknown: Mutex<Option<Unknown>>,
}

// === impl Cluster ===

impl Cluster {
    pub fn new(
        mut config: ClusterConfig,
        transport: &Transport,
    ) -> Result<Arc<Self>, ClusterError> {
        if config.endpoints.is_empty() {
            return Err(ClusterError::NoEndpoint);
        }
        for endpoint in &mut config.endpoints {
            for suffix in config.suffixes {
                endpoint.prepare(suffix)?;
            }
            if endpoint.is_tls() && !config.tls.as_ref().is_some_and(PeerTls::has_ca) {
                transport.load_tls()?;
            }
        }
        let directory = Arc::new(Directory::new(
            config.name.clone(),
            config.endpoints.iter().cloned().map(Arc::new).collect(),
            config.guard.clone(),
        ));
        let balancer = (!config.on_demand).then(|| balancer(&config, &directory, transport));
        Ok(Arc::new(Self {
            config,
            born: Instant::now(),
            directory,
            balancer,
            turn: AtomicUsize::new(0),
            updating: Arc::default(),
            looked_up: AtomicU64::new(0),
            unknown: Mutex::default(),
        }))
    }

    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Whether a call that failed at one address can be tried at another.
    pub fn has_choice(&self) -> bool {
        self.directory.peers().len() > 1
    }

    /// Whether some address of it took the last connection that was tried.
    pub fn healthy(&self) -> bool {
        let now = self.now();
        let Some(balancer) = &self.balancer else {
            return self.directory.peers().iter().any(|peer| !peer.ejected(|| now));
        };
        balancer.backends().get_backend().iter().any(|backend| {
            balancer.backends().ready(backend)
                && backend.ext.get::<Arc<Peer>>().is_some_and(|peer| !peer.ejected(|| now))
        })
    }

    pub(super) fn peers(&self) -> Arc<Vec<Arc<Peer>>> {
        self.directory.peers().clone()
    }

    pub(super) fn scene<'a>(&'a self, endpoint: Option<&'a Arc<Endpoint>>) -> Scene<'a> {
        let shown = self.config.tls.as_ref().is_some_and(PeerTls::shows);
        Scene { name: &self.config.name, endpoint, shown }
    }

    /// The address that takes the next call, other than those in `tried`.
    ///
    /// Where every address is unhealthy, one of them is tried all the same: a check can be
    /// wrong, and a refusal costs less than an outage.
    pub(super) fn pick(&self, tried: &[u64]) -> Option<Arc<Peer>> {
        let peers = self.directory.peers();
        if let [only] = peers.as_slice() {
            return (!tried.contains(&only.id)).then(|| only.clone());
        }
        let good = match &self.balancer {
            Some(balancer) => self.balanced(balancer, peers.len(), tried),
            None => self.in_turn(&peers, tried),
        };
        good.or_else(|| peers.iter().find(|peer| !tried.contains(&peer.id)).cloned())
    }

    fn balanced(
        &self,
        balancer: &LoadBalancer<RoundRobin>,
        peers: usize,
        tried: &[u64],
    ) -> Option<Arc<Peer>> {
        let fresh = |backend: &Backend| match backend.ext.get::<Arc<Peer>>() {
            Some(peer) if !tried.contains(&peer.id) => Some(peer.clone()),
            _ => None,
        };
        // Other cores turn the wheel too, so a few more turns than there are addresses.
        let turns = peers * 4 + 8;
        let good = |backend: &Backend, ready: bool| {
            ready && fresh(backend).is_some_and(|peer| !peer.ejected(|| self.now()))
        };
        balancer.select_with(b"", turns, good).and_then(|backend| fresh(&backend))
    }

    fn in_turn(&self, peers: &[Arc<Peer>], tried: &[u64]) -> Option<Arc<Peer>> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % peers.len().max(1);
        let (before, after) = peers.split_at(first);
        let good = |peer: &&Arc<Peer>| !tried.contains(&peer.id) && !peer.ejected(|| self.now());
        after.iter().chain(before).find(good).cloned()
    }

    /// Whether a call has to look the names up first, since nobody else does.
    pub(super) fn is_stale(&self) -> bool {
        self.balancer.is_none() && !self.is_recent(self.config.resolve_interval)
    }

    /// Whether a look-up ended within this time.
    fn is_recent(&self, within: Duration) -> bool {
        let at = self.looked_up.load(Ordering::Relaxed);
        at != 0 && self.now() < at.saturating_add(to_ms(within))
    }

    /// Looks the names up, and says whether any of what they stand for may be dialled. Where
    /// nobody knows what they stand for, it may.
    ///
    /// # Errors
    /// None of it may be.
    pub async fn admit(self: &Arc<Self>) -> Result<(), Error> {
        match self.resolve().await {
            Err(error) if error.reason() == Some(EGRESS_DENIED) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Looks the names up if nothing is known of them yet, or what is known is old.
    ///
    /// # Errors
    /// No address is known that may be dialled. What was known stays where a look-up fails, and
    /// goes where the answer is another.
    pub(super) async fn resolve(self: &Arc<Self>) -> Result<(), Error> {
        let mut limit = self.config.connect_timeout;
        if !self.directory.peers().is_empty() {
            limit = limit.min(NEWER_WAIT);
        }
        let unknown = match timeout(limit, self.look_up()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(unknown)) => unknown,
            Err(late) => {
                let unknown = Unknown::failed(late);
                self.ended(Some(&unknown));
                unknown
            }
        };
        if self.directory.peers().is_empty() {
            return Err(match unknown {
                Unknown::Denied(denied) => self.scene(None).denied(denied),
                Unknown::Failed(error) => self.scene(None).unresolved(error),
            });
        }
        self.tell(&unknown);
        Ok(())
    }

    /// Looks up once for all who wait.
    async fn look_up(self: &Arc<Self>) -> Result<(), Unknown> {
        if let Some(unknown) = self.lately_unknown() {
            return Err(unknown);
        }
        let turn = self.updating.clone().lock_owned().await;
        if !self.directory.peers().is_empty() && !self.is_stale() {
            return Ok(());
        }
        if let Some(unknown) = self.lately_unknown() {
            return Err(unknown);
        }
        if self.balancer.is_some() {
            return self.update().await;
        }
        // It goes on when nobody waits for it any more, so that no second one is begun meanwhile:
        // its thread could not be stopped.
        let cluster = self.clone();
        #[allow(clippy::disallowed_methods, reason = "it ends with the look-up")]
        let updated = tokio::spawn(async move {
            let updated = cluster.update().await;
            drop(turn);
            updated
        });
        updated.await.unwrap_or_else(|gone| Err(Unknown::failed(gone)))
    }

    /// What came of the last look-up, if it brought nothing just now and calls are who asks.
    fn lately_unknown(&self) -> Option<Unknown> {
        let lately = self.balancer.is_none() && self.is_recent(UNKNOWN_FOR);
        if lately { self.unknown.lock().clone() } else { None }
    }

    /// Looks the names up again; what was known stays when that fails.
    pub(super) async fn refresh(&self) {
        let refreshed = async {
            let _turn = self.updating.lock().await;
            self.update().await
        };
        match timeout(self.config.resolve_interval, refreshed).await {
            Ok(Ok(())) => {}
            Ok(Err(unknown)) => self.tell(&unknown),
            Err(late) => self.tell(&Unknown::failed(late)),
        }
    }

    /// One look-up. Whoever calls it has the turn.
    async fn update(&self) -> Result<(), Unknown> {
        let updated = match &self.balancer {
            Some(balancer) => match balancer.update().await {
                // pingora has no word for an answer of which nothing may be used.
                Ok(()) => self.directory.denied().map_or(Ok(()), |denied| Err(denied.into())),
                Err(error) => Err(Unknown::failed(error)),
            },
            None => self.directory.renew().await.map(drop),
        };
        self.ended(updated.as_ref().err());
        updated
    }

    fn ended(&self, unknown: Option<&Unknown>) {
        *self.unknown.lock() = unknown.cloned();
        self.looked_up.store(self.now().max(1), Ordering::Relaxed);
    }

    /// The directory has told of what may not be dialled.
    fn tell(&self, unknown: &Unknown) {
        let Unknown::Failed(problem) = unknown else { return };
        let upstream = &self.config.name;
        tracing::warn!(%upstream, %problem, "The names of an upstream cannot be resolved.");
    }

    /// Checks the addresses of a cluster that is watched.
    pub(super) async fn check(&self) {
        if let Some(balancer) = &self.balancer {
            balancer.backends().run_health_check(true).await;
        }
    }

    /// A connection to `peer` failed: pass it over for a while.
    pub(super) fn eject(&self, peer: &Peer) {
        peer.eject((self.now() + to_ms(self.config.ejection)).max(1));
    }

    /// A connection to `peer` came about.
    pub(super) fn restore(&self, peer: &Peer) {
        peer.eject(0);
    }

    fn now(&self) -> u64 {
        to_ms(self.born.elapsed())
    }
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn balancer(
    config: &ClusterConfig,
    directory: &Arc<Directory>,
    transport: &Transport,
) -> LoadBalancer<RoundRobin> {
    let discovery = Box::new(Discovery(directory.clone()));
    let mut balancer = LoadBalancer::from_backends(Backends::new(discovery));
    balancer.set_health_check(Box::new(TcpCheck::new(
        config.name.clone(),
        transport.clone(),
        config.health_timeout,
    )));
    if config.endpoints.iter().all(|endpoint| endpoint.address().is_some()) {
        // Nothing to look up, so this ends at once; names are looked up by the first call or the
        // first health check, whichever comes first.
        let _ = balancer.update().now_or_never();
    }
    balancer
}
