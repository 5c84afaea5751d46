//! What the quotas ask of a store that outlives the process.
//!
//! A process takes units of an account before calls use them, so that what is in the store is
//! never less than what was spent. Requests are queued at once, in order for each account, and
//! answered through a callback once the answer is durable.

use crate::model::quota::Period;
pub use crate::model::stored::{StoreFault, Then};

/// What is counted together: a quota, and the values that it tells calls apart by, hashed.
pub type AccountId = [u8; 32];

/// Units that a process wants to hold.
#[derive(Debug, Clone, Copy)]
pub struct Take {
    pub account: AccountId,
    pub period: Period,
    /// Fewer are of no use.
    pub least: u64,
    pub most: u64,
    /// What everybody together may hold and have spent.
    pub ceiling: u64,
}

/// What stands in an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Spent, or held by some process.
    pub used: u64,
    /// The store may know of a later one than whoever asked.
    pub period: Period,
}

/// What a request for units came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub granted: u64,
    /// After it.
    pub standing: Standing,
}

/// Units that were not needed, or were spent without having been taken.
#[derive(Debug, Clone, Copy)]
pub struct Correction {
    pub account: AccountId,
    pub period: Period,
    pub spent: u64,
    pub unneeded: u64,
}

/// Where accounts are kept.
pub trait QuotaStore: Send + Sync + 'static {
    /// Takes units, durably. Of a window that is over nothing is taken.
    fn take(&self, take: Take, then: Then<Taken>);

    /// Puts an account right; one whose window is over is left alone.
    fn correct(&self, correction: Correction, then: Then<()>);

    /// What stands in these accounts; 0 in one that nobody has used in its window.
    fn look(&self, accounts: Vec<(AccountId, Period)>, then: Then<Vec<Standing>>);

    /// Forgets accounts whose windows were over at that time.
    fn sweep(&self, before_ms: u64, then: Then<()>);
}
