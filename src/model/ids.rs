//! Fresh identifiers: trace and span ids, UUIDs of calls and records.
//!
//! They have to be unique, not secret: each thread draws them from a small generator of its own,
//! seeded by the system. Nothing that must not be guessed is made here.

use std::cell::RefCell;

use rand::{Rng, rngs::SmallRng};

thread_local! {
    static GENERATOR: RefCell<SmallRng> = RefCell::new(rand::make_rng());
}

/// A random trace id, never all zero.
pub fn trace_id() -> [u8; 16] {
    (u128::from(word()) << 64 | u128::from(word())).max(1).to_be_bytes()
}

/// A random span id, never all zero.
pub fn span_id() -> [u8; 8] {
    word().max(1).to_be_bytes()
}

/// A UUIDv7 (RFC 9562) of the given time in milliseconds since 1970.
pub fn uuid_v7(ms: u64) -> u128 {
    const VERSION: u128 = 7 << 76;
    const VARIANT: u128 = 0b10 << 62;
    let time = u128::from(ms & 0xffff_ffff_ffff) << 80;
    let random_a = u128::from(word() & 0xfff) << 64;
    let random_b = u128::from(word() >> 2);
    time | VERSION | random_a | VARIANT | random_b
}

/// A random number below 1 with 53 bits, for samplers.
pub fn fraction() -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exactly what an f64 holds")]
    let bits = (word() >> 11) as f64;
    bits / (1u64 << 53) as f64
}

/// Appends a UUID in its usual form with hyphens.
pub fn push_uuid(out: &mut Vec<u8>, uuid: u128) {
    let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32];
    let digits = hex::<16, 32>(uuid.to_be_bytes());
    out.extend_from_slice(&digits[a]);
    for group in [b, c, d, e] {
        out.push(b'-');
        out.extend_from_slice(&digits[group]);
    }
}

/// Bytes in lower-case hexadecimal, two digits for each.
pub fn hex<const N: usize, const DIGITS: usize>(bytes: [u8; N]) -> [u8; DIGITS] {
    const { assert!(DIGITS == 2 * N) };
    const DIGIT: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; DIGITS];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGIT[usize::from(byte >> 4)], DIGIT[usize::from(byte & 15)]]);
    }
    digits
}

/// A UUID in its usual form with hyphens.
pub fn uuid_text(uuid: u128) -> String {
    let mut out = Vec::with_capacity(36);
    push_uuid(&mut out, uuid);
    String::from_utf8(out).unwrap_or_default()
}

fn word() -> u64 {
    GENERATOR.with_borrow_mut(|generator| generator.next_u64())
}

/// A digest of 64 hexadecimal digits in lower case.
pub fn from_hex(digits: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let plain = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if digits.len() != 64 || !plain {
        return None;
    }
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_tells_its_time_version_and_variant() {
        let text = uuid_text(uuid_v7(0x0198_f2aa_bbcc));
        assert!(text.starts_with("0198f2aa-bbcc-7"), "{text}");
        assert!(matches!(text.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{text}");
        assert_eq!(text.len(), 36);
    }

    #[test]
    fn ids_differ() {
        assert_ne!(trace_id(), trace_id());
        assert_ne!(span_id(), span_id());
        assert_ne!(uuid_v7(1), uuid_v7(1));
    }

    #[test]
    fn a_fraction_is_below_one() {
        assert!((0..1000).map(|_| fraction()).all(|f| (0.0..1.0).contains(&f)));
    }
}
