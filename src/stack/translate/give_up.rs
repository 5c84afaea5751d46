//! What is told a server of the handshake era beside its call: that nobody waits for the answer
//! any more, and that its questions have none.
//!
//! Stateless servers see it by their connection and ask nothing; providers cannot be told.

use bytes::Bytes;
use http::Response;
use tower::Service;

use super::{super::stage::Hop, southbound::Request};
use crate::{
    body::Body,
    dialect::south::{self, Speech},
    error::Error,
    mcp::Method,
};

/// Sends `notifications/cancelled` when it is dropped, unless it was disarmed.
pub(crate) struct GiveUp {
    aside: Option<Box<dyn Aside>>,
    id: u64,
    armed: bool,
}

/// Small requests in the session of a call.
trait Aside: Send + Sync {
    /// Sends one and waits for nothing.
    fn send(&self, body: Bytes);
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
        let aside: Option<Box<dyn Aside>> = match request.speech {
            Speech::Legacy(_) if request.method == Method::CallTool => {
                let hop = hop.beside(hop.headers.clone(), Bytes::new().into());
                Some(Box::new(Beside { hop, inner: inner.clone() }))
            }
            _ => None,
        };
        Self { armed: aside.is_some(), aside, id: request.id }
    }

    /// Answers a question of the server: a ping as it expects, anything else with the refusal
    /// that whoever declared no capability owes.
    pub(super) fn answer(&self, id: &[u8], method: &str) {
        if let Some(aside) = &self.aside {
            aside.send(south::answer_body(id, method));
        }
    }

    /// The server has answered or is gone: nothing is to be told.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        if let Some(aside) = self.aside.take_if(|_| self.armed) {
            aside.send(south::cancelled_body(self.id));
        }
    }
}

impl<S> Aside for Beside<S>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    fn send(&self, body: Bytes) {
        let mut inner = self.inner.clone();
        let notice = self.hop.beside(self.hop.headers.clone(), body.into());
        let notice = async move {
            let ready = std::future::poll_fn(|cx| inner.poll_ready(cx)).await;
            if ready.is_ok()
                && let Err(error) = inner.call(notice).await
            {
                tracing::debug!(%error, "a word beside a call did not reach its server");
            }
        };
        // It must not hold up the call, which may be over already; it is one small request,
        // bounded by the connection's own time-outs.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(notice);
        }
    }
}
