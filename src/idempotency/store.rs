//! What the engine asks of a store that outlives the process.
//!
//! Requests are queued at once, in order for each scope, and answered through a callback once the
//! answer is durable: who asked may be gone by then, and the record still has to be settled. How
//! records are kept is the backend's business; what an answer says is sealed before it gets here.

use super::Usage;
use crate::model::exchange::KeyedDigest;
pub use crate::model::stored::{StoreFault, Then};

/// One claim on a key, told from every other.
pub type Token = [u8; 16];

/// A call that is about to be made.
#[derive(Debug, Clone)]
pub struct NewRecord {
    /// Tenant, principal, tool and key, hashed.
    pub scope: [u8; 32],
    pub token: Token,
    pub fingerprint: KeyedDigest,
    /// An earlier claim of this process that came to nothing.
    pub replaces: Option<Token>,
    /// A run whose outcome is unknown may be run again.
    pub retry_safe: bool,
    pub now_ms: u64,
    /// Until when the call is believed to run, without a word of its end.
    pub lease_ms: u64,
    pub expires_ms: u64,
    /// What it counts for in the store's size.
    pub cost: u64,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// The key is this call's.
    Taken,
    /// It was somebody's before.
    Held(Held),
}

/// A record that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub fingerprint: KeyedDigest,
    pub state: HeldState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldState {
    /// Its lease runs.
    InFlight,
    /// With the sealed answer.
    Done(Vec<u8>),
    /// Told so, or the lease ran out.
    Unknown,
}

/// The end of a call that was claimed.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub scope: [u8; 32],
    /// Of the claim: one that is no longer its own is left alone.
    pub token: Token,
    pub end: End,
    pub expires_ms: u64,
    pub cost: u64,
}

#[derive(Debug, Clone)]
pub enum End {
    /// The call did not take place: the record goes.
    Free,
    /// With the sealed answer.
    Done(Vec<u8>),
    Unknown,
}

/// What forgetting came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    pub forgotten: Usage,
    pub kept: Usage,
}

/// Where records are kept.
pub trait ReplayStore: Send + Sync + 'static {
    /// Takes a key, durably, or says what it is taken by. Of many who ask one gets it.
    fn claim(&self, record: NewRecord, then: Then<Claimed>);

    /// The record of a scope, if it has not expired.
    fn find(&self, scope: [u8; 32], now_ms: u64, then: Then<Option<Held>>);

    fn settle(&self, settlement: Settlement, then: Then<()>);

    /// Forgets what has expired.
    fn sweep(&self, now_ms: u64, then: Then<Swept>);
}
