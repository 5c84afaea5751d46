//! When an upstream is not called any more for a while.
//!
//! It counts by how much failures are ahead of successes. While nothing fails, a call reads one
//! number and writes none. What counts as a failure is its user's business.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::telemetry::Metrics;

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// By so much failures have to be ahead of successes: so many in a row, or more of a mixture
    /// in which more than half fail.
    pub failures: u32,
    /// A failure after so long without one counts as the first.
    pub window: Duration,
    /// How long nothing is sent, at first; each time that the one call after it fails, twice as
    /// long.
    pub pause: Duration,
    pub max_pause: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 20,
            window: Duration::from_secs(30),
            // A restart of a moment lets busy callers fail 20 times: it must not cost seconds.
            pause: Duration::from_millis(500),
            max_pause: Duration::from_secs(60),
        }
    }
}

/// Where a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    /// The next call is tried, or is being tried.
    HalfOpen,
    Open,
}

/// One upstream's breaker, shared by all cores.
pub struct Breaker {
    upstream: Arc<str>,
    /// `None`: it never opens.
    config: Option<BreakerConfig>,
    metrics: Option<Arc<Metrics>>,
    born: Instant,
    /// Milliseconds since `born` up to which nothing is sent; 0: closed.
    until: AtomicU64,
    /// By how much failures are ahead.
    ahead: AtomicU32,
    /// When the last failure was, in milliseconds since `born`.
    failed: AtomicU64,
    /// One call is being tried.
    probing: AtomicBool,
    /// How often it has opened since it was closed.
    times: AtomicU32,
}

/// The one call that may show that an upstream is well again. Dropped without a word, it leaves
/// that to the next.
pub struct Probe {
    breaker: Arc<Breaker>,
}

// === impl Breaker ===

impl Breaker {
    /// One that never opens where there is no `config`.
    pub fn new(upstream: Arc<str>, config: Option<BreakerConfig>) -> Self {
        Self {
            upstream,
            config,
            metrics: None,
            born: Instant::now(),
            until: AtomicU64::new(0),
            ahead: AtomicU32::new(0),
            failed: AtomicU64::new(0),
            probing: AtomicBool::new(false),
            times: AtomicU32::new(0),
        }
    }

