//! What quotas do to an item, apart from counting: which of them are about it, where they stop
//! it, and what is left of a list when so much is spent. For cases, explanations and comparisons;
//! calls are counted and judged by the engine of limits, by the same budgets.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Bench, BitSet, Family, ItemIndex, ItemPolicy, Named, Policies, QuotaRule, Set, Subject, View,
    compile::Compiled, document::LimitKey,
};
use crate::model::{
    caller::TenantId,
    exchange::DecisionKind,
    quota::{Action, Budget, Judgement, Step},
};

/// Quotas that are taken for spent so far.
pub(super) struct Spent<'a>(Vec<(&'a Arc<QuotaRule>, Budget, u64)>);

/// Where a quota stops an item as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    pub percent: u32,
    /// The most that may be spent with it.
    pub threshold: u64,
    /// What it is counted by.
    counted: (Vec<LimitKey>, &'static str, Box<str>),
}

// === impl Set ===

impl Set {
    /// As [`Policies::priced`].
    pub fn priced(&self, budget: &Budget) -> Budget {
        self.compiled().priced(budget)
    }

    /// The quotas that callers of a tenant can meet, the platform's first.
    pub fn quotas_of<'a>(
        &'a self,
        tenant: &'a TenantId,
    ) -> impl Iterator<Item = &'a Arc<QuotaRule>> {
        self.scopes_of(tenant).flat_map(|scope| &scope.quotas).filter(move |quota| {
            let named = quota.tenants.as_ref();
            named.is_none_or(|named| named.iter().any(|named| named.value == *tenant))
        })
    }
}

// === impl Policies ===

impl Policies {
    /// A budget, with what the cheaper tools cost that calls are sent to.
    pub fn priced(&self, budget: &Budget) -> Budget {
        self.enforced.priced(budget)
    }
}

impl Compiled {
    fn priced(&self, budget: &Budget) -> Budget {
        budget.priced(|to| {
            let (upstream, name) = to.split_once('/').unwrap_or_default();
            self.item(Subject::tool(upstream, name)).cost
        })
    }
}

// === impl QuotaRule ===

impl QuotaRule {
    /// Whether uses of an item count.
    pub fn is_about(&self, item: &Named, policy: &ItemPolicy) -> bool {
        let upstreams = self.upstreams.as_ref();
        let globs = self.tools.as_ref();
        policy.cost > 0
            && self.risk.is_none_or(|risks| risks.contains(policy.risk))
            && upstreams
                .is_none_or(|all| all.iter().any(|one| one.value.as_str() == &*item.upstream))
            && globs.is_none_or(|globs| {
                item.family == Family::Tools && globs.iter().any(|glob| glob.matches(&item.full()))
            })
    }

    fn stop(&self, budget: &Budget, cost: u32) -> Option<Stop> {
        let step = budget.first_stop(cost.into())?;
        let (every, zone) = (budget.every.as_str(), budget.zone.as_str().into());
        Some(Stop {
            percent: step.percent,
            threshold: budget.threshold(step.percent),
            counted: (self.per.clone(), every, zone),
        })
    }
}

impl Stop {
    /// Whether it surely lets no more through than another one.
    pub fn is_as_strict_as(&self, other: &Stop) -> bool {
        self.counted == other.counted && self.threshold <= other.threshold
    }
}

// === impl Bench ===

impl Bench {
    /// Where the quotas of a tenant stop an item, by their ids.
    pub(super) fn stops(&self, tenant: &TenantId, index: usize) -> BTreeMap<Arc<str>, Stop> {
        let (Some(item), Some(policy)) =
            (self.items.get(index), self.set.item(ItemIndex::new(index)))
        else {
            return BTreeMap::new();
        };
        let quotas = self.set.quotas_of(tenant).filter(|quota| quota.is_about(item, policy));
        let stop = |quota: &Arc<QuotaRule>| {
            let budget = self.set.priced(&quota.budget);
            Some((quota.id.clone(), quota.stop(&budget, policy.cost)?))
        };
        quotas.filter_map(stop).collect()
    }

    /// The quotas that a case takes for spent.
    ///
    /// # Errors
    /// The id of one that there is not.
    pub(super) fn spent<'a>(
        &'a self,
        tenant: &'a TenantId,
        given: &[(Box<str>, u32)],
    ) -> Result<Spent<'a>, String> {
        let quota = |(id, percent): &(Box<str>, u32)| {
            let mut all = self.set.quotas_of(tenant);
            let quota = all.find(|quota| *quota.id == **id);
            let quota = quota.ok_or_else(|| format!("there is no quota `{id}` for {tenant}"))?;
            Ok((quota, self.set.priced(&quota.budget), quota.budget.threshold(*percent)))
        };
        given.iter().map(quota).collect::<Result<_, String>>().map(Spent)
    }
}

// === impl Spent ===

impl<'a> Spent<'a> {
    /// What a list shows of a view.
    pub fn shown(&self, bench: &Bench, view: &View) -> BitSet {
        let mut shown = BitSet::clone(view.visible());
        let mut gone = BitSet::new(shown.length());
        for index in shown.iter().filter(|index| self.stops(bench, view, *index).is_some()) {
            gone.insert(index);
        }
        shown.remove_all(&gone);
        shown
    }

    /// The quota that stops calls of an item. What can be told of a tool's stand-in without its
    /// schema is taken for all there is.
    pub fn stops(&self, bench: &Bench, view: &View, index: usize) -> Option<&'a Arc<QuotaRule>> {
        self.judge(bench, index, &mut |to, cost| {
            let named = Named::parse(Family::Tools, to).ok();
            let target = named.and_then(|named| bench.find(&named));
            let cheaper = |target: ItemIndex| {
                view.item(target).is_some_and(|policy| policy.cost < cost)
                    && view.decide(target).kind == DecisionKind::Allow
                    && self.judge(bench, target.get(), &mut |_, _| false).is_none()
            };
            target.is_some_and(cheaper)
        })
    }

    fn judge(
        &self,
        bench: &Bench,
        index: usize,
        runs_as: &mut dyn FnMut(&str, u32) -> bool,
    ) -> Option<&'a Arc<QuotaRule>> {
        let (item, policy) = (bench.items.get(index)?, bench.set.item(ItemIndex::new(index))?);
        let about = self.0.iter().filter(|(quota, ..)| quota.is_about(item, policy));
        let mut stops =
            about.filter(|(_, budget, used)| match budget.judge(*used, policy.cost.into()) {
                Judgement::Passes => false,
                Judgement::Degrades(Step { action: Action::Degrade { to, .. }, .. }) => {
                    !runs_as(to, policy.cost)
                }
                Judgement::Degrades(_) | Judgement::Stops(_) => true,
            });
        stops.next().map(|(quota, ..)| *quota)
    }
}
