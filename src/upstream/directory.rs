//! The addresses that one upstream's endpoints have: looked up, put before the guard, and kept as
//! peers until the names stand for others.
//!
//! Who takes a call, and when names are looked up again, is the cluster's to decide.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    error::Error as StdError,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::{ArcSwap, ArcSwapOption, Guard as Loaded};
use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::{
    protocols::{ALPN, l4::socket::SocketAddr as PingoraAddr},
    upstreams::peer::HttpPeer,
};
use pingora_load_balancing::{Backend, Extensions, discovery::ServiceDiscovery};
use smallvec::SmallVec;

use super::{
    egress::{Denied, Guard},
    endpoint::Endpoint,
};

/// One address of one endpoint, which the guard has let pass.
pub(super) struct Peer {
    /// Keys the pools: two peers with an address in common share no connection, since their
    /// upstreams may not trust the same certificates, nor be shown the same one.
    pub id: u64,
    pub endpoint: Arc<Endpoint>,
    pub dial: HttpPeer,
    /// Milliseconds since the cluster was born until which the address is passed over; 0: it is
    /// not.
    ejected_until: AtomicU64,
}

/// The addresses in use.
pub(super) struct Directory {
    upstream: Arc<str>,
    endpoints: Vec<Arc<Endpoint>>,
    guard: Guard,
    known: Mutex<HashMap<(usize, SocketAddr), Arc<Peer>>>,
    peers: ArcSwap<Vec<Arc<Peer>>>,
    /// Why there is none, where the guard has let none pass.
    denied: ArcSwapOption<Denied>,
    /// What the last answers had that may not be dialled: it is told once.
    told: Mutex<Vec<Denied>>,
    /// A look-up failed, and what was known before is gone on with: that is told once, too.
    failing: AtomicBool,
}

/// Why no address is known.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Unknown {
    #[error("{0}")]
    Denied(#[from] Denied),
    #[error("{0}")]
    Failed(Arc<dyn StdError + Send + Sync>),
}

/// What a look-up of all endpoints brought.
#[derive(Default)]
struct Found {
    peers: Vec<Arc<Peer>>,
    denied: Vec<Denied>,
    failure: Option<std::io::Error>,
}

// === impl Unknown ===

impl Unknown {
    pub fn failed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Failed(Arc::from(error.into()))
    }
}

// === impl Peer ===

impl Peer {
    fn new(endpoint: &Arc<Endpoint>, address: SocketAddr) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        // Never empty (`Endpoint::parse`): pingora would not check the certificate.
        let sni = if endpoint.is_tls() { endpoint.host().to_string() } else { String::new() };
        let mut dial = HttpPeer::new(address, endpoint.is_tls(), sni);
        dial.group_key = id;
        dial.options.alpn = ALPN::H2H1;
        Arc::new(Self { id, endpoint: endpoint.clone(), dial, ejected_until: 0.into() })
    }

    /// Reads the clock only for an address that was passed over lately.
    pub fn ejected(&self, now: impl FnOnce() -> u64) -> bool {
        match self.ejected_until.load(Ordering::Relaxed) {
            0 => false,
            until => now() < until,
        }
    }

    pub fn eject(&self, until: u64) {
        self.ejected_until.store(until, Ordering::Relaxed);
    }
}

// === impl Directory ===

impl Directory {
    pub fn new(upstream: Arc<str>, endpoints: Vec<Arc<Endpoint>>, guard: Guard) -> Self {
        Self {
            upstream,
            endpoints,
            guard,
            known: Mutex::default(),
            peers: ArcSwap::default(),
            denied: ArcSwapOption::empty(),
            told: Mutex::default(),
            failing: AtomicBool::new(false),
        }
    }

    pub fn peers(&self) -> Loaded<Arc<Vec<Arc<Peer>>>> {
        self.peers.load()
    }

    /// Why there is no address, where there were some that may not be dialled.
    pub fn denied(&self) -> Option<Denied> {
        self.denied.load().as_deref().cloned()
    }

