//! The part of OpenAPI's schema that Gemini's `Schema` has: each place has one type, or is a
//! choice; there are no references, and `null` is a mark beside the type.
//!
//! What may be anything is written as a choice of all types. There an array holds arrays that
//! hold arrays at most, for each array has to say what it holds: that is the one place where
//! less can be told than the server takes.

mod said;

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use self::said::{Said, Types};
use super::{
    Note,
    source::{SILENT, Source, has_address, step},
    top,
};

/// The most parts of a schema that are rewritten: what is referred to is written out each time.
const MAX_PARTS: usize = 2_048;
/// The most that they may hold, in bytes or what takes as long: what is referred to counts each
/// time.
const MAX_SIZE: usize = 2 << 20;
/// How deep they may nest.
const MAX_DEPTH: usize = 32;
/// How deep arrays of anything nest.
const ARRAYS: usize = 2;

/// A tool's arguments as such a schema; nothing for a tool that takes none.
pub(super) fn arguments(schema: Option<&Value>, notes: &mut Vec<Note>) -> Option<Value> {
    let schema = schema.filter(|schema| schema.is_object())?;
    let source = Source::of(schema);
    let top = top::object(&source, schema, notes);
    let (left, room) = (MAX_PARTS, MAX_SIZE);
    let mut openapi = OpenApi { source, notes, left, room, open: Vec::new() };
    let out = openapi.schema(&[&top], Types::ALL, "", 0);
    out.get("properties").is_some().then_some(out)
}

struct OpenApi<'v, 'n> {
    source: Source<'v>,
    notes: &'n mut Vec<Note>,
    left: usize,
    /// What they may still hold.
    room: usize,
    /// Pointers of what is being written out.
    open: Vec<String>,
}

// === impl OpenApi ===

