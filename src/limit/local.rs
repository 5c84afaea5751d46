//! Rates, counted in this process.
//!
//! `governor` does the arithmetic (GCRA). Its own stores are not used: they can neither look at
//! a limit without charging it nor give a charge back exactly, and a call must pass all of its
//! limits before it is charged by any. So a call locks its counters, in the order of the limits'
//! numbers (which is why no two calls can wait for each other), asks `governor` about each, and
//! writes all or nothing. A counter is shared by those who share the limit's key and by nobody
//! else, and is held for some ten nanoseconds.

use std::{
    cell::Cell,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use governor::{
    Quota, RateLimiter, clock, middleware::StateInformationMiddleware, nanos::Nanos,
    state::StateStore,
};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    Admitted, Exceeded, Policy, Snapshot,
    keys::Keys,
    spec::{Dimension, Rate},
    whole_ms,
};

/// The longest time in which a full burst may come back.
const LONGEST: Duration = Duration::from_hours(24 * 3_652);

/// A limit on rate, ready to be asked.
pub(super) struct RateLimit {
    pub(super) policy: Arc<Policy>,
    gcra: RateLimiter<Debt, Draft, AtZero, StateInformationMiddleware>,
    /// From one call to the next.
    interval: Duration,
    /// What a full burst owes but for its last call.
    tolerance: Duration,
    by_address: bool,
    /// Where the keys are counted together for which there was no room.
    overflow: Arc<Counter>,
}

/// The limits that are about a call, each with the call's counter, in the order of the limits'
/// numbers.
pub(super) type Counted<'a> = SmallVec<[(&'a RateLimit, Arc<Counter>); 3]>;

/// Every rate's counters.
pub(super) struct Rates {
    started: Instant,
    /// Anybody can come from many addresses, only a caller with a key can name many employees:
    /// the former must not take the latter's room.
    by_address: Keys<Counter>,
    others: Keys<Counter>,
}

/// When this key will owe nothing, in nanoseconds since the counters began.
#[derive(Debug, Default)]
pub(super) struct Counter(Mutex<u64>);

// === impl RateLimit ===

impl RateLimit {
    /// `None` if the rate is none that could be kept.
    pub fn new(id: Arc<str>, rate: Rate, per: &[Dimension]) -> Option<Self> {
        // Rounded up: not a call too many, however long it runs.
        let interval = rate.period.as_nanos().div_ceil(u128::from(rate.count.get()));
        let interval = Duration::from_nanos(u64::try_from(interval).ok()?);
        let full = interval.checked_mul(rate.burst.get()).filter(|full| *full <= LONGEST)?;
        let quota = Quota::with_period(interval)?.allow_burst(rate.burst);
        Some(Self {
            policy: Arc::new(Policy::new(id, rate.count.get(), Some(rate.period))),
            gcra: RateLimiter::new(quota, Draft, AtZero),
            interval,
            tolerance: full - interval,
            by_address: per.contains(&Dimension::Address),
            overflow: Arc::new(Counter::default()),
        })
    }

    /// What will be owed after one more call, by one who owes `debt` now; or how long to wait.
    fn ask(&self, debt: u64) -> Result<(u32, u64), Duration> {
        let debt = Debt { now: debt, then: Cell::new(debt) };
        match self.gcra.check_key(&debt) {
            Ok(state) => Ok((state.remaining_burst_capacity(), debt.then.get())),
            Err(not_until) => Err(not_until.wait_time_from(Nanos::new(0))),
        }
    }

    /// Where one stands who owes `debt` and could send `remaining` more at once.
    fn snapshot(&self, remaining: u32, debt: u64) -> Snapshot {
        // One more call than `remaining` fits when the debt is down to the tolerance less those.
        let fits = self.tolerance.saturating_sub(self.interval * remaining);
        let reset = Duration::from_nanos(debt).saturating_sub(fits);
        Snapshot { policy: self.policy.clone(), remaining, reset }
    }
}

// === impl Rates ===

impl Rates {
    pub fn new(started: Instant, max_keys: usize) -> Self {
        Self { started, by_address: Keys::new(max_keys), others: Keys::new(max_keys) }
    }

