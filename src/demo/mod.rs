//! The demo: a gateway, and the two servers that it stands in front of, a test platform and an
//! order server.
//!
//! These are real servers, spoken to over TCP like anybody else's, and written to be read by
//! those who build a provider of their own. They know nothing of the gateway; only `gateway.rs`
//! does.

pub mod gateway;
mod http;
mod journal;
mod mcp_server;
pub mod orders;
pub mod platform;
mod provider;

#[cfg(test)]
mod testing;

pub use http::{Running, StartError};
pub use journal::{Entry, Journal};
