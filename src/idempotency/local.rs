//! Replay records in this process.
//!
//! A map, not a cache: a cache may drop or refuse any entry when it pleases, and a dropped record
//! is a second write. So nothing leaves before its time, and room is reserved before a call runs:
//! for its record and for the longest answer that is kept, which is given back when the answer is
//! known. When there is none, new keys are refused; known ones are still answered.
//!
//! A record that is in flight does not expire. In one process the call that owns it can only end
//! by telling so or by dropping its `Lease`, and both settle the record.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dashmap::{DashMap, Entry};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{Begin, Claim, ScopeId, Settings, Stored};
use crate::{clock::Clock, model::reply::Final};

/// What a record costs beside its answer: its place in the map, counters, shared handles.
const OVERHEAD: u64 = 320;

/// The records of all keys. One for the whole process, behind an `Arc`.
pub struct Replays {
    records: DashMap<ScopeId, Record>,
    keys: AtomicUsize,
    bytes: AtomicU64,
    settings: Settings,
    clock: Clock,
    /// When a full store was last searched for what has expired.
    searched_ms: AtomicU64,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub keys: usize,
    /// With what is reserved for calls that are running.
    pub bytes: u64,
}

struct Record {
    fingerprint: [u8; 32],
    state: State,
    /// What is counted for it in `bytes`.
    cost: u64,
}

enum State {
    InFlight { settled: Arc<Settled> },
    Done { stored: Arc<Stored>, expires_ms: u64 },
    Unknown { expires_ms: u64 },
}

/// Wakes those who wait for a call; made when the first does.
#[derive(Default)]
struct Settled(OnceLock<Arc<Notify>>);

/// The right to run a call, and the duty to say how it ended.
///
/// Dropped without a word, the outcome is unknown if the request had begun to leave
/// (`sent_mark`), else the key is free again.
#[must_use = "a dropped lease settles its key"]
pub struct Lease {
    replays: Arc<Replays>,
    scope: ScopeId,
    settled: Arc<Settled>,
    sent: Arc<AtomicBool>,
    open: bool,
}

/// Waits for the call that is running.
pub struct Waiter {
    replays: Arc<Replays>,
    claim: Claim,
    notify: Arc<Notify>,
}

// === impl Replays ===

