//! The world that decides calls at one moment, swapped whole, so that no call mixes two revisions
//! of anything.
//!
//! What it consists of is worked out by `app`. Roles are older than the world that decides only
//! where a call waited in between, and then they are worked out again.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use moka::sync::Cache;
use tokio::sync::watch;

use super::Upstreams;
use crate::{
    identity::sso::{Directory, PrincipalFault},
    json::{self, Doc},
    limit::{
        Limiter, Quotas, Subject,
        quota::{Board, Unknown},
    },
    mcp::Family,
    model::{
        call::Surface,
        caller::{Auth, Caller, Granted, Principal, Roles, TenantId},
        exchange::{DecisionKind, NorthDialect},
        server::{Risk, UpstreamName},
    },
    policy::{self, BitSet, ItemIndex, View},
    registry::{Catalog, Tool},
};

/// The catalog and the rules bound to it, with all else that policy files say.
pub struct World {
    pub catalog: Arc<Catalog>,
    /// The servers that the catalog is of, in its order.
    pub upstreams: Upstreams,
    pub rules: Arc<policy::Set>,
    pub directory: Arc<Directory>,
    pub limiter: Arc<Limiter>,
    pub quotas: Arc<Quotas>,
    /// What the quotas have to do with the catalog.
    pub board: Board,
    /// The number of the policies: each that was applied in this process has one of its own.
    policies: u64,
    /// Listings that were rendered of it.
    rendered: Arc<Rendered>,
}

/// What was rendered of worlds, and can be again at any time. Views are part of the keys by their
/// addresses. Those who keep a page keep a weak reference to its views: no other view gets their
/// address as long as the page is there, and a world that is gone is not held by what was told of it.
///
/// A cache takes some 36 KiB when it is empty, and each employee with servers of his own has a
/// world: all of these share one.
#[derive(Default)]
pub struct Rendered {
    lists: OnceLock<Cache<(usize, usize, PageKey), Listed>>,
    /// Views without what quotas stop.
    narrowed: OnceLock<Cache<(usize, BitSet), Narrowed>>,
}

/// A rendered page, and the views that it is of.
type Listed = (Weak<View>, Option<Weak<View>>, Page);

/// A view, and what is left of it.
type Narrowed = (Weak<View>, Arc<View>);

/// Which page of which list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PageKey {
    pub surface: Surface,
    pub dialect: NorthDialect,
    pub family: Family,
    /// The place in the catalog from which it lists.
    pub from: usize,
}

/// A rendered page.
#[derive(Debug, Clone)]
pub struct Page {
    pub body: Bytes,
    /// What stands last on it, where another page follows.
    pub last: Option<Arc<str>>,
}

/// How lists are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListConfig {
    /// Entries of a page.
    pub page_size: usize,
    /// How long a list waits for upstreams that were never listed, all of them together.
    pub wait: Duration,
}

impl Default for ListConfig {
    fn default() -> Self {
        Self { page_size: 1_000, wait: Duration::from_secs(20) }
    }
}

/// Bytes of rendered listings that are kept together; the least used are rendered again.
const LISTS_BYTES: u64 = 64 << 20;

/// What a page takes beside its text.
const PAGE_BYTES: usize = 512;

/// Views without what quotas stop that are kept together; the least used are made again.
const NARROWED: u64 = 1_024;

/// What nobody asked for in this time is not kept: of a world that is gone, nobody asks.
const IDLE: Duration = Duration::from_secs(10 * 60);

impl World {
    /// A world of these servers, in the order in which the catalog counts them.
    pub fn new(catalog: Arc<Catalog>, upstreams: Upstreams, rules: Arc<policy::Set>) -> Self {
        let (directory, limiter) = (Arc::default(), Arc::default());
        Self {
            catalog,
            upstreams,
            rules,
            directory,
            limiter,
            quotas: Arc::default(),
            board: Board::default(),
            policies: 0,
            rendered: Arc::default(),
        }
    }

    /// One that keeps what is rendered of it with what is of others.
    #[must_use]
    pub fn sharing(self, rendered: Arc<Rendered>) -> Self {
        Self { rendered, ..self }
    }

