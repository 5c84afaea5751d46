//! How the gateway stops: unready, then closed to new work, then done.
//!
//! Knows nothing of signals or sockets: `process.rs` begins it, `server.rs` obeys it.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

/// How long the end of the workers may take once nothing is waited for.
const STUCK: Duration = Duration::from_secs(2);

/// How far a shutdown has come. It never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Running,
    /// Not ready any more, but everything is still served: load balancers need time to see it.
    Draining,
    /// No new connections; calls under way are finished.
    Closing,
    /// Nothing is waited for.
    Aborted,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every call got its answer.
    Clean,
    /// The time was up, or somebody was in a hurry.
    CutShort,
}

/// The one handle to a shutdown; clones are the same one.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    phase: watch::Sender<Phase>,
    /// Another process serves the same sockets.
    handed_over: watch::Sender<bool>,
    /// Every worker holds a receiver: when the last one is dropped, all have ended.
    workers: watch::Sender<()>,
}

/// Held by what a shutdown waits for.
#[derive(Debug)]
pub(super) struct Awaited(
    #[expect(dead_code, reason = "its existence is what counts")] watch::Receiver<()>,
);

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            phase: watch::Sender::new(Phase::Running),
            handed_over: watch::Sender::new(false),
            workers: watch::Sender::new(()),
        }))
    }

    pub fn phase(&self) -> Phase {
        *self.0.phase.borrow()
    }

    /// Whether the gateway has to be reported as not ready.
    pub fn is_draining(&self) -> bool {
        self.phase() >= Phase::Draining
    }

    /// Waits until the shutdown has come as far as `phase`.
    pub async fn reached(&self, phase: Phase) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.0.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Moves on to `phase`, unless it is further on already.
    pub fn advance(&self, phase: Phase) {
        self.0.phase.send_if_modified(|now| {
            let further = phase > *now;
            if further {
                *now = phase;
            }
            further
        });
    }

    /// Another process has the sockets and is ready: what is not a call under way is its own.
    pub fn hand_over(&self) {
        self.0.handed_over.send_replace(true);
    }

    /// Waits until another process has taken the sockets over.
    pub async fn handed_over(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.0.handed_over.subscribe().wait_for(|handed_over| *handed_over).await;
    }

    /// Stops at once: calls under way are dropped.
    pub fn abort(&self) {
        self.advance(Phase::Aborted);
    }

    /// The whole of it: unready for `delay`, then closed, then up to `timeout` for the calls
    /// under way. Returns when every worker has ended.
    pub async fn drain(&self, delay: Duration, timeout: Duration) -> Drained {
        self.advance(Phase::Draining);
        if !delay.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.reached(Phase::Aborted) => {}
            }
        }
        self.advance(Phase::Closing);
        tokio::select! {
            biased;
            () = self.0.workers.closed() => return self.outcome(),
            () = self.reached(Phase::Aborted) => {}
            () = tokio::time::sleep(timeout) => self.abort(),
        }
        // A core that is stuck in a computation cannot even be told.
        let _ = tokio::time::timeout(STUCK, self.0.workers.closed()).await;
        self.outcome()
    }

    /// How it went, once everything has ended.
    pub fn outcome(&self) -> Drained {
        if self.phase() == Phase::Aborted { Drained::CutShort } else { Drained::Clean }
    }

    pub(super) fn wait_for_me(&self) -> Awaited {
        Awaited(self.0.workers.subscribe())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tasks of a test end with its runtime")]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_the_workers_and_no_longer() {
        let shutdown = Shutdown::new();
        let worker = shutdown.wait_for_me();
        let draining = shutdown.clone();
        let drain = tokio::spawn(async move {
            draining.drain(Duration::from_secs(5), Duration::from_secs(30)).await
        });
        shutdown.reached(Phase::Draining).await;
        assert!(shutdown.is_draining());
        shutdown.reached(Phase::Closing).await;
        drop(worker);
        assert_eq!(drain.await.unwrap(), Drained::Clean);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_gives_up_when_its_time_is_over() {
        let shutdown = Shutdown::new();
        let worker = shutdown.wait_for_me();
        let watched = shutdown.clone();
        tokio::spawn(async move {
            watched.reached(Phase::Aborted).await;
            drop(worker);
        });
        let outcome = shutdown.drain(Duration::ZERO, Duration::from_secs(30)).await;
        assert_eq!(outcome, Drained::CutShort);
    }

    #[test]
    fn a_shutdown_never_goes_back() {
        let shutdown = Shutdown::new();
        shutdown.abort();
        shutdown.advance(Phase::Draining);
        assert_eq!(shutdown.phase(), Phase::Aborted);
    }
}
