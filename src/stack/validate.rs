//! Arguments against the pinned schema, and their keyed digest for everything that records them.
//!
//! The arguments themselves are not changed.

use std::{
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use tower::{Layer, Service};

use super::stage::Permitted;
use crate::{
    audit::Keys,
    error::{Code, Error},
    json,
    model::{call::Request, caller::TenantId, exchange::KeyedDigest, reply::Reply},
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
    type Future = Either<Ready<Result<Reply, Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, permitted: Permitted) -> Self::Future {
        match check(&permitted, &self.keys) {
            Ok(()) => Either::Right(self.inner.call(permitted)),
            Err(error) => Either::Left(ready(Err(error))),
        }
    }
}

fn check(permitted: &Permitted, keys: &Keys) -> Result<(), Error> {
    let (Some(tool), Request::CallTool(call)) = (&permitted.tool, &permitted.call.request) else {
        return Ok(());
    };
    let arguments = call.arguments.as_deref().unwrap_or(b"{}");
    let digest = digest(arguments, &permitted.call.caller.tenant, keys);
    permitted.call.exchange.facts().args_hash = Some(digest);
    tool.definition.arguments.check(arguments).map_err(|mismatch| {
        let place = if mismatch.pointer.is_empty() {
            "the arguments".to_owned()
        } else {
            format!("the argument at {}", mismatch.pointer)
        };
        Error::new(Code::InvalidArgs, format!("{place}: {}", mismatch.message))
            .with_pointer(mismatch.pointer)
    })
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
