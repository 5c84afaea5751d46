//! How much work it is to hold a value against a schema.
//!
//! A schema is a server's text, and a few references in it can unfold to more parts than could
//! ever be gone through. Here they are counted, each as often as it is come to, without being gone
//! through: what a definition unfolds to is counted once. What leads back to where it came from is
//! about the inside of a value, and is cut off there.

use std::collections::HashMap;

use serde_json::Value;

use crate::json::fragment;

/// Parts that one value may be held against. The largest honest schemas unfold to some hundred
/// thousand.
const MAX_WEIGHT: u64 = 4_000_000;

/// Schemas that hold of one and the same value, each of which led to the next. A validator goes
/// so deep for each level of the value.
const MAX_IN_PLACE: usize = 32;

/// Parts with an address of their own, to which references in them are relative.
const MAX_BASES: usize = 64;

/// Keywords whose one schema is about the same value.
const IN_PLACE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with a list of such.
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with such by names.
const IN_PLACE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
/// References, which are about the same value, too.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords whose one schema, or list of schemas, is about what is inside the value.
const INSIDE: [&str; 9] = [
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
/// Keywords with such by names.
const INSIDE_MAPS: [&str; 2] = ["properties", "patternProperties"];

/// What one value may have to be held against, where a pattern counts so much; nothing where that
/// is more than can be gone through.
pub(super) fn weigh(schema: &Value, pattern: u64) -> Option<u64> {
    let mut parts = Parts { bases: vec![schema], pattern, ..Parts::default() };
    parts.addresses(schema, true);
    if parts.bases.len() > MAX_BASES {
        return None;
    }
    parts.place(schema);
    let mut next = 0;
    while let Some(part) = parts.queue.get(next).copied() {
        let mut read = Part::default();
        parts.read(part, 1, &mut read);
        parts.all.push(read);
        next += 1;
    }
    let all = parts.all;
    (chain(&all)? <= MAX_IN_PLACE).then_some(())?;
    Some(unfolded(&all)).filter(|weight| *weight <= MAX_WEIGHT)
}

/// A schema with all that is in it about the same value; what it leads to by their numbers.
#[derive(Default)]
struct Part {
    own: u64,
    /// How deep that nests.
    depth: usize,
    in_place: Vec<usize>,
    inside: Vec<usize>,
}

#[derive(Default)]
struct Parts<'s> {
    /// The schema itself, and parts of it with an address.
    bases: Vec<&'s Value>,
    /// Parts with an anchor.
    named: HashMap<&'s str, Vec<&'s Value>>,
    pattern: u64,
    /// In the order of their numbers, the first so many of them read.
    queue: Vec<&'s Value>,
    all: Vec<Part>,
    /// By where they stand in memory.
    numbers: HashMap<*const Value, usize>,
    /// What references lead to.
    targets: HashMap<&'s str, Vec<usize>>,
}

impl<'s> Parts<'s> {
    /// Finds what references can name: parts with an address, and anchors.
    fn addresses(&mut self, value: &'s Value, is_root: bool) {
        match value {
            Value::Object(members) => {
                let text = |name: &str| members.get(name).and_then(Value::as_str);
                match text("$id").or_else(|| text("id")) {
                    // An anchor, as older drafts have it.
                    Some(id) if id.starts_with('#') => {
                        self.named.entry(id.trim_start_matches('#')).or_default().push(value);
                    }
                    Some(_) if !is_root => self.bases.push(value),
                    _ => {}
                }
                for anchor in ["$anchor", "$dynamicAnchor"].into_iter().filter_map(text) {
                    self.named.entry(anchor).or_default().push(value);
                }
                members.values().for_each(|member| self.addresses(member, false));
            }
            Value::Array(items) => items.iter().for_each(|item| self.addresses(item, false)),
            _ => {}
        }
    }

    /// The number of a part, which is read later.
    fn place(&mut self, schema: &'s Value) -> usize {
        let new = self.queue.len();
        let number = *self.numbers.entry(schema).or_insert(new);
        if number == new {
            self.queue.push(schema);
        }
        number
    }

