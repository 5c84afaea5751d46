//! Calls that wait for somebody's yes: what exactly was asked for, who may decide, and what became
//! of it.
//!
//! A request is bound to the tenant, the requester, the tool, the digest of its arguments and the
//! revision of the policies that ask; a yes to it is used once. Nothing here asks anybody or runs
//! a call: the layer does, and whoever decides comes through `/v1/approvals`. `oversight.rs` is for
//! those who look after the gateway.

mod local;
mod notify;
mod oversight;
mod run;
pub mod seal;
pub mod store;
mod vote;
pub mod webhook;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use self::store::{ApprovalStore, Change, Pick, StoreFault, Then};
pub use self::{
    local::Local,
    notify::{Notice, Notify},
    oversight::Survey,
    run::{Token, Use},
    seal::ArgumentSeal,
    vote::{Vote, Voter},
};
use crate::{
    clock::Clock,
    model::{
        caller::{CallerId, EmployeeId, Role, Roles, TenantId},
        exchange::KeyedDigest,
        ids,
        server::Risk,
    },
};

/// Names one request: a UUIDv7, written with hyphens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApprovalId(u128);

/// The one call that a yes is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub tenant: TenantId,
    pub caller: CallerId,
    /// `None`: a caller that names no employees.
    pub requester: Option<EmployeeId>,
    /// `upstream/tool`.
    pub tool: Arc<str>,
    pub arguments: KeyedDigest,
    /// Of the policies that ask.
    pub revision: Arc<str>,
}

/// What one rule wants: so many different people who hold one of the roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    pub rule: Arc<str>,
    pub roles: Box<[Role]>,
    pub count: u32,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub subject: Subject,
    /// Of every rule that asks; all must be met.
    pub demands: Vec<Demand>,
    pub risk: Risk,
    /// The arguments, sealed, for those who decide; nothing where they are too large to keep.
    pub sealed: Option<Bytes>,
    pub asked_ms: u64,
    pub expires_ms: u64,
}

/// How a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Waiting,
    Approved,
    Refused,
    /// Its call has been made.
    Used,
    /// Nobody decided in time, or nobody used it.
    Expired,
}

/// A request and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub id: ApprovalId,
    pub request: Request,
    pub votes: Vec<Vote>,
    /// When its call was made.
    pub used_ms: Option<u64>,
}

/// What a call that needs approval may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Run, now and once: it was approved, and is used up with this.
    Granted(Approval),
    /// Wait; `new` where this call is the first to ask.
    Waiting { approval: Approval, new: bool },
    /// Not run; somebody said no.
    Refused(Approval),
}

/// Why a decision is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecideFault {
    /// It does not exist, or not for this person.
    #[error("there is no such request for approval")]
    Unknown,
    #[error("nobody decides on what he asked for himself")]
    Requester,
    #[error("none of your roles may decide on this")]
    Role,
    #[error("you have already decided on this")]
    Twice,
    #[error("it is {} already", .0.as_str())]
    Over(State),
    #[error(transparent)]
    Store(#[from] StoreFault),
}

/// How many requests may wait at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub total: usize,
    /// Of one requester.
    pub each: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { total: 10_000, each: 100 }
    }
}

/// Is told when a request has found its end, and how long that took.
pub trait Observer: Send + Sync + 'static {
    fn ended(&self, end: Ended, waited: Duration);
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    Granted,
    Refused,
    /// Nobody decided in time.
    Expired,
}

/// Requests for approval, in a store.
pub struct Approvals {
    store: Arc<dyn ApprovalStore>,
    clock: Clock,
    notify: Option<Arc<dyn Notify>>,
    bounds: Bounds,
    observer: Option<Arc<dyn Observer>>,
}

// === impl ApprovalId ===

