//! What is known of the policy files beside what is in force, and how somebody has them looked
//! at: between the thread that reads them and whoever asks.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use crate::{
    fault::{Fault, Format, Report},
    model::trace::to_hex,
    policy::HeldFile,
};

/// Since when, and by how much, what is in force is older than the files; and which files it is.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    stale: Mutex<Option<Stale>>,
    /// The files of what is in force, by path.
    files: Mutex<Vec<Value>>,
}

#[derive(Debug)]
struct Stale {
    since: String,
    count: usize,
    faults: Value,
}

/// Wakes the thread that loads policies, and brings back what it says.
#[derive(Debug, Default)]
pub(super) struct Bell {
    pub hangup: Arc<Notify>,
    /// `None`: nobody hears it.
    waiting: Mutex<Option<Vec<oneshot::Sender<Value>>>>,
}

// === impl Freshness ===

impl Freshness {
    /// Since when there is something newer that has so many faults.
    pub fn stale(&self) -> Option<(String, usize)> {
        self.stale.lock().as_ref().map(|stale| (stale.since.clone(), stale.count))
    }

    /// The faults of what was rejected last.
    pub fn faults(&self) -> Value {
        self.stale.lock().as_ref().map_or_else(|| json!([]), |stale| stale.faults.clone())
    }

    pub fn files(&self) -> Vec<Value> {
        self.files.lock().clone()
    }

    pub fn rejected(&self, count: usize, faults: Value, now_ms: u64) {
        let mut stale = self.stale.lock();
        let since = stale.take().map_or_else(|| written(now_ms), |stale| stale.since);
        *stale = Some(Stale { since, count, faults });
    }

    /// Whether it had been stale.
    pub fn fresh(&self) -> bool {
        self.stale.lock().take().is_some()
    }

    /// These files are what is in force.
    pub fn in_force<'a>(&self, files: impl Iterator<Item = HeldFile<'a>>) {
        let mut files: Vec<_> = files.collect();
        files.sort_by_key(|file| file.path);
        let told = |file: &HeldFile<'_>| json!({ "path": file.path, "sha256": to_hex(file.digest), "bytes": file.text.len() });
        *self.files.lock() = files.iter().map(told).collect();
    }
}

/// Faults as programs read them.
pub(super) fn told(faults: &[Fault]) -> Value {
    let report = Report { faults: faults.to_vec(), files: 0 };
    let whole: Value = serde_json::from_str(&report.render(Format::Json)).unwrap_or_default();
    whole.get("faults").cloned().unwrap_or_default()
}

fn written(ms: u64) -> String {
    let time = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map_or_else(String::new, |time| time.to_string())
}

// === impl Bell ===

impl Bell {
    /// Somebody hears it from now on.
    pub fn heard(&self) {
        self.waiting.lock().get_or_insert_default();
    }

    /// Has the files looked at; what became of it comes later. `None`: nobody hears it.
    pub fn ring(&self) -> Option<oneshot::Receiver<Value>> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().as_mut()?.push(sender);
        self.hangup.notify_one();
        Some(receiver)
    }

    /// Tells everybody who rang before the look began.
    pub fn answer(&self, waiting: Vec<oneshot::Sender<Value>>, report: &Value) {
        for waiter in waiting {
            // Whoever does not wait any more need not know.
            let _ = waiter.send(report.clone());
        }
    }

    /// Those who have rung so far.
    pub fn rung(&self) -> Vec<oneshot::Sender<Value>> {
        self.waiting.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }
}
