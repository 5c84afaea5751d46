//! A process that is killed while it writes: what was acknowledged is there when it is started
//! again, what was not is whole or not there.
//!
//! One table of all that is kept for good (`killed/kinds.rs`), and one function, which writes all
//! of it at once from many connections, kills the process at some moment and starts it again on
//! the same files. What is written under an idempotency key is looked at in `durable.rs`.

mod kinds;
mod world;

use std::{
    io,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use self::{
    kinds::{KINDS, Kind},
    world::World,
};
use crate::{
    durable::create_database,
    process_support::{PATIENCE, Process, until},
    support::postgres,
};

/// How often the process is killed.
const ROUNDS: u64 = 4;

/// What one connection has written.
struct Writer<'a> {
    kind: &'a Kind,
    number: usize,
    /// The writes that were acknowledged, from the first one on that was since the last start.
    acknowledged: Vec<u64>,
    /// The one that was under way when the process ended.
    tried: Option<u64>,
    next: u64,
}

impl Writer<'_> {
    /// Writes until the process is gone.
    fn write(&mut self, world: &World, began: &AtomicU64, killed: &AtomicBool) {
        self.acknowledged.clear();
        // A cycle begins with what is good whatever there is.
        self.next = self.next.next_multiple_of(self.kind.cycle);
        loop {
            self.tried = Some(self.next);
            match (self.kind.send)(world, self.number, self.next) {
                Ok(()) => {
                    self.acknowledged.push(self.next);
                    if self.acknowledged.len() == 1 {
                        began.fetch_add(1, Ordering::Relaxed);
                    }
                    self.next += 1;
                    self.tried = None;
                }
                Err(error) => {
                    let (what, number) = (self.kind.name, self.number);
                    let fault = error.kind() == io::ErrorKind::Other;
                    assert!(!fault, "{what} of {number}: {error}");
                    assert!(killed.load(Ordering::Relaxed), "{what} of {number}: {error}");
                    self.next += 1;
                    return;
                }
            }
        }
    }

    /// Everything that was acknowledged is there.
    fn check(&self, world: &World, gateway: &Process) {
        let Kind { name, then, look, looks_at, .. } = self.kind;
        let first = self.acknowledged.len().saturating_sub(*looks_at);
        for write in &self.acknowledged[first..] {
            let found = look(world, gateway, self.number, *write);
            let mut may_be = vec![then(self.number, *write)];
            // It may have been done, and nobody was told any more.
            may_be.extend(self.tried.map(|tried| then(self.number, tried)));
            assert!(
                may_be.contains(&found),
                "{name} of {}: after write {write} there is {found:?}, not one of {may_be:?}\n{}",
                self.number,
                gateway.log()
            );
        }
    }
}

/// Writes, kills, starts again and looks, several times.
fn nothing_acknowledged_is_lost(store: &str, env: &[(&'static str, String)]) {
    let mut world = World::new(store, env);
    let mut gateway = world.start();
    world.prepare();
    let mut writers: Vec<Writer<'_>> = KINDS
        .iter()
        .flat_map(|kind| (0..kind.connections).map(move |number| (kind, number)))
        .map(|(kind, number)| Writer {
            kind,
            number,
            acknowledged: Vec::new(),
            tried: None,
            next: 0,
        })
        .collect();
    for round in 0..ROUNDS {
        world.before_round();
        let (began, killed) = (AtomicU64::new(0), AtomicBool::new(false));
        let together = Barrier::new(writers.len() + 1);
        let all = u64::try_from(writers.len()).unwrap();
        thread::scope(|scope| {
            let (world, began, killed, together) = (&world, &began, &killed, &together);
            for writer in &mut writers {
                scope.spawn(move || {
                    together.wait();
                    writer.write(world, began, killed);
                });
            }
            together.wait();
            let patience = 6 * PATIENCE;
            let begun = tokio::time::Instant::now();
            while began.load(Ordering::Relaxed) < all && begun.elapsed() < patience {
                thread::sleep(Duration::from_millis(5));
            }
            let some = began.load(Ordering::Relaxed);
            thread::sleep(Duration::from_millis(rand::random_range(0..150)));
            killed.store(true, Ordering::Relaxed);
            gateway.signal(9);
            gateway.wait();
            assert_eq!(some, all, "in round {round} some wrote nothing");
        });
        gateway = world.start();
        until("it serves what it knew", || world.is_listed());
        for writer in &writers {
            writer.check(&world, &gateway);
        }
        world.check(&gateway);
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    nothing_acknowledged_is_lost("store: sqlite:hangu.db", &[]);
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_beside_a_database_server() {
    let Some(server) = postgres::shared() else { return };
    let name = format!("hangu_killed_{:016x}", rand::random::<u64>());
    create_database(&server, &name);
    let url = format!("{server}/{name}");
    nothing_acknowledged_is_lost("store: { env: DATABASE }", &[("DATABASE", url)]);
}