    /// Also tells the metrics where it stands.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        if self.config.is_some() {
            metrics.breaker(&self.upstream, BreakerState::Closed as i64);
        }
        self.metrics = Some(metrics);
        self
    }

    pub fn state(&self) -> BreakerState {
        match self.until.load(Ordering::Relaxed) {
            0 => BreakerState::Closed,
            until if self.now() < until => BreakerState::Open,
            _ => BreakerState::HalfOpen,
        }
    }

    /// Lets a call through, or says after what time to come again.
    pub fn admit(self: &Arc<Self>) -> Result<Option<Probe>, Duration> {
        match self.until.load(Ordering::Relaxed) {
            0 => Ok(None),
            until => self.admit_one(until),
        }
    }

    fn admit_one(self: &Arc<Self>, until: u64) -> Result<Option<Probe>, Duration> {
        let now = self.now();
        if now < until {
            return Err(Duration::from_millis(until - now));
        }
        if self.probing.swap(true, Ordering::Acquire) {
            let pause = self.config.map_or(Duration::ZERO, |config| config.pause);
            return Err(pause.min(Duration::from_secs(1)));
        }
        let probe = Probe { breaker: self.clone() };
        match self.until.load(Ordering::Relaxed) {
            // Another one has shown meanwhile that it is well, or that it is not.
            0 => Ok(None),
            until if self.now() < until => Err(Duration::from_millis(until - now)),
            _ => {
                self.tell(BreakerState::HalfOpen);
                Ok(Some(probe))
            }
        }
    }

    /// An answer came.
    pub fn succeeded(&self) {
        if self.ahead.load(Ordering::Relaxed) != 0 {
            let less = |ahead: u32| ahead.checked_sub(1);
            let _ = self.ahead.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// The upstream turned out to be unwell.
    pub fn failed(&self) {
        let Some(config) = &self.config else { return };
        // Calls that were under way when it opened say nothing new.
        if self.until.load(Ordering::Relaxed) != 0 {
            return;
        }
        let now = self.now();
        let last = self.failed.swap(now, Ordering::Relaxed);
        if now.saturating_sub(last) > to_ms(config.window) {
            self.ahead.store(0, Ordering::Relaxed);
        }
        if self.ahead.fetch_add(1, Ordering::Relaxed) + 1 < config.failures {
            return;
        }
        let pause = self.next_pause(config);
        let until = (now + to_ms(pause)).max(1);
        let opened =
            self.until.compare_exchange(0, until, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if opened {
            self.tell(BreakerState::Open);
            tracing::warn!(
                upstream.name = &*self.upstream,
                failures = config.failures,
                pause_ms = to_ms(pause),
                "An upstream keeps failing and is not called for a while"
            );
        }
    }

    /// How long it stays open this time.
    fn next_pause(&self, config: &BreakerConfig) -> Duration {
        let times = self.times.fetch_add(1, Ordering::Relaxed).min(16);
        config.pause.saturating_mul(1 << times).min(config.max_pause.max(config.pause))
    }

    fn close(&self) {
        self.ahead.store(0, Ordering::Relaxed);
        self.times.store(0, Ordering::Relaxed);
        self.until.store(0, Ordering::Relaxed);
        self.tell(BreakerState::Closed);
        let name = &*self.upstream;
        tracing::info!(upstream.name = name, "An upstream answers and is called again");
    }

    fn reopen(&self) {
        let Some(config) = &self.config else { return };
        let until = self.now() + to_ms(self.next_pause(config));
        self.until.store(until.max(1), Ordering::Relaxed);
        self.tell(BreakerState::Open);
    }

    fn tell(&self, state: BreakerState) {
        if let Some(metrics) = &self.metrics {
            metrics.breaker(&self.upstream, state as i64);
        }
    }

    fn now(&self) -> u64 {
        to_ms(self.born.elapsed())
    }
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

// === impl Probe ===

impl Probe {
    /// The upstream answered.
    pub fn succeeded(self) {
        self.breaker.close();
    }

    pub fn failed(self) {
        self.breaker.reopen();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.breaker.probing.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker(failures: u32) -> Arc<Breaker> {
        let config = BreakerConfig {
            failures,
            window: 30 * SECOND,
            pause: 5 * SECOND,
            max_pause: 15 * SECOND,
        };
        Arc::new(Breaker::new("up".into(), Some(config)))
    }

    /// Goes through `+` (an answer) and `-` (a failure), one after the other.
    fn run(breaker: &Breaker, marks: &str) {
        for mark in marks.chars() {
            if mark == '+' { breaker.succeeded() } else { breaker.failed() }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_where_failures_are_ahead() {
        for (marks, open) in [
            ("", false),
            ("---", false),
            ("----", true),
            ("---+-", false),
            ("---+--", true),
            ("-+-+-+-+-+-+", false),
            ("--+--+--+--+-", true),
            ("++++++++++++++++----", true),
        ] {
            let breaker = breaker(4);
            run(&breaker, marks);
            let state = if open { BreakerState::Open } else { BreakerState::Closed };
            assert_eq!(breaker.state(), state, "{marks}");
            assert_eq!(breaker.admit().is_err(), open, "{marks}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_that_are_far_apart_do_not_add_up() {
        let breaker = breaker(2);
        for _ in 0..5 {
            breaker.failed();
            advance(31 * SECOND).await;
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        breaker.failed();
        advance(29 * SECOND).await;
        breaker.failed();
        assert_eq!(breaker.state(), BreakerState::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_is_tried_after_the_pause() {
        let breaker = breaker(1);
        breaker.failed();
        advance(2 * SECOND).await;
        assert_eq!(breaker.admit().err(), Some(3 * SECOND));
        advance(3 * SECOND).await;
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        let probe = breaker.admit().unwrap().unwrap();
        assert!(breaker.admit().is_err());
        // Given up by its caller, it says nothing: the next is tried.
        drop(probe);
        let probe = breaker.admit().unwrap().unwrap();
        // What was sent before it opened changes nothing.
        run(&breaker, "+-+-");
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        probe.succeeded();
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(matches!(breaker.admit(), Ok(None)));
        // Closed is closed: it takes as many failures as before, and the pause is the first one.
        breaker.failed();
        assert_eq!(breaker.admit().err(), Some(5 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn each_failed_trial_doubles_the_pause_up_to_the_longest() {
        let breaker = breaker(1);
        breaker.failed();
        for pause in [5, 10, 15, 15] {
            let pause = pause * SECOND;
            assert_eq!(breaker.admit().err(), Some(pause));
            advance(pause).await;
            breaker.admit().unwrap().unwrap().failed();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_off_never_opens() {
        let breaker = Arc::new(Breaker::new("up".into(), None));
        run(&breaker, &"-".repeat(1_000));
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(matches!(breaker.admit(), Ok(None)));
    }
}
