//! Scopes as texts: separated by blanks, each once, and not without end. Whoever names them may be
//! anybody, and what is named is kept, compared and asked for again.

use std::collections::HashSet;

/// The most scopes that are believed at once.
const MAX_SCOPES: usize = 100;
/// The longest text of scopes, in bytes: it goes into tickets, which stand in addresses.
const MAX_TEXT: usize = 2 * 1024;

/// Scopes, each once, in their order.
pub fn scopes_of(text: &str) -> Vec<&str> {
    let mut seen = HashSet::new();
    text.split_ascii_whitespace().filter(|scope| seen.insert(*scope)).collect()
}

/// The text, if it is not longer than anybody needs.
pub fn bounded(text: String) -> Option<String> {
    let words = || text.split_ascii_whitespace().take(MAX_SCOPES + 1).count();
    (text.len() <= MAX_TEXT && words() <= MAX_SCOPES).then_some(text)
}

/// Those of both; where they are too many together, those that were named last.
pub fn union(one: &str, other: &str) -> String {
    let both = scopes_of(&format!("{one} {other}")).join(" ");
    bounded(both).unwrap_or_else(|| scopes_of(other).join(" "))
}
