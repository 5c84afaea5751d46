//! What the stores of servers and of credentials are asked, and what their faults mean here.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Servers, changed_meanwhile};
use crate::{
    api::Person,
    credential::{VaultFault, store as credentials},
    error::{Code, Error, Next},
    model::{
        caller::{EmployeeId, TenantId},
        server::UpstreamName,
    },
    registry::{
        server::{Archive, Kept, NotPut, Registration, ServerStore},
        store::{HandedOn, History, Scope, StoreFault, Then},
    },
};

/// How long whoever meets a store that fails is asked to wait.
const STORE_PAUSE: Duration = Duration::from_secs(5);

/// How long whoever meets another change of the same server is asked to wait.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Tenant, owner and serverKey.
pub(super) type Place = (TenantId, EmployeeId, Arc<str>);

/// Servers that are being changed in this process. What two processes do is told apart by the
/// store, which takes one of them.
#[derive(Default)]
pub(super) struct Busy(Arc<Mutex<HashSet<Place>>>);

/// One of them, until it is dropped.
pub(super) struct Claim {
    place: Place,
    of: Arc<Mutex<HashSet<Place>>>,
}

impl Busy {
    /// Whoever comes second is told so: what he has seen is about to change.
    pub fn claim(&self, place: Place) -> Result<Claim, Error> {
        if !self.0.lock().insert(place.clone()) {
            let message = "another request is changing this server: look at it again, then change \
                           it";
            return Err(Error::new(Code::Conflict, message).with_retry_after(BUSY_PAUSE));
        }
        Ok(Claim { place, of: self.0.clone() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.of.lock().remove(&self.place);
    }
}

// === What is asked ===

impl Servers {
    pub(super) async fn own(&self, place: &Place) -> Result<Option<Kept>, Error> {
        let (tenant, owner, key) = place.clone();
        self.ask(|store, then| store.get(tenant, owner, key, then)).await
    }

    /// All that an employee sees: his own, and what is shared with his teams where policy has it.
    pub(super) async fn seen_by(&self, person: &Person) -> Result<Vec<Kept>, Error> {
        let teams = self.teams_that_share(person);
        let Person { tenant, employee, .. } = person.clone();
        self.ask(|store, then| store.visible_to(tenant, employee, teams, then)).await
    }

    pub(super) async fn put(
        &self,
        registration: Registration,
        most: u32,
    ) -> Result<Registration, Error> {
        let put = self.ask(|store, then| store.put(registration, most, then)).await?;
        put.map_err(not_put)
    }

    pub(super) async fn set_archive(&self, place: &Place, archive: Archive) -> Result<bool, Error> {
        let (tenant, owner, key) = place.clone();
        self.ask(|store, then| store.set_archive(tenant, owner, key, archive, then)).await
    }

    /// All that is kept of the definitions of a server's tools.
    pub(super) async fn history(
        &self,
        of: &Registration,
    ) -> Result<Vec<(Arc<str>, History)>, Error> {
        let Some(scope) = scope(of) else { return Ok(Vec::new()) };
        answered(|then| self.parts.pins.all_of(scope, then)).await
    }

    /// Keeps what another gateway has handed on of them.
    pub(super) async fn take_over(
        &self,
        of: &Registration,
        history: Vec<HandedOn>,
    ) -> Result<(), Error> {
        let Some(scope) = scope(of).filter(|_| !history.is_empty()) else { return Ok(()) };
        let (bounds, now_ms) = (self.parts.pin_bounds, self.parts.clock.now_ms());
        answered(|then| self.parts.pins.take_over(scope, history, bounds, now_ms, then)).await
    }

    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn ServerStore, Then<T>),
    ) -> Result<T, Error> {
        answered(|then| question(&*self.parts.store, then)).await
    }
}

async fn answered<T: Send + 'static>(question: impl FnOnce(Then<T>)) -> Result<T, Error> {
    let (tell, told) = oneshot::channel();
    question(Box::new(move |answer| _ = tell.send(answer)));
    told.await.unwrap_or(Err(StoreFault::Unclear)).map_err(store_failed)
}

fn scope(of: &Registration) -> Option<Scope> {
    Some(Scope::own(&of.tenant, &of.owner, &UpstreamName::of_key(&of.server_key)?))
}

// === Refusals ===

pub(super) fn not_put(fault: NotPut) -> Error {
    match fault {
        NotPut::Changed { .. } => changed_meanwhile().with_cause(fault),
        NotPut::Collision => collision().with_pointer("/url"),
        NotPut::Full { most } => full(most),
    }
}

/// Whether somebody else's write came before one, so that it can be made again.
pub(super) fn is_overtaken(error: &Error) -> bool {
    let fault = error.cause().and_then(|cause| cause.downcast_ref());
    matches!(fault, Some(NotPut::Changed { .. }))
}

/// Whoever has the other one is not told.
pub(super) fn collision() -> Error {
    let message = "another address has the same serverKey, and the two are not merged: write the \
                   address in another way, with another query for example";
    Error::new(Code::Conflict, message)
}

pub(super) fn full(most: u32) -> Error {
    let message = format!("you may have {most} servers, and have them: delete one first");
    Error::new(Code::PermissionDenied, message).with_reason("self_service")
}

fn store_failed(fault: StoreFault) -> Error {
    match fault {
        StoreFault::Unavailable => unavailable(),
        StoreFault::Unclear => unclear(),
    }
    .with_cause(fault)
}

pub(super) fn vault_failed(fault: VaultFault) -> Error {
    let error = match &fault {
        VaultFault::Store(credentials::StoreFault::Unavailable) => unavailable(),
        VaultFault::Store(credentials::StoreFault::Unclear) => unclear(),
        VaultFault::NoKeyring => {
            let message = "no credential can be kept here: the gateway has no keyring, which an \
                           operator has to name in its configuration";
            Error::new(Code::Internal, message).with_kind("keyring_missing")
        }
        VaultFault::Seal(_) | VaultFault::Lost => {
            Error::new(Code::Internal, "the credential cannot be sealed or opened")
                .with_kind("credential")
        }
    };
    error.with_cause(fault)
}

fn unavailable() -> Error {
    Error::new(Code::Internal, "the store of servers cannot be used at present")
        .with_advice(true, Next::Wait)
        .with_retry_after(STORE_PAUSE)
        .with_kind("store_unavailable")
        .with_reason("store_unavailable")
}

fn unclear() -> Error {
    let message = "the store did not say whether the change was kept: look at it again";
    Error::new(Code::Internal, message)
        .with_unknown_outcome()
        .with_kind("store_unavailable")
        .with_reason("store_unavailable")
}
