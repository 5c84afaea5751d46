//! The statements over a connection, and the rows they bring.

use std::sync::Arc;

use bytes::Bytes;
use sqlx::{Executor, PgConnection, Postgres, Row, Sqlite, SqliteConnection};

use crate::{
    registry::{
        DIGEST_FORM,
        store::{Approved, How, SOME, Scope, Version},
    },
    store::number::{signed, unsigned},
};

const BETWEEN: &str = "
SELECT tool, version, digest, first_ms, vouched FROM pin_version
WHERE scope = $1 AND tool BETWEEN $2 AND $3";

/// The ones in force.
const APPROVED_BETWEEN: &str = "
SELECT tool, number, version, how, approved_by, approved_ms FROM pin_approval a
WHERE scope = $1 AND tool BETWEEN $2 AND $3 AND number =
    (SELECT max(number) FROM pin_approval b WHERE b.scope = a.scope AND b.tool = a.tool)";

const ALL_OF: &str = "
SELECT version, digest, definition, first_ms, last_ms, vouched FROM pin_version
WHERE scope = $1 AND tool = $2 ORDER BY version";

const ONE: &str = "
SELECT version, digest, definition, first_ms, last_ms, vouched FROM pin_version
WHERE scope = $1 AND tool = $2 AND version = $3";

const APPROVALS_OF: &str = "
SELECT tool, number, version, how, approved_by, approved_ms FROM pin_approval
WHERE scope = $1 AND tool = $2 ORDER BY number";

const SINCE: &str = "
SELECT a.tool, a.number, a.version, a.how, a.approved_by, a.approved_ms, a.scope, v.digest,
    v.definition
FROM pin_approval a
JOIN pin_version v ON v.scope = a.scope AND v.tool = a.tool AND v.version = a.version
WHERE a.number > $1 ORDER BY a.number LIMIT $2";

const LAST: &str = "SELECT coalesce(max(number), 0) FROM pin_approval";

const TOOLS: &str = "SELECT count(DISTINCT tool) FROM pin_version WHERE scope = $1";

const TOOL_NAMES: &str = "SELECT DISTINCT tool FROM pin_version WHERE scope = $1 ORDER BY tool";

const INSERT: &str = "
INSERT INTO pin_version
    (scope, tool, version, form, digest, definition, first_ms, last_ms, vouched)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const INSERT_APPROVAL: &str = "
INSERT INTO pin_approval (scope, tool, number, version, how, approved_by, approved_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7)";

const TOUCH: &str = "
UPDATE pin_version SET last_ms = $4
WHERE scope = $1 AND tool = $2 AND digest = $3 AND last_ms < $4";

/// Of those that nobody approved, here or where they were handed on, all but the last seen.
const PRUNE: &str = "
DELETE FROM pin_version WHERE scope = $1 AND tool = $2 AND version IN (
    SELECT version FROM pin_version v
    WHERE scope = $1 AND tool = $2 AND vouched = 0 AND NOT EXISTS (
        SELECT 1 FROM pin_approval a
        WHERE a.scope = v.scope AND a.tool = v.tool AND a.version = v.version)
    ORDER BY last_ms DESC, version DESC LIMIT 1000000 OFFSET $3)";

/// The last number is never given twice, so its row stays.
const FORGET_APPROVALS: &str = "
DELETE FROM pin_approval WHERE number < (SELECT max(number) FROM pin_approval)
AND NOT EXISTS (SELECT 1 FROM pin_version v
    WHERE v.scope = pin_approval.scope AND v.tool = pin_approval.tool AND v.last_ms >= $1)
AND NOT EXISTS (SELECT 1 FROM pin_approval a
    WHERE a.scope = pin_approval.scope AND a.tool = pin_approval.tool AND a.how <> 0)";

const FORGET: &str = "
DELETE FROM pin_version WHERE last_ms < $1
AND NOT EXISTS (SELECT 1 FROM pin_version v
    WHERE v.scope = pin_version.scope AND v.tool = pin_version.tool AND v.last_ms >= $1)
AND NOT EXISTS (SELECT 1 FROM pin_approval a
    WHERE a.scope = pin_version.scope AND a.tool = pin_version.tool)";

const OTHER_FORMS: &str =
    "SELECT scope, tool, version, definition FROM pin_version WHERE form <> $1";

