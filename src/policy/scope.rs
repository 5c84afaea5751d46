//! What holds in one scope: its documents put together, whatever their order.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    classes::Classes,
    document::{LimitRule, PolicyDocument, QuotaRule, RoleRule, Rule, SelfServiceRule},
};
use crate::{
    fault::{FaultCode, Faults, Span},
    json::Value,
    model::caller::{CallerId, Role, Roles},
};

/// The rules of one scope, each list by id.
#[derive(Debug, Default)]
pub struct ScopeRules {
    pub rules: Box<[Arc<Rule>]>,
    pub limits: Box<[Arc<LimitRule>]>,
    pub quotas: Box<[Arc<QuotaRule>]>,
    /// By role.
    pub roles: Box<[Arc<RoleRule>]>,
    /// Callers that some rule names; to all others these rules are alike.
    pub callers: HashSet<CallerId>,
    /// Rules that are open to some employees only.
    pub rollouts: Box<[Arc<Rule>]>,
    pub self_service: Option<Arc<SelfServiceRule>>,
}

impl ScopeRules {
    /// Puts the documents of a scope together.
    pub fn new(documents: &[&PolicyDocument], faults: &mut Faults) -> Self {
        // By id, and not by where they were read.
        let mut rules: Vec<_> = documents.iter().flat_map(|of| of.rules.iter().cloned()).collect();
        rules.sort_by(|a, b| a.id.cmp(&b.id));
        let mut limits: Vec<_> =
            documents.iter().flat_map(|of| of.limits.iter().cloned()).collect();
        limits.sort_by(|a, b| a.id.cmp(&b.id));
        let mut quotas: Vec<_> =
            documents.iter().flat_map(|of| of.quotas.iter().cloned()).collect();
        quotas.sort_by(|a, b| a.id.cmp(&b.id));
        let mut roles: Vec<_> = documents.iter().flat_map(|of| of.roles.iter().cloned()).collect();
        roles.sort_by(|a, b| a.role.cmp(&b.role));
        repeated("rule", rules.iter().map(|rule| (&*rule.id, &rule.at)), faults);
        repeated("limit", limits.iter().map(|limit| (&*limit.id, &limit.at)), faults);
        repeated("quota", quotas.iter().map(|quota| (&*quota.id, &quota.at)), faults);
        repeated("role", roles.iter().map(|role| (role.role.as_str(), &role.at)), faults);
        let callers = rules.iter().flat_map(|rule| rule.callers.iter().flatten());
        let callers = callers.map(|caller| caller.value.clone()).collect();
        let rollouts = rules.iter().filter(|rule| rule.rollout.is_some()).cloned().collect();
        Self {
            rules: rules.into(),
            limits: limits.into(),
            quotas: quotas.into(),
            roles: roles.into(),
            callers,
            rollouts,
            self_service: one_self_service(documents, faults),
        }
    }

    /// An id is told in records and headers, so no tenant may see one twice: not in its own scope
    /// and the platform's.
    pub fn check_beside(&self, platform: &ScopeRules, faults: &mut Faults) {
        for rule in &self.rules {
            let known = platform.rules.binary_search_by(|other| other.id.cmp(&rule.id));
            if let Some(first) = known.ok().and_then(|at| platform.rules.get(at)) {
                twice("rule", &rule.id, &rule.at, &first.at, faults);
            }
        }
        for limit in &self.limits {
            if let Some(first) = platform.limits.iter().find(|other| other.id == limit.id) {
                twice("limit", &limit.id, &limit.at, &first.at, faults);
            }
        }
        for quota in &self.quotas {
            if let Some(first) = platform.quotas.iter().find(|other| other.id == quota.id) {
                twice("quota", &quota.id, &quota.at, &first.at, faults);
            }
        }
        if let Some(own) = &self.self_service {
            check_self_service(own, platform.self_service.as_deref(), faults);
        }
    }
}

fn one_self_service(
    documents: &[&PolicyDocument],
    faults: &mut Faults,
) -> Option<Arc<SelfServiceRule>> {
    let mut said = documents.iter().filter_map(|of| of.self_service.as_ref());
    let first = said.next()?;
    for other in said {
        let message = "`self_service` is given twice in one scope";
        let fault = faults.add(FaultCode::GivenTwice, &other.at, message);
        fault.relate(&first.at, "here the first time");
    }
    if let Some(default) = &first.default {
        Classes::of_all(default).check_whole(faults);
    }
    Some(first.clone())
}

