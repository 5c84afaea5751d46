//! Who listens for notices, and what each of them is told.
//!
//! One for the process, whatever core a stream is on. Not a layer: `listen` opens streams here,
//! `discovery` and the servers' own notices feed it. It never holds a world for a stream: what a
//! stream's view has seen is a digest, and a change that the view does not see changes none.

mod drive;
mod feeds;
mod seen;
mod subscriber;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::stage::{Beside, Own, Personal, World, Worlds};
use crate::{
    error::Error,
    model::{
        call::Surface,
        caller::{Caller, CallerId, EmployeeId, TenantId},
        reply::ReplyStream,
    },
    policy::View,
};

pub use drive::{Grounds, again, drive};
pub use feeds::{Feeds, Hears, Refused, Subscription, Topic, Wish};
pub use seen::Seen;
pub use subscriber::{Subscriber, Wanted};

/// Changes that come together are told once.
const TOGETHER: Duration = Duration::from_millis(100);

/// Between two looks at the quotas of those who listen, and at what they have of their own: what
/// nobody looks at is forgotten, and an employee's server is asked again where it is looked at.
const LOOKED_AT: Duration = Duration::from_secs(30);

/// Streams that are compared before others get their turn on the thread.
const COMPARED: usize = 256;

/// How much may listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Streams of one employee, or of a caller where no employee is named.
    pub per_principal: usize,
    /// Streams of all.
    pub total: usize,
    /// Resources and tasks that one stream or session watches.
    pub subscriptions: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { per_principal: 32, total: 10_000, subscriptions: 256 }
    }
}

/// Whose something is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    tenant: TenantId,
    caller: CallerId,
    employee: Option<EmployeeId>,
}

impl Holder {
    pub fn of(caller: &Caller) -> Self {
        Self {
            tenant: caller.tenant.clone(),
            caller: caller.id.clone(),
            employee: caller.principal.employee.clone(),
        }
    }
}

/// Why no further stream is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    PerPrincipal,
    Total,
}

/// The open streams.
pub struct Notices {
    pub limits: StreamLimits,
    pub feeds: Arc<Feeds>,
    worlds: Arc<Worlds>,
    personal: Option<Arc<dyn Personal>>,
    open: Mutex<Open>,
    next: AtomicU64,
    /// The gateway stops: streams end in good order.
    closing: AtomicBool,
    /// A stream was opened from a world that is not in force any more.
    outdated: Notify,
}

#[derive(Default)]
struct Open {
    streams: HashMap<u64, Arc<Subscriber>>,
    held: HashMap<Holder, usize>,
    /// Seats that are taken.
    taken: usize,
}

/// A place among the streams; given back when it is dropped.
pub(super) struct Seat {
    of: Arc<Notices>,
    holder: Holder,
    number: u64,
}

// === impl Notices ===

impl Notices {
    pub fn new(limits: StreamLimits, worlds: Arc<Worlds>) -> Self {
        Self {
            limits,
            feeds: Arc::new(Feeds::default()),
            worlds,
            personal: None,
            open: Mutex::default(),
            next: AtomicU64::new(1),
            closing: AtomicBool::new(false),
            outdated: Notify::new(),
        }
    }

    /// Also tells employees of what becomes of their own servers.
    #[must_use]
    pub fn with_personal(self, personal: Option<Arc<dyn Personal>>) -> Self {
        Self { personal, ..self }
    }

