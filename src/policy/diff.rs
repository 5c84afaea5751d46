//! What two sets of policies decide differently: for every tenant, kind of caller and item.
//!
//! It is exact, without trying every set of roles. Rules ask for one role out of some, so whether
//! a decision differs for a set of roles shows with one role of it that allows and one that
//! denies or asks: nobody's roles, each role and each pair tell all there is. Conditions on
//! arguments are compared by what follows from what: where it cannot be shown that the new ones let
//! through no more, they are taken to let through more.

mod given;
mod own;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Asker, Bench, Effect, Family, ItemIndex, Named, Policies, Predicate, Rollout, Rule, Scope, View,
};
use crate::model::caller::{CallerId, EmployeeId, Role, Roles, TenantId};

/// A difference, for everybody it is a difference for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    pub kind: DifferenceKind,
    /// `None`: tenants that have no file of their own.
    pub tenant: Option<TenantId>,
    pub who: Seer,
    pub about: About,
    /// `upstream/name`, or a glob for what no file names; of what else it is about, in words.
    pub item: String,
    /// The conditions that it is about, where some calls only are decided differently.
    pub only: Option<String>,
    /// How much of a quota is spent when it is so.
    pub when: Option<String>,
}

/// What somebody gains or loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum About {
    Item(Family),
    /// Where employees may register servers of their own.
    Hosts,
    /// Sharing those.
    Sharing,
    /// How many of them one may have.
    Number,
    /// Whether their tools wait for an approval.
    Approving,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DifferenceKind {
    /// What was not let through is, or may be.
    Widened,
    /// What was asked about first is no longer.
    ApprovalRemoved,
    /// Others are asked, or fewer, or for longer.
    ApprovalChanged,
    ApprovalAdded,
    Narrowed,
}

/// What differs: how, of which item, of which of its arguments, and when a quota is spent so far.
type Point = (DifferenceKind, usize, Option<String>, Option<String>);

/// A kind of caller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seer {
    /// No role and no pair of roles that needs them both: everybody with an employee.
    pub roles: Vec<Role>,
    /// Through this caller only.
    pub caller: Option<CallerId>,
    /// The caller's key alone.
    pub key: bool,
    /// An employee whose entry in the directory has changed.
    pub employee: Option<EmployeeId>,
}

impl DifferenceKind {
    /// Whether somebody may do more than before, or more easily.
    pub fn widens(self) -> bool {
        use DifferenceKind::{ApprovalChanged, ApprovalRemoved, Widened};
        matches!(self, Widened | ApprovalRemoved | ApprovalChanged)
    }
}

/// Compares. `more` are names of the catalog that no file has.
pub fn diff(
    old: &Policies,
    new: &Policies,
    more: impl IntoIterator<Item = Named>,
) -> BTreeSet<Difference> {
    let mut items = old.named();
    items.extend(new.named());
    items.extend(more);
    items.extend(unnamed(old, new));
    let compared =
        Compared { old: Bench::new(old, items.iter().cloned()), new: Bench::new(new, items) };
    let mut tenants: BTreeSet<Option<&TenantId>> =
        old.tenants().chain(new.tenants()).map(Some).collect();
    tenants.insert(None);
    let mut found = BTreeSet::new();
    for tenant in tenants {
        let (roles, callers) = mentioned([old, new], tenant);
        let seers = seers(&roles, &callers);
        compared.tenant(tenant, &seers, &mut found);
        found.extend(own::compare(old, new, tenant, &seers));
    }
    compared.directory(old, new, &mut found);
    found
}

/// Stands for every server that employees have registered.
const ANY_OWN: &str = "mcp_*";

/// What stands for the items that no file names: the globs of rules over upstreams with a
/// `default`, and the default itself. A glob matches its own text.
fn unnamed(old: &Policies, new: &Policies) -> BTreeSet<Named> {
    let mut found = BTreeSet::new();
    let mut upstreams = BTreeSet::new();
    for policies in [old, new] {
        let all = policies.enforced.upstreams.iter();
        let open = all.filter(|(_, classes)| classes.default.is_some());
        upstreams.extend(open.map(|(upstream, _)| upstream.clone()));
    }
    let any: Arc<str> = "*".into();
    for upstream in &upstreams {
        let all = Family::ALL.map(|family| Named {
            family,
            upstream: upstream.clone(),
            name: any.clone(),
        });
        found.extend(all);
    }
    let own = [old, new].into_iter().any(Policies::classifies_own);
    if own {
        found.extend(Family::ALL.map(|family| Named {
            family,
            upstream: ANY_OWN.into(),
            name: any.clone(),
        }));
    }
    for rule in old.rules().chain(new.rules()) {
        for (family, glob) in rule.globs.iter() {
            let Some((upstream, name)) = glob.as_str().split_once('/') else { continue };
            if own && glob.may_be_of_key() {
                let upstream = if upstream.starts_with("mcp_") { upstream } else { ANY_OWN };
                found.insert(Named { family, upstream: upstream.into(), name: name.into() });
            }
            for upstream in upstreams.iter().filter(|upstream| glob.matches_upstream(upstream)) {
                found.insert(Named { family, upstream: upstream.clone(), name: name.into() });
            }
        }
    }
    found
}

