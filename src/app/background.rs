//! What goes on beside the calls: listings, health, sweeping, the admin listener.
//!
//! All of it runs on one thread of its own, so that it never takes a core from a call.

use std::{io, net::TcpListener, sync::Arc, thread, time::Duration};

use tokio::sync::{Notify, watch};

use super::{
    certificates::Certificates,
    jwks::Fetcher,
    keys,
    personal::{Asker, Means, PersonalServers},
    pins::Pins,
    probes::health,
    webhook::Courier,
};
use crate::{
    admin::{self, AdminState},
    discovery::{Limits, OnChange, Watcher},
    edge::{Phase, Shutdown},
    model::exchange::Closing,
    registry::Registry,
    stack::{Engines, notices, session},
    upstream::{Transport, Upstreams},
};

/// Between two sweeps of what has expired.
const SWEEP: Duration = Duration::from_secs(30);
/// Between two attempts to save what a store did not take.
const SAVE: Duration = Duration::from_secs(5);
/// Between two looks at quotas: what is held and not needed, and what others have spent.
const QUOTAS: Duration = Duration::from_secs(1);
/// Between two looks at what the metrics tell of the upstreams.
const GAUGES: Duration = Duration::from_secs(5);

pub(super) struct Background {
    pub transport: Transport,
    pub registry: Arc<Registry>,
    pub on_change: OnChange,
    pub pins: Arc<Pins>,
    pub closing: Arc<dyn Closing>,
    /// Between two listings, upstream by upstream.
    pub polls: Vec<Duration>,
    pub certificates: Certificates,
    /// What an upstream may list, and what a server of an employee's may.
    pub listings: (Limits, Limits),
    /// Of issuers' keys.
    pub fetchers: Vec<Fetcher>,
    /// Of notices to the webhook.
    pub courier: Option<Courier>,
    /// Employees' own servers, and who asks them.
    pub personal: Option<(PersonalServers, Asker)>,
    /// `None`: there is none.
    pub keyring: Option<keys::Watch>,
    /// How long a request for approval stays after its time is over.
    pub keep_approvals: Duration,
    pub drain: Drain,
}

/// A drain that an operator may ask for.
#[derive(Clone)]
pub(super) struct Drain {
    pub asked: Arc<Notify>,
    pub delay: Duration,
    pub timeout: Duration,
}

/// The running thread.
pub(super) struct Control {
    stop: watch::Sender<bool>,
    thread: thread::JoinHandle<()>,
    keyring: Option<keys::Watching>,
}

impl Control {
    pub fn stop(self) {
        if let Some(keyring) = self.keyring {
            keyring.stop();
        }
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the control thread ended in a panic");
        }
    }
}

impl Background {
    pub fn start(
        mut self,
        admin: TcpListener,
        state: Arc<AdminState>,
        shutdown: Shutdown,
        engines: Engines,
    ) -> io::Result<Control> {
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        admin.set_nonblocking(true)?;
        let keyring = self.keyring.take().map(|keyring| keyring.start(engines.clone()));
        let keyring = keyring.transpose()?;
        let run = move || {
            runtime.block_on(async move {
                let mut tasks = tokio::task::JoinSet::new();
                let mut couriers = tokio::task::JoinSet::new();
                if let Some(courier) = self.courier.take() {
                    couriers.spawn(courier.run(shutdown.clone(), stopped.clone()));
                }
                let (drain, draining) = (self.drain.clone(), shutdown.clone());
                tasks.spawn(async move {
                    drain.asked.notified().await;
                    draining.drain(drain.delay, drain.timeout).await;
                });
                self.spawn(&mut tasks, &engines);
                let (closing, notices) = (shutdown.clone(), engines.notices.clone());
                tasks.spawn(async move {
                    // Whoever listens is told in good order that it is over, and goes elsewhere.
                    closing.reached(Phase::Closing).await;
                    notices.close();
                });
                let ended = |mut stopped: watch::Receiver<bool>| async move {
                    // An error is the same word: whoever could stop it is gone.
                    let _ = stopped.wait_for(|stop| *stop).await;
                };
                // Whoever asks after a hand-over means the process that took over.
                let stop = ended(stopped.clone());
                let until = async {
                    tokio::select! {
                        () = stop => {}
                        () = shutdown.handed_over() => {}
                    }
                };
                match tokio::net::TcpListener::from_std(admin) {
                    Ok(listener) => admin::serve(listener, state, until).await,
                    Err(error) => {
                        tracing::error!(%error, "the admin listener cannot be served");
                    }
                }
                // Calls under way may still need what goes on beside them.
                ended(stopped).await;
                tasks.shutdown().await;
                // Each ends by itself, within the time to drain.
                while couriers.join_next().await.is_some() {}
            });
        };
        let thread = thread::Builder::new().name("hangu-control".into()).spawn(run)?;
        Ok(Control { stop, thread, keyring })
    }

