//! YAML as operators write it: strict, and with the place of every key and value.
//!
//! A text becomes a tree of [`Node`]s first; `read` turns nodes into types and gathers what is
//! wrong. Booleans are `true` and `false` only, merge keys are refused, aliases are bounded.
//! Nothing here knows any file's keys, only the
//! names of callers, roles and the like that several files speak of.

mod expand;
mod fast;
mod format;
mod names;
mod parse;
mod read;
mod units;

use crate::fault::Span;

pub use expand::{Env, expand};
pub use format::format;
pub use names::{RISKS, VERSION, check_name};
pub use parse::parse;
#[cfg(test)]
pub use read::seen;
pub use read::{FromNode, MapReader, Spanned, Words, parsed};
pub use units::{ByteSize, Rate, duration_text, parse_duration};

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub at: Span,
    pub value: Value,
    /// A scalar as it stands in the file, quotes and all; empty for the rest.
    pub raw: String,
    /// Variables were put into it.
    pub expanded: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// Also an integer that fits nowhere; nothing that Hangu reads is a fraction.
    Float(f64),
    Text(String),
    Seq(Vec<Node>),
    Map(Vec<Entry>),
    /// Nobody knows, and that was reported: whoever reads it adds nothing.
    Unknown,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_at: Span,
    pub value: Node,
}

impl Node {
    /// What the value is, in words: for "expected …, found …".
    pub fn describe(&self) -> &'static str {
        match &self.value {
            Value::Null | Value::Unknown => "nothing",
            Value::Bool(_) => "a truth value",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::Seq(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// Whether it is the same but for its place and how it is written.
    pub fn says_the_same(&self, other: &Node) -> bool {
        match (&self.value, &other.value) {
            (Value::Seq(own), Value::Seq(others)) => {
                own.len() == others.len()
                    && own.iter().zip(others).all(|(own, other)| own.says_the_same(other))
            }
            (Value::Map(own), Value::Map(others)) => {
                let same = |(own, other): (&Entry, &Entry)| {
                    own.key == other.key && own.value.says_the_same(&other.value)
                };
                own.len() == others.len() && own.iter().zip(others).all(same)
            }
            (own, other) => own == other,
        }
    }

    fn is_plain(&self) -> bool {
        !self.raw.starts_with(['"', '\''])
    }
}

#[cfg(test)]
mod tests;
