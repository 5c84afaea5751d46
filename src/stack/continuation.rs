//! A call that a server answers with a question, and the call that brings the answer.
//!
//! Both sides of 2026-07-28 do that by themselves; the gateway only sees to it that the server's
//! state is sealed while a client has it. A caller or a server that has no form for it is told
//! so: nothing is dropped in silence.

use std::{
    future::{Future, Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready as ready_or_return},
};

use bytes::Bytes;
use futures_util::future::Either;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::stage::{Era, Routed, SouthRequest};
use crate::{
    clock::Clock,
    dialect::north,
    error::{Code, Error},
    identity::{session::Owner, state::States},
    json::{self, Doc, Value},
    mcp::rpc,
    model::{
        caller::Caller,
        exchange::NorthDialect,
        reply::{Final, Reply, ResultBody},
    },
};

const ANSWERS: &str = "inputResponses";
const STATE: &str = "requestState";

/// Seals and opens the state of servers that ask.
#[derive(Clone)]
pub struct ContinuationLayer {
    states: Arc<States>,
    clock: Clock,
}

impl ContinuationLayer {
    pub fn new(states: Arc<States>, clock: Clock) -> Self {
        Self { states, clock }
    }
}

impl<S> Layer<S> for ContinuationLayer {
    type Service = Continuation<S>;

    fn layer(&self, inner: S) -> Continuation<S> {
        Continuation { inner, layer: self.clone() }
    }
}

#[derive(Clone)]
pub struct Continuation<S> {
    inner: S,
    layer: ContinuationLayer,
}

impl<S> Service<Routed> for Continuation<S>
where
    S: Service<Routed, Response = Reply, Error = Error>,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<Ready<Result<Reply, Error>>, Either<S::Future, Sealing<S::Future>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut routed: Routed) -> Self::Future {
        let asks = asks(&routed);
        if let Err(error) = self.layer.open(&mut routed, asks) {
            return Either::Left(ready(Err(error)));
        }
        let call = match (&routed.request, &routed.caller) {
            (SouthRequest::CallTool { tool, .. }, Some(caller)) if asks => {
                Some((self.layer.clone(), caller.clone(), tool.qualified.clone()))
            }
            _ => None,
        };
        let inner = self.inner.call(routed);
        Either::Right(match call {
            Some(call) => Either::Right(Sealing { inner, call: Some(call) }),
            None => Either::Left(inner),
        })
    }
}

/// Whether both sides have a form for a question.
fn asks(routed: &Routed) -> bool {
    matches!(routed.upstream.era(), Some(Era::Modern(_)))
        && routed.dialect == Some(NorthDialect::Modern)
}

impl ContinuationLayer {
    /// Opens the state that a call brings back.
    fn open(&self, routed: &mut Routed, asks: bool) -> Result<(), Error> {
        let SouthRequest::CallTool { tool, others, .. } = &mut routed.request else {
            return Ok(());
        };
        for member in others.iter_mut() {
            let is = |name: &str| member.key.as_ref() == name.as_bytes();
            if !is(ANSWERS) && !is(STATE) {
                continue;
            }
            if !asks {
                return Err(refused("nothing was asked that this call could answer"));
            }
            if !is(STATE) {
                continue;
            }
            let token = text(&member.value).ok_or_else(|| refused("`requestState` is no text"))?;
            let caller = routed.caller.as_ref().ok_or_else(|| refused("nobody was asked"))?;
            let state = self
                .states
                .open(Owner::of(caller), &tool.qualified, &token, self.clock.now_ms())
                .map_err(|_| refused("`requestState` is not known here any more: start again"))?;
            let mut value = Vec::with_capacity(state.len() + 2);
            json::write_str(&mut value, &state);
            member.value = value.into();
        }
        Ok(())
    }

    /// Seals the state in a result that asks something.
    fn seal(&self, body: ResultBody, caller: &Caller, tool: &str) -> Result<ResultBody, Error> {
        if !body.shape.has_type || body.shape.complete {
            return Ok(body);
        }
        let limits = json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 1 };
        let unreadable = |_| broken("its state cannot be read");
        let doc = Doc::parse(body.raw.clone(), &limits).map_err(unreadable)?;
        let Some(state) = doc.root().get(STATE) else { return Ok(body) };
        let text = state.as_str().ok_or_else(|| broken("its state is no text"))?;
        let token = self
            .states
            .seal(Owner::of(caller), tool, &text, self.clock.now_ms())
            .map_err(|cause| broken("its state is too long").with_cause(cause))?;
        let mut raw = Vec::with_capacity(body.raw.len() + token.len());
        let (start, end) = (state.offset(), state.offset() + state.raw().len());
        raw.extend_from_slice(&body.raw[..start]);
        json::write_str(&mut raw, &token);
        raw.extend_from_slice(&body.raw[end..]);
        let raw = Bytes::from(raw);
        let doc = Doc::parse(raw, &limits).map_err(unreadable)?;
        Ok(ResultBody::upstream(doc.root().bytes(), north::shape(doc.root())))
    }
}

fn text(value: &Bytes) -> Option<String> {
    let limits = json::Limits { depth: 1, duplicates: json::Duplicates::Allow, outline: 0 };
    let doc = Doc::parse(value.clone(), &limits).ok()?;
    let root: Value<'_> = doc.root();
    root.as_str().map(Into::into)
}

fn refused(message: &'static str) -> Error {
    Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 200, message)
}

fn broken(what: &str) -> Error {
    Error::new(Code::ExternalServiceError, format!("the server asks something, but {what}"))
        .with_kind("malformed")
        .from_upstream()
}

pin_project! {
    /// A call whose answer may hold a state.
    pub struct Sealing<F> {
        #[pin]
        inner: F,
        call: Option<(ContinuationLayer, Caller, Arc<str>)>,
    }
}

impl<F> Future for Sealing<F>
where
    F: Future<Output = Result<Reply, Error>>,
{
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let reply = ready_or_return!(this.inner.poll(cx))?;
        let Some((layer, caller, tool)) = this.call.take() else {
            return Poll::Ready(Ok(reply));
        };
        Poll::Ready(reply.map_end(move |end| match end {
            Ok(Final::Result(body)) => layer.seal(body, &caller, &tool).map(Final::Result),
            other => other,
        }))
    }
}
