//! The processes under measurement: started, asked what they used, ended. Linux only,
//! by `/proc`; it knows nothing of what the processes are for.

use std::{
    fs, io,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// Clock ticks per second in `/proc`, which Linux has fixed at 100 for user space.
const TICKS_PER_SECOND: u64 = 100;

/// A server with all its processes, ended when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: String,
}

/// What a server has used since its start.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub cpu: Duration,
    pub resident_bytes: u64,
}

impl Server {
    /// Starts a program with its output in `log`.
    pub fn start(command: &mut Command, log: &Path) -> io::Result<Self> {
        let file = fs::File::create(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::from(file.try_clone()?))
            .stderr(Stdio::from(file))
            .spawn()?;
        Ok(Self { child, log: log.display().to_string() })
    }

    /// Waits until something listens at `address`, or the program has ended.
    pub async fn listens(&mut self, address: &str) -> io::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            if tokio::net::TcpStream::connect(address).await.is_ok() {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Err(io::Error::other(format!("nothing listens at {address}:\n{log}")))
    }

    /// What it and its children use, all their threads counted.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage { cpu: Duration::ZERO, resident_bytes: 0 };
        for pid in family(self.child.id()) {
            usage.cpu += cpu(pid);
            usage.resident_bytes += resident(pid);
        }
        usage
    }
}

impl Drop for Server {
    /// A signal that lets the program end its own children; force if it does not.
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        if asked.is_ok_and(|status| status.success()) {
            for _ in 0..100 {
                if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                    return;
                }
                #[expect(
                    clippy::disallowed_methods,
                    reason = "nothing else waits for this thread"
                )]
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A process and everything below it.
fn family(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        at += 1;
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    found
}

/// User and system time of a process; of one that has ended, nothing.
fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold spaces; `utime` and `stime` are the 12th and 13th after it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
}

/// Memory that a process has, in bytes.
pub fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}
