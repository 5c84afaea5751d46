//! Servers that are spoken to over one long-lived channel, which carries many requests in both
//! directions at once: a child process (stdio), or an event stream with an address to post to
//! (HTTP+SSE, 2024-11-05).
//!
//! Towards the layers above, each is a server of Streamable HTTP (`upstream::Carrier`): a POST is
//! answered with the events of its own request, a GET with those of none, `initialize` opens a
//! channel and names it by a session id, a DELETE ends it, and a channel that is gone is 404, so
//! that the layer that keeps sessions opens another. Who may call what, and what a message says
//! beyond whose it is, is not known here.

mod calls;
mod http_sse;
mod mailbox;
mod message;
mod process;
mod reply;
mod runtime;

pub use http_sse::{HttpSse, HttpSseConfig};
pub use process::{EnvValue, ProcessConfig, Processes};
pub use runtime::Channels;
