//! Approved definitions of tools, as statements for both databases.

use std::sync::Arc;

use bytes::Bytes;
use sqlx::{Executor, PgConnection, Postgres, Row, Sqlite, SqliteConnection};

use super::{Fault, Handle, lane::Backend};
use crate::{
    model::server::UpstreamName,
    registry::store::{Approved, PinStore, StoreFault, Then},
};

const PUT: &str = "
INSERT INTO pin (upstream, tool, definition, approved_by, approved_ms)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (upstream, tool) DO UPDATE SET
    definition = excluded.definition, approved_by = excluded.approved_by,
    approved_ms = excluded.approved_ms";

const ALL: &str =
    "SELECT upstream, tool, definition, approved_by, approved_ms FROM pin ORDER BY upstream, tool";

/// The statements over a connection.
pub(super) trait PinSql {
    async fn put_pin(&mut self, approved: &Approved) -> Result<(), sqlx::Error>;

    async fn pins(&mut self) -> Result<Vec<Approved>, sqlx::Error>;
}

macro_rules! statements {
    ($connection:ty, $database:ty) => {
        impl PinSql for $connection {
            async fn put_pin(&mut self, approved: &Approved) -> Result<(), sqlx::Error> {
                let put = sqlx::query::<$database>(PUT)
                    .bind(approved.upstream.as_str())
                    .bind(&*approved.tool)
                    .bind(&approved.definition[..])
                    .bind(&*approved.by)
                    .bind(i64::try_from(approved.at_ms).unwrap_or(i64::MAX));
                self.execute(put).await.map(drop)
            }

            async fn pins(&mut self) -> Result<Vec<Approved>, sqlx::Error> {
                let rows = self.fetch_all(sqlx::query::<$database>(ALL)).await?;
                let read = |row| -> Result<Option<Approved>, sqlx::Error> {
                    let row: <$database as sqlx::Database>::Row = row;
                    let (upstream, tool): (String, String) = (row.try_get(0)?, row.try_get(1)?);
                    let definition: Vec<u8> = row.try_get(2)?;
                    let (by, at): (String, i64) = (row.try_get(3)?, row.try_get(4)?);
                    // What could never be configured is nobody's.
                    Ok(UpstreamName::parse(&upstream).ok().map(|upstream| Approved {
                        upstream,
                        tool: Arc::from(tool),
                        definition: Bytes::from(definition),
                        by: by.into(),
                        at_ms: u64::try_from(at).unwrap_or(0),
                    }))
                };
                rows.into_iter().filter_map(|row| read(row).transpose()).collect()
            }
        }
    };
}

statements!(SqliteConnection, Sqlite);
statements!(PgConnection, Postgres);

impl<B> PinStore for Handle<B>
where
    B: Backend,
    B::Conn: PinSql,
{
    fn approve(&self, approved: Approved, then: Then<()>) {
        let work = async move |conn: &mut B::Conn| Ok((conn.put_pin(&approved).await?, true));
        self.submit(&[0; 32], work, |result| {
            then(result.map_err(|fault| match fault {
                Fault::Unavailable => StoreFault::Unavailable,
                Fault::Unclear => StoreFault::Unclear,
            }));
        });
    }
}
