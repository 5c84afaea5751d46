//! Nodes to types, gathering every fault on the way.
//!
//! A reader answers `None` for what it could not read and has then recorded why; its caller goes
//! on with the rest.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    num::IntErrorKind,
    time::Duration,
};

use super::{ByteSize, Entry, Node, Rate, Value, units};
use crate::fault::{FaultCode, Faults, Span, nearest};

/// What can be read from a node.
pub trait FromNode: Sized {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self>;
}

/// A value that remembers where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spanned<T> {
    pub value: T,
    pub at: Span,
}

impl<T> Spanned<T> {
    pub fn new(value: T, at: &Span) -> Self {
        Self { value, at: at.clone() }
    }
}

impl<T: FromNode> FromNode for Spanned<T> {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        T::from_node(node, faults).map(|value| Spanned::new(value, &node.at))
    }
}

impl Node {
    /// Records that something else was expected here.
    pub fn wrong_type(&self, expected: &str, faults: &mut Faults) {
        if self.value == Value::Unknown {
            return;
        }
        let message = format!("expected {expected}, found {}", self.describe());
        faults.add(FaultCode::WrongType, &self.at, message);
    }

    /// The text, if this is one.
    pub fn text(&self, faults: &mut Faults) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
                let message = format!("expected a text, found {}", self.describe());
                faults
                    .add(FaultCode::WrongType, &self.at, message)
                    .suggest(format!("write \"{}\"", self.raw));
                None
            }
            _ => {
                self.wrong_type("a text", faults);
                None
            }
        }
    }

    /// The mapping's keys, one by one.
    pub fn map(&self, faults: &mut Faults) -> Option<MapReader<'_>> {
        let entries = self.entries(faults)?;
        Some(MapReader { at: &self.at, entries, known: Vec::new(), later: Vec::new() })
    }

    pub fn entries(&self, faults: &mut Faults) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => {
                self.wrong_type("a mapping", faults);
                None
            }
        }
    }

    /// The entries of a mapping whose keys are names that the operator chose, each once. With
    /// nothing behind its colon it has none: all of it may be commented out.
    pub fn named(&self, faults: &mut Faults) -> Vec<&Entry> {
        if self.value == Value::Null {
            return Vec::new();
        }
        let entries = self.entries(faults).unwrap_or_default();
        report_duplicates(entries, faults);
        let mut seen = HashSet::with_capacity(entries.len());
        entries.iter().filter(|entry| seen.insert(entry.key.as_str())).collect()
    }

    /// The items of a list that may have none, and then be left out behind its colon.
    pub fn list(&self, faults: &mut Faults) -> &[Node] {
        if self.value == Value::Null { &[] } else { self.items(faults).unwrap_or_default() }
    }

    pub fn items(&self, faults: &mut Faults) -> Option<&[Node]> {
        match &self.value {
            Value::Seq(items) => Some(items),
            Value::Text(_) => {
                let message = "expected a list, found a text";
                let fault = faults.add(FaultCode::WrongType, &self.at, message);
                fault.suggest("put it in [ ]");
                None
            }
            _ => {
                self.wrong_type("a list", faults);
                None
            }
        }
    }

    /// How a value is named in a message. One that came from a variable is not shown.
    pub fn quoted(&self) -> String {
        match &self.value {
            Value::Text(text) if !self.expanded => {
                let shown: String = text.chars().take(60).collect();
                if shown.len() < text.len() {
                    format!("`{shown}…`")
                } else {
                    format!("`{shown}`")
                }
            }
            _ => "the value".to_owned(),
        }
    }
}

/// A text that `parse` understands; its error goes on after "`text` ".
pub fn parsed<T>(
    node: &Node,
    code: FaultCode,
    faults: &mut Faults,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    match parse(node.text(faults)?) {
        Ok(value) => Some(value),
        Err(reason) => {
            faults.add(code, &node.at, format!("{} {reason}", node.quoted()));
            None
        }
    }
}

