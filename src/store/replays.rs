//! Idempotency records: what the engine asks for, as statements.
//!
//! The statements are the same for both databases; only the types of their connections differ,
//! for which a macro writes them twice.

use sqlx::{
    ColumnIndex, Decode, Executor, PgConnection, Postgres, Row, Sqlite, SqliteConnection, Type,
};

use super::{
    Fault, Handle,
    lane::Backend,
    number::{signed, unsigned},
};
use crate::{
    idempotency::{
        Usage,
        store::{Claimed, End, Held, HeldState, NewRecord, ReplayStore, Settlement, Swept, Then},
    },
    model::exchange::KeyedDigest,
};

const IN_FLIGHT: i64 = 0;
const DONE: i64 = 1;
const UNKNOWN: i64 = 2;

/// How many records one transaction forgets at most, so that claims need not wait for long.
const SOME: i64 = 500;

/// Inserts, or takes the place of a record that has expired, that is to be replaced, or whose
/// unknown outcome may be tried again. Of two who do so at once the second finds the first's.
const CLAIM: &str = "
INSERT INTO replay
    (scope, token, owner, key_id, fingerprint, state, lease_ms, expires_ms, cost, body)
VALUES ($1, $2, $3, $4, $5, 0, $6, $7, $8, NULL)
ON CONFLICT (scope) DO UPDATE SET
    token = excluded.token, owner = excluded.owner, key_id = excluded.key_id,
    fingerprint = excluded.fingerprint, state = 0, lease_ms = excluded.lease_ms,
    expires_ms = excluded.expires_ms, cost = excluded.cost, body = NULL
WHERE (replay.expires_ms <= $9 AND (replay.state <> 0 OR replay.lease_ms <= $9))
    OR replay.token = $10
    OR ($11 AND (replay.state = 2 OR (replay.state = 0 AND replay.lease_ms <= $9))
        AND replay.key_id = excluded.key_id AND replay.fingerprint = excluded.fingerprint)
RETURNING token";

const FIND: &str = "SELECT key_id, fingerprint, state, lease_ms, body FROM replay WHERE scope = $1";

/// One that has not expired.
const LIVE: &str = "
SELECT key_id, fingerprint, state, lease_ms, body FROM replay
WHERE scope = $1 AND (expires_ms > $2 OR (state = 0 AND lease_ms > $2))";

const FREE: &str = "DELETE FROM replay WHERE scope = $1 AND token = $2";

const SETTLE: &str = "
UPDATE replay SET state = $3, lease_ms = 0, expires_ms = $4, cost = $5, body = $6
WHERE scope = $1 AND token = $2";

/// The condition stands there twice: while the statement waits for a row that is being claimed
/// anew PostgreSQL looks at the row again, but not at the list of those that had expired.
const SWEEP: &str = "
DELETE FROM replay
WHERE expires_ms <= $1 AND (state <> 0 OR lease_ms <= $1) AND scope IN (
    SELECT scope FROM replay
    WHERE expires_ms <= $1 AND (state <> 0 OR lease_ms <= $1) LIMIT $2)
RETURNING cost";

const USAGE: &str = "SELECT count(*), CAST(coalesce(sum(cost), 0) AS BIGINT) FROM replay";

const OWNERS: &str = "SELECT DISTINCT owner FROM replay WHERE state = 0";

const ORPHAN: &str = "UPDATE replay SET state = 2, lease_ms = 0 WHERE state = 0 AND owner = $1";

/// The statements over a connection.
pub(super) trait ReplaySql {
    async fn claim(&mut self, new: &NewRecord, owner: &[u8]) -> Result<Claimed, sqlx::Error>;

    async fn look(&mut self, scope: &[u8; 32], now_ms: u64) -> Result<Option<Held>, sqlx::Error>;

    /// Whether there was a record of that claim.
    async fn settle(&mut self, end: &Settlement) -> Result<bool, sqlx::Error>;

    /// Forgets some of what has expired; what that was.
    async fn forget(&mut self, now_ms: u64) -> Result<Usage, sqlx::Error>;

    async fn replay_usage(&mut self) -> Result<Usage, sqlx::Error>;

    /// Processes with calls in flight.
    async fn owners_in_flight(&mut self) -> Result<Vec<Vec<u8>>, sqlx::Error>;

