//! Hangu: an enterprise gateway for the Model Context Protocol.

// The ground: what everything else may use.
pub mod body;
pub mod clock;
pub mod error;
pub mod fault;
pub mod json;
pub mod mcp;
pub mod model;
pub mod yaml;

// What the wire looks like, on both sides.
pub mod dialect;

// The engines: what the layers decide with.
pub mod adapt;
pub mod approval;
pub mod audit;
pub mod credential;
pub mod idempotency;
pub mod identity;
pub mod limit;
pub mod policy;
pub mod registry;
pub mod steps;

// The path of a call, from the socket to the server.
pub mod channel;
pub mod edge;
pub mod stack;
pub mod upstream;

// Around it.
pub mod admin;
pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod demo;
pub mod discovery;
pub mod store;
pub mod telemetry;
