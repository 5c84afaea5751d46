//! What callers are told of calls that wait for a yes, or do not get one.

use std::time::Duration;

use super::{confirm::Said, held::Held};
use crate::{
    approval::{ApprovalId, store::StoreFault},
    error::{Code, Error, Next},
};

/// Somebody else has to decide first.
pub fn waiting(held: &Held, id: ApprovalId) -> Error {
    let why = held.say.as_deref().unwrap_or("This call needs the approval of another person.");
    let message = format!(
        "{why} It is decided at /v1/approvals/{id} (hangu approvals show {id}); once it is \
         approved, the same call runs, once."
    );
    Error::new(Code::ApprovalRequired, message).with_reason("rule_approval").with_approval(id)
}

/// Somebody said no. Who, and what he wrote to it, is told where the request is looked at: this
/// is read by a model.
pub fn refused(id: ApprovalId) -> Error {
    let message =
        format!("The approval of this call was refused; /v1/approvals/{id} says more of it.");
    Error::new(Code::PermissionDenied, message)
        .with_reason("approval_refused")
        .with_approval(id)
        .with_advice(false, Next::Stop)
}

/// The person it is made for would have to be asked, and cannot be.
pub fn cannot_be_asked(held: &Held) -> Error {
    let why = held
        .say_confirm
        .as_deref()
        .unwrap_or("This call has to be confirmed by the person it is made for.");
    let message = format!(
        "{why} This client cannot ask; one that declares elicitation can, in a session where its \
         revision has any."
    );
    Error::new(Code::ApprovalRequired, message).with_reason("rule_approval")
}

/// What follows from what was said to a question; nothing from a yes.
pub fn heard(said: Said, patience: Duration) -> Result<(), Error> {
    let no = |message: &'static str, reason| {
        Error::new(Code::PermissionDenied, message)
            .with_reason(reason)
            .with_advice(false, Next::Stop)
    };
    Err(match said {
        Said::Yes => return Ok(()),
        Said::No => no("The person this call is made for declined it.", "confirmation_declined"),
        Said::Nothing => no(
            "The person this call is made for did not confirm it and closed the question.",
            "confirmation_cancelled",
        ),
        Said::TooLate => {
            let message = format!(
                "The person this call is made for did not confirm it within {} s.",
                patience.as_secs()
            );
            Error::new(Code::ApprovalRequired, message).with_reason("confirmation_unanswered")
        }
        Said::Unreadable => {
            let message = "This call has to be confirmed, and its client did not answer that \
                           question.";
            Error::new(Code::ApprovalRequired, message).with_reason("confirmation_unanswered")
        }
    })
}

/// The store does not know, or has no room: then the call is not made.
pub fn store(fault: StoreFault) -> Error {
    match fault {
        StoreFault::Full => Error::new(
            Code::RateLimited,
            "as many requests for approval wait as may: this one was not made",
        )
        .with_limit("approvals.max_waiting")
        .with_reason("approvals_full")
        .with_retry_after(Duration::from_secs(60)),
        StoreFault::Unavailable | StoreFault::Unclear => Error::new(
            Code::Internal,
            "the gateway's store cannot be used, so a call that needs approval was not made",
        )
        .with_kind("store_unavailable")
        .with_reason("store_unavailable")
        .with_cause(fault)
        .with_advice(true, Next::Wait)
        .with_retry_after(Duration::from_secs(5)),
    }
}
