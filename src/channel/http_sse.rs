//! HTTP+SSE (2024-11-05): a GET opens an event stream whose first event names the address to
//! post messages to; every answer comes on the stream.
//!
//! Each session has a stream of its own. Messages are posted by the core that has the call, the
//! streams are read on the thread of the channels. Addresses, TLS and balancing are the
//! cluster's; the credential is in the headers that come with the requests.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use dashmap::DashMap;
use futures_util::future::{Either, select};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header as http_header};
use http_body_util::BodyExt;
use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout},
};
use tower::Service;

use super::{
    calls::{Abandoned, Calls, Delivery, Purpose, Reading, Users},
    message::{self, Message},
    reply,
    runtime::{Channels, Lounge},
};
use crate::{
    body::{self, Body},
    dialect::{south, sse},
    error::{Code, Error},
    mcp::{self, header},
    upstream::{Carrier, Carrying, Cluster, Destination, Outgoing, Place, UpstreamBody, Upstreams},
};

/// The most that is read of the answer to a post, which says nothing.
const ACCEPTED: usize = 64 * 1_024;
/// What the framing of an event may add to its message.
const FRAMING: usize = 4 * 1_024;
/// Of a connection that is dropped.
const ENDING: Duration = Duration::from_millis(500);

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

/// One open stream.
struct Stream {
    calls: Arc<Calls>,
    /// Where messages go.
    place: Place,
    /// As the session was opened with, for what the gateway has to say by itself.
    headers: HeaderMap,
    ending: watch::Sender<bool>,
    opened: AtomicBool,
}

/// What came of the attempt to open a stream.
type Opening = Result<Arc<Stream>, Refusal>;

enum Refusal {
    /// An answer that is no stream: its status says why.
    Status(StatusCode),
    Failed(Error),
}

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
                let posted = post(core, &stream.place, headers, text).await?;
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
            let connected = connect(&config, &cluster, &there, headers);
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

/// Posts a message to the address that the stream named.
async fn post(
    mut core: Upstreams,
    place: &Place,
    headers: HeaderMap,
    text: Bytes,
) -> Result<Response<UpstreamBody>, Error> {
    let mut request = Request::new(Body::from(text));
    *request.method_mut() = Method::POST;
    *request.headers_mut() = headers;
    core.call(Outgoing { to: Destination::Place(place.clone()), suffix: "", request }).await
}

/// Reads what says nothing, so that its connection can be used again.
async fn discard(posted: Response<UpstreamBody>) {
    // Whatever it was: the message has been taken.
    let _ = timeout(ENDING, body::collect(posted.into_body(), ACCEPTED)).await;
}

// === impl Stream ===

impl Stream {
    /// Posts a request. Its events are there when the server has taken it, or has begun to
    /// answer: some servers take a message only when they are done with it.
    async fn ask(
        self: &Arc<Self>,
        core: Upstreams,
        headers: HeaderMap,
        text: Bytes,
        mut reading: Reading,
    ) -> Result<Response<Body>, Error> {
        let place = self.place.clone();
        let posted = Box::pin(async move { post(core, &place, headers, text).await });
        let answered = poll_fn(|cx| reading.poll_some(cx));
        match select(posted, Box::pin(answered)).await {
            Either::Left((posted, _)) => {
                let posted = posted?;
                if !posted.status().is_success() {
                    return Ok(self.refused(posted));
                }
                rest(discard(posted));
            }
            Either::Right(((), posted)) => rest(async {
                if let Ok(posted) = posted.await {
                    discard(posted).await;
                }
            }),
        }
        Ok(reply::events(reading))
    }

    /// What the server answered in place of taking a message.
    fn refused(&self, posted: Response<UpstreamBody>) -> Response<Body> {
        if matches!(posted.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
            // It knows the session no more: neither will anybody else.
            self.calls.close_to_new();
            self.ending.send_replace(true);
            return reply::status(StatusCode::NOT_FOUND);
        }
        posted.map(|body| Body::stream(body.map_err(Into::into)))
    }
}

/// What is left of an exchange that nobody waits for.
fn rest(task: impl Future<Output = ()> + Send + 'static) {
    // Bounded by the connection's own time-outs, and over before its core is.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(task);
    }
}

// === Reading ===

struct Reader {
    body: UpstreamBody,
    parser: sse::Parser,
}

