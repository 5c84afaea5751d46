//! What is told a server of the handshake era beside its call: that nobody waits for the answer
//! any more, what was answered to its questions, and that others have no answer.
//!
//! Stateless servers see it by their connection and ask nothing; providers cannot be told.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header as http_header};
use tower::Service;

use super::{
    super::stage::{BoxFuture, HeldSession, Hop},
    southbound::Request,
};
use crate::{
    body::{Body, Pieces},
    dialect::{
        questions,
        south::{self, Speech},
    },
    error::Error,
    mcp::{Method, header},
    model::{exchange::Exchange, reply::RpcError},
};

/// A question of the server's that waits for an answer.
pub(super) struct Owed {
    /// As the server wrote it.
    pub id: Bytes,
    /// Under which the client answers it.
    pub key: Box<str>,
    pub method: Method,
    pub params: Option<Bytes>,
}

/// What a server gets for its question.
pub(super) enum Given {
    Result(Bytes),
    Refusal(RpcError),
}

/// Sends `notifications/cancelled` when it is dropped, unless it was disarmed, and before that
/// the refusals of all that was asked and is still owed.
pub(crate) struct GiveUp {
    aside: Option<Box<dyn Aside>>,
    id: u64,
    armed: bool,
    pub(super) owed: Vec<Owed>,
}

/// Small requests in the session of a call.
trait Aside: Send + Sync {
    /// Sends messages one after the other, and waits for nothing.
    fn send(&self, bodies: Vec<Bytes>);

    /// Sends one message, or asks for a stream, and waits for the answer.
    fn ask(
        &self,
        method: http::Method,
        headers: HeaderMap,
        body: Pieces,
    ) -> BoxFuture<Response<Body>>;

    /// The session that the call turned out to be in.
    fn hold(&mut self, session: HeldSession);

    /// The exchange for which it goes on.
    fn adopt(&mut self, exchange: Arc<Exchange>);

    fn is_lost(&self) -> bool;
}

struct Beside<S> {
    hop: Hop,
    inner: S,
}

impl GiveUp {
    pub(super) fn new<S>(request: &Request, hop: &Hop, inner: &S) -> Self
    where
        S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let acts = !matches!(
            request.method,
            Method::ListTools
                | Method::ListPrompts
                | Method::ListResources
                | Method::ListTemplates
                | Method::Discover
                | Method::Ping
        );
        let aside: Option<Box<dyn Aside>> = match request.speech {
            Speech::Legacy(_) => {
                let hop = hop.beside(hop.headers.clone(), Pieces::default());
                Some(Box::new(Beside { hop, inner: inner.clone() }))
            }
            _ => None,
        };
        Self { armed: acts && aside.is_some(), aside, id: request.id, owed: Vec::new() }
    }

    /// Answers a question that no client is asked: a ping as its server expects, anything else
    /// with the refusal that whoever declared no capability owes.
    pub(super) fn answer(&self, id: &[u8], method: &str) {
        if let Some(aside) = &self.aside {
            aside.send(vec![south::answer_body(id, method)]);
        }
    }

    /// Gives a server what it asked for; it takes it, or says why not.
    pub(super) async fn give(&self, id: &[u8], given: &Given) -> Result<http::StatusCode, Error> {
        let Some(aside) = &self.aside else { return Ok(http::StatusCode::ACCEPTED) };
        let body = match given {
            Given::Result(result) => questions::response(id, result),
            Given::Refusal(error) => questions::refusal(id, error),
        };
        let headers = aside_headers();
        let response = aside.ask(http::Method::POST, headers, body.into()).await?;
        Ok(response.status())
    }

    /// Asks for what a stream would have gone on with, had it not ended; `None` of a server that
    /// cannot be asked.
    pub(super) fn reopen(&self, last: &HeaderValue) -> Option<BoxFuture<Response<Body>>> {
        const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
        let aside = self.aside.as_ref()?;
        let mut headers = HeaderMap::new();
        headers.insert(http_header::ACCEPT, EVENTS);
        headers.insert(header::LAST_EVENT_ID, last.clone());
        Some(aside.ask(http::Method::GET, headers, Pieces::default()))
    }

    /// All that is said from here on is said in that session.
    pub(super) fn hold(&mut self, session: HeldSession) {
        if let Some(aside) = &mut self.aside {
            aside.hold(session);
        }
    }

    /// All that is said from here on is said for that exchange.
    pub(super) fn adopt(&mut self, exchange: Arc<Exchange>) {
        if let Some(aside) = &mut self.aside {
            aside.adopt(exchange);
        }
    }

    /// Whether the server turned out to have forgotten the call's session.
    pub(super) fn is_lost(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.is_lost())
    }

    /// The server has answered or is gone: nothing is to be told.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

/// The headers of a small message.
pub(super) fn aside_headers() -> HeaderMap {
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
    let mut headers = HeaderMap::new();
    headers.insert(http_header::CONTENT_TYPE, JSON);
    headers.insert(http_header::ACCEPT, BOTH);
    headers
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        if let Some(aside) = self.aside.take_if(|_| self.armed) {
            let refusals =
                self.owed.iter().map(|owed| questions::unanswered(&owed.id, owed.method));
            aside.send(refusals.chain([south::cancelled_body(self.id)]).collect());
        }
    }
}

impl<S> Aside for Beside<S>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    fn send(&self, bodies: Vec<Bytes>) {
        let mut inner = self.inner.clone();
        let hop = self.hop.clone();
        let notices = async move {
            for body in bodies {
                let notice = hop.beside(hop.headers.clone(), body.into());
                let ready = std::future::poll_fn(|cx| inner.poll_ready(cx)).await;
                if ready.is_ok()
                    && let Err(error) = inner.call(notice).await
                {
                    tracing::debug!(%error, "a word beside a call did not reach its server");
                }
            }
        };
        // It must not hold up the call, which may be over already; it is a few small requests,
        // bounded by the connection's own time-outs.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(notices);
        }
    }

    fn ask(
        &self,
        method: http::Method,
        headers: HeaderMap,
        body: Pieces,
    ) -> BoxFuture<Response<Body>> {
        let mut inner = self.inner.clone();
        let hop = Hop { method, ..self.hop.beside(headers, body) };
        Box::pin(async move {
            std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
            inner.call(hop).await
        })
    }

    fn hold(&mut self, session: HeldSession) {
        self.hop.held = Some(session);
    }

    fn adopt(&mut self, exchange: Arc<Exchange>) {
        self.hop.exchange = exchange;
    }

    fn is_lost(&self) -> bool {
        let held = self.hop.held.as_ref();
        held.is_some_and(|held| held.lost.load(std::sync::atomic::Ordering::Relaxed))
    }
}
