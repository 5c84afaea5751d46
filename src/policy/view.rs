//! What one kind of caller sees, and the decision on each of its calls.
//!
//! Lists know no arguments: there a rule with conditions denies nothing and allows what it might.
//! Where no condition is about an item, a call is decided by the same bits as the list.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    BitSet, Effect, Family, ItemIndex, ItemPolicy, Pending, Permit, Reason, Refusal, Rule, Subject,
    Target, bound::Bound, predicate::Pointer, scope::ScopeRules, uri,
};
use crate::{
    json::{self, Doc, Duplicates},
    model::{
        argument_facts::ArgumentFacts,
        caller::{CallerId, Roles},
        exchange::DecisionKind,
    },
};

/// What one kind of caller sees.
#[derive(Debug)]
pub struct View {
    pub(super) bound: Arc<Bound>,
    pub(super) own: Option<Arc<ScopeRules>>,
    pub(super) who: Who,
    /// The rules that are about this caller, by scope and id.
    deny: Box<[Applied]>,
    ask: Box<[Applied]>,
    allow: Box<[Applied]>,
    visible: Arc<BitSet>,
    /// What would be visible, were its definition an approved one.
    held: Arc<BitSet>,
    /// What some rule with conditions is about.
    conditional: Arc<BitSet>,
    /// What some rule without conditions asks about.
    asked: Arc<BitSet>,
    shadow: Option<Arc<View>>,
}

/// What policy knows of who looks.
#[derive(Debug, Clone)]
pub struct Who {
    /// Where some rule names it; all others are alike.
    pub caller: Option<CallerId>,
    /// With all that come with them; `None`: the key alone, with no employee.
    pub roles: Option<Roles>,
    /// The staged rules that are open to him.
    pub reached: Box<[Arc<Rule>]>,
}

/// Why a rule is not about somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotMeant {
    /// It needs an employee, and there is none; or, without one, a rule that grants must name the
    /// caller.
    Employee,
    Role,
    Caller,
    Rollout,
}

/// A rule that is about the caller, and the items it is about.
#[derive(Debug, Clone)]
struct Applied {
    rule: Arc<Rule>,
    bits: Arc<BitSet>,
}

/// What policy says of an item.
#[derive(Debug, Clone)]
pub struct Decision<'v> {
    pub kind: DecisionKind,
    pub reason: Reason,
    /// The rule that decided: of several the first by scope and id.
    pub rule: Option<&'v Arc<Rule>>,
    /// All rules that ask for approval, where that is the decision.
    pub asks: SmallVec<[&'v Arc<Rule>; 1]>,
}

/// A permitted resource that is in no catalog.
#[derive(Debug)]
pub(super) struct Uncatalogued {
    pub policy: ItemPolicy,
}

/// Arguments were checked when they came in; here they are only looked at.
pub(super) const ARGUMENTS: json::Limits =
    json::Limits { depth: 512, duplicates: Duplicates::Refuse, outline: 2 };

// === impl Who ===

impl Who {
    /// Why a rule is not about this viewer, if it is not.
    pub fn is_not_meant(&self, rule: &Rule) -> Option<NotMeant> {
        let named =
            |caller: &CallerId| rule.callers.iter().flatten().any(|named| named.value == *caller);
        let caller_fits = rule.callers.is_none() || self.caller.as_ref().is_some_and(named);
        match &self.roles {
            // Without an employee a rule for everybody grants nothing.
            None if rule.roles.is_some() => Some(NotMeant::Employee),
            None if rule.effect == Effect::Allow && rule.callers.is_none() => {
                Some(NotMeant::Employee)
            }
            Some(own) if !holds_one(own, rule) => Some(NotMeant::Role),
            _ if !caller_fits => Some(NotMeant::Caller),
            _ if rule.rollout.is_some() && !self.is_reached(rule) => Some(NotMeant::Rollout),
            _ => None,
        }
    }

    fn is_reached(&self, rule: &Rule) -> bool {
        self.reached.iter().any(|reached| std::ptr::eq(&**reached, rule))
    }
}

fn holds_one(own: &Roles, rule: &Rule) -> bool {
    let mut asked = rule.roles.iter().flatten();
    rule.roles.is_none() || asked.any(|role| own.contains(role.value.as_str()))
}

// === impl View ===

