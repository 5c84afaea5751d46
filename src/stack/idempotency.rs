//! Same key, same call: one execution, then the stored reply.
//!
//! A refusal from above never got here, and one from below is not stored; what ran is, however
//! it ended.

use std::{
    future::{Ready, ready},
    mem,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::Either;
use http::HeaderValue;
use tower::{Layer, Service};

use super::stage::{BoxFuture, Permitted};
use crate::{
    audit::Keys,
    error::{Code, Error, Next},
    idempotency::{Begin, Claim, Lease, ReplayKey, Replays, Saved, Scope, Stored},
    json::{self, Doc},
    mcp::{header, meta},
    model::{
        call::{Request, ToolCall},
        exchange::Exchange,
        reply::{Content, Final, Reply},
        server::IdempotencyMode,
    },
    registry::KEY_ARGUMENT,
};

/// Lets a key's call happen once.
#[derive(Clone)]
pub struct IdempotencyLayer {
    replays: Arc<Replays>,
    keys: Arc<Keys>,
}

impl IdempotencyLayer {
    pub fn new(replays: Arc<Replays>, keys: Arc<Keys>) -> Self {
        Self { replays, keys }
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Once<S>;

    fn layer(&self, inner: S) -> Once<S> {
        Once { inner, replays: self.replays.clone(), keys: self.keys.clone() }
    }
}

#[derive(Clone)]
pub struct Once<S> {
    inner: S,
    replays: Arc<Replays>,
    keys: Arc<Keys>,
}

impl<S> Service<Permitted> for Once<S>
where
    S: Service<Permitted, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<Ready<Result<Reply, Error>>, Either<S::Future, BoxFuture<Reply>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut permitted: Permitted) -> Self::Future {
        let key = match key(&permitted) {
            Ok(Some(key)) => key,
            Ok(None) => return Either::Right(Either::Left(self.inner.call(permitted))),
            Err(error) => return Either::Left(ready(Err(error))),
        };
        let claim = match claim(&permitted, &key, &self.keys) {
            Ok(claim) => claim,
            Err(error) => return Either::Left(ready(Err(error))),
        };
        permitted.idempotency_key = Some(key.as_str().into());
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let replays = self.replays.clone();
        if permitted.trial.is_some() {
            return Either::Right(Either::Right(Box::pin(tried(inner, replays, claim, permitted))));
        }
        Either::Right(Either::Right(Box::pin(once(inner, replays, claim, permitted))))
    }
}

/// Looks what would become of a call, and claims nothing.
async fn tried<S>(
    mut inner: S,
    replays: Arc<Replays>,
    claim: Claim,
    mut permitted: Permitted,
) -> Result<Reply, Error>
where
    S: Service<Permitted, Response = Reply, Error = Error>,
{
    let waiting = tokio::time::Instant::now();
    let known = replays.look(claim).await;
    permitted.call.exchange.facts().waited += waiting.elapsed();
    let word = match known {
        None => "new",
        Some(Begin::Replay(stored)) if stored.answer().is_some() => "replayed",
        Some(Begin::Replay(stored)) => return replay(&stored),
        Some(taken) => return Err(in_the_way(&taken, &replays, &permitted.call.exchange)),
    };
    if let Some(trial) = &mut permitted.trial {
        trial.idempotency = Some(word);
    }
    inner.call(permitted).await
}

async fn once<S>(
    mut inner: S,
    replays: Arc<Replays>,
    claim: Claim,
    mut permitted: Permitted,
) -> Result<Reply, Error>
where
    S: Service<Permitted, Response = Reply, Error = Error>,
{
    let exchange = permitted.call.exchange.clone();
    let mut begin = replays.begin(claim);
    if matches!(begin, Begin::Ask(_) | Begin::InFlight(_)) {
        let waiting = tokio::time::Instant::now();
        if let Begin::Ask(inquiry) = begin {
            begin = inquiry.ask().await;
        }
        if let Begin::InFlight(waiter) = begin {
            begin = waiter.wait().await;
        }
        exchange.facts().waited += waiting.elapsed();
    }
    let note = |word| exchange.facts().idempotency = Some(word);
    match begin {
        Begin::Run(lease) => {
            note("stored");
            // From here on bytes may leave at any moment: a call that is dropped is in doubt. One
            // that somebody is asked about first may take its time.
            if permitted.permit.asks().is_empty() {
                lease.sent_mark().store(true, Ordering::Relaxed);
            } else {
                permitted.leaving = Some(lease.sent_mark());
            }
            run(&mut inner, lease, permitted).await
        }
        Begin::Replay(stored) => {
            note("replayed");
            replay(&stored)
        }
        taken => Err(in_the_way(&taken, &replays, &exchange)),
    }
}

