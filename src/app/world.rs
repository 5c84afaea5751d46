//! What decides calls, put together: the catalog as it is listed, the policies in force, and the
//! limits (`limits.rs`) and employees that they name.
//!
//! A world is built aside, by whoever brings the change, and swapped in whole. Two changes at a
//! time build two worlds; the one that was begun later has both in it, and is the one that stays.

use std::{
    collections::HashSet,
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    build::MAX_DEPTH,
    faces,
    limits::{all_limits, all_quotas},
};
use crate::{
    discovery::OnChange,
    fault::Fault,
    identity::sso::{Directory, DirectoryEntry},
    json,
    limit::{self, Ledger, LimitFault, LimitSpec, Limiter, Quotas, quota::Board},
    mcp::Family,
    model::{caller::TenantId, ids, quality::Severity, server::UpstreamName},
    policy::{ItemIndex, Named, Pin, Policies, Reason, Subject},
    registry::{
        Care, Catalog, Held, Item, Pinning, Registry, Tool, server::declared_risk, stands_in,
    },
    stack::stage::{Rendered, Upstreams, World, Worlds},
};

/// The policies in force and the world that is made of them.
pub(super) struct Governed {
    pub worlds: Arc<Worlds>,
    registry: Arc<Registry>,
    upstreams: Upstreams,
    /// Limits that are there whatever the policies say.
    own_limits: Vec<LimitSpec>,
    in_force: Mutex<InForce>,
    /// Of all worlds of employees together.
    rendered: Arc<Rendered>,
    /// Worlds that were begun.
    begun: AtomicU64,
    /// The last of them that was put in its place.
    placed: Mutex<u64>,
    /// What the catalog leaves out, which tools are held, where policies do not fit what is listed
    /// and which tools cannot be degraded, as far as it has been told.
    told: Mutex<HashSet<String>>,
    /// Other policies are in force.
    pub applied: Notify,
}

/// All that one reading of the policy files gives.
#[derive(Clone)]
struct InForce {
    number: u64,
    policies: Policies,
    directory: Arc<Directory>,
    limiter: Arc<Limiter>,
    quotas: Arc<Quotas>,
}

// === impl Governed ===

impl Governed {
    pub fn new(
        registry: Arc<Registry>,
        upstreams: Upstreams,
        policies: Policies,
        own_limits: Vec<LimitSpec>,
        ledger: Arc<Ledger>,
    ) -> Result<Self, LimitFault> {
        let limiter = Limiter::new(all_limits(&own_limits, &policies))?;
        let quotas = Quotas::new(all_quotas(&policies), ledger)?;
        let in_force = InForce {
            number: 0,
            directory: Arc::new(directory(&policies)),
            limiter: Arc::new(limiter),
            quotas: Arc::new(quotas),
            policies,
        };
        let worlds = Arc::new(Worlds::new(world(&registry, &upstreams, &in_force, true)));
        Ok(Self {
            worlds,
            registry,
            upstreams,
            own_limits,
            in_force: Mutex::new(in_force),
            rendered: Arc::default(),
            begun: AtomicU64::new(0),
            placed: Mutex::new(0),
            told: Mutex::default(),
            applied: Notify::new(),
        })
    }

    pub fn revision(&self) -> Arc<str> {
        self.in_force.lock().policies.revision().clone()
    }

    pub fn policies(&self) -> Policies {
        self.in_force.lock().policies.clone()
    }

    /// What of the policies in force is worth telling at a glance.
    pub fn told(&self) -> serde_json::Value {
        let policies = self.policies();
        serde_json::json!({
            "revision": &**policies.revision(),
            "shadow": policies.has_shadow(),
            "tenants": policies.tenants().count(),
            "rules": policies.rules().count(),
            "limits": policies.limits().count(),
            "employees": policies.directory().employees.len(),
        })
    }