const RENEW: &str = "
UPDATE pin_version SET form = $4, digest = $5 WHERE scope = $1 AND tool = $2 AND version = $3";

/// What is known of a version without its text.
pub(in crate::store) struct VersionRow {
    pub tool: Arc<str>,
    pub version: u64,
    pub digest: [u8; 32],
    pub first_ms: u64,
    pub vouched: bool,
}

#[derive(Clone)]
pub(in crate::store) struct ApprovalRow {
    pub tool: Arc<str>,
    pub number: u64,
    pub version: u64,
    pub how: How,
    pub by: Box<str>,
    pub at_ms: u64,
}

impl ApprovalRow {
    pub fn approved(self, scope: &Scope, digest: [u8; 32], definition: Bytes) -> Approved {
        let ApprovalRow { tool, number, version, how, by, at_ms } = self;
        let scope = scope.clone();
        Approved { scope, tool, number, version, digest, definition, how, by, at_ms }
    }
}

/// A definition whose digest is to be made again.
pub(in crate::store) type OtherForm = (Scope, Arc<str>, u64, Bytes);

pub(in crate::store) trait PinSql {
    /// Until the transaction ends nobody else gets here.
    async fn lock_pins(&mut self) -> Result<(), sqlx::Error>;

    async fn pin_versions_between(
        &mut self,
        scope: &Scope,
        first: &str,
        last: &str,
    ) -> Result<Vec<VersionRow>, sqlx::Error>;

    async fn pin_approvals_between(
        &mut self,
        scope: &Scope,
        first: &str,
        last: &str,
    ) -> Result<Vec<ApprovalRow>, sqlx::Error>;

    async fn pin_versions(
        &mut self,
        scope: &Scope,
        tool: &str,
    ) -> Result<Vec<Version>, sqlx::Error>;

    async fn pin_version(
        &mut self,
        scope: &Scope,
        tool: &str,
        version: u64,
    ) -> Result<Option<Version>, sqlx::Error>;

    async fn pin_approvals(
        &mut self,
        scope: &Scope,
        tool: &str,
    ) -> Result<Vec<ApprovalRow>, sqlx::Error>;

    async fn pin_approvals_since(&mut self, number: u64) -> Result<Vec<Approved>, sqlx::Error>;

    async fn last_pin_approval(&mut self) -> Result<u64, sqlx::Error>;

    async fn pinned_tools(&mut self, scope: &Scope) -> Result<usize, sqlx::Error>;

    async fn pinned_tool_names(&mut self, scope: &Scope) -> Result<Vec<Arc<str>>, sqlx::Error>;

    async fn insert_pin_version(
        &mut self,
        scope: &Scope,
        tool: &str,
        version: &Version,
    ) -> Result<(), sqlx::Error>;

    async fn insert_pin_approval(
        &mut self,
        scope: &Scope,
        row: &ApprovalRow,
    ) -> Result<(), sqlx::Error>;

    async fn touch_pin(
        &mut self,
        scope: &Scope,
        tool: &str,
        digest: &[u8; 32],
        at_ms: u64,
    ) -> Result<(), sqlx::Error>;

    /// Leaves so many of those that nobody approved.
    async fn prune_pins(
        &mut self,
        scope: &Scope,
        tool: &str,
        most: usize,
    ) -> Result<(), sqlx::Error>;

    async fn forget_pins(&mut self, before_ms: u64) -> Result<(), sqlx::Error>;

    async fn pins_of_other_forms(&mut self) -> Result<Vec<OtherForm>, sqlx::Error>;

    async fn renew_pin(
        &mut self,
        scope: &Scope,
        tool: &str,
        version: u64,
        digest: &[u8; 32],
    ) -> Result<(), sqlx::Error>;
}

fn digest(bytes: Vec<u8>) -> [u8; 32] {
    // One that was never made is nobody's.
    bytes.try_into().unwrap_or([0; 32])
}

/// Reads the columns that a version begins with.
macro_rules! version {
    ($row:expr) => {{
        let row = $row;
        Ok::<_, sqlx::Error>(Version {
            version: unsigned(row.try_get(0)?),
            digest: digest(row.try_get(1)?),
            definition: Bytes::from(row.try_get::<Vec<u8>, _>(2)?),
            first_ms: unsigned(row.try_get(3)?),
            last_ms: unsigned(row.try_get(4)?),
            vouched: row.try_get::<i64, _>(5)? != 0,
        })
    }};
}