/// A closed list of words.
pub struct Words<T: 'static> {
    /// What such a word is, as in "unknown risk level".
    pub what: &'static str,
    pub code: FaultCode,
    pub known: &'static [(&'static str, T)],
    /// Words of Hangu whose part does not exist yet.
    pub later: &'static [&'static str],
}

impl<T: Copy> Words<T> {
    pub fn read(&self, node: &Node, faults: &mut Faults) -> Option<T> {
        let text = node.text(faults)?;
        if let Some((_, value)) = self.known.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        if self.later.contains(&text) {
            let message = format!("the {} `{text}` is not part of this version", self.what);
            let fault = faults.add(FaultCode::NotInThisVersion, &node.at, message);
            fault.suggest(self.choices());
            return None;
        }
        let near = nearest(text, self.known.iter().map(|(word, _)| *word));
        let message = format!("unknown {} {}", self.what, node.quoted());
        let fault = faults.add(self.code, &node.at, message);
        match near {
            Some(near) => fault.suggest(format!("did you mean `{near}`?")),
            None => fault.suggest(self.choices()),
        };
        None
    }

    fn choices(&self) -> String {
        let words: Vec<_> = self.known.iter().map(|(word, _)| format!("`{word}`")).collect();
        match words.as_slice() {
            [only] => format!("only {only} is known"),
            [first @ .., last] => format!("known are {} and {last}", first.join(", ")),
            [] => String::new(),
        }
    }
}

/// Reads a mapping with fixed keys. Every key that is asked for is a known one; [`finish`]
/// reports the rest.
///
/// [`finish`]: MapReader::finish
pub struct MapReader<'n> {
    pub at: &'n Span,
    entries: &'n [Entry],
    known: Vec<&'static str>,
    /// Neither unknown nor worth suggesting.
    later: Vec<&'static str>,
}

