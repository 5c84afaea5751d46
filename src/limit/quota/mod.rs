//! Quotas: what may be spent in a calendar window, counted in cost units.
//!
//! A call reserves its cost with every quota that is about it, or with none, before it leaves; one
//! that surely never left gives it back. What is reserved is in the store before that
//! (`account.rs`, `ledger.rs`, `upkeep.rs`), so that neither a process that dies nor several that share a
//! store let more through than was meant. What a budget says to a call is `model::quota`'s; which
//! quotas are about a call is worked out as for limits; what of a catalog they stop, `board.rs`
//! says.

mod account;
mod board;
mod ledger;
pub mod store;
mod upkeep;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use self::{
    account::{Account, Source},
    ledger::Waiting,
};
use super::{
    scope::Scopes,
    spec::{Kind, LimitFault, LimitSpec, Subject},
};
use crate::model::{
    caller::TenantId,
    quota::{Budget, Step},
    server::Risk,
};

pub use self::{
    board::{Board, Item, Sight, Unknown},
    ledger::Ledger,
    upkeep::Utilization,
};

/// A budget, and what becomes of calls that it is about without the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    pub budget: Budget,
    /// `None`: what costs most is stopped, everything else gets a share.
    pub store_down: Option<StoreDown>,
}

/// What happens while nobody can ask how much the others have spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreDown {
    /// A small share of what was left is let through.
    Local,
    /// Everything is let through, and written later.
    Open,
    /// Nothing is.
    Closed,
}

/// A quota at its place.
#[derive(Debug)]
pub(super) struct QuotaLimit {
    pub id: Arc<str>,
    pub allowance: Arc<Allowance>,
    /// What all its accounts have in common.
    stem: [u8; 32],
    /// Where those are counted for whom there is no room.
    overflow: OnceLock<Arc<Account>>,
}

/// The quotas in force, and what has been spent of each.
pub struct Quotas {
    scopes: Scopes,
    ledger: Arc<Ledger>,
}

/// The quotas that are about a call, each with the call's account, in the order in which they are
/// locked.
type Due<'a> = SmallVec<[(&'a QuotaLimit, Arc<Account>); 2]>;

/// What can be said to a call at once.
#[derive(Debug)]
pub enum Charge {
    /// No quota is about it.
    Free,
    In(Reservation),
    Out(Refused),
    /// It may run as a cheaper tool.
    Degrade(Degraded),
    /// The store has to be asked: [`Quotas::charge_patiently`].
    Wait(Waiting),
}

/// A quota as it stands after a call was charged, or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    pub id: Arc<str>,
    pub used: u64,
    pub budget: u64,
    /// The highest step that asks for a warning, in percent.
    pub warned: Option<u32>,
    /// When its window is over, in milliseconds since 1970.
    pub until_ms: u64,
}

/// The call is refused, and nothing has been charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("quota `{}`: {}", .standing.id, .why.as_str())]
pub struct Refused {
    pub standing: Use,
    pub why: Why,
    /// The end of the window, as people there write it.
    pub until: String,
    /// The word for the window.
    pub every: &'static str,
    pub left_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// By this step.
    Spent(Step),
    /// Nobody can tell what is spent.
    StoreDown,
}

/// What a call that does not fit is to run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degraded {
    /// `upstream/name`.
    pub to: Box<str>,
    /// What it is told if it cannot.
    pub refused: Refused,
}

/// What a call has reserved. It is spent, unless it is given back.
#[derive(Debug)]
#[must_use = "what did not leave is to be given back"]
pub struct Reservation {
    ledger: Arc<Ledger>,
    entries: SmallVec<[Entry; 2]>,
    cost: u64,
    pub uses: SmallVec<[Use; 2]>,
    /// Quotas that were counted without the store, and by which rule.
    pub fallbacks: SmallVec<[(Arc<str>, StoreDown); 1]>,
}

#[derive(Debug)]
struct Entry {
    account: Arc<Account>,
    start_ms: u64,
    source: Source,
}

// === impl Quotas ===

impl Quotas {
    /// `specs` are of quotas alone.
    pub fn new(specs: Vec<LimitSpec>, ledger: Arc<Ledger>) -> Result<Self, LimitFault> {
        Ok(Self { scopes: Scopes::new(specs, None)?, ledger })
    }

