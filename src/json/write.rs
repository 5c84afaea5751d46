//! Writing JSON strings.

use super::scan;

/// Appends a string with its quotes, escaped as little as JSON allows: the form of RFC 8785.
pub fn write_str(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut text = text.as_bytes();
    loop {
        let (plain, rest) = text.split_at(scan::plain_len(text));
        out.extend_from_slice(plain);
        let Some((&byte, rest)) = rest.split_first() else { break };
        write_ascii(out, byte);
        text = rest;
    }
    out.push(b'"');
}

/// Appends an ASCII character, as an escape if it needs one.
pub(super) fn write_ascii(out: &mut Vec<u8>, byte: u8) {
    let letter = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        ..b' ' => return write_unit(out, u16::from(byte)),
        _ => return out.push(byte),
    };
    out.extend_from_slice(&[b'\\', letter]);
}

/// Appends a code unit as four hex digits in lower case.
pub(super) fn write_unit(out: &mut Vec<u8>, unit: u16) {
    let digit = |shift: u16| match (unit >> shift & 0xf) as u8 {
        low @ 0..10 => b'0' + low,
        high => b'a' + high - 10,
    };
    out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}
