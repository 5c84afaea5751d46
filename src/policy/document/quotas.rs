//! Quotas as they are written: what may be spent in a calendar window, and what happens on the way.

use std::{num::NonZeroU64, sync::Arc};

use super::{LimitKey, RiskSet, Scope, StoreDown, limits, narrowing, read_id};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::{
        caller::TenantId,
        quota::{Action, Budget, Step, Window, Zone},
        server::{Risk, UpstreamName},
    },
    policy::glob::ItemGlob,
    yaml::{MapReader, Node, Spanned, Words, parsed},
};

/// A quota. What is absent does not narrow.
#[derive(Debug)]
pub struct QuotaRule {
    pub id: Arc<str>,
    pub at: Span,
    pub scope: Scope,
    /// What is counted apart: at least one.
    pub per: Vec<LimitKey>,
    /// Only in the platform's scope.
    pub tenants: Option<Vec<Spanned<TenantId>>>,
    pub upstreams: Option<Vec<Spanned<UpstreamName>>>,
    pub tools: Option<Vec<ItemGlob>>,
    pub risk: Option<RiskSet>,
    /// With its steps; at least one.
    pub budget: Budget,
    /// What happens without the store.
    pub store_down: Option<StoreDown>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::policy) enum Do {
    Warn,
    Degrade,
    Hide,
    Deny,
}

pub(in crate::policy) const WINDOWS: Words<Window> = Words {
    what: "window",
    code: FaultCode::BadValue,
    known: &[
        ("hour", Window::Hour),
        ("day", Window::Day),
        ("week", Window::Week),
        ("month", Window::Month),
        ("year", Window::Year),
    ],
    later: &[],
};

pub(in crate::policy) const DOES: Words<Do> = Words {
    what: "step",
    code: FaultCode::BadValue,
    known: &[("warn", Do::Warn), ("degrade", Do::Degrade), ("hide", Do::Hide), ("deny", Do::Deny)],
    later: &[],
};

/// The most percent of a budget at which something can happen.
const MAX_PERCENT: u32 = 1_000;

impl QuotaRule {
    pub(super) fn read(node: &Node, scope: &Scope, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let id = read_id(&mut map, faults);
        let per = limits::read_per(&mut map, faults);
        if per.as_ref().is_some_and(|per| per.contains(&LimitKey::Address)) {
            let message = "a quota is not counted by `address`: it is kept for people, not places";
            faults.add(FaultCode::BadValue, map.at, message);
        }
        let tenants = limits::read_tenants(&mut map, scope, faults);
        let upstreams = narrowing(&mut map, "upstreams", faults);
        let tools = narrowing(&mut map, "tools", faults);
        let risk = narrowing(&mut map, "risk", faults);
        let budget = map.required_node("budget", faults).and_then(|node| read_budget(node, faults));
        let steps = read_steps(&mut map, faults);
        let store_down = map.words("store_down", &limits::STORE_DOWN, faults);
        map.finish(faults);
        let (id, at) = id?;
        let (cost, every, zone) = budget?;
        Some(Self {
            id,
            at,
            scope: scope.clone(),
            per: per?,
            tenants,
            upstreams,
            tools,
            risk: risk.map(|risks: Vec<Risk>| risks.into_iter().collect()),
            budget: Budget { cost, every, zone, steps: steps? },
            store_down,
        })
    }
}

fn read_budget(node: &Node, faults: &mut Faults) -> Option<(NonZeroU64, Window, Zone)> {
    let mut map = node.map(faults)?;
    let cost: Option<Spanned<u64>> = map.required("cost", faults);
    let every = map.required_node("every", faults).and_then(|node| WINDOWS.read(node, faults));
    let zone = map.required_node("zone", faults).and_then(|node| read_zone(node, faults));
    map.finish(faults);
    let cost = cost?;
    let budget = NonZeroU64::new(cost.value);
    if budget.is_none() {
        let fault = faults.add(FaultCode::BadValue, &cost.at, "a budget of nothing");
        fault.suggest("a rule with `effect: deny` says so");
    }
    Some((budget?, every?, zone?))
}

