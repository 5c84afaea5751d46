//! Who waits for servers to be asked: a few for each employee, and not more of them than an
//! operator's gateway has time for. Whoever is behind them is told so at once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::{
    error::{Code, Error},
    model::caller::{EmployeeId, TenantId},
};

/// After which time it is worth another try.
const PAUSE: Duration = Duration::from_secs(5);

type Whose = (TenantId, EmployeeId);

/// Those who wait.
pub(super) struct Crowd {
    /// At once.
    most: usize,
    /// Of one employee.
    most_each: usize,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    all: usize,
    each: HashMap<Whose, usize>,
}

/// One of them, until it is dropped.
pub(super) struct Place {
    whose: Whose,
    of: Arc<Mutex<Waiting>>,
}

impl Crowd {
    pub fn new(most: usize, most_each: usize) -> Self {
        Self { most, most_each, waiting: Arc::default() }
    }

    /// # Errors
    /// The employee has as many servers asked as he may, or everybody together has.
    pub fn enter(&self, tenant: &TenantId, employee: &EmployeeId) -> Result<Place, Error> {
        let whose = (tenant.clone(), employee.clone());
        let mut waiting = self.waiting.lock();
        if waiting.all >= self.most {
            return Err(crowded());
        }
        let count = waiting.each.entry(whose.clone()).or_default();
        if *count >= self.most_each {
            let message = "servers of yours are being asked already: wait until that is over";
            return Err(busy(message, "servers.max_asked_each"));
        }
        *count += 1;
        waiting.all += 1;
        Ok(Place { whose, of: self.waiting.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.of.lock();
        waiting.all -= 1;
        if let Some(count) = waiting.each.get_mut(&self.whose) {
            *count -= 1;
            if *count == 0 {
                waiting.each.remove(&self.whose);
            }
        }
    }
}

/// All have more servers asked than there is time for.
pub(super) fn crowded() -> Error {
    busy("too many servers are being asked at present", "servers.max_asked")
}

fn busy(message: &'static str, limit: &'static str) -> Error {
    Error::new(Code::RateLimited, message).with_limit(limit).with_retry_after(PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_a_few_times_and_all_together_not_too_often() {
        let crowd = Crowd::new(3, 2);
        let enter = |tenant: &str, id: &str| {
            crowd.enter(&TenantId::new(tenant), &EmployeeId::parse(id).unwrap())
        };
        let refused = |outcome: Result<Place, Error>| {
            let error = outcome.err()?;
            assert_eq!((error.code(), error.retry_after()), (Code::RateLimited, Some(PAUSE)));
            error.limit().map(str::to_owned)
        };
        let own = [enter("acme", "E1").unwrap(), enter("acme", "E1").unwrap()];
        assert_eq!(refused(enter("acme", "E1")).as_deref(), Some("servers.max_asked_each"));
        let other = enter("globex", "E1").unwrap();
        assert_eq!(refused(enter("acme", "E2")).as_deref(), Some("servers.max_asked"));
        drop(other);
        let other = enter("acme", "E2").unwrap();
        drop(own);
        assert!(enter("acme", "E1").is_ok());
        drop(other);
        assert!(crowd.waiting.lock().each.is_empty());
    }
}
