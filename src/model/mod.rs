//! The middle of the gateway: calls, replies and who they belong to, free of any dialect.

pub mod address;
pub mod argument_facts;
pub mod call;
pub mod call_source;
pub mod caller;
pub mod change;
pub mod exchange;
pub mod header;
pub mod ids;
pub mod keys;
pub mod mask;
pub mod network;
pub mod quality;
pub mod quota;
pub mod reply;
pub mod sealed;
pub mod sensitive;
pub mod server;
pub mod server_key;
pub mod stored;
pub mod template;
pub mod trace;
