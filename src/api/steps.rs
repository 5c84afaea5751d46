//! `/v1/steps`: compiling declarative steps, and running what was compiled here.
//!
//! What steps are, the engine knows. Here it is told which tools there are (`known.rs`) and makes
//! its calls (`make.rs`), each of which enters the stack at `policy`; the request itself leaves a
//! record too, and all of them name the run.

mod known;
mod make;
mod told;

use std::sync::Arc;

use http::Response;
use tokio::time::{Instant, timeout_at};

use self::{
    known::Known,
    make::{Maker, Within},
};
use super::{
    answer,
    calls::{ToolCalls, never_tried, one_header, source},
    input::{self, Input, wrong},
};
use crate::{
    body::Body,
    error::{Code, Error},
    json::{Kind, Value},
    mcp::header,
    model::{call_source::CallSource, caller::Caller, ids},
    stack::v1::{ApiRequest, Calls},
    steps::{
        Compiled, Ended, Fault, FaultKind, Keys, Limits, MAX_FAULTS, NotCompiled, Outcome, Page,
        Run, Step, Variables, compile,
    },
};

/// Compiles and runs steps.
pub struct StepsApi {
    pub keys: Arc<Keys>,
    /// Of one list.
    pub max_steps: usize,
    /// Of one run.
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Compile,
    Run,
}

/// What a run is asked for.
struct Asked {
    compiled: Compiled,
    only: Option<u64>,
    page: Page,
    variables: Variables,
    run: u128,
}

// === impl StepsApi ===

impl StepsApi {
    pub(super) async fn answer(
        &self,
        tools: &ToolCalls,
        target: Target,
        request: &ApiRequest,
        calls: Calls,
    ) -> Result<Response<Body>, Error> {
        input::query(request.parts.uri.query(), [])?;
        match target {
            Target::Compile => self.compile(tools, request).await,
            Target::Run => self.run(tools, request, calls).await,
        }
    }

    /// Makes no call: who may run the steps, and with which credentials, is of no matter here.
    async fn compile(
        &self,
        tools: &ToolCalls,
        request: &ApiRequest,
    ) -> Result<Response<Body>, Error> {
        let input = Input::read(&request.parts.headers, request.body.clone(), &["steps"])?;
        let Some(steps) = input.value("steps") else {
            return Err(
                wrong("`steps` is missing: a list of steps".to_owned()).with_pointer("/steps")
            );
        };
        let compiled = self.compiled(tools, steps, &request.caller).await?;
        let (text, _) = compiled.write(&request.caller.tenant, &self.keys);
        Ok(answer([b"{\"compiled\":", &*text, b"}"].concat()))
    }

    /// Where a server is being listed for the first time, this waits for it, as calls do.
    async fn compiled(
        &self,
        tools: &ToolCalls,
        steps: Value<'_>,
        caller: &Caller,
    ) -> Result<Compiled, Error> {
        let (began, mut changes) = (Instant::now(), tools.worlds.watch());
        loop {
            let world = tools.worlds.current();
            let own = tools.own_world(&world, caller).await?;
            let known = Known { world, own, upstreams: &tools.upstreams, caller };
            let faults = match compile(steps, &known, self.max_steps) {
                Ok(compiled) => return Ok(compiled),
                Err(faults) => faults,
            };
            let is_unlisted = faults.iter().any(|fault| fault.kind == FaultKind::NotListed);
            let wait = known.pending().filter(|_| is_unlisted);
            let Some(wait) = wait else { return Err(faulty(&faults)) };
            let changed = timeout_at(began + wait, changes.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                return Err(faulty(&faults));
            }
        }
    }

    async fn run(
        &self,
        tools: &ToolCalls,
        request: &ApiRequest,
        calls: Calls,
    ) -> Result<Response<Body>, Error> {
        source(request, CallSource::Script)?;
        let exchange = &request.exchange;
        let Asked { compiled, only, page, variables, run } = self.read(tools, request)?;
        exchange.facts().run_id = Some(run);
        let asked =
            Run { id: run, compiled: &compiled, only, page, variables, limits: self.limits };
        let mut maker = Maker { within: Within { tools, request }, calls };
        let outcome = asked.go(&mut maker).await;
        note(request, &outcome);
        let trace_id = exchange.facts().trace.trace_id_hex();
        Ok(answer(told::run(run, &outcome, &trace_id)))
    }

