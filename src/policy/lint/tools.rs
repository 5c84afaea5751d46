//! Globs and names that nothing in the catalog or no upstream answers to, and tools that are
//! treated lightly.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{
        Effect, Family, ItemGlob, ItemPolicy, Rule, classes::Classes, compile::Compiled,
        self_service::default_of,
    },
    Surroundings,
};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::{
        quota::Action,
        server::{IdempotencyMode, Risk, UpstreamName},
    },
};

/// What the files and the configuration tell of upstreams and what they offer.
struct Known<'a> {
    /// By family and `upstream/name`.
    items: BTreeMap<(Family, String), ItemPolicy>,
    classes: BTreeMap<&'a Arc<str>, &'a Classes>,
    /// The configured ones, or those that are classified where no configuration is known.
    upstreams: Vec<&'a str>,
    /// Employees register servers, of which no file knows.
    registers: bool,
}

pub(super) fn check(policies: &Compiled, surroundings: Option<&Surroundings>, faults: &mut Faults) {
    let known = Known::new(policies, surroundings);
    known.check_classes(faults);
    if let Some(surroundings) = surroundings {
        known.check_upstreams(surroundings, faults);
    }
    check_self_service(policies, faults);
    for rule in policies.rules() {
        for (family, glob) in rule.globs.iter() {
            known.check_glob(family, glob, rule.effect == Effect::Allow, faults);
        }
        known.check_risk(rule, faults);
    }
    for quota in policies.scopes().flat_map(|scope| &scope.quotas) {
        for glob in quota.tools.iter().flatten() {
            known.check_glob(Family::Tools, glob, true, faults);
        }
        for upstream in quota.upstreams.iter().flatten() {
            known.check_upstream(upstream.value.as_str(), &upstream.at, faults);
        }
        for step in &quota.budget.steps {
            if let Action::Degrade { to, .. } = &step.action {
                known.check_degrade(to, &quota.at, faults);
            }
        }
    }
    for limit in policies.limits() {
        if limit.store_down.is_some() {
            let message = format!(
                "`store_down` of `{}` decides nothing: rates and slots are counted in the process",
                limit.id
            );
            faults.add(FaultCode::NoStoreToLose, &limit.at, message);
        }
        for glob in limit.tools.iter().flatten() {
            known.check_glob(Family::Tools, glob, true, faults);
        }
        for upstream in limit.upstreams.iter().flatten() {
            known.check_upstream(upstream.value.as_str(), &upstream.at, faults);
        }
    }
}

/// Whose servers may be registered, and whether anything of them is ever seen.
fn check_self_service(policies: &Compiled, faults: &mut Faults) {
    let tenants = policies.tenants.values().map(Some);
    for own in std::iter::once(None).chain(tenants) {
        let scope = own.unwrap_or(&policies.platform);
        let Some(rule) = scope.self_service.as_ref().filter(|rule| !rule.off) else { continue };
        for glob in rule.hosts.iter().flatten().filter(|glob| glob.is_anything()) {
            let message = format!("`{}`: whatever there is may be registered", glob.as_str());
            let fault = faults.add(FaultCode::OpenSelfService, &glob.at, message);
            fault.suggest("name the hosts that are meant, such as `*.example.com`");
        }
        let default = default_of(&policies.platform, own.map(|own| &**own));
        let opens = rule.roles.is_some() && rule.hosts.is_some() || own.is_some();
        if opens && default.is_none_or(|default| default.risk.is_none()) {
            let message = "no tool of a registered server is seen: nothing says what they may do";
            let fault = faults.add(FaultCode::Unclassified, &rule.at, message);
            fault.suggest("such as `default: { risk: read_high }`");
        }
    }
}

impl<'a> Known<'a> {
    fn new(policies: &'a Compiled, surroundings: Option<&'a Surroundings>) -> Self {
        let classes: BTreeMap<_, _> = policies.upstreams.iter().collect();
        let mut items = BTreeMap::new();
        for (upstream, classes) in &classes {
            for family in Family::ALL {
                for (name, class) in classes.of(family) {
                    let policy = ItemPolicy::new(&class.over(classes.default.as_ref()));
                    items.insert((family, format!("{upstream}/{name}")), policy);
                }
            }
        }
        let upstreams = match surroundings {
            Some(surroundings) => {
                surroundings.upstreams.iter().map(|(name, _)| name.as_str()).collect()
            }
            None => classes.keys().map(|name| &***name).collect(),
        };
        let registers = policies.scopes().filter_map(|scope| scope.self_service.as_ref());
        let registers = registers.into_iter().any(|rule| !rule.off);
        Self { items, classes, upstreams, registers }
    }

    fn check_classes(&self, faults: &mut Faults) {
        for (upstream, classes) in &self.classes {
            for family in Family::ALL {
                let mut named: Vec<_> = classes.of(family).iter().collect();
                named.sort_by_key(|(name, _)| *name);
                for (name, class) in named {
                    let policy = ItemPolicy::new(&class.over(classes.default.as_ref()));
                    check_item(family, &format!("{upstream}/{name}"), &policy, &class.at, faults);
                }
            }
            if let Some(default) = &classes.default {
                let policy = ItemPolicy::new(default);
                if policy.classified {
                    let name = format!("{upstream}/*");
                    check_item(Family::Tools, &name, &policy, &default.at, faults);
                }
            }
        }
    }

