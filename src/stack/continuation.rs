//! A call that a server answers with a question, and the call that brings the answer.
//!
//! Below here every server asks as those of 2026-07-28 do: with a result and a state. A client
//! of that revision gets both, the state sealed while it has it. A client of a handshake revision
//! is asked in the middle of its call, and the call is made again with what it says. Whoever has
//! no form for a question is told so: nothing is dropped in silence.

mod bridge;
mod sealing;

use std::{
    future::{Ready, ready},
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use tower::{Layer, Service};

use self::sealing::{Binding, Sealing};
use super::{
    asked::Asked,
    parked::ParkedCalls,
    stage::{BoxFuture, Era, Routed, SouthRequest},
};
use crate::{
    clock::Clock,
    dialect::questions::{ANSWERS, STATE},
    error::{Code, Error},
    identity::state::States,
    mcp::rpc,
    model::{call::RawMembers, exchange::NorthDialect, reply::Reply},
};

/// Brings questions to clients, and answers to servers.
#[derive(Clone)]
pub struct ContinuationLayer {
    states: Arc<States>,
    clock: Clock,
    asked: Arc<Asked>,
    parked: Arc<ParkedCalls>,
}

impl ContinuationLayer {
    pub fn new(
        states: Arc<States>,
        clock: Clock,
        asked: Arc<Asked>,
        parked: Arc<ParkedCalls>,
    ) -> Self {
        Self { states, clock, asked, parked }
    }
}

impl<S> Layer<S> for ContinuationLayer {
    type Service = Continuation<S>;

    fn layer(&self, inner: S) -> Continuation<S> {
        Continuation { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Continuation<S> {
    inner: S,
    layer: Arc<ContinuationLayer>,
}

impl<S> Service<Routed> for Continuation<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<
        Ready<Result<Reply, Error>>,
        Either<S::Future, Either<Sealing<S::Future>, BoxFuture<Reply>>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut routed: Routed) -> Self::Future {
        let modern = routed.dialect == Some(NorthDialect::Modern);
        let may_ask = may_ask(&routed);
        if brings(&routed.request) {
            if !modern || !may_ask {
                let what = "nothing was asked that this call could answer";
                return Either::Left(ready(Err(refused(what))));
            }
            if let Err(error) = self.layer.open(&mut routed) {
                return Either::Left(ready(Err(error)));
            }
        }
        if !may_ask {
            return Either::Right(Either::Left(self.inner.call(routed)));
        }
        if modern {
            let binding = Binding::of(&routed);
            let inner = self.inner.call(routed);
            let sealing = Sealing::new(inner, self.layer.clone(), binding);
            return Either::Right(Either::Right(Either::Left(sealing)));
        }
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let bridged = bridge::call(inner, self.layer.clone(), routed);
        Either::Right(Either::Right(Either::Right(Box::pin(bridged))))
    }
}

/// Whether the call may come back with a question. A server of the handshake era asks only what
/// its session declared; one of 2026-07-28 may also have nothing but a state.
fn may_ask(routed: &Routed) -> bool {
    if params(&routed.request).is_none() {
        return false;
    }
    match (routed.upstream.era(), routed.dialect) {
        (_, None) | (None | Some(Era::Lite), _) => false,
        (Some(Era::Modern(_)), Some(_)) => true,
        // Its error that wants links followed is a question, too.
        (Some(Era::Legacy), Some(NorthDialect::Modern)) => true,
        (Some(Era::Legacy), dialect) => {
            !routed.upstream.declares(&routed.client, dialect).is_empty()
        }
    }
}

/// The members of a request among which answers and state are.
fn params(request: &SouthRequest) -> Option<&RawMembers> {
    match request {
        SouthRequest::CallTool { others, .. } => Some(others),
        SouthRequest::Ask { ask, .. } => Some(&ask.params),
        SouthRequest::Probe
        | SouthRequest::List { .. }
        | SouthRequest::Listen(_)
        | SouthRequest::Subscribe { .. } => None,
    }
}

fn params_mut(request: &mut SouthRequest) -> Option<&mut RawMembers> {
    match request {
        SouthRequest::CallTool { others, .. } => Some(others),
        SouthRequest::Ask { ask, .. } => Some(&mut ask.params),
        SouthRequest::Probe
        | SouthRequest::List { .. }
        | SouthRequest::Listen(_)
        | SouthRequest::Subscribe { .. } => None,
    }
}

fn is(key: &[u8], name: &str) -> bool {
    key == name.as_bytes()
}

/// Whether a request brings answers, or a state.
fn brings(request: &SouthRequest) -> bool {
    let Some(members) = params(request) else { return false };
    members.iter().any(|member| is(&member.key, ANSWERS) || is(&member.key, STATE))
}

fn refused(message: &'static str) -> Error {
    Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 200, message)
}

fn broken(upstream: &str, what: &str) -> Error {
    Error::new(Code::ExternalServiceError, format!("`{upstream}` asks something, but {what}"))
        .with_kind("malformed")
        .from_upstream()
}
