//! Answers that a client of the handshake era can take up again where its connection broke.
//!
//! An event stream that answers a call in a session has event ids. Its call runs on without the
//! client, and what was sent last, with all that comes, is kept for a while: a `GET` in the same
//! session that names the last event gets the rest of that stream and of no other. A client that
//! reads slowly holds its call back; one that is gone costs at most the configured bytes.
//! A plain answer is not touched.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use dashmap::DashMap;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::{Instant, timeout};

use super::north_reply::KEEP_ALIVE;
use crate::{
    body::{Body, BoxError},
    model::caller::EmployeeId,
};

/// How long a client is asked to wait before it connects again.
const RETRY_MS: u64 = 1_000;

/// Between two looks whether a client that was asked something is still there.
const LOOK: Duration = Duration::from_secs(1);

/// How much is kept for clients that lost their connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeLimits {
    /// After the client has gone, or the call has ended. Zero: nothing is ever kept.
    pub window: Duration,
    /// Of one stream.
    pub bytes: usize,
    /// Of all.
    pub total: usize,
}

impl Default for ResumeLimits {
    fn default() -> Self {
        Self { window: Duration::from_secs(60), bytes: 1 << 20, total: 64 << 20 }
    }
}

/// A session and a stream's own random number.
type Key = ([u8; 8], u64);

/// The streams that can be taken up.
pub struct Streams {
    limits: ResumeLimits,
    kept: DashMap<Key, Arc<Kept>>,
    bytes: AtomicUsize,
    /// In the order in which they ended: who gives way first.
    ended: Mutex<VecDeque<(Instant, Key)>>,
}

/// One event as it is written, and what is needed to drop it again.
struct Sent {
    number: u64,
    pieces: SmallVec<[Bytes; 5]>,
    len: usize,
    /// A question or the answer: the client cannot do without.
    needed: bool,
}

/// One stream.
pub(super) struct Kept {
    of: Arc<Streams>,
    key: Key,
    employee: Option<EmployeeId>,
    state: Mutex<State>,
}

struct State {
    events: VecDeque<Sent>,
    bytes: usize,
    /// Of the next event.
    next: u64,
    /// The reader's next event; events before it have been sent.
    at: u64,
    /// Tells a reader from the one that took its place. Zero: nobody reads.
    reader: u64,
    readers: u64,
    left: Instant,
    over: bool,
    /// Nothing can be given any more.
    lost: bool,
    /// Nothing that a client needs is missing from here on.
    whole_from: u64,
    reads: Option<Waker>,
    writes: Option<Waker>,
}

// === impl Streams ===

impl Streams {
    pub fn new(limits: ResumeLimits) -> Self {
        Self { limits, kept: DashMap::new(), bytes: AtomicUsize::new(0), ended: Mutex::default() }
    }

    /// Whether anything is ever kept.
    pub(super) fn is_on(&self) -> bool {
        !self.limits.window.is_zero()
    }

    /// A stream of a session, for whoever calls in it.
    pub(super) fn open(
        self: &Arc<Self>,
        session: [u8; 8],
        employee: Option<EmployeeId>,
    ) -> Arc<Kept> {
        self.forget_ended();
        let key = (session, rand::random());
        let state = State {
            events: VecDeque::new(),
            bytes: 0,
            next: 0,
            at: 0,
            reader: 0,
            readers: 0,
            left: Instant::now(),
            over: false,
            lost: false,
            whole_from: 0,
            reads: None,
            writes: None,
        };
        let kept = Arc::new(Kept { of: self.clone(), key, employee, state: Mutex::new(state) });
        self.kept.insert(key, kept.clone());
        kept
    }

    /// The rest of a stream, after the event that a client of this session names.
    pub(super) fn resume(
        &self,
        session: [u8; 8],
        employee: Option<&EmployeeId>,
        last_event: &str,
    ) -> Option<Body> {
        let (stream, number) = last_event.split_once('-')?;
        let key = (session, u64::from_str_radix(stream, 16).ok()?);
        let number: u64 = number.parse().ok()?;
        let kept = self.kept.get(&key)?.clone();
        if kept.employee.as_ref() != employee {
            return None;
        }
        {
            let state = kept.state.lock();
            if state.lost || number >= state.next || number + 1 < state.whole_from {
                return None;
            }
        }
        Some(kept.read(number + 1))
    }

