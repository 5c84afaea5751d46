//! The names that every file of ours may hold: tenants, callers, roles, employees, upstreams,
//! risks, and the version of the format.

use super::{FromNode, Node, Words, parsed};
use crate::{
    fault::{FaultCode, Faults},
    model::{
        caller::{CallerId, EmployeeId, Role, TenantId},
        server::{Risk, UpstreamName},
    },
};

/// The value of `version:`.
pub const VERSION: Words<()> =
    Words { what: "version", code: FaultCode::BadValue, known: &[("hangu/v1", ())], later: &[] };

pub const RISKS: Words<Risk> = Words {
    what: "risk level",
    code: FaultCode::UnknownRisk,
    known: &[
        ("read_low", Risk::ReadLow),
        ("read_high", Risk::ReadHigh),
        ("write_low", Risk::WriteLow),
        ("write_high", Risk::WriteHigh),
    ],
    later: &[],
};

/// The longest name of a tenant, a caller, a role or a rule.
const MAX: usize = 64;

/// Names go into headers, paths of metrics and comma-separated lists, so they are plain words.
pub fn check_name(text: &str) -> Result<(), String> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if (1..=MAX).contains(&text.len()) && text.bytes().all(legal) {
        Ok(())
    } else {
        Err(format!("is not a name: 1 to {MAX} of `A-Z a-z 0-9 . _ -`"))
    }
}

macro_rules! plain_names {
    ($($name:ty),+) => {$(
        impl FromNode for $name {
            fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
                parsed(node, FaultCode::BadName, faults, |text| {
                    check_name(text).map(|()| <$name>::new(text))
                })
            }
        }
    )+};
}

plain_names!(TenantId, CallerId, Role);

impl FromNode for EmployeeId {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadName, faults, |text| {
            EmployeeId::parse(text).ok_or_else(|| {
                "is not an employee's id: 1 to 64 of `A-Z a-z 0-9 . _ @ -`".to_owned()
            })
        })
    }
}

impl FromNode for UpstreamName {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadName, faults, |text| {
            let key = UpstreamName::of_key(text).ok_or(());
            key.or_else(|()| UpstreamName::parse(text))
                .map_err(|reason| format!("is no name here: {reason}"))
        })
    }
}

impl FromNode for Risk {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        RISKS.read(node, faults)
    }
}
