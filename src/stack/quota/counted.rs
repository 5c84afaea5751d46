//! A call that has reserved its cost, until it has ended: spent, or given back.
//!
//! It is given back where it is certain that nothing left: whoever failed says so, or nobody was
//! tried. A result with `isError`, a server's own error and an unknown outcome cost; a question
//! does not, since the call that brings its answer will.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use pin_project_lite::pin_project;

use super::told;
use crate::{
    error::Error,
    limit::{SlotGuard, quota::Reservation},
    mcp::meta,
    model::{
        exchange::{Exchange, QuotaUse},
        reply::{Final, Reply},
    },
    telemetry::Metrics,
};

pin_project! {
    /// A call that is charged.
    pub struct Counted<F> {
        #[pin]
        inner: F,
        held: Option<Box<Held>>,
    }
}

impl<F> Counted<F> {
    pub(super) fn new(inner: F, held: Held) -> Self {
        Self { inner, held: Some(Box::new(held)) }
    }
}

impl<F> Future for Counted<F>
where
    F: Future<Output = Result<Reply, Error>>,
{
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(cx));
        let Some(held) = this.held.take() else { return Poll::Ready(result) };
        Poll::Ready(match result {
            Ok(reply) => reply.map_end(move |end| held.end(end)),
            Err(error) => {
                held.settle(&Err(&error));
                Err(error)
            }
        })
    }
}

/// What is held for a call. Dropped in the middle of it, it is spent if anybody was tried.
pub struct Held {
    exchange: Arc<Exchange>,
    reservation: Option<Reservation>,
    /// Of the tool that runs instead.
    slots: Option<SlotGuard>,
    notes: Vec<(&'static str, Bytes)>,
}

impl Held {
    pub(super) fn new(
        exchange: &Arc<Exchange>,
        reservation: Reservation,
        metrics: &Metrics,
    ) -> Self {
        let mut held = Self::of(exchange);
        for (quota, rule) in &reservation.fallbacks {
            metrics.limit_fallback(quota, rule.as_str());
        }
        let uses = reservation.uses.iter().map(|quota| QuotaUse {
            id: quota.id.clone(),
            used: quota.used,
            budget: quota.budget,
        });
        {
            let mut facts = exchange.facts();
            facts.cost = Some(reservation.cost());
            facts.quota = uses.collect();
        }
        held.notes.extend(told::warning(&reservation.uses).map(|note| (meta::QUOTA, note)));
        held.reservation = Some(reservation);
        held
    }

    /// Nothing yet.
    pub(super) fn of(exchange: &Arc<Exchange>) -> Self {
        Self { exchange: exchange.clone(), reservation: None, slots: None, notes: Vec::new() }
    }

    pub(super) fn keep(&mut self, slots: SlotGuard) {
        self.slots = Some(slots);
    }

    pub(super) fn note(&mut self, key: &'static str, value: Bytes) {
        self.notes.push((key, value));
    }

    fn end(mut self: Box<Self>, end: Result<Final, Error>) -> Result<Final, Error> {
        let notes = std::mem::take(&mut self.notes);
        self.settle(&end.as_ref());
        end.map(|mut answer| {
            if let Final::Result(body) = &mut answer {
                body.added_meta.extend(notes);
            }
            answer
        })
    }

    fn settle(mut self: Box<Self>, end: &Result<&Final, &Error>) {
        let Some(reservation) = self.reservation.take() else { return };
        let is_free = match end {
            Ok(Final::Result(body)) => body.shape.asks,
            Ok(Final::Error(_)) => false,
            Err(error) if error.unknown_outcome() => false,
            Err(error) => error.is_unsent() || self.exchange.facts().attempts.is_empty(),
        };
        if is_free {
            refund(reservation, &self.exchange);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take()
            && self.exchange.facts().attempts.is_empty()
        {
            refund(reservation, &self.exchange);
        }
    }
}

fn refund(reservation: Reservation, exchange: &Exchange) {
    let cost = reservation.cost();
    reservation.refund();
    let mut facts = exchange.facts();
    facts.cost = Some(0);
    for quota in &mut facts.quota {
        quota.used = quota.used.saturating_sub(cost);
    }
}
