//! How well a tool's definition describes the tool, and what in it is dangerous: findings, and a
//! score of 0 to 100.
//!
//! A definition is looked at once and by itself: nothing here knows other tools, who calls, or
//! what policy asks. What it finds is evidence for a person, not proof: so each finding says where
//! it is and in plain words what it is, and never repeats what might be a secret.

mod places;
mod poison;
mod power;
mod prose;
mod schema;
mod secret;
mod text;

use bytes::Bytes;

use self::places::Place;
use super::definition::PINNED;
use crate::{
    json::{Kind, Value, splice},
    model::quality::{Demand, Flaw, Flaws},
};

/// Something that is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub flaw: Flaw,
    /// JSON pointer into the definition.
    pub pointer: Box<str>,
    /// A sentence for an operator.
    pub message: Box<str>,
}

/// What was found in a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quality {
    /// 100: nothing to complain of.
    pub score: u8,
    /// The worst first, and of each flaw the first few.
    pub findings: Box<[Finding]>,
    /// So many more.
    pub omitted: usize,
    pub flaws: Flaws,
}

/// Of each flaw so many findings are kept.
const SHOWN: usize = 8;

/// What is being found.
#[derive(Debug, Default)]
struct Findings {
    all: Vec<Finding>,
    counts: [u32; Flaw::ALL.len()],
    /// Parameters there are.
    parameters: u32,
}

// === impl Quality ===

impl Quality {
    /// Looks at a definition, a JSON object.
    pub fn of(raw: &Bytes) -> Self {
        let mut findings = Findings::default();
        match splice::document(raw) {
            Some(doc) => look(doc.root(), &mut findings),
            // It was read before, so this does not happen; and what cannot be looked at is not
            // taken for good.
            None => findings.add(Flaw::Encoded, String::new(), "the definition cannot be read"),
        }
        findings.judged()
    }

    /// Why policy does not want it, in words; `None` where it is good enough.
    pub fn falls_short(&self, demand: Demand) -> Option<String> {
        let blocked = self.flaws.and(demand.block);
        let low = self.score < demand.min;
        let score = || format!("its score is {}, and policy asks for {}", self.score, demand.min);
        match (blocked.is_empty(), low) {
            (true, false) => None,
            (true, true) => Some(score()),
            (false, false) => Some(format!("its definition is {blocked}")),
            (false, true) => Some(format!("its definition is {blocked}; {}", score())),
        }
    }
}

fn look(tool: Value<'_>, findings: &mut Findings) {
    prose::look(tool, findings);
    let schema = tool.get("inputSchema");
    let parameters = schema::parameters(tool, schema);
    schema::look(tool, schema, &parameters, findings);
    power::look(tool, &parameters, findings);
    for member in PINNED {
        if let Some(value) = tool.get(member) {
            places::walk(value, member, findings, &mut |place, text, findings| {
                poison::look(place, text, findings);
                secret::look(place, text, findings);
            });
        }
    }
}

// === impl Findings ===

impl Findings {
    fn add(&mut self, flaw: Flaw, pointer: impl Into<Box<str>>, message: impl Into<Box<str>>) {
        let Some(count) = self.counts.get_mut(flaw as usize) else { return };
        *count += 1;
        if *count as usize <= SHOWN {
            self.all.push(Finding { flaw, pointer: pointer.into(), message: message.into() });
        }
    }

    fn add_at(&mut self, flaw: Flaw, place: &Place<'_>, message: impl Into<Box<str>>) {
        self.add(flaw, place.pointer, message);
    }

    fn count(&self, flaw: Flaw) -> u32 {
        self.counts.get(flaw as usize).copied().unwrap_or_default()
    }

    fn has_at(&self, flaw: Flaw, pointer: &str) -> bool {
        self.all.iter().any(|finding| finding.flaw == flaw && *finding.pointer == *pointer)
    }

    fn judged(mut self) -> Quality {
        let lost: u32 = Flaw::ALL.into_iter().map(|flaw| self.lost(flaw)).sum();
        let flaws = Flaw::ALL.into_iter().filter(|flaw| self.count(*flaw) > 0).collect();
        let found: usize = self.counts.iter().map(|count| *count as usize).sum();
        // Stable: within one flaw in the order of the definition.
        self.all.sort_by_key(|finding| {
            (std::cmp::Reverse(finding.flaw.severity()), std::cmp::Reverse(finding.flaw))
        });
        Quality {
            score: u8::try_from(100_u32.saturating_sub(lost)).unwrap_or_default(),
            omitted: found - self.all.len(),
            findings: self.all.into(),
            flaws,
        }
    }

    /// What a flaw takes from the score: so much the first time, less for each one more, and
    /// never more than a bound. README.md has the table.
    fn lost(&self, flaw: Flaw) -> u32 {
        let (first, more, most) = match flaw {
            Flaw::NoDescription => (30, 0, 30),
            Flaw::Vague => (15, 0, 15),
            // By its share: one of many is no great matter.
            Flaw::Undocumented => {
                return (25 * self.count(flaw)).div_ceil(self.parameters.max(1)).min(25);
            }
            Flaw::Untyped => (5, 5, 15),
            Flaw::Broad => (10, 5, 20),
            Flaw::RawPower => (20, 10, 40),
            Flaw::Steering => (20, 10, 40),
            Flaw::Confusable => (30, 5, 40),
            Flaw::Encoded => (20, 10, 30),
            Flaw::Invisible => (50, 10, 70),
            Flaw::Secret => (40, 10, 60),
            Flaw::Poisoned => (70, 10, 100),
        };
        match self.count(flaw) {
            0 => 0,
            count => (first + more * (count - 1).min(10)).min(most),
        }
    }
}

/// A name as a sentence can have it: short, and without what could disturb a terminal.
fn shown(name: &str) -> String {
    let clean = |c: char| if c.is_control() || text::is_invisible(c) { '\u{fffd}' } else { c };
    let mut short: String = name.chars().take(64).map(clean).collect();
    if name.chars().nth(64).is_some() {
        short.push('…');
    }
    short
}

/// Whether a value says anything: not absent, not null and not an empty text.
fn says(object: Value<'_>, member: &str) -> bool {
    let text = object.get(member).filter(|value| value.kind() == Kind::String);
    text.and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests;
