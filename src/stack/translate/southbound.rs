//! Routed → a written request, and the server's answer → Reply, in the dialect the server
//! speaks.
//!
//! It keeps the clock of a call: how long a server may say nothing, and how long a call may
//! take whatever it says. It knows neither sessions nor credentials; the layers below do.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use tokio::time::{Instant, timeout_at};
use tower::{Layer, Service};

use super::{
    super::{
        answer::{self, Media},
        parked::ParkedCalls,
        stage::{BoxFuture, Era, HeldSession, Hop, Routed, Upstream},
    },
    again::{self, Unserved},
    give_up::GiveUp,
    listening, marks,
    outgoing::{self, write},
    park,
    side::SideStreams,
    stream::{self, Events, First, Live},
};
use crate::{
    body::Body,
    dialect::{
        questions,
        south::{self, Speech},
        task,
    },
    error::{Code, Error, Trouble},
    mcp::{Capabilities, Method, Served, Version, rpc},
    model::{
        call::Client,
        caller::Caller,
        exchange::{Exchange, NorthDialect, Outcome},
        reply::{Content, Final, Reply},
    },
    telemetry::Metrics,
    upstream::{Failure, Probe},
};

/// Speaks to servers.
#[derive(Clone)]
pub struct SouthboundLayer {
    parked: Arc<ParkedCalls>,
    sides: Arc<SideStreams>,
    /// `None`: nobody counts the streams.
    pub(super) metrics: Option<Arc<Metrics>>,
}

impl SouthboundLayer {
    pub fn new(parked: Arc<ParkedCalls>, sides: Arc<SideStreams>) -> Self {
        Self { parked, sides, metrics: None }
    }

    /// Also counts the event streams that are read.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }
}

impl<S> Layer<S> for SouthboundLayer {
    type Service = Southbound<S>;