impl View {
    pub(super) fn new(
        bound: Arc<Bound>,
        own: Option<Arc<ScopeRules>>,
        who: Who,
        shadow: Option<Arc<View>>,
    ) -> Self {
        let (mut deny, mut ask, mut allow) = (Vec::new(), Vec::new(), Vec::new());
        for rule in rules(&bound, own.as_deref()) {
            if who.is_not_meant(rule).is_none() {
                let applied = Applied { rule: rule.clone(), bits: bound.selected_by(rule) };
                match rule.effect {
                    Effect::Deny => deny.push(applied),
                    Effect::RequireApproval => ask.push(applied),
                    Effect::Allow => allow.push(applied),
                }
            }
        }
        let none = || BitSet::new(bound.names.len());
        let (mut visible, mut surely, mut conditional, mut asked) =
            (none(), none(), none(), none());
        for applied in &allow {
            visible.add_all(&applied.bits);
            (if applied.is_plain() { &mut surely } else { &mut conditional })
                .add_all(&applied.bits);
        }
        // One sure allow is enough: another's conditions change nothing.
        conditional.remove_all(&surely);
        for applied in &ask {
            (if applied.is_plain() { &mut asked } else { &mut conditional }).add_all(&applied.bits);
        }
        for applied in &deny {
            if applied.is_plain() {
                visible.remove_all(&applied.bits);
            } else {
                conditional.add_all(&applied.bits);
            }
        }
        visible.keep_only(&bound.classified);
        let mut held = bound.held.clone();
        held.keep_only(&visible);
        visible.remove_all(&bound.held);
        let (visible, conditional, asked) =
            (bound.share(visible), bound.share(conditional), bound.share(asked));
        let held = bound.share(held);
        let (deny, ask, allow) = (deny.into(), ask.into(), allow.into());
        Self { bound, own, who, deny, ask, allow, visible, held, conditional, asked, shadow }
    }

    /// What may be called, got or read, which is what lists show, of every family. Views that see
    /// the same share it.
    pub fn visible(&self) -> &Arc<BitSet> {
        &self.visible
    }

    /// The same eyes, for lists that leave these out although calls of them are decided as before:
    /// what is refused for another reason than the rules.
    pub fn without(&self, left_out: &BitSet) -> View {
        let mut visible = BitSet::clone(&self.visible);
        visible.remove_all(left_out);
        View {
            bound: self.bound.clone(),
            own: self.own.clone(),
            who: self.who.clone(),
            deny: self.deny.clone(),
            ask: self.ask.clone(),
            allow: self.allow.clone(),
            visible: self.bound.share(visible),
            conditional: self.conditional.clone(),
            asked: self.asked.clone(),
            held: self.held.clone(),
            shadow: self.shadow.clone(),
        }
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

    /// What policy says of an item in a list, where nobody knows arguments: what might be let
    /// through is.
    pub fn decide(&self, item: ItemIndex) -> Decision<'_> {
        let index = item.get();
        if !self.visible.contains(index) {
            return self.hidden(index);
        }
        if self.asked.contains(index) {
            return Decision::ask(about(&self.ask, index).filter(|a| a.is_plain()).collect());
        }
        Decision::allow(self.allowing(index).map(|(_, applied)| &applied.rule))
    }