    /// The session has ended: its streams cannot be taken up.
    pub(super) fn end(&self, session: [u8; 8]) {
        self.drop_where(|key, _| key.0 == session);
    }

    /// Forgets what nobody came back for. To be called now and then.
    pub fn sweep(&self) {
        self.forget_ended();
        let window = self.limits.window;
        self.drop_where(|_, kept| {
            let state = kept.state.lock();
            state.reader == 0 && state.left.elapsed() > window
        });
    }

    /// Streams that are kept, and their bytes.
    pub fn kept(&self) -> (usize, usize) {
        (self.kept.len(), self.bytes.load(Ordering::Relaxed))
    }

    fn drop_where(&self, gone: impl Fn(&Key, &Kept) -> bool) {
        let keys: Vec<Key> = self
            .kept
            .iter()
            .filter(|entry| gone(entry.key(), entry.value()))
            .map(|entry| *entry.key())
            .collect();
        for key in keys {
            self.forget(&key);
        }
    }

    fn forget(&self, key: &Key) {
        if let Some((_, kept)) = self.kept.remove(key) {
            kept.lose();
        }
    }

    fn forget_ended(&self) {
        let due = self.ended.lock().len();
        for _ in 0..due {
            let key = {
                let mut ended = self.ended.lock();
                match ended.front() {
                    Some((at, _)) if at.elapsed() > self.limits.window => ended.pop_front(),
                    _ => None,
                }
            };
            let Some((_, key)) = key else { return };
            // A client that reads slowly has not gone, however long ago its call ended.
            if self.is_read(&key) {
                self.ended.lock().push_back((Instant::now(), key));
            } else {
                self.forget(&key);
            }
        }
    }

    fn is_read(&self, key: &Key) -> bool {
        self.kept.get(key).is_some_and(|kept| kept.state.lock().reader != 0)
    }

    /// The stream that gives way next: of those that have ended the oldest that nobody reads,
    /// else the oldest.
    fn oldest(&self) -> Option<Key> {
        let mut ended = self.ended.lock();
        let unread = ended.iter().position(|(_, key)| !self.is_read(key));
        ended.remove(unread.unwrap_or(0)).map(|(_, key)| key)
    }

    /// Takes room for an event; those that have ended give way first.
    fn take(&self, len: usize) -> bool {
        let mut taken = self.bytes.fetch_add(len, Ordering::Relaxed) + len;
        while taken > self.limits.total {
            let Some(key) = self.oldest() else {
                self.bytes.fetch_sub(len, Ordering::Relaxed);
                return false;
            };
            self.forget(&key);
            taken = self.bytes.load(Ordering::Relaxed);
        }
        true
    }
}

// === impl Kept ===

impl Kept {
    /// What an event's id is.
    pub(super) fn id(&self, number: u64) -> String {
        format!("{:016x}-{number}", self.key.1)
    }

    /// The event that a stream begins with where its revision has one: no message, but an id,
    /// so that a client which loses its connection at once can come back.
    pub(super) async fn prime(&self) {
        let text = format!("id: {}\nretry: {RETRY_MS}\ndata: \n\n", self.id(0));
        let pieces = SmallVec::from_iter([Bytes::from(text)]);
        self.push(pieces, false).await;
    }

    /// Adds an event; waits where its reader is slow.
    pub(super) async fn add(&self, mut pieces: SmallVec<[Bytes; 5]>, needed: bool) {
        let number = self.state.lock().next;
        pieces.insert(0, Bytes::from(format!("id: {}\n", self.id(number))));
        self.push(pieces, needed).await;
    }

    async fn push(&self, pieces: SmallVec<[Bytes; 5]>, needed: bool) {
        poll_fn(|cx| self.poll_room(cx)).await;
        let len: usize = pieces.iter().map(Bytes::len).sum();
        let room = self.of.take(len);
        let freed;
        let waker = {
            let mut state = self.state.lock();
            let number = state.next;
            state.next += 1;
            if state.lost || (state.reader == 0 && !room) {
                // A stream with a gap in it is none: its call runs on and is told nobody.
                freed = if room { len } else { 0 } + state.clear();
            } else {
                if !room {
                    // Whoever reads gets it all the same; what was sent already makes room.
                    self.of.bytes.fetch_add(len, Ordering::Relaxed);
                }
                state.bytes += len;
                state.events.push_back(Sent { number, pieces, len, needed });
                freed = state.shrink(if room { self.of.limits.bytes } else { 0 });
            }
            state.reads.take()
        };
        self.of.bytes.fetch_sub(freed, Ordering::Relaxed);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready where nobody reads, or what is unread is not too much.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let at = state.at;
        let unread: usize =
            state.events.iter().rev().take_while(|sent| sent.number >= at).map(|s| s.len).sum();
        if state.reader == 0 || state.lost || unread < self.of.limits.bytes {
            return Poll::Ready(());
        }
        state.writes = Some(cx.waker().clone());
        Poll::Pending
    }

