//! What decides calls, put together: the catalog as it is listed, the policies in force, and the
//! limits and employees that they name.
//!
//! A world is built aside, by whoever brings the change, and swapped in whole. Two changes at a
//! time build two worlds; the one that was begun later has both in it, and is the one that stays.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::build::MAX_DEPTH;
use crate::{
    discovery::OnChange,
    identity::sso::{Directory, DirectoryEntry},
    json,
    limit::{self, LimitFault, LimitSpec, Limiter},
    mcp::Family,
    policy::{LimitKey, LimitKind, LimitRule, Policies, Scope, Subject},
    registry::{Catalog, Item, Registry},
    stack::stage::{World, Worlds},
};

/// The policies in force and the world that is made of them.
pub(super) struct Governed {
    pub worlds: Arc<Worlds>,
    registry: Arc<Registry>,
    /// Limits that are there whatever the policies say.
    own_limits: Vec<LimitSpec>,
    in_force: Mutex<InForce>,
    /// Worlds that were begun.
    begun: AtomicU64,
    /// The last of them that was put in its place.
    placed: Mutex<u64>,
    /// Names that the aggregate leaves out, as far as they have been told.
    told: Mutex<HashSet<String>>,
}

/// All that one reading of the policy files gives.
#[derive(Clone)]
struct InForce {
    number: u64,
    policies: Policies,
    directory: Arc<Directory>,
    limiter: Arc<Limiter>,
}

// === impl Governed ===

impl Governed {
    pub fn new(
        registry: Arc<Registry>,
        policies: Policies,
        own_limits: Vec<LimitSpec>,
    ) -> Result<Self, LimitFault> {
        let limiter = Limiter::new(all_limits(&own_limits, &policies))?;
        let in_force = InForce {
            number: 0,
            directory: Arc::new(directory(&policies)),
            limiter: Arc::new(limiter),
            policies,
        };
        let worlds = Arc::new(Worlds::new(world(&registry, &in_force)));
        Ok(Self {
            worlds,
            registry,
            own_limits,
            in_force: Mutex::new(in_force),
            begun: AtomicU64::new(0),
            placed: Mutex::new(0),
            told: Mutex::default(),
        })
    }

    pub fn revision(&self) -> Arc<str> {
        self.in_force.lock().policies.revision().clone()
    }

    /// Puts other policies in force. Limits that have not changed go on counting where they are;
    /// one that was changed begins anew, and calls under way keep the slots of the old one.
    ///
    /// To be called by one thread only, and none that calls wait for.
    ///
    /// # Errors
    /// A limit cannot be kept; then everything stays as it is.
    pub fn apply(&self, policies: Policies) -> Result<(), LimitFault> {
        let before = self.in_force.lock().clone();
        let specs = all_limits(&self.own_limits, &policies);
        let same_employees = Arc::ptr_eq(before.policies.directory(), policies.directory());
        let next = InForce {
            number: before.number + 1,
            directory: match same_employees {
                true => before.directory,
                false => Arc::new(directory(&policies)),
            },
            limiter: Arc::new(before.limiter.replaced_by(specs)?),
            policies,
        };
        *self.in_force.lock() = next;
        self.rebuild();
        Ok(())
    }

    /// What is to be called when the catalog has changed.
    pub fn on_change(self: Arc<Self>) -> OnChange {
        Arc::new(move || self.rebuild())
    }

    /// Binds the catalog to the rules aside, and swaps the world.
    fn rebuild(&self) {
        // Before anything is looked at: what is begun later sees what this one sees, and more.
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let in_force = self.in_force.lock().clone();
        let world = world(&self.registry, &in_force);
        for name in world.catalog.left_out() {
            // Once, and not with each change of something else.
            if self.told.lock().insert(name.clone()) {
                tracing::warn!("the aggregate leaves out {name}");
            }
        }
        let mut placed = self.placed.lock();
        if number > *placed {
            *placed = number;
            self.worlds.replace(world);
        }
    }
}

fn directory(policies: &Policies) -> Directory {
    Directory::new(policies.directory().employees.iter().map(|(id, employee)| {
        let entry = DirectoryEntry {
            tenant: employee.tenant.clone(),
            roles: employee.roles.clone(),
            teams: employee.teams.iter().map(|team| team.as_str().into()).collect(),
        };
        (id.clone(), entry)
    }))
}

