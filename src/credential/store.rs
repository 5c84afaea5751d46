//! What the engine asks of a store that keeps sealed credentials.
//!
//! Requests are queued at once and answered through a callback once they are durable. The store
//! does not know what is sealed; whoever opens it does so elsewhere, where it may block.

use std::{
    fmt,
    sync::{Arc, mpsc},
    time::Duration,
};

use super::{CredentialKind, CredentialRef, Owner, Whose};
use crate::model::caller::TenantId;
pub use crate::model::stored::{StoreFault, Then};

/// A credential to be kept, in the place of one that its owner has for the server.
#[derive(Debug, Clone)]
pub struct NewCredential {
    pub whose: Whose,
    pub kind: CredentialKind,
    /// Of the key that it is sealed under.
    pub key: String,
    pub sealed: Vec<u8>,
    pub now_ms: u64,
}

/// One that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Stays when the credential is replaced.
    pub reference: CredentialRef,
    pub whose: Whose,
    pub kind: CredentialKind,
    pub key: String,
    pub sealed: Vec<u8>,
    pub created_ms: u64,
    pub updated_ms: u64,
    /// When it was last renewed by itself, if it was since its owner set it.
    pub renewed_ms: Option<u64>,
}

/// Another sealed form of the same credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anew {
    /// Of the key that it is sealed under.
    pub key: String,
    pub sealed: Vec<u8>,
    /// `None`: what is sealed is the same, and was only wrapped anew.
    pub renewed_ms: Option<u64>,
}

/// Which credentials are meant: what is not said does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pick {
    pub tenant: Option<TenantId>,
    pub owner: Option<Owner>,
    /// Either of these.
    pub server_keys: Option<[Arc<str>; 2]>,
    /// Behind this one, in the order of tenant, owner and server.
    pub after: Option<Whose>,
    pub most: u32,
}

/// Tells one credential of an owner from the next in its place. Sealing it anew, or renewing its
/// token, makes no other of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    reference: CredentialRef,
    updated_ms: u64,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.reference, self.updated_ms)
    }
}

impl Held {
    pub fn stamp(&self) -> Stamp {
        Stamp { reference: self.reference, updated_ms: self.updated_ms }
    }
}

/// What is kept under one key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyUse {
    /// The key's id.
    pub key: String,
    pub credentials: u64,
    /// Records of idempotency keys, with their answers.
    pub replays: u64,
    /// When the last of these is forgotten.
    pub replays_until_ms: u64,
}

/// Where sealed credentials are kept.
pub trait CredentialStore: Send + Sync + 'static {
    /// Keeps a credential. Its reference is the one that was there, if one was.
    fn put(&self, new: NewCredential, then: Then<CredentialRef>);

    fn get(&self, whose: Whose, then: Then<Option<Held>>);

    /// By its reference, within the tenant.
    fn find(&self, tenant: TenantId, reference: CredentialRef, then: Then<Option<Held>>);

    /// Whether there was one.
    fn delete(&self, whose: Whose, then: Then<bool>);

    /// All of an owner's, by server.
    fn list(&self, tenant: TenantId, owner: Owner, then: Then<Vec<Held>>);

    /// Some of all that is kept, in the order of tenant, owner and server.
    fn pick(&self, pick: Pick, then: Then<Vec<Held>>);

    /// Deletes all of an owner's at once. The servers they were for.
    fn delete_all(&self, tenant: TenantId, owner: Owner, then: Then<Vec<Arc<str>>>);

    /// What is kept under which key.
    fn key_uses(&self, then: Then<Vec<KeyUse>>);

    /// Some that are under another key than this, behind `after` in the order of references.
    fn not_under(&self, key: String, after: Option<CredentialRef>, then: Then<Vec<Held>>);

    /// Puts another sealed form in the place of one, if that still is what it was. Whether it was.
    fn replace_sealed(&self, old: Held, anew: Anew, then: Then<bool>);
}

/// How long whoever blocks waits for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks, and blocks until the answer is there. Never on a core of calls.
pub fn ask_blocking<T: Send + 'static>(
    store: &dyn CredentialStore,
    question: impl FnOnce(&dyn CredentialStore, Then<T>),
) -> Result<T, StoreFault> {
    let (told, answer) = mpsc::channel();
    // Nobody waits any more if it took too long.
    question(store, Box::new(move |it| drop(told.send(it))));
    answer.recv_timeout(PATIENCE).unwrap_or(Err(StoreFault::Unclear))
}
