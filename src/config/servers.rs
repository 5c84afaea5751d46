//! Servers of employees' own, as far as the operator's file has a say in them. Who may have any,
//! and where, is in policy files.

use std::time::Duration;

use super::{
    build::{MAX_WAIT, size, within},
    raw::RawServers,
    upstreams::{MAX_TIME, TIMEOUT},
};
use crate::fault::Faults;

const SECOND: Duration = Duration::from_secs(1);

/// What holds for every server of an employee's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Servers {
    /// How old a listing may be before whoever uses the server has it listed again.
    pub refresh: Duration,
    /// Employees whose servers are kept in memory.
    pub loaded: u64,
    /// How long they are kept there unused.
    pub idle: Duration,
    /// Servers that are listed at once.
    pub max_asked: usize,
    /// Without an answer, unless the owner says less or more.
    pub timeout: Duration,
    /// Of a call, unless the owner says less or more.
    pub max_time: Duration,
    pub connect_timeout: Duration,
    pub max_request_bytes: u64,
    pub max_response_bytes: u64,
    /// All that a server lists.
    pub max_list_bytes: u64,
    /// Tools of one server; so many prompts, resources and templates, too.
    pub max_tools: usize,
}

pub(super) fn build(raw: RawServers, faults: &mut Faults) -> Servers {
    let day = 86_400 * SECOND;
    Servers {
        refresh: within(raw.refresh, 600 * SECOND, SECOND..=day, faults),
        loaded: within(raw.loaded, 2_000, 1..=10_000_000, faults),
        idle: within(raw.idle, 1_800 * SECOND, SECOND..=day, faults),
        max_asked: within(raw.max_asked, 16, 1..=1_000, faults),
        timeout: within(raw.timeout, TIMEOUT, SECOND / 1_000..=MAX_WAIT, faults),
        max_time: within(raw.max_time, MAX_TIME, SECOND / 1_000..=MAX_WAIT, faults),
        connect_timeout: within(
            raw.connect_timeout,
            5 * SECOND,
            SECOND / 100..=60 * SECOND,
            faults,
        ),
        max_request_bytes: size(raw.max_request_bytes, 1 << 20, faults),
        max_response_bytes: size(raw.max_response_bytes, 4 << 20, faults),
        max_list_bytes: size(raw.max_list_bytes, 8 << 20, faults),
        max_tools: within(raw.max_tools, 1_000, 1..=20_000, faults),
    }
}
