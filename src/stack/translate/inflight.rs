//! Calls of the handshake era that are under way, so that a `notifications/cancelled` on
//! another connection finds its call, and a broken connection does not end one.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use dashmap::DashMap;
use futures_util::{StreamExt, stream};
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::timeout,
};

use super::{hold::held, north_reply::Encoder, resume::Kept};
use crate::{
    body::Body,
    error::{Code, Error},
    model::reply::{Content, Event, Reply, ReplyStream},
};

/// A session and the client's own id of a request in it.
type Key = ([u8; 8], Bytes);

/// Who can be cancelled. Bounded by the calls under way.
#[derive(Default)]
pub struct Cancels {
    flights: DashMap<Key, Flight>,
    serial: AtomicU64,
}

struct Flight {
    serial: u64,
    cancel: watch::Sender<bool>,
}

impl Cancels {
    /// Makes a call cancellable until the returned value is gone. Of two calls under one id the
    /// later is the one that can be cancelled.
    pub(super) fn enter(self: &Arc<Self>, session: [u8; 8], id: Bytes) -> InFlight {
        let (cancel, cancelled) = watch::channel(false);
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let key = (session, id);
        self.flights.insert(key.clone(), Flight { serial, cancel });
        InFlight {
            cancelled: Some(cancelled),
            leave: Some(Leave { of: self.clone(), key, serial }),
        }
    }

    pub(super) fn cancel(&self, session: [u8; 8], id: Bytes) {
        if let Some((_, flight)) = self.flights.remove(&(session, id)) {
            flight.cancel.send_replace(true);
        }
    }
}

/// A place for a stream that can be taken up again.
pub(super) struct Keep {
    pub kept: Arc<Kept>,
    pub encoder: Encoder,
    /// The revision has an event without a message to begin with.
    pub primed: bool,
}

/// What a call came to.
pub(super) enum Ran {
    Reply(Reply),
    /// A stream that is kept, and the headers of its answer.
    Kept(Headers, Body),
}

type Headers = SmallVec<[(HeaderName, HeaderValue); 2]>;

struct Leave {
    of: Arc<Cancels>,
    key: Key,
    serial: u64,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.of.flights.remove_if(&self.key, |_, flight| flight.serial == self.serial);
    }
}

/// One call under way.
pub(super) struct InFlight {
    cancelled: Option<watch::Receiver<bool>>,
    leave: Option<Leave>,
}

impl InFlight {
    /// A call outside any session: nothing can name it.
    pub(super) fn alone() -> Self {
        Self { cancelled: None, leave: None }
    }

    /// Runs a call to its end in a task of its own, whatever becomes of whoever waits for it.
    /// `None`: it was cancelled. A stream is kept where `keep` has a place for it.
    /// One that is silent for longer than `hold` becomes a stream in which its answer follows.
    pub(super) async fn run<F, K>(
        mut self,
        call: F,
        hold: Option<Duration>,
        keep: Option<K>,
    ) -> Result<Option<Ran>, Error>
    where
        F: Future<Output = Result<Reply, Error>> + Send + 'static,
        K: FnOnce() -> Keep + Send + 'static,
    {
        // The handshake era forbids that a disconnect cancels: the task outlives its waiter on
        // purpose, and is bounded by the call's own time limits.
        let task = tokio::runtime::Handle::current().spawn(async move {
            let call = async move {
                match hold {
                    Some(hold) => held(Box::pin(call), hold).await,
                    None => call.await,
                }
            };
            let reply = tokio::select! {
                reply = call => reply?,
                () = cancelled(&mut self.cancelled) => return Ok(None),
            };
            let headers = reply.headers;
            Ok(Some(match (reply.content, keep) {
                (Content::Stream(stream), Some(keep)) => {
                    Ran::Kept(headers, self.fill(stream, keep()))
                }
                (Content::Stream(stream), None) => {
                    Ran::Reply(Reply { headers, content: Content::Stream(self.pump(stream)) })
                }
                (content, _) => Ran::Reply(Reply { headers, content }),
            }))
        });
        match task.await {
            Ok(result) => result,
            Err(cause) => {
                Err(Error::new(Code::Internal, "the call ended abnormally").with_cause(cause))
            }
        }
    }

