//! Hangu: an enterprise gateway for the Model Context Protocol.

// The ground: what everything else may use.
pub mod body;
pub mod clock;
pub mod error;
pub mod mcp;
pub mod model;

// Around it.
pub mod demo;
