//! What ten thousand servers of employees cost a gateway: to start, to keep, to call beside.
//!
//!     cargo bench --bench servers [-- SERVERS]
//!
//! Without `--bench`, as `cargo test --benches` calls it, there are forty, to show that it runs.
//! Ten tools a server, each with a definition that was approved by its first use, in a SQLite file
//! that the store's own code has written, and a directory of all who have one. The gateway with
//! that file and one with an empty one, which lets nobody have a server, are called in turns, over
//! one connection: trust the ratios.
//!
//! What an employee with one server takes, of 300 who each listed `/mcp` once (resident memory, a
//! build that is not optimised, x86-64, two cores, 2026-12-01): 127 KiB while each had a cache for
//! lists and compiled schemas of his own, 48 KiB since; some 10 KiB of that is the rendered list,
//! of which all together keep 64 MiB at most.

#[path = "../end_to_end/load.rs"]
mod load;
#[path = "../end_to_end/process.rs"]
mod process;
mod stored;
#[path = "../end_to_end/stub.rs"]
mod stub;

use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use self::{
    load::{Run, Shot},
    process::{Server, Usage},
    stored::{directory, fill, owners, weigh},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const KEY: &str = "servers-bench-key";
const TENANT: &str = "acme";
/// Of each server.
const TOOLS: usize = 10;
/// Those who call, and how many servers each has; the others have one each.
const CALLERS: [(&str, usize); 3] = [("E0", 0), ("E1", 1), ("E10", 10)];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    if std::env::args().nth(1).as_deref() == Some("stub") {
        return Ok(stub::run()?);
    }
    let measured = std::env::args().any(|argument| argument == "--bench");
    let number = std::env::args().find_map(|argument| argument.parse().ok());
    let servers = number.unwrap_or(if measured { 10_000 } else { 40 });
    let (time, rounds) = if measured { (Duration::from_secs(1), 5) } else { (SHORT, 1) };
    let folder = tempfile::tempdir()?;
    let stub = Upstream::start()?;

    let (idle, full) = (folder.path().join("idle"), folder.path().join("full"));
    for (place, own) in [(&idle, ""), (&full, SELF_SERVICE)] {
        fs::create_dir_all(place.join("policies"))?;
        fs::write(place.join("policies/all.yaml"), format!("{POLICIES}{own}"))?;
        fs::write(place.join("policies/directory.yaml"), directory(servers)?)?;
    }
    let keys = fill(&full.join("hangu.db"), servers, &stub.address).await?;

    weigh()?;
    let mut gateways = Vec::new();
    for (name, place) in [("no servers", &idle), ("servers", &full)] {
        let mut starts = Vec::new();
        let mut last = None;
        for _ in 0..rounds {
            drop(last.take());
            let gateway = Gateway::start(place, &stub.address).await?;
            starts.push(gateway.ready_after);
            last = Some(gateway);
        }
        starts.sort();
        let gateway = last.ok_or("no gateway was started")?;
        tell(format_args!(
            "{name}: ready after {:?} (the slowest of {rounds} {:?}), {:.1} MiB resident",
            starts.get(rounds / 2).unwrap_or(&Duration::ZERO),
            starts.last().unwrap_or(&Duration::ZERO),
            mebibytes(gateway.server.usage()),
        ));
        gateways.push(gateway);
    }
    let [idle, full] = gateways.as_slice() else { return Err("there are two".into()) };
    compare(idle, full, &keys, time, rounds).await?;
    everybody(full, servers).await
}

/// For how long each is called where nothing is measured.
const SHORT: Duration = Duration::from_millis(50);

