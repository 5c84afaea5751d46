//! What is done beside the calls: units that nobody needs go back, what is owed is written, what
//! others have spent is learned, and what nobody looks at is forgotten.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Ledger,
    account::{Account, State},
    store::{AccountId, Correction, StoreFault},
};
use crate::model::quota::Period;

/// Units that nobody used for so long go back.
const IDLE: Duration = Duration::from_secs(5);
/// Accounts that were used within this time are looked at, for what others have spent.
const RECENT: Duration = Duration::from_secs(60);
/// Accounts that nobody used for so long are forgotten here; the store has them.
const FORGOTTEN: Duration = Duration::from_mins(10);
/// Ticks between two searches for what may be forgotten.
const SELDOM: u64 = 30;
/// Accounts that are looked at, or put right, in one go.
const SOME: usize = 2_048;
/// No hash of anything is this.
const PROBE: AccountId = [0xff; 32];

/// How much of a quota a tenant has spent, where several share it the one who has spent most.
#[derive(Debug, Clone, PartialEq)]
pub struct Utilization {
    pub quota: Arc<str>,
    pub tenant: Box<str>,
    pub share: f64,
}

// === impl Ledger ===

impl Ledger {
    /// Gives back what is not needed, writes what is owed, learns what others have spent. To be
    /// called every second or so, off the path of calls; says how much is spent of what.
    pub fn tick(self: &Arc<Self>) -> Vec<Utilization> {
        let now = Instant::now();
        let tick = self.ticks.fetch_add(1, Ordering::Relaxed);
        let even = tick.is_multiple_of(2);
        let (mut looks, mut corrections) = (Vec::new(), Vec::new());
        let mut shares: HashMap<(Arc<str>, Box<str>), f64> = HashMap::new();
        self.each(|account| {
            let mut state = account.state.lock();
            state.turn(self.clock.now_ms(), self.has_store());
            self.notice(account, &mut state);
            let budget = state.budget().cost.get();
            #[expect(clippy::cast_precision_loss, reason = "a share to look at")]
            let share = state.used() as f64 / budget as f64;
            let key = (account.quota.clone(), account.tenant.clone());
            let most = shares.entry(key).or_default();
            *most = most.max(share);
            let idle = now.saturating_duration_since(state.touched);
            let spare = state.block > 0 && idle >= IDLE && !self.is_away();
            if (spare || state.debt > 0) && !state.asking && corrections.len() < SOME {
                corrections.push((account.clone(), correction(account, &mut state, spare)));
            } else if even && idle < RECENT && state.budget().stops_anything() && looks.len() < SOME
            {
                looks.push(account.clone());
            }
        });
        if self.is_away() {
            self.probe();
        } else if !looks.is_empty() {
            self.look(looks, || {});
        }
        self.correct(corrections);
        if tick % SELDOM == SELDOM - 1 {
            self.forget(FORGOTTEN);
        }
        let all = shares.into_iter();
        all.map(|((quota, tenant), share)| Utilization { quota, tenant, share }).collect()
    }

    /// Whether the store can be written again. A full disk can be read.
    fn probe(self: &Arc<Self>) {
        let Some(store) = &self.store else { return };
        let now_ms = self.clock.now_ms();
        // An account of nobody's; each window of it is later than the last, and so is written.
        let period = Period { start_ms: now_ms, end_ms: now_ms };
        let probe = Correction { account: PROBE, period, spent: 0, unneeded: 0 };
        let ledger = self.clone();
        let then = move |done: Result<(), StoreFault>| {
            if done.is_ok() {
                ledger.is_back();
            }
        };
        store.correct(probe, Box::new(then));
    }

    /// Writes what is owed and gives back all that is held: the process is about to end.
    pub fn close(self: &Arc<Self>) {
        let mut corrections = Vec::new();
        self.each(|account| {
            let mut state = account.state.lock();
            if (state.block > 0 || state.debt > 0) && !state.asking {
                corrections.push((account.clone(), correction(account, &mut state, true)));
            }
        });
        self.correct(corrections);
    }

    fn correct(self: &Arc<Self>, corrections: Vec<(Arc<Account>, Correction)>) {
        let Some(store) = &self.store else { return };
        for (account, correction) in corrections {
            let ledger = self.clone();
            let then = move |done: Result<(), StoreFault>| {
                let mut state = account.state.lock();
                state.asking = false;
                let Correction { period, spent, unneeded, .. } = correction;
                let same = state.period == period;
                match done {
                    Ok(()) if same => {
                        state.debt = state.debt.saturating_sub(spent);
                        state.total = state.total.saturating_add(spent);
                        state.alone = None;
                        ledger.is_back();
                    }
                    // Not written: it is still held.
                    Err(StoreFault::Unavailable) if same => {
                        state.total = state.total.saturating_add(unneeded);
                        state.block = state.block.saturating_add(unneeded);
                    }
                    // What may have been written is taken for written where that is more.
                    Err(StoreFault::Unclear) if same => {
                        state.total = state.total.saturating_add(unneeded);
                    }
                    _ => {}
                }
                if done.is_err() {
                    ledger.give_up();
                }
                ledger.notice(&account, &mut state);
                drop(state);
                account.news.notify_waiters();
            };
            store.correct(correction, Box::new(then));
        }
    }

    /// Lets the store forget windows that are over.
    pub fn sweep_store(&self) {
        /// Clocks of replicas differ; nobody needs the room at once.
        const LATER_MS: u64 = 24 * 3_600_000;
        if let Some(store) = &self.store {
            store.sweep(self.clock.now_ms().saturating_sub(LATER_MS), Box::new(|_| {}));
        }
    }

    pub(super) fn forget(&self, idle: Duration) {
        let now = Instant::now();
        self.accounts.forget(|account| {
            let state = account.state.lock();
            let nothing_here = match self.has_store() {
                true => state.block == 0 && !state.asking,
                false => state.total == 0,
            };
            nothing_here && state.debt == 0 && now.saturating_duration_since(state.touched) >= idle
        });
    }
}

/// What is to be put right of an account. What is not needed is given up at once: nobody may
/// spend it meanwhile.
fn correction(account: &Account, state: &mut State, spare: bool) -> Correction {
    let unneeded = if spare { state.block } else { 0 };
    state.block -= unneeded;
    state.total = state.total.saturating_sub(unneeded);
    state.asking = true;
    state.version += 1;
    Correction { account: account.id, period: state.period, spent: state.debt, unneeded }
}
