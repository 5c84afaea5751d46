//! Conditions on arguments: `when` of a rule.
//!
//! A closed set of tests, each decided in time linear in the argument. An argument that is absent
//! or of another type satisfies `not_in` and nothing else.

mod decimal;
mod implied;
mod read;
mod schema;

use std::{fmt, sync::Arc};

use regex::Regex;

use super::glob::TextGlob;
use crate::{
    fault::Span,
    json::{Kind, Value},
    model::sensitive::is_sensitive,
};

pub use decimal::Decimal;
pub(super) use schema::{Misfit, check};

/// One condition on one argument.
#[derive(Debug)]
pub struct Predicate {
    pub at: Span,
    pub pointer: Pointer,
    pub test: Test,
}

/// A JSON pointer into the arguments, of at least one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    text: Box<str>,
    steps: Box<[Box<str>]>,
    /// By a name on the way, what it points at is a secret.
    sensitive: bool,
}

/// What is asked of an argument.
#[derive(Debug)]
pub enum Test {
    Eq(Scalar),
    In(Box<[Scalar]>),
    NotIn(Box<[Scalar]>),
    Prefix(Box<str>),
    Glob(TextGlob),
    /// Both ends included; at least one is there.
    Range {
        min: Option<Decimal>,
        max: Option<Decimal>,
    },
    /// Characters of a text, elements of a list.
    MaxLen(u32),
    /// Anywhere in the text, unless the expression is anchored.
    Regex(Arc<Regex>),
}

/// A value that an argument can equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scalar {
    Null,
    Bool(bool),
    /// With the number as it was written.
    Number(Decimal, Box<str>),
    Text(Box<str>),
}

// === impl Predicate ===

impl Predicate {
    /// Whether the arguments, an object or none at all, satisfy it.
    pub fn holds(&self, arguments: Option<Value<'_>>) -> bool {
        match arguments.and_then(|arguments| self.pointer.find(arguments)) {
            Some(argument) => self.test.holds(argument),
            None => matches!(self.test, Test::NotIn(_)),
        }
    }
}

/// As a policy file would have it.
impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pointer, self.test)
    }
}

// === impl Pointer ===

impl Pointer {
    /// Reads a pointer; the error goes on after "`text` ".
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(inside) = text.strip_prefix('/') else {
            return Err("is no JSON pointer: it begins with `/`, as in `/region`".to_owned());
        };
        let steps = inside.split('/').map(unescape);
        let steps = steps.collect::<Option<Box<[Box<str>]>>>();
        let steps = steps.ok_or("is no JSON pointer: `~` is `~0`, `/` `~1`")?;
        let sensitive = steps.iter().any(|step| is_sensitive(step));
        Ok(Self { text: text.into(), steps, sensitive })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether what it points at is most likely a secret, which no record may hold.
    pub fn is_sensitive(&self) -> bool {
        self.sensitive
    }

    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|step| &**step)
    }

    /// The argument it points at.
    pub fn find<'a>(&self, arguments: Value<'a>) -> Option<Value<'a>> {
        self.steps().try_fold(arguments, |value, step| match value.kind() {
            Kind::Object => value.get(step),
            Kind::Array => value.elements().nth(index(step)?),
            _ => None,
        })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn unescape(step: &str) -> Option<Box<str>> {
    let mut out = String::with_capacity(step.len());
    let mut chars = step.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '~' => match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(out.into())
}

/// A place in a list: digits without a leading zero.
fn index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with('0');
    (plain && step.bytes().all(|byte| byte.is_ascii_digit())).then(|| step.parse().ok())?
}

// === impl Test ===

impl Test {
    /// The key that a file has for it.
    pub fn key(&self) -> &'static str {
        match self {
            Test::Eq(_) => "eq",
            Test::In(_) => "in",
            Test::NotIn(_) => "not_in",
            Test::Prefix(_) => "prefix",
            Test::Glob(_) => "glob",
            Test::Range { .. } => "range",
            Test::MaxLen(_) => "max_len",
            Test::Regex(_) => "regex",
        }
    }

    fn holds(&self, argument: Value<'_>) -> bool {
        let text = |test: &dyn Fn(&str) -> bool| argument.as_str().is_some_and(|text| test(&text));
        match self {
            Test::Eq(scalar) => scalar.is(argument),
            Test::In(scalars) => scalars.iter().any(|scalar| scalar.is(argument)),
            Test::NotIn(scalars) => !scalars.iter().any(|scalar| scalar.is(argument)),
            Test::Prefix(prefix) => text(&|text| text.starts_with(&**prefix)),
            Test::Glob(glob) => text(&|text| glob.matches(text)),
            Test::Range { min, max } => number(argument).is_some_and(|number| {
                min.as_ref().is_none_or(|min| *min <= number)
                    && max.as_ref().is_none_or(|max| number <= *max)
            }),
            Test::MaxLen(max) => {
                let max = *max as usize;
                match argument.kind() {
                    Kind::String => text(&|text| text.chars().take(max + 1).count() <= max),
                    Kind::Array => argument.elements().take(max + 1).count() <= max,
                    _ => false,
                }
            }
            Test::Regex(regex) => text(&|text| regex.is_match(text)),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.key())?;
        match self {
            Test::Eq(scalar) => write!(f, "{scalar}"),
            Test::In(scalars) | Test::NotIn(scalars) => {
                let words: Vec<_> = scalars.iter().map(Scalar::to_string).collect();
                write!(f, "[{}]", words.join(", "))
            }
            Test::Prefix(prefix) => write!(f, "{prefix}"),
            Test::Glob(glob) => write!(f, "{}", glob.as_str()),
            Test::Range { min, max } => {
                let end = |end: &Option<Decimal>| {
                    end.as_ref().map_or_else(|| "null".to_owned(), Decimal::to_string)
                };
                write!(f, "[{}, {}]", end(min), end(max))
            }
            Test::MaxLen(max) => write!(f, "{max}"),
            Test::Regex(regex) => write!(f, "{}", regex.as_str()),
        }
    }
}

fn number(argument: Value<'_>) -> Option<Decimal> {
    if argument.kind() != Kind::Number {
        return None;
    }
    Decimal::parse(std::str::from_utf8(argument.raw()).ok()?)
}

// === impl Scalar ===

impl Scalar {
    fn is(&self, argument: Value<'_>) -> bool {
        match self {
            Scalar::Null => argument.is_null(),
            Scalar::Bool(value) => argument.as_bool() == Some(*value),
            Scalar::Number(value, _) => number(argument).is_some_and(|number| number == *value),
            Scalar::Text(text) => argument.is_str(text),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Null => f.write_str("null"),
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Number(_, text) | Scalar::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests;
