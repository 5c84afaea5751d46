//! The stack of one core, from the path of a request down to its own connections.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::Either;
use http::{Request, Response, StatusCode};
use tower::{Layer, Service};

use super::{metadata::Metadata, oauth::Pages};
use crate::{
    body::{Body, BoxError},
    edge::{GuardLayer, Router, refuse},
    model::call::Route,
    stack::{self, Engines, trace::TraceLayer},
    upstream::{Transport, Upstreams},
};

/// Builds the same stack for every core.
pub(super) struct Factory {
    pub engines: Engines,
    pub transport: Transport,
    pub trace: TraceLayer,
    pub guard: GuardLayer,
    pub router: Arc<Router>,
    pub metadata: Metadata,
    /// For browsers, which bring no key.
    pub pages: Arc<Pages>,
}

impl Factory {
    /// To be called on the core that will use it: its connections belong to that core.
    pub fn build<B>(
        &self,
    ) -> impl Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
    + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError> + Send,
    {
        let terminal = Upstreams::new(self.transport.clone());
        let stack = stack::build(&self.engines, terminal);
        // From the inside out: a path that leads nowhere ends here, behind the guard.
        let stack =
            Known { inner: stack, metadata: self.metadata.clone(), pages: self.pages.clone() };
        // Who may come in at all, before any key is looked at.
        let stack = self.guard.layer(stack);
        // Every answer carries a trace id, the guard's too.
        let stack = self.trace.layer(stack);
        Paths { inner: stack, router: self.router.clone() }
    }
}

/// Notes on each request what its path stands for.
#[derive(Clone)]
struct Paths<S> {
    inner: S,
    router: Arc<Router>,
}

impl<S, B> Service<Request<B>> for Paths<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if let Some(route) = self.router.route(request.uri().path()) {
            request.extensions_mut().insert(route);
        }
        self.inner.call(request)
    }
}

/// A page, when it is known.
type Showing<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

/// Lets pass what stands for something.
#[derive(Clone)]
struct Known<S> {
    inner: S,
    metadata: Metadata,
    pages: Arc<Pages>,
}

impl<S, B> Service<Request<B>> for Known<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future =
        Either<Either<Ready<Result<Response<Body>, S::Error>>, Showing<S::Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match request.extensions().get::<Route>() {
            Some(Route::V1) if Pages::has(request.uri().path()) => {
                let (parts, _) = request.into_parts();
                let exchange = parts.extensions.get().cloned();
                let page = self.pages.answer(&parts, exchange);
                return Either::Left(Either::Right(Box::pin(async move { Ok(page.await) })));
            }
            Some(_) => return Either::Right(self.inner.call(request)),
            None => {}
        }
        if let Some(document) = self.metadata.answer(&request) {
            return Either::Left(Either::Left(ready(Ok(document))));
        }
        let message = "nothing is served here: the MCP endpoint is /mcp";
        let of = request.extensions();
        let refused = refuse(StatusCode::NOT_FOUND, -31_404, message, of);
        Either::Left(Either::Left(ready(Ok(refused))))
    }
}
