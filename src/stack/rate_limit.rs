//! Rates and concurrency: all limits of a call are charged, or none.
//!
//! Limits that count by address alone are met before anything is read (`AddressLimitLayer`);
//! all others after authorization, so that a refused call eats no quota.

use std::{
    future::{Future, Ready, ready},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready as ready_or_return},
};

use futures_util::{StreamExt, future::Either};
use http::Request as HttpRequest;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{Layer, Service};

use super::stage::{BoxFuture, Permitted, World, Worlds};
use crate::{
    error::{Code, Error},
    limit::{self, Attempt, Entry, Exceeded, SlotGuard, Subject},
    model::{
        call::{ClientAddr, Request},
        caller::Caller,
        exchange::{Exchange, LimitHit, LimitKind},
        reply::{Content, Event, Reply, ReplyStream},
        server::{Risk, UpstreamName},
    },
    registry::Tool,
};

// === By address ===

/// Counts requests by where they come from.
#[derive(Clone)]
pub struct AddressLimitLayer {
    worlds: Arc<Worlds>,
}

impl AddressLimitLayer {
    pub fn new(worlds: Arc<Worlds>) -> Self {
        Self { worlds }
    }
}

impl<S> Layer<S> for AddressLimitLayer {
    type Service = AddressLimit<S>;

    fn layer(&self, inner: S) -> AddressLimit<S> {
        AddressLimit { inner, worlds: self.worlds.clone() }
    }
}

#[derive(Clone)]
pub struct AddressLimit<S> {
    inner: S,
    worlds: Arc<Worlds>,
}

impl<S, B> Service<HttpRequest<B>> for AddressLimit<S>
where
    S: Service<HttpRequest<B>, Error = Error>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = Either<Ready<Result<S::Response, Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: HttpRequest<B>) -> Self::Future {
        let client = request.extensions().get::<ClientAddr>();
        match client.map_or(Ok(()), |client| self.worlds.look().limiter.admit_address(client.ip)) {
            Ok(()) => Either::Right(self.inner.call(request)),
            // The body is unread: the status says it all.
            Err(exceeded) => {
                if let Some(exchange) = request.extensions().get::<Arc<Exchange>>() {
                    note(exchange, &exceeded);
                }
                let mut error = Error::http(Code::RateLimited, 429, sentence(&exceeded));
                for (name, value) in limit::exceeded_headers(&exceeded) {
                    error = error.with_header(name, value);
                }
                Either::Left(ready(Err(error
                    .with_limit(&**exceeded.id())
                    .with_retry_after(exceeded.retry_after))))
            }
        }
    }
}

// === By everything else ===

/// Charges calls, by the limits of the world that decided them.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateLimitLayer;

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner }
    }
}

#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
}

impl<S> Service<Permitted> for RateLimit<S>
where
    S: Service<Permitted, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<Ready<Result<Reply, Error>>, Either<Charged<S::Future>, BoxFuture<Reply>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, permitted: Permitted) -> Self::Future {
        if permitted.trial.is_some() {
            return match permitted.world.limiter.look(&permitted.subject()) {
                Ok(()) => Either::Right(Either::Left(Charged::none(self.inner.call(permitted)))),
                Err(exceeded) => {
                    Either::Left(ready(Err(refused(&permitted.call.exchange, &exceeded))))
                }
            };
        }
        // A stream of notices is idle nearly all of its time and has caps of its own.
        let lasts = !matches!(permitted.call.request, Request::Listen(_));
        match permitted.world.limiter.try_enter(&permitted.subject()) {
            Attempt::In(entry) => {
                let again = Again::of(&permitted);
                let inner = self.inner.call(permitted);
                Either::Right(Either::Left(Charged::new(entry, lasts, again, inner)))
            }
            Attempt::Out(exceeded) => {
                Either::Left(ready(Err(refused(&permitted.call.exchange, &exceeded))))
            }
            Attempt::Wait => {
                let clone = self.inner.clone();
                let mut inner = mem::replace(&mut self.inner, clone);
                Either::Right(Either::Right(Box::pin(async move {
                    let entry = permitted
                        .world
                        .limiter
                        .enter(&permitted.subject())
                        .await
                        .map_err(|exceeded| refused(&permitted.call.exchange, &exceeded))?;
                    if let Some(waited) = entry.waited {
                        permitted.call.exchange.facts().waited += waited;
                    }
                    let again = Again::of(&permitted);
                    Charged::new(entry, lasts, again, inner.call(permitted)).await
                })))
            }
        }
    }
}

fn subject_of<'a>(
    caller: &'a Caller,
    tool: Option<&'a Tool>,
    other: Option<&'a str>,
    risk: Risk,
) -> Subject<'a> {
    let tool = tool.map(|tool| limit::Tool {
        name: &tool.qualified,
        upstream: tool.upstream.as_str(),
        risk,
    });
    Subject::new(caller, tool).about(other.map(|upstream| limit::Other { upstream, risk }))
}

