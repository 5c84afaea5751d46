//! Reply → HTTP answer. A plain answer stays plain; only what comes in pieces is a stream.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Response, StatusCode, header as http_header};
use http_body::Frame;
use http_body_util::StreamBody;
use smallvec::SmallVec;

use crate::{
    body::{Body, BoxError},
    dialect::{fault, jsonrpc, north, sse},
    error::{Code, Error},
    mcp::{Method, header, rpc},
    model::{
        exchange::{Exchange, Facts, NorthDialect, Outcome},
        reply::{Content, Event, Final, Reply, ReplyHeaders, ReplyStream, ResultBody},
    },
    telemetry::Active,
};

/// The kind of a call whose server asks something where its caller has no form for that.
pub const QUESTION: &str = "input_required";

/// Between two comments on a stream that is otherwise silent.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// The answer on standard MCP.
pub(super) fn mcp(
    reply: Reply,
    exchange: &Arc<Exchange>,
    id: &Bytes,
    dialect: NorthDialect,
    active: Option<Active>,
) -> Response<Body> {
    let mut response = match reply.content {
        Content::Final(end) => {
            let status = note(&mut exchange.facts(), &end, dialect);
            let body = Body::from_parts(north::response(id, &end, dialect));
            let mut response = Response::new(body);
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            response.headers_mut().insert(http_header::CONTENT_TYPE, JSON);
            response
        }
        Content::Stream(events) => {
            let encoder = Encoder::new(exchange.clone(), id.clone(), dialect, active);
            let writing = Writing { events, encoder, pieces: VecDeque::new(), over: false };
            events_response(event_stream(writing))
        }
        Content::Nothing => {
            exchange.facts().outcome = Some(Outcome::Ok);
            let mut response = Response::new(Body::Empty);
            *response.status_mut() = StatusCode::ACCEPTED;
            response
        }
    };
    for (name, value) in reply.headers {
        response.headers_mut().append(name, value);
    }
    response
}

