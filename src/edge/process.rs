//! The gateway as a process: signals, the hand-over of its sockets, and its end.
//!
//! pingora's `Server` runs it. Its own periods of grace are all switched off: what is waited
//! for, and for how long, is decided by `shutdown.rs`.

use std::{
    collections::HashSet,
    fmt,
    os::unix::{fs::FileTypeExt, net::UnixListener},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::{
    server::{
        ExecutionPhase, Fds, ListenFds, RunArgs, Server, ShutdownSignal, ShutdownSignalWatch,
        ShutdownWatch, configuration::ServerConf,
    },
    services::Service,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, broadcast, watch},
};

use super::{
    listener::{ListenConfig, ListenError, Listener},
    server::Workers,
    shutdown::{Drained, Shutdown},
};

/// How the process begins and ends.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Takes the sockets over from the process that runs already.
    pub upgrade: bool,
    /// Where the sockets are handed over: a Unix socket, made by the new process.
    pub upgrade_socket: PathBuf,
    /// Between the signal and the end of accepting. Default 0 s.
    pub drain_delay: Duration,
    /// For the calls under way then. Default 30 s.
    pub drain_timeout: Duration,
    /// Is told of each SIGHUP. Default nobody.
    pub hangup: Option<Arc<Notify>>,
}

impl HostConfig {
    pub fn new(upgrade_socket: impl Into<PathBuf>) -> Self {
        Self {
            upgrade: false,
            upgrade_socket: upgrade_socket.into(),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            hangup: None,
        }
    }
}

/// Why the process could not run.
#[derive(Debug, thiserror::Error)]
pub enum HostError<E: fmt::Display> {
    #[error("{0}")]
    Start(E),
    #[error("no sockets were handed over at {}: {problem}", socket.display())]
    HandOver { socket: PathBuf, problem: String },
}

/// Where listeners come from: bound anew, or taken over.
pub struct Sockets {
    fds: ListenFds,
    /// Addresses whose socket has an owner in this process.
    owned: HashSet<String>,
}

impl Sockets {
    /// A listener on the configured address; after an upgrade the one that served it before.
    ///
    /// `purpose` tells listeners of one process apart, whose addresses may be the same: with
    /// port 0 each gets a port of its own. It has no spaces, which part the names when they are
    /// handed over.
    pub fn bind(&mut self, purpose: &str, config: &ListenConfig) -> Result<Listener, ListenError> {
        let key = format!("{purpose}@{}", config.address);
        let inherited = self.fds.lock().get(&key).copied();
        let listener = match inherited {
            Some(fd) if !self.owned.contains(&key) => Listener::inherit(fd, config)?,
            _ => Listener::bind(config)?,
        };
        self.fds.lock().add(key.clone(), listener.raw_fd());
        self.owned.insert(key);
        Ok(listener)
    }

    /// Closes what was taken over and is not wanted any more: nobody would accept there.
    fn close_the_rest(&self) {
        self.fds.lock().close_unclaimed(&self.owned);
    }
}

