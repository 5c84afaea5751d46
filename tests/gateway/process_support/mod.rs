//! The gateway as its users have it: the real binary, its log, its audit file, its signals.
//!
//! Everything here blocks; a test that wants two things at once uses threads.

mod http;
mod load;
mod shelf;
mod upstream;

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

pub use self::{
    http::{Client, Dialect, Response, exchange},
    load::{Crowd, Server},
    shelf::{Shelf, Shop, prompt, resource, template},
    upstream::{Answer, Seen, Upstream, text_result, tool},
};

/// How long anything may take that is expected to happen.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What a gateway is started with.
pub struct Setup {
    /// More top-level keys of `hangu.yaml`.
    config: String,
    /// More callers than those there are always.
    callers: String,
    upstreams: String,
    policies: Vec<(&'static str, String)>,
    env: Vec<(&'static str, String)>,
    admin: SocketAddr,
    /// More members of `admin:`.
    admin_more: String,
    /// A limit on the size of the files it writes, in blocks of 512 bytes.
    file_blocks: Option<u32>,
}

/// The keys of the callers that every setup has.
pub const KEY: &str = "acme-gateway-key-of-the-tests";
pub const FIXED_KEY: &str = "acme-fixed-key-of-the-tests-";
pub const BOTH_KEY: &str = "acme-both-key-of-the-tests---";
pub const GLOBEX_KEY: &str = "globex-gateway-key-of-the-tests";

const CALLERS: &str = r"
callers:
  gate: { keys: [{ env: KEY }], tenant: acme, identity: header, catalog_roles: [member] }
  fixed: { keys: [{ env: FIXED_KEY }], tenant: acme, identity: { empId: E9, roles: [member] } }
  both:
    keys: [{ env: BOTH_KEY }]
    tenant: acme
    identity: { header: true, fallback: { empId: E9, roles: [member] } }
  globex: { keys: [{ env: GLOBEX_KEY }], tenant: globex, identity: header, catalog_roles: [member] }
";

const DIRECTORY: &str = "version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member] }
  E2: { tenant: acme, roles: [member] }
  G1: { tenant: globex, roles: [member] }
";

/// Members may do whatever is classified.
pub const ALLOW_MEMBERS: &str = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: members, effect: allow, roles: [member], risk: [read_low, write_low] }
";

impl Setup {
    pub fn new() -> Self {
        let env = [
            ("KEY", KEY),
            ("FIXED_KEY", FIXED_KEY),
            ("BOTH_KEY", BOTH_KEY),
            ("GLOBEX_KEY", GLOBEX_KEY),
        ];
        Self {
            config: String::new(),
            callers: String::new(),
            upstreams: String::new(),
            policies: vec![
                ("directory.yaml", DIRECTORY.to_owned()),
                ("platform.yaml", ALLOW_MEMBERS.to_owned()),
            ],
            env: env.map(|(name, value)| (name, value.to_owned())).into(),
            admin: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin_more: String::new(),
            file_blocks: None,
        }
    }

    /// A standard server; every tool of it is `read_low` but for those named here.
    pub fn upstream(self, name: &str, at: &Upstream, more: &str, tools: &str) -> Self {
        self.upstream_at(name, &at.url(), more, tools)
    }

    pub fn upstream_at(mut self, name: &str, url: &str, more: &str, tools: &str) -> Self {
        let comma = if more.is_empty() { "" } else { ", " };
        self.upstreams += &format!("  {name}: {{ url: \"{url}\", poll: 1s{comma}{more} }}\n");
        let file: &'static str = format!("tools-{name}.yaml").leak();
        let text = format!(
            "version: hangu/v1\nkind: Tools\nupstreams:\n  {name}: {{ default: {{ risk: read_low }}, \
             tools: {{ {tools} }} }}\n"
        );
        self.policies.push((file, text));
        self
    }

    /// A standard server that is looked at so seldom.
    pub fn upstream_polled(mut self, name: &str, at: &Upstream, poll: &str) -> Self {
        self = self.upstream(name, at, "", "");
        self.upstreams = self.upstreams.replace("poll: 1s", &format!("poll: {poll}"));
        self
    }

    /// A server by its whole entry; every tool of it is `read_low`.
    pub fn upstream_entry(mut self, name: &str, entry: &str) -> Self {
        self.upstreams += &format!("  {name}: {entry}\n");
        let file: &'static str = format!("tools-{name}.yaml").leak();
        let text = format!(
            "version: hangu/v1\nkind: Tools\nupstreams:\n  {name}: {{ default: {{ risk: read_low }} }}\n"
        );
        self.policies.push((file, text));
        self
    }

