//! The views of a set: one for each kind of caller that policy can tell apart.
//!
//! A view is worked out once for each tenant, set of roles and part of the staged rollouts, and
//! then kept; from there a decision is the test of a bit.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::{
    Effect, ItemIndex, ItemPolicy, OnHold, Rule, Subject,
    bound::Bound,
    compile::Compiled,
    scope::ScopeRules,
    view::{View, Who},
};
use crate::{
    json,
    model::{
        caller::{CallerId, EmployeeId, Role, Roles, TenantId},
        server::Risk,
    },
};

/// Views kept for one tenant; with more kinds of callers than this they are worked out anew.
const MAX_VIEWS: usize = 1_024;

/// Rules times items that are matched ahead of need: some tenths of a second.
const MAX_PREPARED: usize = 2_000_000;

/// Policies bound to a catalog.
#[derive(Debug)]
pub struct Set {
    bound: Arc<Bound>,
    /// What files would say that are only to be looked at.
    shadow: Option<Arc<Bound>>,
    /// Views of tenants that have no rules of their own.
    platform: Memo,
    /// Views of those that have, once somebody of theirs has called.
    tenants: HashMap<TenantId, OnceLock<Box<Memo>>, RandomState>,
}

/// The views of one scope.
#[derive(Debug)]
struct Memo {
    /// Callers that some rule of the scope names. All others are one and the same to policy.
    named: HashSet<CallerId, RandomState>,
    /// Rules that are open to some employees only.
    rollouts: Box<[Arc<Rule>]>,
    /// By caller. Read without a lock; a new view replaces the whole.
    views: ArcSwap<HashMap<CallerId, Views, RandomState>>,
}

#[derive(Debug, Clone, Default)]
struct Views {
    /// Of a call without an employee.
    key: Option<Arc<View>>,
    employees: HashMap<Roles, HashMap<Reached, Arc<View>, RandomState>, RandomState>,
}

/// Which of a scope's rollouts an employee is in, as bits.
type Reached = SmallVec<[u64; 1]>;

/// Who looks.
#[derive(Clone, Copy)]
struct Viewer<'a> {
    tenant: &'a TenantId,
    caller: &'a CallerId,
    /// `None`: the key alone, with no employee.
    roles: Option<&'a Roles>,
    employee: Option<&'a EmployeeId>,
}

// === impl Set ===

