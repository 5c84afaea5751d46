//! One open stream: what it has still to be told, and the stream that tells it.
//!
//! Whatever is not read yet is kept once, however often it happens: a reader that is slow costs
//! no memory, and an idle one only this.

use std::{
    collections::HashSet,
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use futures_core::Stream;
use parking_lot::Mutex;

use super::{Seat, Seen, Subscription, feeds::Hears};
use crate::{
    dialect::notices,
    mcp::Method,
    model::{
        call::Surface,
        caller::Caller,
        reply::{Event, Final, Notification, ReplyStream, ResultBody},
    },
};

/// Resources that one stream is told of at a time; what is beyond is dropped, oldest first.
const UPDATES: usize = 1_024;

/// Links that one stream is told of at a time; what is beyond is dropped, oldest first.
const LINKS: usize = 64;

/// What notices of tasks one stream keeps, in bytes: they carry the tasks' results.
const TASK_BYTES: usize = 4 << 20;

/// Which lists a stream is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    pub tools: bool,
    pub prompts: bool,
    pub resources: bool,
}

/// A stream, as those who tell it something know it.
pub struct Subscriber {
    pub(super) caller: Caller,
    pub(super) surface: Surface,
    wanted: Wanted,
    /// Its client was told links to follow, if any, and learns here that they were.
    follows_links: bool,
    /// Something of its employee's own is seen on it.
    pub(super) has_own: AtomicBool,
    inbox: Mutex<Inbox>,
}

struct Inbox {
    seen: Seen,
    hello: Option<Notification>,
    changed: Wanted,
    /// Distinct, in the order in which they first came.
    updates: Vec<Arc<str>>,
    /// Links that were followed to their ends.
    followed: Vec<Box<str>>,
    tasks: TaskNotices,
    end: End,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Asked,
    Said,
}

// === impl Subscriber ===

impl Subscriber {
    pub fn new(caller: Caller, surface: Surface, wanted: Wanted, seen: Seen) -> Self {
        let inbox = Inbox {
            seen,
            hello: None,
            changed: Wanted::default(),
            updates: Vec::new(),
            followed: Vec::new(),
            tasks: TaskNotices::default(),
            end: End::Open,
            waker: None,
        };
        let has_own = AtomicBool::new(matches!(&surface, Surface::Upstream(name) if name.is_key()));
        let (follows_links, inbox) = (false, Mutex::new(inbox));
        Self { caller, surface, wanted, follows_links, has_own, inbox }
    }

    /// Something of its employee's own is seen on it, beside what is everybody's.
    pub fn note_own(&self) {
        self.has_own.store(true, Ordering::Relaxed);
    }

    /// Also told of links that were followed to their ends, where its client has a form for that.
    #[must_use]
    pub fn following_links(self, follows_links: bool) -> Self {
        Self { follows_links, ..self }
    }

    /// A link was followed to its end.
    pub fn followed(&self, link: &str) {
        if !self.follows_links {
            return;
        }
        self.tell(|inbox| {
            if inbox.followed.len() >= LINKS {
                inbox.followed.remove(0);
            }
            inbox.followed.push(link.into());
            true
        });
    }

    /// What the stream begins with, whatever it has been told before.
    pub fn greet(&self, hello: Notification) {
        self.tell(|inbox| inbox.hello.replace(hello).is_none());
    }

    /// Ends the stream in good order, after what it has still to be told.
    pub fn end(&self) {
        self.tell(|inbox| {
            let open = inbox.end == End::Open;
            if open {
                inbox.end = End::Asked;
            }
            open
        });
    }

    /// The lists are like this now.
    pub(super) fn sees(&self, now: Seen) {
        let wanted = self.wanted;
        self.tell(|inbox| {
            let before = mem::replace(&mut inbox.seen, now);
            let tools = wanted.tools && before.tools != now.tools;
            let prompts = wanted.prompts && before.prompts != now.prompts;
            let resources = wanted.resources && before.resources != now.resources;
            inbox.changed.tools |= tools;
            inbox.changed.prompts |= prompts;
            inbox.changed.resources |= resources;
            tools || prompts || resources
        });
    }

