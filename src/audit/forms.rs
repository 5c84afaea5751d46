//! How a record writes single values: texts as RFC 8785 has them, times, and arguments.

use crate::model::{argument_facts::Fact, ids::hex};

/// Writes a JSON string as RFC 8785 wants it.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    // Without a way out in the middle, so that it is done many bytes at a time.
    let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    if !bytes.iter().fold(false, |found, byte| found | special(byte)) {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut written = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            0x08 => b'b',
            0x09 => b't',
            0x0a => b'n',
            0x0c => b'f',
            0x0d => b'r',
            0x00..=0x1f => b'u',
            _ => continue,
        };
        out.extend_from_slice(&bytes[written..at]);
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            out.extend_from_slice(b"00");
            out.extend_from_slice(&hex::<1, 2>([*byte]));
        }
        written = at + 1;
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

/// Writes what is told of an argument. A number that RFC 8785 would write otherwise is a text
/// here, for a record's own digest rests on that form.
pub(super) fn push_fact(out: &mut Vec<u8>, fact: &Fact) {
    let counted = |out: &mut Vec<u8>, name: &str, count: usize| {
        out.extend_from_slice(format!("{{\"{name}\":{count}}}").as_bytes());
    };
    match fact {
        Fact::Absent => out.extend_from_slice(b"{\"absent\":true}"),
        Fact::Null => out.extend_from_slice(b"null"),
        Fact::Bool(true) => out.extend_from_slice(b"true"),
        Fact::Bool(false) => out.extend_from_slice(b"false"),
        Fact::Number(written) if is_canonical(written) => {
            out.extend_from_slice(written.as_bytes());
        }
        Fact::Number(written) => {
            out.extend_from_slice(b"{\"number\":");
            push_string(out, written);
            out.push(b'}');
        }
        Fact::Text(text) if text.chars().any(misleads) => {
            counted(out, "characters", text.chars().count());
        }
        Fact::Text(text) => push_string(out, text),
        Fact::Characters(count) => counted(out, "characters", *count),
        Fact::Elements(count) => counted(out, "elements", *count),
        Fact::Object => out.extend_from_slice(b"{\"object\":true}"),
        Fact::Withheld => out.extend_from_slice(b"{\"withheld\":true}"),
    }
}

/// Whether RFC 8785 writes the number just so; sure of whole numbers of up to 15 digits alone.
fn is_canonical(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let plain = digits.len() <= 15 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain && (number == "0" || !digits.starts_with('0'))
}

/// Characters that end or reorder a line for some reader, other than those JSON escapes.
pub(super) fn misleads(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Writes a time as RFC 3339 with milliseconds, in UTC.
pub(super) fn push_time(out: &mut Vec<u8>, ms: u64) {
    const DAY: u64 = 86_400_000;
    let (year, month, day) = civil(ms / DAY);
    let rest = ms % DAY;
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let mut digits = |value: u64, place: std::ops::Range<usize>| {
        let mut rest = value;
        for digit in text[place].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    };
    digits(year, 0..4);
    digits(month, 5..7);
    digits(day, 8..10);
    digits(hour, 11..13);
    digits(minute, 14..16);
    digits(second, 17..19);
    digits(milli, 20..23);
    out.extend_from_slice(&text);
}

/// Year, month and day of a number of days since 1970, by counting in eras of 400 years that
/// begin in March, so that the leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}
