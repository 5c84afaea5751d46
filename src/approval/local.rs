//! Requests in memory: they end with the process.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use parking_lot::Mutex;

use super::{
    Approval, ApprovalId, DecideFault, Standing,
    store::{ApprovalStore, Change, MAX_LISTED, Pick, Room, StoreFault, Then},
};

/// A store without a disk.
#[derive(Debug, Default)]
pub struct Local(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    all: HashMap<ApprovalId, Approval>,
    /// The newest of each binding.
    newest: HashMap<[u8; 32], ApprovalId>,
    /// Those of which a sweep has told that nobody decided on them.
    expired: HashSet<ApprovalId>,
    /// What was taken, and until when it is remembered.
    taken: HashMap<[u8; 32], u64>,
}

impl Kept {
    fn put(&mut self, approval: Option<Approval>) {
        if let Some(approval) = approval {
            self.newest.insert(approval.request.subject.binding(), approval.id);
            self.all.insert(approval.id, approval);
        }
    }

    fn has_room(&self, room: &Room) -> bool {
        let (mut all, mut own) = (0, 0);
        for approval in self.all.values() {
            if !approval.is_decided() && approval.request.expires_ms > room.now_ms {
                all += 1;
                own += usize::from(approval.request.subject.holder() == room.holder);
            }
        }
        all < room.bounds.total && own < room.bounds.each
    }
}

impl ApprovalStore for Local {
    fn ask(
        &self,
        binding: [u8; 32],
        room: Room,
        mut change: Change<Standing>,
        then: Then<Standing>,
    ) {
        let mut kept = self.0.lock();
        let known = kept.newest.get(&binding).and_then(|id| kept.all.get(id)).cloned();
        let (changed, answer) = change(known);
        let is_new = changed.as_ref().is_some_and(|changed| !kept.all.contains_key(&changed.id));
        let answer = if is_new && !kept.has_room(&room) {
            Err(StoreFault::Full)
        } else {
            kept.put(changed);
            Ok(answer)
        };
        drop(kept);
        then(answer);
    }

    fn newest(&self, binding: [u8; 32], then: Then<Option<Approval>>) {
        let kept = self.0.lock();
        let found = kept.newest.get(&binding).and_then(|id| kept.all.get(id)).cloned();
        drop(kept);
        then(Ok(found));
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

    fn list(&self, pick: Pick, then: Then<Vec<Approval>>) {
        let is = |approval: &&Approval| {
            let of = &approval.request.subject.tenant;
            pick.tenant.as_ref().is_none_or(|tenant| tenant == of)
                && pick.before.is_none_or(|before| approval.id < before)
        };
        let mut some: Vec<Approval> = self.0.lock().all.values().filter(is).cloned().collect();
        some.sort_by_key(|approval| Reverse(approval.id));
        some.truncate(MAX_LISTED);
        then(Ok(some));
    }

    fn sweep(&self, now_ms: u64, before_ms: u64, then: Then<Vec<u64>>) {
        let mut kept = self.0.lock();
        let Kept { all, newest, expired, taken } = &mut *kept;
        let mut waited = Vec::new();
        for (id, Approval { request, .. }) in all.iter_mut().filter(|(_, a)| !a.is_decided()) {
            if request.expires_ms <= now_ms && expired.insert(*id) {
                // Nobody decides on it any more: a caller who only ever asks would fill the
                // memory with what he asked for.
                request.sealed = None;
                waited.push(request.expires_ms.saturating_sub(request.asked_ms));
            }
        }
        all.retain(|_, approval| approval.request.expires_ms >= before_ms);
        newest.retain(|_, id| all.contains_key(id));
        expired.retain(|id| all.contains_key(id));
        taken.retain(|_, expires_ms| *expires_ms > now_ms);
        drop(kept);
        then(Ok(waited));
    }

    fn take(&self, token: [u8; 32], expires_ms: u64, then: Then<bool>) {
        let is_first = self.0.lock().taken.insert(token, expires_ms).is_none();
        then(Ok(is_first));
    }

    fn put_back(&self, token: [u8; 32], then: Then<()>) {
        self.0.lock().taken.remove(&token);
        then(Ok(()));
    }
}
