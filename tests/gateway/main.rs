//! The gateway from outside: one binary, a file per behaviour.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod id_echo;
mod message_shape;
mod negotiation;
mod shipped;
mod support;
mod tidy;
