//! `retries` and `breaker` of an upstream, as they are written.

use std::time::Duration;

use crate::{
    fault::{FaultCode, Faults},
    yaml::{MapReader, Spanned, Value},
};

#[derive(Debug, Default)]
pub struct RawRetries {
    pub max: Option<Spanned<usize>>,
    pub budget: Option<Spanned<u64>>,
    pub reserve: Option<Spanned<u64>>,
    pub backoff: Option<Spanned<Duration>>,
}

#[derive(Debug)]
pub enum RawBreaker {
    Off,
    On {
        failures: Option<Spanned<usize>>,
        window: Option<Spanned<Duration>>,
        pause: Option<Spanned<Duration>>,
        max_pause: Option<Spanned<Duration>>,
    },
}

impl RawRetries {
    pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Self {
        let Some(node) = map.node("retries") else { return Self::default() };
        let Some(mut map) = node.map(faults) else { return Self::default() };
        let retries = Self {
            max: map.optional("max", faults),
            budget: map.optional("budget", faults),
            reserve: map.optional("reserve", faults),
            backoff: map.optional("backoff", faults),
        };
        map.finish(faults);
        retries
    }
}

impl RawBreaker {
    /// `off`, or a mapping.
    pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Self> {
        let node = map.node("breaker")?;
        match &node.value {
            Value::Map(_) => {}
            Value::Text(text) if text == "off" => return Some(RawBreaker::Off),
            _ => {
                let message = format!("expected `off` or a mapping, found {}", node.describe());
                faults.add(FaultCode::WrongType, &node.at, message);
                return None;
            }
        }
        let mut map = node.map(faults)?;
        let breaker = RawBreaker::On {
            failures: map.optional("failures", faults),
            window: map.optional("window", faults),
            pause: map.optional("pause", faults),
            max_pause: map.optional("max_pause", faults),
        };
        map.finish(faults);
        Some(breaker)
    }
}
