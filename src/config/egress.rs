//! What may be dialled, as it is meant: each entry once, and what opens much said so.

use std::time::Duration;

use super::{
    build::{MAX_WAIT, within},
    raw::RawEgress,
};
use crate::{
    fault::{FaultCode, Faults},
    upstream::{Allowed, EgressConfig, PortRange, Ports},
    yaml::Spanned,
};

pub(super) fn build(raw: RawEgress, faults: &mut Faults) -> EgressConfig {
    let allow = raw.allow.unwrap_or_default();
    for (number, entry) in allow.iter().enumerate() {
        let before = allow.iter().take(number).find(|before| before.value == entry.value);
        if let Some(before) = before {
            let message = format!("`{}` is here twice", entry.value);
            let fault = faults.add(FaultCode::GivenTwice, &entry.at, message);
            fault.relate(&before.at, "here the first time");
        } else if entry.value.is_wide() {
            let message = format!(
                "`{}` lets everybody who may name a server reach what is inside, with the \
                 credentials that clouds give to machines",
                entry.value
            );
            let fault = faults.add(FaultCode::WideEgress, &entry.at, message);
            fault.suggest("name the hosts or networks that are meant");
        }
    }
    let allow: Vec<Allowed> = allow.into_iter().map(|entry| entry.value).collect();
    let defaults = EgressConfig::default();
    EgressConfig {
        allow,
        ports: raw.ports.map_or(defaults.ports, |ports| build_ports(ports, faults)),
        resolve: within(raw.resolve, defaults.resolve, Duration::from_secs(1)..=MAX_WAIT, faults),
    }
}

fn build_ports(ports: Vec<Spanned<PortRange>>, faults: &mut Faults) -> Ports {
    for (number, range) in ports.iter().enumerate() {
        let before = ports.iter().take(number).find(|before| before.value.overlaps(&range.value));
        if let Some(before) = before {
            let message = format!("`{}` is in `{}` already", range.value, before.value);
            let fault = faults.add(FaultCode::GivenTwice, &range.at, message);
            fault.relate(&before.at, "here the first time");
        }
    }
    Ports(ports.into_iter().map(|range| range.value).collect())
}
