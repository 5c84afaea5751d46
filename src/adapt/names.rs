//! Names that every runtime takes: a letter or an underscore, then letters, digits, `_` and `-`,
//! 64 characters in all.
//!
//! That is what OpenAI's and Anthropic's references ask for, and within what Gemini's does. One
//! rule for all three, so that a tool has one name whichever runtime calls it.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::model::trace::to_hex;

/// The longest name, in characters.
const MAX: usize = 64;
/// Hex digits of the hash that a rewritten name ends with.
const DIGITS: usize = 12;

/// The name of a tool for runtimes, from its name on `/mcp`: the same where they take that, and
/// otherwise one with a stable hash, that depends on nothing but the name.
///
/// A hash is also given to a name that already ends as such a hash would: so no two names meet.
pub fn runtime_name(alias: &str) -> Cow<'_, str> {
    if is_legal(alias) && !ends_hashed(alias) {
        return alias.into();
    }
    let hash = to_hex(&Sha256::digest(alias.as_bytes())[..DIGITS / 2]);
    let mut name = String::with_capacity(MAX);
    if !alias.starts_with(begins) {
        name.push('_');
    }
    name.extend(alias.chars().map(|c| if goes_on(c) { c } else { '_' }));
    name.truncate(MAX - 1 - DIGITS);
    format!("{name}_{hash}").into()
}

fn begins(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn goes_on(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

pub(super) fn is_legal(name: &str) -> bool {
    name.starts_with(begins) && name.len() <= MAX && name.chars().all(goes_on)
}

/// Whether a name is one that stands for another.
pub fn is_rewritten(name: &str) -> bool {
    is_legal(name) && ends_hashed(name)
}

fn ends_hashed(name: &str) -> bool {
    let Some((_, end)) = name.rsplit_once('_') else { return false };
    end.len() == DIGITS && end.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
