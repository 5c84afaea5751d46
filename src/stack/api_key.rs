//! X-Api-Key, or a token in its place → the caller and its tenant.
//!
//! Who the employee is, is not asked here.

use std::{
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use http::Request;
use tower::{Layer, Service};

use super::challenge::Challenges;
use crate::{
    clock::Clock,
    error::{Code, Error},
    identity::{
        api_key::{Callers, KeyFault},
        token::Verified,
    },
    mcp::header,
    model::exchange::Exchange,
    telemetry::Telemetry,
};

/// Verifies the API key of every request.
#[derive(Clone)]
pub struct ApiKeyLayer {
    callers: Arc<Callers>,
    challenges: Arc<Challenges>,
    clock: Clock,
    telemetry: Arc<Telemetry>,
}

impl ApiKeyLayer {
    pub fn new(
        callers: Arc<Callers>,
        challenges: Arc<Challenges>,
        clock: Clock,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self { callers, challenges, clock, telemetry }
    }
}

impl<S> Layer<S> for ApiKeyLayer {
    type Service = ApiKey<S>;

    fn layer(&self, inner: S) -> ApiKey<S> {
        ApiKey { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct ApiKey<S> {
    inner: S,
    layer: Arc<ApiKeyLayer>,
}

impl<S, B> Service<Request<B>> for ApiKey<S>
where
    S: Service<Request<B>, Error = Error>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = Either<Ready<Result<S::Response, Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let exchange = request.extensions().get::<Arc<Exchange>>().cloned();
        if let Some(exchange) = &exchange {
            exchange.facts().entered = true;
        }
        let mut keys = request.headers().get_all(header::API_KEY).iter();
        let verdict = match (keys.next(), keys.next()) {
            // A token alone is enough: its caller is then its issuer.
            (None, _) => match request.extensions().get::<Arc<Verified>>() {
                Some(token) => Ok(&token.caller),
                None => Err(KeyFault::Missing),
            },
            // Two keys are no key: which one was meant is not for us to guess.
            (Some(_), Some(_)) => Err(KeyFault::Unknown),
            (Some(key), None) => {
                // The header's white space is not part of the key.
                let layer = &self.layer;
                layer.callers.verify(key.as_bytes().trim_ascii(), layer.clock.now_ms())
            }
        };
        match verdict {
            Ok(entry) => {
                if let Some(exchange) = &exchange {
                    let mut facts = exchange.facts();
                    facts.tenant = Some(entry.tenant.clone());
                    facts.caller = Some(entry.id.clone());
                }
                let entry = entry.clone();
                // The key has done its work; nothing further in can see it.
                request.headers_mut().remove(header::API_KEY);
                request.extensions_mut().insert(entry);
                Either::Right(self.inner.call(request))
            }
            Err(fault) => {
                // A stranger's trace context is linked and decides nothing.
                if let Some(exchange) = &exchange {
                    self.layer.telemetry.distrust(&mut exchange.facts().trace);
                }
                let path = request.uri().path();
                let challenges = &self.layer.challenges;
                let error = challenges.unauthenticated(refusal(fault), request.headers(), path);
                Either::Left(ready(Err(error)))
            }
        }
    }
}

fn refusal(fault: KeyFault) -> Error {
    // Unknown and expired are told alike: a stolen old key learns nothing.
    let (message, reason) = match fault {
        KeyFault::Missing => ("the header X-Api-Key is missing", "key_missing"),
        KeyFault::Unknown => ("the API key is not valid", "key_unknown"),
        KeyFault::Expired => ("the API key is not valid", "key_expired"),
    };
    Error::http(Code::Unauthenticated, 401, message).with_reason(reason)
}
