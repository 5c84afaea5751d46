//! Limits as they are written. What they do is the limiter's.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use super::{RiskSet, Scope, narrowing, read_id};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::{
        caller::TenantId,
        server::{Risk, UpstreamName},
    },
    policy::glob::ItemGlob,
    yaml::{MapReader, Node, Rate, Spanned, Words},
};

/// A limit. What is absent does not narrow.
#[derive(Debug)]
pub struct LimitRule {
    pub id: Arc<str>,
    pub at: Span,
    pub scope: Scope,
    /// What is counted apart: at least one.
    pub per: Vec<LimitKey>,
    /// Only in the platform's scope.
    pub tenants: Option<Vec<Spanned<TenantId>>>,
    pub upstreams: Option<Vec<Spanned<UpstreamName>>>,
    pub tools: Option<Vec<ItemGlob>>,
    pub risk: Option<RiskSet>,
    pub kind: LimitKind,
    /// What happens without the shared store.
    pub store_down: Option<StoreDown>,
}

/// What a limit does that cannot ask how much the other replicas have let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreDown {
    /// Counts its own share.
    Local,
    /// Lets through.
    Open,
    /// Refuses.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    Rate { count: NonZeroU32, period: Duration, burst: NonZeroU32 },
    Concurrency { slots: NonZeroU32, queue: u32, wait: Duration },
}

/// By what calls are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitKey {
    Tenant,
    Caller,
    /// The employee, else the caller.
    Principal,
    Tool,
    Upstream,
    Risk,
    Address,
}

pub(in crate::policy) const KEYS: Words<LimitKey> = Words {
    what: "thing to count by",
    code: FaultCode::BadValue,
    known: &[
        ("tenant", LimitKey::Tenant),
        ("caller", LimitKey::Caller),
        ("principal", LimitKey::Principal),
        ("tool", LimitKey::Tool),
        ("upstream", LimitKey::Upstream),
        ("risk", LimitKey::Risk),
        ("address", LimitKey::Address),
    ],
    later: &[],
};

pub(in crate::policy) const STORE_DOWN: Words<StoreDown> = Words {
    what: "answer to a store that is down",
    code: FaultCode::BadValue,
    known: &[("local", StoreDown::Local), ("open", StoreDown::Open), ("closed", StoreDown::Closed)],
    later: &[],
};

/// The longest that a full burst may take to come back.
const MAX_PERIOD: Duration = Duration::from_secs(366 * 86_400);

/// The longest time a call may wait for a slot.
const MAX_WAIT: Duration = Duration::from_secs(60);

impl LimitRule {
    pub(super) fn read(node: &Node, scope: &Scope, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let id = read_id(&mut map, faults);
        let per = read_per(&mut map, faults);
        let tenants = read_tenants(&mut map, scope, faults);
        let upstreams = narrowing(&mut map, "upstreams", faults);
        let tools = narrowing(&mut map, "tools", faults);
        let risk = narrowing(&mut map, "risk", faults);
        let kind = LimitKind::read(&mut map, faults);
        let store_down = map.words("store_down", &STORE_DOWN, faults);
        map.finish(faults);
        let (id, at) = id?;
        Some(Self {
            id,
            at,
            scope: scope.clone(),
            per: per?,
            tenants,
            upstreams,
            tools,
            risk: risk.map(|risks: Vec<Risk>| risks.into_iter().collect()),
            kind: kind?,
            store_down,
        })
    }
}