    fn layer(&self, inner: S) -> Southbound<S> {
        Southbound { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Southbound<S> {
    inner: S,
    layer: Arc<SouthboundLayer>,
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
        let layer = self.layer.clone();
        Box::pin(async move {
            let upstream = routed.upstream.clone();
            let metrics = layer.metrics.clone();
            let reply = exchange(inner, layer, routed).await?;
            Ok(match metrics {
                Some(metrics) => stream::counted(reply, &metrics, &upstream),
                None => reply,
            })
        })
    }
}

/// One request under way.
pub(super) struct Request {
    pub id: u64,
    pub upstream: Arc<Upstream>,
    pub exchange: Arc<Exchange>,
    pub caller: Option<Arc<Caller>>,
    /// How the client speaks, and what it can take beside its answer.
    pub dialect: Option<NorthDialect>,
    pub client: Client,
    pub method: Method,
    pub speech: Speech,
    /// Of the attempt in the exchange's facts.
    pub attempt: usize,
    /// How it ends says something of the server.
    pub watched: bool,
    /// The server has failed, and this is to show whether it is well again.
    pub probe: Option<Probe>,
    /// The token under which the client waits for progress.
    pub progress_token: Option<Bytes>,
    /// When nothing may come any more, whatever has come.
    pub end: Instant,
    pub timeout: std::time::Duration,
}

async fn exchange<S>(
    mut inner: S,
    layer: Arc<SouthboundLayer>,
    mut routed: Routed,
) -> Result<Reply, Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    if routed.upstream.era() == Some(Era::Legacy) {
        let brought = park::take(&mut routed.request);
        if brought.goes_on() {
            let live = Box::pin(park::resume(&layer.parked, routed, brought)).await?;
            let deadline = stream::deadline(&live.request);
            return Box::pin(go_on(&layer.parked, live, deadline)).await;
        }
    }
    let probe = again::admit(&layer, &routed)?;
    let (mut request, mut hop) = write(&routed)?;
    request.probe = probe;
    if request.method == Method::Listen {
        return Box::pin(listening::open(inner, request, hop)).await;
    }
    let (deadline, end) = (stream::deadline(&request), request.end);
    hop.tried = again::elsewhere(&routed);
    let tried = hop.tried.clone();
    match attempt(&mut inner, &layer, &routed, request, hop, deadline).await {
        Ok(reply) => Ok(reply),
        // Boxed, as is all that few calls need: what a call's future holds is moved for each.
        Err(unserved) => {
            let times = again::Times { deadline, end };
            Box::pin(again::after(inner, &layer, &routed, unserved, times, tried)).await
        }
    }
}

pub(super) async fn attempt<S>(
    inner: &mut S,
    layer: &SouthboundLayer,
    routed: &Routed,
    request: Request,
    hop: Hop,
    deadline: Instant,
) -> Result<Reply, Unserved>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let SouthboundLayer { parked, sides, .. } = layer;
    // Dropped with the call, it tells a server of the handshake era that nobody waits.
    let mut give_up = GiveUp::new(&request, &hop, inner);
    if request.method.may_ask()
        && SideStreams::concerns(&hop)
        && let Some(side) = Box::pin(sides.enter(&hop, inner)).await
    {
        if let Some(session) = side.session() {
            give_up.hold(session);
        }
        let clone = inner.clone();
        let mut ready = mem::replace(inner, clone);
        let head = Box::pin(async move { ready.call(hop).await });
        let events = Events::awaited(head, side, request.upstream.max_response_bytes);
        let live = Live { request, events, give_up };
        return Ok(Box::pin(go_on(parked, live, deadline)).await?);
    }
    let answered = timeout_at(deadline, async {
        let response = inner.call(hop).await?;
        read(&request, &mut give_up, response).await
    });
    let read = match answered.await {
        Ok(read) => read,
        Err(_) => Err(timed_out(&request)),
    };
    match read {
        Ok(Read::End(end)) => {
            let disagrees = marks::disagrees(routed, &end);
            ended(request, give_up, end).map_err(|error| Unserved { error, disagrees })
        }
        Ok(Read::Stream(first, events)) => {
            let live = Live { request, events: *events, give_up };
            Ok(settle(parked, live, first)?)
        }
        Err(error) => Err(failed(request, give_up, error).into()),
    }
}

/// The rest of a call, up to the first thing that concerns its caller.
async fn go_on(
    parked: &Arc<ParkedCalls>,
    mut live: Live,
    deadline: Instant,
) -> Result<Reply, Error> {
    let Live { request, events, give_up } = &mut live;
    let first = match timeout_at(deadline, stream::first(request, events, give_up)).await {
        Ok(first) => first,
        Err(_) => Err(timed_out(&live.request)),
    };
    match first {
        Ok(first) => settle(parked, live, first),
        Err(error) => Err(failed(live.request, live.give_up, error)),
    }
}

/// What becomes of a stream whose first is known.
fn settle(parked: &Arc<ParkedCalls>, mut live: Live, first: First) -> Result<Reply, Error> {
    match first {
        First::End(end) => ended(live.request, live.give_up, end),
        First::Asks => {
            live.request.answered();
            park::park(parked, live).map(plain)
        }
        First::Stream => {
            // However long it goes on, the server is there.
            live.request.answered();
            let content = Content::Stream(stream::relay(parked.clone(), live));
            Ok(Reply { headers: smallvec::SmallVec::new(), content })
        }
    }
}

fn ended(mut request: Request, give_up: GiveUp, end: Final) -> Result<Reply, Error> {
    give_up.disarm();
    request.close(Ok(&end));
    // Discovery learns from such an answer how the server speaks.
    let end = if request.caller.is_none() {
        end
    } else {
        answer::not_ours(end, request.upstream.name.as_str())?
    };
    finish(&request, end).map(plain)
}

