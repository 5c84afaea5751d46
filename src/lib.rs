//! Hangu: an enterprise gateway for the Model Context Protocol.

// The ground: what everything else may use.
pub mod body;
pub mod clock;
pub mod error;
pub mod json;
pub mod mcp;
pub mod model;

// What the wire looks like.
pub mod dialect;

// The engines: what the layers decide with.
pub mod registry;
