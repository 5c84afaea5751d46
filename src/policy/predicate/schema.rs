//! Conditions held against the schema of the arguments they are about.
//!
//! Only what is certain is told: a schema that is too clever to be read here says nothing.

use super::{Predicate, Scalar, Test, index};
use crate::json::{Kind, Value};

/// How a condition does not fit a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// The tool has no such argument.
    Missing,
    /// The argument is never of the type that the condition asks for.
    Type { wanted: &'static str, found: String },
}

/// Keywords beside which a schema's `properties` and `type` do not tell everything.
const CLEVER: [&str; 8] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "patternProperties",
    "dependentSchemas",
];

/// Holds a condition against a tool's `inputSchema`.
pub fn check(predicate: &Predicate, schema: Value<'_>) -> Option<Misfit> {
    let mut at = schema;
    for step in predicate.pointer.steps() {
        if at.kind() != Kind::Object || CLEVER.iter().any(|key| at.get(key).is_some()) {
            return None;
        }
        let member = at.get("properties").and_then(|properties| properties.get(step));
        at = match (member, at.get("items")) {
            (Some(member), _) => member,
            (None, Some(items)) if index(step).is_some() => items,
            // An open map: its members are not listed.
            (None, _)
                if at.get("additionalProperties").is_some_and(|a| a.kind() == Kind::Object) =>
            {
                return None;
            }
            (None, _) => return Some(Misfit::Missing),
        };
    }
    let types = types(at)?;
    let wanted = predicate.test.types();
    let met = wanted.iter().any(|wanted| {
        types.iter().any(|found| found == wanted || (*wanted == "number" && found == "integer"))
    });
    (!met).then(|| Misfit::Type {
        wanted: wanted.first().copied().unwrap_or("value"),
        found: types.join(" or "),
    })
}

/// The types that an argument may have; `None` where the schema does not plainly say.
fn types(schema: Value<'_>) -> Option<Vec<String>> {
    if schema.kind() != Kind::Object || CLEVER.iter().any(|key| schema.get(key).is_some()) {
        return None;
    }
    let given = schema.get("type")?;
    match given.as_str() {
        Some(one) => Some(vec![one.into_owned()]),
        None => given.elements().map(|one| one.as_str().map(Into::into)).collect(),
    }
    .filter(|types: &Vec<String>| !types.is_empty())
}

impl Test {
    /// The JSON types that can satisfy it.
    fn types(&self) -> Vec<&'static str> {
        match self {
            Test::Eq(scalar) => vec![scalar.type_name()],
            Test::In(scalars) | Test::NotIn(scalars) => {
                scalars.iter().map(Scalar::type_name).collect()
            }
            Test::Prefix(_) | Test::Glob(_) | Test::Regex(_) => vec!["string"],
            Test::Range { .. } => vec!["number"],
            Test::MaxLen(_) => vec!["string", "array"],
        }
    }
}

impl Scalar {
    fn type_name(&self) -> &'static str {
        match self {
            Scalar::Null => "null",
            Scalar::Bool(_) => "boolean",
            Scalar::Number(..) => "number",
            Scalar::Text(_) => "string",
        }
    }
}
