//! What outlives the process: one database behind the engines' own traits.
//!
//! A store has a thread of its own. Whoever wants something written hands it a piece of work for
//! one transaction; what waits at the same time shares a transaction, and so a sync of the disk
//! (`lane.rs`). `sqlite.rs` and `postgres.rs` connect; the statements are the same for both and
//! stand by feature: a file for each trait of an engine, and one list of migrations for all.
//!
//! It decides nothing about calls. An engine says what it needs; what a lost database means for a
//! call is said there and in the layers.

mod approvals;
mod credentials;
mod lane;
mod migrations;
mod number;
mod pins;
mod postgres;
mod quotas;
mod replays;
mod servers;
mod sqlite;

#[cfg(test)]
mod approval_suite;
#[cfg(test)]
mod credential_suite;
#[cfg(test)]
mod pin_suite;
#[cfg(test)]
mod server_suite;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use futures_util::future;
use secrecy::SecretString;
use tokio::sync::{mpsc as queue, watch};

pub use self::lane::Health;
use self::{
    approvals::ApprovalSql,
    credentials::CredentialSql,
    lane::{Backend, Job, Lane, Task},
    pins::PinSql,
    quotas::QuotaSql,
    replays::ReplaySql,
    servers::ServerSql,
};
/// Why a piece of work was not done.
pub use crate::model::stored::StoreFault as Fault;
use crate::{
    approval::store::ApprovalStore,
    clock::Clock,
    credential::store::CredentialStore,
    idempotency::{Usage, store::ReplayStore},
    limit::quota::store::QuotaStore,
    registry::{server::ServerStore, store::PinStore},
};

/// Pieces of work that may wait for one lane.
const QUEUE: usize = 8_192;

/// Where a store is.
#[derive(Debug, Clone)]
pub enum Address {
    /// A file of this host's.
    Sqlite(PathBuf),
    /// A `postgres://` URL, which may hold a password.
    Postgres(SecretString),
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("`{}` cannot be opened: {source}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the address is no PostgreSQL URL: {0}")]
    Address(#[source] sqlx::Error),
    #[error("the database cannot be used: {0}")]
    Database(#[from] sqlx::Error),
    #[error("the database did not answer in {} s", .0.as_secs())]
    Silent(Duration),
    #[error("a newer version of Hangu has written it: it has migration {found}, known is {known}")]
    Newer { found: i64, known: i64 },
    #[error("its thread cannot be started: {0}")]
    Thread(#[source] std::io::Error),
}

/// An open store.
pub struct Opened {
    pub store: Store,
    pub replays: Arc<dyn ReplayStore>,
    pub credentials: Arc<dyn CredentialStore>,
    pub quotas: Arc<dyn QuotaStore>,
    pub pins: Arc<dyn PinStore>,
    pub servers: Arc<dyn ServerStore>,
    /// The number of the last approval of a definition.
    pub last_pin: u64,
    /// What of them is kept already.
    pub usage: Usage,
    pub approvals: Arc<dyn ApprovalStore>,
}

/// The thread of an open store.
pub struct Store {
    health: Arc<Health>,
    stop: watch::Sender<bool>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Where work for one lane waits.
type Entrance<C> = queue::Sender<Box<dyn Job<C>>>;

/// Where work is handed in.
struct Handle<B: Backend> {
    lanes: Arc<[Entrance<B::Conn>]>,
    health: Arc<Health>,
    owner: [u8; 16],
}

// === impl Store ===

impl Store {
    /// Opens a store, brings its tables up to date and starts its thread. Blocks.
    pub fn open(address: &Address, clock: &Clock) -> Result<Opened, OpenError> {
        match address {
            Address::Sqlite(path) => Self::start(sqlite::Sqlite::open(path)?, 1, clock),
            // One after the other a server far away would be slow; each key keeps to its lane.
            Address::Postgres(url) => Self::start(postgres::Postgres::open(url)?, 4, clock),
        }
    }

    fn start<B: Backend>(backend: B, lanes: usize, clock: &Clock) -> Result<Opened, OpenError>
    where
        B::Conn: ReplaySql + ApprovalSql + CredentialSql + QuotaSql + PinSql + ServerSql,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(OpenError::Thread)?;
        let health = Arc::new(Health::new(backend.kind()));
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..lanes).map(|_| queue::channel(QUEUE)).unzip();
        let (stop, stopped) = watch::channel(false);
        let owner = backend.owner();
        let (told, opened) = mpsc::channel();
        let (now_ms, healthy) = (clock.now_ms(), health.clone());
        let run = move || {
            runtime.block_on(async move {
                let usage = tokio::time::timeout(lane::OPENING, prepare(&backend, now_ms)).await;
                let usage = usage.unwrap_or(Err(OpenError::Silent(lane::OPENING)));
                let failed = usage.is_err();
                // The other side waits for nothing else: it cannot be gone.
                let _ = told.send(usage);
                if failed {
                    return;
                }
                let run = |jobs| Lane::new(&backend, &healthy).run(jobs, stopped.clone());
                future::join_all(receivers.into_iter().map(run)).await;
                finish(backend).await;
            });
        };
        let thread = thread::Builder::new().name("hangu-store".into()).spawn(run);
        let thread = thread.map_err(OpenError::Thread)?;
        let gone = || OpenError::Thread(std::io::Error::other("it ended"));
        let (usage, last_pin) = opened.recv().map_err(|_| gone())??;
        let handle = Arc::new(Handle::<B> { lanes: senders.into(), health: health.clone(), owner });
        let store = Store { health, stop, thread: Some(thread) };
        let (replays, approvals) = (handle.clone(), handle.clone());
        let (quotas, pins, servers) = (handle.clone(), handle.clone(), handle.clone());
        let credentials = handle;
        Ok(Opened {
            store,
            replays,
            approvals,
            quotas,
            pins,
            servers,
            last_pin,
            credentials,
            usage,
        })
    }

    /// What to ask whether it can be used.
    pub fn health(&self) -> Arc<Health> {
        self.health.clone()
    }

    /// Writes what was handed in and closes. Nothing is taken any more.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's thread ended in a panic");
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("kind", &self.health.kind()).finish_non_exhaustive()
    }
}

