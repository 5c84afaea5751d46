//! A permit that still asks for somebody's yes: the call waits for it, and is told where it is
//! given; with it, the call runs, once.
//!
//! Others decide elsewhere (`/v1/approvals`), so a call that needs them is answered at once, and
//! made again by whoever wants it. The person it is made for is asked through his own client
//! (`approval/confirm.rs`). A call that no rule asks about passes untouched.
//!
//! What such a call is, to the letter, is in `approval/held.rs`, what its client keeps for it
//! between two requests in `approval/ticket.rs`.

mod confirm;
mod held;
mod ticket;
mod told;

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use futures_util::future::Either;
use tokio::time::Instant;
use tower::{Layer, Service};

use self::{confirm::Said, held::Held, ticket::Ticket};
use super::{
    asked::Asked,
    stage::{BoxFuture, Brought, Permitted, TrialApproval, not_good},
};
use crate::{
    approval::{ApprovalId, Approvals, ArgumentSeal, Ended, Request, Standing, State, Token, Use},
    audit::{Audit, Keys, Record},
    error::Error,
    identity::state::States,
    model::{
        exchange::{ApprovalFact, Exchange, NorthDialect},
        reply::Reply,
    },
    upstream::Failure,
};

/// Sees to calls that somebody has to approve or confirm.
#[derive(Clone)]
pub struct ApprovalLayer {
    pub approvals: Arc<Approvals>,
    pub seal: Arc<ArgumentSeal>,
    pub keys: Arc<Keys>,
    pub audit: Arc<Audit>,
    pub states: Arc<States>,
    pub asked: Arc<Asked>,
    /// The longest arguments that are kept for those who decide, in bytes.
    pub max_arguments: usize,
}

impl<S> Layer<S> for ApprovalLayer {
    type Service = Approval<S>;

    fn layer(&self, inner: S) -> Approval<S> {
        Approval { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Approval<S> {
    inner: S,
    layer: Arc<ApprovalLayer>,
}

impl<S> Service<Permitted> for Approval<S>
where
    S: Service<Permitted, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<S::Future, BoxFuture<Reply>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, permitted: Permitted) -> Self::Future {
        if permitted.permit.asks().is_empty() {
            return Either::Left(self.inner.call(permitted));
        }
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        if permitted.trial.is_some() {
            return Either::Right(Box::pin(layer.tried(inner, permitted)));
        }
        Either::Right(Box::pin(layer.seen_to(inner, permitted)))
    }
}

/// What a call has used up to run.
#[derive(Default, Clone, Copy)]
struct Used {
    approval: Option<ApprovalId>,
    token: Option<Token>,
}

impl ApprovalLayer {
    /// Lets the call run if everybody has said yes who is asked.
    async fn seen_to<S>(self: Arc<Self>, inner: S, mut permitted: Permitted) -> Result<Reply, Error>
    where
        S: Service<Permitted, Response = Reply, Error = Error> + Send + 'static,
        S::Future: Send,
    {
        let brought = Brought::take(&mut permitted.call.request);
        let held = Held::of(&permitted, &self.keys);
        let exchange = permitted.call.exchange.clone();
        let Some(brought) = brought else {
            return self.first(inner, permitted, held).await;
        };
        match self.open(&permitted.call, &held, &brought)? {
            Ticket::Granted { token, state } => {
                self.take(token).await?;
                note(&exchange, None, "granted");
                brought.put_back(&mut permitted.call.request, state);
                let used = Used { approval: None, token: Some(token) };
                self.run(inner, permitted, held, used).await
            }
            Ticket::Confirm { token, asked_ms } => {
                self.take(token).await?;
                let waited_ms = self.approvals.now_ms().saturating_sub(asked_ms);
                self.heard(&exchange, confirm::said(brought.answers.as_ref()), waited_ms)?;
                let mut used = Used { approval: None, token: Some(token) };
                if !held.demands.is_empty() {
                    used.approval = Some(self.ask(&permitted, &held, Use::Now).await?);
                }
                self.run(inner, permitted, held, used).await
            }
        }
    }

