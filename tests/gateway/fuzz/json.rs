//! JSON and the envelope of JSON-RPC, against a parser that builds values.

use std::fmt;

use bytes::Bytes;
use hangu::{
    dialect::jsonrpc::{self, Message},
    json::{self, Doc, Duplicates, FaultKind, Kind, Limits, Value},
};
use proptest::test_runner::TestCaseError;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Built;

use super::{Verdict, holds, target};

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    " ",
    "\n",
    "\"",
    "\"a\"",
    "\"\\u0061\"",
    "\"\\u00e9\"",
    "\"é\"",
    "\"\\ud83c\\udf0d\"",
    "\"\\ud800\"",
    "\"\\n\\\\\\/\"",
    "\"\u{1}\"",
    "0",
    "-0",
    "1",
    "1.0",
    "1e2",
    "1E+2",
    "-1.5e-3",
    "12345678901234567890",
    "01",
    "1.",
    "+1",
    "true",
    "false",
    "null",
    "nul",
    "\u{feff}",
    "\"jsonrpc\":\"2.0\"",
    "\"id\":1",
    "\"id\":\"x\"",
    "\"id\":null",
    "\"method\":\"tools/call\"",
    "\"params\":{}",
    "\"result\":{}",
    "\"error\":{\"code\":-1,\"message\":\"m\"}",
    "{\"a\":",
    "[[",
    "]]",
    "\"\":1",
];

const DEPTH: usize = 24;

fn limits(duplicates: Duplicates) -> Limits {
    Limits { depth: DEPTH, duplicates, outline: 3 }
}

#[test]
fn what_is_accepted_is_json_with_the_same_value_and_each_name_once() {
    target("json", WORDS, |input, _| check(input));
}

fn check(input: &[u8]) -> Verdict {
    let text = Bytes::copy_from_slice(input);
    let strict = Doc::parse(text.clone(), &limits(Duplicates::Refuse));
    let lenient = Doc::parse(text.clone(), &limits(Duplicates::Allow));
    // What the other parser takes for its own sign, or refuses although it is legal.
    if input.windows(7).any(|part| part == b"private") {
        return Ok(());
    }
    let built = serde_json::from_slice::<Built>(input);
    let surrogate = built.as_ref().is_err_and(|error| {
        let error = error.to_string();
        error.contains("surrogate") || error.contains("hex escape")
    });
    match (&lenient, &built) {
        (Ok(_), Err(_)) => holds(surrogate, || "accepted, but it is not JSON".into())?,
        (Err(fault), Ok(_)) => {
            holds(fault.kind == FaultKind::Depth, || format!("refused, but it is JSON: {fault}"))?;
        }
        _ => {}
    }
    let Ok(doc) = &strict else {
        if let (Err(fault), Ok(_)) = (&strict, &built)
            && fault.kind == FaultKind::DuplicateKey
        {
            let twice = serde_json::from_slice::<Twice>(input).is_ok_and(|twice| twice.0);
            return holds(twice, || "no name stands twice".into());
        }
        return Ok(());
    };
    let value = doc.root();
    exact(value, &text)?;
    envelope(doc)?;
    if let Ok(built) = &built {
        same(value, built)?;
        let twice = serde_json::from_slice::<Twice>(input).is_ok_and(|twice| twice.0);
        holds(!twice, || "a name stands twice".into())?;
        canonical(value.raw())?;
    }
    Ok(())
}

/// A value's span holds it and nothing more, and what it holds is a document again.
fn exact(value: Value<'_>, text: &Bytes) -> Verdict {
    let raw = value.raw();
    let at = value.offset();
    holds(text.get(at..at + raw.len()) == Some(raw), || format!("the span at {at} is wrong"))?;
    holds(raw.trim_ascii() == raw && !raw.is_empty(), || format!("the span at {at} is not exact"))?;
    let again = Doc::parse(value.bytes(), &limits(Duplicates::Refuse));
    holds(again.is_ok_and(|again| again.root().kind() == value.kind()), || {
        format!("the value at {at} is none by itself")
    })?;
    for (key, value) in value.members() {
        let quoted = [b"\"", key.raw(), b"\""].concat();
        holds(text.windows(quoted.len()).any(|part| part == quoted), || "a key is wrong".into())?;
        exact(value, text)?;
    }
    value.elements().try_for_each(|element| exact(element, text))
}

