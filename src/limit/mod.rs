//! Limits: how many calls in a time, how many at a time, and how much in a calendar window.
//!
//! A call meets every limit that is about it and is let through by all of them or charged by
//! none. What is forbidden was decided before; this engine only counts. It reads no file. Rates
//! and slots live in this process (`local.rs`, `slots.rs`) and know no store; quotas outlive it
//! (`quota/`).
//!
//! The way of a call does no pattern matching: which limits are about a tool is worked out when
//! the catalog changes (`Limiter::bind`), and kept as a row of bits.

mod headers;
mod keys;
mod local;
pub mod quota;
mod scope;
mod slots;
mod spec;

#[cfg(test)]
mod tests;

use std::{net::IpAddr, sync::Arc, time::Duration};

use tokio::time::Instant;

use self::{
    local::{Counted, RateLimit, Rates},
    scope::Scopes,
    slots::{Desks, SlotLimit, Slots},
};

pub use self::{
    headers::{admitted_headers, exceeded_headers},
    quota::{Allowance, Ledger, Quotas},
    slots::SlotGuard,
    spec::{Concurrency, Dimension, Kind, LimitFault, LimitSpec, Other, Rate, Subject, Tool},
};

/// How many keys may be counted apart at one time, for the limits that look at the address and
/// for the others each: some 25 MB if all are used.
pub const MAX_KEYS: usize = 200_000;

/// The limits in force, and what has been used of each.
///
/// One for the whole process, behind an `Arc`.
pub struct Limiter {
    scopes: Scopes,
    rates: Arc<Rates>,
    slots: Arc<Slots>,
}

/// A limit's name and numbers, as they are told.
#[derive(Debug, PartialEq, Eq)]
pub struct Policy {
    pub id: Arc<str>,
    /// Calls in each `window`, or slots where there is none.
    pub quota: u32,
    pub window: Option<Duration>,
    written: headers::Written,
}

/// Where a key of a limit stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub policy: Arc<Policy>,
    /// How many calls may come at once from here on.
    pub remaining: u32,
    /// When there will be one more.
    pub reset: Duration,
}

/// The call is let through, and has been charged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admitted {
    /// The limits that the same caller will hit first, the tightest in front.
    pub tightest: [Option<Snapshot>; 2],
}

/// The call is refused, and nothing has been charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("limit `{}` is exceeded", .snapshot.policy.id)]
pub struct Exceeded {
    /// The limit that holds longest, if several do.
    pub snapshot: Snapshot,
    /// When the same call may be sent again: whole milliseconds, rounded up.
    pub retry_after: Duration,
}

impl Exceeded {
    pub fn id(&self) -> &Arc<str> {
        &self.snapshot.policy.id
    }

    /// `hangu.limit.kind`.
    pub fn kind(&self) -> &'static str {
        if self.snapshot.policy.window.is_some() { "rate" } else { "concurrency" }
    }
}

/// A call that is in: charged, and with a slot of each limit on concurrency.
#[derive(Debug)]
#[must_use = "the slots are given back when this is dropped"]
pub struct Entry {
    pub admitted: Admitted,
    pub slots: SlotGuard,
    /// How long it queued, if it did.
    pub waited: Option<Duration>,
}

/// What can be said without waiting.
#[derive(Debug)]
pub enum Attempt {
    In(Entry),
    Out(Exceeded),
    /// A slot is missing: `Limiter::enter` queues for it.
    Wait,
}

// === impl Limiter ===

impl Limiter {
    pub fn new(specs: Vec<LimitSpec>) -> Result<Self, LimitFault> {
        Self::with_max_keys(specs, MAX_KEYS)
    }

    /// As `new`, with another bound on what is counted apart.
    pub fn with_max_keys(specs: Vec<LimitSpec>, max_keys: usize) -> Result<Self, LimitFault> {
        let rates = Arc::new(Rates::new(Instant::now(), max_keys));
        let slots = Arc::new(Slots::new(max_keys));
        Ok(Self { scopes: Scopes::new(specs, None)?, rates, slots })
    }

    /// Other limits in the place of these. One that was not changed goes on counting where it
    /// is: a reload is no way to a fresh burst.
    pub fn replaced_by(&self, specs: Vec<LimitSpec>) -> Result<Self, LimitFault> {
        Ok(Self {
            scopes: Scopes::new(specs, Some(&self.scopes))?,
            rates: self.rates.clone(),
            slots: self.slots.clone(),
        })
    }

