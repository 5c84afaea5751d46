//! Those who are on their way to an authorization server, or back: each of them has the gateway ask
//! others several times. One employee is served after the other's ask has ended, and so many at once
//! in all; whoever comes then waits for a while.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use tokio::{
    sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Whose way it is: tenant and employee.
type Who = (String, String);

/// The most that are served at once.
const AT_ONCE: usize = 32;
/// How long others wait for a place.
const PATIENCE: Duration = Duration::from_secs(10);

/// Has places.
pub(super) struct Crowd {
    all: Arc<Semaphore>,
    each: DashMap<Who, Arc<Mutex<()>>>,
}

/// A place, until it is let go of.
pub(super) struct Guest {
    crowd: Arc<Crowd>,
    who: Who,
    _places: (OwnedMutexGuard<()>, OwnedSemaphorePermit),
}

impl Crowd {
    pub fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_ONCE)), each: DashMap::new() }
    }

    /// Waits for a place; nothing, where there is none for too long.
    pub async fn enter(self: &Arc<Self>, tenant: &str, employee: &str) -> Option<Guest> {
        let who = (tenant.to_owned(), employee.to_owned());
        let place = self.each.entry(who.clone()).or_default().clone();
        let waiting = async {
            // His own first: one employee takes no place of others while he waits for himself.
            let own = place.lock_owned().await;
            Some((own, self.all.clone().acquire_owned().await.ok()?))
        };
        match timeout(PATIENCE, waiting).await {
            Ok(Some(places)) => Some(Guest { crowd: self.clone(), who, _places: places }),
            Ok(None) | Err(_) => {
                self.each.remove_if(&who, |_, place| Arc::strong_count(place) <= 1);
                None
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The map's own, and this one's: nobody waits.
        self.crowd.each.remove_if(&self.who, |_, place| Arc::strong_count(place) <= 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_is_served_alone_and_so_many_in_all() {
        let crowd = Arc::new(Crowd::new());
        let first = crowd.enter("acme", "E0").await.unwrap();
        assert!(crowd.enter("acme", "E0").await.is_none(), "his first ask has not ended");
        let mut others = Vec::new();
        for number in 1..AT_ONCE {
            others.push(crowd.enter("acme", &format!("E{number}")).await.unwrap());
        }
        assert!(crowd.enter("other", "E0").await.is_none(), "there is no place left");
        let waiting = crowd.clone();
        let (place, ()) = tokio::join!(waiting.enter("other", "E0"), async { drop(others.pop()) });
        assert!(place.is_some(), "whoever waits is served next");
        drop((first, others, place));
        assert!(crowd.each.is_empty(), "nothing is kept of those who are gone");
        assert_eq!(crowd.all.available_permits(), AT_ONCE);
    }
}
