//! Runs compiled steps: resolves the bindings of each when it is reached, calls, saves, goes on.
//!
//! Nothing is looked at ahead: what a step needs, whoever makes its call finds out. A run that is
//! dropped begins no further step, and the call under way is dropped with it.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{Binding, Call, Compiled, FailurePolicy, Page, Step, Unbound, Variables, bind::saved};
use crate::{
    error::{Code, Error},
    json::write_str,
    model::{exchange::KeyedDigest, ids},
};

/// Makes the calls of a run.
pub trait Calls {
    /// Makes one call, which is given up at the deadline.
    fn call(&mut self, asked: Asked<'_>) -> impl Future<Output = Called> + Send;
}

/// The call of a step that was reached.
#[derive(Debug)]
pub struct Asked<'a> {
    pub call: &'a Call,
    /// The digest of the definition that the step was compiled against.
    pub definition: Option<[u8; 32]>,
    /// A JSON object.
    pub arguments: Bytes,
    /// The idempotency key that a binding gives.
    pub key: Option<Box<str>>,
    /// The key for a tool that must have one and is given none: the same for this step whenever
    /// the run goes on.
    pub own_key: Box<str>,
    pub deadline: Instant,
}

/// What a call came back with.
#[derive(Debug)]
pub struct Called {
    pub facts: CallFacts,
    /// The tool's result, an object.
    pub end: Result<Bytes, Finding>,
}

/// What is known of a call, for the report.
#[derive(Debug, Default)]
pub struct CallFacts {
    pub call_id: Option<u128>,
    pub args_hash: Option<KeyedDigest>,
    pub result_ref: Option<KeyedDigest>,
    /// The stored result of the first call with this key.
    pub replayed: bool,
    /// The tool's definition is another than the step was compiled against.
    pub redefined: bool,
}

/// Why a step failed.
#[derive(Debug)]
pub struct Finding {
    pub error: Error,
    /// What the tool said, where it is the tool that failed.
    pub result: Option<Bytes>,
}

/// Bounds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For all of it.
    pub max_time: Duration,
    /// For the values of all variables, in bytes.
    pub max_variables: usize,
}

/// A run that is to be made.
#[derive(Debug)]
pub struct Run<'a> {
    pub id: u128,
    pub compiled: &'a Compiled,
    /// Only this step, by its `stepIndex`.
    pub only: Option<u64>,
    pub page: Page,
    pub variables: Variables,
    pub limits: Limits,
}

/// What became of a run.
#[derive(Debug)]
pub struct Outcome<'a> {
    pub ended: Ended,
    pub variables: Variables,
    /// Of each step that was to run, in order.
    pub reports: Vec<Report<'a>>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Completed,
    /// A required step failed.
    Failed,
    OutOfTime,
}

/// What became of a step.
#[derive(Debug)]
pub struct Report<'a> {
    pub step: &'a Step,
    pub state: State,
    /// Of a call that was made, or refused.
    pub facts: Option<CallFacts>,
    pub latency: Option<Duration>,
    pub finding: Option<Finding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Ok,
    Failed,
    NotReached,
    /// It is of another type: somebody else runs it.
    Other,
}

// === impl Run ===

