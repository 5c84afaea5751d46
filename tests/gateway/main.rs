//! The gateway from outside: one binary, a file per behaviour.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test's thread serves nobody else")]

mod browser_edge;
mod check_table;
mod error_mapping;
mod http_hop;
mod id_echo;
mod json_fidelity;
mod message_shape;
mod negotiation;
mod shipped;
mod sse_framing;
mod stream_lifecycle;
mod support;
mod tidy;
mod timeout_cancel;
