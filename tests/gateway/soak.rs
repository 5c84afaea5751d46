//! The gateway after hours of everything at once: it has the memory, the sockets and the threads
//! that it began with.
//!
//! `HANGU_SOAK_SECONDS` says how long, a few seconds by default: 300 in CI,
//! 3600 for a night.

use std::{thread, time::Duration};

use tokio::time::Instant;

use crate::process_support::{Crowd, Process, Server, Setup, until};

/// What may be left of the load: what an allocator keeps, ended sessions until they expire,
/// series of metrics.
const KEPT_PERCENT: u64 = 15;
const KEPT_KIB: u64 = 16 * 1024;

/// Sockets that may come and go meanwhile: polls of servers, and this test's own look.
const SOCKETS: usize = 6;

fn seconds() -> u64 {
    std::env::var("HANGU_SOAK_SECONDS").map_or(6, |text| text.parse().unwrap())
}

/// What a gateway holds.
#[derive(Debug, Clone)]
struct Held {
    memory: u64,
    files: usize,
    /// By name.
    threads: Vec<String>,
}

#[test]
fn mixed_load_leaves_nothing_behind() {
    let mut servers = [Server::start(false), Server::start(true)];
    let gateway = Setup::new()
        .upstream("new", servers[0].upstream(), "", "")
        .upstream("old", servers[1].upstream(), "", "")
        .start();
    let whole = Duration::from_secs(seconds());
    // Everything has happened once before it counts.
    load(
        &gateway,
        &mut servers,
        (whole / 4).clamp(Duration::from_secs(3), Duration::from_secs(30)),
    );
    let before = held(&gateway, &mut servers, None);
    let done = load(&gateway, &mut servers, whole);
    let after = held(&gateway, &mut servers, Some(before.files));
    let told = format!("{done:#?}\nbefore {before:?}\nafter {after:?}");
    tell(&told);
    for name in [
        "modern call",
        "lite call",
        "modern stream",
        "legacy stream",
        "slow call",
        "session",
        "modern client that leaves",
        "legacy client that leaves",
        "cancelled call",
        "batch",
        "list",
        "mistake",
    ] {
        let (times, good) = done.get(name).copied().unwrap_or_default();
        // Servers are away for a small part of the time.
        assert!(good > 0 && good * 2 > times, "{name}: {told}");
    }
    let most = before.memory + before.memory * KEPT_PERCENT / 100 + KEPT_KIB;
    assert!(after.memory <= most, "{told}");
    assert!(after.files <= before.files + SOCKETS, "{told}");
    let (lasting, store) = apart(after.threads);
    assert_eq!(lasting, apart(before.threads).0, "{told}");
    assert!(store <= 1, "{told}");
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

/// The threads, without that of the store's one connection: it is there from the first sweep on,
/// half a minute after the start.
fn apart(threads: Vec<String>) -> (Vec<String>, usize) {
    let all = threads.len();
    let lasting: Vec<_> = threads.into_iter().filter(|name| name != "hangu-sqlite").collect();
    let store = all - lasting.len();
    (lasting, store)
}

/// For so long, with a restart of one server or the other every two seconds.
fn load(
    gateway: &Process,
    servers: &mut [Server; 2],
    time: Duration,
) -> std::collections::BTreeMap<&'static str, (u64, u64)> {
    let crowd = Crowd::start(gateway, 8);
    let begun = Instant::now();
    let mut turn = 0;
    while begun.elapsed() < time {
        thread::sleep(Duration::from_secs(2).min(time));
        servers[turn % 2].restart(Duration::from_millis(100));
        servers.iter().for_each(|server| server.upstream().forget());
        turn += 1;
    }
    crowd.stop()
}

/// What it holds when nothing is asked of it: its servers have gone and come back, so that no
/// idle connection is counted, and it has met them again.
fn held(gateway: &Process, servers: &mut [Server; 2], files: Option<usize>) -> Held {
    servers.iter_mut().for_each(|server| server.restart(Duration::from_millis(500)));
    let active = || {
        let metrics = gateway.metrics();
        let lines = metrics.lines().filter(|line| line.starts_with("hangu_requests_active{"));
        let values: Vec<f64> =
            lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert!(!values.is_empty(), "{metrics}");
        values.iter().sum::<f64>()
    };
    until("no request is under way", || active() == 0.0);
    if let Some(before) = files {
        until("its sockets are closed", || gateway.open_files() <= before + SOCKETS);
    }
    thread::sleep(Duration::from_secs(3));
    let memory = (0..10).map(|_| {
        thread::sleep(Duration::from_millis(200));
        gateway.memory()
    });
    Held { memory: memory.min().unwrap(), files: gateway.open_files(), threads: gateway.threads() }
}

#[expect(clippy::print_stderr, reason = "the figures are what a long run is for")]
fn tell(figures: &str) {
    eprintln!("{figures}");
}
