//! The audit log: one line of JSON for every exchange, chained by hash.
//!
//! A record is made from the facts of an exchange and handed to a thread of its own, which
//! numbers, chains and writes it. What is to be recorded, and what a failing log means for a
//! call, is for the layers to decide.

mod chain;
mod forms;
mod keys;
mod queue;
mod record;
mod sink;
mod storage;
#[cfg(test)]
mod tests;

use std::{cell::RefCell, future::Future, io, path::PathBuf, sync::Arc, time::Duration};

pub use self::{
    keys::{Digester, Keys},
    record::{AdminAction, Event, PinChange, Record},
};
use self::{
    queue::{Queue, Request, Settled},
    record::{Layout, Writer},
    sink::Sink,
    storage::{File, Storage, Tail},
};
use crate::{clock::Clock, model::server::Risk};

/// How records name an employee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EmployeeForm {
    /// By the id itself.
    #[default]
    Plain,
    /// By a keyed hash of it (`audit.employee: hash`).
    Hash,
}

#[derive(Debug, Clone)]
pub struct Config {
    /// The file that lines are added to.
    pub file: PathBuf,
    /// This process among its replicas, such as a host's name.
    pub instance: String,
    pub employee: EmployeeForm,
    /// Risks whose calls do not happen while their record cannot be kept (`audit.strict`).
    pub strict: Vec<Risk>,
    /// Records that may wait to be written; above this they are lost, and counted.
    pub queue: usize,
}

impl Config {
    /// The configuration that only names its file.
    pub fn new(file: impl Into<PathBuf>, instance: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            instance: instance.into(),
            employee: EmployeeForm::Plain,
            strict: vec![Risk::WriteLow, Risk::WriteHigh],
            queue: 16_384,
        }
    }
}

/// Why a record is not on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    #[error("the audit log cannot be written")]
    Unavailable,
    #[error("too many audit records wait to be written")]
    Full,
    #[error("the audit log is closed")]
    Closed,
}

/// Why the log cannot be begun.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot open the audit file {}", .0.display())]
    Open(PathBuf, #[source] io::Error),
    #[error("cannot start the audit thread")]
    Thread(#[source] io::Error),
}

/// Is told what becomes of records; called by the log's own thread, and by producers for records
/// that are lost.
pub trait Observer: Send + Sync + 'static {
    /// Records are in the file; writing, and syncing where it was asked for, took this long.
    fn written(&self, records: u64, took: Duration);
    /// Records are lost.
    fn dropped(&self, records: u64);
    /// Records whose durability somebody waited for were not made durable.
    fn failed(&self, records: u64);
    /// This many records wait.
    fn depth(&self, records: u64);
}

/// Nobody is told.
impl Observer for () {
    fn written(&self, _: u64, _: Duration) {}
    fn dropped(&self, _: u64) {}
    fn failed(&self, _: u64) {}
    fn depth(&self, _: u64) {}
}

/// The audit log of this process.
pub struct Audit {
    writer: Arc<Writer>,
    queue: Arc<Queue>,
    strict: Vec<Risk>,
}

thread_local! {
    /// Where a thread writes its records before they are copied into the queue.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(1024));
}

// === impl Audit ===

