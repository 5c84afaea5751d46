//! One client connection: which HTTP it speaks, how long it may idle or dawdle, how it ends.
//!
//! The timeouts cost a call nothing: a timer is set once and looked at when it fires, and what
//! happened meanwhile is read from counters.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::server::graceful::GracefulConnection;
use pin_project_lite::pin_project;
use tokio::{
    net::TcpStream,
    sync::{Notify, futures::OwnedNotified},
    time::{Instant, Sleep},
};

use crate::body::quiet::Ear;

/// How long a client that has just been answered may take for its next request while the
/// gateway closes. Long enough for a request that is already on its way.
const LINGER: Duration = Duration::from_millis(300);

/// Looks at an idle connection in the time that it may be idle; so it lives at most a third
/// longer than that.
const IDLE_ROUNDS: u32 = 3;

/// What a core tells its connections.
#[derive(Debug, Default)]
pub(super) struct Closing {
    flag: AtomicBool,
    notify: Arc<Notify>,
}

/// What the parts of one connection tell each other. All of them run on one core.
#[derive(Debug, Default)]
pub(super) struct Vitals {
    /// Calls under way.
    active: AtomicU32,
    /// Calls begun; wraps.
    begun: AtomicU32,
    /// Bytes have arrived that belong to no call yet.
    partial: AtomicBool,
    /// The socket took nothing when it was last offered something.
    blocked: AtomicBool,
    /// Writes that the socket took; wraps.
    written: AtomicU32,
}

/// A connection's times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub header: Duration,
    pub idle: Duration,
}

/// The HTTP that a client begins to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Tells HTTP/2 with prior knowledge from HTTP/1 by the first bytes, which stay where they are.
pub(super) async fn sniff(stream: &TcpStream) -> io::Result<Protocol> {
    const PREFACE: &[u8] = b"PRI ";
    let mut seen = [0; PREFACE.len()];
    loop {
        let n = stream.peek(&mut seen).await?;
        match seen.get(..n) {
            None | Some([]) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(seen) if seen == PREFACE => return Ok(Protocol::Http2),
            // Bytes that were peeked at count as readable, so there is nothing to wait on.
            Some(seen) if PREFACE.starts_with(seen) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Some(_) => return Ok(Protocol::Http1),
        }
    }
}

// === impl Closing ===

impl Closing {
    pub fn begin(&self) {
        self.flag.store(true, Relaxed);
        self.notify.notify_waiters();
    }

    pub fn begun(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// Ends when a client that has not begun to speak has had its time.
    pub async fn lingered(&self) {
        if !self.begun() {
            self.notify.notified().await;
        }
        tokio::time::sleep(LINGER).await;
    }
}

// === impl Vitals ===

impl Vitals {
    /// Bytes were read.
    pub fn received(&self) {
        self.partial.store(true, Relaxed);
    }

    /// The socket took bytes.
    pub fn sent(&self) {
        self.blocked.store(false, Relaxed);
        self.written.fetch_add(1, Relaxed);
    }

    /// The socket is full.
    pub fn blocked(&self) {
        self.blocked.store(true, Relaxed);
    }

    pub fn call_begins(&self) {
        self.active.fetch_add(1, Relaxed);
        self.begun.fetch_add(1, Relaxed);
        self.partial.store(false, Relaxed);
    }

    pub fn call_ends(&self) {
        self.active.fetch_sub(1, Relaxed);
        self.partial.store(false, Relaxed);
    }
}

// === the connection ===

pin_project! {
    /// Drives a hyper connection and ends it when its time has come.
    pub(super) struct Serving<C> {
        #[pin]
        connection: C,
        #[pin]
        notice: OwnedNotified,
        #[pin]
        timer: Sleep,
        armed: Armed,
        // The first poll is over: whatever can wake this task knows its waker.
        registered: bool,
        // Over HTTP/1, where this task is at both ends of every body.
        ear: Option<Ear>,
        // The connection was told to end.
        ending: bool,
        // For how many looks the socket has taken nothing, and what it had taken by then.
        stalled: u32,
        written: u32,
        closing: Arc<Closing>,
        vitals: Arc<Vitals>,
        times: Times,
        protocol: Protocol,
    }
}

/// What the timer is for, and how many calls had begun when it was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    Head {
        begun: u32,
    },
    Idle {
        begun: u32,
        rounds: u32,
    },
    Linger {
        begun: u32,
    },
    /// The end was asked for, and has had its time.
    Cut,
    Nothing,
}

