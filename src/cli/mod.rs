//! Commands.

pub mod check;
pub mod init;
