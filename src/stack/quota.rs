//! Cost units: reserved before a call leaves, given back if it surely never left.
//!
//! What a spent quota stops leaves the lists of whoever it is about, and its calls are refused;
//! what it degrades runs as a cheaper tool (`quota/degrade.rs`). How both are told is in
//! `quota/told.rs`. What costs nothing, and what no quota is about, goes straight on.

mod counted;
mod degrade;
mod told;

use std::{
    future::{Ready, ready},
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use tokio::time::Instant;
use tower::{Layer, Service};

use self::counted::{Counted, Held};
use super::stage::{BoxFuture, Permitted};
use crate::{
    error::Error,
    limit::quota::{Charge, Refused, StoreDown, Unknown, Why},
    mcp::Method,
    model::{call::Request, exchange::Exchange, reply::Reply},
    telemetry::Metrics,
};

/// Charges calls, by the quotas of the world that decided them.
#[derive(Clone)]
pub struct QuotaLayer {
    metrics: Arc<Metrics>,
}

impl QuotaLayer {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }

    fn refuse(&self, exchange: &Exchange, refused: &Refused, cost: u32) -> Error {
        if refused.why == Why::StoreDown {
            self.metrics.limit_fallback(&refused.standing.id, StoreDown::Closed.as_str());
        }
        told::refusal(exchange, refused, cost)
    }
}

impl<S> Layer<S> for QuotaLayer {
    type Service = Quota<S>;

    fn layer(&self, inner: S) -> Quota<S> {
        Quota { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Quota<S> {
    inner: S,
    layer: Arc<QuotaLayer>,
}

type Answered = Ready<Result<Reply, Error>>;

impl<S> Service<Permitted> for Quota<S>
where
    S: Service<Permitted, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<S::Future, Either<Counted<S::Future>, Either<Answered, BoxFuture<Reply>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut permitted: Permitted) -> Self::Future {
        if permitted.world.quotas.is_empty() {
            return Either::Left(self.inner.call(permitted));
        }
        if matches!(permitted.call.request, Request::List { .. } | Request::Listen(_)) {
            return match permitted.world.shown(permitted.permit.view(), &permitted.call.caller) {
                Ok(shown) => {
                    permitted.permit = shown.permit_listing();
                    narrow_beside(&mut permitted);
                    Either::Left(self.inner.call(permitted))
                }
                Err(unknown) => {
                    Either::Right(Either::Right(Either::Right(self.look(permitted, unknown))))
                }
            };
        }
        let Some(cost) = price(&permitted) else {
            return Either::Left(self.inner.call(permitted));
        };
        if let Some(trial) = &permitted.trial {
            // A replay costs nothing.
            if trial.idempotency == Some("replayed") {
                return Either::Left(self.inner.call(permitted));
            }
            return Either::Right(Either::Right(Either::Right(self.tried(permitted, cost))));
        }
        match permitted.world.quotas.charge(&permitted.subject(), cost) {
            Charge::Free => Either::Left(self.inner.call(permitted)),
            Charge::In(reservation) => {
                let held = Held::new(&permitted.call.exchange, reservation, &self.layer.metrics);
                Either::Right(Either::Left(Counted::new(self.inner.call(permitted), held)))
            }
            Charge::Out(refused) => {
                let error = self.layer.refuse(&permitted.call.exchange, &refused, cost);
                Either::Right(Either::Right(Either::Left(ready(Err(error)))))
            }
            charge @ (Charge::Degrade(_) | Charge::Wait(_)) => {
                Either::Right(Either::Right(Either::Right(self.later(permitted, charge, cost))))
            }
        }
    }
}

/// What a call costs, where some quota may be about it. Only what is called, got or read costs.
fn price(permitted: &Permitted) -> Option<u32> {
    let index = match &permitted.call.request {
        Request::CallTool(_) => permitted.tool.as_ref().map(|tool| tool.index),
        Request::Ask(ask) if matches!(ask.method, Method::GetPrompt | Method::ReadResource) => {
            permitted.asked.as_ref()?.item.as_ref().map(|item| item.index)
        }
        _ => return None,
    };
    if !permitted.world.board.counts(index) {
        return None;
    }
    permitted.permit.policy().map(|policy| policy.cost)
}

impl<S> Quota<S>
where
    S: Service<Permitted, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    /// Takes the service that is ready, and leaves its clone.
    fn ready(&mut self) -> S {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
    }

    /// A list of which nobody here knows what is to be on it.
    fn look(&mut self, mut permitted: Permitted, unknown: Unknown) -> BoxFuture<Reply> {
        let mut inner = self.ready();
        Box::pin(async move {
            let waiting = Instant::now();
            let world = permitted.world.clone();
            world.quotas.learn(unknown).await;
            permitted.call.exchange.facts().waited += waiting.elapsed();
            // Where nobody can say what is spent, what lists show is called first.
            if let Ok(shown) = world.shown(permitted.permit.view(), &permitted.call.caller) {
                permitted.permit = shown.permit_listing();
            }
            inner.call(permitted).await
        })
    }

    /// A dry run: refused as the call would be, and what was reserved to learn that is given back.
    fn tried(&mut self, permitted: Permitted, cost: u32) -> BoxFuture<Reply> {
        let mut inner = self.ready();
        let layer = self.layer.clone();
        Box::pin(async move {
            let quotas = permitted.world.quotas.clone();
            match quotas.charge_patiently(&permitted.subject(), cost).await {
                Charge::In(reservation) => reservation.refund(),
                Charge::Out(refused) => {
                    return Err(layer.refuse(&permitted.call.exchange, &refused, cost));
                }
                Charge::Wait(_) => return Err(told::store_unavailable()),
                Charge::Free | Charge::Degrade(_) => {}
            }
            inner.call(permitted).await
        })
    }

    /// A call that waits for the store, or that may run as another tool.
    fn later(&mut self, permitted: Permitted, charge: Charge, cost: u32) -> BoxFuture<Reply> {
        let mut inner = self.ready();
        let layer = self.layer.clone();
        Box::pin(async move {
            let charge = match charge {
                Charge::Wait(_) => {
                    let waiting = Instant::now();
                    let quotas = permitted.world.quotas.clone();
                    let charge = quotas.charge_patiently(&permitted.subject(), cost).await;
                    permitted.call.exchange.facts().waited += waiting.elapsed();
                    charge
                }
                charge => charge,
            };
            let exchange = permitted.call.exchange.clone();
            match charge {
                Charge::Free => inner.call(permitted).await,
                Charge::In(reservation) => {
                    let held = Held::new(&exchange, reservation, &layer.metrics);
                    Counted::new(inner.call(permitted), held).await
                }
                Charge::Out(refused) => Err(layer.refuse(&exchange, &refused, cost)),
                Charge::Degrade(degraded) => {
                    let (permitted, held) = layer.degrade(permitted, &degraded, cost).await?;
                    Counted::new(inner.call(permitted), held).await
                }
                // It was asked until there was an answer.
                Charge::Wait(_) => Err(told::store_unavailable()),
            }
        })
    }
}

/// Also leaves out what quotas stop of an employee's own. What the store has still to say, a call
/// is told.
fn narrow_beside(permitted: &mut Permitted) {
    if let Some(beside) = &mut permitted.beside
        && let Ok(shown) = beside.world.shown(&beside.view, &permitted.call.caller)
    {
        beside.view = shown;
    }
}
