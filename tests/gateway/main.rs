//! The gateway from outside: one binary, a file per behaviour.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod check_table;
mod id_echo;
mod json_fidelity;
mod message_shape;
mod negotiation;
mod shipped;
mod support;
mod tidy;