    /// Upstreams of which nothing is classified, and classes of no upstream.
    fn check_upstreams(&self, surroundings: &Surroundings, faults: &mut Faults) {
        for (upstream, at) in &surroundings.upstreams {
            if !self.classes.contains_key(&upstream.shared()) {
                let message =
                    format!("nothing classifies the tools of `{upstream}`: all are hidden");
                let fault = faults.add(FaultCode::Unclassified, at, message);
                fault.suggest("give it an entry in a `kind: Tools` file");
            }
        }
        for (upstream, classes) in &self.classes {
            self.check_upstream(upstream, &classes.at, faults);
        }
    }

    /// A cheaper tool that there is not would leave nothing of a degraded call.
    fn check_degrade(&self, to: &str, at: &Span, faults: &mut Faults) {
        let classified = |upstream: &str| {
            self.classes.get(&Arc::from(upstream)).is_some_and(|classes| classes.default.is_some())
        };
        let upstream = to.split_once('/').map_or(to, |(upstream, _)| upstream);
        if self.items.contains_key(&(Family::Tools, to.to_owned())) || classified(upstream) {
            return;
        }
        let message = format!("calls are to go to `{to}`, which nobody has classified");
        let names = self.items.keys().filter(|(family, _)| *family == Family::Tools);
        let names = names.map(|(_, name)| name.as_str());
        faults.add(FaultCode::GlobWithoutTool, at, message).did_you_mean(to, names);
    }

    fn check_upstream(&self, upstream: &str, at: &Span, faults: &mut Faults) {
        // Which servers employees have registered, no file says.
        let of_employees = UpstreamName::of_key(upstream).is_some();
        if !of_employees && !self.upstreams.contains(&upstream) {
            let message = format!("there is no upstream `{upstream}`");
            let fault = faults.add(FaultCode::UnknownUpstream, at, message);
            fault.did_you_mean(upstream, self.upstreams.iter().copied());
        }
    }

    fn check_glob(&self, family: Family, glob: &ItemGlob, grants: bool, faults: &mut Faults) {
        let of_family = self.items.keys().filter(|(own, _)| *own == family);
        let listed = || of_family.clone().map(|(_, full)| full.as_str());
        let hit = || listed().any(|tool| glob.matches(tool));
        if glob.may_be_of_key() && (self.registers || glob.as_str().starts_with("mcp_")) {
            return;
        }
        match glob.only_upstream() {
            Some(upstream) if !self.upstreams.contains(&upstream) => {
                self.check_upstream(upstream, &glob.at, faults);
            }
            Some(upstream) => {
                let lists = self
                    .classes
                    .get(&Arc::from(upstream))
                    .is_some_and(|c| !c.of(family).is_empty());
                if lists && !hit() {
                    nothing(family, glob, faults).did_you_mean(glob.as_str(), listed());
                }
            }
            // A ceiling for whatever may come is not expected to hit anything today.
            None if grants && listed().next().is_some() && !hit() => {
                nothing(family, glob, faults);
            }
            None => {}
        }
    }

    /// A rule that names items and risks, and nothing it names has one of the risks.
    fn check_risk(&self, rule: &Rule, faults: &mut Faults) {
        let Some(risks) = rule.risk else { return };
        let globs: Vec<_> = rule.globs.iter().collect();
        let named: Vec<_> = self
            .items
            .iter()
            .filter(|((family, full), _)| {
                globs.iter().any(|(own, glob)| own == family && glob.matches(full))
            })
            .map(|(_, policy)| policy.risk)
            .collect();
        let exact = !globs.is_empty() && globs.iter().all(|(_, glob)| glob.is_exact());
        if exact && named.len() == globs.len() && !named.iter().any(|risk| risks.contains(*risk)) {
            let message = format!("`{}` is dead: nothing it names has a risk it names", rule.id);
            faults.add(FaultCode::DeadRule, &rule.at, message);
        }
    }
}

fn nothing<'f>(
    family: Family,
    glob: &ItemGlob,
    faults: &'f mut Faults,
) -> &'f mut crate::fault::Fault {
    let message = format!("`{}` matches no {} in the catalog", glob.as_str(), family.one());
    faults.add(FaultCode::GlobWithoutTool, &glob.at, message)
}

fn check_item(family: Family, name: &str, policy: &ItemPolicy, at: &Span, faults: &mut Faults) {
    if !policy.classified {
        let message = format!("`{name}` has no risk: it stays hidden");
        faults.add(FaultCode::Unclassified, at, message).suggest("give it a `risk`");
    }
    if family == Family::Tools
        && policy.classified
        && policy.risk >= Risk::WriteLow
        && policy.idempotency != IdempotencyMode::Required
    {
        let message = format!("`{name}` writes, and takes calls without an idempotency key");
        faults.add(FaultCode::WeakIdempotency, at, message);
    }
}
