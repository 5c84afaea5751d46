//! Rules that another rule makes useless.
//!
//! A rule covers another if it is about everybody and everything that the other is about. That
//! is told from the rules alone, so it holds for any catalog.

use std::sync::Arc;

use super::super::{Effect, Family, Reach, Rule, compile::Compiled};
use crate::{
    fault::{FaultCode, Faults},
    model::server::Risk,
    yaml::Spanned,
};

pub(super) fn check(policies: &Compiled, faults: &mut Faults) {
    // Rules of two tenants never meet.
    let platform = &policies.platform.rules;
    for rule in platform {
        check_one(rule, &[platform], faults);
    }
    for own in policies.tenants.values() {
        for rule in &own.rules {
            check_one(rule, &[platform, &own.rules], faults);
        }
    }
}

fn check_one(rule: &Rule, scopes: &[&[Arc<Rule>]], faults: &mut Faults) {
    let others = || scopes.iter().copied().flatten().filter(|o| !std::ptr::eq(&***o, rule));
    if rule.effect != Effect::Deny
        && let Some(deny) = others().find(|o| o.effect == Effect::Deny && covers(o, rule))
    {
        let message =
            format!("`{}` is dead: `{}` denies all that it {}", rule.id, deny.id, verb(rule));
        let fault = faults.add(FaultCode::DeadRule, &rule.at, message);
        fault.relate(&deny.at, "the rule that denies");
        return;
    }
    let wider = others().find(|other| {
        other.effect == rule.effect
            && other.approval == rule.approval
            && covers(other, rule)
            && (rule.effect != Effect::Allow || !grants_keys(rule) || grants_keys(other))
            // Of two that say the same, the second is the one too many.
            && (!covers(rule, other) || (&other.scope, &other.id) < (&rule.scope, &rule.id))
    });
    if let Some(wider) = wider {
        let message =
            format!("`{}` adds nothing: `{}` {} all of it", rule.id, wider.id, verb(rule));
        let fault = faults.add(FaultCode::RedundantRule, &rule.at, message);
        fault.relate(&wider.at, "the wider rule");
    }
}

fn verb(rule: &Rule) -> &'static str {
    match rule.effect {
        Effect::Allow => "allows",
        Effect::RequireApproval => "asks about",
        Effect::Deny => "denies",
    }
}

/// Whether an allowing rule also grants to a key without an employee.
fn grants_keys(rule: &Rule) -> bool {
    rule.callers.is_some() && rule.roles.is_none()
}

/// Whether `wide` is about all that `narrow` is about.
fn covers(wide: &Rule, narrow: &Rule) -> bool {
    // Conditions may fail, and a staged rule is not open to all.
    wide.when.is_empty()
        && wide.rollout.is_none()
        && names(&wide.roles, &narrow.roles)
        && names(&wide.callers, &narrow.callers)
        && risks(wide, narrow)
        && Family::ALL
            .into_iter()
            .all(|family| globs(wide.globs.of(family), narrow.globs.of(family)))
}

fn names<T: PartialEq>(wide: &List<T>, narrow: &List<T>) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => {
            narrow.iter().all(|name| wide.iter().any(|other| other.value == name.value))
        }
    }
}

type List<T> = Option<Box<[Spanned<T>]>>;

fn risks(wide: &Rule, narrow: &Rule) -> bool {
    let has = |rule: &Rule, risk: Risk| rule.risk.is_none_or(|risks| risks.contains(risk));
    Risk::ALL.into_iter().all(|risk| !has(narrow, risk) || has(wide, risk))
}

fn globs(wide: Reach<'_>, narrow: Reach<'_>) -> bool {
    match (wide, narrow) {
        (Reach::All, _) | (_, Reach::Nothing) => true,
        (Reach::Nothing, _) => false,
        (Reach::Globs(wide), Reach::All) => {
            wide.iter().any(|glob| matches!(glob.as_str(), "*/*" | "*"))
        }
        (Reach::Globs(wide), Reach::Globs(narrow)) => {
            narrow.iter().all(|glob| wide.iter().any(|other| other.covers(glob)))
        }
    }
}
