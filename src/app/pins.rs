//! Definitions of tools, between the registry that publishes them and the store that keeps them.
//!
//! What is new in a listing is kept before the listing is taken over, so that a first use is not
//! one before it is durable, and is the same at every replica. What others approve is asked for
//! every few seconds. While the store is away what is known goes on as it is, and what is new
//! waits. How all of it is told is in `told.rs`.

mod told;

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use serde_json::Value;
use tokio::{sync::oneshot, time::Instant};

use super::{personal::PersonalServers, world::Governed};
use crate::{
    api::Reach,
    audit::{Audit, PinChange},
    clock::Clock,
    config, discovery,
    model::{
        caller::{EmployeeId, TenantId},
        change::ChangeClasses,
        server::UpstreamName,
    },
    policy::Policies,
    registry::{
        Change, Definition, PinFault, PinPair, PinState, PinWish,
        store::{Bounds, History, How, Kept, PinStore, SOME, Scope, Seen, StoreFault, Then, Wish},
    },
    telemetry::Metrics,
};

/// Between two looks at what others approved.
const FOLLOW: Duration = Duration::from_secs(2);
/// Between two notes that what is listed still is, and two sweeps of what is not.
const SWEEP: Duration = Duration::from_secs(3_600);
/// Until the first.
const FIRST_SWEEP: Duration = Duration::from_secs(600);
/// Definitions in one request: nobody else's work waits long for it.
const CHUNK: usize = 200;

pub(super) struct Pins {
    pub governed: Arc<Governed>,
    pub store: Arc<dyn PinStore>,
    pub settings: config::Pins,
    pub server_keys: HashMap<UpstreamName, Arc<str>>,
    pub audit: Arc<Audit>,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    /// The last approval that this process knows of; `None`: nobody else has any.
    pub last: Option<AtomicU64>,
    /// Something could not be kept.
    pub behind: AtomicBool,
    /// Servers that employees registered.
    pub own: OnceLock<PersonalServers>,
}

pub(super) fn bounds(settings: &config::Pins) -> Bounds {
    Bounds { versions: settings.versions, tools: settings.max_tools }
}