impl ApprovalId {
    /// A fresh one of the given time.
    pub fn new(now_ms: u64) -> Self {
        Self(ids::uuid_v7(now_ms))
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// As ids are passed between parts.
    pub fn get(self) -> u128 {
        self.0
    }

    /// Reads the usual form of a UUID, in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let hyphens = [8, 13, 18, 23];
        let fits = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match hyphens.contains(&at) {
                true => byte == b'-',
                false => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            });
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        u128::from_str_radix(&digits, 16).ok().filter(|_| fits).map(Self)
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(36);
        ids::push_uuid(&mut text, self.0);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

// === impl Subject ===

impl Subject {
    /// Equal for equal calls, and for no others.
    pub fn binding(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix("hangu.approval.v1");
        let requester = self.requester.as_ref().map_or("", EmployeeId::as_str);
        let (tenant, caller) = (self.tenant.as_str(), self.caller.as_str());
        for part in [tenant, caller, requester, &*self.tool, &*self.revision] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update(self.arguments.key.to_be_bytes());
        hash.update(self.arguments.digest);
        hash.finalize().into()
    }

    /// Equal for all that one requester asks for.
    pub fn holder(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix("hangu.approval.requester.v1");
        let requester = self.requester.as_ref().map_or("", EmployeeId::as_str);
        for part in [self.tenant.as_str(), self.caller.as_str(), requester] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

// === impl State ===

impl State {
    pub const ALL: [State; 5] =
        [State::Waiting, State::Approved, State::Refused, State::Used, State::Expired];

    pub const fn as_str(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Approved => "approved",
            State::Refused => "refused",
            State::Used => "used",
            State::Expired => "expired",
        }
    }
}

// === impl Approval ===

impl Approval {
    pub fn state(&self, now_ms: u64) -> State {
        if self.used_ms.is_some() {
            return State::Used;
        }
        if self.votes.iter().any(|vote| !vote.yes) {
            return State::Refused;
        }
        if now_ms >= self.request.expires_ms {
            return State::Expired;
        }
        if self.is_decided() { State::Approved } else { State::Waiting }
    }

    /// Whether nobody need decide any more, be it for a yes or for a no.
    pub fn is_decided(&self) -> bool {
        self.votes.iter().any(|vote| !vote.yes)
            || self.request.demands.iter().all(|demand| self.missing(demand) == 0)
    }

    /// How many more people a rule wants.
    pub fn missing(&self, demand: &Demand) -> u32 {
        let counts = |vote: &&Vote| vote.yes && vote.rules.contains(&demand.rule);
        let given = self.votes.iter().filter(counts).count();
        demand.count.saturating_sub(u32::try_from(given).unwrap_or(u32::MAX))
    }

    /// The rules for which a person's word counts.
    pub fn rules_for(&self, roles: &Roles) -> Vec<Arc<str>> {
        let holds = |demand: &&Demand| demand.roles.iter().any(|r| roles.contains(r.as_str()));
        self.request.demands.iter().filter(holds).map(|demand| demand.rule.clone()).collect()
    }

    /// Whoever asked sees it, and whoever may decide on it.
    pub fn is_visible_to(&self, employee: &EmployeeId, roles: &Roles) -> bool {
        self.request.subject.requester.as_ref() == Some(employee)
            || !self.rules_for(roles).is_empty()
            || self.has_said(employee)
    }

    /// Whether an employee has decided.
    pub fn has_said(&self, employee: &EmployeeId) -> bool {
        self.votes.iter().any(|vote| vote.by.is(employee))
    }
}

// === impl Approvals ===

impl Approvals {
    pub fn new(store: Arc<dyn ApprovalStore>, clock: Clock) -> Self {
        Self { store, clock, notify: None, bounds: Bounds::default(), observer: None }
    }

    /// Also tells somebody what becomes of requests.
    #[must_use]
    pub fn notifying(self, notify: Arc<dyn Notify>) -> Self {
        Self { notify: Some(notify), ..self }
    }

