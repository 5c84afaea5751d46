//! Slots: how many at a time, who waits, and for how long.

#![allow(clippy::disallowed_methods, reason = "calls of a test end with its runtime")]

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use tokio::{
    task::{JoinHandle, yield_now},
    time::{advance, sleep},
};

use super::*;

const PER: &[Dimension] = &[Dimension::Tenant];
const MINUTE: Duration = Duration::from_secs(60);

/// A call by an employee, under way.
fn enter(limiter: &Arc<Limiter>, id: &'static str) -> JoinHandle<Result<Entry, Exceeded>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.enter(&employee(id)).await })
}

async fn settle() {
    for _ in 0..10 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_given_back_when_the_call_ends() {
    let limiter = limiter([slots("s", PER, 2, 0, 0)]);
    let first = limiter.enter(&employee("E1")).await.unwrap();
    let _second = limiter.enter(&employee("E2")).await.unwrap();
    let exceeded = limiter.enter(&employee("E3")).await.unwrap_err();
    assert_eq!((&**exceeded.id(), exceeded.kind()), ("s", "concurrency"));
    assert_eq!(exceeded.retry_after, Duration::from_secs(1));
    // Somebody else's are not used up by that.
    assert!(limiter.slots(&Subject { tenant: "globex", ..employee("E1") }).await.is_ok());
    drop(first);
    assert!(limiter.enter(&employee("E3")).await.unwrap().waited.is_none());
}

#[tokio::test(start_paused = true)]
async fn looking_uses_up_nothing() {
    let limiter = Arc::new(limiter([rate("r", PER, 2, MINUTE), slots("s", PER, 1, 1, 10)]));
    for _ in 0..5 {
        assert!(limiter.look(&employee("E1")).is_ok());
    }
    let first = limiter.enter(&employee("E1")).await.unwrap();
    assert!(limiter.look(&employee("E2")).is_ok(), "there is a place in the line");
    let second = enter(&limiter, "E2");
    settle().await;
    assert_eq!(&**limiter.look(&employee("E3")).unwrap_err().id(), "s");
    drop(first);
    drop(second.await.unwrap());
    assert_eq!(&**limiter.look(&employee("E3")).unwrap_err().id(), "r");
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_let_in_in_turn() {
    let limiter = Arc::new(limiter([slots("s", PER, 1, 2, 10)]));
    let first = limiter.enter(&employee("E1")).await.unwrap();
    let second = enter(&limiter, "E2");
    settle().await;
    let third = enter(&limiter, "E3");
    settle().await;
    // The line is full: no waiting for a place in it.
    let before = Instant::now();
    assert!(limiter.enter(&employee("E4")).await.is_err());
    assert_eq!(before.elapsed(), Duration::ZERO);
    advance(Duration::from_secs(3)).await;
    drop(first);
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.waited, Some(Duration::from_secs(3)));
    settle().await;
    assert!(!third.is_finished());
    // One place in the line is free again, and one who comes now does not overtake.
    let fourth = enter(&limiter, "E4");
    settle().await;
    drop(second);
    let third = third.await.unwrap().unwrap();
    settle().await;
    assert!(!fourth.is_finished());
    drop(third);
    assert!(fourth.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_the_limit_says() {
    let limiter = limiter([slots("s", PER, 1, 1, 2)]);
    let held = limiter.enter(&employee("E1")).await.unwrap();
    let before = Instant::now();
    let exceeded = limiter.enter(&employee("E2")).await.unwrap_err();
    assert_eq!(before.elapsed(), Duration::from_secs(2));
    assert_eq!(&**exceeded.id(), "s");
    // The place in the line is free again.
    assert!(limiter.enter(&employee("E2")).await.is_err());
    assert_eq!(before.elapsed(), Duration::from_secs(4));
    drop(held);
    assert!(limiter.enter(&employee("E2")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_leaves_the_line() {
    let limiter = Arc::new(limiter([slots("s", PER, 1, 1, 10)]));
    let held = limiter.enter(&employee("E1")).await.unwrap();
    let gone = enter(&limiter, "E2");
    settle().await;
    gone.abort();
    settle().await;
    let next = enter(&limiter, "E3");
    settle().await;
    assert!(!next.is_finished(), "it has the place in the line");
    drop(held);
    drop(next.await.unwrap().unwrap());
    assert!(limiter.enter(&employee("E4")).await.unwrap().waited.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_slot_has_not_been_charged() {
    let limiter = limiter([
        slots("s", PER, 1, 1, 1),
        slots("none", &[Dimension::Caller], 9, 0, 0),
        rate("r", PER, 3, HOUR),
    ]);
    let held = limiter.enter(&employee("E1")).await.unwrap();
    for _ in 0..5 {
        assert_eq!(&**limiter.enter(&employee("E2")).await.unwrap_err().id(), "s");
    }
    drop(held);
    for _ in 0..2 {
        assert!(limiter.enter(&employee("E2")).await.is_ok());
    }
    assert_eq!(&**limiter.enter(&employee("E2")).await.unwrap_err().id(), "r");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_rate_refuses_takes_no_slot_and_does_not_queue() {
    let limiter = limiter([slots("s", PER, 1, 9, 10), rate("r", &[Dimension::Principal], 1, HOUR)]);
    let held = limiter.enter(&employee("E1")).await.unwrap();
    let before = Instant::now();
    assert_eq!(&**limiter.enter(&employee("E1")).await.unwrap_err().id(), "r");
    assert_eq!(before.elapsed(), Duration::ZERO);
    drop(held);
    assert_eq!(&**limiter.enter(&employee("E1")).await.unwrap_err().id(), "r");
    assert!(limiter.enter(&employee("E2")).await.unwrap().waited.is_none());
}

#[test]
fn a_call_that_a_rate_refuses_never_gets_in_the_way_of_another() {
    // One slot and no queue: whoever held it for a moment, only to be refused then, would sooner
    // or later have somebody else refused.
    let limiter =
        limiter([slots("s", PER, 1, 0, 0), rate("r", &[Dimension::Principal], 1_000_000, MINUTE)]);
    let spent = limiter.replaced_by(vec![
        slots("s", PER, 1, 0, 0),
        rate("spent", &[Dimension::Principal], 1, HOUR),
    ]);
    let spent = spent.unwrap();
    assert!(matches!(spent.try_enter(&employee("E1")), Attempt::In(_)));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert!(matches!(spent.try_enter(&employee("E1")), Attempt::Out(_)));
            }
        });
        let let_in = (0..20_000)
            .filter(|_| matches!(limiter.try_enter(&employee("E2")), Attempt::In(_)))
            .count();
        over.store(true, Ordering::Relaxed);
        assert_eq!(let_in, 20_000);
    });
}

#[tokio::test(start_paused = true)]
async fn what_can_be_said_at_once_needs_no_waiting() {
    let limiter = limiter([slots("s", PER, 1, 1, 1), slots("t", &[Dimension::Caller], 1, 0, 1)]);
    let entry = match limiter.try_enter(&employee("E1")) {
        Attempt::In(entry) => entry,
        other => panic!("{other:?}"),
    };
    assert!(matches!(limiter.try_enter(&employee("E1")), Attempt::Wait));
    // A limit without a queue is not waited for.
    let other = Subject { tenant: "globex", ..employee("E1") };
    assert!(matches!(limiter.try_enter(&other), Attempt::Out(_)));
    drop(entry);
    // What was taken on the way to a refusal has been given back.
    assert!(matches!(limiter.try_enter(&other), Attempt::In(_)));
}

#[tokio::test(start_paused = true)]
async fn slots_in_use_are_not_forgotten() {
    let limiter = limiter([slots("s", &[Dimension::Principal], 1, 0, 0)]);
    let held = limiter.enter(&employee("E1")).await.unwrap();
    drop(limiter.enter(&employee("E2")).await.unwrap());
    assert_eq!(limiter.keys(), 2);
    limiter.sweep();
    assert_eq!(limiter.keys(), 1);
    assert!(limiter.enter(&employee("E1")).await.is_err());
    drop(held);
    limiter.sweep();
    assert_eq!(limiter.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_room_for_another_key_a_call_is_refused() {
    let specs = vec![slots("s", &[Dimension::Principal], 1, 0, 0)];
    let limiter = Limiter::with_max_keys(specs, 2).unwrap();
    let first = limiter.enter(&employee("E1")).await.unwrap();
    let _second = limiter.enter(&employee("E2")).await.unwrap();
    assert!(limiter.enter(&employee("E3")).await.is_err());
    drop(first);
    sleep(Duration::from_secs(1)).await;
    assert!(limiter.enter(&employee("E3")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn however_many_come_no_more_than_the_slots_run() {
    // Two limits that calls meet in one order, whatever they are about; swept all the while.
    let limiter = Arc::new(limiter([
        slots("tenant", PER, 3, 1_000, 60),
        slots("principal", &[Dimension::Principal], 2, 1_000, 60),
    ]));
    let running: Arc<[AtomicU32; 3]> = Arc::default();
    let calls: Vec<_> = (0..400)
        .map(|n| {
            let (limiter, running) = (limiter.clone(), running.clone());
            tokio::spawn(async move {
                let id = n % 2;
                let entry = limiter.enter(&employee(["E0", "E1"][id])).await.unwrap();
                assert!(running[2].fetch_add(1, Ordering::SeqCst) < 3);
                assert!(running[id].fetch_add(1, Ordering::SeqCst) < 2);
                yield_now().await;
                limiter.sweep();
                running[id].fetch_sub(1, Ordering::SeqCst);
                running[2].fetch_sub(1, Ordering::SeqCst);
                drop(entry);
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    limiter.sweep();
    assert_eq!(limiter.keys(), 0);
}
