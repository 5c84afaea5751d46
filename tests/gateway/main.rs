//! The gateway from outside: one binary, a file per behaviour.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test's thread serves nobody else")]

mod aggregation;
mod argument_rules;
mod audit;
mod batches;
mod browser_edge;
mod check_table;
mod continuation;
mod demo;
mod durable;
mod error_mapping;
mod error_table;
mod failures;
mod families;
mod fuzz;
mod header_trust;
mod http_hop;
mod id_echo;
mod idempotency;
mod idle_streams;
mod isolation;
mod json_fidelity;
mod legacy_sse;
mod lifecycle;
mod message_shape;
mod negotiation;
mod notices;
mod pagination;
mod param_headers;
mod pins;
mod policy_tools;
mod process_support;
mod questions;
mod rate_limit;
mod reload;
mod resume;
mod schema_passthrough;
mod sessions;
mod shipped;
mod slow_readers;
mod soak;
mod sse_framing;
mod stdio;
mod stdio_carrier;
mod stdio_server;
mod stream_lifecycle;
mod support;
mod tasks;
mod tenant_filter;
mod tidy;
mod timeout_cancel;
mod tokens;
mod tool_naming;
mod upstream_sessions;
