//! The thread that writes the log: numbers, chains, writes and syncs records, and keeps them
//! while that fails.
//!
//! Syncing is shared by all who wait at the time (group commit). A failure is told to who waits,
//! the records themselves stay and are tried again; what was lost meanwhile is told by a `gap`
//! record. Nothing here decides what a failure means for a call.

use std::{io, mem, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    AuditError,
    chain::{Chain, Hash},
    queue::{Batch, Pause, Queue},
    record::{Event, Gap, Writer},
    storage::{Storage, Tail},
};
use crate::clock::Clock;

/// How often the thread looks in while there is work.
const POLL: Duration = Duration::from_millis(2);
/// Looks in vain after which it sleeps until it is called.
const IDLE_POLLS: u32 = 25;
/// How often a failing log is tried.
const RETRY: Duration = Duration::from_millis(500);
/// The longest time that a record nobody waits for is not yet safe from a power failure.
const SYNC_WITHIN: Duration = Duration::from_secs(1);
/// Bytes handed to the file at a time.
const CHUNK: usize = 256 << 10;

pub(super) struct Sink {
    queue: Arc<Queue>,
    writer: Arc<Writer>,
    clock: Clock,
    storage: Box<dyn Storage>,
    chain: Chain,
    /// Taken from the queue; the first `done` of them are written.
    pending: Batch,
    done: usize,
    /// Scratch for the log's own records.
    own: Batch,
    out: Vec<u8>,
    /// Where the lines in `out` end, and the chain's head there.
    ends: Vec<(usize, Hash)>,
    /// The first record of the chain is written.
    started: bool,
    /// The file ends within a line.
    torn: bool,
    /// To be told by the next record.
    gap: Option<Gap>,
    /// Lost, and not yet told.
    lost: u64,
    dirty_since: Option<Instant>,
    down: bool,
    reopen: bool,
    idle: u32,
    written: u64,
}

impl Sink {
    pub fn new(
        queue: Arc<Queue>,
        writer: Arc<Writer>,
        clock: Clock,
        storage: Box<dyn Storage>,
        tail: Tail,
        instance: &str,
    ) -> Self {
        // Unique without a counter that would have to be kept somewhere.
        let number = clock.now_ms().max(tail.number.map_or(0, |number| number.saturating_add(1)));
        let chain = Chain::new(instance, number, tail.hash.unwrap_or_default());
        let gap = tail.torn.then_some(Gap { reason: "torn_line", lost: 0, torn: 1 });
        Self {
            queue,
            writer,
            clock,
            storage,
            chain,
            pending: Batch::default(),
            done: 0,
            own: Batch::default(),
            out: Vec::new(),
            ends: Vec::new(),
            started: false,
            torn: tail.torn,
            gap,
            lost: 0,
            dirty_since: None,
            down: false,
            reopen: false,
            idle: 0,
            written: 0,
        }
    }

    pub fn run(mut self) {
        let _closing = Closing(self.queue.clone());
        let mut pause = Pause::For(Duration::ZERO);
        loop {
            let orders = self.queue.next(pause, &mut self.pending);
            self.lost += orders.lost;
            self.reopen |= orders.reopen;
            let begun = Instant::now();
            let result = self.pass(orders.stop, begun);
            self.conclude(result, begun);
            if orders.stop {
                self.queue.close(self.pending.len() - self.done);
                return;
            }
            pause = self.pause();
        }
    }

    /// Writes all there is to write, and syncs it if somebody waits or it is time.
    fn pass(&mut self, stop: bool, now: Instant) -> io::Result<()> {
        if self.reopen || self.down {
            if self.reopen && !self.down {
                self.sync()?;
            }
            self.storage.reopen()?;
            self.reopen = false;
        }
        if !self.started {
            self.write_own(Event::Start, None)?;
            self.started = true;
        }
        if let Some(gap) = self.gap {
            self.write_own(Event::Gap, Some(gap))?;
            self.gap = None;
        }
        self.write_pending()?;
        if self.lost > 0 {
            let reason = if self.down { "sink_unavailable" } else { "queue_full" };
            self.write_own(Event::Gap, Some(Gap { reason, lost: self.lost, torn: 0 }))?;
            self.lost = 0;
        }
        if stop {
            self.write_own(Event::Stop, None)?;
        }
        let due = self.dirty_since.is_some_and(|since| now - since >= SYNC_WITHIN);
        if self.pending.has_waiters() || self.down || stop || due || self.idle == IDLE_POLLS {
            self.sync()?;
        }
        Ok(())
    }

