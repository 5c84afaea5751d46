//! What a call asks of the engine on its way: may it run, and what if it did not.
//!
//! Deciding and looking is in `mod.rs`.

use tokio::sync::oneshot;

use super::{
    Approval, ApprovalId, Approvals, DecideFault, Request, Standing, State, Subject, answered,
    store::{ApprovalStore, Change, Room, StoreFault},
    wait,
};

/// When a yes is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// With the answer that it is there.
    Now,
    /// Not yet: something else has to be seen to first.
    Later,
}

/// What is good once, by a name that nobody can guess.
pub type Token = [u8; 32];

// === impl Approvals ===

impl Approvals {
    /// As [`ask`](Self::ask), for a request that knows its id already, since what is sealed in it
    /// is bound to that. Where the request was made before, the id is nobody's.
    pub async fn ask_as(
        &self,
        id: ApprovalId,
        request: Request,
        when: Use,
    ) -> Result<Standing, StoreFault> {
        let (binding, now_ms) = (request.subject.binding(), self.now_ms());
        let room = Room { holder: request.subject.holder(), bounds: self.bounds, now_ms };
        let fresh = Approval { id, request, votes: Vec::new(), used_ms: None };
        let change: Change<Standing> = Box::new(move |known| {
            let state = known.as_ref().map(|approval| approval.state(now_ms));
            match (known, state) {
                (Some(approval), Some(State::Approved)) if when == Use::Later => {
                    (None, Standing::Granted(approval))
                }
                (Some(mut approval), Some(State::Approved)) => {
                    approval.used_ms = Some(now_ms);
                    (Some(approval.clone()), Standing::Granted(approval))
                }
                (Some(approval), Some(State::Waiting)) => {
                    (None, Standing::Waiting { approval, new: false })
                }
                // A no is good for as long as a yes would have been.
                (Some(approval), Some(State::Refused)) if now_ms < approval.request.expires_ms => {
                    (None, Standing::Refused(approval))
                }
                _ => {
                    let approval = fresh.clone();
                    (Some(approval.clone()), Standing::Waiting { approval, new: true })
                }
            }
        });
        let (tell, told) = oneshot::channel();
        let store = self.store.clone();
        let then = move |answer| {
            // Whoever asked may have gone: then nobody makes the call that this was for.
            if let Err(Ok(Standing::Granted(approval))) = tell.send(answer)
                && when == Use::Now
            {
                unuse(&*store, approval.id);
            }
        };
        self.store.ask(binding, room, change, self.tell_asked(Box::new(then)));
        answered(told).await
    }

    /// How the newest request of a call stands, and nothing changes.
    pub async fn newest(&self, subject: &Subject) -> Result<Option<Approval>, StoreFault> {
        let binding = subject.binding();
        wait(|then| self.store.newest(binding, then)).await
    }

    /// Takes what is good once; `false` if somebody has.
    pub async fn take(&self, token: Token, expires_ms: u64) -> Result<bool, StoreFault> {
        wait(|then| self.store.take(token, expires_ms, then)).await
    }

    /// Gives back what a call took that surely never left. Nobody waits for it: if the store is
    /// lost meanwhile it stays used up, which is the safe side.
    pub fn unused(&self, approval: Option<ApprovalId>, token: Option<Token>) {
        if let Some(id) = approval {
            unuse(&*self.store, id);
        }
        if let Some(token) = token {
            self.store.put_back(token, Box::new(drop));
        }
    }
}

fn unuse(store: &dyn ApprovalStore, id: ApprovalId) {
    store.decide(id, given_back(), Box::new(drop));
}

/// The change that makes a grant one that is still to be used.
pub(super) fn given_back() -> Change<Result<Approval, DecideFault>> {
    Box::new(|known| match known {
        Some(mut approval) => {
            approval.used_ms = None;
            (Some(approval.clone()), Ok(approval))
        }
        None => (None, Err(DecideFault::Unknown)),
    })
}