// === Limits ===

fn all_limits(own: &[LimitSpec], policies: &Policies) -> Vec<LimitSpec> {
    own.iter().cloned().chain(policies.limits().flat_map(|rule| specs(rule))).collect()
}

/// A limit of a platform file may name several tenants: each has its own.
fn specs(rule: &LimitRule) -> Vec<LimitSpec> {
    let tenants = match (&rule.scope, &rule.tenants) {
        (Scope::Tenant(tenant), _) => vec![Some(tenant.clone())],
        (Scope::Platform, Some(tenants)) => {
            tenants.iter().map(|tenant| Some(tenant.value.clone())).collect()
        }
        (Scope::Platform, None) => vec![None],
    };
    let spec = |tenant| LimitSpec {
        id: rule.id.clone(),
        tenant,
        per: rule.per.iter().copied().map(dimension).collect(),
        upstreams: rule.upstreams.iter().flatten().map(|upstream| upstream.value.clone()).collect(),
        tools: rule.tools.iter().flatten().map(|glob| glob.as_str().into()).collect(),
        risks: rule.risk.iter().flat_map(|risks| risks.iter()).collect(),
        kind: match rule.kind {
            LimitKind::Rate { count, period, burst } => {
                limit::Kind::Rate(limit::Rate { count, period, burst })
            }
            LimitKind::Concurrency { slots, queue, wait } => {
                limit::Kind::Concurrency(limit::Concurrency { slots, queue, wait })
            }
        },
    };
    tenants.into_iter().map(spec).collect()
}

fn dimension(key: LimitKey) -> limit::Dimension {
    match key {
        LimitKey::Tenant => limit::Dimension::Tenant,
        LimitKey::Caller => limit::Dimension::Caller,
        LimitKey::Principal => limit::Dimension::Principal,
        LimitKey::Tool => limit::Dimension::Tool,
        LimitKey::Upstream => limit::Dimension::Upstream,
        LimitKey::Risk => limit::Dimension::Risk,
        LimitKey::Address => limit::Dimension::Address,
    }
}

// === The world ===

fn world(registry: &Registry, in_force: &InForce) -> World {
    let InForce { number, policies, directory, limiter } = in_force;
    let catalog = Arc::new(registry.catalog());
    // In the order of the catalog's indices.
    let tools = catalog.tools().iter().map(|t| Subject::tool(t.upstream.as_str(), t.name()));
    let items = catalog.items().iter().map(|item| subject(item));
    let subjects: Vec<Subject<'_>> = tools.chain(items).collect();
    let rules = Arc::new(policies.bind(&subjects));
    // Here, where nobody waits for it, and not on the core of the first call.
    rules.prepare();
    if policies.has_conditions() {
        tell_misfits(&catalog, policies);
    }
    limiter.bind(catalog.tools().iter().map(|tool| limit::Tool {
        name: &tool.qualified,
        upstream: tool.upstream.as_str(),
        risk: policies.item(Subject::tool(tool.upstream.as_str(), tool.name())).risk,
    }));
    World::new(catalog, rules).with(*number, directory.clone(), limiter.clone())
}

fn subject(item: &Item) -> Subject<'_> {
    let upstream = item.upstream.as_str();
    match item.family {
        Family::Tools => Subject::tool(upstream, &item.own),
        Family::Prompts => Subject::prompt(upstream, &item.own),
        Family::Resources | Family::Templates => Subject::resource(upstream, &item.own),
    }
}

/// Conditions on arguments that a tool does not have will never hold, or always: an operator
/// should know.
fn tell_misfits(catalog: &Catalog, policies: &Policies) {
    let limits = json::Limits { depth: MAX_DEPTH, duplicates: json::Duplicates::Allow, outline: 2 };
    let tools = catalog.tools().iter().filter_map(|tool| {
        Some((tool, json::Doc::parse(tool.definition.raw.clone(), &limits).ok()?))
    });
    let tools: Vec<_> = tools.collect();
    let tools = tools.iter().filter_map(|(tool, doc)| {
        let subject = Subject::tool(tool.upstream.as_str(), tool.name());
        Some((subject, doc.root().get("inputSchema")?))
    });
    for fault in policies.check_arguments(tools) {
        tracing::warn!(fault.code = %fault.code, "{}: {}", fault.at, fault.message);
    }
}
