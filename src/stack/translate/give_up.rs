//! Telling a server of the handshake era that nobody waits for its answer any more.
//!
//! Stateless servers see it by their connection; providers cannot be told.

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
pub(crate) struct GiveUp(Option<Box<dyn FnOnce() + Send>>);

impl GiveUp {
    pub(super) fn new<S>(request: &Request, hop: &Hop, inner: &S) -> Self
    where
        S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + 'static,
        S::Future: Send,
    {
        if request.method != Method::CallTool || !matches!(request.speech, Speech::Legacy(_)) {
            return Self(None);
        }
        let notice = hop.beside(hop.headers.clone(), south::cancelled_body(request.id).into());
        let mut inner = inner.clone();
        Self(Some(Box::new(move || {
            let notice = async move {
                let ready = std::future::poll_fn(|cx| inner.poll_ready(cx)).await;
                if ready.is_ok()
                    && let Err(error) = inner.call(notice).await
                {
                    tracing::debug!(%error, "a cancellation did not reach its server");
                }
            };
            // The call is over and has no task of its own any more; the notice is one small
            // request, bounded by the connection's own time-outs.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(notice);
            }
        })))
    }

    /// The server has answered or is gone: nothing is to be told.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}
