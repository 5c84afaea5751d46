//! Where requests come in: sockets, TLS, HTTP connections, and who may reach them at all.
//!
//! It knows paths, hosts and origins. It does not know keys, employees or MCP: what a request
//! says is read further in.

mod client_addr;
mod connection;
mod entrance;
mod greeting;
mod guard;
mod listener;
mod process;
mod refusal;
mod router;
mod server;
mod shutdown;
mod tls;

#[cfg(test)]
mod tests;

pub use client_addr::TrustedProxies;
pub use guard::{Guard, GuardConfig, GuardLayer};
pub use listener::{ListenConfig, ListenError, Listener};
pub use process::{HostConfig, HostError, Sockets, host};
pub use refusal::refuse;
pub use router::Router;
pub use server::{Core, Hold, ServerConfig, Stats, Workers, serve};
pub use shutdown::{Drained, Phase, Shutdown};
pub use tls::{Tls, TlsError, TlsFiles};