    /// Also with what the policies of this number say of employees and limits.
    #[must_use]
    pub fn with(self, policies: u64, directory: Arc<Directory>, limiter: Arc<Limiter>) -> Self {
        Self { policies, directory, limiter, ..self }
    }

    /// Also with quotas, as they are bound to the catalog.
    #[must_use]
    pub fn with_quotas(self, quotas: Arc<Quotas>, board: Board) -> Self {
        Self { quotas, board, ..self }
    }

    pub fn policies(&self) -> u64 {
        self.policies
    }

    /// Adds the roles that the rules give by a token's claims.
    pub fn add_claimed(&self, principal: &mut Principal, tenant: &TenantId, granted: &Granted) {
        if principal.employee.is_none() || !self.rules.maps_claims(tenant) {
            return;
        }
        let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 1 };
        // It was JSON when it was verified; what is too deep gives nobody a role.
        let Ok(claims) = Doc::parse(granted.claims.clone(), &limits) else { return };
        let given = self.rules.roles_from_claims(tenant, claims.root());
        if !given.is_empty() {
            principal.roles = Roles::new(principal.roles.iter().chain(given.iter()).cloned());
        }
    }

    /// Whether the caller's roles are of other policies than these.
    pub fn is_news_to(&self, caller: &Caller) -> bool {
        caller.policies != self.policies
    }

    /// Gives the caller the roles that he has by these policies.
    ///
    /// # Errors
    /// By these policies the employee belongs to another tenant.
    pub fn renew(&self, caller: &mut Caller) -> Result<(), PrincipalFault> {
        caller.policies = self.policies;
        let (tenant, principal) = (&caller.tenant, &mut caller.principal);
        let Some(employee) = &principal.employee else { return Ok(()) };
        match principal.auth {
            Auth::Header => {
                *principal = self.directory.named(employee.as_str().as_bytes(), tenant)?;
            }
            Auth::Fixed | Auth::Key => self.directory.check_tenant(employee, tenant)?,
            Auth::Token => {
                self.directory.check_tenant(employee, tenant)?;
                if let Some(granted) = &caller.granted {
                    principal.roles = granted.roles.clone();
                    self.add_claimed(principal, tenant, granted);
                }
            }
        }
        Ok(())
    }

    /// What a caller sees who may have been known since before these policies; nothing, where he
    /// is one of another tenant by now.
    pub fn view_by_now(&self, caller: &Caller) -> Option<Arc<View>> {
        if !self.is_news_to(caller) {
            return Some(self.view_of(caller));
        }
        let mut caller = caller.clone();
        self.renew(&mut caller).ok()?;
        Some(self.view_of(&caller))
    }

    /// Whose eyes a caller sees with.
    pub fn view_of(&self, caller: &Caller) -> Arc<View> {
        let rules = &self.rules;
        if caller.principal.auth != Auth::Key {
            let roles = &caller.principal.roles;
            return match &caller.principal.employee {
                Some(employee) => {
                    rules.view_of_employee(&caller.tenant, &caller.id, employee, roles)
                }
                None => rules.view(&caller.tenant, &caller.id, roles),
            };
        }
        // Without an employee a fronting gateway sees what its configuration says; a caller of
        // no employees at all only what rules say that name it.
        if caller.names_employees {
            rules.view(&caller.tenant, &caller.id, &caller.catalog_roles)
        } else {
            rules.view_of_key(&caller.tenant, &caller.id)
        }
    }

    /// The tool whose call became a task, by the name that the task's id has of it.
    pub fn task_tool(&self, qualified: &str) -> Option<&Arc<Tool>> {
        let (upstream, name) = qualified.split_once('/')?;
        let upstream =
            UpstreamName::parse(upstream).ok().or_else(|| UpstreamName::of_key(upstream));
        self.catalog.tool(&upstream?, name)
    }

    /// Whether a caller may know how tasks of a tool stand: where it may call it, or could with
    /// an approval, which the call that became a task has had.
    pub fn knows_tasks_of(&self, caller: &Caller, tool: &Tool) -> bool {
        let Some(view) = self.view_by_now(caller) else { return false };
        let item = ItemIndex::new(tool.index);
        let risk = view.item(item).map_or(Risk::WriteHigh, |policy| policy.risk);
        let may = match view.permit(item) {
            Ok(_) => true,
            Err(refusal) => refusal.pending.is_some(),
        };
        may && caller.missing_scope(risk).is_none()
    }

    /// A view as lists show it: without what the caller's quotas stop at the moment. What runs as
    /// another tool stays where that one may be called.
    ///
    /// # Errors
    /// The store has to be asked how the quotas stand.
    pub fn shown(&self, view: &Arc<View>, caller: &Caller) -> Result<Arc<View>, Unknown> {
        if self.quotas.is_empty() {
            return Ok(view.clone());
        }
        let sight = self.quotas.sight(&Subject::new(caller, None), &self.board)?;
        if sight.is_clear() {
            return Ok(view.clone());
        }
        let mut left_out = BitSet::new(view.visible().length());
        sight.stopped.iter().for_each(|index| left_out.insert(*index));
        for (index, target) in sight.degraded {
            if left_out.contains(target) || !self.may_stand_in(view, caller, target) {
                left_out.insert(index);
            }
        }
        left_out.keep_only(view.visible());
        if left_out.is_empty() {
            return Ok(view.clone());
        }
        let make = || {
            let narrowed = Arc::new(view.without(&left_out));
            (Arc::downgrade(view), narrowed)
        };
        let key = (Arc::as_ptr(view) as usize, left_out.clone());
        let kept = || Cache::builder().max_capacity(NARROWED).time_to_idle(IDLE).build();
        Ok(self.rendered.narrowed.get_or_init(kept).get_with(key, make).1)
    }

    /// Whether a caller may call a tool that stands in for another one, as far as that can be told
    /// without arguments.
    fn may_stand_in(&self, view: &View, caller: &Caller, target: usize) -> bool {
        let item = ItemIndex::new(target);
        let risk = view.item(item).map_or(Risk::WriteHigh, |policy| policy.risk);
        view.decide(item).kind == DecisionKind::Allow && caller.missing_scope(risk).is_none()
    }

    /// The rendered page of a view, and of one of another world that is listed with it, rendered at
    /// most once while it is kept.
    pub fn listing(
        &self,
        view: &Arc<View>,
        other: Option<&Arc<View>>,
        key: PageKey,
        render: impl FnOnce() -> Page,
    ) -> Page {
        let place = |view: &Arc<View>| Arc::as_ptr(view) as usize;
        let key = (place(view), other.map_or(0, place), key);
        let lists = self.rendered.lists.get_or_init(|| {
            let weight = |_: &_, (_, _, page): &Listed| {
                u32::try_from(page.body.len() + PAGE_BYTES).unwrap_or(u32::MAX)
            };
            let lists = Cache::builder().max_capacity(LISTS_BYTES).time_to_idle(IDLE);
            lists.weigher(weight).build()
        });
        if let Some(kept) = lists.get(&key) {
            return kept.2;
        }
        let rendered = render();
        lists.insert(key, (Arc::downgrade(view), other.map(Arc::downgrade), rendered.clone()));
        rendered
    }
}

/// The world in force, and word of its changes.
pub struct Worlds {
    current: ArcSwap<World>,
    changed: watch::Sender<u64>,
    generation: AtomicU64,
}

impl Worlds {
    pub fn new(world: World) -> Self {
        Self {
            current: ArcSwap::from_pointee(world),
            changed: watch::Sender::new(0),
            generation: AtomicU64::new(0),
        }
    }

    pub fn current(&self) -> Arc<World> {
        self.current.load_full()
    }

    /// As `current`, for a short look: it must not be held while anything waits.
    pub fn look(&self) -> Guard<Arc<World>> {
        self.current.load()
    }

    pub fn replace(&self, world: World) {
        self.current.store(Arc::new(world));
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        self.changed.send_replace(generation);
    }

    /// Sees each replacement after this moment.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