    /// Changes the inbox; wakes the stream's task if there is something for it.
    fn tell(&self, change: impl FnOnce(&mut Inbox) -> bool) {
        let waker = {
            let mut inbox = self.inbox.lock();
            if change(&mut inbox) { inbox.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Hears for Subscriber {
    fn updated(&self, uri: &Arc<str>) {
        self.tell(|inbox| {
            if inbox.updates.contains(uri) {
                return false;
            }
            if inbox.updates.len() >= UPDATES {
                inbox.updates.remove(0);
            }
            inbox.updates.push(uri.clone());
            true
        });
    }

    /// What else it is told of, it is told of again when its client has opened another.
    fn over(&self, _: &Arc<str>) {
        self.end();
    }

    fn stands(&self, id: &Arc<str>, notice: Bytes) {
        self.tell(|inbox| {
            inbox.tasks.push(id.clone(), notice);
            true
        });
    }
}

/// How tasks stand, as it came, each with its task's id.
#[derive(Default)]
struct TaskNotices {
    kept: Vec<(Arc<str>, Bytes)>,
    bytes: usize,
}

impl TaskNotices {
    /// Beyond what is kept, a notice that a later one of its task has overtaken goes first, then
    /// the oldest: a client that missed one can ask.
    fn push(&mut self, id: Arc<str>, notice: Bytes) {
        self.bytes += notice.len();
        self.kept.push((id, notice));
        if !self.is_full() {
            return;
        }
        let mut known = HashSet::new();
        let newest = mem::take(&mut self.kept).into_iter().rev();
        self.kept = newest.filter(|(id, _)| known.insert(id.clone())).collect();
        self.kept.reverse();
        self.bytes = self.kept.iter().map(|(_, notice)| notice.len()).sum();
        while self.is_full() && self.kept.len() > 1 {
            self.next();
        }
    }

    fn is_full(&self) -> bool {
        self.bytes > TASK_BYTES || self.kept.len() > UPDATES
    }

    fn next(&mut self) -> Option<Bytes> {
        if self.kept.is_empty() {
            // An idle stream keeps no room for what it has been told.
            self.kept = Vec::new();
            return None;
        }
        let (_, notice) = self.kept.remove(0);
        self.bytes -= notice.len();
        Some(notice)
    }
}

impl Inbox {
    fn next(&mut self) -> Option<Event> {
        if let Some(hello) = self.hello.take() {
            return Some(Event::Notification(hello));
        }
        for (changed, method) in [
            (&mut self.changed.tools, Method::ToolsChanged),
            (&mut self.changed.prompts, Method::PromptsChanged),
            (&mut self.changed.resources, Method::ResourcesChanged),
        ] {
            if mem::take(changed) {
                return Some(Event::Notification(notices::notification(method, None)));
            }
        }
        if !self.updates.is_empty() {
            let uri = self.updates.remove(0);
            return Some(Event::Notification(notices::resource_updated(&uri)));
        }
        // An idle stream keeps no room for what it has been told.
        self.updates = Vec::new();
        if !self.followed.is_empty() {
            let link = self.followed.remove(0);
            return Some(Event::Notification(notices::link_followed(&link)));
        }
        self.followed = Vec::new();
        if let Some(notice) = self.tasks.next() {
            return Some(Event::Notification(notices::notification(
                Method::TaskStatus,
                Some(notice),
            )));
        }
        if self.end == End::Asked {
            self.end = End::Said;
            let end = ResultBody::own(Bytes::from_static(b"{}"));
            return Some(Event::End(Ok(Final::Result(end))));
        }
        None
    }
}

/// The stream of a subscriber; with it go its seat and its subscriptions.
pub(super) fn stream(
    subscriber: Arc<Subscriber>,
    seat: Seat,
    subscriptions: Vec<Subscription>,
) -> ReplyStream {
    Box::pin(Telling { subscriber, _seat: seat, _subscriptions: subscriptions })
}

struct Telling {
    subscriber: Arc<Subscriber>,
    _seat: Seat,
    _subscriptions: Vec<Subscription>,
}

impl Stream for Telling {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut inbox = self.subscriber.inbox.lock();
        if let Some(event) = inbox.next() {
            return Poll::Ready(Some(event));
        }
        if inbox.end == End::Said {
            return Poll::Ready(None);
        }
        let waker = cx.waker();
        if !inbox.waker.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            inbox.waker = Some(waker.clone());
        }
        Poll::Pending
    }
}
