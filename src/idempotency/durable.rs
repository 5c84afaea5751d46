//! Records that outlive the process: what this process does with a store.
//!
//! In the map (`local.rs`) there is then only what this process has to do with at the moment: keys
//! that it claims or that are in flight, for which others here wait, and ends that the store did
//! not take yet. All else the store knows, and it is asked with the claim itself.
//!
//! A call is claimed, durably, before it leaves, and settled, durably, before it is answered. If
//! the store does not take the end in time the answer is given all the same, kept here and saved
//! later; a process that dies before that leaves a record in flight, which is an unknown outcome
//! once its lease is over, and never a second run.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use dashmap::Entry;
use tokio::{
    sync::oneshot,
    time::{sleep_until, timeout, timeout_at},
};

use super::{
    Begin, Claim, ScopeId, Stored,
    local::{Hold, Lease, Replays, Running, Settled, State, Waiter, less},
    seal::Bodies,
    store::{
        Claimed, End, Held, HeldState, NewRecord, ReplayStore, Settlement, StoreFault, Swept, Token,
    },
};
use crate::model::keys::KeySecrets;

/// Between two questions about a call that another process runs.
const POLL: Duration = Duration::from_millis(100);

/// The store, and what seals the answers in it.
pub(super) struct Durable {
    pub store: Arc<dyn ReplayStore>,
    pub bodies: Bodies,
}

/// A key that is not known here, and claimed here; whether it is free the store has to say.
///
/// Dropped unasked, the key is free again.
#[must_use = "nobody is asked before `ask`"]
pub struct Inquiry {
    pub(super) lease: Lease,
    pub(super) claim: Claim,
    /// A claim of this process on the key that may still be in the store and means nothing.
    pub(super) replaces: Option<Token>,
}

/// The end of a call on its way into the store; it gets there whether somebody waits or not.
pub struct Saved(Option<(oneshot::Receiver<bool>, Duration)>);

// === impl Inquiry ===

impl Inquiry {
    /// Claims the key in the store, or says what has become of the call that did.
    pub async fn ask(self) -> Begin {
        let Inquiry { mut lease, claim, replaces } = self;
        let replays = lease.replays.clone();
        let Some(durable) = &replays.durable else { return Begin::Run(lease) };
        let now_ms = replays.clock.now_ms();
        let after = |time: Duration| {
            now_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        };
        let record = NewRecord {
            scope: claim.scope.0,
            token: lease.token,
            fingerprint: claim.fingerprint,
            replaces,
            retry_safe: claim.retry_safe,
            now_ms,
            lease_ms: after(replays.settings.lease),
            expires_ms: after(replays.settings.keep),
            cost: replays.in_flight_cost(),
        };
        let (told, answer) = oneshot::channel();
        // From here on the record may be in the store, also if nobody waits for the answer.
        lease.hold = Hold::Asked;
        // Whoever asked may be gone, and the lease with him.
        durable.store.claim(record, Box::new(move |answer| drop(told.send(answer))));
        match timeout(replays.settings.patience, answer).await {
            Ok(Ok(Ok(Claimed::Taken))) => Begin::Run(lease),
            Ok(Ok(Ok(Claimed::Held(held)))) => {
                lease.hold = Hold::Here;
                drop(lease);
                replays.judge(claim, held)
            }
            Ok(Ok(Err(StoreFault::Unavailable))) => {
                match replaces {
                    // What it was to replace is still to be taken back.
                    Some(old) => lease.rename(old),
                    None => lease.hold = Hold::Here,
                }
                Begin::Down
            }
            _ => Begin::Down,
        }
    }
}

impl std::fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inquiry").finish_non_exhaustive()
    }
}

// === impl Saved ===

impl Saved {
    /// There is nothing to wait for.
    pub(super) const NOW: Saved = Saved(None);

    /// Whether there is something to wait for.
    pub fn is_pending(&self) -> bool {
        self.0.is_some()
    }

    /// Ends when the end is durable, or when it took too long; whether it is.
    pub async fn wait(self) -> bool {
        match self.0 {
            None => true,
            Some((saved, patience)) => matches!(timeout(patience, saved).await, Ok(Ok(true))),
        }
    }
}