/// Runs the gateway until it is told to stop, and returns when every call has ended or its
/// time was up.
///
/// `start` is called once, with the sockets; the workers it returns are waited for. SIGTERM and
/// SIGINT drain, a second one of them ends at once, SIGQUIT hands the sockets to the process
/// that waits for them and then drains.
pub fn host<F, E>(
    config: HostConfig,
    shutdown: &Shutdown,
    start: F,
) -> Result<Drained, HostError<E>>
where
    F: FnOnce(&mut Sockets) -> Result<Vec<Workers>, E> + Send + 'static,
    E: fmt::Display + Send + 'static,
{
    let state = Arc::new(State {
        config,
        shutdown: shutdown.clone(),
        ended: watch::Sender::new(false),
        failure: Mutex::new(None),
    });
    let conf = ServerConf {
        threads: 1,
        upgrade_sock: state.config.upgrade_socket.to_string_lossy().into_owned(),
        grace_period_seconds: Some(0),
        // The workers are waited for on the service's blocking pool: as long as they may take.
        graceful_shutdown_timeout_seconds: Some(state.config.drain_timeout.as_secs() + 5),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.add_service(Gateway { state: state.clone(), start: Mutex::new(Some(start)) });
    let signals = Signals { state: state.clone(), phases: server.watch_execution_phase().into() };
    server.run(RunArgs { shutdown_signal: Box::new(signals) });
    match state.failure.lock().take() {
        Some(error) => Err(error),
        None => Ok(shutdown.outcome()),
    }
}

struct State<E: fmt::Display> {
    config: HostConfig,
    shutdown: Shutdown,
    /// Nothing is left to serve.
    ended: watch::Sender<bool>,
    failure: Mutex<Option<HostError<E>>>,
}

impl<E: fmt::Display> State<E> {
    /// Drains; another signal means now.
    async fn drain(&self, delay: Duration, mut term: Signal, mut int: Signal) {
        let drain = self.shutdown.drain(delay, self.config.drain_timeout);
        let mut drain = pin!(drain);
        tokio::select! {
            _ = &mut drain => return,
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        tracing::warn!("The gateway stops at once: calls under way are dropped.");
        self.shutdown.abort();
        drain.await;
    }
}

// === the service ===

struct Gateway<F, E: fmt::Display> {
    state: Arc<State<E>>,
    start: Mutex<Option<F>>,
}

#[async_trait]
impl<F, E> Service for Gateway<F, E>
where
    F: FnOnce(&mut Sockets) -> Result<Vec<Workers>, E> + Send + 'static,
    E: fmt::Display + Send + 'static,
{
    async fn start_service(&mut self, fds: Option<ListenFds>, _: ShutdownWatch, _: usize) {
        let (Some(start), Some(fds)) = (self.start.lock().take(), fds) else { return };
        let state = self.state.clone();
        // On the blocking pool: pingora drops everything else when it ends, and waits for this.
        let _ = tokio::task::spawn_blocking(move || {
            let started = hand_over(&state.config, &fds).and_then(|()| {
                let mut sockets = Sockets { fds, owned: HashSet::new() };
                let workers = start(&mut sockets).map_err(HostError::Start)?;
                sockets.close_the_rest();
                Ok(workers)
            });
            match started {
                Ok(workers) => workers.into_iter().for_each(Workers::join),
                Err(error) => *state.failure.lock() = Some(error),
            }
            state.ended.send_replace(true);
        })
        .await;
    }

    fn name(&self) -> &str {
        "gateway"
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }
}

/// Receives the sockets of the process before this one, if there is to be one.
fn hand_over<E: fmt::Display>(config: &HostConfig, fds: &ListenFds) -> Result<(), HostError<E>> {
    if !config.upgrade {
        return Ok(());
    }
    let socket = &config.upgrade_socket;
    let failed = |problem: String| HostError::HandOver { socket: socket.clone(), problem };
    // pingora panics where it cannot make its socket, so one is made and removed beforehand.
    let _ = std::fs::remove_file(socket);
    drop(UnixListener::bind(socket).map_err(|error| failed(error.to_string()))?);
    let mut received = Fds::new();
    received
        .get_from_sock(&*socket.to_string_lossy())
        .map_err(|_| failed("the old process sent none; was it sent SIGQUIT?".to_owned()))?;
    *fds.lock() = received;
    Ok(())
}

// === the signals ===

struct Signals<E: fmt::Display> {
    state: Arc<State<E>>,
    phases: Mutex<broadcast::Receiver<ExecutionPhase>>,
}

#[async_trait]
impl<E: fmt::Display + Send + 'static> ShutdownSignalWatch for Signals<E> {
    async fn recv(&self) -> ShutdownSignal {
        let state = &self.state;
        let mut ended = state.ended.subscribe();
        let (Ok(mut term), Ok(mut int), Ok(mut quit), Ok(mut hangup)) = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
            signal(SignalKind::quit()),
            signal(SignalKind::hangup()),
        ) else {
            tracing::error!("Signals cannot be received: the gateway stops.");
            state.shutdown.abort();
            return ShutdownSignal::FastShutdown;
        };
        loop {
            tokio::select! {
                _ = ended.wait_for(|ended| *ended) => return ShutdownSignal::FastShutdown,
                _ = term.recv() => break,
                _ = int.recv() => break,
                // By default it would end the process, and whoever sends it wants anything but.
                _ = hangup.recv() => match &state.config.hangup {
                    Some(told) => told.notify_one(),
                    None => tracing::warn!("SIGHUP: nothing here could be loaded anew."),
                },
                _ = quit.recv() => {
                    if someone_waits(&state.config.upgrade_socket) {
                        tracing::info!("The sockets go to the next process; this one drains.");
                        self.drain_after_hand_over(term, int);
                        return ShutdownSignal::GracefulUpgrade;
                    }
                    tracing::error!(
                        socket = %state.config.upgrade_socket.display(),
                        "SIGQUIT hands the sockets over, but no new process waits for them: \
                         nothing changes."
                    );
                }
            }
        }
        tracing::info!("The gateway stops: calls under way are finished.");
        state.drain(state.config.drain_delay, term, int).await;
        ShutdownSignal::FastShutdown
    }
}

impl<E: fmt::Display + Send + 'static> Signals<E> {
    /// pingora sends the sockets and gives the next process a few seconds. Then it is ready, so
    /// the drain needs no delay.
    fn drain_after_hand_over(&self, term: Signal, int: Signal) {
        let (state, mut phases) = (self.state.clone(), self.phases.lock().resubscribe());
        #[allow(clippy::disallowed_methods, reason = "pingora keeps this runtime to its end")]
        tokio::spawn(async move {
            while !matches!(phases.recv().await, Ok(ExecutionPhase::ShutdownStarted) | Err(_)) {}
            state.shutdown.hand_over();
            state.drain(Duration::ZERO, term, int).await;
        });
    }
}

/// Whether a new process waits at its socket. Without one pingora would end all the same, and
/// nobody would serve.
fn someone_waits(socket: &Path) -> bool {
    const ACCEPTS: &str = "00010000";
    if !std::fs::metadata(socket).is_ok_and(|found| found.file_type().is_socket()) {
        return false;
    }
    // The file may be left over from a process that died while it waited. Connecting would be
    // taken for the hand-over, so the kernel's table is asked instead.
    let Ok(table) = std::fs::read_to_string("/proc/net/unix") else { return true };
    table.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (flags, path) = (fields.nth(3), fields.next_back());
        flags == Some(ACCEPTS) && path == socket.to_str()
    })
}
