//! One connection that writes: what waits at the same time goes in one transaction.
//!
//! A commit costs a sync of the disk or a round trip, whatever is in it. While one is under way
//! work gathers, and is the next. If a piece of work fails, nothing of its transaction is written,
//! and each piece is tried again alone, so that nobody pays for another's fault.

use std::{
    mem,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::future::LocalBoxFuture;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

use super::{Fault, migrations::Migration};

/// How long a transaction may take, and connecting.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);
/// How long opening may take, with what it brings up to date.
pub(super) const OPENING: Duration = Duration::from_secs(60);
/// After a failure to connect, until it is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// Pieces of work in one transaction.
const BATCH: usize = 256;

/// A kind of database.
pub(super) trait Backend: Send + 'static {
    type Conn: 'static;

    /// What begins a transaction that writes.
    const BEGIN: &'static str;

    /// What keeps others from the migrations until the transaction ends, if beginning it does not.
    const LOCK_MIGRATIONS: &'static str;

    fn kind(&self) -> &'static str;

    /// This process among those that use the database.
    fn owner(&self) -> [u8; 16];

    /// Whether a process surely runs no more; `false` where nobody knows.
    fn is_dead(&self, owner: &[u8]) -> bool;

    /// This process is about to end.
    fn gone(&self);

    fn connect(&self) -> impl Future<Output = Result<Self::Conn, sqlx::Error>>;

    fn disconnect(&self, conn: Self::Conn) -> impl Future<Output = ()>;

    /// Runs statements that take and give nothing.
    fn execute(
        &self,
        conn: &mut Self::Conn,
        sql: &'static str,
    ) -> impl Future<Output = Result<(), sqlx::Error>>;

    /// This kind's form of a migration.
    fn form(&self, migration: &Migration) -> &'static str;
}

/// A piece of work for a transaction.
pub(super) trait Job<C>: Send {
    /// In a transaction work is done in this order, so that two processes that meet in one
    /// database do not each wait for the other.
    fn order(&self) -> u64;

    /// Whether it changed anything.
    fn run<'a>(&'a mut self, conn: &'a mut C) -> LocalBoxFuture<'a, Result<bool, sqlx::Error>>;

    /// Tells whoever handed it in.
    fn done(self: Box<Self>, outcome: Result<(), Fault>);
}

/// The usual job.
pub(super) struct Task<F, T> {
    order: u64,
    work: F,
    result: Option<T>,
    then: Box<dyn FnOnce(Result<T, Fault>) + Send>,
}

/// Whether the database can be used, as far as is known.
pub struct Health {
    kind: &'static str,
    failing: AtomicBool,
}

/// Why a transaction came to nothing.
enum Failure {
    /// There is no connection.
    Lost(sqlx::Error),
    /// A statement failed; all was rolled back.
    Work(sqlx::Error),
    /// What the commit came to is not known.
    Commit(sqlx::Error),
}

pub(super) struct Lane<'a, B: Backend> {
    backend: &'a B,
    health: &'a Health,
    conn: Option<B::Conn>,
    failed: Option<Instant>,
}

// === impl Task ===

impl<F, T> Task<F, T> {
    pub fn new(order: u64, work: F, then: Box<dyn FnOnce(Result<T, Fault>) + Send>) -> Self {
        Self { order, work, result: None, then }
    }
}

impl<C, F, T> Job<C> for Task<F, T>
where
    F: AsyncFnMut(&mut C) -> Result<(T, bool), sqlx::Error> + Send,
    T: Send,
{
    fn order(&self) -> u64 {
        self.order
    }

    fn run<'a>(&'a mut self, conn: &'a mut C) -> LocalBoxFuture<'a, Result<bool, sqlx::Error>> {
        Box::pin(async move {
            let (result, changed) = (self.work)(conn).await?;
            self.result = Some(result);
            Ok(changed)
        })
    }

    fn done(self: Box<Self>, outcome: Result<(), Fault>) {
        let Task { result, then, .. } = *self;
        then(outcome.and_then(|()| result.ok_or(Fault::Unavailable)));
    }
}

// === impl Health ===

impl Health {
    pub(super) fn new(kind: &'static str) -> Self {
        Self { kind, failing: false.into() }
    }

    /// `sqlite` or `postgres`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Whether the last attempt to write succeeded.
    pub fn is_available(&self) -> bool {
        !self.failing.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) {
        self.fails(&"too much waits to be written");
    }

