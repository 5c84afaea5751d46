//! The smallest change that would turn a decision: found by trying, so it is never a guess.
//!
//! Tried are changes of who asks first, then of what is asked, then of the files. Of several
//! roles that would do, the one that opens least besides is told.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;

use super::{Asker, Bench, Effect, ItemIndex, Rule, Verdict, View};
use crate::model::{
    caller::{CallerId, Role, Roles},
    exchange::DecisionKind,
};

/// What would turn a decision.
#[derive(Debug, Clone)]
pub struct Flip {
    pub change: Change,
    /// Who is asked for approval then.
    pub asks: Vec<Arc<Rule>>,
}

/// One change.
#[derive(Debug, Clone)]
pub enum Change {
    /// A role more.
    Role(Role),
    /// A role less.
    WithoutRole(Role),
    /// Another caller.
    Caller(CallerId),
    /// Without a caller that rules name.
    OtherCaller,
    /// An employee, where there is none.
    Employee,
    /// To be among those to whom the rule is open already.
    Rollout(Arc<Rule>),
    /// Arguments that satisfy the rule's conditions.
    Satisfy(Arc<Rule>),
    /// Arguments that do not satisfy the rule's conditions.
    Avoid(Arc<Rule>),
    /// A risk for what nobody has classified.
    Classify,
    /// To take a rule away, or to narrow it.
    WithoutRule(Arc<Rule>),
    /// To take several rules away; none alone is enough.
    WithoutRules(Vec<Arc<Rule>>),
    /// A rule that is not there yet.
    NewRule,
}

/// What a try came to.
struct Tried {
    kind: DecisionKind,
    asks: Vec<Arc<Rule>>,
    /// How much can be seen then.
    visible: usize,
}

impl Bench {
    /// What would let a call through that is not, or the other way round. Without arguments, the
    /// list is meant.
    pub fn smallest_change(
        &self,
        asker: &Asker,
        item: ItemIndex,
        arguments: Option<&Bytes>,
    ) -> Flip {
        let search = Search { bench: self, asker, item, arguments };
        let view = self.view(asker);
        let now = search.look(&view);
        if is_open(now.kind) { search.close(&view) } else { search.open(&view) }
    }
}

fn is_open(kind: DecisionKind) -> bool {
    matches!(kind, DecisionKind::Allow | DecisionKind::RequireApproval)
}

struct Search<'b> {
    bench: &'b Bench,
    asker: &'b Asker,
    item: ItemIndex,
    arguments: Option<&'b Bytes>,
}

