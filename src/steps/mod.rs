//! Declarative `mcpCall` steps: as they are written, as they are compiled, and how they run.
//!
//! A step is read with all its faults (`read.rs`), checked against the tools that there are
//! (`compile.rs`), written in one canonical form under a keyed digest (`written.rs`, `keys.rs`),
//! and run by resolving its bindings (`bind.rs`) and calling in order (`run.rs`). Which tools
//! there are, and how a call is made, is known to whoever uses this engine.

mod bind;
mod compile;
mod compiled;
mod constant;
mod keys;
mod known;
mod path;
mod read;
mod run;
#[cfg(test)]
mod tests;
mod written;

use std::fmt;

use bytes::Bytes;

pub use bind::{Page, Unbound, Variables};
pub use compile::{Found, Misfit, Tools, Unfound, Validator, compile};
pub use compiled::{Compiled, NotCompiled};
pub use keys::{DigestFault, Keys};
pub use path::Path;
pub use read::read;
pub use run::{
    Asked, CallFacts, Called, Calls, Ended, Finding, Limits, Outcome, Report, Run, State,
};

/// Faults that are told at once: beyond them steps are not looked at any further.
pub const MAX_FAULTS: usize = 200;

/// The type of the steps that are run here.
pub const MCP_CALL: &str = "mcpCall";

/// One step of a list.
#[derive(Debug, Clone)]
pub enum Step {
    Call(Box<Call>),
    /// Somebody else runs it.
    Other(Other),
}

/// A step that calls a tool.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its `stepIndex`.
    pub index: u64,
    /// Its place in the list.
    pub place: usize,
    pub server_key: Box<str>,
    pub tool: Box<str>,
    /// Sorted by name.
    pub inputs: Vec<Input>,
    pub save_as: Option<Box<str>>,
    pub policy: FailurePolicy,
    /// Where its idempotency key comes from, if it says so.
    pub key: Option<Binding>,
}

/// A step of another type, as it was written.
#[derive(Debug, Clone)]
pub struct Other {
    pub place: usize,
    pub index: Option<u64>,
    pub kind: Box<str>,
    pub raw: Bytes,
    /// The variable that whoever runs it gives back.
    pub save_as: Option<Box<str>>,
}

/// What becomes of a run whose step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    /// It ends.
    #[default]
    Required,
    /// It goes on, with null.
    Optional,
}

/// An argument, and where its value comes from.
#[derive(Debug, Clone)]
pub struct Input {
    pub name: Box<str>,
    pub binding: Binding,
}

/// Where a value comes from.
#[derive(Debug, Clone)]
pub enum Binding {
    /// JSON, as it was written.
    Const(Bytes),
    /// A parameter of the page's query, or all of its address.
    PageUrl(Option<Box<str>>),
    /// A field of the page's context, and where in it.
    Page { field: Box<str>, path: Path },
    /// What an earlier step saved, and where in it.
    Step { name: Box<str>, path: Path },
}

/// What is wrong with steps as they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The step's `stepIndex`, if it has one.
    pub step: Option<u64>,
    /// JSON pointer from the list's parent: `/steps/0/…`.
    pub pointer: String,
    pub kind: FaultKind,
    /// Without any constant's value.
    pub message: String,
}

/// The kinds of faults, as programs see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    BadStep,
    MissingMember,
    UnknownMember,
    BadValue,
    DuplicateIndex,
    StepOrder,
    DuplicateVariable,
    UnknownSource,
    BadPath,
    UnknownVariable,
    UsedBeforeDefined,
    UnknownServer,
    UnknownTool,
    NotListed,
    NotApproved,
    MissingInput,
    UnknownInput,
    WrongValue,
    Credential,
    TooMany,
}

// === impl Step ===

impl Step {
    pub fn index(&self) -> Option<u64> {
        match self {
            Step::Call(call) => Some(call.index),
            Step::Other(other) => other.index,
        }
    }

    /// The variable that is there once the step has run.
    pub fn save_as(&self) -> Option<&str> {
        match self {
            Step::Call(call) => call.save_as.as_deref(),
            Step::Other(other) => other.save_as.as_deref(),
        }
    }
}

// === impl Call ===

impl Call {
    /// Where the step stands.
    pub fn pointer(&self) -> String {
        format!("/steps/{}", self.place)
    }

    /// Where the binding of an input stands.
    pub fn input_pointer(&self, input: &str) -> String {
        format!("{}/mcp/inputBindings/{}", self.pointer(), path::escaped(input))
    }

    /// Where the binding of the idempotency key stands.
    pub fn key_pointer(&self) -> String {
        format!("{}/mcp/idempotencyKey", self.pointer())
    }
}

// === impl FailurePolicy ===

impl FailurePolicy {
    const ALL: [FailurePolicy; 2] = [FailurePolicy::Required, FailurePolicy::Optional];

    pub const fn as_str(self) -> &'static str {
        match self {
            FailurePolicy::Required => "required",
            FailurePolicy::Optional => "optional",
        }
    }
}

// === impl FaultKind ===

impl FaultKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            FaultKind::BadStep => "bad_step",
            FaultKind::MissingMember => "missing_member",
            FaultKind::UnknownMember => "unknown_member",
            FaultKind::BadValue => "bad_value",
            FaultKind::DuplicateIndex => "duplicate_step_index",
            FaultKind::StepOrder => "step_order",
            FaultKind::DuplicateVariable => "duplicate_variable",
            FaultKind::UnknownSource => "unknown_source",
            FaultKind::BadPath => "bad_path",
            FaultKind::UnknownVariable => "unknown_variable",
            FaultKind::UsedBeforeDefined => "used_before_defined",
            FaultKind::UnknownServer => "unknown_server",
            FaultKind::UnknownTool => "unknown_tool",
            FaultKind::NotListed => "not_listed",
            FaultKind::NotApproved => "not_approved",
            FaultKind::MissingInput => "missing_input",
            FaultKind::UnknownInput => "unknown_input",
            FaultKind::WrongValue => "wrong_value",
            FaultKind::Credential => "credential",
            FaultKind::TooMany => "too_many_steps",
        }
    }
}

// === impl Fault ===

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}, {}: {}", self.pointer, self.message),
            None => write!(f, "{}: {}", self.pointer, self.message),
        }
    }
}
