//! HTTP for the demo's servers: listen, guard, read one JSON body, write one JSON answer.
//!
//! Plain HTTP/1.1, meant for loopback. No paths, no keys and no protocol: those are the
//! servers' own.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{journal::Journal, provider::Failure};
use crate::{body::Body, error::Code};

const MAX_BODY: usize = 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Also how long a connection may stay idle: longer than the pools of its clients keep one, so
/// that it is they who close it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);
/// How long open connections get to finish when the server is told to stop.
const DRAIN: Duration = Duration::from_secs(2);

/// Why a demo server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {addr}: {source}")]
    Listen { addr: SocketAddr, source: io::Error },
    #[error("cannot open the platform's database: {0}")]
    Store(#[from] sqlx::Error),
    #[error("the schema of tool `{tool}` is not valid: {message}")]
    Schema { tool: String, message: String },
}

/// A server that runs until this is dropped or told to shut down, on the runtime that started it.
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    journal: Arc<Journal>,
    stop: watch::Sender<()>,
    accepting: JoinSet<()>,
    background: JoinSet<()>,
}

// === impl Running ===

impl Running {
    /// Where it listens; with port 0 asked for, the port that was given.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of a path on this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// What has arrived so far.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Stops accepting, lets calls in flight finish (2 s at most), then ends what runs beside.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(());
        while self.accepting.join_next().await.is_some() {}
        self.background.shutdown().await;
    }

    /// Adds a task that ends with the server.
    pub(super) fn run_beside(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(task);
    }
}

/// Listens and answers every request with `handler`; on loopback only those that a page of some
/// other site cannot have sent.
pub(super) async fn serve<H, F>(
    addr: SocketAddr,
    journal: Arc<Journal>,
    handler: H,
) -> Result<Running, StartError>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let failed = |source| StartError::Listen { addr, source };
    let listener = TcpListener::bind(addr).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    let (stop, stopped) = watch::channel(());
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(listener, addr.ip().is_loopback(), handler, stopped));
    Ok(Running { addr, journal, stop, accepting, background: JoinSet::new() })
}

async fn accept<H, F>(
    listener: TcpListener,
    loopback: bool,
    handler: H,
    mut stopped: watch::Receiver<()>,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.changed() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, loopback, handler.clone(), stopped.clone()));
                }
                // Out of file descriptors, as a rule: they come back when connections end.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    // Dropping the set ends those that take longer.
    let _ = tokio::time::timeout(DRAIN, finished).await;
}

async fn connection<H, F>(
    stream: TcpStream,
    loopback: bool,
    handler: H,
    mut stopped: watch::Receiver<()>,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let foreign = loopback && !from_here(request.headers());
        let answer = (!foreign).then(|| handler(request));
        async move {
            Ok::<_, Infallible>(match answer {
                Some(answer) => answer.await,
                None => refuse(&Failure::new(
                    Code::PermissionDenied,
                    "Host and Origin must name this machine",
                )),
            })
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // A peer that goes away or talks nonsense is its own affair.
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Whether `Host` and `Origin`, where given, name this machine: what a browser adds for a page
/// of some other site, or for a name that was pointed here, does not.
fn from_here(headers: &HeaderMap) -> bool {
    let local = |authority: &str| {
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => authority,
        };
        matches!(host, "localhost" | "127.0.0.1" | "[::1]")
    };
    let host = |value: &HeaderValue| value.to_str().is_ok_and(local);
    let origin = |value: &HeaderValue| {
        value.to_str().ok().and_then(|text| text.split_once("://")).is_some_and(|(_, at)| local(at))
    };
    headers.get_all(header::HOST).iter().all(host)
        && headers.get_all(header::ORIGIN).iter().all(origin)
}

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BodyError {
    pub status: StatusCode,
    pub code: Code,
    pub message: &'static str,
}

/// The bytes of a body that says it is JSON.
pub(super) async fn json_body(head: &Parts, body: Incoming) -> Result<Bytes, BodyError> {
    let essence = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/json")
    };
    let error = |status, code, message| Err(BodyError { status, code, message });
    if !head.headers.get(header::CONTENT_TYPE).is_some_and(essence) {
        return error(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::InvalidArgs,
            "the body must be application/json",
        );
    }
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(cause)) if cause.is::<http_body_util::LengthLimitError>() => error(
            StatusCode::PAYLOAD_TOO_LARGE,
            Code::PayloadTooLarge,
            "the body is larger than 1 MiB",
        ),
        Ok(Err(_)) => {
            error(StatusCode::BAD_REQUEST, Code::InvalidArgs, "the body could not be read")
        }
        Err(_) => error(StatusCode::REQUEST_TIMEOUT, Code::Timeout, "the body did not arrive"),
    }
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(Bytes::from(bytes)));
            *response.status_mut() = status;
            response
                .headers_mut()
                .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            tracing::error!(%error, "a demo server could not write its answer");
            empty(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

/// The REST form of a failure: its status, and `{"error": {code, message}}`.
pub(super) fn refuse(failure: &Failure) -> Response<Body> {
    let status = StatusCode::from_u16(failure.code.rest_status())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json(status, &failure.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::testing::{ANY_PORT, send};

    #[tokio::test]
    async fn a_shutdown_waits_for_the_answer_under_way_and_takes_no_other() {
        let entered = Arc::new(tokio::sync::Notify::new());
        let inside = entered.clone();
        let running = serve(ANY_PORT, Arc::default(), move |_| {
            let inside = inside.clone();
            async move {
                inside.notify_one();
                tokio::time::sleep(Duration::from_millis(50)).await;
                json(StatusCode::OK, &"late")
            }
        })
        .await
        .unwrap();
        let addr = running.addr();
        let asking = async { send(addr, http::Method::GET, "/", &[], "").await.json() };
        let stopping = async {
            entered.notified().await;
            running.shutdown().await;
        };
        let (answer, ()) = tokio::join!(asking, stopping);
        assert_eq!(answer, "late");
        assert!(TcpStream::connect(addr).await.is_err());
    }

    #[tokio::test]
    async fn a_server_that_is_dropped_is_gone() {
        let running =
            serve(ANY_PORT, Arc::default(), async |_| empty(StatusCode::OK)).await.unwrap();
        let addr = running.addr();
        assert_eq!(send(addr, http::Method::GET, "/", &[], "").await.status, StatusCode::OK);
        drop(running);
        tokio::task::yield_now().await;
        assert!(TcpStream::connect(addr).await.is_err());
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind(ANY_PORT).await.unwrap();
        let addr = taken.local_addr().unwrap();
        let refused = serve(addr, Arc::default(), async |_| empty(StatusCode::OK)).await;
        assert!(refused.unwrap_err().to_string().contains(&addr.to_string()));
    }

    #[test]
    fn only_this_machine_is_here() {
        let check = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            from_here(&headers)
        };
        for good in ["localhost", "localhost:80", "127.0.0.1:7001", "[::1]:7001", "[::1]"] {
            assert!(check(good, None), "{good}");
            assert!(check("localhost", Some(&format!("http://{good}"))), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", ""] {
            assert!(!check(bad, None), "{bad}");
            assert!(!check("localhost", Some(&format!("http://{bad}"))), "{bad}");
        }
        assert!(!check("localhost", Some("null")));
    }
}