impl Search<'_> {
    fn look(&self, view: &View) -> Tried {
        let decision = match self.arguments {
            Some(_) => view.decide_call(self.item, self.arguments),
            None => view.decide(self.item),
        };
        Tried {
            kind: decision.kind,
            asks: decision.asks.iter().map(|rule| Arc::clone(rule)).collect(),
            visible: view.visible().iter().count(),
        }
    }

    fn ask(&self, asker: &Asker) -> Tried {
        self.look(&self.bench.view(asker))
    }

    fn with_roles(&self, roles: impl IntoIterator<Item = Role>) -> Asker {
        Asker { roles: Some(Roles::new(roles)), ..self.asker.clone() }
    }

    /// What opens what is closed.
    fn open(&self, view: &View) -> Flip {
        if view.item(self.item).is_some_and(|policy| !policy.classified) {
            return Flip { change: Change::Classify, asks: Vec::new() };
        }
        self.open_by_who(view).or_else(|| self.open_by_arguments(view)).unwrap_or_else(|| {
            let denying = self.applying(view, Effect::Deny);
            let change = match denying.as_slice() {
                [] => Change::NewRule,
                [rule] => Change::WithoutRule(rule.clone()),
                _ => Change::WithoutRules(denying),
            };
            Flip { change, asks: Vec::new() }
        })
    }

    fn open_by_who(&self, view: &View) -> Option<Flip> {
        let own = self.bench.roles(self.asker).unwrap_or_default();
        let (roles, callers) = self.mentioned(view);
        let more = roles.iter().filter(|role| !own.contains(role.as_str())).map(|role| {
            let asker = self.with_roles(own.iter().cloned().chain([role.clone()]));
            (Change::Role(role.clone()), self.ask(&asker))
        });
        let less = own.iter().map(|role| {
            let asker = self.with_roles(own.iter().filter(|other| *other != role).cloned());
            (Change::WithoutRole(role.clone()), self.ask(&asker))
        });
        let callers = callers.into_iter().map(|caller| {
            let asker = Asker { caller: Some(caller.clone()), ..self.asker.clone() };
            (Change::Caller(caller), self.ask(&asker))
        });
        let rollouts = self.staged(view).into_iter().map(|rule| {
            let nobody = CallerId::new("");
            let caller = self.asker.caller.as_ref().unwrap_or(&nobody);
            let roles = self.bench.roles(self.asker);
            let view = self.bench.with_set(&self.asker.tenant, |set| {
                set.view_if_reached(&self.asker.tenant, caller, roles.as_ref())
            });
            (Change::Rollout(rule), self.look(&view))
        });
        let employee = self
            .bench
            .roles(self.asker)
            .is_none()
            .then(|| (Change::Employee, self.ask(&self.with_roles([]))));
        let best = |tried: &mut dyn Iterator<Item = (Change, Tried)>| {
            let open = tried.filter(|(_, tried)| is_open(tried.kind));
            let best =
                open.min_by_key(|(_, tried)| (tried.kind != DecisionKind::Allow, tried.visible));
            best.map(|(change, tried)| Flip { change, asks: tried.asks })
        };
        best(&mut employee.into_iter())
            .or_else(|| best(&mut rollouts.into_iter()))
            .or_else(|| best(&mut more.into_iter()))
            .or_else(|| best(&mut less.into_iter()))
            .or_else(|| best(&mut callers.into_iter()))
    }

    /// Where conditions are all that stands between.
    fn open_by_arguments(&self, view: &View) -> Option<Flip> {
        self.arguments?;
        let explanation = view.explain(self.item, self.arguments)?;
        let denying = explanation.rules.iter().find(|told| {
            told.rule.effect == Effect::Deny && matches!(told.verdict, Verdict::Applies)
        });
        if let Some(denying) = denying {
            let change = Change::Avoid(denying.rule.clone());
            return (!denying.rule.when.is_empty()).then(|| Flip { change, asks: Vec::new() });
        }
        let allowing = explanation.rules.iter().find(|told| {
            told.rule.effect == Effect::Allow && matches!(told.verdict, Verdict::Condition(_))
        });
        allowing.map(|told| Flip { change: Change::Satisfy(told.rule.clone()), asks: Vec::new() })
    }

    /// What closes what is open.
    fn close(&self, view: &View) -> Flip {
        let own = self.bench.roles(self.asker).unwrap_or_default();
        let less = own.iter().find(|role| {
            let rest = own.iter().filter(|other| other != role).cloned();
            !is_open(self.ask(&self.with_roles(rest)).kind)
        });
        let nobody = Asker { caller: None, ..self.asker.clone() };
        let allowing = self.applying(view, Effect::Allow);
        let change = match (less, allowing.as_slice()) {
            (Some(role), _) => Change::WithoutRole(role.clone()),
            _ if self.asker.caller.is_some() && !is_open(self.ask(&nobody).kind) => {
                Change::OtherCaller
            }
            (None, [rule]) => Change::WithoutRule(rule.clone()),
            (None, []) => Change::NewRule,
            (None, _) => Change::WithoutRules(allowing),
        };
        Flip { change, asks: Vec::new() }
    }

    /// The rules of an effect that have a say now.
    fn applying(&self, view: &View, effect: Effect) -> Vec<Arc<Rule>> {
        let Some(explanation) = view.explain(self.item, self.arguments) else { return Vec::new() };
        let told = explanation.rules.into_iter().filter(|told| {
            let says = match told.verdict {
                Verdict::Applies => true,
                // In a list, a conditional deny hides nothing and a conditional allow shows.
                Verdict::Depends(_) => effect == Effect::Allow,
                _ => false,
            };
            says && told.rule.effect == effect
        });
        told.map(|told| told.rule.clone()).collect()
    }

    /// Rules that would be about the asker if they were open to all.
    fn staged(&self, view: &View) -> Vec<Arc<Rule>> {
        let Some(explanation) = view.explain(self.item, self.arguments) else { return Vec::new() };
        let staged = explanation
            .rules
            .into_iter()
            .filter(|told| matches!(told.verdict, Verdict::NotMeant(super::NotMeant::Rollout)));
        staged.map(|told| told.rule.clone()).collect()
    }

    /// The roles and callers that some rule speaks of.
    fn mentioned(&self, view: &View) -> (BTreeSet<Role>, BTreeSet<CallerId>) {
        let Some(explanation) = view.explain(self.item, None) else { return Default::default() };
        let (mut roles, mut callers) = (BTreeSet::new(), BTreeSet::new());
        for told in &explanation.rules {
            roles.extend(told.rule.roles.iter().flatten().map(|role| role.value.clone()));
            callers.extend(told.rule.callers.iter().flatten().map(|caller| caller.value.clone()));
        }
        // A role may come along with another one; the rules of roles say which.
        roles.extend(self.bench.set.roles_that_include(&self.asker.tenant));
        (roles, callers)
    }
}