/// The roles and callers that some rule of a tenant, or of the platform, speaks of.
fn mentioned(
    both: [&Policies; 2],
    tenant: Option<&TenantId>,
) -> (BTreeSet<Role>, BTreeSet<CallerId>) {
    let (mut roles, mut callers) = (BTreeSet::new(), BTreeSet::new());
    for policies in both {
        let about = |scope: &Scope| scope.tenant().is_none() || scope.tenant() == tenant;
        for rule in policies.rules().filter(|rule| about(&rule.scope)) {
            roles.extend(rule.roles.iter().flatten().map(|role| role.value.clone()));
            callers.extend(rule.callers.iter().flatten().map(|caller| caller.value.clone()));
        }
        let own = tenant.and_then(|tenant| policies.enforced.tenants.get(tenant));
        let scopes = [Some(&policies.enforced.platform), own].into_iter().flatten();
        roles.extend(scopes.flat_map(|scope| scope.roles.iter().map(|rule| rule.role.clone())));
        roles.extend(own::roles(policies, tenant));
    }
    (roles, callers)
}

/// Kinds of callers, from the smallest to the largest: a difference that a smaller one has told is
/// not told again.
fn seers(roles: &BTreeSet<Role>, callers: &BTreeSet<CallerId>) -> Vec<Seer> {
    let seer = |roles: Vec<Role>, caller: Option<&CallerId>, key| Seer {
        roles,
        caller: caller.cloned(),
        key,
        employee: None,
    };
    let callers: Vec<Option<&CallerId>> =
        [None].into_iter().chain(callers.iter().map(Some)).collect();
    let mut seers = Vec::new();
    for caller in callers.iter().filter(|caller| caller.is_some()) {
        seers.push(seer(Vec::new(), *caller, true));
    }
    for caller in &callers {
        seers.push(seer(Vec::new(), *caller, false));
    }
    for caller in &callers {
        seers.extend(roles.iter().map(|role| seer(vec![role.clone()], *caller, false)));
    }
    for caller in &callers {
        for (index, first) in roles.iter().enumerate() {
            let others = roles.iter().skip(index + 1);
            seers.extend(
                others.map(|other| seer(vec![first.clone(), other.clone()], *caller, false)),
            );
        }
    }
    seers
}

struct Compared {
    old: Bench,
    new: Bench,
}

/// What a viewer meets at one item.
struct Meeting {
    visible: bool,
    allows: Vec<Terms>,
    denies: Vec<Terms>,
    asks: Vec<(Terms, Arc<Rule>)>,
}

/// What must hold for a rule to have a say: all of it.
#[derive(Debug, Clone)]
struct Terms {
    rule: Arc<Rule>,
}

impl Compared {
    fn tenant(&self, tenant: Option<&TenantId>, seers: &[Seer], found: &mut BTreeSet<Difference>) {
        let mut told: BTreeMap<Point, Vec<Seer>> = BTreeMap::new();
        for seer in seers {
            let (old, new) = (self.old.look(tenant, seer), self.new.look(tenant, seer));
            for index in 0..self.old.items.len() {
                let compared = compare(&old.meet(index), &new.meet(index));
                let compared = compared.into_iter().map(|(kind, only)| (kind, only, None, None));
                let sent = sent(&old, &new, index).into_iter();
                let sent = sent.map(|(kind, only)| (kind, only.clone(), only, None));
                let both = old.visible().contains(index) && new.visible().contains(index);
                let spent = both.then(|| self.when_spent(tenant, index)).into_iter().flatten();
                let spent = spent.map(|(kind, when)| (kind, None, None, Some(when)));
                for (kind, only, part, when) in compared.chain(sent).chain(spent) {
                    let known = told.entry((kind, index, part, when.clone())).or_default();
                    if !known.iter().any(|known| seer.includes(known)) {
                        known.push(seer.clone());
                        let mut difference = self.difference(kind, tenant, seer, index, only);
                        difference.iter_mut().for_each(|d| d.when.clone_from(&when));
                        found.extend(difference);
                    }
                }
            }
        }
    }

