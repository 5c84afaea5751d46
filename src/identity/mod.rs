//! Who is calling: keys, tokens, employees and sessions.
//!
//! It reads no header and no file. What comes in was taken from a request by a layer, and what
//! it is held against was read from the configuration by the application.

pub mod api_key;
pub mod cursor;
pub mod seal;
pub mod session;
pub mod sso;
pub mod state;
pub mod task;
pub mod ticket;
pub mod token;
mod xaes;

#[cfg(test)]
mod vectors;
