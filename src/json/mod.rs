//! JSON as text: checked once, read in place, carried on as it was written.
//!
//! A [`Doc`] holds the bytes that came in and an outline of where its members lie. It does not
//! build values: numbers keep their spelling, strings their escapes, objects their order. What is
//! changed is changed in place (`splice`). Not here: what a message means (`dialect`), and schemas.

mod canonical;
mod fragment;
mod keys;
mod number;
mod parse;
mod scan;
pub mod splice;
mod unescape;
mod value;
mod write;

pub use canonical::canonical;
pub use fragment::fragment;
pub use value::{Elements, Key, Members, NumberForm, Value};
pub use write::write_str;

use std::fmt;

use bytes::Bytes;

/// What a document may look like, and how much of it is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How deep containers may nest: `[[1]]` needs 2.
    pub depth: usize,
    pub duplicates: Duplicates,
    /// Levels of containers whose members are recorded while parsing: 1 is the members of the
    /// root. Members further down can be read too, but are searched for when asked.
    pub outline: usize,
}

/// What to do with an object that names a member twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// At any depth, comparing names after unescaping.
    Refuse,
    /// Not looked for; [`Value::get`] then finds the last one, as most readers do.
    Allow,
}

/// Why a text is not a document, and at which byte that shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset}")]
pub struct Fault {
    pub kind: FaultKind,
    pub offset: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// Not JSON.
    #[error("{0}")]
    Syntax(&'static str),
    #[error("invalid UTF-8")]
    Utf8,
    #[error("nested too deeply")]
    Depth,
    #[error("duplicate object key")]
    DuplicateKey,
    #[error("something follows the document")]
    Trailing,
    /// Offsets are 32 bits wide.
    #[error("text of 4 GiB or more")]
    Length,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

/// A checked JSON text and the places of its outer members.
#[derive(Clone)]
pub struct Doc {
    text: Bytes,
    nodes: Nodes,
    /// No object names a member twice.
    unique: bool,
}

/// In the order of the text: a container comes before its members.
type Nodes = Vec<Node>;

/// Room for the outline of a usual call.
const USUAL: usize = 24;

/// A value that the outline knows.
#[derive(Debug, Clone, Copy)]
struct Node {
    start: u32,
    end: u32,
    /// Between the quotes; empty for elements and the root.
    key_start: u32,
    key_end: u32,
    /// The node after this one and all that is inside it.
    next: u32,
    kind: Kind,
    key_escaped: bool,
    /// Whether the members of this container are nodes.
    outlined: bool,
}

// === impl Doc ===

impl Doc {
    /// Checks a text from its first byte to its last, in one pass.
    ///
    /// RFC 8259 to the letter: numbers of any size, white space around the document, no byte
    /// order mark, no raw control characters in strings. Escapes of lone surrogates are legal
    /// there, so they pass.
    pub fn parse(text: Bytes, limits: &Limits) -> Result<Doc, Fault> {
        let mut doc = Doc {
            text,
            nodes: Nodes::with_capacity(USUAL),
            unique: limits.duplicates == Duplicates::Refuse,
        };
        parse::parse(&doc.text, limits, &mut doc.nodes)?;
        Ok(doc)
    }

    pub fn root(&self) -> Value<'_> {
        Value::root(self)
    }

    /// The whole text, with the white space around it.
    pub fn text(&self) -> &Bytes {
        &self.text
    }
}

/// Payloads do not belong in logs: only the size is told.
impl fmt::Debug for Doc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doc").field("len", &self.text.len()).finish_non_exhaustive()
    }
}

// === impl Fault ===

impl Fault {
    fn new(kind: FaultKind, offset: usize) -> Self {
        Self { kind, offset }
    }

    fn syntax(what: &'static str, offset: usize) -> Self {
        Self::new(FaultKind::Syntax(what), offset)
    }
}

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