    /// With other bounds of what may wait.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Also tells somebody how requests end.
    #[must_use]
    pub fn observed(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Asks for a call: it is granted if somebody approved it before, and waits otherwise. Many
    /// who ask for the same at once have one request, and one of them one grant.
    pub async fn ask(&self, request: Request) -> Result<Standing, StoreFault> {
        self.ask_as(ApprovalId::new(self.now_ms()), request, Use::Now).await
    }

    /// Gives a grant back whose call surely never left.
    pub async fn give_back(&self, id: ApprovalId) -> Result<(), StoreFault> {
        // One that has been forgotten meanwhile needs nothing given back.
        wait(|then| self.store.decide(id, run::given_back(), then)).await.map(|_| ())
    }

    /// Takes a person's word on a request of his own tenant.
    pub async fn decide(
        &self,
        tenant: &TenantId,
        id: ApprovalId,
        by: &EmployeeId,
        roles: &Roles,
        yes: bool,
        comment: Option<&str>,
    ) -> Result<Approval, DecideFault> {
        let now_ms = self.now_ms();
        let (tenant, by, roles) = (tenant.clone(), by.clone(), roles.clone());
        let comment: Option<Box<str>> = comment.map(Into::into);
        let change: Change<Result<Approval, DecideFault>> = Box::new(move |known| {
            let Some(mut approval) = known.filter(|known| {
                known.request.subject.tenant == tenant && known.is_visible_to(&by, &roles)
            }) else {
                return (None, Err(DecideFault::Unknown));
            };
            let rules = approval.rules_for(&roles);
            let fault = match approval.state(now_ms) {
                _ if approval.request.subject.requester.as_ref() == Some(&by) => {
                    DecideFault::Requester
                }
                State::Waiting if rules.is_empty() => DecideFault::Role,
                State::Waiting if approval.has_said(&by) => DecideFault::Twice,
                State::Waiting => {
                    let (by, comment) = (Voter::Employee(by.clone()), comment.clone());
                    approval.votes.push(Vote { by, rules, yes, comment, at_ms: now_ms });
                    return (Some(approval.clone()), Ok(approval));
                }
                over => DecideFault::Over(over),
            };
            (None, Err(fault))
        });
        let decided =
            wait(|then| self.store.decide(id, change, self.tell_decided(then, now_ms))).await??;
        if decided.is_decided() {
            let end = if decided.votes.iter().all(|vote| vote.yes) {
                Ended::Granted
            } else {
                Ended::Refused
            };
            self.ended(end, now_ms.saturating_sub(decided.request.asked_ms));
        }
        Ok(decided)
    }

    /// One request, if this person may see it.
    pub async fn look(
        &self,
        tenant: &TenantId,
        id: ApprovalId,
        by: &EmployeeId,
        roles: &Roles,
    ) -> Result<Option<Approval>, StoreFault> {
        let found = wait(|then| self.store.find(id, then)).await?;
        Ok(found.filter(|found| {
            found.request.subject.tenant == *tenant && found.is_visible_to(by, roles)
        }))
    }

    /// The requests of a tenant that a person may see, the newest first.
    pub async fn list(
        &self,
        tenant: &TenantId,
        by: &EmployeeId,
        roles: &Roles,
    ) -> Result<Vec<Approval>, StoreFault> {
        let pick = Pick { tenant: Some(tenant.clone()), before: None };
        let mut all = wait(|then| self.store.list(pick, then)).await?;
        all.retain(|approval| approval.is_visible_to(by, roles));
        Ok(all)
    }

    /// Forgets what has been over for so long, and tells of what nobody decided in time.
    pub async fn sweep(&self, keep_ms: u64) -> Result<(), StoreFault> {
        let now_ms = self.now_ms();
        let before_ms = now_ms.saturating_sub(keep_ms);
        let expired = wait(|then| self.store.sweep(now_ms, before_ms, then)).await?;
        expired.into_iter().for_each(|waited_ms| self.ended(Ended::Expired, waited_ms));
        Ok(())
    }

    /// Notes how a request ended.
    pub fn ended(&self, end: Ended, waited_ms: u64) {
        if let Some(observer) = &self.observer {
            observer.ended(end, Duration::from_millis(waited_ms));
        }
    }
}

/// How long the store may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

async fn wait<T: Send + 'static>(ask: impl FnOnce(Then<T>)) -> Result<T, StoreFault> {
    let (tell, told) = oneshot::channel();
    ask(Box::new(move |answer| {
        // Whoever asked may be gone; what was written stays.
        let _ = tell.send(answer);
    }));
    answered(told).await
}

async fn answered<T>(told: oneshot::Receiver<Result<T, StoreFault>>) -> Result<T, StoreFault> {
    match tokio::time::timeout(PATIENCE, told).await {
        Ok(Ok(answer)) => answer,
        // What it wrote is not known.
        Ok(Err(_)) | Err(_) => Err(StoreFault::Unclear),
    }
}
