//! Policy: what each caller may see and call.
//!
//! Files are read into documents, documents are compiled to [`Policies`], and these are bound to
//! a catalog: a [`Set`]. A [`View`] of the set is what one kind of caller sees; the decision on
//! a call and the list of tools come from the same bits. Nothing here knows a dialect, a
//! request or a clock.

mod bits;
mod compile;
mod decide;
mod document;
mod glob;
mod lint;
mod load;
mod shipped;

use std::sync::Arc;

use crate::model::exchange::DecisionKind;

pub use bits::BitSet;
pub use compile::{Policies, PolicyFile, Subject, ToolPolicy};
pub use decide::{Decision, Set, View};
pub use document::{
    Directory, Effect, Employee, LimitKey, LimitKind, LimitRule, RiskSet, Rule, Scope,
};
pub use glob::ToolGlob;
pub use lint::{KnownCaller, Surroundings};
pub use load::Loaded;
pub use shipped::shipped;

/// A tool's place in the catalog that a set is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolIndex(u32);

impl ToolIndex {
    /// A place that no catalog has is taken for one, and hidden.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// Why a decision is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    RuleAllow,
    /// No rule allows it.
    DefaultDeny,
    RuleDeny,
    /// Nobody has said what the tool may do.
    Unclassified,
}

impl Reason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::RuleAllow => "rule_allow",
            Reason::DefaultDeny => "default_deny",
            Reason::RuleDeny => "rule_deny",
            Reason::Unclassified => "unclassified",
        }
    }
}

/// Proof that policy lets something through. Only a [`View`] can make one:
///
/// ```compile_fail,E0451
/// fn forge(view: std::sync::Arc<hangu::policy::View>) -> hangu::policy::Permit {
///     hangu::policy::Permit { view, tool: None }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Permit {
    view: Arc<View>,
    tool: Option<ToolIndex>,
}

impl Permit {
    /// The tool that may be called; `None` for what names no tool.
    pub fn tool(&self) -> Option<ToolIndex> {
        self.tool
    }

    /// How calls of the tool are to be treated.
    pub fn policy(&self) -> Option<&ToolPolicy> {
        self.view.tool(self.tool?)
    }

    /// What the caller sees: a list shows this and nothing else.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The decision that this permit stands for.
    pub fn decision(&self) -> Option<Decision<'_>> {
        self.tool.map(|tool| self.view.decide(tool))
    }
}

/// Policy does not let the call through. To the caller the tool does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy hides the tool: {}", .reason.as_str())]
pub struct Refusal {
    pub kind: DecisionKind,
    pub reason: Reason,
    /// The id of the rule that decided, if one did.
    pub rule: Option<Arc<str>>,
}

#[cfg(test)]
mod tests;
