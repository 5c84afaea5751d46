//! Config → engines, stack, listeners; runs them, drains them.
//!
//! The only place that knows every part. It decides nothing about a call.

mod admin;
mod background;
mod build;
mod certificates;
mod credentials;
mod entrance;
pub mod faces;
mod front;
mod inventory;
mod jwks;
mod kept;
mod keyring;
mod keys;
mod limits;
mod metadata;
mod news;
mod oauth;
mod personal;
mod pins;
mod probes;
mod reach;
mod reload;
mod start_error;
mod stored;
mod webhook;
mod world;

use std::{
    io,
    sync::{Arc, OnceLock},
};

use crate::{
    admin::{AdminState, Build},
    channel::Channels,
    config::Config,
    credential::oauth::Identity,
    edge::{self, Drained, HostConfig, HostError, ListenConfig, ListenError, Listener, Shutdown},
    policy::Policies,
    stack::{Engines, trace::TraceLayer},
    store::Store,
    upstream::{Resolve, SystemResolver, Transport},
};

pub use kept::Kept;
pub use reload::PolicySource;
pub use start_error::StartError;

/// A gateway that is put together and not yet running.
pub struct App {
    config: Config,
    engines: Engines,
    transport: Transport,
    channels: Arc<Channels>,
    trace: TraceLayer,
    background: background::Background,
    governed: Arc<world::Governed>,
    reload: Option<reload::Reloader>,
    admin: Arc<AdminState>,
    probes: Arc<probes::State>,
    bell: Arc<news::Bell>,
    /// Is given the figures of the listener once there is one.
    stats: Arc<OnceLock<Arc<edge::Stats>>>,
    shutdown: Shutdown,
    certificates: certificates::Certificates,
    store: Option<Store>,
    /// The gateway's own keys, where there is a keyring.
    identity: Option<Arc<Identity>>,
    pages: Arc<oauth::Pages>,
}

/// What a start leaves to whoever starts.
#[derive(Debug, Clone)]
pub struct Options {
    /// This process among its replicas.
    pub instance: String,
    /// Where the configuration names no keyring: replicas with the same secret open each other's
    /// sessions and agree on keyed digests; without one this process makes up its own.
    pub secret: Option<[u8; 32]>,
    /// What names of servers stand for.
    pub resolver: Arc<dyn Resolve>,
}

impl Default for Options {
    fn default() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        let host = if host.is_empty() { "hangu" } else { host };
        Self {
            instance: format!("{host}-{}", std::process::id()),
            secret: None,
            resolver: Arc::new(SystemResolver),
        }
    }
}

/// A gateway that serves until it is stopped.
pub struct Running {
    workers: edge::Workers,
    admin: std::net::SocketAddr,
    control: background::Control,
    reload: Option<reload::Running>,
    channels: Arc<Channels>,
    shutdown: Shutdown,
    engines: Engines,
    store: Option<Store>,
}

impl App {
    /// Puts a gateway together.
    ///
    /// # Errors
    /// Whatever of the configuration cannot be carried out on this machine.
    pub fn new(config: Config, policies: Policies, options: &Options) -> Result<Self, StartError> {
        build::app(config, policies, options)
    }

    /// The engines, for programs that compose a stack of their own.
    pub fn engines(&self) -> &Engines {
        &self.engines
    }

    /// Also watches the policy files that it was started with, and applies what becomes of them.
    #[must_use]
    pub fn reloading(self, source: PolicySource) -> Self {
        let reload = reload::Reloader {
            source,
            kept: Kept::beside(&self.config.audit.file),
            governed: self.governed.clone(),
            freshness: self.probes.freshness.clone(),
            bell: self.bell.clone(),
            audit: self.engines.audit.clone(),
            telemetry: self.engines.telemetry.clone(),
            clock: self.engines.clock.clone(),
            certificates: self.certificates.clone(),
            rejected: None,
        };
        Self { reload: Some(reload), ..self }
    }

    /// Binds the configured addresses and serves, without touching the process's signals.
    pub fn start(self) -> Result<Running, StartError> {
        let listen = self.listen();
        let listener = Listener::bind(&listen).map_err(StartError::Listen)?;
        let admin = Listener::bind(&self.listen_admin()).map_err(StartError::Admin)?;
        self.serve(listener, admin)
    }

    fn listen(&self) -> ListenConfig {
        ListenConfig {
            tls: self.certificates.listener().cloned(),
            ..ListenConfig::new(self.config.listen)
        }
    }

    fn listen_admin(&self) -> ListenConfig {
        ListenConfig::new(self.config.admin.listen)
    }