/// Tables, what dead processes left, and what is there.
async fn prepare<B: Backend>(backend: &B, now_ms: u64) -> Result<(Usage, u64), OpenError>
where
    B::Conn: ReplaySql + PinSql,
{
    let mut conn = backend.connect().await?;
    migrations::apply(backend, &mut conn, now_ms).await?;
    for owner in conn.owners_in_flight().await? {
        if backend.is_dead(&owner) {
            conn.orphan(&owner).await?;
        }
    }
    let usage = conn.replay_usage().await?;
    pins::upgrade(&mut conn).await?;
    let last_pin = conn.last_pin_approval().await?;
    backend.disconnect(conn).await;
    Ok((usage, last_pin))
}

/// The calls of this process have ended, whatever came of them.
async fn finish<B: Backend>(backend: B)
where
    B::Conn: ReplaySql,
{
    let ended = async {
        let mut conn = backend.connect().await?;
        conn.orphan(&backend.owner()).await?;
        backend.disconnect(conn).await;
        Ok::<(), sqlx::Error>(())
    };
    // Nothing depends on it: leases end by themselves.
    let _ = tokio::time::timeout(lane::PATIENCE, ended).await;
    backend.gone();
}

// === impl Handle ===

impl<B: Backend> Clone for Handle<B> {
    fn clone(&self) -> Self {
        Self { lanes: self.lanes.clone(), health: self.health.clone(), owner: self.owner }
    }
}

impl<B: Backend> Handle<B> {
    /// Does a piece of work, which says whether it changed anything, in a transaction; `then` is told once it is durable, on the store's
    /// thread, or that it will not be.
    ///
    /// Work with the same key is done in the order in which it came. It may be begun more than
    /// once, if others who shared its transaction failed; only the last time counts.
    fn submit<T, F>(
        &self,
        key: &[u8; 32],
        work: F,
        then: impl FnOnce(Result<T, Fault>) + Send + 'static,
    ) where
        T: Send + 'static,
        F: AsyncFnMut(&mut B::Conn) -> Result<(T, bool), sqlx::Error> + Send + 'static,
    {
        let [a, b, c, d, e, f, g, h, ..] = *key;
        let order = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let job: Box<dyn Job<B::Conn>> = Box::new(Task::new(order, work, Box::new(then)));
        // From another part of the number than the order within a lane.
        let lane = usize::from(h) % self.lanes.len().max(1);
        let refused = match self.lanes.get(lane).map(|lane| lane.try_send(job)) {
            Some(Ok(())) => return,
            Some(Err(refused)) => refused.into_inner(),
            None => return,
        };
        self.health.refused();
        refused.done(Err(Fault::Unavailable));
    }
}
