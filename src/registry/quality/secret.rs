//! Credentials in what everybody may read: defaults, examples, descriptions.
//!
//! What is found is never told, only where and what it looks like.

use std::{collections::HashSet, sync::LazyLock};

use regex::{Regex, RegexSet};

use super::{
    Findings,
    places::{Place, Role},
};
use crate::model::quality::Flaw;

/// What credentials look like, and what they are.
const SHAPES: [(&str, &str); 13] = [
    (r"(?-u:\b)(AKIA|ASIA)[0-9A-Z]{16}(?-u:\b)", "a key of AWS"),
    (
        r"(?-u:\b)gh[pousr]_[A-Za-z0-9]{36,}|(?-u:\b)github_pat_[A-Za-z0-9_]{40,}",
        "a token of GitHub",
    ),
    (r"(?-u:\b)glpat-[A-Za-z0-9_-]{20,}", "a token of GitLab"),
    (
        r"(?-u:\b)xox[abeoprs]-[A-Za-z0-9-]{10,}|hooks\.slack\.com/services/T[A-Za-z0-9_]+/B[A-Za-z0-9_]+/[A-Za-z0-9_]+",
        "a token of Slack",
    ),
    (r"(?-u:\b)sk-[A-Za-z0-9_-]{20,}", "a key of a model's provider"),
    (r"(?-u:\b)[rs]k_live_[A-Za-z0-9]{16,}", "a key of Stripe"),
    (r"(?-u:\b)AIza[A-Za-z0-9_-]{35}", "a key of Google"),
    (
        r"(?-u:\b)npm_[A-Za-z0-9]{36}|(?-u:\b)pypi-[A-Za-z0-9_-]{40,}",
        "a token of a package registry",
    ),
    (r"(?-u:\b)eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", "a signed token"),
    (r"-----BEGIN ([A-Z]+ )*PRIVATE KEY-----", "a private key"),
    (
        r"(?-u:\b)[a-z][a-z0-9+.-]*://[^ \t\r\n/:@]+:[^ \t\r\n/@]{3,}@[A-Za-z0-9_-]",
        "a password in an address",
    ),
    (
        r"(?i)(?-u:\b)(bearer|basic)[ \t]+[A-Za-z0-9._~+/-]{20,}",
        "the value of an Authorization header",
    ),
    (
        r#"(?i)(?-u:\b)(api[_-]?key|secret|token|password|passwd|pwd)["']?[ \t]*[:=][ \t]*["']?[^ \t\r\n"',;)}\]]{12,}"#,
        "a password or a key",
    ),
];

static SET: LazyLock<RegexSet> = LazyLock::new(|| {
    RegexSet::new(SHAPES.iter().map(|(shape, _)| shape)).unwrap_or_else(|_| RegexSet::empty())
});

static EACH: LazyLock<Vec<Option<Regex>>> =
    LazyLock::new(|| SHAPES.iter().map(|(shape, _)| Regex::new(shape).ok()).collect());

/// What says that something only stands for a credential.
const STAND_INS: [&str; 16] = [
    "example",
    "xxx",
    "your",
    "<",
    "{",
    "$",
    "...",
    "…",
    "placeholder",
    "changeme",
    "change-me",
    "dummy",
    "sample",
    "redacted",
    "123456",
    "***",
];

/// Words that stand for the password in documented addresses.
const PASSWORDS: [&str; 7] =
    [":pass@", ":password@", ":pwd@", ":secret@", ":pw@", ":passwd@", ":token@"];

/// Values under a sensitive name are looked at from this length on.
const VALUE_MIN: usize = 16;

pub fn look(place: &Place<'_>, written: &str, findings: &mut Findings) {
    if matches!(place.role, Role::Name | Role::Syntax) || written.len() < 12 {
        return;
    }
    for index in SET.matches(written) {
        let Some(((_, what), Some(shape))) =
            SHAPES.get(index).zip(EACH.get(index).map(Option::as_ref))
        else {
            continue;
        };
        let is_real = shape.find_iter(written).any(|found| is_real(found.as_str()));
        if is_real && !findings.has_at(Flaw::Secret, place.pointer) {
            let message = format!(
                "it has what looks like {what}: have it taken out, and replaced if it is real"
            );
            findings.add_at(Flaw::Secret, place, message);
        }
    }
    let is_value = place.role == Role::Value && place.is_sensitive && written.len() >= VALUE_MIN;
    if is_value && is_random(written) && !findings.has_at(Flaw::Secret, place.pointer) {
        let message = "a value under a name that secrets have, and random enough to be one: have it taken out, and replaced if it is real";
        findings.add_at(Flaw::Secret, place, message);
    }
}

/// Whether it is not plainly a stand-in.
fn is_real(found: &str) -> bool {
    let lower = found.to_ascii_lowercase();
    let distinct: HashSet<char> = lower.chars().collect();
    let is_stand_in = STAND_INS.iter().any(|word| lower.contains(word))
        || PASSWORDS.iter().any(|password| lower.contains(password));
    // What only names a secret, as in `token=access_token_value`, has no digits.
    let names = lower.contains(['=', ':'])
        && !lower.contains("://")
        && !lower.bytes().any(|b| b.is_ascii_digit());
    !is_stand_in && !names && distinct.len() >= 8 || found.contains("PRIVATE KEY")
}

/// Whether somebody could not have thought of it: letters and digits without a system.
fn is_random(text: &str) -> bool {
    let is_token = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/_=.-".contains(&b));
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let letters = text.bytes().filter(u8::is_ascii_alphabetic).count();
    is_token && digits >= 3 && letters >= 3 && is_real(text) && entropy(text) >= 3.3
}

/// Bits for each character.
fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for b in text.bytes() {
        counts[usize::from(b)] += 1; // one for each byte there is
    }
    let length = text.len() as f64;
    let share = |count: u32| f64::from(count) / length;
    let bits = counts.iter().filter(|count| **count > 0).map(|count| share(*count));
    bits.map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_can_be_read() {
        assert!(EACH.iter().all(Option::is_some));
        assert_eq!(SET.len(), SHAPES.len());
    }
}
