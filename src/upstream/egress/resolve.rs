//! Names to addresses: the system's resolver, or whatever a program puts in its place.
//!
//! It judges nothing: what it answers is looked at by whoever asked, each time.

use std::{fmt, future::Future, io, net::SocketAddr, pin::Pin, sync::Arc};

/// The answer of a resolver, when it comes.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Turns a name into addresses. There is one in a process, and one look-up for each connection
/// that may follow: no name is looked up again between its check and its use.
pub trait Resolve: fmt::Debug + Send + Sync + 'static {
    /// What `host` stands for, with this port.
    fn resolve(&self, host: Arc<str>, port: u16) -> Resolving;
}

/// The system's: `/etc/hosts`, the name service switch, DNS.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: Arc<str>, port: u16) -> Resolving {
        Box::pin(async move { Ok(tokio::net::lookup_host((&*host, port)).await?.collect()) })
    }
}