    pub fn config(mut self, text: &str) -> Self {
        self.config += text;
        self.config.push('\n');
        self
    }

    pub fn caller(mut self, entry: &str) -> Self {
        self.callers += &format!("  {entry}\n");
        self
    }

    /// A policy file, in the place of one of the same name.
    pub fn policy(mut self, file: &'static str, text: &str) -> Self {
        self.policies.retain(|(name, _)| *name != file);
        self.policies.push((file, text.to_owned()));
        self
    }

    pub fn env(mut self, name: &'static str, value: &str) -> Self {
        self.env.push((name, value.to_owned()));
        self
    }

    pub fn admin(mut self, address: SocketAddr) -> Self {
        self.admin = address;
        self
    }

    pub fn admin_more(mut self, text: &str) -> Self {
        self.admin_more = format!(", {text}");
        self
    }

    pub fn file_blocks(mut self, blocks: u32) -> Self {
        self.file_blocks = Some(blocks);
        self
    }

    /// Writes the files; the same folder can be started from again.
    pub fn write(&self) -> Home {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("policies")).unwrap();
        for (name, text) in &self.policies {
            fs::write(dir.path().join("policies").join(name), text).unwrap();
        }
        let upstreams = if self.upstreams.is_empty() { "  {}\n" } else { &self.upstreams };
        let text = format!(
            "version: hangu/v1\nlisten: 127.0.0.1:0\nadmin: {{ listen: \"{}\"{} }}\n\
             workers: 2\n{}{CALLERS}{}upstreams:\n{upstreams}",
            self.admin, self.admin_more, self.config, self.callers
        );
        fs::write(dir.path().join("hangu.yaml"), text).unwrap();
        Home { dir: Arc::new(dir), env: self.env.clone(), file_blocks: self.file_blocks }
    }

    pub fn start(&self) -> Process {
        self.write().serve(&[])
    }
}

/// A folder with a configuration.
#[derive(Clone)]
pub struct Home {
    dir: Arc<TempDir>,
    env: Vec<(&'static str, String)>,
    file_blocks: Option<u32>,
}

impl Home {
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = match self.file_blocks {
            // The signal that goes with the limit is ignored, so that writing fails instead.
            Some(blocks) => {
                let mut shell = Command::new("/bin/sh");
                let script = format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$0\" \"$@\"");
                shell.args(["-c", &script]).arg(env!("CARGO_BIN_EXE_hangu"));
                shell
            }
            None => Command::new(env!("CARGO_BIN_EXE_hangu")),
        };
        command
            .current_dir(self.dir.path())
            .env("TMPDIR", self.dir.path())
            .env_remove("RUST_LOG")
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs another command there; what it says.
    pub fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    pub fn serve(&self, more: &[&str]) -> Process {
        let mut process = self.launch(more);
        process.wait_until_ready();
        process
    }

    /// Starts without waiting.
    pub fn launch(&self, more: &[&str]) -> Process {
        let mut command = self.command();
        command.args(["serve", "--config", "hangu.yaml"]).args(more);
        Process::spawn(command, self.clone())
    }

    /// Runs another command there, to its end.
    pub fn output(&self, args: &[&str]) -> std::process::Output {
        self.command().args(args).stdin(Stdio::null()).output().unwrap()
    }

    /// The records in the audit file, oldest first, after a look at the chain.
    pub fn audit(&self) -> Vec<Value> {
        records(&fs::read_to_string(self.path("audit/hangu.jsonl")).unwrap_or_default())
    }
}

/// Reads an audit file and checks its chains.
pub fn records(text: &str) -> Vec<Value> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let read = |line: &str| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in the line {line:?}"))
    };
    let records: Vec<Value> = whole.lines().map(read).collect();
    // Of each chain the last hash and number; a chain begins at a record of another one.
    let mut chains: HashMap<&str, (&str, u64)> = HashMap::new();
    let mut hashes = HashSet::from(["0".repeat(64)]);
    for (line, record) in whole.lines().zip(&records) {
        let text = |name: &str| record["chain"][name].as_str().unwrap();
        let (hash, prev) = (text("hash"), text("prev"));
        assert_eq!(digest(line, record), hash, "the hash of {line}");
        let seq = record["seq"].as_u64().unwrap();
        match chains.insert(text("id"), (hash, seq)) {
            Some((last, number)) => assert_eq!((prev, seq), (last, number + 1), "{line}"),
            None => assert!(hashes.contains(prev) && seq == 1, "{line}"),
        }
        hashes.insert(hash.to_owned());
    }
    records
}

