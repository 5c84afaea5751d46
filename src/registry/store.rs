//! What the registry asks of a store: definitions of tools that somebody approved.
//!
//! Requests are queued at once and answered through a callback once they are durable.

use std::sync::Arc;

use bytes::Bytes;

use crate::model::server::UpstreamName;

/// Told how a request ended, on a thread of the store's or, where there is no room in its queue,
/// at once.
pub type Then<T> = Box<dyn FnOnce(Result<T, StoreFault>) + Send>;

/// Why a request was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// Nothing was written.
    #[error("the store cannot be used")]
    Unavailable,
    /// It was lost on the way: the store may have written it, or not.
    #[error("the store did not say whether it wrote")]
    Unclear,
}

/// The definition of a tool that somebody approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    pub upstream: UpstreamName,
    pub tool: Arc<str>,
    /// The JSON object, as its server sent it.
    pub definition: Bytes,
    /// The name of whoever did.
    pub by: Box<str>,
    pub at_ms: u64,
}

/// Where approvals of definitions are kept: of each tool the last one.
pub trait PinStore: Send + Sync + 'static {
    fn approve(&self, approved: Approved, then: Then<()>);
}
