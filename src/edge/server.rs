//! The workers: one thread, one runtime and one stack for each core, on one shared socket.
//!
//! Whoever accepts a connection gives it to the core that has the fewest; from then on it never
//! leaves that core.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, error::SendError},
    },
    time::timeout,
};
use tower::Service;

use super::{
    client_addr::TrustedProxies,
    connection::Closing,
    greeting::{Given, Greeter, Open},
    listener::Listener,
    shutdown::{Awaited, Phase, Shutdown},
    tls::Tls,
};
use crate::body::BoxError;

/// What clients may take of the gateway's time and memory.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// From the first byte of a request to the end of its head, and from the connection to the
    /// first request; TLS handshakes too. Default 10 s.
    pub header_timeout: Duration,
    /// How long a connection is kept without a request, at least. Default 75 s.
    pub idle_timeout: Duration,
    /// All cores together. At the cap nothing is accepted until a connection ends. Default
    /// 10,000.
    pub max_connections: usize,
    /// The head of a request, in bytes. Default 64 KiB.
    pub max_header_bytes: usize,
    /// Calls at a time on one HTTP/2 connection. Default 128.
    pub max_streams: u32,
    /// Peers whose `X-Forwarded-For` is believed. Default: nobody's.
    pub trusted_proxies: TrustedProxies,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            max_connections: 10_000,
            max_header_bytes: 64 * 1024,
            max_streams: 128,
            trusted_proxies: TrustedProxies::default(),
        }
    }
}

/// Counts of one listener, for the metrics.
#[derive(Debug, Default)]
pub struct Stats {
    open: AtomicUsize,
    accepted: AtomicU64,
    full: AtomicU64,
    refused: AtomicU64,
}

impl Stats {
    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Connections that were accepted since the start.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// How often the next connection had to wait because the cap was reached.
    pub fn full(&self) -> u64 {
        self.full.load(Relaxed)
    }

    /// Connections that ended before they spoke HTTP: no TLS, or nothing in time.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
}

/// The core that a stack is built for, on its own runtime.
#[derive(Debug, Clone)]
pub struct Core {
    pub index: usize,
    hold: mpsc::Sender<()>,
}

/// Keeps a core's runtime alive while the gateway drains.
#[derive(Debug, Clone)]
pub struct Hold(#[expect(dead_code, reason = "its existence is what counts")] mpsc::Sender<()>);

impl Core {
    /// For work that goes on after its client has left: a drain waits for it as for a call.
    pub fn hold(&self) -> Hold {
        Hold(self.hold.clone())
    }
}

/// The running workers of one listener.
#[derive(Debug)]
pub struct Workers {
    address: SocketAddr,
    stats: Arc<Stats>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Workers {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Blocks until every worker has ended. One that panicked has ended too, and has said so.
    pub fn join(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Serves `listener` with `workers` cores (0: as many as there are) until `shutdown` says
/// otherwise. `factory` builds the stack of each core, on that core.
pub fn serve<F, S, B>(
    listener: Listener,
    config: ServerConfig,
    workers: usize,
    shutdown: &Shutdown,
    factory: F,
) -> io::Result<Workers>
where
    F: Fn(&Core) -> S + Send + Sync + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let workers = match workers {
        0 => thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let (address, stats) = (listener.address(), Arc::<Stats>::default());
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
    let shared = Arc::new(Shared {
        slots: Arc::new(Semaphore::new(config.max_connections.min(Semaphore::MAX_PERMITS))),
        loads: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
        senders,
        stats: stats.clone(),
        proxies: Arc::new(config.trusted_proxies.clone()),
        tls: listener.tls().cloned(),
        config,
        listener: Mutex::new(None),
    });
    let factory = Arc::new(factory);
    let mut cores = Vec::with_capacity(workers);
    for (index, given) in receivers.into_iter().enumerate() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let socket = {
            let _context = runtime.enter();
            listener.share()?
        };
        let worker = Worker {
            index,
            shared: shared.clone(),
            shutdown: shutdown.clone(),
            awaited: shutdown.wait_for_me(),
        };
        let factory = factory.clone();
        cores.push(move || {
            let _alarm = Alarm(worker.shutdown.clone());
            runtime.block_on(worker.run(socket, given, &*factory));
            runtime.shutdown_timeout(BLOCKING);
        });
    }
    *shared.listener.lock() = Some(listener);
    let mut threads = Vec::with_capacity(workers);
    for (index, core) in cores.into_iter().enumerate() {
        threads.push(thread::Builder::new().name(format!("core-{index}")).spawn(core)?);
    }
    Ok(Workers { address, stats, threads })
}

/// How long a core that has ended waits for what it has on its blocking pool.
const BLOCKING: Duration = Duration::from_secs(1);

/// A gateway that has lost a core would serve on, at half its size and with half its
/// connections hanging. It ends instead, and is started anew.
struct Alarm(Shutdown);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("A core has ended in a panic: the gateway stops.");
            self.0.abort();
        }
    }
}

