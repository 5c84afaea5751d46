//! Wall-clock time, so that what expires can be tested without waiting.
//!
//! Monotonic time is `tokio::time::Instant`, which tests pause.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The time of day, in milliseconds since 1970.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// The machine's own clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that stands at `ms` until it is moved.
    pub fn manual(ms: u64) -> Self {
        Self(Some(Arc::new(AtomicU64::new(ms))))
    }

    /// Moves a manual clock on; the machine's own clock cannot be moved.
    pub fn advance(&self, by: Duration) {
        if let Some(ms) = &self.0 {
            ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Milliseconds since 1970; 0 for a machine whose clock stands before that.
    #[expect(clippy::disallowed_methods, reason = "this is the clock the others go through")]
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            Some(ms) => ms.load(Ordering::Relaxed),
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// Milliseconds since 1970 as RFC 3339 writes them, in UTC.
pub fn rfc3339(ms: u64) -> String {
    let timestamp =
        i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    // What is beyond the year 9999 is never.
    let timestamp = timestamp.unwrap_or(jiff::Timestamp::MAX);
    timestamp.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