    /// Other quotas in the place of these. What is counted alike goes on where it is: a larger
    /// budget is more room, and not a fresh start.
    pub fn replaced_by(&self, specs: Vec<LimitSpec>) -> Result<Self, LimitFault> {
        let scopes = Scopes::new(specs, Some(&self.scopes))?;
        Ok(Self { scopes, ledger: self.ledger.clone() })
    }

    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub fn is_empty(&self) -> bool {
        self.scopes.is_without_quotas()
    }

    /// Reserves the cost with every quota that is about the call, or says why not.
    pub fn charge(&self, subject: &Subject<'_>, cost: u32) -> Charge {
        if cost == 0 {
            return Charge::Free;
        }
        let due = self.due(subject);
        if due.is_empty() {
            return Charge::Free;
        }
        self.ledger.charge(&due, u64::from(cost), subject.risk())
    }

    /// As `charge`, and asks the store where it has to be; never `Wait`.
    pub async fn charge_patiently(&self, subject: &Subject<'_>, cost: u32) -> Charge {
        // Each round learns something; that others take it away every time is next to impossible.
        const ROUNDS: usize = 16;
        let mut rounds = 0;
        loop {
            match self.charge(subject, cost) {
                Charge::Wait(waiting) => self.ledger.wait(waiting).await,
                decided => return decided,
            }
            rounds += 1;
            if rounds >= ROUNDS {
                self.ledger.give_up();
            }
        }
    }

    fn due<'a>(&'a self, subject: &Subject<'_>) -> Due<'a> {
        let mut due = Due::new();
        self.scopes.quotas(subject, |limit, key| {
            due.push((limit, self.ledger.account(limit, key, subject.tenant)));
        });
        due
    }
}

/// No quotas.
impl Default for Quotas {
    fn default() -> Self {
        Self {
            scopes: Scopes::default(),
            ledger: Ledger::in_process(crate::clock::Clock::system()),
        }
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quotas").finish_non_exhaustive()
    }
}

// === impl QuotaLimit ===

impl QuotaLimit {
    pub fn new(spec: &LimitSpec, allowance: &Arc<Allowance>) -> Self {
        let mut hash = Sha256::new_with_prefix(b"hangu.quota.v1");
        let mut part = |part: &str| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        part(spec.tenant.as_ref().map_or("", TenantId::as_str));
        part(&spec.id);
        part(allowance.budget.every.as_str());
        part(allowance.budget.zone.as_str());
        spec.per.iter().for_each(|dimension| part(dimension.as_str()));
        let stem = hash.finalize().into();
        let overflow = OnceLock::new();
        Self { id: spec.id.clone(), allowance: allowance.clone(), stem, overflow }
    }

    /// The same in every process that counts by these values.
    fn account_id(&self, values: &[u8]) -> store::AccountId {
        Sha256::new_with_prefix(self.stem).chain_update(values).finalize().into()
    }
}

/// Whether two specs count the same, so that one goes on where the other was.
pub(super) fn counts_alike(one: &LimitSpec, other: &LimitSpec) -> bool {
    let (Kind::Quota(own), Kind::Quota(of)) = (&one.kind, &other.kind) else { return false };
    one.per == other.per && own.budget.every == of.budget.every && own.budget.zone == of.budget.zone
}

impl StoreDown {
    pub const fn as_str(self) -> &'static str {
        match self {
            StoreDown::Local => "local",
            StoreDown::Open => "open",
            StoreDown::Closed => "closed",
        }
    }
}

impl Allowance {
    /// The rule for a call: what is not declared is the strictest for what may do most harm.
    fn without_store(&self, risk: Option<Risk>) -> StoreDown {
        self.store_down.unwrap_or(match risk {
            Some(Risk::WriteHigh) => StoreDown::Closed,
            _ => StoreDown::Local,
        })
    }
}

impl Why {
    fn as_str(&self) -> &'static str {
        match self {
            Why::Spent(_) => "spent",
            Why::StoreDown => "the store cannot be used",
        }
    }
}

// === impl Reservation ===

impl Reservation {
    /// The call surely never left: it costs nothing.
    pub fn refund(self) {
        self.ledger.refund(&self.entries, self.cost);
    }

    pub fn cost(&self) -> u64 {
        self.cost
    }
}
