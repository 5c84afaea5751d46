//! What one employee has: his servers, and the world that they make with the rules in force.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    app::{pins::Pins, world::Governed},
    json::{self, Doc},
    mcp::Family,
    model::{
        caller::{Caller, EmployeeId, TenantId},
        change::ChangeClasses,
        server::UpstreamName,
    },
    registry::{
        Definition, Names, PinState, Registry, read_entry, read_known,
        server::{Archive, Kept, Registration},
        store::Scope,
    },
    stack::stage::{Upstream, Upstreams, World},
};

/// How long a server that could not be listed is left alone.
const PAUSE: Duration = Duration::from_secs(30);

/// One of them.
pub(super) struct Server {
    kept: Arc<Kept>,
    upstream: Arc<Upstream>,
    /// When it was asked last, by this process since it was loaded; 0: not yet.
    asked_ms: AtomicU64,
}

pub(super) struct Entry {
    servers: Vec<Server>,
    /// Of the employee.
    teams: Vec<Arc<str>>,
    /// The number of the policies by which it was loaded.
    pub policies: u64,
    registry: Registry,
    upstreams: Upstreams,
    /// The last one, and the world of all that it was made for.
    bound: Mutex<Option<Bound>>,
}

/// The world of all, and what was made for it; nothing, where policy lets nobody have anything.
type Bound = (Weak<World>, Option<Arc<World>>);

// === impl Server ===

impl Server {
    pub fn new(kept: Kept, upstream: Arc<Upstream>) -> Self {
        Self { kept: Arc::new(kept), upstream, asked_ms: AtomicU64::new(0) }
    }
}

// === impl Entry ===

impl Entry {
    pub fn new(servers: Vec<Server>, teams: Vec<Arc<str>>, policies: u64) -> Self {
        let names = servers.iter().map(|server| server.upstream.name.clone());
        // Whatever everybody's tools are called, these say whose they are.
        let registry = Registry::naming(Names::Always, names);
        for server in &servers {
            fill(&registry, &server.upstream.name, server.kept.archive.as_ref());
        }
        let upstreams = servers.iter().map(|server| server.upstream.clone()).collect();
        Self { servers, teams, policies, registry, upstreams, bound: Mutex::default() }
    }

    /// Learns what is kept of the tools' definitions, and has kept what is new of them: what is
    /// called is what was approved, here as with everybody's servers. Of what the store does not
    /// answer, nothing is approved.
    pub async fn settle(&self, governed: &Governed, pins: &Pins, tenant: &TenantId) {
        let care = governed.own_care(tenant, &self.registry);
        for (server, seen) in self.registry.unsettled(&care) {
            let Some(scope) = self.scope(&server) else { continue };
            let kept = pins.look(&scope, &seen).await;
            self.registry.settle(&server, &kept);
        }
        for (server, seen) in self.registry.unsettled(&care) {
            let Some(scope) = self.scope(&server) else { continue };
            let kept = pins.keep(&scope, seen).await;
            self.registry.settle(&server, &kept);
            for news in kept.iter().filter(|kept| kept.is_new) {
                let state = self.registry.pin(&server, &news.tool, care(&server, &news.tool));
                let drift = state.map(|(state, _)| state.drift);
                if let Some(classes) = drift.filter(|classes| *classes != ChangeClasses::NONE) {
                    tracing::warn!(
                        upstream.name = %scope,
                        tool.name = %news.tool,
                        changes = %classes,
                        "a tool's definition has changed under way"
                    );
                    let drifted = Some((news.digest, classes));
                    pins.note("definition_changed", &scope, &news.tool, None, drifted);
                }
            }
        }
    }

    fn scope(&self, server: &UpstreamName) -> Option<Scope> {
        let known = self.servers.iter().find(|known| known.upstream.name == *server)?;
        let Registration { tenant, owner, .. } = &known.kept.registration;
        Some(Scope::own(tenant, owner, server))
    }

