//! JSON Schema of 2020-12 as far as OpenAI's and Anthropic's tools take it: without what models
//! do not read, and what would say something else once a part of it is gone.
//!
//! Conditions and negations are dropped rather than rewritten: a condition that allows more
//! demands more, and its negation allows less.

use serde_json::{Map, Value, json};

use super::{
    Note,
    source::{SILENT, Source, has_address, step},
    top,
};

/// The most parts of a schema that are rewritten: more no model reads.
const MAX_PARTS: usize = 4_096;
/// How deep they may nest.
const MAX_DEPTH: usize = 64;

/// What a runtime demands besides.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Demands {
    /// The names that arguments may have.
    pub names: Option<fn(&str) -> bool>,
}

/// A tool's arguments as such a schema.
pub(super) fn arguments(schema: Option<&Value>, demands: Demands, notes: &mut Vec<Note>) -> Value {
    let Some(schema) = schema.filter(|schema| schema.is_object()) else {
        return json!({ "type": "object", "properties": {} });
    };
    let source = Source::of(schema);
    let top = top::object(&source, schema, notes);
    let mut plain = Plain { source, demands, notes, left: MAX_PARTS, shared: Vec::new() };
    let mut out = plain.schema(&top, "", 0);
    // What is shared may share more.
    let mut defs = Map::new();
    let mut next = 0;
    while let Some((pointer, name)) = plain.shared.get(next).cloned() {
        next += 1;
        let Some((_, target)) = plain.source.target(&format!("#{pointer}")) else { continue };
        let target = plain.schema(target, &pointer, 0);
        defs.insert(name, target);
    }
    if let (false, Some(out)) = (defs.is_empty(), out.as_object_mut()) {
        out.insert("$defs".to_owned(), Value::Object(defs));
    }
    out
}

struct Plain<'s, 'n> {
    source: Source<'s>,
    demands: Demands,
    notes: &'n mut Vec<Note>,
    left: usize,
    /// Pointers that something refers to, with their names in `$defs`.
    shared: Vec<(String, String)>,
}

impl Plain<'_, '_> {
    fn note(&mut self, at: &str, text: impl Into<String>) {
        Note::take(self.notes, at, text);
    }