impl Set {
    pub(super) fn new(
        policies: Arc<Compiled>,
        shadow: Option<Arc<Compiled>>,
        subjects: &[Subject<'_>],
        held: &[OnHold],
        at_least: &[Option<Risk>],
    ) -> Self {
        let bind = |policies| Arc::new(Bound::new(policies, subjects, held, at_least));
        let (bound, shadow) = (bind(policies), shadow.map(bind));
        let all = [Some(&bound), shadow.as_ref()].into_iter().flatten();
        let tenants = all.flat_map(|bound| bound.policies.tenants.keys());
        let tenants = tenants.map(|tenant| (tenant.clone(), OnceLock::new())).collect();
        let platform = Memo::new(&bound, shadow.as_deref(), None);
        Self { bound, shadow, platform, tenants }
    }

    pub(super) fn policies(&self) -> &Compiled {
        &self.bound.policies
    }

    /// Whether claims of tokens give anybody in this tenant a role.
    pub fn maps_claims(&self, tenant: &TenantId) -> bool {
        self.bound.policies.roles_of(tenant).maps_claims()
    }

    /// The roles that the claims of a token, a JSON object, give an employee of a tenant.
    pub fn roles_from_claims(&self, tenant: &TenantId, claims: json::Value<'_>) -> Roles {
        self.bound.policies.roles_of(tenant).given_by(claims)
    }

    /// Whether the rules may let somebody of a tenant use an item, whoever he is and whatever the
    /// arguments. What stops everybody counts, what stops some does not.
    pub fn is_open_to_somebody(&self, tenant: &TenantId, item: ItemIndex) -> bool {
        let index = item.get();
        let (Some(own), Some((family, name))) =
            (self.bound.items.get(index), self.bound.names.get(index))
        else {
            return false;
        };
        let rules = |effect: Effect| {
            let all = self.scopes_of(tenant).flat_map(|scope| scope.rules.iter());
            all.filter(move |rule| rule.effect == effect)
        };
        let about = |rule: &Arc<Rule>| {
            rule.risk.is_none_or(|risks| risks.contains(own.risk))
                && rule.globs.matches(*family, name)
        };
        let for_all = |rule: &&Arc<Rule>| {
            rule.roles.is_none() && rule.callers.is_none() && rule.when.is_empty()
        };
        own.classified
            && rules(Effect::Allow).any(about)
            && !rules(Effect::Deny).filter(for_all).any(about)
    }

    /// Whether the rules may let somebody of a tenant use something of an upstream, whatever it
    /// turns out to have: for one that was never listed.
    pub fn may_open_to_somebody(&self, tenant: &TenantId, upstream: &str) -> bool {
        let mut rules = self.scopes_of(tenant).flat_map(|scope| scope.rules.iter());
        rules.any(|rule| rule.effect == Effect::Allow && rule.globs.may_be_of(upstream))
    }

    pub fn revision(&self) -> &Arc<str> {
        &self.bound.policies.revision
    }

    pub fn item(&self, item: ItemIndex) -> Option<&ItemPolicy> {
        self.bound.items.get(item.get())
    }

    /// `upstream/name` of an item.
    pub fn item_name(&self, item: ItemIndex) -> Option<&str> {
        self.bound.names.get(item.get()).map(|(_, name)| &**name)
    }

    /// Works out now which items each rule is about, so that the first call of a kind does not
    /// hold its core for it. With very many rules that is left to whoever needs them.
    pub fn prepare(&self) {
        let rules = self.bound.policies.rules().count();
        if rules.saturating_mul(self.bound.names.len()) <= MAX_PREPARED {
            for rule in self.bound.policies.rules() {
                self.bound.selected_by(rule);
            }
        }
    }

    /// What somebody with these roles sees through this caller, whoever he is: rules that are
    /// open to some employees only are not open to him.
    pub fn view(&self, tenant: &TenantId, caller: &CallerId, roles: &Roles) -> Arc<View> {
        self.look(Viewer { tenant, caller, roles: Some(roles), employee: None })
    }

    /// What an employee with these roles sees through this caller.
    pub fn view_of_employee(
        &self,
        tenant: &TenantId,
        caller: &CallerId,
        employee: &EmployeeId,
        roles: &Roles,
    ) -> Arc<View> {
        self.look(Viewer { tenant, caller, roles: Some(roles), employee: Some(employee) })
    }

    /// What the caller may call without an employee: only what rules that name it grant.
    pub fn view_of_key(&self, tenant: &TenantId, caller: &CallerId) -> Arc<View> {
        self.look(Viewer { tenant, caller, roles: None, employee: None })
    }

    /// What somebody with these roles sees to whom every staged rule is open.
    pub fn view_if_reached(
        &self,
        tenant: &TenantId,
        caller: &CallerId,
        roles: Option<&Roles>,
    ) -> Arc<View> {
        let own = self.bound.policies.tenants.get(tenant);
        let scopes = [Some(&self.bound.policies.platform), own];
        let rollouts = scopes.into_iter().flatten().flat_map(|scope| scope.rollouts.iter());
        let named = [Some(&self.bound.policies.platform), own].into_iter().flatten();
        let named = named.into_iter().any(|scope| scope.callers.contains(caller));
        let book = self.bound.policies.roles_of(tenant);
        let who = Who {
            caller: named.then(|| caller.clone()),
            roles: roles.map(|roles| book.with_included(roles)),
            reached: rollouts.cloned().collect(),
        };
        Arc::new(View::new(self.bound.clone(), own.cloned(), who, None))
    }

    pub(super) fn compiled(&self) -> &Compiled {
        &self.bound.policies
    }

    /// The platform's rules, and those that a tenant has of its own.
    pub(super) fn scopes_of(&self, tenant: &TenantId) -> impl Iterator<Item = &Arc<ScopeRules>> {
        let own = self.bound.policies.tenants.get(tenant);
        [Some(&self.bound.policies.platform), own].into_iter().flatten()
    }

    /// The roles of which something is said in a tenant's files or the platform's.
    pub fn roles_that_include(&self, tenant: &TenantId) -> Vec<Role> {
        let own = self.bound.policies.tenants.get(tenant);
        let scopes = [Some(&self.bound.policies.platform), own].into_iter().flatten();
        scopes.flat_map(|scope| scope.roles.iter().map(|rule| rule.role.clone())).collect()
    }

    /// The roles that the directory gives an employee of a tenant.
    pub fn roles_in_directory(&self, tenant: &TenantId, id: &EmployeeId) -> Roles {
        let known = self.bound.policies.directory.find(id);
        let known = known.filter(|known| known.tenant == *tenant);
        known.map(|known| known.roles.clone()).unwrap_or_default()
    }

    fn look(&self, viewer: Viewer<'_>) -> Arc<View> {
        let memo = match self.tenants.get(viewer.tenant) {
            Some(memo) => memo.get_or_init(|| {
                Memo::new(&self.bound, self.shadow.as_deref(), Some(viewer.tenant)).into()
            }),
            None => &self.platform,
        };
        let named = memo.named.contains(viewer.caller);
        let slot = if named { viewer.caller.as_str() } else { "" };
        let reached = memo.reached(viewer, &self.bound);
        memo.find(slot, viewer.roles, &reached).unwrap_or_else(|| {
            let shadow = self.shadow.as_ref().map(|shadow| self.make(shadow, viewer, memo, None));
            let view = self.make(&self.bound, viewer, memo, shadow);
            memo.keep(slot, viewer.roles, reached, &view);
            view
        })
    }

    fn make(
        &self,
        bound: &Arc<Bound>,
        viewer: Viewer<'_>,
        memo: &Memo,
        shadow: Option<Arc<View>>,
    ) -> Arc<View> {
        let own = bound.policies.tenants.get(viewer.tenant);
        let book = bound.policies.roles_of(viewer.tenant);
        let rollouts = memo.rollouts.iter().filter(|rule| viewer.is_reached(rule, &self.bound));
        let who = Who {
            caller: memo.named.get(viewer.caller).cloned(),
            roles: viewer.roles.map(|roles| book.with_included(roles)),
            reached: rollouts.cloned().collect(),
        };
        Arc::new(View::new(bound.clone(), own.cloned(), who, shadow))
    }
}

// === impl Memo ===

impl Memo {
    fn new(bound: &Bound, shadow: Option<&Bound>, tenant: Option<&TenantId>) -> Self {
        let of = |bound: &Bound| {
            let own = tenant.and_then(|tenant| bound.policies.tenants.get(tenant).cloned());
            [Some(bound.policies.platform.clone()), own]
        };
        let scopes = [Some(bound), shadow].into_iter().flatten().flat_map(of).flatten();
        let (mut named, mut rollouts) = (HashSet::default(), Vec::new());
        for scope in scopes {
            named.extend(scope.callers.iter().cloned());
            rollouts.extend(scope.rollouts.iter().cloned());
        }
        Self { named, rollouts: rollouts.into(), views: ArcSwap::default() }
    }