    /// A place for one more stream of this holder.
    ///
    /// # Errors
    /// The cap that is reached.
    pub(super) fn seat(self: &Arc<Self>, holder: Holder) -> Result<Seat, Full> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock();
        if open.taken >= self.limits.total {
            return Err(Full::Total);
        }
        let held = open.held.entry(holder.clone()).or_default();
        if *held >= self.limits.per_principal {
            return Err(Full::PerPrincipal);
        }
        *held += 1;
        open.taken += 1;
        drop(open);
        Ok(Seat { of: self.clone(), holder, number })
    }

    /// Opens a stream on its seat; it has seen what `view` shows of `world`.
    pub(super) fn open(
        &self,
        seat: Seat,
        subscriber: Arc<Subscriber>,
        subscriptions: Vec<Subscription>,
        world: &Arc<World>,
    ) -> ReplyStream {
        self.open.lock().streams.insert(seat.number, subscriber.clone());
        if self.closing.load(Ordering::SeqCst) {
            subscriber.end();
        }
        // From here on no change is missed; what changed before is looked at once more.
        if !Arc::ptr_eq(world, &self.worlds.current()) {
            self.outdated.notify_one();
        }
        subscriber::stream(subscriber, seat, subscriptions)
    }

    /// Streams that are open.
    pub fn count(&self) -> usize {
        self.open.lock().streams.len()
    }

    /// Tells streams what changed for them, until it is dropped.
    pub async fn follow(self: Arc<Self>) {
        let mut changes = self.worlds.watch();
        let mut own = self.personal.as_ref().map(|personal| personal.watch());
        // One for the process, whatever policies are in force.
        let mut spent = self.worlds.current().quotas.ledger().watch();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                changed = spent.changed() => if changed.is_err() {
                    // Those who count were replaced with the world.
                    spent = self.worlds.current().quotas.ledger().watch();
                },
                () = self.outdated.notified() => {}
                () = changed(own.as_mut()) => {}
                () = tokio::time::sleep(LOOKED_AT) => {
                    self.look_at_own().await;
                    if self.worlds.look().quotas.is_empty() {
                        continue;
                    }
                }
            }
            tokio::time::sleep(TOGETHER).await;
            changes.borrow_and_update();
            spent.borrow_and_update();
            self.compare().await;
        }
    }

    /// Looks at what those who listen have of their own, as a call of theirs would.
    async fn look_at_own(&self) {
        let world = self.worlds.current();
        let streams: Vec<Arc<Subscriber>> = self.open.lock().streams.values().cloned().collect();
        for stream in streams.iter().filter(|stream| stream.has_own.load(Ordering::Relaxed)) {
            // Whatever is another, the next comparison finds.
            let _ = self.own(&world, stream).await;
        }
    }

    /// Compares what each open stream has seen with what it would see now.
    pub async fn compare(&self) {
        let world = self.worlds.current();
        let streams: Vec<Arc<Subscriber>> = self.open.lock().streams.values().cloned().collect();
        // Few kinds of callers look at few surfaces; a view is kept, so that its address is its
        // own.
        let mut known: HashMap<(usize, Surface), (Arc<View>, Seen)> = HashMap::new();
        for (number, stream) in streams.iter().enumerate() {
            if number % COMPARED == COMPARED - 1 {
                tokio::task::yield_now().await;
            }
            let Some(view) = world.view_by_now(&stream.caller) else {
                // Whoever listened here has no business here any more.
                stream.end();
                continue;
            };
            let view = match world.shown(&view, &stream.caller) {
                Ok(shown) => shown,
                Err(unknown) => {
                    world.quotas.learn(unknown).await;
                    world.shown(&view, &stream.caller).unwrap_or(view)
                }
            };
            match self.own(&world, stream).await {
                Ok(None) if matches!(&stream.surface, Surface::Upstream(name) if name.is_key()) => {
                    // The server is not this employee's any more.
                    stream.end();
                    continue;
                }
                Ok(None) => {}
                Ok(Some(own)) => {
                    stream.note_own();
                    stream.sees(match &stream.surface {
                        Surface::Aggregate => Seen::of(&world, &view, Some(&own), &stream.surface),
                        surface => Seen::of(&own.world, &own.view, None, surface),
                    });
                    continue;
                }
                // It has seen what it has seen, until more is known.
                Err(_) => continue,
            }
            let key = (Arc::as_ptr(&view) as usize, stream.surface.clone());
            let (_, seen) = known.entry(key).or_insert_with(|| {
                let seen = Seen::of(&world, &view, None, &stream.surface);
                (view, seen)
            });
            stream.sees(*seen);
        }
    }

    /// What a stream shows of its employee's own.
    async fn own(&self, world: &Arc<World>, stream: &Subscriber) -> Result<Option<Beside>, Error> {
        let Some(personal) = &self.personal else { return Ok(None) };
        let about = match &stream.surface {
            Surface::Aggregate => stream.caller.principal.employee.is_some(),
            Surface::Upstream(name) => name.is_key(),
        };
        if !about {
            return Ok(None);
        }
        let own = match personal.of(&stream.caller, world) {
            Own::Nothing => None,
            Own::There(own) => Some(own),
            Own::Loading(loading) => loading.await?,
        };
        let is_known = |own: &Arc<World>| match &stream.surface {
            Surface::Aggregate => true,
            Surface::Upstream(name) => own.catalog.knows(name),
        };
        let Some(own) = own.filter(is_known) else { return Ok(None) };
        let Some(view) = own.view_by_now(&stream.caller) else { return Ok(None) };
        let view = match own.shown(&view, &stream.caller) {
            Ok(shown) => shown,
            Err(unknown) => {
                own.quotas.learn(unknown).await;
                own.shown(&view, &stream.caller).unwrap_or(view)
            }
        };
        Ok(Some(Beside { world: own, view }))
    }

    /// Ends every stream in good order, and each that is opened from now on: whoever listens
    /// connects again elsewhere.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        let streams: Vec<Arc<Subscriber>> = self.open.lock().streams.values().cloned().collect();
        for stream in streams {
            stream.end();
        }
    }
}

/// The next change of what employees have of their own; never, where nobody can have anything.
async fn changed(own: Option<&mut watch::Receiver<u64>>) {
    if let Some(own) = own
        && own.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        let gone = open.streams.remove(&self.number);
        open.taken -= 1;
        if let Some(held) = open.held.get_mut(&self.holder) {
            *held -= 1;
            if *held == 0 {
                open.held.remove(&self.holder);
            }
        }
        drop(open);
        drop(gone);
    }
}

#[cfg(test)]
mod tests;
