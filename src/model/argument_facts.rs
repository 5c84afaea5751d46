//! What a record keeps of a call's arguments: the values that some rule looked at, within bounds,
//! so that the call can be decided again by other rules.
//!
//! Which arguments are looked at is the rules' to say (`policy`), how they are written is the
//! log's (`audit`).

use crate::json::{Kind, Value};

/// Arguments that one record tells.
const MAX_FACTS: usize = 16;

/// The longest text that is told as it is, in bytes.
const MAX_TEXT: usize = 256;

/// The longest number, in digits and signs.
const MAX_NUMBER: usize = 64;

/// All that one record tells, pointers and values, in bytes.
const MAX_BYTES: usize = 4096;

/// Arguments by their JSON pointers. What found no room is not among them, and so not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArgumentFacts {
    facts: Vec<(Box<str>, Fact)>,
    bytes: usize,
}

/// What is told of one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// The call has no such argument.
    Absent,
    Null,
    Bool(bool),
    /// As it was written.
    Number(Box<str>),
    Text(Box<str>),
    /// How many characters a text has that is not told.
    Characters(usize),
    /// How many elements a list has; what they are is not told.
    Elements(usize),
    /// An object, of whatever members.
    Object,
    /// By its name it is a secret.
    Withheld,
}

// === impl ArgumentFacts ===

impl ArgumentFacts {
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// In the order of their pointers' UTF-16 code units, which canonical JSON has too.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Fact)> {
        self.facts.iter().map(|(pointer, fact)| (&**pointer, fact))
    }

    /// Adds what a pointer points at, unless it is known already or there is no room.
    pub fn add(&mut self, pointer: &str, is_secret: bool, argument: Option<Value<'_>>) {
        let place = self
            .facts
            .binary_search_by(|(known, _)| known.encode_utf16().cmp(pointer.encode_utf16()));
        let Err(place) = place else { return };
        let withheld = is_secret && argument.is_some();
        let fact = if withheld { Some(Fact::Withheld) } else { Fact::of(argument) };
        let Some(fact) = fact else { return };
        let bytes = self.bytes + pointer.len() + fact.bytes();
        if self.facts.len() < MAX_FACTS && bytes <= MAX_BYTES {
            self.bytes = bytes;
            self.facts.insert(place, (pointer.into(), fact));
        }
    }
}

// === impl Fact ===

impl Fact {
    /// What may be told of an argument, if anything.
    fn of(argument: Option<Value<'_>>) -> Option<Self> {
        let Some(argument) = argument else { return Some(Fact::Absent) };
        Some(match argument.kind() {
            Kind::Null => Fact::Null,
            Kind::True => Fact::Bool(true),
            Kind::False => Fact::Bool(false),
            Kind::Number => {
                let written = argument.raw();
                let short = written.len() <= MAX_NUMBER;
                Fact::Number(std::str::from_utf8(written).ok().filter(|_| short)?.into())
            }
            Kind::String => match argument.as_str()? {
                text if text.len() <= MAX_TEXT => Fact::Text(text.into()),
                text => Fact::Characters(text.chars().count()),
            },
            Kind::Array => Fact::Elements(argument.elements().count()),
            Kind::Object => Fact::Object,
        })
    }

    fn bytes(&self) -> usize {
        match self {
            Fact::Number(text) | Fact::Text(text) => text.len(),
            _ => size_of::<u64>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::json::{Doc, Duplicates, Limits};

    fn facts(text: &str, pointers: &[&str]) -> ArgumentFacts {
        let limits = Limits { depth: 8, duplicates: Duplicates::Refuse, outline: 1 };
        let doc = Doc::parse(Bytes::copy_from_slice(text.as_bytes()), &limits).unwrap();
        let mut facts = ArgumentFacts::default();
        for pointer in pointers {
            facts.add(pointer, *pointer == "/token", doc.root().get(&pointer[1..]));
        }
        facts
    }

    fn fact(value: &str) -> Option<Fact> {
        let facts = facts(&format!("{{\"a\":{value}}}"), &["/a"]);
        facts.iter().next().map(|(_, fact)| fact.clone())
    }

    #[test]
    fn plain_values_are_told_as_they_are_written_and_the_rest_by_size() {
        for (value, expected) in [
            ("null", Fact::Null),
            ("true", Fact::Bool(true)),
            ("1.50", Fact::Number("1.50".into())),
            ("9007199254740993", Fact::Number("9007199254740993".into())),
            ("\"e\\u0075\"", Fact::Text("eu".into())),
            ("[[1],2]", Fact::Elements(2)),
            ("{\"b\":1}", Fact::Object),
        ] {
            assert_eq!(fact(value), Some(expected), "{value}");
        }
        assert_eq!(fact(&format!("\"{}\"", "é".repeat(200))), Some(Fact::Characters(200)));
        assert_eq!(fact(&"9".repeat(65)), None, "no number is told as another");
    }

    #[test]
    fn what_is_absent_or_secret_is_told_as_that() {
        let facts = facts(r#"{"token":"hush"}"#, &["/token", "/region", "/region"]);
        let told: Vec<_> = facts.iter().collect();
        assert_eq!(told, [("/region", &Fact::Absent), ("/token", &Fact::Withheld)]);
        assert_eq!(super::tests::facts("{}", &["/token"]).iter().next().unwrap().1, &Fact::Absent);
    }

    #[test]
    fn facts_are_bounded_in_number_and_size() {
        let pointers: Vec<String> = (0..40).map(|n| format!("/p{n}")).collect();
        let pointers: Vec<&str> = pointers.iter().map(String::as_str).collect();
        assert_eq!(facts("{}", &pointers).iter().count(), MAX_FACTS);
        let long = "p".repeat(1000);
        let long: Vec<String> = (0..9).map(|n| format!("/{long}{n}")).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        assert_eq!(facts("{}", &long).iter().count(), 4);
    }
}