    fn read(&mut self, schema: &'s Value, depth: usize, part: &mut Part) {
        part.own += 1;
        part.depth = part.depth.max(depth);
        let Value::Object(own) = schema else { return };
        for (name, value) in own {
            self.keyword(name, value, depth, part);
        }
    }

    fn keyword(&mut self, name: &str, value: &'s Value, depth: usize, part: &mut Part) {
        match value {
            Value::String(reference) if REFERENCES.contains(&name) => {
                part.in_place.extend_from_slice(self.targets(reference));
            }
            Value::String(_) if name == "pattern" => part.own += self.pattern,
            Value::Array(parts) if IN_PLACE_LISTS.contains(&name) => {
                parts.iter().for_each(|inner| self.read(inner, depth + 1, part));
            }
            Value::Object(parts) if IN_PLACE_MAPS.contains(&name) => {
                parts.values().for_each(|inner| self.read(inner, depth + 1, part));
            }
            Value::Object(_) if IN_PLACE.contains(&name) => self.read(value, depth + 1, part),
            Value::Array(parts) if INSIDE.contains(&name) => {
                part.inside.extend(parts.iter().map(|inner| self.place(inner)));
            }
            Value::Object(_) if INSIDE.contains(&name) => part.inside.push(self.place(value)),
            Value::Object(parts) if INSIDE_MAPS.contains(&name) => {
                if name == "patternProperties" {
                    part.own += self.pattern * parts.len() as u64;
                }
                part.inside.extend(parts.values().map(|inner| self.place(inner)));
            }
            // Words are looked up; other values are compared with one by one.
            Value::Array(all) if name == "enum" && !all.iter().all(Value::is_string) => {
                part.own += all.len() as u64;
            }
            Value::Array(all) if name == "required" => part.own += all.len() as u64,
            _ => part.own += 1,
        }
    }

    /// All that a reference may mean. One that means nothing makes the schema none.
    fn targets(&mut self, reference: &'s str) -> &[usize] {
        if !self.targets.contains_key(reference) {
            let found = self.find(reference);
            let found = found.into_iter().map(|target| self.place(target)).collect();
            self.targets.insert(reference, found);
        }
        self.targets.get(reference).map_or(&[], Vec::as_slice)
    }

    fn find(&self, reference: &str) -> Vec<&'s Value> {
        let (base, place) = reference.split_once('#').unwrap_or((reference, ""));
        if !place.is_empty() && !place.starts_with('/') {
            return self.named.get(place).cloned().unwrap_or_default();
        }
        let Some(place) = fragment(place) else { return Vec::new() };
        let has_id = |part: &Value| part.get("$id").or_else(|| part.get("id")).is_some();
        // Which of several it is is the validator's to know: here it may be each of them.
        let bases = self.bases.iter().copied();
        let bases = bases.filter(|at| base.is_empty() || self.bases.len() == 1 || has_id(at));
        bases.filter_map(|at| at.pointer(&place)).collect()
    }
}

/// How many schemas lead to each other about one value at most; nothing where they lead in a
/// circle.
fn chain(all: &[Part]) -> Option<usize> {
    let (order, is_circular) = order(all, |part, index| part.in_place.get(index).copied());
    let mut chains = vec![0; all.len()];
    for number in order {
        let part = all.get(number)?;
        let next = part.in_place.iter().filter_map(|next| chains.get(*next)).max();
        let chain = part.depth + next.copied().unwrap_or(0);
        *chains.get_mut(number)? = chain;
    }
    chains.into_iter().max().filter(|_| !is_circular)
}

/// What the first part unfolds to.
fn unfolded(all: &[Part]) -> u64 {
    let next = |part: &Part, index: usize| {
        let inside = || part.inside.get(index - part.in_place.len());
        part.in_place.get(index).or_else(inside).copied()
    };
    let (order, _) = order(all, next);
    // What is not weighed yet is where a circle closes.
    let mut weights = vec![1_u64; all.len()];
    for number in order {
        let Some(part) = all.get(number) else { continue };
        let inner = part.in_place.iter().chain(&part.inside);
        let inner = inner.filter_map(|next| weights.get(*next));
        let weight = inner.fold(part.own, |sum, weight| sum.saturating_add(*weight));
        if let Some(own) = weights.get_mut(number) {
            *own = weight;
        }
    }
    weights.first().copied().unwrap_or_default()
}

