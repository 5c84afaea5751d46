//! The life of a key: one run, then the same answer, whoever comes when.

#![allow(clippy::disallowed_methods, reason = "calls of a test end with its runtime")]

use std::sync::{
    Barrier,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};

use super::*;
use crate::clock::Clock;

const DAY: Duration = Duration::from_secs(24 * 3_600);
const MS: Duration = Duration::from_millis(1);

fn clock() -> Clock {
    Clock::manual(1_700_000_000_000)
}

fn replays() -> Arc<Replays> {
    Replays::new(Settings::default(), clock())
}

fn claim(key: &str, arguments: u8) -> Claim {
    scoped("acme", "gateway", Some("E1"), "crm/pay", key, arguments)
}

fn scoped(
    tenant: &str,
    caller: &str,
    employee: Option<&str>,
    tool: &str,
    key: &str,
    arguments: u8,
) -> Claim {
    let (tenant, caller) = (TenantId::new(tenant), CallerId::new(caller));
    let employee = employee.map(|id| EmployeeId::parse(id).unwrap());
    let key = ReplayKey::parse(key).unwrap();
    let scope =
        Scope { tenant: &tenant, caller: &caller, employee: employee.as_ref(), tool, key: &key };
    Claim::new(scope, KeyedDigest { key: 0, digest: [arguments; 32] }, false)
}

fn shape(is_error: bool) -> crate::model::reply::Shape {
    crate::model::reply::Shape { is_error: Some(is_error), ..Default::default() }
}

fn result(text: &'static str, is_error: bool) -> Final {
    Final::Result(ResultBody::upstream(Bytes::from_static(text.as_bytes()), shape(is_error)))
}

