//! The top of a schema as one object: no runtime takes a choice, a conjunction or a reference
//! there.
//!
//! What the parts of a conjunction say of an argument holds together; what those of a choice say
//! holds only where each of them speaks of it. Of an argument that some part says nothing about,
//! nothing is said, for that part allows anything.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Note, source::Source};

/// How deep references, conjunctions and choices are followed.
const DEPTH: usize = 16;

/// Parts that are followed, and arguments that they speak of, all together: a few references can
/// unfold to more than could ever be gone through.
const MAX_MEMBERS: usize = 8_192;

/// Members of an object that hold a choice, or of one that says what an object's members are.
const GATHERED: [&str; 9] =
    ["$ref", "allOf", "anyOf", "oneOf", "properties", "required", "type", "enum", "const"];

/// The arguments that one part of a schema speaks of.
#[derive(Debug, Default)]
struct Members {
    properties: Map<String, Value>,
    required: BTreeSet<String>,
    /// What it does not speak of must not be there.
    closed: bool,
}

/// A schema as one object, without a choice, a conjunction or a reference at its top; references
/// further in are still to the whole of the source.
pub(super) fn object(source: &Source<'_>, schema: &Value, notes: &mut Vec<Note>) -> Value {
    let empty = Map::new();
    let own = schema.as_object().unwrap_or(&empty);
    let has = |name: &str| own.contains_key(name);
    let lone_ref = source.lone_refs && has("$ref");
    let mut out = Map::new();
    out.insert("type".to_owned(), "object".into());
    let gathered = GATHERED.into_iter().take(4).any(has);
    for (name, value) in own.iter().filter(|(name, _)| !GATHERED.contains(&name.as_str())) {
        // Which arguments there are besides is said of those that stand beside it.
        if lone_ref || gathered && name == "additionalProperties" {
            continue;
        }
        out.insert(name.clone(), value.clone());
    }
    for (name, text) in [
        ("anyOf", "the choice at the top is told as one object with the arguments of all"),
        ("oneOf", "the choice at the top is told as one object with the arguments of all"),
        ("enum", "`enum` at the top is left out"),
        ("const", "`const` at the top is left out"),
    ] {
        if has(name) {
            Note::take(notes, &format!("/{name}"), text);
        }
    }
    let mut left = MAX_MEMBERS;
    let Members { properties, required, .. } = members(source, schema, DEPTH, &mut left);
    if left == 0 {
        let text = "the schema is too large: what its further parts say of arguments is not told";
        Note::take(notes, "", text);
    }
    out.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        out.insert("required".to_owned(), required.into_iter().collect());
    }
    Value::Object(out)
}

fn members(source: &Source<'_>, schema: &Value, depth: usize, left: &mut usize) -> Members {
    let (Some(own), true) = (schema.as_object(), depth > 0) else { return Members::default() };
    let spoken = own.get("properties").and_then(Value::as_object).map_or(0, Map::len);
    let spoken = spoken + own.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    *left = left.saturating_sub(1 + spoken);
    if *left == 0 {
        // It allows anything, and so does whatever it is a choice of.
        return Members::default();
    }
    let target = own.get("$ref").and_then(Value::as_str).map(|reference| {
        let target = source.target(reference);
        target.map_or_else(Members::default, |(_, target)| members(source, target, depth - 1, left))
    });
    let mut all = match target {
        Some(target) if source.lone_refs => return target,
        Some(target) => both(said(own), target),
        None => said(own),
    };
    let parts = |name: &str| own.get(name).and_then(Value::as_array);
    for part in parts("allOf").into_iter().flatten() {
        if *left == 0 {
            break;
        }
        all = both(all, members(source, part, depth - 1, left));
    }
    for name in ["anyOf", "oneOf"] {
        if let Some(choices) = parts(name) {
            // Of what is not followed any more one stands for all.
            let mut told = Vec::new();
            for choice in choices {
                told.push(members(source, choice, depth - 1, left));
                if *left == 0 {
                    break;
                }
            }
            all = both(all, any(told));
        }
    }
    all
}

/// What a schema says of itself.
fn said(schema: &Map<String, Value>) -> Members {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    Members {
        properties: schema
            .get("properties")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default(),
        required: names.filter_map(Value::as_str).map(str::to_owned).collect(),
        closed: schema.get("additionalProperties") == Some(&Value::Bool(false))
            && !schema.contains_key("patternProperties"),
    }
}

fn both(mut one: Members, other: Members) -> Members {
    for (name, schema) in other.properties {
        let known = one.properties.get_mut(&name);
        match known {
            Some(known) if *known == schema => {}
            Some(known) => *known = json!({ "allOf": [known.take(), schema] }),
            None => {
                one.properties.insert(name, schema);
            }
        }
    }
    one.required.extend(other.required);
    one.closed |= other.closed;
    one
}

fn any(choices: Vec<Members>) -> Members {
    let mut all = Members { closed: choices.iter().all(|one| one.closed), ..Members::default() };
    if let Some((first, others)) = choices.split_first() {
        let needed = |name: &&String| others.iter().all(|one| one.required.contains(*name));
        all.required = first.required.iter().filter(needed).cloned().collect();
    }
    for name in choices.iter().flat_map(|one| one.properties.keys()) {
        if all.properties.contains_key(name) {
            continue;
        }
        let mut said: Vec<&Value> = Vec::new();
        for schema in choices.iter().filter_map(|one| one.properties.get(name)) {
            if !said.contains(&schema) {
                said.push(schema);
            }
        }
        let everywhere = choices.iter().all(|one| one.closed || one.properties.contains_key(name));
        let schema = match said.as_slice() {
            [only] if everywhere => (*only).clone(),
            several if everywhere => json!({ "anyOf": several }),
            several => {
                let text = several.iter().find_map(|schema| schema.get("description")?.as_str());
                text.map_or_else(|| json!({}), |text| json!({ "description": text }))
            }
        };
        all.properties.insert(name.clone(), schema);
    }
    all
}
