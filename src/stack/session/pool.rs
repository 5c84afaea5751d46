//! Which sessions there are at upstreams, and whose.
//!
//! A place is kept for each employee, upstream and set of capabilities; it opens nothing itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use tokio::{sync::Mutex, time::Instant};

use super::super::stage::{HeldSession, Hop, Serial, Upstream};
use crate::{
    error::{Code, Error},
    mcp::{Capabilities, LogLevel, Version},
    model::{
        caller::{Caller, CallerId, EmployeeId, TenantId},
        exchange::Exchange,
    },
    telemetry::{EndedSession, Metrics},
};

/// Whose session at which upstream, and what it declares that can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    upstream: Serial,
    owner: Owner,
    capabilities: Capabilities,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Owner {
    /// The gateway's own discovery.
    Gateway,
    /// Everybody, at a server that keeps nothing.
    Everybody,
    One(TenantId, CallerId, Option<EmployeeId>),
}

/// An open session.
pub(super) struct Session {
    pub held: HeldSession,
    /// Tells one opening from the next.
    pub serial: u64,
    /// The least severe log messages that the server was asked for.
    pub level: Option<LogLevel>,
    /// For as long as it is open.
    pub _life: Life,
}

/// Tells how long a session lasted, when it has ended.
pub(super) struct Life {
    metrics: Option<Arc<Metrics>>,
    since: Instant,
    version: Version,
    lost: Arc<AtomicBool>,
    http: Option<http::Version>,
    is_pipe: bool,
    server: Option<(Arc<str>, u16)>,
}

impl Life {
    /// Of the session that the last attempt of this exchange has opened.
    pub fn begin(sessions: &Sessions, exchange: &Exchange, held: &HeldSession) -> Self {
        let facts = exchange.facts();
        let last = facts.attempts.last();
        Self {
            metrics: sessions.metrics.clone(),
            since: Instant::now(),
            version: held.version,
            lost: held.lost.clone(),
            http: last.and_then(|attempt| attempt.http_version),
            is_pipe: last.is_some_and(|attempt| attempt.is_pipe),
            server: last.and_then(|attempt| attempt.server.clone()),
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let Some(metrics) = &self.metrics else { return };
        let ended = EndedSession {
            version: self.version,
            http: self.http,
            is_pipe: self.is_pipe,
            server: self.server.as_ref().map(|(address, port)| (&**address, *port)),
            error: self.lost.load(Ordering::Relaxed).then_some("404"),
        };
        metrics.client_session(ended, self.since.elapsed());
    }
}

/// The place of a session.
pub(super) struct Slot {
    /// Held while a session is opened, so that calls that come together open one.
    pub session: Mutex<Option<Session>>,
    /// Milliseconds after the pool's start.
    used: AtomicU64,
    pub upstream: Arc<Upstream>,
    /// Whose credentials it was opened with.
    pub caller: Option<Arc<Caller>>,
}

/// Sessions at upstreams, shared by all cores.
pub struct Sessions {
    slots: DashMap<Key, Arc<Slot>>,
    started: Instant,
    serial: AtomicU64,
    /// `None`: nobody asks how long they last.
    metrics: Option<Arc<Metrics>>,
    /// Taken out of the pool to make room, and not yet ended at their servers.
    evicted: parking_lot::Mutex<Vec<Arc<Slot>>>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            slots: DashMap::new(),
            started: Instant::now(),
            serial: AtomicU64::new(1),
            metrics: None,
            evicted: parking_lot::Mutex::default(),
        }
    }
}

impl Sessions {
    /// Sessions that tell how long each of them lasted.
    pub fn measured(metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..Self::default() }
    }

    /// The place for a request's session. Where the upstream has as many as it may, the one that
    /// was not used for the longest gives way.
    pub(super) fn slot(&self, hop: &Hop) -> Result<Arc<Slot>, Error> {
        let owner = match hop.caller.as_deref() {
            None => Owner::Gateway,
            Some(_) if hop.upstream.shares_sessions() => Owner::Everybody,
            Some(Caller { tenant, id, principal, .. }) => {
                Owner::One(tenant.clone(), id.clone(), principal.employee.clone())
            }
        };
        let upstream = hop.upstream.serial;
        let key = Key { upstream, owner, capabilities: hop.capabilities };
        if let Some(slot) = self.slots.get(&key) {
            slot.used.store(self.now(), Ordering::Relaxed);
            return Ok(slot.clone());
        }
        self.make_room(&hop.upstream)?;
        let slot = self.slots.entry(key).or_insert_with(|| {
            Arc::new(Slot {
                session: Mutex::new(None),
                used: AtomicU64::new(0),
                upstream: hop.upstream.clone(),
                caller: hop.caller.clone(),
            })
        });
        slot.used.store(self.now(), Ordering::Relaxed);
        Ok(slot.clone())
    }

    /// Has the gateway's own session opened anew by the next request, where it is none: a server
    /// that keeps no sessions says only when it is greeted what it serves. Says whether so.
    pub fn greets_again(&self, upstream: &Upstream) -> bool {
        let own = Key {
            upstream: upstream.serial,
            owner: Owner::Gateway,
            capabilities: upstream.discovers(),
        };
        let Some(slot) = self.slots.get(&own) else { return true };
        // Whoever holds it opens it, or has just done so.
        let Ok(mut open) = slot.session.try_lock() else { return false };
        if open.as_ref().is_some_and(|session| session.held.id.is_none()) {
            *open = None;
        }
        open.is_none()
    }

    /// A number for the next session.
    pub(super) fn serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    fn make_room(&self, upstream: &Upstream) -> Result<(), Error> {
        let mut count = 0;
        let mut oldest: Option<(u64, Key)> = None;
        for entry in self.slots.iter().filter(|entry| entry.key().upstream == upstream.serial) {
            count += 1;
            let used = entry.used.load(Ordering::Relaxed);
            if Arc::strong_count(entry.value()) == 1
                && oldest.as_ref().is_none_or(|(before, _)| used < *before)
            {
                oldest = Some((used, entry.key().clone()));
            }
        }
        if count < upstream.max_sessions {
            return Ok(());
        }
        // It may have been taken into use meanwhile; then there is no room.
        let gone = oldest.and_then(|(_, key)| {
            self.slots.remove_if(&key, |_, slot| Arc::strong_count(slot) == 1)
        });
        let Some((_, slot)) = gone else {
            let message = format!("every session at `{}` is in use", upstream.name);
            return Err(Error::new(Code::RateLimited, message)
                .with_limit(format!("{}.max_sessions", upstream.name))
                .with_retry_after(Duration::from_secs(1)));
        };
        self.evicted.lock().push(slot);
        Ok(())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The shortest time after which one of the sessions may be idle.
    pub(super) fn shortest_idle(&self) -> Option<Duration> {
        self.slots.iter().map(|slot| slot.upstream.session_idle).min()
    }

    /// Takes out the sessions that were not used for a while; whoever calls this ends them at
    /// their servers.
    pub(super) fn idle(&self) -> Vec<Arc<Slot>> {
        let now = self.now();
        let mut gone = std::mem::take(&mut *self.evicted.lock());
        self.slots.retain(|_, slot| {
            let longest = slot.upstream.session_idle.as_millis();
            let longest = u64::try_from(longest).unwrap_or(u64::MAX);
            // A slot that somebody holds is in use, whatever its clock says.
            let idle = now.saturating_sub(slot.used.load(Ordering::Relaxed)) > longest
                && Arc::strong_count(slot) == 1;
            if idle {
                gone.push(slot.clone());
            }
            !idle
        });
        gone
    }
}
