//! How the tables came to be what they are: one list, applied in order, each once.
//!
//! A migration that was released is never changed; what it did wrong the next one puts right.

use super::{OpenError, lane::Backend, replays::ReplaySql};

/// One step, in the words of each database.
pub(super) struct Migration {
    pub name: &'static str,
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

/// A step by its file, which begins with its number.
macro_rules! migration {
    ($number:literal, $name:literal) => {
        Migration {
            name: $name,
            sqlite: include_str!(concat!("migrations/", $number, "_", $name, ".sqlite.sql")),
            postgres: include_str!(concat!("migrations/", $number, "_", $name, ".postgres.sql")),
        }
    };
}

/// In order; the first is number 1.
const MIGRATIONS: &[Migration] = &[
    migration!("0001", "replays"),
    migration!("0002", "credentials"),
    migration!("0003", "approvals"),
    migration!("0004", "quotas"),
    migration!("0005", "pins"),
    migration!("0006", "pin_history"),
    migration!("0007", "servers"),
    migration!("0008", "handed_on"),
    migration!("0009", "renewals"),
];

const LIST: &str = "CREATE TABLE IF NOT EXISTS hangu_migration (
    version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_ms BIGINT NOT NULL)";

/// Brings the tables up to date, all or not at all.
pub(super) async fn apply<B: Backend>(
    backend: &B,
    conn: &mut B::Conn,
    now_ms: u64,
) -> Result<(), OpenError>
where
    B::Conn: ReplaySql,
{
    backend.execute(conn, B::BEGIN).await?;
    // Two that start at once come here one after the other.
    backend.execute(conn, B::LOCK_MIGRATIONS).await?;
    backend.execute(conn, LIST).await?;
    let found = conn.last_migration().await?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    for (version, migration) in (1..).zip(MIGRATIONS) {
        if version > found {
            backend.execute(conn, backend.form(migration)).await?;
            conn.note_migration(version, migration.name, now_ms).await?;
        }
    }
    backend.execute(conn, "COMMIT").await?;
    Ok(())
}
