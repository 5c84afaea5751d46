//! Sessions of the handshake era, as requests name them: what they stand in, the stream that
//! belongs to one, and its end.
//!
//! Whose session it is, its id says; what was set in it, `client_sessions` knows.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header as http_header};
use tower::Service;

use super::{
    http_form::{not_allowed, one_header, sent_twice},
    listen,
    north_reply::{self, events_response},
    northbound::Front,
};
use crate::{
    body::Body,
    dialect::{streamable_http, streamable_http_session},
    error::{Code, Error},
    identity::session::{Owner, Session},
    mcp::{Capabilities, LogLevel, Method, Version, header, rpc},
    model::{
        call::{Call, Client, Meta, Notices, Request, Surface},
        exchange::{NorthDialect, Outcome},
        reply::Reply,
    },
    telemetry::EndedSession,
};

/// What is known of the session of a request of the handshake era.
pub(super) struct LegacySession {
    pub version: Version,
    pub capabilities: Capabilities,
    pub nonce: Option<[u8; 8]>,
    pub expires_ms: u64,
}

impl LegacySession {
    /// A request outside any session: nothing can be asked of its client.
    fn none(version: Version) -> Self {
        Self { version, capabilities: Capabilities::NONE, nonce: None, expires_ms: 0 }
    }
}

impl Front {
    /// The session that a request names, if it names one.
    fn session(&self) -> Result<Option<Session>, Error> {
        let mut values = self.parts.headers.get_all(header::SESSION_ID).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(sent_twice(&header::SESSION_ID).with_rpc_code(rpc::INVALID_REQUEST));
        }
        let opened = value.to_str().ok().and_then(|token| {
            let now = self.layer.clock.now_ms();
            self.layer.known.sessions.open(token, Owner::of(&self.caller), now).ok()
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
                    expires_ms: session.expires_ms,
                })
            }
            None if self.layer.config.sessions_required => {
                Err(Error::http(Code::InvalidArgs, 400, "the header Mcp-Session-Id is missing")
                    .with_rpc_code(rpc::INVALID_REQUEST))
            }
            // Whoever names neither a session nor a revision is a script that takes what it is
            // given; clients of old revisions have a session.
            None => Ok(LegacySession::none(named.unwrap_or(Version::LATEST_LEGACY))),
        }
    }

    /// What the client of a request can take. Where the request sets something in its session,
    /// there is a place for it from here on.
    pub(super) fn client(
        &self,
        session: &LegacySession,
        version: Version,
        request: &Request,
    ) -> Result<Client, Error> {
        let states = &self.layer.known.states;
        let employee = self.caller.principal.employee.as_ref();
        let sets = match request {
            Request::SetLevel(_) | Request::Listen(_) => true,
            Request::Ask(ask) => matches!(ask.method, Method::Subscribe | Method::Unsubscribe),
            _ => false,
        };
        if let Some(nonce) = session.nonce.filter(|_| sets) {
            states.keep(nonce, employee, session.expires_ms).map_err(|full| {
                Error::new(Code::RateLimited, full.to_string())
                    .with_limit("streams.sessions")
                    .with_retry_after(Duration::from_secs(60))
            })?;
        }
        Ok(Client {
            capabilities: session.capabilities.known_to(version),
            // Until a session says which it wants, these; whoever has none is sent none.
            log_level: session
                .nonce
                .map(|nonce| states.level(nonce, employee).unwrap_or(LogLevel::Info)),
            session: session.nonce,
        })
    }

    /// `GET`: the stream of a session, or the rest of an answer whose connection broke.
    pub(super) async fn stream_of_session<S>(
        mut self,
        mut inner: S,
        surface: Surface,
    ) -> Result<Response<Body>, Error>
    where
        S: Service<Call, Response = Reply, Error = Error> + Send + 'static,
        S::Future: Send,
    {
        let headers = &self.parts.headers;
        if !headers.contains_key(header::SESSION_ID) || streamable_http::is_modern(headers, None) {
            return Err(not_allowed("POST, DELETE"));
        }
        if !takes_events(headers) {
            let message = "the stream of a session is text/event-stream: the header Accept must \
                           name it";
            return Err(Error::http(Code::InvalidArgs, 406, message));
        }
        let last_event = one_header(headers, &header::LAST_EVENT_ID)?.map(Box::<str>::from);
        self.exchange.facts().method = Some(Method::Listen);
        let session = self.legacy(Method::Listen)?;
        if let (Some(last_event), Some(nonce)) = (last_event, session.nonce) {
            return self.resume(nonce, &last_event);
        }
        let exchange = self.exchange.clone();
        let dialect = NorthDialect::Legacy(session.version);
        let active = self.layer.telemetry.metrics().enter(Method::Listen);
        let all = Notices { tools: true, prompts: true, resources: true, ..Notices::default() };
        let request = Request::Listen(Box::new(all));
        let client = self.client(&session, session.version, &request)?;
        let telemetry = self.layer.telemetry.clone();
        let call = self.call(surface, dialect, client, request, Meta::default())?;
        let spans = listen::Spans { telemetry, exchange: exchange.clone() };
        let reply = listen::bare(inner.call(call).await?, spans);
        Ok(north_reply::mcp(reply, &exchange, &Bytes::new(), dialect, Some(active)))
    }

    fn resume(&self, session: [u8; 8], last_event: &str) -> Result<Response<Body>, Error> {
        let employee = self.caller.principal.employee.as_ref();
        let rest = self.layer.known.streams.resume(session, employee, last_event);
        // Not 404, which would tell the client that its session is gone.
        let rest = rest.ok_or_else(|| {
            let message = "nothing is kept of what came after this event: send the request again";
            Error::http(Code::InvalidArgs, 400, message).with_rpc_code(rpc::INVALID_REQUEST)
        })?;
        self.exchange.facts().outcome = Some(Outcome::Ok);
        Ok(events_response(rest))
    }

    /// `DELETE`: the session ends, and with it all that was set up in it.
    pub(super) fn end_session(self) -> Result<Response<Body>, Error> {
        let Some(session) = self.session()? else { return Err(not_allowed("POST")) };
        let known = &self.layer.known;
        let now = self.layer.clock.now_ms();
        known.sessions.end(&session, now).map_err(|cause| {
            Error::http(Code::RateLimited, 503, cause.to_string())
                .with_retry_after(Duration::from_secs(60))
        })?;
        // Of a session that nobody ends nothing is heard.
        let ended = EndedSession {
            version: session.version,
            http: Some(self.parts.version),
            is_pipe: false,
            server: None,
            error: None,
        };
        self.layer.telemetry.metrics().server_session(ended, known.sessions.age(&session, now));
        known.states.end(session.hash());
        known.streams.end(session.hash());
        self.exchange.facts().outcome = Some(Outcome::Ok);
        let mut response = Response::new(Body::Empty);
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }
}

/// Whether a client takes an event stream; one that does not say takes anything.
fn takes_events(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(http_header::ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return true;
    }
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|range| {
        let range = range.split(';').next().unwrap_or_default().trim();
        ["text/event-stream", "text/*", "*/*"].iter().any(|taken| range.eq_ignore_ascii_case(taken))
    })
}