    /// Nobody will say how the calls of this process ended.
    async fn orphan(&mut self, owner: &[u8]) -> Result<(), sqlx::Error>;

    async fn last_migration(&mut self) -> Result<i64, sqlx::Error>;

    async fn note_migration(
        &mut self,
        version: i64,
        name: &str,
        now_ms: u64,
    ) -> Result<(), sqlx::Error>;
}

macro_rules! statements {
    ($connection:ty, $database:ty) => {
        impl ReplaySql for $connection {
            async fn claim(
                &mut self,
                new: &NewRecord,
                owner: &[u8],
            ) -> Result<Claimed, sqlx::Error> {
                // What stands in the way may go between the two questions; not for ever.
                for _ in 0..3 {
                    let claim = sqlx::query::<$database>(CLAIM)
                        .bind(&new.scope[..])
                        .bind(&new.token[..])
                        .bind(owner)
                        .bind(i64::from(new.fingerprint.key))
                        .bind(&new.fingerprint.digest[..])
                        .bind(signed(new.lease_ms))
                        .bind(signed(new.expires_ms))
                        .bind(signed(new.cost))
                        .bind(signed(new.now_ms))
                        .bind(new.replaces.as_ref().map(|token| &token[..]))
                        .bind(new.retry_safe);
                    if self.fetch_optional(claim).await?.is_some() {
                        return Ok(Claimed::Taken);
                    }
                    let find = sqlx::query::<$database>(FIND).bind(&new.scope[..]);
                    if let Some(row) = self.fetch_optional(find).await? {
                        return found(&row, new.now_ms).map(Claimed::Held);
                    }
                }
                Err(sqlx::Error::RowNotFound)
            }

            async fn look(
                &mut self,
                scope: &[u8; 32],
                now_ms: u64,
            ) -> Result<Option<Held>, sqlx::Error> {
                let look = sqlx::query::<$database>(LIVE).bind(&scope[..]).bind(signed(now_ms));
                let row = self.fetch_optional(look).await?;
                row.map(|row| found(&row, now_ms)).transpose()
            }

            async fn settle(&mut self, settlement: &Settlement) -> Result<bool, sqlx::Error> {
                let Settlement { scope, token, end, expires_ms, cost } = settlement;
                let (state, body) = match end {
                    End::Free => {
                        let free = sqlx::query::<$database>(FREE).bind(&scope[..]).bind(&token[..]);
                        return Ok(self.execute(free).await?.rows_affected() > 0);
                    }
                    End::Done(body) => (DONE, Some(&body[..])),
                    End::Unknown => (UNKNOWN, None),
                };
                let settle = sqlx::query::<$database>(SETTLE)
                    .bind(&scope[..])
                    .bind(&token[..])
                    .bind(state)
                    .bind(signed(*expires_ms))
                    .bind(signed(*cost))
                    .bind(body);
                Ok(self.execute(settle).await?.rows_affected() > 0)
            }

            async fn forget(&mut self, now_ms: u64) -> Result<Usage, sqlx::Error> {
                let sweep = sqlx::query::<$database>(SWEEP).bind(signed(now_ms)).bind(SOME);
                let rows = self.fetch_all(sweep).await?;
                let costs: Result<Vec<i64>, _> = rows.iter().map(|row| row.try_get(0)).collect();
                Ok(usage(rows.len(), costs?.iter().sum()))
            }

            async fn replay_usage(&mut self) -> Result<Usage, sqlx::Error> {
                let row = self.fetch_one(sqlx::query::<$database>(USAGE)).await?;
                let (keys, bytes): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
                Ok(usage(usize::try_from(keys).unwrap_or(0), bytes))
            }

            async fn owners_in_flight(&mut self) -> Result<Vec<Vec<u8>>, sqlx::Error> {
                let rows = self.fetch_all(sqlx::query::<$database>(OWNERS)).await?;
                rows.iter().map(|row| row.try_get(0)).collect()
            }

            async fn orphan(&mut self, owner: &[u8]) -> Result<(), sqlx::Error> {
                self.execute(sqlx::query::<$database>(ORPHAN).bind(owner)).await?;
                Ok(())
            }

            async fn last_migration(&mut self) -> Result<i64, sqlx::Error> {
                const LAST: &str = "SELECT coalesce(max(version), 0) FROM hangu_migration";
                self.fetch_one(sqlx::query::<$database>(LAST)).await?.try_get(0)
            }

            async fn note_migration(
                &mut self,
                version: i64,
                name: &str,
                now_ms: u64,
            ) -> Result<(), sqlx::Error> {
                const NOTE: &str =
                    "INSERT INTO hangu_migration (version, name, applied_ms) VALUES ($1, $2, $3)";
                let note =
                    sqlx::query::<$database>(NOTE).bind(version).bind(name).bind(signed(now_ms));
                self.execute(note).await?;
                Ok(())
            }
        }
    };
}

