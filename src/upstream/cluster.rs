//! One upstream's endpoints: which addresses they have, and which of them takes the next call.
//!
//! pingora balances and keeps the results of the health checks (`health.rs` runs them). A
//! cluster is shared by all cores; what it does for a call takes no lock.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures_util::FutureExt;
use parking_lot::Mutex;
use pingora::{
    protocols::{ALPN, l4::socket::SocketAddr as PingoraAddr},
    upstreams::peer::HttpPeer,
};
use pingora_load_balancing::{
    Backend, Backends, Extensions, LoadBalancer, discovery::ServiceDiscovery, selection::RoundRobin,
};
use smallvec::SmallVec;
use tokio::time::{Instant, timeout};

use super::{
    endpoint::{Endpoint, EndpointError},
    failure::Scene,
    health::TcpCheck,
    transport::Transport,
};
use crate::error::Error;

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
    /// Between two look-ups of the endpoints' names. Default 30 s.
    pub resolve_interval: Duration,
    /// How long an address that refused a connection is passed over. Default 5 s.
    pub ejection: Duration,
    /// Follow one 307 or 308 within the same origin. Default yes.
    pub redirects: bool,
}

impl ClusterConfig {
    pub fn new(name: impl Into<Arc<str>>, endpoints: Vec<Endpoint>) -> Self {
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
            resolve_interval: Duration::from_secs(30),
            ejection: Duration::from_secs(5),
            redirects: true,
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

/// One address of one endpoint.
pub(super) struct Peer {
    /// Keys the pools: two peers with an address in common share no connection, since their
    /// upstreams may not trust the same certificates.
    pub id: u64,
    pub endpoint: Arc<Endpoint>,
    pub dial: HttpPeer,
    /// Milliseconds since `Cluster::born` until which the address is passed over; 0: it is not.
    ejected_until: AtomicU64,
}

/// An upstream, as every core sees it.
pub struct Cluster {
    config: ClusterConfig,
    born: Instant,
    balancer: LoadBalancer<RoundRobin>,
    directory: Arc<Directory>,
    /// Look-ups never overlap: pingora forbids it, and one is enough.
    updating: tokio::sync::Mutex<()>,
}

/// The addresses in use; pingora asks it for them, cores read them.
struct Directory {
    endpoints: Vec<Arc<Endpoint>>,
    known: Mutex<HashMap<(usize, SocketAddr), Arc<Peer>>>,
    peers: ArcSwap<Vec<Arc<Peer>>>,
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
            if endpoint.is_tls() {
                transport.load_tls()?;
            }
        }
        let directory = Arc::new(Directory {
            endpoints: config.endpoints.iter().cloned().map(Arc::new).collect(),
            known: Mutex::default(),
            peers: ArcSwap::default(),
        });
        let mut balancer =
            LoadBalancer::from_backends(Backends::new(Box::new(Discovery(directory.clone()))));
        balancer.set_health_check(Box::new(TcpCheck::new(
            config.name.clone(),
            transport.clone(),
            config.health_timeout,
        )));
        if directory.endpoints.iter().all(|endpoint| endpoint.address().is_some()) {
            // Nothing to look up, so this ends at once; names are looked up by the first call
            // or the first health check, whichever comes first.
            let _ = balancer.update().now_or_never();
        }
        Ok(Arc::new(Self {
            config,
            born: Instant::now(),
            balancer,
            directory,
            updating: tokio::sync::Mutex::new(()),
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
        self.directory.peers.load().len() > 1
    }

    /// Whether some address of it took the last connection that was tried.
    pub fn healthy(&self) -> bool {
        let now = self.now();
        self.balancer.backends().get_backend().iter().any(|backend| {
            self.balancer.backends().ready(backend)
                && backend.ext.get::<Arc<Peer>>().is_some_and(|peer| !peer.ejected(|| now))
        })
    }

    pub(super) fn peers(&self) -> Arc<Vec<Arc<Peer>>> {
        self.directory.peers.load_full()
    }

    pub(super) fn scene<'a>(&'a self, endpoint: Option<&'a Arc<Endpoint>>) -> Scene<'a> {
        Scene { name: &self.config.name, endpoint }
    }

    /// The address that takes the next call, other than those in `tried`.
    ///
    /// Where every address is unhealthy, one of them is tried all the same: a check can be
    /// wrong, and a refusal costs less than an outage.
    pub(super) fn pick(&self, tried: &[u64]) -> Option<Arc<Peer>> {
        let peers = self.directory.peers.load();
        if let [only] = peers.as_slice() {
            return (!tried.contains(&only.id)).then(|| only.clone());
        }
        let fresh = |backend: &Backend| match backend.ext.get::<Arc<Peer>>() {
            Some(peer) if !tried.contains(&peer.id) => Some(peer.clone()),
            _ => None,
        };
        // Other cores turn the wheel too, so a few more turns than there are addresses.
        let turns = peers.len() * 4 + 8;
        let good = |backend: &Backend, ready: bool| {
            ready && fresh(backend).is_some_and(|peer| !peer.ejected(|| self.now()))
        };
        self.balancer
            .select_with(b"", turns, good)
            .and_then(|backend| fresh(&backend))
            .or_else(|| peers.iter().find(|peer| !tried.contains(&peer.id)).cloned())
    }

    /// Looks the names up if nothing is known of them yet.
    pub(super) async fn resolve(&self) -> Result<(), Error> {
        let resolved = async {
            let _turn = self.updating.lock().await;
            if self.directory.peers.load().is_empty() {
                self.balancer.update().await
            } else {
                Ok(())
            }
        };
        match timeout(self.config.connect_timeout, resolved).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.scene(None).unresolved(error)),
            Err(late) => Err(self.scene(None).unresolved(late)),
        }
    }

    /// Looks the names up again; what was known stays when that fails.
    pub(super) async fn refresh(&self) {
        let refreshed = async {
            let _turn = self.updating.lock().await;
            self.balancer.update().await
        };
        let problem = match timeout(self.config.resolve_interval, refreshed).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(late) => late.to_string(),
        };
        let upstream = &self.config.name;
        tracing::warn!(%upstream, %problem, "The names of an upstream cannot be resolved.");
    }

