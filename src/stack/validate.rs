//! Arguments against the pinned schema, and the keyed digests of arguments and result for
//! everything that records them.
//!
//! Neither is changed, but for an argument that the gateway itself published, the idempotency key
//! of a tool that knows none, and for arguments that the gateway sends and callers do not see.
//!
//! The digest is of what the caller sent. What is put in beside that differs from call to call
//! where it is the request's id, and says nothing more of what was asked for where it is the
//! tenant or the employee: the same call would be neither repeated under its key nor found to be
//! the one that was approved. For the same reason rules, which have decided by now, look at the
//! caller's own arguments.

use std::{
    future::{Future, Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready as ready_or_return},
};

use bytes::Bytes;
use futures_util::future::Either;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::stage::{Permitted, publishes_key};
use crate::{
    audit::Keys,
    dialect::header_value,
    error::{Code, Error},
    json,
    mcp::rpc,
    model::{
        call::{Call, Request},
        caller::TenantId,
        exchange::{Exchange, KeyedDigest, NorthDialect},
        ids,
        reply::{Final, Reply},
        template::{HeaderTemplate, Part},
    },
    registry::{
        Faced, KEY_ARGUMENT, MarkedArguments, Mismatch, ParamHeader, Tool, Unfilled,
        take_key_argument,
    },
};

/// Checks every call's arguments before anything leaves.
#[derive(Clone)]
pub struct ValidateLayer {
    keys: Arc<Keys>,
}

impl ValidateLayer {
    pub fn new(keys: Arc<Keys>) -> Self {
        Self { keys }
    }
}

impl<S> Layer<S> for ValidateLayer {
    type Service = Validate<S>;

    fn layer(&self, inner: S) -> Validate<S> {
        Validate { inner, keys: self.keys.clone() }
    }
}

#[derive(Clone)]
pub struct Validate<S> {
    inner: S,
    keys: Arc<Keys>,
}

impl<S> Service<Permitted> for Validate<S>
where
    S: Service<Permitted, Response = Reply, Error = Error>,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<Ready<Result<Reply, Error>>, Digested<S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut permitted: Permitted) -> Self::Future {
        if let Err(error) = take_key(&mut permitted) {
            return Either::Left(ready(Err(error)));
        }
        match check(&mut permitted, &self.keys) {
            Ok(()) => {
                // What a dry run answers is no result.
                let digest = (permitted.tool.is_some() && permitted.trial.is_none()).then(|| {
                    let call = &permitted.call;
                    (self.keys.clone(), call.caller.tenant.clone(), call.exchange.clone())
                });
                Either::Right(Digested { inner: self.inner.call(permitted), digest })
            }
            Err(error) => Either::Left(ready(Err(error))),
        }
    }
}

pin_project! {
    /// A call whose result is digested when it comes.
    pub struct Digested<F> {
        #[pin]
        inner: F,
        digest: Option<(Arc<Keys>, TenantId, Arc<Exchange>)>,
    }
}

impl<F> Future for Digested<F>
where
    F: Future<Output = Result<Reply, Error>>,
{
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let reply = ready_or_return!(this.inner.poll(cx))?;
        let Some((keys, tenant, exchange)) = this.digest.take() else {
            return Poll::Ready(Ok(reply));
        };
        Poll::Ready(reply.map_end(move |end| {
            if let Ok(Final::Result(body)) = &end {
                exchange.facts().result_ref = Some(keys.result_ref(&tenant, &body.raw));
            }
            end
        }))
    }
}

/// Takes the key out of the arguments where it stands there because the gateway said so.
fn take_key(permitted: &mut Permitted) -> Result<(), Error> {
    let (Some(tool), Some(policy)) = (&permitted.tool, permitted.permit.policy()) else {
        return Ok(());
    };
    if !publishes_key(tool, policy) {
        return Ok(());
    }
    let Request::CallTool(call) = &mut permitted.call.request else { return Ok(()) };
    let Some((rest, key)) = call.arguments.as_ref().and_then(take_key_argument) else {
        return Ok(());
    };
    let key: Option<String> = serde_json::from_slice(&key).map_err(|_| {
        Error::new(Code::InvalidArgs, "the idempotency key must be a string")
            .with_reason("idempotency_key")
            .with_pointer(format!("/{KEY_ARGUMENT}"))
    })?;
    call.arguments = Some(rest);
    permitted.idempotency_key = key.map(Into::into);
    Ok(())
}

