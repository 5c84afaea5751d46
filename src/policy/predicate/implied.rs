//! What follows from a condition. Only what is certain: everything else does not follow.

use super::{Predicate, Scalar, Test};

impl Predicate {
    /// Whether whatever satisfies this satisfies the other too.
    pub fn implies(&self, other: &Predicate) -> bool {
        self.pointer == other.pointer && self.test.implies(&other.test)
    }
}

impl Test {
    fn implies(&self, other: &Test) -> bool {
        if let Some(own) = self.values() {
            return own.iter().all(|value| other.surely_holds(value));
        }
        match (self, other) {
            (Test::NotIn(own), Test::NotIn(others)) => others.iter().all(|v| has(own, v)),
            (Test::Prefix(own), Test::Prefix(other)) => own.starts_with(&**other),
            (Test::MaxLen(own), Test::MaxLen(other)) => own <= other,
            (Test::Range { min, max }, Test::Range { min: low, max: high }) => {
                let above = low.as_ref().is_none_or(|low| min.as_ref().is_some_and(|m| low <= m));
                let below =
                    high.as_ref().is_none_or(|high| max.as_ref().is_some_and(|m| m <= high));
                above && below
            }
            (Test::Glob(own), Test::Glob(other)) => own.as_str() == other.as_str(),
            (Test::Regex(own), Test::Regex(other)) => own.as_str() == other.as_str(),
            _ => false,
        }
    }

    /// The values that alone satisfy it, where they are listed.
    fn values(&self) -> Option<&[Scalar]> {
        match self {
            Test::Eq(value) => Some(std::slice::from_ref(value)),
            Test::In(values) => Some(values),
            _ => None,
        }
    }

    fn surely_holds(&self, value: &Scalar) -> bool {
        match (self, value) {
            (Test::Eq(own), value) => same(own, value),
            (Test::In(own), value) => has(own, value),
            (Test::NotIn(own), value) => !has(own, value),
            (Test::Prefix(prefix), Scalar::Text(text)) => text.starts_with(&**prefix),
            (Test::Glob(glob), Scalar::Text(text)) => glob.matches(text),
            (Test::Regex(regex), Scalar::Text(text)) => regex.is_match(text),
            (Test::MaxLen(max), Scalar::Text(text)) => text.chars().count() <= *max as usize,
            (Test::Range { min, max }, Scalar::Number(number, _)) => {
                min.as_ref().is_none_or(|min| min <= number)
                    && max.as_ref().is_none_or(|max| number <= max)
            }
            _ => false,
        }
    }
}

fn has(values: &[Scalar], value: &Scalar) -> bool {
    values.iter().any(|own| same(own, value))
}

/// Numbers are the same however they are written.
fn same(a: &Scalar, b: &Scalar) -> bool {
    match (a, b) {
        (Scalar::Number(a, _), Scalar::Number(b, _)) => a == b,
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        fault::{Faults, Source},
        yaml,
    };

    fn test(text: &str) -> Predicate {
        let text = format!("{{ arg: /x, {text} }}");
        let source = Arc::new(Source { name: "a.yaml".into(), text });
        let nodes = yaml::parse(&source).unwrap();
        let mut faults = Faults::new();
        let read = Predicate::read_all(&nodes[0], &mut faults);
        read.unwrap_or_else(|| panic!("{faults:?}")).into_vec().remove(0)
    }

    #[test]
    fn what_is_certain_follows_and_nothing_else() {
        for (own, other, follows) in [
            ("eq: a", "in: [a, b]", true),
            ("in: [a, b]", "eq: a", false),
            ("in: [a, b]", "in: [b, a, c]", true),
            ("eq: 1.0", "eq: 1", true),
            ("eq: a", "not_in: [b]", true),
            ("not_in: [a, b]", "not_in: [a]", true),
            ("not_in: [a]", "not_in: [a, b]", false),
            ("not_in: [a]", "eq: b", false),
            ("prefix: abc", "prefix: ab", true),
            ("prefix: ab", "prefix: abc", false),
            ("eq: abc", "prefix: ab", true),
            ("eq: abc", "glob: \"a*\"", true),
            ("eq: abc", "regex: \"^b\"", false),
            ("range: [2, 3]", "range: [1, 3]", true),
            ("range: [2, null]", "range: [1, 3]", false),
            ("eq: 2", "range: [1, 3]", true),
            ("max_len: 3", "max_len: 4", true),
            ("glob: \"a*\"", "glob: \"a*\"", true),
            ("glob: \"a*\"", "prefix: a", false),
        ] {
            assert_eq!(test(own).implies(&test(other)), follows, "{own} => {other}");
        }
    }
}