    pub(super) async fn check(&self) {
        self.balancer.backends().run_health_check(true).await;
    }

    /// A connection to `peer` failed: pass it over for a while.
    pub(super) fn eject(&self, peer: &Peer) {
        let until = self.now() + to_ms(self.config.ejection);
        peer.ejected_until.store(until.max(1), Ordering::Relaxed);
    }

    /// A connection to `peer` came about.
    pub(super) fn restore(&self, peer: &Peer) {
        peer.ejected_until.store(0, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        to_ms(self.born.elapsed())
    }
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

// === impl Peer ===

impl Peer {
    /// Reads the clock only for an address that was passed over lately.
    fn ejected(&self, now: impl FnOnce() -> u64) -> bool {
        match self.ejected_until.load(Ordering::Relaxed) {
            0 => false,
            until => now() < until,
        }
    }
}

// === impl Directory ===

impl Directory {
    fn peer(&self, index: usize, endpoint: &Arc<Endpoint>, address: SocketAddr) -> Arc<Peer> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut known = self.known.lock();
        let peer = known.entry((index, address)).or_insert_with(|| {
            let id = NEXT.fetch_add(1, Ordering::Relaxed);
            // Never empty (`Endpoint::parse`): pingora would not check the certificate.
            let sni = if endpoint.is_tls() { endpoint.host().to_string() } else { String::new() };
            let mut dial = HttpPeer::new(address, endpoint.is_tls(), sni);
            dial.group_key = id;
            dial.options.alpn = ALPN::H2H1;
            Arc::new(Peer { id, endpoint: endpoint.clone(), dial, ejected_until: 0.into() })
        });
        peer.clone()
    }

    /// The addresses that an endpoint had at the last look-up.
    fn last(&self, index: usize) -> SmallVec<[SocketAddr; 4]> {
        let known = self.known.lock();
        known.keys().filter(|(of, _)| *of == index).map(|(_, address)| *address).collect()
    }

    async fn look_up(&self) -> Result<Vec<Arc<Peer>>, std::io::Error> {
        let mut peers = Vec::new();
        let mut failure = None;
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let addresses: SmallVec<[SocketAddr; 4]> = match endpoint.address() {
                Some(ip) => SmallVec::from_iter([SocketAddr::new(ip, endpoint.port())]),
                None => {
                    match tokio::net::lookup_host((&**endpoint.host(), endpoint.port())).await {
                        Ok(found) => found.collect(),
                        Err(error) => {
                            failure = Some(error);
                            self.last(index)
                        }
                    }
                }
            };
            peers.extend(addresses.into_iter().map(|at| self.peer(index, endpoint, at)));
        }
        match failure {
            Some(error) if peers.is_empty() => Err(error),
            _ => Ok(peers),
        }
    }
}

/// pingora's view of the directory.
struct Discovery(Arc<Directory>);

#[async_trait]
impl ServiceDiscovery for Discovery {
    async fn discover(&self) -> pingora::Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let peers = self.0.look_up().await.map_err(|error| {
            pingora::Error::because(pingora::ErrorType::ConnectNoRoute, "name look-up", error)
        })?;
        let mut backends = BTreeSet::new();
        let mut used = Vec::with_capacity(peers.len());
        for peer in peers {
            let mut ext = Extensions::new();
            ext.insert(peer.clone());
            // Two endpoints of one upstream at one address are one server: the first has it.
            if backends.insert(Backend { addr: peer.dial._address.clone(), weight: 1, ext }) {
                used.push(peer);
            }
        }
        self.0.known.lock().retain(|_, known| used.iter().any(|peer| peer.id == known.id));
        self.0.peers.store(Arc::new(used));
        Ok((backends, HashMap::new()))
    }
}

/// The address behind a backend, for the health check.
pub(super) fn address_of(backend: &Backend) -> Option<SocketAddr> {
    match &backend.addr {
        PingoraAddr::Inet(address) => Some(*address),
        PingoraAddr::Unix(_) => None,
    }
}
