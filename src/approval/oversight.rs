//! What whoever looks after the gateway sees of requests, and may do about them: all of them, and
//! say no.
//!
//! A yes is an employee's who has a rule's role: nothing here gives one.

use super::{
    Approval, ApprovalId, Approvals, DecideFault, Ended, State, Vote, Voter,
    store::{Change, MAX_LISTED, Pick, StoreFault},
    wait,
};

/// Requests, the newest first, and whether there are older ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    pub some: Vec<Approval>,
    /// Behind this one there are more to be looked at.
    pub next: Option<ApprovalId>,
}

impl Approvals {
    /// At most so many requests that are wanted. It looks at a bounded number, so that there may
    /// be fewer of them, and more behind.
    pub async fn survey(
        &self,
        pick: Pick,
        most: usize,
        wanted: impl Fn(&Approval) -> bool,
    ) -> Result<Survey, StoreFault> {
        let seen = wait(|then| self.store.list(pick, then)).await?;
        let has_more = seen.len() >= MAX_LISTED;
        let last = seen.last().map(|approval| approval.id).filter(|_| has_more);
        let mut some = Vec::new();
        for approval in seen {
            if !wanted(&approval) {
                continue;
            }
            if some.len() == most {
                let next = some.last().map(|last: &Approval| last.id);
                return Ok(Survey { some, next });
            }
            some.push(approval);
        }
        Ok(Survey { some, next: last })
    }

    /// One request, whosever it is.
    pub async fn find(&self, id: ApprovalId) -> Result<Option<Approval>, StoreFault> {
        wait(|then| self.store.find(id, then)).await
    }

    /// Says no to a request in the name of a token, be it that it waits or that its call has not
    /// been made yet.
    pub async fn refuse(
        &self,
        id: ApprovalId,
        token: &str,
        comment: Option<&str>,
    ) -> Result<Approval, DecideFault> {
        let now_ms = self.now_ms();
        let (token, comment) = (Box::<str>::from(token), comment.map(Box::<str>::from));
        let change: Change<Result<Approval, DecideFault>> = Box::new(move |known| {
            let Some(mut approval) = known else { return (None, Err(DecideFault::Unknown)) };
            match approval.state(now_ms) {
                State::Waiting | State::Approved => {
                    let by = Voter::Token(token.clone());
                    let (rules, comment) = (Vec::new(), comment.clone());
                    approval.votes.push(Vote { by, rules, yes: false, comment, at_ms: now_ms });
                    (Some(approval.clone()), Ok(approval))
                }
                over => (None, Err(DecideFault::Over(over))),
            }
        });
        let refused =
            wait(|then| self.store.decide(id, change, self.tell_decided(then, now_ms))).await??;
        let mut before = refused.clone();
        before.votes.pop();
        // Where it was approved, that was its end.
        if !before.is_decided() {
            self.ended(Ended::Refused, now_ms.saturating_sub(refused.request.asked_ms));
        }
        Ok(refused)
    }
}
