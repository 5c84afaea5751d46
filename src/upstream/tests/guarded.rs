//! What is dialled, where names lead to good and bad addresses, and change; and clusters that
//! nobody watches.

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

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::{net::TcpListener, time::Instant};

use super::{
    wire::{Step, Wire, answer, write},
    *,
};
use crate::error::{Code, Next};

const GOOD: &str = "127.0.0.1";
const BAD: &str = "127.0.0.2";
const PATIENCE: Duration = Duration::from_secs(5);

/// A resolver whose answers a test changes.
#[derive(Debug, Default)]
struct Names {
    answers: Mutex<HashMap<&'static str, Vec<IpAddr>>>,
    slow: Mutex<Duration>,
    asked: AtomicUsize,
}

impl Names {
    fn new(name: &'static str, addresses: &[&str]) -> Arc<Self> {
        let names = Arc::<Self>::default();
        names.lead(name, addresses);
        names
    }

    /// With no address it answers that there is no such name.
    fn lead(&self, name: &'static str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.answers.lock().insert(name, addresses);
    }

    fn asked(&self) -> usize {
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
struct Inside(Arc<AtomicUsize>);

impl Inside {
    async fn at(ip: &str, port: u16) -> Self {
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
    fn saw_nobody(&self) {
        assert_eq!(self.0.load(SeqCst), 0, "somebody came by");
    }
}

/// Of this machine only `GOOD` may be dialled.
fn public(names: &Arc<Names>) -> Guard {
    let allow = vec![GOOD.parse().unwrap()];
    let config = EgressConfig { allow, ports: Ports::default() };
    Guard::public(&Egress::resolving(config, names.clone()))
}

fn config(host: &str, port: u16, guard: Guard) -> ClusterConfig {
    let endpoint = Endpoint::parse(&format!("http://{host}:{port}/mcp")).unwrap();
    let mut config = ClusterConfig::new("shop", vec![endpoint], guard);
    config.connect_timeout = Duration::from_millis(500);
    config
}

fn watched(host: &str, port: u16, guard: Guard) -> Arc<Cluster> {
    Cluster::new(config(host, port, guard), &transport()).unwrap()
}

fn on_demand(host: &str, port: u16, guard: Guard, again: Duration) -> Arc<Cluster> {
    let config =
        ClusterConfig { on_demand: true, resolve_interval: again, ..config(host, port, guard) };
    Cluster::new(config, &transport()).unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(20);

fn both(host: &str, port: u16, guard: &Guard) -> [Arc<Cluster>; 2] {
    [watched(host, port, guard.clone()), on_demand(host, port, guard.clone(), HOUR)]
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_name_with_a_good_and_a_bad_address_dials_the_good_one_only() {
    let wire = Wire::echo().await;
    let port = wire.address.port();
    let inside = Inside::at(BAD, port).await;
    for addresses in [[GOOD, BAD], [BAD, GOOD]] {
        let names = Names::new("mixed.example", &addresses);
        for shop in both("mixed.example", port, &public(&names)) {
            let core = Upstreams::new(transport());
            for _ in 0..8 {
                call(&core, &shop).await.unwrap();
            }
            assert!(!shop.has_choice());
        }
    }
    inside.saw_nobody();
}

#[tokio::test]
async fn the_bad_address_is_not_dialled_when_the_good_one_is_dead() {
    let dead = wire::nobody().await;
    let inside = Inside::at(BAD, dead.port()).await;
    let names = Names::new("mixed.example", &[BAD, GOOD]);
    for shop in both("mixed.example", dead.port(), &public(&names)) {
        let error = call(&Upstreams::new(transport()), &shop).await.unwrap_err();
        assert_eq!(error.kind(), Some("connection_refused"));
    }
    inside.saw_nobody();
}

#[tokio::test]
async fn an_answer_that_flips_after_the_check_is_not_asked_for() {
    let wire = Wire::start([vec![Step::Read, answer("ok")]]).await;
    let port = wire.address.port();
    let inside = Inside::at(BAD, port).await;
    let names = Names::new("flips.example", &[GOOD]);
    for (nth, shop) in both("flips.example", port, &public(&names)).into_iter().enumerate() {
        names.lead("flips.example", &[GOOD]);
        let core = Upstreams::new(transport());
        // The server closes after each answer, so each call dials anew.
        call(&core, &shop).await.unwrap();
        names.lead("flips.example", &[BAD]);
        for _ in 0..5 {
            call(&core, &shop).await.unwrap();
        }
        assert_eq!(names.asked(), nth + 1, "one look-up, however often it is dialled");
    }
    assert_eq!(wire.connections(), 12);
    inside.saw_nobody();
}

#[tokio::test]
async fn a_name_that_leads_inside_later_is_refused_when_it_is_looked_up_again() {
    let wire = Wire::echo().await;
    let port = wire.address.port();
    let inside = Inside::at(BAD, port).await;
    let names = Names::new("later.example", &[GOOD]);
    let guard = public(&names);
    let (seen, unseen) = (
        watched("later.example", port, guard.clone()),
        on_demand("later.example", port, guard, SOON),
    );
    let core = Upstreams::new(transport());
    for shop in [&seen, &unseen] {
        call(&core, shop).await.unwrap();
    }
    names.lead("later.example", &[BAD]);
    seen.refresh().await;
    tokio::time::sleep(SOON * 2).await;
    for shop in [&seen, &unseen] {
        let error = call(&core, shop).await.unwrap_err();
        assert_eq!(error.kind(), Some("egress_denied"), "and no idle connection is used, either");
    }
    inside.saw_nobody();
    names.lead("later.example", &[GOOD]);
    call(&core, &seen).await.unwrap();
}

#[tokio::test]
async fn a_refusal_names_no_address_to_the_caller_and_says_that_nothing_was_sent() {
    let names = Names::new("inside.example", &["10.1.2.3", "fd00::1"]);
    let guard = Guard::public(&Egress::resolving(EgressConfig::default(), names.clone()));
    for shop in both("inside.example", 443, &guard) {
        let error = call(&Upstreams::new(transport()), &shop).await.unwrap_err();
        assert_eq!(error.code(), Code::UnsafeActionBlocked);
        assert_eq!((error.reason(), error.kind()), (Some("egress_denied"), Some("egress_denied")));
        assert_eq!(error.message(), "The upstream `shop` is where this gateway may not call.");
        assert!(!error.retryable() && error.next() == Next::Stop);
        assert!(!error.unknown_outcome() && error.is_unsent());
        assert!(error.trouble().is_none(), "it says nothing of the server");
        let failure = Failure::of(&error).unwrap();
        assert!(!failure.sent());
        assert_eq!(
            failure.to_string(),
            "`inside.example` (port 443) stands for 10.1.2.3, a private address, and no entry of \
             `egress.allow` names it"
        );
        assert!(!shop.healthy());
    }
}

#[tokio::test]
async fn a_literal_address_is_put_before_the_guard() {
    let wire = Wire::echo().await;
    let port = wire.address.port();
    let inside = Inside::at(BAD, port).await;
    let names = Arc::<Names>::default();
    for host in ["127.0.0.2", "2130706434", "0x7f.2", "0177.0.0.2", "127.2", "[::ffff:127.0.0.2]"] {
        for shop in both(host, port, &public(&names)) {
            let error = call(&Upstreams::new(transport()), &shop).await.unwrap_err();
            assert_eq!(error.kind(), Some("egress_denied"), "{host}");
        }
    }
    for shop in both(GOOD, port, &public(&names)) {
        call(&Upstreams::new(transport()), &shop).await.unwrap();
    }
    assert_eq!(names.asked(), 0);
    inside.saw_nobody();
}

#[tokio::test]
async fn a_written_name_may_lead_to_this_machine_and_not_to_metadata() {
    let wire = Wire::echo().await;
    let port = wire.address.port();
    let names = Names::new("written.example", &[GOOD, "169.254.169.254", "fd00:ec2::254", "::"]);
    let guard = |allow: &[&str]| {
        let allow = allow.iter().map(|entry| entry.parse().unwrap()).collect();
        let config = EgressConfig { allow, ports: Ports::default() };
        Guard::written(&Egress::resolving(config, names.clone()))
    };
    for shop in both("written.example", port, &guard(&[])) {
        call(&Upstreams::new(transport()), &shop).await.unwrap();
        assert!(!shop.has_choice());
    }
    let named = watched("written.example", port, guard(&["written.example"]));
    call(&Upstreams::new(transport()), &named).await.unwrap();
    assert!(named.has_choice(), "an entry that names it lets it lead anywhere");
}

#[tokio::test]
async fn a_port_that_is_not_open_needs_no_look_up_to_be_refused() {
    let names = Names::new("a.example", &["93.184.215.14"]);
    let guard = Guard::public(&Egress::resolving(EgressConfig::default(), names.clone()));
    for shop in both("a.example", 25, &guard) {
        let error = call(&Upstreams::new(transport()), &shop).await.unwrap_err();
        assert_eq!(error.kind(), Some("egress_denied"));
    }
    assert_eq!(names.asked(), 0);
}

#[tokio::test]
async fn a_health_check_dials_what_calls_may_dial() {
    let wire = Wire::echo().await;
    let port = wire.address.port();
    let inside = Inside::at(BAD, port).await;
    let names = Names::new("mixed.example", &[BAD, GOOD]);
    let mut config = config("mixed.example", port, public(&names));
    config.health_interval = Duration::from_millis(10);
    config.resolve_interval = Duration::from_millis(10);
    let shop = Cluster::new(config, &transport()).unwrap();
    let watch = tokio::spawn(shop.clone().watch());
    until("checked a few times", || wire.connections() > 5).await;
    assert!(shop.healthy());
    watch.abort();
    inside.saw_nobody();
}

#[tokio::test]
async fn a_place_is_at_the_address_that_named_it_wherever_its_name_leads_now() {
    let wire = Wire::echo().await;
    let port = wire.address.port();
    let inside = Inside::at(BAD, port).await;
    let names = Names::new("place.example", &[GOOD]);
    let shop = on_demand("place.example", port, public(&names), SOON);
    let core = Upstreams::new(transport());
    let response = send(&core, outgoing(&shop)).await.unwrap();
    let place = response.body().place("/messages?session=1").unwrap();
    text(response).await.unwrap();
    names.lead("place.example", &[BAD]);
    tokio::time::sleep(SOON * 2).await;
    let there = Outgoing { to: Destination::Place(place), ..outgoing(&shop) };
    text(send(&core, there).await.unwrap()).await.unwrap();
    assert!(wire.requests()[1].starts_with("POST /messages?session=1 "));
    inside.saw_nobody();
}

#[tokio::test]
async fn a_redirect_takes_neither_call_nor_credential_to_another_origin() {
    let other = Wire::echo().await;
    let there =
        format!("HTTP/1.1 307 There\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", other.url());
    let wire = Wire::start([vec![Step::Read, write(&there)]]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    let mut secret = outgoing(&shop);
    let bearer = http::HeaderValue::from_static("Bearer not-a-real-one");
    secret.request.headers_mut().insert(http::header::AUTHORIZATION, bearer);
    let error = send(&core, secret).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), Some("redirect"));
    assert_eq!((wire.connections(), other.connections()), (1, 0));
}

// === nobody watches ===

#[tokio::test]
async fn the_first_calls_look_a_name_up_once_for_all_of_them() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    *names.slow.lock() = Duration::from_millis(50);
    let shop = on_demand("shop.example", wire.address.port(), public(&names), HOUR);
    assert_eq!(names.asked(), 0, "nothing is looked up before it is needed");
    let core = Upstreams::new(transport());
    for answer in join_all((0..64).map(|_| call(&core, &shop))).await {
        answer.unwrap();
    }
    assert_eq!(names.asked(), 1);
}

#[tokio::test]
async fn an_old_answer_is_asked_for_again_and_stays_where_that_fails() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    let shop = on_demand("shop.example", wire.address.port(), public(&names), SOON);
    let core = Upstreams::new(transport());
    call(&core, &shop).await.unwrap();
    names.lead("shop.example", &[]);
    for asked in 2..5 {
        tokio::time::sleep(SOON * 2).await;
        for answer in join_all((0..16).map(|_| call(&core, &shop))).await {
            answer.unwrap();
        }
        assert!(names.asked() >= asked, "asked {} times", names.asked());
    }
    assert!(shop.healthy());
}

#[tokio::test]
async fn an_answer_that_does_not_come_leaves_the_old_one() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    let shop = on_demand("shop.example", wire.address.port(), public(&names), SOON);
    let core = Upstreams::new(transport());
    call(&core, &shop).await.unwrap();
    *names.slow.lock() = HOUR;
    tokio::time::sleep(SOON * 2).await;
    let begun = Instant::now();
    call(&core, &shop).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_name_that_has_no_address_is_not_asked_for_by_each_call() {
    let names = Arc::<Names>::default();
    let shop = on_demand("nowhere.example", 443, public(&names), HOUR);
    let core = Upstreams::new(transport());
    for answer in join_all((0..16).map(|_| call(&core, &shop))).await {
        assert_eq!(answer.unwrap_err().kind(), Some("dns"));
    }
    assert_eq!(names.asked(), 1);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(call(&core, &shop).await.unwrap_err().kind(), Some("dns"));
    assert_eq!(names.asked(), 2, "and is asked for again soon");
}

#[tokio::test]
async fn without_checks_a_dead_address_is_found_by_calls_and_passed_over() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &["127.0.0.3", GOOD]);
    let config = EgressConfig { allow: vec!["127.0.0.0/8".parse().unwrap()], ..Default::default() };
    let guard = Guard::public(&Egress::resolving(config, names.clone()));
    let shop = on_demand("shop.example", wire.address.port(), guard, HOUR);
    let core = Upstreams::new(transport());
    for _ in 0..8 {
        call(&core, &shop).await.unwrap();
    }
    assert!(shop.healthy() && shop.has_choice());
    assert_eq!(wire.requests().len(), 8);
}