    /// Tells everybody how the pass went.
    fn conclude(&mut self, result: io::Result<()>, begun: Instant) {
        let written = mem::take(&mut self.written);
        if written > 0 {
            self.idle = 0;
            self.queue.observer.written(written, begun.elapsed());
        } else {
            self.idle = self.idle.saturating_add(1);
        }
        let outcome = match result {
            Ok(()) => {
                if mem::take(&mut self.down) {
                    tracing::info!("The audit log can be written again");
                }
                Ok(())
            }
            Err(error) => {
                if !mem::replace(&mut self.down, true) {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "The audit log cannot be written"
                    );
                }
                Err(AuditError::Unavailable)
            }
        };
        // Before anybody is told, so that who is told of a failure finds the log closed to him.
        let left = self.pending.len() - self.done;
        if self.down || written > 0 || outcome.is_ok() && self.pending.has_waiters() {
            self.queue.report(!self.down, left);
        }
        let durable = self.pending.settle(outcome);
        if outcome.is_err() && durable > 0 {
            self.queue.observer.failed(durable);
        }
        if left == 0 {
            self.pending.clear();
            self.done = 0;
        }
    }

    fn pause(&self) -> Pause {
        if self.down {
            Pause::For(RETRY)
        } else if self.idle > IDLE_POLLS && self.dirty_since.is_none() {
            Pause::Park
        } else {
            Pause::For(POLL)
        }
    }

    fn write_own(&mut self, event: Event, gap: Option<Gap>) -> io::Result<()> {
        let ms = self.clock.now_ms();
        let writer = &self.writer;
        self.own = mem::take(&mut self.own).one(|out| writer.own(event, gap, ms, out));
        let own = mem::take(&mut self.own);
        let result = self.write(&own, &mut 0);
        self.own = own;
        result
    }

    fn write_pending(&mut self) -> io::Result<()> {
        let pending = mem::take(&mut self.pending);
        let mut done = self.done;
        let result = self.write(&pending, &mut done);
        self.pending = pending;
        self.done = done;
        result
    }

    /// Writes the records of a batch from `done` on, and moves `done` past those that are in the
    /// file as a whole.
    fn write(&mut self, batch: &Batch, done: &mut usize) -> io::Result<()> {
        while *done < batch.len() {
            self.out.clear();
            self.ends.clear();
            if self.torn {
                self.out.push(b'\n');
            }
            let mut chain = self.chain.clone();
            let mut next = *done;
            while let Some((line, layout)) = batch.get(next).filter(|_| self.out.len() < CHUNK) {
                chain.seal(line, layout, &mut self.out);
                self.ends.push((self.out.len(), chain.head));
                next += 1;
            }
            let (reached, result) = write_all(&mut *self.storage, &self.out);
            *done += self.commit(reached);
            result?;
        }
        Ok(())
    }

    /// Moves the chain on to the last line that lies before `reached`; returns how many do.
    fn commit(&mut self, reached: usize) -> usize {
        if reached == 0 {
            return 0;
        }
        self.dirty_since.get_or_insert_with(Instant::now);
        let whole = self.ends.partition_point(|(end, _)| *end <= reached);
        // Without a whole line, what may stand there is the end of the torn line before.
        let mut end = usize::from(self.torn);
        if let Some((last, head)) = whole.checked_sub(1).and_then(|last| self.ends.get(last)) {
            end = *last;
            self.chain.head = *head;
            self.chain.seq += whole as u64;
        }
        self.torn = reached > end;
        if self.torn {
            let torn = self.gap.map_or(0, |gap| gap.torn) + 1;
            self.gap = Some(Gap { reason: "torn_line", lost: 0, torn });
        }
        self.written += whole as u64;
        whole
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.dirty_since.is_none() {
            return Ok(());
        }
        let result = self.storage.sync();
        if result.is_err() {
            // The system may have thrown away what it could not write, and says so only once.
            let torn = self.gap.map_or(0, |gap| gap.torn);
            self.gap = Some(Gap { reason: "sync_failed", lost: 0, torn });
        }
        self.dirty_since = None;
        result
    }
}

/// Closes the queue however the thread ends, so that nobody waits for one that is gone.
struct Closing(Arc<Queue>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close(0);
    }
}

/// Writes until all is written or an attempt fails; says how far it came.
fn write_all(storage: &mut dyn Storage, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut reached = 0;
    while let Some(rest) = bytes.get(reached..).filter(|rest| !rest.is_empty()) {
        match storage.write(rest) {
            Ok(0) => return (reached, Err(io::ErrorKind::WriteZero.into())),
            Ok(taken) => reached += taken,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (reached, Err(error)),
        }
    }
    (reached, Ok(()))
}
