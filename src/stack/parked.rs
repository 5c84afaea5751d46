//! Calls at servers of the handshake era that wait for somebody to answer what the server asked.
//!
//! `southbound` puts them here and takes them out again, under a key that nobody can guess; what
//! is held it does not know. Who gives a call up without being asked, as a client does that
//! cancels, lets go of it here.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::{task::AbortHandle, time::Instant};

use crate::{
    error::{Code, Error},
    model::{
        caller::{Caller, CallerId, EmployeeId, TenantId},
        server::UpstreamName,
    },
};

/// How much may be asked, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct QuestionLimits {
    /// How long an answer may take.
    pub answer: Duration,
    /// How often one call may ask.
    pub rounds: usize,
    /// Calls that wait for an answer at once.
    pub max_open: usize,
    /// The same of one employee at one upstream, in however many sessions.
    pub max_open_each: usize,
}

/// Whose call it is, and at which upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    upstream: UpstreamName,
    owner: Option<(TenantId, CallerId, Option<EmployeeId>)>,
}

/// A call that waits. What holds it ends it when it is dropped.
pub type Call = Box<dyn Any + Send>;

struct Entry {
    holder: Holder,
    /// Nobody looks at it from two sides; this says so to the compiler.
    call: Mutex<Call>,
    /// Ends the wait; gone with the entry.
    expiry: Option<AbortHandle>,
}

/// The calls that wait, of all cores.
pub struct ParkedCalls {
    limits: QuestionLimits,
    /// Tells this process's keys from another's.
    instance: [u8; 8],
    calls: DashMap<[u8; 16], Entry>,
    open: AtomicUsize,
    each: DashMap<Holder, usize>,
}

impl Holder {
    pub fn new(upstream: &UpstreamName, caller: Option<&Caller>) -> Self {
        let owner = caller.map(|caller| {
            (caller.tenant.clone(), caller.id.clone(), caller.principal.employee.clone())
        });
        Self { upstream: upstream.clone(), owner }
    }
}

impl ParkedCalls {
    pub fn new(limits: QuestionLimits) -> Self {
        Self {
            limits,
            instance: rand::random(),
            calls: DashMap::new(),
            open: AtomicUsize::new(0),
            each: DashMap::new(),
        }
    }

    pub fn limits(&self) -> &QuestionLimits {
        &self.limits
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Holds a call until `end`, and ends it then; gives the key under which it is found again.
    ///
    /// # Errors
    /// As many wait as may.
    pub fn park(
        self: &Arc<Self>,
        holder: Holder,
        end: Instant,
        call: Call,
    ) -> Result<String, Error> {
        self.reserve(&holder)?;
        let key = rand::random();
        self.hold(key, holder, end, call);
        Ok(self.text(key))
    }

    /// Holds a call again that was taken out and did not go on. What has come meanwhile may have
    /// its place.
    pub fn put_back(self: &Arc<Self>, key: &str, holder: Holder, end: Instant, call: Call) {
        if let Some(key) = self.key(key)
            && self.reserve(&holder).is_ok()
        {
            self.hold(key, holder, end, call);
        }
    }

    fn hold(self: &Arc<Self>, key: [u8; 16], holder: Holder, end: Instant, call: Call) {
        self.calls.insert(key, Entry { holder, call: Mutex::new(call), expiry: None });
        let parked = self.clone();
        // One task for each call that waits, so no more than there may be; it ends with the wait.
        let expiry = tokio::runtime::Handle::current().spawn(async move {
            tokio::time::sleep_until(end).await;
            if let Some(call) = parked.remove(&key) {
                tracing::info!("a server's question was not answered in time");
                drop(call);
            }
        });
        match self.calls.get_mut(&key) {
            Some(mut entry) => entry.expiry = Some(expiry.abort_handle()),
            None => expiry.abort(),
        }
    }

    /// Takes a call out, to go on with it.
    pub fn take(&self, key: &str) -> Option<Call> {
        self.remove(&self.key(key)?)
    }

    /// Ends a call that nobody will come back for.
    pub fn let_go(&self, key: &str) {
        drop(self.take(key));
    }

    fn remove(&self, key: &[u8; 16]) -> Option<Call> {
        let (_, entry) = self.calls.remove(key)?;
        if let Some(expiry) = entry.expiry {
            expiry.abort();
        }
        self.release(&entry.holder);
        Some(entry.call.into_inner())
    }

    fn reserve(&self, holder: &Holder) -> Result<(), Error> {
        let full = |limit: &'static str| {
            let message = "as many questions wait for an answer as may";
            Error::new(Code::RateLimited, message)
                .with_limit(limit)
                .with_retry_after(Duration::from_secs(1))
        };
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.limits.max_open {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(full("questions.max_open"));
        }
        let mut each = self.each.entry(holder.clone()).or_insert(0);
        if *each >= self.limits.max_open_each {
            drop(each);
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(full("questions.max_open_each"));
        }
        *each += 1;
        Ok(())
    }

