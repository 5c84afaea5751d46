//! One call, there and back: chooses an address, sends, and hands the answer on.
//!
//! Sends a call twice only when it surely did not arrive: the connection could not be made, or
//! it had closed before a byte of the call was written to it. A call that may have been read is
//! never sent again, whatever became of its answer.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
};

use futures_util::future::poll_fn;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Version, header};
use hyper::client::conn::http2;
use smallvec::SmallVec;

use super::{
    body::UpstreamBody,
    cluster::Cluster,
    connector::{Connector, H1, Kept, Lease},
    decode::Decoder,
    directory::Peer,
    endpoint::Target,
    reach::Place,
    retry::Tried,
};
use crate::{body::Body, error::Error};

/// A request in pieces, so that it can be put together for whichever connection takes it.
struct Message {
    method: Method,
    headers: HeaderMap,
    body: Body,
}

/// What became of a request that was given to a connection.
enum Sent {
    Answered(Response<UpstreamBody>),
    /// Nothing of it was written.
    Unsent(Request<Body>, hyper::Error),
    /// Some of it may have been.
    Lost(hyper::Error),
}

pub(super) async fn send(
    core: Arc<Connector>,
    cluster: Arc<Cluster>,
    suffix: &'static str,
    request: Request<Body>,
    tried: Option<Arc<Tried>>,
) -> Result<Response<UpstreamBody>, Error> {
    let mut message = Message::from(request);
    strip_hop_by_hop(&mut message.headers);
    let spare = message.copy();
    let (peer, response) = deliver(&core, &cluster, suffix, message, tried).await?;
    let response = match response.status() {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
            if cluster.config().redirects =>
        {
            Box::pin(follow(&core, &cluster, &peer, suffix, spare, response)).await?
        }
        _ => response,
    };
    finish(&cluster, &peer, response)
}

/// Sends to one address and no other, and follows no redirect: it was the server that named it.
pub(super) async fn send_to(
    core: Arc<Connector>,
    place: Place,
    request: Request<Body>,
) -> Result<Response<UpstreamBody>, Error> {
    let Place { cluster, peer, path } = place;
    let Some(target) = peer.endpoint.target_of(path) else {
        return Err(cluster.scene(Some(&peer.endpoint)).unsendable("no path".to_owned()));
    };
    let mut message = Message::from(request);
    strip_hop_by_hop(&mut message.headers);
    let delivered = deliver_to(&core, &cluster, &peer, &target, message).await?;
    finish(&cluster, &peer, delivered.map_err(|(_, error)| error)?)
}

/// Sends to one address after the other until one takes the call.
async fn deliver(
    core: &Arc<Connector>,
    cluster: &Arc<Cluster>,
    suffix: &'static str,
    mut message: Message,
    before: Option<Arc<Tried>>,
) -> Result<(Arc<Peer>, Response<UpstreamBody>), Error> {
    let mut tried = SmallVec::<[u64; 4]>::new();
    let mut failure = None;
    if cluster.is_stale() {
        Box::pin(cluster.resolve()).await?;
    }
    loop {
        let peer = match pick(cluster, &tried, before.as_deref()) {
            Some(peer) => peer,
            None => match failure {
                Some(error) => return Err(error),
                None => {
                    Box::pin(cluster.resolve()).await?;
                    match cluster.pick(&tried) {
                        Some(peer) => peer,
                        None => return Err(cluster.scene(None).unresolved("no address")),
                    }
                }
            },
        };
        let Some(target) = peer.endpoint.target(suffix) else {
            let why = format!("no path ends in {suffix}");
            return Err(cluster.scene(Some(&peer.endpoint)).unsendable(why));
        };
        match deliver_to(core, cluster, &peer, &target, message).await? {
            Ok(response) => return Ok((peer, response)),
            Err((back, error)) => {
                message = back;
                failure = Some(error);
                tried.push(peer.id);
            }
        }
    }
}

/// The address of the next try: one that no earlier attempt of the call has been at, if there is
/// one.
fn pick(cluster: &Cluster, tried: &[u64], before: Option<&Tried>) -> Option<Arc<Peer>> {
    let Some(before) = before else { return cluster.pick(tried) };
    let mut avoided = before.addresses();
    avoided.extend_from_slice(tried);
    let peer = cluster.pick(&avoided).or_else(|| cluster.pick(tried))?;
    before.note(peer.id);
    Some(peer)
}

/// Sends to one address: on an idle connection, else on a new one. The inner error gives the
/// call back, because nobody has seen it.
async fn deliver_to(
    core: &Arc<Connector>,
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    target: &Target,
    mut message: Message,
) -> Result<Result<Response<UpstreamBody>, (Message, Error)>, Error> {
    loop {
        let (lease, reused) = match core.reuse(peer) {
            Some(lease) => (lease, true),
            // Boxed, as is all that few calls need: what a call's future holds is copied for
            // each of them.
            None => match Box::pin(core.dial(cluster, peer)).await {
                Ok(lease) => (lease, false),
                Err(error) => return Ok(Err((message, error))),
            },
        };
        let sent = match lease {
            Lease::Own(connection) => {
                let request = message.h1(peer, target);
                on_own(core, cluster, peer, connection, request).await
            }
            Lease::Shared(sender) => {
                let sent = Box::pin(on_shared(cluster, peer, sender, message.h2(target))).await;
                if matches!(sent, Sent::Unsent(..)) {
                    core.forget_shared(peer);
                }
                sent
            }
        };
        match sent {
            Sent::Answered(response) => return Ok(Ok(response)),
            Sent::Lost(error) => {
                return Err(cluster.scene(Some(&peer.endpoint)).unanswered(error, !reused));
            }
            Sent::Unsent(request, error) => {
                message = Message::from(request);
                if !reused {
                    let error = cluster.scene(Some(&peer.endpoint)).unsent(error);
                    return Ok(Err((message, error)));
                }
            }
        }
    }
}

