//! The embedded store: one file of this host's, written through a log (WAL).
//!
//! A commit is synced, so what was acknowledged survives the process and the power. Several
//! processes may use the file, such as two of which one takes over from the other; they wait for
//! each other. Each holds a lock on a small file of its own beside it, which the kernel takes away
//! with the process: so the next one knows at once whose calls nobody will end.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions, remove_file},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    ConnectOptions, Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use super::{OpenError, lane::Backend, migrations::Migration};

/// How long one waits for another process that writes.
const BUSY: Duration = Duration::from_secs(2);

/// The file, and this process's lock beside it.
pub(super) struct Sqlite {
    path: PathBuf,
    owner: [u8; 16],
    _alive: File,
}

// === impl Sqlite ===

impl Sqlite {
    /// Makes the file if it is not there, for this user alone.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::File { path: path.to_owned(), source };
        std::fs::create_dir_all(folder_of(path)).map_err(failed)?;
        // SQLite gives its other files the mode of this one.
        private(path).map_err(failed)?;
        // The name of a new file is to survive the power too; SQLite sees to its own.
        File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(failed)?;
        let owner: [u8; 16] = rand::random();
        let lock = private(&lock_path(path, &owner)).map_err(failed)?;
        lock.try_lock().map_err(|error| failed(error.into()))?;
        let store = Self { path: path.to_owned(), owner, _alive: lock };
        store.remove_locks_of_the_dead().map_err(failed)?;
        Ok(store)
    }

    fn remove_locks_of_the_dead(&self) -> io::Result<()> {
        let Some(name) = self.path.file_name() else { return Ok(()) };
        let prefix = [name.as_encoded_bytes(), b"-owner-"].concat();
        for entry in std::fs::read_dir(folder_of(&self.path))? {
            let entry = entry?;
            let other = entry.file_name();
            if other.as_encoded_bytes().starts_with(&prefix) && is_free(&entry.path()) {
                // Somebody else may be at it, too.
                let _ = remove_file(entry.path());
            }
        }
        Ok(())
    }
}

impl Backend for Sqlite {
    type Conn = SqliteConnection;

    /// A transaction that begins to write later could find that others have written since.
    const BEGIN: &'static str = "BEGIN IMMEDIATE";

    const LOCK_MIGRATIONS: &'static str = "SELECT 1";

    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn owner(&self) -> [u8; 16] {
        self.owner
    }

    fn is_dead(&self, owner: &[u8]) -> bool {
        owner != self.owner && is_free(&lock_path(&self.path, owner))
    }

    fn gone(&self) {
        // The next start would find it.
        let _ = remove_file(lock_path(&self.path, &self.owner));
    }

    async fn connect(&self) -> Result<SqliteConnection, sqlx::Error> {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY)
            .foreign_keys(true)
            // What a burst made of the log is given back.
            .pragma("journal_size_limit", "67108864")
            .thread_name(|_| "hangu-sqlite".to_owned())
            .disable_statement_logging()
            .connect()
            .await
    }

    async fn disconnect(&self, conn: SqliteConnection) {
        // What is committed is synced; the last to close only tidies up.
        let _ = conn.close().await;
    }

    async fn execute(
        &self,
        conn: &mut SqliteConnection,
        sql: &'static str,
    ) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql).execute(conn).await.map(|_| ())
    }

    fn form(&self, migration: &Migration) -> &'static str {
        migration.sqlite
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Opens or makes a file that is nobody else's to read.
fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn lock_path(store: &Path, owner: &[u8]) -> PathBuf {
    use std::fmt::Write;
    let mut name = "-owner-".to_owned();
    for byte in owner {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    let mut path = OsString::from(store);
    path.push(name);
    path.into()
}

/// Whether nobody holds this lock: there is no such file, or no process that has it.
fn is_free(lock: &Path) -> bool {
    match File::open(lock) {
        Ok(file) => file.try_lock().is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
