//! Between a socket and its first request: TLS, which HTTP is spoken, and the connection that
//! comes of it.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{net::TcpStream, time::timeout};
use tower::Service;

use super::{
    client_addr::TrustedProxies,
    connection::{Closing, Protocol, Serving, Times, Vitals, sniff},
    entrance::{Entrance, Noted},
    server::{Hold, Seat, Shared},
    tls::Tls,
};
use crate::body::BoxError;

/// A connection that another core accepted.
pub(super) struct Given {
    pub stream: std::net::TcpStream,
    pub peer: SocketAddr,
    pub seat: Seat,
}

/// What a worker serves its connections with.
pub(super) struct Greeter<S> {
    shared: Arc<Shared>,
    closing: Arc<Closing>,
    stack: S,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    times: Times,
    hold: Hold,
}

/// Begins to serve a connection.
pub(super) trait Open {
    fn open(&self, stream: TcpStream, peer: SocketAddr, seat: Seat);

    fn open_given(&self, Given { stream, peer, seat }: Given) {
        if let Ok(stream) = TcpStream::from_std(stream) {
            self.open(stream, peer, seat);
        }
    }
}

impl<S: Clone> Greeter<S> {
    pub fn new(shared: &Arc<Shared>, closing: Arc<Closing>, stack: S, hold: Hold) -> Self {
        let config = &shared.config;
        let mut http1 = http1::Builder::new();
        http1.header_read_timeout(None).max_header_size(config.max_header_bytes);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(20))
            .max_concurrent_streams(config.max_streams)
            .max_header_list_size(u32::try_from(config.max_header_bytes).unwrap_or(u32::MAX));
        let times = Times { header: config.header_timeout, idle: config.idle_timeout };
        Self { shared: shared.clone(), closing, stack, http1, http2, times, hold }
    }
}

impl<S, B> Open for Greeter<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn open(&self, stream: TcpStream, peer: SocketAddr, seat: Seat) {
        // Event streams are many small writes.
        let _ = stream.set_nodelay(true);
        let greeted = Greeted {
            stack: self.stack.clone(),
            peer,
            proxies: self.shared.proxies.clone(),
            closing: self.closing.clone(),
            http1: self.http1.clone(),
            http2: self.http2.clone(),
            times: self.times,
        };
        let (tls, stats, hold) =
            (self.shared.tls.clone(), self.shared.stats.clone(), self.hold.clone());
        let limit = self.times.header;
        #[allow(clippy::disallowed_methods, reason = "`hold` makes the drain wait for it")]
        tokio::spawn(async move {
            let _held = (seat, hold);
            let closing = greeted.closing.clone();
            let opened = async {
                tokio::select! {
                    opened = open(stream, tls) => opened,
                    () = closing.lingered() => Err(io::ErrorKind::TimedOut.into()),
                }
            };
            match timeout(limit, opened).await {
                Ok(Ok((Io::Plain(stream), protocol))) => greeted.serve(stream, protocol).await,
                Ok(Ok((Io::Tls(stream), protocol))) => greeted.serve(*stream, protocol).await,
                Ok(Err(_)) | Err(_) => {
                    stats.refuse();
                }
            }
        });
    }
}

/// Shakes hands where that is due, and learns which HTTP the client speaks.
async fn open(stream: TcpStream, tls: Option<Tls>) -> io::Result<(Io, Protocol)> {
    let Some(tls) = tls else {
        return sniff(&stream).await.map(|protocol| (Io::Plain(stream), protocol));
    };
    let stream = tls.acceptor().accept(stream).await?;
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let protocol = if h2 { Protocol::Http2 } else { Protocol::Http1 };
    Ok((Io::Tls(Box::new(stream)), protocol))
}

enum Io {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>),
}

/// A connection whose protocol is known, or about to be.
struct Greeted<S> {
    stack: S,
    peer: SocketAddr,
    proxies: Arc<TrustedProxies>,
    closing: Arc<Closing>,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    times: Times,
}

impl<S, B> Greeted<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async fn serve<T>(self, stream: T, protocol: Protocol)
    where
        T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let vitals = Arc::<Vitals>::default();
        let io = Noted::new(TokioIo::new(stream), vitals.clone());
        let (closing, times) = (self.closing.clone(), self.times);
        let entrance = Entrance::new(
            self.stack,
            self.peer,
            &self.proxies,
            protocol,
            self.closing,
            vitals.clone(),
        );
        match protocol {
            Protocol::Http1 => {
                let connection = self.http1.serve_connection(io, entrance);
                Serving::new(connection, closing, vitals, times, protocol).await;
            }
            Protocol::Http2 => {
                let connection = self.http2.serve_connection(io, entrance);
                Serving::new(connection, closing, vitals, times, protocol).await;
            }
        }
    }
}
