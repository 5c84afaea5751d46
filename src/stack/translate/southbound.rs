//! Routed → a written request, and the server's answer → Reply, in the dialect the server
//! speaks.
//!
//! It keeps the clock of a call: how long a server may say nothing, and how long a call may
//! take whatever it says. It knows neither sessions nor credentials; the layers below do.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use tokio::time::{Instant, timeout_at};
use tower::{Layer, Service};

use super::{
    super::{
        answer::{self, Media},
        stage::{BoxFuture, Era, Hop, Routed, SouthRequest, Upstream},
    },
    give_up::GiveUp,
    stream,
};
use crate::{
    body::Body,
    dialect::{
        header_value,
        south::{self, Outbound, Speech},
    },
    error::{Code, Error},
    mcp::{Method, Version, header, meta},
    model::{
        call::{Meta, RawMembers},
        exchange::{Attempt, NorthDialect, Outcome},
        ids,
        reply::{Content, Final, Reply},
        trace::TraceParent,
    },
    registry::{MarkedArguments, Tool},
};

/// Speaks to servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SouthboundLayer;

impl<S> Layer<S> for SouthboundLayer {
    type Service = Southbound<S>;

    fn layer(&self, inner: S) -> Southbound<S> {
        Southbound { inner }
    }
}

#[derive(Debug, Clone)]
pub struct Southbound<S> {
    inner: S,
}

impl<S> Service<Routed> for Southbound<S>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Error;
    type Future = BoxFuture<Reply>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, routed: Routed) -> BoxFuture<Reply> {
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        Box::pin(exchange(inner, routed))
    }
}

/// Ids of requests to servers: unique within the process, so that a server that takes
/// progress tokens for its own never meets one twice.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// One request under way.
pub(super) struct Request {
    pub id: u64,
    pub upstream: Arc<Upstream>,
    pub exchange: Arc<crate::model::exchange::Exchange>,
    pub method: Method,
    pub speech: Speech,
    /// Of the attempt in the exchange's facts.
    pub attempt: usize,
    /// The token under which the client waits for progress.
    pub progress_token: Option<Bytes>,
    /// When nothing may come any more, whatever has come.
    pub end: Instant,
    pub timeout: std::time::Duration,
}

async fn exchange<S>(mut inner: S, routed: Routed) -> Result<Reply, Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let (request, hop) = write(routed)?;
    // Dropped with the call, it tells a server of the handshake era that nobody waits.
    let give_up = GiveUp::new(&request, &hop, &inner);
    let deadline = (Instant::now() + request.timeout).min(request.end);
    let name = request.upstream.name.as_str();
    let answered = timeout_at(deadline, async {
        let response = inner.call(hop).await?;
        read(&request, &give_up, response).await
    });
    let read = match answered.await {
        Ok(read) => read,
        Err(_) => Err(timed_out(&request)),
    };
    match read {
        Ok(Read::End(end)) => {
            give_up.disarm();
            request.close(Ok(&end));
            Ok(Reply { headers: smallvec::SmallVec::new(), content: Content::Final(end) })
        }
        Ok(Read::Stream(events)) => {
            let content = Content::Stream(stream::relay(request, events, give_up));
            Ok(Reply { headers: smallvec::SmallVec::new(), content })
        }
        Err(error) => {
            // A server that answered, whatever it was, waits for no cancellation.
            if error.code() != Code::Timeout {
                give_up.disarm();
            }
            tracing::debug!(upstream.name = name, error = %error, "an attempt failed");
            request.close(Err(&error));
            Err(error)
        }
    }
}

/// What a response turned out to be, once its first bytes were read.
pub(super) enum Read {
    End(Final),
    Stream(stream::Events),
}

async fn read(
    request: &Request,
    give_up: &GiveUp,
    response: Response<Body>,
) -> Result<Read, Error> {
    let (head, body) = response.into_parts();
    let upstream = &request.upstream;
    let name = upstream.name.as_str();
    let cap = upstream.max_response_bytes;
    if request.speech == Speech::Lite {
        if !head.status.is_success() {
            return Err(answer::provider_failure(head.status, &head.headers, body, name).await);
        }
        let text = answer::collect(body, cap, name).await?;
        let member = if request.method == Method::CallTool { "content" } else { "tools" };
        return Ok(Read::End(Final::Result(answer::provider_result(text, name, member)?)));
    }
    if !head.status.is_success() {
        let end =
            answer::standard_failure(head.status, &head.headers, body, request.id, name).await?;
        return Ok(Read::End(end));
    }
    match answer::media(&head.headers) {
        Media::Json => {
            let text = answer::collect(body, cap, name).await?;
            read_json(request, text)
        }
        Media::EventStream => stream::first(request, stream::Events::new(body, cap), give_up).await,
        Media::Html => Err(answer::failure(name, "answered with a web page: no MCP endpoint")),
        Media::Other => Err(answer::failure(name, "gave no JSON-RPC answer")),
    }
}

