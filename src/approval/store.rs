//! What the engine asks of a store of requests for approval.
//!
//! The engine decides; a store finds a request, lets the engine look at it and writes what comes
//! back, in one transaction. Requests are answered through a callback once the answer is durable.

use super::{Approval, ApprovalId, Bounds, DecideFault, Standing};
use crate::model::caller::TenantId;

/// Told how a request ended, on a thread of the store's.
pub type Then<T> = Box<dyn FnOnce(Result<T, StoreFault>) + Send>;

/// Given what is there, says what is to be written in its place, if anything, and the answer. It
/// may be asked more than once, where a transaction has to be repeated; the last time counts.
pub type Change<T> = Box<dyn FnMut(Option<Approval>) -> (Option<Approval>, T) + Send>;

/// Why a request was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// Nothing was written.
    #[error("the store cannot be used")]
    Unavailable,
    /// It was lost on the way: the store may have written it, or not.
    #[error("the store did not say whether it wrote")]
    Unclear,
    /// Nothing was written; what decides makes room, and so does time.
    #[error("as many requests for approval wait as may")]
    Full,
}

/// Whether there is room for one more request.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Of whoever asks ([`Subject::holder`](super::Subject::holder)).
    pub holder: [u8; 32],
    pub bounds: Bounds,
    pub now_ms: u64,
}

/// Which requests are meant.
#[derive(Debug, Clone, Default)]
pub struct Pick {
    /// `None`: of every tenant.
    pub tenant: Option<TenantId>,
    /// Only those that are older than this one.
    pub before: Option<ApprovalId>,
}

/// Where requests are kept.
pub trait ApprovalStore: Send + Sync + 'static {
    /// Changes the newest request of a binding ([`Subject::binding`](super::Subject::binding)),
    /// or puts another one after it, if there is room. Two who do so at once do it one after the
    /// other.
    fn ask(&self, binding: [u8; 32], room: Room, change: Change<Standing>, then: Then<Standing>);

    /// The newest request of a binding.
    fn newest(&self, binding: [u8; 32], then: Then<Option<Approval>>);

    /// Changes the request of an id.
    fn decide(
        &self,
        id: ApprovalId,
        change: Change<Result<Approval, DecideFault>>,
        then: Then<Result<Approval, DecideFault>>,
    );

    fn find(&self, id: ApprovalId, then: Then<Option<Approval>>);

    /// Some, the newest first, at most [`MAX_LISTED`].
    fn list(&self, pick: Pick, then: Then<Vec<Approval>>);

    /// Forgets what expired before a time. Gives how long each request had waited that nobody
    /// decided until now and no sweep has told of, in milliseconds.
    fn sweep(&self, now_ms: u64, before_ms: u64, then: Then<Vec<u64>>);

    /// Takes what is good once, and is remembered until it expires; `false` if somebody has.
    fn take(&self, token: [u8; 32], expires_ms: u64, then: Then<bool>);

    /// What was taken can be taken again.
    fn put_back(&self, token: [u8; 32], then: Then<()>);
}

/// The most requests that are listed at once.
pub const MAX_LISTED: usize = 1_000;
