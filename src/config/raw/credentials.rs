//! `credentials:` as it is written.

use std::time::Duration;

use crate::{
    fault::Faults,
    yaml::{FromNode, Node, Spanned},
};

/// How much of what is sealed is kept in memory.
#[derive(Debug, Default)]
pub struct RawCredentials {
    pub cache_age: Option<Spanned<Duration>>,
    pub cache_entries: Option<Spanned<usize>>,
}

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