impl Audit {
    /// Opens the file, where it goes on from its last record, and starts the thread that writes.
    pub fn start(
        config: Config,
        keys: Arc<Keys>,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, StartError> {
        let (file, tail) = File::open(&config.file)
            .map_err(|error| StartError::Open(config.file.clone(), error))?;
        Self::with_storage(config, keys, clock, observer, Box::new(file), tail)
    }

    fn with_storage(
        config: Config,
        keys: Arc<Keys>,
        clock: Clock,
        observer: Arc<dyn Observer>,
        storage: Box<dyn Storage>,
        tail: Tail,
    ) -> Result<Self, StartError> {
        let writer = Arc::new(Writer::new(&config, keys));
        let queue = Arc::new(Queue::new(config.queue, observer));
        let sink = Sink::new(queue.clone(), writer.clone(), clock, storage, tail, &config.instance);
        std::thread::Builder::new()
            .name("hangu-audit".into())
            .spawn(move || sink.run())
            .map_err(StartError::Thread)?;
        Ok(Self { writer, queue, strict: config.strict })
    }

    /// Whether a call of this risk must not happen without a durable intent.
    pub fn is_strict(&self, risk: Risk) -> bool {
        self.strict.contains(&risk)
    }

    /// Whether records reach the file at present.
    pub fn is_writable(&self) -> bool {
        self.queue.is_writable()
    }

    /// Queues a record and returns its id. It reaches the file within a few milliseconds; if it
    /// cannot, it is counted and the log says later that it is missing.
    pub fn append(&self, record: &Record<'_>) -> u128 {
        self.encode(record, |line, layout| self.queue.push(line, layout)).0
    }

    /// Queues a record, at once; the future ends when it is on disk, or surely not to be.
    /// While the log is known to fail, the record is not queued but counted as lost.
    pub fn durable(
        &self,
        record: &Record<'_>,
    ) -> impl Future<Output = Result<(), AuditError>> + Send + 'static {
        let waiter = self.encode(record, |line, layout| self.queue.push_durable(line, layout)).1;
        settled(waiter)
    }

    /// Notes that policies of this revision are in force from now on; or, with faults, that they
    /// still are, because newer ones were rejected.
    pub fn policy(&self, revision: &str, faults: usize, now_ms: u64) {
        SCRATCH.with_borrow_mut(|line| {
            line.clear();
            let layout = self.writer.policy(revision, faults, now_ms, line);
            self.queue.push(line, layout);
        });
    }

    /// Notes that the keyring is another one from now on: each key, by its id, and its state.
    pub fn keyring(&self, keys: &[(String, &str)], now_ms: u64) {
        SCRATCH.with_borrow_mut(|line| {
            line.clear();
            let layout = self.writer.keyring(keys, now_ms, line);
            self.queue.push(line, layout);
        });
    }

    /// Notes what an operator did.
    pub fn action(&self, action: &AdminAction<'_>, now_ms: u64) {
        SCRATCH.with_borrow_mut(|line| {
            line.clear();
            let layout = self.writer.action(action, now_ms, line);
            self.queue.push(line, layout);
        });
    }

    /// The same; the future ends when it is on disk, or surely not to be.
    pub fn durable_action(
        &self,
        action: &AdminAction<'_>,
        now_ms: u64,
    ) -> impl Future<Output = Result<(), AuditError>> + Send + 'static {
        let waiter = SCRATCH.with_borrow_mut(|line| {
            line.clear();
            let layout = self.writer.action(action, now_ms, line);
            self.queue.push_durable(line, layout)
        });
        settled(waiter)
    }

    /// Notes what became of a tool's definition.
    pub fn pin_change(&self, change: &PinChange<'_>, now_ms: u64) {
        SCRATCH.with_borrow_mut(|line| {
            line.clear();
            let layout = self.writer.pin_change(change, now_ms, line);
            self.queue.push(line, layout);
        });
    }

    /// Ends when everything queued so far is on disk.
    pub fn flush(&self) -> impl Future<Output = Result<(), AuditError>> + Send + 'static {
        settled(self.queue.request(Request::Flush))
    }

    /// Opens the file anew, under its old name: what was there has been moved away. The chain
    /// goes on in the new file.
    pub fn reopen(&self) -> impl Future<Output = Result<(), AuditError>> + Send + 'static {
        settled(self.queue.request(Request::Reopen))
    }

    /// Writes what is queued and the record that ends the chain. Nothing is taken any more.
    pub fn stop(&self) -> impl Future<Output = Result<(), AuditError>> + Send + 'static {
        settled(self.queue.request(Request::Stop))
    }

    fn encode<T>(&self, record: &Record<'_>, push: impl FnOnce(&[u8], Layout) -> T) -> (u128, T) {
        SCRATCH.with_borrow_mut(|line| {
            line.clear();
            let (id, layout) = self.writer.exchange(record, line);
            (id, push(line, layout))
        })
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        // Nobody waits here; who must know that the log is complete calls `stop` first.
        drop(self.queue.request(Request::Stop));
    }
}

async fn settled(waiter: Result<Settled, AuditError>) -> Result<(), AuditError> {
    waiter?.await.unwrap_or(Err(AuditError::Closed))
}