/// The headers in which a request of 2026-07-28 repeats arguments must say the same as they do.
/// Headers that no argument is marked for are not looked at.
fn check_headers(call: &Call, tool: &Tool, arguments: Option<&Bytes>) -> Result<(), Error> {
    if call.dialect != NorthDialect::Modern || tool.definition.params.is_empty() {
        return Ok(());
    }
    let mismatch = |param: &ParamHeader, what: &str| {
        let message = format!("the header {} {what}", param.header);
        Error::protocol(Code::InvalidArgs, rpc::HEADER_MISMATCH, 400, message)
    };
    let marked = MarkedArguments::read(arguments);
    for param in &tool.definition.params {
        let mut sent = call.headers.get_all(&param.header).iter();
        match (sent.next(), sent.next(), marked.text(param)) {
            (None, _, None) => {}
            (None, _, Some(_)) => return Err(mismatch(param, "is missing")),
            (Some(_), Some(_), _) => return Err(mismatch(param, "is sent twice")),
            (Some(_), None, None) => return Err(mismatch(param, "repeats no argument")),
            (Some(value), None, Some(_)) => {
                let value = header_value::decode(value.as_bytes())
                    .map_err(|_| mismatch(param, "is badly encoded"))?;
                if !marked.agrees(param, &value) {
                    return Err(mismatch(param, "differs from its argument"));
                }
            }
        }
    }
    Ok(())
}

fn check(permitted: &mut Permitted, keys: &Keys) -> Result<(), Error> {
    let Permitted { call, tool: Some(tool), .. } = permitted else { return Ok(()) };
    let Request::CallTool(asked) = &call.request else { return Ok(()) };
    check_headers(call, tool, asked.arguments.as_ref())?;
    let arguments = asked.arguments.as_deref().unwrap_or(b"{}");
    let digest = digest(arguments, &call.caller.tenant, keys);
    call.exchange.facts().args_hash = Some(digest);
    match &tool.face {
        Some(face) if face.concerns_arguments() => {
            let filled = faced(call, tool, face, asked.arguments.as_ref())?;
            if let (Some(filled), Request::CallTool(asked)) = (filled, &mut call.request) {
                asked.arguments = Some(filled);
            }
            Ok(())
        }
        _ => tool.definition.arguments.check(arguments).map_err(invalid),
    }
}

fn invalid(mismatch: Mismatch) -> Error {
    let place = if mismatch.pointer.is_empty() {
        "the arguments".to_owned()
    } else {
        format!("the argument at {}", mismatch.pointer)
    };
    Error::new(Code::InvalidArgs, format!("{place}: {}", mismatch.message))
        .with_pointer(mismatch.pointer)
}

// === Arguments that callers do not see ===

/// Checks arguments against what was published, and then, with all that the gateway sends of
/// itself, against the server's own schema. The arguments to send, where those are others.
fn faced(
    call: &Call,
    tool: &Tool,
    face: &Faced,
    given: Option<&Bytes>,
) -> Result<Option<Bytes>, Error> {
    let own = given.cloned().unwrap_or_else(|| Bytes::from_static(b"{}"));
    face.check(&own).map_err(invalid)?;
    let filled = face.fill(given, |template| value(call, template)).map_err(|unfilled| {
        let Unfilled { argument, unfit } = unfilled;
        let (why, reason) = match unfit {
            false => {
                ("must be told something of the caller that is not known", "argument_value_missing")
            }
            true => ("takes nothing like what is known of the caller", "argument_value_unfit"),
        };
        // Whoever calls cannot mend it, and does not see the argument.
        tracing::debug!(
            tool.name = &*tool.qualified,
            argument = &*argument,
            reason,
            "not filled in"
        );
        let message = format!("`{}` {why}", tool.name_on(&call.surface));
        Error::new(Code::PermissionDenied, message).with_reason(reason)
    })?;
    let whole = filled.as_ref().unwrap_or(&own);
    tool.definition.arguments.check(whole).map_err(|mismatch| {
        if face.withholds(&mismatch.pointer) {
            let name = tool.name_on(&call.surface);
            let message = format!("`{name}` takes nothing like what is known of the caller");
            return Error::new(Code::PermissionDenied, message).with_reason("argument_value_unfit");
        }
        // What is wrong with an argument quotes it; with all of them, the gateway's too.
        let message = match mismatch.pointer.is_empty() {
            true => mismatch.masked.clone(),
            false => mismatch.message,
        };
        invalid(Mismatch { message, ..mismatch })
    })?;
    Ok(filled)
}

/// What a template stands for in a call; `None` for nothing.
fn value(call: &Call, template: &HeaderTemplate) -> Option<String> {
    if template.parts().contains(&Part::RequestId) {
        let exchange = &call.exchange;
        exchange.facts().call_id.get_or_insert_with(|| ids::uuid_v7(exchange.started_ms));
    }
    let mut text = String::new();
    let fills = |part: &Part| part.write(Some(&call.caller), &call.exchange, &mut text);
    template.parts().iter().all(fills).then_some(text)
}

/// The keyed digest of the canonical arguments.
fn digest(arguments: &[u8], tenant: &TenantId, keys: &Keys) -> KeyedDigest {
    thread_local! {
        // One buffer a core: canonical arguments live for the length of a digest.
        static CANONICAL: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    CANONICAL.with_borrow_mut(|canonical| {
        canonical.clear();
        json::canonical(arguments, canonical);
        let digest = keys.args_hash(tenant, canonical);
        // A rare giant must not stay with the core for ever.
        if canonical.capacity() > 256 * 1024 {
            *canonical = Vec::new();
        }
        digest
    })
}
