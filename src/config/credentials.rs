//! Credentials of servers as they are meant: how an upstream is authenticated, and what of sealed
//! ones is kept in memory.

use std::time::Duration;

use super::{
    build::within,
    raw::{RawAuth, RawAuthKind, RawCredentials},
};
use crate::{
    credential::VaultLimits,
    fault::{FaultCode, Faults},
};

const SECOND: Duration = Duration::from_secs(1);

/// How requests to an upstream are authenticated, beside its `headers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamAuth {
    None,
    /// Each employee has a credential of his own.
    Employee,
}

impl UpstreamAuth {
    /// The word for it in the file.
    pub fn word(&self) -> &'static str {
        match self {
            UpstreamAuth::None => "none",
            UpstreamAuth::Employee => "employee",
        }
    }
}

pub(super) fn limits(raw: Option<RawCredentials>, faults: &mut Faults) -> VaultLimits {
    let raw = raw.unwrap_or_default();
    let default = VaultLimits::default();
    let entries = within(raw.cache_entries, 10_000, 1..=10_000_000, faults);
    VaultLimits {
        age: within(raw.cache_age, default.age, SECOND / 10..=3_600 * SECOND, faults),
        entries: u64::try_from(entries).unwrap_or(default.entries),
    }
}

pub(super) fn auth(raw: Option<RawAuth>, is_process: bool, faults: &mut Faults) -> UpstreamAuth {
    let Some(RawAuth { kind, at }) = raw else { return UpstreamAuth::None };
    match kind {
        RawAuthKind::None => UpstreamAuth::None,
        RawAuthKind::Employee => {
            if is_process {
                let message = "a process is given its secrets by `env`: nobody's own reach it";
                faults.add(FaultCode::Contradiction, &at, message);
            }
            UpstreamAuth::Employee
        }
    }
}
