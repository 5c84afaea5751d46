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
use super::stage::{ListConfig, Permitted, Routed, SouthRequest, Upstreams};
use crate::{
    clock::Clock,
    error::{Code, Error},
    identity::cursor::Cursors,
    model::{
        call::Request,
        reply::{Reply, ResultBody},
    },
};

/// Finds the upstream of a call.
#[derive(Clone)]
pub struct RouteLayer {
    upstreams: Upstreams,
    lists: Lists,
}

impl RouteLayer {
    pub fn new(
        upstreams: Upstreams,
        cursors: Arc<Cursors>,
        config: ListConfig,
        clock: Clock,
    ) -> Self {
        Self { upstreams, lists: Lists { cursors, clock, page_size: config.page_size } }
    }
}

impl<S> Layer<S> for RouteLayer {
    type Service = Router<S>;

    fn layer(&self, inner: S) -> Router<S> {
        Router { inner, layer: self.clone() }
    }
}

#[derive(Clone)]
pub struct Router<S> {
    inner: S,
    layer: RouteLayer,
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
            Request::CallTool(_) => match self.route(permitted) {
                Ok(routed) => Either::Right(self.inner.call(routed)),
                Err(error) => Either::Left(ready(Err(error))),
            },
            _ => Either::Left(ready(self.answer(&permitted))),
        }
    }
}

impl<S> Router<S> {
    fn route(&self, permitted: Permitted) -> Result<Routed, Error> {
        let lost = || Error::new(Code::Internal, "the call lost its tool on the way");
        let Permitted { call, permit, tool, idempotency_key, .. } = permitted;
        let tool = tool.ok_or_else(lost)?;
        let Request::CallTool(asked) = call.request else { return Err(lost()) };
        let upstream = self.layer.upstreams.get(tool.upstream_index).ok_or_else(lost)?.clone();
        let policy = permit.policy().ok_or_else(lost)?;
        let (timeout, max_time) = (policy.timeout, policy.max_time);
        Ok(Routed {
            exchange: call.exchange,
            caller: Some(call.caller),
            request: SouthRequest::CallTool {
                timeout: timeout.unwrap_or(upstream.timeout),
                max_time: max_time.unwrap_or(upstream.max_time),
                tool,
                arguments: asked.arguments,
                others: asked.others,
            },
            upstream,
            dialect: Some(call.dialect),
            client: call.client,
            meta: call.meta,
            idempotency_key,
            refusals: Vec::new(),
            headers: call.headers.into(),
        })
    }
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
            Request::CallTool(_) | Request::Ask(_) | Request::SetLevel(_) | Request::Listen(_) => {
                let message = "a call was answered without its upstream";
                return Err(Error::new(Code::Internal, message));
            }
        };
        Ok(Reply::result(ResultBody::own(raw)))
    }
}
