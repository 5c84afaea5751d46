//! Names that lead where a test says, and places where nobody must come by. No expectation but
//! that stands here.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{net::TcpListener, time::Instant};

use super::*;

pub const GOOD: &str = "127.0.0.1";
pub const BAD: &str = "127.0.0.2";
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A resolver whose answers a test changes.
#[derive(Debug, Default)]
pub struct Names {
    answers: Mutex<HashMap<&'static str, Vec<IpAddr>>>,
    pub slow: Mutex<Duration>,
    asked: AtomicUsize,
}

impl Names {
    pub fn new(name: &'static str, addresses: &[&str]) -> Arc<Self> {
        let names = Arc::<Self>::default();
        names.lead(name, addresses);
        names
    }

    /// With no address it answers that there is no such name.
    pub fn lead(&self, name: &'static str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.answers.lock().insert(name, addresses);
    }

    pub fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

impl Resolve for Names {
    fn resolve(&self, host: Arc<str>, _: u16) -> Resolving {
        self.asked.fetch_add(1, SeqCst);
        let found = self.answers.lock().get(&*host).cloned().unwrap_or_default();
        let slow = *self.slow.lock();
        Box::pin(async move {
            tokio::time::sleep(slow).await;
            match found.is_empty() {
                true => Err(io::Error::other("no such name")),
                // The port is the endpoint's, whatever a resolver says.
                false => Ok(found.into_iter().map(|ip| SocketAddr::new(ip, 1)).collect()),
            }
        })
    }
}

/// Somebody at an address where nobody must come by.
pub struct Inside(pub Arc<AtomicUsize>);

impl Inside {
    pub async fn at(ip: &str, port: u16) -> Self {
        let listener = TcpListener::bind((ip, port)).await.unwrap();
        let came = Arc::<AtomicUsize>::default();
        let counted = came.clone();
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, SeqCst);
            }
        });
        Self(came)
    }

    #[track_caller]
    pub fn saw_nobody(&self) {
        assert_eq!(self.0.load(SeqCst), 0, "somebody came by");
    }
}

/// Of this machine only `GOOD` may be dialled.
pub fn public(names: &Arc<Names>) -> Guard {
    let allow = vec![GOOD.parse().unwrap()];
    let config = EgressConfig { allow, ..EgressConfig::default() };
    Guard::public(&Egress::resolving(config, names.clone()))
}

pub fn config(host: &str, port: u16, guard: Guard) -> ClusterConfig {
    let endpoint = Endpoint::parse(&format!("http://{host}:{port}/mcp")).unwrap();
    let mut config = ClusterConfig::new("shop", vec![endpoint], guard);
    config.connect_timeout = Duration::from_millis(500);
    config
}

pub fn watched(host: &str, port: u16, guard: Guard) -> Arc<Cluster> {
    Cluster::new(config(host, port, guard), &transport()).unwrap()
}

pub fn on_demand(host: &str, port: u16, guard: Guard, again: Duration) -> Arc<Cluster> {
    let config =
        ClusterConfig { on_demand: true, resolve_interval: again, ..config(host, port, guard) };
    Cluster::new(config, &transport()).unwrap()
}

pub const HOUR: Duration = Duration::from_secs(3600);
pub const SOON: Duration = Duration::from_millis(20);

pub fn both(host: &str, port: u16, guard: &Guard) -> [Arc<Cluster>; 2] {
    [watched(host, port, guard.clone()), on_demand(host, port, guard.clone(), HOUR)]
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
