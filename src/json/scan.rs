//! The tokens of JSON: where they end, and whether they are well-formed.
//!
//! Nothing here knows of nesting, except [`skip`], which steps over a value that is already
//! known to be well-formed.

use super::{Fault, FaultKind};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// A string's end: the offset of its closing quote.
pub(super) struct StringEnd {
    pub(super) at: usize,
    pub(super) escaped: bool,
}

/// The byte at an offset, and NUL behind the end: NUL is legal nowhere, so a caller that
/// matches on what may stand here refuses both in one arm.
#[inline(always)]
pub(super) fn peek(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or(0)
}

/// The first offset from `at` on that is not white space.
#[inline(always)]
pub(super) fn white_space(text: &[u8], at: usize) -> usize {
    // Compact text is the rule between programs.
    if peek(text, at) > b' ' { at } else { white_space_run(text, at) }
}

fn white_space_run(text: &[u8], mut at: usize) -> usize {
    loop {
        match peek(text, at) {
            b' ' => {
                at += 1;
                // Indentation.
                while text.get(at..at + 8).is_some_and(|next| next == b"        ") {
                    at += 8;
                }
            }
            b'\n' | b'\r' | b'\t' => at += 1,
            _ => return at,
        }
    }
}

/// Checks the string whose opening quote is just before `start`.
#[inline]
pub(super) fn string(text: &[u8], start: usize) -> Result<StringEnd, Fault> {
    let mut at = start;
    let mut high = 0;
    let mut escaped = false;
    loop {
        at = plain(text, at, &mut high);
        match text.get(at) {
            Some(b'"') => break,
            Some(b'\\') => {
                escaped = true;
                at = escape(text, at)?;
            }
            Some(_) => return Err(Fault::syntax("control character in a string", at)),
            None => return Err(Fault::syntax("unterminated string", at)),
        }
    }
    // Outside of strings a byte that is not ASCII is a syntax error, so this is all of it.
    if high & HIGH != 0 {
        utf8(text, start, at)?;
    }
    Ok(StringEnd { at, escaped })
}

/// The first offset from `at` on that ends a plain stretch of a string: a quote, a backslash,
/// a control character or the end of the text. The stretch's high bits are added to `high`.
#[inline(always)]
fn plain(text: &[u8], at: usize, high: &mut u64) -> usize {
    let mut rest = text.get(at..).unwrap_or_default();
    // Names and short values end within these.
    for _ in 0..4 {
        let Some((word, tail)) = rest.split_first_chunk::<8>() else {
            return plain_tail(text, rest, high);
        };
        let word = u64::from_le_bytes(*word);
        let stops = stops(word);
        if stops != 0 {
            *high |= word & below(stops);
            return text.len() - rest.len() + first(stops);
        }
        *high |= word;
        rest = tail;
    }
    plain_long(text, rest, high)
}

#[inline(never)]
fn plain_long(text: &[u8], mut rest: &[u8], high: &mut u64) -> usize {
    // No early exit inside a block: that is what lets the compiler use vector registers.
    while let Some((block, tail)) = rest.split_first_chunk::<64>() {
        let mut stop = false;
        let mut bits = 0;
        for &byte in block {
            stop |= (byte == b'"') | (byte == b'\\') | (byte < b' ');
            bits |= byte;
        }
        if stop {
            break;
        }
        *high |= u64::from(bits);
        rest = tail;
    }
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        let stops = stops(word);
        if stops != 0 {
            *high |= word & below(stops);
            return text.len() - rest.len() + first(stops);
        }
        *high |= word;
        rest = tail;
    }
    plain_tail(text, rest, high)
}

fn plain_tail(text: &[u8], rest: &[u8], high: &mut u64) -> usize {
    let start = text.len() - rest.len();
    for (index, &byte) in rest.iter().enumerate() {
        if byte == b'"' || byte == b'\\' || byte < b' ' {
            return start + index;
        }
        *high |= u64::from(byte);
    }
    text.len()
}

/// The plain stretch at the start of a text that is to be, or is, the inside of a string.
pub(super) fn plain_len(text: &[u8]) -> usize {
    plain(text, 0, &mut 0)
}

