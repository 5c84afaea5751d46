//! What differs between two definitions of a tool, and of what kind each difference is.
//!
//! What no rule here knows is `schema_changed`, which counts as the worst: nothing is let pass
//! because it was not understood. What a difference means for a tool is not decided here.

mod schema;

use serde_json::{Map, Value};

use super::definition::Definition;
use crate::{
    json,
    model::{
        change::{ChangeClass, ChangeClasses},
        server::Risk,
    },
};

/// One difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub class: ChangeClass,
    /// JSON pointer into the definition.
    pub pointer: String,
    /// Nothing where there was nothing.
    pub old: Option<Value>,
    pub new: Option<Value>,
}

/// Of what kinds the differences are.
pub(super) fn classes(old: &Definition, new: &Definition) -> ChangeClasses {
    differences(&old.raw, &new.raw).iter().map(|difference| difference.class).collect()
}

/// All differences in what a pin covers, between two definitions as JSON texts.
pub fn differences(old: &[u8], new: &[u8]) -> Vec<Difference> {
    let mut found = Found::default();
    let read = |text: &[u8]| serde_json::from_slice::<Map<String, Value>>(text);
    let (Ok(old), Ok(new)) = (read(old), read(new)) else {
        found.add(ChangeClass::SchemaChanged, "", None, None);
        return found.all;
    };
    for text in ["title", "description"] {
        found.where_differs(ChangeClass::DescriptionChanged, "", text, &old, &new);
    }
    let (input, output) = ("inputSchema", "outputSchema");
    schema::compare(old.get(input), new.get(input), "/inputSchema", &mut found);
    if old.contains_key(output) == new.contains_key(output) {
        let mut results = Found::default();
        schema::compare(old.get(output), new.get(output), "/outputSchema", &mut results);
        for mut difference in results.all {
            if difference.class != ChangeClass::DescriptionChanged {
                difference.class = ChangeClass::OutputChanged;
            }
            found.keep(difference);
        }
    } else {
        found.where_differs(ChangeClass::OutputChanged, "", output, &old, &new);
    }
    annotations(old.get("annotations"), new.get("annotations"), &mut found);
    // Digests are made of the same members: they differ by something.
    let mut pinned = super::definition::PINNED.iter();
    let differs = pinned.any(|member| !same(old.get(*member), new.get(*member)));
    if differs && found.all.is_empty() {
        found.add(ChangeClass::SchemaChanged, "", None, None);
    }
    found.all
}

/// Differences that are told; beyond them the first of each kind that is not among them yet.
const MAX_TOLD: usize = 500;

/// Differences as they are found.
#[derive(Default)]
struct Found {
    all: Vec<Difference>,
}

impl Found {
    fn add(&mut self, class: ChangeClass, pointer: &str, old: Option<&Value>, new: Option<&Value>) {
        if self.tells(class) {
            let (old, new) = (old.cloned(), new.cloned());
            self.all.push(Difference { class, pointer: pointer.to_owned(), old, new });
        }
    }

    fn keep(&mut self, difference: Difference) {
        if self.tells(difference.class) {
            self.all.push(difference);
        }
    }

    fn tells(&self, class: ChangeClass) -> bool {
        self.all.len() < MAX_TOLD || self.all.iter().all(|told| told.class != class)
    }

    /// Where a member of two objects differs.
    fn where_differs(
        &mut self,
        class: ChangeClass,
        pointer: &str,
        member: &str,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
    ) {
        let (old, new) = (old.get(member), new.get(member));
        if !same(old, new) {
            self.add(class, &below(pointer, member), old, new);
        }
    }
}

/// The pointer to a member.
fn below(pointer: &str, member: &str) -> String {
    format!("{pointer}/{}", member.replace('~', "~0").replace('/', "~1"))
}

/// Whether two values are the same, however they are spelled.
fn same(old: Option<&Value>, new: Option<&Value>) -> bool {
    match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => alike(old, new),
        _ => false,
    }
}