    fn schema(&mut self, schema: &Value, at: &str, depth: usize) -> Value {
        let Some(own) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                self.note(at, "nothing is good here, which cannot be told");
            }
            return json!({});
        };
        if self.left == 0 || depth > MAX_DEPTH {
            self.note(at, "the schema is too large: what stands here is not told");
            return json!({});
        }
        self.left -= 1;
        if !at.is_empty() && has_address(schema) {
            self.note(at, "a schema with an address of its own is not told");
            return json!({});
        }
        let lone = self.source.lone_refs && own.contains_key("$ref");
        let mut out = Map::new();
        for (name, value) in own {
            if !lone || matches!(name.as_str(), "$ref" | "description" | "title") {
                self.keyword(name, value, own, at, depth, &mut out);
            }
        }
        self.closed(own, at, &mut out);
        let is_array = |kind: &Value| {
            kind == "array"
                || kind.as_array().is_some_and(|kinds| kinds.iter().any(|k| k == "array"))
        };
        if out.get("type").is_some_and(is_array) && !out.contains_key("items") {
            out.insert("items".to_owned(), json!({}));
        }
        Value::Object(out)
    }

    fn keyword(
        &mut self,
        name: &str,
        value: &Value,
        own: &Map<String, Value>,
        at: &str,
        depth: usize,
        out: &mut Map<String, Value>,
    ) {
        let here = step(at, name);
        let told = match (name, value) {
            ("title" | "description" | "pattern" | "format", Value::String(_))
            | ("type", Value::String(_) | Value::Array(_))
            | ("enum" | "examples", Value::Array(_))
            | ("default" | "const", _)
            | ("uniqueItems", Value::Bool(_))
            | (
                "minLength" | "maxLength" | "minimum" | "maximum" | "exclusiveMinimum"
                | "exclusiveMaximum" | "multipleOf" | "minItems" | "maxItems" | "minProperties"
                | "maxProperties",
                Value::Number(_),
            )
            | ("additionalProperties", Value::Bool(_)) => value.clone(),
            ("required", Value::Array(names)) => self.required(names),
            ("properties", Value::Object(properties)) => self.properties(properties, &here, depth),
            ("additionalProperties", Value::Object(_)) => self.schema(value, &here, depth + 1),
            ("items", Value::Object(_)) => self.schema(value, &here, depth + 1),
            ("items" | "prefixItems", Value::Array(items))
                if name == "items" || self.source.prefixes =>
            {
                let items = self.each(items, &here, depth);
                out.insert("prefixItems".to_owned(), items);
                return;
            }
            ("additionalItems", Value::Object(_))
                if own.get("items").is_some_and(Value::is_array) =>
            {
                let rest = self.schema(value, &here, depth + 1);
                out.insert("items".to_owned(), rest);
                return;
            }
            ("allOf" | "anyOf", Value::Array(parts)) => self.each(parts, &here, depth),
            ("oneOf", Value::Array(parts)) if !own.contains_key("anyOf") => {
                let parts = self.each(parts, &here, depth);
                self.note(&here, "`oneOf` is told as `anyOf`");
                out.insert("anyOf".to_owned(), parts);
                return;
            }
            ("$ref", Value::String(reference)) => match self.shared(reference) {
                Some(reference) => reference.into(),
                None => {
                    self.note(&here, "what `$ref` points to is not in the schema: it is not told");
                    return;
                }
            },
            ("items" | "additionalItems", Value::Bool(true)) => return,
            _ if SILENT.contains(&name) => return,
            _ => {
                self.note(&here, format!("`{name}` is left out"));
                return;
            }
        };
        out.insert(name.to_owned(), told);
    }

    fn each(&mut self, parts: &[Value], at: &str, depth: usize) -> Value {
        let parts = parts.iter().enumerate();
        parts.map(|(n, part)| self.schema(part, &format!("{at}/{n}"), depth + 1)).collect()
    }

    fn is_good(&self, name: &str) -> bool {
        self.demands.names.is_none_or(|good| good(name))
    }

    fn properties(&mut self, properties: &Map<String, Value>, at: &str, depth: usize) -> Value {
        let mut out = Map::new();
        for (name, schema) in properties {
            let here = step(at, name);
            if self.is_good(name) {
                out.insert(name.clone(), self.schema(schema, &here, depth + 1));
            } else {
                self.note(&here, "the runtime takes no argument of this name: it is left out");
            }
        }
        Value::Object(out)
    }

    fn required(&self, names: &[Value]) -> Value {
        let good = |name: &&Value| name.as_str().is_some_and(|name| self.is_good(name));
        names.iter().filter(good).cloned().collect()
    }

    /// An object is closed only as long as all that may stand in it is told.
    fn closed(&mut self, own: &Map<String, Value>, at: &str, out: &mut Map<String, Value>) {
        let properties = own.get("properties").and_then(Value::as_object);
        let lost = properties.is_some_and(|all| all.keys().any(|name| !self.is_good(name)));
        if (lost || own.contains_key("patternProperties"))
            && out.get("additionalProperties").is_some_and(|more| more != &Value::Bool(true))
        {
            out.remove("additionalProperties");
            self.note(&step(at, "additionalProperties"), "`additionalProperties` is left out");
        }
    }

    /// Where in `$defs` stands what a reference points to.
    fn shared(&mut self, reference: &str) -> Option<String> {
        let (pointer, _) = self.source.target(reference)?;
        let known = self.shared.iter().find(|(known, _)| *known == pointer);
        let name = match known {
            Some((_, name)) => name.clone(),
            None => {
                let last = pointer.rsplit('/').next().unwrap_or_default();
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                let is_free = |name: &str| self.shared.iter().all(|(_, taken)| taken != name);
                let fits = |name: &str| {
                    (1..=64).contains(&name.len()) && name.chars().all(plain) && is_free(name)
                };
                let mut name = last.to_owned();
                let mut number = self.shared.len();
                while !fits(&name) {
                    name = format!("part{number}");
                    number += 1;
                }
                self.shared.push((pointer, name.clone()));
                name
            }
        };
        Some(format!("#/$defs/{name}"))
    }
}
