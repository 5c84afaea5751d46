//! A decision, told rule by rule. As data: how it is shown is the command line's.

use std::sync::Arc;

use bytes::Bytes;

use super::{Decision, Family, ItemIndex, NotMeant, Predicate, Rule, View, view::rules};
use crate::{
    json::{Doc, Value},
    model::server::Risk,
};

/// Why something is decided as it is.
#[derive(Debug)]
pub struct Explanation<'v> {
    pub decision: Decision<'v>,
    /// `upstream/name`; empty for what is in no catalog.
    pub name: &'v str,
    pub family: Family,
    pub risk: Risk,
    /// Otherwise it is hidden whatever the rules.
    pub classified: bool,
    /// Every rule of the platform and of the tenant, by scope and id.
    pub rules: Vec<Told<'v>>,
}

/// One rule. Its place in the files is `rule.at`.
#[derive(Debug)]
pub struct Told<'v> {
    pub rule: &'v Arc<Rule>,
    pub verdict: Verdict<'v>,
}

/// Whether a rule has a say, or the first of its conditions that fails.
#[derive(Debug)]
pub enum Verdict<'v> {
    Applies,
    /// It depends on this condition, and the arguments are not known.
    Depends(&'v Predicate),
    NotMeant(NotMeant),
    /// It is about other families.
    Family,
    /// None of its globs matches the name.
    Name,
    Risk,
    Condition(&'v Predicate),
}

impl View {
    /// Tells a decision: of a call with these arguments, or, without any, of the list.
    pub fn explain(&self, item: ItemIndex, arguments: Option<&Bytes>) -> Option<Explanation<'_>> {
        let policy = self.item(item)?;
        let (family, name) = self.bound.names.get(item.get())?;
        let doc = arguments.map(|raw| Doc::parse(raw.clone(), &super::view::ARGUMENTS));
        // Arguments that are no JSON are not let through, whatever the rules.
        let doc = doc.and_then(Result::ok);
        let arguments_of = doc.as_ref().map(Doc::root);
        let decision = match arguments {
            Some(_) => self.decide_call(item, arguments),
            None => self.decide(item),
        };
        let rules = rules(&self.bound, self.own.as_deref());
        let rules = rules.map(|rule| Told {
            rule,
            verdict: self.judge_rule(rule, *family, name, policy.risk, arguments_of),
        });
        Some(Explanation {
            decision,
            name,
            family: *family,
            risk: policy.risk,
            classified: policy.classified,
            rules: rules.collect(),
        })
    }

    fn judge_rule<'v>(
        &'v self,
        rule: &'v Rule,
        family: Family,
        name: &str,
        risk: Risk,
        arguments: Option<Value<'_>>,
    ) -> Verdict<'v> {
        if let Some(why) = self.who.is_not_meant(rule) {
            return Verdict::NotMeant(why);
        }
        if !rule.globs.is_about(family) {
            return Verdict::Family;
        }
        if !rule.globs.matches(family, name) {
            return Verdict::Name;
        }
        if rule.risk.is_some_and(|risks| !risks.contains(risk)) {
            return Verdict::Risk;
        }
        let first = match arguments {
            Some(_) => rule.when.iter().find(|predicate| !predicate.holds(arguments)),
            None => rule.when.first(),
        };
        match (first, arguments) {
            (None, _) => Verdict::Applies,
            (Some(predicate), Some(_)) => Verdict::Condition(predicate),
            (Some(predicate), None) => Verdict::Depends(predicate),
        }
    }
}
