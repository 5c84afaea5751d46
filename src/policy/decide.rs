//! The decision: policies bound to a catalog, and what one kind of caller sees of it.
//!
//! A view is worked out once for each tenant and set of roles and then kept; from there a
//! decision is the test of a bit. Which tools a rule is about is worked out when the first view
//! needs to know, so that the rules of ten thousand tenants cost nothing when the catalog
//! changes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::{
    BitSet, Family, ItemIndex, ItemPolicy, Permit, Reason, Refusal, Subject, Target,
    compile::{Compiled, ScopeRules},
    document::{Effect, Rule},
    uri,
};
use crate::model::{
    caller::{CallerId, Roles, TenantId},
    exchange::DecisionKind,
    server::Risk,
};

/// Views kept for one tenant; with more kinds of callers than this they are worked out anew.
const MAX_VIEWS: usize = 1_024;

/// Rules times tools that are matched ahead of need: some tenths of a second.
const MAX_PREPARED: usize = 2_000_000;

/// Policies bound to a catalog.
#[derive(Debug)]
pub struct Set {
    bound: Arc<Bound>,
    /// Views of tenants that have no rules of their own.
    platform: Memo,
    /// Views of those that have.
    tenants: HashMap<TenantId, Memo>,
}

/// What every view of a set shares.
#[derive(Debug)]
struct Bound {
    policies: Arc<Compiled>,
    items: Vec<ItemPolicy>,
    /// Family and `upstream/name` of each item.
    names: Vec<(Family, Box<str>)>,
    classified: BitSet,
    /// By selector, once somebody has asked.
    selected: Vec<OnceLock<BitSet>>,
    /// Views that see the same tools share one set of bits.
    visible: Mutex<HashSet<Arc<BitSet>>>,
}

/// What one kind of caller sees.
#[derive(Debug)]
pub struct View {
    bound: Arc<Bound>,
    /// The rules that are about this caller.
    allow: Vec<usize>,
    deny: Vec<usize>,
    visible: Arc<BitSet>,
}

/// What policy says of an item.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'v> {
    pub kind: DecisionKind,
    pub reason: Reason,
    /// The rule that decided: of several the first by scope and id.
    pub rule: Option<&'v Arc<Rule>>,
}

/// A permitted resource that is in no catalog.
#[derive(Debug)]
pub(super) struct Uncatalogued {
    pub policy: ItemPolicy,
    /// The rule that allows it.
    rule: usize,
}

/// The views of one scope.
#[derive(Debug)]
struct Memo {
    /// Callers that some rule of the scope names. All others are one and the same to policy.
    named: HashSet<CallerId>,
    /// By caller and roles. Read without a lock; a new view replaces the whole.
    views: ArcSwap<HashMap<CallerId, Views>>,
}

#[derive(Debug, Clone, Default)]
struct Views {
    /// Of a call without an employee.
    key: Option<Arc<View>>,
    employees: HashMap<Roles, Arc<View>>,
}

/// Who looks.
#[derive(Clone, Copy)]
struct Viewer<'a> {
    caller: &'a CallerId,
    /// `None`: the key alone, with no employee.
    roles: Option<&'a Roles>,
}

// === impl Set ===

impl Set {
    pub(super) fn new(policies: Arc<Compiled>, subjects: &[Subject<'_>]) -> Self {
        let items: Vec<_> = subjects.iter().map(|subject| policies.item(*subject)).collect();
        let mut classified = BitSet::new(items.len());
        for (index, _) in items.iter().enumerate().filter(|(_, item)| item.classified) {
            classified.insert(index);
        }
        let names = subjects.iter().map(|subject| (subject.family, subject.full().into()));
        let names = names.collect();
        let platform = Memo::new(&policies.platform.callers, None);
        let tenants = policies.tenants.iter().map(|(tenant, own)| {
            (tenant.clone(), Memo::new(&policies.platform.callers, Some(&own.callers)))
        });
        let tenants = tenants.collect();
        let selected = policies.selectors.iter().map(|_| OnceLock::new()).collect();
        let visible = Mutex::default();
        let bound = Arc::new(Bound { policies, items, names, classified, selected, visible });
        Self { bound, platform, tenants }
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
        let rules = self.bound.policies.rules.len();
        if rules.saturating_mul(self.bound.names.len()) <= MAX_PREPARED {
            for rule in 0..rules {
                let _ = self.bound.selected_by(rule);
            }
        }
    }

    /// What an employee with these roles sees through this caller.
    pub fn view(&self, tenant: &TenantId, caller: &CallerId, roles: &Roles) -> Arc<View> {
        self.look(tenant, Viewer { caller, roles: Some(roles) })
    }

    /// What the caller may call without an employee: only what rules that name it grant.
    pub fn view_of_key(&self, tenant: &TenantId, caller: &CallerId) -> Arc<View> {
        self.look(tenant, Viewer { caller, roles: None })
    }

    fn look(&self, tenant: &TenantId, viewer: Viewer<'_>) -> Arc<View> {
        let memo = self.tenants.get(tenant).unwrap_or(&self.platform);
        let slot = if memo.named.contains(viewer.caller) { viewer.caller.as_str() } else { "" };
        memo.find(slot, viewer.roles).unwrap_or_else(|| {
            let own = self.bound.policies.tenants.get(tenant);
            let view = Arc::new(View::new(self.bound.clone(), own, viewer));
            memo.keep(slot, viewer.roles, &view);
            view
        })
    }
}

// === impl Memo ===

impl Memo {
    fn new(platform: &HashSet<CallerId>, own: Option<&HashSet<CallerId>>) -> Self {
        let named = platform.iter().chain(own.into_iter().flatten()).cloned().collect();
        Self { named, views: ArcSwap::default() }
    }

