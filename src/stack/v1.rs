//! What is under `/v1` leaves the stack's way here: above it everybody is known, below it there
//! are only calls.
//!
//! It reads a request whole and hands it to whoever serves `/v1`, together with the rest of the
//! stack, so that every call made there is decided, limited and recorded like any other.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::Either;
use http::{Request, Response, request::Parts};
use tower::{Layer, Service, util::BoxCloneService};

use super::stage::BoxFuture;
use crate::{
    body::{self, Body, BoxError},
    error::{Code, Error},
    model::{
        call::{Call, Route},
        caller::Caller,
        exchange::Exchange,
        reply::Reply,
    },
};

/// The stack from `policy` down.
pub type Calls = BoxCloneService<Call, Reply, Error>;

/// A request under `/v1` of a caller who is known.
pub struct ApiRequest {
    pub parts: Parts,
    /// All of it; within the size and the time of any other request.
    pub body: Bytes,
    pub caller: Arc<Caller>,
    pub exchange: Arc<Exchange>,
}

/// Whoever serves `/v1`. An error becomes `{"error": …}` under the REST status of its code.
pub trait Api: Send + Sync + 'static {
    fn answer(&self, request: ApiRequest, calls: Calls) -> BoxFuture<Response<Body>>;
}

/// Sends what is under `/v1` there, and everything else on.
#[derive(Clone)]
pub struct V1Layer<C> {
    pub api: Arc<dyn Api>,
    /// What comes below `northbound`.
    pub calls: C,
    /// The largest request body, in bytes.
    pub max_body: usize,
    pub body_timeout: Duration,
}

impl<S, C: Clone> Layer<S> for V1Layer<C> {
    type Service = V1<S, C>;

    fn layer(&self, inner: S) -> V1<S, C> {
        V1 { inner, calls: self.calls.clone(), layer: Arc::new(self.without_calls()) }
    }
}

impl<C> V1Layer<C> {
    fn without_calls(&self) -> V1Layer<()> {
        let V1Layer { api, max_body, body_timeout, .. } = self;
        V1Layer { api: api.clone(), calls: (), max_body: *max_body, body_timeout: *body_timeout }
    }
}

#[derive(Clone)]
pub struct V1<S, C> {
    inner: S,
    calls: C,
    layer: Arc<V1Layer<()>>,
}

impl<S, C, B> Service<Request<B>> for V1<S, C>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Error>,
    C: Service<Call, Response = Reply, Error = Error> + Clone + Send + 'static,
    C::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError> + Send,
{
    type Response = Response<Body>;
    type Error = Error;
    type Future = Either<S::Future, BoxFuture<Response<Body>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.extensions().get::<Route>() != Some(&Route::V1) {
            return Either::Left(self.inner.call(request));
        }
        let clone = self.calls.clone();
        let calls = BoxCloneService::new(mem::replace(&mut self.calls, clone));
        let layer = self.layer.clone();
        Either::Right(Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let missing = || Error::new(Code::Internal, "the request lost its caller on the way");
            let caller = parts.extensions.remove::<Caller>().ok_or_else(missing)?;
            let exchange = parts.extensions.remove::<Arc<Exchange>>().ok_or_else(missing)?;
            let body = body::read_body(body, layer.max_body, layer.body_timeout).await?;
            exchange.facts().bytes_in = body.len() as u64;
            let request = ApiRequest { parts, body, caller: Arc::new(caller), exchange };
            layer.api.answer(request, calls).await
        }))
    }
}