fn same(value: Value<'_>, built: &Built) -> Verdict {
    let other = || Err(TestCaseError::fail(format!("{built} reads otherwise")));
    match (value.kind(), built) {
        (Kind::Null, Built::Null) | (Kind::True, Built::Bool(true)) => Ok(()),
        (Kind::False, Built::Bool(false)) => Ok(()),
        (Kind::String, Built::String(text)) if value.as_str().as_deref() == Some(text) => Ok(()),
        (Kind::Number, Built::Number(number)) => {
            let spelt = |text: &str| text.to_ascii_lowercase().replace("e+", "e");
            let raw = std::str::from_utf8(value.raw()).unwrap();
            let is_same = spelt(raw) == spelt(&number.to_string());
            if is_same { Ok(()) } else { other() }
        }
        (Kind::Array, Built::Array(items)) => {
            let elements: Vec<_> = value.elements().collect();
            if elements.len() != items.len() {
                return other();
            }
            elements.into_iter().zip(items).try_for_each(|(value, item)| same(value, item))
        }
        (Kind::Object, Built::Object(map)) => {
            let members: Vec<_> = value.members().collect();
            if members.len() != map.len() {
                return other();
            }
            for ((key, member), (name, built)) in members.into_iter().zip(map) {
                let found = value.get(name).map(Value::raw);
                if key.unescaped() != name.as_str() || found != Some(member.raw()) {
                    return other();
                }
                same(member, built)?;
            }
            Ok(())
        }
        _ => other(),
    }
}

/// The one canonical form has itself for canonical form.
fn canonical(raw: &[u8]) -> Verdict {
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    json::canonical(raw, &mut once);
    json::canonical(&once, &mut twice);
    holds(once == twice, || format!("{} is not canonical", once.escape_ascii()))?;
    let parsed = Doc::parse(once.into(), &limits(Duplicates::Refuse));
    holds(parsed.is_ok(), || "the canonical form is no JSON".into())
}

/// Reads the document as a message; an id is the token that was written.
fn envelope(doc: &Doc) -> Verdict {
    let id = match jsonrpc::read(doc) {
        Ok(Message::Request { id, .. } | Message::Result { id, .. }) => id,
        Ok(Message::Error { id: Some(id), .. }) => id,
        Ok(Message::Notification { .. }) => {
            return holds(doc.root().get("id").is_none(), || "a request without its id".into());
        }
        _ => return Ok(()),
    };
    let written = doc.root().get("id").map(Value::raw);
    holds(written == Some(&id[..]), || "the id is another".into())?;
    let whole = id.first() == Some(&b'"') || !id.iter().any(|byte| b".eE".contains(byte));
    holds(whole, || "the id is neither string nor integer".into())
}

/// Whether an object anywhere in it names a member twice.
struct Twice(bool);

impl<'de> Deserialize<'de> for Twice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Twice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Twice, A::Error> {
        let (mut names, mut twice) = (Vec::<String>::new(), false);
        while let Some(name) = map.next_key()? {
            twice |= names.contains(&name);
            names.push(name);
            twice |= map.next_value::<Twice>()?.0;
        }
        Ok(Twice(twice))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Twice, A::Error> {
        let mut twice = false;
        while let Some(item) = items.next_element::<Twice>()? {
            twice |= item.0;
        }
        Ok(Twice(twice))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Twice, E> {
        Ok(Twice(false))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Twice, E> {
        Ok(Twice(false))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Twice, E> {
        Ok(Twice(false))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Twice, E> {
        Ok(Twice(false))
    }

    fn visit_str<E>(self, _: &str) -> Result<Twice, E> {
        Ok(Twice(false))
    }

    fn visit_unit<E>(self) -> Result<Twice, E> {
        Ok(Twice(false))
    }
}
