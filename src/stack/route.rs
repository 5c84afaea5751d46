//! Permitted → Routed by catalog and pin; initialize, discover, ping and lists are answered
//! here, from what is already known (`route/lists.rs`).

mod lists;

use std::{
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::Either;
use tower::{Layer, Service};

use self::lists::Lists;
use super::stage::{ListConfig, Permitted, Repeat, Routed, SouthRequest};
use crate::{
    clock::Clock,
    dialect::south,
    error::{Code, Error},
    identity::cursor::Cursors,
    mcp::Method,
    model::{
        call::Request,
        reply::{Reply, ResultBody},
        server::IdempotencyMode,
    },
    policy::ItemPolicy,
    registry::{KEY_ARGUMENT, Tool},
};

/// Finds the upstream of a call.
#[derive(Clone)]
pub struct RouteLayer {
    lists: Lists,
}

impl RouteLayer {
    pub fn new(cursors: Arc<Cursors>, config: ListConfig, clock: Clock) -> Self {
        Self { lists: Lists { cursors, clock, page_size: config.page_size } }
    }
}

impl<S> Layer<S> for RouteLayer {
    type Service = Router<S>;

    fn layer(&self, inner: S) -> Router<S> {
        Router { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Router<S> {
    inner: S,
    layer: Arc<RouteLayer>,
}

impl<S> Service<Permitted> for Router<S>
where
    S: Service<Routed, Response = Reply, Error = Error>,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<Ready<Result<Reply, Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, permitted: Permitted) -> Self::Future {
        match &permitted.call.request {
            Request::CallTool(_) | Request::Ask(_) => match route(permitted) {
                Ok(routed) => Either::Right(self.inner.call(routed)),
                Err(error) => Either::Left(ready(Err(error))),
            },
            _ => Either::Left(ready(self.answer(&permitted))),
        }
    }
}

fn route(permitted: Permitted) -> Result<Routed, Error> {
    let lost = || Error::new(Code::Internal, "the call lost what it is about on the way");
    let Permitted { call, permit, world, tool, asked, idempotency_key, trial, .. } = permitted;
    if trial.is_some() {
        let message = "nobody here tells what a dry run would come to, so nothing was sent";
        return Err(Error::new(Code::InvalidArgs, message).with_reason("dry_run"));
    }
    let owner = match (&tool, &asked) {
        (Some(tool), _) => tool.upstream_index,
        (None, Some(asked)) => asked.upstream_index,
        (None, None) => return Err(lost()),
    };
    let upstream = world.upstreams.get(owner).ok_or_else(lost)?.clone();
    let policy = permit.policy().ok_or_else(lost)?;
    if !permit.asks().is_empty() {
        let message = "this call needs approval, and nobody here asks for it";
        return Err(Error::new(Code::ApprovalRequired, message));
    }
    let timeout = policy.timeout.unwrap_or(upstream.timeout);
    let max_time = policy.max_time.unwrap_or(upstream.max_time);
    let key = idempotency_key.is_some();
    let repeat = repeat(policy, &call.request, tool.as_deref(), key);
    let request = match (call.request, tool, asked) {
        (Request::CallTool(call), Some(tool), _) => SouthRequest::CallTool {
            timeout,
            max_time,
            tool,
            arguments: call.arguments,
            others: call.others,
        },
        (Request::Ask(ask), _, Some(asked)) => {
            let ask = Box::new(south::renamed(*ask, asked.own));
            SouthRequest::Ask { ask, timeout, max_time }
        }
        _ => return Err(lost()),
    };
    Ok(Routed {
        exchange: call.exchange,
        caller: Some(call.caller),
        request,
        upstream,
        dialect: Some(call.dialect),
        client: call.client,
        meta: call.meta,
        idempotency_key,
        repeat,
        refusals: Vec::new(),
        headers: call.headers.into(),
    })
}

/// Whether a call may be sent again though it may have run: never because its tool says so of
/// itself, only because the operator does.
fn repeat(policy: &ItemPolicy, request: &Request, tool: Option<&Tool>, has_key: bool) -> Repeat {
    // Answers to questions, and the end of a task, are no reads, whatever the tool is.
    let acts = matches!(request.method(), Method::UpdateTask | Method::CancelTask);
    if policy.retry_safe && !acts {
        return Repeat::Safe;
    }
    if !policy.upstream_idempotent || !has_key {
        return Repeat::Never;
    }
    let own = policy.idempotency == IdempotencyMode::Required
        && tool.is_some_and(|tool| tool.definition.has_key_argument);
    let named = policy.idempotency_argument.clone();
    Repeat::UnderKey { argument: named.or_else(|| own.then(|| KEY_ARGUMENT.into())) }
}

impl<S> Router<S> {
    /// What needs no upstream.
    fn answer(&self, permitted: &Permitted) -> Result<Reply, Error> {
        let raw = match &permitted.call.request {
            Request::Initialize { version, .. } => lists::initialize(permitted, *version),
            Request::Discover => lists::discover(permitted),
            Request::Ping => Bytes::from_static(b"{}"),
            Request::List { family, cursor } => {
                self.layer.lists.answer(permitted, *family, cursor.as_deref())?
            }
            Request::Notification(_) => return Ok(Reply::nothing()),
            Request::CallTool(_)
            | Request::Ask(_)
            | Request::Misread(_)
            | Request::SetLevel(_)
            | Request::Listen(_) => {
                let message = "a call was answered without its upstream";
                return Err(Error::new(Code::Internal, message));
            }
        };
        Ok(Reply::result(ResultBody::own(raw)))
    }
}