    /// Employees whose entry has changed: what they may do changes with it, whatever the rules.
    fn directory(&self, old: &Policies, new: &Policies, found: &mut BTreeSet<Difference>) {
        let (old_people, new_people) = (&old.directory().employees, &new.directory().employees);
        let ids: BTreeSet<&EmployeeId> = old_people.keys().chain(new_people.keys()).collect();
        for id in ids {
            let (before, after) = (old_people.get(id), new_people.get(id));
            let same = before.zip(after).is_some_and(|(before, after)| {
                before.tenant == after.tenant
                    && before.roles == after.roles
                    && before.teams == after.teams
            });
            if same {
                continue;
            }
            let tenants: BTreeSet<_> =
                [before, after].into_iter().flatten().map(|employee| &employee.tenant).collect();
            for tenant in tenants {
                let asker = Asker {
                    tenant: tenant.clone(),
                    caller: None,
                    employee: Some(id.clone()),
                    roles: None,
                };
                let seer = Seer {
                    roles: Vec::new(),
                    caller: None,
                    key: false,
                    employee: Some(id.clone()),
                };
                let (old, new) = (self.old.view(&asker), self.new.view(&asker));
                for index in 0..self.old.items.len() {
                    for (kind, only) in compare(&old.meet(index), &new.meet(index)) {
                        found.extend(self.difference(kind, Some(tenant), &seer, index, only));
                    }
                }
            }
        }
    }

    fn difference(
        &self,
        kind: DifferenceKind,
        tenant: Option<&TenantId>,
        who: &Seer,
        index: usize,
        only: Option<String>,
    ) -> Option<Difference> {
        let item = self.old.items.get(index)?;
        Some(Difference {
            kind,
            tenant: tenant.cloned(),
            who: who.clone(),
            about: About::Item(item.family),
            item: item.full(),
            only,
            when: None,
        })
    }

    /// What is stopped earlier or later than before, while quotas are being spent.
    fn when_spent(&self, tenant: Option<&TenantId>, index: usize) -> Vec<(DifferenceKind, String)> {
        // No tenant's name is empty.
        let any = TenantId::new("");
        let tenant = tenant.unwrap_or(&any);
        let (old, new) = (self.old.stops(tenant, index), self.new.stops(tenant, index));
        let ids: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        let mut found = Vec::new();
        for id in ids {
            let (kind, percent) = match (old.get(id), new.get(id)) {
                (Some(old), Some(new)) if old.is_as_strict_as(new) && new.is_as_strict_as(old) => {
                    continue;
                }
                (Some(old), Some(new)) if new.is_as_strict_as(old) => {
                    (DifferenceKind::Narrowed, new.percent.min(old.percent))
                }
                (_, None) | (Some(_), Some(_)) => {
                    (DifferenceKind::Widened, old.get(id).map_or(0, |old| old.percent))
                }
                (None, Some(new)) => (DifferenceKind::Narrowed, new.percent),
            };
            found.push((kind, format!("{id} >= {percent}%")));
        }
        found
    }
}

impl Bench {
    fn look(&self, tenant: Option<&TenantId>, seer: &Seer) -> Arc<View> {
        // No tenant's and no caller's name is empty.
        let (any, nobody) = (TenantId::new(""), CallerId::new(""));
        let caller = seer.caller.as_ref().unwrap_or(&nobody);
        let roles = Roles::new(seer.roles.iter().cloned());
        let tenant = tenant.unwrap_or(&any);
        self.with_set(tenant, |set| {
            set.view_if_reached(tenant, caller, (!seer.key).then_some(&roles))
        })
    }
}

impl View {
    fn meet(&self, index: usize) -> Meeting {
        let item = ItemIndex::new(index);
        let mut meeting = Meeting {
            visible: self.visible().contains(index),
            allows: Vec::new(),
            denies: Vec::new(),
            asks: Vec::new(),
        };
        if meeting.visible {
            for rule in self.applying(item) {
                let terms = Terms::of(rule);
                match rule.effect {
                    Effect::Allow => meeting.allows.push(terms),
                    Effect::Deny => meeting.denies.push(terms),
                    Effect::RequireApproval => meeting.asks.push((terms, rule.clone())),
                }
            }
        }
        meeting
    }
}

