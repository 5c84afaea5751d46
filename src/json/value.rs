//! A value inside a document, and the ways to read it.

use std::borrow::Cow;

use bytes::Bytes;

use super::{Doc, Kind, Node, scan, unescape};

/// Of a value that the outline does not know.
const NONE: u32 = u32::MAX;

/// A value, where it stands in its document.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    doc: &'a Doc,
    start: u32,
    end: u32,
    node: u32,
    kind: Kind,
}

/// The name of a member, as it was written.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    doc: &'a Doc,
    start: u32,
    end: u32,
    escaped: bool,
}

/// How a number is spelled, which tells an integer from what only amounts to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberForm {
    /// Digits alone: `1`, `-0`.
    Integer,
    /// With a fraction or an exponent, but whole: `1.0`, `1e2`, `10e-1`.
    Whole,
    /// `1.5`, `1e-1`.
    Fractional,
}

/// The members of an object, in their order.
#[derive(Debug, Clone)]
pub struct Members<'a>(Children<'a>);

/// The elements of an array, in their order.
#[derive(Debug, Clone)]
pub struct Elements<'a>(Children<'a>);

/// Either the outline's nodes, or the text itself where the outline does not reach.
#[derive(Debug, Clone)]
enum Children<'a> {
    Outline { doc: &'a Doc, at: u32, end: u32 },
    Text { doc: &'a Doc, at: u32, end: u32, keyed: bool },
}

// === impl Value ===

impl<'a> Value<'a> {
    pub(super) fn root(doc: &'a Doc) -> Self {
        match doc.nodes.first() {
            Some(node) => Self::of(doc, 0, node),
            // A parsed document has a root.
            None => Self { doc, start: 0, end: 0, node: NONE, kind: Kind::Null },
        }
    }

    fn of(doc: &'a Doc, index: u32, node: &Node) -> Self {
        Self { doc, start: node.start, end: node.end, node: index, kind: node.kind }
    }

    pub fn kind(self) -> Kind {
        self.kind
    }

    /// The value as it was written.
    pub fn raw(self) -> &'a [u8] {
        slice(self.doc, self.start, self.end)
    }

    /// The value as it was written, sharing the document's memory.
    pub fn bytes(self) -> Bytes {
        self.doc.text.slice(self.start as usize..self.end as usize)
    }

    /// Where the value begins in the document's text.
    pub fn offset(self) -> usize {
        self.start as usize
    }

    /// The members of an object; none of any other value.
    pub fn members(self) -> Members<'a> {
        Members(self.children(Kind::Object))
    }

    /// The elements of an array; none of any other value.
    pub fn elements(self) -> Elements<'a> {
        Elements(self.children(Kind::Array))
    }

    /// The member of that name. Of several, which only [`super::Duplicates::Allow`] lets
    /// through, the last.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        if self.kind != Kind::Object {
            return None;
        }
        match self.outline() {
            Some(node) => self.get_outlined(node, name),
            None => self.members().filter(|(key, _)| key.is(name)).last().map(|(_, value)| value),
        }
    }

    fn get_outlined(self, node: &Node, name: &str) -> Option<Value<'a>> {
        let doc = self.doc;
        let nodes = doc.nodes.get(..node.next as usize)?;
        let mut found = None;
        let mut at = self.node + 1;
        while let Some(member) = nodes.get(at as usize) {
            // The length tells nearly all names apart.
            if member.key_escaped || (member.key_end - member.key_start) as usize == name.len() {
                let key = Key::of(doc, member);
                if key.is(name) {
                    let value = Value::of(doc, at, member);
                    if doc.unique {
                        return Some(value);
                    }
                    found = Some(value);
                }
            }
            at = member.next;
        }
        found
    }

    /// The node of a container whose members are nodes.
    fn outline(self) -> Option<&'a Node> {
        self.doc.nodes.get(self.node as usize).filter(|node| node.outlined)
    }

    /// A string's text; U+FFFD stands for an escaped lone surrogate.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        let inside = self.inside()?;
        Some(unescape::text(inside, memchr::memchr(b'\\', inside).is_some()))
    }

    /// Whether this is a string of that text; nothing is copied to find out.
    pub fn is_str(self, text: &str) -> bool {
        self.inside().is_some_and(|inside| unescape::reads_as(inside, text))
    }

    /// An integer that is spelled as one and fits.
    pub fn as_i64(self) -> Option<i64> {
        if self.number_form()? != NumberForm::Integer {
            return None;
        }
        std::str::from_utf8(self.raw()).ok()?.parse().ok()
    }

    pub fn as_bool(self) -> Option<bool> {
        match self.kind {
            Kind::True => Some(true),
            Kind::False => Some(false),
            _ => None,
        }
    }

    pub fn is_null(self) -> bool {
        self.kind == Kind::Null
    }

    /// How a number is spelled; nothing for any other value.
    pub fn number_form(self) -> Option<NumberForm> {
        (self.kind == Kind::Number).then(|| super::number::form(self.raw()))
    }

    /// Between a string's quotes.
    fn inside(self) -> Option<&'a [u8]> {
        match (self.kind, self.raw()) {
            (Kind::String, [_, inside @ .., _]) => Some(inside),
            _ => None,
        }
    }

    fn children(self, kind: Kind) -> Children<'a> {
        let doc = self.doc;
        if self.kind != kind {
            return Children::Outline { doc, at: 0, end: 0 };
        }
        match self.outline() {
            Some(node) => Children::Outline { doc, at: self.node + 1, end: node.next },
            None => Children::Text {
                doc,
                at: self.start + 1,
                end: self.end - 1,
                keyed: kind == Kind::Object,
            },
        }
    }
}