    fn find(&self, slot: &str, roles: Option<&Roles>) -> Option<Arc<View>> {
        let views = self.views.load();
        let views = views.get(slot)?;
        match roles {
            Some(roles) => views.employees.get(roles).cloned(),
            None => views.key.clone(),
        }
    }

    fn keep(&self, slot: &str, roles: Option<&Roles>, view: &Arc<View>) {
        self.views.rcu(|all| {
            let mut all = HashMap::clone(all);
            if all.values().map(|views| views.employees.len()).sum::<usize>() >= MAX_VIEWS {
                all.clear();
            }
            let views = all.entry(CallerId::new(slot)).or_default();
            match roles {
                Some(roles) => {
                    views.employees.insert(roles.clone(), view.clone());
                }
                None => views.key = Some(view.clone()),
            }
            all
        });
    }
}

// === impl Bound ===

impl Bound {
    /// The items that a rule is about.
    fn selected_by(&self, rule: usize) -> Option<&BitSet> {
        let number = *self.policies.selector_of.get(rule)?;
        let selector = self.policies.selectors.get(number)?;
        Some(self.selected.get(number)?.get_or_init(|| {
            if selector.globs.is_empty() && selector.risk.is_none() {
                return BitSet::full(self.names.len());
            }
            let mut bits = BitSet::new(self.names.len());
            for (index, ((family, name), item)) in self.names.iter().zip(&self.items).enumerate() {
                if selector.matches(*family, name, item.risk) {
                    bits.insert(index);
                }
            }
            bits
        }))
    }

    /// Whether a rule is about an item, in the catalog or not.
    fn is_about(&self, rule: usize, family: Family, full: &str, risk: Risk) -> bool {
        let selector = self.policies.selector_of.get(rule);
        let selector = selector.and_then(|number| self.policies.selectors.get(*number));
        selector.is_some_and(|selector| selector.matches(family, full, risk))
    }

    fn share(&self, bits: BitSet) -> Arc<BitSet> {
        let mut shared = self.visible.lock();
        if let Some(known) = shared.get(&bits) {
            return known.clone();
        }
        // Views that were forgotten leave their bits behind.
        if shared.len() >= MAX_VIEWS {
            shared.retain(|bits| Arc::strong_count(bits) > 1);
        }
        let bits = Arc::new(bits);
        shared.insert(bits.clone());
        bits
    }
}

// === impl Viewer ===

impl Viewer<'_> {
    /// Whether a rule of the viewer's scope is about the viewer.
    fn is_meant_by(self, rule: &Rule) -> bool {
        let caller = rule
            .callers
            .as_ref()
            .map(|callers| callers.iter().any(|caller| caller.value == *self.caller));
        match (self.roles, rule.effect) {
            // Without an employee a rule for everybody grants nothing.
            (None, Effect::Allow) => caller == Some(true) && rule.roles.is_none(),
            (None, Effect::Deny) => caller != Some(false) && rule.roles.is_none(),
            (Some(own), _) => {
                caller != Some(false)
                    && rule.roles.as_ref().is_none_or(|roles| {
                        roles.iter().any(|role| own.contains(role.value.as_str()))
                    })
            }
        }
    }
}

// === impl View ===