    /// What policy says of a call with these arguments, a JSON object or none.
    pub fn decide_call(&self, item: ItemIndex, arguments: Option<&Bytes>) -> Decision<'_> {
        self.judge(item, arguments, None).1
    }

    /// What the files say that are only to be looked at, if there are any; their rules look at
    /// arguments too.
    pub fn shadow_decision(
        &self,
        item: ItemIndex,
        arguments: Option<&Bytes>,
        looked: &mut ArgumentFacts,
    ) -> Option<Decision<'_>> {
        self.shadow.as_ref().map(|shadow| shadow.judge(item, arguments, Some(looked)).1)
    }

    /// The same of a resource that is in no catalog.
    pub fn shadow_of_uri(&self, upstream: &str, uri: &str) -> Option<(DecisionKind, Reason)> {
        let shadow = self.shadow.as_ref()?;
        Some(match shadow.permit_uri(upstream, uri) {
            Ok(_) => (DecisionKind::Allow, Reason::RuleAllow),
            Err(refusal) => (refusal.kind, refusal.reason),
        })
    }

    /// Whether a call's arguments can matter.
    pub fn looks_at_arguments(&self, item: ItemIndex) -> bool {
        let index = item.get();
        self.visible.contains(index) && self.conditional.contains(index)
    }

    /// The arguments that some rule looks at in a call of the item.
    pub fn arguments_looked_at(&self, item: ItemIndex) -> impl Iterator<Item = &Pointer> {
        let lists = [&self.deny, &self.ask, &self.allow].into_iter();
        let rules = lists.flat_map(move |list| about(list, item.get()));
        rules.flat_map(|applied| applied.rule.when.iter().map(|predicate| &predicate.pointer))
    }

    /// The rules that are about this viewer and the item, whatever the arguments.
    pub fn applying(&self, item: ItemIndex) -> impl Iterator<Item = &Arc<Rule>> {
        let lists = [&self.deny, &self.ask, &self.allow].into_iter();
        lists.flat_map(move |list| about(list, item.get()).map(|applied| &applied.rule))
    }

    /// Lets a use of this item without arguments through, or says why not.
    pub fn permit(self: &Arc<Self>, item: ItemIndex) -> Result<Permit, Refusal> {
        self.permit_call(item, None)
    }

    /// Lets a call with these arguments through, or says why not.
    pub fn permit_call(
        self: &Arc<Self>,
        item: ItemIndex,
        arguments: Option<&Bytes>,
    ) -> Result<Permit, Refusal> {
        let (by, decision) = self.judge(item, arguments, None);
        self.grant(Target::Item(item), by, &decision)
    }

    /// The same, and keeps what rules looked at. Where no rule is about arguments, nothing is.
    pub fn permit_noting(
        self: &Arc<Self>,
        item: ItemIndex,
        arguments: Option<&Bytes>,
        looked: &mut ArgumentFacts,
    ) -> Result<Permit, Refusal> {
        let (by, decision) = self.judge(item, arguments, Some(looked));
        self.grant(Target::Item(item), by, &decision)
    }

    /// Lets a resource be read that is in no catalog, such as a template's expansion, or says why
    /// not. The same rules decide; a URI that could be spelled more plainly is refused, since a
    /// server may read it as the plain one, which a rule may deny.
    pub fn permit_uri(self: &Arc<Self>, upstream: &str, uri: &str) -> Result<Permit, Refusal> {
        let subject = Subject::resource(upstream, uri);
        let policy = self.bound.policies.item(subject);
        let full = subject.full();
        let is_about = |applied: &&Applied| {
            let rule = &applied.rule;
            rule.risk.is_none_or(|risks| risks.contains(policy.risk))
                && rule.globs.matches(Family::Resources, &full)
                && rule.holds(None)
        };
        let deny = self.deny.iter().find(is_about).map(|applied| &applied.rule);
        let by = self.allow.iter().position(|applied| is_about(&applied));
        let asks: SmallVec<_> = self.ask.iter().filter(is_about).collect();
        let (by, decision) = match (deny, by) {
            (Some(_), _) => (0, Decision::hide(Reason::RuleDeny, deny)),
            _ if !policy.classified => (0, Decision::hide(Reason::Unclassified, None)),
            (None, Some(by)) if uri::is_plain(uri) => match asks.is_empty() {
                true => (by, Decision::allow(self.allowed_by(by))),
                false => (by, Decision::ask(asks)),
            },
            _ => (0, Decision::hide(Reason::DefaultDeny, None)),
        };
        self.grant(Target::Uri(Arc::new(Uncatalogued { policy })), by, &decision)
    }

    /// Lets through what names no item: lists, which show [`View::visible`], and the rest.
    pub fn permit_listing(self: &Arc<Self>) -> Permit {
        Permit { view: self.clone(), target: Target::Listing, by: 0, asks: Box::default() }
    }

    /// The allowing rule of a permit.
    pub(super) fn allowed_by(&self, by: usize) -> Option<&Arc<Rule>> {
        self.allow.get(by).map(|applied| &applied.rule)
    }

    fn grant(
        self: &Arc<Self>,
        target: Target,
        by: usize,
        decision: &Decision<'_>,
    ) -> Result<Permit, Refusal> {
        let asks = decision.asks.iter().map(|rule| Arc::clone(rule)).collect();
        let permit = || Permit { view: self.clone(), target, by, asks };
        let pending = match decision.kind {
            DecisionKind::Allow => return Ok(permit()),
            DecisionKind::RequireApproval => Some(Pending(permit())),
            DecisionKind::Hide | DecisionKind::Deny => None,
        };
        Err(Refusal {
            kind: decision.kind,
            reason: decision.reason,
            rule: decision.rule.cloned(),
            pending,
        })
    }

    /// The decision, and the place of the rule that allows it.
    fn judge(
        &self,
        item: ItemIndex,
        arguments: Option<&Bytes>,
        looked: Option<&mut ArgumentFacts>,
    ) -> (usize, Decision<'_>) {
        let index = item.get();
        if !self.visible.contains(index) {
            return (0, self.hidden(index));
        }
        if self.conditional.contains(index) {
            return self.judge_arguments(item, arguments, looked);
        }
        let by = self.allowing(index).map_or(0, |(by, _)| by);
        if self.asked.contains(index) {
            return (by, Decision::ask(about(&self.ask, index).collect()));
        }
        (by, Decision::allow(self.allowed_by(by)))
    }

    fn judge_arguments(
        &self,
        item: ItemIndex,
        raw: Option<&Bytes>,
        looked: Option<&mut ArgumentFacts>,
    ) -> (usize, Decision<'_>) {
        let index = item.get();
        let parsed = raw.map(|raw| Doc::parse(raw.clone(), &ARGUMENTS)).transpose();
        // What cannot be looked at is not let through.
        let Ok(doc) = parsed else { return (0, Decision::deny(Reason::DefaultDeny, None)) };
        let arguments = doc.as_ref().map(Doc::root);
        if let Some(looked) = looked {
            // All of them, also those that did not come to decide this call.
            for pointer in self.arguments_looked_at(item) {
                let argument = arguments.and_then(|arguments| pointer.find(arguments));
                looked.add(pointer.as_str(), pointer.is_sensitive(), argument);
            }
        }
        let holds = |applied: &&Applied| applied.rule.holds(arguments);
        if let Some(deny) = about(&self.deny, index).find(holds) {
            return (0, Decision::deny(Reason::RuleDeny, Some(&deny.rule)));
        }
        let sure = self.allowing(index).filter(|(_, applied)| applied.is_plain());
        let by = sure.map(|(by, _)| by).or_else(|| {
            self.allow.iter().position(|a| a.bits.contains(index) && a.rule.holds(arguments))
        });
        match by {
            Some(by) => {
                let asks: SmallVec<_> = about(&self.ask, index).filter(holds).collect();
                match asks.is_empty() {
                    true => (by, Decision::allow(self.allowed_by(by))),
                    false => (by, Decision::ask(asks)),
                }
            }
            None => (0, Decision::deny(Reason::DefaultDeny, None)),
        }
    }

    /// The rule that allows an item: one without conditions where there is one.
    fn allowing(&self, index: usize) -> Option<(usize, &Applied)> {
        let about = || self.allow.iter().enumerate().filter(|(_, a)| a.bits.contains(index));
        about().find(|(_, applied)| applied.is_plain()).or_else(|| about().next())
    }

    fn hidden(&self, index: usize) -> Decision<'_> {
        if self.held.contains(index) {
            let why = self.bound.held_for.get(&index);
            return Decision::deny(why.copied().unwrap_or(Reason::PinMismatch), None);
        }
        let rule = about(&self.deny, index).find(|applied| applied.is_plain());
        let reason = match rule {
            Some(_) => Reason::RuleDeny,
            None if index < self.bound.items.len() && !self.bound.classified.contains(index) => {
                Reason::Unclassified
            }
            None => Reason::DefaultDeny,
        };
        Decision::hide(reason, rule.map(|applied| &applied.rule))
    }
}

