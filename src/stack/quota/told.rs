//! How quotas are told: the refusal, the warning, and which tool ran instead.
//!
//! Not by `RateLimit` fields, which count requests, and would say wrong things of cost units.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::{
    error::{Code, Error, Next},
    limit::quota::{Refused, Use, Why},
    model::{
        exchange::{Exchange, LimitHit, LimitKind, QuotaUse},
        quota::Action,
    },
};

/// Whoever is to wait for no longer than this is told to wait; all others to do something else.
const WORTH_WAITING: Duration = Duration::from_hours(1);

/// Notes which quota was hit, and says so.
pub(super) fn refusal(exchange: &Exchange, refused: &Refused, cost: u32) -> Error {
    note(exchange, refused);
    match &refused.why {
        Why::Spent(step) => {
            let Use { id, used, budget, .. } = &refused.standing;
            let (every, until) = (refused.every, &refused.until);
            let message = format!(
                "Quota `{id}`: {used} of {budget} for this {every} are spent, and this call costs \
                 {cost}; it begins anew at {until}"
            );
            spent(refused, message, matches!(&step.action, Action::Hide { cost_at_least: 2.. }))
        }
        Why::StoreDown => store_unavailable().with_limit(&*refused.standing.id),
    }
}

/// The refusal of a call that was to run as another tool, and cannot.
pub(super) fn undegraded(exchange: &Exchange, refused: &Refused, to: &str, why: &str) -> Error {
    note(exchange, refused);
    let Use { id, used, budget, .. } = &refused.standing;
    let (every, until) = (refused.every, &refused.until);
    let message = format!(
        "Quota `{id}`: {used} of {budget} for this {every} are spent, and this call cannot run as \
         `{to}` instead: {why}; it begins anew at {until}"
    );
    spent(refused, message, true)
}

fn spent(refused: &Refused, message: String, cheaper_may_run: bool) -> Error {
    let left = Duration::from_millis(refused.left_ms.max(1));
    let (retryable, next) = match left {
        left if left <= WORTH_WAITING => (true, Next::Wait),
        _ if cheaper_may_run => (false, Next::Degrade),
        _ => (false, Next::Stop),
    };
    Error::new(Code::QuotaExhausted, message)
        .with_limit(&*refused.standing.id)
        .with_reason("quota_exhausted")
        .with_retry_after(left)
        .with_advice(retryable, next)
}

/// Our own failure: nobody knows what is spent.
pub(super) fn store_unavailable() -> Error {
    Error::new(
        Code::Internal,
        "the gateway's store cannot be used, so a call that is counted by a quota was not made",
    )
    .with_kind("store_unavailable")
    .with_reason("store_unavailable")
    .with_advice(true, Next::Wait)
    .with_retry_after(Duration::from_secs(5))
}

fn note(exchange: &Exchange, refused: &Refused) {
    let Use { id, used, budget, .. } = &refused.standing;
    let mut facts = exchange.facts();
    facts.limits.push(LimitHit { id: id.clone(), kind: LimitKind::Quota });
    facts.quota = vec![QuotaUse { id: id.clone(), used: *used, budget: *budget }];
}

/// What an answer says of quotas that have reached a step with `warn`.
pub(super) fn warning(uses: &[Use]) -> Option<Bytes> {
    let warned: Vec<_> = uses
        .iter()
        .filter_map(|quota| {
            Some(json!({
                "id": &*quota.id,
                "used": quota.used,
                "budget": quota.budget,
                "reached": format!("{}%", quota.warned?),
                "until": written(quota.until_ms),
            }))
        })
        .collect();
    (!warned.is_empty()).then(|| serde_json::Value::from(warned).to_string().into())
}

fn written(ms: u64) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(time.to_string())
}

/// Which tool was called, and which ran.
pub(super) fn degraded(from: &str, to: &str, quota: &str) -> Bytes {
    json!({ "from": from, "to": to, "quota": quota }).to_string().into()
}
