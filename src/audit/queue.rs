//! Where producers leave their records, and where the log's thread waits for them.
//!
//! A record is copied in under a short lock. The thread looks in every few milliseconds while
//! there is work and sleeps when there is none, so that a record seldom costs a wake-up.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::{AuditError, Observer, record::Layout};

/// Bytes that may wait, whatever the number of records.
const MAX_BYTES: usize = 32 << 20;
/// A buffer that has grown beyond this by a burst is given back.
const KEPT_BYTES: usize = 1 << 20;

pub(super) type Settled = oneshot::Receiver<Result<(), AuditError>>;

/// What may be asked of the log's thread, other than a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Flush,
    Reopen,
    Stop,
}

/// How long the thread waits for work.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pause {
    /// Until somebody calls.
    Park,
    /// This long, or until something urgent comes.
    For(Duration),
}

/// What the thread is told beside the records.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub lost: u64,
    pub reopen: bool,
    pub stop: bool,
}

/// Records in a row, and who waits for them.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    waiters: Vec<oneshot::Sender<Result<(), AuditError>>>,
    /// How many of the waiters wait for a record of their own.
    durable: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    begin: usize,
    layout: Layout,
}

#[derive(Default)]
struct State {
    batch: Batch,
    /// Records that the thread holds beside those here.
    held: usize,
    /// Records lost since the thread last looked.
    lost: u64,
    parked: bool,
    urgent: bool,
    reopen: bool,
    stop: bool,
    closed: bool,
}

pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    writable: AtomicBool,
    capacity: usize,
    pub(super) observer: Arc<dyn Observer>,
}

// === impl Queue ===

impl Queue {
    pub fn new(capacity: usize, observer: Arc<dyn Observer>) -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            writable: AtomicBool::new(true),
            capacity,
            observer,
        }
    }

    /// Takes a record, or counts it as lost.
    pub fn push(&self, line: &[u8], layout: Layout) {
        let mut state = self.state.lock();
        if state.has_room(self.capacity, line.len()) {
            state.batch.push(line, layout);
            if mem::take(&mut state.parked) {
                drop(state);
                self.wake.notify_one();
            }
        } else {
            state.lost += 1;
            drop(state);
            self.observer.dropped(1);
        }
    }

    /// Takes a record that somebody waits for, unless it would wait in vain.
    pub fn push_durable(&self, line: &[u8], layout: Layout) -> Result<Settled, AuditError> {
        let mut state = self.state.lock();
        let refusal = if state.closed {
            AuditError::Closed
        } else if !self.is_writable() {
            AuditError::Unavailable
        } else if !state.has_room(self.capacity, line.len()) {
            AuditError::Full
        } else {
            state.batch.push(line, layout);
            state.batch.durable += 1;
            return Ok(self.wait_in(state));
        };
        state.lost += 1;
        drop(state);
        self.observer.failed(1);
        Err(refusal)
    }

    pub fn request(&self, request: Request) -> Result<Settled, AuditError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(AuditError::Closed);
        }
        state.reopen |= request == Request::Reopen;
        state.stop |= request == Request::Stop;
        Ok(self.wait_in(state))
    }

    fn wait_in(&self, mut state: parking_lot::MutexGuard<'_, State>) -> Settled {
        let (waiter, settled) = oneshot::channel();
        state.batch.waiters.push(waiter);
        state.urgent = true;
        state.parked = false;
        drop(state);
        self.wake.notify_one();
        settled
    }

    pub fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Relaxed)
    }

    /// Waits for work. Moves what is queued into `pending`, if that is empty.
    pub fn next(&self, pause: Pause, pending: &mut Batch) -> Orders {
        let mut state = self.state.lock();
        if !state.urgent {
            match pause {
                Pause::Park if state.is_idle() => {
                    state.parked = true;
                    self.wake.wait(&mut state);
                    state.parked = false;
                }
                Pause::Park => {}
                Pause::For(time) => {
                    self.wake.wait_for(&mut state, time);
                }
            }
        }
        state.urgent = false;
        if pending.is_empty() {
            pending.clear();
            mem::swap(pending, &mut state.batch);
        }
        state.held = pending.len();
        Orders {
            lost: mem::take(&mut state.lost),
            reopen: mem::take(&mut state.reopen),
            stop: state.stop,
        }
    }

    /// Notes how an attempt to write went: `left` records could not be written.
    pub fn report(&self, writable: bool, left: usize) {
        self.writable.store(writable, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.held = left;
        let depth = left + state.batch.len();
        // Whoever came in between would wait for a recovery that may never come.
        let failed = if writable { 0 } else { state.batch.settle(Err(AuditError::Unavailable)) };
        drop(state);
        self.observer.depth(depth as u64);
        if failed > 0 {
            self.observer.failed(failed);
        }
    }

    /// Takes nothing any more; what is still queued is lost.
    pub fn close(&self, left: usize) {
        self.writable.store(false, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.closed = true;
        let lost = left + state.batch.len();
        state.batch.settle(Err(AuditError::Closed));
        state.batch.clear();
        drop(state);
        if lost > 0 {
            self.observer.dropped(lost as u64);
        }
    }
}

// === impl State ===

impl State {
    fn has_room(&self, capacity: usize, bytes: usize) -> bool {
        !self.closed
            && self.batch.len() + self.held < capacity
            && self.batch.bytes.len() + bytes <= MAX_BYTES
    }

    fn is_idle(&self) -> bool {
        self.batch.is_empty() && self.lost == 0
    }
}

// === impl Batch ===

impl Batch {
    /// A batch of one record, as `write` makes it.
    pub fn one(mut self, write: impl FnOnce(&mut Vec<u8>) -> Layout) -> Self {
        self.clear();
        let layout = write(&mut self.bytes);
        self.entries.push(Entry { begin: 0, layout });
        self
    }

    fn push(&mut self, line: &[u8], layout: Layout) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(line);
        self.entries.push(Entry { begin, layout });
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.waiters.is_empty()
    }

    pub fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// The record of that number in the batch.
    pub fn get(&self, index: usize) -> Option<(&[u8], Layout)> {
        let entry = self.entries.get(index)?;
        let end = self.entries.get(index + 1).map_or(self.bytes.len(), |next| next.begin);
        Some((&self.bytes[entry.begin..end], entry.layout))
    }

    /// Tells everybody who waits; returns how many of them waited for a record.
    pub fn settle(&mut self, result: Result<(), AuditError>) -> u64 {
        for waiter in self.waiters.drain(..) {
            // Who has given up waiting does not want to know.
            let _ = waiter.send(result);
        }
        mem::take(&mut self.durable)
    }

    /// Empties the batch, and keeps its memory unless a burst has made it large.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.waiters.clear();
        self.durable = 0;
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
            self.entries = Vec::new();
        }
    }
}
