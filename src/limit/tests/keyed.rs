//! What is counted together and what apart, and how many keys there may be.

use std::net::Ipv6Addr;

use tokio::time::advance;

use super::{super::keys::Keys, *};

/// Whether calls by `a` and `b` count for each other under a limit per `per`.
fn shared(per: &[Dimension], a: &Subject<'_>, b: &Subject<'_>) -> bool {
    let limiter = limiter([rate("r", per, 1, HOUR)]);
    let admit = |subject: &Subject<'_>| match per {
        [Dimension::Address] => limiter.admit_address(subject.address).is_ok(),
        _ => limiter.admit(subject).is_ok(),
    };
    assert!(admit(a));
    assert!(!admit(a), "{per:?}");
    !admit(b)
}

#[test]
fn each_dimension_tells_calls_apart() {
    let one = employee("E1");
    let find = tool("crm/find", "crm", Risk::ReadLow);
    let others = [
        (Dimension::Tenant, Subject { tenant: "globex", ..one }),
        (Dimension::Caller, Subject { caller: "script", ..one }),
        (Dimension::Principal, employee("E2")),
        (Dimension::Tool, Subject { tool: Some(Tool { name: "crm/get", ..find }), ..one }),
        (Dimension::Upstream, Subject { tool: Some(Tool { upstream: "erp", ..find }), ..one }),
        (Dimension::Risk, Subject { tool: Some(Tool { risk: Risk::WriteLow, ..find }), ..one }),
        (Dimension::Address, Subject { address: address(2), ..one }),
    ];
    for (dimension, other) in &others {
        assert!(!shared(&[*dimension], &one, other), "{dimension}");
        assert!(!shared(&Dimension::ALL, &one, other), "{dimension}");
        for unlike in Dimension::ALL.into_iter().filter(|unlike| unlike != dimension) {
            // A principal is one of his tenant.
            let same = !(unlike == Dimension::Principal && *dimension == Dimension::Tenant);
            assert_eq!(shared(&[unlike], &one, other), same, "{unlike}, {dimension}");
        }
        assert_eq!(Dimension::parse(dimension.as_str()), Some(*dimension));
    }
}

#[test]
fn values_that_run_together_are_told_apart() {
    let with =
        |tenant, caller, employee| Subject { tenant, caller, employee, ..self::employee("E") };
    let per = [Dimension::Tenant, Dimension::Caller];
    assert!(!shared(&per, &with("ab", "c", None), &with("a", "bc", None)));
    assert!(!shared(&per, &with("a", "", None), &with("", "a", None)));
    // An employee is no caller, whatever they are called.
    let per = [Dimension::Principal];
    assert!(!shared(&per, &with("a", "x", None), &with("a", "y", Some("x"))));
    assert!(shared(&per, &with("a", "x", Some("E")), &with("a", "y", Some("E"))));
    // Two limits never share a counter.
    let limiter = limiter([
        rate("one", &[Dimension::Tenant], 1, HOUR),
        rate("two", &[Dimension::Caller], 2, HOUR),
    ]);
    assert!(limiter.admit(&with("same", "same", None)).is_ok());
    assert!(limiter.admit(&with("other", "same", None)).is_ok());
}

#[test]
fn an_address_is_counted_before_anything_else_is_known() {
    let limiter = limiter([
        rate("address", &[Dimension::Address], 2, HOUR),
        rate("both", &[Dimension::Address, Dimension::Tenant], 3, HOUR),
        of("acme", rate("mine", &[Dimension::Address], 4, HOUR)),
    ]);
    let ok = |address| (0..5).filter(|_| limiter.admit_address(address).is_ok()).count();
    assert_eq!(ok(address(1)), 2);
    assert_eq!(ok(address(2)), 2);
    // Once for each call, so not again when the caller is known.
    assert_eq!(admitted(&limiter, &employee("E1"), 9), 3);
    assert_eq!(&**limiter.admit(&employee("E1")).unwrap_err().id(), "both");
}

