//! One core's connections: making them, keeping them while they are idle, and letting them go.
//!
//! An HTTP/1 connection is driven by the call that uses it and by nobody while it is idle: no
//! task, no channel between cores, no wake-up for a call's own connection. That it was closed
//! meanwhile shows when it is polled for the next call, before any of that call is written.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use foldhash::fast::RandomState;
use http::HeaderMap;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use pingora::protocols::{ALPN, Stream};
use tokio::time::timeout;

use super::{cluster::Cluster, directory::Peer, peer_tls::PeerTls, transport::Transport};
use crate::{body::Body, error::Error};

/// How often idle connections are looked at.
const SWEEP: Duration = Duration::from_secs(1);

/// So many seconds before its server closes it, an idle connection is used no more. The clock of
/// the pool counts whole ones, so two are at least one.
const KEPT_MARGIN: u32 = 2;

/// A core's pool.
pub(super) struct Connector {
    transport: Transport,
    /// Seconds since the pool was made, counted by the sweeper: a call reads no clock.
    seconds: AtomicU32,
    /// Only this core locks it, so it is never contended.
    pools: Mutex<HashMap<u64, Pool, RandomState>>,
}

struct Pool {
    /// Whose connections they are. When the last who knows the address lets go of it, they go too.
    of: Weak<Peer>,
    /// The one used last is taken first, so that the rest can go.
    idle: Vec<Idle>,
    /// Shared by any number of calls at once.
    shared: Option<http2::SendRequest<Body>>,
    /// Held while a connection that may become the shared one is made.
    dialing: Arc<tokio::sync::Mutex<()>>,
}

struct Idle {
    connection: Box<H1>,
    since: u32,
    keep: u32,
}

/// A connection a call may use.
pub(super) enum Lease {
    Own(Box<H1>),
    Shared(http2::SendRequest<Body>),
}

/// What a server says with `Keep-Alive` of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Nothing has been answered on it.
    Unasked,
    Untold,
    Seconds(u32),
}

/// An HTTP/1 connection and the means to send on it.
pub(super) struct H1 {
    pub sender: http1::SendRequest<Body>,
    /// How long its server said that it keeps it while it is unused.
    pub kept: Kept,
    /// `None` once it has closed.
    driver: Option<http1::Connection<TokioIo<Stream>, Body>>,
}

// === impl Connector ===

impl Connector {
    pub fn new(transport: Transport) -> Arc<Self> {
        let connector =
            Arc::new(Self { transport, seconds: AtomicU32::new(0), pools: Mutex::default() });
        #[allow(clippy::disallowed_methods, reason = "it ends when the connector is dropped")]
        tokio::spawn(sweep(Arc::downgrade(&connector)));
        connector
    }

    /// A connection to `peer` that is there already.
    pub fn reuse(&self, peer: &Peer) -> Option<Lease> {
        let mut pools = self.pools.lock();
        let pool = pools.get_mut(&peer.id)?;
        match &pool.shared {
            Some(shared) if !shared.is_closed() => return Some(Lease::Shared(shared.clone())),
            Some(_) => pool.shared = None,
            None => {}
        }
        let now = self.seconds.load(Ordering::Relaxed);
        let idle = pool.idle.pop()?;
        if now - idle.since > idle.keep {
            // Those below it have been idle for longer.
            pool.idle.clear();
            return None;
        }
        Some(Lease::Own(idle.connection))
    }

    /// A new connection to `peer`.
    pub async fn dial(&self, cluster: &Cluster, peer: &Arc<Peer>) -> Result<Lease, Error> {
        if !peer.endpoint.is_tls() {
            return self.connect(cluster, peer).await;
        }
        // The first calls of a core would otherwise each open what one connection can carry.
        let dialing =
            self.pools.lock().entry(peer.id).or_insert_with(|| Pool::of(peer)).dialing.clone();
        let _turn = dialing.lock().await;
        match self.reuse(peer) {
            Some(lease) => Ok(lease),
            None => self.connect(cluster, peer).await,
        }
    }