    /// A call that brings nothing from an earlier one.
    async fn first<S>(
        self: Arc<Self>,
        inner: S,
        permitted: Permitted,
        held: Held,
    ) -> Result<Reply, Error>
    where
        S: Service<Permitted, Response = Reply, Error = Error> + Send + 'static,
        S::Future: Send,
    {
        // Nobody is to approve what could not run then.
        if held.confirm && !confirm::can_ask(&permitted.call) {
            return Err(told::cannot_be_asked(&held));
        }
        let mut used = Used::default();
        if !held.demands.is_empty() {
            let when = if held.confirm { Use::Later } else { Use::Now };
            used.approval = Some(self.ask(&permitted, &held, when).await?);
        }
        if !held.confirm {
            return self.run(inner, permitted, held, used).await;
        }
        note(&permitted.call.exchange, used.approval, "confirming");
        match permitted.call.dialect {
            NorthDialect::Modern => self.question(&permitted.call, &held),
            _ => confirm::in_the_call(self, inner, permitted, held),
        }
    }

    /// Asks the engine for a yes of others.
    async fn ask(
        &self,
        permitted: &Permitted,
        held: &Held,
        when: Use,
    ) -> Result<ApprovalId, Error> {
        let exchange = &permitted.call.exchange;
        let asked_ms = self.approvals.now_ms();
        let id = ApprovalId::new(asked_ms);
        let fits = held.arguments.len() <= self.max_arguments;
        let request = Request {
            subject: held.subject.clone(),
            demands: held.demands.clone(),
            risk: permitted.risk(),
            sealed: fits.then(|| self.seal.seal(&held.subject.tenant, id, &held.arguments)),
            asked_ms,
            expires_ms: asked_ms.saturating_add(held.expires_ms),
        };
        let waiting = Instant::now();
        let standing = self.approvals.ask_as(id, request, when).await;
        exchange.facts().waited += waiting.elapsed();
        match standing {
            Ok(Standing::Granted(approval)) => {
                note(exchange, Some(approval.id), "granted");
                Ok(approval.id)
            }
            Ok(Standing::Waiting { approval, new }) => {
                note(exchange, Some(approval.id), "waiting");
                if new {
                    let elapsed = exchange.started.elapsed();
                    let facts = exchange.facts();
                    let record = Record::approval_request(&facts, exchange.started_ms, elapsed);
                    self.audit.append(&record);
                }
                Err(told::waiting(held, approval.id))
            }
            Ok(Standing::Refused(approval)) => {
                note(exchange, Some(approval.id), "refused");
                Err(told::refused(approval.id))
            }
            Err(fault) => Err(told::store(fault)),
        }
    }

    /// Takes what is good once.
    async fn take(&self, token: Token) -> Result<(), Error> {
        let life = u64::try_from(self.asked.limits().answer.as_millis()).unwrap_or(u64::MAX);
        let expires_ms = self.approvals.now_ms().saturating_add(life);
        match self.approvals.take(token, expires_ms).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(not_good()),
            Err(fault) => Err(told::store(fault)),
        }
    }

    /// What the person said whom the call is made for.
    fn heard(&self, exchange: &Exchange, said: Said, waited_ms: u64) -> Result<(), Error> {
        let id = exchange.facts().approval.and_then(|approval| approval.id);
        let (state, end) = match said {
            Said::Yes => ("confirmed", Some(Ended::Granted)),
            Said::No => ("declined", Some(Ended::Refused)),
            Said::Nothing => ("cancelled", Some(Ended::Refused)),
            Said::TooLate => ("unanswered", Some(Ended::Expired)),
            Said::Unreadable => ("unanswered", None),
        };
        exchange.facts().approval = Some(ApprovalFact { id, state });
        if let Some(end) = end {
            self.approvals.ended(end, waited_ms);
        }
        told::heard(said, self.asked.limits().answer)
    }