    /// Looks all names up, and puts every address before the guard.
    ///
    /// # Errors
    /// A look-up failed and there is nothing to go on with: what was known stays. Or none of the
    /// addresses may be dialled: what was known is no more what the names stand for.
    pub async fn renew(&self) -> Result<Arc<Vec<Arc<Peer>>>, Unknown> {
        let Found { mut peers, denied, failure } = self.look_up().await;
        // Two endpoints of one upstream at one address are one server: the first has it.
        let mut addresses = HashSet::with_capacity(peers.len());
        peers.retain(|peer| addresses.insert(peer.dial._address.clone()));
        let first = denied.first().cloned();
        self.tell(denied);
        match failure {
            Some(error) if peers.is_empty() && first.is_none() => {
                return Err(Unknown::failed(error));
            }
            failure => self.tell_failure(failure.filter(|_| !peers.is_empty())),
        }
        self.known.lock().retain(|_, known| peers.iter().any(|peer| peer.id == known.id));
        let refusal = first.filter(|_| peers.is_empty());
        self.denied.store(refusal.clone().map(Arc::new));
        let peers = Arc::new(peers);
        self.peers.store(peers.clone());
        refusal.map_or(Ok(peers), |denied| Err(denied.into()))
    }

    async fn look_up(&self) -> Found {
        let mut found = Found::default();
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            if let Err(denied) = self.guard.admits(endpoint) {
                found.denied.push(denied);
                continue;
            }
            let addresses: SmallVec<[SocketAddr; 4]> = match endpoint.address() {
                Some(ip) => SmallVec::from_iter([SocketAddr::new(ip, endpoint.port())]),
                None => match self.guard.look_up(endpoint).await {
                    Ok(addresses) => addresses.into(),
                    Err(error) => {
                        found.failure = Some(error);
                        self.last(index)
                    }
                },
            };
            for address in addresses {
                match self.guard.judge(endpoint, address.ip()) {
                    Ok(()) => found.peers.push(self.peer(index, endpoint, address)),
                    Err(denied) => found.denied.push(denied),
                }
            }
        }
        found
    }

    fn peer(&self, index: usize, endpoint: &Arc<Endpoint>, address: SocketAddr) -> Arc<Peer> {
        let mut known = self.known.lock();
        known.entry((index, address)).or_insert_with(|| Peer::new(endpoint, address)).clone()
    }

    /// The addresses that an endpoint had at the last look-up.
    fn last(&self, index: usize) -> SmallVec<[SocketAddr; 4]> {
        let known = self.known.lock();
        known.keys().filter(|(of, _)| *of == index).map(|(_, address)| *address).collect()
    }

    /// Tells the operator of what was not told after the look-up before.
    fn tell(&self, denied: Vec<Denied>) {
        let mut told = self.told.lock();
        for denied in denied.iter().filter(|denied| !told.contains(denied)) {
            let upstream = &self.upstream;
            tracing::warn!(%upstream, %denied, "An address of an upstream may not be dialled.");
        }
        *told = denied;
    }

    fn tell_failure(&self, failure: Option<std::io::Error>) {
        let before = self.failing.swap(failure.is_some(), Ordering::Relaxed);
        if let Some(problem) = failure.filter(|_| !before) {
            let upstream = &self.upstream;
            tracing::warn!(
                %upstream,
                %problem,
                "A name of an upstream cannot be resolved: its last addresses stay in use."
            );
        }
    }
}

/// pingora's view of the directory.
pub(super) struct Discovery(pub Arc<Directory>);

#[async_trait]
impl ServiceDiscovery for Discovery {
    async fn discover(&self) -> pingora::Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let peers = match self.0.renew().await {
            Ok(peers) => peers,
            Err(Unknown::Denied(_)) => Arc::default(),
            Err(Unknown::Failed(error)) => {
                let kind = pingora::ErrorType::ConnectNoRoute;
                let error = Box::<dyn StdError + Send + Sync>::from(error.to_string());
                return Err(pingora::Error::because(kind, "name look-up", error));
            }
        };
        let backend = |peer: &Arc<Peer>| {
            let mut ext = Extensions::new();
            ext.insert(peer.clone());
            Backend { addr: peer.dial._address.clone(), weight: 1, ext }
        };
        Ok((peers.iter().map(backend).collect(), HashMap::new()))
    }
}

/// The address behind a backend, for the health check.
pub(super) fn address_of(backend: &Backend) -> Option<SocketAddr> {
    match &backend.addr {
        PingoraAddr::Inet(address) => Some(*address),
        PingoraAddr::Unix(_) => None,
    }
}
