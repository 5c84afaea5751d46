//! The canonical form of a JSON text: what is hashed and compared.
//!
//! RFC 8785, written from the text itself, with one difference that is meant: numbers are exact
//! decimals (see [`number::write_canonical`]), not doubles, so that 2^53 + 1 is not 2^53.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::{
    number, scan,
    unescape::{self, Piece, Pieces},
    write::{write_ascii, write_unit},
};

/// Appends the canonical form of one well-formed JSON value ([`super::Value::raw`]).
///
/// Without white space; members ordered by the UTF-16 code units of their names; strings
/// escaped as little as may be; numbers as exact decimals: `1`, `1.0` and `1e0` are `1`, `-0`
/// is `0`, `1E400` is `1e+400`. An escaped lone surrogate, for which RFC 8785 has no form,
/// stays an escape, in lower case. Members of one name, where they were allowed, keep their
/// order.
///
/// A text that is in this form already is copied in one piece. Needs no stack per level; on
/// bytes that are not JSON the outcome is some bytes, never a panic.
pub fn canonical(value: &[u8], out: &mut Vec<u8>) {
    out.reserve(value.len());
    let mut writer = Writer {
        text: value,
        at: 0,
        copied: 0,
        out,
        stack: SmallVec::new(),
        members: SmallVec::new(),
        scratch: Vec::new(),
    };
    writer.run();
}

struct Writer<'t, 'o> {
    text: &'t [u8],
    at: usize,
    /// Up to here the text is in `out`; what lies between this and `at` goes there unchanged.
    copied: usize,
    out: &'o mut Vec<u8>,
    stack: SmallVec<[Open; 12]>,
    /// The members of all open objects so far.
    members: SmallVec<[Member<'t>; 16]>,
    scratch: Vec<u8>,
}

struct Open {
    object: bool,
    /// Where this object's members begin in `members`.
    first: usize,
    sorted: bool,
}

#[derive(Clone, Copy)]
struct Member<'t> {
    /// The name as it was written.
    key: &'t [u8],
    escaped: bool,
    /// Of the whole member in `out`.
    start: usize,
    end: usize,
}

impl<'t> Writer<'t, '_> {
    fn run(&mut self) {
        let mut key_next = false;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'"' => {
                    self.string(key_next);
                    key_next = false;
                }
                b'{' | b'[' => {
                    key_next = byte == b'{';
                    self.at += 1;
                    let first = self.members.len();
                    self.stack.push(Open { object: key_next, first, sorted: true });
                }
                b'}' | b']' => self.close(),
                b',' => {
                    self.end_member();
                    key_next = self.stack.last().is_some_and(|open| open.object);
                    self.at += 1;
                }
                b':' => self.at += 1,
                b' ' | b'\n' | b'\r' | b'\t' => {
                    self.flush();
                    self.at = scan::white_space(self.text, self.at);
                    self.copied = self.at;
                }
                b'-' | b'0'..=b'9' => self.number(),
                _ => self.at = scan::scalar_end(self.text, self.at).max(self.at + 1),
            }
        }
        self.flush();
    }

    fn string(&mut self, is_key: bool) {
        let start = self.at + 1;
        let end = scan::skip_string(self.text, start);
        let inside = self.text.get(start..end.at).unwrap_or_default();
        if is_key {
            self.start_member(inside, end.escaped);
        }
        if end.roundabout {
            self.at = start;
            self.flush();
            rewrite(inside, self.out);
            self.copied = end.at;
        }
        self.at = (end.at + 1).min(self.text.len());
    }

    fn number(&mut self) {
        let end = scan::scalar_end(self.text, self.at);
        let number = self.text.get(self.at..end).unwrap_or_default();
        if !number::is_canonical(number) {
            self.flush();
            number::write_canonical(number, self.out);
            self.copied = end;
        }
        self.at = end;
    }

    fn start_member(&mut self, key: &'t [u8], escaped: bool) {
        let start = self.here();
        let Some(open) = self.stack.last_mut() else { return };
        if let Some(before) = self.members.get(open.first..).and_then(<[_]>::last)
            && order((before.key, before.escaped), (key, escaped)) == Ordering::Greater
        {
            open.sorted = false;
        }
        self.members.push(Member { key, escaped, start, end: start });
    }

    fn end_member(&mut self) {
        let end = self.here();
        if let Some(open) = self.stack.last()
            && open.object
            && let Some(member) = self.members.last_mut()
        {
            member.end = end;
        }
    }

    fn close(&mut self) {
        self.end_member();
        if let Some(open) = self.stack.pop() {
            if !open.sorted {
                self.sort(open.first);
            }
            self.members.truncate(open.first);
        }
        self.at += 1;
    }

    /// Puts the members of the innermost object, all written by now, into order.
    fn sort(&mut self, first: usize) {
        self.flush();
        let members = self.members.get_mut(first..).unwrap_or_default();
        let Some(start) = members.first().map(|member| member.start) else { return };
        members.sort_by(|a, b| order((a.key, a.escaped), (b.key, b.escaped)));
        self.scratch.clear();
        for (index, member) in members.iter().enumerate() {
            if index > 0 {
                self.scratch.push(b',');
            }
            self.scratch
                .extend_from_slice(self.out.get(member.start..member.end).unwrap_or_default());
        }
        self.out.truncate(start);
        self.out.extend_from_slice(&self.scratch);
    }

    /// Copies what goes unchanged, up to here.
    fn flush(&mut self) {
        self.out.extend_from_slice(self.text.get(self.copied..self.at).unwrap_or_default());
        self.copied = self.at;
    }

    /// Where in `out` the byte at `at` will come to stand.
    fn here(&self) -> usize {
        self.out.len() + (self.at - self.copied)
    }
}

/// Appends the inside of a string with its escapes made canonical.
fn rewrite(inside: &[u8], out: &mut Vec<u8>) {
    for piece in Pieces(inside) {
        match piece {
            Piece::Plain(plain) => out.extend_from_slice(plain),
            Piece::Escaped(char) if char < '\u{80}' => write_ascii(out, char as u8),
            Piece::Escaped(char) => {
                out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Piece::Surrogate(unit) => write_unit(out, unit),
        }
    }
}

/// The order of two names by their UTF-16 code units; each comes with whether it has escapes.
fn order((a, a_escaped): (&[u8], bool), (b, b_escaped): (&[u8], bool)) -> Ordering {
    if a_escaped || b_escaped {
        return units(a).cmp(units(b));
    }
    let Some((a, b)) = a.iter().zip(b).find(|(a, b)| a != b) else { return a.len().cmp(&b.len()) };
    // UTF-8 sorts by code point. UTF-16 sorts by code unit, and the surrogates that make up the
    // characters of four bytes (0xf0 and up) come before those that begin with 0xee and 0xef.
    match (a, b) {
        (0xf0.., 0xee..0xf0) => Ordering::Less,
        (0xee..0xf0, 0xf0..) => Ordering::Greater,
        _ => a.cmp(b),
    }
}

fn units(inside: &[u8]) -> impl Iterator<Item = u16> {
    Pieces(inside).flat_map(|piece| {
        let (plain, char, unit) = match piece {
            Piece::Plain(plain) => (unescape::plain(plain), None, None),
            Piece::Escaped(char) => ("", Some(char), None),
            Piece::Surrogate(unit) => ("", None, Some(unit)),
        };
        let escaped = char.map(|char| {
            let mut units = [0; 2];
            let len = char.encode_utf16(&mut units).len();
            units.into_iter().take(len)
        });
        plain.encode_utf16().chain(escaped.into_iter().flatten()).chain(unit)
    })
}

#[cfg(test)]
mod tests;
