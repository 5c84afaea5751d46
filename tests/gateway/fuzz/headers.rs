//! Strings as header values, and back.

use base64::{Engine, prelude::BASE64_STANDARD};
use hangu::dialect::header_value::{decode, encode};

use super::{Verdict, holds, target};

const WORDS: &[&str] = &[
    "=?base64?",
    "?=",
    "YQ==",
    "YQ=",
    "YR==",
    "YWI=",
    "Y\nQ==",
    "-_8=",
    "+/8=",
    "4pyT",
    "/w==",
    " ",
    "\t",
    "a",
    "Z",
    "~",
    "\u{7f}",
    "é",
    "\0",
    "\r\n",
    "=?BASE64?",
    "=",
    "true",
    "42",
    "=?base64??=",
];

#[test]
fn a_value_stands_for_one_string_and_a_string_for_itself() {
    target("header_value", WORDS, |input, _| {
        of_a_string(&String::from_utf8_lossy(input))?;
        of_a_value(input)
    });
}

fn of_a_string(text: &str) -> Verdict {
    let value = encode(text);
    holds(http::HeaderValue::from_str(&value).is_ok(), || format!("{value:?} is no value"))?;
    let back = decode(value.as_bytes());
    holds(back.as_deref() == Ok(text), || format!("{text:?} comes back as {back:?}"))
}

fn of_a_value(value: &[u8]) -> Verdict {
    let Ok(text) = decode(value) else { return Ok(()) };
    let trimmed = value.trim_ascii();
    let inner = trimmed.strip_prefix(b"=?base64?").and_then(|rest| rest.strip_suffix(b"?="));
    match inner {
        // Padded, of the one alphabet, with no bit left over: the one encoding of its bytes.
        Some(inner) => {
            let strict = BASE64_STANDARD.encode(&*text).as_bytes() == inner;
            holds(strict, || format!("{} is not how {text:?} is written", inner.escape_ascii()))
        }
        None => holds(text.as_bytes() == trimmed, || format!("{text:?} was not written")),
    }
}