    fn release(&self, holder: &Holder) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(mut each) = self.each.get_mut(holder) {
            *each -= 1;
        }
        self.each.remove_if(holder, |_, each| *each == 0);
    }

    fn text(&self, key: [u8; 16]) -> String {
        self.instance.iter().chain(&key).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The key of a text; none of a text that is another process's.
    fn key(&self, text: &str) -> Option<[u8; 16]> {
        let digits = text.as_bytes();
        if digits.len() != 48 || !digits.is_ascii() {
            return None;
        }
        let mut bytes = [0; 24];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        let (instance, key) = bytes.split_first_chunk::<8>()?;
        (*instance == self.instance).then(|| key.try_into().ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QuestionLimits =
        QuestionLimits { answer: Duration::from_secs(1), rounds: 2, max_open: 3, max_open_each: 2 };

    fn holder(upstream: &str) -> Holder {
        Holder::new(&UpstreamName::parse(upstream).unwrap(), None)
    }

    /// Says when it is dropped.
    struct Told(Arc<AtomicUsize>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_found_once_by_its_key_and_by_no_other() {
        let parked = Arc::new(ParkedCalls::new(LIMITS));
        let end = Instant::now() + LIMITS.answer;
        let key = parked.park(holder("a"), end, Box::new(7_u8)).unwrap();
        for wrong in
            ["", "x", &key[2..], &key.replace(|c: char| c.is_ascii_digit(), "f"), &"é".repeat(24)]
        {
            assert!(parked.take(wrong).is_none(), "{wrong}");
        }
        assert!(ParkedCalls::new(LIMITS).take(&key).is_none(), "another process's");
        assert_eq!(*parked.take(&key).unwrap().downcast::<u8>().unwrap(), 7);
        assert!(parked.take(&key).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_comes_back_for_ends() {
        let parked = Arc::new(ParkedCalls::new(LIMITS));
        let dropped = Arc::new(AtomicUsize::new(0));
        let park = || {
            parked.park(
                holder("a"),
                Instant::now() + LIMITS.answer,
                Box::new(Told(dropped.clone())),
            )
        };
        let key = park().unwrap();
        tokio::time::sleep(LIMITS.answer / 2).await;
        assert_eq!((parked.len(), dropped.load(Ordering::Relaxed)), (1, 0));
        tokio::time::sleep(LIMITS.answer).await;
        assert_eq!((parked.len(), dropped.load(Ordering::Relaxed)), (0, 1));
        assert!(parked.take(&key).is_none());
        let key = park().unwrap();
        parked.let_go(&key);
        assert_eq!((parked.is_empty(), dropped.load(Ordering::Relaxed)), (true, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_wait_than_may() {
        let parked = Arc::new(ParkedCalls::new(LIMITS));
        let park =
            |upstream| parked.park(holder(upstream), Instant::now() + LIMITS.answer, Box::new(()));
        let first = park("a").unwrap();
        park("a").unwrap();
        assert_eq!(park("a").unwrap_err().limit(), Some("questions.max_open_each"));
        park("b").unwrap();
        assert_eq!(park("b").unwrap_err().limit(), Some("questions.max_open"));
        parked.let_go(&first);
        park("a").unwrap();
        tokio::time::sleep(LIMITS.answer * 2).await;
        assert!(parked.is_empty() && parked.each.is_empty());
    }
}