impl Pins {
    /// Asks the store, and waits. It answers within a time of its own.
    async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&dyn PinStore, Then<T>),
    ) -> Result<T, StoreFault> {
        let (tell, told) = oneshot::channel();
        // Whoever asked may be gone; what was written stays.
        request(&*self.store, Box::new(move |answer| _ = tell.send(answer)));
        told.await.unwrap_or(Err(StoreFault::Unclear))
    }

    /// Has definitions kept, as far as the store can.
    pub async fn keep(&self, scope: &Scope, mut seen: Vec<Seen>) -> Vec<Kept> {
        let bounds = bounds(&self.settings);
        let tools = bounds.tools;
        let mut all = Vec::with_capacity(seen.len());
        // Neighbours by name stand together in the store.
        seen.sort_by(|a, b| a.tool.cmp(&b.tool));
        for chunk in seen.chunks(CHUNK) {
            let (of, news, now_ms) = (scope.clone(), chunk.to_vec(), self.clock.now_ms());
            let kept = self.ask(|store, then| store.keep(of, news, bounds, now_ms, then)).await;
            let Ok(kept) = kept else {
                // A disk that is full can still be read.
                let (of, known) = (scope.clone(), chunk.to_vec());
                let known = self.ask(|store, then| store.look(of, known, then)).await;
                let is_away = known.is_err();
                all.extend(known.unwrap_or_default());
                if !self.behind.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        upstream.name = %scope,
                        "new definitions of tools cannot be kept: those tools are held until they \
                         can be; what was approved before goes on"
                    );
                }
                if is_away {
                    return all;
                }
                continue;
            };
            for kept in kept.iter().filter(|kept| kept.by_first_use) {
                self.note("first_use", scope, &kept.tool, Some(kept), None);
            }
            all.extend(kept);
        }
        let refused = all.iter().filter(|kept| kept.version.is_none()).count();
        if refused > 0 {
            tracing::error!(
                upstream.name = %scope,
                "{refused} tools are held: of more than {tools} tools of an upstream no \
                 definitions are kept (`pins.max_tools`), those included that it listed before"
            );
        }
        all
    }

    /// What is kept already of these; nothing of it while the store is away.
    pub async fn look(&self, scope: &Scope, seen: &[Seen]) -> Vec<Kept> {
        let mut all = Vec::with_capacity(seen.len());
        for chunk in seen.chunks(CHUNK) {
            let (of, chunk) = (scope.clone(), chunk.to_vec());
            match self.ask(|store, then| store.look(of, chunk, then)).await {
                Ok(kept) => all.extend(kept),
                Err(_) => return all,
            }
        }
        all
    }

    pub fn note(
        &self,
        what: &'static str,
        scope: &Scope,
        tool: &str,
        kept: Option<&Kept>,
        drift: Option<([u8; 32], ChangeClasses)>,
    ) {
        let change = PinChange {
            what,
            upstream: scope.as_str(),
            tool,
            pin: kept.map(|kept| kept.digest).or(drift.map(|(seen, _)| seen)),
            version: kept.and_then(|kept| kept.version),
            by: None,
            classes: drift.map_or(ChangeClasses::NONE, |(_, classes)| classes),
        };
        self.audit.pin_change(&change, self.clock.now_ms());
    }

    /// Brings what others approve, and has kept what could not be before or need not have been
    /// by the policies that were; until it is dropped.
    pub async fn follow(self: Arc<Self>) {
        let mut sweep_at = Instant::now() + FIRST_SWEEP;
        loop {
            let applied = tokio::select! {
                () = tokio::time::sleep(FOLLOW) => false,
                () = self.governed.applied.notified() => true,
            };
            let mut changed = false;
            if self.behind.swap(false, Ordering::Relaxed) || applied {
                for (upstream, seen) in self.governed.registry().unsettled(self.governed.care()) {
                    let kept = self.keep(&Scope::upstream(&upstream), seen).await;
                    changed |= self.governed.registry().settle(&upstream, &kept);
                }
            }
            changed |= self.learn().await;
            if changed {
                self.governed.rebuild();
            }
            if Instant::now() >= sweep_at {
                self.sweep().await;
                sweep_at = Instant::now() + SWEEP;
            }
        }
    }

    /// Takes over what was approved since; says whether that changes anything.
    async fn learn(&self) -> bool {
        let Some(last) = &self.last else { return false };
        let mut changed = false;
        loop {
            let after = last.load(Ordering::Relaxed);
            // A store that is away tells of it itself.
            let Ok(news) = self.ask(|store, then| store.since(after, then)).await else {
                return changed;
            };
            for approved in &news {
                if let Some((tenant, owner, _)) = approved.scope.of_own() {
                    self.own_changed(&tenant, &owner);
                } else if self.governed.registry().approve(approved) {
                    changed = true;
                    tracing::info!(
                        tool.name = %format_args!("{}/{}", approved.scope, approved.tool),
                        "another process has approved version {} of a tool", approved.version
                    );
                }
                last.fetch_max(approved.number, Ordering::Relaxed);
            }
            if news.len() < SOME {
                return changed;
            }
        }
    }

    async fn sweep(&self) {
        let now_ms = self.clock.now_ms();
        for (scope, tools) in self.governed.registry().listed_now() {
            for chunk in tools.chunks(CHUNK) {
                let (scope, chunk) = (scope.clone(), chunk.to_vec());
                // It is tried again in an hour, which nothing depends on.
                let _ = self.ask(|store, then| store.still(scope, chunk, now_ms, then)).await;
            }
        }
        let unlisted = u64::try_from(self.settings.unlisted.as_millis()).unwrap_or(u64::MAX);
        let before_ms = now_ms.saturating_sub(unlisted);
        let _ = self.ask(|store, then| store.sweep(before_ms, then)).await;
    }

    // === For operators ===

    /// How every tool that is listed stands.
    pub fn all(&self) -> Value {
        let policies = self.governed.policies();
        let states = self.governed.registry().pins(self.governed.care());
        let told = states.iter().map(|state| told::state(state, &policies, &self.server_keys));
        told.collect::<Vec<_>>().into()
    }

    /// The same, of the servers that an employee registered.
    pub async fn of_own(&self, tenant: TenantId, owner: EmployeeId) -> Result<Value, PinFault> {
        let Some(own) = self.own.get() else { return Ok(Value::Array(Vec::new())) };
        let states = own.pins(&tenant, &owner).await.map_err(PinFault::Store)?;
        let policies = self.governed.policies().personal(&tenant);
        let told = states.iter().map(|(state, _)| {
            let mut told = told::state(state, &policies, &self.server_keys);
            told["serverKey"] = state.upstream.as_str().into();
            told["upstream"] = Scope::own(&tenant, &owner, &state.upstream).as_str().into();
            told
        });
        Ok(told.collect::<Vec<_>>().into())
    }

    pub async fn history(&self, scope: Scope, tool: Arc<str>) -> Result<Value, PinFault> {
        let history = self.kept(&scope, &tool).await?;
        if history.versions.is_empty() {
            return Err(PinFault::Unknown);
        }
        let listed = self.listed(&scope, &tool).await?.map(|(_, definition)| definition.digest);
        Ok(told::history(&scope, &tool, &history, listed))
    }

    pub async fn diff(&self, pair: PinPair) -> Result<Value, PinFault> {
        let history = self.kept(&pair.scope, &pair.tool).await?;
        let listed = self.listed(&pair.scope, &pair.tool).await?.map(|(_, definition)| definition);
        told::diff(&pair, &history, listed, &self.policies(&pair.scope))
    }

    /// Approves a definition, and says how the tool stands then. What is acknowledged is durable.
    pub async fn approve(&self, wish: PinWish, by: Box<str>) -> Result<Value, PinFault> {
        let PinWish { scope, tool, which, how } = wish;
        let at_ms = self.clock.now_ms();
        let wish = Wish { scope: scope.clone(), tool: tool.clone(), which, how, by, at_ms };
        let approved = self.ask(|store, then| store.approve(wish, then)).await;
        let approved = approved.map_err(PinFault::Store)?.ok_or(PinFault::Unknown)?;
        match scope.of_own() {
            Some((tenant, owner, _)) => self.own_changed(&tenant, &owner),
            None => {
                self.governed.registry().approve(&approved);
                self.governed.rebuild();
            }
        }
        let change = PinChange {
            what: if how == How::Rollback { "rolled_back" } else { "approved" },
            upstream: scope.as_str(),
            tool: &tool,
            pin: Some(approved.digest),
            version: Some(approved.version),
            by: Some(&approved.by),
            classes: ChangeClasses::NONE,
        };
        self.audit.pin_change(&change, self.clock.now_ms());
        // It is approved, whatever else can be said of it at the moment.
        let state = self.listed(&scope, &approved.tool).await.ok().flatten();
        let policies = self.policies(&scope);
        let state = state.map(|(state, _)| told::state(&state, &policies, &self.server_keys));
        Ok(told::approved(&approved, state))
    }

    fn own_changed(&self, tenant: &TenantId, owner: &EmployeeId) {
        if let Some(own) = self.own.get() {
            own.changed(tenant, owner);
        }
    }

    /// The policies that are about these tools.
    fn policies(&self, scope: &Scope) -> Policies {
        let policies = self.governed.policies();
        match scope.of_own() {
            Some((tenant, ..)) => policies.personal(&tenant),
            None => policies,
        }
    }

    async fn kept(&self, scope: &Scope, tool: &Arc<str>) -> Result<History, PinFault> {
        let (scope, tool) = (scope.clone(), tool.clone());
        self.ask(|store, then| store.history(scope, tool, then)).await.map_err(PinFault::Store)
    }

    async fn listed(
        &self,
        scope: &Scope,
        tool: &str,
    ) -> Result<Option<(PinState, Arc<Definition>)>, PinFault> {
        if let Some((tenant, owner, server)) = scope.of_own() {
            let Some(own) = self.own.get() else { return Ok(None) };
            let all = own.pins(&tenant, &owner).await.map_err(PinFault::Store)?;
            let is = |(state, _): &(PinState, _)| state.upstream == server && *state.tool == *tool;
            return Ok(all.into_iter().find(is));
        }
        let name = UpstreamName::parse(scope.as_str()).ok();
        Ok(name.and_then(|name| self.listed_of(&name, tool)))
    }

    fn listed_of(
        &self,
        upstream: &UpstreamName,
        tool: &str,
    ) -> Option<(PinState, Arc<Definition>)> {
        let care = self.governed.care()(upstream, tool);
        self.governed.registry().pin(upstream, tool, care)
    }
}