/// The platform's rules, then the tenant's.
pub(super) fn rules<'a>(
    bound: &'a Bound,
    own: Option<&'a ScopeRules>,
) -> impl Iterator<Item = &'a Arc<Rule>> {
    [Some(&*bound.policies.platform), own].into_iter().flatten().flat_map(|scope| &scope.rules)
}

fn about(list: &[Applied], index: usize) -> impl Iterator<Item = &Applied> {
    list.iter().filter(move |applied| applied.bits.contains(index))
}

impl Applied {
    /// Whether it holds whatever the arguments.
    fn is_plain(&self) -> bool {
        self.rule.when.is_empty()
    }
}

// === impl Decision ===

impl<'v> Decision<'v> {
    fn allow(rule: Option<&'v Arc<Rule>>) -> Self {
        let (kind, reason) = (DecisionKind::Allow, Reason::RuleAllow);
        Self { kind, reason, rule, asks: SmallVec::new() }
    }

    fn hide(reason: Reason, rule: Option<&'v Arc<Rule>>) -> Self {
        Self { kind: DecisionKind::Hide, reason, rule, asks: SmallVec::new() }
    }

    fn deny(reason: Reason, rule: Option<&'v Arc<Rule>>) -> Self {
        Self { kind: DecisionKind::Deny, reason, rule, asks: SmallVec::new() }
    }

    fn ask(asks: SmallVec<[&'v Applied; 1]>) -> Self {
        let asks: SmallVec<[&'v Arc<Rule>; 1]> =
            asks.into_iter().map(|applied| &applied.rule).collect();
        let (kind, reason) = (DecisionKind::RequireApproval, Reason::RuleApproval);
        Self { kind, reason, rule: asks.first().copied(), asks }
    }
}