    async fn connect(&self, cluster: &Cluster, peer: &Arc<Peer>) -> Result<Lease, Error> {
        let scene = cluster.scene(Some(&peer.endpoint));
        let own = cluster.config().tls.as_ref().filter(|_| peer.endpoint.is_tls());
        let by_system = peer.endpoint.is_tls() && !own.is_some_and(PeerTls::has_ca);
        let Some(transport) = self.transport.of(by_system) else {
            return Err(scene.unsendable("the roots were not loaded".to_owned()));
        };
        let dressed = own.map(|own| own.dress(&peer.dial));
        let dial = dressed.as_ref().unwrap_or(&peer.dial);
        // Not pingora's own timeouts: their thread wakes up a hundred times a second for ever.
        let limit = cluster.config().connect_timeout;
        let stream = match timeout(limit, transport.new_stream(dial)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                cluster.eject(peer);
                return Err(scene.connect(error));
            }
            Err(late) => {
                cluster.eject(peer);
                return Err(scene.connect_late(late));
            }
        };
        cluster.restore(peer);
        let max_header_bytes = cluster.config().max_header_bytes;
        let lease = if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            let (sender, driver) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(Duration::from_secs(20))
                .keep_alive_timeout(cluster.config().connect_timeout)
                .max_header_list_size(u32::try_from(max_header_bytes).unwrap_or(u32::MAX))
                .adaptive_window(true)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|error| scene.unsent(error))?;
            #[allow(clippy::disallowed_methods, reason = "it ends with the last of its senders")]
            tokio::spawn(driver);
            self.pools.lock().entry(peer.id).or_insert_with(|| Pool::of(peer)).shared =
                Some(sender.clone());
            Lease::Shared(sender)
        } else {
            let (sender, driver) = http1::Builder::new()
                .max_header_size(max_header_bytes)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|error| scene.unsent(error))?;
            Lease::Own(Box::new(H1 { sender, kept: Kept::Unasked, driver: Some(driver) }))
        };
        Ok(lease)
    }

    /// Takes a connection back if it can carry another call.
    pub fn give_back(&self, cluster: &Cluster, peer: &Arc<Peer>, mut connection: Box<H1>) {
        if !connection.is_idle() {
            return;
        }
        let config = cluster.config();
        let since = self.seconds.load(Ordering::Relaxed);
        let keep = u32::try_from(config.idle_timeout.as_secs()).unwrap_or(u32::MAX);
        // A request that is written just as its server closes is lost, and may not be sent again:
        // so not even near that moment.
        let keep = match connection.kept {
            Kept::Seconds(seconds) => match seconds.checked_sub(KEPT_MARGIN) {
                Some(less) => keep.min(less),
                None => return,
            },
            Kept::Unasked | Kept::Untold => keep,
        };
        let mut pools = self.pools.lock();
        let pool = pools.entry(peer.id).or_insert_with(|| Pool::of(peer));
        if pool.idle.len() < config.pool_size {
            pool.idle.push(Idle { connection, since, keep });
        }
    }

    /// Lets go of a shared connection that took a call and did not send it.
    pub fn forget_shared(&self, peer: &Peer) {
        if let Some(pool) = self.pools.lock().get_mut(&peer.id) {
            pool.shared = None;
        }
    }

    pub fn idle(&self, peer: u64) -> usize {
        self.pools.lock().get(&peer).map_or(0, |pool| pool.idle.len())
    }

    /// Addresses that connections are kept to.
    #[cfg(test)]
    pub fn pools(&self) -> usize {
        self.pools.lock().len()
    }

    /// Drops what is too old or was closed by the other side, and the pools of peers that are
    /// gone.
    fn sweep(&self) {
        let now = self.seconds.fetch_add(1, Ordering::Relaxed) + 1;
        self.pools.lock().retain(|_, pool| {
            if pool.of.strong_count() == 0 {
                return false;
            }
            pool.idle.retain_mut(|idle| now - idle.since <= idle.keep && idle.connection.is_idle());
            if pool.shared.as_ref().is_some_and(http2::SendRequest::is_closed) {
                pool.shared = None;
            }
            !pool.idle.is_empty() || pool.shared.is_some() || Arc::strong_count(&pool.dialing) > 1
        });
    }
}

// === impl Pool ===

impl Pool {
    fn of(peer: &Arc<Peer>) -> Self {
        Self { of: Arc::downgrade(peer), idle: Vec::new(), shared: None, dialing: Arc::default() }
    }
}

async fn sweep(connector: Weak<Connector>) {
    let mut seconds = tokio::time::interval(SWEEP);
    loop {
        seconds.tick().await;
        match connector.upgrade() {
            Some(connector) => connector.sweep(),
            None => return,
        }
    }
}

// === impl Kept ===

impl Kept {
    /// Of the first answer on a connection; the others say the same.
    pub fn told(headers: &HeaderMap) -> Self {
        let value = headers.get("keep-alive").and_then(|value| value.to_str().ok());
        let timeout = value.into_iter().flat_map(|value| value.split(',')).find_map(|part| {
            let (name, seconds) = part.split_once('=')?;
            name.trim().eq_ignore_ascii_case("timeout").then(|| seconds.trim().parse().ok())?
        });
        timeout.map_or(Kept::Untold, Kept::Seconds)
    }
}

// === impl H1 ===

impl H1 {
    /// Reads and writes what can be read and written now. Once this is ready the connection has
    /// closed, and whatever waited for it has its answer.
    pub fn poll_drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(driver) = &mut self.driver {
            if Pin::new(driver).poll(cx).is_pending() {
                return Poll::Pending;
            }
            // Errors reach the request or the body they belong to.
            self.driver = None;
        }
        Poll::Ready(())
    }

    /// Whether it is open and can take a request.
    fn is_idle(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.poll_drive(&mut cx).is_pending() && self.sender.is_ready()
    }
}
