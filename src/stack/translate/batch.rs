//! Batches of 2025-03-26: one HTTP request, several messages, each of which is a call of its own
//! with its own exchange, record and answer.
//!
//! Here is only what makes a batch of them: which are taken, how many run at once, and how their
//! answers are put together. What a message means, `northbound` says.

use std::{
    borrow::Cow,
    collections::{HashSet, VecDeque},
    convert::Infallible,
    mem,
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{
    Stream, StreamExt,
    stream::{self, FuturesUnordered, SelectAll},
};
use http::{HeaderValue, Response, header as http_header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, timeout},
};
use tower::{Service, ServiceExt};

use super::{
    http_form::accepted,
    north_reply::KEEP_ALIVE,
    northbound::{Front, NorthboundConfig},
};
use crate::{
    body::Body,
    dialect::{
        fault,
        jsonrpc::{self, Message},
        sse, streamable_http, streamable_http_session,
    },
    error::{Code, Error},
    json::{Doc, Kind, Value},
    mcp::{Method, Version, header, rpc},
    model::{
        call::{Call, Surface},
        exchange::{Exchange, NorthDialect},
        reply::Reply,
    },
};

/// Carries out a batch: nothing of it runs unless all of it may, and then all of it does,
/// whatever becomes of whoever waits for the answers.
pub(super) async fn run<S>(
    mut front: Front,
    inner: S,
    surface: Surface,
    doc: &Doc,
) -> Result<Response<Body>, Error>
where
    S: Service<Call, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    let messages = admit(&mut front, doc)?;
    // From here on the messages leave records, not the request that they came in.
    front.exchange.facts().entered = false;
    let (sender, answers) = mpsc::channel(messages.len());
    let slots = Arc::new(Semaphore::new(front.layer.config.batch_concurrency));
    let one = |(number, text): (usize, Bytes)| {
        let (front, inner, surface) = (part_of(&front), inner.clone(), surface.clone());
        let slot = slots.clone().acquire_owned();
        async move {
            let slot = slot.await.ok();
            let front = front();
            (number, answer(front, inner, surface, text, slot).await)
        }
    };
    let mut running: FuturesUnordered<_> = messages.into_iter().enumerate().map(one).collect();
    // A broken connection cancels nothing in this era; the task ends with the calls in it.
    tokio::runtime::Handle::current().spawn(async move {
        while let Some(answer) = running.next().await {
            // There is room for every answer, and perhaps nobody there to read it.
            let _ = sender.send(answer).await;
        }
    });
    Ok(gather(answers).await)
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::http(Code::InvalidArgs, 400, message).with_rpc_code(rpc::INVALID_REQUEST)
}

/// The messages of a batch that may be carried out.
///
/// # Errors
/// Whatever refuses the batch as a whole. A message that is none in itself does not: it is
/// answered as such.
fn admit(front: &mut Front, doc: &Doc) -> Result<Vec<Bytes>, Error> {
    let headers = &front.parts.headers;
    let single = "a batch is not accepted under this revision: send one message a POST";
    if streamable_http::is_modern(headers, None) {
        return Err(invalid(single));
    }
    let keyed = headers.contains_key(header::IDEMPOTENCY_KEY);
    let session = front.legacy(Method::Other)?;
    // Outside a session it is the revision that is named, or the one that is assumed.
    let version = match session.nonce {
        Some(_) => session.version,
        None => {
            streamable_http_session::version_of(&front.parts.headers)?.unwrap_or(Version::ASSUMED)
        }
    };
    if version != Version::V2025_03_26 {
        return Err(invalid(single));
    }
    let messages: Vec<Value<'_>> = doc.root().elements().collect();
    if messages.is_empty() {
        return Err(invalid("the batch is empty"));
    }
    let NorthboundConfig { max_batch, .. } = front.layer.config;
    if messages.len() > max_batch {
        let message = format!(
            "the batch holds {} messages, and at most {max_batch} are taken",
            messages.len()
        );
        return Err(invalid(message));
    }
    let mut ids = HashSet::new();
    for message in messages.iter().filter(|message| message.kind() == Kind::Object) {
        if message.get("method").is_some_and(|method| method.is_str("initialize")) {
            return Err(invalid("`initialize` stands alone, never in a batch"));
        }
        if streamable_http::is_modern(&front.parts.headers, message.get("params")) {
            return Err(invalid("a request of 2026-07-28 stands alone, never in a batch"));
        }
        if let (Some(id), Some(_)) = (message.get("id"), message.get("method"))
            && !ids.insert((id.kind() == Kind::String, id.as_str().unwrap_or(raw(id))))
        {
            return Err(invalid("two requests of the batch have the same id"));
        }
    }
    if keyed && ids.len() > 1 {
        return Err(invalid(
            "one Idempotency-Key cannot stand for several calls: give each its own, as \
             `dev.hangu/idempotencyKey` in `_meta`",
        ));
    }
    Ok(messages.into_iter().map(Value::bytes).collect())
}

fn raw(value: Value<'_>) -> Cow<'_, str> {
    String::from_utf8_lossy(value.raw())
}

/// Makes the request of one message, when its turn has come.
fn part_of(front: &Front) -> impl FnOnce() -> Front + Send + 'static + use<> {
    let (layer, parts, caller) = (front.layer.clone(), front.parts.clone(), front.caller.clone());
    let whole = front.exchange.clone();
    move || {
        let exchange = Arc::new(whole.part(Instant::now(), layer.clock.now_ms()));
        Front { layer, parts, caller, exchange, alone: false }
    }
}

/// What one message was answered.
enum Answer {
    /// It wanted none, or was cancelled.
    Nothing,
    Whole(Vec<Bytes>),
    Stream(Events),
}

