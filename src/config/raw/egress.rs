//! What may be dialled, as it is written.

use std::{str::FromStr, time::Duration};

use super::part;
use crate::{
    fault::{FaultCode, Faults},
    upstream::{Allowed, PortRange},
    yaml::{FromNode, MapReader, Node, Spanned, Value, parsed},
};

#[derive(Debug, Default)]
pub struct RawEgress {
    pub allow: Option<Vec<Spanned<Allowed>>>,
    pub ports: Option<Vec<Spanned<PortRange>>>,
    pub resolve: Option<Spanned<Duration>>,
}

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> RawEgress {
    part(map, "egress", faults, |map, faults| {
        Some(RawEgress {
            allow: map.optional("allow", faults),
            ports: map.optional("ports", faults),
            resolve: map.optional("resolve", faults),
        })
    })
    .unwrap_or_default()
}

impl FromNode for Allowed {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadValue, faults, Allowed::from_str)
    }
}

/// One is a number to YAML, a range is a text.
impl FromNode for PortRange {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let Value::Int(number) = node.value else {
            return parsed(node, FaultCode::BadValue, faults, PortRange::from_str);
        };
        PortRange::from_str(&number.to_string())
            .map_err(|reason| {
                faults.add(FaultCode::BadValue, &node.at, format!("`{number}` {reason}"));
            })
            .ok()
    }
}