    /// No event will come any more.
    pub(super) fn finish(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.over = true;
            state.reads.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        self.of.ended.lock().push_back((Instant::now(), self.key));
    }

    /// Reads from an event on; whoever read before reads no more.
    pub(super) fn read(self: &Arc<Self>, at: u64) -> Body {
        let (reader, wakers) = {
            let mut state = self.state.lock();
            state.readers += 1;
            state.reader = state.readers;
            state.at = at;
            (state.reader, [state.reads.take(), state.writes.take()])
        };
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
        let reading = Reading { kept: self.clone(), reader, pieces: SmallVec::new() };
        let frames = stream::unfold(reading, |mut reading| async move {
            let piece = reading.next().await?;
            Some((Ok::<_, BoxError>(Frame::data(piece)), reading))
        });
        Body::stream(StreamBody::new(frames))
    }

    /// Resolves when the client has been gone for longer than anything is kept for it.
    pub(super) async fn abandoned(&self) {
        let window = self.of.limits.window;
        loop {
            let due = {
                let state = self.state.lock();
                // One that reads may leave at any time: it is looked at again.
                if state.reader == 0 { state.left + window } else { Instant::now() + LOOK }
            };
            tokio::time::sleep_until(due).await;
            let state = self.state.lock();
            if state.reader == 0 && state.left.elapsed() >= window {
                return;
            }
        }
    }

    /// Nothing of it can be read any more.
    pub(super) fn lose(&self) {
        let (freed, wakers) = {
            let mut state = self.state.lock();
            (state.clear(), [state.reads.take(), state.writes.take()])
        };
        self.of.bytes.fetch_sub(freed, Ordering::Relaxed);
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
    }
}

impl State {
    /// Drops what one stream may not keep: of what was sent the oldest, or where nobody reads the
    /// oldest that a client can do without. Gives the bytes that are free.
    fn shrink(&mut self, most: usize) -> usize {
        let before = self.bytes;
        while self.bytes > most {
            let place = if self.reader == 0 {
                self.events.iter().position(|sent| !sent.needed)
            } else {
                self.events.front().filter(|sent| sent.number < self.at).map(|_| 0)
            };
            // What a client needs is kept, within the total of all streams.
            let Some(gone) = place.and_then(|place| self.events.remove(place)) else { break };
            self.bytes -= gone.len;
            if gone.needed {
                self.whole_from = gone.number + 1;
            }
        }
        before - self.bytes
    }

    fn clear(&mut self) -> usize {
        self.lost = true;
        self.events = VecDeque::new();
        std::mem::take(&mut self.bytes)
    }
}

// === Reading ===

struct Reading {
    kept: Arc<Kept>,
    reader: u64,
    /// Of the last event, in reverse.
    pieces: SmallVec<[Bytes; 5]>,
}

impl Reading {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.pieces.pop() {
                return Some(piece);
            }
            match timeout(KEEP_ALIVE, poll_fn(|cx| self.poll_event(cx))).await {
                Err(_) => return Some(Bytes::from_static(b": keep-alive\n\n")),
                Ok(None) => return None,
                Ok(Some(mut pieces)) => {
                    pieces.reverse();
                    self.pieces = pieces;
                }
            }
        }
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Option<SmallVec<[Bytes; 5]>>> {
        let mut state = self.kept.state.lock();
        if state.reader != self.reader || state.lost {
            return Poll::Ready(None);
        }
        let at = state.at;
        if let Some(sent) = state.events.iter().find(|sent| sent.number >= at) {
            let (number, pieces) = (sent.number, sent.pieces.clone());
            state.at = number + 1;
            let waker = state.writes.take();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
            return Poll::Ready(Some(pieces));
        }
        if state.over {
            return Poll::Ready(None);
        }
        state.reads = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.kept.state.lock();
            if state.reader != self.reader {
                return;
            }
            state.reader = 0;
            state.left = Instant::now();
            state.writes.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