// === impl Key ===

impl<'a> Key<'a> {
    fn of(doc: &'a Doc, node: &Node) -> Self {
        Self { doc, start: node.key_start, end: node.key_end, escaped: node.key_escaped }
    }

    /// Between the quotes, escapes and all.
    pub fn raw(self) -> &'a [u8] {
        slice(self.doc, self.start, self.end)
    }

    /// Between the quotes, escapes and all, sharing the document's memory.
    pub fn bytes(self) -> Bytes {
        self.doc.text.slice(self.start as usize..self.end as usize)
    }

    /// The name; U+FFFD stands for an escaped lone surrogate.
    pub fn unescaped(self) -> Cow<'a, str> {
        unescape::text(self.raw(), self.escaped)
    }

    /// The name in bytes, to be compared with several at once; a lone surrogate's are no UTF-8.
    pub fn name(self) -> Cow<'a, [u8]> {
        if !self.escaped {
            return Cow::Borrowed(self.raw());
        }
        let mut name = Vec::new();
        unescape::to_wtf8(self.raw(), &mut name);
        Cow::Owned(name)
    }

    /// Whether the name is that one, however it is escaped.
    pub fn is(self, name: &str) -> bool {
        if self.escaped {
            return unescape::reads_as(self.raw(), name);
        }
        self.raw() == name.as_bytes()
    }
}

// === impl Members, Elements ===

impl<'a> Iterator for Members<'a> {
    type Item = (Key<'a>, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(_, value)| value)
    }
}

// === impl Children ===

impl<'a> Children<'a> {
    fn next(&mut self) -> Option<(Key<'a>, Value<'a>)> {
        match self {
            Children::Outline { doc, at, end } => {
                if *at >= *end {
                    return None;
                }
                let node = doc.nodes.get(*at as usize)?;
                let key = Key::of(doc, node);
                let value = Value::of(doc, *at, node);
                *at = node.next;
                Some((key, value))
            }
            Children::Text { doc, at, end, keyed } => {
                let (child, next) = read(doc, *at, *end, *keyed)?;
                *at = next;
                Some(child)
            }
        }
    }
}

/// Reads one child of a checked container from its text; gives what comes behind it.
fn read(doc: &Doc, at: u32, end: u32, keyed: bool) -> Option<((Key<'_>, Value<'_>), u32)> {
    let text = doc.text.get(..end as usize)?;
    let mut at = separators(text, at as usize);
    if at >= text.len() {
        return None;
    }
    let mut key = Key { doc, start: 0, end: 0, escaped: false };
    if keyed {
        let close = scan::skip_string(text, at + 1);
        key = Key { doc, start: at as u32 + 1, end: close.at as u32, escaped: close.escaped };
        at = separators(text, close.at + 1);
    }
    let kind = match scan::peek(text, at) {
        b'{' => Kind::Object,
        b'[' => Kind::Array,
        b'"' => Kind::String,
        b't' => Kind::True,
        b'f' => Kind::False,
        b'n' => Kind::Null,
        _ => Kind::Number,
    };
    let close = scan::skip(text, at);
    let value = Value { doc, start: at as u32, end: close as u32, node: NONE, kind };
    Some(((key, value), close as u32))
}

fn separators(text: &[u8], mut at: usize) -> usize {
    while matches!(scan::peek(text, at), b',' | b':' | b' ' | b'\n' | b'\r' | b'\t') {
        at += 1;
    }
    at
}

fn slice(doc: &Doc, start: u32, end: u32) -> &[u8] {
    doc.text.get(start as usize..end as usize).unwrap_or_default()
}