/// Reads the columns that an approval begins with.
macro_rules! approval {
    ($row:expr) => {{
        let row = $row;
        let how: i64 = row.try_get(3)?;
        let broken = || sqlx::Error::Decode("an approval of a definition is none".into());
        Ok::<_, sqlx::Error>(ApprovalRow {
            tool: row.try_get::<String, _>(0)?.into(),
            number: unsigned(row.try_get(1)?),
            version: unsigned(row.try_get(2)?),
            how: How::from_number(how).ok_or_else(broken)?,
            by: row.try_get::<String, _>(4)?.into(),
            at_ms: unsigned(row.try_get(5)?),
        })
    }};
}

macro_rules! statements {
    ($connection:ty, $database:ty, $lock:literal) => {
        impl PinSql for $connection {
            async fn lock_pins(&mut self) -> Result<(), sqlx::Error> {
                self.execute(sqlx::query::<$database>($lock)).await.map(|_| ())
            }

            async fn pin_versions_between(
                &mut self,
                scope: &Scope,
                first: &str,
                last: &str,
            ) -> Result<Vec<VersionRow>, sqlx::Error> {
                let find = sqlx::query::<$database>(BETWEEN).bind(scope.as_str());
                let rows = self.fetch_all(find.bind(first).bind(last)).await?;
                let read = |row: &<$database as sqlx::Database>::Row| {
                    Ok(VersionRow {
                        tool: row.try_get::<String, _>(0)?.into(),
                        version: unsigned(row.try_get(1)?),
                        digest: digest(row.try_get(2)?),
                        first_ms: unsigned(row.try_get(3)?),
                        vouched: row.try_get::<i64, _>(4)? != 0,
                    })
                };
                rows.iter().map(read).collect()
            }

            async fn pin_approvals_between(
                &mut self,
                scope: &Scope,
                first: &str,
                last: &str,
            ) -> Result<Vec<ApprovalRow>, sqlx::Error> {
                let find = sqlx::query::<$database>(APPROVED_BETWEEN).bind(scope.as_str());
                let rows = self.fetch_all(find.bind(first).bind(last)).await?;
                rows.iter().map(|row| approval!(row)).collect()
            }

            async fn pin_versions(
                &mut self,
                scope: &Scope,
                tool: &str,
            ) -> Result<Vec<Version>, sqlx::Error> {
                let find = sqlx::query::<$database>(ALL_OF).bind(scope.as_str()).bind(tool);
                let rows = self.fetch_all(find).await?;
                rows.iter().map(|row| version!(row)).collect()
            }

            async fn pin_version(
                &mut self,
                scope: &Scope,
                tool: &str,
                version: u64,
            ) -> Result<Option<Version>, sqlx::Error> {
                let find = sqlx::query::<$database>(ONE).bind(scope.as_str()).bind(tool);
                let row = self.fetch_optional(find.bind(signed(version))).await?;
                row.as_ref().map(|row| version!(row)).transpose()
            }

            async fn pin_approvals(
                &mut self,
                scope: &Scope,
                tool: &str,
            ) -> Result<Vec<ApprovalRow>, sqlx::Error> {
                let find = sqlx::query::<$database>(APPROVALS_OF).bind(scope.as_str()).bind(tool);
                let rows = self.fetch_all(find).await?;
                rows.iter().map(|row| approval!(row)).collect()
            }

            async fn pin_approvals_since(
                &mut self,
                number: u64,
            ) -> Result<Vec<Approved>, sqlx::Error> {
                let most = i64::try_from(SOME).unwrap_or(i64::MAX);
                let find = sqlx::query::<$database>(SINCE).bind(signed(number)).bind(most);
                let rows = self.fetch_all(find).await?;
                let read = |row: &<$database as sqlx::Database>::Row| {
                    let approval = approval!(row)?;
                    let scope = Scope::from_store(row.try_get(6)?);
                    let text = Bytes::from(row.try_get::<Vec<u8>, _>(8)?);
                    Ok(approval.approved(&scope, digest(row.try_get(7)?), text))
                };
                rows.iter().map(read).collect()
            }

            async fn last_pin_approval(&mut self) -> Result<u64, sqlx::Error> {
                let row = self.fetch_one(sqlx::query::<$database>(LAST)).await?;
                Ok(unsigned(row.try_get(0)?))
            }

            async fn pinned_tools(&mut self, scope: &Scope) -> Result<usize, sqlx::Error> {
                let count = sqlx::query::<$database>(TOOLS).bind(scope.as_str());
                let count: i64 = self.fetch_one(count).await?.try_get(0)?;
                Ok(usize::try_from(count).unwrap_or(usize::MAX))
            }

            async fn pinned_tool_names(
                &mut self,
                scope: &Scope,
            ) -> Result<Vec<Arc<str>>, sqlx::Error> {
                let find = sqlx::query::<$database>(TOOL_NAMES).bind(scope.as_str());
                let rows = self.fetch_all(find).await?;
                rows.iter().map(|row| Ok(row.try_get::<String, _>(0)?.into())).collect()
            }

            async fn insert_pin_version(
                &mut self,
                scope: &Scope,
                tool: &str,
                version: &Version,
            ) -> Result<(), sqlx::Error> {
                let insert = sqlx::query::<$database>(INSERT)
                    .bind(scope.as_str())
                    .bind(tool)
                    .bind(signed(version.version))
                    .bind(DIGEST_FORM)
                    .bind(&version.digest[..])
                    .bind(&version.definition[..])
                    .bind(signed(version.first_ms))
                    .bind(signed(version.last_ms))
                    .bind(i64::from(version.vouched));
                self.execute(insert).await.map(|_| ())
            }

            async fn insert_pin_approval(
                &mut self,
                scope: &Scope,
                row: &ApprovalRow,
            ) -> Result<(), sqlx::Error> {
                let insert = sqlx::query::<$database>(INSERT_APPROVAL)
                    .bind(scope.as_str())
                    .bind(&*row.tool)
                    .bind(signed(row.number))
                    .bind(signed(row.version))
                    .bind(row.how.number())
                    .bind(&*row.by)
                    .bind(signed(row.at_ms));
                self.execute(insert).await.map(|_| ())
            }

            async fn touch_pin(
                &mut self,
                scope: &Scope,
                tool: &str,
                digest: &[u8; 32],
                at_ms: u64,
            ) -> Result<(), sqlx::Error> {
                let touch = sqlx::query::<$database>(TOUCH).bind(scope.as_str()).bind(tool);
                let touch = touch.bind(&digest[..]).bind(signed(at_ms));
                self.execute(touch).await.map(|_| ())
            }

            async fn prune_pins(
                &mut self,
                scope: &Scope,
                tool: &str,
                most: usize,
            ) -> Result<(), sqlx::Error> {
                let most = i64::try_from(most).unwrap_or(i64::MAX);
                let prune = sqlx::query::<$database>(PRUNE).bind(scope.as_str()).bind(tool);
                self.execute(prune.bind(most)).await.map(|_| ())
            }

            async fn forget_pins(&mut self, before_ms: u64) -> Result<(), sqlx::Error> {
                for forget in [FORGET_APPROVALS, FORGET] {
                    let forget = sqlx::query::<$database>(forget).bind(signed(before_ms));
                    self.execute(forget).await?;
                }
                Ok(())
            }

            async fn pins_of_other_forms(&mut self) -> Result<Vec<OtherForm>, sqlx::Error> {
                let find = sqlx::query::<$database>(OTHER_FORMS).bind(DIGEST_FORM);
                let rows = self.fetch_all(find).await?;
                let read = |row: &<$database as sqlx::Database>::Row| {
                    let (scope, tool): (String, String) = (row.try_get(0)?, row.try_get(1)?);
                    let text: Vec<u8> = row.try_get(3)?;
                    let version = unsigned(row.try_get(2)?);
                    Ok((Scope::from_store(scope), tool.into(), version, text.into()))
                };
                rows.iter().map(read).collect()
            }

            async fn renew_pin(
                &mut self,
                scope: &Scope,
                tool: &str,
                version: u64,
                digest: &[u8; 32],
            ) -> Result<(), sqlx::Error> {
                let renew = sqlx::query::<$database>(RENEW).bind(scope.as_str()).bind(tool);
                let renew = renew.bind(signed(version)).bind(DIGEST_FORM).bind(&digest[..]);
                self.execute(renew).await.map(|_| ())
            }
        }
    };
}

// Whoever begins to write in SQLite is alone already.
statements!(SqliteConnection, Sqlite, "SELECT 1");
statements!(PgConnection, Postgres, "SELECT pg_advisory_xact_lock(7461018464)");