#[test]
fn one_host_is_one_address() {
    let limiter = limiter([rate("address", &[Dimension::Address], 1, HOUR)]);
    let ok = |text: &str| limiter.admit_address(text.parse().unwrap()).is_ok();
    assert!(ok("192.0.2.1"));
    assert!(!ok("::ffff:192.0.2.1"), "the same, as an IPv6 socket tells it");
    assert!(ok("2001:db8:0:1::1"));
    assert!(!ok("2001:db8:0:1:ffff::2"), "the same network");
    assert!(ok("2001:db8:0:2::1"));
    assert!(ok(&Ipv6Addr::LOCALHOST.to_string()));
    assert!(ok("127.0.0.1"));
}

#[tokio::test(start_paused = true)]
async fn keys_without_room_are_counted_together() {
    let second = Duration::from_secs(1);
    let specs = vec![rate("r", &[Dimension::Principal], 2, second)];
    let limiter = Limiter::with_max_keys(specs, 3).unwrap();
    for id in ["A", "B", "C"] {
        assert_eq!(admitted(&limiter, &employee(id), 9), 2);
    }
    assert_eq!(limiter.keys(), 3);
    // Neither refused at once nor without a limit.
    let others: u32 = (0..20).map(|n| admitted(&limiter, &employee(&n.to_string()), 1)).sum();
    assert_eq!(others, 2);
    assert_eq!(limiter.keys(), 3);
    // When the others owe nothing any more, they make room.
    advance(2 * second).await;
    for id in ["D", "E", "F"] {
        assert_eq!(admitted(&limiter, &employee(id), 9), 2, "{id}");
    }
    assert_eq!(limiter.keys(), 3);
}

#[tokio::test(start_paused = true)]
async fn whoever_was_counted_with_others_takes_their_debt_along() {
    let second = Duration::from_secs(1);
    let specs = vec![
        of("acme", rate("r", &[Dimension::Principal], 1, 1_000 * second)),
        of("globex", rate("r", &[Dimension::Principal], 1, second)),
    ];
    let limiter = Limiter::with_max_keys(specs, 1).unwrap();
    let globex = Subject { tenant: "globex", ..employee("G") };
    assert_eq!(admitted(&limiter, &globex, 2), 1);
    assert_eq!(admitted(&limiter, &employee("A"), 2), 1);
    // There is room now; but what A used may not be forgotten.
    advance(2 * second).await;
    limiter.sweep();
    assert_eq!(limiter.keys(), 0);
    assert_eq!(admitted(&limiter, &employee("A"), 2), 0);
    advance(998 * second).await;
    assert_eq!(admitted(&limiter, &employee("A"), 2), 1);
}

#[tokio::test(start_paused = true)]
async fn keys_that_owe_nothing_are_forgotten_and_no_others() {
    let limiter = limiter([rate("r", &[Dimension::Principal], 5, Duration::from_secs(10))]);
    for n in 0..100 {
        let calls = if n < 40 { 1 } else { 2 };
        admitted(&limiter, &employee(&n.to_string()), calls);
    }
    assert_eq!(limiter.keys(), 100);
    limiter.sweep();
    assert_eq!(limiter.keys(), 100);
    advance(Duration::from_secs(10)).await;
    limiter.sweep();
    assert_eq!(limiter.keys(), 60);
    advance(Duration::from_secs(10)).await;
    limiter.sweep();
    assert_eq!(limiter.keys(), 0);
}

#[test]
fn a_counter_that_somebody_holds_is_not_forgotten() {
    // Between looking its counter up and charging it, a call must not lose it to a sweep.
    let keys: Keys<u8> = Keys::new(9);
    let held = keys.get_or_make(b"key", || 0).unwrap();
    keys.forget(|_| true);
    assert!(Arc::ptr_eq(&held, &keys.get_or_make(b"key", || 0).unwrap()));
    drop(held);
    keys.forget(|_| true);
    assert_eq!(keys.len(), 0);
}