pub(super) fn failed(mut request: Request, give_up: GiveUp, error: Error) -> Error {
    // A server that answered, whatever it was, waits for no cancellation.
    if error.code() != Code::Timeout {
        give_up.disarm();
    }
    let name = request.upstream.name.as_str();
    tracing::debug!(upstream.name = name, error = %error, "an attempt failed");
    request.close(Err(&error));
    error
}

fn plain(end: Final) -> Reply {
    Reply { headers: smallvec::SmallVec::new(), content: Content::Final(end) }
}

/// Puts into the middle's terms what only a revision of the server's knows, and into the
/// taxonomy's what its client's cannot be told.
pub(super) fn finish(request: &Request, end: Final) -> Result<Final, Error> {
    let Final::Error(error) = &end else { return Ok(end) };
    match i32::try_from(error.code).unwrap_or_default() {
        rpc::URL_ELICITATION_REQUIRED if matches!(request.speech, Speech::Legacy(_)) => {
            links_wanted(request, end)
        }
        // The layer of tasks declares the extension itself.
        rpc::MISSING_CAPABILITY
            if request.upstream.served().contains(Served::TASKS)
                && task::wants_extension(error) =>
        {
            Ok(end)
        }
        // Discovery reads the code itself, and a client of the same era knows it.
        rpc::MISSING_CAPABILITY => match request.dialect {
            None | Some(NorthDialect::Modern) => Ok(end),
            Some(NorthDialect::Legacy(_) | NorthDialect::McpLite) => {
                Err(cannot_be_asked(request, questions::required(error)))
            }
        },
        _ => Ok(end),
    }
}

/// A server wants links followed before it serves the call: its client is asked to, if it can be.
fn links_wanted(request: &Request, end: Final) -> Result<Final, Error> {
    let Final::Error(error) = &end else { return Ok(end) };
    let links = Capabilities::ELICITATION_URL;
    let can = request.client.capabilities.contains(links);
    match request.dialect {
        Some(NorthDialect::Modern) if can => Ok(match questions::links(error) {
            Some(asking) => Final::Result(asking),
            None => end,
        }),
        Some(NorthDialect::Modern) => {
            let message = format!("`{}` wants a link followed first", request.upstream.name);
            Ok(Final::Error(questions::missing(links, &message)))
        }
        // Its own revision has the same error.
        Some(NorthDialect::Legacy(version)) if can && version >= Version::V2025_11_25 => Ok(end),
        None => Ok(end),
        _ => {
            let required = links.to_json(Version::LATEST);
            Err(cannot_be_asked(request, Some(required.into())))
        }
    }
}

fn cannot_be_asked(request: &Request, required: Option<Bytes>) -> Error {
    let name = &request.upstream.name;
    let message = format!("`{name}` must ask something that this client cannot be asked");
    let error = Error::new(Code::CapabilityMissing, message).with_kind("rpc_error").from_upstream();
    match required {
        Some(required) => error.with_required_capabilities(required),
        None => error,
    }
}

/// What a response turned out to be, once its first bytes were read.
pub(super) enum Read {
    End(Final),
    Stream(First, Box<Events>),
}

pub(super) async fn read(
    request: &Request,
    give_up: &mut GiveUp,
    response: Response<Body>,
) -> Result<Read, Error> {
    match open(request, give_up, response).await? {
        Opened::End(end) => Ok(Read::End(end)),
        Opened::Body(body) => {
            let mut events = Box::new(Events::new(body, request.upstream.max_response_bytes));
            Ok(match stream::first(request, &mut events, give_up).await? {
                First::End(end) => Read::End(end),
                first => Read::Stream(first, events),
            })
        }
    }
}

/// What a response's head says that it is.
pub(super) enum Opened {
    End(Final),
    /// An event stream.
    Body(Body),
}

