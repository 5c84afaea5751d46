//! What the gateway costs beside nginx as a plain proxy before the same upstream, on the
//! same machine, in the same run: calls per second, latency, processor time, memory.
//!
//!     cargo bench --bench end_to_end [-- --quick] [-- --connections 1,16,64 --seconds 2]
//!
//! The servers take turns, so that a busy moment of the machine hits both; trust ratios
//! before figures. Without `--bench`, as `cargo test --benches` calls it, everything is
//! done once and briefly: that shows that it runs, not how fast.
//!
//! Measured 2026-11-30 on two shared cores of an Intel Xeon, nginx 1.22 with two workers, the
//! `dist` profile, three rounds of 1.5 s each:
//!
//!     case                   conn server       calls/s   p50 µs   p99 µs   CPU µs    MiB  to the first: calls/s, CPU
//!     call 300 B                1 nginx          14651       66       91     31.2   15.7
//!     call 300 B                1 hangu           8727      108      201     78.7   40.0  0.60 ×, 2.52 ×
//!     call 300 B               16 nginx          41445      364     1034     21.4   15.9
//!     call 300 B               16 hangu          20858      728     1696     66.1   43.7  0.50 ×, 3.09 ×
//!     call 300 B               64 nginx          43942     1520     3703     21.0   16.7
//!     call 300 B               64 hangu          19267     3065     6532     70.0   45.3  0.44 ×, 3.33 ×
//!     call 10 KB                1 nginx          14819       57      111     32.4   16.7
//!     call 10 KB                1 hangu           6676      143      284    112.8   43.6  0.45 ×, 3.48 ×
//!     call 10 KB               16 nginx          41997      354      937     22.8   16.7
//!     call 10 KB               16 hangu          16939      893     2115     85.0   43.7  0.40 ×, 3.72 ×
//!     call 10 KB               64 nginx          33952     1803     5628     26.7   16.7
//!     call 10 KB               64 hangu          15444     3863     8147     91.6   46.8  0.45 ×, 3.44 ×
//!     call 1 MB                 1 nginx            790     1263     1731   1105.5   16.8
//!     call 1 MB                 1 hangu            400     2474     3701   2266.7   67.4  0.51 ×, 2.05 ×
//!     call 1 MB                16 nginx           1074    14896    20385    891.2   16.8
//!     call 1 MB                16 hangu            698    22912    33228   2205.5   70.2  0.65 ×, 2.47 ×
//!     call 1 MB                64 nginx           1306    42666   105818    756.7   16.8
//!     call 1 MB                64 hangu            686    87323   138487   2222.2   91.6  0.52 ×, 2.94 ×
//!     list 20                   1 nginx          13802       70      108     34.1   16.8
//!     list 20                   1 hangu          18522       49      139     39.6   83.0  1.34 ×, 1.16 ×
//!     list 20                  16 nginx          40544      386      976     24.5   16.8
//!     list 20                  16 hangu          53186      201     1953     26.9   83.7  1.31 ×, 1.10 ×
//!     list 20                  64 nginx          40140     1553     3623     24.5   16.8
//!     list 20                  64 hangu          46952     1164     4741     29.3   84.2  1.17 ×, 1.20 ×
//!     list 1000                 1 nginx           1947      492      732    455.3   16.8
//!     list 1000                 1 hangu           8275      115      219    105.5   49.3  4.25 ×, 0.23 ×
//!     list 1000                16 nginx           3640     4174     9947    308.8   16.8
//!     list 1000                16 hangu          12979     1015     4155     88.2   49.9  3.57 ×, 0.29 ×
//!     list 1000                64 nginx           3672    16125    31691    297.3   16.8
//!     list 1000                64 hangu          12514     4806     8915     90.3   50.7  3.41 ×, 0.30 ×
//!     call 300 B by catalog    16 10 tools       24269      581     1534     56.5   43.8
//!     call 300 B by catalog    16 1000 tools     26943      533     1474     51.7   56.9  1.11 ×, 0.91 ×
//!     MISSED call 300 B, 16 connections: 3.09, CPU at most 2.5 × nginx
//!     kept   call 300 B, 16 connections: 0.50, throughput at least 0.4 × nginx
//!     MISSED call 300 B, 64 connections: 3.33, CPU at most 2.5 × nginx
//!     kept   call 300 B, 64 connections: 0.44, throughput at least 0.4 × nginx
//!     kept   list 1000, 16 connections: 0.29, CPU at most 2 × nginx
//!     kept   list 1000, 64 connections: 0.30, CPU at most 2 × nginx
//!     kept   call 300 B by catalog, 16 connections: 0.91, CPU at most 1.1 × a small catalog's