fn read_json(request: &Request, text: Bytes) -> Result<Read, Error> {
    let name = request.upstream.name.as_str();
    match south::read_message(text.clone(), request.id) {
        Ok(south::Incoming::End(end)) => Ok(Read::End(end)),
        Ok(_) => Err(answer::failure(name, "answered with something that is no response")),
        Err(error) if !answer::is_json_rpc(text) => {
            let what = "answered with something that is no JSON-RPC: if it is a REST endpoint, \
                        set `dialect: mcp-lite`";
            Err(answer::failure(name, what).with_cause(error))
        }
        Err(error) => {
            let what = "answered with something that is no response to the request";
            Err(answer::failure(name, what).with_cause(error))
        }
    }
}

pub(super) fn timed_out(request: &Request) -> Error {
    let upstream = &request.upstream.name;
    let limit = if Instant::now() >= request.end {
        format!("`{upstream}` did not finish within the longest time a call may take")
    } else {
        format!("`{upstream}` did not answer within {} ms", request.timeout.as_millis())
    };
    Error::new(Code::Timeout, limit).with_kind("timeout").with_unknown_outcome().from_upstream()
}

impl Request {
    /// Notes how the attempt ended.
    pub(super) fn close(&self, end: Result<&Final, &Error>) {
        let mut facts = self.exchange.facts();
        let Some(attempt) = facts.attempts.get_mut(self.attempt) else { return };
        let ended = Instant::now();
        attempt.ended = Some(ended);
        let took = ended.saturating_duration_since(attempt.started);
        match end {
            Ok(Final::Result(body)) if body.is_error() => {
                attempt.outcome = Outcome::ToolError;
                attempt.error = Some("tool_error");
            }
            Ok(Final::Result(_)) => attempt.outcome = Outcome::Ok,
            Ok(Final::Error(error)) => {
                attempt.outcome = Outcome::UpstreamError;
                attempt.rpc_code = Some(error.code);
            }
            Err(error) => {
                attempt.outcome = Outcome::of(error);
                attempt.error = error.kind();
            }
        }
        facts.waited += took;
    }
}

// === Writing ===

