//! Attaches the server's credential and the configured headers; nothing above sees them.
//!
//! The only place where secrets are opened, for as long as one request is written. Of the
//! client's headers only those go on that the operator lists.

mod attach;
mod masked;

use std::{
    future::{Future, Ready, ready},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready as ready_or_return},
};

use futures_util::future::Either;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header as http_header,
};
use pin_project_lite::pin_project;
use secrecy::ExposeSecret;
use tower::{Layer, Service};

use self::{
    attach::Attached,
    masked::{Masked, mask},
};
use super::{
    answer::no_token,
    stage::{BoxFuture, Hop, Upstream, UpstreamAuth},
};
use crate::{
    body::{Body, BoxError},
    credential::{
        Vault,
        oauth::{Challenge, Refused, TokenFault},
    },
    error::{Code, Error},
    mcp::header,
    model::{
        call_source::CallSource,
        exchange::Exchange,
        template::{HeaderSource, Part},
    },
    upstream::{Origin, Outgoing},
};

/// How often a request is sent again with another token.
const RENEWALS: usize = 2;

/// Writes the last headers of a request.
#[derive(Clone)]
pub struct CredentialLayer {
    vault: Arc<Vault>,
}

impl CredentialLayer {
    pub fn new(vault: Arc<Vault>) -> Self {
        Self { vault }
    }
}

impl<S> Layer<S> for CredentialLayer {
    type Service = Credential<S>;

    fn layer(&self, inner: S) -> Credential<S> {
        Credential { inner, vault: self.vault.clone() }
    }
}

#[derive(Clone)]
pub struct Credential<S> {
    inner: S,
    vault: Arc<Vault>,
}

impl<S, B> Service<Hop> for Credential<S>
where
    S: Service<Outgoing, Response = Response<B>, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = bytes::Bytes> + Origin + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Error;
    type Future = Either<
        Ready<Result<Response<Body>, Error>>,
        Either<Answered<S::Future>, BoxFuture<Response<Body>>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, hop: Hop) -> Self::Future {
        if attach::concerns(&hop.upstream) {
            let clone = self.inner.clone();
            let inner = mem::replace(&mut self.inner, clone);
            let looked_up = authenticated(inner, self.vault.clone(), hop);
            return Either::Right(Either::Right(Box::pin(looked_up)));
        }
        let exchange = hop.exchange.clone();
        match outgoing(hop, Attached::default()) {
            Ok((outgoing, sent)) => {
                let inner = self.inner.call(outgoing);
                Either::Right(Either::Left(Answered { inner, exchange, sent }))
            }
            Err(error) => Either::Left(ready(Err(error))),
        }
    }
}

/// A request for which something is looked up first.
async fn authenticated<S, B>(
    mut inner: S,
    vault: Arc<Vault>,
    hop: Hop,
) -> Result<Response<Body>, Error>
where
    S: Service<Outgoing, Response = Response<B>, Error = Error>,
    B: http_body::Body<Data = bytes::Bytes> + Origin + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (upstream, exchange) = (hop.upstream.clone(), hop.exchange.clone());
    let has_tokens = matches!(upstream.auth, UpstreamAuth::Tokens(_));
    let mut hop = Some(hop);
    let mut refused = None;
    for left in (0..=RENEWALS).rev() {
        let Some(current) = hop.take() else { break };
        let attached = attach::gather(&vault, &current, refused.take()).await?;
        let serial = attached.token;
        let is_employees =
            matches!(upstream.auth, UpstreamAuth::Employee) && current.caller.is_some();
        hop = (has_tokens && left > 0).then(|| current.clone());
        let (outgoing, sent) = outgoing(current, attached)?;
        let answered = Answered { inner: inner.call(outgoing), exchange: exchange.clone(), sent };
        let response = answered.await?;
        let challenge = match response.status() {
            StatusCode::UNAUTHORIZED if is_employees => return Err(attach::refused(&upstream)),
            StatusCode::UNAUTHORIZED if serial.is_some() => Challenge::of(response.headers()),
            StatusCode::FORBIDDEN if serial.is_some() => {
                match Challenge::of(response.headers()).filter(Challenge::wants_more_scopes) {
                    Some(challenge) => Some(challenge),
                    None => return Ok(response),
                }
            }
            _ => return Ok(response),
        };
        // The server did not act: it may be asked again with what it wants.
        let again = left < RENEWALS;
        refused = Some(Refused { serial, challenge: challenge.unwrap_or_default(), again });
    }
    Err(no_token(&upstream, TokenFault::NotTaken))
}

pin_project! {
    /// The answer, its body in the form that the layers above read.
    pub struct Answered<F> {
        #[pin]
        inner: F,
        exchange: Arc<Exchange>,
        sent: Sent,
    }
}

