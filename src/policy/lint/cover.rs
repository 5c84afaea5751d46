//! Rules that another rule makes useless.
//!
//! A rule covers another if it is about everybody and everything that the other is about. That
//! is told from the rules alone, so it holds for any catalog.

use std::{collections::HashMap, sync::Arc};

use super::super::{Effect, Family, Reach, Rule, Scope};
use crate::{
    fault::{FaultCode, Faults},
    model::{caller::TenantId, server::Risk},
    yaml::Spanned,
};

pub(super) fn check(rules: &[Arc<Rule>], faults: &mut Faults) {
    // Rules of two tenants never meet.
    let platform: Vec<&Rule> =
        rules.iter().map(|rule| &**rule).filter(|rule| rule.scope == Scope::Platform).collect();
    let mut tenants: HashMap<&TenantId, Vec<&Rule>> = HashMap::new();
    for rule in rules {
        if let Some(tenant) = rule.scope.tenant() {
            tenants.entry(tenant).or_default().push(rule);
        }
    }
    for rule in &platform {
        check_one(rule, &[&platform], faults);
    }
    for own in tenants.values() {
        for rule in own {
            check_one(rule, &[&platform, own], faults);
        }
    }
}

fn check_one(rule: &Rule, scopes: &[&[&Rule]], faults: &mut Faults) {
    let others = || scopes.iter().copied().flatten().copied().filter(|o| !std::ptr::eq(*o, rule));
    if rule.effect == Effect::Allow
        && let Some(deny) = others().find(|o| o.effect == Effect::Deny && covers(o, rule))
    {
        let message = format!("`{}` is dead: `{}` denies all that it allows", rule.id, deny.id);
        let fault = faults.add(FaultCode::DeadRule, &rule.at, message);
        fault.relate(&deny.at, "the rule that denies");
        return;
    }
    let wider = others().find(|other| {
        other.effect == rule.effect
            && covers(other, rule)
            && (rule.effect == Effect::Deny || !grants_keys(rule) || grants_keys(other))
            // Of two that say the same, the second is the one too many.
            && (!covers(rule, other) || (&other.scope, &other.id) < (&rule.scope, &rule.id))
    });
    if let Some(wider) = wider {
        let verb = if rule.effect == Effect::Allow { "allows" } else { "denies" };
        let message = format!("`{}` adds nothing: `{}` {verb} all of it", rule.id, wider.id);
        let fault = faults.add(FaultCode::RedundantRule, &rule.at, message);
        fault.relate(&wider.at, "the wider rule");
    }
}

/// Whether an allowing rule also grants to a key without an employee.
fn grants_keys(rule: &Rule) -> bool {
    rule.callers.is_some() && rule.roles.is_none()
}

/// Whether `wide` is about all that `narrow` is about.
fn covers(wide: &Rule, narrow: &Rule) -> bool {
    names(&wide.roles, &narrow.roles)
        && names(&wide.callers, &narrow.callers)
        && risks(wide, narrow)
        && Family::ALL
            .into_iter()
            .all(|family| globs(wide.globs.of(family), narrow.globs.of(family)))
}

fn names<T: PartialEq>(wide: &Option<Vec<Spanned<T>>>, narrow: &Option<Vec<Spanned<T>>>) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => {
            narrow.iter().all(|name| wide.iter().any(|other| other.value == name.value))
        }
    }
}

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
