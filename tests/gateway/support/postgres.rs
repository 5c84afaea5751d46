//! A PostgreSQL server for tests: the one that `HANGU_TEST_POSTGRES` names, or one of our own,
//! which ends with this process whatever becomes of it.

use std::{
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

/// Runs a server until its standard input ends, which it does with whoever started it.
const GUARD: &str = r#"
"$@" > "$LOG" 2>&1 &
pid=$!
# A word says that it will be served again; an end without one, that nobody is left.
read -r again || LAST=yes
kill -INT $pid
wait $pid
if [ -n "$LAST" ]; then rm -rf "$FOLDER" "$LOG"; fi
"#;

/// A server of our own.
pub struct Postgres {
    folder: PathBuf,
    binaries: PathBuf,
    port: u16,
    guard: Option<Child>,
}

/// The URL, without a database, of a server for all tests of this process; `None`, and said so
/// loudly, where there is none to be had.
pub fn shared() -> Option<String> {
    static SHARED: OnceLock<Option<(String, Option<Postgres>)>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        if let Ok(url) = std::env::var("HANGU_TEST_POSTGRES") {
            return Some((url.trim_end_matches('/').to_owned(), None));
        }
        let server = Postgres::start()?;
        Some((server.url(), Some(server)))
    });
    shared.as_ref().map(|(url, _)| url.clone())
}

impl Postgres {
    /// Makes a cluster in a folder of its own and serves it; `None` where it is not installed.
    pub fn start() -> Option<Self> {
        let Some(binaries) = binaries() else {
            // Past the capture of a test's output: a skipped test passes, and this must be seen.
            let _ = std::io::stderr().write_all(
                b"\n*** SKIPPED: PostgreSQL is not installed and HANGU_TEST_POSTGRES is not set: \
                  nothing is known of that store ***\n\n",
            );
            return None;
        };
        let folder = tempfile::Builder::new().prefix("hangu-pg-").tempdir().unwrap().keep();
        if is_root() {
            let chown = Command::new("chown").arg("postgres").arg(&folder).status().unwrap();
            assert!(chown.success());
        }
        let made = as_user(&binaries.join("initdb"))
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(folder.join("data"))
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { folder, binaries, port, guard: None };
        server.serve();
        Some(server)
    }

    /// Without a database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}", self.port)
    }

    /// Serves, the first time or again.
    pub fn serve(&mut self) {
        let server = as_user(&self.binaries.join("postgres"));
        let mut guard = Command::new("/bin/sh");
        guard
            .args(["-c", GUARD, "sh"])
            .arg(server.get_program())
            .args(server.get_args())
            .arg("-D")
            .arg(self.folder.join("data"))
            .args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"])
            .arg("-c")
            .arg(format!("unix_socket_directories={}", self.folder.display()))
            .env("LOG", self.folder.with_extension("log"))
            .env("FOLDER", &self.folder)
            .env_remove("LAST")
            .current_dir("/")
            .stdin(Stdio::piped());
        self.guard = Some(guard.spawn().unwrap());
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.accepts() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.folder.with_extension("log")).unwrap_or_default();
        panic!("the server does not start:\n{log}");
    }

    fn accepts(&self) -> bool {
        let ready = Command::new(self.binaries.join("pg_isready"))
            .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
            .status();
        ready.is_ok_and(|status| status.success())
    }

    /// Breaks every connection and refuses new ones.
    pub fn stop(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        if let Some(mut stdin) = guard.stdin.take() {
            let _ = stdin.write_all(b"\n");
        }
        let _ = guard.wait();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
        let _ = fs::remove_file(self.folder.with_extension("log"));
    }
}

/// Where the server's programs are: the newest of those that are installed.
fn binaries() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    found.sort();
    found.pop()
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The server refuses to run as root.
fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}
