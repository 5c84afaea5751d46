//! Permitted → Routed by catalog and pin; initialize, discover, ping and lists are answered
//! here, from what is already known.
//!
//! A listing shows exactly what the permit's view lets through.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::Either;
use tower::{Layer, Service};

use super::stage::{Permitted, Routed, SouthRequest, Upstreams, publishes_key};
use crate::{
    dialect::{SERVER_INFO_MEMBER, streamable_http, streamable_http_session},
    error::{Code, Error},
    mcp::rpc,
    model::{
        call::{Request, Surface},
        exchange::NorthDialect,
        reply::{Reply, ResultBody},
    },
    policy::ItemIndex,
    registry::with_key_argument,
};

/// How long a client may keep a listing, in milliseconds; the same for everybody, and always
/// private, since lists vary by who asks.
const LIST_TTL_MS: u64 = 10_000;
/// The same for `server/discover`.
const DISCOVER_TTL_MS: u64 = 60_000;

/// Finds the upstream of a call.
#[derive(Clone)]
pub struct RouteLayer {
    upstreams: Upstreams,
}

impl RouteLayer {
    pub fn new(upstreams: Upstreams) -> Self {
        Self { upstreams }
    }
}

impl<S> Layer<S> for RouteLayer {
    type Service = Router<S>;

    fn layer(&self, inner: S) -> Router<S> {
        Router { inner, upstreams: self.upstreams.clone() }
    }
}

#[derive(Clone)]
pub struct Router<S> {
    inner: S,
    upstreams: Upstreams,
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
            _ => Either::Left(ready(answer(&permitted))),
        }
    }
}

impl<S> Router<S> {
    fn route(&self, permitted: Permitted) -> Result<Routed, Error> {
        let lost = || Error::new(Code::Internal, "the call lost its tool on the way");
        let Permitted { call, permit, tool, idempotency_key, .. } = permitted;
        let tool = tool.ok_or_else(lost)?;
        let Request::CallTool(asked) = call.request else { return Err(lost()) };
        let upstream = self.upstreams.get(tool.upstream_index).ok_or_else(lost)?.clone();
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

/// What needs no upstream.
fn answer(permitted: &Permitted) -> Result<Reply, Error> {
    let raw = match &permitted.call.request {
        Request::Initialize { version, .. } => {
            streamable_http_session::initialize_result(*version).into()
        }
        Request::Discover => streamable_http::discover_result(DISCOVER_TTL_MS).into(),
        Request::Ping => Bytes::from_static(b"{}"),
        Request::List { cursor: Some(_), .. } => {
            // Everything fits one page, so no cursor was ever given.
            return Err(Error::protocol(
                Code::InvalidArgs,
                rpc::INVALID_PARAMS,
                200,
                "the cursor is not one of ours",
            ));
        }
        Request::List { cursor: None, .. } => list(permitted),
        Request::Notification(_) => return Ok(Reply::nothing()),
        Request::CallTool(_) | Request::Ask(_) | Request::SetLevel(_) | Request::Listen(_) => {
            return Err(Error::new(Code::Internal, "a call was answered without its upstream"));
        }
    };
    Ok(Reply::result(ResultBody::own(raw)))
}

fn list(permitted: &Permitted) -> Bytes {
    let Permitted { call, permit, world, .. } = permitted;
    world.listing(permit.view(), &call.surface, call.dialect, || render(permitted, &call.surface))
}

fn render(permitted: &Permitted, surface: &Surface) -> Bytes {
    let Permitted { call, permit, world, .. } = permitted;
    let seen = permit.view().visible();
    let visible: Vec<_> = world
        .catalog
        .on(surface)
        .filter(|tool| seen.contains(tool.index))
        .map(|tool| match permit.view().item(ItemIndex::new(tool.index)) {
            Some(policy) if publishes_key(tool, policy) => {
                with_key_argument(tool.published(surface))
            }
            _ => tool.published(surface).clone(),
        })
        .collect();
    let size: usize = visible.iter().map(|definition| definition.len() + 1).sum();
    let mut out = Vec::with_capacity(size + 256);
    let modern = call.dialect == NorthDialect::Modern;
    out.extend_from_slice(if modern {
        b"{\"resultType\":\"complete\",\"tools\":["
    } else {
        b"{\"tools\":["
    });
    for (index, definition) in visible.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&definition);
    }
    out.push(b']');
    if modern {
        out.extend_from_slice(b",\"ttlMs\":");
        out.extend_from_slice(itoa::Buffer::new().format(LIST_TTL_MS).as_bytes());
        out.extend_from_slice(b",\"cacheScope\":\"private\",\"_meta\":{");
        out.extend_from_slice(SERVER_INFO_MEMBER.as_bytes());
        out.push(b'}');
    }
    out.push(b'}');
    out.into()
}
