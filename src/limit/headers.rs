//! How limits are told on HTTP: `RateLimit-Policy`, `RateLimit` and `Retry-After`.
//!
//! The only writer of these fields. The first two are an Internet draft (12, "RateLimit header
//! fields for HTTP") whose parameters may still be renamed. `t` is here the time until one more
//! call fits, which is what GCRA knows, and what `Retry-After` repeats.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut, BytesMut};
use http::{HeaderName, HeaderValue, header::RETRY_AFTER};

use super::{Admitted, Exceeded, Policy, Snapshot};
use crate::mcp::header::{RATE_LIMIT, RATE_LIMIT_POLICY};

/// What to say on an answer: the tightest one or two policies, none if no rate was about it.
pub fn admitted_headers(
    admitted: &Admitted,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
    let snapshots: [Option<&Snapshot>; 2] = admitted.tightest.each_ref().map(Option::as_ref);
    fields(snapshots.into_iter().flatten()).into_iter().flatten()
}

/// What to say on a refusal: the limit that refused, and when to come back.
pub fn exceeded_headers(
    exceeded: &Exceeded,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
    let wait = exceeded.retry_after.max(exceeded.snapshot.reset);
    let retry_after = (RETRY_AFTER, HeaderValue::from(seconds(wait).max(1)));
    fields([&exceeded.snapshot]).into_iter().flatten().chain([retry_after])
}

/// A policy's part of the fields that never changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// The id as a string of structured fields (RFC 9651).
    name: Box<str>,
    /// Its member of `RateLimit-Policy`.
    policy: Box<str>,
}

impl Policy {
    pub(super) fn new(id: Arc<str>, quota: u32, window: Option<Duration>) -> Self {
        let name: Box<str> =
            format!("\"{}\"", id.replace('\\', r"\\").replace('"', r#"\""#)).into();
        let policy = match window {
            Some(window) => format!("{name};q={quota};w={}", seconds(window).max(1)),
            None => format!("{name};q={quota};qu=\"concurrent-requests\""),
        };
        Self { id, quota, window, written: Written { name, policy: policy.into() } }
    }
}

fn fields<'a>(
    snapshots: impl IntoIterator<Item = &'a Snapshot>,
) -> Option<[(HeaderName, HeaderValue); 2]> {
    let mut policies = BytesMut::with_capacity(64);
    let mut limits = BytesMut::with_capacity(64);
    let mut digits = itoa::Buffer::new();
    for Snapshot { policy, remaining, reset } in snapshots {
        if !policies.is_empty() {
            policies.put_slice(b", ");
            limits.put_slice(b", ");
        }
        policies.put_slice(policy.written.policy.as_bytes());
        limits.put_slice(policy.written.name.as_bytes());
        limits.put_slice(b";r=");
        limits.put_slice(digits.format(*remaining).as_bytes());
        limits.put_slice(b";t=");
        limits.put_slice(digits.format(seconds(*reset)).as_bytes());
    }
    if policies.is_empty() {
        return None;
    }
    // Ids are visible ASCII and all else is digits, so neither can fail.
    let policies = HeaderValue::from_maybe_shared(policies.freeze()).ok()?;
    let limits = HeaderValue::from_maybe_shared(limits.freeze()).ok()?;
    Some([(RATE_LIMIT_POLICY, policies), (RATE_LIMIT, limits)])
}

/// Rounded up: nobody is asked to come back too early.
fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(id: &str, window: Option<Duration>, remaining: u32, reset_ms: u64) -> Snapshot {
        let policy = Arc::new(Policy::new(id.into(), 60, window));
        Snapshot { policy, remaining, reset: Duration::from_millis(reset_ms) }
    }

    fn written(fields: impl Iterator<Item = (HeaderName, HeaderValue)>) -> Vec<String> {
        fields.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

    #[test]
    fn an_answer_tells_what_is_left() {
        let user = snapshot("user", MINUTE, 12, 5_000);
        let one = Admitted { tightest: [Some(user.clone()), None] };
        assert_eq!(
            written(admitted_headers(&one)),
            [r#"ratelimit-policy: "user";q=60;w=60"#, r#"ratelimit: "user";r=12;t=5"#]
        );
        let crm = snapshot("crm", Some(Duration::from_millis(1_500)), 30, 0);
        let two = Admitted { tightest: [Some(user), Some(crm)] };
        assert_eq!(
            written(admitted_headers(&two)),
            [
                r#"ratelimit-policy: "user";q=60;w=60, "crm";q=60;w=2"#,
                r#"ratelimit: "user";r=12;t=5, "crm";r=30;t=0"#
            ]
        );
        assert_eq!(admitted_headers(&Admitted::default()).count(), 0);
    }

    #[test]
    fn a_refusal_tells_when_to_come_back() {
        let check = |reset_ms, retry_ms, t, retry_after| {
            let exceeded = Exceeded {
                snapshot: snapshot("user", MINUTE, 0, reset_ms),
                retry_after: Duration::from_millis(retry_ms),
            };
            let expected = [
                r#"ratelimit-policy: "user";q=60;w=60"#.to_owned(),
                format!(r#"ratelimit: "user";r=0;t={t}"#),
                format!("retry-after: {retry_after}"),
            ];
            assert_eq!(written(exceeded_headers(&exceeded)), expected);
        };
        // Rounded up, at least one, and never earlier than `t`.
        check(5_000, 5_000, 5, 5);
        check(5_001, 5_001, 6, 6);
        check(1, 1, 1, 1);
        check(0, 0, 0, 1);
        check(9_000, 1_000, 9, 9);
    }

    #[test]
    fn slots_have_no_window() {
        let exceeded = Exceeded {
            snapshot: snapshot("crm", None, 0, 1_000),
            retry_after: Duration::from_secs(1),
        };
        assert_eq!(
            written(exceeded_headers(&exceeded)),
            [
                r#"ratelimit-policy: "crm";q=60;qu="concurrent-requests""#,
                r#"ratelimit: "crm";r=0;t=1"#,
                "retry-after: 1"
            ]
        );
    }

    #[test]
    fn an_id_is_written_as_a_string() {
        let one = Admitted { tightest: [Some(snapshot(r#"a"\;q=1"#, MINUTE, 1, 1)), None] };
        let [_, limit] = <[String; 2]>::try_from(written(admitted_headers(&one))).unwrap();
        assert_eq!(limit, r#"ratelimit: "a\"\\;q=1";r=1;t=1"#);
    }
}