impl discovery::Pins for Pins {
    fn settle<'a>(
        &'a self,
        upstream: &'a UpstreamName,
        definitions: &'a [Arc<Definition>],
    ) -> BoxFuture<'a, Vec<Kept>> {
        let registry = self.governed.registry();
        let seen = registry.unsettled_of(upstream, definitions, self.governed.care());
        if seen.is_empty() {
            return std::future::ready(Vec::new()).boxed();
        }
        let scope = Scope::upstream(upstream);
        async move { self.keep(&scope, seen).await }.boxed()
    }

    fn changed(&self, upstream: &UpstreamName, change: &Change) {
        let scope = Scope::upstream(upstream);
        for drift in &change.drifted {
            self.metrics.pin_mismatch(upstream.as_str());
            let held = self.listed_of(upstream, &drift.tool).and_then(|(state, _)| state.held);
            tracing::warn!(
                upstream.name = %upstream,
                tool.name = %drift.tool,
                changes = %drift.classes,
                held = held.is_some(),
                "a tool's definition has changed under way"
            );
            let drifted = Some((drift.seen, drift.classes));
            self.note("definition_changed", &scope, &drift.tool, None, drifted);
        }
        for (what, tools) in [("tool_added", &change.added), ("tool_removed", &change.removed)] {
            for tool in tools {
                tracing::info!(upstream.name = %upstream, tool.name = %tool, "{what}");
                self.note(what, &scope, tool, None, None);
            }
        }
    }
}