    /// Charges all of these, or none: none if one of them refuses, or if `then` has nothing to
    /// give. It is asked when all have agreed, and while nobody else can use up what is left.
    pub fn charge<T>(
        &self,
        counted: &Counted<'_>,
        now: Instant,
        then: impl FnOnce() -> Result<Option<T>, Exceeded>,
    ) -> Result<Option<(Admitted, T)>, Exceeded> {
        let now = self.nanos(now);
        let mut held: SmallVec<[(MutexGuard<'_, u64>, u32, u64); 3]> = SmallVec::new();
        let mut refused: Option<(&RateLimit, Duration)> = None;
        for (limit, counter) in counted {
            let counter = counter.0.lock();
            match limit.ask(counter.saturating_sub(now)) {
                Ok((remaining, debt)) => held.push((counter, remaining, debt)),
                Err(wait) if refused.is_none_or(|(_, longest)| wait > longest) => {
                    refused = Some((limit, wait));
                }
                Err(_) => {}
            }
        }
        if let Some((limit, wait)) = refused {
            drop(held);
            let snapshot = Snapshot { policy: limit.policy.clone(), remaining: 0, reset: wait };
            return Err(Exceeded { snapshot, retry_after: whole_ms(wait) });
        }
        let Some(given) = then()? else { return Ok(None) };
        let mut tightest = Tightest::default();
        for ((limit, _), (counter, remaining, debt)) in counted.iter().zip(&mut held) {
            **counter = now.saturating_add(*debt);
            tightest.see(limit, *remaining, *debt);
        }
        drop(held);
        Ok(Some((tightest.told(), given)))
    }

    /// The counter of `key` under `limit`.
    pub fn counter(&self, limit: &RateLimit, key: &[u8]) -> Arc<Counter> {
        let keys = self.keys_of(limit);
        // A key that was counted with the others until now takes their debt along: it may be its
        // own.
        let make = || Counter(Mutex::new(*limit.overflow.0.lock()));
        if let Some(counter) = keys.get_or_make(key, make) {
            return counter;
        }
        let now = self.nanos(Instant::now());
        if keys.search_due(now) {
            keys.forget(|counter| counter.is_replenished(now));
            if let Some(counter) = keys.get_or_make(key, make) {
                return counter;
            }
        }
        limit.overflow.clone()
    }

    fn keys_of(&self, limit: &RateLimit) -> &Keys<Counter> {
        if limit.by_address { &self.by_address } else { &self.others }
    }

    fn nanos(&self, now: Instant) -> u64 {
        // 584 years.
        u64::try_from(now.saturating_duration_since(self.started).as_nanos()).unwrap_or(u64::MAX)
    }

    pub fn sweep(&self, now: Instant) {
        let now = self.nanos(now);
        for keys in [&self.by_address, &self.others] {
            keys.forget(|counter| counter.is_replenished(now));
        }
    }

    pub fn keys(&self) -> usize {
        self.by_address.len() + self.others.len()
    }
}

impl Counter {
    /// Whether it says the same as one that was never charged.
    fn is_replenished(&self, now: u64) -> bool {
        *self.0.lock() <= now
    }
}

/// Picks the two limits that will be hit first: the fewest calls left, then the longest wait.
#[derive(Default)]
struct Tightest<'a>([Option<(&'a RateLimit, u32, u64)>; 2]);

impl<'a> Tightest<'a> {
    fn see(&mut self, limit: &'a RateLimit, remaining: u32, debt: u64) {
        let mut candidate = (limit, remaining, debt);
        for place in &mut self.0 {
            match place {
                Some(kept)
                    if (kept.1, u64::MAX - kept.2) <= (candidate.1, u64::MAX - candidate.2) => {}
                Some(kept) => std::mem::swap(kept, &mut candidate),
                None => {
                    *place = Some(candidate);
                    return;
                }
            }
        }
    }

    fn told(self) -> Admitted {
        let tightest =
            self.0.map(|kept| kept.map(|(limit, remaining, debt)| limit.snapshot(remaining, debt)));
        Admitted { tightest }
    }
}

// How `governor` is asked: in the call's own time, where now is zero and what counts is how much
// a key owes. GCRA is the same at any hour, so nothing is lost, and one reading of the clock
// serves all limits of a call.

/// What a key owes, and what it will owe after the call; `governor` calls it a key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Debt {
    now: u64,
    then: Cell<u64>,
}

impl Hash for Debt {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.now.hash(state);
    }
}

/// Notes what would be owed, instead of keeping it.
#[derive(Debug)]
struct Draft;

impl StateStore for Draft {
    type Key = Debt;

    fn measure_and_replace<T, F, E>(&self, debt: &Debt, f: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (outcome, then) = f(Some(Nanos::new(debt.now)))?;
        debt.then.set(then.as_u64());
        Ok(outcome)
    }
}

/// The clock of a call's own time.
#[derive(Debug, Clone, Copy)]
struct AtZero;

impl clock::Clock for AtZero {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(0)
    }
}