impl<C: GracefulConnection> Serving<C> {
    pub fn new(
        connection: C,
        closing: Arc<Closing>,
        vitals: Arc<Vitals>,
        times: Times,
        protocol: Protocol,
    ) -> Self {
        Self {
            connection,
            notice: closing.notify.clone().notified_owned(),
            timer: tokio::time::sleep(times.header),
            armed: Armed::Head { begun: 0 },
            registered: false,
            ear: (protocol == Protocol::Http1).then(Ear::new),
            ending: false,
            stalled: 0,
            written: 0,
            closing,
            vitals,
            times,
            protocol,
        }
    }

    fn arm(self: Pin<&mut Self>, to: Armed, after: Duration, cx: &mut Context<'_>) {
        let mut this = self.project();
        *this.armed = to;
        this.timer.as_mut().reset(Instant::now() + after);
        let _ = this.timer.poll(cx);
    }

    /// Asks the connection to end: calls under way are finished.
    fn end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        *this.ending = true;
        this.connection.as_mut().graceful_shutdown();
        match this.ear {
            Some(ear) => ear.poll(this.connection, cx).map(drop),
            None => this.connection.poll(cx).map(drop),
        }
    }

    /// While the gateway closes: whether the connection has ended.
    fn poll_closing(
        mut self: Pin<&mut Self>,
        begun: u32,
        quiet: bool,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if self.ending {
            return Poll::Pending;
        }
        // HTTP/2 tells its client what will still be served. In HTTP/1 the answer under way
        // says that it is the last one; without one, the next request may be on its way
        // already, and gets its answer.
        if self.protocol == Protocol::Http2 || !quiet {
            *self.as_mut().project().armed = Armed::Nothing;
            return self.end(cx);
        }
        if !matches!(self.armed, Armed::Linger { .. }) {
            self.arm(Armed::Linger { begun }, LINGER, cx);
        }
        Poll::Pending
    }

    /// Looked at once a round: whether the client has taken nothing for as long as it may idle.
    fn stalls(self: Pin<&mut Self>) -> bool {
        let this = self.project();
        let written = this.vitals.written.load(Relaxed);
        let moves = !this.vitals.blocked.load(Relaxed) || written != *this.written;
        *this.written = written;
        *this.stalled = if moves { 0 } else { *this.stalled + 1 };
        *this.stalled >= IDLE_ROUNDS
    }

    /// The timer fired: whether the connection has ended.
    fn poll_fired(
        mut self: Pin<&mut Self>,
        begun: u32,
        quiet: bool,
        partial: bool,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let Times { header, idle } = self.times;
        match self.armed {
            Armed::Nothing => return Poll::Pending,
            Armed::Cut if quiet => return Poll::Ready(()),
            Armed::Head { begun: then } if quiet && then == begun && (partial || begun == 0) => {
                return Poll::Ready(());
            }
            Armed::Idle { begun: then, rounds } if quiet && then == begun => {
                if rounds < IDLE_ROUNDS {
                    let armed = Armed::Idle { begun, rounds: rounds + 1 };
                    self.arm(armed, idle / IDLE_ROUNDS, cx);
                    return Poll::Pending;
                }
            }
            Armed::Linger { begun: then } if quiet && then == begun => {}
            _ => {
                // Whoever takes nothing of an answer holds a call, and perhaps a server.
                if !quiet && self.as_mut().stalls() {
                    return Poll::Ready(());
                }
                let armed = Armed::Idle { begun, rounds: 1 };
                self.arm(armed, idle / IDLE_ROUNDS, cx);
                return Poll::Pending;
            }
        }
        self.as_mut().arm(Armed::Cut, header, cx);
        self.end(cx)
    }
}

impl<C: GracefulConnection> Future for Serving<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.registered {
            // A task's waker stays the same, so one poll of each is enough to be woken by them;
            // a busy connection looks at flags instead of polling them again and again.
            let this = self.as_mut().project();
            *this.registered = true;
            let _ = this.notice.poll(cx);
            let _ = this.timer.poll(cx);
        }
        let this = self.as_mut().project();
        let ended = match this.ear {
            Some(ear) => ear.poll(this.connection, cx).is_ready(),
            None => this.connection.poll(cx).is_ready(),
        };
        if ended {
            return Poll::Ready(());
        }
        let begun = self.vitals.begun.load(Relaxed);
        let quiet = self.vitals.active.load(Relaxed) == 0;
        let partial = self.vitals.partial.load(Relaxed) && self.protocol == Protocol::Http1;
        if self.closing.begun() {
            if self.as_mut().poll_closing(begun, quiet, cx).is_ready() {
                return Poll::Ready(());
            }
        } else if quiet && partial && !matches!(self.armed, Armed::Head { .. } | Armed::Cut) {
            let header = self.times.header;
            self.as_mut().arm(Armed::Head { begun }, header, cx);
        }
        if self.timer.is_elapsed() {
            self.poll_fired(begun, quiet, partial, cx)
        } else {
            Poll::Pending
        }
    }
}
