//! Which definition of a tool is in use: what was approved, and what differs from it.
//!
//! How careful one is with a tool, policy says; how it was approved later than at first use,
//! whoever approves. Here both only come together.

use std::sync::Arc;

use super::definition::Definition;
use crate::model::server::Risk;

/// How a tool's definition is approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinning {
    /// The first one seen is, but never that of a tool that changes what cannot be changed back.
    FirstUse,
    /// A person approves it.
    Approve,
    /// This digest is the only one.
    Exactly([u8; 32]),
}

/// How careful one is with a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Care {
    pub pinning: Pinning,
    pub risk: Risk,
}

/// Why a tool may not be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Nobody has approved any definition of it.
    New,
    /// Its definition is not the approved one.
    Changed,
}

/// The definitions of one tool.
#[derive(Debug, Clone)]
pub(super) struct Pin {
    /// The first one seen.
    first: Arc<Definition>,
    /// As it is listed now.
    seen: Arc<Definition>,
}

/// What somebody approved of a tool, now or before the process began.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub definition: Arc<Definition>,
    pub by: Box<str>,
    pub at_ms: u64,
}

impl Care {
    /// Where nobody has said anything else.
    pub const USUAL: Care = Care { pinning: Pinning::FirstUse, risk: Risk::ReadLow };
}

impl Pin {
    pub fn new(seen: Arc<Definition>) -> Self {
        Self { first: seen.clone(), seen }
    }

    /// Takes over what is listed now; says whether that is another definition than before.
    pub fn see(&mut self, seen: Arc<Definition>) -> bool {
        let news = self.seen.digest != seen.digest;
        // An equal one stays the same object, so that nothing looks changed.
        if news {
            self.seen = seen;
        }
        news
    }

    /// The definition that is published, and why it may not be called if it may not.
    pub fn standing<'a>(
        &'a self,
        care: Care,
        given: Option<&'a Given>,
    ) -> (&'a Arc<Definition>, Option<Held>) {
        let given = given.map(|given| &given.definition);
        let approved = match care.pinning {
            Pinning::Exactly(digest) if self.seen.digest == digest => return (&self.seen, None),
            Pinning::Exactly(_) => return (&self.seen, Some(Held::Changed)),
            Pinning::FirstUse if care.risk != Risk::WriteHigh => Some(given.unwrap_or(&self.first)),
            Pinning::FirstUse | Pinning::Approve => given,
        };
        match approved {
            None => (&self.seen, Some(Held::New)),
            Some(approved) if approved.digest == self.seen.digest => (approved, None),
            // What looks at what everybody may see goes on as it was approved; nothing else does
            // until somebody has looked at the difference.
            Some(approved) if care.risk == Risk::ReadLow => (approved, None),
            Some(approved) => (approved, Some(Held::Changed)),
        }
    }

    /// The definition of a digest, if it is one of those that are known.
    pub fn of(&self, digest: [u8; 32]) -> Option<&Arc<Definition>> {
        [&self.seen, &self.first].into_iter().find(|known| known.digest == digest)
    }

    /// Digest of what is listed now.
    pub fn seen(&self) -> [u8; 32] {
        self.seen.digest
    }
}
