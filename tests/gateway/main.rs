//! The gateway from outside: one binary, a file per behaviour.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod audit;
mod demo;
mod failures;
mod header_trust;
mod idempotency;
mod lifecycle;
mod process_support;
mod rate_limit;
mod sessions;
mod shipped;
mod tenant_filter;
mod tidy;
mod tool_naming;
