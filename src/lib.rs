//! Hangu: an enterprise gateway for the Model Context Protocol.

// The ground: what everything else may use.
pub mod body;
pub mod clock;
pub mod error;
pub mod mcp;
pub mod model;

// Where requests come in, and where they leave.
pub mod edge;
pub mod upstream;