impl<'a> Run<'a> {
    /// Runs the steps, in order.
    pub async fn go(mut self, calls: &mut (impl Calls + Send)) -> Outcome<'a> {
        let deadline = Instant::now() + self.limits.max_time;
        let compiled = self.compiled;
        let (mut reports, mut stopped) = (Vec::new(), None);
        for step in &compiled.steps {
            if self.only.is_some() && step.index() != self.only {
                continue;
            }
            let report = |state| Report { step, state, facts: None, latency: None, finding: None };
            let call = match step {
                Step::Other(_) => {
                    reports.push(report(State::Other));
                    continue;
                }
                Step::Call(call) => call,
            };
            if stopped.is_none() && Instant::now() >= deadline {
                stopped = Some(Ended::OutOfTime);
            }
            if stopped.is_some() {
                reports.push(report(State::NotReached));
                continue;
            }
            let begun = Instant::now();
            let Called { facts, end } = self.step(call, deadline, calls).await;
            let latency = Some(begun.elapsed());
            let end = end.and_then(|result| self.keep(call, &result));
            let state = if end.is_ok() { State::Ok } else { State::Failed };
            if end.is_err() {
                match call.policy {
                    _ if Instant::now() >= deadline => stopped = Some(Ended::OutOfTime),
                    FailurePolicy::Required => stopped = Some(Ended::Failed),
                    FailurePolicy::Optional => self.keep_nothing(call),
                }
            }
            reports.push(Report { step, state, facts: Some(facts), latency, finding: end.err() });
        }
        let ended = stopped.unwrap_or(Ended::Completed);
        Outcome { ended, variables: self.variables, reports }
    }

    async fn step(
        &self,
        call: &'a Call,
        deadline: Instant,
        calls: &mut (impl Calls + Send),
    ) -> Called {
        let resolved = self.arguments(call).and_then(|arguments| Ok((arguments, self.key(call)?)));
        match resolved {
            Ok((arguments, key)) => {
                let asked = Asked {
                    call,
                    definition: self.compiled.definitions.get(&call.index).copied(),
                    arguments,
                    key,
                    own_key: own_key(self.id, call.index),
                    deadline,
                };
                calls.call(asked).await
            }
            Err(error) => {
                let finding = Finding { error, result: None };
                Called { facts: CallFacts::default(), end: Err(finding) }
            }
        }
    }

    /// The values of all inputs, as one object.
    fn arguments(&self, call: &Call) -> Result<Bytes, Error> {
        let mut out = vec![b'{'];
        for input in &call.inputs {
            let value = self.resolve(&input.binding, call, || {
                (format!("the input `{}`", input.name), call.input_pointer(&input.name))
            })?;
            if out.len() > 1 {
                out.push(b',');
            }
            write_str(&mut out, &input.name);
            out.push(b':');
            out.extend_from_slice(&value);
        }
        out.push(b'}');
        Ok(out.into())
    }

    fn key(&self, call: &Call) -> Result<Option<Box<str>>, Error> {
        let Some(binding) = &call.key else { return Ok(None) };
        let place = || ("the idempotency key".to_owned(), call.key_pointer());
        let value = self.resolve(binding, call, place)?;
        match serde_json::from_slice::<String>(&value) {
            Ok(key) => Ok(Some(key.into())),
            Err(_) => {
                let message = format!("step {}: the idempotency key is no text", call.index);
                Err(Error::new(Code::InvalidArgs, message).with_pointer(call.key_pointer()))
            }
        }
    }

    fn resolve(
        &self,
        binding: &Binding,
        call: &Call,
        place: impl FnOnce() -> (String, String),
    ) -> Result<Bytes, Error> {
        binding.resolve(&self.page, &self.variables).map_err(|Unbound { member, message }| {
            let (what, pointer) = place();
            let message = format!("step {}: {what} has no value: {message}", call.index);
            let pointer = format!("{pointer}/{member}");
            Error::new(Code::InvalidArgs, message).with_pointer(pointer)
        })
    }

    /// Saves what a call brought, if the step says so and there is room.
    fn keep(&mut self, call: &Call, result: &Bytes) -> Result<Bytes, Finding> {
        let Some(name) = &call.save_as else { return Ok(Bytes::new()) };
        let value = saved(result);
        let before = self.variables.get(name).map_or(0, Bytes::len);
        if self.variables.size() - before + value.len() > self.limits.max_variables {
            let message = format!(
                "step {} was called, and its result finds no room among the variables, which hold \
                 {} bytes at most",
                call.index, self.limits.max_variables
            );
            let error = Error::new(Code::PayloadTooLarge, message);
            return Err(Finding { error, result: None });
        }
        self.variables.set(name, value.clone());
        Ok(value)
    }

    fn keep_nothing(&mut self, call: &Call) {
        if let Some(name) = &call.save_as {
            self.variables.set(name, Bytes::from_static(b"null"));
        }
    }
}

/// One key for one step of one run.
fn own_key(run: u128, step: u64) -> Box<str> {
    let digest = Sha256::new_with_prefix("hangu step key v1\0")
        .chain_update(run.to_be_bytes())
        .chain_update(step.to_be_bytes())
        .finalize();
    let [start @ .., _, _, _, _, _, _, _, _] = <[u8; 32]>::from(digest);
    let digits = ids::hex::<24, 48>(start);
    format!("step-{}", String::from_utf8_lossy(&digits)).into()
}

// === impl Ended, State ===

impl Ended {
    pub const fn as_str(self) -> &'static str {
        match self {
            Ended::Completed => "completed",
            Ended::Failed => "failed",
            Ended::OutOfTime => "out_of_time",
        }
    }
}

impl State {
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Failed => "failed",
            State::NotReached => "not_reached",
            State::Other => "other_type",
        }
    }
}

// === impl Asked ===

impl Asked<'_> {
    /// The arguments with one more, unless it is there.
    pub fn arguments_with(&self, name: &str, text: &str) -> Bytes {
        if self.call.inputs.iter().any(|input| *input.name == *name) {
            return self.arguments.clone();
        }
        let mut out = Vec::with_capacity(self.arguments.len() + name.len() + text.len() + 8);
        out.extend_from_slice(self.arguments.strip_suffix(b"}").unwrap_or(&self.arguments));
        if out.len() > 1 {
            out.push(b',');
        }
        write_str(&mut out, name);
        out.push(b':');
        write_str(&mut out, text);
        out.push(b'}');
        out.into()
    }
}
