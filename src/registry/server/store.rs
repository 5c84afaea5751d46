//! What is asked of whoever keeps personal servers.
//!
//! Requests are queued at once and answered through a callback once they are durable, as all of
//! the registry's are.

use std::sync::Arc;

use super::{Archive, Kept, Registration};
use crate::{
    model::caller::{EmployeeId, TenantId},
    registry::store::Then,
};

/// Why a registration was not written. Nothing was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotPut {
    /// Somebody else was first: it has this revision by now, 0 where it is gone.
    #[error("it was changed meanwhile")]
    Changed { revision: u64 },
    /// Another address has the same key, whoever of the tenant registered it. What others do
    /// keeps nobody from anything, nor tells him of it.
    #[error("another address has the same serverKey")]
    Collision,
    /// The owner has as many servers as he may.
    #[error("an employee may have {most} servers, and has them")]
    Full { most: u32 },
}

/// A place in the order of all writes. Of one store only; [`Marker::START`] is before them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marker(pub u64);

/// What was written behind a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// To ask for what follows.
    pub marker: Marker,
    /// The marker is too old: what was deleted since is not known any more, and whoever keeps
    /// something of the store's forgets it all.
    pub too_old: bool,
    /// Each server once, in the order of the last write.
    pub changes: Vec<Change>,
}

/// A server that was registered, changed, listed, shared or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub tenant: TenantId,
    pub owner: EmployeeId,
    pub server_key: Arc<str>,
    /// Who sees it now; whoever saw it before has it among what he saw.
    pub team: Option<Arc<str>>,
}

// === impl Marker ===

impl Marker {
    pub const START: Marker = Marker(0);
}

/// Where personal servers are kept.
pub trait ServerStore: Send + Sync + 'static {
    /// Writes the whole of a registration, if what is there has its `revision` (0: nothing is).
    /// Gives it as it is kept: with its new revision, and `created_ms` as it was. A new one is
    /// kept only as long as its owner has less than `most`. What was listed stays.
    fn put(&self, registration: Registration, most: u32, then: Then<Result<Registration, NotPut>>);

    fn get(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
        server_key: Arc<str>,
        then: Then<Option<Kept>>,
    );

    /// All of an owner's, by key.
    fn list_of(&self, tenant: TenantId, owner: EmployeeId, then: Then<Vec<Kept>>);

    /// An employee's own and what is shared with a team of his, by key, each key once: see
    /// [`Kept::seen_by`]. Whether he may see what is shared is not asked here.
    fn visible_to(
        &self,
        tenant: TenantId,
        employee: EmployeeId,
        teams: Vec<Arc<str>>,
        then: Then<Vec<Kept>>,
    );

    /// Deletes registration and archive; whether there was one. What else is kept under its key,
    /// such as credentials, is not touched.
    fn delete(&self, tenant: TenantId, owner: EmployeeId, server_key: Arc<str>, then: Then<bool>);

    /// Keeps what a server listed, or that it could not be listed; whether the server is
    /// registered. What differs from what is kept in its time alone is no change to others.
    fn set_archive(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
        server_key: Arc<str>,
        archive: Archive,
        then: Then<bool>,
    );

    /// Shares it with a team, or with nobody any more. Gives it as it is kept then; nothing, where
    /// it is not registered.
    fn share(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
        server_key: Arc<str>,
        team: Option<Arc<str>>,
        now_ms: u64,
        then: Then<Option<Registration>>,
    );

    /// How many an employee has registered.
    fn count(&self, tenant: TenantId, owner: EmployeeId, then: Then<u64>);

    /// What was written behind a marker, by whatever replica. Costs one look at an index where
    /// nothing was.
    fn changes_since(&self, marker: Marker, then: Then<Changes>);
}
