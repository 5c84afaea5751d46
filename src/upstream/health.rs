//! Whether an upstream's addresses take connections.
//!
//! Runs on the control runtime, never on a core that serves calls. What calls themselves find
//! out (a refused connection) is noted in `cluster.rs`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use pingora::{ErrorType, upstreams::peer::HttpPeer};
use pingora_load_balancing::{Backend, health_check::HealthCheck};
use tokio::time::{MissedTickBehavior, timeout};

use super::{cluster::Cluster, directory::address_of, transport::Transport};

impl Cluster {
    /// Looks names up and checks addresses at the configured pace, for as long as it is polled.
    ///
    /// To be spawned on the control runtime and aborted with it. The first round begins at once.
    pub async fn watch(self: Arc<Self>) {
        let every = |interval| {
            let mut rounds = tokio::time::interval(interval);
            rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            rounds
        };
        let mut names = every(self.config().resolve_interval);
        let mut checks = every(self.config().health_interval);
        loop {
            tokio::select! {
                biased;
                _ = names.tick() => self.refresh().await,
                _ = checks.tick() => self.check().await,
            }
        }
    }
}

/// Opens a TCP connection and closes it again. For TLS endpoints too: a handshake every few
/// seconds from every replica is load, and a broken certificate shows in the calls.
pub(super) struct TcpCheck {
    upstream: Arc<str>,
    transport: Transport,
    timeout: Duration,
}

impl TcpCheck {
    pub fn new(upstream: Arc<str>, transport: Transport, timeout: Duration) -> Self {
        Self { upstream, transport, timeout }
    }

    async fn dial(&self, address: SocketAddr) -> pingora::Result<()> {
        let peer = HttpPeer::new(address, false, String::new());
        match timeout(self.timeout, self.transport.plain().new_stream(&peer)).await {
            Ok(dialed) => dialed.map(drop),
            Err(_) => Err(pingora::Error::new(ErrorType::ConnectTimedout)),
        }
    }
}

#[async_trait]
impl HealthCheck for TcpCheck {
    async fn check(&self, target: &Backend) -> pingora::Result<()> {
        match address_of(target) {
            Some(address) => self.dial(address).await,
            None => Ok(()),
        }
    }

    async fn health_status_change(&self, target: &Backend, healthy: bool) {
        let (upstream, address) = (&self.upstream, &target.addr);
        if healthy {
            tracing::info!(upstream = %upstream, %address, "An upstream's address is back.");
        } else {
            tracing::warn!(
                upstream = %upstream,
                %address,
                "An upstream's address takes no connections."
            );
        }
    }

    fn health_threshold(&self, _success: bool) -> usize {
        1
    }
}