fn sentence(exceeded: &Exceeded) -> String {
    let wait = exceeded.retry_after;
    let wait = if wait.as_secs() == 0 {
        format!("{} ms", wait.as_millis())
    } else {
        format!("{} s", wait.as_millis().div_ceil(1000))
    };
    match exceeded.kind() {
        "rate" => format!("Rate limit `{}`: retry in {wait}", exceeded.id()),
        _ => format!("All slots of `{}` are taken: retry in {wait}", exceeded.id()),
    }
}

/// Notes which limit was hit.
fn note(exchange: &Exchange, exceeded: &Exceeded) {
    let kind = if exceeded.kind() == "rate" { LimitKind::Rate } else { LimitKind::Concurrency };
    exchange.facts().limits.push(LimitHit { id: exceeded.id().clone(), kind });
}

/// Notes which limit was hit, and says so.
pub(crate) fn refused(exchange: &Exchange, exceeded: &Exceeded) -> Error {
    note(exchange, exceeded);
    refusal(exceeded)
}

fn refusal(exceeded: &Exceeded) -> Error {
    let mut error = Error::new(Code::RateLimited, sentence(exceeded))
        .with_limit(&**exceeded.id())
        .with_retry_after(exceeded.retry_after)
        .with_reason(exceeded.kind());
    for (name, value) in limit::exceeded_headers(exceeded) {
        error = error.with_header(name, value);
    }
    error
}

pin_project! {
    /// A call that is charged. Its slots are held until its reply has ended.
    pub struct Charged<F> {
        #[pin]
        inner: F,
        entry: Option<Entry>,
        // A streamed reply holds the slots to its end.
        lasts: bool,
        again: Option<Box<Again>>,
    }
}

impl<F> Charged<F> {
    fn new(entry: Entry, lasts: bool, again: Option<Box<Again>>, inner: F) -> Self {
        Self { inner, entry: Some(entry), lasts, again }
    }

    fn none(inner: F) -> Self {
        Self { inner, entry: None, lasts: false, again: None }
    }
}

impl<F> Future for Charged<F>
where
    F: Future<Output = Result<Reply, Error>>,
{
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready_or_return!(this.inner.poll(cx));
        let entry = this.entry.take();
        Poll::Ready(match (result, entry) {
            (Ok(mut reply), Some(entry)) => {
                reply.headers.extend(limit::admitted_headers(&entry.admitted));
                Ok(if *this.lasts { hold(reply, entry.slots, this.again.take()) } else { reply })
            }
            (result, _) => result,
        })
    }
}

/// Keeps the slots as long as a streamed reply lasts, but not while its client is asked something:
/// who waits for a human takes none, as a client of 2026-07-28 takes none between question and
/// answer. Else a few people who do not answer would keep everybody from a server that has nothing
/// to do. The call goes on in its turn, when there are slots for it again.
fn hold(reply: Reply, slots: SlotGuard, again: Option<Box<Again>>) -> Reply {
    let Content::Stream(stream) = reply.content else { return reply };
    let content = match again {
        None => Content::Stream(Box::pin(stream.inspect(move |_| _ = &slots))),
        Some(again) => {
            let held = Held { stream, slots: Some(slots), again };
            Content::Stream(Box::pin(futures_util::stream::unfold(Some(held), next)))
        }
    };
    Reply { content, ..reply }
}

/// A reply whose client can be asked something in the middle of it.
struct Held {
    stream: ReplyStream,
    slots: Option<SlotGuard>,
    again: Box<Again>,
}

async fn next(held: Option<Held>) -> Option<(Event, Option<Held>)> {
    let mut held = held?;
    loop {
        match held.stream.next().await? {
            Event::Answered if held.slots.is_none() => match held.again.slots().await {
                Ok(slots) => held.slots = Some(slots),
                Err(error) => return Some((Event::End(Err(error)), None)),
            },
            event => {
                if matches!(event, Event::Question(_)) {
                    held.slots = None;
                }
                return Some((event, Some(held)));
            }
        }
    }
}

/// What a call is limited by, to take its slots again.
struct Again {
    world: Arc<World>,
    caller: Arc<Caller>,
    exchange: Arc<Exchange>,
    tool: Option<Arc<Tool>>,
    other: Option<UpstreamName>,
    risk: Risk,
}

impl Again {
    /// Nothing for a call whose client cannot be asked while it runs.
    fn of(permitted: &Permitted) -> Option<Box<Self>> {
        permitted.call.client.session?;
        Some(Box::new(Self {
            world: permitted.world.clone(),
            caller: permitted.call.caller.clone(),
            exchange: permitted.call.exchange.clone(),
            tool: permitted.tool.clone(),
            other: permitted.asked.as_ref().map(|asked| asked.upstream.clone()),
            risk: permitted.risk(),
        }))
    }

    async fn slots(&self) -> Result<SlotGuard, Error> {
        let other = self.other.as_ref().map(UpstreamName::as_str);
        let subject = subject_of(&self.caller, self.tool.as_deref(), other, self.risk);
        let began = Instant::now();
        let slots = self.world.limiter.slots(&subject).await;
        self.exchange.facts().waited += began.elapsed();
        slots.map_err(|exceeded| refused(&self.exchange, &exceeded))
    }
}
