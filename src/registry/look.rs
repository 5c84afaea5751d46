//! When an upstream was listed last, and what went wrong since: how old what is published is.

use std::sync::Arc;

use super::{Known, Registry};
use crate::model::server::UpstreamName;

/// What became of the looks at an upstream. Times are of the wall clock, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looks {
    /// The last one that brought a listing.
    pub listed_ms: Option<u64>,
    /// The last one that failed, and why; for operators, and without an address. It stays when a
    /// later one is good.
    pub failed: Option<(u64, Arc<str>)>,
}

impl Looks {
    /// Whether what is published is older than the last look.
    pub fn is_stale(&self) -> bool {
        match (&self.listed_ms, &self.failed) {
            (Some(listed), Some((failed, _))) => failed > listed,
            (None, Some(_)) => true,
            _ => false,
        }
    }
}

impl Registry {
    /// A look brought a listing.
    pub fn looked(&self, upstream: &UpstreamName, now_ms: u64) {
        self.with(upstream, (), |server| server.looks.listed_ms = Some(now_ms));
    }

    /// A look failed, or a part of it.
    pub fn not_looked(&self, upstream: &UpstreamName, now_ms: u64, why: &str) {
        self.with(upstream, (), |server| server.looks.failed = Some((now_ms, why.into())));
    }

    /// What is known of an upstream, and how old that is.
    pub fn known(&self, upstream: &UpstreamName) -> Option<(Known, Looks)> {
        self.with(upstream, None, |server| Some((server.known.clone(), server.looks.clone())))
    }
}
