//! What would happen to a call that is only a dry run: told here, and nothing goes further.
//!
//! Every check above has been made and has charged nothing; what they found stands in the call's
//! [`Trial`]. A call that one of them refuses never gets here: its refusal is the answer.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::Either;
use serde_json::{Map, Value, json};
use tower::{Layer, Service};

use super::stage::{Permitted, Trial};
use crate::{
    dialect::north,
    error::{Code, Error},
    json::{self, Doc},
    mcp::{Version, meta},
    model::{
        call::Request,
        reply::{Reply, ResultBody},
    },
};

/// Answers dry runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct DryRunLayer;

impl<S> Layer<S> for DryRunLayer {
    type Service = DryRun<S>;

    fn layer(&self, inner: S) -> DryRun<S> {
        DryRun { inner }
    }
}

#[derive(Debug, Clone)]
pub struct DryRun<S> {
    inner: S,
}

impl<S> Service<Permitted> for DryRun<S>
where
    S: Service<Permitted, Response = Reply, Error = Error>,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<Ready<Result<Reply, Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut permitted: Permitted) -> Self::Future {
        match permitted.trial.take() {
            // What needs no server has no effect that could be left out.
            Some(trial) if matches!(permitted.call.request, Request::CallTool(_)) => {
                Either::Left(ready(told(&permitted, &trial)))
            }
            _ => Either::Right(self.inner.call(permitted)),
        }
    }
}

/// The answer of a dry run.
fn told(permitted: &Permitted, trial: &Trial) -> Result<Reply, Error> {
    let Request::CallTool(call) = &permitted.call.request else { return Err(lost()) };
    let (would_run, sentence) = sentence(&call.name, trial);
    let (decision, trace_id) = {
        let facts = permitted.call.exchange.facts();
        (facts.decision.map(|decision| decision.as_str()), facts.trace.trace_id_hex())
    };
    let mut found = Map::new();
    let mut put = |name: &str, value: Value| {
        found.insert(name.to_owned(), value);
    };
    put("dryRun", true.into());
    put("wouldRun", would_run.into());
    put("tool", (&*call.name).into());
    put("risk", permitted.risk().as_str().into());
    put("decision", decision.into());
    if let Some(approval) = &trial.approval {
        let mut told = json!({ "state": approval.state, "confirm": approval.confirm });
        if let Some(id) = &approval.id {
            told["approvalId"] = (&**id).into();
        }
        put("approval", told);
    }
    if let Some(word) = trial.idempotency {
        put("idempotency", word.into());
    }
    put("traceId", trace_id.into());
    let found = Value::Object(found);
    let structured = permitted.tool.as_ref().is_none_or(|t| !t.definition.has_output_schema);
    let knows = permitted.call.dialect.version().is_none_or(|v| v >= Version::V2025_06_18);
    let mut result = json!({
        "content": [{ "type": "text", "text": sentence }],
        // Clients that check results by the tool's schema let an error alone pass without one.
        "isError": !structured,
        "_meta": { meta::DRY_RUN: found },
    });
    if structured && knows {
        result["structuredContent"] = found;
    }
    let raw = Bytes::from(serde_json::to_vec(&result).map_err(|error| lost().with_cause(error))?);
    let limits = json::Limits { depth: 16, duplicates: json::Duplicates::Allow, outline: 2 };
    let doc = Doc::parse(raw.clone(), &limits).map_err(|_| lost())?;
    let shape = north::shape(doc.root());
    Ok(Reply::result(ResultBody::upstream(raw, shape)))
}

/// Whether the call would leave at once, and what would happen in one sentence.
fn sentence(tool: &str, trial: &Trial) -> (bool, String) {
    let said = |what: &str| format!("Dry run of `{tool}`: {what} Nothing was sent.");
    if trial.idempotency == Some("replayed") {
        return (
            false,
            said("the result that is kept under its idempotency key would be answered."),
        );
    }
    match &trial.approval {
        None => (true, said("the call would be made.")),
        Some(approval) => match (approval.state, approval.confirm) {
            ("approved", false) => (true, said("the call is approved and would be made.")),
            ("approved", true) => {
                (false, said("the call is approved, and its client would be asked to confirm it."))
            }
            ("refused", _) => (false, said("its approval was refused, so it would be, too.")),
            ("waiting", _) => (false, said("it waits for approval, and would not be made yet.")),
            ("confirmation", _) => (false, said("its client would be asked to confirm it first.")),
            _ => (false, said("somebody would be asked to approve it first.")),
        },
    }
}

fn lost() -> Error {
    Error::new(Code::Internal, "a dry run could not be told")
}
