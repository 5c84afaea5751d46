//! The one pass over a text: grammar, depth, duplicate names, and the outline.
//!
//! A loop with its own stack, so that nesting costs heap and never the thread's stack.

use std::mem;

use smallvec::SmallVec;

use super::{
    Duplicates, Fault, FaultKind, Kind, Limits, Node, Nodes,
    keys::{Keys, Scope},
    scan::{self, peek, white_space},
};

/// Of a container whose node is not recorded.
const NONE: u32 = u32::MAX;

/// Checks a text, and adds its outline to `nodes`.
pub(super) fn parse(text: &[u8], limits: &Limits, nodes: &mut Nodes) -> Result<(), Fault> {
    if text.len() >= NONE as usize {
        return Err(Fault::new(FaultKind::Length, 0));
    }
    let text = trim_end(text);
    // What is nowhere in the text, strings need not look for; and this look is a fast one.
    let (lowest, bits) =
        text.iter().fold((u8::MAX, 0), |(lowest, bits), &byte| (lowest.min(byte), bits | byte));
    if !bits.is_ascii()
        && let Err(error) = std::str::from_utf8(text)
    {
        return Err(Fault::new(FaultKind::Utf8, error.valid_up_to()));
    }
    let controls = lowest < b' ';
    let keys = Keys::new(text);
    Parser { text, controls, limits: *limits, outer: SmallVec::new(), keys, nodes }.run()
}

struct Parser<'t> {
    text: &'t [u8],
    /// Whether there are control characters anywhere.
    controls: bool,
    limits: Limits,
    /// What is open around the innermost container; first the document itself.
    outer: SmallVec<[Open; 12]>,
    keys: Keys<'t>,
    nodes: &'t mut Nodes,
}

/// A container that has begun, or the document.
#[derive(Default)]
struct Open {
    within: Within,
    node: u32,
    scope: Scope,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Within {
    #[default]
    Document,
    Array,
    Object,
}

/// The name of the value that comes next; empty for elements and the root.
#[derive(Clone, Copy, Default)]
struct KeySpan {
    start: u32,
    end: u32,
    escaped: bool,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), Fault> {
        let text = self.text;
        let mut at = white_space(text, 0);
        let mut key = KeySpan::default();
        let mut top = Open::default();
        loop {
            let bracket = peek(text, at);
            let (within, close) = match bracket {
                b'{' => (Within::Object, b'}'),
                b'[' => (Within::Array, b']'),
                _ => (Within::Document, 0),
            };
            if within == Within::Document {
                at = self.scalar(bracket, at, key)?;
            } else {
                self.open(&mut top, within, at, key)?;
                at = white_space(text, at + 1);
                if peek(text, at) != close {
                    (key, at) = self.next(&mut top, at)?;
                    continue;
                }
            }
            // A value has ended, or the container that is about to ends with the next byte.
            loop {
                at = white_space(text, at);
                match (peek(text, at), top.within) {
                    (b',', Within::Array | Within::Object) => break,
                    (b'}', Within::Object) | (b']', Within::Array) => {
                        at += 1;
                        self.close(&mut top, at);
                    }
                    (_, within) => return self.end(within, at),
                }
            }
            at = white_space(text, at + 1);
            (key, at) = self.next(&mut top, at)?;
        }
    }

    /// Checks a value that holds no others; gives what comes after it.
    #[inline(always)]
    fn scalar(&mut self, first: u8, start: usize, key: KeySpan) -> Result<usize, Fault> {
        let text = self.text;
        let (kind, end) = match first {
            b'"' => (Kind::String, scan::string(text, start + 1, self.controls)?.at + 1),
            b'-' | b'0'..=b'9' => (Kind::Number, scan::number(text, start)?),
            b't' => (Kind::True, scan::literal(text, start, "true")?),
            b'f' => (Kind::False, scan::literal(text, start, "false")?),
            b'n' => (Kind::Null, scan::literal(text, start, "null")?),
            _ => return Err(Fault::syntax("value expected", start)),
        };
        if self.outer.len() <= self.limits.outline {
            self.record(kind, start, end, key);
        }
        Ok(end)
    }

    /// Enters a container.
    #[inline(always)]
    fn open(
        &mut self,
        top: &mut Open,
        within: Within,
        start: usize,
        key: KeySpan,
    ) -> Result<(), Fault> {
        let depth = self.outer.len();
        if depth >= self.limits.depth {
            return Err(Fault::new(FaultKind::Depth, start));
        }
        let kind = if within == Within::Object { Kind::Object } else { Kind::Array };
        let node =
            if depth <= self.limits.outline { self.record(kind, start, start, key) } else { NONE };
        let inner = Open { within, node, scope: self.keys.open() };
        self.outer.push(mem::replace(top, inner));
        Ok(())
    }

    /// Leaves the innermost container, which ended just before `end`.
    #[inline(always)]
    fn close(&mut self, top: &mut Open, end: usize) {
        let closed = mem::replace(top, self.outer.pop().unwrap_or_default());
        self.keys.close(&closed.scope);
        let next = self.nodes.len() as u32;
        if let Some(node) = self.nodes.get_mut(closed.node as usize) {
            node.end = end as u32;
            node.next = next;
        }
    }

    /// Goes to where the next value of the innermost container starts, over its name if it has
    /// one.
    #[inline(always)]
    fn next(&mut self, top: &mut Open, at: usize) -> Result<(KeySpan, usize), Fault> {
        if top.within == Within::Array {
            return Ok((KeySpan::default(), at));
        }
        let text = self.text;
        if peek(text, at) != b'"' {
            return Err(Fault::syntax("object key expected", at));
        }
        let end = scan::string(text, at + 1, self.controls)?;
        let key = KeySpan { start: at as u32 + 1, end: end.at as u32, escaped: end.escaped };
        if self.limits.duplicates == Duplicates::Refuse
            && !self.keys.insert(&mut top.scope, key.start, key.end, key.escaped)
        {
            return Err(Fault::new(FaultKind::DuplicateKey, at));
        }
        let colon = white_space(text, end.at + 1);
        if peek(text, colon) != b':' {
            return Err(Fault::syntax("':' expected", colon));
        }
        Ok((key, white_space(text, colon + 1)))
    }

    /// Adds a value to the outline.
    #[inline(always)]
    fn record(&mut self, kind: Kind, start: usize, end: usize, key: KeySpan) -> u32 {
        let index = self.nodes.len() as u32;
        self.nodes.push(Node {
            start: start as u32,
            end: end as u32,
            key_start: key.start,
            key_end: key.end,
            next: index + 1,
            kind,
            key_escaped: key.escaped,
            outlined: self.outer.len() < self.limits.outline,
        });
        index
    }

    /// Neither a comma nor the right bracket follows: only the end of the document may.
    #[inline(never)]
    fn end(&self, within: Within, at: usize) -> Result<(), Fault> {
        match within {
            Within::Document if at == self.text.len() => Ok(()),
            Within::Document => Err(Fault::new(FaultKind::Trailing, at)),
            Within::Array => Err(Fault::syntax("',' or ']' expected", at)),
            Within::Object => Err(Fault::syntax("',' or '}' expected", at)),
        }
    }
}

/// Without the white space at the end: the line feed there is no reason to look for others.
fn trim_end(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\n' | b'\r' | b'\t'] = text {
        text = rest;
    }
    text
}
