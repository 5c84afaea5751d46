//! Numbers as exact decimals.
//!
//! A number is never turned into a float or an integer type: two spellings are the same number
//! if their decimal values are equal, whatever their size.

use super::NumberForm;

/// The exponents that fit an `i64` with room for the digits of any text.
const SMALL_EXPONENT: usize = 18;

/// A well-formed number, taken apart: `digits` times a power of ten.
struct Decimal<'t> {
    negative: bool,
    /// The digits before and after the point.
    whole: &'t [u8],
    fraction: &'t [u8],
    /// Of both together: the first digit that is not zero, and the end of the last.
    first: usize,
    last: usize,
    exponent: Exponent,
}

/// The power of ten of the first significant digit.
enum Exponent {
    Small(i64),
    /// More digits than any integer type has; its digits without leading zeros.
    Huge {
        negative: bool,
        digits: Vec<u8>,
    },
}

/// How a well-formed number is spelled.
pub(super) fn form(number: &[u8]) -> NumberForm {
    if !number.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        return NumberForm::Integer;
    }
    let decimal = Decimal::read(number);
    let whole = decimal.is_zero()
        || match decimal.exponent {
            Exponent::Small(exponent) => exponent + 1 >= decimal.len() as i64,
            Exponent::Huge { negative, .. } => !negative,
        };
    if whole { NumberForm::Whole } else { NumberForm::Fractional }
}

/// Whether a well-formed number is in its canonical form already. May say no to one that is.
pub(super) fn is_canonical(number: &[u8]) -> bool {
    number.len() <= 21 && number.iter().skip(1).all(u8::is_ascii_digit) && number != b"-0"
}

/// Appends the one canonical spelling of a well-formed number's exact decimal value.
///
/// It is the spelling that ECMAScript gives a double, which RFC 8785 asks for, but with all the
/// digits that the number has:
///
/// - zero of either sign is `0`; no other number starts with a zero digit before its point
///   unless it is below one, and none ends in a zero behind its point;
/// - from 1e-6 up to below 1e21 plain digits, with a point where there is a fraction;
/// - outside of that `d.ddde+N` or `d.ddde-N`, without a point where there is one digit.
///
/// The length never exceeds that of the number by more than a few bytes (21 for the zeros of
/// a short exponent), so `1e999999999999` stays as short as it is.
pub(super) fn write_canonical(number: &[u8], out: &mut Vec<u8>) {
    let decimal = Decimal::read(number);
    if decimal.is_zero() {
        out.push(b'0');
        return;
    }
    if decimal.negative {
        out.push(b'-');
    }
    match &decimal.exponent {
        Exponent::Small(exponent @ 0..=20) => decimal.write_plain(*exponent as usize + 1, out),
        Exponent::Small(exponent @ -6..=-1) => {
            out.extend_from_slice(b"0.");
            zeros(exponent.unsigned_abs() as usize - 1, out);
            decimal.write_digits(0, decimal.len(), out);
        }
        Exponent::Small(exponent) => {
            let mut buffer = itoa::Buffer::new();
            let digits = buffer.format(exponent.unsigned_abs());
            decimal.write_scientific(*exponent < 0, digits.as_bytes(), out);
        }
        Exponent::Huge { negative, digits } => decimal.write_scientific(*negative, digits, out),
    }
}

// === impl Decimal ===

impl<'t> Decimal<'t> {
    fn read(number: &'t [u8]) -> Self {
        let (negative, number) = match number.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, number),
        };
        let (whole, rest) = split_digits(number);
        let (fraction, rest) = rest.strip_prefix(b".").map_or((&[][..], rest), split_digits);
        let (below_one, power) = match rest {
            [b'e' | b'E', b'-', power @ ..] => (true, power),
            [b'e' | b'E', b'+', power @ ..] | [b'e' | b'E', power @ ..] => (false, power),
            _ => (false, &[][..]),
        };
        let (power, _) = split_digits(power);
        let digits = || whole.iter().chain(fraction);
        let len = whole.len() + fraction.len();
        let first = digits().position(|&digit| digit != b'0').unwrap_or(len);
        let last = len - digits().rev().position(|&digit| digit != b'0').unwrap_or(len);
        // Where the first significant digit stands if there were no exponent.
        let place = whole.len() as i64 - first as i64 - 1;
        let exponent = Exponent::sum(below_one, power, place);
        Self { negative, whole, fraction, first, last, exponent }
    }

    fn is_zero(&self) -> bool {
        self.len() == 0
    }

    /// How many significant digits there are.
    fn len(&self) -> usize {
        self.last.saturating_sub(self.first)
    }

    /// Appends the significant digits from one to another.
    fn write_digits(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        let digits = self.whole.iter().chain(self.fraction);
        out.extend(digits.skip(self.first + from).take(to - from));
    }

    /// With the point behind that many digits.
    fn write_plain(&self, point: usize, out: &mut Vec<u8>) {
        let len = self.len();
        self.write_digits(0, point.min(len), out);
        zeros(point.saturating_sub(len), out);
        if point < len {
            out.push(b'.');
            self.write_digits(point, len, out);
        }
    }

    fn write_scientific(&self, negative: bool, exponent: &[u8], out: &mut Vec<u8>) {
        self.write_digits(0, 1, out);
        if self.len() > 1 {
            out.push(b'.');
            self.write_digits(1, self.len(), out);
        }
        out.extend_from_slice(if negative { b"e-" } else { b"e+" });
        out.extend_from_slice(exponent);
    }
}

// === impl Exponent ===

impl Exponent {
    /// What a written power and the place of the first digit make together.
    fn sum(negative: bool, power: &[u8], place: i64) -> Self {
        let zeros = power.iter().take_while(|&&digit| digit == b'0').count();
        let power = power.get(zeros..).unwrap_or_default();
        if power.len() <= SMALL_EXPONENT {
            let power = value(power);
            return Exponent::Small(if negative { place - power } else { place + power });
        }
        // So far from zero that the place of the first digit cannot change its sign.
        let digits = add(power, if negative { -place } else { place });
        Exponent::Huge { negative, digits }
    }
}

/// A decimal of more digits than `SMALL_EXPONENT`, plus a number that is below any such.
fn add(digits: &[u8], small: i64) -> Vec<u8> {
    const SCALE: i64 = 10_i64.pow(SMALL_EXPONENT as u32);
    let (high, low) = digits.split_at(digits.len() - SMALL_EXPONENT);
    let low = value(low) + small;
    let mut sum = high.to_vec();
    match low.div_euclid(SCALE) {
        1 => carry(&mut sum, b'9', b'0', 1),
        -1 => carry(&mut sum, b'0', b'9', -1),
        _ => {}
    }
    sum.extend(format!("{:018}", low.rem_euclid(SCALE)).into_bytes());
    let zeros = sum.iter().take_while(|&&digit| digit == b'0').count();
    sum.drain(..zeros);
    sum
}

/// Adds one to a decimal, or takes one away: `full` digits roll over and hand it on.
fn carry(digits: &mut Vec<u8>, full: u8, empty: u8, step: i8) {
    for digit in digits.iter_mut().rev() {
        if *digit != full {
            *digit = digit.wrapping_add_signed(step);
            return;
        }
        *digit = empty;
    }
    // Only counting up runs off the front: what is above zero has a digit to take from.
    digits.insert(0, b'1');
}

/// The value of at most `SMALL_EXPONENT` digits.
fn value(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'))
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.split_at(len)
}

fn zeros(count: usize, out: &mut Vec<u8>) {
    out.resize(out.len() + count, b'0');
}
