//! Which addresses may be dialled at all.
//!
//! A guard is asked when a name has been looked up, of every address that came back, and peers
//! are made of those alone that it lets pass. A peer is a fixed address: nothing looks a name up
//! between the check and the connection, and nothing is checked on the path of a call.

mod class;
mod entry;
mod resolve;
#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::sync::Semaphore;

use super::endpoint::Endpoint;

pub use class::Class;
pub use entry::{Allowed, PortRange, Ports};
pub use resolve::{Resolve, Resolving, SystemResolver};

/// Look-ups of public names at once: each holds a thread until it is answered or given up, and
/// whoever keeps a slow name server must not hold them all.
const LOOKUPS: usize = 32;

/// Addresses of a public name that are looked at: whoever owns it says how many there are.
const MOST_ADDRESSES: usize = 32;

/// What the operator says of egress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressConfig {
    /// What may be dialled besides.
    pub allow: Vec<Allowed>,
    /// Of public servers.
    pub ports: Ports,
    /// How long what a name stands for is used before it is looked up again.
    pub resolve: Duration,
}

/// What may be dialled, and how names are looked up: one for the whole process.
#[derive(Debug)]
pub struct Egress {
    config: EgressConfig,
    resolver: Arc<dyn Resolve>,
    lookups: Arc<Semaphore>,
}

/// What stands between a server's names and its connections.
#[derive(Debug, Clone)]
pub struct Guard {
    egress: Arc<Egress>,
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Written,
    Public,
}

/// Why an address is not dialled. For the operator: it names the address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Denied {
    pub host: Arc<str>,
    pub port: u16,
    /// Where the host leads, if it was looked at.
    pub address: Option<IpAddr>,
    pub why: Why,
    /// Somebody else than the operator named the host.
    is_brought: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Class(Class),
    Port,
}

// === impl EgressConfig ===

impl Default for EgressConfig {
    fn default() -> Self {
        Self { allow: Vec::new(), ports: Ports::default(), resolve: Duration::from_secs(30) }
    }
}

// === impl Egress ===

impl Egress {
    pub fn new(config: EgressConfig) -> Arc<Self> {
        Self::resolving(config, Arc::new(SystemResolver))
    }

    /// With another resolver than the system's.
    pub fn resolving(config: EgressConfig, resolver: Arc<dyn Resolve>) -> Arc<Self> {
        Arc::new(Self { config, resolver, lookups: Arc::new(Semaphore::new(LOOKUPS)) })
    }

    /// Whether an entry names this host or address, at this port.
    fn allows(&self, host: &str, port: u16, address: IpAddr) -> bool {
        self.config.allow.iter().any(|entry| {
            entry.port().is_none_or(|open| open == port) && entry.names(host, Some(address))
        })
    }

    /// Whether a public server may be at this port: an entry opens the port that it names.
    fn allows_port(&self, host: &str, port: u16, address: Option<IpAddr>) -> bool {
        let opens = |entry: &Allowed| entry.port() == Some(port) && entry.names(host, address);
        self.config.ports.contains(port) || self.config.allow.iter().any(opens)
    }

    /// Whether an address that is not known yet might be allowed this port.
    fn may_allow_port(&self, port: u16) -> bool {
        let opens = |entry: &Allowed| entry.port() == Some(port);
        self.config.ports.contains(port) || self.config.allow.iter().any(opens)
    }
}

// === impl Guard ===

impl Guard {
    /// Of a server that the operator wrote down, which allows its own hosts and ports. An
    /// address may be any; a name may lead to any but those that no server is at in good faith:
    /// cloud metadata, link-local and the like.
    pub fn written(egress: &Arc<Egress>) -> Self {
        Self { egress: egress.clone(), target: Target::Written }
    }

    /// Of a server that somebody else named: only what is on the open Internet, and what
    /// `egress.allow` names.
    pub fn public(egress: &Arc<Egress>) -> Self {
        Self { egress: egress.clone(), target: Target::Public }
    }

    /// Between two look-ups of a name.
    pub fn resolve_interval(&self) -> Duration {
        self.egress.config.resolve
    }