    /// Drives a stream to its end, into the place from which its client reads, now or later.
    fn fill(mut self, mut stream: ReplyStream, keep: Keep) -> Body {
        let Keep { kept, encoder, primed } = keep;
        let body = kept.read(0);
        // It outlives its client on purpose, and is bounded by the call's own time limits.
        tokio::runtime::Handle::current().spawn(async move {
            if primed {
                kept.prime().await;
            }
            // The client is asked something: without it, nobody will answer.
            let mut asked = false;
            loop {
                let event = tokio::select! {
                    event = stream.next() => event,
                    () = cancelled(&mut self.cancelled) => {
                        // What is kept is not sent any more.
                        kept.lose();
                        None
                    }
                    () = kept.abandoned(), if asked => None,
                };
                let Some(event) = event else { break };
                asked = matches!(event, Event::Question(_));
                let (needed, end) = match &event {
                    Event::Notification(_) | Event::Answered => (false, false),
                    Event::Question(_) => (true, false),
                    Event::End(_) => (true, true),
                };
                tokio::select! {
                    () = kept.add(encoder.encode(event), needed) => {}
                    () = cancelled(&mut self.cancelled) => {
                        kept.lose();
                        break;
                    }
                }
                if end {
                    break;
                }
            }
            kept.finish();
            drop(self.leave.take());
        });
        body
    }

    /// Drives a stream to its end whether or not anybody reads it.
    fn pump(mut self, mut stream: ReplyStream) -> ReplyStream {
        let (mut queue, receiver) = Queue::new();
        let reader = Reader { receiver, cancelled: self.cancelled.clone() };
        tokio::runtime::Handle::current().spawn(async move {
            // The client is asked something: without it, nobody will answer.
            let mut asked = false;
            loop {
                let event = tokio::select! {
                    event = stream.next() => event,
                    () = cancelled(&mut self.cancelled) => return,
                    () = queue.sender.closed(), if asked => return,
                };
                asked = matches!(event, Some(Event::Question(_)));
                match event {
                    Some(end @ Event::End(_)) => {
                        // The call is over, whenever its reader comes to it: nothing of it is
                        // held up, and nobody there any more means only that it has run.
                        drop((stream, self.leave.take()));
                        let _ = queue.sender.send((end, None)).await;
                        return;
                    }
                    Some(event) => tokio::select! {
                        () = queue.offer(event) => {}
                        () = cancelled(&mut self.cancelled) => return,
                    },
                    None => return,
                }
            }
        });
        Box::pin(stream::unfold(reader, |mut reader| async move {
            let event = tokio::select! {
                biased;
                // What is queued is not sent any more.
                () = cancelled(&mut reader.cancelled) => return None,
                event = reader.receiver.recv() => event?,
            };
            // Taken: its bytes are no longer the queue's.
            Some((event.0, reader))
        }))
    }
}

/// How many events wait for a reader, and how large they may be together.
const QUEUE_EVENTS: usize = 64;
const QUEUE_BYTES: u32 = 256 * 1024;

/// How long a reader that takes nothing holds up its call. After that the call goes on without
/// it: what finds no room is dropped, but for the end.
const STALL: Duration = Duration::from_secs(10);

/// An event, and its bytes' share of the room.
type Queued = (Event, Option<OwnedSemaphorePermit>);

struct Reader {
    receiver: mpsc::Receiver<Queued>,
    cancelled: Option<watch::Receiver<bool>>,
}

/// Between a call and whoever reads it.
struct Queue {
    sender: mpsc::Sender<Queued>,
    bytes: Arc<Semaphore>,
    /// The reader was waited for, in vain.
    stalled: bool,
}

impl Queue {
    fn new() -> (Self, mpsc::Receiver<Queued>) {
        let (sender, receiver) = mpsc::channel(QUEUE_EVENTS);
        let bytes = Arc::new(Semaphore::new(QUEUE_BYTES as usize));
        (Self { sender, bytes, stalled: false }, receiver)
    }

    async fn offer(&mut self, event: Event) {
        let size = u32::try_from(size(&event)).unwrap_or(u32::MAX).min(QUEUE_BYTES);
        // Nobody comes back to a connection that is gone.
        if self.sender.is_closed() {
            return;
        }
        let patience = if self.stalled { Duration::ZERO } else { STALL };
        let room = async {
            let bytes = self.bytes.clone().acquire_many_owned(size).await.ok();
            (bytes, self.sender.reserve().await.ok())
        };
        // A call that asks waits for its client in any case.
        let asks = matches!(event, Event::Question(_));
        let room = async { if asks { Ok(room.await) } else { timeout(patience, room).await } };
        let room = tokio::select! {
            room = room => room,
            () = self.sender.closed() => return,
        };
        self.stalled = room.is_err();
        if let Ok((bytes, Some(slot))) = room {
            slot.send((event, bytes));
        }
    }
}

fn size(event: &Event) -> usize {
    let params = match event {
        Event::Notification(notification) => notification.params.as_deref(),
        Event::Question(question) => question.params.as_deref(),
        Event::Answered | Event::End(_) => None,
    };
    params.map_or(0, <[u8]>::len)
}

/// Resolves when the call is cancelled; never for a call that nothing can name.
async fn cancelled(receiver: &mut Option<watch::Receiver<bool>>) {
    if let Some(receiver) = receiver
        && receiver.wait_for(|cancelled| *cancelled).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests;
