//! `credentials:`, and `auth:` of an upstream, as they are written.

use std::time::Duration;

use crate::{
    fault::{FaultCode, Faults, Span},
    yaml::{FromNode, Node, Spanned, Words},
};

/// How much of what is sealed is kept in memory.
#[derive(Debug, Default)]
pub struct RawCredentials {
    pub cache_age: Option<Spanned<Duration>>,
    pub cache_entries: Option<Spanned<usize>>,
}

/// How an upstream is authenticated.
#[derive(Debug)]
pub struct RawAuth {
    pub kind: RawAuthKind,
    pub at: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawAuthKind {
    None,
    Employee,
}

const KINDS: Words<RawAuthKind> = Words {
    what: "way to authenticate",
    code: FaultCode::BadValue,
    known: &[("employee", RawAuthKind::Employee), ("none", RawAuthKind::None)],
    later: &["client_credentials", "oauth", "token_exchange"],
};

impl FromNode for RawCredentials {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let credentials = Self {
            cache_age: map.optional("cache_age", faults),
            cache_entries: map.optional("cache_entries", faults),
        };
        map.finish(faults);
        Some(credentials)
    }
}

impl FromNode for RawAuth {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let kind = map.required_node("type", faults).and_then(|kind| KINDS.read(kind, faults));
        map.finish(faults);
        Some(Self { kind: kind?, at: node.at.clone() })
    }
}
