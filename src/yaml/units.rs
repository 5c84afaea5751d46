//! Durations, sizes and rates as they are written in files.

use std::time::Duration;

/// A number of bytes: `64KiB`, `1MiB`, or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// So many in such a time: `60/1m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: u32,
    pub period: Duration,
}

/// `500ms`, `15s`, `2m`, `1h`, `7d`; what follows "`…` " if it is none.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "is not a duration such as `500ms`, `15s`, `2m`, `1h` or `7d`".to_owned();
    let (number, unit) = split_unit(text).ok_or_else(wrong)?;
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(ms).map(Duration::from_millis).ok_or_else(|| "is too long".to_owned())
}

/// A duration as a file would have it, for messages.
pub fn duration_text(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0 => "0s".to_owned(),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        _ => format!("{ms}ms"),
    }
}

pub fn parse_size(text: &str) -> Result<ByteSize, String> {
    let wrong = || "is not a size such as `64KiB`, `1MiB` or `1GiB`".to_owned();
    let (number, unit) = split_unit(text).ok_or_else(wrong)?;
    let bytes: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(bytes).map(ByteSize).ok_or_else(|| "is too large".to_owned())
}

pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let wrong = || "is not a rate such as `60/1m`".to_owned();
    let (count, period) = text.split_once('/').ok_or_else(wrong)?;
    let count: u32 = digits(count).and_then(|n| u32::try_from(n).ok()).ok_or_else(wrong)?;
    let period = parse_duration(period).map_err(|_| wrong())?;
    if count == 0 || period.is_zero() {
        return Err("allows nothing; a rule with `effect: deny` says so".to_owned());
    }
    Ok(Rate { count, period })
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((digits(number)?, unit))
}

fn digits(text: &str) -> Option<u64> {
    // `parse` alone would let a sign pass.
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        let read = |text| parse_duration(text).ok().map(|d| d.as_millis());
        for (text, ms) in
            [("0s", 0), ("500ms", 500), ("15s", 15_000), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(read(text), Some(ms), "{text}");
            assert_eq!(duration_text(Duration::from_millis(ms as u64)), text);
        }
        for text in ["", "15", "s", "-1s", "+1s", "1.5s", "1 s", "1S", "1w", "99999999999999999d"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_counts_in_powers_of_two() {
        let read = |text| parse_size(text).ok().map(|size| size.0);
        for (text, bytes) in
            [("10", 10), ("10B", 10), ("64KiB", 65_536), ("1MiB", 1 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(read(text), Some(bytes), "{text}");
        }
        for text in ["", "MiB", "1MB", "1mib", "-1MiB", "99999999999GiB"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_rate_is_a_count_in_a_time() {
        let rate = parse_rate("60/1m").unwrap();
        assert_eq!((rate.count, rate.period), (60, Duration::from_secs(60)));
        for text in ["", "60", "60/", "/1m", "60/m", "0/1m", "60/0s", "60 / 1m", "+1/1s"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
