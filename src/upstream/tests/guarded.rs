//! What is dialled, where names lead to good and bad addresses, and change.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::{
    names::*,
    wire::{Step, Wire, answer, write},
    *,
};
use crate::error::{Code, Next};

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
        assert_eq!(
            error.message(),
            "This gateway may not call `inside.example:443`: of servers that employees bring it \
             calls those on the open Internet, at the ports that are open for them. Bring another \
             address, or ask whoever runs the gateway to open `inside.example:443` \
             (`egress.allow`)."
        );
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

/// A sink for what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_operator_is_told_once_which_address_was_refused() {
    let log = Log::default();
    let sink = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || sink.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    // With one subscriber alone, a line first reached by another test's thread, which has none,
    // would be silent for all.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let wire = Wire::echo().await;
    let names = Names::new("mixed.example", &[GOOD, "10.1.2.3"]);
    let shop = watched("mixed.example", wire.address.port(), public(&names));
    for _ in 0..3 {
        shop.refresh().await;
    }
    let lines = |what: &str| {
        let text = String::from_utf8(log.0.lock().clone()).unwrap();
        text.lines().filter(|line| line.contains(what)).count()
    };
    let refused = "An address of an upstream may not be dialled.";
    assert_eq!((lines(refused), lines("stands for 10.1.2.3, a private address")), (1, 1));
    names.lead("mixed.example", &[GOOD, "10.1.2.4"]);
    shop.refresh().await;
    assert_eq!((lines(refused), lines("10.1.2.4")), (2, 1));
    names.lead("mixed.example", &[]);
    for _ in 0..3 {
        shop.refresh().await;
    }
    assert_eq!(lines("its last addresses stay in use"), 1);
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
        let config = EgressConfig { allow, ..EgressConfig::default() };
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