impl<'n> MapReader<'n> {
    /// The value of a key, as it is.
    pub fn node(&mut self, key: &'static str) -> Option<&'n Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub fn entry(&mut self, key: &'static str) -> Option<&'n Entry> {
        self.known.push(key);
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub fn optional<T: FromNode>(&mut self, key: &'static str, faults: &mut Faults) -> Option<T> {
        T::from_node(self.node(key)?, faults)
    }

    pub fn required<T: FromNode>(&mut self, key: &'static str, faults: &mut Faults) -> Option<T> {
        T::from_node(self.required_node(key, faults)?, faults)
    }

    pub fn required_node(&mut self, key: &'static str, faults: &mut Faults) -> Option<&'n Node> {
        let node = self.node(key);
        if node.is_none() {
            faults.add(FaultCode::MissingKey, self.at, format!("`{key}` is missing"));
        }
        node
    }

    pub fn words<T: Copy>(
        &mut self,
        key: &'static str,
        words: &Words<T>,
        faults: &mut Faults,
    ) -> Option<T> {
        words.read(self.node(key)?, faults)
    }

    /// Keys of Hangu whose part does not exist yet: refused, never ignored.
    pub fn later(&mut self, keys: &[&'static str], faults: &mut Faults) {
        for key in keys {
            if let Some(entry) = self.entries.iter().find(|entry| entry.key == *key) {
                let message = format!("`{key}` is not part of this version");
                faults.add(FaultCode::NotInThisVersion, &entry.key_at, message);
            }
        }
        self.later.extend_from_slice(keys);
    }

    /// Reports keys that nobody asked for, and keys that stand there twice.
    pub fn finish(self, faults: &mut Faults) {
        #[cfg(test)]
        seen::note(&self.known);
        report_duplicates(self.entries, faults);
        for entry in self.entries {
            let key = entry.key.as_str();
            if !self.known.contains(&key) && !self.later.contains(&key) {
                let message = format!("unknown key `{}`", entry.key);
                let fault = faults.add(FaultCode::UnknownKey, &entry.key_at, message);
                fault.did_you_mean(&entry.key, self.known.iter().copied());
            }
        }
    }
}

/// The keys that readers asked for, for a test that compares them with what is written about
/// them.
#[cfg(test)]
pub mod seen {
    use std::{cell::RefCell, collections::BTreeSet};

    thread_local! {
        static MAPPINGS: RefCell<BTreeSet<BTreeSet<&'static str>>> = RefCell::default();
    }

    pub(super) fn note(keys: &[&'static str]) {
        MAPPINGS.with_borrow_mut(|all| all.insert(keys.iter().copied().collect()));
    }

    /// The keys of each mapping that this thread has read since it was last asked.
    pub fn take() -> BTreeSet<BTreeSet<&'static str>> {
        MAPPINGS.take()
    }
}

/// Up to so many keys are compared with each other: quicker than to hash them.
const FEW: usize = 12;

fn report_duplicates(entries: &[Entry], faults: &mut Faults) {
    let is_new = |(index, entry): (usize, &Entry)| {
        entries.iter().take(index).all(|before| before.key != entry.key)
    };
    if entries.len() <= FEW && entries.iter().enumerate().all(is_new) {
        return;
    }
    let mut seen: HashMap<&str, &Span> = HashMap::with_capacity(entries.len());
    for entry in entries {
        if let Some(first) = seen.insert(&entry.key, &entry.key_at) {
            let message = format!("`{}` stands here twice", entry.key);
            let fault = faults.add(FaultCode::DuplicateKey, &entry.key_at, message);
            fault.relate(first, "here the first time");
        }
    }
}

// === impl FromNode ===

impl FromNode for String {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        node.text(faults).map(str::to_owned)
    }
}

impl FromNode for bool {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        match &node.value {
            Value::Bool(value) => Some(*value),
            Value::Text(text) if node.expanded && node.is_plain() && text == "true" => Some(true),
            Value::Text(text) if node.expanded && node.is_plain() && text == "false" => Some(false),
            _ => {
                node.wrong_type("`true` or `false`", faults);
                None
            }
        }
    }
}

impl FromNode for u64 {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let number = match &node.value {
            Value::Int(value) => u64::try_from(*value).map_err(|_| "is negative"),
            Value::Text(text) if node.expanded && node.is_plain() => {
                text.parse::<u64>().map_err(|error| match error.kind() {
                    IntErrorKind::PosOverflow => "is too large",
                    _ => "is not a whole number",
                })
            }
            Value::Float(_) => Err("is not a whole number, or too large"),
            _ => {
                node.wrong_type("a number", faults);
                return None;
            }
        };
        match number {
            Ok(number) => Some(number),
            Err(reason) => {
                let what = if node.expanded { "the value" } else { &node.raw };
                faults.add(FaultCode::BadValue, &node.at, format!("{what} {reason}"));
                None
            }
        }
    }
}

macro_rules! smaller_numbers {
    ($($number:ty),+) => {$(
        impl FromNode for $number {
            fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
                let number = u64::from_node(node, faults)?;
                let small = <$number>::try_from(number).ok();
                if small.is_none() {
                    faults.add(FaultCode::BadValue, &node.at, format!("{number} is too large"));
                }
                small
            }
        }
    )+};
}

smaller_numbers!(u32, usize);

impl FromNode for Duration {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        if let Value::Int(number) = node.value {
            let fault =
                faults.add(FaultCode::WrongType, &node.at, "expected a duration, found a number");
            fault.suggest(format!("write `{number}s` or `{number}ms`"));
            return None;
        }
        parsed(node, FaultCode::BadValue, faults, units::parse_duration)
    }
}

impl FromNode for ByteSize {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        match node.value {
            Value::Int(_) => u64::from_node(node, faults).map(ByteSize),
            _ => parsed(node, FaultCode::BadValue, faults, units::parse_size),
        }
    }
}

impl FromNode for Rate {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadValue, faults, units::parse_rate)
    }
}

impl FromNode for SocketAddr {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadValue, faults, |text| {
            text.parse().map_err(|_| {
                "is not an address such as `127.0.0.1:8080`, `0.0.0.0:8080` or `[::]:8080`".into()
            })
        })
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let items = node.items(faults)?;
        Some(items.iter().filter_map(|item| T::from_node(item, faults)).collect())
    }
}
