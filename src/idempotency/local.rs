//! Replay records in this process.
//!
//! A map, not a cache: a cache may drop or refuse any entry when it pleases, and a dropped record
//! is a second write. So nothing leaves before its time, and room is reserved before a call runs:
//! for its record and for the longest answer that is kept, which is given back when the answer is
//! known. When there is none, new keys are refused; known ones are still answered.
//!
//! A record that is in flight does not expire. In one process the call that owns it can only end
//! by telling so or by dropping its `Lease`, and both settle the record. What is kept in a store
//! beside is in `durable.rs`.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dashmap::{DashMap, Entry};
use tokio::sync::Notify;

use super::{
    Begin, Claim, ScopeId, Settings, Stored,
    durable::{Durable, Inquiry, Saved},
    seal::Bodies,
    store::{ReplayStore, Token},
};
use crate::{
    clock::Clock,
    model::{exchange::KeyedDigest, reply::Final},
};

/// What a record costs beside its answer: its place in the map, counters, shared handles.
const OVERHEAD: u64 = 320;

/// The records of all keys. One for the whole process, behind an `Arc`.
pub struct Replays {
    pub(super) records: DashMap<ScopeId, Record>,
    pub(super) keys: AtomicUsize,
    pub(super) bytes: AtomicU64,
    /// Goes up with every change of the two above.
    pub(super) changes: AtomicU64,
    /// Sweeps since the two were set by what the store counts.
    pub(super) unset: AtomicU64,
    /// The store is at it.
    pub(super) sweeping: AtomicBool,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) durable: Option<Durable>,
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

pub(super) struct Record {
    fingerprint: KeyedDigest,
    /// Of the claim in the store, if there is one.
    pub(super) token: Token,
    pub(super) state: State,
    /// What is counted for it in `bytes`.
    pub(super) cost: u64,
}

pub(super) enum State {
    InFlight {
        settled: Arc<Settled>,
    },
    Done {
        stored: Arc<Stored>,
        expires_ms: u64,
    },
    Unknown {
        expires_ms: u64,
    },
    /// As good as no record. It is one where the store does not know yet that its own is to go.
    Free,
}

/// Wakes those who wait for a call; made when the first does.
#[derive(Default)]
pub(super) struct Settled(OnceLock<Arc<Notify>>);

/// Who knows of a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// This process alone.
    Here,
    /// The store too, perhaps.
    Asked,
}

/// The right to run a call, and the duty to say how it ended.
///
/// Dropped without a word, the outcome is unknown if the request had begun to leave
/// (`sent_mark`), else the key is free again.
#[must_use = "a dropped lease settles its key"]
pub struct Lease {
    pub(super) replays: Arc<Replays>,
    pub(super) scope: ScopeId,
    pub(super) token: Token,
    pub(super) hold: Hold,
    pub(super) settled: Arc<Settled>,
    sent: Arc<AtomicBool>,
    pub(super) open: bool,
}

/// Waits for the call that is running.
pub struct Waiter {
    pub(super) replays: Arc<Replays>,
    pub(super) claim: Claim,
    pub(super) running: Running,
}

/// Where a call runs.
pub(super) enum Running {
    Here(Arc<Notify>),
    /// In another process; the store knows when it has ended.
    Elsewhere,
}

// === impl Replays ===

impl Replays {
    /// In this process alone: the records end with it.
    pub fn new(settings: Settings, clock: Clock) -> Arc<Self> {
        let none = Usage { keys: 0, bytes: 0 };
        Arc::new(Self::build(settings, clock, None, none))
    }

    /// In a store, which holds as much as `usage` says.
    pub fn durable(
        settings: Settings,
        clock: Clock,
        store: Arc<dyn ReplayStore>,
        bodies: Bodies,
        usage: Usage,
    ) -> Arc<Self> {
        Arc::new(Self::build(settings, clock, Some(Durable { store, bodies }), usage))
    }