/// A zone of the list that the program brings along: the system's own may be missing, or older.
fn read_zone(node: &Node, faults: &mut Faults) -> Option<Zone> {
    let name = parsed(node, FaultCode::BadValue, faults, check_zone)?;
    let zone = Zone::named(&name);
    if zone.is_none() {
        let names = Zone::names();
        let fault =
            faults.add(FaultCode::BadValue, &node.at, format!("there is no time zone `{name}`"));
        fault.did_you_mean(&name, names.iter().map(String::as_str));
    }
    zone
}

/// Whether the name can be one of a zone.
fn check_zone(text: &str) -> Result<Box<str>, String> {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+'))
    };
    if text.len() <= 64 && text.split('/').all(part) {
        Ok(text.into())
    } else {
        Err("is no time zone such as `Europe/Paris` or `UTC`".to_owned())
    }
}

fn read_steps(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Vec<Step>> {
    let node = map.required_node("steps", faults)?;
    let items = node.items(faults)?;
    if items.is_empty() {
        let message = "`steps` is empty: a budget at whose end nothing happens";
        faults.add(FaultCode::BadValue, &node.at, message);
        return None;
    }
    let mut steps: Vec<Step> = Vec::with_capacity(items.len());
    for item in items {
        let Some(step) = read_step(item, faults) else { continue };
        if steps.last().is_some_and(|before| before.percent > step.percent) {
            let message = format!("{}% after {}%", step.percent, steps.last()?.percent);
            let fault = faults.add(FaultCode::Contradiction, &item.at, message);
            fault.suggest("begin with the lowest");
        }
        if steps.contains(&step) {
            faults.add(FaultCode::GivenTwice, &item.at, "the same step is here twice");
        }
        steps.push(step);
    }
    Some(steps)
}

/// One of the steps.
fn read_step(node: &Node, faults: &mut Faults) -> Option<Step> {
    let mut map = node.map(faults)?;
    let percent = map
        .required_node("at", faults)
        .and_then(|node| parsed(node, FaultCode::BadValue, faults, parse_percent));
    let does = map.required_node("do", faults).and_then(|node| DOES.read(node, faults));
    let least: Option<Spanned<u32>> = map.optional("cost_at_least", faults);
    let to = map.node("to").and_then(|node| parsed(node, FaultCode::BadName, faults, parse_tool));
    for (key, only) in [("cost_at_least", Do::Hide), ("to", Do::Degrade)] {
        if let Some(entry) = map.entry(key)
            && does.is_some_and(|does| does != only)
        {
            let message = format!("`{key}` says nothing here");
            faults.add(FaultCode::Contradiction, &entry.key_at, message);
        }
    }
    if does == Some(Do::Degrade) && map.entry("to").is_none() {
        let fault = faults.add(FaultCode::MissingKey, map.at, "`to` is missing");
        fault.suggest("name the cheaper tool: `to: UPSTREAM/TOOL`");
    }
    map.finish(faults);
    let action = match does? {
        Do::Warn => Action::Warn,
        Do::Degrade => Action::Degrade { to: to?, price: 0 },
        Do::Hide => Action::Hide { cost_at_least: least.map_or(0, |least| least.value) },
        Do::Deny => Action::Deny,
    };
    Some(Step { percent: percent?, action })
}

pub(super) fn parse_percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    match number.and_then(|digits| digits.parse().ok()) {
        Some(percent @ 1..=MAX_PERCENT) => Ok(percent),
        Some(_) => Err(format!("is not between 1% and {MAX_PERCENT}%")),
        None => Err("is not a percentage such as `80%`".to_owned()),
    }
}

fn parse_tool(text: &str) -> Result<Box<str>, String> {
    let (upstream, name) = text.split_once('/').unwrap_or_default();
    if UpstreamName::parse(upstream).is_err() || name.is_empty() || name.contains('*') {
        return Err("is not one tool, as in `crm/contacts.find`".to_owned());
    }
    Ok(text.into())
}