// === impl Replays ===

impl Replays {
    /// What a record of the store means to the claim.
    fn judge(self: &Arc<Self>, claim: Claim, held: Held) -> Begin {
        // Under another key the digests say nothing of each other. It cannot be told whether the
        // arguments are the same; that there was a call can, and it is not made again.
        let agrees = claim.agrees(held.fingerprint);
        if agrees == Some(false) {
            return Begin::Conflict;
        }
        match held.state {
            HeldState::InFlight => Begin::InFlight(Waiter {
                replays: self.clone(),
                claim,
                running: Running::Elsewhere,
            }),
            HeldState::Unknown => Begin::Unknown,
            HeldState::Done(sealed) => {
                let opened = self.durable.as_ref().filter(|_| agrees.is_some());
                let stored = opened.and_then(|d| d.bodies.open(&claim.scope.0, &sealed));
                Begin::Replay(Arc::new(stored.unwrap_or(Stored::Unreadable)))
            }
        }
    }

    /// Goes on with these secrets for what is kept outside the process.
    pub fn rekey(&self, secrets: &KeySecrets) {
        if let Some(durable) = &self.durable {
            durable.bodies.rekey(secrets);
        }
    }

    /// Hands the end of a call to the store. Until it is there the key counts as in flight.
    pub(super) fn save(
        self: &Arc<Self>,
        durable: &Durable,
        scope: ScopeId,
        token: Token,
        state: State,
        settled: Option<Arc<Settled>>,
    ) -> Saved {
        let (end, expires_ms) = match &state {
            State::Done { stored, expires_ms } => {
                (End::Done(durable.bodies.seal(&scope.0, stored)), *expires_ms)
            }
            State::Unknown { expires_ms } => (End::Unknown, *expires_ms),
            State::Free | State::InFlight { .. } => (End::Free, 0),
        };
        let settlement = Settlement { scope: scope.0, token, end, expires_ms, cost: state.cost() };
        let (told, saved) = oneshot::channel();
        let replays = self.clone();
        let then = move |result: Result<(), StoreFault>| {
            replays.saved(scope, token, state, result.is_ok());
            if let Some(settled) = settled {
                // After the record says so, for whoever wakes looks there.
                settled.wake();
            }
            // Nobody need wait for it.
            let _ = told.send(result.is_ok());
        };
        durable.store.settle(settlement, Box::new(then));
        Saved(Some((saved, self.settings.patience)))
    }

    /// The store knows from here on, or this process has to keep the end itself.
    fn saved(&self, scope: ScopeId, token: Token, state: State, ok: bool) {
        let Entry::Occupied(mut place) = self.records.entry(scope) else { return };
        if place.get().token != token {
            return;
        }
        let real = state.cost();
        let free = matches!(state, State::Free);
        let cost = place.get().cost;
        if ok {
            place.remove();
            if free {
                self.release(cost);
            } else {
                self.give_back(cost.saturating_sub(real));
            }
        } else {
            let record = place.get_mut();
            self.give_back(cost.saturating_sub(real));
            record.cost = real;
            record.state = state;
        }
    }

    /// Saves what the store did not take. To be called every few seconds, off the path of calls.
    pub fn retry(self: &Arc<Self>) {
        /// At a time; the rest has its turn the next time.
        const SOME: usize = 1_000;
        let Some(durable) = &self.durable else { return };
        let unsaved: Vec<_> = self
            .records
            .iter()
            .filter_map(|record| Some((*record.key(), record.token, record.state.ended()?)))
            .take(SOME)
            .collect();
        for (scope, token, state) in unsaved {
            // Its callback does what is to be done.
            let _ = self.save(durable, scope, token, state, None);
        }
    }

