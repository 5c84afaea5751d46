//! The argument by which a model gives an idempotency key to a tool that knows none.
//!
//! It is put into the published schema here and taken out of a call's arguments here; for which
//! tools is not decided here.

use std::borrow::Cow;

use bytes::Bytes;

use crate::json::{Doc, Duplicates, Kind, Limits, Value};

/// Its name.
pub const KEY_ARGUMENT: &str = "idempotencyKey";

/// Its schema. Not listed as required: the header and `_meta` may hold the key as well.
const PROPERTY: &[u8] = br#""idempotencyKey":{"type":"string","minLength":1,"maxLength":255,"description":"One key for one intended effect: the same for every try of it, a new one for the next."}"#;

/// What is rewritten here was read before.
const LIMITS: Limits = Limits { depth: usize::MAX, duplicates: Duplicates::Allow, outline: 3 };

/// A definition that tells of the argument.
pub fn with_key_argument(definition: &Bytes) -> Bytes {
    let Ok(doc) = Doc::parse(definition.clone(), &LIMITS) else { return definition.clone() };
    let root = doc.root();
    let (object, insert): (Value<'_>, Cow<'_, [u8]>) = match root.get("inputSchema") {
        None => (root, wrapped(br#""inputSchema":{"type":"object","properties":{"#, b"}}")),
        Some(schema) => match schema.get("properties") {
            None => (schema, wrapped(br#""properties":{"#, b"}")),
            Some(properties) => (properties, PROPERTY.into()),
        },
    };
    if object.kind() != Kind::Object {
        return definition.clone();
    }
    let inside = object.offset() + 1;
    let (Some(head), Some(tail)) = (definition.get(..inside), definition.get(inside..)) else {
        return definition.clone();
    };
    let mut out = Vec::with_capacity(definition.len() + insert.len() + 1);
    out.extend_from_slice(head);
    out.extend_from_slice(&insert);
    if object.members().next().is_some() {
        out.push(b',');
    }
    out.extend_from_slice(tail);
    out.into()
}

fn wrapped(before: &[u8], after: &[u8]) -> Cow<'static, [u8]> {
    [before, PROPERTY, after].concat().into()
}

/// Arguments without the key, and the key's value as it was written; `None` where there is none.
pub fn take_key_argument(arguments: &Bytes) -> Option<(Bytes, Bytes)> {
    let doc = Doc::parse(arguments.clone(), &LIMITS).ok()?;
    let root = doc.root();
    let key = root.get(KEY_ARGUMENT)?.bytes();
    let mut rest = Vec::with_capacity(arguments.len());
    rest.push(b'{');
    for (name, value) in root.members().filter(|(name, _)| !name.is(KEY_ARGUMENT)) {
        if rest.len() > 1 {
            rest.push(b',');
        }
        rest.push(b'"');
        rest.extend_from_slice(name.raw());
        rest.extend_from_slice(b"\":");
        rest.extend_from_slice(value.raw());
    }
    rest.push(b'}');
    Some((rest.into(), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_is_put_into_any_schema_and_nothing_else_changes() {
        let property = String::from_utf8(PROPERTY.into()).unwrap();
        let cases = [
            (
                r#"{"name":"a","inputSchema":{"type":"object","properties":{"n":{}}},"x":1.0}"#,
                r#"{"name":"a","inputSchema":{"type":"object","properties":{KEY,"n":{}}},"x":1.0}"#,
            ),
            (r#"{"inputSchema":{"properties":{ }}}"#, r#"{"inputSchema":{"properties":{KEY }}}"#),
            (
                r#"{"inputSchema":{"type":"object"}}"#,
                r#"{"inputSchema":{"properties":{KEY},"type":"object"}}"#,
            ),
            (r#"{"inputSchema":{}}"#, r#"{"inputSchema":{"properties":{KEY}}}"#),
            (
                r#"{"name":"a"}"#,
                r#"{"inputSchema":{"type":"object","properties":{KEY}},"name":"a"}"#,
            ),
            (r#"{"inputSchema":true}"#, r#"{"inputSchema":true}"#),
        ];
        for (listed, published) in cases {
            let told = with_key_argument(&Bytes::from_static(listed.as_bytes()));
            assert_eq!(told, published.replace("KEY", &property), "{listed}");
        }
    }

    #[test]
    fn the_key_is_taken_out_and_the_rest_stays_as_it_was_written() {
        let cases = [
            (r#"{"idempotencyKey":"k"}"#, Some(("{}", r#""k""#))),
            (
                r#"{ "b" : 1.0, "idempotency\u004bey": 7 ,"\u0061":[ 1 ]}"#,
                Some((r#"{"b":1.0,"\u0061":[ 1 ]}"#, "7")),
            ),
            (r#"{"x":{"idempotencyKey":"k"}}"#, None),
            ("{}", None),
        ];
        for (given, wanted) in cases {
            let taken = take_key_argument(&Bytes::from_static(given.as_bytes()));
            let wanted = wanted.map(|(rest, key)| (Bytes::from(rest), Bytes::from(key)));
            assert_eq!(taken, wanted, "{given}");
        }
    }
}
