//! The gateway from outside: one binary, a file per behaviour.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod demo;
mod process_support;
mod shipped;
mod tidy;
