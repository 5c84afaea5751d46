//! Writing JSON strings.

use super::scan;

/// Appends a string with its quotes, escaped as little as JSON allows: the form of RFC 8785.
pub fn write_str(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    write_inside(out, text.as_bytes());
    out.push(b'"');
}

/// Appends the inside of a string.
pub(super) fn write_inside(out: &mut Vec<u8>, mut text: &[u8]) {
    loop {
        let (plain, rest) = text.split_at(scan::plain_len(text));
        out.extend_from_slice(plain);
        let Some((&byte, rest)) = rest.split_first() else { return };
        write_escape(out, byte);
        text = rest;
    }
}

/// Appends a quote, a backslash or a control character as an escape.
fn write_escape(out: &mut Vec<u8>, byte: u8) {
    let letter = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        _ => return write_unit(out, u16::from(byte)),
    };
    out.extend_from_slice(&[b'\\', letter]);
}

/// Appends a code unit as four hex digits in lower case.
pub(super) fn write_unit(out: &mut Vec<u8>, unit: u16) {
    let digit = |shift: u16| b"0123456789abcdef"[usize::from(unit >> shift & 0xf)];
    out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}
