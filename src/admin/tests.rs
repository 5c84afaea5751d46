//! The listener as probes and scrapers meet it.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
};

use super::*;
use crate::clock::Clock;

#[derive(Default)]
struct Switches {
    started: AtomicBool,
    draining: AtomicBool,
    upstream_lost: AtomicBool,
}

impl Probes for Switches {
    fn started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    fn checks(&self) -> Vec<Check> {
        let draining = self.draining.load(Ordering::Relaxed);
        vec![
            Check { name: "policy", ok: true, state: "stale".into(), stale: None },
            Check {
                name: "drain",
                ok: !draining,
                state: if draining { "draining" } else { "no" }.into(),
                stale: None,
            },
        ]
    }

    fn upstreams(&self) -> Vec<UpstreamHealth> {
        let up = !self.upstream_lost.load(Ordering::Relaxed);
        vec![UpstreamHealth { name: "platform".into(), up, state: "healthy".into() }]
    }
}

struct Admin {
    address: SocketAddr,
    switches: Arc<Switches>,
    metrics: Arc<Metrics>,
    stop: oneshot::Sender<()>,
    server: JoinSet<()>,
}

async fn start() -> Admin {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let switches = Arc::new(Switches::default());
    let metrics = Arc::new(Metrics::new(10, Clock::system()));
    let build = Build { commit: Some("abc123"), instance: "gw-1".into() };
    let state = AdminState { metrics: metrics.clone(), probes: switches.clone(), build, api: None };
    let (stop, stopped) = oneshot::channel();
    let mut server = JoinSet::new();
    server.spawn(serve(listener, Arc::new(state), async {
        let _ = stopped.await;
    }));
    Admin { address, switches, metrics, stop, server }
}

impl Admin {
    /// Status, head and body.
    async fn ask(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{request}\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
    }

    async fn json(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.ask(&format!("GET {path} HTTP/1.1")).await;
        (status, serde_json::from_str(&body).unwrap())
    }
}

#[tokio::test]
async fn readiness_tells_each_check_and_each_upstream() {
    let admin = start().await;
    let (status, body) = admin.json("/readyz").await;
    let expected = serde_json::json!({
        "status": "ready",
        "checks": [
            {"name": "policy", "ok": true, "state": "stale"},
            {"name": "drain", "ok": true, "state": "no"}
        ],
        "upstreams": [{"name": "platform", "up": true, "state": "healthy"}]
    });
    assert_eq!((status, body), (200, expected));
    admin.switches.upstream_lost.store(true, Ordering::Relaxed);
    let (status, body) = admin.json("/readyz").await;
    assert_eq!((status, &body["status"]), (200, &"degraded".into()));
    admin.switches.draining.store(true, Ordering::Relaxed);
    let (status, body) = admin.json("/readyz").await;
    assert_eq!((status, &body["status"]), (503, &"unready".into()));
    assert_eq!(admin.json("/livez").await.0, 200, "draining is no reason to be killed");
}

#[tokio::test]
async fn the_start_is_told_when_it_is_complete() {
    let admin = start().await;
    assert_eq!(admin.json("/startupz").await.0, 503);
    admin.switches.started.store(true, Ordering::Relaxed);
    assert_eq!(admin.json("/startupz").await.0, 200);
}

#[tokio::test]
async fn metrics_come_in_the_form_that_is_asked_for() {
    let admin = start().await;
    admin.metrics.upstream_up("platform", true);
    let (status, head, body) = admin.ask("GET /metrics HTTP/1.1").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("hangu_upstream_up{hangu_upstream=\"platform\"} 1\n"));
    let accept = "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text";
    let (_, head, body) = admin.ask(accept).await;
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.ends_with("# EOF\n"));
}

#[tokio::test]
async fn the_version_names_what_is_spoken() {
    let admin = start().await;
    let (status, body) = admin.json("/version").await;
    assert_eq!(status, 200);
    assert_eq!(body["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&body["commit"], &body["instance"]), (&"abc123".into(), &"gw-1".into()));
    assert_eq!(body["protocolVersions"][0], "2026-07-28");
}

#[tokio::test]
async fn there_is_nothing_else() {
    let admin = start().await;
    for path in ["/", "/readyz/", "/admin/", "/metrics/x"] {
        assert_eq!(admin.json(path).await.0, 404, "{path}");
    }
    let (status, head, _) = admin.ask("POST /livez HTTP/1.1\r\ncontent-length: 0").await;
    assert_eq!(status, 405);
    assert!(head.contains("allow: get, head"), "{head}");
    let (status, _, body) = admin.ask("HEAD /livez HTTP/1.1").await;
    assert_eq!((status, &*body), (200, ""));
}

#[tokio::test]
async fn the_end_lets_open_connections_go() {
    let admin = start().await;
    // Open, with nothing asked: it must not hold up the end.
    let idle = TcpStream::connect(admin.address).await.unwrap();
    assert_eq!(admin.json("/livez").await.0, 200);
    admin.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(5), admin.server.join_all()).await.unwrap();
    assert!(TcpStream::connect(admin.address).await.is_err());
    drop(idle);
}

#[tokio::test]
async fn healthcheck_says_what_readyz_says() {
    let admin = start().await;
    let check =
        |address| tokio::task::spawn_blocking(move || healthcheck(address, Duration::from_secs(5)));
    let (ready, body) = check(admin.address).await.unwrap().unwrap();
    assert!(ready && body.contains("\"ready\""), "{body}");
    admin.switches.draining.store(true, Ordering::Relaxed);
    let unspecified = SocketAddr::new([0, 0, 0, 0].into(), admin.address.port());
    assert!(!check(unspecified).await.unwrap().unwrap().0);
    admin.stop.send(()).unwrap();
    admin.server.join_all().await;
    assert!(check(admin.address).await.unwrap().is_err());
}
