//! What happens with an upstream that fails, as it is meant: how often its calls are sent again,
//! and when it is left alone.

use std::time::Duration;

use super::{
    build::{MAX_WAIT, within},
    raw::{RawBreaker, RawRetries},
};
use crate::{
    fault::{FaultCode, Faults},
    upstream::{BreakerConfig, MOST_RETRIES, RetryConfig},
};

const MS: Duration = Duration::from_millis(1);

pub(super) fn retries(raw: RawRetries, faults: &mut Faults) -> RetryConfig {
    let usual = RetryConfig::default();
    RetryConfig {
        max: within(raw.max, usual.max, 0..=MOST_RETRIES, faults),
        budget: within(raw.budget, usual.budget, 0..=100, faults),
        reserve: within(raw.reserve, usual.reserve, 0..=10_000, faults),
        backoff: within(raw.backoff, usual.backoff, MS..=Duration::from_secs(10), faults),
    }
}

/// `None`: it is off.
pub(super) fn breaker(raw: Option<RawBreaker>, faults: &mut Faults) -> Option<BreakerConfig> {
    let usual = BreakerConfig::default();
    let (failures, window, pause, max_pause) = match raw {
        None => return Some(usual),
        Some(RawBreaker::Off) => return None,
        Some(RawBreaker::On { failures, window, pause, max_pause }) => {
            (failures, window, pause, max_pause)
        }
    };
    let failures =
        within(failures, usize::try_from(usual.failures).unwrap_or(1), 1..=100_000, faults);
    let given = max_pause.as_ref().map(|longest| longest.at.clone());
    let pause = within(pause, usual.pause, MS..=MAX_WAIT, faults);
    // A longer first pause alone stretches the default of the longest.
    let max_pause = within(max_pause, usual.max_pause.max(pause), MS..=MAX_WAIT, faults);
    if let Some(at) = given.filter(|_| max_pause < pause) {
        faults.add(FaultCode::Contradiction, &at, "`max_pause` is shorter than `pause`");
    }
    Some(BreakerConfig {
        failures: u32::try_from(failures).unwrap_or(u32::MAX),
        window: within(window, usual.window, MS..=MAX_WAIT, faults),
        pause,
        max_pause,
    })
}
