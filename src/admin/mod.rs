//! The admin listener: probes, metrics and the version, for the machines that run the gateway,
//! and the API of those who run it.
//!
//! It answers from what it is handed. It is meant for loopback or a network of operators: only
//! the API asks who somebody is.

pub mod api;
mod healthcheck;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow, convert::Infallible, future::Future, net::IpAddr, pin::pin, sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};

pub use self::healthcheck::healthcheck;
use crate::{
    mcp::Version,
    telemetry::{Format, Metrics},
};

/// Connections at a time; probes and scrapers need few.
const CONNECTIONS: usize = 64;
/// How long a client may take to send the head of a request, or to say nothing at all.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long open connections may take to end at shutdown.
const DRAIN: Duration = Duration::from_secs(2);

/// What the probes are answered from.
pub trait Probes: Send + Sync + 'static {
    /// The start is complete; once true, always true.
    fn started(&self) -> bool;
    /// What must hold for requests to be sent here.
    fn checks(&self) -> Vec<Check>;
    /// The upstreams; their loss degrades, and does not unready.
    fn upstreams(&self) -> Vec<UpstreamHealth>;
}

/// One condition of readiness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub ok: bool,
    /// A word for the state: `loaded`, `stale`, `draining`, …
    pub state: Cow<'static, str>,
    #[serde(flatten)]
    pub stale: Option<Stale>,
}

/// What is in force is older than what was meant to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stale {
    /// When that began: RFC 3339, in UTC.
    pub since: String,
    /// What is wrong with what was meant to be.
    pub faults: usize,
    /// What is in force.
    pub revision: String,
}

/// How an upstream is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpstreamHealth {
    pub name: String,
    pub up: bool,
    /// A word for the state.
    pub state: Cow<'static, str>,
}

/// What `/version` tells beside the version itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Build {
    /// The commit it was built from, if that is known.
    pub commit: Option<&'static str>,
    /// This process among its replicas.
    pub instance: String,
}

/// Everything the listener answers from.
pub struct AdminState {
    pub metrics: Arc<Metrics>,
    pub probes: Arc<dyn Probes>,
    pub build: Build,
    /// `None`: nobody has a token for it.
    pub api: Option<api::Api>,
}

/// Serves until `shutdown` resolves, then lets open requests end.
pub async fn serve(
    listener: TcpListener,
    state: Arc<AdminState>,
    shutdown: impl Future<Output = ()>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &slots) => accepted,
        };
        if let Some((stream, from, slot)) = accepted {
            let (state, stopped) = (state.clone(), stopped.clone());
            connections.spawn(async move {
                connection(stream, from, state, stopped).await;
                drop(slot);
            });
        }
    }
    drop((listener, stop));
    let _ = tokio::time::timeout(DRAIN, async { while connections.join_next().await.is_some() {} })
        .await;
}

/// The next connection, as soon as there is room for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    // Never closed, so that this cannot fail.
    let slot = slots.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, from)) => Some((stream, from.ip(), slot)),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "The admin listener cannot accept a connection"
            );
            // Out of descriptors, most likely: without a pause this would be a busy loop.
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

async fn connection(
    stream: TcpStream,
    from: IpAddr,
    state: Arc<AdminState>,
    mut stopped: watch::Receiver<()>,
) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let state = state.clone();
        async move {
            let path = request.uri().path();
            let under = path.strip_prefix(api::PREFIX);
            Ok::<_, Infallible>(match &state.api {
                Some(_) if under.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) => {
                    whole(state.clone(), request, from).await
                }
                _ => answer(request.method(), path, accept_header(&request), &state),
            })
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
    );
    let result = tokio::select! {
        result = connection.as_mut() => result,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await
        }
    };
    if let Err(error) = result {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "A connection to the admin listener has failed"
        );
    }
}

/// Carries a request out to its end, with its record, also where whoever asked does not wait for
/// the answer.
async fn whole(
    state: Arc<AdminState>,
    request: Request<hyper::body::Incoming>,
    from: IpAddr,
) -> Response<Full<Bytes>> {
    let answer = async move {
        match &state.api {
            Some(api) => api.answer(request, from).await,
            None => json(StatusCode::NOT_FOUND, &Live { status: "not_found" }),
        }
    };
    #[allow(clippy::disallowed_methods, reason = "it ends with the answer, which is bounded")]
    let answered = tokio::spawn(answer).await;
    answered.unwrap_or_else(|error| {
        tracing::error!(%error, "A request of an operator's ended in a panic");
        json(StatusCode::INTERNAL_SERVER_ERROR, &Live { status: "failed" })
    })
}

fn accept_header<B>(request: &Request<B>) -> Option<&str> {
    request.headers().get(header::ACCEPT)?.to_str().ok()
}

/// Answers one request.
fn answer(
    method: &Method,
    path: &str,
    accept: Option<&str>,
    state: &AdminState,
) -> Response<Full<Bytes>> {
    let page: fn(Option<&str>, &AdminState) -> Response<Full<Bytes>> = match path {
        "/livez" => |_, _| json(StatusCode::OK, &Live { status: "alive" }),
        "/readyz" => |_, state| readyz(&*state.probes),
        "/startupz" => |_, state| startupz(&*state.probes),
        "/metrics" => |accept, state| metrics(accept, &state.metrics),
        "/version" => |_, state| json(StatusCode::OK, &version(&state.build)),
        _ => return json(StatusCode::NOT_FOUND, &Live { status: "not_found" }),
    };
    if method != Method::GET && method != Method::HEAD {
        let mut refusal = json(StatusCode::METHOD_NOT_ALLOWED, &Live { status: "not_allowed" });
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    page(accept, state)
}

#[derive(Serialize)]
struct Live {
    status: &'static str,
}

#[derive(Serialize)]
struct Ready {
    status: &'static str,
    checks: Vec<Check>,
    upstreams: Vec<UpstreamHealth>,
}

fn readyz(probes: &dyn Probes) -> Response<Full<Bytes>> {
    let (checks, upstreams) = (probes.checks(), probes.upstreams());
    let is_ready = checks.iter().all(|check| check.ok);
    let (code, status) = match (is_ready, upstreams.iter().all(|upstream| upstream.up)) {
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "unready"),
        (true, false) => (StatusCode::OK, "degraded"),
        (true, true) => (StatusCode::OK, "ready"),
    };
    json(code, &Ready { status, checks, upstreams })
}

fn startupz(probes: &dyn Probes) -> Response<Full<Bytes>> {
    if probes.started() {
        json(StatusCode::OK, &Live { status: "started" })
    } else {
        json(StatusCode::SERVICE_UNAVAILABLE, &Live { status: "starting" })
    }
}

fn metrics(accept: Option<&str>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let format = Format::negotiate(accept);
    let mut response = Response::new(Full::new(metrics.expose(format).into()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionBody<'a> {
    name: &'static str,
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    instance: &'a str,
    protocol_versions: Vec<&'static str>,
}

fn version(build: &Build) -> VersionBody<'_> {
    VersionBody {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        commit: build.commit,
        instance: &build.instance,
        protocol_versions: Version::ALL.into_iter().rev().map(Version::as_str).collect(),
    }
}

fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    // Structs of strings and flags: this cannot fail.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
