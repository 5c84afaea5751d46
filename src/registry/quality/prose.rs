//! Whether a description is there, and says enough that a tool can be chosen by it.

use std::collections::HashSet;

use super::{Findings, says, text};
use crate::{json::Value, model::quality::Flaw};

/// What stands where somebody meant to write something.
const STAND_INS: [&str; 14] = [
    "todo",
    "tbd",
    "fixme",
    "n/a",
    "none",
    "null",
    "description",
    "tool description",
    "lorem ipsum",
    "no description",
    "no description provided",
    "no description available",
    "undefined",
    "write a description",
];

/// Words that say nothing of what a tool does.
const EMPTY: [&str; 30] = [
    "a",
    "an",
    "and",
    "api",
    "call",
    "calls",
    "does",
    "execute",
    "executes",
    "for",
    "function",
    "helper",
    "in",
    "is",
    "it",
    "method",
    "of",
    "on",
    "operation",
    "some",
    "something",
    "stuff",
    "the",
    "things",
    "this",
    "to",
    "tool",
    "use",
    "utility",
    "with",
];

/// A shorter description says too little, in words, or in letters of a script without spaces.
const WORDS_MIN: usize = 3;
const LETTERS_MIN: usize = 6;

pub fn look(tool: Value<'_>, findings: &mut Findings) {
    if !says(tool, "description") {
        let message = "it has no description: a model has to guess what it does";
        findings.add(Flaw::NoDescription, "/description", message);
        return;
    }
    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
    let description = tool.get("description").and_then(Value::as_str).unwrap_or_default();
    if let Some(message) = vague(&name, &text::plain(&description)) {
        findings.add(Flaw::Vague, "/description", message);
    }
}

fn vague(name: &str, description: &str) -> Option<&'static str> {
    let bare = description.trim_matches(|c: char| !c.is_alphanumeric());
    if STAND_INS.contains(&bare) {
        return Some("its description only stands in for one");
    }
    // Scripts that are written without spaces.
    let is_dense = |c: char| matches!(c, '\u{e00}'..='\u{eff}' | '\u{3040}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}');
    let dense = description.chars().filter(|c| is_dense(*c)).count();
    if dense > 0 {
        return (dense < LETTERS_MIN).then_some("its description is too short to choose it by");
    }
    let words = text::words(description);
    let telling = || words.iter().filter(|word| !EMPTY.contains(&word.as_str()));
    if words.len() < WORDS_MIN || telling().next().is_none() {
        return Some("its description is too short to choose it by");
    }
    let named = text::words(name);
    let stem = |word: &str| word.trim_end_matches('s').to_owned();
    let named: HashSet<_> = named.iter().map(|word| stem(word)).collect();
    let repeats = telling().all(|word| named.contains(&stem(word)));
    repeats.then_some("its description says no more than its name")
}