/// A tenant may only narrow, and has to say what nobody else does.
fn check_self_service(
    own: &SelfServiceRule,
    platform: Option<&SelfServiceRule>,
    faults: &mut Faults,
) {
    if own.off {
        return;
    }
    if let Some(platform) = platform.filter(|platform| platform.off) {
        let message = "the platform says `self_service: off`, which no tenant loosens";
        faults.add(FaultCode::Contradiction, &own.at, message).relate(&platform.at, "here");
        return;
    }
    let says = |has: fn(&SelfServiceRule) -> bool| has(own) || platform.is_some_and(has);
    for (key, said) in
        [("roles", says(|rule| rule.roles.is_some())), ("hosts", says(|rule| rule.hosts.is_some()))]
    {
        if !said {
            let message = format!("`self_service` without `{key}`: nobody may register anything");
            faults.add(FaultCode::MissingKey, &own.at, message);
        }
    }
}

/// Of each two neighbours with one id the second is reported.
fn repeated<'a>(
    what: &str,
    sorted: impl Iterator<Item = (&'a str, &'a Span)>,
    faults: &mut Faults,
) {
    let mut first: Option<(&str, &Span)> = None;
    for (id, at) in sorted {
        match first {
            Some((known, before)) if known == id => twice(what, id, at, before, faults),
            _ => first = Some((id, at)),
        }
    }
}

fn twice(what: &str, id: &str, at: &Span, first: &Span, faults: &mut Faults) {
    let fault = faults.add(FaultCode::DuplicateId, at, format!("{what} `{id}` is here twice"));
    fault.relate(first, "here the first time");
}

// === Roles ===

/// The roles of a tenant: what its own files and the platform's say of them.
#[derive(Clone, Copy)]
pub struct RoleBook<'a> {
    pub platform: &'a ScopeRules,
    pub own: Option<&'a ScopeRules>,
}

impl RoleBook<'_> {
    fn rules(&self) -> impl Iterator<Item = &Arc<RoleRule>> {
        [Some(self.platform), self.own].into_iter().flatten().flat_map(|scope| &scope.roles)
    }

    /// Whether any role is given by claims.
    pub fn maps_claims(&self) -> bool {
        self.rules().any(|rule| rule.claim.is_some())
    }

    /// Those that the claims of a token give, and those that come with them.
    pub fn given_by(&self, claims: Value<'_>) -> Roles {
        let met = |rule: &&Arc<RoleRule>| rule.claim.as_ref().is_some_and(|c| c.is_met(claims));
        self.with_included(&Roles::new(self.rules().filter(met).map(|rule| rule.role.clone())))
    }

    /// The roles, and all that come with them.
    pub fn with_included(&self, roles: &Roles) -> Roles {
        if self.rules().all(|rule| rule.includes.is_empty()) {
            return roles.clone();
        }
        let mut all: Vec<Role> = roles.iter().cloned().collect();
        let mut next = 0;
        while let Some(role) = all.get(next).cloned() {
            for included in self.rules().filter(|r| r.role == role).flat_map(|r| &r.includes) {
                if !all.contains(&included.value) {
                    all.push(included.value.clone());
                }
            }
            next += 1;
        }
        Roles::new(all)
    }

    /// Reports roles that include themselves by a way through others.
    pub fn check(&self, faults: &mut Faults) {
        let mut includes: HashMap<&str, Vec<(&str, &Span)>> = HashMap::new();
        for rule in self.rules() {
            let included = rule.includes.iter().map(|role| (role.value.as_str(), &role.at));
            includes.entry(rule.role.as_str()).or_default().extend(included);
        }
        let mut names: Vec<&str> = includes.keys().copied().collect();
        names.sort_unstable();
        let mut told: HashSet<&str> = HashSet::new();
        for name in names {
            if told.contains(name) {
                continue;
            }
            if let Some((circle, at)) = circle(name, &includes) {
                let way = circle.iter().chain([&name]).map(|role| format!("`{role}`"));
                let way = way.collect::<Vec<_>>().join(" includes ");
                faults.add(FaultCode::RoleCycle, at, format!("roles include themselves: {way}"));
                told.extend(circle);
            }
        }
    }
}

/// The way from a role back to itself, and where its last step stands.
fn circle<'a>(
    from: &'a str,
    includes: &HashMap<&'a str, Vec<(&'a str, &'a Span)>>,
) -> Option<(Vec<&'a str>, &'a Span)> {
    let mut seen = HashSet::new();
    let mut ways = vec![vec![from]];
    while let Some(way) = ways.pop() {
        for (role, at) in way.last().and_then(|last| includes.get(last)).into_iter().flatten() {
            if *role == from {
                return Some((way, at));
            }
            if seen.insert(*role) {
                ways.push(way.iter().copied().chain([*role]).collect());
            }
        }
    }
    None
}
