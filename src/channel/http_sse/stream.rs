//! One event stream: how it is opened, what is posted beside it, and what it brings.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header as http_header};
use http_body_util::BodyExt;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tower::Service;

use super::HttpSseConfig;
use crate::{
    body::{self, Body},
    channel::{
        calls::{Abandoned, Calls, Delivery, Purpose, Reading, Users},
        reply,
        runtime::Lounge,
    },
    dialect::{south, sse},
    error::{Code, Error},
    mcp::header,
    upstream::{Cluster, Destination, Outgoing, Place, UpstreamBody, Upstreams},
};

/// The most that is read of the answer to a post, which says nothing.
const ACCEPTED: usize = 64 * 1_024;
/// What the framing of an event may add to its message.
const FRAMING: usize = 4 * 1_024;
/// Of a connection that is dropped.
pub(super) const ENDING: Duration = Duration::from_millis(500);

/// One open stream.
pub(super) struct Stream {
    pub calls: Arc<Calls>,
    /// Where messages go.
    place: Place,
    /// As the session was opened with, for what the gateway has to say by itself.
    headers: HeaderMap,
    pub ending: watch::Sender<bool>,
    pub opened: AtomicBool,
}

/// Why there is no stream.
pub(super) enum Refusal {
    /// An answer that is no stream: its status says why.
    Status(StatusCode),
    Failed(Error),
}

// === impl Stream ===

impl Stream {
    /// Posts a message to the address that the stream named.
    pub async fn post(
        &self,
        core: Upstreams,
        headers: HeaderMap,
        text: Bytes,
    ) -> Result<Response<UpstreamBody>, Error> {
        post(core, &self.place, headers, text).await
    }

    /// Posts a request. Its events are there when the server has taken it, or has begun to
    /// answer: some servers take a message only when they are done with it.
    pub async fn ask(
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
    pub fn refused(&self, posted: Response<UpstreamBody>) -> Response<Body> {
        if matches!(posted.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
            // It knows the session no more: neither will anybody else.
            self.calls.close_to_new();
            self.ending.send_replace(true);
            return reply::status(StatusCode::NOT_FOUND);
        }
        posted.map(|body| Body::stream(body.map_err(Into::into)))
    }
}

async fn post(
    mut core: Upstreams,
    place: &Place,
    headers: HeaderMap,
    text: Bytes,
) -> Result<Response<UpstreamBody>, Error> {
    let mut request = Request::new(Body::from(text));
    *request.method_mut() = Method::POST;
    *request.headers_mut() = headers;
    core.call(Outgoing { to: Destination::Place(place.clone()), suffix: "", request, tried: None })
        .await
}

/// Reads what says nothing, so that its connection can be used again.
async fn discard(posted: Response<UpstreamBody>) {
    // Whatever it was: the message has been taken.
    let _ = timeout(ENDING, body::collect(posted.into_body(), ACCEPTED)).await;
}

/// What is left of an exchange that nobody waits for.
fn rest(task: impl Future<Output = ()> + Send + 'static) {
    // Bounded by the connection's own time-outs, and over before its core is.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(task);
    }
}

// === Reading ===

pub(super) struct Reader {
    body: UpstreamBody,
    parser: sse::Parser,
}

/// Opens a stream and waits for its first event.
pub(super) async fn connect(
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
    let response =
        lounge.http.clone().call(Outgoing { to, suffix: "", request, tried: None }).await;
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
    // What the gateway says by itself is of no caller's trace.
    let mut headers = headers;
    for name in [header::TRACEPARENT, header::TRACESTATE, header::TRACE_ID] {
        headers.remove(name);
    }
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
    pub async fn read(mut self, stream: &Arc<Stream>, config: &HttpSseConfig, lounge: &Lounge) {
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