/// `SHA-256("hangu.audit.v1" ‖ prev ‖ record without hash)`, from the bytes of the line.
fn digest(line: &str, record: &Value) -> String {
    use sha2::{Digest, Sha256};
    let chain = &record["chain"];
    let member = format!("\"hash\":{},", chain["hash"]);
    let without = line.replacen(&member, "", 1);
    let mut digest = Sha256::new();
    digest.update(b"hangu.audit.v1");
    let prev = chain["prev"].as_str().unwrap().as_bytes();
    for pair in prev.chunks(2) {
        let pair = std::str::from_utf8(pair).unwrap();
        digest.update([u8::from_str_radix(pair, 16).unwrap()]);
    }
    digest.update(without);
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A running gateway. It is killed when it is dropped.
pub struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
    home: Home,
    pub address: SocketAddr,
    pub admin: SocketAddr,
}

impl Process {
    /// `hangu demo`, ready.
    pub fn demo() -> Self {
        let home = Setup::new().write();
        let mut command = home.command();
        command.args(["demo", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        let mut process = Self::spawn(command, home);
        let banner = process.wait_for_log("Ctrl-C ends it.");
        let after = |what: &str| -> SocketAddr {
            let rest = banner.split_once(what).unwrap().1;
            rest.split('/').next().unwrap().parse().unwrap()
        };
        process.address = after("MCP      http://");
        process.admin = after("probes   http://");
        process
    }

    fn spawn(mut command: Command, home: Home) -> Self {
        // A group of its own: what a terminal sends to the tests is not for it.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        collect(BufReader::new(out), log.clone());
        collect(BufReader::new(err), log.clone());
        let none = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { child, log, home, address: none, admin: none }
    }

    pub fn wait_until_ready(&mut self) {
        let log = self.wait_for_log("\"Hangu serves\"");
        let line = log.lines().find(|line| line.contains("\"Hangu serves\"")).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let address = |name: &str| line[name].as_str().unwrap().parse().unwrap();
        (self.address, self.admin) = (address("address"), address("admin"));
    }

    /// Everything it has written so far.
    pub fn log(&self) -> String {
        self.log.lock().clone()
    }

    #[track_caller]
    pub fn wait_for_log(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.log();
            if log.contains(text) {
                return log;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended with {ended:?}:\n{log}");
            assert!(Instant::now() < deadline, "`{text}` is not in the log:\n{log}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A client with the header-naming caller's key, for an employee.
    pub fn client(&self, path: &str, dialect: Dialect) -> Client {
        Client::new(self.address, path, dialect).key(KEY).employee("E1")
    }

    pub fn metrics(&self) -> String {
        let answer = exchange(self.admin, "GET", "/metrics", &[], b"").unwrap();
        assert_eq!(answer.status, 200);
        answer.text()
    }

    /// Audit records, once there are as many as `wanted` says of a kind.
    #[track_caller]
    pub fn audit_until(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let records = self.home.audit();
            if wanted(&records) {
                return records;
            }
            assert!(Instant::now() < deadline, "{records:#?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The record of an answer, by its trace id.
    #[track_caller]
    pub fn record_of(&self, answer: &Response) -> Value {
        let trace = answer.header("x-trace-id").unwrap().to_owned();
        let is = |record: &Value| record["event"] == "call" && record["traceId"] == *trace;
        let records = self.audit_until(|records| records.iter().any(is));
        records.into_iter().find(is).unwrap()
    }

    /// What of its memory is resident, in bytes, the program itself with it.
    pub fn resident(&self) -> u64 {
        self.status("VmRSS:") * 1_024
    }

    /// What it has allocated and not given back, in KiB: without the pages of the program, which
    /// come and go as its parts are used.
    pub fn memory(&self) -> u64 {
        self.status("RssAnon:")
    }

    fn status(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: i32) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args([format!("-{signal}"), pid]).status().unwrap();
        assert!(status.success());
    }

    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Open files and sockets.
    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    pub fn threads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        // One may end between the listing and the look.
        let name = |task: std::io::Result<fs::DirEntry>| {
            fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        let mut names: Vec<String> =
            tasks.filter_map(name).map(|name| name.trim().to_owned()).collect();
        names.sort();
        names
    }

    pub fn home(&self) -> &Home {
        &self.home
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl BufRead + Send + 'static, log: Arc<Mutex<String>>) {
    thread::spawn(move || {
        let mut line = String::new();
        while from.read_line(&mut line).is_ok_and(|read| read > 0) {
            log.lock().push_str(&line);
            line.clear();
        }
    });
}

/// An address where nothing listens.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Tries until it is so.
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
