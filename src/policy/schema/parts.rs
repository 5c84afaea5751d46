//! What schemas are put together from.

use serde_json::{Map, Value, json};

/// A key of a mapping.
pub struct Key {
    name: &'static str,
    schema: Value,
    about: &'static str,
    required: bool,
}

pub fn named(name: &'static str, schema: Value, about: &'static str) -> Key {
    Key { name, schema, about, required: false }
}

impl Key {
    pub fn required(self) -> Self {
        Self { required: true, ..self }
    }
}

/// A mapping with these keys and no others.
pub fn object(keys: Vec<Key>) -> Value {
    let required: Vec<_> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let properties: Map<String, Value> = keys
        .into_iter()
        .map(|Key { name, mut schema, about, .. }| {
            if let Some(schema) = schema.as_object_mut() {
                schema.insert("description".into(), json!(about));
            }
            (name.to_owned(), schema)
        })
        .collect();
    let mut object = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    if let Some(object) = object.as_object_mut().filter(|_| !required.is_empty()) {
        object.insert("required".into(), json!(required));
    }
    object
}

/// A mapping whose keys the operator chooses.
pub fn map_of(value: Value) -> Value {
    json!({ "type": ["object", "null"], "additionalProperties": value })
}

pub fn text() -> Value {
    json!({ "type": "string" })
}

/// A list that would match nothing if it were empty.
pub fn texts() -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 })
}

pub fn list(item: Value) -> Value {
    json!({ "type": "array", "items": item })
}

/// The words that a reader knows.
pub fn words<T>(known: &[(&'static str, T)]) -> Value {
    let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
    json!({ "enum": words })
}
