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
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use serde_json::Value;
use tokio::{sync::oneshot, time::Instant};

use super::world::Governed;
use crate::{
    audit::{Audit, PinChange},
    clock::Clock,
    config, discovery,
    model::{change::ChangeClasses, server::UpstreamName},
    registry::{
        Change, Definition, PinFault, PinPair, PinWish,
        store::{Approved, Bounds, How, Kept, PinStore, SOME, Scope, Seen, StoreFault, Then, Wish},
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
    async fn keep(&self, upstream: &UpstreamName, mut seen: Vec<Seen>) -> Vec<Kept> {
        let scope = Scope::upstream(upstream);
        let (versions, tools) = (self.settings.versions, self.settings.max_tools);
        let bounds = Bounds { versions, tools };
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
                        upstream.name = %upstream,
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
                self.note("first_use", upstream, &kept.tool, Some(kept), None);
            }
            all.extend(kept);
        }
        let refused = all.iter().filter(|kept| kept.version.is_none()).count();
        if refused > 0 {
            tracing::error!(
                upstream.name = %upstream,
                "{refused} tools are held: of more than {tools} tools of an upstream no \
                 definitions are kept (`pins.max_tools`), those included that it listed before"
            );
        }
        all
    }

    fn note(
        &self,
        what: &'static str,
        upstream: &UpstreamName,
        tool: &str,
        kept: Option<&Kept>,
        drift: Option<([u8; 32], ChangeClasses)>,
    ) {
        let change = PinChange {
            what,
            upstream: upstream.as_str(),
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
                    let kept = self.keep(&upstream, seen).await;
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
                if self.governed.registry().approve(approved) {
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

    pub async fn history(&self, upstream: UpstreamName, tool: Arc<str>) -> Result<Value, PinFault> {
        let history = self.kept(&upstream, &tool).await?;
        if history.versions.is_empty() {
            return Err(PinFault::Unknown);
        }
        let listed = self.listed(&upstream, &tool).map(|(_, definition)| definition.digest);
        Ok(told::history(&upstream, &tool, &history, listed))
    }

    pub async fn diff(&self, pair: PinPair) -> Result<Value, PinFault> {
        let history = self.kept(&pair.upstream, &pair.tool).await?;
        let listed = self.listed(&pair.upstream, &pair.tool).map(|(_, definition)| definition);
        told::diff(&pair, &history, listed, &self.governed.policies())
    }

    /// Approves a definition, and says how the tool stands then. What is acknowledged is durable.
    pub async fn approve(&self, wish: PinWish, by: Box<str>) -> Result<Value, PinFault> {
        let PinWish { upstream, tool, which, how } = wish;
        let (scope, at_ms) = (Scope::upstream(&upstream), self.clock.now_ms());
        let wish = Wish { scope, tool: tool.clone(), which, how, by, at_ms };
        let approved = self.ask(|store, then| store.approve(wish, then)).await;
        let approved = approved.map_err(PinFault::Store)?.ok_or(PinFault::Unknown)?;
        self.governed.registry().approve(&approved);
        self.governed.rebuild();
        let change = PinChange {
            what: if how == How::Rollback { "rolled_back" } else { "approved" },
            upstream: upstream.as_str(),
            tool: &tool,
            pin: Some(approved.digest),
            version: Some(approved.version),
            by: Some(&approved.by),
            classes: ChangeClasses::NONE,
        };
        self.audit.pin_change(&change, self.clock.now_ms());
        Ok(self.told(&upstream, &approved))
    }

    fn told(&self, upstream: &UpstreamName, approved: &Approved) -> Value {
        let state = self.listed(upstream, &approved.tool).map(|(state, _)| state);
        let state = state.map(|it| told::state(&it, &self.governed.policies(), &self.server_keys));
        told::approved(approved, state)
    }

    async fn kept(
        &self,
        upstream: &UpstreamName,
        tool: &Arc<str>,
    ) -> Result<crate::registry::store::History, PinFault> {
        let (scope, tool) = (Scope::upstream(upstream), tool.clone());
        self.ask(|store, then| store.history(scope, tool, then)).await.map_err(PinFault::Store)
    }

    fn listed(
        &self,
        upstream: &UpstreamName,
        tool: &str,
    ) -> Option<(crate::registry::PinState, Arc<Definition>)> {
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
        self.keep(upstream, seen).boxed()
    }

    fn changed(&self, upstream: &UpstreamName, change: &Change) {
        for drift in &change.drifted {
            self.metrics.pin_mismatch(upstream.as_str());
            let held = self.listed(upstream, &drift.tool).and_then(|(state, _)| state.held);
            tracing::warn!(
                upstream.name = %upstream,
                tool.name = %drift.tool,
                changes = %drift.classes,
                held = held.is_some(),
                "a tool's definition has changed under way"
            );
            let drifted = Some((drift.seen, drift.classes));
            self.note("definition_changed", upstream, &drift.tool, None, drifted);
        }
        for (what, tools) in [("tool_added", &change.added), ("tool_removed", &change.removed)] {
            for tool in tools {
                tracing::info!(upstream.name = %upstream, tool.name = %tool, "{what}");
                self.note(what, upstream, tool, None, None);
            }
        }
    }
}
