//! One account of a quota: what is known of it here, and what this process holds of it.
//!
//! With a store, units are taken from it ahead of the calls, in blocks that are the smaller the
//! nearer the next step is, so that the store never knows of less than was spent, and a call
//! seldom waits for it. Who asks the store, and what its silence means, is `ledger.rs`'s.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::{
    Allowance, StoreDown,
    store::{AccountId, Standing},
};
use crate::model::quota::{Budget, Period};

/// Of a budget, one part in so many is held by one process at most.
const PARTS: u64 = 100;
/// Of what is left until the next step, likewise.
const NEAR: u64 = 16;
/// Of what was left when the store went away, each process may spend one part in so many.
const SHARE: u64 = 10;

/// What is counted together.
#[derive(Debug)]
pub(super) struct Account {
    pub id: AccountId,
    /// Whose calls these are, for metrics and the log.
    pub tenant: Box<str>,
    /// The quota's own id.
    pub quota: Arc<str>,
    pub state: Mutex<State>,
    /// Those who wait for the store's word wake.
    pub news: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct State {
    /// As the policies in force have it.
    pub allowance: Arc<Allowance>,
    pub period: Period,
    /// The store has said what stands in it, or there is none.
    pub known: bool,
    /// What all have spent or hold, as far as is known.
    pub total: u64,
    /// Of that, what this process holds and has given to no call.
    pub block: u64,
    /// Spent here and not in the store yet.
    pub debt: u64,
    /// What is left of what may be spent here while the store is away; set once for an absence.
    pub alone: Option<u64>,
    /// A request to the store is under way.
    pub asking: bool,
    /// Costs of the calls that wait for it.
    pub wanted: u64,
    pub touched: Instant,
    /// Changes with every request, so that a look that is older than one is not believed.
    pub version: u64,
    /// The cost from which calls are stopped, as it was told last.
    pub told: Option<u64>,
    /// The highest step that was logged in this window.
    pub warned: u32,
}

/// Where the units of a call came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Counted here and nowhere else.
    Process,
    Block,
    Debt,
}

// === impl Account ===

impl Account {
    pub fn new(
        id: AccountId,
        quota: Arc<str>,
        tenant: &str,
        allowance: Arc<Allowance>,
        now_ms: u64,
        has_store: bool,
    ) -> Self {
        let state = State {
            period: allowance.budget.period(now_ms),
            allowance,
            known: !has_store,
            total: 0,
            block: 0,
            debt: 0,
            alone: None,
            asking: false,
            wanted: 0,
            touched: Instant::now(),
            version: 0,
            told: None,
            warned: 0,
        };
        Self { id, quota, tenant: tenant.into(), state: Mutex::new(state), news: Arc::default() }
    }
}

// === impl State ===

impl State {
    /// What has been spent, or is held by others.
    pub fn used(&self) -> u64 {
        self.total.saturating_sub(self.block).saturating_add(self.debt)
    }

    pub fn budget(&self) -> &Budget {
        &self.allowance.budget
    }

    /// Begins the window of this moment, if it is another one. Says whether it is.
    pub fn turn(&mut self, now_ms: u64, has_store: bool) -> bool {
        if now_ms < self.period.end_ms && now_ms >= self.period.start_ms {
            return false;
        }
        let period = self.budget().period(now_ms);
        // A clock that was put back a little, or another process's that is ahead.
        if period.start_ms <= self.period.start_ms {
            return false;
        }
        self.begin(period, has_store);
        true
    }

    fn begin(&mut self, period: Period, has_store: bool) {
        self.period = period;
        self.known = !has_store;
        (self.total, self.block, self.debt, self.alone) = (0, 0, 0, None);
        self.warned = 0;
    }

    /// Takes over what the store says, which is of this window or of a later one.
    pub fn learn(&mut self, standing: Standing, granted: u64) {
        if standing.period.start_ms > self.period.start_ms {
            self.begin(standing.period, true);
        }
        if standing.period.start_ms == self.period.start_ms {
            self.known = true;
            self.total = standing.used;
            self.block = self.block.saturating_add(granted);
        }
    }

    /// How many units to ask for with a call of this cost.
    pub fn block_for(&self, cost: u64) -> u64 {
        let budget = self.budget();
        let used = self.used();
        let next = budget.next_threshold(used).unwrap_or_else(|| budget.cost.get());
        let near = next.saturating_sub(used) / NEAR;
        near.min(budget.cost.get() / PARTS).max(cost)
    }

    /// Gives units to a call; by which rule, where they are not the store's.
    pub fn spend(&mut self, source: Source, cost: u64, rule: Option<StoreDown>) {
        match source {
            Source::Process => self.total = self.total.saturating_add(cost),
            Source::Block => self.block = self.block.saturating_sub(cost),
            Source::Debt => {
                if rule == Some(StoreDown::Local) {
                    self.alone = Some(self.alone().saturating_sub(cost));
                }
                self.debt = self.debt.saturating_add(cost);
            }
        }
    }

    /// What may still be spent here without the store. Careful: others may be spending too, and
    /// of an account that was never looked at nothing is known.
    pub fn alone(&self) -> u64 {
        self.alone.unwrap_or_else(|| {
            let budget = self.budget();
            let used = self.used();
            match self.known {
                true => {
                    let next = budget.next_threshold(used).unwrap_or_else(|| budget.cost.get());
                    next.saturating_sub(used).div_ceil(SHARE)
                }
                false => budget.cost.get().div_ceil(PARTS),
            }
        })
    }
}