impl Replays {
    pub fn new(settings: Settings, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            records: DashMap::new(),
            keys: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            settings,
            clock,
            searched_ms: AtomicU64::new(0),
        })
    }

    /// Claims the key for this call, or says what has become of the call that did.
    pub fn begin(self: &Arc<Self>, claim: Claim) -> Begin {
        let now_ms = self.clock.now_ms();
        if let Some(answer) = self.known(claim, now_ms) {
            return answer;
        }
        let cost = OVERHEAD + self.settings.max_answer as u64;
        let reserved = self.reserve(cost) || self.search(now_ms) && self.reserve(cost);
        if !reserved {
            // The last room may have gone to this very key.
            return self.known(claim, now_ms).unwrap_or(Begin::Full);
        }
        let settled = Arc::new(Settled::default());
        let state = State::InFlight { settled: settled.clone() };
        let record = Record { fingerprint: claim.fingerprint, state, cost };
        // The one place where a key is taken: whoever is second here finds the first's record.
        match self.records.entry(claim.scope) {
            Entry::Vacant(place) => {
                place.insert(record);
            }
            Entry::Occupied(mut place) => {
                if let Some(answer) = self.answer(place.get(), claim, now_ms) {
                    self.release(cost);
                    return answer;
                }
                let old = place.insert(record);
                self.release(old.cost);
            }
        }
        let sent = Arc::new(AtomicBool::new(false));
        Begin::Run(Lease { replays: self.clone(), scope: claim.scope, settled, sent, open: true })
    }

    /// As `begin`, but waits for a call that is running; `InFlight` is then one that still does.
    pub async fn begin_or_wait(self: &Arc<Self>, claim: Claim) -> Begin {
        match self.begin(claim) {
            Begin::InFlight(waiter) => waiter.wait().await,
            decided => decided,
        }
    }

    fn known(self: &Arc<Self>, claim: Claim, now_ms: u64) -> Option<Begin> {
        let record = self.records.get(&claim.scope)?;
        self.answer(&record, claim, now_ms)
    }

    /// What this record means to the claim; `None` if it is as good as absent.
    fn answer(self: &Arc<Self>, record: &Record, claim: Claim, now_ms: u64) -> Option<Begin> {
        if record.expired(now_ms) {
            return None;
        }
        if record.fingerprint != claim.fingerprint {
            return Some(Begin::Conflict);
        }
        match &record.state {
            State::InFlight { settled } => Some(Begin::InFlight(Waiter {
                replays: self.clone(),
                claim,
                notify: settled.notify(),
            })),
            State::Done { stored, .. } => Some(Begin::Replay(stored.clone())),
            State::Unknown { .. } if claim.retry_safe => None,
            State::Unknown { .. } => Some(Begin::Unknown),
        }
    }

    fn reserve(&self, cost: u64) -> bool {
        if self.keys.fetch_add(1, Ordering::Relaxed) >= self.settings.max_keys {
            self.keys.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let room = self.settings.capacity.saturating_sub(cost);
        if self.bytes.fetch_add(cost, Ordering::Relaxed) > room || cost > self.settings.capacity {
            self.release(cost);
            return false;
        }
        true
    }

    fn release(&self, cost: u64) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(cost, Ordering::Relaxed);
    }

    /// Forgets what has expired, for somebody who found no room; once in a second, since it
    /// takes a while and may find nothing.
    fn search(&self, now_ms: u64) -> bool {
        let last = self.searched_ms.load(Ordering::Relaxed);
        let due = now_ms.abs_diff(last) >= 1_000
            && self
                .searched_ms
                .compare_exchange(last, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if due {
            self.sweep();
        }
        due
    }

    /// Forgets what has expired. To be called now and then, off the path of calls.
    pub fn sweep(&self) {
        let now_ms = self.clock.now_ms();
        self.records.retain(|_, record| {
            let keep = !record.expired(now_ms);
            if !keep {
                self.release(record.cost);
            }
            keep
        });
    }

    pub fn usage(&self) -> Usage {
        Usage { keys: self.keys.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    /// How long a second call waits for the first; also what one that still runs is told to
    /// wait.
    pub fn wait(&self) -> Duration {
        self.settings.wait
    }

    /// Ends what is in flight: `None` frees the key.
    fn settle(&self, scope: ScopeId, state: Option<State>) {
        match state {
            // Nobody else removes or replaces a record in flight, so this one is the lease's.
            None => {
                if let Some((_, record)) = self.records.remove(&scope) {
                    self.release(record.cost);
                }
            }
            Some(state) => {
                if let Some(mut record) = self.records.get_mut(&scope) {
                    let cost = OVERHEAD
                        + match &state {
                            State::Done { stored, .. } => stored.len() as u64,
                            _ => 0,
                        };
                    self.bytes.fetch_sub(record.cost.saturating_sub(cost), Ordering::Relaxed);
                    record.cost = cost;
                    record.state = state;
                }
            }
        }
    }

    fn expiry(&self) -> u64 {
        let keep = u64::try_from(self.settings.keep.as_millis()).unwrap_or(u64::MAX);
        self.clock.now_ms().saturating_add(keep)
    }
}

impl Record {
    fn expired(&self, now_ms: u64) -> bool {
        match self.state {
            State::InFlight { .. } => false,
            State::Done { expires_ms, .. } | State::Unknown { expires_ms } => expires_ms <= now_ms,
        }
    }
}

impl Settled {
    fn notify(&self) -> Arc<Notify> {
        self.0.get_or_init(Arc::default).clone()
    }

    fn wake(&self) {
        if let Some(notify) = self.0.get() {
            notify.notify_waiters();
        }
    }
}

// === impl Lease ===

impl Lease {
    /// To be set by whoever sends the request, before its first byte leaves.
    pub fn sent_mark(&self) -> Arc<AtomicBool> {
        self.sent.clone()
    }

    /// The call was answered: the same answer is given from now on.
    pub fn finish(mut self, answer: &Final) {
        let stored = Arc::new(Stored::of(answer, self.replays.settings.max_answer));
        let expires_ms = self.replays.expiry();
        self.settle(Some(State::Done { stored, expires_ms }));
    }

    /// The call did not take place: refused further down, or not sent at all.
    pub fn free(mut self) {
        self.settle(None);
    }

    /// The call was sent and was not answered.
    pub fn unknown(mut self) {
        let expires_ms = self.replays.expiry();
        self.settle(Some(State::Unknown { expires_ms }));
    }

    fn settle(&mut self, state: Option<State>) {
        self.open = false;
        self.replays.settle(self.scope, state);
        // After the record says so, for whoever wakes looks there.
        self.settled.wake();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.open {
            let sent = self.sent.load(Ordering::Acquire);
            let expires_ms = self.replays.expiry();
            self.settle(sent.then_some(State::Unknown { expires_ms }));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("sent", &self.sent).finish_non_exhaustive()
    }
}

// === impl Waiter ===

impl Waiter {
    /// What becomes of this call once the first is settled. If that one was freed, this one may
    /// be the next to run; if the time is over, it is `InFlight` still.
    pub async fn wait(self) -> Begin {
        let deadline = Instant::now() + self.replays.settings.wait;
        let Waiter { replays, claim, mut notify } = self;
        loop {
            // From here on no waking is missed, so what is looked at next is not too old.
            let woken = notify.clone().notified_owned();
            let next = match replays.begin(claim) {
                Begin::InFlight(next) => next,
                decided => return decided,
            };
            if !Arc::ptr_eq(&next.notify, &notify) {
                // Another call has claimed the key meanwhile: its end is the one to wait for.
                notify = next.notify;
            } else if timeout_at(deadline, woken).await.is_err() {
                return Begin::InFlight(next);
            }
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

impl fmt::Debug for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replays").field("usage", &self.usage()).finish_non_exhaustive()
    }
}