/// The answer that an event stream is.
pub(super) fn events_response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(http_header::CONTENT_TYPE, EVENTS);
    headers.insert(http_header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// What an end means for the record; gives the HTTP status.
fn note(facts: &mut Facts, end: &Final, dialect: NorthDialect) -> u16 {
    let status = match end {
        Final::Result(body) => {
            let failed = body.is_error() && facts.method == Some(Method::CallTool);
            facts.outcome.get_or_insert(match failed {
                true => Outcome::ToolError,
                false if body.shape.asks => Outcome::InputRequired,
                false => Outcome::Ok,
            });
            if failed && facts.error.is_none() {
                facts.error = Some("tool_error");
            }
            200
        }
        Final::Error(error) => {
            facts.rpc_code = Some(error.code);
            facts.outcome = Some(rpc_outcome(error.code));
            facts.code = Some(rpc_taxonomy(error.code));
            north::rpc_status(error.code, dialect)
        }
    };
    facts.status = Some(status);
    status
}

/// What a server's own JSON-RPC error counts as (`telemetry.md` section 3).
fn rpc_outcome(code: i64) -> Outcome {
    match code {
        -32_700 | -32_602..=-32_600 | -32_002 | -32_022..=-32_020 => Outcome::CallerError,
        _ => Outcome::UpstreamError,
    }
}

/// The taxonomy's word for a server's own JSON-RPC error.
fn rpc_taxonomy(code: i64) -> Code {
    match i32::try_from(code).unwrap_or_default() {
        rpc::INVALID_PARAMS => Code::InvalidArgs,
        rpc::METHOD_NOT_FOUND => Code::NotFound,
        rpc::MISSING_CAPABILITY => Code::CapabilityMissing,
        _ => Code::ExternalServiceError,
    }
}

/// The answer on MCP-Lite: one result, whatever came before it.
pub(super) async fn lite(reply: Reply, exchange: &Arc<Exchange>) -> Result<Response<Body>, Error> {
    let (headers, body) = whole(reply, exchange).await?;
    let mut response = Response::new(lite_body(&body));
    response.headers_mut().insert(http_header::CONTENT_TYPE, JSON);
    for (name, value) in headers {
        response.headers_mut().append(name, value);
    }
    Ok(response)
}

/// A result as MCP-Lite has it: the object alone.
pub fn lite_body(body: &ResultBody) -> Body {
    Body::from_parts(north::result(Vec::new(), body, NorthDialect::McpLite, b""))
}

/// The one result of a call whose caller takes nothing else, and the headers that belong to it;
/// noted as how the exchange ended.
///
/// # Errors
/// Whatever else a server may answer. A question has the kind [`QUESTION`].
pub async fn whole(reply: Reply, exchange: &Exchange) -> Result<(ReplyHeaders, ResultBody), Error> {
    let end = match reply.content {
        Content::Final(end) => end,
        Content::Stream(mut events) => loop {
            match events.next().await {
                Some(Event::Notification(_) | Event::Question(_) | Event::Answered) => {}
                Some(Event::End(end)) => break end?,
                None => return Err(Error::new(Code::Internal, "the stream had no end")),
            }
        },
        Content::Nothing => return Err(Error::new(Code::Internal, "the call had no answer")),
    };
    match &end {
        Final::Result(body) if !body.shape.has_type || body.shape.complete || body.rendered => {}
        Final::Result(_) => {
            let message = "the server answered with a question, which MCP-Lite cannot carry";
            return Err(Error::new(Code::ExternalServiceError, message)
                .with_kind(QUESTION)
                .from_upstream());
        }
        Final::Error(error) => {
            let code = rpc_taxonomy(error.code);
            exchange.facts().rpc_code = Some(error.code);
            let message = match code {
                Code::InvalidArgs => "the server refused the arguments",
                Code::NotFound => "the server does not know the method",
                Code::CapabilityMissing => {
                    "the server must ask something that MCP-Lite cannot carry"
                }
                _ => "the server answered with an error",
            };
            return Err(Error::new(code, message).with_kind("rpc_error").from_upstream());
        }
    }
    note(&mut exchange.facts(), &end, NorthDialect::McpLite);
    match end {
        Final::Result(body) => Ok((reply.headers, body)),
        Final::Error(_) => Err(Error::new(Code::Internal, "the call had no result")),
    }
}

/// Writes the events of one answer.
pub(super) struct Encoder {
    exchange: Arc<Exchange>,
    id: Bytes,
    dialect: NorthDialect,
    /// Counts the request among those under way, to the stream's end.
    _active: Option<Active>,
}

struct Writing {
    events: ReplyStream,
    encoder: Encoder,
    /// Pieces of the last event that are still to be sent.
    pieces: VecDeque<Bytes>,
    over: bool,
}

/// Events as they come, comments in between, and exactly one response at the end.
fn event_stream(writing: Writing) -> Body {
    let frames = stream::unfold(writing, |mut writing| async move {
        loop {
            if let Some(piece) = writing.pieces.pop_front() {
                return Some((Ok::<_, BoxError>(Frame::data(piece)), writing));
            }
            if writing.over {
                return None;
            }
            writing.next().await;
        }
    });
    Body::stream(StreamBody::new(frames))
}

impl Writing {
    async fn next(&mut self) {
        match tokio::time::timeout(KEEP_ALIVE, self.events.next()).await {
            Err(_) => self.pieces.push_back(Bytes::from_static(b": keep-alive\n\n")),
            Ok(Some(event)) => {
                self.over = matches!(event, Event::End(_));
                self.pieces.extend(self.encoder.encode(event));
            }
            // A stream whose call was cancelled ends without a response.
            Ok(None) => self.over = true,
        }
    }
}

impl Encoder {
    pub(super) fn new(
        exchange: Arc<Exchange>,
        id: Bytes,
        dialect: NorthDialect,
        active: impl Into<Option<Active>>,
    ) -> Self {
        exchange.facts().status = Some(200);
        Self { exchange, id, dialect, _active: active.into() }
    }

    /// One event as it is written; an end is noted.
    pub(super) fn encode(&self, event: Event) -> SmallVec<[Bytes; 5]> {
        match event {
            Event::Notification(notification) => {
                let text =
                    jsonrpc::notification(&notification.method, notification.params.as_deref());
                sse::encode([Bytes::from(text)])
            }
            Event::Question(question) => sse::encode([Bytes::from(jsonrpc::question(&question))]),
            Event::Answered => SmallVec::new(),
            Event::End(Ok(end)) => {
                note(&mut self.exchange.facts(), &end, self.dialect);
                sse::encode(north::response(&self.id, &end, self.dialect))
            }
            Event::End(Err(error)) => sse::encode([self.failed(&error)]),
        }
    }

    fn failed(&self, error: &Error) -> Bytes {
        let mut facts = self.exchange.facts();
        facts.failed(error);
        fault::message(error, &mut facts, self.dialect)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::time::Instant;

    use super::*;
    use crate::{
        clock::Clock,
        model::{reply::ResultBody, trace::TraceContext},
        telemetry::Metrics,
    };

    /// The answer that a call makes whose events come after so many seconds each.
    fn answer(events: Vec<(u64, Event)>) -> Response<Body> {
        let events = stream::iter(events).then(|(seconds, event)| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            event
        });
        let exchange = Exchange::new(TraceContext::default(), Instant::now(), 0, None);
        let metrics = Arc::new(Metrics::new(1, Clock::system()));
        let content = Content::Stream(Box::pin(events));
        let reply = Reply { headers: smallvec::SmallVec::new(), content };
        let id = Bytes::from_static(b"1");
        let active = metrics.enter(Method::CallTool);
        mcp(reply, &Arc::new(exchange), &id, NorthDialect::Modern, Some(active))
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_is_kept_alive_by_comments() {
        let end = Event::End(Ok(Final::Result(ResultBody::own(Bytes::from_static(b"{}")))));
        let note = crate::model::reply::Notification { method: "n".into(), params: None };
        let response = answer(vec![(40, Event::Notification(note)), (14, end)]);
        let begun = Instant::now();
        let mut body = response.into_body();
        let mut seen = Vec::new();
        let mut event = Vec::new();
        while let Some(frame) = body.frame().await {
            event.extend_from_slice(&frame.unwrap().into_data().unwrap());
            if event.ends_with(b"\n\n") {
                let text = String::from_utf8(std::mem::take(&mut event)).unwrap();
                seen.push((begun.elapsed().as_secs(), text.starts_with(": ")));
            }
        }
        assert_eq!(seen, [(15, true), (30, true), (40, false), (54, false)]);
    }
}
