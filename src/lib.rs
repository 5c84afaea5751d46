//! Hangu: an enterprise gateway for the Model Context Protocol.

// The ground: what everything else may use.
pub mod body;
pub mod clock;
pub mod error;
pub mod fault;
pub mod mcp;
pub mod model;
pub mod yaml;

// Around it.
pub mod cli;
pub mod config;

// Engines: what the layers decide with.
pub mod policy;