/// The high bit of each byte that ends a plain stretch. Exact up to and including the lowest
/// one; a borrow can set bits above it.
#[inline(always)]
fn stops(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let quotes = quote.wrapping_sub(ONES) & !quote;
    let backslashes = backslash.wrapping_sub(ONES) & !backslash;
    let controls = word.wrapping_sub(ONES * b' ' as u64) & !word;
    (quotes | backslashes | controls) & HIGH
}

/// All bits below the lowest one set.
#[inline(always)]
fn below(stops: u64) -> u64 {
    (stops & stops.wrapping_neg()).wrapping_sub(1)
}

/// The byte, in the order of the text, of the lowest bit set.
#[inline(always)]
fn first(stops: u64) -> usize {
    (stops.trailing_zeros() / 8) as usize
}

/// Checks the escape whose backslash is at `at`; gives what comes after it.
fn escape(text: &[u8], at: usize) -> Result<usize, Fault> {
    match peek(text, at + 1) {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(at + 2),
        b'u' => match text.get(at + 2..at + 6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(at + 6),
            _ => Err(Fault::syntax("\\u without four hex digits", at)),
        },
        _ => Err(Fault::syntax("unknown escape", at)),
    }
}

fn utf8(text: &[u8], start: usize, end: usize) -> Result<(), Fault> {
    match std::str::from_utf8(text.get(start..end).unwrap_or_default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Fault::new(FaultKind::Utf8, start + error.valid_up_to())),
    }
}

/// Checks the number that starts at `at` with a digit or a minus; gives what comes after it.
#[inline]
pub(super) fn number(text: &[u8], mut at: usize) -> Result<usize, Fault> {
    if peek(text, at) == b'-' {
        at += 1;
    }
    at = match peek(text, at) {
        b'0' if peek(text, at + 1).is_ascii_digit() => {
            return Err(Fault::syntax("number with a leading zero", at));
        }
        b'0' => at + 1,
        _ => digits(text, at)?,
    };
    if peek(text, at) == b'.' {
        at = digits(text, at + 1)?;
    }
    if matches!(peek(text, at), b'e' | b'E') {
        at += 1;
        if matches!(peek(text, at), b'+' | b'-') {
            at += 1;
        }
        at = digits(text, at)?;
    }
    Ok(at)
}

/// One digit or more.
#[inline(always)]
fn digits(text: &[u8], start: usize) -> Result<usize, Fault> {
    let mut at = start;
    while peek(text, at).is_ascii_digit() {
        at += 1;
    }
    if at == start { Err(Fault::syntax("digit expected", at)) } else { Ok(at) }
}

/// Checks one of the three names; gives what comes after it.
#[inline]
pub(super) fn literal(text: &[u8], at: usize, name: &str) -> Result<usize, Fault> {
    match text.get(at..at + name.len()) {
        Some(found) if found == name.as_bytes() => Ok(at + name.len()),
        _ => Err(Fault::syntax("value expected", at)),
    }
}

/// Steps over the well-formed string whose opening quote is just before `at`: gives its closing
/// quote and whether there were escapes.
pub(super) fn skip_string(text: &[u8], mut at: usize) -> StringEnd {
    let mut escaped = false;
    loop {
        at = plain(text, at, &mut 0);
        if peek(text, at) != b'\\' {
            return StringEnd { at, escaped };
        }
        escaped = true;
        at += 2;
    }
}

/// Steps over the well-formed value that starts at `at`.
pub(super) fn skip(text: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    loop {
        match peek(text, at) {
            b'"' => at = skip_string(text, at + 1).at + 1,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
                continue;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' => {
                at += 1;
                continue;
            }
            // At least one byte on, so that this ends on any text.
            _ => at = scalar_end(text, at).max(at + 1),
        }
        if depth == 0 || at >= text.len() {
            return at;
        }
    }
}

/// The end of the well-formed number or name that starts at `at`.
pub(super) fn scalar_end(text: &[u8], mut at: usize) -> usize {
    while !matches!(peek(text, at), 0 | b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') {
        at += 1;
    }
    at
}
