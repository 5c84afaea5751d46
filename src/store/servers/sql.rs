//! Personal servers as statements, the same for both databases: a macro writes them twice.

use std::sync::Arc;

use bytes::Bytes;
use sqlx::{Executor, PgConnection, Postgres, Row, Sqlite, SqliteConnection};
use url::Url;

use crate::{
    model::caller::{EmployeeId, TenantId},
    registry::server::{
        Archive, Body, Change, Changes, Failure, Kept, Marker, NotPut, Registration,
    },
    store::number::{signed, unsigned},
};

/// Changes that one question answers at most.
const MAX_CHANGES: i64 = 10_000;

/// Writes after which one that deleted is forgotten.
const REMEMBERED: i64 = 100_000;

const TICK: &str = "UPDATE server_clock SET last = last + 1 WHERE id = 1 RETURNING last";

const CLOCK: &str = "SELECT last, forgotten FROM server_clock WHERE id = 1";

const NOTE: &str = "
INSERT INTO server_change (tenant, owner, server_key, change) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, owner, server_key) DO UPDATE SET change = excluded.change";

const FORGET: &str = "
DELETE FROM server_change WHERE change <= $1 AND NOT EXISTS (
    SELECT 1 FROM server WHERE server.tenant = server_change.tenant
    AND server.owner = server_change.owner AND server.server_key = server_change.server_key)";

const FORGOTTEN: &str = "UPDATE server_clock SET forgotten = $1 WHERE id = 1";

const CHANGES: &str = "
SELECT c.tenant, c.owner, c.server_key, s.team, c.change FROM server_change AS c
LEFT JOIN server AS s ON s.tenant = c.tenant AND s.owner = c.owner AND s.server_key = c.server_key
WHERE c.change > $1 ORDER BY c.change LIMIT $2";

const OTHER_ADDRESS: &str =
    "SELECT 1 FROM server WHERE server_key = $1 AND url <> $2 AND tenant = $3 LIMIT 1";

const REVISION: &str = "
SELECT revision, created_ms FROM server WHERE tenant = $1 AND owner = $2 AND server_key = $3";

const COUNT: &str = "SELECT count(*) FROM server WHERE tenant = $1 AND owner = $2";