    /// How the tools stand that an employee himself registered.
    pub fn pins(
        &self,
        owner: &EmployeeId,
        governed: &Governed,
        tenant: &TenantId,
    ) -> Vec<(PinState, Arc<Definition>)> {
        let care = governed.own_care(tenant, &self.registry);
        let own = |name: &UpstreamName| {
            let mut servers = self.servers.iter();
            servers.any(|server| {
                server.upstream.name == *name && server.kept.registration.owner == *owner
            })
        };
        let states = self.registry.pins(&care).into_iter().filter(|state| own(&state.upstream));
        states
            .filter_map(|state| self.registry.pin(&state.upstream, &state.tool, state.care))
            .collect()
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

    /// A server of the owner's of which nothing is known, or that could not be listed last.
    pub fn unlisted(&self, owner: &EmployeeId, server_key: &str) -> Option<Arc<Kept>> {
        let is = |server: &&Server| {
            let Kept { registration, archive } = &*server.kept;
            let is_listed = |known: &Archive| known.listed_ms > 0 && known.failure.is_none();
            registration.owner == *owner
                && *registration.server_key == *server_key
                && !archive.as_ref().is_some_and(is_listed)
        };
        self.servers.iter().find(is).map(|server| server.kept.clone())
    }

    /// The caller's own servers that are to be asked again. Each is told once, and again when as
    /// much time has gone by: what lists the same as before leaves the entry as it is.
    pub fn due(&self, caller: &Caller, now_ms: u64, refresh: Duration) -> Vec<Arc<Kept>> {
        let is_due = |server: &&Server| {
            let Kept { registration, archive } = &*server.kept;
            // Another's is asked with his credential alone.
            caller.principal.employee.as_ref() == Some(&registration.owner)
                && is_due(archive.as_ref(), &server.asked_ms, now_ms, refresh)
        };
        self.servers.iter().filter(is_due).map(|server| server.kept.clone()).collect()
    }
}

/// Whether a server is to be asked now; of those who find that at one time, one is told so.
fn is_due(archive: Option<&Archive>, asked_ms: &AtomicU64, now_ms: u64, refresh: Duration) -> bool {
    let asked = asked_ms.load(Ordering::Relaxed);
    let (known_ms, pause) = match archive {
        None => (0, PAUSE.min(refresh)),
        Some(Archive { failure: Some(failure), .. }) => (failure.at_ms, PAUSE.min(refresh)),
        Some(archive) => (archive.listed_ms, refresh),
    };
    let since = Duration::from_millis(now_ms.saturating_sub(known_ms.max(asked)));
    since >= pause
        && asked_ms.compare_exchange(asked, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
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
            let tools = docs.iter().filter_map(|doc| read_known(doc.root()).ok());
            // Nothing is approved by being here first: the store says what was.
            registry.listed_kept(name, tools.map(Arc::new).collect(), &[]);
        } else {
            let entries = docs.iter().filter_map(|doc| read_entry(family, doc.root()).ok());
            registry.listed_items(name, family, entries.map(Arc::new).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::server::Failure;

    #[test]
    fn a_server_is_asked_again_and_again_and_not_twice_at_a_time() {
        const MINUTE: u64 = 60_000;
        let refresh = Duration::from_millis(10 * MINUTE);
        let listed = |ms| Archive { listed_ms: ms, ..Archive::default() };
        let failed = Archive {
            failure: Some(Failure { message: "no".into(), at_ms: MINUTE }),
            ..listed(MINUTE)
        };
        for (archive, times) in [
            // It lists the same each time, so nobody loads it anew.
            (Some(listed(MINUTE)), vec![(10, false), (11, true), (20, false), (21, true)]),
            (Some(failed), vec![(1, false), (2, true), (3, true)]),
            (None, vec![(1, true), (2, true)]),
        ] {
            let asked = AtomicU64::new(0);
            for (minute, expected) in times {
                let due = || is_due(archive.as_ref(), &asked, minute * MINUTE, refresh);
                assert_eq!((due(), due()), (expected, false), "{archive:?} after {minute}");
            }
        }
    }
}
