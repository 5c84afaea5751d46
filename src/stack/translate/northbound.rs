//! Body → Call, and Reply → body, in the dialect the caller spoke.
//!
//! Which dialect that is, which session a request belongs to, and whether a caller that leaves
//! ends its call, are settled here. Below, every call looks alike.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request as HttpRequest, Response, request::Parts};
use http_body::Body as HttpBody;
use tower::{Layer, Service};

use super::{
    super::{
        asked::{Answer, Asked},
        client_sessions::ClientStates,
        stage::BoxFuture,
    },
    batch,
    hold::{held, hold_of},
    http_form::{accepted, check_content_type, is_dry_run, not_allowed, one_header},
    inflight::{Cancels, InFlight, Keep, Ran},
    legacy::LegacySession,
    listen,
    north_reply::{self, Encoder},
    resume::Streams,
};
use crate::{
    body::{self, Body, BoxError},
    clock::Clock,
    dialect::{
        jsonrpc::{self, Message},
        mcp_lite, streamable_http, streamable_http_session,
    },
    error::{Code, Error},
    identity::session::{Owner, Sessions},
    json::{self, Doc},
    mcp::{Method, Version, header, rpc},
    model::{
        call::{Call, Client, Meta, Request, Route, Surface},
        caller::Caller,
        exchange::{Exchange, NorthDialect, Outcome},
        reply::Reply,
    },
    telemetry::Telemetry,
};

/// What the northbound side is configured with.
#[derive(Clone)]
pub struct NorthboundConfig {
    /// The largest request body.
    pub max_body: usize,
    /// From the first byte of a body to its last.
    pub body_timeout: Duration,
    /// How deep a body's JSON may nest.
    pub max_depth: usize,
    /// Requests of the handshake era need a session.
    pub sessions_required: bool,
    /// How long the head of an answer is held for the first thing that comes.
    pub hold: Duration,
    /// How many messages a batch may hold.
    pub max_batch: usize,
    /// How many of them are carried out at once.
    pub batch_concurrency: usize,
}

/// Reads requests, writes answers.
#[derive(Clone)]
pub struct NorthboundLayer {
    pub(super) config: NorthboundConfig,
    pub(super) known: Known,
    pub(super) clock: Clock,
    cancels: Arc<Cancels>,
    pub(super) asked: Arc<Asked>,
    pub(super) telemetry: Arc<Telemetry>,
}

/// What is known of clients' sessions.
#[derive(Clone)]
pub struct Known {
    pub sessions: Arc<Sessions>,
    /// What was set in them.
    pub states: Arc<ClientStates>,
    /// Answers that can be taken up again.
    pub streams: Arc<Streams>,
}

impl NorthboundLayer {
    pub fn new(
        config: NorthboundConfig,
        known: Known,
        clock: Clock,
        cancels: Arc<Cancels>,
        asked: Arc<Asked>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self { config, known, clock, cancels, asked, telemetry }
    }
}

impl<S> Layer<S> for NorthboundLayer {
    type Service = Northbound<S>;

    fn layer(&self, inner: S) -> Northbound<S> {
        Northbound { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Northbound<S> {
    inner: S,
    layer: Arc<NorthboundLayer>,
}

impl<S, B> Service<HttpRequest<B>> for Northbound<S>
where
    S: Service<Call, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError> + Send,
{
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<Response<Body>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: HttpRequest<B>) -> BoxFuture<Response<Body>> {
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let missing = || Error::new(Code::Internal, "the request lost its caller on the way");
            let route = parts.extensions.remove::<Route>().ok_or_else(missing)?;
            let caller = parts.extensions.remove::<Caller>().ok_or_else(missing)?;
            let exchange = parts.extensions.remove::<Arc<Exchange>>().ok_or_else(missing)?;
            let caller = Arc::new(caller);
            let front = Front { layer, parts, caller, exchange, alone: true };
            match route {
                Route::Mcp(surface) => front.mcp(inner, surface, body).await,
                Route::Lite(surface, method) => front.lite(inner, surface, method, body).await,
                Route::V1 => Err(Error::new(Code::Internal, "/v1 is served further up")),
            }
        })
    }
}

