//! Policy: what each caller may see and call.
//!
//! Files are read into documents, documents are compiled to [`Policies`], and these are bound to
//! a catalog: a [`Set`]. A [`View`] of the set is what one kind of caller sees; the decision on
//! a call and the lists come from the same bits. Nothing here knows a dialect, a
//! request or a clock.

mod answer;
mod bits;
mod bound;
mod classes;
mod compile;
mod diff;
mod document;
mod explain;
mod flip;
mod glob;
mod library;
mod lint;
mod load;
mod named;
mod names;
mod predicate;
mod schema;
mod scope;
mod self_service;
mod set;
mod shipped;
mod spent;
mod suite;
mod uri;
mod view;
pub mod words;

use std::sync::Arc;

use crate::model::exchange::DecisionKind;

pub use answer::{Answered, Question};
pub use bits::BitSet;
pub use compile::{ItemPolicy, Policies, PolicyFile, Subject};
pub use diff::{About, Difference, DifferenceKind, Seer, diff};
pub use document::{
    Approval, Approvers, Asked, Case, Directory, Effect, Employee, Expected, ExpectedDecision,
    Globs, Injected, Language, LimitKey, LimitKind, LimitRule, Override, Parameter, Pin, QuotaRule,
    Reach, RiskSet, RoleRule, Rollout, Rule, Scope, Screen, SelfServiceRule, ShareRule, StoreDown,
};
pub use explain::{Explanation, Told, Verdict};
pub use flip::{Change, Flip};
pub use glob::ItemGlob;
pub use library::{Enforced, HeldFile, Library};
pub use lint::{KnownCaller, Surroundings};
pub use load::{Glance, Loaded, yaml_files};
pub use named::Named;
pub use predicate::{Pointer, Predicate, Scalar, Test};
pub use schema::schemas;
pub use self_service::{HostGlob, NotAllowed, NotAllowedReason, SelfService};
pub use set::Set;
pub use shipped::shipped;
pub use suite::{Asker, Bench, CaseOutcome, CaseResult, SuiteReport};
pub use view::{Decision, NotMeant, View};

/// What rules are about. All three share one space of indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Tools,
    Prompts,
    /// And resource templates.
    Resources,
}

impl Family {
    pub const ALL: [Family; 3] = [Family::Tools, Family::Prompts, Family::Resources];

    /// The key in policy files that is about it.
    pub const fn key(self) -> &'static str {
        match self {
            Family::Tools => "tools",
            Family::Prompts => "prompts",
            Family::Resources => "resources",
        }
    }

    /// One of it, in words.
    pub const fn one(self) -> &'static str {
        match self {
            Family::Tools => "tool",
            Family::Prompts => "prompt",
            Family::Resources => "resource",
        }
    }
}

/// An item's place in the catalog that a set is bound to: a tool, a prompt, a resource or a
/// resource template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemIndex(u32);

impl ItemIndex {
    /// A place that no catalog has is taken for one, and hidden.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// What may not be called whatever the rules say, and why.
pub type OnHold = (ItemIndex, Reason);

/// Why a decision is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    RuleAllow,
    /// No rule allows it.
    DefaultDeny,
    RuleDeny,
    /// A rule asks somebody first.
    RuleApproval,
    /// Nobody has said what it may do.
    Unclassified,
    /// Its definition is not one that was approved.
    PinMismatch,
    /// Its definition is not as policy wants it, and nobody has approved it.
    ToolQuality,
}

impl Reason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::RuleAllow => "rule_allow",
            Reason::DefaultDeny => "default_deny",
            Reason::RuleDeny => "rule_deny",
            Reason::RuleApproval => "rule_approval",
            Reason::Unclassified => "unclassified",
            Reason::PinMismatch => "pin_mismatch",
            Reason::ToolQuality => "tool_quality",
        }
    }
}

/// Proof that policy lets something through. Only a [`View`] can make one:
///
/// ```compile_fail,E0451
/// fn forge(permit: hangu::policy::Permit) -> hangu::policy::Permit {
///     hangu::policy::Permit { by: 0, ..permit }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Permit {
    view: Arc<View>,
    target: Target,
    /// The place of the rule that allows it.
    by: usize,
    asks: Box<[Arc<Rule>]>,
}

/// What is permitted.
#[derive(Debug, Clone)]
enum Target {
    /// What names no item.
    Listing,
    Item(ItemIndex),
    /// A resource that is in no catalog.
    Uri(Arc<view::Uncatalogued>),
}

impl Permit {
    /// What may be called, got or read; `None` for what names nothing in the catalog.
    pub fn item(&self) -> Option<ItemIndex> {
        match self.target {
            Target::Item(item) => Some(item),
            Target::Listing | Target::Uri(_) => None,
        }
    }

    /// How it is to be treated.
    pub fn policy(&self) -> Option<&ItemPolicy> {
        match &self.target {
            Target::Listing => None,
            Target::Item(item) => self.view.item(*item),
            Target::Uri(uri) => Some(&uri.policy),
        }
    }

    /// What the caller sees: a list shows this and nothing else.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The rule that allows it; `None` for what names no item.
    pub fn rule(&self) -> Option<&Arc<Rule>> {
        match self.target {
            Target::Listing => None,
            Target::Item(_) | Target::Uri(_) => self.view.allowed_by(self.by),
        }
    }

    /// The rules that still ask; see [`Pending::held`].
    pub fn asks(&self) -> &[Arc<Rule>] {
        &self.asks
    }

    /// The same permit, for whoever saw to it that every rule that asked is satisfied.
    #[must_use]
    pub fn satisfied(self) -> Self {
        Self { asks: Box::default(), ..self }
    }
}

/// A call that may run once somebody has said yes.
#[derive(Debug, Clone)]
pub struct Pending(Permit);

impl Pending {
    /// The rules that ask, each with its [`Approval`]: all must be satisfied.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.0.asks
    }

    pub fn item(&self) -> Option<ItemIndex> {
        self.0.item()
    }

    /// The permit, for whoever sees to it that nothing leaves before every rule of
    /// [`Permit::asks`] is satisfied.
    pub fn held(self) -> Permit {
        self.0
    }
}

/// Policy does not let the call through.
#[derive(Debug, Clone, thiserror::Error)]
#[error("policy does not let it through: {}", .reason.as_str())]
pub struct Refusal {
    /// Hidden: to the caller what he names does not exist. Denied: he sees it, and may not with
    /// these arguments. Or it waits for approval.
    pub kind: DecisionKind,
    pub reason: Reason,
    /// The rule that decided, if one did.
    pub rule: Option<Arc<Rule>>,
    /// What can be let through after approval.
    pub pending: Option<Pending>,
}

#[cfg(test)]
mod tests;
