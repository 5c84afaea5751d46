//! The wire forms that clients and servers speak.
//!
//! Framing and spelling only: what a message is allowed to do is decided in the stack.

pub mod header_value;
pub mod sse;
