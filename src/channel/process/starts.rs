//! When a process that keeps ending may be started again: at once after the first time, then
//! ever later.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use rand::RngExt;
use tokio::time::Instant;

use super::super::reply::{self, Name};
use crate::error::{Error, Next};

/// A process that ran for so long was sound, whatever ended it.
const SOUND: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// The same for one that had answered before it ended: one caller's calls may do that to it, and
/// the others must not be kept out for long.
const LONGEST_ANSWERED: Duration = Duration::from_secs(2);

/// The starts of one upstream's processes.
pub(super) struct Starts {
    upstream: Name,
    healthy: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Ends in a row that nobody asked for.
    strikes: u32,
    not_before: Option<Instant>,
}

impl Starts {
    pub fn new(upstream: Name) -> Self {
        Self { upstream, healthy: AtomicBool::new(true), state: Mutex::default() }
    }

    /// # Errors
    /// While a process that keeps ending is left alone.
    pub fn allowed(&self) -> Result<(), Error> {
        let state = self.state.lock();
        let now = Instant::now();
        match state.not_before {
            Some(then) if then > now => {
                let what = format!(
                    "keeps ending ({} times in a row): it is not started again for {} ms",
                    state.strikes,
                    (then - now).as_millis()
                );
                Err(reply::failure(&self.upstream, &what, "process_exited")
                    // Nothing was tried: it is the gateway that waits.
                    .with_trouble(None)
                    .with_advice(true, Next::Retry)
                    .with_retry_after(then - now))
            }
            _ => Ok(()),
        }
    }

    /// A process has answered something.
    pub fn answered(&self) {
        self.healthy.store(true, Ordering::Relaxed);
    }

    /// A process ended that nobody had ended, or could not be started.
    pub fn failed(&self, lived: Duration, answered: bool) {
        self.healthy.store(false, Ordering::Relaxed);
        let mut state = self.state.lock();
        if lived >= SOUND {
            state.strikes = 0;
        }
        state.strikes = state.strikes.saturating_add(1);
        let longest = if answered { LONGEST_ANSWERED } else { LONGEST };
        let pause = pause(state.strikes).min(longest);
        // A fifth either way, so that replicas do not fall into step.
        let pause = pause.mul_f64(rand::rng().random_range(0.8..1.2));
        state.not_before = (!pause.is_zero()).then(|| Instant::now() + pause);
    }

    pub fn healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }
}

fn pause(strikes: u32) -> Duration {
    match strikes.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => FIRST.saturating_mul(1 << doublings.min(16)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_keeps_ending_waits_ever_longer() {
        let starts = Starts::new("crm".into());
        assert!(starts.healthy());
        starts.failed(Duration::ZERO, false);
        assert!(starts.allowed().is_ok(), "the first time is forgiven");
        let mut last = Duration::ZERO;
        for _ in 0..5 {
            starts.failed(Duration::ZERO, false);
            let error = starts.allowed().unwrap_err();
            assert!(error.message().contains("keeps ending"), "{error}");
            let wait = error.retry_after().unwrap();
            assert!(wait > last, "{wait:?} after {last:?}");
            last = wait;
        }
        assert!(!starts.healthy());
        tokio::time::advance(last).await;
        assert!(starts.allowed().is_ok());
        starts.answered();
        assert!(starts.healthy());
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_after_a_sound_life_is_forgiven() {
        let starts = Starts::new("crm".into());
        for _ in 0..20 {
            starts.failed(SOUND, true);
            assert!(starts.allowed().is_ok());
        }
        for _ in 0..40 {
            starts.failed(Duration::ZERO, false);
        }
        let wait = || starts.allowed().unwrap_err().retry_after().unwrap();
        assert!((LONGEST.mul_f64(0.8)..=LONGEST.mul_f64(1.2)).contains(&wait()));
        starts.failed(Duration::ZERO, true);
        assert!(wait() <= LONGEST_ANSWERED.mul_f64(1.2));
    }
}