#[tokio::test]
async fn without_checks_calls_take_the_addresses_in_turn() {
    let one = Wire::echo().await;
    let port = one.address.port();
    let other = Inside::at("127.0.0.4", port).await;
    let names = Names::new("shop.example", &[GOOD, "127.0.0.4"]);
    let config = EgressConfig { allow: vec!["127.0.0.0/8".parse().unwrap()], ..Default::default() };
    let guard = Guard::public(&Egress::resolving(config, names.clone()));
    let shop = on_demand("shop.example", port, guard, HOUR);
    let core = Upstreams::new(transport());
    // The other takes a connection and hangs up at once.
    let answers = join_all((0..10).map(|_| call(&core, &shop))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5);
    assert_eq!(other.0.load(SeqCst), 5);
}

#[tokio::test]
async fn what_is_dropped_leaves_no_task_no_connection_and_no_pool() {
    const MANY: usize = 1_000;
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    let guard = public(&names);
    let core = Upstreams::new(transport());
    let port = wire.address.port();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let shops: Vec<_> =
        (0..MANY).map(|_| on_demand("shop.example", port, guard.clone(), HOUR)).collect();
    assert_eq!(tasks(), before, "there is no task for a cluster that was not called");
    for shop in &shops {
        call(&core, shop).await.unwrap();
    }
    // The server's own task of each connection, and no more.
    until("look-ups have ended", || tasks() == before + MANY).await;
    assert_eq!(core.0.pools(), MANY);
    drop(shops);
    until("the pools are gone", || core.0.pools() == 0).await;
    until("the connections are closed", || tasks() == before).await;
}

