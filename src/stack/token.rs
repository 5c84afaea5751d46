//! `Authorization: Bearer` → who the token speaks for.
//!
//! A token that is no good is refused, also beside a good key. Whether a request without one may
//! pass is for `api_key` to say. Nothing of a token goes further in than what it was verified to
//! say.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::Either;
use http::{HeaderMap, Request, header as http_header};
use tower::{Layer, Service};

use super::{challenge::Challenges, stage::BoxFuture};
use crate::{
    clock::Clock,
    error::{Code, Error},
    identity::token::{Issuer, Issuers, TokenFault, Verified},
    model::exchange::Exchange,
    telemetry::Telemetry,
};

/// How long a request waits for an issuer's newer keys.
const RENEWAL: Duration = Duration::from_secs(3);

/// Verifies the token of every request that brings one.
#[derive(Clone)]
pub struct TokenLayer {
    issuers: Arc<Issuers>,
    challenges: Arc<Challenges>,
    clock: Clock,
    telemetry: Arc<Telemetry>,
}

impl TokenLayer {
    pub fn new(
        issuers: Arc<Issuers>,
        challenges: Arc<Challenges>,
        clock: Clock,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self { issuers, challenges, clock, telemetry }
    }
}

impl<S> Layer<S> for TokenLayer {
    type Service = Token<S>;

    fn layer(&self, inner: S) -> Token<S> {
        Token { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Token<S> {
    inner: S,
    layer: Arc<TokenLayer>,
}

impl<S, B> Service<Request<B>> for Token<S>
where
    S: Service<Request<B>, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = Error;
    type Future = Either<S::Future, BoxFuture<S::Response>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if self.layer.issuers.is_empty()
            || !request.headers().contains_key(http_header::AUTHORIZATION)
        {
            return Either::Left(self.inner.call(request));
        }
        let layer = self.layer.clone();
        match layer.look(request.headers()) {
            Look::None => return Either::Left(self.inner.call(request)),
            Look::Good(verified) => {
                if layer.admit(&mut request, &verified).is_ok() {
                    return Either::Left(self.inner.call(request));
                }
            }
            Look::Bad(..) => {}
        }
        // Take the service that is ready, leave its clone.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        Either::Right(Box::pin(async move {
            let mut look = layer.look(request.headers());
            if let Look::Bad(_, Some(issuer)) = &look {
                issuer.keys.renewed(layer.clock.now_ms(), RENEWAL).await;
                look = layer.look(request.headers());
            }
            match look {
                Look::Good(verified) => layer.admit(&mut request, &verified)?,
                Look::None => {}
                Look::Bad(fault, _) => return Err(layer.refusal(&request, &fault)),
            }
            inner.call(request).await
        }))
    }
}

/// What the header holds.
enum Look {
    /// No token: another scheme, or empty credentials, which are none.
    None,
    Good(Arc<Verified>),
    /// With the issuer whose newer keys may mend it.
    Bad(TokenFault, Option<Arc<Issuer>>),
}

impl TokenLayer {
    fn look(&self, headers: &HeaderMap) -> Look {
        let mut values = headers.get_all(http_header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Look::Bad(TokenFault::Malformed, None);
        };
        let Ok(text) = value.to_str() else { return Look::Bad(TokenFault::Malformed, None) };
        let (scheme, token) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let token = token.trim();
        if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
            return Look::None;
        }
        match self.issuers.verify(token, self.clock.now_ms()) {
            Ok(verified) => Look::Good(verified),
            Err((fault, issuer)) => Look::Bad(fault, issuer),
        }
    }

    /// Lets a request go on as what its token says, or asks for more scopes.
    fn admit<B>(&self, request: &mut Request<B>, verified: &Arc<Verified>) -> Result<(), Error> {
        if let Some(missing) = verified.missing_base() {
            let path = request.uri().path();
            return Err(self.challenges.insufficient(request.headers(), path, &missing.join(" ")));
        }
        // It has done its work; nothing further in can see it, or pass it on.
        request.headers_mut().remove(http_header::AUTHORIZATION);
        request.extensions_mut().insert(verified.clone());
        Ok(())
    }

    fn refusal<B>(&self, request: &Request<B>, fault: &TokenFault) -> Error {
        if let Some(exchange) = request.extensions().get::<Arc<Exchange>>() {
            let mut facts = exchange.facts();
            facts.entered = true;
            // A stranger's trace context is linked and decides nothing.
            self.telemetry.distrust(&mut facts.trace);
        }
        let reason = match fault {
            TokenFault::Malformed => "token_malformed",
            TokenFault::UnknownIssuer => "token_issuer",
            TokenFault::Algorithm => "token_algorithm",
            TokenFault::UnknownKey => "token_key",
            TokenFault::NoKeys => "token_keys_unavailable",
            TokenFault::Signature => "token_signature",
            TokenFault::Audience => "token_audience",
            TokenFault::Time => "token_time",
            TokenFault::NoTenant => "token_tenant",
            TokenFault::NoEmployee => "token_employee",
        };
        if *fault == TokenFault::NoKeys {
            // The token may be good: it is the issuer that cannot be asked.
            let message = "the token cannot be verified at present";
            return Error::http(Code::ExternalServiceError, 503, message)
                .with_reason(reason)
                .with_retry_after(Duration::from_secs(5));
        }
        // The same words for every fault but its time: a forger learns nothing.
        let message = match fault {
            TokenFault::Time => "the token has expired or is not valid yet",
            _ => "the token is not valid",
        };
        let error = Error::http(Code::Unauthenticated, 401, message).with_reason(reason);
        self.challenges.unauthenticated(error, request.headers(), request.uri().path())
    }
}
