//! What one employee has: his servers, and the world that they make with the rules in force.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    app::world::Governed,
    json::{self, Doc},
    mcp::Family,
    model::{
        caller::{Caller, EmployeeId, TenantId},
        server::UpstreamName,
    },
    registry::{
        Names, Registry, read_definition, read_entry,
        server::{Archive, Kept},
    },
    stack::stage::{Upstream, Upstreams, World},
};

/// How long a server that could not be listed is left alone.
const PAUSE: Duration = Duration::from_secs(30);

/// One of them.
pub(super) struct Server {
    kept: Arc<Kept>,
    upstream: Arc<Upstream>,
    /// It is being asked.
    asked: AtomicBool,
}

pub(super) struct Entry {
    servers: Vec<Server>,
    /// Of the employee.
    teams: Vec<Arc<str>>,
    registry: Registry,
    upstreams: Upstreams,
    /// The last one, and the world of all that it was made for.
    bound: Mutex<Option<(Weak<World>, Option<Arc<World>>)>>,
}

// === impl Server ===

impl Server {
    pub fn new(kept: Kept, upstream: Arc<Upstream>) -> Self {
        Self { kept: Arc::new(kept), upstream, asked: AtomicBool::new(false) }
    }
}

// === impl Entry ===

impl Entry {
    pub fn new(servers: Vec<Server>, teams: Vec<Arc<str>>) -> Self {
        let names = servers.iter().map(|server| server.upstream.name.clone());
        // Whatever everybody's tools are called, these say whose they are.
        let registry = Registry::naming(Names::Always, names);
        for server in &servers {
            fill(&registry, &server.upstream.name, server.kept.archive.as_ref());
        }
        let upstreams = servers.iter().map(|server| server.upstream.clone()).collect();
        Self { servers, teams, registry, upstreams, bound: Mutex::default() }
    }

    /// Whether something of this owner's is seen here, or may be by now: it is shared with teams of
    /// his.
    pub fn may_see(&self, owner: &EmployeeId, teams: &[Arc<str>]) -> bool {
        self.servers.iter().any(|server| server.kept.registration.owner == *owner)
            || self.teams.iter().any(|team| teams.contains(team))
    }

    /// Bound to the rules that `base` is bound to; nothing where there is nothing, or where policy
    /// lets nobody have anything.
    pub fn world(
        &self,
        governed: &Governed,
        tenant: &TenantId,
        base: &Arc<World>,
    ) -> Option<Arc<World>> {
        if self.servers.is_empty() {
            return None;
        }
        let mut bound = self.bound.lock();
        if let Some((of, world)) = &*bound
            && of.as_ptr() == Arc::as_ptr(base)
        {
            return world.clone();
        }
        let world = governed.own_world(&self.registry, &self.upstreams, tenant).map(Arc::new);
        *bound = Some((Arc::downgrade(base), world.clone()));
        world
    }

    /// The caller's own servers that are to be asked again; each is told once for one time.
    pub fn due(&self, caller: &Caller, now_ms: u64, refresh: Duration) -> Vec<Arc<Kept>> {
        let is_due = |server: &&Server| {
            let Kept { registration, archive } = &*server.kept;
            // Another's is asked with his credential alone.
            caller.principal.employee.as_ref() == Some(&registration.owner)
                && archive.as_ref().is_none_or(|archive| is_old(archive, now_ms, refresh))
                && !server.asked.swap(true, Ordering::Relaxed)
        };
        self.servers.iter().filter(is_due).map(|server| server.kept.clone()).collect()
    }
}

fn is_old(archive: &Archive, now_ms: u64, refresh: Duration) -> bool {
    let since = |at_ms: u64| Duration::from_millis(now_ms.saturating_sub(at_ms));
    match &archive.failure {
        Some(failure) => since(failure.at_ms) >= PAUSE.min(refresh),
        None => since(archive.listed_ms) >= refresh,
    }
}

/// Takes over what was listed. What cannot be read any more costs only itself.
fn fill(registry: &Registry, name: &UpstreamName, archive: Option<&Archive>) {
    let why = |archive: Option<&Archive>| match archive.and_then(|known| known.failure.as_ref()) {
        Some(failure) => failure.message.clone(),
        None => "it has not been listed yet".into(),
    };
    let listed = archive.filter(|archive| archive.listed_ms > 0);
    let Some(archive) = listed else {
        for family in Family::ALL {
            registry.failed(name, family, &why(archive));
        }
        return;
    };
    if let Some(served) = archive.served {
        registry.declared(name, served, archive.instructions.clone());
    }
    let limits = json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 2 };
    let parsed = |family: Family| {
        let elements = archive.of(family).iter();
        elements.filter_map(|raw| Doc::parse(raw.clone(), &limits).ok()).collect::<Vec<_>>()
    };
    for family in Family::ALL {
        if archive.families[family as usize].is_none() {
            continue; // one for each family
        }
        let docs = parsed(family);
        if family == Family::Tools {
            let tools = docs.iter().filter_map(|doc| read_definition(doc.root()).ok());
            registry.listed(name, tools.map(Arc::new).collect());
        } else {
            let entries = docs.iter().filter_map(|doc| read_entry(family, doc.root()).ok());
            registry.listed_items(name, family, entries.map(Arc::new).collect());
        }
    }
}
