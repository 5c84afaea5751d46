//! What can be wrong with how a tool describes itself, and what policy asks of it.
//!
//! The words are told in records, answers and policy files, and stay as they are. How a definition
//! is looked at is not known here.

use std::fmt;

/// What can be wrong with a tool's definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Flaw {
    /// It says nothing of itself.
    NoDescription,
    /// It says too little to be chosen by.
    Vague,
    /// A parameter has no description.
    Undocumented,
    /// A parameter is of no type.
    Untyped,
    /// It takes more than it says it needs.
    Broad,
    /// It hands on a power without a bound: SQL, a shell, code, files, any address.
    RawPower,
    /// It tells the model when to use other tools, or whom not to ask.
    Steering,
    /// It gives the model orders that are not about using it.
    Poisoned,
    /// Characters that a person does not see.
    Invisible,
    /// Letters that look like others.
    Confusable,
    /// Text that a person cannot read.
    Encoded,
    /// Something that looks like a credential.
    Secret,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Note,
    Warning,
    Danger,
}

/// Some of all flaws.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flaws(u16);

/// What policy asks of a definition before its tool may be called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Demand {
    /// The least score.
    pub min: u8,
    /// What it may not have, whatever its score.
    pub block: Flaws,
}

// === impl Flaw ===

impl Flaw {
    pub const ALL: [Flaw; 12] = [
        Flaw::NoDescription,
        Flaw::Vague,
        Flaw::Undocumented,
        Flaw::Untyped,
        Flaw::Broad,
        Flaw::RawPower,
        Flaw::Steering,
        Flaw::Poisoned,
        Flaw::Invisible,
        Flaw::Confusable,
        Flaw::Encoded,
        Flaw::Secret,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Flaw::NoDescription => "no_description",
            Flaw::Vague => "vague",
            Flaw::Undocumented => "undocumented",
            Flaw::Untyped => "untyped",
            Flaw::Broad => "broad",
            Flaw::RawPower => "raw_power",
            Flaw::Steering => "steering",
            Flaw::Poisoned => "poisoned",
            Flaw::Invisible => "invisible",
            Flaw::Confusable => "confusable",
            Flaw::Encoded => "encoded",
            Flaw::Secret => "secret",
        }
    }

    pub const fn severity(self) -> Severity {
        match self {
            Flaw::Vague | Flaw::Undocumented | Flaw::Untyped => Severity::Note,
            Flaw::NoDescription
            | Flaw::Broad
            | Flaw::RawPower
            | Flaw::Steering
            | Flaw::Confusable
            | Flaw::Encoded => Severity::Warning,
            Flaw::Poisoned | Flaw::Invisible | Flaw::Secret => Severity::Danger,
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

// === impl Severity ===

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Danger => "danger",
        }
    }
}

// === impl Flaws ===

impl Flaws {
    pub const NONE: Flaws = Flaws(0);

    pub fn contains(self, flaw: Flaw) -> bool {
        self.0 & flaw.bit() != 0
    }

    pub fn insert(&mut self, flaw: Flaw) {
        self.0 |= flaw.bit();
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// What is in both.
    #[must_use]
    pub fn and(self, other: Flaws) -> Flaws {
        Flaws(self.0 & other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Flaw> {
        Flaw::ALL.into_iter().filter(move |flaw| self.contains(*flaw))
    }
}

impl FromIterator<Flaw> for Flaws {
    fn from_iter<I: IntoIterator<Item = Flaw>>(flaws: I) -> Self {
        let mut all = Flaws::NONE;
        flaws.into_iter().for_each(|flaw| all.insert(flaw));
        all
    }
}

/// As words, with commas.
impl fmt::Display for Flaws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(Flaw::as_str).collect();
        f.write_str(&words.join(", "))
    }
}

// === impl Demand ===

impl Demand {
    /// Whether every definition meets it.
    pub fn is_nothing(self) -> bool {
        self == Demand::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flaw_has_a_bit_and_a_word_of_its_own() {
        let all: Flaws = Flaw::ALL.into_iter().collect();
        assert!(all.iter().eq(Flaw::ALL));
        let words: std::collections::HashSet<_> = Flaw::ALL.iter().map(|f| f.as_str()).collect();
        assert_eq!(words.len(), Flaw::ALL.len());
        let two: Flaws = [Flaw::Secret, Flaw::Poisoned].into_iter().collect();
        assert_eq!(two.to_string(), "poisoned, secret");
        assert!(two.and(all) == two && two.and(Flaws::NONE).is_empty());
    }
}