/// What a request had that its answer may not repeat.
struct Sent {
    upstream: Arc<Upstream>,
    attached: Attached,
}

impl<F, B> Future for Answered<F>
where
    F: Future<Output = Result<Response<B>, Error>>,
    B: http_body::Body<Data = bytes::Bytes> + Origin + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<Body>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready_or_return!(this.inner.poll(cx))?;
        if let Some(attempt) = this.exchange.facts().attempts.last_mut() {
            attempt.server = response.body().origin();
            attempt.http_version = Some(response.version()).filter(|_| !attempt.is_pipe);
        }
        let failed = response.status().is_client_error() || response.status().is_server_error();
        Poll::Ready(Ok(response.map(|body| {
            if body.is_end_stream() {
                Body::Empty
            } else if failed {
                let mask = mask(&this.sent.upstream, &this.sent.attached);
                Body::stream(Masked::new(body, mask))
            } else {
                Body::stream(http_body_util::BodyExt::map_err(body, Into::into))
            }
        })))
    }
}

fn outgoing(mut hop: Hop, attached: Attached) -> Result<(Outgoing, Sent), Error> {
    let upstream = hop.upstream.clone();
    forward(&mut hop, &upstream.forward)?;
    let (trace_id, source) = {
        let facts = hop.exchange.facts();
        (facts.trace.trace_id_digits(), facts.source.unwrap_or(CallSource::Mcp))
    };
    if let Ok(value) = HeaderValue::from_bytes(&trace_id) {
        hop.headers.insert(header::TRACE_ID, value);
    }
    hop.headers.insert(header::CALL_SOURCE, HeaderValue::from_static(source.as_str()));
    for (name, source) in &upstream.headers {
        match value(source, &hop, name, &attached)? {
            Some(value) => {
                hop.headers.insert(name.clone(), value);
            }
            // Discovery asks for nobody in particular.
            None if hop.caller.is_none() => {}
            None => {
                let message = format!(
                    "`{}` must be told something of the caller that is not known ({name})",
                    upstream.name
                );
                return Err(
                    Error::new(Code::PermissionDenied, message).with_reason("header_value_missing")
                );
            }
        }
    }
    for (name, value) in &attached.credential {
        hop.headers.insert(name.clone(), value.clone());
    }
    let mut request = Request::new(Body::from(hop.body));
    *request.method_mut() = hop.method;
    *request.headers_mut() = hop.headers;
    let to = upstream.reach.destination();
    let outgoing = Outgoing { to, suffix: hop.path, request, tried: hop.tried };
    Ok((outgoing, Sent { upstream, attached }))
}

/// Takes over what the client sent under the names that the operator lists, but for what the
/// client itself says ends with its own connection (RFC 9110, 7.6.1).
fn forward(hop: &mut Hop, names: &[HeaderName]) -> Result<(), Error> {
    for name in names {
        if of_one_hop(name, &hop.client_headers) {
            continue;
        }
        for value in hop.client_headers.get_all(name) {
            if !value.as_bytes().iter().all(|b| matches!(b, b'\t' | 0x20..0x7f)) {
                // The client wrote it, and can mend it.
                let message = format!("the header {name} is not printable ASCII");
                return Err(
                    Error::new(Code::InvalidArgs, message).with_reason("header_value_broken")
                );
            }
            hop.headers.append(name, value.clone());
        }
    }
    Ok(())
}

fn of_one_hop(name: &HeaderName, headers: &HeaderMap) -> bool {
    headers
        .get_all(http_header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .any(|listed| listed.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
}

fn broken(name: &HeaderName) -> Error {
    let message = format!("the value for the header {name} cannot stand in a header");
    Error::new(Code::PermissionDenied, message).with_reason("header_value_broken")
}

/// A header's value. One that would break the header is refused, not cleaned.
fn value(
    source: &HeaderSource,
    hop: &Hop,
    name: &HeaderName,
    attached: &Attached,
) -> Result<Option<HeaderValue>, Error> {
    match source {
        HeaderSource::Secret(secret) => {
            let mut value =
                HeaderValue::try_from(secret.expose_secret()).map_err(|_| broken(name))?;
            value.set_sensitive(true);
            Ok(Some(value))
        }
        HeaderSource::Stored(_) => {
            let found = attached.stored.iter().find(|(stored, _)| stored == name);
            Ok(found.map(|(_, value)| value.clone()))
        }
        HeaderSource::Template(template) => {
            let mut text = String::new();
            let fill = |part: &Part, text: &mut String| {
                part.write(hop.caller.as_deref(), &hop.exchange, text)
            };
            if !template.parts().iter().all(|part| fill(part, &mut text)) {
                return Ok(None);
            }
            if !text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
                return Err(broken(name));
            }
            HeaderValue::try_from(text).map(Some).map_err(|_| broken(name))
        }
    }
}
