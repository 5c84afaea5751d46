//! The contract about accounts of quotas, asked through the engine's trait by several processes.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::Place;
use crate::{
    limit::quota::store::{
        AccountId, Correction, QuotaStore, Standing, StoreFault, Take, Taken, Then,
    },
    model::quota::Period,
    store::Store,
};

const ONE: AccountId = [1; 32];
const DAY: Period = Period { start_ms: 1_000, end_ms: 2_000 };
const NEXT: Period = Period { start_ms: 2_000, end_ms: 3_000 };

/// One process that uses the place.
struct Process {
    quotas: Arc<dyn QuotaStore>,
    _store: Store,
}

impl Place {
    fn counter(&self) -> Process {
        let opened = Store::open(self.address.as_ref().unwrap(), &self.clock).unwrap();
        Process { quotas: opened.quotas, _store: opened.store }
    }
}

async fn told<T: Send + 'static>(ask: impl FnOnce(Then<T>)) -> Result<T, StoreFault> {
    let (tell, answer) = oneshot::channel();
    ask(Box::new(move |result| drop(tell.send(result))));
    tokio::time::timeout(Duration::from_secs(10), answer).await.unwrap().unwrap()
}

impl Process {
    async fn take(&self, period: Period, least: u64, most: u64, ceiling: u64) -> Taken {
        let take = Take { account: ONE, period, least, most, ceiling };
        told(|then| self.quotas.take(take, then)).await.unwrap()
    }

    async fn correct(&self, period: Period, spent: u64, unneeded: u64) {
        let correction = Correction { account: ONE, period, spent, unneeded };
        told(|then| self.quotas.correct(correction, then)).await.unwrap();
    }

    async fn standing(&self, period: Period) -> Standing {
        let asked = vec![(ONE, period), ([2; 32], period)];
        let found = told(|then| self.quotas.look(asked, then)).await.unwrap();
        assert_eq!(found.get(1), Some(&Standing { used: 0, period }), "nobody has used it");
        found[0]
    }
}

pub(in super::super) async fn units_are_taken_up_to_the_ceiling_and_no_further(place: Place) {
    let processes = [place.counter(), place.counter()];
    let takes = (0..60).map(|n| processes[n % 2].take(DAY, 3, 5, 101));
    let taken = futures_util::future::join_all(takes).await;
    let granted: u64 = taken.iter().map(|taken| taken.granted).sum();
    assert!((99..=101).contains(&granted), "{granted}");
    assert!(taken.iter().all(|taken| taken.granted == 0 || taken.granted >= 3), "{taken:?}");
    for process in &processes {
        assert_eq!(process.standing(DAY).await, Standing { used: granted, period: DAY });
        let refused = process.take(DAY, 3, 5, 101).await;
        assert_eq!((refused.granted, refused.standing.used), (0, granted));
        // What nothing stops goes on.
        let more = process.take(DAY, 1, 1, u64::MAX).await;
        assert_eq!(more.granted, 1);
        process.correct(DAY, 0, 1).await;
    }
}

pub(in super::super) async fn a_window_turns_once_and_never_back(place: Place) {
    let (ahead, behind) = (place.counter(), place.counter());
    assert_eq!(behind.take(DAY, 7, 7, 10).await.granted, 7);
    assert_eq!(ahead.standing(NEXT).await, Standing { used: 0, period: NEXT });
    assert_eq!(ahead.take(NEXT, 4, 4, 10).await.granted, 4);
    // Whose clock is behind learns of it, takes nothing and changes nothing.
    let late = behind.take(DAY, 1, 1, 10).await;
    assert_eq!(late, Taken { granted: 0, standing: Standing { used: 4, period: NEXT } });
    behind.correct(DAY, 3, 0).await;
    assert_eq!(ahead.standing(NEXT).await.used, 4);
}

pub(in super::super) async fn what_is_put_right_is_there_for_others(place: Place) {
    let (one, other) = (place.counter(), place.counter());
    assert_eq!(one.take(DAY, 1, 10, 10).await.granted, 10);
    assert_eq!(other.take(DAY, 1, 1, 10).await.granted, 0);
    one.correct(DAY, 0, 6).await;
    assert_eq!(other.take(DAY, 1, 9, 10).await.granted, 6);
    // What was spent without being taken counts, beyond the ceiling too.
    one.correct(DAY, 5, 0).await;
    assert_eq!(other.standing(DAY).await.used, 15);
    one.correct(DAY, 0, 99).await;
    assert_eq!(other.standing(DAY).await.used, 0);
    // Also where nobody has taken anything yet.
    one.correct(NEXT, 2, 0).await;
    assert_eq!(other.standing(NEXT).await.used, 2);
}

pub(in super::super) async fn a_restart_forgets_no_unit(place: Place) {
    assert_eq!(place.counter().take(DAY, 1, 8, 10).await.granted, 8);
    let again = place.counter();
    assert_eq!(again.standing(DAY).await.used, 8);
    assert_eq!(again.take(DAY, 1, 8, 10).await.granted, 2);
}

pub(in super::super) async fn a_sweep_takes_only_windows_that_are_over(place: Place) {
    let process = place.counter();
    process.take(DAY, 1, 8, 10).await;
    told(|then| process.quotas.sweep(DAY.end_ms, then)).await.unwrap();
    assert_eq!(process.standing(DAY).await.used, 8);
    told(|then| process.quotas.sweep(DAY.end_ms + 1, then)).await.unwrap();
    assert_eq!(process.standing(DAY).await.used, 0);
}