/// Calls both in turns, and tells what each costs.
async fn compare(
    idle: &Gateway,
    full: &Gateway,
    keys: &[Arc<str>],
    time: Duration,
    rounds: usize,
) -> Outcome<()> {
    let mut sides = Vec::new();
    for what in [What::List, What::Call] {
        sides.push(Side::new(what, idle, "no servers at all".to_owned(), "E0", "/mcp/bench", 1));
        for (who, count) in CALLERS {
            sides.push(Side::new(what, full, format!("has {count}"), who, "/mcp/bench", 1));
        }
        // All that he has, or what he has alone.
        let key = keys.first().ok_or("nobody has a server")?;
        for (who, count) in CALLERS {
            if what == What::List {
                let name = format!("has {count}, of all");
                sides.push(Side::new(what, full, name, who, "/mcp", 1 + count));
            } else if count > 0 {
                let key = if count == 1 { key } else { keys.get(1).unwrap_or(key) };
                let path = format!("/mcp/{key}");
                sides.push(Side::new(
                    what,
                    full,
                    format!("has {count}, of his own"),
                    who,
                    &path,
                    1,
                ));
            }
        }
    }
    for side in &mut sides {
        side.check().await?;
    }
    for _ in 0..rounds {
        for side in &mut sides {
            let before = side.gateway.server.usage();
            let run = side.shot.fire(1, time).await?;
            side.add(&run, before);
        }
    }
    tell(format_args!(
        "{:38} {:>8} {:>8} {:>8} {:>8}",
        "", "calls/s", "p50 µs", "p99 µs", "CPU µs"
    ));
    sides.iter().for_each(Side::tell);
    tell(format_args!(
        "resident after that: {:.1} MiB without, {:.1} MiB with servers",
        mebibytes(idle.server.usage()),
        mebibytes(full.server.usage()),
    ));
    Ok(())
}

/// Everybody lists what he has, once: then the gateway has all of it in memory.
async fn everybody(full: &Gateway, servers: usize) -> Outcome<()> {
    let before = full.server.usage();
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut asked = 0;
    for owner in owners(servers).skip(11) {
        let at = Instant::now();
        shot(full, What::List, &owner, "/mcp").probe().await?;
        slowest = slowest.max(at.elapsed());
        asked += 1;
    }
    let (took, after) = (begun.elapsed(), full.server.usage());
    let kept = after.resident_bytes.saturating_sub(before.resident_bytes);
    tell(format_args!(
        "{asked} employees list what they have, one after the other: {:.0} µs each, the slowest \
         {slowest:?}; {:.1} MiB resident, {:.1} KiB an employee",
        took.as_secs_f64() * 1e6 / asked.max(1) as f64,
        mebibytes(after),
        kept as f64 / 1024.0 / f64::from(asked.max(1)),
    ));
    Ok(())
}

// === who is called ===

/// The stub in its own process; it ends with its standard input, when this is dropped.
struct Upstream {
    address: String,
    child: Child,
}

impl Upstream {
    fn start() -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("stub")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("it says nothing")?;
        let mut address = String::new();
        BufReader::new(output).read_line(&mut address)?;
        Ok(Self { address: address.trim().to_owned(), child })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

struct Gateway {
    address: String,
    server: Server,
    /// From before its process was started.
    ready_after: Duration,
}

impl Gateway {
    async fn start(place: &Path, stub: &str) -> Outcome<Self> {
        let (address, admin) = (free_address()?, free_address()?);
        let config = format!(
            "version: hangu/v1
listen: {address}
workers: 2
admin: {{ listen: {admin} }}
policies: policies/
audit: {{ file: audit.jsonl }}
store: sqlite:hangu.db
egress: {{ allow: [127.0.0.1] }}
servers: {{ refresh: 1d, loaded: 100000 }}
callers:
  bench: {{ keys: [{{ env: HANGU_BENCH_KEY }}], tenant: {TENANT}, identity: header }}
upstreams:
  bench: {{ url: \"http://{stub}/mcp/{TOOLS}\" }}
"
        );
        fs::write(place.join("hangu.yaml"), config)?;
        let mut command = Command::new(PathBuf::from(env!("CARGO_BIN_EXE_hangu")));
        command.args(["serve", "--config"]).arg(place.join("hangu.yaml"));
        command.env("HANGU_BENCH_KEY", KEY);
        let begun = Instant::now();
        let mut server = Server::start(&mut command, &place.join("output.log"))?;
        server.listens(&admin).await?;
        while !is_ready(&admin).await {
            if begun.elapsed() > Duration::from_secs(60) {
                let log = fs::read_to_string(place.join("output.log"))?;
                return Err(format!("it does not become ready:\n{log}").into());
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(Self { address, server, ready_after: begun.elapsed() })
    }
}

async fn is_ready(admin: &str) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = tokio::net::TcpStream::connect(admin).await else { return false };
    let head = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    stream.write_all(head.as_bytes()).await.is_ok()
        && stream.read_to_end(&mut answer).await.is_ok()
        && answer.starts_with(b"HTTP/1.1 200")
}

fn free_address() -> Outcome<String> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string())
}

const POLICIES: &str = "version: hangu/v1
kind: Tools
upstreams: { bench: { default: { risk: read_low } } }
---
version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: read, effect: allow, risk: [read_low] }
";

const SELF_SERVICE: &str = "---
version: hangu/v1
kind: Policy
scope: { tenant: acme }
self_service:
  roles: [member]
  hosts: [\"127.0.0.1:*\"]
  default: { risk: read_low, pin: first_use }
rules: []
";

// === how it is called ===

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    List,
    Call,
}

struct Side<'a> {
    what: What,
    gateway: &'a Gateway,
    name: String,
    shot: Shot,
    /// How many tools a list has.
    tools: usize,
    /// Of each round: calls per second, p50, p99 and processor time of a call, in microseconds.
    rounds: Vec<[f64; 4]>,
}