    /// What can be said of an endpoint before anything is looked up or dialled.
    ///
    /// # Errors
    /// It will never be dialled.
    pub fn admits(&self, endpoint: &Endpoint) -> Result<(), Denied> {
        if let Some(address) = endpoint.address() {
            return self.judge(endpoint, address);
        }
        if self.target == Target::Written {
            return Ok(());
        }
        if !self.egress.may_allow_port(endpoint.port()) {
            return Err(self.denied(endpoint, None, Why::Port));
        }
        if is_localhost(name(endpoint)) {
            let judged = self.judge(endpoint, Ipv4Addr::LOCALHOST.into());
            return judged.or_else(|_| self.judge(endpoint, Ipv6Addr::LOCALHOST.into()));
        }
        Ok(())
    }

    /// Whether an endpoint may be dialled at an address that it stands for.
    pub(super) fn judge(&self, endpoint: &Endpoint, address: IpAddr) -> Result<(), Denied> {
        let (host, port) = (name(endpoint), endpoint.port());
        let class = Class::of(address);
        let passes = match self.target {
            Target::Written => endpoint.address().is_some() || !class.is_never_meant(),
            Target::Public => {
                if !self.egress.allows_port(host, port, Some(address)) {
                    return Err(self.denied(endpoint, Some(address), Why::Port));
                }
                class == Class::Global
            }
        };
        if passes || self.egress.allows(host, port, address) {
            return Ok(());
        }
        Err(self.denied(endpoint, Some(address), Why::Class(class)))
    }

    fn denied(&self, endpoint: &Endpoint, address: Option<IpAddr>, why: Why) -> Denied {
        let (host, port) = (endpoint.host().clone(), endpoint.port());
        Denied { host, port, address, why, is_brought: self.target == Target::Public }
    }

    /// Asks the resolver, once.
    pub(super) async fn look_up(&self, endpoint: &Endpoint) -> io::Result<Vec<SocketAddr>> {
        let port = endpoint.port();
        let resolve = || self.egress.resolver.resolve(endpoint.host().clone(), port);
        let mut found = match self.target {
            Target::Written => resolve().await?,
            Target::Public => {
                let permit = self.egress.lookups.clone().acquire_owned().await;
                let permit = permit.map_err(io::Error::other)?;
                let looking = resolve();
                // The look-up's thread goes on when nobody waits for it any more, so the permit
                // goes with it.
                #[allow(clippy::disallowed_methods, reason = "it ends with the look-up")]
                let looking = tokio::spawn(async move {
                    let found = looking.await;
                    drop(permit);
                    found
                });
                let mut found = looking.await.map_err(io::Error::other)??;
                found.truncate(MOST_ADDRESSES);
                found
            }
        };
        found.iter_mut().for_each(|address| address.set_port(port));
        Ok(found)
    }
}

/// The host without the dot that says that a name is complete.
fn name(endpoint: &Endpoint) -> &str {
    let host = &**endpoint.host();
    host.strip_suffix('.').unwrap_or(host)
}

/// Names of this machine by definition, which some resolvers ask the world for (RFC 6761, 6.3).
fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

// === impl Denied ===

impl Denied {
    /// What callers may be told, and what is to be done: of a host that one of them brought, and
    /// nothing of where it leads. What an operator has named is nobody else's to know.
    pub fn told(&self) -> Option<String> {
        let Self { host, port, .. } = self;
        let host = if host.contains(':') && !host.starts_with('[') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        self.is_brought.then(|| {
            format!(
                "This gateway may not call `{host}`: of servers that employees bring it calls \
                 those on the open Internet, at the ports that are open for them. Bring another \
                 address, or ask whoever runs the gateway to open `{host}` (`egress.allow`)."
            )
        })
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, address, why, .. } = self;
        match (why, address) {
            (Why::Port, _) => write!(f, "port {port} of `{host}` is none of `egress.ports`"),
            (Why::Class(class), Some(address)) if address.to_string() == **host => {
                write!(f, "{address} (port {port}) is a {class} address")
            }
            (Why::Class(class), Some(address)) => {
                write!(f, "`{host}` (port {port}) stands for {address}, a {class} address")
            }
            (Why::Class(class), None) => write!(f, "`{host}` stands for a {class} address"),
        }?;
        f.write_str(", and no entry of `egress.allow` names it")
    }
}