async fn answer<S>(
    front: Front,
    inner: S,
    surface: Surface,
    text: Bytes,
    slot: Option<OwnedSemaphorePermit>,
) -> Answer
where
    S: Service<Call, Response = Reply, Error = Error> + Send + 'static,
    S::Future: Send,
{
    let exchange = front.exchange.clone();
    exchange.facts().bytes_in = text.len() as u64;
    let mut wanted = true;
    let carried_out = async {
        let doc = front.parse(text)?;
        wanted = !matches!(
            jsonrpc::read(&doc),
            Ok(Message::Notification { .. } | Message::Result { .. } | Message::Error { .. })
        );
        front.message(inner.ready_oneshot().await?, surface, &doc).await
    };
    let body = match carried_out.await {
        Ok(response) => response.into_body(),
        Err(error) => {
            let mut facts = exchange.facts();
            facts.failed(&error);
            let dialect = facts.dialect.unwrap_or(NorthDialect::Legacy(Version::V2025_03_26));
            let message = fault::message(&error, &mut facts, dialect);
            if wanted { message.into() } else { Body::Empty }
        }
    };
    match body {
        Body::Empty => Answer::Nothing,
        mut body @ Body::Parts(_) => {
            let mut pieces = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                pieces.extend(frame.into_data());
            }
            exchange.facts().bytes_out = length(&pieces);
            Answer::Whole(pieces)
        }
        body => Answer::Stream(Events { body, exchange, sent: 0, _slot: slot }),
    }
}

fn length(pieces: &[Bytes]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

// === Putting answers together ===

type Answers = mpsc::Receiver<(usize, Answer)>;

/// One array in the order of the requests, or a stream from the first answer that is one.
async fn gather(mut answers: Answers) -> Response<Body> {
    let mut whole = Vec::new();
    while let Some((number, answer)) = answers.recv().await {
        match answer {
            Answer::Nothing => {}
            Answer::Whole(pieces) => whole.push((number, pieces)),
            Answer::Stream(events) => return event_stream(whole, events, answers),
        }
    }
    if whole.is_empty() {
        return accepted();
    }
    whole.sort_unstable_by_key(|(number, _)| *number);
    let mut array = vec![Bytes::from_static(b"[")];
    for (number, (_, pieces)) in whole.into_iter().enumerate() {
        if number > 0 {
            array.push(Bytes::from_static(b","));
        }
        array.extend(pieces);
    }
    array.push(Bytes::from_static(b"]"));
    let mut response = Response::new(Body::from_parts(array));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(http_header::CONTENT_TYPE, json);
    response
}

/// The events of one message's stream, each given whole, so that those of several can stand
/// between each other.
struct Events {
    body: Body,
    exchange: Arc<Exchange>,
    sent: u64,
    /// Held to the stream's end: a call that still streams still runs.
    _slot: Option<OwnedSemaphorePermit>,
}

impl Events {
    async fn next(&mut self) -> Option<Vec<Bytes>> {
        let mut pieces = Vec::new();
        while let Some(Ok(frame)) = self.body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            // Nothing but its end has an empty line; the two bytes may be of two pieces.
            let ends = data.ends_with(b"\n\n")
                || (&data[..] == b"\n"
                    && pieces.last().is_some_and(|p: &Bytes| p.ends_with(b"\n")));
            self.sent += data.len() as u64;
            pieces.push(data);
            if ends {
                break;
            }
        }
        (!pieces.is_empty()).then_some(pieces)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.exchange.facts().bytes_out = self.sent;
    }
}

type Open = std::pin::Pin<Box<dyn Stream<Item = Vec<Bytes>> + Send>>;

/// An event stream of several answers.
struct Joined {
    ready: VecDeque<Bytes>,
    open: SelectAll<Open>,
    /// Gone when every message has been answered.
    answers: Option<Answers>,
}

fn event_stream(
    whole: Vec<(usize, Vec<Bytes>)>,
    first: Events,
    answers: Answers,
) -> Response<Body> {
    let ready = whole.into_iter().flat_map(|(_, pieces)| sse::encode(pieces)).collect();
    let mut joined = Joined { ready, open: SelectAll::new(), answers: Some(answers) };
    joined.follow(first);
    let frames = stream::unfold(joined, |mut joined| async move {
        let piece = joined.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(piece)), joined))
    });
    let body = StreamBody::new(frames).map_err(|never| match never {});
    let mut response = Response::new(Body::stream(body));
    let headers = response.headers_mut();
    headers.insert(http_header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(http_header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

impl Joined {
    fn follow(&mut self, events: Events) {
        self.open.push(Box::pin(stream::unfold(events, |mut events| async move {
            let pieces = events.next().await?;
            Some((pieces, events))
        })));
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(piece);
            }
            if self.open.is_empty() && self.answers.is_none() {
                return None;
            }
            if timeout(KEEP_ALIVE, self.step()).await.is_err() {
                return Some(Bytes::from_static(b": keep-alive\n\n"));
            }
        }
    }

    /// Takes in one event or one answer, or notes that there are no more.
    async fn step(&mut self) {
        let Self { ready, open, answers } = self;
        let next = async {
            match answers {
                Some(answers) => answers.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // An end is none of them, and seen by whoever asks for the next step.
            pieces = open.next(), if !open.is_empty() => ready.extend(pieces.into_iter().flatten()),
            answer = next => match answer {
                Some((_, Answer::Whole(pieces))) => ready.extend(sse::encode(pieces)),
                Some((_, Answer::Stream(events))) => self.follow(events),
                Some((_, Answer::Nothing)) => {}
                None => drop(mem::take(answers)),
            },
        }
    }
}