/// One request, its body still unread.
pub(super) struct Front {
    pub layer: Arc<NorthboundLayer>,
    pub parts: Parts,
    pub caller: Arc<Caller>,
    pub exchange: Arc<Exchange>,
    /// Its answer is an HTTP answer of its own, not a part of a batch's.
    pub alone: bool,
}

impl Front {
    async fn mcp<S, B>(self, inner: S, surface: Surface, body: B) -> Result<Response<Body>, Error>
    where
        S: Service<Call, Response = Reply, Error = Error> + Clone + Send + 'static,
        S::Future: Send,
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError> + Send,
    {
        match self.parts.method {
            http::Method::POST => {}
            http::Method::DELETE => return self.end_session(),
            http::Method::GET => {
                return Box::pin(self.stream_of_session(inner, surface)).await;
            }
            _ => return Err(not_allowed("GET, POST, DELETE")),
        }
        check_content_type(&self.parts.headers)?;
        let doc = self.read(body).await?;
        if doc.root().kind() == json::Kind::Array {
            return Box::pin(batch::run(self, inner, surface, &doc)).await;
        }
        self.message(inner, surface, &doc).await
    }

    /// One message, whether it came alone or in a batch.
    pub(super) async fn message<S>(
        mut self,
        inner: S,
        surface: Surface,
        doc: &Doc,
    ) -> Result<Response<Body>, Error>
    where
        S: Service<Call, Response = Reply, Error = Error> + Send + 'static,
        S::Future: Send,
    {
        match jsonrpc::read(doc)? {
            Message::Request { id, method, params } => {
                let kind = Method::parse(&method);
                {
                    let mut facts = self.exchange.facts();
                    facts.rpc_id = Some(id.clone());
                    facts.method = Some(kind);
                    if kind == Method::Other {
                        facts.method_original = Some(method.chars().take(64).collect());
                    }
                }
                if streamable_http::is_modern(&self.parts.headers, params) {
                    self.exchange.facts().dialect = Some(NorthDialect::Modern);
                    let (request, meta) =
                        streamable_http::read_request(&self.parts.headers, &method, params)?;
                    self.stateless(inner, surface, id, request, meta).await
                } else {
                    let session = self.legacy(kind)?;
                    let (request, meta) = streamable_http_session::read_request(&method, params)?;
                    // It has a task of its own anyway; what a call's future holds is moved for each.
                    Box::pin(self.detached(inner, surface, id, request, meta, session)).await
                }
            }
            Message::Notification { method, params } => {
                self.exchange.facts().method = Some(Method::parse(&method));
                self.notified(Method::parse(&method), params)
            }
            Message::Result { id, result } => {
                self.answered(Some(&id), Answer::Result(result.bytes()))
            }
            Message::Error { id, error } => self.answered(id.as_ref(), Answer::Error(error)),
        }
    }

    /// A response of a client, which answers a question if one is open under its id. Handshake
    /// revisions take any, the stateless one knows none.
    fn answered(mut self, id: Option<&Bytes>, answer: Answer) -> Result<Response<Body>, Error> {
        if !self.parts.headers.contains_key(header::SESSION_ID) {
            return Err(Error::http(Code::InvalidArgs, 400, "a client sends no responses here")
                .with_rpc_code(rpc::INVALID_REQUEST));
        }
        let session = self.legacy(Method::Other)?;
        let employee = self.caller.principal.employee.as_ref();
        let id = id.and_then(streamable_http_session::answered_id);
        let open = session
            .nonce
            .zip(id)
            .is_some_and(|(session, id)| self.layer.asked.answer(session, employee, &id, answer));
        if !open {
            tracing::debug!("a client answered a question that is not open");
        }
        self.exchange.facts().outcome = Some(Outcome::Ok);
        Ok(accepted())
    }