fn write(routed: Routed) -> Result<(Request, Hop), Error> {
    let Routed {
        exchange, caller, upstream, request, dialect, meta, idempotency_key, headers, ..
    } = routed;
    let speech = speech(&upstream, &request)?;
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let (method, tool, timeout, max_time) = match &request {
        SouthRequest::CallTool { tool, timeout, max_time, .. } => {
            (Method::CallTool, Some(tool.clone()), *timeout, *max_time)
        }
        SouthRequest::List { family, .. } => {
            (family.list_method(), None, upstream.timeout, upstream.max_time)
        }
        SouthRequest::Ask { ask, timeout, max_time } => (ask.method, None, *timeout, *max_time),
        SouthRequest::Probe => (Method::Discover, None, upstream.timeout, upstream.max_time),
    };
    let started = Instant::now();
    let span_id = ids::span_id();
    let (parent, tracestate, attempt) = {
        let mut facts = exchange.facts();
        let parent =
            TraceParent { trace_id: facts.trace.trace_id, span_id, sampled: facts.trace.sampled };
        facts.attempts.push(Attempt {
            upstream: upstream.name.shared(),
            method,
            tool: tool.as_ref().map(|tool| tool.name().clone()),
            version: match speech {
                Speech::Modern(version) | Speech::Legacy(version) => Some(version),
                Speech::Lite => None,
            },
            span_id,
            started,
            ended: None,
            server: None,
            http_version: None,
            is_pipe: upstream.reach.is_pipe(),
            outcome: Outcome::Cancelled,
            error: None,
            rpc_code: None,
            number: 1,
        });
        (parent, facts.trace.tracestate.clone(), facts.attempts.len() - 1)
    };
    let traceparent = parent.render();
    let empty = RawMembers::new();
    let (arguments, others, cursor) = match &request {
        SouthRequest::CallTool { arguments, others, .. } => (arguments.as_ref(), others, None),
        SouthRequest::List { cursor, .. } => (None, &empty, cursor.as_deref()),
        SouthRequest::Ask { ask, .. } => (None, &ask.params, None),
        SouthRequest::Probe => (None, &empty, None),
    };
    let user = caller
        .as_ref()
        .filter(|_| speech == Speech::Lite && upstream.inject_user && method == Method::CallTool);
    let outbound = Outbound {
        speech,
        id,
        method,
        tool: tool.as_ref().map(|tool| &**tool.name()),
        arguments,
        others,
        cursor,
        meta: &meta,
        capabilities: (dialect == Some(NorthDialect::Modern))
            .then(|| capabilities(&meta))
            .flatten(),
        traceparent: &traceparent,
        tracestate: tracestate.as_deref(),
        user,
    };
    let body = outbound.body();
    if body.len() > upstream.max_request_bytes {
        return Err(Error::new(
            Code::PayloadTooLarge,
            format!(
                "the request is larger than the {} bytes that `{}` takes",
                upstream.max_request_bytes, upstream.name
            ),
        ));
    }
    let mut own = outbound.headers();
    if let (Speech::Modern(_), Some(tool)) = (speech, &tool)
        && !tool.definition.params.is_empty()
    {
        repeat_arguments(&mut own, tool, arguments);
    }
    if let Ok(value) = http::HeaderValue::from_str(&traceparent) {
        own.insert(header::TRACEPARENT, value);
    }
    if let Some(value) = tracestate.and_then(|state| http::HeaderValue::try_from(&*state).ok()) {
        own.insert(header::TRACESTATE, value);
    }
    if speech == Speech::Lite
        && let Some(key) = &idempotency_key
        && let Ok(value) = http::HeaderValue::from_str(key)
    {
        own.insert(header::IDEMPOTENCY_KEY, value);
    }
    let hop = Hop {
        exchange: exchange.clone(),
        caller,
        upstream: upstream.clone(),
        method: http::Method::POST,
        path: match (speech, method) {
            (Speech::Lite, Method::CallTool) => "/tools/call",
            (Speech::Lite, _) => "/tools/list",
            _ => "",
        },
        headers: own,
        body,
        session: matches!(speech, Speech::Legacy(_)),
        client_headers: Arc::new(headers),
    };
    let request = Request {
        id,
        upstream,
        exchange,
        method,
        speech,
        attempt,
        progress_token: meta.progress_token.clone(),
        end: started + max_time,
        timeout,
    };
    Ok((request, hop))
}

/// Repeats marked arguments in headers, from the body that is sent; a null or absent one has
/// none.
fn repeat_arguments(headers: &mut http::HeaderMap, tool: &Tool, arguments: Option<&Bytes>) {
    let marked = MarkedArguments::read(arguments);
    for param in &tool.definition.params {
        let Some(text) = marked.text(param) else { continue };
        // An encoded value is visible ASCII.
        if let Ok(value) = http::HeaderValue::from_str(&header_value::encode(&text)) {
            headers.insert(param.header.clone(), value);
        }
    }
}

fn speech(upstream: &Upstream, request: &SouthRequest) -> Result<Speech, Error> {
    if matches!(request, SouthRequest::Probe) {
        return Ok(Speech::Modern(Version::LATEST));
    }
    match upstream.era() {
        Some(Era::Modern(version)) => Ok(Speech::Modern(version)),
        // The session knows which version it agreed on; this one is what is asked for.
        Some(Era::Legacy) => Ok(Speech::Legacy(upstream.pinned.unwrap_or(Version::LATEST_LEGACY))),
        Some(Era::Lite) => Ok(Speech::Lite),
        None => Err(Error::new(
            Code::ExternalServiceError,
            format!("how `{}` speaks is being found out: try again", upstream.name),
        )
        .with_kind("era_unknown")
        .with_advice(true, crate::error::Next::Retry)
        .from_upstream()),
    }
}

/// The capabilities that a stateless client declared on this request.
fn capabilities(meta: &Meta) -> Option<&[u8]> {
    let member = meta
        .members
        .iter()
        .find(|member| member.key.as_ref() == meta::CLIENT_CAPABILITIES.as_bytes())?;
    Some(&member.value)
}