    /// Makes the call. What it used is given back if it surely never left.
    async fn run<S>(
        self: Arc<Self>,
        mut inner: S,
        mut permitted: Permitted,
        held: Held,
        used: Used,
    ) -> Result<Reply, Error>
    where
        S: Service<Permitted, Response = Reply, Error = Error>,
    {
        permitted.permit = permitted.permit.satisfied();
        if let Some(leaving) = permitted.leaving.take() {
            leaving.store(true, Ordering::Relaxed);
        }
        let exchange = permitted.call.exchange.clone();
        let caller = permitted.call.caller.clone();
        let modern = permitted.call.dialect == NorthDialect::Modern;
        let mut spending = Spending { layer: self.clone(), exchange, used: Some(used) };
        match inner.call(permitted).await {
            Ok(reply) => {
                spending.used = None;
                if !modern {
                    return Ok(reply);
                }
                // What the server asks belongs to a call that has its yes already.
                reply.map_end(move |end| self.granted(end?, &caller, &held))
            }
            Err(error) => {
                spending.failed(&error);
                Err(error)
            }
        }
    }

    /// Looks how the call stands, and asks nobody.
    async fn tried<S>(
        self: Arc<Self>,
        mut inner: S,
        mut permitted: Permitted,
    ) -> Result<Reply, Error>
    where
        S: Service<Permitted, Response = Reply, Error = Error>,
    {
        let held = Held::of(&permitted, &self.keys);
        let replayed = permitted.trial.as_ref().is_some_and(|t| t.idempotency == Some("replayed"));
        if !replayed {
            if held.confirm && !confirm::can_ask(&permitted.call) {
                return Err(told::cannot_be_asked(&held));
            }
            let found = self.look(&held).await?;
            note(&permitted.call.exchange, found.0, found.1.state);
            if let Some(trial) = &mut permitted.trial {
                trial.approval = Some(found.1);
            }
        }
        permitted.permit = permitted.permit.satisfied();
        inner.call(permitted).await
    }

    async fn look(&self, held: &Held) -> Result<(Option<ApprovalId>, TrialApproval), Error> {
        let confirm = held.confirm;
        if held.demands.is_empty() {
            return Ok((None, TrialApproval { state: "confirmation", id: None, confirm }));
        }
        let known = self.approvals.newest(&held.subject).await.map_err(told::store)?;
        let now_ms = self.approvals.now_ms();
        let known = known.and_then(|approval| {
            let state = match approval.state(now_ms) {
                State::Waiting => "waiting",
                State::Approved => "approved",
                State::Refused if now_ms < approval.request.expires_ms => "refused",
                State::Refused | State::Used | State::Expired => return None,
            };
            Some((approval.id, state))
        });
        Ok(match known {
            Some((id, state)) => {
                (Some(id), TrialApproval { state, id: Some(id.to_string().into()), confirm })
            }
            None => (None, TrialApproval { state: "needed", id: None, confirm }),
        })
    }
}

/// Notes how the asking stands, for the record.
fn note(exchange: &Exchange, id: Option<ApprovalId>, state: &'static str) {
    let id = id.map(ApprovalId::get);
    exchange.facts().approval = Some(ApprovalFact { id, state });
}

/// A call that runs on a yes. Dropped before anything left, it gives the yes back.
struct Spending {
    layer: Arc<ApprovalLayer>,
    exchange: Arc<Exchange>,
    used: Option<Used>,
}

impl Spending {
    fn failed(&mut self, error: &Error) {
        let unsent = error.is_unsent() || Failure::of(error).is_some_and(|failure| !failure.sent());
        let nothing_left = self.exchange.facts().attempts.is_empty() || unsent;
        if error.unknown_outcome() || !nothing_left {
            self.used = None;
        }
        self.give_back();
    }

    fn give_back(&mut self) {
        if let Some(Used { approval, token }) = self.used.take() {
            self.layer.approvals.unused(approval, token);
        }
    }
}

impl Drop for Spending {
    fn drop(&mut self) {
        if self.used.is_some() && self.exchange.facts().attempts.is_empty() {
            self.give_back();
        }
    }
}