#[track_caller]
fn run(replays: &Arc<Replays>, claim: Claim) -> Lease {
    match replays.begin(claim) {
        Begin::Run(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// What `begin` says, in a word.
fn word(begin: &Begin) -> &'static str {
    match begin {
        Begin::Run(_) => "run",
        Begin::Ask(_) => "ask",
        Begin::Replay(_) => "replay",
        Begin::Conflict => "conflict",
        Begin::InFlight(_) => "in flight",
        Begin::Unknown => "unknown",
        Begin::Full => "full",
        Begin::Down => "down",
    }
}

#[track_caller]
fn check(replays: &Arc<Replays>, claim: Claim, expected: &str) {
    assert_eq!(word(&replays.begin(claim)), expected);
}

#[track_caller]
fn replayed(begin: &Begin) -> (Bytes, bool) {
    let Begin::Replay(stored) = begin else { panic!("{begin:?}") };
    match stored.answer() {
        Some(Final::Result(body)) => {
            let is_error = body.is_error();
            (body.raw, is_error)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn replays_a_finished_call() {
    let replays = replays();
    run(&replays, claim("k1", 1)).finish(&result(r#"{"n":1}"#, false));
    for _ in 0..2 {
        let begin = replays.begin(claim("k1", 1));
        assert_eq!(replayed(&begin), (Bytes::from_static(br#"{"n":1}"#), false));
    }
    // Other arguments under the key are no replay, nor another call.
    check(&replays, claim("k1", 2), "conflict");
    check(&replays, claim("k2", 1), "run");
}

#[test]
fn an_answer_that_is_an_error_is_an_answer() {
    let replays = replays();
    run(&replays, claim("k1", 1)).finish(&result(r#"{"isError":true}"#, true));
    assert!(replayed(&replays.begin(claim("k1", 1))).1);
    let error = RpcError {
        code: -32_602,
        message: Bytes::from_static(b"\"no such account\""),
        data: Some(Bytes::from_static(b"[1]")),
    };
    run(&replays, claim("k2", 1)).finish(&Final::Error(error));
    let Begin::Replay(stored) = replays.begin(claim("k2", 1)) else { panic!() };
    let Some(Final::Error(error)) = stored.answer() else { panic!() };
    assert_eq!((error.code, &error.message[..]), (-32_602, &b"\"no such account\""[..]));
    assert_eq!(error.data.as_deref(), Some(&b"[1]"[..]));
}

#[test]
fn a_key_means_something_to_one_principal_and_one_tool() {
    let replays = replays();
    let held: Vec<Lease> = [
        scoped("acme", "gateway", Some("E1"), "crm/pay", "k1", 1),
        scoped("globex", "gateway", Some("E1"), "crm/pay", "k1", 1),
        scoped("acme", "gateway", Some("E2"), "crm/pay", "k1", 1),
        scoped("acme", "gateway", Some("E1"), "crm/refund", "k1", 1),
        scoped("acme", "gateway", Some("E1"), "crm/pay", "k2", 1),
        // Without an employee the caller is the principal, and no employee of that name.
        scoped("acme", "gateway", None, "crm/pay", "k1", 1),
        scoped("acme", "script", None, "crm/pay", "k1", 1),
        scoped("acme", "gateway", Some("script"), "crm/pay", "k1", 1),
        // Names do not run together.
        scoped("acme", "gateway", Some("E1c"), "rm/pay", "k1", 1),
        scoped("acme", "gateway", Some("E1"), "crm/payk", "1", 1),
    ]
    .map(|claim| run(&replays, claim))
    .into();
    // Through whichever caller an employee comes, he is the same.
    let other = scoped("acme", "script", Some("E1"), "crm/pay", "k1", 1);
    check(&replays, other, "in flight");
    drop(held);
}

#[test]
fn a_call_that_did_not_take_place_frees_its_key() {
    let replays = replays();
    run(&replays, claim("k1", 1)).free();
    // Also to other arguments: nothing was done with the first.
    run(&replays, claim("k1", 2)).free();
    let lease = run(&replays, claim("k1", 3));
    assert!(!lease.sent_mark().load(Ordering::Relaxed));
    drop(lease);
    check(&replays, claim("k1", 4), "run");
    assert_eq!(replays.usage(), Usage { keys: 0, bytes: 0 });
}

#[test]
fn a_call_that_may_have_taken_place_is_never_run_again() {
    let clock = clock();
    let replays = Replays::new(Settings::default(), clock.clone());
    run(&replays, claim("said", 1)).unknown();
    // Cancelled on the way: nobody said anything, but the request had begun to leave.
    let lease = run(&replays, claim("dropped", 1));
    lease.sent_mark().store(true, Ordering::Release);
    drop(lease);
    for key in ["said", "dropped"] {
        clock.advance(DAY / 2 - MS);
        replays.sweep();
        check(&replays, claim(key, 1), "unknown");
        check(&replays, claim(key, 2), "conflict");
    }
    clock.advance(2 * MS);
    for key in ["said", "dropped"] {
        check(&replays, claim(key, 1), "run");
    }
}

#[test]
fn an_unknown_outcome_lets_a_retry_safe_tool_run_again() {
    let replays = replays();
    run(&replays, claim("k1", 1)).unknown();
    let retry_safe = Claim { retry_safe: true, ..claim("k1", 1) };
    check(&replays, Claim { retry_safe: true, ..claim("k1", 2) }, "conflict");
    run(&replays, retry_safe).finish(&result("{}", false));
    // But not once it is known.
    check(&replays, retry_safe, "replay");
    assert_eq!(replays.usage().keys, 1);
}

#[test]
fn a_record_stays_its_full_time_and_no_longer() {
    let clock = clock();
    let replays = Replays::new(Settings::default(), clock.clone());
    let lease = run(&replays, claim("k1", 1));
    // A call in flight does not expire, whatever the clock says.
    clock.advance(3 * DAY);
    replays.sweep();
    check(&replays, claim("k1", 1), "in flight");
    lease.finish(&result("{}", false));
    clock.advance(DAY - MS);
    replays.sweep();
    check(&replays, claim("k1", 1), "replay");
    clock.advance(MS);
    // Gone also if nobody has swept yet, and then it is somebody else's key.
    run(&replays, claim("k1", 2)).finish(&result("{}", true));
    assert!(replayed(&replays.begin(claim("k1", 2))).1);
    assert_eq!(replays.usage().keys, 1);
    clock.advance(DAY);
    replays.sweep();
    assert_eq!(replays.usage(), Usage { keys: 0, bytes: 0 });
}

#[test]
fn of_many_first_calls_one_runs() {
    // C51: twenty at once, over and over.
    for round in 0..200 {
        let replays = replays();
        let (barrier, ran) = (Barrier::new(20), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    barrier.wait();
                    match replays.begin(claim("k1", 1)) {
                        Begin::Run(lease) => {
                            ran.fetch_add(1, Ordering::Relaxed);
                            lease.finish(&result("{}", false));
                        }
                        Begin::InFlight(_) | Begin::Replay(_) => {}
                        other => panic!("{other:?}"),
                    }
                });
            }
        });
        assert_eq!(ran.into_inner(), 1, "round {round}");
        assert_eq!(replays.usage().keys, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_come_while_it_runs_get_its_answer() {
    let replays = replays();
    let lease = run(&replays, claim("k1", 1));
    let waiting: Vec<_> = (0..19)
        .map(|_| {
            let replays = replays.clone();
            tokio::spawn(async move { replays.begin_or_wait(claim("k1", 1)).await })
        })
        .collect();
    sleep(Duration::from_millis(500)).await;
    check(&replays, claim("k1", 2), "conflict");
    lease.finish(&result(r#"{"n":1}"#, false));
    let before = Instant::now();
    for waiting in waiting {
        assert_eq!(replayed(&waiting.await.unwrap()).0, Bytes::from_static(br#"{"n":1}"#));
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_second_call_waits_two_seconds_and_no_more() {
    let replays = replays();
    let lease = run(&replays, claim("k1", 1));
    let before = Instant::now();
    assert_eq!(word(&replays.begin_or_wait(claim("k1", 1)).await), "in flight");
    assert_eq!(before.elapsed(), Duration::from_secs(2));
    assert_eq!(replays.wait(), Duration::from_secs(2));
    lease.unknown();
    assert_eq!(word(&replays.begin_or_wait(claim("k1", 1)).await), "unknown");
}

#[tokio::test(start_paused = true)]
async fn when_the_first_did_not_take_place_one_of_the_others_runs() {
    let replays = replays();
    let first = run(&replays, claim("k1", 1));
    let ran = Arc::new(AtomicUsize::new(0));
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let (replays, ran) = (replays.clone(), ran.clone());
            tokio::spawn(async move {
                match replays.begin_or_wait(claim("k1", 1)).await {
                    // The next two do not take place either.
                    Begin::Run(lease) if ran.fetch_add(1, Ordering::Relaxed) < 2 => {
                        sleep(Duration::from_millis(300)).await;
                        lease.free();
                        "freed"
                    }
                    Begin::Run(lease) => {
                        sleep(Duration::from_millis(300)).await;
                        lease.finish(&result("{}", false));
                        "ran"
                    }
                    other => word(&other),
                }
            })
        })
        .collect();
    yield_now().await;
    first.free();
    let mut words = Vec::new();
    for waiting in waiting {
        words.push(waiting.await.unwrap());
    }
    words.sort_unstable();
    let expected = [&["freed"; 2][..], &["ran"], &["replay"; 7]].concat();
    assert_eq!(words, expected);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_waits_for_the_call_that_has_the_key_now() {
    let replays = replays();
    let first = run(&replays, claim("k1", 1));
    let Begin::InFlight(waiter) = replays.begin(claim("k1", 1)) else { panic!() };
    first.free();
    let second = run(&replays, claim("k1", 1));
    let waiting = tokio::spawn(waiter.wait());
    let before = Instant::now();
    sleep(Duration::from_millis(500)).await;
    second.finish(&result("{}", false));
    assert_eq!(word(&waiting.await.unwrap()), "replay");
    assert_eq!(before.elapsed(), Duration::from_millis(500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_waiting_call_is_forgotten() {
    // Calls that free their key, finish, or are dropped, while others begin to wait.
    for _ in 0..100 {
        let replays = replays();
        let calls: Vec<_> = (0..8)
            .map(|n| {
                let replays = replays.clone();
                tokio::spawn(async move {
                    loop {
                        match replays.begin_or_wait(claim("k1", 1)).await {
                            Begin::Run(lease) if n % 4 == 0 => {
                                yield_now().await;
                                lease.finish(&result("{}", false));
                                return;
                            }
                            Begin::Run(lease) => drop(lease),
                            Begin::Replay(_) => return,
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
    }
}

#[test]
fn a_full_store_refuses_new_keys_and_forgets_none() {
    let clock = clock();
    let settings = Settings { max_keys: 3, ..Settings::default() };
    let replays = Replays::new(settings, clock.clone());
    run(&replays, claim("k1", 1)).finish(&result("{}", false));
    clock.advance(DAY / 2);
    run(&replays, claim("k2", 1)).unknown();
    let running = run(&replays, claim("k3", 1));
    for _ in 0..3 {
        clock.advance(Duration::from_secs(2));
        check(&replays, claim("k4", 1), "full");
    }
    check(&replays, claim("k1", 1), "replay");
    check(&replays, claim("k2", 1), "unknown");
    check(&replays, claim("k3", 1), "in flight");
    // A key that is free again makes room, and so does one whose time is over.
    running.free();
    let fourth = run(&replays, claim("k4", 1));
    check(&replays, claim("k5", 1), "full");
    clock.advance(DAY / 2);
    let fifth = run(&replays, claim("k5", 1));
    check(&replays, claim("k2", 1), "unknown");
    drop((fourth, fifth));
    assert_eq!(replays.usage().keys, 1);
}

#[test]
fn room_for_an_answer_is_reserved_before_the_call_runs() {
    let clock = clock();
    let settings = Settings { capacity: 10_000, max_answer: 4_000, ..Settings::default() };
    let replays = Replays::new(settings, clock.clone());
    let (first, second) = (run(&replays, claim("k1", 1)), run(&replays, claim("k2", 1)));
    check(&replays, claim("k3", 1), "full");
    // A short answer gives most of it back, the longest one nothing, and it is kept.
    first.finish(&result("{}", false));
    let long: &'static str = Box::leak("x".repeat(4_000).into());
    second.finish(&result(long, false));
    let third = run(&replays, claim("k3", 1));
    check(&replays, claim("k4", 1), "full");
    assert!(replays.usage().bytes <= 10_000);
    assert_eq!(replayed(&replays.begin(claim("k2", 1))).0.len(), 4_000);
    third.unknown();
    clock.advance(DAY);
    replays.sweep();
    assert_eq!(replays.usage(), Usage { keys: 0, bytes: 0 });
    let none = Settings { capacity: 100, ..settings };
    check(&Replays::new(none, clock), claim("k1", 1), "full");
}

#[test]
fn what_is_counted_is_given_back_when_many_come_at_once() {
    let clock = clock();
    let settings =
        Settings { max_keys: 40, capacity: 40 * 1_000, max_answer: 500, ..Settings::default() };
    let replays = Replays::new(settings, clock.clone());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (replays, clock) = (&replays, &clock);
            scope.spawn(move || {
                for n in 0..3_000_u32 {
                    let key = format!("{}", n % 60);
                    if let Begin::Run(lease) = replays.begin(claim(&key, thread % 2)) {
                        let usage = replays.usage();
                        // Others may just be trying to reserve.
                        assert!(usage.keys <= 43 && usage.bytes <= 44 * 1_000, "{usage:?}");
                        match n % 4 {
                            0 => drop(lease.finish(&result("{}", false))),
                            1 => drop(lease.unknown()),
                            2 => drop(lease.free()),
                            _ => drop(lease),
                        }
                    }
                    if n % 100 == 0 {
                        clock.advance(DAY / 2);
                    }
                }
            });
        }
    });
    assert!(replays.usage().keys <= 40);
    clock.advance(DAY);
    replays.sweep();
    assert_eq!(replays.usage(), Usage { keys: 0, bytes: 0 });
}

#[test]
fn of_an_answer_that_is_too_long_its_digest_is_kept() {
    let replays = replays();
    let long: &'static str = Box::leak("x".repeat((256 << 10) + 1).into());
    run(&replays, claim("k1", 1)).finish(&result(long, true));
    let Begin::Replay(stored) = replays.begin(claim("k1", 1)) else { panic!() };
    assert!(stored.answer().is_none());
    let Stored::NotKept { sha256, bytes, is_error } = &*stored else { panic!("{stored:?}") };
    assert_eq!(*sha256, <[u8; 32]>::from(Sha256::digest(long)));
    assert_eq!((*bytes, *is_error), (long.len(), true));
    assert!(replays.usage().bytes < 1_000);
    // One byte less, and it is kept.
    run(&replays, claim("k2", 1)).finish(&result(&long[1..], false));
    assert_eq!(replayed(&replays.begin(claim("k2", 1))).0.len(), 256 << 10);
}

#[test]
fn a_stored_answer_does_not_hold_on_to_what_it_came_in() {
    let buffer = Bytes::from(vec![b'x'; 1 << 20]);
    let answer = Final::Result(ResultBody::upstream(buffer.slice(10..20), shape(false)));
    let replays = replays();
    run(&replays, claim("k1", 1)).finish(&answer);
    drop(answer);
    assert!(buffer.is_unique());
    assert_eq!(replayed(&replays.begin(claim("k1", 1))).0, Bytes::from_static(b"xxxxxxxxxx"));
}

#[test]
fn a_key_is_visible_ascii() {
    for good in ["k", "8e03978e-40d5-43dd-bc93-6894a57f9324", "\"quoted\"", "~!", &"x".repeat(255)]
    {
        assert_eq!(ReplayKey::parse(good).unwrap().as_str(), good);
    }
    for (bad, fault) in [
        ("", KeyFault::Empty),
        (&*"x".repeat(256), KeyFault::TooLong),
        ("a b", KeyFault::Illegal),
        (" a", KeyFault::Illegal),
        ("a\t", KeyFault::Illegal),
        ("a\0", KeyFault::Illegal),
        ("\u{7f}", KeyFault::Illegal),
        ("é", KeyFault::Illegal),
    ] {
        assert_eq!(ReplayKey::parse(bad), Err(fault), "{bad:?}");
    }
    assert!(!format!("{:?}", ReplayKey::parse("secret").unwrap()).contains("secret"));
}