statements!(SqliteConnection, Sqlite);
statements!(PgConnection, Postgres);

fn usage(keys: usize, bytes: i64) -> Usage {
    Usage { keys, bytes: unsigned(bytes) }
}

/// What a row says that is there.
fn found<'r, R>(row: &'r R, now_ms: u64) -> Result<Held, sqlx::Error>
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    let (state, lease_ms): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
    let body: Option<Vec<u8>> = row.try_get(4)?;
    let running = lease_ms > signed(now_ms);
    Ok(Held {
        fingerprint: fingerprint(row.try_get(0)?, row.try_get(1)?)?,
        state: held(state, running, body),
    })
}

fn fingerprint(key: i64, digest: Vec<u8>) -> Result<KeyedDigest, sqlx::Error> {
    let broken = || sqlx::Error::Decode("a record's fingerprint is none".into());
    Ok(KeyedDigest {
        key: u32::try_from(key).map_err(|_| broken())?,
        digest: digest.try_into().map_err(|_| broken())?,
    })
}

fn held(state: i64, running: bool, body: Option<Vec<u8>>) -> HeldState {
    match (state, body) {
        (IN_FLIGHT, _) if running => HeldState::InFlight,
        (DONE, body) => HeldState::Done(body.unwrap_or_default()),
        // Also a state that a later version knows: it is not free.
        _ => HeldState::Unknown,
    }
}

impl<B> ReplayStore for Handle<B>
where
    B: Backend,
    B::Conn: ReplaySql,
{
    fn claim(&self, record: NewRecord, then: Then<Claimed>) {
        let (scope, owner) = (record.scope, self.owner);
        let work = async move |conn: &mut B::Conn| {
            let claimed = conn.claim(&record, &owner).await?;
            let changed = claimed == Claimed::Taken;
            Ok((claimed, changed))
        };
        self.submit(&scope, work, then);
    }

    fn find(&self, scope: [u8; 32], now_ms: u64, then: Then<Option<Held>>) {
        let work = async move |conn: &mut B::Conn| Ok((conn.look(&scope, now_ms).await?, false));
        self.submit(&scope, work, then);
    }

    fn settle(&self, settlement: Settlement, then: Then<()>) {
        let scope = settlement.scope;
        let work = async move |conn: &mut B::Conn| Ok(((), conn.settle(&settlement).await?));
        self.submit(&scope, work, then);
    }

    fn sweep(&self, now_ms: u64, then: Then<Swept>) {
        self.sweep_on(now_ms, Usage { keys: 0, bytes: 0 }, then);
    }
}

impl<B> Handle<B>
where
    B: Backend,
    B::Conn: ReplaySql,
{
    /// Some at a time, each time after those who came meanwhile.
    fn sweep_on(&self, now_ms: u64, before: Usage, then: Then<Swept>) {
        let again = self.clone();
        let work = async move |conn: &mut B::Conn| {
            let some = conn.forget(now_ms).await?;
            // There may be more; counting all is for the last time.
            let more = i64::try_from(some.keys).is_ok_and(|keys| keys == SOME);
            let kept = if more { None } else { Some(conn.replay_usage().await?) };
            Ok(((some, kept), some.keys > 0))
        };
        self.submit(&[0; 32], work, move |result: Result<(Usage, _), Fault>| {
            let (some, kept) = match result {
                Ok(done) => done,
                Err(fault) => return then(Err(fault)),
            };
            let forgotten =
                Usage { keys: before.keys + some.keys, bytes: before.bytes + some.bytes };
            match kept {
                None => again.sweep_on(now_ms, forgotten, then),
                Some(kept) => then(Ok(Swept { forgotten, kept })),
            }
        });
    }
}