    fn read(&self, tools: &ToolCalls, request: &ApiRequest) -> Result<Asked, Error> {
        const MEMBERS: [&str; 5] = ["compiled", "stepIndex", "context", "variables", "runId"];
        alone(request)?;
        let input = Input::read(&request.parts.headers, request.body.clone(), &MEMBERS)?;
        let run = match input.text("runId", 36)? {
            Some(text) => read_uuid(&text).ok_or_else(|| {
                let message = "`runId` is that of an earlier answer, to go on with its run";
                wrong(message.to_owned()).with_pointer("/runId")
            })?,
            None => ids::uuid_v7(tools.clock.now_ms()),
        };
        request.exchange.facts().run_id = Some(run);
        let Some(compiled) = input.value("compiled") else {
            let message = "`compiled` is missing: what /v1/steps/compile answers";
            return Err(wrong(message.to_owned()).with_pointer("/compiled"));
        };
        let compiled = Compiled::open(compiled, &request.caller.tenant, &self.keys);
        let compiled = compiled.map_err(|fault| {
            let reason = match fault {
                NotCompiled::Differs | NotCompiled::UnknownKey => "steps_digest",
                NotCompiled::Form(_) | NotCompiled::Unread(_) => "steps_form",
            };
            wrong(fault.to_string()).with_reason(reason).with_pointer("/compiled")
        })?;
        let only = match input.value("stepIndex") {
            Some(value) => {
                let index = value.as_i64().and_then(|index| u64::try_from(index).ok());
                Some(
                    one(&compiled, index)
                        .map_err(|message| wrong(message.to_owned()).with_pointer("/stepIndex"))?,
                )
            }
            None => None,
        };
        for name in ["context", "variables"] {
            if input.value(name).is_some_and(|value| value.kind() != Kind::Object) {
                return Err(
                    wrong(format!("`{name}` must be an object")).with_pointer(format!("/{name}"))
                );
            }
        }
        let page = input.value("context").map(Page::read).unwrap_or_default();
        let variables = input.value("variables").map(Variables::read).unwrap_or_default();
        let most = self.limits.max_variables;
        if variables.size() > most {
            let message =
                format!("`variables` are larger than the {most} bytes that a run may hold");
            return Err(Error::new(Code::PayloadTooLarge, message).with_pointer("/variables"));
        }
        Ok(Asked { compiled, only, page, variables, run })
    }
}

/// The step that is to run alone.
fn one(compiled: &Compiled, index: Option<u64>) -> Result<u64, &'static str> {
    let index = index.ok_or("`stepIndex` is a whole number from 0 up")?;
    let mut steps = compiled.steps.iter();
    match steps.find(|step| step.index() == Some(index)) {
        Some(Step::Call(_)) => Ok(index),
        Some(Step::Other(_)) => Err("this step is of another type: it is not run here"),
        None => Err("no step has this `stepIndex`"),
    }
}

/// What says something of one call says nothing of a run.
fn alone(request: &ApiRequest) -> Result<(), Error> {
    if one_header(request, &header::IDEMPOTENCY_KEY)?.is_some() {
        let message = "a run makes several calls, so it takes no Idempotency-Key: give the `runId` \
                       of its first answer to go on with it, or bind `idempotencyKey` in a step";
        return Err(wrong(message.to_owned()));
    }
    let why = "steps need each other's results, so a run cannot be only tried: try single calls \
               with /v1/invoke";
    never_tried(request, why)
}

fn read_uuid(text: &str) -> Option<u128> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let uuid = u128::from_str_radix(&digits, 16).ok()?;
    (ids::uuid_text(uuid) == text).then_some(uuid)
}

/// What the request's own record says of a run that did not end well: as its last step's.
fn note(request: &ApiRequest, outcome: &Outcome<'_>) {
    if outcome.ended == Ended::Completed {
        return;
    }
    let mut failed = outcome.reports.iter().rev().filter_map(|report| report.finding.as_ref());
    if let Some(finding) = failed.next() {
        request.exchange.facts().failed(&finding.error);
    }
}

/// All faults at once; the first one is the message.
fn faulty(faults: &[Fault]) -> Error {
    let shown = faults.iter().take(MAX_FAULTS).map(|fault| {
        serde_json::json!({
            "stepIndex": fault.step,
            "pointer": fault.pointer,
            "fault": fault.kind.as_str(),
            "message": fault.message,
        })
    });
    let list = serde_json::Value::Array(shown.collect());
    let first = faults.first();
    let what = first.map(ToString::to_string).unwrap_or_default();
    let message = match faults.len() {
        1 => what,
        MAX_FAULTS.. => format!("{MAX_FAULTS} faults or more, of which the first is: {what}"),
        more => format!("{more} faults, of which the first is: {what}"),
    };
    let error = wrong(message).with_faults(list.to_string());
    match first {
        Some(fault) => error.with_pointer(fault.pointer.clone()),
        None => error,
    }
}
