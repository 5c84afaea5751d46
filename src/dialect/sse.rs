//! Event streams (`text/event-stream`) as the WHATWG HTML standard frames them.
//!
//! Works on bytes: what an event's data means, and whether it is UTF-8, is for its reader. Knows
//! nothing of connections, timeouts or resuming.

use std::{collections::VecDeque, mem};

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

const BOM: &[u8] = "\u{feff}".as_bytes();

/// One block of fields that came to its blank line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    pub event: Option<Bytes>,
    /// The data lines joined by LF. A block without any, or with empty ones only, is an event
    /// too, although a browser would not dispatch it: its reader ignores it.
    pub data: Bytes,
    /// As this block set it; it stays in force for the blocks after it.
    pub id: Option<Bytes>,
    /// Milliseconds to wait before connecting again.
    pub retry: Option<u64>,
}

/// An event that exceeds the cap; nothing more is read from its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event of more than {0} bytes")]
pub struct TooLarge(pub usize);

/// Takes a stream's bytes as they come, gives its events as soon as they are whole.
///
/// An event whose data is one line inside one chunk shares that chunk's memory; data that is
/// spread over more is copied together once.
#[derive(Debug)]
pub struct Parser {
    max: usize,
    /// Not read yet.
    chunk: Bytes,
    queue: VecDeque<Bytes>,
    /// The start of a line whose end has not come.
    line: Vec<u8>,
    /// The last line ended with CR, so an LF that comes next belongs to it.
    after_cr: bool,
    at_start: bool,
    failed: bool,
    block: Block,
}

/// The fields since the last blank line.
#[derive(Debug, Default)]
struct Block {
    event: Option<Bytes>,
    data: Data,
    id: Option<Bytes>,
    retry: Option<u64>,
    /// Of all that is kept here.
    size: usize,
    any: bool,
}

#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    One(Bytes),
    Joined(Vec<u8>),
}

// === impl Parser ===

impl Parser {
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            max: max_event_bytes,
            chunk: Bytes::new(),
            queue: VecDeque::new(),
            line: Vec::new(),
            after_cr: false,
            at_start: true,
            failed: false,
            block: Block::default(),
        }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() && self.queue.is_empty() {
            self.chunk = chunk;
        } else {
            self.queue.push_back(chunk);
        }
    }

    /// The next event that is whole. After an error there are none.
    #[expect(clippy::should_implement_trait, reason = "None is not the end: push goes on")]
    pub fn next(&mut self) -> Option<Result<Event, TooLarge>> {
        while !self.failed {
            if self.chunk.is_empty() {
                self.chunk = self.queue.pop_front()?;
                continue;
            }
            if mem::take(&mut self.after_cr) && self.chunk.first() == Some(&b'\n') {
                self.chunk.advance(1);
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', &self.chunk);
            let len = end.unwrap_or(self.chunk.len());
            if self.block.size + self.line.len() + len > self.max {
                self.failed = true;
                return Some(Err(TooLarge(self.max)));
            }
            if end.is_none() {
                self.line.extend_from_slice(&mem::take(&mut self.chunk));
                continue;
            }
            let line = self.take_line(len);
            if line.is_empty() {
                if let Some(event) = mem::take(&mut self.block).finish() {
                    return Some(Ok(event));
                }
            } else {
                self.block.field(line);
            }
        }
        None
    }

    /// The stream has ended, and [`Parser::next`] has given its last event: whether the end cut
    /// one off, which is then lost, as the standard says.
    pub fn finish(self) -> bool {
        self.failed || self.block.any || !self.line.is_empty() || !self.chunk.is_empty()
    }

    /// Takes the line that ends `len` bytes into the chunk, and its end.
    fn take_line(&mut self, len: usize) -> Bytes {
        let mut line = self.chunk.split_to(len);
        if !self.line.is_empty() {
            self.line.extend_from_slice(&line);
            line = Bytes::from(mem::take(&mut self.line));
        }
        let (len, after_cr) = match &self.chunk[..] {
            [b'\r', b'\n', ..] => (2, false),
            [b'\r', ..] => (1, true),
            _ => (1, false),
        };
        self.after_cr = after_cr;
        self.chunk.advance(len);
        if mem::take(&mut self.at_start) && line.starts_with(BOM) {
            line.advance(BOM.len());
        }
        line
    }
}

// === impl Block ===

impl Block {
    /// Reads one line that is not empty.
    fn field(&mut self, line: Bytes) {
        let colon = memchr::memchr(b':', &line).unwrap_or(line.len());
        let (name, rest) = line.split_at(colon);
        let skip = match rest {
            [b':', b' ', ..] => 2,
            [b':', ..] => 1,
            _ => 0,
        };
        let value = || line.slice(colon + skip..);
        match name {
            b"data" => self.data.push(value()),
            b"event" => self.event = Some(value()),
            b"id" if memchr::memchr(0, rest).is_none() => self.id = Some(value()),
            b"retry" => match milliseconds(rest.get(skip..).unwrap_or_default()) {
                Some(retry) => self.retry = Some(retry),
                None => return,
            },
            // A comment has the empty name.
            _ => return,
        }
        self.any = true;
        self.size += line.len();
    }

    fn finish(self) -> Option<Event> {
        let Block { event, data, id, retry, any, .. } = self;
        let data = match data {
            Data::None => Bytes::new(),
            Data::One(line) => line,
            Data::Joined(lines) => lines.into(),
        };
        any.then_some(Event { event, data, id, retry })
    }
}

// === impl Data ===

impl Data {
    fn push(&mut self, line: Bytes) {
        *self = match mem::take(self) {
            Data::None => Data::One(line),
            Data::One(first) => Data::Joined([&first[..], b"\n", &line[..]].concat()),
            Data::Joined(mut lines) => {
                lines.push(b'\n');
                lines.extend_from_slice(&line);
                Data::Joined(lines)
            }
        };
    }
}

/// Digits only; a number beyond all measure counts as not given.
fn milliseconds(value: &[u8]) -> Option<u64> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Frames one message, given in pieces, as an event of type `message`.
///
/// The pieces are passed on as they are, unless one holds line breaks, as indented JSON does:
/// each line is then a data line of its own.
pub fn encode(message: impl IntoIterator<Item = Bytes>) -> SmallVec<[Bytes; 5]> {
    let mut parts = SmallVec::new();
    parts.push(Bytes::from_static(b"event: message\ndata: "));
    parts.extend(message.into_iter().map(split_lines));
    parts.push(Bytes::from_static(b"\n\n"));
    parts
}

fn split_lines(piece: Bytes) -> Bytes {
    let Some(first) = memchr::memchr2(b'\n', b'\r', &piece) else { return piece };
    let mut out = Vec::with_capacity(piece.len() * 2);
    let (line, mut rest) = piece.split_at(first);
    out.extend_from_slice(line);
    while let Some(after) = rest.strip_prefix(b"\r\n").or_else(|| rest.get(1..)) {
        out.extend_from_slice(b"\ndata: ");
        let end = memchr::memchr2(b'\n', b'\r', after).unwrap_or(after.len());
        let (line, next) = after.split_at(end);
        out.extend_from_slice(line);
        rest = next;
    }
    out.into()
}

#[cfg(test)]
mod tests;