/// All parts, each behind those that it leads to, and whether some lead in a circle. Chains of
/// references are long: nothing here calls itself.
fn order(all: &[Part], next: impl Fn(&Part, usize) -> Option<usize>) -> (Vec<usize>, bool) {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Open,
        Done,
    }
    let mut seen = vec![Seen::No; all.len()];
    let (mut order, mut is_circular) = (Vec::with_capacity(all.len()), false);
    for first in 0..all.len() {
        let mut path = if seen.get(first) == Some(&Seen::No) { vec![(first, 0)] } else { vec![] };
        while let Some((number, index)) = path.last_mut() {
            let (Some(part), Some(state)) = (all.get(*number), seen.get_mut(*number)) else {
                break;
            };
            *state = Seen::Open;
            let Some(inner) = next(part, *index) else {
                *state = Seen::Done;
                order.push(*number);
                path.pop();
                continue;
            };
            *index += 1;
            match seen.get(inner) {
                Some(Seen::No) => path.push((inner, 0)),
                Some(Seen::Open) => is_circular = true,
                _ => {}
            }
        }
    }
    (order, is_circular)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn a_schema_weighs_what_it_unfolds_to() {
        for (schema, weight) in [
            (json!({}), Some(1)),
            (json!({ "type": "object", "required": ["a", "b"] }), Some(4)),
            (json!({ "properties": { "a": { "pattern": "a" } } }), Some(1 + 8)),
            (json!({ "enum": ["a", "b", "c"] }), Some(2)),
            (json!({ "enum": ["a", 1, 2] }), Some(4)),
            (json!({ "patternProperties": { "a": true, "b": false } }), Some(1 + 14 + 2)),
            (
                json!({ "allOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }],
                    "$defs": { "a": { "type": "string" } } }),
                Some(4 + 2 * 2),
            ),
            // By an anchor, by its address, and escaped.
            (
                json!({ "$ref": "#a", "$defs": { "x": { "$anchor": "a", "type": "null" } } }),
                Some(5),
            ),
            (json!({ "$ref": "x", "$defs": { "x": { "$id": "x", "type": "null" } } }), Some(5)),
            (json!({ "$ref": "#/$defs/a%20b", "$defs": { "a b": { "type": "null" } } }), Some(4)),
            // A tree goes on inside, and a schema that is held against itself goes on for ever.
            (json!({ "properties": { "l": { "$ref": "#" }, "r": { "$ref": "#" } } }), Some(5)),
            (json!({ "allOf": [{ "$ref": "#" }] }), None),
            (
                json!({ "$ref": "#/$defs/a",
                    "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "not": { "$ref": "#/$defs/a" } } } }),
                None,
            ),
        ] {
            assert_eq!(weigh(&schema, 7), weight, "{schema}");
        }
    }

    #[test]
    fn what_unfolds_without_end_or_leads_too_far_has_no_weight() {
        let chained = |length: usize, each: usize, inside: bool| {
            let mut defs = Map::new();
            for n in 0..length {
                let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
                let next = if inside { json!({ "properties": { "x": next } }) } else { next };
                defs.insert(format!("d{n}"), json!({ "allOf": vec![next; each] }));
            }
            defs.insert(format!("d{length}"), json!({ "type": "string" }));
            json!({ "$ref": "#/$defs/d0", "$defs": defs })
        };
        assert!(weigh(&chained(6, 3, false), 1).is_some());
        assert!(weigh(&chained(6, 200, false), 1).is_none());
        assert!(weigh(&chained(6, 200, true), 1).is_none());
        assert!(weigh(&chained(40, 1, false), 1).is_none(), "too deep about one value");
        assert!(weigh(&chained(20_000, 1, true), 1).is_some());
    }
}
