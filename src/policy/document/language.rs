//! How much of the language this version carries out.
//!
//! All of it is read and checked. What no part of the gateway acts on yet is refused, with this
//! one table to say what that is: a setting that is read and ignored would be a promise broken.

use crate::{
    fault::{FaultCode, Faults},
    yaml::MapReader,
};

/// Which keys may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Those that something acts on.
    Present,
    /// All, for whoever only reads policies.
    Whole,
}

/// The mappings that such keys stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Limit,
    Item,
}

const MISSING: [(Place, &str); 3] = [
    (Place::Limit, "store_down"),
    (Place::Item, "screen"),
    // A word of `pin`; see `classes.rs`.
    (Place::Item, "pin: approve"),
];

impl Language {
    pub fn has(self, place: Place, key: &str) -> bool {
        self == Language::Whole || !MISSING.contains(&(place, key))
    }

    /// Refuses the keys of a mapping that nothing acts on yet.
    pub fn refuse(self, map: &mut MapReader<'_>, place: Place, faults: &mut Faults) {
        for (_, key) in MISSING.iter().filter(|(at, _)| *at == place) {
            if !key.contains(":")
                && !self.has(place, key)
                && let Some(entry) = map.entry(key)
            {
                let message = format!("`{key}` is not part of this version");
                faults.add(FaultCode::NotInThisVersion, &entry.key_at, message);
            }
        }
    }
}
