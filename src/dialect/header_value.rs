//! The value encoding of the 2026-07-28 headers (`Mcp-Name`, `Mcp-Param-*`).
//!
//! A header can carry printable ASCII only; any other string travels as Base64 between two
//! exact markers. Which header holds what is not decided here.

use std::borrow::Cow;

use base64::{Engine, prelude::BASE64_STANDARD};

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// A header value that no string encodes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("not padded standard Base64 between the markers")]
    Base64,
    #[error("not UTF-8")]
    Utf8,
    #[error("neither printable ASCII nor marked as Base64")]
    NotPlain,
}

/// A string as a header value.
pub fn encode(text: &str) -> Cow<'_, str> {
    if is_plain(text.as_bytes()) && !is_marked(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(OPEN.len() + text.len().div_ceil(3) * 4 + CLOSE.len());
    out.push_str(OPEN);
    BASE64_STANDARD.encode_string(text, &mut out);
    out.push_str(CLOSE);
    Cow::Owned(out)
}

/// The string that a header value stands for. White space around the value, which HTTP does
/// not count as part of it, is dropped.
///
/// A value that lacks either marker is meant literally.
pub fn decode(value: &[u8]) -> Result<Cow<'_, str>, Malformed> {
    let value = trim(value);
    let marked =
        value.strip_prefix(OPEN.as_bytes()).and_then(|value| value.strip_suffix(CLOSE.as_bytes()));
    if let Some(base64) = marked {
        let bytes = BASE64_STANDARD.decode(base64).map_err(|_| Malformed::Base64)?;
        return String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Malformed::Utf8);
    }
    if !is_plain(value) {
        return Err(Malformed::NotPlain);
    }
    std::str::from_utf8(value).map(Cow::Borrowed).map_err(|_| Malformed::Utf8)
}

/// Whether a string can travel as it is: printable ASCII, no space at either end.
fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b' '..=b'~'))
        && text.first() != Some(&b' ')
        && text.last() != Some(&b' ')
}

fn is_marked(text: &str) -> bool {
    text.strip_prefix(OPEN).is_some_and(|text| text.ends_with(CLOSE))
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_string_travels_plain_where_it_can() {
        let check = |text: &str, value: &str| {
            assert_eq!(encode(text), value, "{text:?}");
            assert_eq!(decode(value.as_bytes()).as_deref(), Ok(text), "{value:?}");
        };
        check("", "");
        check("crm.find_account", "crm.find_account");
        check("a b", "a b");
        check("~!", "~!");
        check("true", "true");
        check("=?base64?", "=?base64?");
        check("=?base64?YQ==", "=?base64?YQ==");
        check("YQ==?=", "YQ==?=");
        check("=?BASE64?YQ==?=", "=?BASE64?YQ==?=");
        check("x=?base64?YQ==?=", "x=?base64?YQ==?=");
        check("=?base64?=", "=?base64?=");
        check(" a", "=?base64?IGE=?=");
        check("a ", "=?base64?YSA=?=");
        check("a\tb", "=?base64?YQli?=");
        check("\0", "=?base64?AA==?=");
        check("\x7f", "=?base64?fw==?=");
        check("Zoë", "=?base64?Wm/Dqw==?=");
        check("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?=");
        check("=?base64??=", "=?base64?PT9iYXNlNjQ/Pz0=?=");
    }

    #[test]
    fn a_value_that_nothing_encodes_to_is_refused() {
        let check = |value: &[u8], fault| assert_eq!(decode(value), Err(fault), "{value:?}");
        check(b"=?base64?YQ?=", Malformed::Base64);
        check(b"=?base64?YQ=?=", Malformed::Base64);
        check(b"=?base64?YQ===?=", Malformed::Base64);
        check(b"=?base64?YR==?=", Malformed::Base64);
        check(b"=?base64?Y Q=?=", Malformed::Base64);
        check(b"=?base64?Wm_Dqw==?=", Malformed::Base64);
        check(b"=?base64? YQ==?=", Malformed::Base64);
        check(b"=?base64?/w==?=", Malformed::Utf8);
        check("Zoë".as_bytes(), Malformed::NotPlain);
        check(b"a\tb", Malformed::NotPlain);
        check(b"\x7f", Malformed::NotPlain);
    }

    #[test]
    fn white_space_around_a_value_does_not_count() {
        for value in [" a", "a\t", " \t a \t", "\ta"] {
            assert_eq!(decode(value.as_bytes()).as_deref(), Ok("a"), "{value:?}");
        }
        assert_eq!(decode(b" =?base64?IGE=?= ").as_deref(), Ok(" a"));
        assert_eq!(decode(b" ").as_deref(), Ok(""));
    }

    proptest! {
        #[test]
        fn every_string_comes_back(text in any::<String>()) {
            let value = encode(&text);
            prop_assert!(is_plain(value.as_bytes()));
            let back = decode(value.as_bytes());
            prop_assert_eq!(back.as_deref(), Ok(text.as_str()));
        }

        #[test]
        fn decoding_never_panics(value in any::<Vec<u8>>()) {
            let _ = decode(&value);
        }
    }
}
