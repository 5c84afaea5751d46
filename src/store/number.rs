//! Numbers on their way into databases, which count in 63 bits, and back.

/// Times and sizes beyond what a database counts are as good as the last.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
