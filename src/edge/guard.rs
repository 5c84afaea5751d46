//! Keeps foreign web pages out: one Host, a Host that is ours, an Origin that is allowed.
//!
//! A browser will post to a gateway on its own machine for any page that asks (DNS rebinding),
//! so a loopback listener takes only loopback names. Preflights are answered here, before
//! anybody is asked for a key: they never carry one.

use std::{
    collections::HashSet,
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::refusal::{refuse, rpc_code};
use crate::body::Body;

/// Who may come in.
#[derive(Debug, Clone, Default)]
pub struct GuardConfig {
    /// The listener is reached from this machine alone: only loopback names are its Host, and
    /// pages from this machine are welcome. To be off where a trusted proxy on this machine
    /// passes other names on.
    pub loopback: bool,
    /// Origins that are welcome besides, exactly as browsers write them.
    pub origins: HashSet<Box<str>>,
}

const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("POST, GET, DELETE");
const ALLOWED_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, accept, mcp-protocol-version, mcp-session-id, mcp-method, \
     mcp-name, last-event-id, x-api-key, sso-emp-id, idempotency-key, x-dry-run, traceparent, tracestate",
);
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "Mcp-Session-Id, X-Trace-Id, RateLimit, RateLimit-Policy, Retry-After, Idempotency-Replayed, \
     WWW-Authenticate",
);
/// Ten minutes.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Puts the guard around a service.
#[derive(Debug, Clone)]
pub struct GuardLayer(Arc<GuardConfig>);

impl GuardLayer {
    pub fn new(config: GuardConfig) -> Self {
        Self(Arc::new(config))
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner, config: self.0.clone() }
    }
}

/// Refuses what must not come in, and tells browsers what they may read of the answer.
#[derive(Debug, Clone)]
pub struct Guard<S> {
    inner: S,
    config: Arc<GuardConfig>,
}

impl<S, B> Service<Request<B>> for Guard<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = GuardFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.config.admit(&request) {
            Admission::Plain => {
                GuardFuture::Inside { future: self.inner.call(request), origin: None }
            }
            Admission::Page(origin) => {
                GuardFuture::Inside { future: self.inner.call(request), origin: Some(origin) }
            }
            Admission::Answered(response) => GuardFuture::Answered { response: Some(response) },
        }
    }
}

pin_project! {
    /// The answer of the guard, or of what it guards.
    #[project = GuardProjection]
    pub enum GuardFuture<F> {
        Inside { #[pin] future: F, origin: Option<HeaderValue> },
        Answered { response: Option<Response<Body>> },
    }
}

impl<F, E> Future for GuardFuture<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
{
    type Output = Result<Response<Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            GuardProjection::Inside { future, origin } => {
                let mut response = ready!(future.poll(cx))?;
                if let Some(origin) = origin.take() {
                    let headers = response.headers_mut();
                    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
                    welcome(headers, origin);
                }
                Poll::Ready(Ok(response))
            }
            GuardProjection::Answered { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                // A future that was polled after its end.
                None => Poll::Pending,
            },
        }
    }
}

/// What the guard makes of a request.
enum Admission {
    /// Not from a page.
    Plain,
    /// From a page of this origin.
    Page(HeaderValue),
    Answered(Response<Body>),
}

impl GuardConfig {
    fn admit<B>(&self, request: &Request<B>) -> Admission {
        let headers = request.headers();
        let host = match host_of(request) {
            Ok(host) => host,
            Err(problem) => {
                let of = request.extensions();
                return Admission::Answered(refuse(StatusCode::BAD_REQUEST, -32_600, problem, of));
            }
        };
        if self.loopback && !host.is_some_and(|host| self.is_ours(host)) {
            return Admission::Answered(forbid("This host is not served here.", request));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Admission::Plain };
        if origins.next().is_some() || !self.is_welcome(origin) {
            return Admission::Answered(forbid("This origin is not allowed here.", request));
        }
        if is_preflight(request.method(), headers) {
            return Admission::Answered(preflight(origin.clone()));
        }
        Admission::Page(origin.clone())
    }

    fn is_welcome(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        self.origins.contains(origin)
            || self.loopback
                && ["http://", "https://"]
                    .iter()
                    .find_map(|scheme| origin.strip_prefix(scheme))
                    .is_some_and(is_loopback)
    }

    /// A loopback name, or the host of a welcome origin: the gateway may serve that page too.
    fn is_ours(&self, host: &str) -> bool {
        is_loopback(host)
            || self
                .origins
                .iter()
                .filter_map(|origin| origin.split_once("://"))
                .any(|(_, own)| own.eq_ignore_ascii_case(host))
    }
}

/// The host that a request is for: `Host` in HTTP/1.1, where there must be exactly one, and
/// `:authority` in HTTP/2. HTTP/1.0 knows none.
fn host_of<B>(request: &Request<B>) -> Result<Option<&str>, &'static str> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let header = hosts.next();
    if hosts.next().is_some() {
        return Err("There is more than one Host header.");
    }
    if header.is_none() && request.version() == Version::HTTP_11 {
        return Err("There is no Host header.");
    }
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.as_str()));
    }
    match header.map(HeaderValue::to_str) {
        None => Ok(None),
        Some(Ok(host)) => Ok(Some(host)),
        Some(Err(_)) => Err("The Host header is malformed."),
    }
}

