//! The tokens of JSON: where they end, and whether they are well-formed.
//!
//! Nothing here knows of nesting, except [`skip`], which steps over a value that is already
//! known to be well-formed.

use super::Fault;

const ONES: u64 = 0x0101_0101_0101_0101;
const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// After so many words without a stop a string is taken to be a long one.
const MANY_WORDS: u32 = 8;

const CONTROL: &str = "control character in a string";

/// A string's end: the offset of its closing quote.
#[derive(Clone, Copy)]
pub(super) struct StringEnd {
    pub(super) at: usize,
    pub(super) escaped: bool,
    /// There is an escape that is not the shortest way to write its character.
    pub(super) roundabout: bool,
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
            // Indentation is a run of them.
            b' ' => at += leading(word(text, at) ^ (ONES * b' ' as u64)),
            b'\n' | b'\r' | b'\t' => at += 1,
            _ => return at,
        }
    }
}

/// How many bytes at the start of a word are zero.
#[inline(always)]
fn leading(word: u64) -> usize {
    (word.trailing_zeros() / 8) as usize
}

/// Checks the string whose opening quote is just before `start`, in a text that is UTF-8.
/// `controls` tells whether there are control characters anywhere in the text.
#[inline(always)]
pub(super) fn string(text: &[u8], start: usize, controls: bool) -> Result<StringEnd, Fault> {
    // Most names and short values take this way.
    let rest = text.get(start..).unwrap_or_default();
    if let Some(block) = rest.first_chunk::<16>()
        && let Some(len) = quote_or_backslash(block)
        && rest.get(len) == Some(&b'"')
        && !(controls && has_control(block, len))
    {
        return Ok(StringEnd { at: start + len, escaped: false, roundabout: false });
    }
    long_string(text, start, controls)
}

#[inline(never)]
fn long_string(text: &[u8], start: usize, controls: bool) -> Result<StringEnd, Fault> {
    let rest = text.get(start..).unwrap_or_default();
    let Some(len) = quote_or_backslash(rest) else { return Err(unterminated(text)) };
    if controls {
        no_controls(text, start, start + len)?;
    }
    if rest.get(len) == Some(&b'"') {
        return Ok(StringEnd { at: start + len, escaped: false, roundabout: false });
    }
    escaped_string(text, start + len)
}

/// Goes on at a string's first backslash.
#[inline(never)]
fn escaped_string(text: &[u8], mut at: usize) -> Result<StringEnd, Fault> {
    let mut plain_words = 0;
    let mut roundabout = false;
    'words: loop {
        let word = word(text, at);
        let mut stops = stops(word);
        // Escapes come in crowds: all those in one word are dealt with at one look.
        while stops != 0 {
            let bit = stops.trailing_zeros() & !7;
            let index = (bit / 8) as usize;
            match (word >> bit) as u8 {
                b'"' => {
                    return Ok(StringEnd { at: at + index, escaped: true, roundabout });
                }
                b'\\' => {
                    plain_words = 0;
                    let escape = escape(text, at + index)?;
                    roundabout |= escape.roundabout;
                    let next = index + escape.len;
                    if next >= 8 {
                        at += next;
                        continue 'words;
                    }
                    stops &= u64::MAX << (8 * next);
                }
                _ if at + index >= text.len() => return Err(unterminated(text)),
                _ => return Err(Fault::syntax(CONTROL, at + index)),
            }
        }
        at += 8;
        plain_words += 1;
        if plain_words == MANY_WORDS {
            plain_words = 0;
            let rest = text.get(at..).unwrap_or_default();
            let len = quote_or_backslash(rest).unwrap_or(rest.len());
            no_controls(text, at, at + len)?;
            at += len;
        }
    }
}

/// Where the first quote or backslash is.
#[inline(always)]
fn quote_or_backslash(text: &[u8]) -> Option<usize> {
    // Most strings end within the first register; the check for wider ones costs more than
    // that.
    #[cfg(target_arch = "x86_64")]
    if let Some(two) = memchr::arch::x86_64::sse2::memchr::Two::new(b'"', b'\\') {
        return two.find(text);
    }
    memchr::memchr2(b'"', b'\\', text)
}

/// Whether there is a control character in the first `len` bytes.
#[inline(always)]
fn has_control(block: &[u8; 16], len: usize) -> bool {
    let [first, second] = [0, 8].map(|at| controls(word(block, at)));
    let len = 8 * len as u32;
    first.trailing_zeros() < len || second.trailing_zeros() + 64 < len
}

fn no_controls(text: &[u8], start: usize, end: usize) -> Result<(), Fault> {
    let plain = text.get(start..end).unwrap_or_default();
    if plain.iter().fold(u8::MAX, |lowest, &byte| lowest.min(byte)) >= b' ' {
        return Ok(());
    }
    let control = plain.iter().position(|&byte| byte < b' ').unwrap_or(0);
    Err(Fault::syntax(CONTROL, start + control))
}

#[cold]
fn unterminated(text: &[u8]) -> Fault {
    Fault::syntax("unterminated string", text.len())
}

/// How much at the start of a text can stand in a string as it is.
pub(super) fn plain_len(text: &[u8]) -> usize {
    let mut rest = text;
    // No early exit inside of a block: so the compiler can use what vectors there are.
    while let Some((block, tail)) = rest.split_first_chunk::<64>() {
        let stop = |byte: u8| (byte == b'"') | (byte == b'\\') | (byte < b' ');
        if block.iter().fold(false, |found, &byte| found | stop(byte)) {
            break;
        }
        rest = tail;
    }
    loop {
        let at = text.len() - rest.len();
        let stops = stops(word(text, at));
        if stops != 0 {
            return (at + (stops.trailing_zeros() / 8) as usize).min(text.len());
        }
        rest = rest.get(8..).unwrap_or_default();
    }
}

/// The eight bytes from `at` on, the first one lowest. Behind the end of the text come NULs,
/// which are stops.
#[inline(always)]
pub(super) fn word(text: &[u8], at: usize) -> u64 {
    let rest = text.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// The high bit of each byte that is a quote, a backslash or a control character.
#[inline(always)]
fn stops(word: u64) -> u64 {
    // The high bit of each byte that is not zero; no carry crosses from one to the next.
    let nonzero = |word: u64| ((word & LOW) + LOW) | word;
    let quotes = nonzero(word ^ (ONES * b'"' as u64));
    let backslashes = nonzero(word ^ (ONES * b'\\' as u64));
    !(quotes & backslashes) & HIGH | controls(word)
}

/// The high bit of each byte that is a control character.
#[inline(always)]
fn controls(word: u64) -> u64 {
    !(((word & (ONES * 0x60)) + LOW) | word) & HIGH
}

struct Escape {
    len: usize,
    roundabout: bool,
}

/// Checks the escape whose backslash is at `at`.
#[inline(always)]
fn escape(text: &[u8], at: usize) -> Result<Escape, Fault> {
    match peek(text, at + 1) {
        b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(Escape { len: 2, roundabout: false }),
        b'/' => Ok(Escape { len: 2, roundabout: true }),
        b'u' => match text.get(at + 2..at + 6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => {
                Ok(Escape { len: 6, roundabout: true })
            }
            _ => Err(Fault::syntax("\\u without four hex digits", at)),
        },
        _ => Err(Fault::syntax("unknown escape", at)),
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
/// quote and what was escaped.
pub(super) fn skip_string(text: &[u8], at: usize) -> StringEnd {
    let end = StringEnd { at: text.len(), escaped: true, roundabout: true };
    string(text, at, false).unwrap_or(end)
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
