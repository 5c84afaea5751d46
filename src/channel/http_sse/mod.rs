//! HTTP+SSE (2024-11-05): a GET opens an event stream whose first event names the address to
//! post messages to; every answer comes on the stream.
//!
//! Each session has a stream of its own, which `stream` opens and reads on the thread of the
//! channels. Messages are posted by the core that has the call. Addresses, TLS and balancing are
//! the cluster's; the credential is in the headers that come with the requests.

mod stream;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use dashmap::DashMap;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use tokio::{sync::oneshot, time::timeout};

use self::stream::{ENDING, Refusal, Stream};
use super::{
    calls::Purpose,
    message::{self, Message},
    reply,
    runtime::Channels,
};
use crate::{
    body::{self, Body},
    error::{Code, Error},
    mcp::{self, header},
    upstream::{Carrier, Carrying, Cluster, Upstreams},
};

/// A server of HTTP+SSE.
#[derive(Debug, Clone)]
pub struct HttpSseConfig {
    /// The configured name.
    pub name: Arc<str>,
    /// The most that a message of it may hold.
    pub max_message: usize,
    /// How long the opening of a session may take.
    pub opening: Duration,
    /// Employees may share a session.
    pub shared: bool,
}

/// The streams of one upstream.
pub struct HttpSse {
    config: Arc<HttpSseConfig>,
    cluster: Arc<Cluster>,
    channels: Arc<Channels>,
    sessions: Arc<DashMap<Box<str>, Arc<Stream>>>,
}

/// What came of the attempt to open a stream.
type Opening = Result<Arc<Stream>, Refusal>;

impl HttpSse {
    pub fn new(config: HttpSseConfig, cluster: Arc<Cluster>, channels: Arc<Channels>) -> Arc<Self> {
        Arc::new(Self { config: Arc::new(config), cluster, channels, sessions: Arc::default() })
    }

    async fn post(&self, core: Upstreams, request: Request<Body>) -> Result<Response<Body>, Error> {
        let (head, body) = request.into_parts();
        // Its size was checked where it was written.
        let text = body::collect(body, usize::MAX)
            .await
            .map_err(|_| Error::new(Code::Internal, "a request's body could not be read"))?;
        let mut messages = message::read(&text).unwrap_or_default();
        let Some((_, message)) = messages.pop().filter(|_| messages.is_empty()) else {
            return Ok(reply::status(StatusCode::BAD_REQUEST));
        };
        let session = head.headers.get(header::SESSION_ID).cloned();
        let headers = own(head.headers);
        let Some(session) = session else {
            return match message {
                Message::Request { id, method }
                    if mcp::Method::parse(&method) == mcp::Method::Initialize =>
                {
                    self.open(core, headers, id, text).await
                }
                // Nothing is said outside a session.
                _ => Ok(reply::status(StatusCode::BAD_REQUEST)),
            };
        };
        let stream = self.of(session.to_str().unwrap_or_default());
        let Some(stream) = stream else { return Ok(reply::status(StatusCode::NOT_FOUND)) };
        match message {
            Message::Request { id, .. } => match stream.calls.enter(id, Purpose::Work) {
                Some(reading) => stream.ask(core, headers, text, reading).await,
                None => Ok(reply::status(StatusCode::NOT_FOUND)),
            },
            message => {
                let initialized = matches!(&message, Message::Notification { method, .. }
                    if mcp::Method::parse(method) == mcp::Method::Initialized);
                let posted = stream.post(core, headers, text).await?;
                if initialized && posted.status().is_success() {
                    stream.opened.store(true, Ordering::Relaxed);
                }
                Ok(match posted.status().is_success() {
                    true => reply::status(StatusCode::ACCEPTED),
                    false => stream.refused(posted),
                })
            }
        }
    }

    async fn open(
        &self,
        core: Upstreams,
        headers: HeaderMap,
        id: Bytes,
        text: Bytes,
    ) -> Result<Response<Body>, Error> {
        let session = reply::session_id();
        let stream = match self.connect(headers.clone(), &session).await? {
            Ok(stream) => stream,
            Err(Refusal::Status(status)) => return Ok(reply::status(status)),
            Err(Refusal::Failed(error)) => return Err(error),
        };
        let Some(reading) = stream.calls.enter(id, Purpose::Opening) else {
            return Err(reply::failure(&self.config.name, "closed its stream", "stream_ended"));
        };
        let mut response = stream.ask(core, headers, text, reading).await?;
        if response.status().is_success()
            && let Ok(value) = HeaderValue::from_str(&session)
        {
            response.headers_mut().insert(header::SESSION_ID, value);
        }
        Ok(response)
    }

    /// Opens a stream on the thread of the channels, where it stays.
    async fn connect(&self, headers: HeaderMap, session: &str) -> Result<Opening, Error> {
        let lounge = self.channels.lounge()?;
        let (tell, told) = oneshot::channel();
        let (config, cluster) = (self.config.clone(), self.cluster.clone());
        let (sessions, session): (_, Box<str>) = (self.sessions.clone(), session.into());
        let there = lounge.clone();
        lounge.spawn(ENDING, async move {
            let connected = stream::connect(&config, &cluster, &there, headers);
            let connected = match timeout(config.opening, connected).await {
                Ok(connected) => connected,
                Err(_) => {
                    let what = "did not name the address for messages in time";
                    Err(Refusal::Failed(reply::failure(&config.name, what, "timeout")))
                }
            };
            let (stream, reader) = match connected {
                Ok(connected) => connected,
                Err(refusal) => {
                    let _ = tell.send(Err(refusal));
                    return;
                }
            };
            sessions.insert(session.clone(), stream.clone());
            // Where nobody waits any more, it is never opened.
            if tell.send(Ok(stream.clone())).is_ok() {
                reader.read(&stream, &config, &there).await;
            }
            sessions.remove(&session);
        });
        told.await.map_err(|_| reply::failure(&self.config.name, "is stopping", "stream_ended"))
    }

    fn of(&self, session: &str) -> Option<Arc<Stream>> {
        self.sessions.get(session).map(|stream| stream.clone())
    }

    fn end(&self, session: &str) -> Response<Body> {
        match self.of(session) {
            Some(stream) => {
                stream.calls.close_to_new();
                stream.ending.send_replace(true);
                reply::status(StatusCode::OK)
            }
            None => reply::status(StatusCode::NOT_FOUND),
        }
    }
}

impl Carrier for HttpSse {
    fn carry(self: Arc<Self>, core: Upstreams, request: Request<Body>) -> Carrying {
        Box::pin(async move {
            let session = request.headers().get(header::SESSION_ID);
            let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
            match (request.method(), session) {
                (&Method::POST, _) => self.post(core, request).await,
                (&Method::DELETE, Some(session)) => Ok(self.end(&session)),
                (&Method::GET, Some(session)) => {
                    let reading = self.of(&session).and_then(|stream| stream.calls.listen());
                    Ok(reading.map_or(reply::status(StatusCode::NOT_FOUND), reply::events))
                }
                _ => Ok(reply::status(StatusCode::METHOD_NOT_ALLOWED)),
            }
        })
    }

    fn is_pipe(&self) -> bool {
        false
    }

    fn healthy(&self) -> bool {
        self.cluster.healthy()
    }
}

/// The headers of a message, without what this transport does not know.
fn own(mut headers: HeaderMap) -> HeaderMap {
    for name in [header::SESSION_ID, header::PROTOCOL_VERSION, header::METHOD, header::NAME] {
        headers.remove(name);
    }
    headers
}
