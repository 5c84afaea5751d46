//! The gateway from outside: one binary, a file per behaviour.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test's thread serves nobody else")]

mod audit;
mod browser_edge;
mod check_table;
mod continuation;
mod demo;
mod durable;
mod error_mapping;
mod failures;
mod header_trust;
mod http_hop;
mod id_echo;
mod idempotency;
mod json_fidelity;
mod lifecycle;
mod message_shape;
mod negotiation;
mod param_headers;
mod process_support;
mod rate_limit;
mod sessions;
mod shipped;
mod sse_framing;
mod stream_lifecycle;
mod support;
mod tenant_filter;
mod tidy;
mod timeout_cancel;
mod tool_naming;