/// It is asked anew on each level of a schema, so it ends at the first difference.
fn alike(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Number(_), Value::Number(_)) => old == new || canonical(old) == canonical(new),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| alike(old, new))
        }
        (Value::Object(old), Value::Object(new)) => {
            let is_alike =
                |(name, old): (&String, &Value)| new.get(name).is_some_and(|new| alike(old, new));
            old.len() == new.len() && old.iter().all(is_alike)
        }
        _ => old == new,
    }
}

fn canonical(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    json::canonical(value.to_string().as_bytes(), &mut out);
    out
}

/// The members of two objects, each once.
fn members<'a>(old: &'a Map<String, Value>, new: &'a Map<String, Value>) -> Vec<&'a str> {
    let added = new.keys().filter(|name| !old.contains_key(*name));
    old.keys().chain(added).map(String::as_str).collect()
}

// === What a server says of what its tool does ===

/// As the protocol has it: whoever says nothing may write, and may destroy.
#[derive(Debug, Clone, Copy)]
struct Hints {
    only_reads: bool,
    /// What is said of it, if anything is.
    destroys: Option<bool>,
}

impl Hints {
    fn of(annotations: &Map<String, Value>) -> Self {
        let hint = |name: &str| annotations.get(name).and_then(Value::as_bool);
        Self {
            only_reads: hint("readOnlyHint").unwrap_or(false),
            destroys: hint("destructiveHint"),
        }
    }

    fn risk(self) -> Risk {
        match self {
            Hints { only_reads: true, .. } => Risk::ReadLow,
            Hints { destroys: Some(false), .. } => Risk::WriteLow,
            Hints { .. } => Risk::WriteHigh,
        }
    }
}

fn annotations(old: Option<&Value>, new: Option<&Value>, found: &mut Found) {
    const PLACE: &str = "/annotations";
    let nothing = Map::new();
    let object = |value: Option<&'_ Value>| value.is_none_or(Value::is_object);
    if !object(old) || !object(new) {
        if !same(old, new) {
            found.add(ChangeClass::SchemaChanged, PLACE, old, new);
        }
        return;
    }
    let old = old.and_then(Value::as_object).unwrap_or(&nothing);
    let new = new.and_then(Value::as_object).unwrap_or(&nothing);
    for name in members(old, new) {
        let class = match name {
            "title" => ChangeClass::DescriptionChanged,
            _ => ChangeClass::AnnotationChanged,
        };
        found.where_differs(class, PLACE, name, old, new);
    }
    let (before, after) = (Hints::of(old), Hints::of(new));
    let mut dangerous = |name: &str| {
        found.add(ChangeClass::Dangerous, &below(PLACE, name), old.get(name), new.get(name));
    };
    if before.only_reads && !after.only_reads {
        dangerous("readOnlyHint");
    }
    let says_now = after.destroys == Some(true) && before.destroys != Some(true);
    let denies_no_more = before.destroys == Some(false) && after.destroys.is_none();
    if says_now || (denies_no_more && !after.only_reads) {
        dangerous("destructiveHint");
    }
    let (before, after) = (before.risk(), after.risk());
    let class = match rank(before).cmp(&rank(after)) {
        std::cmp::Ordering::Less => ChangeClass::RiskRaised,
        std::cmp::Ordering::Equal => return,
        std::cmp::Ordering::Greater => ChangeClass::RiskLowered,
    };
    let (before, after) = (Value::from(before.as_str()), Value::from(after.as_str()));
    found.add(class, PLACE, Some(&before), Some(&after));
}

fn rank(risk: Risk) -> u8 {
    match risk {
        Risk::ReadLow => 0,
        Risk::ReadHigh => 1,
        Risk::WriteLow => 2,
        Risk::WriteHigh => 3,
    }
}

#[cfg(test)]
mod tests;