/// `localhost`, or a loopback address, with or without a port.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight(origin: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    welcome(headers, origin);
    response
}

fn welcome(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

fn forbid<B>(message: &'static str, request: &Request<B>) -> Response<Body> {
    let status = StatusCode::FORBIDDEN;
    refuse(status, rpc_code(status), message, request.extensions())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::ServiceExt;

    use super::*;

    async fn ask(config: &GuardConfig, headers: &[(&str, &str)]) -> Response<Body> {
        let method = headers.iter().find(|(name, _)| *name == ":method").map_or("POST", |h| h.1);
        let mut request = Request::builder().method(method).uri("/mcp");
        for (name, value) in headers.iter().filter(|(name, _)| !name.starts_with(':')) {
            request = request.header(*name, *value);
        }
        let inner = tower::service_fn(|_| async {
            Ok::<_, Infallible>(Response::new(Body::from("inside")))
        });
        let service = GuardLayer::new(config.clone()).layer(inner);
        service.oneshot(request.body(()).unwrap()).await.unwrap()
    }

    fn config(loopback: bool, origins: &[&str]) -> GuardConfig {
        GuardConfig { loopback, origins: origins.iter().map(|o| (*o).into()).collect() }
    }

    #[tokio::test]
    async fn a_request_names_one_host() {
        let open = config(false, &[]);
        assert_eq!(ask(&open, &[("host", "any.example")]).await.status(), 200);
        assert_eq!(ask(&open, &[]).await.status(), 400);
        assert_eq!(ask(&open, &[("host", "a"), ("host", "a")]).await.status(), 400);
    }

    #[tokio::test]
    async fn a_loopback_listener_takes_loopback_names_alone() {
        let own = config(true, &["https://app.example"]);
        for (host, status) in [
            ("localhost", 200),
            ("LOCALHOST:8080", 200),
            ("127.0.0.1:8080", 200),
            ("127.9.9.9", 200),
            ("[::1]:8080", 200),
            ("[::1]", 200),
            ("app.example", 200),
            ("evil.example", 403),
            ("evil.example:8080", 403),
            ("localhost.evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("10.0.0.1", 403),
            ("", 403),
        ] {
            assert_eq!(ask(&own, &[("host", host)]).await.status(), status, "{host}");
        }
    }

    #[tokio::test]
    async fn an_origin_matches_exactly_or_not_at_all() {
        let app = config(false, &["https://app.example"]);
        let local = config(true, &[]);
        for (config, origin, status) in [
            (&app, "https://app.example", 200),
            (&app, "http://app.example", 403),
            (&app, "https://app.example:444", 403),
            (&app, "https://app.example.evil.example", 403),
            (&app, "https://evil.example", 403),
            (&app, "null", 403),
            (&app, "http://localhost:3000", 403),
            (&local, "http://localhost:3000", 200),
            (&local, "https://127.0.0.1", 200),
            (&local, "http://[::1]:9", 200),
            (&local, "http://localhost.evil.example", 403),
            (&local, "http://evil.example", 403),
            (&local, "ftp://localhost", 403),
            (&local, "null", 403),
        ] {
            let response = ask(config, &[("host", "localhost"), ("origin", origin)]).await;
            assert_eq!(response.status(), status, "{origin}");
            let told = response.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(told.is_some(), status == 200, "{origin}");
        }
        let twice = [("host", "h"), ("origin", "https://app.example"), ("origin", "null")];
        assert_eq!(ask(&app, &twice).await.status(), 403);
    }

    #[tokio::test]
    async fn a_preflight_is_answered_before_anybody_asks_for_a_key() {
        let app = config(false, &["https://app.example"]);
        let preflight = |origin| {
            [
                (":method", "OPTIONS"),
                ("host", "h"),
                ("origin", origin),
                ("access-control-request-method", "POST"),
            ]
        };
        let response = ask(&app, &preflight("https://app.example")).await;
        assert_eq!(response.status(), 204);
        let headers = response.headers();
        assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example");
        let allowed = headers[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap();
        for name in ["authorization", "mcp-protocol-version", "mcp-session-id", "x-api-key"] {
            assert!(allowed.contains(name), "{name}");
        }
        assert_eq!(ask(&app, &preflight("https://evil.example")).await.status(), 403);
        // Without the header of a preflight it is a request like any other.
        let plain = [(":method", "OPTIONS"), ("host", "h"), ("origin", "https://app.example")];
        assert_eq!(ask(&app, &plain).await.status(), 200);
    }

    #[tokio::test]
    async fn a_refusal_is_a_json_rpc_error_without_an_id() {
        use http_body_util::BodyExt;

        let response = ask(&config(true, &[]), &[("host", "evil.example")]).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], -31_403);
        assert!(body.get("id").is_none());
    }
}
