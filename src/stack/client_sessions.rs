//! What changes during a session of a client: its log level, what it watches, its one stream.
//!
//! A session id is sealed state and says nothing of these; they are kept here, under the
//! session's name and the employee, until the session ends or expires. A session that sets none
//! of them is not known here, and costs nothing.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use dashmap::DashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::notices::{Hears, Subscriber, Subscription};
use crate::{mcp::LogLevel, model::caller::EmployeeId};

/// The name of a session, as records have it.
pub type SessionName = [u8; 8];

/// Sessions of which something is kept.
pub struct ClientStates {
    sessions: DashMap<SessionName, Entry>,
    /// States that have a log level: a call asks only where there is one.
    levels: Arc<AtomicUsize>,
    max: usize,
}

struct Entry {
    expires_ms: u64,
    /// A session that serves each of its caller's employees keeps them apart.
    states: SmallVec<[(Option<EmployeeId>, Arc<ClientState>); 1]>,
}

/// What is kept for one employee in one session.
pub struct ClientState {
    inner: Mutex<Inner>,
    levels: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Inner {
    level: Option<LogLevel>,
    /// The newest; an older one has been ended.
    stream: Weak<Subscriber>,
    watched: HashMap<Box<str>, Subscription>,
    /// The session has ended: nothing is kept any more.
    over: bool,
}

/// Too many sessions keep something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no further session can keep a log level, a stream or subscriptions at present")]
pub struct StatesFull;

// === impl ClientStates ===

impl ClientStates {
    /// Keeps something of at most `max` sessions.
    pub fn new(max: usize) -> Self {
        Self { sessions: DashMap::new(), levels: Arc::default(), max }
    }

    /// The state of an employee in a session, which is made if there is none.
    ///
    /// # Errors
    /// Where as many sessions keep something as may.
    pub fn keep(
        &self,
        session: SessionName,
        employee: Option<&EmployeeId>,
        expires_ms: u64,
    ) -> Result<Arc<ClientState>, StatesFull> {
        if self.sessions.len() >= self.max && !self.sessions.contains_key(&session) {
            return Err(StatesFull);
        }
        let mut entry = self
            .sessions
            .entry(session)
            .or_insert_with(|| Entry { expires_ms, states: SmallVec::new() });
        entry.expires_ms = expires_ms;
        if let Some(state) = entry.state(employee) {
            return Ok(state);
        }
        // One session cannot be the way around the cap either.
        if entry.states.len() >= self.max {
            return Err(StatesFull);
        }
        let state = Arc::new(ClientState { inner: Mutex::default(), levels: self.levels.clone() });
        entry.states.push((employee.cloned(), state.clone()));
        Ok(state)
    }

    /// The state of an employee in a session, if something is kept of it.
    pub fn find(
        &self,
        session: SessionName,
        employee: Option<&EmployeeId>,
    ) -> Option<Arc<ClientState>> {
        self.sessions.get(&session)?.state(employee)
    }

    /// The log level of a session. Where no session has one, nothing is looked up.
    pub fn level(&self, session: SessionName, employee: Option<&EmployeeId>) -> Option<LogLevel> {
        if self.levels.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.find(session, employee)?.inner.lock().level
    }

    /// The session has ended: its stream ends, and nothing is watched for it.
    pub fn end(&self, session: SessionName) {
        if let Some((_, entry)) = self.sessions.remove(&session) {
            entry.end();
        }
    }

    /// Ends the sessions that have expired. To be called now and then.
    pub fn sweep(&self, now_ms: u64) {
        let expired: Vec<SessionName> = self
            .sessions
            .iter()
            .filter(|entry| entry.expires_ms <= now_ms)
            .map(|entry| *entry.key())
            .collect();
        for session in expired {
            self.end(session);
        }
    }

    /// Sessions of which something is kept.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }
}

impl Entry {
    fn state(&self, employee: Option<&EmployeeId>) -> Option<Arc<ClientState>> {
        let own = self.states.iter().find(|(own, _)| own.as_ref() == employee)?;
        Some(own.1.clone())
    }

