//! Which definition of a tool is in use: what was approved, and what differs from it.
//!
//! How careful one is with a tool, policy says; what was approved, a store remembers. Here both
//! only come together.

use std::sync::Arc;

use super::{
    definition::Definition,
    drift,
    store::{Approved, How, Kept},
};
use crate::model::{
    change::{ChangeClass, ChangeClasses},
    quality::{Demand, Flaws},
    server::Risk,
};

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
    /// Changes after which a tool that only looks is held; every other tool is after any.
    pub hold: ChangeClasses,
    /// What a definition has to be like that nobody has approved.
    pub demand: Demand,
}

/// Why a tool may not be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Nobody has approved any definition of it.
    New,
    /// Its first definition would do, and could not be kept yet.
    Unkept,
    /// Its definition is not the approved one.
    Changed,
    /// Its definition is not as policy wants it.
    Quality,
}

/// The definitions of one tool that is listed.
#[derive(Debug, Clone)]
pub(super) struct Pin {
    /// As it is listed now.
    pub seen: Arc<Definition>,
    /// Its number in the store; `None`: it could not be kept yet.
    pub version: Option<u64>,
    /// When it was seen first.
    pub first_ms: u64,
    /// The store has no room for it.
    refused: bool,
    /// Whoever handed the tool's history on had approved another definition.
    is_other: bool,
    given: Option<Given>,
    /// How what is listed differs from what is approved.
    drift: ChangeClasses,
}

/// What was approved of a tool.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub definition: Arc<Definition>,
    pub number: u64,
    pub version: u64,
    pub how: How,
    pub by: Box<str>,
    pub at_ms: u64,
}

impl Care {
    /// Where nobody has said anything else.
    pub const USUAL: Care = Care {
        pinning: Pinning::FirstUse,
        risk: Risk::ReadLow,
        hold: ChangeClasses::USUAL,
        demand: Demand { min: 0, block: Flaws::NONE },
    };

    /// Whether the first definition will do.
    pub fn takes_first(self) -> bool {
        self.pinning == Pinning::FirstUse && self.risk != Risk::WriteHigh
    }

    /// Whether a tool that changed so goes on as it was approved.
    fn goes_on(self, drift: ChangeClasses) -> bool {
        // What only looked and may now write is no tool that only looks.
        let hold = self.hold.with(ChangeClass::Dangerous);
        self.risk == Risk::ReadLow && !drift.meets(hold)
    }
}

impl Pin {
    /// A tool that is listed for the first time.
    pub fn new(seen: Arc<Definition>) -> Self {
        let (version, first_ms, given, drift) = (None, 0, None, ChangeClasses::NONE);
        Self { seen, version, first_ms, refused: false, is_other: false, given, drift }
    }

    /// Takes over what is listed now; says whether that is another definition than before.
    pub fn see(&mut self, seen: Arc<Definition>) -> bool {
        let news = self.seen.digest != seen.digest;
        // An equal one stays the same object, so that nothing looks changed.
        if news {
            (self.seen, self.version) = (seen, None);
            (self.refused, self.is_other) = (false, false);
            self.compare();
        }
        news
    }

    /// Takes over what a store keeps of the tool; says whether anything is another.
    pub fn settle(&mut self, kept: &Kept) -> bool {
        if kept.digest == self.seen.digest {
            (self.version, self.first_ms) = (kept.version, kept.first_ms);
            self.refused = kept.version.is_none();
            self.is_other = kept.is_other;
        }
        kept.approved.as_ref().is_some_and(|approved| self.approve(approved))
    }

    /// Takes over an approval, unless a later one is there; says whether it did. One whose
    /// definition cannot be read any more is as good as none.
    pub fn approve(&mut self, approved: &Approved) -> bool {
        if self.given.as_ref().is_some_and(|given| given.number >= approved.number) {
            return false;
        }
        let definition = if approved.digest == self.seen.digest {
            self.seen.clone()
        } else {
            match super::read_kept(approved.definition.clone()) {
                Some(read) if read.name == self.seen.name => Arc::new(read),
                _ => return false,
            }
        };
        self.given = Some(Given {
            definition,
            number: approved.number,
            version: approved.version,
            how: approved.how,
            by: approved.by.clone(),
            at_ms: approved.at_ms,
        });
        self.compare();
        true
    }

    /// Without a store what is seen first is what is approved first; says whether it is this.
    pub fn approve_first(&mut self) -> bool {
        if self.given.is_some() {
            return false;
        }
        let definition = self.seen.clone();
        let (how, by) = (How::FirstUse, "".into());
        self.given = Some(Given { definition, number: 0, version: 1, how, by, at_ms: 0 });
        self.version = Some(1);
        true
    }

    fn compare(&mut self) {
        self.drift = match &self.given {
            Some(given) if given.definition.digest != self.seen.digest => {
                drift::classes(&given.definition, &self.seen)
            }
            _ => ChangeClasses::NONE,
        };
    }

    /// The definition that is published, and why it may not be called if it may not.
    pub fn standing(&self, care: Care) -> (&Arc<Definition>, Option<Held>) {
        if let Pinning::Exactly(digest) = care.pinning {
            let differs = self.seen.digest != digest;
            return (&self.seen, differs.then_some(Held::Changed));
        }
        match self.given(care) {
            None if care.takes_first() && !self.is_other => (&self.seen, Some(Held::Unkept)),
            None => (&self.seen, Some(Held::New)),
            Some(given) if given.definition.digest == self.seen.digest => (&given.definition, None),
            // What looks at what everybody may see goes on as it was approved, where policy does
            // not mind the difference; nothing else does until somebody has looked at it.
            Some(given) if care.goes_on(self.drift) => (&given.definition, None),
            Some(given) => (&given.definition, Some(Held::Changed)),
        }
    }

    /// What is approved, with such care: that it was the first is not always enough.
    pub fn given(&self, care: Care) -> Option<&Given> {
        self.given.as_ref().filter(|given| given.how.is_somebodys() || care.takes_first())
    }

    /// Whether somebody has said yes to exactly this definition, whatever is found in it.
    pub fn is_wanted(&self, definition: &Definition, care: Care) -> bool {
        let given = self.given.as_ref().filter(|given| given.how.is_somebodys());
        care.pinning == Pinning::Exactly(definition.digest)
            || given.is_some_and(|given| given.definition.digest == definition.digest)
    }

    /// How what is listed differs from what is approved.
    pub fn drift(&self) -> ChangeClasses {
        self.drift
    }

    /// Whether a store is to be asked about it: it has not been kept, or would be approved.
    pub fn is_unsettled(&self, care: impl FnOnce() -> Care) -> bool {
        let waits = || self.given.is_none() && !self.is_other && care().takes_first();
        !self.refused && (self.version.is_none() || waits())
    }
}