/// What of a tool's arguments is whose, where both views let it be called.
fn sent(old: &View, new: &View, index: usize) -> Vec<(DifferenceKind, Option<String>)> {
    let item = ItemIndex::new(index);
    let both = old.visible().contains(index) && new.visible().contains(index);
    match (old.item(item), new.item(item)) {
        (Some(old), Some(new)) if both => given::compare(old, new),
        _ => Vec::new(),
    }
}

/// In which ways the second differs, and for which calls.
fn compare(old: &Meeting, new: &Meeting) -> Vec<(DifferenceKind, Option<String>)> {
    let mut found = Vec::new();
    match (old.visible, new.visible) {
        (false, false) => return found,
        (false, true) => return vec![(DifferenceKind::Widened, new.conditions())],
        (true, false) => return vec![(DifferenceKind::Narrowed, old.conditions())],
        (true, true) => {}
    }
    if let Some(only) = beyond(new, old) {
        found.push((DifferenceKind::Widened, only));
    }
    if let Some(only) = beyond(old, new) {
        found.push((DifferenceKind::Narrowed, only));
    }
    let removed = unasked(old, new);
    let added = unasked(new, old);
    let (kind, only) = match (removed, added) {
        (None, None) => return found,
        (Some(_), Some(only)) => (DifferenceKind::ApprovalChanged, only),
        (Some(only), None) => (DifferenceKind::ApprovalRemoved, only),
        (None, Some(only)) => (DifferenceKind::ApprovalAdded, only),
    };
    found.push((kind, only));
    found
}

/// Calls that `wide` may let through and `narrow` does not: `None` if there are surely none.
fn beyond(wide: &Meeting, narrow: &Meeting) -> Option<Option<String>> {
    let allow =
        wide.allows.iter().find(|own| !narrow.allows.iter().any(|other| other.holds_with(own)));
    let deny =
        narrow.denies.iter().find(|other| !wide.denies.iter().any(|own| own.holds_with(other)));
    allow.or(deny).map(Terms::text)
}

/// Calls that `asking` asks about and `other` does not ask about alike.
fn unasked(asking: &Meeting, other: &Meeting) -> Option<Option<String>> {
    let asks = asking.asks.iter().find(|(terms, rule)| {
        !other
            .asks
            .iter()
            .any(|(own, with)| own.holds_with(terms) && with.approval == rule.approval)
    });
    asks.map(|(terms, _)| terms.text())
}

impl Meeting {
    /// The conditions, where there is no allow without any.
    fn conditions(&self) -> Option<String> {
        let all: Option<Vec<String>> = self.allows.iter().map(Terms::text).collect();
        all.map(|all| all.join(" or ")).filter(|all| !all.is_empty())
    }
}

// === impl Terms ===

impl Terms {
    fn of(rule: &Arc<Rule>) -> Self {
        Self { rule: rule.clone() }
    }

    /// Whether this surely holds whenever the other does.
    fn holds_with(&self, other: &Terms) -> bool {
        let open = match (&self.rule.rollout, &other.rule.rollout) {
            (None, _) => true,
            (Some(_), None) => false,
            // Whom a percentage reaches depends on the rule's id.
            (Some(own), Some(of)) => reaches_all(own, of, self.rule.id == other.rule.id),
        };
        let met = |own: &Predicate| other.rule.when.iter().any(|with| with.implies(own));
        open && self.rule.when.iter().all(met)
    }

    fn text(&self) -> Option<String> {
        let mut words: Vec<String> = self.rule.when.iter().map(ToString::to_string).collect();
        if self.rule.rollout.is_some() {
            words.push(format!("`{}` is open to them", self.rule.id));
        }
        (!words.is_empty()).then(|| words.join(" and "))
    }
}

fn reaches_all(wide: &Rollout, narrow: &Rollout, same_rule: bool) -> bool {
    let percent =
        narrow.percent == 0 || wide.percent >= 100 || (same_rule && wide.percent >= narrow.percent);
    percent
        && narrow.employees.iter().all(|id| wide.percent >= 100 || wide.employees.contains(id))
        && narrow.teams.iter().all(|team| wide.percent >= 100 || wide.teams.contains(team))
}

// === impl Seer ===

impl Seer {
    /// Whether it has all that the other has, so that a rule about that one is about this one.
    fn includes(&self, other: &Seer) -> bool {
        let caller = other.caller.is_none() || other.caller == self.caller;
        let key = !other.key || self.key || other.caller == self.caller;
        caller && key && other.roles.iter().all(|role| self.roles.contains(role))
    }
}
