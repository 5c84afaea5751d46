//! How often a call may be sent again, and when: the budget of one upstream.
//!
//! Not here: which calls may be. Whoever knows what a call is, and how it failed, decides that
//! first; this only keeps an upstream that fails from being sent much more than it was asked.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

/// The most attempts after the first, whatever is configured.
pub const MOST: usize = 2;

/// The time within which the reserve is there again.
const WINDOW_MS: u64 = 10_000;

/// What one more attempt takes from the credit; a call adds as much as the budget has percent.
const COST: u64 = 100;

/// Within what an upstream's calls are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryConfig {
    /// Attempts after the first, of one call. At most [`MOST`]; 0: none.
    pub max: usize,
    /// In percent of the calls.
    pub budget: u64,
    /// So many beyond that within ten seconds, for upstreams that are seldom called.
    pub reserve: u64,
    /// About as long as the first pause; each further one is twice as long.
    pub backoff: Duration,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { max: MOST, budget: 20, reserve: 10, backoff: Duration::from_millis(50) }
    }
}

/// One upstream's budget, shared by all cores.
///
/// While nothing fails the credit is full, and a call only looks at it.
#[derive(Debug)]
pub struct Retries {
    config: RetryConfig,
    born: Instant,
    credit: AtomicU64,
    /// Milliseconds since `born` up to which the reserve was given.
    given: AtomicU64,
}

/// Addresses to which earlier attempts of a call went.
#[derive(Debug, Default)]
pub struct Tried(Mutex<SmallVec<[u64; 4]>>);

// === impl Retries ===

impl Retries {
    pub fn new(config: RetryConfig) -> Self {
        let retries = Self {
            config,
            born: Instant::now(),
            credit: AtomicU64::new(0),
            given: AtomicU64::new(0),
        };
        retries.credit.store(retries.full(), Ordering::Relaxed);
        retries
    }

    /// A call that may need more than one attempt.
    pub fn called(&self) {
        if self.credit.load(Ordering::Relaxed) < self.full() {
            self.add(self.config.budget);
        }
    }

    /// How often one call may be sent again.
    pub fn max(&self) -> usize {
        self.config.max.min(MOST)
    }

    /// Takes one more attempt from the budget; false where it is spent.
    pub fn take(&self) -> bool {
        self.earn();
        let less = |credit: u64| credit.checked_sub(COST);
        self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// The pause before a call is sent again the `nth` time, from 1. `spread`, from 0 to 1, keeps
    /// those apart that failed together.
    pub fn pause(&self, nth: usize, spread: f64) -> Duration {
        let doubled = 1 << nth.saturating_sub(1).min(MOST);
        let whole = self.config.backoff.saturating_mul(doubled);
        whole.mul_f64(0.5 + spread.clamp(0.0, 1.0))
    }

    /// The most there can be in hand. One attempt at least, or the calls' share of it would be lost.
    fn full(&self) -> u64 {
        let least = u64::from(self.config.budget > 0);
        self.config.reserve.max(least) * COST
    }

    fn add(&self, more: u64) {
        let full = self.full();
        let add = |credit: u64| Some(credit.saturating_add(more).min(full));
        // It never declines.
        let _ = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Adds what the time since then has brought of the reserve.
    fn earn(&self) {
        let now = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        let since = self.given.load(Ordering::Relaxed);
        let earned =
            now.saturating_sub(since).saturating_mul(self.config.reserve * COST) / WINDOW_MS;
        // Too little to count is left to the next look.
        if earned > 0
            && self.given.compare_exchange(since, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.add(earned);
        }
    }
}

// === impl Tried ===

impl Tried {
    pub(super) fn note(&self, address: u64) {
        self.0.lock().push(address);
    }

    pub(super) fn addresses(&self) -> SmallVec<[u64; 4]> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(budget: u64, reserve: u64) -> Retries {
        Retries::new(RetryConfig { budget, reserve, ..RetryConfig::default() })
    }

    fn taken(retries: &Retries) -> usize {
        (0..1_000).take_while(|_| retries.take()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_of_the_calls_and_the_reserve_is_all_there_is() {
        for (budget, reserve, calls, expected) in
            [(20, 10, 0, 10), (20, 0, 0, 1), (0, 3, 100, 3), (0, 0, 100, 0), (100, 1, 50, 1)]
        {
            let retries = retries(budget, reserve);
            (0..calls).for_each(|_| retries.called());
            assert_eq!(taken(&retries), expected, "{budget} {reserve} {calls}");
        }
        // Spent, a hundred calls bring twenty more, one by one.
        let retries = retries(20, 10);
        taken(&retries);
        let allowed = (0..100)
            .filter(|_| {
                retries.called();
                retries.take()
            })
            .count();
        assert_eq!(allowed, 20);
    }

    #[tokio::test(start_paused = true)]
    async fn the_reserve_comes_back_with_time() {
        let retries = retries(20, 10);
        assert_eq!(taken(&retries), 10);
        for _ in 0..100 {
            // Looking often does not lose what is too little at each look.
            tokio::time::advance(Duration::from_millis(50)).await;
            retries.earn();
        }
        assert_eq!(taken(&retries), 5);
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert_eq!(taken(&retries), 10);
    }

    #[test]
    fn pauses_double_and_are_spread() {
        let retries = retries(20, 10);
        for (nth, spread, ms) in [(1, 0.0, 25), (1, 1.0, 75), (2, 0.5, 100), (2, 9.0, 150)] {
            assert_eq!(retries.pause(nth, spread), Duration::from_millis(ms), "{nth} {spread}");
        }
    }

    #[test]
    fn more_than_two_is_never_configured() {
        let max = |max| Retries::new(RetryConfig { max, ..RetryConfig::default() }).max();
        assert_eq!([max(0), max(1), max(2), max(9)], [0, 1, 2, 2]);
    }
}
