//! Which resources and tasks of which servers are watched, for whom, and who hears of them.
//!
//! One feed for each holder and server: a server never learns one holder's wishes from another's
//! stream. It speaks to no server; `drive` does.

use std::{
    collections::{HashMap, HashSet},
    hash::{Hash, Hasher},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{super::stage::Upstream, Holder};
use crate::{
    dialect::task,
    model::{caller::Caller, reply::RpcError},
};

/// Who is told that something has changed.
pub trait Hears: Send + Sync {
    /// A resource, as its client names it.
    fn updated(&self, uri: &Arc<str>);

    /// How a task stands: its client's id, and the notice with that id in it. Whoever can watch
    /// no task hears of none.
    fn stands(&self, _id: &Arc<str>, _notice: Bytes) {}

    /// Nobody will tell of this any more: the server, or what opens it, is not this caller's now.
    fn over(&self, public: &Arc<str>);
}

/// What a server is to tell of, under the server's own name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    Resource(Arc<str>),
    Task {
        own: Arc<str>,
        /// Whose call it is, as `upstream/name`.
        tool: Arc<str>,
    },
}

/// Whose feed of which server. A server that was registered anew is another.
#[derive(Clone)]
pub(super) struct FeedKey {
    pub upstream: Arc<Upstream>,
    pub holder: Holder,
}

impl PartialEq for FeedKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.upstream, &other.upstream) && self.holder == other.holder
    }
}

impl Eq for FeedKey {}

impl Hash for FeedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.upstream).hash(state);
        self.holder.hash(state);
    }
}

/// Why something is not watched.
#[derive(Debug, Clone)]
pub enum Refused {
    /// The server's own answer.
    Rpc(RpcError),
    /// The server leaves it out of what it honours.
    Declined,
    /// It is not this caller's any more.
    Gone,
    /// The caller has no credential for it.
    Unset,
    /// The server could not be asked; in words for the caller.
    Failed(Box<str>),
}

/// What is to be watched, and for whom.
pub struct Wish {
    pub upstream: Arc<Upstream>,
    pub caller: Caller,
    pub topic: Topic,
    /// As the client names it.
    pub public: Arc<str>,
    pub hears: Weak<dyn Hears>,
}

/// A resource or task that is watched; it is let go when this is dropped.
pub struct Subscription {
    feeds: Arc<Feeds>,
    key: FeedKey,
    topic: Topic,
    number: u64,
}

/// All feeds.
pub struct Feeds {
    feeds: Mutex<HashMap<FeedKey, Feed>>,
    next: AtomicU64,
    starts: mpsc::UnboundedSender<FeedKey>,
    to_start: Mutex<Option<mpsc::UnboundedReceiver<FeedKey>>>,
}

struct Feed {
    /// For whom the server is asked.
    caller: Caller,
    watched: HashMap<Topic, Watched>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Watched {
    targets: Vec<Target>,
    /// The server has said that it will tell.
    held: bool,
    waiting: Vec<oneshot::Sender<Result<(), Refused>>>,
}

struct Target {
    number: u64,
    caller: Caller,
    public: Arc<str>,
    hears: Weak<dyn Hears>,
}

/// What a feed is to watch now.
pub(super) struct Task {
    pub caller: Caller,
    pub wanted: HashSet<Topic>,
    /// Somebody waits for an answer.
    pub is_awaited: bool,
    pub changed: Arc<Notify>,
}

impl Default for Feeds {
    fn default() -> Self {
        let (starts, to_start) = mpsc::unbounded_channel();
        Self {
            feeds: Mutex::default(),
            next: AtomicU64::new(1),
            starts,
            to_start: Mutex::new(Some(to_start)),
        }
    }
}

impl Feeds {
    /// Watches something; what comes back second says whether the server will tell.
    pub fn subscribe(
        self: &Arc<Self>,
        wish: Wish,
    ) -> (Subscription, oneshot::Receiver<Result<(), Refused>>) {
        let (answer, answered) = oneshot::channel();
        let key = FeedKey { upstream: wish.upstream, holder: Holder::of(&wish.caller) };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut feeds = self.feeds.lock();
        let mut is_new = false;
        let feed = feeds.entry(key.clone()).or_insert_with(|| {
            is_new = true;
            Feed {
                caller: wish.caller.clone(),
                watched: HashMap::new(),
                changed: Arc::new(Notify::new()),
            }
        });
        let watched = feed.watched.entry(wish.topic.clone()).or_default();
        watched.targets.push(Target {
            number,
            caller: wish.caller,
            public: wish.public,
            hears: wish.hears,
        });
        if watched.held {
            // Its waiter is here and has not begun to wait.
            let _ = answer.send(Ok(()));
        } else {
            watched.waiting.push(answer);
            feed.changed.notify_one();
        }
        drop(feeds);
        if is_new {
            // Without anybody to drive it, it waits, and whoever asked gives up in time.
            let _ = self.starts.send(key.clone());
        }
        (Subscription { feeds: self.clone(), key, topic: wish.topic, number }, answered)
    }

    /// Feeds that are open.
    pub fn count(&self) -> usize {
        self.feeds.lock().len()
    }

    /// The feeds to be driven, for the one who drives them.
    pub(super) fn starts(&self) -> Option<mpsc::UnboundedReceiver<FeedKey>> {
        self.to_start.lock().take()
    }

    /// Forgets a feed of which nothing is wanted; says whether it is gone.
    pub(super) fn forget(&self, key: &FeedKey) -> bool {
        let mut feeds = self.feeds.lock();
        let empty = feeds.get(key).is_none_or(|feed| feed.watched.is_empty());
        if empty {
            feeds.remove(key);
        }
        empty
    }