mod load;
mod process;
mod report;
mod servers;
mod stub;

use std::{collections::BTreeMap, error::Error, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};

use load::Shot;
use report::{Report, Sample};
use servers::{EMPLOYEE, KEY, Proxy, Stub};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Debug, Parser)]
struct Options {
    /// Less of everything: half a minute
    #[arg(long)]
    quick: bool,
    /// How many connections call at once
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    connections: Option<Vec<usize>>,
    /// How long each server is called in each round
    #[arg(long)]
    seconds: Option<f64>,
    /// How often each takes its turn
    #[arg(long)]
    rounds: Option<usize>,
    /// Only the cases whose name holds this
    #[arg(long, default_value = "")]
    case: String,
    /// Only one of the two
    #[arg(long)]
    only: Option<Contestant>,
    /// The gateway, if it is not the one of this build
    #[arg(long, default_value = env!("CARGO_BIN_EXE_hangu"))]
    hangu: PathBuf,
    /// Where the JSON goes besides standard output
    #[arg(long)]
    json: Option<PathBuf>,
    /// What cargo says when it wants figures
    #[arg(long, hide = true)]
    bench: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Contestant {
    Nginx,
    Hangu,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The upstream, as a process of its own
    #[command(hide = true)]
    Stub,
}

/// How much is done.
#[derive(Debug)]
struct Plan {
    connections: Vec<usize>,
    time: Duration,
    rounds: usize,
    case: String,
}

/// One kind of call, and the size of the catalog it meets.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    /// None lists the tools.
    tool: Option<&'static str>,
    tools: usize,
}

const CASES: [Case; 5] = [
    Case { name: "call 300 B", tool: Some("result_300"), tools: 20 },
    Case { name: "call 10 KB", tool: Some("result_10k"), tools: 20 },
    Case { name: "call 1 MB", tool: Some("result_1m"), tools: 20 },
    Case { name: "list 20", tool: None, tools: 20 },
    Case { name: "list 1000", tool: None, tools: 1_000 },
];

/// The same call where the catalog is small and where it is large.
const CATALOG: &str = "call 300 B by catalog";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let options = Options::parse();
    if options.part.is_some() {
        return Ok(stub::run()?);
    }
    let plan = options.plan();
    let folder = tempfile::tempdir()?;
    let stub = Stub::start()?;
    let mut nginx = None;
    if options.only != Some(Contestant::Hangu) {
        nginx = servers::nginx(folder.path(), &stub.address).await?;
        if nginx.is_none() {
            report::say("SKIPPED: nginx is not installed, so there is nothing to compare with");
            if std::env::var_os("CI").is_some() {
                return Err("nginx is missing, in CI of all places".into());
            }
        }
    }
    let mut gateways = BTreeMap::new();
    if options.only != Some(Contestant::Nginx) {
        for tools in stub::CATALOGS {
            let proxy = servers::hangu(&options.hangu, folder.path(), &stub.address, tools).await?;
            gateways.insert(tools, proxy);
        }
    }

    let mut report = Report::new();
    for case in CASES.iter().filter(|case| case.name.contains(&plan.case)) {
        let gateway = gateways.get(&case.tools);
        let contest = Contest::new(case, &stub, nginx.as_ref(), gateway).await?;
        for connections in &plan.connections {
            contest.run(&plan, *connections, &mut report).await?;
        }
    }
    if let (Some(small), Some(large)) = (gateways.get(&10), gateways.get(&1_000))
        && CATALOG.contains(&plan.case)
    {
        let contest = Contest::between_catalogs(small, large).await?;
        let most = plan.connections.iter().copied().filter(|count| *count <= 16).max();
        contest.run(&plan, most.unwrap_or(1), &mut report).await?;
    }
    report.print();
    if let Some(file) = &options.json {
        std::fs::write(file, report.json()?)?;
    }
    if options.bench {
        report::say(&report.json()?);
    }
    Ok(())
}

// === impl Options ===

impl Options {
    fn plan(&self) -> Plan {
        let (connections, seconds, rounds) = match (self.bench, self.quick) {
            (true, false) => (vec![1, 16, 64], 2.0, 3),
            (true, true) => (vec![1, 16, 64], 0.5, 1),
            (false, _) => (vec![1, 4], 0.1, 1),
        };
        Plan {
            connections: self.connections.clone().unwrap_or(connections),
            time: Duration::from_secs_f64(self.seconds.unwrap_or(seconds)),
            rounds: self.rounds.unwrap_or(rounds).max(1),
            case: self.case.clone(),
        }
    }
}