    /// Everything that is in the catalog.
    pub fn known(&self) -> Vec<Named> {
        let world = self.worlds.current();
        let tools = world.catalog.tools().iter();
        let tools = tools.map(|tool| Subject::tool(tool.upstream.as_str(), tool.name()));
        let items = world.catalog.items().iter().map(|item| subject(item));
        let named = |subject: Subject<'_>| Named {
            family: subject.family,
            upstream: subject.upstream.into(),
            name: subject.name.into(),
        };
        tools.chain(items).map(named).collect()
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
            quotas: Arc::new(before.quotas.replaced_by(all_quotas(&policies))?),
            policies,
        };
        *self.in_force.lock() = next;
        self.rebuild();
        self.applied.notify_one();
        Ok(())
    }

    /// A world of what is an employee's own, by the same rules; nothing where policy lets nobody of
    /// the tenant have any servers.
    pub fn own_world(
        &self,
        registry: &Registry,
        upstreams: &Upstreams,
        tenant: &TenantId,
    ) -> Option<World> {
        let in_force = self.in_force.lock().clone();
        in_force.policies.self_service(tenant)?;
        let policies = in_force.policies.personal(tenant);
        let world = world(registry, upstreams, &InForce { policies, ..in_force }, false);
        Some(world.sharing(self.rendered.clone()))
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// How careful one is with a tool, by the policies in force.
    pub fn care(&self) -> impl Fn(&UpstreamName, &str) -> Care + use<> {
        let policies = self.policies();
        move |upstream, tool| care(&policies, upstream, tool)
    }

    /// The same, of what a tenant's employees have registered.
    pub fn own_care(
        &self,
        tenant: &TenantId,
        registry: &Registry,
    ) -> impl Fn(&UpstreamName, &str) -> Care + use<> {
        let policies = self.policies().personal(tenant);
        raised(registry, move |upstream, tool| care(&policies, upstream, tool))
    }

    /// What is to be called when the catalog has changed.
    pub fn on_change(self: Arc<Self>) -> OnChange {
        Arc::new(move || self.rebuild())
    }

    /// Binds the catalog to the rules aside, and swaps the world.
    pub fn rebuild(&self) {
        // Before anything is looked at: what is begun later sees what this one sees, and more.
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let in_force = self.in_force.lock().clone();
        let world = world(&self.registry, &self.upstreams, &in_force, true);
        let mut told = self.told.lock();
        let mut news = News { before: mem::take(&mut *told), now: HashSet::new() };
        tell(&mut news, &world.catalog, &in_force.policies);
        for (tool, to) in world.quotas.misfits(&world.board) {
            if news.is(format!("{tool} {to}")) {
                tracing::warn!(
                    "a quota sends calls of `{tool}` to `{to}`, which is not there, is not cheaper \
                     or takes or gives something else: they are refused instead"
                );
            }
        }
        *told = news.now;
        drop(told);
        let mut placed = self.placed.lock();
        if number > *placed {
            *placed = number;
            self.worlds.replace(world);
        }
    }
}

/// What an operator has been told of what still holds: a server whose definitions never stand
/// still is no reason to remember all that they ever were.
struct News {
    before: HashSet<String>,
    now: HashSet<String>,
}

impl News {
    fn is(&mut self, what: String) -> bool {
        let is_known = self.before.contains(&what);
        self.now.insert(what) && !is_known
    }
}

