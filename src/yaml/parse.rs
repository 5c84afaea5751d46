//! Text to nodes, by `serde-saphyr`.
//!
//! Duplicate keys are let through to the reader, which reports each of them; the parser itself
//! would stop at the first.

use std::{fmt, sync::Arc};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, MergeKeyPolicy, Options, Spanned};

use super::{Entry, Node, Value};
use crate::fault::{Fault, FaultCode, Source, Span};

/// The largest file that is read, in bytes: a directory of some hundred thousand employees.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Reads every document of a text. An empty one is none.
pub fn parse(source: &Arc<Source>) -> Result<Vec<Node>, Fault> {
    if source.text.len() > MAX_BYTES {
        let at = Span::file(source.name.clone());
        return Err(Fault::new(FaultCode::Syntax, &at, "the file is larger than 32 MiB"));
    }
    // A bomb needs aliases, and those are none of its business.
    if let Some(documents) = super::fast::parse(source) {
        return Ok(documents);
    }
    parse_thoroughly(source)
}

/// Reads all that YAML has.
pub(super) fn parse_thoroughly(source: &Arc<Source>) -> Result<Vec<Node>, Fault> {
    let documents: Vec<Parsed> =
        serde_saphyr::from_str_multiple_with_options(&source.text, options())
            .map_err(|error| syntax(source, &error))?;
    Ok(documents.into_iter().map(|parsed| parsed.place(source)).collect())
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_nodes: 4_000_000,
            max_events: 12_000_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 8,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        null_as_string: true,
        with_snippet: false,
    }
}

fn syntax(source: &Arc<Source>, error: &serde_saphyr::Error) -> Fault {
    let text = error.to_string();
    // The parser tells the place at the end of its sentence; ours stands beside it.
    let message = text.split_once(" at line ").map_or(text.as_str(), |(sentence, _)| sentence);
    let at = match error.location() {
        Some(location) => span(source, location),
        None => Span { source: source.clone(), line: 0, column: 0, length: 0 },
    };
    Fault::new(FaultCode::Syntax, &at, message)
}

fn span(source: &Arc<Source>, location: Location) -> Span {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Span {
        source: source.clone(),
        line: number(location.line()),
        column: number(location.column()),
        length: number(location.span().len()),
    }
}

/// A node before it knows its file.
struct Parsed(Spanned<ParsedValue>);

enum ParsedValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Seq(Vec<Parsed>),
    Map(Vec<(Spanned<String>, Parsed)>),
}

impl Parsed {
    fn place(self, source: &Arc<Source>) -> Node {
        let location = self.0.defined;
        let at = span(source, location);
        let mut raw = "";
        let value = match self.0.value {
            ParsedValue::Seq(items) => {
                Value::Seq(items.into_iter().map(|item| item.place(source)).collect())
            }
            ParsedValue::Map(entries) => {
                Value::Map(entries.into_iter().map(|entry| place_entry(source, entry)).collect())
            }
            scalar => {
                raw = slice(&source.text, location);
                match scalar {
                    ParsedValue::Bool(value) => Value::Bool(value),
                    ParsedValue::Int(value) => Value::Int(value),
                    ParsedValue::Float(value) => Value::Float(value),
                    ParsedValue::Text(value) => Value::Text(value),
                    _ => Value::Null,
                }
            }
        };
        Node { at, value, raw: raw.to_owned(), expanded: false }
    }
}

fn place_entry(source: &Arc<Source>, (key, value): (Spanned<String>, Parsed)) -> Entry {
    Entry { key_at: span(source, key.defined), key: key.value, value: value.place(source) }
}

fn slice(text: &str, location: Location) -> &str {
    let range = location.span().byte_offset().zip(location.span().byte_len());
    range
        .and_then(|(start, length)| {
            let start = usize::try_from(start).ok()?;
            let end = start.checked_add(usize::try_from(length).ok()?)?;
            text.get(start..end)
        })
        .unwrap_or_default()
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Parsed)
    }
}

impl<'de> Deserialize<'de> for ParsedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = ParsedValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<ParsedValue, E> {
        // Beyond i64 a number is only ever refused, with its text as it was written.
        Ok(i64::try_from(value).map_or(ParsedValue::Float(f64::INFINITY), ParsedValue::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<ParsedValue, E> {
        Ok(ParsedValue::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ParsedValue, A::Error> {
        let mut seq = Vec::new();
        while let Some(item) = items.next_element()? {
            seq.push(item);
        }
        Ok(ParsedValue::Seq(seq))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ParsedValue, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(ParsedValue::Map(map))
    }
}