    /// Logged once, until it works again.
    fn fails(&self, why: &dyn std::fmt::Display) {
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(
                store.kind = self.kind,
                error = %why,
                "The store cannot be written: calls with an idempotency key, and those that need \
                 approval, are refused until it can, and quotas count by their `store_down`"
            );
        }
    }

    fn works(&self) {
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(store.kind = self.kind, "The store can be written again");
        }
    }
}

// === impl Lane ===

type Batch<C> = Vec<Box<dyn Job<C>>>;

impl<'a, B: Backend> Lane<'a, B> {
    pub fn new(backend: &'a B, health: &'a Health) -> Self {
        Self { backend, health, conn: None, failed: None }
    }

    /// Works until it is stopped, and then what is left.
    pub async fn run(
        mut self,
        mut jobs: mpsc::Receiver<Box<dyn Job<B::Conn>>>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut batch = Vec::new();
        loop {
            let received = tokio::select! {
                biased;
                received = jobs.recv_many(&mut batch, BATCH) => received,
                // An error is the same word: whoever could stop it is gone.
                _ = stopped.wait_for(|stop| *stop) => {
                    jobs.close();
                    jobs.recv_many(&mut batch, BATCH).await
                }
            };
            if received == 0 {
                break;
            }
            self.write(mem::take(&mut batch)).await;
        }
        if let Some(conn) = self.conn.take() {
            self.backend.disconnect(conn).await;
        }
    }

    async fn write(&mut self, mut batch: Batch<B::Conn>) {
        batch.sort_by_key(|job| job.order());
        match self.attempt(&mut batch).await {
            Err(Failure::Work(_)) if batch.len() > 1 => {
                for job in batch {
                    let mut alone = vec![job];
                    let outcome = self.attempt(&mut alone).await;
                    self.tell(alone, outcome);
                }
            }
            outcome => self.tell(batch, outcome),
        }
    }

    fn tell(&self, batch: Batch<B::Conn>, outcome: Result<bool, Failure>) {
        let outcome = match outcome {
            Ok(changed) => {
                // What changed nothing says nothing of a disk that is full.
                if changed {
                    self.health.works();
                }
                Ok(())
            }
            Err(Failure::Lost(error) | Failure::Work(error)) => {
                self.health.fails(&error);
                Err(Fault::Unavailable)
            }
            Err(Failure::Commit(error)) => {
                self.health.fails(&error);
                Err(Fault::Unclear)
            }
        };
        batch.into_iter().for_each(|job| job.done(outcome));
    }

    /// All of it in one transaction. A connection that is no longer one is noticed when the
    /// transaction is begun, and that is tried again.
    async fn attempt(&mut self, batch: &mut [Box<dyn Job<B::Conn>>]) -> Result<bool, Failure> {
        let had = self.conn.is_some();
        let mut conn = match self.begin().await {
            Err(_) if had => self.begin().await,
            begun => begun,
        }
        .map_err(Failure::Lost)?;
        let work = async {
            let mut changed = false;
            for job in batch {
                changed |= job.run(&mut conn).await?;
            }
            Ok(changed)
        };
        let changed = match in_time(work).await {
            Ok(changed) => changed,
            Err(error) => {
                // Without it the connection is given up, and the transaction with it.
                if in_time(self.backend.execute(&mut conn, "ROLLBACK")).await.is_ok() {
                    self.conn = Some(conn);
                }
                return Err(Failure::Work(error));
            }
        };
        in_time(self.backend.execute(&mut conn, "COMMIT")).await.map_err(Failure::Commit)?;
        self.conn = Some(conn);
        Ok(changed)
    }

    async fn begin(&mut self) -> Result<B::Conn, sqlx::Error> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.connect().await?,
        };
        in_time(self.backend.execute(&mut conn, B::BEGIN)).await?;
        Ok(conn)
    }

    async fn connect(&mut self) -> Result<B::Conn, sqlx::Error> {
        if self.failed.is_some_and(|failed| failed.elapsed() < PAUSE) {
            return Err(sqlx::Error::PoolTimedOut);
        }
        let connected = in_time(self.backend.connect()).await;
        self.failed = connected.is_err().then(Instant::now);
        connected
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    timeout(PATIENCE, work).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