    fn end(self) {
        for (_, state) in self.states {
            state.end();
        }
    }
}

// === impl ClientState ===

impl ClientState {
    pub fn set_level(&self, level: LogLevel) {
        let mut inner = self.inner.lock();
        if inner.level.replace(level).is_none() {
            self.levels.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The session's stream from now on; the one before it ends.
    pub fn attach(&self, stream: &Arc<Subscriber>) {
        let (before, over) = {
            let mut inner = self.inner.lock();
            (std::mem::replace(&mut inner.stream, Arc::downgrade(stream)), inner.over)
        };
        if let Some(before) = before.upgrade() {
            before.end();
        }
        if over {
            stream.end();
        }
    }

    /// A link that the client was told has been followed to its end. Without a stream it is not
    /// told so.
    pub fn followed(&self, link: &str) {
        let stream = self.inner.lock().stream.upgrade();
        if let Some(stream) = stream {
            stream.followed(link);
        }
    }

    /// Whether a resource is watched, by the name that the client has for it.
    pub fn watches(&self, uri: &str) -> bool {
        self.inner.lock().watched.contains_key(uri)
    }

    pub fn watched(&self) -> usize {
        self.inner.lock().watched.len()
    }

    /// Keeps a subscription until the session ends or the client lets it go.
    pub fn watch(&self, uri: Box<str>, subscription: Subscription) {
        let mut inner = self.inner.lock();
        if !inner.over {
            let before = inner.watched.insert(uri, subscription);
            drop(inner);
            drop(before);
        }
    }

    /// Lets a subscription go; says whether there was one.
    pub fn unwatch(&self, uri: &str) -> bool {
        let gone = self.inner.lock().watched.remove(uri);
        gone.is_some()
    }

    fn end(&self) {
        let (stream, watched) = {
            let mut inner = self.inner.lock();
            inner.over = true;
            (std::mem::take(&mut inner.stream), std::mem::take(&mut inner.watched))
        };
        if let Some(stream) = stream.upgrade() {
            stream.end();
        }
        drop(watched);
    }
}

/// Notices of what a session watches go to its stream; where there is none, they are lost, as
/// the handshake revisions have it.
impl Hears for ClientState {
    fn updated(&self, uri: &Arc<str>) {
        let stream = self.inner.lock().stream.upgrade();
        if let Some(stream) = stream {
            stream.updated(uri);
        }
    }

    /// The session goes on without it; its stream ends, so that the client looks again.
    fn over(&self, uri: &Arc<str>) {
        self.unwatch(uri);
        let stream = self.inner.lock().stream.upgrade();
        if let Some(stream) = stream {
            stream.end();
        }
    }
}

impl Drop for ClientState {
    fn drop(&mut self) {
        if self.inner.get_mut().level.is_some() {
            self.levels.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionName = [1; 8];

    #[test]
    fn a_level_is_kept_for_each_employee_until_the_session_ends() {
        let states = ClientStates::new(10);
        let employee = |id| EmployeeId::parse(id).unwrap();
        let (first, second) = (employee("E1"), employee("E2"));
        assert_eq!(states.level(SESSION, Some(&first)), None);
        states.keep(SESSION, Some(&first), 1_000).unwrap().set_level(LogLevel::Error);
        states.keep(SESSION, Some(&first), 1_000).unwrap().set_level(LogLevel::Info);
        assert_eq!(states.level(SESSION, Some(&first)), Some(LogLevel::Info));
        assert_eq!(states.level(SESSION, Some(&second)), None);
        assert_eq!(states.level(SESSION, None), None);
        states.end(SESSION);
        assert_eq!(states.level(SESSION, Some(&first)), None);
        assert_eq!(states.levels.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_has_expired_is_swept() {
        let states = ClientStates::new(10);
        states.keep(SESSION, None, 1_000).unwrap().set_level(LogLevel::Error);
        states.keep([2; 8], None, 2_000).unwrap().set_level(LogLevel::Error);
        states.sweep(999);
        assert_eq!(states.count(), 2);
        states.sweep(1_000);
        assert_eq!(states.level(SESSION, None), None);
        assert_eq!(states.level([2; 8], None), Some(LogLevel::Error));
    }

    #[test]
    fn only_so_many_sessions_keep_something() {
        let states = ClientStates::new(2);
        for session in [[1; 8], [2; 8], [1; 8]] {
            states.keep(session, None, 1_000).unwrap();
        }
        assert_eq!(states.keep([3; 8], None, 1_000).err(), Some(StatesFull));
        states.end([2; 8]);
        assert!(states.keep([3; 8], None, 1_000).is_ok());
    }
}