/// Why a call with a key is not made.
fn in_the_way(taken: &Begin, replays: &Replays, exchange: &Exchange) -> Error {
    let note = |word| exchange.facts().idempotency = Some(word);
    match taken {
        Begin::Conflict => {
            note("mismatch");
            Error::new(
                Code::Conflict,
                "this idempotency key was used for the same tool with other arguments",
            )
            .with_reason("idempotency_mismatch")
            .with_advice(false, Next::RepairArgs)
        }
        Begin::InFlight(_) => {
            note("in_flight");
            Error::new(Code::Conflict, "a call with this idempotency key is still running")
                .with_reason("idempotency_in_flight")
                .with_advice(true, Next::Wait)
                .with_retry_after(replays.wait().max(Duration::from_millis(1)))
        }
        Begin::Unknown => {
            note("unknown");
            in_doubt()
        }
        Begin::Full => {
            note("full");
            Error::new(
                Code::RateLimited,
                "the gateway holds as many idempotency keys as it may and forgets none early",
            )
            .with_limit("idempotency")
            .with_reason("idempotency_full")
            .with_retry_after(Duration::from_secs(60))
        }
        // Whether the key is free is not known.
        _ => store_unavailable(),
    }
}

/// Our own failure, not the server's: it was not asked, and is not to blame in any figure.
fn store_unavailable() -> Error {
    Error::new(
        Code::Internal,
        "the gateway's store cannot be used, so a call with an idempotency key was not made",
    )
    .with_kind("store_unavailable")
    .with_reason("store_unavailable")
    .with_advice(true, Next::Wait)
    .with_retry_after(Duration::from_secs(5))
}

fn in_doubt() -> Error {
    Error::new(
        Code::Conflict,
        "a call with this idempotency key was sent and its outcome is unknown; check with the \
         server before sending it under another key",
    )
    .with_reason("idempotency_unknown")
    .with_unknown_outcome()
    .with_advice(false, Next::AskHuman)
}

async fn run<S>(inner: &mut S, lease: Lease, permitted: Permitted) -> Result<Reply, Error>
where
    S: Service<Permitted, Response = Reply, Error = Error>,
{
    let exchange = permitted.call.exchange.clone();
    match inner.call(permitted).await {
        Ok(reply) => {
            let save = |end: Result<Final, Error>| async move {
                // Before the answer: what a client was told a later call with the key is told too.
                saved(settle(lease, end.as_ref()), &exchange).await;
                end
            };
            reply.then_end(save).await
        }
        Err(error) => {
            saved(settle(lease, Err(&error)), &exchange).await;
            Err(error)
        }
    }
}

/// Waits for the store, which is not the gateway's own time.
async fn saved(saved: Saved, exchange: &Exchange) {
    if saved.is_pending() {
        let waiting = tokio::time::Instant::now();
        // What is not saved in time is saved later.
        saved.wait().await;
        exchange.facts().waited += waiting.elapsed();
    }
}

/// What the end of a run means for its key.
fn settle(lease: Lease, end: Result<&Final, &Error>) -> Saved {
    match end {
        // A question is one step of the call; its answer comes under the same key. A task is what
        // became of the call: nobody gets a second one.
        Ok(Final::Result(body)) if body.shape.asks => lease.free(),
        Ok(answer) => lease.finish(answer),
        Err(error) if error.unknown_outcome() => lease.unknown(),
        Err(_) => lease.free(),
    }
}