/// Opens a stream and waits for its first event.
async fn connect(
    config: &Arc<HttpSseConfig>,
    cluster: &Arc<Cluster>,
    lounge: &Lounge,
    headers: HeaderMap,
) -> Result<(Arc<Stream>, Reader), Refusal> {
    let mut request = Request::new(Body::Empty);
    *request.method_mut() = Method::GET;
    *request.headers_mut() = headers.clone();
    request.headers_mut().remove(http_header::CONTENT_TYPE);
    let accept = HeaderValue::from_static("text/event-stream");
    request.headers_mut().insert(http_header::ACCEPT, accept);
    let to = Destination::Cluster(cluster.clone());
    let response = lounge.http.clone().call(Outgoing { to, suffix: "", request }).await;
    let response = response.map_err(|error| Refusal::Failed(error.with_known_outcome()))?;
    let failed = |what, kind| Refusal::Failed(reply::failure(&config.name, what, kind));
    if response.status() != StatusCode::OK {
        return Err(match response.status() {
            status if status.is_success() => failed("opened no event stream", "malformed"),
            status => Refusal::Status(status),
        });
    }
    let kind = response.headers().get(http_header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("text/event-stream") {
        return Err(failed("opened no event stream", "malformed"));
    }
    let parser = sse::Parser::new(config.max_message.saturating_add(FRAMING));
    let mut reader = Reader { body: response.into_body(), parser };
    let first = reader.next().await.map_err(Refusal::Failed)?;
    let Some(first) = first else { return Err(failed("closed its stream", "stream_ended")) };
    if first.event.as_deref() != Some(b"endpoint") {
        return Err(failed("did not begin with the address for messages", "malformed"));
    }
    let place = std::str::from_utf8(&first.data).ok().and_then(|to| reader.body.place(to.trim()));
    let Some(place) = place else {
        return Err(failed("wants messages sent to another origin than its own", "foreign_origin"));
    };
    let users = if config.shared { Users::Many } else { Users::One };
    let ending = watch::Sender::new(false);
    let calls =
        Calls::new(config.name.clone(), users, config.max_message, abandoned(ending.clone()));
    let opened = AtomicBool::new(false);
    Ok((Arc::new(Stream { calls, place, headers, ending, opened }), reader))
}

/// Whoever gives a call up tells the server by itself; a session that nobody opened is ended.
fn abandoned(ending: watch::Sender<bool>) -> Abandoned {
    Box::new(move |_, purpose| {
        if purpose == Purpose::Opening {
            ending.send_replace(true);
        }
    })
}

/// How a stream ended.
enum End {
    Broken(Option<Error>),
    TooLarge,
    Asked,
}

impl Reader {
    /// The next event with data; `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<sse::Event>, Error> {
        loop {
            while let Some(event) = self.parser.next() {
                let event = event.map_err(|large| {
                    Error::new(Code::PayloadTooLarge, "an event is too large").with_cause(large)
                })?;
                // Comments and priming events are none.
                if !event.data.is_empty() {
                    return Ok(Some(event));
                }
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.parser.push(data);
                    }
                }
            }
        }
    }

    /// Until the stream's end, or the session's.
    async fn read(mut self, stream: &Arc<Stream>, config: &HttpSseConfig, lounge: &Lounge) {
        let mut ending = stream.ending.subscribe();
        let mut under_way = stream.calls.under_way();
        let mut stopping = std::pin::pin!(lounge.stopping());
        let mut unopened = std::pin::pin!(sleep(config.opening * 2));
        let (mut asked, mut in_time) = (*ending.borrow(), false);
        let end = loop {
            // Its calls under way may go on, for as long as their callers wait.
            if asked && *under_way.borrow_and_update() == 0 {
                break End::Asked;
            }
            tokio::select! {
                event = self.next() => match event {
                    Ok(Some(event)) => stream.take(&event, lounge),
                    Ok(None) => break End::Broken(None),
                    Err(error) if error.code() == Code::PayloadTooLarge => break End::TooLarge,
                    Err(error) => break End::Broken(Some(error)),
                },
                _ = ending.changed(), if !asked => asked = true,
                _ = under_way.changed(), if asked => {}
                () = &mut stopping => break End::Asked,
                () = &mut unopened, if !in_time => {
                    in_time = true;
                    if !stream.opened.load(Ordering::Relaxed) {
                        break End::Asked;
                    }
                }
            }
        };
        let name = &config.name;
        let mut cause = None;
        match end {
            End::Asked => {}
            End::TooLarge => {
                tracing::warn!(
                    upstream.name = &**name,
                    max = config.max_message,
                    "a message of a server is larger than allowed: its stream is given up"
                );
                stream.calls.close(|| reply::too_large(name, config.max_message));
            }
            End::Broken(error) => cause = error.map(|error| error.to_string()),
        }
        if let Some(cause) = &cause {
            tracing::debug!(upstream.name = &**name, cause, "a server's stream broke off");
        }
        stream.calls.close(|| {
            reply::failure(
                name,
                "broke off its event stream before it answered",
                "connection_reset",
            )
            .with_unknown_outcome()
        });
    }
}

impl Stream {
    fn take(self: &Arc<Self>, event: &sse::Event, lounge: &Lounge) {
        if event.event.as_deref().is_some_and(|name| name != b"message") {
            return;
        }
        match self.calls.deliver(&event.data) {
            Delivery::Done => {}
            Delivery::Refused => {
                self.ending.send_replace(true);
            }
            Delivery::Noise => tracing::debug!("an event of a server is no message"),
            Delivery::Unheard(questions) => {
                let (stream, core) = (self.clone(), lounge.http.clone());
                lounge.spawn(ENDING, async move {
                    for (id, method) in questions {
                        let answer = south::answer_body(&id, &method);
                        let headers = stream.headers.clone();
                        if let Ok(posted) = post(core.clone(), &stream.place, headers, answer).await
                        {
                            discard(posted).await;
                        }
                    }
                });
            }
        }
    }
}
