//! Dialects: what calls and replies look like on the wire, on either side.
//!
//! Pure functions over bytes and heads: no sockets, no decisions about who may do what. The
//! middle of the gateway knows none of them.

pub mod declared;
pub mod downgrade;
pub mod fault;
pub mod header_value;
pub mod jsonrpc;
pub mod mcp_lite;
pub mod north;
pub mod notices;
pub mod questions;
pub mod request;
pub mod south;
pub mod sse;
pub mod streamable_http;
pub mod streamable_http_session;
pub mod task;
pub mod uris;

/// The gateway as `serverInfo` and `clientInfo` name it.
pub const SERVER_INFO: &str =
    concat!("{\"name\":\"hangu\",\"version\":\"", env!("CARGO_PKG_VERSION"), "\"}");

/// `serverInfo` as a member of a result's `_meta`.
pub const SERVER_INFO_MEMBER: &str = concat!(
    "\"io.modelcontextprotocol/serverInfo\":{\"name\":\"hangu\",\"version\":\"",
    env!("CARGO_PKG_VERSION"),
    "\"}"
);
