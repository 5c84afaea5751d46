//! What was measured, as a table, as JSON, and against what was promised.

use std::time::Duration;

use serde::Serialize;

use crate::{load::Run, process::Usage};

/// One server's turn.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sample {
    pub calls_per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub cpu_us_per_call: f64,
    pub resident_mib: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    connections: usize,
    servers: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    server: String,
    /// The median of all turns, each figure by itself.
    #[serde(flatten)]
    median: Sample,
    /// To the first server of the row.
    ratio: Option<Ratio>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Ratio {
    throughput: f64,
    cpu: f64,
}

/// All rows so far.
#[derive(Debug, Serialize)]
pub struct Report {
    rows: Vec<Row>,
}

/// Prints a line of the bench's own.
#[expect(clippy::print_stdout, reason = "a bench prints its figures")]
pub fn say(line: &str) {
    println!("{line}");
}

/// As many digits as such a figure can bear.
fn rounded(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

// === impl Sample ===

impl Sample {
    pub fn new(run: &Run, before: Usage, after: Usage) -> Self {
        let cpu: Duration = after.cpu.saturating_sub(before.cpu);
        Self {
            calls_per_second: rounded(run.per_second()),
            p50_us: run.quantile(0.5),
            p99_us: run.quantile(0.99),
            cpu_us_per_call: rounded(cpu.as_secs_f64() * 1e6 / run.calls.max(1) as f64),
            resident_mib: rounded(after.resident_bytes as f64 / f64::from(1 << 20)),
        }
    }

    fn median(samples: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| {
            let mut figures: Vec<f64> = samples.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
        };
        Self {
            calls_per_second: of(|sample| sample.calls_per_second),
            p50_us: of(|sample| sample.p50_us),
            p99_us: of(|sample| sample.p99_us),
            cpu_us_per_call: of(|sample| sample.cpu_us_per_call),
            resident_mib: of(|sample| sample.resident_mib),
        }
    }
}

// === impl Report ===

impl Report {
    pub fn new() -> Self {
        Self { rows: Vec::new() }
    }

    pub fn add(
        &mut self,
        case: &'static str,
        connections: usize,
        sides: Vec<(String, Vec<Sample>)>,
    ) {
        let mut first: Option<Sample> = None;
        let servers = sides.into_iter().map(|(server, samples)| {
            let median = Sample::median(&samples);
            let ratio = first.map(|first| Ratio {
                throughput: rounded(median.calls_per_second / first.calls_per_second),
                cpu: rounded(median.cpu_us_per_call / first.cpu_us_per_call),
            });
            first.get_or_insert(median);
            Line { server, median, ratio }
        });
        self.rows.push(Row { case, connections, servers: servers.collect() });
    }

    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    pub fn print(&self) {
        let head = ["case", "conn", "server", "calls/s", "p50 µs", "p99 µs", "CPU µs", "MiB"];
        let [case, conn, server, calls, p50, p99, cpu, memory] = head;
        say(&format!(
            "{case:<22} {conn:>4} {server:<10} {calls:>9} {p50:>8} {p99:>8} {cpu:>8} {memory:>6}  \
             to the first: calls/s, CPU"
        ));
        for row in &self.rows {
            for Line { server, median, ratio } in &row.servers {
                let ratio = ratio
                    .map(|ratio| format!("  {:.2} ×, {:.2} ×", ratio.throughput, ratio.cpu))
                    .unwrap_or_default();
                say(&format!(
                    "{:<22} {:>4} {server:<10} {:>9.0} {:>8.0} {:>8.0} {:>8.1} {:>6.1}{ratio}",
                    row.case,
                    row.connections,
                    median.calls_per_second,
                    median.p50_us,
                    median.p99_us,
                    median.cpu_us_per_call,
                    median.resident_mib,
                ));
            }
        }
        for promise in self.promises() {
            say(&promise);
        }
    }

    /// What the design promises, and whether this run kept it.
    fn promises(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for row in &self.rows {
            let Some(ratio) = row.servers.iter().find_map(|line| line.ratio) else { continue };
            let loaded = row.connections >= 16;
            let mut promise = |what: &str, value: f64, kept: bool| {
                let verdict = if kept { "kept" } else { "MISSED" };
                lines.push(format!(
                    "{verdict:<6} {}, {} connections: {value:.2}, {what}",
                    row.case, row.connections
                ));
            };
            match row.case {
                "call 300 B" if loaded => {
                    promise("CPU at most 2.5 × nginx", ratio.cpu, ratio.cpu <= 2.5);
                    promise(
                        "throughput at least 0.4 × nginx",
                        ratio.throughput,
                        ratio.throughput >= 0.4,
                    );
                }
                "list 1000" if loaded => {
                    promise("CPU at most 2 × nginx", ratio.cpu, ratio.cpu <= 2.0)
                }
                crate::CATALOG => {
                    promise("CPU at most 1.1 × a small catalog's", ratio.cpu, ratio.cpu <= 1.1)
                }
                _ => {}
            }
        }
        lines
    }
}
