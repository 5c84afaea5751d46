//! Employees' own servers: loaded when somebody calls who has any, bound to the rules in force,
//! listed again when what is known of them is old.
//!
//! Nothing is loaded ahead: what a gateway keeps in memory is what is in use. Who may register what
//! is `policy`'s to say, what is registered the store's; here the two become a world.

mod ask;
mod entry;
mod upstream;

use std::{
    net::Ipv4Addr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use moka::sync::Cache;
use tokio::sync::{oneshot, watch};

use self::{
    ask::Jobs,
    entry::{Entry, Server},
};
pub(super) use self::{
    ask::{Asker, Means},
    upstream::{Limits, Maker},
};
use super::{build::to_usize, pins::Pins, world::Governed};
use crate::{
    api::{Reach, ServerParts, ServersApi},
    audit::Audit,
    clock::Clock,
    config,
    credential::Vault,
    error::{Code, Error, Next},
    model::{
        call_source::CallSources,
        caller::{Auth, Caller, CallerId, EmployeeId, Principal, Roles, TenantId},
    },
    policy::SelfService,
    registry::{
        Definition, PinState,
        server::{Archive, Changes, Kept, Marker, Registration, ServerStore},
        store::{Bounds, PinStore, StoreFault},
    },
    stack::stage::{BoxFuture, Own, Personal, Upstream, World, is_taken},
    upstream::EGRESS_DENIED,
};

/// Between two looks at what other replicas have written.
const LOOK: Duration = Duration::from_secs(2);

/// How long whoever meets a store that fails is asked to wait.
const STORE_PAUSE: Duration = Duration::from_secs(5);

/// Everybody's own servers. Clones are the same.
#[derive(Clone)]
pub(super) struct PersonalServers(Arc<Inner>);

struct Inner {
    store: Arc<dyn ServerStore>,
    /// Set once the world of all is there.
    governed: OnceLock<Arc<Governed>>,
    /// What keeps definitions.
    pins: OnceLock<Arc<Pins>>,
    maker: Maker,
    /// What employees have, also that it is nothing.
    entries: Cache<(TenantId, EmployeeId), Arc<Entry>>,
    /// Counts what has changed: an entry that was begun before is not kept.
    changes: watch::Sender<u64>,
    jobs: Jobs,
    /// How old a listing may be before the server is asked again.
    refresh: Duration,
    clock: Clock,
}

pub(super) fn limits(servers: &config::Servers) -> Limits {
    Limits {
        timeout: servers.timeout,
        max_time: servers.max_time,
        connect_timeout: servers.connect_timeout,
        max_request_bytes: to_usize(servers.max_request_bytes),
        max_response_bytes: to_usize(servers.max_response_bytes),
    }
}

// === impl PersonalServers ===

impl PersonalServers {
    /// Also gives whoever is to ask the servers.
    pub fn new(
        store: Arc<dyn ServerStore>,
        maker: Maker,
        limits: &config::Servers,
        clock: Clock,
    ) -> (Self, Asker) {
        let (jobs, asker) = ask::channel(limits.max_asked);
        let inner = Inner {
            store,
            governed: OnceLock::new(),
            pins: OnceLock::new(),
            maker,
            entries: Cache::builder().max_capacity(limits.loaded).time_to_idle(limits.idle).build(),
            changes: watch::Sender::new(0),
            jobs,
            refresh: limits.refresh,
            clock,
        };
        (Self(Arc::new(inner)), asker)
    }

    /// What everybody's rules are, and who keeps definitions: neither was there when this was made.
    pub fn govern(&self, governed: Arc<Governed>, pins: Arc<Pins>) {
        let _ = self.0.governed.set(governed);
        let _ = self.0.pins.set(pins);
    }

    /// How every tool stands of the servers that an employee himself registered, with its
    /// definition as it is listed.
    pub async fn pins(
        &self,
        tenant: &TenantId,
        owner: &EmployeeId,
    ) -> Result<Vec<(PinState, Arc<Definition>)>, StoreFault> {
        let Some(governed) = self.0.governed.get() else { return Ok(Vec::new()) };
        let entry = self.load(tenant, owner).await?;
        Ok(entry.pins(owner, governed, tenant))
    }

    /// Where employees register them.
    pub fn api(
        &self,
        governed: Arc<Governed>,
        vault: Arc<Vault>,
        audit: Arc<Audit>,
        pins: (Arc<dyn PinStore>, Bounds),
    ) -> ServersApi {
        let worlds = governed.worlds.clone();
        ServersApi::new(ServerParts {
            worlds,
            store: self.0.store.clone(),
            vault,
            pins: pins.0,
            pin_bounds: pins.1,
            self_service: Arc::new(move |tenant| governed.policies().self_service(tenant)),
            reach: Arc::new(self.clone()),
            personal: Arc::new(self.clone()),
            audit,
            clock: self.0.clock.clone(),
        })
    }

    /// Follows what other replicas write, until it is dropped.
    pub async fn follow(self) {
        let mut marker = None;
        loop {
            // What was written before the start, nobody has loaded.
            if let Ok(seen) = self.since(marker.unwrap_or(Marker::START)).await {
                let is_first = marker.replace(seen.marker).is_none();
                if !is_first && (seen.too_old || !seen.changes.is_empty()) {
                    self.forget(&seen);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn since(&self, marker: Marker) -> Result<Changes, StoreFault> {
        let (tell, told) = oneshot::channel();
        self.0.store.changes_since(marker, Box::new(move |changes| _ = tell.send(changes)));
        told.await.unwrap_or(Err(StoreFault::Unclear))
    }

    fn forget(&self, seen: &Changes) {
        if seen.too_old {
            self.0.entries.invalidate_all();
        }
        for change in &seen.changes {
            self.forget_of(&change.tenant, &change.owner);
        }
        self.0.changes.send_modify(|count| *count += 1);
    }

    /// Forgets what an employee has, and what those have who see it, or might by now.
    fn forget_of(&self, tenant: &TenantId, owner: &EmployeeId) {
        let teams = self.teams(tenant, owner);
        let concerned: Vec<_> = self
            .0
            .entries
            .iter()
            .filter(|(whose, entry)| {
                whose.0 == *tenant && (whose.1 == *owner || entry.may_see(owner, &teams))
            })
            .map(|(whose, _)| whose)
            .collect();
        for whose in concerned {
            self.0.entries.invalidate(&*whose);
        }
    }

    /// The teams that an employee is in.
    fn teams(&self, tenant: &TenantId, employee: &EmployeeId) -> Vec<Arc<str>> {
        let Some(governed) = self.0.governed.get() else { return Vec::new() };
        let world = governed.worlds.look();
        let known = world.directory.get(employee.as_str());
        let teams = known.filter(|known| known.tenant == *tenant).map(|known| &known.teams);
        teams.into_iter().flatten().map(|team| (**team).into()).collect()
    }

    /// Asks the store for what an employee has.
    async fn load(
        &self,
        tenant: &TenantId,
        employee: &EmployeeId,
    ) -> Result<Arc<Entry>, StoreFault> {
        let whose = (tenant.clone(), employee.clone());
        let before = *self.0.changes.borrow();
        let Some(governed) = self.0.governed.get() else { return Err(StoreFault::Unavailable) };
        let policies = governed.worlds.look().policies();
        let service = governed.policies().self_service(tenant);
        let shares = service.as_ref().is_some_and(SelfService::allows_sharing);
        let teams = if shares { self.teams(tenant, employee) } else { Vec::new() };
        let (tell, told) = oneshot::channel();
        let then = Box::new(move |kept| _ = tell.send(kept));
        self.0.store.visible_to(whose.0.clone(), whose.1.clone(), teams.clone(), then);
        let kept = told.await.unwrap_or(Err(StoreFault::Unclear))?;
        let base = governed.worlds.current();
        let allowed = kept.into_iter().filter(|kept| {
            let Registration { url, server_key, .. } = &kept.registration;
            // Where an operator has put one of this key there since, his is meant.
            if is_taken(&base, server_key, url) {
                return false;
            }
            let at = url.host_str().zip(url.port_or_known_default());
            let service = service.as_ref().zip(at);
            service.is_some_and(|(service, (host, port))| service.may_reach(host, port))
        });
        let servers: Vec<Server> = allowed.filter_map(|kept| self.server(kept)).collect();
        let entry = Arc::new(Entry::new(servers, teams, policies));
        if let Some(pins) = self.0.pins.get() {
            entry.settle(governed, pins, tenant).await;
        }
        // What changed while the store answered may not be in the answer.
        if *self.0.changes.borrow() == before {
            self.0.entries.insert(whose, entry.clone());
        }
        Ok(entry)
    }

    /// One that cannot be reached at all any more, by whatever has become of the configuration, is
    /// left out, and its owner sees why where he looks at it.
    fn server(&self, kept: Kept) -> Option<Server> {
        let upstream = self.0.maker.known(&kept.registration).ok()?;
        if let Some(archive) = &kept.archive {
            upstream::recall(&upstream, archive);
        }
        Some(Server::new(kept, upstream))
    }

    /// What an employee has, bound to the rules of `base`; asks servers again whose listing is old.
    fn bound(&self, entry: &Entry, caller: &Caller, base: &Arc<World>) -> Option<Arc<World>> {
        let governed = self.0.governed.get()?;
        let world = entry.world(governed, &caller.tenant, base)?;
        let now_ms = self.0.clock.now_ms();
        for server in entry.due(caller, now_ms, self.0.refresh) {
            let (own, caller) = (self.clone(), Arc::new(caller.clone()));
            self.0.jobs.beside(async move { own.look_again(caller, server).await });
        }
        Some(world)
    }

    /// The owner of a server can use it from now on: what could not be listed before is.
    pub fn granted(&self, tenant: TenantId, owner: EmployeeId, server_key: Arc<str>) {
        let own = self.clone();
        self.0.jobs.beside(async move {
            let Ok(entry) = own.load(&tenant, &owner).await else { return };
            let Some(server) = entry.unlisted(&owner, &server_key) else { return };
            if let Some(caller) = own.owner(tenant, owner) {
                own.look_again(Arc::new(caller), server).await;
            }
        });
    }

    /// An employee who is here by himself, through nobody who calls.
    fn owner(&self, tenant: TenantId, employee: EmployeeId) -> Option<Caller> {
        let principal =
            Principal { employee: Some(employee), roles: Roles::default(), auth: Auth::Header };
        let mut caller = Caller {
            tenant,
            id: CallerId::new(""),
            principal,
            names_employees: true,
            catalog_roles: Roles::default(),
            call_sources: CallSources::default(),
            address: Ipv4Addr::UNSPECIFIED.into(),
            policies: 0,
            granted: None,
            missing_scopes: None,
        };
        self.0.governed.get()?.worlds.current().renew(&mut caller).ok()?;
        Some(caller)
    }

    /// Lists a server again, for its owner, and keeps what comes of it.
    async fn look_again(self, caller: Arc<Caller>, server: Arc<Kept>) {
        let registration = server.registration.clone();
        let Registration { tenant, owner, server_key, .. } = registration.clone();
        let archive = match self.0.ask(caller, registration).await {
            Ok(archive) => archive,
            Err(error) if error.reason() == Some(EGRESS_DENIED) => {
                Archive::failed(error.message().into(), self.0.clock.now_ms())
            }
            Err(_) => return,
        };
        // Of what could not be listed the last good listing stays.
        let archive = server.archive.clone().unwrap_or_default().renewed(archive);
        let news = server.archive.as_ref().is_none_or(|before| !before.says_same(&archive));
        let (tell, told) = oneshot::channel();
        let then = Box::new(move |kept| _ = tell.send(kept));
        self.0.store.set_archive(tenant.clone(), owner.clone(), server_key, archive, then);
        if matches!(told.await, Ok(Ok(true))) && news {
            self.changed(&tenant, &owner);
        }
    }
}

impl Personal for PersonalServers {
    fn of(&self, caller: &Caller, base: &Arc<World>) -> Own {
        let Some(employee) = &caller.principal.employee else { return Own::Nothing };
        if base.rules.self_service(&caller.tenant).is_none() {
            return Own::Nothing;
        }
        let whose = (caller.tenant.clone(), employee.clone());
        // What policy says of hosts and of sharing is looked at when servers are loaded.
        let known = self.0.entries.get(&whose);
        if let Some(entry) = known.filter(|entry| entry.policies == base.policies()) {
            return match self.bound(&entry, caller, base) {
                Some(world) => Own::There(world),
                None => Own::Nothing,
            };
        }
        let (own, caller, base) = (self.clone(), caller.clone(), base.clone());
        Own::Loading(Box::pin(async move {
            let entry = own.load(&whose.0, &whose.1).await.map_err(unavailable)?;
            Ok(own.bound(&entry, &caller, &base))
        }))
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }
}

impl Reach for PersonalServers {
    fn ask(&self, caller: Arc<Caller>, registration: Registration) -> BoxFuture<Archive> {
        let own = self.0.clone();
        Box::pin(async move { own.ask(caller, registration).await })
    }

    fn admit(&self, registration: &Registration) -> BoxFuture<()> {
        let upstream = self.0.make(registration);
        Box::pin(async move {
            match upstream?.reach.cluster() {
                Some(cluster) => cluster.admit().await,
                None => Ok(()),
            }
        })
    }

    fn connect(&self, caller: &Caller, registration: &Registration) -> Option<String> {
        self.0.maker.oauth.invitation_of(registration, caller)
    }

    fn changed(&self, tenant: &TenantId, owner: &EmployeeId) {
        self.forget_of(tenant, owner);
        self.0.changes.send_modify(|count| *count += 1);
    }
}

impl Inner {
    /// Of its own: what is found out may be of settings that are not kept yet.
    fn make(&self, registration: &Registration) -> Result<Arc<Upstream>, Error> {
        self.maker.make(registration).map_err(|fault| {
            let message = format!("the address cannot be used: {fault}");
            Error::new(Code::InvalidArgs, message).with_pointer("/url")
        })
    }

    async fn ask(&self, caller: Arc<Caller>, registration: Registration) -> Result<Archive, Error> {
        let upstream = self.make(&registration)?;
        self.jobs.ask(caller, upstream, self.clock.now_ms()).await
    }
}

fn unavailable(fault: StoreFault) -> Error {
    Error::new(Code::Internal, "what servers you have cannot be looked up at present")
        .with_kind("store_unavailable")
        .with_reason("store_unavailable")
        .with_advice(true, Next::Wait)
        .with_retry_after(STORE_PAUSE)
        .with_cause(fault)
}
