//! A PostgreSQL database, which several replicas share.
//!
//! What the server has acknowledged it has written. Nobody can tell here whether another process
//! lives: its calls count as running until their leases are over.

use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};
use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};

use super::{OpenError, lane::Backend, migrations::Migration};

pub(super) struct Postgres {
    options: PgConnectOptions,
    owner: [u8; 16],
}

// === impl Postgres ===

impl Postgres {
    pub fn open(url: &SecretString) -> Result<Self, OpenError> {
        let options = PgConnectOptions::from_str(url.expose_secret())
            .map_err(OpenError::Address)?
            .application_name("hangu")
            // Whoever holds a row for longer is not waited for.
            .options([("statement_timeout", "3500"), ("lock_timeout", "3000")])
            .disable_statement_logging();
        Ok(Self { options, owner: rand::random() })
    }
}

impl Backend for Postgres {
    type Conn = PgConnection;

    const BEGIN: &'static str = "BEGIN";

    /// A number of ours; the lock is gone with the transaction.
    const LOCK_MIGRATIONS: &'static str = "SELECT pg_advisory_xact_lock(7461018462)";

    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn owner(&self) -> [u8; 16] {
        self.owner
    }

    fn is_dead(&self, _: &[u8]) -> bool {
        false
    }

    fn gone(&self) {}

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        self.options.connect().await
    }

    async fn disconnect(&self, conn: PgConnection) {
        // What is committed is written; this is a farewell.
        let _ = conn.close().await;
    }

    async fn execute(&self, conn: &mut PgConnection, sql: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql).execute(conn).await.map(|_| ())
    }

    fn form(&self, migration: &Migration) -> &'static str {
        migration.postgres
    }
}