    /// A request of 2026-07-28: the caller that leaves ends its call.
    async fn stateless<S>(
        self,
        mut inner: S,
        surface: Surface,
        id: Bytes,
        request: Request,
        meta: Meta,
    ) -> Result<Response<Body>, Error>
    where
        S: Service<Call, Response = Reply, Error = Error> + Send + 'static,
        S::Future: Send,
    {
        let exchange = self.exchange.clone();
        let active = self.layer.telemetry.metrics().enter(request.method());
        let client = meta.client();
        let listens = matches!(request, Request::Listen(_));
        let hold = hold_of(&request, &self.parts.headers, &self.layer.config);
        let telemetry = listens.then(|| self.layer.telemetry.clone());
        let call = self.call(surface, NorthDialect::Modern, client, request, meta)?;
        let call = Box::pin(inner.call(call));
        // Nothing can cancel it but its client's leaving, and then nobody is here.
        let reply = match hold {
            Some(hold) => held(call, hold).await?,
            None => call.await?,
        };
        let reply = match telemetry {
            Some(telemetry) => {
                listen::tagged(reply, &id, listen::Spans { telemetry, exchange: exchange.clone() })
            }
            None => reply,
        };
        Ok(north_reply::mcp(reply, &exchange, &id, NorthDialect::Modern, Some(active)))
    }

    /// A request of the handshake era: a connection that breaks ends nothing, only
    /// `notifications/cancelled` does. So the call runs in a task of its own.
    async fn detached<S>(
        self,
        mut inner: S,
        surface: Surface,
        id: Bytes,
        request: Request,
        meta: Meta,
        session: LegacySession,
    ) -> Result<Response<Body>, Error>
    where
        S: Service<Call, Response = Reply, Error = Error> + Send + 'static,
        S::Future: Send,
    {
        let exchange = self.exchange.clone();
        let opens = match &request {
            Request::Initialize { version, capabilities } => Some((*version, *capabilities)),
            _ => None,
        };
        let version = opens.map_or(session.version, |(version, _)| version);
        let dialect = NorthDialect::Legacy(version);
        exchange.facts().dialect = Some(dialect);
        let layer = self.layer.clone();
        let caller = self.caller.clone();
        let is_call = matches!(request, Request::CallTool(_) | Request::Ask(_));
        let active = layer.telemetry.metrics().enter(request.method());
        let client = self.client(&session, version, &request)?;
        let alone = self.alone;
        let hold = hold_of(&request, &self.parts.headers, &self.layer.config);
        let call = self.call(surface, dialect, client, request, meta)?;
        if !is_call {
            let reply = inner.call(call).await?;
            let mut response = north_reply::mcp(reply, &exchange, &id, dialect, Some(active));
            if let Some((version, capabilities)) = opens {
                let (owner, now) = (Owner::of(&caller), layer.clock.now_ms());
                let token = layer.known.sessions.start(owner, version, capabilities, now);
                let token = token.map_err(|cause| {
                    Error::new(Code::Internal, "no session could be opened").with_cause(cause)
                })?;
                if let Ok(value) = HeaderValue::from_str(&token) {
                    response.headers_mut().insert(header::SESSION_ID, value);
                }
            }
            return Ok(response);
        }
        let flight = session.nonce.map(|nonce| layer.cancels.enter(nonce, id.clone()));
        let flight = flight.unwrap_or_else(InFlight::alone);
        let streams = &layer.known.streams;
        let (keep, active) = match session.nonce.filter(|_| alone && streams.is_on()) {
            Some(session) => {
                let (streams, exchange, id) = (streams.clone(), exchange.clone(), id.clone());
                let keep = move || Keep {
                    kept: streams.open(session, caller.principal.employee.clone()),
                    encoder: Encoder::new(exchange, id, dialect, active),
                    primed: version == Version::V2025_11_25,
                };
                (Some(keep), None)
            }
            None => (None, Some(active)),
        };
        match flight.run(inner.call(call), hold, keep).await? {
            Some(Ran::Reply(reply)) => Ok(north_reply::mcp(reply, &exchange, &id, dialect, active)),
            Some(Ran::Kept(headers, body)) => {
                let mut response = north_reply::events_response(body);
                response.headers_mut().extend(headers);
                Ok(response)
            }
            None => {
                // Cancelled: the request gets no answer, and nobody waits for one.
                exchange.facts().outcome = Some(Outcome::Cancelled);
                Ok(accepted())
            }
        }
    }