    fn reached(&self, viewer: Viewer<'_>, bound: &Bound) -> Reached {
        let mut reached = Reached::new();
        if self.rollouts.is_empty() {
            return reached;
        }
        reached.resize(self.rollouts.len().div_ceil(64), 0);
        for (index, rule) in self.rollouts.iter().enumerate() {
            if let Some(word) = reached.get_mut(index / 64)
                && viewer.is_reached(rule, bound)
            {
                *word |= 1 << (index % 64);
            }
        }
        reached
    }

    fn find(&self, slot: &str, roles: Option<&Roles>, reached: &Reached) -> Option<Arc<View>> {
        let views = self.views.load();
        let views = views.get(slot)?;
        match roles {
            Some(roles) => views.employees.get(roles)?.get(reached).cloned(),
            None => views.key.clone(),
        }
    }

    fn keep(&self, slot: &str, roles: Option<&Roles>, reached: Reached, view: &Arc<View>) {
        self.views.rcu(|all| {
            let mut all = HashMap::clone(all);
            let employees = all.values().flat_map(|views| views.employees.values());
            if employees.map(HashMap::len).sum::<usize>() >= MAX_VIEWS {
                all.clear();
            }
            let views = all.entry(CallerId::new(slot)).or_default();
            match roles {
                Some(roles) => {
                    let kept = views.employees.entry(roles.clone()).or_default();
                    kept.insert(reached.clone(), view.clone());
                }
                None => views.key = Some(view.clone()),
            }
            all
        });
    }
}

// === impl Viewer ===

impl Viewer<'_> {
    /// Whether a staged rule is open to the viewer. Without an employee none is.
    fn is_reached(self, rule: &Rule, bound: &Bound) -> bool {
        let (Some(rollout), Some(employee)) = (&rule.rollout, self.employee) else { return false };
        let known = if rollout.teams.is_empty() {
            None
        } else {
            bound.policies.directory.find(employee).filter(|known| known.tenant == *self.tenant)
        };
        rollout.reaches(&rule.id, employee, known.map_or(&[], |known| &known.teams))
    }
}