    /// What a feed is to watch.
    pub(super) fn task(&self, key: &FeedKey) -> Option<Task> {
        let feeds = self.feeds.lock();
        let feed = feeds.get(key)?;
        Some(Task {
            caller: feed.caller.clone(),
            wanted: feed.watched.keys().cloned().collect(),
            is_awaited: feed.watched.values().any(|watched| !watched.waiting.is_empty()),
            changed: feed.changed.clone(),
        })
    }

    /// The server will tell of this, or will not.
    pub(super) fn answer(&self, key: &FeedKey, topic: &Topic, answer: &Result<(), Refused>) {
        let waiting = {
            let mut feeds = self.feeds.lock();
            let Some(watched) = feeds.get_mut(key).and_then(|feed| feed.watched.get_mut(topic))
            else {
                return;
            };
            watched.held = answer.is_ok();
            std::mem::take(&mut watched.waiting)
        };
        for waiter in waiting {
            // One that has given up needs no answer.
            let _ = waiter.send(answer.clone());
        }
    }

    /// The server is away: nothing of the feed is held until it is asked again.
    pub(super) fn lost(&self, key: &FeedKey) {
        if let Some(feed) = self.feeds.lock().get_mut(key) {
            for watched in feed.watched.values_mut() {
                watched.held = false;
            }
        }
    }

    /// Nobody tells of anything any more: whoever waits for an answer has it, and whoever watches
    /// is told.
    pub(super) fn over(&self, key: &FeedKey, why: &Refused) {
        let watched = {
            let mut feeds = self.feeds.lock();
            let Some(feed) = feeds.get_mut(key) else { return };
            std::mem::take(&mut feed.watched)
        };
        for of in watched.into_values() {
            for waiter in of.waiting {
                // One that has given up needs no answer.
                let _ = waiter.send(Err(why.clone()));
            }
            for target in of.targets {
                if let Some(hears) = target.hears.upgrade() {
                    hears.over(&target.public);
                }
            }
        }
    }

    /// Whoever still waits for an answer is told that there is none.
    pub(super) fn failed(&self, key: &FeedKey, why: &str) {
        let refused = Err(Refused::Failed(why.into()));
        let unanswered: Vec<Topic> = {
            let feeds = self.feeds.lock();
            let watched = feeds.get(key).into_iter().flat_map(|feed| &feed.watched);
            let waited = watched.filter(|(_, watched)| !watched.waiting.is_empty());
            waited.map(|(topic, _)| topic.clone()).collect()
        };
        for topic in unanswered {
            self.answer(key, &topic, &refused);
        }
    }

    /// A resource has changed: tells those who watch it, or what it is part of, and `may` see it.
    pub(super) fn updated(&self, key: &FeedKey, own: &str, may: impl Fn(&Caller) -> bool) {
        let mut told: Vec<(Arc<dyn Hears>, Arc<str>)> = Vec::new();
        {
            let feeds = self.feeds.lock();
            let Some(feed) = feeds.get(key) else { return };
            for (topic, of) in &feed.watched {
                let Topic::Resource(watched) = topic else { continue };
                let Some(rest) = part_of(own, watched) else { continue };
                for target in of.targets.iter().filter(|target| may(&target.caller)) {
                    let Some(hears) = target.hears.upgrade() else { continue };
                    let public = if rest.is_empty() {
                        target.public.clone()
                    } else {
                        format!("{}{rest}", target.public).into()
                    };
                    told.push((hears, public));
                }
            }
        }
        for (hears, public) in told {
            hears.updated(&public);
        }
    }

    /// A task stands differently: tells those who watch it and `may` know of its tool's calls.
    pub(super) fn stands(
        &self,
        key: &FeedKey,
        notice: &Bytes,
        may: impl Fn(&Caller, &str) -> bool,
    ) {
        let Some(id) = task::named(notice) else { return };
        let mut told: Vec<(Arc<dyn Hears>, Arc<str>)> = Vec::new();
        {
            let feeds = self.feeds.lock();
            let Some(feed) = feeds.get(key) else { return };
            for (topic, of) in &feed.watched {
                let Topic::Task { own, tool } = topic else { continue };
                if **own != *id {
                    continue;
                }
                for target in of.targets.iter().filter(|target| may(&target.caller, tool)) {
                    let hears = target.hears.upgrade();
                    told.extend(hears.map(|hears| (hears, target.public.clone())));
                }
            }
        }
        for (hears, public) in told {
            if let Some(notice) = task::relabelled(notice, &public) {
                hears.stands(&public, notice);
            }
        }
    }
}

/// What follows a watched URI in that of a resource that is it, or a part of it.
fn part_of<'a>(updated: &'a str, watched: &str) -> Option<&'a str> {
    let rest = updated.strip_prefix(watched)?;
    let part = rest.is_empty() || rest.starts_with(['/', '#']) || watched.ends_with('/');
    part.then_some(rest)
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut feeds = self.feeds.feeds.lock();
        let Some(feed) = feeds.get_mut(&self.key) else { return };
        let Some(watched) = feed.watched.get_mut(&self.topic) else { return };
        watched.targets.retain(|target| target.number != self.number);
        if watched.targets.is_empty() {
            let gone = feed.watched.remove(&self.topic);
            feed.changed.notify_one();
            drop(feeds);
            drop(gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_by_its_path() {
        for (updated, watched, rest) in [
            ("a://b", "a://b", Some("")),
            ("a://b/c", "a://b", Some("/c")),
            ("a://b/c", "a://b/", Some("c")),
            ("a://b#x", "a://b", Some("#x")),
            ("a://bc", "a://b", None),
            ("a://", "a://b", None),
        ] {
            assert_eq!(part_of(updated, watched), rest, "{updated} {watched}");
        }
    }
}