    /// Works out which limits are about which tool. A tool that is not among these is still
    /// limited, only not as fast.
    pub fn bind<'a>(&self, tools: impl IntoIterator<Item = Tool<'a>>) {
        self.scopes.bind(tools);
    }

    /// Charges every rate that is about this call, or none.
    pub fn admit(&self, subject: &Subject<'_>) -> Result<Admitted, Exceeded> {
        let admitted = self.charge(&self.counted(subject), || Ok(Some(())))?;
        Ok(admitted.map_or_else(Admitted::default, |(admitted, ())| admitted))
    }

    /// Charges the rates that count by address and nothing else, of all callers and all calls:
    /// they need nothing but a connection, so they come before the body is read.
    pub fn admit_address(&self, address: IpAddr) -> Result<(), Exceeded> {
        let mut counted = Counted::new();
        self.scopes.address_rates(address, |limit, key| {
            counted.push((limit, self.rates.counter(limit, key)));
        });
        self.charge(&counted, || Ok(Some(()))).map(drop)
    }

    /// Takes the slots and charges the rates, if that needs no waiting.
    pub fn try_enter(&self, subject: &Subject<'_>) -> Attempt {
        match self.desks(subject).and_then(|desks| self.enter_at_once(&desks, subject)) {
            Ok(Some(entry)) => Attempt::In(entry),
            Ok(None) => Attempt::Wait,
            Err(exceeded) => Attempt::Out(exceeded),
        }
    }

    /// Whether the call would be let in, or at least into the queue; nothing is charged.
    pub fn look(&self, subject: &Subject<'_>) -> Result<(), Exceeded> {
        let desks = self.desks(subject)?;
        self.charge(&self.counted(subject), || {
            slots::look(&desks)?;
            // Nothing to give: then nothing is charged.
            Ok(None::<()>)
        })
        .map(drop)
    }

    /// Takes the slots, in the queue of each if it must, and charges the rates: a call that gets
    /// no slot has used up nothing, and one that a rate would refuse does not queue.
    pub async fn enter(&self, subject: &Subject<'_>) -> Result<Entry, Exceeded> {
        let desks = self.desks(subject)?;
        if let Some(entry) = self.enter_at_once(&desks, subject)? {
            return Ok(entry);
        }
        let started = Instant::now();
        let slots = SlotGuard::take(&desks).await?;
        let admitted = self.admit(subject)?;
        Ok(Entry { admitted, slots, waited: Some(started.elapsed()) })
    }

    /// Takes a slot of each limit on concurrency that is about this call, and charges no rate.
    pub async fn slots(&self, subject: &Subject<'_>) -> Result<SlotGuard, Exceeded> {
        SlotGuard::take(&self.desks(subject)?).await
    }

    fn enter_at_once(
        &self,
        desks: &Desks<'_>,
        subject: &Subject<'_>,
    ) -> Result<Option<Entry>, Exceeded> {
        // The slots are taken between looking at the rates and charging them: neither has a call
        // that is refused by the one used up the other, be it for a moment.
        let taken = self.charge(&self.counted(subject), || SlotGuard::try_take(desks))?;
        Ok(taken.map(|(admitted, slots)| Entry { admitted, slots, waited: None }))
    }

    fn charge<T>(
        &self,
        counted: &Counted<'_>,
        then: impl FnOnce() -> Result<Option<T>, Exceeded>,
    ) -> Result<Option<(Admitted, T)>, Exceeded> {
        if counted.is_empty() {
            return Ok(then()?.map(|given| (Admitted::default(), given)));
        }
        self.rates.charge(counted, Instant::now(), then)
    }

    fn counted(&self, subject: &Subject<'_>) -> Counted<'_> {
        let mut counted = Counted::new();
        self.scopes.rates(subject, |limit, key| {
            counted.push((limit, self.rates.counter(limit, key)));
        });
        counted
    }

    fn desks(&self, subject: &Subject<'_>) -> Result<Desks<'_>, Exceeded> {
        let mut desks = Desks::new();
        let mut refused = Ok(());
        self.scopes.slots(subject, |limit, key| match self.slots.desk(limit, key) {
            Ok(desk) => desks.push((limit, desk)),
            Err(exceeded) => refused = Err(exceeded),
        });
        refused.map(|()| desks)
    }

    /// Forgets the keys that are where they began. To be called now and then, off the path of
    /// calls.
    pub fn sweep(&self) {
        self.rates.sweep(Instant::now());
        self.slots.sweep();
    }

    /// How many keys are being counted.
    pub fn keys(&self) -> usize {
        self.rates.keys() + self.slots.keys()
    }
}

/// No limits.
impl Default for Limiter {
    fn default() -> Self {
        Self {
            scopes: Scopes::default(),
            rates: Arc::new(Rates::new(Instant::now(), MAX_KEYS)),
            slots: Arc::new(Slots::new(MAX_KEYS)),
        }
    }
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter").field("keys", &self.keys()).finish_non_exhaustive()
    }
}

/// Whole milliseconds, rounded up: a caller who waits exactly this long is not a little early.
fn whole_ms(time: Duration) -> Duration {
    const MS: u128 = 1_000_000;
    Duration::from_millis(u64::try_from(time.as_nanos().div_ceil(MS)).unwrap_or(u64::MAX))
}
