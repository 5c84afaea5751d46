//! What the admin listener's probes are answered from.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::news::Freshness;
use crate::{
    admin::{Check, Probes, Stale, UpstreamHealth},
    audit::Audit,
    edge::{Phase, Shutdown},
    registry::{Listing, Registry},
    stack::stage::{Upstream, Upstreams, World, Worlds},
    store::Health,
    upstream::BreakerState,
};

/// The state of the gateway as far as probes ask for it.
pub(super) struct State {
    pub started: AtomicBool,
    pub worlds: Arc<Worlds>,
    pub freshness: Arc<Freshness>,
    pub upstreams: Upstreams,
    pub registry: Arc<Registry>,
    pub audit: Arc<Audit>,
    /// `None`: in memory.
    pub store: Option<Arc<Health>>,
    pub shutdown: Shutdown,
}

impl State {
    fn store_state(&self) -> String {
        match &self.store {
            None => "memory".to_owned(),
            Some(health) if health.is_available() => health.kind().to_owned(),
            Some(health) => format!("{}, failing", health.kind()),
        }
    }

    pub fn started(&self) {
        self.started.store(true, Ordering::Relaxed);
    }
}

impl Probes for State {
    fn started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    fn checks(&self) -> Vec<Check> {
        let check = |name, ok, good: &'static str, bad: &'static str| Check {
            name,
            ok,
            state: if ok { good } else { bad }.into(),
            stale: None,
        };
        let running = self.shutdown.phase() == Phase::Running;
        let revision = self.worlds.current().rules.revision().to_string();
        vec![
            check("config", true, "loaded", ""),
            // What is in force serves as well as before: stale is no reason to be sent nothing.
            match self.freshness.stale() {
                None => Check {
                    name: "policy",
                    ok: true,
                    state: format!("revision {revision}").into(),
                    stale: None,
                },
                Some((since, faults)) => Check {
                    name: "policy",
                    ok: true,
                    state: "stale".into(),
                    stale: Some(Stale { since, faults, revision }),
                },
            },
            check("audit", self.audit.is_writable(), "writable", "failing"),
            // Without it calls without a key go on.
            Check { name: "store", ok: true, state: self.store_state().into(), stale: None },
            check("accepting", running, "accepting", "draining"),
        ]
    }

    fn upstreams(&self) -> Vec<UpstreamHealth> {
        let world = self.worlds.current();
        self.upstreams
            .iter()
            .map(|upstream| {
                let (up, state) = health(upstream, &world, &self.registry);
                UpstreamHealth { name: upstream.name.to_string(), up, state: state.into() }
            })
            .collect()
    }
}

/// Whether an upstream serves, and in what state it is.
pub(super) fn health(upstream: &Upstream, world: &World, registry: &Registry) -> (bool, String) {
    let connected = upstream.reach.healthy();
    let breaker = upstream.breaker.state();
    let looks = registry.known(&upstream.name).map(|(_, looks)| looks).unwrap_or_default();
    match (world.catalog.listing(&upstream.name), looks.failed) {
        _ if !connected && upstream.reach.is_pipe() => {
            (false, "its process does not run".to_owned())
        }
        _ if !connected => (false, "takes no connections".to_owned()),
        _ if breaker == BreakerState::Open => {
            (false, "keeps failing: not called for now".to_owned())
        }
        _ if breaker == BreakerState::HalfOpen => {
            (false, "has failed: the next call is tried".to_owned())
        }
        // What it listed before is published; whether its calls succeed, nobody knows.
        (Some(Listing::Listed), Some((at, why))) if looks.listed_ms.is_some_and(|ms| ms < at) => {
            (false, format!("listed before, and not the last time: {why}"))
        }
        (Some(Listing::Listed), _) => {
            let era = upstream.era().map_or("era unknown", |era| era.as_str());
            (true, format!("listed, {era}"))
        }
        (Some(Listing::Never(why)), _) => (false, format!("never listed: {why}")),
        (Some(Listing::Pending) | None, _) => (false, "being listed".to_owned()),
    }
}
