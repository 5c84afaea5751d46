//! How an upstream is reached: at the addresses of a cluster, or by something else that takes
//! requests as an HTTP server would.
//!
//! What that something is stands above this module; which of the two an upstream turned out to
//! want is remembered here.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{Request, Response, uri};

use super::{Upstreams, cluster::Cluster, directory::Peer};
use crate::{body::Body, error::Error};

/// The answer of a carrier, when it comes.
pub type Carrying = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>;

/// Takes requests as a server of Streamable HTTP would, and carries them by other means.
pub trait Carrier: Send + Sync {
    /// `core` are the connections of the core that asks.
    fn carry(self: Arc<Self>, core: Upstreams, request: Request<Body>) -> Carrying;

    /// Whether it goes through a pipe and not over a network.
    fn is_pipe(&self) -> bool;

    /// Whether the last attempt to reach the server came about.
    fn healthy(&self) -> bool;
}

/// Where a request goes.
#[derive(Clone)]
pub enum Destination {
    /// Any address of a cluster.
    Cluster(Arc<Cluster>),
    /// One path at the very address that gave an earlier answer.
    Place(Place),
    Carrier(Arc<dyn Carrier>),
}

/// A path at one address of an upstream, as an answer of that address named it.
#[derive(Clone)]
pub struct Place {
    pub(super) cluster: Arc<Cluster>,
    pub(super) peer: Arc<Peer>,
    pub(super) path: uri::PathAndQuery,
}

/// The ways to an upstream, and the one in use.
pub struct Reach(Ways);

enum Ways {
    Cluster(Arc<Cluster>),
    Carrier(Arc<dyn Carrier>),
    Either { cluster: Arc<Cluster>, carrier: Arc<dyn Carrier>, carried: AtomicBool },
}

impl From<Arc<Cluster>> for Reach {
    fn from(cluster: Arc<Cluster>) -> Self {
        Self(Ways::Cluster(cluster))
    }
}

impl Reach {
    /// By a carrier, and nothing else.
    pub fn by(carrier: Arc<dyn Carrier>) -> Self {
        Self(Ways::Carrier(carrier))
    }

    /// At the cluster's addresses: by a carrier that dials them, or as plain HTTP. It begins as
    /// `carried` says, and goes over when the server turns out to want the other.
    pub fn either(cluster: Arc<Cluster>, carrier: Arc<dyn Carrier>, carried: bool) -> Self {
        Self(Ways::Either { cluster, carrier, carried: carried.into() })
    }

    /// Where the next request goes.
    pub fn destination(&self) -> Destination {
        match &self.0 {
            Ways::Carrier(carrier) => Destination::Carrier(carrier.clone()),
            Ways::Either { carrier, .. } if self.is_carried() => {
                Destination::Carrier(carrier.clone())
            }
            Ways::Cluster(cluster) | Ways::Either { cluster, .. } => {
                Destination::Cluster(cluster.clone())
            }
        }
    }

    /// The addresses, if it has any.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.0 {
            Ways::Cluster(cluster) | Ways::Either { cluster, .. } => Some(cluster),
            Ways::Carrier(_) => None,
        }
    }

    pub fn is_pipe(&self) -> bool {
        match &self.0 {
            Ways::Carrier(carrier) => carrier.is_pipe(),
            Ways::Cluster(_) | Ways::Either { .. } => false,
        }
    }

    pub fn is_carried(&self) -> bool {
        match &self.0 {
            Ways::Cluster(_) => false,
            Ways::Carrier(_) => true,
            Ways::Either { carried, .. } => carried.load(Ordering::Relaxed),
        }
    }

    /// Goes over to the other way; false where there is none.
    pub fn switch(&self, to_carrier: bool) -> bool {
        let Ways::Either { carried, .. } = &self.0 else { return false };
        carried.store(to_carrier, Ordering::Relaxed);
        true
    }

    /// Whether the server could be reached when that was tried last.
    pub fn healthy(&self) -> bool {
        match &self.0 {
            Ways::Cluster(cluster) | Ways::Either { cluster, .. } => cluster.healthy(),
            Ways::Carrier(carrier) => carrier.healthy(),
        }
    }
}
