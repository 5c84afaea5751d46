//! Stamps callSource and traceId on the outgoing call, and notes that it left: for a write the
//! intent is durable before a byte of it goes out.
//!
//! The record of how it ended is made where the exchange ends.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use tokio::time::Instant;
use tower::{Layer, Service};

use super::stage::{BoxFuture, Permitted};
use crate::{
    audit::{Audit, Record},
    error::{Code, Error},
    mcp::Method,
    model::{call::Request, ids, reply::Reply},
};

/// Records intents.
#[derive(Clone)]
pub struct AuditLayer {
    audit: Arc<Audit>,
}

impl AuditLayer {
    pub fn new(audit: Arc<Audit>) -> Self {
        Self { audit }
    }
}

impl<S> Layer<S> for AuditLayer {
    type Service = Intent<S>;

    fn layer(&self, inner: S) -> Intent<S> {
        Intent { inner, audit: self.audit.clone() }
    }
}

#[derive(Clone)]
pub struct Intent<S> {
    inner: S,
    audit: Arc<Audit>,
}

impl<S> Service<Permitted> for Intent<S>
where
    S: Service<Permitted, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<S::Future, BoxFuture<Reply>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, permitted: Permitted) -> Self::Future {
        if permitted.tool.is_none() && permitted.asked.is_none() {
            return Either::Left(self.inner.call(permitted));
        }
        let risk = permitted.risk();
        let exchange = &permitted.call.exchange;
        // An argument may have said it already.
        let new = || ids::uuid_v7(exchange.started_ms);
        exchange.facts().call_id.get_or_insert_with(new);
        if !risk.is_write() || looks(&permitted.call.request) {
            // Where the operator made reads strict, a sink that is down refuses them too.
            if self.audit.is_strict(risk) && !self.audit.is_writable() {
                return Either::Right(Box::pin(std::future::ready(Err(unavailable()))));
            }
            return Either::Left(self.inner.call(permitted));
        }
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let audit = self.audit.clone();
        Either::Right(Box::pin(async move {
            let waiting = Instant::now();
            let durable = {
                let exchange = &permitted.call.exchange;
                let facts = exchange.facts();
                audit.durable(&Record::intent(
                    &facts,
                    exchange.started_ms,
                    waiting.saturating_duration_since(exchange.started),
                ))
            };
            let written = durable.await;
            {
                let mut facts = permitted.call.exchange.facts();
                facts.waited += waiting.elapsed();
                facts.intent = written.is_ok();
            }
            if let Err(cause) = written
                && audit.is_strict(risk)
            {
                return Err(unavailable().with_cause(cause));
            }
            inner.call(permitted).await
        }))
    }
}

/// Whether a call only looks at what a write became: a task is looked at over and over.
fn looks(request: &Request) -> bool {
    request.method() == Method::GetTask
}

fn unavailable() -> Error {
    Error::new(Code::Internal, "the audit log cannot be written, so the call was not made")
        .with_kind("audit_unavailable")
        .with_reason("audit_unavailable")
        .with_advice(true, crate::error::Next::Wait)
        .with_retry_after(std::time::Duration::from_secs(5))
}
