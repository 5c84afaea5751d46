//! Where in a value another one stands: a JSON pointer, or names with dots between them.

use std::fmt;

use bytes::Bytes;

use crate::json::{Doc, Duplicates, Kind, Limits, Value};

/// The longest path, in bytes.
const MAX_PATH: usize = 1_024;

/// What is looked into was JSON when it came.
pub(super) const VALUES: Limits = Limits { depth: 512, duplicates: Duplicates::Allow, outline: 2 };

/// A path as it was written, and its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path {
    text: Box<str>,
    parts: Box<[Box<str>]>,
}

/// Why a path leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    /// How many of its parts were found.
    pub found: usize,
    pub why: &'static str,
}

// === impl Path ===

impl Path {
    /// Reads a path; the error goes on after "`path` ".
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        if text.len() > MAX_PATH {
            return Err("is longer than 1024 bytes");
        }
        let parts: Option<Box<[Box<str>]>> = match text.strip_prefix('/') {
            Some(inside) => inside.split('/').map(unescaped).collect(),
            None if text.split('.').any(str::is_empty) => {
                return Err("has an empty name: it is `/a/b` or `a.b`");
            }
            None => Some(text.split('.').map(Box::from).collect()),
        };
        let parts = parts.ok_or("is no JSON pointer: `~` is `~0` there, and `/` is `~1`")?;
        Ok(Self { text: text.into(), parts })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it leads to the value as a whole.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What is found, as it is written there. A text on the way that holds JSON is looked into,
    /// if texts are.
    pub(super) fn follow(&self, value: Value<'_>, into_texts: bool) -> Result<Bytes, Lost> {
        follow(&self.parts, value, into_texts, 0)
    }

    /// The path up to so many of its parts, for a message.
    pub(super) fn beginning(&self, parts: usize) -> String {
        let mut out = String::new();
        for part in self.parts.iter().take(parts) {
            out.push('/');
            out.push_str(&escaped(part));
        }
        out
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn follow(
    parts: &[Box<str>],
    mut value: Value<'_>,
    into_texts: bool,
    mut found: usize,
) -> Result<Bytes, Lost> {
    while let Some(part) = parts.get(found) {
        let next = match value.kind() {
            Kind::Object => value.get(part).ok_or("has no such member"),
            Kind::Array => match index(part) {
                Some(index) => value.elements().nth(index).ok_or("has fewer elements"),
                None => Err("is a list, whose elements have numbers"),
            },
            Kind::String if into_texts => {
                let text = value.as_str().unwrap_or_default().into_owned();
                let doc = Doc::parse(text.into(), &VALUES);
                return match doc {
                    // One text holds no other that is as long: this ends.
                    Ok(doc) => follow(parts, doc.root(), true, found),
                    Err(_) => Err(Lost { found, why: "is a text that holds no JSON" }),
                };
            }
            Kind::String => Err("is a text, and has no members"),
            Kind::Number | Kind::True | Kind::False => Err("has no members"),
            Kind::Null => Err("is null"),
        };
        value = next.map_err(|why| Lost { found, why })?;
        found += 1;
    }
    Ok(value.bytes())
}

/// An index as JSON pointers write it.
fn index(part: &str) -> Option<usize> {
    let plain = part == "0" || !part.starts_with('0');
    let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    (plain && digits).then(|| part.parse().ok()).flatten()
}

/// A name as a JSON pointer has it.
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn unescaped(part: &str) -> Option<Box<str>> {
    let mut out = String::with_capacity(part.len());
    let mut chars = part.chars();
    while let Some(c) = chars.next() {
        match c {
            '~' => out.push(match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            }),
            c => out.push(c),
        }
    }
    Some(out.into())
}
