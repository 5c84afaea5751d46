//! `/v1/servers`: servers that employees bring.

use std::sync::Arc;

use crate::{
    model::caller::{Caller, EmployeeId, TenantId},
    registry::server::{Archive, Registration},
    stack::stage::BoxFuture,
};

/// Asks servers what they have, and is told of what has changed. `app` implements it.
pub trait Reach: Send + Sync {
    /// Initializes and lists everything that the server declares, with the caller's own
    /// credential. That the server failed is in the archive; an error is the gateway's own.
    fn ask(&self, caller: Arc<Caller>, registration: Registration) -> BoxFuture<Archive>;

    /// What an employee of a tenant has, or shares, has changed.
    fn changed(&self, tenant: &TenantId, owner: &EmployeeId);
}
