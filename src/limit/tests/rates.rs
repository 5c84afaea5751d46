//! Rates: the burst, the pace, and that a refused call costs nothing, also when many come at
//! once.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use proptest::prelude::*;
use tokio::time::{advance, sleep};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_burst_is_let_through_and_then_the_pace() {
    // C50: five in ten seconds, eight calls.
    let kind =
        Kind::Rate(Rate { count: count(5), period: Duration::from_secs(10), burst: count(5) });
    let limiter = limiter([spec("five", &[Dimension::Principal], kind)]);
    let remaining: Vec<Option<u32>> = (0..8)
        .map(|_| {
            limiter.admit(&employee("E1")).ok()?.tightest[0].as_ref().map(|first| first.remaining)
        })
        .collect();
    assert_eq!(remaining, [Some(4), Some(3), Some(2), Some(1), Some(0), None, None, None]);
    let exceeded = limiter.admit(&employee("E1")).unwrap_err();
    assert_eq!((&**exceeded.id(), exceeded.kind()), ("five", "rate"));
    assert_eq!(exceeded.retry_after, Duration::from_secs(2));
    // Not a moment earlier, and then one.
    advance(Duration::from_millis(1_999)).await;
    assert_eq!(limiter.admit(&employee("E1")).unwrap_err().retry_after, Duration::from_millis(1));
    advance(Duration::from_millis(1)).await;
    assert_eq!(admitted(&limiter, &employee("E1"), 3), 1);
    // In the end all of it is back, and no more than that.
    sleep(HOUR).await;
    assert_eq!(admitted(&limiter, &employee("E1"), 8), 5);
    // Nobody else's calls counted for it.
    assert_eq!(admitted(&limiter, &employee("E2"), 8), 5);
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_told_the_time_of_the_next_call() {
    let limiter = limiter([rate("r", &[Dimension::Tenant], 3, Duration::from_secs(10))]);
    let reset = |limiter: &Limiter| {
        let [first, _] = limiter.admit(&employee("E1")).unwrap().tightest;
        first.map(|first| (first.remaining, first.reset.as_secs()))
    };
    assert_eq!(reset(&limiter), Some((2, 10)));
    advance(Duration::from_secs(4)).await;
    assert_eq!(reset(&limiter), Some((1, 6)));
    assert_eq!(reset(&limiter), Some((0, 6)));
    let exceeded = limiter.admit(&employee("E1")).unwrap_err();
    assert_eq!(exceeded.snapshot.reset, exceeded.retry_after);
    assert_eq!(exceeded.retry_after, Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn the_limit_that_holds_longest_is_named() {
    let limiter = limiter([
        rate("short", &[Dimension::Tenant], 1, Duration::from_secs(1)),
        rate("long", &[Dimension::Tenant], 1, Duration::from_secs(60)),
        rate("open", &[Dimension::Tenant], 9, Duration::from_secs(600)),
    ]);
    limiter.admit(&employee("E1")).unwrap();
    let exceeded = limiter.admit(&employee("E1")).unwrap_err();
    assert_eq!(&**exceeded.id(), "long");
    assert_eq!(exceeded.retry_after, Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn the_two_tightest_limits_are_told() {
    let second = Duration::from_secs(1);
    let limiter = limiter([
        rate("wide", &[Dimension::Tenant], 9, second),
        rate("slow", &[Dimension::Tenant], 2, 7 * second),
        rate("wider", &[Dimension::Tenant], 99, second),
        rate("fast", &[Dimension::Tenant], 2, second),
    ]);
    let told: Vec<String> = limiter
        .admit(&employee("E1"))
        .unwrap()
        .tightest
        .into_iter()
        .flatten()
        .map(|snapshot| snapshot.policy.id.to_string())
        .collect();
    assert_eq!(told, ["slow", "fast"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_refused_by_one_limit_has_not_consumed_another() {
    let wide = rate("wide", &[Dimension::Tenant], 10, HOUR);
    let narrow = rate("narrow", &[Dimension::Principal], 2, HOUR);
    for specs in [[wide.clone(), narrow.clone()], [narrow, wide]] {
        let limiter = limiter(specs);
        assert_eq!(admitted(&limiter, &employee("E1"), 50), 2);
        assert_eq!(admitted(&limiter, &employee("E2"), 50), 2);
        let others: u32 = (0..50).map(|n| admitted(&limiter, &employee(&format!("F{n}")), 1)).sum();
        assert_eq!(others, 6);
    }
}

#[test]
fn however_many_come_at_once_the_burst_is_not_exceeded() {
    let limiter = limiter([rate("burst", &[Dimension::Tenant], 100, HOUR)]);
    let let_in = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let_in.fetch_add(admitted(&limiter, &employee("E1"), 1_000), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(let_in.into_inner(), 100);
}

#[test]
fn all_limits_or_none_are_charged_when_many_come_at_once() {
    // Eight employees use up what is theirs, and are refused a thousand times more. What is left
    // of the tenant's is exact only if not one of those refusals took of it.
    let limiter = limiter([
        rate("tenant", &[Dimension::Tenant], 1_000, HOUR),
        rate("principal", &[Dimension::Principal], 10, HOUR),
        rate("tool", &[Dimension::Tool], 2_000, HOUR),
    ]);
    thread::scope(|scope| {
        for n in 0..8 {
            let limiter = &limiter;
            scope.spawn(move || {
                assert_eq!(admitted(limiter, &employee(&format!("E{n}")), 1_000), 10);
            });
        }
    });
    let others: u32 = (0..1_500).map(|n| admitted(&limiter, &employee(&format!("F{n}")), 1)).sum();
    assert_eq!(others, 1_000 - 8 * 10);
}

#[test]
fn a_call_that_is_refused_never_gets_in_the_way_of_another() {
    // A call of `spent` is always refused by `b`, one of `fresh` is not. They share a counter of
    // `a` that has one call to give: if a refusal ever borrowed it, even for a moment, the other
    // would sooner or later be refused.
    let limiter = limiter([
        rate("a", &[Dimension::Caller], 1, HOUR),
        rate("b", &[Dimension::Tenant], 1, HOUR),
    ]);
    fn with<'a>(tenant: &'a str, caller: &'a str) -> Subject<'a> {
        Subject { tenant, caller, ..employee("E1") }
    }
    limiter.admit(&with("spent", "nobody")).unwrap();
    let round = AtomicU32::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let caller = round.load(Ordering::Relaxed).to_string();
                    assert!(limiter.admit(&with("spent", &caller)).is_err());
                }
            });
        }
        for n in 0..300 {
            round.store(n, Ordering::Relaxed);
            let (tenant, caller) = (format!("fresh{n}"), n.to_string());
            thread::yield_now();
            let outcome = limiter.admit(&with(&tenant, &caller));
            if outcome.is_err() {
                over.store(true, Ordering::Relaxed);
            }
            outcome.unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn sweeping_loses_no_charge() {
    let limiter = limiter([rate("r", &[Dimension::Principal], 3, HOUR)]);
    let over = AtomicBool::new(false);
    let let_in = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                limiter.sweep();
            }
        });
        let callers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for n in 0..3_000 {
                        let n = admitted(&limiter, &employee(&n.to_string()), 2);
                        let_in.fetch_add(n, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        over.store(true, Ordering::Relaxed);
    });
    // Three threads offered six calls for each of the 3000, of which three fit.
    assert_eq!(let_in.into_inner(), 9_000);
}

#[test]
fn rates_that_cannot_be_kept_are_refused() {
    let with = |count_: u32, period, burst: u32| {
        let kind = Kind::Rate(Rate { count: count(count_), period, burst: count(burst) });
        Limiter::new(vec![spec("r", &[Dimension::Tenant], kind)])
    };
    let day = 24 * HOUR;
    for (count, period, burst) in
        [(1, Duration::ZERO, 1), (1, day, u32::MAX), (1, Duration::MAX, 1), (1, day * 3_653, 1)]
    {
        let fault = with(count, period, burst).unwrap_err();
        assert_eq!(fault, LimitFault::Rate("r".into()), "{count}/{period:?}, {burst}");
    }
    for (count, period, burst) in [
        (u32::MAX, Duration::from_nanos(1), 1),
        (u32::MAX, Duration::from_secs(1), u32::MAX),
        (1, day * 3_000, 1),
    ] {
        let limiter = with(count, period, burst).unwrap();
        assert!(limiter.admit(&employee("E1")).is_ok());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In no stretch of time, wherever it begins, are more let through than the burst and what
    /// came back meanwhile; and who waits as long as he was told is let through.
    #[test]
    fn no_stretch_of_time_has_more_than_its_share(
        burst in 1_u32..6,
        interval_ms in 1_u64..50,
        pauses in proptest::collection::vec(0_u64..40, 1..80),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let interval = Duration::from_millis(interval_ms);
            let limiter = limiter([rate("r", &[Dimension::Tenant], burst, interval)]);
            let started = Instant::now();
            let mut times: Vec<u128> = Vec::new();
            for pause in pauses {
                advance(Duration::from_millis(pause)).await;
                if let Err(exceeded) = limiter.admit(&employee("E1")) {
                    assert!(exceeded.retry_after <= interval);
                    if pause % 2 == 0 {
                        continue;
                    }
                    advance(exceeded.retry_after).await;
                    limiter.admit(&employee("E1")).unwrap();
                }
                times.push(started.elapsed().as_millis());
            }
            for (first, from) in times.iter().enumerate() {
                for (last, to) in times.iter().enumerate().skip(first) {
                    let came_back = (to - from) / u128::from(interval_ms);
                    assert!(((last - first) as u128) < u128::from(burst) + came_back);
                }
            }
        });
    }
}
