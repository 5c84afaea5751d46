//! Slots: how many calls run at a time, and how many wait for that.
//!
//! A slot belongs to the call until its answer has ended. A limit's slots are handed out in the
//! order of asking.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{sync::Semaphore, time};

use super::{Exceeded, Policy, Snapshot, keys::Keys, spec::Concurrency};

/// Nobody knows when a call ends; who found no slot is asked to come back a little later.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A limit on concurrency, ready to be asked.
pub(super) struct SlotLimit {
    policy: Arc<Policy>,
    slots: usize,
    queue: u32,
    wait: Duration,
}

/// The limits that are about a call, each with the desk it goes to, always in the same order, so
/// that two calls never wait for each other.
pub(super) type Desks<'a> = SmallVec<[(&'a SlotLimit, Arc<Desk>); 1]>;

/// Every limit's slots.
pub(super) struct Slots {
    keys: Keys<Desk>,
    started: time::Instant,
}

/// The slots of one key, and the line before them.
pub(super) struct Desk {
    free: Semaphore,
    slots: usize,
    queued: AtomicU32,
}

/// The slots of one call; they are given back when it is dropped.
#[derive(Default)]
pub struct SlotGuard(SmallVec<[Slot; 1]>);

struct Slot(Arc<Desk>);

/// A place in the line, given up when dropped.
struct Place<'a>(&'a AtomicU32);

// === impl SlotLimit ===

impl SlotLimit {
    /// `None` if there are more slots than can be counted.
    pub fn new(id: Arc<str>, limit: Concurrency) -> Option<Self> {
        let slots = usize::try_from(limit.slots.get()).ok()?;
        (slots <= Semaphore::MAX_PERMITS).then(|| Self {
            policy: Arc::new(Policy::new(id, limit.slots.get(), None)),
            slots,
            queue: limit.queue,
            wait: limit.wait,
        })
    }

    fn exceeded(&self) -> Exceeded {
        let snapshot = Snapshot { policy: self.policy.clone(), remaining: 0, reset: RETRY_AFTER };
        Exceeded { snapshot, retry_after: RETRY_AFTER }
    }
}

// === impl Slots ===

impl Slots {
    pub fn new(max_keys: usize) -> Self {
        Self { keys: Keys::new(max_keys), started: time::Instant::now() }
    }

    /// The desk of `key`; no call gets past a limit that cannot count it.
    pub fn desk(&self, limit: &SlotLimit, key: &[u8]) -> Result<Arc<Desk>, Exceeded> {
        let make = || Desk::new(limit.slots);
        if let Some(desk) = self.keys.get_or_make(key, make) {
            return Ok(desk);
        }
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.keys.search_due(now) {
            self.keys.forget(Desk::is_idle);
        }
        self.keys.get_or_make(key, make).ok_or_else(|| limit.exceeded())
    }

    pub fn sweep(&self) {
        self.keys.forget(Desk::is_idle);
    }

    pub fn keys(&self) -> usize {
        self.keys.len()
    }
}

// === impl SlotGuard ===

impl SlotGuard {
    /// A slot of each, `None` if one of them is taken by others and may be waited for.
    pub(super) fn try_take(desks: &Desks<'_>) -> Result<Option<Self>, Exceeded> {
        let mut guard = Self::default();
        for (limit, desk) in desks {
            match Desk::try_slot(desk) {
                Some(slot) => guard.0.push(slot),
                None if limit.queue == 0 => return Err(limit.exceeded()),
                None => return Ok(None),
            }
        }
        Ok(Some(guard))
    }

    /// A slot of each, one after the other.
    pub(super) async fn take(desks: &Desks<'_>) -> Result<Self, Exceeded> {
        let mut guard = Self::default();
        for (limit, desk) in desks {
            let slot = match Desk::try_slot(desk) {
                Some(slot) => slot,
                None => Desk::queue(desk, limit).await.ok_or_else(|| limit.exceeded())?,
            };
            guard.0.push(slot);
        }
        Ok(guard)
    }
}

/// Whether there is a slot of each, or a place in the line for one.
pub(super) fn look(desks: &Desks<'_>) -> Result<(), Exceeded> {
    for (limit, desk) in desks {
        let queued = desk.queued.load(Ordering::Relaxed);
        if desk.free.available_permits() == 0 && queued >= limit.queue {
            return Err(limit.exceeded());
        }
    }
    Ok(())
}

// === impl Desk ===

impl Desk {
    fn new(slots: usize) -> Self {
        Self { free: Semaphore::new(slots), slots, queued: AtomicU32::new(0) }
    }

    fn try_slot(desk: &Arc<Self>) -> Option<Slot> {
        // The permit is kept by `Slot`, which outlives this borrow.
        desk.free.try_acquire().ok()?.forget();
        Some(Slot(desk.clone()))
    }

    async fn queue(desk: &Arc<Self>, limit: &SlotLimit) -> Option<Slot> {
        let _place = desk.place(limit.queue)?;
        let permit = time::timeout(limit.wait, desk.free.acquire()).await.ok()?.ok()?;
        permit.forget();
        Some(Slot(desk.clone()))
    }

    fn place(&self, queue: u32) -> Option<Place<'_>> {
        self.queued
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |queued| {
                (queued < queue).then(|| queued + 1)
            })
            .ok()
            .map(|_| Place(&self.queued))
    }

    fn is_idle(&self) -> bool {
        self.free.available_permits() == self.slots
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.free.add_permits(1);
    }
}

impl fmt::Debug for SlotGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlotGuard").field(&self.0.len()).finish()
    }
}