fn replay(stored: &Stored) -> Result<Reply, Error> {
    let Some(mut end) = stored.answer() else {
        let message = match stored {
            Stored::Unreadable => {
                "the call with this idempotency key was completed; its result was kept under a \
                 key that the gateway no longer has"
            }
            _ => {
                "the call with this idempotency key was completed; its result was too large to \
                 be kept"
            }
        };
        return Err(Error::new(Code::Conflict, message)
            .with_reason("idempotency_not_kept")
            .with_advice(false, Next::Stop));
    };
    if let Final::Result(body) = &mut end {
        body.added_meta.push((meta::REPLAYED, Bytes::from_static(b"true")));
    }
    let mut headers = smallvec::SmallVec::new();
    headers.push((header::IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true")));
    Ok(Reply { headers, content: Content::Final(end) })
}

// === The key ===

/// The key of a call, wherever it stands; places that name different ones are refused.
fn key(permitted: &Permitted) -> Result<Option<ReplayKey>, Error> {
    let (Request::CallTool(call), Some(policy)) =
        (&permitted.call.request, permitted.permit.policy())
    else {
        return Ok(None);
    };
    if policy.idempotency == IdempotencyMode::None {
        return Ok(None);
    }
    let argument = match &policy.idempotency_argument {
        Some(name) => argument(call, name)?,
        None if owns_key(permitted) => argument(call, KEY_ARGUMENT)?,
        // Taken out of the arguments before they were checked, if it stood there.
        None => permitted.idempotency_key.clone(),
    };
    let header = permitted.call.idempotency_key.as_deref();
    let meta = permitted.call.meta.idempotency_key.as_deref();
    let mut found: Option<&str> = None;
    for place in [header, meta, argument.as_deref()].into_iter().flatten() {
        match found {
            Some(before) if before != place => {
                return Err(wrong("two idempotency keys that differ were given"));
            }
            _ => found = Some(place),
        }
    }
    match found {
        Some(text) => ReplayKey::parse(text).map(Some).map_err(|fault| wrong(fault.to_string())),
        None if policy.idempotency == IdempotencyMode::Required => {
            let place = match &policy.idempotency_argument {
                Some(name) => format!("the argument `{name}`"),
                None => format!("the argument `{KEY_ARGUMENT}` or the header Idempotency-Key"),
            };
            Err(wrong(format!(
                "this tool is called with an idempotency key: give one in {place}, the same for \
                 every try of one intended effect"
            )))
        }
        None => Ok(None),
    }
}

/// Whether the tool has an argument of its own for the key that it must be given.
fn owns_key(permitted: &Permitted) -> bool {
    let required =
        permitted.permit.policy().is_some_and(|p| p.idempotency == IdempotencyMode::Required);
    required && permitted.tool.as_ref().is_some_and(|tool| tool.definition.has_key_argument)
}

/// The key in a named argument.
fn argument(call: &ToolCall, name: &str) -> Result<Option<Box<str>>, Error> {
    let Some(arguments) = &call.arguments else { return Ok(None) };
    // Checked when the body was read; only the members are looked for again.
    let limits =
        json::Limits { depth: usize::MAX, duplicates: json::Duplicates::Allow, outline: 1 };
    let Ok(doc) = Doc::parse(arguments.clone(), &limits) else { return Ok(None) };
    let Some(value) = doc.root().get(name).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let text = value.as_str().ok_or_else(|| wrong("the idempotency key must be a string"))?;
    Ok(Some(text.into()))
}

fn wrong(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Code::InvalidArgs, message).with_reason("idempotency_key")
}

fn claim(permitted: &Permitted, key: &ReplayKey, keys: &Keys) -> Result<Claim, Error> {
    let lost = || Error::new(Code::Internal, "the call has no digest of its arguments");
    let tool = permitted.tool.as_ref().ok_or_else(lost)?;
    let digest = permitted.call.exchange.facts().args_hash.ok_or_else(lost)?;
    let scope = Scope::of(&permitted.call.caller, &tool.qualified, key);
    // Not under a key that the server honours: how long it does nobody knows, and a call in doubt
    // may come again hours later.
    let retry_safe = permitted.permit.policy().is_some_and(|policy| policy.retry_safe);
    let claim = Claim::new(scope, digest, retry_safe);
    let call = match &permitted.call.request {
        // While keys are being rotated: the first call may have come before.
        Request::CallTool(call) if keys.has_others() => call,
        _ => return Ok(claim),
    };
    let mut canonical = Vec::new();
    json::canonical(call.arguments.as_deref().unwrap_or(b"{}"), &mut canonical);
    Ok(claim.or(keys.other_args_hashes(&permitted.call.caller.tenant, &canonical)))
}