    fn notified(
        mut self,
        method: Method,
        params: Option<json::Value<'_>>,
    ) -> Result<Response<Body>, Error> {
        if streamable_http::is_modern(&self.parts.headers, params) {
            // No notification of a client means anything over HTTP in this revision.
            self.exchange.facts().dialect = Some(NorthDialect::Modern);
            return Ok(accepted());
        }
        let session = self.legacy(method)?;
        if let (Method::Cancelled, Some(nonce), Some(id)) =
            (method, session.nonce, streamable_http_session::cancelled_id(params))
        {
            self.layer.cancels.cancel(nonce, id);
        }
        self.exchange.facts().outcome = Some(Outcome::Ok);
        Ok(accepted())
    }

    async fn lite<S, B>(
        self,
        mut inner: S,
        surface: Surface,
        method: Method,
        body: B,
    ) -> Result<Response<Body>, Error>
    where
        S: Service<Call, Response = Reply, Error = Error> + Send + 'static,
        S::Future: Send,
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError> + Send,
    {
        {
            let mut facts = self.exchange.facts();
            facts.dialect = Some(NorthDialect::McpLite);
            facts.method = Some(method);
        }
        if self.parts.method != http::Method::POST {
            return Err(not_allowed("POST"));
        }
        let bytes = self.bytes(body).await?;
        let empty = bytes.trim_ascii().is_empty() && method == Method::ListTools;
        let doc = if empty {
            None
        } else {
            check_content_type(&self.parts.headers)?;
            Some(self.parse(bytes)?)
        };
        let (request, meta) = mcp_lite::read_request(method, doc.as_ref())?;
        let exchange = self.exchange.clone();
        let _active = self.layer.telemetry.metrics().enter(method);
        let call = self.call(surface, NorthDialect::McpLite, Client::default(), request, meta)?;
        let reply = inner.call(call).await?;
        north_reply::lite(reply, &exchange).await
    }

    async fn read<B>(&self, body: B) -> Result<Doc, Error>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError> + Send,
    {
        let bytes = self.bytes(body).await?;
        self.parse(bytes)
    }

    async fn bytes<B>(&self, body: B) -> Result<Bytes, Error>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError> + Send,
    {
        let config = &self.layer.config;
        let bytes = body::read_body(body, config.max_body, config.body_timeout).await?;
        self.exchange.facts().bytes_in = bytes.len() as u64;
        Ok(bytes)
    }

    pub(super) fn parse(&self, bytes: Bytes) -> Result<Doc, Error> {
        let limits = json::Limits {
            depth: self.layer.config.max_depth,
            duplicates: json::Duplicates::Refuse,
            // The message, its params, their `_meta`.
            outline: 3,
        };
        Doc::parse(bytes, &limits).map_err(|fault| jsonrpc::unreadable(&fault))
    }

    pub(super) fn call(
        self,
        surface: Surface,
        dialect: NorthDialect,
        client: Client,
        request: Request,
        mut meta: Meta,
    ) -> Result<Call, Error> {
        meta.dry_run |= is_dry_run(&self.parts.headers)?;
        if meta.traceparent.is_some() {
            let mut facts = self.exchange.facts();
            let (parent, state) = (meta.traceparent.as_deref(), meta.tracestate.as_deref());
            self.layer.telemetry.adopt_meta(&mut facts.trace, parent, state);
        }
        let idempotency_key = one_header(&self.parts.headers, &header::IDEMPOTENCY_KEY)?;
        Ok(Call {
            exchange: self.exchange,
            caller: self.caller,
            dialect,
            surface,
            request,
            client,
            meta,
            idempotency_key: idempotency_key.map(Into::into),
            headers: self.parts.headers,
        })
    }
}
