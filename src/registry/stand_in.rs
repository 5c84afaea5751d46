//! Whether one tool can be called in another's place: what is sent to that one can be sent to
//! this one, and what comes back is what was published.
//!
//! Careful rather than clever: schemas that can imply each other in ways beyond plain members are
//! taken to differ. Each call's arguments are checked besides, before they leave.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::Definition;

/// What says nothing of a value.
const NOTES: [&str; 6] = ["title", "description", "default", "examples", "$schema", "$comment"];
/// What a schema may say of an object beside those, to be compared member by member.
const PLAIN: [&str; 4] = ["type", "properties", "required", "additionalProperties"];

/// Whether `other` can be called in the place of `tool`.
pub fn stands_in(other: &Definition, tool: &Definition) -> bool {
    let parse = |definition: &Definition| serde_json::from_slice::<Value>(&definition.raw);
    let (Ok(other), Ok(tool)) = (parse(other), parse(tool)) else { return false };
    takes(other.get("inputSchema"), tool.get("inputSchema"))
        && gives(other.get("outputSchema"), tool.get("outputSchema"))
}

/// A client may check results against what was published, and was told nothing of another tool.
fn gives(other: Option<&Value>, tool: Option<&Value>) -> bool {
    tool.is_none_or(|tool| other.is_some_and(|other| bare(other) == bare(tool)))
}

fn takes(other: Option<&Value>, tool: Option<&Value>) -> bool {
    let nothing = Value::Object(Map::new());
    let (other, tool) = (other.unwrap_or(&nothing), tool.unwrap_or(&nothing));
    if bare(other) == bare(tool) {
        return true;
    }
    let (Some(other), Some(tool)) = (plain(other), plain(tool)) else { return false };
    let all_known = tool.properties.iter().flat_map(|all| all.iter()).all(|(name, schema)| {
        other
            .properties
            .and_then(|all| all.get(name))
            .is_some_and(|other| bare(other) == bare(schema))
    });
    all_known && other.required.is_subset(&tool.required)
}

/// An object schema that says no more than which members there are.
struct PlainObject<'a> {
    properties: Option<&'a Map<String, Value>>,
    required: HashSet<&'a str>,
}

fn plain(schema: &Value) -> Option<PlainObject<'_>> {
    let schema = schema.as_object()?;
    let known = |key: &String| PLAIN.contains(&key.as_str()) || NOTES.contains(&key.as_str());
    let is_object = schema.get("type").is_none_or(|kind| kind == "object");
    let open_or_closed = schema.get("additionalProperties").is_none_or(Value::is_boolean);
    if !schema.keys().all(known) || !is_object || !open_or_closed {
        return None;
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    Some(PlainObject {
        properties: schema.get("properties").and_then(Value::as_object),
        required: required.filter_map(Value::as_str).collect(),
    })
}

/// A schema without what says nothing of values. A member of that name is left alone.
fn bare(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let said = members.iter().filter(|(key, _)| !NOTES.contains(&key.as_str()));
            Value::Object(said.map(|(key, value)| (key.clone(), bare_at(key, value))).collect())
        }
        other => other.clone(),
    }
}

fn bare_at(key: &str, value: &Value) -> Value {
    match (key, value) {
        // The keys are names here, and no keywords.
        ("properties" | "$defs" | "definitions" | "patternProperties", Value::Object(all)) => {
            Value::Object(all.iter().map(|(name, schema)| (name.clone(), bare(schema))).collect())
        }
        // Values that stand for themselves.
        ("enum" | "const" | "required", value) => value.clone(),
        (_, Value::Array(all)) => Value::Array(all.iter().map(bare).collect()),
        (_, value) => bare(value),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::read_definition, *};
    use crate::json::{Doc, Duplicates, Limits};

    fn tool(input: &str, output: &str) -> Definition {
        let output =
            if output.is_empty() { String::new() } else { format!(",\"outputSchema\":{output}") };
        let text = format!("{{\"name\":\"t\",\"inputSchema\":{input}{output}}}");
        let limits = Limits { depth: 64, duplicates: Duplicates::Allow, outline: 2 };
        let doc = Doc::parse(text.into(), &limits).unwrap();
        read_definition(doc.root()).unwrap()
    }

    #[test]
    fn a_tool_stands_in_where_it_takes_and_gives_what_the_other_does() {
        let id = r#"{"type":"object","properties":{"id":{"type":"string","description":"Which."}},"required":["id"]}"#;
        let same = r#"{"required":["id"],"properties":{"id":{"description":"The id.","type":"string"}},"type":"object"}"#;
        let more = r#"{"type":"object","properties":{"id":{"type":"string"},"size":{"type":"integer"}},"required":["id"]}"#;
        let needs = r#"{"type":"object","properties":{"id":{"type":"string"},"size":{"type":"integer"}},"required":["id","size"]}"#;
        let number =
            r#"{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}"#;
        let clever = r#"{"type":"object","properties":{"id":{"type":"string"}},"required":["id"],"minProperties":2}"#;
        let named = r#"{"type":"object","properties":{"title":{"type":"string"}}}"#;
        let other = r#"{"type":"object","properties":{"description":{"type":"string"}}}"#;
        let any = r#"{"type":"object"}"#;
        for (dear, cheap, expected) in [
            (id, id, true),
            (id, same, true),
            (id, more, true),
            (more, id, false),
            (id, needs, false),
            (id, number, false),
            (id, clever, false),
            (clever, clever, true),
            (named, other, false),
            (any, any, true),
            (any, id, false),
            (id, any, false),
        ] {
            assert_eq!(stands_in(&tool(cheap, ""), &tool(dear, "")), expected, "{dear} {cheap}");
        }
        let out = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;
        assert!(stands_in(&tool(id, out), &tool(id, out)));
        assert!(stands_in(&tool(id, out), &tool(id, "")));
        assert!(!stands_in(&tool(id, ""), &tool(id, out)));
    }
}
