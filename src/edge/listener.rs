//! A listening socket: bound here, or taken over from the process before this one.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    os::fd::{AsRawFd, FromRawFd, RawFd},
};

use tokio::net::{TcpListener, TcpSocket};

use super::tls::Tls;

/// Where to listen.
#[derive(Debug, Clone)]
pub struct ListenConfig {
    pub address: SocketAddr,
    /// Connections that the kernel keeps until they are accepted. Default 1024.
    pub backlog: u32,
    /// TLS for this listener; without it, plain HTTP.
    pub tls: Option<Tls>,
}

impl ListenConfig {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, backlog: 1024, tls: None }
    }
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {0}: another process does already")]
    InUse(SocketAddr),
    #[error("cannot listen on {0}: ports below 1024 need a privilege this process does not have")]
    Privileged(SocketAddr),
    #[error("cannot listen on {0}: this machine has no such address")]
    NoSuchAddress(SocketAddr),
    #[error("cannot listen on {address}: {source}")]
    Other { address: SocketAddr, source: io::Error },
}

/// A socket that takes connections.
#[derive(Debug)]
pub struct Listener {
    socket: StdListener,
    address: SocketAddr,
    tls: Option<Tls>,
}

impl Listener {
    /// Binds a new socket.
    pub fn bind(config: &ListenConfig) -> Result<Self, ListenError> {
        let told = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse(config.address),
            io::ErrorKind::PermissionDenied => ListenError::Privileged(config.address),
            io::ErrorKind::AddrNotAvailable => ListenError::NoSuchAddress(config.address),
            _ => ListenError::Other { address: config.address, source },
        };
        let socket = open(config).map_err(told)?;
        Self::of(socket, config).map_err(told)
    }

    /// Takes over a socket that the process before this one listened on.
    ///
    /// The number comes from pingora's hand-over (`process.rs`), where the kernel made it for
    /// this process together with the message that carried it.
    #[allow(unsafe_code, reason = "a file descriptor is a number until somebody owns it")]
    pub(super) fn inherit(fd: RawFd, config: &ListenConfig) -> Result<Self, ListenError> {
        // SAFETY: `fd` is open, since the kernel created it for this process when it received
        // the hand-over, and nothing closes it: pingora only keeps its number, to pass it on.
        // It is owned by nobody else: `Sockets::bind` takes over each address only once.
        let socket = unsafe { StdListener::from_raw_fd(fd) };
        Self::of(socket, config)
            .map_err(|source| ListenError::Other { address: config.address, source })
    }

    fn of(socket: StdListener, config: &ListenConfig) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address, tls: config.tls.clone() })
    }

    /// The address it really has, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether only programs on this machine reach it.
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// The bare socket, for whoever serves something else on it.
    pub fn into_std(self) -> StdListener {
        self.socket
    }

    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Another handle to the same socket, for the runtime that this is called on.
    pub(super) fn share(&self) -> io::Result<TcpListener> {
        TcpListener::from_std(self.socket.try_clone()?)
    }
}

/// The standard library's own listener has a fixed, small backlog, so tokio's is used; it wants
/// a runtime around it while it binds.
fn open(config: &ListenConfig) -> io::Result<StdListener> {
    let bind = || {
        let socket = match config.address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        socket.set_reuseaddr(true)?;
        socket.bind(config.address)?;
        socket.listen(config.backlog)?.into_std()
    };
    if tokio::runtime::Handle::try_current().is_ok() {
        return bind();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    bind()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(address: &str) -> ListenConfig {
        ListenConfig::new(address.parse().unwrap())
    }

    #[test]
    fn a_taken_port_is_named() {
        let first = Listener::bind(&on("127.0.0.1:0")).unwrap();
        let error = Listener::bind(&ListenConfig::new(first.address())).unwrap_err();
        assert!(matches!(error, ListenError::InUse(address) if address == first.address()));
    }

    #[test]
    fn an_address_of_another_machine_is_named() {
        let error = Listener::bind(&on("192.0.2.1:0")).unwrap_err();
        assert!(matches!(error, ListenError::NoSuchAddress(_)), "{error}");
    }

    #[tokio::test]
    async fn loopback_is_told_from_the_rest() {
        assert!(Listener::bind(&on("127.0.0.1:0")).unwrap().is_loopback());
        assert!(!Listener::bind(&on("0.0.0.0:0")).unwrap().is_loopback());
    }
}
