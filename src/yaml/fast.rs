//! Plain YAML to nodes, without the detour through a deserializer.
//!
//! Nearly every policy file is mappings and lists of plain words, and ten thousand of them are
//! read at a start. Whatever is more than that (tags, anchors, block scalars, numbers in other
//! forms, and all that is wrong) is left to `parse.rs`, which alone says what YAML means: a test
//! holds the two against each other.

use std::{borrow::Cow, sync::Arc};

use granit_parser::{Event, Options, Parser, ScalarStyle, Span as Range, StrInput};

use super::{Entry, Node, Value};
use crate::fault::{Source, Span};

/// Deeper than a file of ours goes; below what is refused.
const MAX_DEPTH: usize = 16;

/// More is refused, and not here.
const MAX_NODES: usize = 2_000_000;

/// Reads every document of a text, or nothing if it is not all plain.
pub fn parse(source: &Arc<Source>) -> Option<Vec<Node>> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut reader = Reader {
        source,
        events: Parser::new_from_str_with_options(&source.text, options),
        nodes: 0,
    };
    reader.documents()
}

struct Reader<'s> {
    source: &'s Arc<Source>,
    events: Parser<'s, StrInput<'s>>,
    nodes: usize,
}

impl<'s> Reader<'s> {
    fn documents(&mut self) -> Option<Vec<Node>> {
        let mut documents = Vec::new();
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentEnd, _) => {}
                (Event::DocumentStart(_, None), _) => {
                    let first = self.next()?;
                    documents.push(self.node(first, 0)?);
                }
                (Event::StreamEnd, _) => return Some(documents),
                _ => return None,
            }
        }
    }

    fn next(&mut self) -> Option<(Event<'s>, Range)> {
        self.events.next()?.ok()
    }

    fn node(&mut self, (event, range): (Event<'s>, Range), depth: usize) -> Option<Node> {
        let at = self.place(&range)?;
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return None;
        }
        let (value, raw) = match event {
            Event::Scalar(text, style, 0, None) => {
                let raw = range.slice(&self.source.text)?;
                (scalar(text, style)?, raw)
            }
            Event::SequenceStart(_, 0, None) if depth < MAX_DEPTH => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        event => items.push(self.node(event, depth + 1)?),
                    }
                }
                (Value::Seq(items), "")
            }
            Event::MappingStart(_, 0, None) if depth < MAX_DEPTH => {
                let mut entries = Vec::new();
                loop {
                    let (key, key_at) = match self.next()? {
                        (Event::MappingEnd, _) => break,
                        (Event::Scalar(text, style, 0, None), range) if is_key(&text, style) => {
                            (text.into_owned(), self.place(&range)?)
                        }
                        _ => return None,
                    };
                    let first = self.next()?;
                    entries.push(Entry { key, key_at, value: self.node(first, depth + 1)? });
                }
                (Value::Map(entries), "")
            }
            _ => return None,
        };
        Some(Node { at, value, raw: raw.to_owned(), expanded: false })
    }

    fn place(&self, range: &Range) -> Option<Span> {
        Some(Span {
            source: self.source.clone(),
            line: u32::try_from(range.start.line()).ok()?,
            column: u32::try_from(range.start.col() + 1).ok()?,
            length: u32::try_from(range.len()).ok()?,
        })
    }
}

/// A key that can be nothing but a text, nor the key that merges.
fn is_key(text: &str, style: ScalarStyle) -> bool {
    style == ScalarStyle::Plain && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// What a scalar surely is.
fn scalar(text: Cow<'_, str>, style: ScalarStyle) -> Option<Value> {
    match style {
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => {
            return Some(Value::Text(text.into_owned()));
        }
        ScalarStyle::Plain => {}
        _ => return None,
    }
    match &*text {
        "true" => return Some(Value::Bool(true)),
        "false" => return Some(Value::Bool(false)),
        _ => {}
    }
    let first = text.bytes().next()?;
    if first.is_ascii_digit() {
        let rate_or_word =
            text.bytes().any(|byte| byte.is_ascii_alphabetic() && !is_in_number(byte));
        return match (rate_or_word, text.len()) {
            (true, _) => Some(Value::Text(text.into_owned())),
            (false, 1..=9)
                if text.bytes().all(|b| b.is_ascii_digit())
                    && (first != b'0' || text.len() == 1) =>
            {
                text.parse().ok().map(Value::Int)
            }
            _ => None,
        };
    }
    let odd = matches!(&*text, "null" | "Null" | "NULL" | "True" | "TRUE" | "False" | "FALSE");
    (first.is_ascii_alphabetic() && !odd).then(|| Value::Text(text.into_owned()))
}

/// Letters that a number of any base or form may have.
fn is_in_number(byte: u8) -> bool {
    matches!(byte, b'a'..=b'f' | b'A'..=b'F' | b'x' | b'X' | b'o' | b'O')
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::{super::parse::parse_thoroughly, *};

    /// Nothing that is read here is read otherwise there.
    fn agree(text: &str) -> bool {
        let source = Arc::new(Source { name: "t".to_owned(), text: text.to_owned() });
        let Some(fast) = parse(&source) else { return false };
        let thorough = parse_thoroughly(&source);
        assert_eq!(Ok(fast), thorough, "{text}");
        true
    }

    #[test]
    fn the_shipped_files_are_read_alike() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
        let read = |path: &str| agree(&fs::read_to_string(folder.join(path)).unwrap());
        assert!(read("platform.yaml") && read("directory.yaml") && read("tenants/acme.yaml"));
        // It has an alias, which is not read here.
        assert!(!read("tools.yaml"));
    }

    #[test]
    fn what_is_plain_is_read_and_what_is_not_is_left() {
        for text in [
            "a: b",
            "a: {b: [c, \"d\", 'e f'], g: 7}",
            "- 60/1m\n- 15s\n- true\n- 0\n- eu-west",
            "a: 1\n---\nb: 2\n",
            "\"a\": b # c\n",
        ] {
            assert_eq!(agree(text), !text.starts_with('"'), "{text}");
        }
        for text in [
            "a: *b",
            "a: &b c",
            "a: !!str 1",
            "a: |\n  b\n",
            "a: 0x10",
            "a: 1_000",
            "a: 1.5",
            "a: -1",
            "a: ~",
            "a:",
            "a: null",
            "a: .inf",
            "a: 012",
            "a: True",
            "<<: {a: b}",
            "? [a]\n: b",
            "a: [",
            "a: 1234567890123",
            "a: 1e3",
            "%YAML 1.2\n---\na: b\n",
        ] {
            assert!(!agree(text), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_read_alike_or_not_at_all(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "b: ", "- ", "\n", "\n  ", "[", "]", "{", "}", ", ", ": ", "\"", "'", "1", "0", "e", "x", ".",
                    "-", "_", "true", "null", "no", "~", "#", " #", "---\n", "...\n", "? ", "&a ", "*a", "!", "|", ">",
                    "%", "<<: ", "\t", " ", "ü", "y", "inf", "nan", "+", "\\", "Infinity", "1/1m",
                ]),
                0..14,
            )
        ) {
            agree(&pieces.concat());
        }
    }
}