impl<'v> OpenApi<'v, '_> {
    fn note(&mut self, at: &str, text: impl Into<String>) {
        Note::take(self.notes, at, text);
    }

    /// All of these schemas together, as far as they allow these types.
    fn schema(&mut self, all: &[&'v Value], types: Types, at: &str, depth: usize) -> Value {
        if self.left == 0 || self.room == 0 || depth > MAX_DEPTH {
            self.note(at, "the schema is too large: what stands here is not told");
            return anything(0);
        }
        self.left -= 1;
        let opened = self.open.len();
        let mut said = Said::new(types);
        for schema in all {
            self.gather(schema, at, &mut said, 0);
        }
        let mut told = match said.choice {
            Some(choices) if !said.is_more_than_a_type() => {
                self.choice(choices, said.types, at, depth)
            }
            choice => {
                if choice.is_some() {
                    self.note(at, "the choice here is left out: what stands beside it is told");
                }
                self.typed(&said, at, depth)
            }
        };
        self.open.truncate(opened);
        describe(&mut told, &said);
        told
    }

    /// Adds what a schema says. Of two that say the same thing differently the first one counts:
    /// leaving out the other allows more.
    fn gather(&mut self, schema: &'v Value, at: &str, said: &mut Said<'v>, depth: usize) {
        let Some(own) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                self.note(at, "nothing is good here, which cannot be told");
            }
            return;
        };
        if depth > MAX_DEPTH || !at.is_empty() && has_address(schema) {
            self.note(at, "a schema with an address of its own, or too deep, is not told");
            return;
        }
        // What is open is gone through for each reference.
        let size = own.iter().map(|(name, value)| name.len() + size(value)).sum::<usize>();
        self.room = self.room.saturating_sub(size + 16 * self.open.len());
        if self.room == 0 {
            self.note(at, "the schema is too large: what stands here is not told");
            return;
        }
        let reference = own.get("$ref").and_then(Value::as_str);
        if let (true, Some(reference)) = (self.source.lone_refs, reference) {
            self.refer(reference, at, said, depth);
            return;
        }
        for (name, value) in own {
            self.keyword(name, value, own, at, said);
        }
        for part in own.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.gather(part, at, said, depth + 1);
        }
        if let Some(reference) = reference {
            self.refer(reference, at, said, depth);
        }
    }

    fn refer(&mut self, reference: &str, at: &str, said: &mut Said<'v>, depth: usize) {
        match self.source.target(reference) {
            None => self.note(at, "what `$ref` points to is not in the schema: it is not told"),
            Some((pointer, target)) if self.open.contains(&pointer) => {
                self.note(
                    at,
                    "a schema that holds itself is told once: what it holds here is open",
                );
                // Beside a reference that stands alone, nothing counts.
                let is_alone = self.source.lone_refs && target.get("$ref").is_some();
                if !is_alone {
                    said.types = said.types.and(target.get("type").map_or(Types::ALL, Types::read));
                }
            }
            Some((pointer, target)) => {
                self.open.push(pointer);
                self.gather(target, at, said, depth + 1);
            }
        }
    }

    fn keyword(
        &mut self,
        name: &str,
        value: &'v Value,
        own: &'v Map<String, Value>,
        at: &str,
        said: &mut Said<'v>,
    ) {
        match (name, value) {
            ("$ref" | "allOf", _) => {}
            ("type", _) => said.types = said.types.and(Types::read(value)),
            ("title", Value::String(text)) => said.title = said.title.or(Some(text)),
            ("description", Value::String(text)) => {
                said.description = said.description.or(Some(text));
            }
            ("enum", Value::Array(values)) => said.one_of(values.iter().collect()),
            ("const", _) => said.one_of(vec![value]),
            ("properties", Value::Object(properties)) => {
                for (name, schema) in properties {
                    said.property(name, schema);
                }
            }
            ("required", Value::Array(names)) => {
                said.required.extend(names.iter().filter_map(Value::as_str));
            }
            ("items", Value::Object(_)) if !own.contains_key("prefixItems") => {
                said.element = said.element.or(Some(value));
            }
            ("anyOf" | "oneOf", Value::Array(choices)) if said.choice.is_none() => {
                said.choice = Some(choices);
                if name == "oneOf" {
                    self.note(at, "`oneOf` is told as `anyOf`");
                }
            }
            ("pattern", Value::String(pattern)) if !is_portable(pattern) => {
                self.note(at, "`pattern` uses what the runtime does not know: it is left out");
            }
            ("exclusiveMinimum", Value::Number(_)) => {
                self.note(at, "`exclusiveMinimum` is told as `minimum`");
                said.plain("minimum", value);
            }
            ("exclusiveMaximum", Value::Number(_)) => {
                self.note(at, "`exclusiveMaximum` is told as `maximum`");
                said.plain("maximum", value);
            }
            ("format", Value::String(format)) => match format.as_str() {
                "date-time" | "float" | "double" | "int32" | "int64" => said.plain("format", value),
                _ => self.note(at, format!("the format `{format}` is left out")),
            },
            (_, Value::Number(_) | Value::String(_)) if told_as_it_is(name).is_some() => {
                if let Some(name) = told_as_it_is(name) {
                    said.plain(name, value);
                }
            }
            ("additionalProperties" | "items", Value::Bool(true)) => {}
            // There is no place for examples, and they bind nobody.
            _ if name == "examples" || SILENT.contains(&name) => {}
            _ => self.note(at, format!("`{name}` is left out")),
        }
    }

    /// A choice of schemas, none of which is only `null`, which is a mark beside the others.
    fn choice(&mut self, choices: &'v [Value], types: Types, at: &str, depth: usize) -> Value {
        let is_null = |schema: &&Value| {
            schema.get("type") == Some(&Value::from("null"))
                || schema.get("const") == Some(&Value::Null)
                || schema.get("enum") == Some(&json!([null]))
        };
        let mut branches = Vec::new();
        for schema in choices.iter().filter(|schema| !is_null(schema)) {
            match self.schema(&[schema], types, at, depth + 1) {
                Value::Object(mut own) if own.contains_key("anyOf") => {
                    if let Some(Value::Array(inner)) = own.remove("anyOf") {
                        branches.extend(inner);
                    }
                }
                branch => branches.push(branch),
            }
        }
        let nullable = types.has(Types::NULL) && choices.iter().any(|schema| is_null(&schema));
        joined(branches, nullable)
    }

    fn typed(&mut self, said: &Said<'v>, at: &str, depth: usize) -> Value {
        if said.is_open() {
            return anything(0);
        }
        let mut branches = Vec::new();
        for (kind, keywords) in said.types.each() {
            let mut own = Map::new();
            own.insert("type".to_owned(), kind.into());
            for (name, value) in &said.plain {
                let is_format = *name == "format" && format_fits(value, kind);
                if keywords.contains(name) || is_format {
                    own.insert((*name).to_owned(), (*value).clone());
                }
            }
            match kind {
                "object" => self.members(said, &mut own, at, depth),
                "array" => {
                    let items = match said.element {
                        Some(element) => {
                            self.schema(&[element], Types::ALL, &step(at, "items"), depth + 1)
                        }
                        None => anything(1),
                    };
                    own.insert("items".to_owned(), items);
                }
                _ => self.values(said, kind, &mut own, at),
            }
            branches.push(Value::Object(own));
        }
        joined(branches, said.types.has(Types::NULL))
    }

    fn members(&mut self, said: &Said<'v>, own: &mut Map<String, Value>, at: &str, depth: usize) {
        if said.properties.is_empty() {
            if !said.required.is_empty() {
                self.note(at, "`required` is left out: it names what is not told");
            }
            return;
        }
        let mut properties = Map::new();
        let here = step(at, "properties");
        for (name, schemas) in &said.properties {
            let told = self.schema(schemas, Types::ALL, &step(&here, name), depth + 1);
            properties.insert((*name).to_owned(), told);
        }
        let mut seen = HashSet::new();
        let is_told = |name: &&&str| properties.contains_key(**name);
        let required = said.required.iter().filter(is_told).filter(|name| seen.insert(**name));
        let required: Vec<&str> = required.copied().collect();
        let required = Value::from(required);
        own.insert("properties".to_owned(), Value::Object(properties));
        if required != json!([]) {
            own.insert("required".to_owned(), required);
        }
    }

    /// The values that a place may have: texts alone can be listed, others are described.
    fn values(&mut self, said: &Said<'_>, kind: &str, own: &mut Map<String, Value>, at: &str) {
        let Some(values) = &said.values else { return };
        let of_kind: Vec<&Value> = values
            .iter()
            .copied()
            .filter(|value| match kind {
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                _ => value.is_number(),
            })
            .collect();
        if of_kind.is_empty() {
            return;
        }
        if kind == "string" && of_kind.iter().all(|text| text.as_str() != Some("")) {
            own.insert("enum".to_owned(), of_kind.into_iter().cloned().collect());
            return;
        }
        self.note(at, "the values here cannot be listed: they are described");
        let told: Vec<String> = of_kind.iter().map(ToString::to_string).collect();
        own.insert("description".to_owned(), format!("One of: {}.", told.join(", ")).into());
    }
}