const PUT: &str = "
INSERT INTO server
    (tenant, owner, server_key, url, team, body, revision, created_ms, updated_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (tenant, owner, server_key) DO UPDATE SET
    team = excluded.team, body = excluded.body, revision = excluded.revision,
    updated_ms = excluded.updated_ms";

macro_rules! kept {
    ($rest:literal) => {
        concat!(
            "SELECT s.tenant, s.owner, s.server_key, s.url, s.team, s.body, s.revision, \
             s.created_ms, s.updated_ms, a.listing, a.listed_ms, a.failure, a.failed_ms \
             FROM server AS s LEFT JOIN server_archive AS a ON a.tenant = s.tenant \
             AND a.owner = s.owner AND a.server_key = s.server_key ",
            $rest
        )
    };
}

const GET: &str = kept!("WHERE s.tenant = $1 AND s.owner = $2 AND s.server_key = $3");

const LIST: &str = kept!("WHERE s.tenant = $1 AND s.owner = $2 ORDER BY s.server_key");

const SHARED: &str = kept!("WHERE s.tenant = $1 AND s.team = $2 AND s.owner <> $3");

const DELETE: &str = "DELETE FROM server WHERE tenant = $1 AND owner = $2 AND server_key = $3";

const DELETE_ARCHIVE: &str =
    "DELETE FROM server_archive WHERE tenant = $1 AND owner = $2 AND server_key = $3";

const SHARE: &str = "
UPDATE server SET team = $4, updated_ms = $5, revision = revision + 1
WHERE tenant = $1 AND owner = $2 AND server_key = $3";

const ARCHIVE: &str = "
SELECT listing, failure FROM server_archive
WHERE tenant = $1 AND owner = $2 AND server_key = $3";

const PUT_ARCHIVE: &str = "
INSERT INTO server_archive (tenant, owner, server_key, listing, listed_ms, failure, failed_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, owner, server_key) DO UPDATE SET
    listing = excluded.listing, listed_ms = excluded.listed_ms, failure = excluded.failure,
    failed_ms = excluded.failed_ms";

/// One server of one owner.
pub struct Which {
    pub tenant: TenantId,
    pub owner: EmployeeId,
    pub server_key: Arc<str>,
}

impl Which {
    pub fn of(registration: &Registration) -> Self {
        let Registration { tenant, owner, server_key, .. } = registration.clone();
        Self { tenant, owner, server_key }
    }
}

/// The statements over a connection.
pub trait ServerSql {
    /// Until the transaction ends nobody else writes.
    async fn lock_servers(&mut self) -> Result<(), sqlx::Error>;

    /// Notes that a server was written.
    async fn note_server(&mut self, which: &Which) -> Result<(), sqlx::Error>;

    async fn put_server(
        &mut self,
        new: &Registration,
        most: u32,
    ) -> Result<Result<Registration, NotPut>, sqlx::Error>;

    async fn server(&mut self, which: &Which) -> Result<Option<Kept>, sqlx::Error>;

    async fn servers_of(
        &mut self,
        tenant: &TenantId,
        owner: &EmployeeId,
    ) -> Result<Vec<Kept>, sqlx::Error>;

    /// What others than this one share with a team.
    async fn servers_shared(
        &mut self,
        tenant: &TenantId,
        team: &str,
        but: &EmployeeId,
    ) -> Result<Vec<Kept>, sqlx::Error>;

    async fn delete_server(&mut self, which: &Which) -> Result<bool, sqlx::Error>;

    async fn share_server(
        &mut self,
        which: &Which,
        team: Option<&str>,
        now_ms: u64,
    ) -> Result<bool, sqlx::Error>;

    /// Whether the server is registered, and whether that was news.
    async fn put_archive(
        &mut self,
        which: &Which,
        archive: &Archive,
        listing: &[u8],
    ) -> Result<(bool, bool), sqlx::Error>;

    async fn count_servers(
        &mut self,
        tenant: &TenantId,
        owner: &EmployeeId,
    ) -> Result<u64, sqlx::Error>;

    async fn server_changes(&mut self, marker: Marker) -> Result<Changes, sqlx::Error>;
}

/// A row of either database.
macro_rules! kept_in {
    ($row:ident) => {
        (|| -> Result<Kept, sqlx::Error> {
            let (tenant, owner): (String, String) = ($row.try_get(0)?, $row.try_get(1)?);
            let (server_key, url): (String, String) = ($row.try_get(2)?, $row.try_get(3)?);
            let (team, body): (Option<String>, String) = ($row.try_get(4)?, $row.try_get(5)?);
            let (revision, created, updated): (i64, i64, i64) =
                ($row.try_get(6)?, $row.try_get(7)?, $row.try_get(8)?);
            let Body { name, dialect, auth, options } = Body::read(&body).ok_or_else(broken)?;
            let registration = Registration {
                tenant: TenantId::new(tenant),
                owner: EmployeeId::parse(&owner).ok_or_else(broken)?,
                server_key: server_key.into(),
                url: Url::parse(&url).map_err(|_| broken())?,
                name,
                dialect,
                options,
                auth,
                team: team.map(Into::into),
                created_ms: unsigned(created),
                updated_ms: unsigned(updated),
                revision: unsigned(revision),
            };
            let listing: Option<Vec<u8>> = $row.try_get(9)?;
            let archive = match listing {
                None => None,
                Some(listing) => {
                    let (listed, failed): (i64, i64) = ($row.try_get(10)?, $row.try_get(12)?);
                    let failure: Option<String> = $row.try_get(11)?;
                    let at_ms = unsigned(failed);
                    let failure = failure.map(|message| Failure { message: message.into(), at_ms });
                    let listed_ms = unsigned(listed);
                    // What cannot be read any more can be listed anew.
                    let archive = Archive::decode(Bytes::from(listing)).ok();
                    archive.map(|archive| Archive { listed_ms, failure, ..archive })
                }
            };
            Ok(Kept { registration, archive })
        })()
    };
}

macro_rules! statements {
    ($connection:ty, $database:ty, $lock:literal) => {
        impl ServerSql for $connection {
            async fn lock_servers(&mut self) -> Result<(), sqlx::Error> {
                self.execute(sqlx::query::<$database>($lock)).await.map(drop)
            }

            async fn note_server(&mut self, which: &Which) -> Result<(), sqlx::Error> {
                let row = self.fetch_one(sqlx::query::<$database>(TICK)).await?;
                let last: i64 = row.try_get(0)?;
                let note = sqlx::query::<$database>(NOTE)
                    .bind(which.tenant.as_str())
                    .bind(which.owner.as_str())
                    .bind(&*which.server_key)
                    .bind(last);
                self.execute(note).await.map(drop)
            }

            async fn put_server(
                &mut self,
                new: &Registration,
                most: u32,
            ) -> Result<Result<Registration, NotPut>, sqlx::Error> {
                let other = sqlx::query::<$database>(OTHER_ADDRESS)
                    .bind(&*new.server_key)
                    .bind(new.url.as_str())
                    .bind(new.tenant.as_str());
                if self.fetch_optional(other).await?.is_some() {
                    return Ok(Err(NotPut::Collision));
                }
                let before = sqlx::query::<$database>(REVISION)
                    .bind(new.tenant.as_str())
                    .bind(new.owner.as_str())
                    .bind(&*new.server_key);
                let before: Option<(i64, i64)> = match self.fetch_optional(before).await? {
                    Some(row) => Some((row.try_get(0)?, row.try_get(1)?)),
                    None => None,
                };
                let revision = before.map_or(0, |(revision, _)| unsigned(revision));
                if revision != new.revision {
                    return Ok(Err(NotPut::Changed { revision }));
                }
                if before.is_none()
                    && self.count_servers(&new.tenant, &new.owner).await? >= u64::from(most)
                {
                    return Ok(Err(NotPut::Full { most }));
                }
                let mut new = new.clone();
                new.revision = revision + 1;
                new.created_ms = before.map_or(new.created_ms, |(_, created)| unsigned(created));
                let body = String::from_utf8(new.body()).map_err(|_| broken())?;
                let put = sqlx::query::<$database>(PUT)
                    .bind(new.tenant.as_str())
                    .bind(new.owner.as_str())
                    .bind(&*new.server_key)
                    .bind(new.url.as_str())
                    .bind(new.team.as_deref())
                    .bind(body)
                    .bind(signed(new.revision))
                    .bind(signed(new.created_ms))
                    .bind(signed(new.updated_ms));
                self.execute(put).await?;
                Ok(Ok(new))
            }

            async fn server(&mut self, which: &Which) -> Result<Option<Kept>, sqlx::Error> {
                let get = sqlx::query::<$database>(GET)
                    .bind(which.tenant.as_str())
                    .bind(which.owner.as_str())
                    .bind(&*which.server_key);
                let row = self.fetch_optional(get).await?;
                row.map(|row| kept_in!(row)).transpose()
            }

            async fn servers_of(
                &mut self,
                tenant: &TenantId,
                owner: &EmployeeId,
            ) -> Result<Vec<Kept>, sqlx::Error> {
                let list =
                    sqlx::query::<$database>(LIST).bind(tenant.as_str()).bind(owner.as_str());
                let rows = self.fetch_all(list).await?;
                rows.into_iter().map(|row| kept_in!(row)).collect()
            }

            async fn servers_shared(
                &mut self,
                tenant: &TenantId,
                team: &str,
                but: &EmployeeId,
            ) -> Result<Vec<Kept>, sqlx::Error> {
                let list = sqlx::query::<$database>(SHARED)
                    .bind(tenant.as_str())
                    .bind(team)
                    .bind(but.as_str());
                let rows = self.fetch_all(list).await?;
                rows.into_iter().map(|row| kept_in!(row)).collect()
            }

            async fn delete_server(&mut self, which: &Which) -> Result<bool, sqlx::Error> {
                let mut deleted = false;
                for statement in [DELETE_ARCHIVE, DELETE] {
                    let delete = sqlx::query::<$database>(statement)
                        .bind(which.tenant.as_str())
                        .bind(which.owner.as_str())
                        .bind(&*which.server_key);
                    deleted = self.execute(delete).await?.rows_affected() > 0;
                }
                if deleted {
                    let row = self.fetch_one(sqlx::query::<$database>(CLOCK)).await?;
                    let last: i64 = row.try_get(0)?;
                    let bound = last - REMEMBERED;
                    let forget = sqlx::query::<$database>(FORGET).bind(bound);
                    if bound > 0 && self.execute(forget).await?.rows_affected() > 0 {
                        let forgotten = sqlx::query::<$database>(FORGOTTEN).bind(bound);
                        self.execute(forgotten).await?;
                    }
                }
                Ok(deleted)
            }

            async fn share_server(
                &mut self,
                which: &Which,
                team: Option<&str>,
                now_ms: u64,
            ) -> Result<bool, sqlx::Error> {
                let share = sqlx::query::<$database>(SHARE)
                    .bind(which.tenant.as_str())
                    .bind(which.owner.as_str())
                    .bind(&*which.server_key)
                    .bind(team)
                    .bind(signed(now_ms));
                Ok(self.execute(share).await?.rows_affected() > 0)
            }

            async fn put_archive(
                &mut self,
                which: &Which,
                archive: &Archive,
                listing: &[u8],
            ) -> Result<(bool, bool), sqlx::Error> {
                let place = |statement| {
                    sqlx::query::<$database>(statement)
                        .bind(which.tenant.as_str())
                        .bind(which.owner.as_str())
                        .bind(&*which.server_key)
                };
                if self.fetch_optional(place(REVISION)).await?.is_none() {
                    return Ok((false, false));
                }
                let failure = archive.failure.as_ref().map(|failure| &*failure.message);
                let news = match self.fetch_optional(place(ARCHIVE)).await? {
                    None => true,
                    Some(row) => {
                        let (kept, failed): (Vec<u8>, Option<String>) =
                            (row.try_get(0)?, row.try_get(1)?);
                        kept != listing || failed.as_deref() != failure
                    }
                };
                let put = place(PUT_ARCHIVE)
                    .bind(listing)
                    .bind(signed(archive.listed_ms))
                    .bind(failure)
                    .bind(signed(archive.failure.as_ref().map_or(0, |failure| failure.at_ms)));
                self.execute(put).await?;
                Ok((true, news))
            }

            async fn count_servers(
                &mut self,
                tenant: &TenantId,
                owner: &EmployeeId,
            ) -> Result<u64, sqlx::Error> {
                let count =
                    sqlx::query::<$database>(COUNT).bind(tenant.as_str()).bind(owner.as_str());
                let row = self.fetch_one(count).await?;
                Ok(unsigned(row.try_get(0)?))
            }

            async fn server_changes(&mut self, marker: Marker) -> Result<Changes, sqlx::Error> {
                let row = self.fetch_one(sqlx::query::<$database>(CLOCK)).await?;
                let (last, forgotten): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
                let (last, forgotten) = (unsigned(last), unsigned(forgotten));
                let too_old = marker.0 < forgotten;
                let mut changes = Vec::new();
                let mut behind = marker.0.max(last);
                if last > marker.0 {
                    let ask =
                        sqlx::query::<$database>(CHANGES).bind(signed(marker.0)).bind(MAX_CHANGES);
                    let rows = self.fetch_all(ask).await?;
                    let full = i64::try_from(rows.len()).is_ok_and(|count| count == MAX_CHANGES);
                    for row in rows {
                        let (tenant, owner): (String, String) = (row.try_get(0)?, row.try_get(1)?);
                        let (server_key, team): (String, Option<String>) =
                            (row.try_get(2)?, row.try_get(3)?);
                        if full {
                            behind = unsigned(row.try_get(4)?);
                        }
                        changes.push(Change {
                            tenant: TenantId::new(tenant),
                            owner: EmployeeId::parse(&owner).ok_or_else(broken)?,
                            server_key: server_key.into(),
                            team: team.map(Into::into),
                        });
                    }
                }
                Ok(Changes { marker: Marker(behind), too_old, changes })
            }
        }
    };
}

// Whoever begins to write in SQLite is alone already.
statements!(SqliteConnection, Sqlite, "SELECT 1");
statements!(PgConnection, Postgres, "SELECT pg_advisory_xact_lock(7461018464)");

fn broken() -> sqlx::Error {
    sqlx::Error::Decode("a server's row is none".into())
}