impl View {
    fn new(bound: Arc<Bound>, own: Option<&ScopeRules>, viewer: Viewer<'_>) -> Self {
        let (mut allow, mut deny) = (Vec::new(), Vec::new());
        let scopes = [Some(&bound.policies.platform), own];
        for index in scopes.into_iter().flatten().flat_map(|scope| &scope.rules) {
            match bound.policies.rules.get(*index) {
                Some(rule) if viewer.is_meant_by(rule) => match rule.effect {
                    Effect::Allow => allow.push(*index),
                    Effect::Deny => deny.push(*index),
                },
                _ => {}
            }
        }
        let mut visible = BitSet::new(bound.names.len());
        for bits in allow.iter().filter_map(|rule| bound.selected_by(*rule)) {
            visible.add_all(bits);
        }
        for bits in deny.iter().filter_map(|rule| bound.selected_by(*rule)) {
            visible.remove_all(bits);
        }
        visible.keep_only(&bound.classified);
        let visible = bound.share(visible);
        Self { bound, allow, deny, visible }
    }

    /// What policy says of an item.
    pub fn decide(&self, item: ItemIndex) -> Decision<'_> {
        let index = item.get();
        if self.visible.contains(index) {
            let rule = self.first_about(&self.allow, index);
            return Decision { kind: DecisionKind::Allow, reason: Reason::RuleAllow, rule };
        }
        let rule = self.first_about(&self.deny, index);
        let reason = match rule {
            Some(_) => Reason::RuleDeny,
            None if index < self.bound.items.len() && !self.bound.classified.contains(index) => {
                Reason::Unclassified
            }
            None => Reason::DefaultDeny,
        };
        Decision { kind: DecisionKind::Hide, reason, rule }
    }

    fn first_about(&self, rules: &[usize], tool: usize) -> Option<&Arc<Rule>> {
        rules
            .iter()
            .find(|rule| self.bound.selected_by(**rule).is_some_and(|bits| bits.contains(tool)))
            .and_then(|rule| self.bound.policies.rules.get(*rule))
    }

    /// What may be called, got or read, which is what lists show, of every family. Views that see
    /// the same share it.
    pub fn visible(&self) -> &Arc<BitSet> {
        &self.visible
    }

    pub fn revision(&self) -> &Arc<str> {
        &self.bound.policies.revision
    }

    pub fn item(&self, item: ItemIndex) -> Option<&ItemPolicy> {
        self.bound.items.get(item.get())
    }

    /// Lets a use of this item through, or says why not.
    pub fn permit(self: &Arc<Self>, item: ItemIndex) -> Result<Permit, Refusal> {
        if self.visible.contains(item.get()) {
            return Ok(Permit { view: self.clone(), target: Target::Item(item) });
        }
        let Decision { kind, reason, rule } = self.decide(item);
        Err(Refusal { kind, reason, rule: rule.map(|rule| rule.id.clone()) })
    }

    /// Lets a resource be read that is in no catalog, such as a template's expansion, or says why
    /// not. The same rules decide; a URI that could be spelled more plainly is refused, since a
    /// server may read it as the plain one, which a rule may deny.
    pub fn permit_uri(self: &Arc<Self>, upstream: &str, uri: &str) -> Result<Permit, Refusal> {
        let subject = Subject::resource(upstream, uri);
        let policy = self.bound.policies.item(subject);
        let full = subject.full();
        let refuse = |reason, rule: Option<usize>| {
            let rule = rule.and_then(|rule| self.bound.policies.rules.get(rule));
            let rule = rule.map(|rule| rule.id.clone());
            Err(Refusal { kind: DecisionKind::Hide, reason, rule })
        };
        let first_about = |rules: &[usize]| {
            let mut rules = rules.iter().copied();
            rules.find(|rule| self.bound.is_about(*rule, Family::Resources, &full, policy.risk))
        };
        match (first_about(&self.deny), first_about(&self.allow)) {
            (deny @ Some(_), _) => refuse(Reason::RuleDeny, deny),
            _ if !policy.classified => refuse(Reason::Unclassified, None),
            (None, Some(rule)) if uri::is_plain(uri) => {
                let target = Target::Uri(Arc::new(Uncatalogued { policy, rule }));
                Ok(Permit { view: self.clone(), target })
            }
            _ => refuse(Reason::DefaultDeny, None),
        }
    }

    /// Lets through what names no item: lists, which show [`View::visible`], and the rest.
    pub fn permit_listing(self: &Arc<Self>) -> Permit {
        Permit { view: self.clone(), target: Target::Listing }
    }

    /// The decision on something that is in no catalog, once it is permitted.
    pub(super) fn decided(&self, of: &Uncatalogued) -> Decision<'_> {
        let rule = self.bound.policies.rules.get(of.rule);
        Decision { kind: DecisionKind::Allow, reason: Reason::RuleAllow, rule }
    }
}