    /// Lets the store forget, and takes over what it counts: others may write to it, too. While
    /// keys come and go here its count is of no moment in particular, and is only taken when it
    /// has been put off for long.
    pub(super) fn sweep_store(self: &Arc<Self>, now_ms: u64) {
        const LONG: u64 = 10;
        let Some(durable) = &self.durable else { return };
        if self.sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let replays = self.clone();
        let changes = self.changes.load(Ordering::Relaxed);
        let then = move |swept: Result<Swept, StoreFault>| {
            replays.sweeping.store(false, Ordering::Relaxed);
            let Ok(Swept { forgotten, kept }) = swept else { return };
            let quiet = replays.changes.load(Ordering::Relaxed) == changes;
            if quiet || replays.unset.fetch_add(1, Ordering::Relaxed) >= LONG {
                replays.unset.store(0, Ordering::Relaxed);
                replays.keys.store(kept.keys, Ordering::Relaxed);
                replays.bytes.store(kept.bytes, Ordering::Relaxed);
            } else {
                less(&replays.keys, forgotten.keys);
                replays.give_back(forgotten.bytes);
            }
        };
        durable.store.sweep(now_ms, Box::new(then));
    }

    /// What has become of a call with the key, if there was one, and nothing is claimed: `None`
    /// where this one would be run.
    pub async fn look(self: &Arc<Self>, claim: Claim) -> Option<Begin> {
        let now_ms = self.clock.now_ms();
        if let Some(known) = self.known(claim, now_ms) {
            return Some(known);
        }
        let durable = self.durable.as_ref()?;
        let (told, answer) = oneshot::channel();
        let then = Box::new(move |answer| drop(told.send(answer)));
        durable.store.find(claim.scope.0, now_ms, then);
        match timeout(self.settings.patience, answer).await {
            Ok(Ok(Ok(found))) => match found.map(|held| self.judge(claim, held)) {
                Some(Begin::Unknown) if claim.retry_safe => None,
                found => found,
            },
            _ => Some(Begin::Down),
        }
    }

    /// As `begin`, with the store asked where it has to be.
    pub(super) async fn decide(self: &Arc<Self>, claim: Claim) -> Begin {
        match self.begin(claim) {
            Begin::Ask(inquiry) => inquiry.ask().await,
            decided => decided,
        }
    }
}

// === impl Waiter ===

impl Waiter {
    /// What becomes of this call once the first is settled. If that one was freed, this one may
    /// be the next to run; if the time is over, it is `InFlight` still.
    pub async fn wait(self) -> Begin {
        let deadline = tokio::time::Instant::now() + self.replays.settings.wait;
        let Waiter { replays, claim, mut running } = self;
        loop {
            // From here on no waking is missed, so what is looked at next is not too old.
            let woken = match &running {
                Running::Here(notify) => Some(notify.clone().notified_owned()),
                Running::Elsewhere => None,
            };
            let next = match replays.decide(claim).await {
                Begin::InFlight(next) => next,
                decided => return decided,
            };
            match (woken, &running, &next.running) {
                (Some(woken), Running::Here(old), Running::Here(new)) if Arc::ptr_eq(old, new) => {
                    if timeout_at(deadline, woken).await.is_err() {
                        return Begin::InFlight(next);
                    }
                }
                (_, _, Running::Elsewhere) => {
                    let then = tokio::time::Instant::now() + POLL;
                    if then > deadline {
                        return Begin::InFlight(next);
                    }
                    sleep_until(then).await;
                    running = Running::Elsewhere;
                }
                // Another call has claimed the key meanwhile: its end is the one to wait for.
                _ => running = next.running,
            }
        }
    }
}

// === impl Lease ===

impl Lease {
    /// Goes on as an older claim, which is to be taken back.
    fn rename(&mut self, token: Token) {
        self.token = token;
        if let Some(mut record) = self.replays.records.get_mut(&self.scope) {
            record.token = token;
        }
    }

    /// Ends the call: at once where there is no store that knows of it.
    pub(super) fn settle(&mut self, state: State) -> Saved {
        self.open = false;
        let settled = mem::take(&mut self.settled);
        match (&self.replays.durable, self.hold) {
            (Some(durable), Hold::Asked) => {
                self.replays.save(durable, self.scope, self.token, state, Some(settled))
            }
            _ => {
                self.replays.settle(self.scope, state);
                // After the record says so, for whoever wakes looks there.
                settled.wake();
                Saved::NOW
            }
        }
    }
}
