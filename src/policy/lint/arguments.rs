//! Conditions on arguments that a tool does not have, or not of that type.

use super::super::{
    Family, Rule, Subject,
    compile::Compiled,
    predicate::{self, Misfit},
};
use crate::{
    fault::{FaultCode, Faults},
    json::Value,
};

pub(super) fn check<'a>(
    policies: &Compiled,
    tools: impl Iterator<Item = (Subject<'a>, Value<'a>)>,
    faults: &mut Faults,
) {
    let rules: Vec<&Rule> =
        policies.rules().map(|rule| &**rule).filter(|rule| !rule.when.is_empty()).collect();
    if rules.is_empty() {
        return;
    }
    for (subject, schema) in tools {
        let (full, policy) = (subject.full(), policies.item(subject));
        let risk = policy.risk;
        let about = |rule: &&&Rule| {
            rule.globs.matches(Family::Tools, &full)
                && rule.risk.is_none_or(|risks| risks.contains(risk))
        };
        for rule in rules.iter().filter(about) {
            for predicate in &rule.when {
                let pointer = &predicate.pointer;
                if pointer.steps().next().is_some_and(|name| policy.withholds(name)) {
                    let message = format!("callers cannot send `{pointer}` to `{full}`");
                    faults.add(FaultCode::ArgumentMissing, &predicate.at, message);
                    continue;
                }
                match predicate::check(predicate, schema) {
                    Some(Misfit::Missing) => {
                        let message = format!("`{full}` has no argument `{pointer}`");
                        faults.add(FaultCode::ArgumentMissing, &predicate.at, message);
                    }
                    Some(Misfit::Type { wanted, found }) => {
                        let message = format!(
                            "`{pointer}` of `{full}` is of type {found}, and never {wanted}"
                        );
                        faults.add(FaultCode::ArgumentType, &predicate.at, message);
                    }
                    None => {}
                }
            }
        }
    }
}