// === Small parts ===

/// What of a keyword is written out for each schema that has it.
fn size(value: &Value) -> usize {
    const EACH: usize = 16;
    match value {
        Value::String(text) => EACH + text.len(),
        Value::Array(all) => all.iter().map(|one| EACH + one.as_str().map_or(0, str::len)).sum(),
        Value::Object(all) => all.keys().map(|name| EACH + name.len()).sum(),
        _ => EACH,
    }
}

/// Puts texts about a place where the runtime reads them: it takes nothing beside a choice.
fn describe(told: &mut Value, said: &Said<'_>) {
    let put = |own: &mut Map<String, Value>| {
        if let Some(title) = said.title {
            own.entry("title").or_insert_with(|| title.into());
        }
        let Some(text) = said.description else { return };
        let text = match own.get("description").and_then(Value::as_str) {
            Some(values) if values.starts_with("One of: ") => format!("{text} {values}"),
            Some(own) => own.to_owned(),
            None => text.to_owned(),
        };
        own.insert("description".to_owned(), text.into());
    };
    let Some(own) = told.as_object_mut() else { return };
    match own.get_mut("anyOf").and_then(Value::as_array_mut) {
        Some(branches) => branches.iter_mut().filter_map(Value::as_object_mut).for_each(put),
        None => put(own),
    }
}

/// One place that is one of several things, or may be null.
fn joined(mut branches: Vec<Value>, nullable: bool) -> Value {
    if branches.is_empty() {
        branches.push(json!({ "type": "string" }));
    }
    if let (true, Some(first)) = (nullable, branches[0].as_object_mut()) {
        first.insert("nullable".to_owned(), true.into());
    }
    match branches.len() {
        1 => branches.remove(0),
        _ => json!({ "anyOf": branches }),
    }
}

/// What may be anything, within so many arrays.
fn anything(arrays: usize) -> Value {
    let mut branches = vec![
        json!({ "type": "string", "nullable": true }),
        json!({ "type": "number" }),
        json!({ "type": "boolean" }),
        json!({ "type": "object" }),
    ];
    if arrays <= ARRAYS {
        branches.push(json!({ "type": "array", "items": anything(arrays + 1) }));
    }
    json!({ "anyOf": branches })
}

fn told_as_it_is(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 9] = [
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    ];
    NAMES.into_iter().find(|known| *known == name)
}

/// Whether a pattern means the same to every reader: groups that look around and references back
/// are not known to all.
fn is_portable(pattern: &str) -> bool {
    let back = pattern.as_bytes().windows(2).any(|two| two[0] == b'\\' && two[1].is_ascii_digit());
    !pattern.contains("(?") && !back
}

fn format_fits(format: &Value, kind: &str) -> bool {
    match kind {
        "string" => format == "date-time",
        "number" => format == "float" || format == "double",
        "integer" => format == "int32" || format == "int64",
        _ => false,
    }
}
