//! Numbers of rules and arguments, compared by their exact decimal value.

use std::{cmp::Ordering, fmt};

/// Beyond this an exponent is only "very large": nobody writes a rule about such numbers.
const MAX_EXPONENT: i64 = 1 << 40;

/// A number as it was meant, whatever its spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: Box<[u8]>,
    /// The power of ten of the first digit.
    exponent: i64,
}

impl Decimal {
    /// Reads `-1.5e3` and the like; `None` for what is no decimal number.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, power) = match text.split_once(['e', 'E']) {
            Some((mantissa, power)) => (mantissa, Some(power)),
            None => (text, None),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return None,
            None => (mantissa, ""),
        };
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let power = power.map_or(Some(0), read_power)?;
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let Some(first) = digits.iter().position(|digit| *digit != b'0') else {
            return Some(Self { negative: false, digits: Box::default(), exponent: 0 });
        };
        let last = digits.iter().rposition(|digit| *digit != b'0').unwrap_or(first);
        let place = i64::try_from(whole.len()).ok()? - i64::try_from(first).ok()? - 1;
        Some(Self {
            negative,
            digits: digits.get(first..=last)?.into(),
            exponent: place.saturating_add(power),
        })
    }

    fn magnitude(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Both begin with a digit that is not zero.
            (false, false) => {
                self.exponent.cmp(&other.exponent).then_with(|| self.digits.cmp(&other.digits))
            }
        }
    }
}

fn read_power(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let power = digits.parse().map_or(MAX_EXPONENT, |power: i64| power.min(MAX_EXPONENT));
    Some(if negative { -power } else { power })
}

/// As a mantissa and a power of ten, or plainly where that is short.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = String::from_utf8_lossy(&self.digits);
        let sign = if self.negative { "-" } else { "" };
        let places = usize::try_from(self.exponent + 1).ok().filter(|places| *places <= 20);
        match places {
            _ if digits.is_empty() => f.write_str("0"),
            Some(places) if places >= digits.len() => write!(f, "{sign}{digits:0<places$}"),
            Some(places @ 1..) => {
                let (whole, fraction) = digits.split_at(places);
                write!(f, "{sign}{whole}.{fraction}")
            }
            _ => {
                let (first, rest) = digits.split_at(1);
                let point = if rest.is_empty() { "" } else { "." };
                write!(f, "{sign}{first}{point}{rest}e{}", self.exponent)
            }
        }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.magnitude(other),
            (true, true) => other.magnitude(self),
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_by_value_and_not_by_spelling() {
        let ordered = [
            "-1e30",
            "-100",
            "-99.5",
            "-1",
            "-0.5",
            "-1e-9",
            "0",
            "1e-9",
            "0.05",
            "0.5",
            "1",
            "1.5",
            "2",
            "10",
            "99.999",
            "100",
            "9007199254740992",
            "9007199254740993",
            "1e30",
        ];
        let read: Vec<_> = ordered.iter().map(|text| Decimal::parse(text).unwrap()).collect();
        for (i, a) in read.iter().enumerate() {
            for (j, b) in read.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{} {}", ordered[i], ordered[j]);
            }
        }
        for (one, other) in [
            ("1", "1.0"),
            ("100", "1e2"),
            ("0.1", "10E-2"),
            ("-0", "0"),
            ("0e9", "0"),
            ("1.50", "1.5"),
        ] {
            assert_eq!(Decimal::parse(one), Decimal::parse(other), "{one} {other}");
        }
    }

    #[test]
    fn a_number_is_told_as_it_would_be_written() {
        for (text, told) in [
            ("0", "0"),
            ("-1.50", "-1.5"),
            ("100", "100"),
            ("1e3", "1000"),
            ("0.05", "5e-2"),
            ("1.25e-30", "1.25e-30"),
        ] {
            assert_eq!(Decimal::parse(text).unwrap().to_string(), told);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", "+1", ".5", "1.", "1e", "1e+", "0x10", "1_000", "1 ", "nan", "1.2.3"]
        {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
        assert!(Decimal::parse("1e99999999999999999999").is_some());
    }
}
