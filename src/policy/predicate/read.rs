//! Conditions as they are written.

use std::sync::Arc;

use regex::RegexBuilder;

use super::{Decimal, Pointer, Predicate, Scalar, Test};
use crate::{
    fault::{FaultCode, Faults},
    policy::glob::TextGlob,
    yaml::{FromNode, Node, Value, parsed},
};

/// The most conditions of one rule.
const MAX_PREDICATES: usize = 16;

/// The most values of one list.
const MAX_VALUES: usize = 1_000;

/// The longest regular expression and the memory of its automaton, in bytes.
const MAX_REGEX: usize = 1_000;
const MAX_REGEX_SIZE: usize = 256 * 1024;

/// The keys of the tests, of which a predicate has one.
const TESTS: [&str; 8] = ["eq", "in", "not_in", "prefix", "glob", "range", "max_len", "regex"];

impl Predicate {
    /// Reads `when`: one predicate, or a list of which all must hold.
    pub fn read_all(node: &Node, faults: &mut Faults) -> Option<Box<[Predicate]>> {
        let nodes = match &node.value {
            Value::Seq(items) if items.is_empty() => {
                let message = "`when` is empty: leave the key out where there is no condition";
                faults.add(FaultCode::BadValue, &node.at, message);
                return None;
            }
            Value::Seq(items) if items.len() > MAX_PREDICATES => {
                let message = format!("a rule has at most {MAX_PREDICATES} conditions");
                faults.add(FaultCode::BadValue, &node.at, message);
                return None;
            }
            Value::Seq(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let read: Vec<_> = nodes.iter().filter_map(|node| Predicate::read(node, faults)).collect();
        (read.len() == nodes.len()).then(|| read.into())
    }

    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let pointer = map.required_node("arg", faults).and_then(|node| {
            let pointer = parsed(node, FaultCode::BadPointer, faults, Pointer::parse);
            // An argument's bare name is what people write first.
            if pointer.is_none()
                && let Value::Text(text) = &node.value
                && !text.contains('/')
                && let Some(fault) = faults.last()
            {
                fault.suggest(format!("write `/{text}`"));
            }
            pointer
        });
        let given: Vec<_> = TESTS.into_iter().filter(|test| map.entry(test).is_some()).collect();
        let test = match given.as_slice() {
            [key] => map.node(key).and_then(|node| Test::read(key, node, faults)),
            [] => {
                let message = format!("no test: one of {} is missing", listed());
                faults.add(FaultCode::MissingKey, &node.at, message);
                None
            }
            [first, second, ..] => {
                let message = format!("`{first}` and `{second}` are two conditions");
                let fault = faults.add(FaultCode::Contradiction, &node.at, message);
                fault.suggest("write a list of two");
                None
            }
        };
        map.finish(faults);
        Some(Self { at: node.at.clone(), pointer: pointer?, test: test? })
    }
}

fn listed() -> String {
    TESTS.map(|test| format!("`{test}`")).join(", ")
}

impl Test {
    fn read(key: &str, node: &Node, faults: &mut Faults) -> Option<Self> {
        Some(match key {
            "eq" => Test::Eq(Scalar::read(node, faults)?),
            "in" => Test::In(scalars(node, faults)?),
            "not_in" => Test::NotIn(scalars(node, faults)?),
            "prefix" => {
                let text = node.text(faults)?;
                if text.is_empty() {
                    faults.add(FaultCode::BadValue, &node.at, "every text begins with nothing");
                    return None;
                }
                Test::Prefix(text.into())
            }
            "glob" => Test::Glob(parsed(node, FaultCode::BadGlob, faults, TextGlob::parse)?),
            "range" => range(node, faults)?,
            "max_len" => Test::MaxLen(u32::from_node(node, faults)?),
            _ => Test::Regex(Arc::new(parsed(node, FaultCode::BadRegex, faults, regex)?)),
        })
    }
}

fn regex(text: &str) -> Result<regex::Regex, String> {
    if text.is_empty() || text.len() > MAX_REGEX {
        return Err(format!("is no expression of 1 to {MAX_REGEX} bytes"));
    }
    RegexBuilder::new(text)
        .size_limit(MAX_REGEX_SIZE)
        .dfa_size_limit(MAX_REGEX_SIZE)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "needs too much memory".to_owned(),
            // Its last line says what is wrong; those before it draw.
            other => {
                let text = other.to_string();
                let reason = text.lines().last().unwrap_or_default();
                format!("is no expression: {}", reason.trim_start_matches("error: "))
            }
        })
}

impl Scalar {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        match &node.value {
            Value::Null => Some(Scalar::Null),
            Value::Bool(value) => Some(Scalar::Bool(*value)),
            Value::Text(text) => Some(Scalar::Text(text.as_str().into())),
            Value::Int(_) | Value::Float(_) => {
                decimal(node, faults).map(|number| Scalar::Number(number, node.raw.as_str().into()))
            }
            _ => {
                node.wrong_type("a text, a number, `true`, `false` or `null`", faults);
                None
            }
        }
    }
}

fn scalars(node: &Node, faults: &mut Faults) -> Option<Box<[Scalar]>> {
    let items = node.items(faults)?;
    if items.is_empty() || items.len() > MAX_VALUES {
        let message = format!("a list of 1 to {MAX_VALUES} values is expected");
        faults.add(FaultCode::BadValue, &node.at, message);
        return None;
    }
    let read: Vec<_> = items.iter().filter_map(|item| Scalar::read(item, faults)).collect();
    (read.len() == items.len()).then(|| read.into())
}

fn decimal(node: &Node, faults: &mut Faults) -> Option<Decimal> {
    let number = match &node.value {
        Value::Int(_) | Value::Float(_) => Decimal::parse(&node.raw),
        _ => {
            node.wrong_type("a number", faults);
            return None;
        }
    };
    if number.is_none() {
        let message = format!("{} is not a decimal number", node.raw);
        faults.add(FaultCode::BadValue, &node.at, message);
    }
    number
}

fn range(node: &Node, faults: &mut Faults) -> Option<Test> {
    let [min, max] = node.items(faults)? else {
        let fault = faults.add(FaultCode::BadValue, &node.at, "a range has two ends");
        fault.suggest("such as `[1, 100]`, or `[1, null]` without an upper one");
        return None;
    };
    let mut end = |node: &Node| match node.value {
        Value::Null => Some(None),
        _ => decimal(node, faults).map(Some),
    };
    let (min, max) = (end(min), end(max));
    let (min, max) = (min?, max?);
    let wrong = match (&min, &max) {
        (None, None) => Some("every number is in this range"),
        (Some(min), Some(max)) if min > max => Some("no number is in this range"),
        _ => None,
    };
    if let Some(wrong) = wrong {
        faults.add(FaultCode::BadValue, &node.at, wrong);
        return None;
    }
    Some(Test::Range { min, max })
}
