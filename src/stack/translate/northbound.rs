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
use http::{HeaderValue, Request as HttpRequest, Response, StatusCode, request::Parts};
use http_body::Body as HttpBody;
use tower::{Layer, Service};

use super::{
    super::stage::BoxFuture,
    batch,
    hold::{held, hold_of},
    http_form::{accepted, check_content_type, not_allowed, one_header},
    inflight::{Cancels, InFlight},
    north_reply,
};
use crate::{
    body::{self, Body, BoxError},
    clock::Clock,
    dialect::{
        jsonrpc::{self, Message},
        mcp_lite, streamable_http, streamable_http_session,
    },
    error::{Code, Error},
    identity::session::{Owner, Session, Sessions},
    json::{self, Doc},
    mcp::{Capabilities, Method, Version, header, rpc},
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
    sessions: Arc<Sessions>,
    pub(super) clock: Clock,
    cancels: Arc<Cancels>,
    telemetry: Arc<Telemetry>,
}

impl NorthboundLayer {
    pub fn new(
        config: NorthboundConfig,
        sessions: Arc<Sessions>,
        clock: Clock,
        cancels: Arc<Cancels>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self { config, sessions, clock, cancels, telemetry }
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
            let front = Front { layer, parts, caller, exchange };
            match route {
                Route::Mcp(surface) => front.mcp(inner, surface, body).await,
                Route::Lite(surface, method) => front.lite(inner, surface, method, body).await,
            }
        })
    }
}

/// One request, its body still unread.
pub(super) struct Front {
    pub layer: Arc<NorthboundLayer>,
    pub parts: Parts,
    pub caller: Caller,
    pub exchange: Arc<Exchange>,
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
            // No stream is offered outside a request; a session must still be a good one.
            http::Method::GET => {
                self.session()?;
                return Err(not_allowed("POST, DELETE"));
            }
            _ => return Err(not_allowed("POST, DELETE")),
        }
        check_content_type(&self.parts.headers)?;
        let doc = self.read(body).await?;
        if doc.root().kind() == json::Kind::Array {
            return batch::run(self, inner, surface, &doc).await;
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
                    self.detached(inner, surface, id, request, meta, session).await
                }
            }
            Message::Notification { method, params } => {
                self.exchange.facts().method = Some(Method::parse(&method));
                self.notified(Method::parse(&method), params)
            }
            // Nothing is ever asked of a client, so a response answers nothing; the handshake
            // revisions take any, the stateless one knows none.
            Message::Result { .. } | Message::Error { .. } => {
                if self.parts.headers.contains_key(header::SESSION_ID) {
                    self.legacy(Method::Other)?;
                    return Ok(accepted());
                }
                Err(Error::http(Code::InvalidArgs, 400, "a client sends no responses here")
                    .with_rpc_code(rpc::INVALID_REQUEST))
            }
        }
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
        let hold = hold_of(&request, &self.parts.headers, &self.layer.config);
        let call = self.call(surface, NorthDialect::Modern, client, request, meta)?;
        let call = inner.call(call);
        let reply = match hold {
            Some(_) => held(Box::pin(async { call.await.map(Some) }), hold).await?,
            None => Some(call.await?),
        };
        // Nothing can cancel it but its client's leaving, and then nobody is here.
        let Some(reply) = reply else { return Ok(accepted()) };
        Ok(north_reply::mcp(reply, &exchange, &id, NorthDialect::Modern, active))
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
        let is_call = matches!(request, Request::CallTool(_));
        let active = layer.telemetry.metrics().enter(request.method());
        let client =
            Client { capabilities: session.capabilities, log_level: None, session: session.nonce };
        let hold = hold_of(&request, &self.parts.headers, &self.layer.config);
        let call = self.call(surface, dialect, client, request, meta)?;
        if !is_call {
            let reply = inner.call(call).await?;
            let mut response = north_reply::mcp(reply, &exchange, &id, dialect, active);
            if let Some((version, capabilities)) = opens {
                let (owner, now) = (Owner::of(&caller), layer.clock.now_ms());
                let token = layer.sessions.start(owner, version, capabilities, now);
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
        let Some(reply) = held(flight.run(inner.call(call)), hold).await? else {
            // Cancelled: the request gets no answer, and nobody waits for one.
            exchange.facts().outcome = Some(Outcome::Cancelled);
            return Ok(accepted());
        };
        Ok(north_reply::mcp(reply, &exchange, &id, dialect, active))
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

    fn call(
        self,
        surface: Surface,
        dialect: NorthDialect,
        client: Client,
        request: Request,
        meta: Meta,
    ) -> Result<Call, Error> {
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

    // === Sessions of the handshake era ===

    /// The session that a request names, if it names one.
    fn session(&self) -> Result<Option<Session>, Error> {
        let Some(value) = self.parts.headers.get(header::SESSION_ID) else { return Ok(None) };
        let opened = value.to_str().ok().and_then(|token| {
            let now = self.layer.clock.now_ms();
            self.layer.sessions.open(token, Owner::of(&self.caller), now).ok()
        });
        // Expired, ended, somebody else's or invented: all the same to whoever asks.
        opened.map(Some).ok_or_else(|| {
            Error::http(Code::NotFound, 404, "the session is not known: initialize a new one")
                .with_rpc_code(rpc::INVALID_REQUEST)
        })
    }

    pub(super) fn legacy(&mut self, method: Method) -> Result<LegacySession, Error> {
        let named = streamable_http_session::version_of(&self.parts.headers)?;
        let assumed = named.unwrap_or(Version::ASSUMED);
        self.exchange.facts().dialect = Some(NorthDialect::Legacy(assumed));
        if method == Method::Initialize {
            return Ok(LegacySession::none(assumed));
        }
        match self.session()? {
            Some(session) => {
                let mut facts = self.exchange.facts();
                facts.dialect = Some(NorthDialect::Legacy(session.version));
                facts.session_hash = Some(session.hash());
                Ok(LegacySession {
                    version: session.version,
                    capabilities: session.capabilities,
                    nonce: Some(session.hash()),
                })
            }
            None if self.layer.config.sessions_required => {
                Err(Error::http(Code::InvalidArgs, 400, "the header Mcp-Session-Id is missing")
                    .with_rpc_code(rpc::INVALID_REQUEST))
            }
            None => Ok(LegacySession::none(assumed)),
        }
    }

    fn end_session(self) -> Result<Response<Body>, Error> {
        match self.session()? {
            Some(session) => {
                let ended = self.layer.sessions.end(&session, self.layer.clock.now_ms());
                ended.map_err(|cause| {
                    Error::http(Code::RateLimited, 503, cause.to_string())
                        .with_retry_after(Duration::from_secs(60))
                })?;
                self.exchange.facts().outcome = Some(Outcome::Ok);
                let mut response = Response::new(Body::Empty);
                *response.status_mut() = StatusCode::NO_CONTENT;
                Ok(response)
            }
            None => Err(not_allowed("POST")),
        }
    }
}

/// What is known of the session of a request of the handshake era.
pub(super) struct LegacySession {
    pub version: Version,
    capabilities: Capabilities,
    nonce: Option<[u8; 8]>,
}

impl LegacySession {
    /// A request outside any session: nothing can be asked of its client.
    fn none(version: Version) -> Self {
        Self { version, capabilities: Capabilities::NONE, nonce: None }
    }
}