#[tokio::test]
async fn an_address_that_a_name_has_no_more_keeps_no_connection() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    let shop = watched("shop.example", wire.address.port(), public(&names));
    let core = Upstreams::new(transport());
    call(&core, &shop).await.unwrap();
    names.lead("shop.example", &[BAD]);
    shop.refresh().await;
    until("the pool is gone", || core.0.pools() == 0).await;
}

#[tokio::test]
async fn slow_public_names_keep_no_look_up_from_the_operators_own() {
    let wire = Wire::echo().await;
    let names = Names::new("own.example", &[GOOD]);
    let egress = Egress::resolving(EgressConfig::default(), names.clone());
    *names.slow.lock() = HOUR;
    let core = Upstreams::new(transport());
    let shops: Vec<_> =
        (0..40).map(|_| on_demand("slow.example", 443, Guard::public(&egress), HOUR)).collect();
    for answer in join_all(shops.iter().map(|shop| call(&core, shop))).await {
        assert_eq!(answer.unwrap_err().kind(), Some("dns"));
    }
    assert_eq!(names.asked(), 32, "each look-up that nobody waits for any more still counts");
    *names.slow.lock() = Duration::ZERO;
    let own = watched("own.example", wire.address.port(), Guard::written(&egress));
    call(&core, &own).await.unwrap();
}
