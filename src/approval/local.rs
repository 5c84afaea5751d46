//! Requests in memory: they end with the process.

use std::{cmp::Reverse, collections::HashMap};

use parking_lot::Mutex;

use super::{
    Approval, ApprovalId, DecideFault, Standing,
    store::{ApprovalStore, Change, MAX_LISTED, Then},
};
use crate::model::caller::TenantId;

/// A store without a disk.
#[derive(Debug, Default)]
pub struct Local(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    all: HashMap<ApprovalId, Approval>,
    /// The newest of each binding.
    newest: HashMap<[u8; 32], ApprovalId>,
}

impl Kept {
    fn put(&mut self, approval: Option<Approval>) {
        if let Some(approval) = approval {
            self.newest.insert(approval.request.subject.binding(), approval.id);
            self.all.insert(approval.id, approval);
        }
    }
}

impl ApprovalStore for Local {
    fn ask(&self, binding: [u8; 32], mut change: Change<Standing>, then: Then<Standing>) {
        let mut kept = self.0.lock();
        let known = kept.newest.get(&binding).and_then(|id| kept.all.get(id)).cloned();
        let (changed, answer) = change(known);
        kept.put(changed);
        drop(kept);
        then(Ok(answer));
    }

    fn decide(
        &self,
        id: ApprovalId,
        mut change: Change<Result<Approval, DecideFault>>,
        then: Then<Result<Approval, DecideFault>>,
    ) {
        let mut kept = self.0.lock();
        let (changed, answer) = change(kept.all.get(&id).cloned());
        if let Some(changed) = changed {
            kept.all.insert(id, changed);
        }
        drop(kept);
        then(Ok(answer));
    }

    fn find(&self, id: ApprovalId, then: Then<Option<Approval>>) {
        let found = self.0.lock().all.get(&id).cloned();
        then(Ok(found));
    }

    fn of_tenant(&self, tenant: TenantId, then: Then<Vec<Approval>>) {
        let kept = self.0.lock();
        let own = kept.all.values().filter(|approval| approval.request.subject.tenant == tenant);
        let mut own: Vec<Approval> = own.cloned().collect();
        drop(kept);
        own.sort_by_key(|approval| Reverse(approval.id));
        own.truncate(MAX_LISTED);
        then(Ok(own));
    }

    fn sweep(&self, before_ms: u64, then: Then<()>) {
        let mut kept = self.0.lock();
        kept.all.retain(|_, approval| approval.request.expires_ms >= before_ms);
        let Kept { all, newest } = &mut *kept;
        newest.retain(|_, id| all.contains_key(id));
        drop(kept);
        then(Ok(()));
    }
}
