//! Policy files that change: read, compiled and checked aside, put in force whole, or rejected.
//!
//! One thread of its own does all of it, so that no core of calls ever waits for a file. It is
//! woken by the file system's word, by SIGHUP, and looks by itself now and then, because not
//! every file system says a word. What is rejected changes nothing but what `/readyz` tells.
//! Only policies are loaded anew here, and on SIGHUP certificates; all else of the
//! configuration needs a new process, and SIGHUP says so.

use std::{
    collections::HashSet,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use notify::{
    EventKind, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};

use super::{
    certificates::{Certificates, Renewed},
    kept::Kept,
    news::{self, Bell, Freshness},
    world::Governed,
};
use crate::{
    audit::Audit,
    clock::Clock,
    fault::{Fault, Severity},
    policy::{Glance, Library, Surroundings},
    telemetry::{Reload, Telemetry},
};

/// Changes that come within this time of each other are one.
const TOGETHER: Duration = Duration::from_millis(300);
/// For so long at most: whoever writes without a pause is read in the middle of it.
const TOGETHER_AT_MOST: Duration = Duration::from_secs(1);
/// Between two looks where the file system tells of changes; some that are mounted do not.
const WATCHED: Duration = Duration::from_secs(10);
/// Between two looks where nobody tells.
const UNWATCHED: Duration = Duration::from_secs(1);

/// Where policies came from, and how they were read.
#[derive(Debug)]
pub struct PolicySource {
    /// `None`: there are none, and nothing to watch.
    pub folder: Option<PathBuf>,
    /// Has read the folder; reads what changes.
    pub files: Library,
    /// What policies have to do with of the configuration.
    pub surroundings: Option<Surroundings>,
    /// The configuration's own file, and its text when it was read.
    pub config: (PathBuf, String),
}

pub(super) struct Reloader {
    pub source: PolicySource,
    pub kept: Kept,
    pub governed: Arc<Governed>,
    pub freshness: Arc<Freshness>,
    pub bell: Arc<Bell>,
    pub audit: Arc<Audit>,
    pub telemetry: Arc<Telemetry>,
    pub clock: Clock,
    pub certificates: Certificates,
    /// What was rejected last: the reading of the files, and how many faults they had.
    pub rejected: Option<(u64, usize)>,
}

/// The thread.
pub(super) struct Running {
    stop: Arc<Notify>,
    thread: thread::JoinHandle<()>,
}

/// What became of a look at the files.
enum Outcome {
    Applied,
    /// They say what is in force.
    Unchanged,
    /// So many faults.
    Rejected(usize),
}

/// The thread's own.
struct Watching {
    reloader: Reloader,
    folder: Option<PathBuf>,
    /// Of a file that changed, or might have.
    changed: Arc<Notify>,
    watcher: Option<notify::RecommendedWatcher>,
    seen: Option<Glance>,
    /// A file may have changed once more within the same tick of the file system's clock.
    again: bool,
    /// Warnings that have been told.
    told: HashSet<String>,
}

// === impl Reloader ===

impl Reloader {
    pub fn start(self) -> io::Result<Running> {
        let hangup = self.bell.hangup.clone();
        self.bell.heard();
        self.freshness.in_force(self.source.files.files());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let folder = self.source.folder.clone();
        let run = move || {
            let watching = Watching {
                reloader: self,
                folder,
                changed: Arc::default(),
                watcher: None,
                seen: None,
                again: false,
                told: HashSet::new(),
            };
            runtime.block_on(watching.run(&hangup, &stopped));
        };
        let thread = thread::Builder::new().name("hangu-policies".into()).spawn(run)?;
        Ok(Running { stop, thread })
    }

    /// Reads what changed and puts it in force, or tells what is wrong with it.
    ///
    /// `called`: somebody asked for it, and is told the outcome in any case.
    fn reload(&mut self, folder: &Path, called: bool, told: &mut HashSet<String>) -> Outcome {
        let library = &mut self.source.files;
        let before = library.enforced();
        let looked = library.look(folder);
        let mut faults = looked.faults;
        if let Some((policies, surroundings)) =
            looked.policies.as_ref().zip(self.source.surroundings.as_ref())
        {
            faults.extend(policies.contradictions(surroundings));
        }
        if let Some(policies) = &looked.policies {
            faults.extend(policies.failed_cases());
        }
        let (errors, mut warnings): (Vec<_>, Vec<_>) =
            faults.into_iter().partition(|fault| fault.severity() == Severity::Error);
        let policies = match looked.policies {
            Some(policies) if errors.is_empty() => policies,
            _ => {
                library.back_to(before);
                return self.reject(called, &errors, None);
            }
        };
        if *policies.revision() == self.governed.revision() {
            self.rejected = None;
            return Outcome::Unchanged;
        }
        if let Err(fault) = self.governed.apply(policies.clone()) {
            library.back_to(before);
            return self.reject(called, &[], Some(&fault));
        }
        self.rejected = None;
        self.applied(looked.files);
        // What is only strange can wait until the policies hold.
        warnings.extend(policies.lint(self.source.surroundings.as_ref()));
        for warning in warnings {
            let text = format!("{}: {}", warning.at, warning.message);
            if told.insert(text.clone()) {
                tracing::warn!(fault.code = %warning.code, "{text}");
            }
        }
        Outcome::Applied
    }

    fn applied(&mut self, files: usize) {
        let revision = self.governed.revision();
        self.audit.policy(&revision, 0, self.clock.now_ms());
        let metrics = self.telemetry.metrics();
        metrics.policy_reload(Reload::Applied);
        metrics.policy_revision(revision.clone());
        tracing::info!(policy.revision = %revision, files, "Changed policies are in force");
        self.freshness.in_force(self.source.files.files());
        self.keep();
    }

    /// What is in force stays; every fault is told with its place.
    fn reject(
        &mut self,
        called: bool,
        faults: &[Fault],
        limits: Option<&dyn fmt::Display>,
    ) -> Outcome {
        let count = faults.len() + usize::from(limits.is_some());
        let rejected = Some((self.source.files.reading(), count));
        if !called && self.rejected == rejected {
            return Outcome::Rejected(count);
        }
        self.rejected = rejected;
        for fault in faults {
            tracing::error!(fault.code = %fault.code, "{}: {}", fault.at, fault.message);
        }
        if let Some(fault) = limits {
            tracing::error!("limits: {fault}");
        }
        let (revision, now_ms) = (self.governed.revision(), self.clock.now_ms());
        tracing::error!(
            policy.revision = %revision,
            faults = count,
            "Changed policies are rejected: the revision in force stays"
        );
        self.audit.policy(&revision, count, now_ms);
        self.telemetry.metrics().policy_reload(Reload::Rejected);
        let mut told = news::told(faults);
        if let (Some(fault), Some(all)) = (limits, told.as_array_mut()) {
            all.push(json!({ "severity": "error", "message": format!("limits: {fault}") }));
        }
        self.freshness.rejected(count, told, now_ms);
        Outcome::Rejected(count)
    }

    /// Writes down what is enforced, for the next process.
    fn keep(&mut self) {
        let library = &self.source.files;
        let (revision, enforced) = (self.governed.revision(), library.enforced());
        let now_ms = self.clock.now_ms();
        if let Err(error) = self.kept.keep(now_ms, &revision, library.files(), enforced.files()) {
            tracing::warn!(
                folder = %self.kept.folder().display(),
                %error,
                "What is enforced cannot be kept: after a restart a policy file in shadow would \
                 be decided by an older text of it, or by none"
            );
        }
    }
}

// === impl Watching ===

impl Watching {
    async fn run(mut self, hangup: &Notify, stop: &Notify) {
        self.rewatch();
        // Before anything is read again: what was read may be rejected, and is not in force.
        self.reloader.keep();
        // What changed since the start began.
        self.look(false);
        loop {
            let pause = if self.watcher.is_some() && !self.again { WATCHED } else { UNWATCHED };
            let (changed, has_files) = (self.changed.clone(), self.folder.is_some());
            tokio::select! {
                biased;
                () = stop.notified() => return,
                () = hangup.notified() => self.hangup(),
                () = changed.notified() => {
                    settled(&changed, hangup).await;
                    self.look(false);
                }
                () = tokio::time::sleep(pause), if has_files => {
                    let now = self.glance();
                    let moved = now != self.seen;
                    if moved || self.again {
                        self.look(false);
                        self.again = moved;
                    }
                }
            }
        }
    }

    fn glance(&self) -> Option<Glance> {
        self.folder.as_deref().map(Glance::at)
    }

    /// Loads the files; `called` where somebody asked for it.
    fn look(&mut self, called: bool) -> Option<Outcome> {
        let folder = self.folder.clone()?;
        // Before they are read: what changes meanwhile is looked at again.
        let now = self.glance();
        if now.map(|glance| glance.folders) != self.seen.map(|glance| glance.folders) {
            self.rewatch();
        }
        self.again = now != self.seen;
        self.seen = now;
        let outcome = self.reloader.reload(&folder, called, &mut self.told);
        let repaired = !matches!(outcome, Outcome::Rejected(_)) && self.reloader.freshness.fresh();
        if repaired {
            tracing::info!("The policy files have no faults any more");
        }
        // One change may be told several times.
        if (called || repaired) && matches!(outcome, Outcome::Unchanged) {
            self.reloader.telemetry.metrics().policy_reload(Reload::Unchanged);
        }
        Some(outcome)
    }

    /// Watches the folder as it is now: a watch stays with a folder that was moved away.
    fn rewatch(&mut self) {
        let Some(folder) = &self.folder else { return };
        let changed = self.changed.clone();
        let told = move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| is_change(event.kind)) {
                changed.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(told).and_then(|mut watcher| {
            watcher.watch(folder, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => {
                self.watcher = None;
                tracing::warn!(
                    folder = %folder.display(),
                    %error,
                    "Changes of policy files are not told by the system: they are looked for"
                );
            }
        }
    }

    fn hangup(&mut self) {
        let waiting = self.reloader.bell.rung();
        let looked = self.look(true);
        let policies = match looked {
            None => "there are none to load".to_owned(),
            Some(Outcome::Applied) => format!("{} applied", self.reloader.governed.revision()),
            Some(Outcome::Unchanged) => "unchanged".to_owned(),
            Some(Outcome::Rejected(faults)) => format!("rejected, {faults} faults"),
        };
        let certificate = match self.reloader.certificates.reload() {
            None => "none".to_owned(),
            Some(Renewed::Loaded) => "loaded".to_owned(),
            Some(Renewed::Failed(error)) => format!("the old one stays: {error}"),
        };
        let (file, text) = &self.reloader.source.config;
        let configuration = match fs::read_to_string(file) {
            Ok(now) if now == *text => "unchanged",
            Ok(_) => "changed: it needs a restart, or a new process with `serve --upgrade`",
            Err(_) => "cannot be read",
        };
        tracing::info!(policies, certificate, configuration, "SIGHUP: loaded anew what can be");
        let policies = self.told(looked.as_ref());
        let report = json!({
            "policies": policies, "certificate": certificate, "configuration": configuration,
        });
        self.reloader.bell.answer(waiting, &report);
    }

    /// What became of a look at the files, for whoever asked for it.
    fn told(&self, outcome: Option<&Outcome>) -> Value {
        let state = match outcome {
            None => "none",
            Some(Outcome::Applied) => "applied",
            Some(Outcome::Unchanged) => "unchanged",
            Some(Outcome::Rejected(_)) => "rejected",
        };
        let faults = self.reloader.freshness.faults();
        json!({ "state": state, "revision": &*self.reloader.governed.revision(), "faults": faults })
    }
}

/// Waits until nothing changes any more, or somebody wants it at once.
async fn settled(changed: &Notify, hangup: &Notify) {
    let until = Instant::now() + TOGETHER_AT_MOST;
    while Instant::now() < until {
        tokio::select! {
            biased;
            () = hangup.notified() => {
                // It is heard where it is waited for.
                hangup.notify_one();
                return;
            }
            () = changed.notified() => {}
            () = tokio::time::sleep(TOGETHER) => return,
        }
    }
}

/// Reading is told too, and it is we who read.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

// === impl Running ===

impl Running {
    pub fn stop(self) {
        self.stop.notify_one();
        if self.thread.join().is_err() {
            tracing::error!("the thread that loads policies ended in a panic");
        }
    }
}