/// Looks at a response: anything but an event stream is read to its end.
pub(super) async fn open(
    request: &Request,
    give_up: &mut GiveUp,
    response: Response<Body>,
) -> Result<Opened, Error> {
    let (mut head, body) = response.into_parts();
    if let Some(session) = head.extensions.remove::<HeldSession>() {
        give_up.hold(session);
    }
    let upstream = &request.upstream;
    let name = upstream.name.as_str();
    let cap = upstream.max_response_bytes;
    if request.speech == Speech::Lite {
        if !head.status.is_success() {
            return Err(answer::provider_failure(head.status, &head.headers, body, name).await);
        }
        let text = answer::collect(body, cap, name).await?;
        let member = if request.method == Method::CallTool { "content" } else { "tools" };
        return Ok(Opened::End(Final::Result(answer::provider_result(text, name, member)?)));
    }
    if !head.status.is_success() {
        let end =
            answer::standard_failure(head.status, &head.headers, body, request.id, name).await?;
        return Ok(Opened::End(end));
    }
    match answer::media(&head.headers) {
        Media::Json => {
            let text = answer::collect(body, cap, name).await?;
            read_json(request, text)
        }
        Media::EventStream => Ok(Opened::Body(body)),
        Media::Html => Err(answer::failure(name, "answered with a web page: no MCP endpoint")),
        Media::Other => Err(answer::failure(name, "gave no JSON-RPC answer")),
    }
}

fn read_json(request: &Request, text: Bytes) -> Result<Opened, Error> {
    let name = request.upstream.name.as_str();
    match south::read_message(text.clone(), request.id) {
        Ok(south::Incoming::End(end)) => Ok(Opened::End(end)),
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
    Error::new(Code::Timeout, limit)
        .with_kind("timeout")
        // One that went on answering for as long as a call may take was not silent.
        .with_trouble((Instant::now() < request.end).then_some(Trouble::Silent))
        .with_unknown_outcome()
        .from_upstream()
}

impl Request {
    /// Notes how the attempt ended.
    pub(super) fn close(&mut self, end: Result<&Final, &Error>) {
        Self::close_at(&self.exchange, self.attempt, end);
        self.judge(end.err());
    }

    /// Notes how an attempt ended that is another exchange's already.
    pub(super) fn close_at(exchange: &Exchange, attempt: usize, end: Result<&Final, &Error>) {
        let mut facts = exchange.facts();
        let Some(attempt) = facts.attempts.get_mut(attempt) else { return };
        let ended = Instant::now();
        attempt.ended = Some(ended);
        let took = ended.saturating_duration_since(attempt.started);
        match end {
            Ok(Final::Result(body)) if body.is_error() => {
                attempt.outcome = Outcome::ToolError;
                attempt.error = Some("tool_error");
            }
            Ok(Final::Result(body)) if body.shape.asks => {
                attempt.outcome = Outcome::InputRequired;
            }
            Ok(Final::Result(_)) => attempt.outcome = Outcome::Ok,
            Ok(Final::Error(error)) => {
                attempt.outcome = Outcome::UpstreamError;
                attempt.rpc_code = Some(error.code);
            }
            Err(error) => {
                attempt.outcome = Outcome::of(error);
                attempt.error = error.kind();
                attempt.code = Some(error.code());
                if let Some(endpoint) = Failure::of(error).and_then(Failure::endpoint) {
                    attempt.server = Some((endpoint.host().clone(), endpoint.port()));
                }
            }
        }
        facts.waited += took;
    }

    /// Goes on for another exchange, in which the client brought answers: a try of its own, with
    /// the time that is left.
    pub(super) fn go_on(&mut self, routed: Routed) {
        let tool = routed.request.tool().map(|tool| tool.name().clone());
        let upstream = &self.upstream;
        let attempt = outgoing::begin(&routed.exchange, upstream, self.method, tool, self.speech);
        self.attempt = attempt.number;
        self.exchange = routed.exchange;
        self.dialect = routed.dialect;
        self.client = routed.client;
        self.progress_token = routed.meta.progress_token;
        self.timeout = routed.request.timeout().unwrap_or(self.timeout);
    }
}
