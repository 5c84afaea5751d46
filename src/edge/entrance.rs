//! Between hyper and the stack: tells each request its client, and keeps the count that a
//! connection's timeouts and its end go by.

use std::{
    cell::RefCell,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
    service::Service as HyperService,
};
use pin_project_lite::pin_project;
use tower::{Service, util::Oneshot};

use super::{
    client_addr::TrustedProxies,
    connection::{Closing, Protocol, Vitals},
};
use crate::model::call::ClientAddr;

/// A stack, as one connection sees it.
pub(super) struct Entrance<S> {
    /// hyper calls it from the connection's task alone, never twice at a time.
    stack: RefCell<S>,
    peer: SocketAddr,
    /// Set when the peer is a proxy whose word is taken.
    proxies: Option<Arc<TrustedProxies>>,
    protocol: Protocol,
    closing: Arc<Closing>,
    vitals: Arc<Vitals>,
}

impl<S> Entrance<S> {
    pub fn new(
        stack: S,
        peer: SocketAddr,
        proxies: &Arc<TrustedProxies>,
        protocol: Protocol,
        closing: Arc<Closing>,
        vitals: Arc<Vitals>,
    ) -> Self {
        let proxies = proxies.contains(peer.ip()).then(|| proxies.clone());
        Self { stack: RefCell::new(stack), peer, proxies, protocol, closing, vitals }
    }

    fn client<B>(&self, request: &Request<B>) -> ClientAddr {
        match &self.proxies {
            Some(proxies) => proxies.client(self.peer, request.headers()),
            None => ClientAddr { ip: self.peer.ip().to_canonical(), port: self.peer.port() },
        }
    }
}

impl<S, B> HyperService<Request<Incoming>> for Entrance<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    B: HttpBody,
{
    type Response = Response<Counted<B>>;
    type Error = S::Error;
    type Future = Entering<S>;

    fn call(&self, mut request: Request<Incoming>) -> Entering<S> {
        self.vitals.call_begins();
        let guard = Underway(self.vitals.clone());
        let client = self.client(&request);
        request.extensions_mut().insert(client);
        let mut stack = self.stack.borrow_mut();
        // A stack is nearly always ready, and then need not be cloned for the call.
        let state = match stack.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => State::Called { future: stack.call(request) },
            _ => State::Waiting { future: Oneshot::new(stack.clone(), request) },
        };
        let farewell = (self.protocol == Protocol::Http1).then(|| self.closing.clone());
        Entering { state, guard: Some(guard), farewell }
    }
}

/// One call under way, until its answer has been written or nobody waits for it any more.
struct Underway(Arc<Vitals>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.call_ends();
    }
}

pin_project! {
    /// The answer of the stack, counted.
    pub(super) struct Entering<S: Service<Request<Incoming>>> {
        #[pin]
        state: State<S>,
        guard: Option<Underway>,
        farewell: Option<Arc<Closing>>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S: Service<Request<Incoming>>> {
        Called { #[pin] future: S::Future },
        Waiting { #[pin] future: Oneshot<S, Request<Incoming>> },
    }
}

impl<S, B> Future for Entering<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    B: HttpBody,
{
    type Output = Result<Response<Counted<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(match this.state.project() {
            StateProjection::Called { future } => future.poll(cx),
            StateProjection::Waiting { future } => future.poll(cx),
        })?;
        if this.farewell.as_ref().is_some_and(|closing| closing.begun()) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let guard = this.guard.take();
        Poll::Ready(Ok(response.map(|body| Counted { body, guard })))
    }
}

pin_project! {
    /// An answer's body; the call is over when it is dropped.
    pub(super) struct Counted<B> {
        #[pin]
        body: B,
        guard: Option<Underway>,
    }
}

impl<B: HttpBody<Data = Bytes>> HttpBody for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pin_project! {
    /// A socket that notes when something was read, and whether it takes what is written.
    pub(super) struct Noted<T> {
        #[pin]
        io: T,
        vitals: Arc<Vitals>,
    }
}

impl<T> Noted<T> {
    pub fn new(io: T, vitals: Arc<Vitals>) -> Self {
        Self { io, vitals }
    }
}

impl<T: Read> Read for Noted<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.project();
        ready!(this.io.poll_read(cx, buffer))?;
        this.vitals.received();
        Poll::Ready(Ok(()))
    }
}

impl<T: Write> Write for Noted<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.project();
        noted(this.io.poll_write(cx, buffer), this.vitals)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.project().io.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.project().io.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.project();
        noted(this.io.poll_write_vectored(cx, buffers), this.vitals)
    }
}

fn noted<T>(written: Poll<T>, vitals: &Vitals) -> Poll<T> {
    match &written {
        Poll::Ready(_) => vitals.sent(),
        Poll::Pending => vitals.blocked(),
    }
    written
}
