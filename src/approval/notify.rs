//! Telling somebody what becomes of requests. Who hears of it, and how, is not known here.

use super::{Approval, Approvals, DecideFault, Standing, State, store::Then};

/// What is told of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notice {
    /// It is new, and waits.
    Requested,
    Approved,
    Refused,
}

/// Hears of requests once that is durable, also where whoever asked or decided has gone away
/// meanwhile.
pub trait Notify: Send + Sync + 'static {
    /// Returns at once: it is called on a thread of the store's.
    fn notify(&self, notice: Notice, approval: &Approval);
}

// === impl Notice ===

impl Notice {
    pub const fn as_str(self) -> &'static str {
        match self {
            Notice::Requested => "requested",
            Notice::Approved => "approved",
            Notice::Refused => "refused",
        }
    }

    /// What a decision that has just been taken amounts to; nothing while more people are wanted.
    fn of_decision(approval: &Approval, now_ms: u64) -> Option<Self> {
        match approval.state(now_ms) {
            State::Approved => Some(Notice::Approved),
            State::Refused => Some(Notice::Refused),
            State::Waiting | State::Used | State::Expired => None,
        }
    }
}

// === impl Approvals ===

impl Approvals {
    /// Tells of a request that is new, too.
    pub(super) fn tell_asked(&self, then: Then<Standing>) -> Then<Standing> {
        self.telling(then, |standing| match standing {
            Standing::Waiting { approval, new: true } => Some((Notice::Requested, approval)),
            _ => None,
        })
    }

    /// Tells of a decision that was taken, too.
    pub(super) fn tell_decided(
        &self,
        then: Then<Result<Approval, DecideFault>>,
        now_ms: u64,
    ) -> Then<Result<Approval, DecideFault>> {
        self.telling(then, move |decided| {
            let approval = decided.as_ref().ok()?;
            Some((Notice::of_decision(approval, now_ms)?, approval))
        })
    }

    /// Before whoever waits hears of it: he may be gone.
    fn telling<T: 'static>(
        &self,
        then: Then<T>,
        notice: impl FnOnce(&T) -> Option<(Notice, &Approval)> + Send + 'static,
    ) -> Then<T> {
        let Some(notify) = self.notify.clone() else { return then };
        Box::new(move |answer| {
            if let Some((notice, approval)) = answer.as_ref().ok().and_then(notice) {
                notify.notify(notice, approval);
            }
            then(answer);
        })
    }
}