/// What the workers of one listener have in common. Touched once for each connection, never by
/// a call.
pub(super) struct Shared {
    pub config: ServerConfig,
    pub tls: Option<Tls>,
    pub proxies: Arc<TrustedProxies>,
    pub stats: Arc<Stats>,
    /// Until the gateway closes: for the process that takes it over.
    listener: Mutex<Option<Listener>>,
    slots: Arc<Semaphore>,
    /// Connections of each core.
    loads: Box<[AtomicUsize]>,
    senders: Vec<mpsc::UnboundedSender<Given>>,
}

/// A connection's place under the cap and on its core.
pub(super) struct Seat {
    shared: Arc<Shared>,
    core: usize,
    _slot: OwnedSemaphorePermit,
}

struct Worker {
    index: usize,
    shared: Arc<Shared>,
    shutdown: Shutdown,
    awaited: Awaited,
}

// === impl Shared ===

impl Shared {
    /// Waits for a place under the cap.
    async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return Some(slot);
        }
        if self.stats.full.fetch_add(1, Relaxed) == 0 {
            tracing::warn!(
                connections = self.config.max_connections,
                "The cap on connections is reached: new ones wait until one ends."
            );
        }
        // The semaphore is never closed.
        self.slots.clone().acquire_owned().await.ok()
    }

    /// Seats a connection on the core that has the fewest; `own` wins a draw.
    fn seat(self: &Arc<Self>, own: usize, slot: OwnedSemaphorePermit) -> Seat {
        let load = |core: usize| self.loads.get(core).map_or(usize::MAX, |load| load.load(Relaxed));
        let least = (0..self.loads.len()).min_by_key(|core| load(*core)).unwrap_or(own);
        let core = if load(least) < load(own) { least } else { own };
        if let Some(load) = self.loads.get(core) {
            load.fetch_add(1, Relaxed);
        }
        self.stats.open.fetch_add(1, Relaxed);
        self.stats.accepted.fetch_add(1, Relaxed);
        Seat { shared: self.clone(), core, _slot: slot }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.stats.open.fetch_sub(1, Relaxed);
        if let Some(load) = self.shared.loads.get(self.core) {
            load.fetch_sub(1, Relaxed);
        }
    }
}

// === impl Worker ===

impl Worker {
    async fn run<F, S, B>(
        self,
        socket: TcpListener,
        mut given: mpsc::UnboundedReceiver<Given>,
        factory: &F,
    ) where
        F: Fn(&Core) -> S,
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (hold, mut held) = mpsc::channel(1);
        let core = Core { index: self.index, hold };
        let stack = factory(&core);
        let closing = Arc::<Closing>::default();
        let greeter = Greeter::new(&self.shared, closing.clone(), stack, core.hold());
        drop(core);
        tokio::select! {
            () = self.shutdown.reached(Phase::Closing) => {}
            () = self.accept(&socket, &greeter) => {}
            () = take(&mut given, &greeter) => {}
        }
        // What the kernel has taken on already is not turned away.
        closing.begin();
        while let Ok(Ok((stream, peer))) = timeout(Duration::ZERO, socket.accept()).await {
            if let Ok(slot) = self.shared.slots.clone().try_acquire_owned() {
                greeter.open(stream, peer, self.shared.seat(self.index, slot));
            }
        }
        drop(socket);
        drop(self.shared.listener.lock().take());
        given.close();
        take(&mut given, &greeter).await;
        drop(greeter);
        tokio::select! {
            () = self.shutdown.reached(Phase::Aborted) => {}
            // Ends when every connection, and all else that holds the core, is gone.
            _ = held.recv() => {}
        }
        drop(self.awaited);
    }

    async fn accept<S>(&self, socket: &TcpListener, greeter: &Greeter<S>)
    where
        Greeter<S>: Open,
    {
        loop {
            let Some(slot) = self.shared.slot().await else { return };
            let (stream, peer) = match socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    refused(&error).await;
                    continue;
                }
            };
            let seat = self.shared.seat(self.index, slot);
            if seat.core == self.index {
                greeter.open(stream, peer, seat);
            } else if let (Ok(stream), Some(sender)) =
                (stream.into_std(), self.shared.senders.get(seat.core))
            {
                // A core that takes nothing any more gives it back.
                if let Err(SendError(given)) = sender.send(Given { stream, peer, seat }) {
                    greeter.open_given(given);
                }
            }
        }
    }
}

/// Serves what other cores accepted, until they stop.
async fn take<S>(given: &mut mpsc::UnboundedReceiver<Given>, greeter: &Greeter<S>)
where
    Greeter<S>: Open,
{
    while let Some(given) = given.recv().await {
        greeter.open_given(given);
    }
}

/// After an error of `accept`: those of one connection are nothing, the rest (no file
/// descriptors left) would only come again at once.
async fn refused(error: &io::Error) {
    let kind = error.kind();
    if !matches!(kind, io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        tracing::warn!(%error, "No connection can be accepted at the moment.");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