// === impl Contest ===

/// Servers that answer the same request in turns.
struct Contest<'a> {
    name: &'static str,
    /// The first is what the others are measured by.
    sides: Vec<(String, &'a Proxy, Shot)>,
}

impl<'a> Contest<'a> {
    async fn new(
        case: &Case,
        stub: &Stub,
        nginx: Option<&'a Proxy>,
        gateway: Option<&'a Proxy>,
    ) -> Outcome<Self> {
        let mut sides = Vec::new();
        let mut answer = None;
        if let Some(gateway) = gateway {
            let mut shot = shot(gateway, "/mcp/bench", case.tool);
            answer = Some(checked(&mut shot).await?);
            sides.push(("hangu".to_owned(), gateway, shot));
        }
        if let Some(nginx) = nginx {
            let mut path = format!("/mcp/{}", case.tools);
            if let (None, Some(answer)) = (case.tool, answer) {
                path = format!("/kept/{}", case.tools);
                keep(&stub.address, &path, &answer).await?;
            }
            let mut shot = shot(nginx, &path, case.tool);
            checked(&mut shot).await?;
            sides.insert(0, ("nginx".to_owned(), nginx, shot));
        }
        Ok(Self { name: case.name, sides })
    }

    async fn between_catalogs(small: &'a Proxy, large: &'a Proxy) -> Outcome<Self> {
        let mut sides = Vec::new();
        for (name, gateway) in [("10 tools", small), ("1000 tools", large)] {
            let mut shot = shot(gateway, "/mcp/bench", Some("result_300"));
            checked(&mut shot).await?;
            sides.push((name.to_owned(), gateway, shot));
        }
        Ok(Self { name: CATALOG, sides })
    }

    async fn run(&self, plan: &Plan, connections: usize, report: &mut Report) -> Outcome<()> {
        let mut samples: Vec<Vec<Sample>> = self.sides.iter().map(|_| Vec::new()).collect();
        for round in 0..plan.rounds {
            for ((name, proxy, shot), samples) in self.sides.iter().zip(&mut samples) {
                if round == 0 {
                    shot.fire(connections, plan.time / 4)
                        .await
                        .map_err(|e| failed(name, self.name, &e))?;
                }
                let before = proxy.server.usage();
                let run = shot
                    .fire(connections, plan.time)
                    .await
                    .map_err(|e| failed(name, self.name, &e))?;
                samples.push(Sample::new(&run, before, proxy.server.usage()));
            }
        }
        let names = self.sides.iter().map(|(name, ..)| name.clone());
        report.add(self.name, connections, names.zip(samples).collect());
        Ok(())
    }
}

fn failed(server: &str, case: &str, error: &std::io::Error) -> String {
    format!("{server}, {case}: {error}")
}

/// The request of a case to one server.
fn shot(proxy: &Proxy, path: &str, tool: Option<&str>) -> Shot {
    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}"#;
    let (method, params) = match tool {
        Some(tool) => {
            let arguments = r#"{"query":"open orders of Zo\u00eb","region":"eu-west","limit":10}"#;
            ("tools/call", format!(r#""name":"{tool}","arguments":{arguments},{META}"#))
        }
        None => ("tools/list", META.to_owned()),
    };
    let body = format!(r#"{{"jsonrpc":"2.0","id":17,"method":"{method}","params":{{{params}}}}}"#);
    let mut headers = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", method),
        ("X-Api-Key", KEY),
        ("SSO-Emp-Id", EMPLOYEE),
    ];
    headers.extend(tool.map(|tool| ("Mcp-Name", tool)));
    Shot::new(&proxy.address, path, &headers, &body)
}

/// Sends a request once and sees that the answer is a result and no error in one's clothes.
async fn checked(shot: &mut Shot) -> Outcome<Vec<u8>> {
    let answer = shot.probe().await?;
    let value: serde_json::Value = serde_json::from_slice(&answer)?;
    let result = value.get("result").ok_or_else(|| format!("no result: {value}"))?;
    if result.get("isError").is_some_and(|error| error == true) {
        return Err(format!("refused: {value}").into());
    }
    Ok(answer)
}

/// Has the stub repeat a body at a path.
async fn keep(stub: &str, path: &str, body: &[u8]) -> Outcome<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(stub).await?;
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: {stub}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(())
}