    fn serve(self, listener: Listener, admin: Listener) -> Result<Running, StartError> {
        let admin_address = admin.address();
        let router = Arc::new(edge::Router::new(
            self.config.upstreams.iter().map(|upstream| upstream.name.clone()),
        ));
        let front = front::Factory {
            engines: self.engines.clone(),
            transport: self.transport.clone(),
            trace: self.trace.clone(),
            guard: entrance::guard(&self.config, listener.is_loopback()),
            metadata: metadata::Metadata {
                issuers: self.engines.issuers.clone(),
                challenges: self.engines.challenges.clone(),
                router: router.clone(),
                identity: self.identity.clone(),
            },
            router,
            pages: self.pages.clone(),
        };
        let server = entrance::server(&self.config)?;
        let workers = self.config.workers.map_or(0, std::num::NonZeroUsize::get);
        let workers =
            edge::serve(listener, server, workers, &self.shutdown, move |_| front.build())
                .map_err(StartError::Runtime)?;
        let control = self
            .background
            .start(admin.into_std(), self.admin, self.shutdown.clone(), self.engines.clone())
            .map_err(StartError::Runtime)?;
        let _ = self.stats.set(workers.stats().clone());
        let reload = self.reload.map(reload::Reloader::start);
        let reload = reload.transpose().map_err(StartError::Runtime)?;
        self.probes.started();
        Ok(Running {
            workers,
            admin: admin_address,
            control,
            reload,
            channels: self.channels,
            shutdown: self.shutdown,
            engines: self.engines,
            store: self.store,
        })
    }

    /// Runs as the process's main business: signals drain it, an upgrade takes its socket over.
    ///
    /// `ready` is called once it serves.
    pub fn host(
        self,
        upgrade: bool,
        ready: impl FnOnce(std::net::SocketAddr, std::net::SocketAddr) + Send + 'static,
    ) -> Result<Drained, HostError<StartError>> {
        let socket =
            std::env::temp_dir().join(format!("hangu-upgrade-{}.sock", self.config.listen.port()));
        let hangup = self.reload.is_some().then(|| self.bell.hangup.clone());
        let host = HostConfig {
            upgrade,
            drain_delay: self.config.drain.delay,
            drain_timeout: self.config.drain.timeout,
            hangup,
            ..HostConfig::new(socket)
        };
        let shutdown = self.shutdown.clone();
        let (listen, listen_admin) = (self.listen(), self.listen_admin());
        let (handed, running) = std::sync::mpsc::channel();
        let drained = edge::host(host, &shutdown, move |sockets| {
            let listener = sockets.bind("listen", &listen).map_err(StartError::Listen)?;
            let admin = sockets.bind("admin", &listen_admin).map_err(StartError::Admin)?;
            let running = self.serve(listener, admin)?;
            ready(running.workers.address(), running.admin);
            let Running { workers, control, reload, channels, engines, store, .. } = running;
            // The other side waits for nothing else: it cannot be gone.
            let _ = handed.send((control, reload, channels, engines, store));
            Ok(vec![workers])
        })?;
        if let Ok((control, reload, channels, engines, store)) = running.recv() {
            finish(control, reload, &channels, &engines, store);
        }
        Ok(drained)
    }
}

impl Running {
    /// Where clients are served.
    pub fn address(&self) -> std::net::SocketAddr {
        self.workers.address()
    }

    /// Where probes and metrics are.
    pub fn admin_address(&self) -> std::net::SocketAddr {
        self.admin
    }

    pub fn engines(&self) -> &Engines {
        &self.engines
    }

    /// Drains and stops; blocks until every call has ended or `timeout` is over.
    pub fn stop(self, timeout: std::time::Duration) {
        let shutdown = self.shutdown.clone();
        // A runtime for one future: whoever stops the gateway may be on none, or on one that
        // must not be blocked.
        let drain = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(shutdown.drain(std::time::Duration::ZERO, timeout));
            }
        });
        self.workers.join();
        // It ends when the workers have.
        let _ = drain.join();
        finish(self.control, self.reload, &self.channels, &self.engines, self.store);
    }
}

/// The end after the last call: servers that are processes end, store and log are closed, what is
/// known of traces goes out.
fn finish(
    control: background::Control,
    reload: Option<reload::Running>,
    channels: &Channels,
    engines: &Engines,
    store: Option<Store>,
) {
    if let Some(reload) = reload {
        reload.stop();
    }
    control.stop();
    channels.stop();
    // What is held of quotas and not spent is there for the others.
    engines.worlds.current().quotas.ledger().close();
    if let Some(store) = store {
        store.close();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let Ok(runtime) = runtime
        && let Err(error) = runtime.block_on(engines.audit.stop())
    {
        tracing::error!(%error, "the audit log could not be completed");
    }
    engines.telemetry.shutdown(std::time::Duration::from_secs(5));
}

/// The version and the commit it was built from.
fn build_info(instance: &str) -> Build {
    Build { commit: option_env!("HANGU_COMMIT"), instance: instance.to_owned() }
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        StartError::Listen(error)
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        StartError::Runtime(error)
    }
}
