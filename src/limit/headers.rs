//! How limits are told on HTTP: `RateLimit-Policy`, `RateLimit` and `Retry-After`.
//!
//! The only writer of these fields. The first two are an Internet draft (12, "RateLimit header
//! fields for HTTP") whose parameters may still be renamed. `t` is here the time until one more
//! call fits, which is what GCRA knows, and what `Retry-After` repeats.

use std::{fmt::Write, time::Duration};

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

fn fields<'a>(
    snapshots: impl IntoIterator<Item = &'a Snapshot>,
) -> Option<[(HeaderName, HeaderValue); 2]> {
    let (mut policies, mut limits) = (String::new(), String::new());
    for snapshot in snapshots {
        if !policies.is_empty() {
            policies.push_str(", ");
            limits.push_str(", ");
        }
        policy(&mut policies, &snapshot.policy);
        limit(&mut limits, snapshot);
    }
    if policies.is_empty() {
        return None;
    }
    // Ids are visible ASCII and all else is digits, so neither can fail.
    let policies = HeaderValue::try_from(policies).ok()?;
    let limits = HeaderValue::try_from(limits).ok()?;
    Some([(RATE_LIMIT_POLICY, policies), (RATE_LIMIT, limits)])
}

fn policy(out: &mut String, policy: &Policy) {
    name(out, policy);
    // Writing to a String cannot fail.
    let _ = match policy.window {
        Some(window) => write!(out, ";q={};w={}", policy.quota, seconds(window).max(1)),
        None => write!(out, ";q={};qu=\"concurrent-requests\"", policy.quota),
    };
}

fn limit(out: &mut String, snapshot: &Snapshot) {
    name(out, &snapshot.policy);
    let _ = write!(out, ";r={};t={}", snapshot.remaining, seconds(snapshot.reset));
}

/// A string of structured fields (RFC 9651).
fn name(out: &mut String, policy: &Policy) {
    out.push('"');
    for character in policy.id.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}

/// Rounded up: nobody is asked to come back too early.
fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}