async fn on_own(
    core: &Arc<Connector>,
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    mut connection: Box<H1>,
    request: Request<Body>,
) -> Sent {
    // The answer comes out of the connection that this very future drives, so the connection's
    // waker is the only one needed; and with no other waker, tokio's budget must not make the
    // answer wait for a wake-up.
    let answer = connection.sender.try_send_request(request);
    let mut answer = pin!(tokio::task::unconstrained(answer));
    let answer = poll_fn(|cx| {
        let _ = connection.poll_drive(cx);
        answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    })
    .await;
    match answer {
        Ok(response) => {
            if connection.kept == Kept::Unasked {
                connection.kept = Kept::told(response.headers());
            }
            Sent::Answered(response.map(|incoming| {
                let (core, cluster, peer) = (core.clone(), cluster.clone(), peer.clone());
                UpstreamBody::own(incoming, connection, core, cluster, peer)
            }))
        }
        Err(error) => unsent_or_lost(error),
    }
}

async fn on_shared(
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    mut sender: http2::SendRequest<Body>,
    request: Request<Body>,
) -> Sent {
    match sender.try_send_request(request).await {
        Ok(response) => Sent::Answered(
            response.map(|incoming| UpstreamBody::shared(incoming, cluster.clone(), peer.clone())),
        ),
        Err(error) => unsent_or_lost(error),
    }
}

fn unsent_or_lost(mut error: hyper::client::conn::TrySendError<Request<Body>>) -> Sent {
    match error.take_message() {
        Some(request) => Sent::Unsent(request, error.into_error()),
        None => Sent::Lost(error.into_error()),
    }
}

/// Follows one redirect that keeps method and body and stays at the same origin.
async fn follow(
    core: &Arc<Connector>,
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    suffix: &'static str,
    spare: Option<Message>,
    response: Response<UpstreamBody>,
) -> Result<Response<UpstreamBody>, Error> {
    let (Some(target), Some(spare)) = (redirect(peer, suffix, response.headers()), spare) else {
        return Ok(response);
    };
    drop(response);
    deliver_to(core, cluster, peer, &target, spare).await?.map_err(|(_, error)| error)
}

fn redirect(peer: &Peer, suffix: &'static str, headers: &HeaderMap) -> Option<Target> {
    let location = headers.get(header::LOCATION)?.to_str().ok()?;
    let from = peer.endpoint.target(suffix)?;
    peer.endpoint.target_of(peer.endpoint.same_origin(&from.absolute, location)?)
}

/// Refuses what is no answer to a call, and takes the coding off what is one.
fn finish(
    cluster: &Cluster,
    peer: &Peer,
    response: Response<UpstreamBody>,
) -> Result<Response<UpstreamBody>, Error> {
    let scene = cluster.scene(Some(&peer.endpoint));
    let status = response.status();
    if status.is_redirection() {
        let error = scene.redirected(format!("status {status}"));
        // This one says that the call was carried out and its result is elsewhere.
        return Err(match status {
            StatusCode::SEE_OTHER => error.with_unknown_outcome(),
            _ => error,
        });
    }
    if status.is_informational() {
        return Err(scene.unexpected(format!("status {status}")));
    }
    let (mut parts, body) = response.into_parts();
    match Decoder::of(&mut parts.headers) {
        Ok(None) => Ok(Response::from_parts(parts, body)),
        Ok(Some(decoder)) => Ok(Response::from_parts(parts, body.decoded_by(decoder))),
        Err(coding) => Err(scene.encoding(coding)),
    }
}

/// Headers that are about one hop; hyper frames the next one anew.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    const HOP: [HeaderName; 10] = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
    ];
    if !headers.keys().any(|name| HOP.contains(name)) {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    for name in HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

// === impl Message ===

impl Message {
    /// A second copy, for a redirect; a body that comes piece by piece has none.
    fn copy(&self) -> Option<Self> {
        let body = match &self.body {
            Body::Empty => Body::Empty,
            Body::Parts(parts) => Body::Parts(parts.clone()),
            Body::Stream(_) => return None,
        };
        Some(Self { method: self.method.clone(), headers: self.headers.clone(), body })
    }

    fn h1(self, peer: &Peer, target: &Target) -> Request<Body> {
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = target.origin.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = self.headers;
        request.headers_mut().insert(header::HOST, peer.endpoint.host_header().clone());
        request
    }

    fn h2(self, target: &Target) -> Request<Body> {
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = target.absolute.clone();
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers;
        request.headers_mut().remove(header::HOST);
        request
    }
}

impl From<Request<Body>> for Message {
    fn from(request: Request<Body>) -> Self {
        let (parts, body) = request.into_parts();
        Self { method: parts.method, headers: parts.headers, body }
    }
}