impl<'a> Side<'a> {
    fn new(
        what: What,
        gateway: &'a Gateway,
        name: String,
        who: &str,
        path: &str,
        servers: usize,
    ) -> Self {
        let shot = shot(gateway, what, who, path);
        Self { what, gateway, name, shot, tools: servers * TOOLS, rounds: Vec::new() }
    }

    /// That it is answered, and by no error in a result's clothes.
    async fn check(&mut self) -> Outcome<()> {
        let answer = self.shot.probe().await.map_err(|error| format!("{}: {error}", self.name))?;
        let value: serde_json::Value = serde_json::from_slice(&answer)?;
        let result = value.get("result").ok_or_else(|| format!("{}: {value}", self.name))?;
        if result.get("isError").is_some_and(|error| error == true) {
            return Err(format!("{}: {value}", self.name).into());
        }
        let tools = result.get("tools").and_then(|tools| tools.as_array());
        if self.what == What::List && tools.map(Vec::len) != Some(self.tools) {
            return Err(format!("{} has not {} tools: {value}", self.name, self.tools).into());
        }
        Ok(())
    }

    fn add(&mut self, run: &Run, before: Usage) {
        let cpu = self.gateway.server.usage().cpu.saturating_sub(before.cpu);
        let each = cpu.as_secs_f64() * 1e6 / (run.calls.max(1)) as f64;
        self.rounds.push([run.per_second(), run.quantile(0.5), run.quantile(0.99), each]);
    }

    /// The median of its rounds, figure by figure.
    fn tell(&self) {
        let median = |at: usize| {
            let mut all: Vec<f64> =
                self.rounds.iter().filter_map(|round| round.get(at)).copied().collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let name = format!("{:?}, {}", self.what, self.name);
        let [rate, p50, p99, cpu] = [0, 1, 2, 3].map(median);
        tell(format_args!("{name:38} {rate:>8.0} {p50:>8.0} {p99:>8.0} {cpu:>8.1}"));
    }
}

/// The request.
fn shot(gateway: &Gateway, what: What, who: &str, path: &str) -> Shot {
    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let (method, named) = match what {
        What::List => ("tools/list", ""),
        What::Call => {
            ("tools/call", r#""name":"result_300","arguments":{"query":"open orders","limit":10},"#)
        }
    };
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":17,"method":"{method}","params":{{{named}{META}}}}}"#);
    let mut headers = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", method),
        ("X-Api-Key", KEY),
        ("SSO-Emp-Id", who),
    ];
    if what == What::Call {
        headers.push(("Mcp-Name", "result_300"));
    }
    Shot::new(&gateway.address, path, &headers, &body)
}

fn mebibytes(usage: Usage) -> f64 {
    usage.resident_bytes as f64 / 1_048_576.0
}

#[expect(clippy::print_stdout, reason = "what it prints is what it is for")]
fn tell(line: std::fmt::Arguments<'_>) {
    println!("{line}");
}