    fn spawn(self, tasks: &mut tokio::task::JoinSet<()>, engines: &Engines) {
        // Its own connections: those of the cores belong to the cores.
        let terminal = Upstreams::new(self.transport.clone());
        let lower = crate::stack::lower(engines, terminal.clone());
        for (upstream, interval) in engines.upstreams.iter().zip(self.polls) {
            if let Some(cluster) = upstream.reach.cluster() {
                tasks.spawn(cluster.clone().watch());
            }
            let watcher = Watcher {
                upstream: upstream.clone(),
                registry: self.registry.clone(),
                sessions: engines.sessions.clone(),
                service: lower.clone(),
                interval,
                limits: self.listings.0,
                on_change: self.on_change.clone(),
                pins: Some(self.pins.clone()),
                closing: self.closing.clone(),
                caller: None,
                clock: engines.clock.clone(),
            };
            tasks.spawn(watcher.run());
        }
        if let Some((own, asker)) = self.personal {
            let means = Means {
                limits: self.listings.1,
                sessions: engines.sessions.clone(),
                service: lower.clone(),
                closing: self.closing.clone(),
            };
            tasks.spawn(asker.run(means));
            tasks.spawn(own.follow());
        }
        tasks.spawn(self.pins.clone().follow());
        for fetcher in self.fetchers {
            tasks.spawn(fetcher.run(terminal.clone(), engines.clock.clone()));
        }
        let credential = crate::stack::credential::CredentialLayer::new(engines.vault.clone());
        let below = tower::Layer::layer(&credential, terminal);
        tasks.spawn(session::close_idle(engines.sessions.clone(), below));
        tasks.spawn(engines.notices.clone().follow());
        tasks.spawn(notices::drive(
            engines.notices.feeds.clone(),
            notices::Grounds {
                worlds: engines.worlds.clone(),
                personal: engines.personal.clone(),
                vault: engines.vault.clone(),
            },
            lower,
            self.closing.clone(),
        ));
        let swept = engines.clone();
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                swept.worlds.current().limiter.sweep();
                swept.worlds.current().quotas.ledger().sweep_store();
                swept.replays.sweep();
                swept.client_sessions.sweep(swept.clock.now_ms());
                swept.client_states.sweep(swept.clock.now_ms());
                swept.streams.sweep();
            }
        });
        let approvals = engines.approvals.clone();
        let keep_ms = u64::try_from(self.keep_approvals.as_millis()).unwrap_or(u64::MAX);
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                // A store that is away is told of by whoever needs it, and swept when it is back.
                let _ = approvals.sweep(keep_ms).await;
            }
        });
        let saved = engines.replays.clone();
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(SAVE).await;
                saved.retry();
            }
        });
        let counted = engines.clone();
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(QUOTAS).await;
                let spent = counted.worlds.current().quotas.ledger().tick();
                let spent = spent.iter().map(|s| (&*s.quota, &*s.tenant, s.share));
                counted.telemetry.metrics().quota_utilization(spent);
            }
        });
        let (gauged, registry) = (engines.clone(), self.registry.clone());
        tasks.spawn(async move {
            loop {
                gauges(&gauged, &registry);
                tokio::time::sleep(GAUGES).await;
            }
        });
        tasks.spawn(self.certificates.follow());
    }
}

fn gauges(engines: &Engines, registry: &Registry) {
    let metrics = engines.telemetry.metrics();
    let world = engines.worlds.current();
    for upstream in engines.upstreams.iter() {
        let name = upstream.name.as_str();
        metrics.upstream_up(name, health(upstream, &world, registry).0);
        let tools =
            world.catalog.tools().iter().filter(|tool| tool.upstream == upstream.name).count();
        metrics.catalog_tools(name, tools);
    }
    metrics.policy_revision(world.rules.revision().clone());
}