    fn build(settings: Settings, clock: Clock, durable: Option<Durable>, usage: Usage) -> Self {
        Self {
            records: DashMap::new(),
            keys: AtomicUsize::new(usage.keys),
            bytes: AtomicU64::new(usage.bytes),
            changes: AtomicU64::new(0),
            unset: AtomicU64::new(0),
            sweeping: AtomicBool::new(false),
            settings,
            clock,
            durable,
            searched_ms: AtomicU64::new(0),
        }
    }

    /// Claims the key for this call, or says what has become of the call that did. Where records
    /// are in a store, an unknown key is `Ask`.
    pub fn begin(self: &Arc<Self>, claim: Claim) -> Begin {
        let now_ms = self.clock.now_ms();
        if let Some(answer) = self.known(claim, now_ms) {
            return answer;
        }
        let cost = self.in_flight_cost();
        let reserved = self.reserve(cost) || self.search(now_ms) && self.reserve(cost);
        if !reserved {
            // The last room may have gone to this very key.
            return self.known(claim, now_ms).unwrap_or(Begin::Full);
        }
        let settled = Arc::new(Settled::default());
        let state = State::InFlight { settled: settled.clone() };
        let token = if self.durable.is_some() { rand::random() } else { Token::default() };
        let record = Record { fingerprint: claim.fingerprint, token, state, cost };
        let mut replaces = None;
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
                replaces = Some(old.token);
            }
        }
        let lease = Lease {
            replays: self.clone(),
            scope: claim.scope,
            token,
            hold: Hold::Here,
            settled,
            sent: Arc::default(),
            open: true,
        };
        match self.durable {
            None => Begin::Run(lease),
            Some(_) => Begin::Ask(Box::new(Inquiry { lease, claim, replaces })),
        }
    }

    /// As `begin`, but asks the store and waits for a call that is running; `InFlight` is then
    /// one that still does.
    pub async fn begin_or_wait(self: &Arc<Self>, claim: Claim) -> Begin {
        match self.decide(claim).await {
            Begin::InFlight(waiter) => waiter.wait().await,
            decided => decided,
        }
    }

    pub(super) fn known(self: &Arc<Self>, claim: Claim, now_ms: u64) -> Option<Begin> {
        let record = self.records.get(&claim.scope)?;
        self.answer(&record, claim, now_ms)
    }

    /// What this record means to the claim; `None` if it is as good as absent.
    fn answer(self: &Arc<Self>, record: &Record, claim: Claim, now_ms: u64) -> Option<Begin> {
        if record.expired(now_ms) {
            return None;
        }
        let agrees = claim.agrees(record.fingerprint);
        if agrees == Some(false) {
            return Some(Begin::Conflict);
        }
        match &record.state {
            // The key is gone by which the arguments could be compared.
            State::Done { .. } if agrees.is_none() => {
                Some(Begin::Replay(Arc::new(Stored::Unreadable)))
            }
            State::InFlight { settled } => Some(Begin::InFlight(Waiter {
                replays: self.clone(),
                claim,
                running: Running::Here(settled.notify()),
            })),
            State::Done { stored, .. } => Some(Begin::Replay(stored.clone())),
            State::Unknown { .. } if claim.retry_safe && agrees.is_some() => None,
            State::Unknown { .. } => Some(Begin::Unknown),
            State::Free => None,
        }
    }

    /// What a call in flight counts for: its answer may be the longest that is kept.
    pub(super) fn in_flight_cost(&self) -> u64 {
        OVERHEAD + self.settings.max_answer as u64
    }

    fn reserve(&self, cost: u64) -> bool {
        if self.keys.fetch_add(1, Ordering::Relaxed) >= self.settings.max_keys {
            less(&self.keys, 1);
            return false;
        }
        let room = self.settings.capacity.saturating_sub(cost);
        if self.bytes.fetch_add(cost, Ordering::Relaxed) > room || cost > self.settings.capacity {
            self.release(cost);
            return false;
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(super) fn release(&self, cost: u64) {
        less(&self.keys, 1);
        self.give_back(cost);
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        // Not below nothing: what a store counts may be a moment older than what is given back.
        let _ = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |b| Some(b.saturating_sub(bytes)));
    }

    /// Forgets what has expired, for somebody who found no room; once in a second, since it
    /// takes a while and may find nothing.
    fn search(self: &Arc<Self>, now_ms: u64) -> bool {
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
    pub fn sweep(self: &Arc<Self>) {
        let now_ms = self.clock.now_ms();
        self.records.retain(|_, record| {
            let keep = !record.expired(now_ms);
            if !keep {
                self.release(record.cost);
            }
            keep
        });
        self.sweep_store(now_ms);
    }

    pub fn usage(&self) -> Usage {
        Usage { keys: self.keys.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    /// How long a second call waits for the first; also what one that still runs is told to
    /// wait.
    pub fn wait(&self) -> Duration {
        self.settings.wait
    }

    /// Ends what is in flight and known here alone.
    pub(super) fn settle(&self, scope: ScopeId, state: State) {
        // Nobody else removes or replaces a record in flight, so this one is the lease's.
        if matches!(state, State::Free) {
            if let Some((_, record)) = self.records.remove(&scope) {
                self.release(record.cost);
            }
        } else if let Some(mut record) = self.records.get_mut(&scope) {
            let cost = state.cost();
            self.give_back(record.cost.saturating_sub(cost));
            record.cost = cost;
            record.state = state;
        }
    }

    fn expiry(&self) -> u64 {
        let keep = u64::try_from(self.settings.keep.as_millis()).unwrap_or(u64::MAX);
        self.clock.now_ms().saturating_add(keep)
    }
}

pub(super) fn less(counter: &AtomicUsize, by: usize) {
    let _ = counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count.saturating_sub(by)));
}

impl Record {
    fn expired(&self, now_ms: u64) -> bool {
        match self.state {
            State::InFlight { .. } | State::Free => false,
            State::Done { expires_ms, .. } | State::Unknown { expires_ms } => expires_ms <= now_ms,
        }
    }
}

impl State {
    /// What it counts for.
    pub(super) fn cost(&self) -> u64 {
        OVERHEAD
            + match self {
                State::Done { stored, .. } => stored.len() as u64,
                _ => 0,
            }
    }

    /// The same, unless the call still runs.
    pub(super) fn ended(&self) -> Option<State> {
        match self {
            State::InFlight { .. } => None,
            State::Done { stored, expires_ms } => {
                Some(State::Done { stored: stored.clone(), expires_ms: *expires_ms })
            }
            State::Unknown { expires_ms } => Some(State::Unknown { expires_ms: *expires_ms }),
            State::Free => Some(State::Free),
        }
    }
}

impl Settled {
    fn notify(&self) -> Arc<Notify> {
        self.0.get_or_init(Arc::default).clone()
    }

    pub(super) fn wake(&self) {
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
    pub fn finish(mut self, answer: &Final) -> Saved {
        let stored = Arc::new(Stored::of(answer, self.replays.settings.max_answer));
        let expires_ms = self.replays.expiry();
        self.settle(State::Done { stored, expires_ms })
    }

    /// The call did not take place: refused further down, or not sent at all.
    pub fn free(mut self) -> Saved {
        self.settle(State::Free)
    }

    /// The call was sent and was not answered.
    pub fn unknown(mut self) -> Saved {
        let expires_ms = self.replays.expiry();
        self.settle(State::Unknown { expires_ms })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.open {
            let sent = self.sent.load(Ordering::Acquire);
            let expires_ms = self.replays.expiry();
            // Nobody is there to wait for it.
            let _ = self.settle(if sent { State::Unknown { expires_ms } } else { State::Free });
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("sent", &self.sent).finish_non_exhaustive()
    }
}

// === impl Waiter ===

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
