//! The two servers that the demo puts behind the gateway: a test platform and an order server.
//!
//! They are real servers, spoken to over TCP like anybody else's, and written to be read by
//! those who build a provider of their own. They know nothing of the gateway: only the ground
//! is imported here.

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
