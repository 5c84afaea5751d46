//! The inside of a JSON string, read without its escapes.
//!
//! Units, as the escapes of UTF-16 code units may be halves of one character. What cannot be
//! told in UTF-8, a lone surrogate, is kept apart from every character: in bytes as WTF-8 (its
//! three-byte form), and only in a `str` as U+FFFD.

use std::{borrow::Cow, char::REPLACEMENT_CHARACTER};

use super::scan;

/// A piece of a string's inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Text that was written as it is.
    Plain(&'a [u8]),
    /// A character that was escaped.
    Escaped(char),
    /// An escaped surrogate without its other half.
    Surrogate(u16),
}

/// The pieces of a well-formed inside, in order.
#[derive(Debug, Clone)]
pub(super) struct Pieces<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let Some((b'\\', rest)) = self.0.split_first() else {
            if self.0.is_empty() {
                return None;
            }
            // Never 0: the text is well-formed, so only a backslash ends a stretch.
            let (plain, rest) = self.0.split_at(scan::plain_len(self.0).max(1));
            self.0 = rest;
            return Some(Piece::Plain(plain));
        };
        let (&letter, rest) = rest.split_first()?;
        self.0 = rest;
        Some(match letter {
            b'b' => Piece::Escaped('\u{8}'),
            b'f' => Piece::Escaped('\u{c}'),
            b'n' => Piece::Escaped('\n'),
            b'r' => Piece::Escaped('\r'),
            b't' => Piece::Escaped('\t'),
            b'u' => {
                let (piece, rest) = unit(rest);
                self.0 = rest;
                piece
            }
            other => Piece::Escaped(char::from(other)),
        })
    }
}

/// The character of the `\u` escape whose digits come first, and of the next escape where the
/// two make a pair; with what is behind.
fn unit(text: &[u8]) -> (Piece<'static>, &[u8]) {
    let (unit, rest) = hex(text);
    if let Some(char) = char::from_u32(u32::from(unit)) {
        return (Piece::Escaped(char), rest);
    }
    if let Some(after) = rest.strip_prefix(b"\\u") {
        let (low, rest) = hex(after);
        if let Some(Ok(char)) = char::decode_utf16([unit, low]).next() {
            return (Piece::Escaped(char), rest);
        }
    }
    (Piece::Surrogate(unit), rest)
}

fn hex(text: &[u8]) -> (u16, &[u8]) {
    let (digits, rest) = text.split_at(text.len().min(4));
    let value = digits.iter().fold(0, |value, &digit| {
        value << 4 | char::from(digit).to_digit(16).map_or(0, |digit| digit as u16)
    });
    (value, rest)
}

/// Appends the inside of a string as WTF-8.
pub(super) fn to_wtf8(inside: &[u8], out: &mut Vec<u8>) {
    for piece in Pieces(inside) {
        match piece {
            Piece::Plain(plain) => out.extend_from_slice(plain),
            Piece::Escaped(char) => {
                out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Piece::Surrogate(unit) => out.extend_from_slice(&surrogate(unit)),
        }
    }
}

/// The inside of a string, with U+FFFD for each lone surrogate.
pub(super) fn text(inside: &[u8], escaped: bool) -> Cow<'_, str> {
    if !escaped {
        return Cow::Borrowed(plain(inside));
    }
    let mut out = String::with_capacity(inside.len());
    for piece in Pieces(inside) {
        match piece {
            Piece::Plain(text) => out.push_str(self::plain(text)),
            Piece::Escaped(char) => out.push(char),
            Piece::Surrogate(_) => out.push(REPLACEMENT_CHARACTER),
        }
    }
    Cow::Owned(out)
}

/// A piece of a checked document between two ASCII characters, so it is UTF-8.
pub(super) fn plain(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap_or_default()
}

/// Whether the inside of a string reads as `wanted`.
pub(super) fn reads_as(inside: &[u8], wanted: &str) -> bool {
    let mut wanted = wanted.as_bytes();
    for piece in Pieces(inside) {
        let mut utf8 = [0; 4];
        let rest = match piece {
            Piece::Plain(plain) => wanted.strip_prefix(plain),
            Piece::Escaped(char) => wanted.strip_prefix(char.encode_utf8(&mut utf8).as_bytes()),
            Piece::Surrogate(_) => None,
        };
        let Some(rest) = rest else { return false };
        wanted = rest;
    }
    wanted.is_empty()
}

fn surrogate(unit: u16) -> [u8; 3] {
    let low = |bits: u16| 0x80 | (bits & 0x3f) as u8;
    [0xe0 | (unit >> 12) as u8, low(unit >> 6), low(unit)]
}
