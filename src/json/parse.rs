//! The one pass over a text: grammar, depth, duplicate names, and the outline.
//!
//! A loop with its own stack, so that nesting costs heap and never the thread's stack.

use smallvec::SmallVec;

use super::{
    Duplicates, Fault, FaultKind, Kind, Limits, Node, Nodes,
    keys::{Keys, Scope},
    scan,
};

/// Of a container whose node is not recorded.
const NONE: u32 = u32::MAX;

pub(super) fn parse(text: &[u8], limits: &Limits) -> Result<Nodes, Fault> {
    if text.len() >= NONE as usize {
        return Err(Fault::new(FaultKind::Length, 0));
    }
    let mut parser = Parser {
        text,
        at: 0,
        limits: *limits,
        stack: SmallVec::new(),
        keys: Keys::new(text),
        nodes: SmallVec::new(),
    };
    parser.run()?;
    Ok(parser.nodes)
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    limits: Limits,
    /// The containers that are open, the innermost last.
    stack: SmallVec<[Open<'t>; 12]>,
    keys: Keys<'t>,
    nodes: Nodes,
}

struct Open<'t> {
    node: u32,
    object: bool,
    scope: Scope<'t>,
}

/// The name of the value that comes next; empty for elements and the root.
#[derive(Clone, Copy, Default)]
struct KeySpan {
    start: u32,
    end: u32,
    escaped: bool,
}

impl<'t> Parser<'t> {
    fn run(&mut self) -> Result<(), Fault> {
        let mut key = KeySpan::default();
        self.white_space();
        loop {
            // A value starts here.
            match self.peek() {
                open @ (b'{' | b'[') => {
                    if let Some(first) = self.open(open == b'{', key)? {
                        key = first;
                        continue;
                    }
                }
                other => self.scalar(other, key)?,
            }
            // A value has just ended, and with it perhaps the containers around it.
            loop {
                self.white_space();
                let Some(top) = self.stack.last() else { return self.end() };
                let object = top.object;
                match (self.peek(), object) {
                    (b',', _) => {
                        self.at += 1;
                        self.white_space();
                        key = if object { self.key()? } else { KeySpan::default() };
                        break;
                    }
                    (b'}', true) | (b']', false) => self.close(),
                    (_, true) => return Err(Fault::syntax("',' or '}' expected", self.at)),
                    (_, false) => return Err(Fault::syntax("',' or ']' expected", self.at)),
                }
            }
        }
    }

    #[inline(always)]
    fn scalar(&mut self, first: u8, key: KeySpan) -> Result<(), Fault> {
        let start = self.at;
        let (kind, end) = match first {
            b'"' => (Kind::String, scan::string(self.text, start + 1)?.at + 1),
            b'-' | b'0'..=b'9' => (Kind::Number, scan::number(self.text, start)?),
            b't' => (Kind::True, scan::literal(self.text, start, "true")?),
            b'f' => (Kind::False, scan::literal(self.text, start, "false")?),
            b'n' => (Kind::Null, scan::literal(self.text, start, "null")?),
            _ => return Err(Fault::syntax("value expected", start)),
        };
        self.at = end;
        if self.stack.len() <= self.limits.outline {
            self.record(kind, start, end, key);
        }
        Ok(())
    }

    /// Opens a container: gives the name of its first member (empty for an element), or nothing
    /// if the container ends at once.
    #[inline]
    fn open(&mut self, object: bool, key: KeySpan) -> Result<Option<KeySpan>, Fault> {
        let start = self.at;
        let depth = self.stack.len();
        if depth >= self.limits.depth {
            return Err(Fault::new(FaultKind::Depth, start));
        }
        let node = if depth <= self.limits.outline {
            let kind = if object { Kind::Object } else { Kind::Array };
            self.record(kind, start, start, key)
        } else {
            NONE
        };
        self.at += 1;
        self.stack.push(Open { node, object, scope: self.keys.open() });
        self.white_space();
        if self.peek() == if object { b'}' } else { b']' } {
            self.close();
            return Ok(None);
        }
        if object { self.key().map(Some) } else { Ok(Some(KeySpan::default())) }
    }

    /// Ends the innermost container at its closing bracket.
    #[inline]
    fn close(&mut self) {
        self.at += 1;
        let Some(top) = self.stack.pop() else { return };
        if top.object {
            self.keys.close(&top.scope);
        }
        let next = self.nodes.len() as u32;
        if let Some(node) = self.nodes.get_mut(top.node as usize) {
            node.end = self.at as u32;
            node.next = next;
        }
    }

    /// Reads a name and the colon behind it, up to the value.
    #[inline(always)]
    fn key(&mut self) -> Result<KeySpan, Fault> {
        if self.peek() != b'"' {
            return Err(Fault::syntax("object key expected", self.at));
        }
        let start = self.at + 1;
        let end = scan::string(self.text, start)?;
        let key = KeySpan { start: start as u32, end: end.at as u32, escaped: end.escaped };
        if self.limits.duplicates == Duplicates::Refuse
            && let Some(top) = self.stack.last_mut()
            && !self.keys.insert(&mut top.scope, key.start, key.end, key.escaped)
        {
            return Err(Fault::new(FaultKind::DuplicateKey, start - 1));
        }
        self.at = end.at + 1;
        self.white_space();
        if self.peek() != b':' {
            return Err(Fault::syntax("':' expected", self.at));
        }
        self.at += 1;
        self.white_space();
        Ok(key)
    }

    /// Adds a value to the outline.
    #[inline]
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
            outlined: self.stack.len() < self.limits.outline,
        });
        index
    }

    fn end(&self) -> Result<(), Fault> {
        if self.at == self.text.len() {
            return Ok(());
        }
        Err(Fault::new(FaultKind::Trailing, self.at))
    }

    #[inline(always)]
    fn peek(&self) -> u8 {
        scan::peek(self.text, self.at)
    }

    #[inline(always)]
    fn white_space(&mut self) {
        self.at = scan::white_space(self.text, self.at);
    }
}