pub(super) fn read_per(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Vec<LimitKey>> {
    let node = map.required_node("per", faults)?;
    let items = node.items(faults)?;
    if items.is_empty() {
        faults.add(FaultCode::BadValue, &node.at, "`per` is empty: there is nothing to count by");
        return None;
    }
    let mut keys = Vec::with_capacity(items.len());
    for item in items {
        let Some(key) = KEYS.read(item, faults) else { continue };
        if keys.contains(&key) {
            faults.add(FaultCode::GivenTwice, &item.at, format!("{} is here twice", item.quoted()));
        }
        keys.push(key);
    }
    Some(keys)
}

pub(super) fn read_tenants(
    map: &mut MapReader<'_>,
    scope: &Scope,
    faults: &mut Faults,
) -> Option<Vec<Spanned<TenantId>>> {
    let at = map.entry("tenants")?.key_at.clone();
    if scope.tenant().is_some() {
        let message = "`tenants` in a tenant's own file: its limits are about that tenant alone";
        faults.add(FaultCode::Contradiction, &at, message);
    }
    narrowing(map, "tenants", faults)
}

impl LimitKind {
    fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Self> {
        let rate_at = map.entry("rate").map(|entry| entry.key_at.clone());
        let concurrency_at = map.entry("concurrency").map(|entry| entry.key_at.clone());
        match (rate_at, concurrency_at) {
            (Some(_), None) => Self::read_rate(map, faults),
            (None, Some(_)) => Self::read_concurrency(map, faults),
            (Some(_), Some(at)) => {
                let message = "`rate` and `concurrency` are two limits: write two";
                faults.add(FaultCode::Contradiction, &at, message);
                None
            }
            (None, None) => {
                let message = "`rate` or `concurrency` is missing";
                faults.add(FaultCode::MissingKey, map.at, message);
                None
            }
        }
    }

    fn read_rate(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Self> {
        unfit(map, &["queue", "wait"], "rate", faults);
        let rate: Option<Spanned<Rate>> = map.optional("rate", faults);
        let burst: Option<NonZeroU32> = at_least_one(map, "burst", faults);
        let rate = rate?;
        let count = NonZeroU32::new(rate.value.count)?; // a rate of nothing is no rate
        let burst = burst.unwrap_or(count);
        let full = (rate.value.period / count.get()).checked_mul(burst.get());
        if full.is_none_or(|full| full > MAX_PERIOD) || rate.value.period > MAX_PERIOD {
            faults.add(FaultCode::BadValue, &rate.at, "takes more than a year to come back");
            return None;
        }
        Some(Self::Rate { count, period: rate.value.period, burst })
    }

    fn read_concurrency(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Self> {
        unfit(map, &["burst"], "concurrency", faults);
        let slots = at_least_one(map, "concurrency", faults);
        let queue_at = map.entry("queue").map(|entry| entry.key_at.clone());
        let queue: u32 = map.optional("queue", faults).unwrap_or(0);
        let wait: Option<Spanned<Duration>> = map.optional("wait", faults);
        match (&wait, queue_at) {
            (Some(wait), _) if wait.value > MAX_WAIT => {
                faults.add(FaultCode::BadValue, &wait.at, "a call waits for a minute at most");
            }
            (Some(wait), _) if queue == 0 => {
                let message = "`wait` without a `queue`: nobody waits";
                faults.add(FaultCode::Contradiction, &wait.at, message);
            }
            (None, Some(at)) if queue > 0 => {
                let fault = faults.add(FaultCode::MissingKey, &at, "`queue` without a `wait`");
                fault.suggest("say how long a call may wait, such as `wait: 2s`");
            }
            _ => {}
        }
        let wait = wait.map_or(Duration::ZERO, |wait| wait.value);
        Some(Self::Concurrency { slots: slots?, queue, wait })
    }
}

/// Refuses keys that belong to the other kind of limit.
fn unfit(map: &mut MapReader<'_>, keys: &[&'static str], of: &str, faults: &mut Faults) {
    for key in keys {
        if let Some(entry) = map.entry(key) {
            let message = format!("`{key}` says nothing about a `{of}`");
            faults.add(FaultCode::Contradiction, &entry.key_at, message);
        }
    }
}

fn at_least_one(
    map: &mut MapReader<'_>,
    key: &'static str,
    faults: &mut Faults,
) -> Option<NonZeroU32> {
    let number: Spanned<u32> = map.optional(key, faults)?;
    let found = NonZeroU32::new(number.value);
    if found.is_none() {
        faults.add(FaultCode::BadValue, &number.at, format!("`{key}: 0` lets nothing through"));
    }
    found
}
