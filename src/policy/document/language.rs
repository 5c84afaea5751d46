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

/// Keys of tools, prompts and resources.
const MISSING: [&str; 1] = ["screen"];

impl Language {
    fn has(self, key: &str) -> bool {
        self == Language::Whole || !MISSING.contains(&key)
    }

    /// Refuses the keys of an item's mapping that nothing acts on yet.
    pub fn refuse(self, map: &mut MapReader<'_>, faults: &mut Faults) {
        for key in MISSING.into_iter().filter(|key| !self.has(key)) {
            if let Some(entry) = map.entry(key) {
                let message = format!("`{key}` is not part of this version");
                faults.add(FaultCode::NotInThisVersion, &entry.key_at, message);
            }
        }
    }
}
