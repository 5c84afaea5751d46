//! Limits as a caller meets them: what is let through, what is refused, and what that costs.

mod keyed;
mod rates;
mod scope;
mod slots;

use std::{
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
    time::Duration,
};

use smallvec::SmallVec;

use super::*;
use crate::model::{
    caller::TenantId,
    server::{Risk, UpstreamName},
};

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

pub(super) fn spec(id: &str, per: &[Dimension], kind: Kind) -> LimitSpec {
    LimitSpec {
        id: id.into(),
        tenant: None,
        per: SmallVec::from_slice(per),
        upstreams: Vec::new(),
        tools: Vec::new(),
        risks: Vec::new(),
        kind,
    }
}

/// One call in each period, `burst` at once.
pub(super) fn rate(id: &str, per: &[Dimension], burst: u32, period: Duration) -> LimitSpec {
    spec(id, per, Kind::Rate(Rate { count: count(1), period, burst: count(burst) }))
}

pub(super) fn slots(id: &str, per: &[Dimension], slots: u32, queue: u32, wait: u64) -> LimitSpec {
    let wait = Duration::from_secs(wait);
    spec(id, per, Kind::Concurrency(Concurrency { slots: count(slots), queue, wait }))
}

pub(super) fn of(tenant: &str, spec: LimitSpec) -> LimitSpec {
    LimitSpec { tenant: Some(TenantId::new(tenant)), ..spec }
}

pub(super) fn limiter(specs: impl IntoIterator<Item = LimitSpec>) -> Limiter {
    Limiter::new(specs.into_iter().collect()).unwrap()
}

pub(super) fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

/// An employee of `acme` calling `crm/find`.
pub(super) fn employee(id: &str) -> Subject<'_> {
    Subject {
        tenant: "acme",
        caller: "gateway",
        employee: Some(id),
        tool: Some(tool("crm/find", "crm", Risk::ReadLow)),
        other: None,
        address: address(1),
    }
}

pub(super) fn tool<'a>(name: &'a str, upstream: &'a str, risk: Risk) -> Tool<'a> {
    Tool { name, upstream, risk }
}

pub(super) fn upstream(name: &str) -> UpstreamName {
    UpstreamName::parse(name).unwrap()
}

/// How many of `n` such calls are let through.
pub(super) fn admitted(limiter: &Limiter, subject: &Subject<'_>, n: u32) -> u32 {
    (0..n).map(|_| u32::from(limiter.admit(subject).is_ok())).sum()
}