/// Tells an operator what he should know, once, and not with each change of something else.
fn tell(news: &mut News, catalog: &Catalog, policies: &Policies) {
    for name in catalog.left_out() {
        if news.is(name.clone()) {
            tracing::warn!("the aggregate leaves out {name}");
        }
    }
    for tool in catalog.tools() {
        if let Some(held) = awaits_approval(policies, tool)
            && news.is(held.clone())
        {
            tracing::warn!(tool.name = %tool.qualified, "{held}");
        }
    }
    for tool in catalog.tools() {
        if let Some(danger) = dangerous(tool)
            && news.is(danger.clone())
        {
            tracing::warn!(tool.name = %tool.qualified, "{danger}");
        }
    }
    let mut faults = faces::check(policies, catalog);
    if policies.has_conditions() {
        faults.extend(misfits(catalog, policies));
    }
    for fault in faults {
        if news.is(format!("{}: {}", fault.at, fault.message)) {
            tracing::warn!(fault.code = %fault.code, "{}: {}", fault.at, fault.message);
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

// === The world ===

/// What is everybody's is looked at ahead, so that nobody waits for it; what is one employee's is
/// little.
fn world(
    registry: &Registry,
    upstreams: &Upstreams,
    in_force: &InForce,
    everybodys: bool,
) -> World {
    let InForce { number, policies, directory, limiter, quotas } = in_force;
    let face = |upstream: &_, tool: &str| faces::face(policies, upstream, tool);
    let care = |upstream: &UpstreamName, tool: &str| care(policies, upstream, tool);
    let catalog = match (everybodys, policies.has_faces()) {
        (true, true) => registry.catalog_with(care, face),
        (true, false) => registry.catalog_with(care, |_, _| None),
        (false, _) => registry.catalog_with(raised(registry, care), face),
    };
    let catalog = Arc::new(catalog);
    // In the order of the catalog's indices.
    let tools = catalog.tools().iter().map(|t| Subject::tool(t.upstream.as_str(), t.name()));
    let items = catalog.items().iter().map(|item| subject(item));
    let subjects: Vec<Subject<'_>> = tools.chain(items).collect();
    let held = catalog.tools().iter().filter(|tool| tool.held.is_some());
    let why = |tool: &Tool| match tool.held {
        Some(Held::Quality) => Reason::ToolQuality,
        _ => Reason::PinMismatch,
    };
    let held: Vec<_> = held.map(|tool| (ItemIndex::new(tool.index), why(tool))).collect();
    // Of servers that no operator has written down, what they warn of themselves counts.
    let said: Vec<_> = match everybodys {
        true => Vec::new(),
        false => catalog.tools().iter().map(|tool| declared_risk(&tool.definition.raw)).collect(),
    };
    let rules = Arc::new(policies.bind_raised(&subjects, &held, &said));
    if everybodys {
        // Here, where nobody waits for it, and not on the core of the first call.
        rules.prepare();
        limiter.bind(catalog.tools().iter().map(|tool| limit::Tool {
            name: &tool.qualified,
            upstream: tool.upstream.as_str(),
            risk: policies.item(Subject::tool(tool.upstream.as_str(), tool.name())).risk,
        }));
    }
    let board = board(&catalog, policies, quotas);
    World::new(catalog, upstreams.clone(), rules)
        .with(*number, directory.clone(), limiter.clone())
        .with_quotas(quotas.clone(), board)
}

fn board(catalog: &Catalog, policies: &Policies, quotas: &Quotas) -> Board {
    let tools = catalog.tools().iter().map(|tool| {
        let subject = Subject::tool(tool.upstream.as_str(), tool.name());
        (subject, &*tool.qualified, true)
    });
    let items = catalog.items().iter().map(|item| (subject(item), &*item.qualified, false));
    let items = tools.chain(items).map(|(subject, name, is_tool)| {
        let policy = policies.item(subject);
        limit::quota::Item {
            name,
            upstream: subject.upstream,
            is_tool,
            risk: policy.risk,
            cost: policy.cost,
        }
    });
    quotas.bind(items, |dear, cheap| {
        let tools = catalog.tools();
        tools
            .get(dear)
            .zip(tools.get(cheap))
            .is_some_and(|(dear, cheap)| stands_in(&cheap.definition, &dear.definition))
    })
}

/// Of servers that no operator has written down, what they warn of themselves counts: a tool that
/// says that it destroys is not approved by being seen first.
fn raised<C>(registry: &Registry, care: C) -> impl Fn(&UpstreamName, &str) -> Care + use<C>
where
    C: Fn(&UpstreamName, &str) -> Care,
{
    let said = registry.said_risks();
    move |upstream, tool| {
        let care = care(upstream, tool);
        let said = said.get(upstream).and_then(|tools| tools.get(tool));
        Care { risk: said.map_or(care.risk, |said| care.risk.max(*said)), ..care }
    }
}

fn care(policies: &Policies, upstream: &UpstreamName, tool: &str) -> Care {
    let policy = policies.item(Subject::tool(upstream.as_str(), tool));
    let pinning = match policy.pin {
        Pin::FirstUse => Pinning::FirstUse,
        Pin::Approve => Pinning::Approve,
        Pin::Exactly(digest) => Pinning::Exactly(digest),
    };
    Care { pinning, risk: policy.risk, hold: policy.hold, demand: policy.quality }
}

/// What an operator has to look at before anybody can call it, in words; nothing for a tool that
/// no policy speaks of, which nobody could call anyhow.
fn awaits_approval(policies: &Policies, tool: &Tool) -> Option<String> {
    let held = tool.held?;
    let policy = policies.item(Subject::tool(tool.upstream.as_str(), tool.name()));
    if !policy.classified {
        return None;
    }
    let why = match held {
        Held::New => "nobody has approved its definition".to_owned(),
        // It is being kept, or the store says why it cannot be.
        Held::Unkept => return None,
        Held::Changed => "its definition is not the approved one".to_owned(),
        Held::Quality => tool.quality().falls_short(policy.quality).unwrap_or_default(),
    };
    let digest: [u8; 64] = ids::hex(tool.seen);
    let digest = String::from_utf8_lossy(&digest);
    Some(format!(
        "`{0}` is held: {why}; `hangu pins diff {0}` shows it, `hangu pins approve {0}` or \
         `pin: \"sha256:{digest}\"` accepts what is listed now",
        tool.qualified
    ))
}

/// What of a definition an operator should look at, whoever may call the tool.
fn dangerous(tool: &Tool) -> Option<String> {
    let quality = tool.quality();
    let finding = quality.findings.iter().find(|it| it.flaw.severity() == Severity::Danger)?;
    Some(format!(
        "the definition of `{}` is {}: at `{}`, {}",
        tool.qualified,
        quality.flaws,
        finding.pointer.escape_default(),
        finding.message
    ))
}

fn subject(item: &Item) -> Subject<'_> {
    let upstream = item.upstream.as_str();
    match item.family {
        Family::Tools => Subject::tool(upstream, &item.own),
        Family::Prompts => Subject::prompt(upstream, &item.own),
        Family::Resources | Family::Templates => Subject::resource(upstream, &item.own),
    }
}

/// Conditions on arguments that a tool does not have: they never hold, or always.
fn misfits(catalog: &Catalog, policies: &Policies) -> Vec<Fault> {
    let limits = json::Limits { depth: MAX_DEPTH, duplicates: json::Duplicates::Allow, outline: 2 };
    let tools = catalog.tools().iter().filter_map(|tool| {
        Some((tool, json::Doc::parse(tool.definition.raw.clone(), &limits).ok()?))
    });
    let tools: Vec<_> = tools.collect();
    let tools = tools.iter().filter_map(|(tool, doc)| {
        let subject = Subject::tool(tool.upstream.as_str(), tool.name());
        Some((subject, doc.root().get("inputSchema")?))
    });
    policies.check_arguments(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_is_told_once_and_what_is_over_is_forgotten() {
        let mut told = HashSet::new();
        let mut look = |facts: &[&str]| {
            let mut news = News { before: mem::take(&mut told), now: HashSet::new() };
            let is_new: Vec<bool> = facts.iter().map(|what| news.is((*what).to_owned())).collect();
            told = news.now;
            (is_new, told.len())
        };
        assert_eq!(look(&["a", "b", "a"]), (vec![true, true, false], 2));
        assert_eq!(look(&["b", "c"]), (vec![false, true], 2));
        assert_eq!(look(&["a"]), (vec![true], 1));
    }
}
