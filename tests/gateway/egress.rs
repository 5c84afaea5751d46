//! What the gateway dials and what it does not: names that lead where no server is, redirects of
//! what it fetches for itself, and whatever employees bring.

mod registered;

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use hangu::upstream::{Resolve, Resolving};
use parking_lot::Mutex;

use crate::support::{Answer, ECHO, Gateway, LITE_OK, OK, Request, Speaks, Upstream, wait_for};

const PATIENCE: Duration = Duration::from_secs(10);

const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: member-read, effect: allow, roles: [member], risk: [read_low] }
";

const TOOLS: &str = "version: hangu/v1
kind: Tools
upstreams:
  up: { default: { risk: read_low } }
";

const CALLER: &str = "callers:
  tests: { keys: [{ env: KEY }], tenant: acme, identity: { empId: E1, roles: [member] } }
";

/// Names as a test has them; a name that it does not know there is not.
#[derive(Debug, Default)]
pub struct Names(Mutex<HashMap<&'static str, Vec<IpAddr>>>);

impl Names {
    pub fn new(name: &'static str, addresses: &[&str]) -> Arc<Self> {
        let names = Arc::<Self>::default();
        names.lead(name, addresses);
        names
    }

    fn lead(&self, name: &'static str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.0.lock().insert(name, addresses);
    }
}

impl Resolve for Names {
    fn resolve(&self, host: Arc<str>, port: u16) -> Resolving {
        let found = self.0.lock().get(&*host).cloned();
        Box::pin(async move {
            let found = found.ok_or_else(|| std::io::Error::other("no such name"))?;
            Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
        })
    }
}

/// Linux reaches itself by this address, so whoever dials it comes by.
const ITSELF: &str = "0.0.0.0";

fn port(upstream: &Upstream) -> u16 {
    url::Url::parse(&upstream.url()).unwrap().port().unwrap()
}

/// A gateway before a server that is written down by name.
fn before(names: &Arc<Names>, upstream: &Upstream, of_upstream: &str, of_file: &str) -> Gateway {
    let (port, dialect) = (port(upstream), upstream.dialect());
    let yaml = format!(
        "{of_file}\n{CALLER}upstreams:\n  up: {{ url: \"http://up.example:{port}/mcp\", dialect: {dialect}{of_upstream} }}\n"
    );
    Gateway::resolving(names.clone(), &yaml, &[POLICY, TOOLS])
}

const LITE_CALL: &str = r#"{"name":"echo","arguments":{"x":1}}"#;

#[test]
fn a_name_that_leads_inside_under_way_takes_no_further_call() {
    for (speaks, ok) in
        [(Speaks::Stateless, OK), (Speaks::Handshake("2025-11-25"), OK), (Speaks::Lite, LITE_OK)]
    {
        let upstream = Upstream::answering(speaks, Answer::json(ok));
        let names = Names::new("up.example", &["127.0.0.1"]);
        let gateway = before(&names, &upstream, "", "egress: { resolve: 1s }");
        let call = Request::lite("tools/call", LITE_CALL);
        assert_eq!(call.ask(&gateway).status, 200);
        names.lead("up.example", &["169.254.169.254"]);
        wait_for("the name is looked up again", PATIENCE, || call.ask(&gateway).status == 403);
        let calls = upstream.calls().len();
        let reply = call.ask(&gateway);
        assert_eq!(reply.refusal().as_deref(), Some("unsafe_action_blocked"), "{}", reply.text());
        let standard = Request::handshake(ECHO).ask(&gateway);
        assert_eq!((standard.status, standard.is_error()), (200, true), "{}", standard.text());
        for reply in [reply, standard] {
            let text = reply.text();
            assert!(text.contains("`up` is where this gateway may not call"), "{text}");
            assert!(text.contains(r#""retryable":false"#), "{text}");
            for inside in ["169.254", "up.example", "outcome"] {
                assert!(!text.contains(inside), "{inside}: {text}");
            }
        }
        gateway.audited("the refusal is recorded with its reason", |record| {
            record["reason"] == "egress_denied" && record["outcome"] == "denied"
        });
        assert_eq!(upstream.calls().len(), calls, "nothing was sent");
        names.lead("up.example", &["127.0.0.1"]);
        wait_for("the name leads home again", PATIENCE, || call.ask(&gateway).status == 200);
    }
}

#[test]
fn a_server_that_is_nowhere_in_good_faith_is_not_dialled_for_anything() {
    for dialect in [", dialect: auto", ", dialect: sse", ", dialect: mcp-lite"] {
        let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
        let names = Names::new("up.example", &[ITSELF]);
        let port = port(&upstream);
        let yaml = |of_file: &str| {
            format!(
                "{of_file}\n{CALLER}upstreams:\n  up: {{ url: \"http://up.example:{port}/mcp\", poll: 1s{dialect} }}\n"
            )
        };
        let gateway = Gateway::resolving(names.clone(), &yaml(""), &[POLICY, TOOLS]);
        let reply = Request::lite("tools/call", LITE_CALL).ask(&gateway);
        assert_ne!(reply.status, 200);
        assert!(!reply.text().contains(ITSELF), "{}", reply.text());
        // Discovery and health checks have had their turns.
        thread::sleep(Duration::from_millis(1_500));
        assert_eq!(upstream.received().len(), 0);
        assert_eq!(upstream.connections(), 0, "{dialect}");
        drop(gateway);
        let open = yaml("egress: { allow: [up.example] }");
        let _gateway = Gateway::resolving(names, &open, &[POLICY, TOOLS]);
        wait_for("an entry that names it opens it", PATIENCE, || !upstream.received().is_empty());
    }
}

#[test]
fn a_name_of_good_and_bad_addresses_is_served_by_the_good_ones() {
    let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
    let names = Names::new("up.example", &["169.254.169.254", "127.0.0.1", "fd00:ec2::254"]);
    let gateway = before(&names, &upstream, "", "");
    for _ in 0..10 {
        assert_eq!(Request::lite("tools/call", LITE_CALL).ask(&gateway).status, 200);
    }
    assert_eq!(upstream.calls().len(), 10);
}

// === What the gateway fetches for itself ===

/// Counts connections, and answers each with the same bytes.
struct Place {
    address: SocketAddr,
    came: Arc<AtomicUsize>,
}

impl Place {
    fn answering(answer: String) -> Self {
        Self::start("127.0.0.1:0", answer)
    }

    fn at(address: &str) -> Self {
        Self::start(address, String::new())
    }

    fn start(address: &str, answer: String) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let place = Self { address: listener.local_addr().unwrap(), came: Arc::default() };
        let came = place.came.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                came.fetch_add(1, Ordering::Relaxed);
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        place
    }

    fn came(&self) -> usize {
        self.came.load(Ordering::Relaxed)
    }
}

fn redirect(to: &str) -> String {
    format!(
        "HTTP/1.1 307 There\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
}

fn with_issuer(names: &Arc<Names>, jwks: &str, upstream: &Upstream, more: &str) -> Gateway {
    let issuer = format!(
        "issuers:\n  corp: {{ issuer: \"https://sso.example\", jwks: \"{jwks}\", audience: gw, tenant: acme, refresh: 30s }}\n{more}"
    );
    before(names, upstream, "", &issuer)
}

#[test]
fn keys_of_an_issuer_are_fetched_from_where_they_are_and_nowhere_else() {
    let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
    let names = Names::new("up.example", &["127.0.0.1"]);
    let elsewhere = Place::answering(String::new());
    for to in [format!("http://{}/keys", elsewhere.address), "/other".to_owned()] {
        let issuer = Place::answering(redirect(&to));
        let jwks = format!("http://{}/keys", issuer.address);
        let _gateway = with_issuer(&names, &jwks, &upstream, "");
        wait_for("they were asked for", PATIENCE, || issuer.came() > 0);
        thread::sleep(Duration::from_millis(300));
        assert_eq!(issuer.came(), 1, "no redirect is followed: {to}");
    }
    assert_eq!(elsewhere.came(), 0);
    // By name, and the name leads to the machine by an address that nobody means.
    let issuer = Place::answering(String::new());
    let jwks = format!("http://localhost:{}/keys", issuer.address.port());
    names.lead("localhost", &[ITSELF]);
    let gateway = with_issuer(&names, &jwks, &upstream, "");
    thread::sleep(Duration::from_millis(500));
    assert_eq!(issuer.came(), 0);
    drop(gateway);
    let _gateway = with_issuer(&names, &jwks, &upstream, "egress: { allow: [localhost] }");
    wait_for("an entry opens it", PATIENCE, || issuer.came() > 0);
}
