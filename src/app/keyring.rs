//! The keyring as this process uses it, for those who look after it: how it stands beside its
//! file, and taking what is stored along to the primary key.
//!
//! The file is changed by `hangu keys` alone; `keys.rs` sees to it that a change is used here.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::{
    clock::Clock,
    credential::{
        Keeper, Keyring, Purpose, Vault,
        rotation::{RewrapFault, Rewrapped, RingStatus},
    },
};

/// How many of those that cannot be taken along are named.
const NAMED: usize = 100;
/// How long a rewrapping waits until the file as it is now is used here.
const CATCH_UP: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// What is in use.
pub(super) struct InUse {
    pub keeper: Keeper,
    ring: ArcSwap<Keyring>,
    /// Why the file as it is now is not used.
    fault: Mutex<Option<String>>,
    vault: Arc<Vault>,
    clock: Clock,
    rewrapping: Mutex<Rewrapping>,
    stop: AtomicBool,
}

/// How far the last rewrapping has come.
#[derive(Default)]
struct Rewrapping {
    thread: Option<thread::JoinHandle<()>>,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
    done: Rewrapped,
    fault: Option<String>,
}

// === impl InUse ===

impl InUse {
    pub fn new(keeper: Keeper, ring: Arc<Keyring>, vault: Arc<Vault>, clock: Clock) -> Self {
        Self {
            keeper,
            ring: ArcSwap::new(ring),
            fault: Mutex::default(),
            vault,
            clock,
            rewrapping: Mutex::default(),
            stop: false.into(),
        }
    }

    pub fn ring(&self) -> Arc<Keyring> {
        self.ring.load_full()
    }

    /// Goes on with another one; gives the one before.
    pub fn replace(&self, ring: Arc<Keyring>) -> Arc<Keyring> {
        self.ring.swap(ring)
    }

    /// Notes why the file as it is now is not used, or that it is.
    pub fn note(&self, fault: Option<String>) {
        *self.fault.lock() = fault;
    }

    /// Ends a rewrapping that is under way; what it has done stays done.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.rewrapping.lock().thread.take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that wraps data keys anew ended in a panic");
        }
    }

    /// How everything stands.
    pub async fn status(self: Arc<Self>) -> Result<Value, String> {
        let uses = self.vault.key_uses().await.map_err(|fault| fault.to_string())?;
        // The file, and whoever keeps keys elsewhere, may take a while.
        let own = self.clone();
        let looked = spawn_blocking(move || (own.keeper.file().read(), own.vault.health()));
        let (file, health) =
            looked.await.map_err(|_| "nobody has looked at the file".to_owned())?;
        let used = self.ring();
        let (status, fault, current) = match &file {
            Ok(file) => (RingStatus::of(file, Some(&uses)), None, file.marks() == used.marks()),
            Err(fault) => (RingStatus::of(&used, Some(&uses)), Some(fault.to_string()), false),
        };
        let fault = fault.or_else(|| self.fault.lock().clone().filter(|_| !current));
        let keeper = health.err().map(|fault| fault.to_string());
        let ready = current && keeper.is_none() && used.primary().is_ok();
        Ok(json!({
            "keyring": self.keeper.file().path().display().to_string(),
            "keys": status.keys,
            "otherKeys": status.other_keys,
            "findings": status.findings,
            "purposes": Purpose::ALL.map(Purpose::label),
            // Whether this process uses the file as it is now, and if not, why.
            "current": current,
            "fault": fault,
            // Whoever wraps data keys: what is wrong with him.
            "keeperFault": keeper,
            "ready": ready,
            "rewrap": self.progress(),
        }))
    }

    /// Begins a rewrapping, unless one is under way.
    pub fn rewrap(self: &Arc<Self>) -> Result<Value, &'static str> {
        let mut now = self.rewrapping.lock();
        if !now.is_running() {
            let own = self.clone();
            let run = move || own.run();
            let thread = thread::Builder::new().name("hangu-rewrap".into()).spawn(run);
            let thread = thread.map_err(|error| {
                tracing::error!(%error, "No thread can be started that wraps data keys anew");
                "no thread can be started for it"
            })?;
            *now = Rewrapping {
                thread: Some(thread),
                started_ms: Some(self.clock.now_ms()),
                ..Rewrapping::default()
            };
        }
        drop(now);
        Ok(json!({ "rewrap": self.progress() }))
    }

    fn run(&self) {
        let ended = self.catch_up().and_then(|()| {
            self.vault.rewrap_all(&mut |done| {
                let mut now = self.rewrapping.lock();
                now.done.key.clone_from(&done.key);
                now.done.rewrapped = done.rewrapped;
                !self.stop.load(Ordering::Relaxed)
            })
        });
        let mut now = self.rewrapping.lock();
        now.ended_ms = Some(self.clock.now_ms());
        match ended {
            Ok(done) => {
                tracing::info!(
                    key.id = done.key,
                    rewrapped = done.rewrapped,
                    left = done.left.len(),
                    "Stored credentials were taken along to the primary key"
                );
                now.done = done;
            }
            Err(fault) => {
                tracing::error!(
                    error = %fault,
                    rewrapped = now.done.rewrapped,
                    "Stored credentials were not all taken along to the primary key"
                );
                now.fault = Some(fault.to_string());
            }
        }
    }

    /// Whoever has just promoted a key means that one.
    #[expect(clippy::disallowed_methods, reason = "its thread serves nobody else")]
    fn catch_up(&self) -> Result<(), RewrapFault> {
        let mut waited = Duration::ZERO;
        while waited < CATCH_UP {
            let file = self.keeper.file().read();
            if file.is_ok_and(|file| file.marks() == self.ring().marks()) {
                return Ok(());
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(RewrapFault::Stopped);
            }
            thread::sleep(PAUSE);
            waited += PAUSE;
        }
        Err(RewrapFault::Stale)
    }

    fn progress(&self) -> Value {
        let now = self.rewrapping.lock();
        let state = match (now.started_ms, &now.fault) {
            (None, _) => "never",
            (Some(_), Some(_)) => "failed",
            (Some(_), None) if now.ended_ms.is_some() => "done",
            (Some(_), None) => "running",
        };
        let left = now.done.left.iter().take(NAMED).map(
            |(reference, why)| json!({ "credentialRef": reference.to_string(), "reason": why }),
        );
        json!({
            "state": state,
            "startedMs": now.started_ms,
            "endedMs": now.ended_ms,
            "key": Some(&now.done.key).filter(|key| !key.is_empty()),
            "rewrapped": now.done.rewrapped,
            "left": left.collect::<Vec<_>>(),
            "leftOmitted": now.done.left.len().saturating_sub(NAMED),
            "fault": now.fault,
        })
    }
}

impl Rewrapping {
    fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}
