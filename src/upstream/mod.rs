//! The bottom of the stack: requests leave here, and answers come back.
//!
//! pingora dials (peers, TLS, balancing, health), hyper speaks HTTP. Nothing above this module
//! sees a type of either, and nothing in it knows MCP: it sends bytes to a named upstream and
//! says honestly whether they may have arrived.

mod body;
mod breaker;
mod cluster;
mod connector;
mod decode;
mod directory;
mod egress;
mod endpoint;
mod exchange;
mod failure;
mod health;
mod peer_tls;
mod reach;
mod retry;
mod transport;

#[cfg(test)]
mod tests;

pub use body::{Origin, UpstreamBody};
pub use breaker::{Breaker, BreakerConfig, BreakerState, Probe};
pub use cluster::{Cluster, ClusterConfig, ClusterError};
pub use egress::{
    Allowed, Class, Denied, Egress, EgressConfig, Guard, PortRange, Ports, Resolve, Resolving,
    SystemResolver, Why,
};
pub use endpoint::{Endpoint, EndpointError};
pub use failure::{EGRESS_DENIED, Failure};
pub use peer_tls::{ClientFiles, PeerFile, PeerTls, PeerTlsError, PeerTlsFiles, Validity};
pub use reach::{Carrier, Carrying, Destination, Place, Reach};
pub use retry::{MOST as MOST_RETRIES, Retries, RetryConfig, Tried};
pub use transport::{Transport, Trust};

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tower::Service;

use self::connector::Connector;
use crate::{body::Body, error::Error};

/// A request that may leave the gateway.
pub struct Outgoing {
    pub to: Destination,
    /// What follows the path of the upstream's URL: `""`, `"/tools/call"`, … Of a cluster alone:
    /// another destination has one path.
    pub suffix: &'static str,
    /// Method, headers and body. The URI is ignored: the endpoint that is chosen has its own.
    pub request: http::Request<Body>,
    /// Where earlier attempts of the call went: another address comes first. This one is added.
    pub tried: Option<Arc<Tried>>,
}

/// One core's way to every upstream: its own idle connections, shared with no other core.
///
/// Clones share them, so a clone is what a request needs.
#[derive(Clone)]
pub struct Upstreams(Arc<Connector>);

impl Upstreams {
    /// Must be called on the runtime of the core that will use it: what reads and writes the
    /// connections runs there.
    pub fn new(transport: Transport) -> Self {
        Self(Connector::new(transport))
    }

    /// Idle connections to an upstream that this core keeps at the moment.
    pub fn idle(&self, cluster: &Cluster) -> usize {
        cluster.peers().iter().map(|peer| self.0.idle(peer.id)).sum()
    }
}

impl Service<Outgoing> for Upstreams {
    type Response = http::Response<UpstreamBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, outgoing: Outgoing) -> Self::Future {
        let Outgoing { to, suffix, request, tried } = outgoing;
        match to {
            Destination::Cluster(cluster) => {
                Box::pin(exchange::send(self.0.clone(), cluster, suffix, request, tried))
            }
            Destination::Place(place) => {
                Box::pin(exchange::send_to(self.0.clone(), place, request))
            }
            Destination::Carrier(carrier) => {
                let carrying = carrier.carry(self.clone(), request);
                Box::pin(async { Ok(carrying.await?.map(UpstreamBody::carried)) })
            }
        }
    }
}
