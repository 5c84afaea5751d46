//! Globs and names that no tool or upstream answers to, and tools that are treated lightly.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{
        Effect, Rule, ToolGlob, ToolPolicy,
        compile::{Classes, Compiled},
    },
    Surroundings,
};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::server::{IdempotencyMode, Risk},
};

/// What the files and the configuration tell of upstreams and tools.
struct Known<'a> {
    /// By `upstream/name`.
    tools: BTreeMap<String, ToolPolicy>,
    classes: BTreeMap<&'a Arc<str>, &'a Classes>,
    /// The configured ones, or those that are classified where no configuration is known.
    upstreams: Vec<&'a str>,
}

pub(super) fn check(policies: &Compiled, surroundings: Option<&Surroundings>, faults: &mut Faults) {
    let known = Known::new(policies, surroundings);
    known.check_classes(faults);
    if let Some(surroundings) = surroundings {
        known.check_upstreams(surroundings, faults);
    }
    for rule in &policies.rules {
        for glob in rule.tools.iter().flatten() {
            known.check_glob(glob, rule.effect == Effect::Allow, faults);
        }
        known.check_risk(rule, faults);
    }
    for limit in &policies.limits {
        for glob in limit.tools.iter().flatten() {
            known.check_glob(glob, true, faults);
        }
        for upstream in limit.upstreams.iter().flatten() {
            known.check_upstream(upstream.value.as_str(), &upstream.at, faults);
        }
    }
}

impl<'a> Known<'a> {
    fn new(policies: &'a Compiled, surroundings: Option<&'a Surroundings>) -> Self {
        let classes: BTreeMap<_, _> = policies.upstreams.iter().collect();
        let mut tools = BTreeMap::new();
        for (upstream, classes) in &classes {
            for (name, class) in &classes.tools {
                let policy = ToolPolicy::new(&class.over(classes.default.as_ref()));
                tools.insert(format!("{upstream}/{name}"), policy);
            }
        }
        let upstreams = match surroundings {
            Some(surroundings) => {
                surroundings.upstreams.iter().map(|(name, _)| name.as_str()).collect()
            }
            None => classes.keys().map(|name| &***name).collect(),
        };
        Self { tools, classes, upstreams }
    }

    fn check_classes(&self, faults: &mut Faults) {
        for (upstream, classes) in &self.classes {
            let mut named: Vec<_> = classes.tools.iter().collect();
            named.sort_by_key(|(name, _)| *name);
            for (name, class) in named {
                let policy = ToolPolicy::new(&class.over(classes.default.as_ref()));
                check_tool(&format!("{upstream}/{name}"), &policy, &class.at, faults);
            }
            if let Some(default) = &classes.default {
                let policy = ToolPolicy::new(default);
                if policy.classified {
                    check_tool(&format!("{upstream}/*"), &policy, &default.at, faults);
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

    fn check_upstream(&self, upstream: &str, at: &Span, faults: &mut Faults) {
        if !self.upstreams.contains(&upstream) {
            let message = format!("there is no upstream `{upstream}`");
            let fault = faults.add(FaultCode::UnknownUpstream, at, message);
            fault.did_you_mean(upstream, self.upstreams.iter().copied());
        }
    }

    fn check_glob(&self, glob: &ToolGlob, grants: bool, faults: &mut Faults) {
        let listed = || self.tools.keys().map(String::as_str);
        let hit = || listed().any(|tool| glob.matches(tool));
        match glob.only_upstream() {
            Some(upstream) if !self.upstreams.contains(&upstream) => {
                self.check_upstream(upstream, &glob.at, faults);
            }
            Some(upstream) => {
                let lists =
                    self.classes.get(&Arc::from(upstream)).is_some_and(|c| !c.tools.is_empty());
                if lists && !hit() {
                    no_tool(glob, faults).did_you_mean(glob.as_str(), listed());
                }
            }
            // A ceiling for whatever may come is not expected to hit anything today.
            None if grants && !self.tools.is_empty() && !hit() => {
                no_tool(glob, faults);
            }
            None => {}
        }
    }

    /// A rule that names tools and risks, and no tool it names has one of the risks.
    fn check_risk(&self, rule: &Rule, faults: &mut Faults) {
        let (Some(globs), Some(risks)) = (&rule.tools, rule.risk) else { return };
        let named: Vec<_> = self
            .tools
            .iter()
            .filter(|(tool, _)| globs.iter().any(|glob| glob.matches(tool)))
            .map(|(_, policy)| policy.risk)
            .collect();
        let exact = globs.iter().all(ToolGlob::is_exact);
        if exact && named.len() == globs.len() && !named.iter().any(|risk| risks.contains(*risk)) {
            let message = format!("`{}` is dead: no tool it names has a risk it names", rule.id);
            faults.add(FaultCode::DeadRule, &rule.at, message);
        }
    }
}

fn no_tool<'f>(glob: &ToolGlob, faults: &'f mut Faults) -> &'f mut crate::fault::Fault {
    let message = format!("`{}` matches no tool in the catalog", glob.as_str());
    faults.add(FaultCode::GlobWithoutTool, &glob.at, message)
}

fn check_tool(name: &str, policy: &ToolPolicy, at: &Span, faults: &mut Faults) {
    if !policy.classified {
        let message = format!("`{name}` has no risk: it stays hidden");
        faults.add(FaultCode::Unclassified, at, message).suggest("give it a `risk`");
    }
    if policy.classified
        && policy.risk >= Risk::WriteLow
        && policy.idempotency != IdempotencyMode::Required
    {
        let message = format!("`{name}` writes, and takes calls without an idempotency key");
        faults.add(FaultCode::WeakIdempotency, at, message);
    }
}
