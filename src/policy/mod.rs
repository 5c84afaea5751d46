//! Policy: what each caller may see and call.
//!
//! Files are read into documents, documents are compiled to [`Policies`], and these are bound to
//! a catalog: a [`Set`]. A [`View`] of the set is what one kind of caller sees; the decision on
//! a call and the lists come from the same bits. Nothing here knows a dialect, a
//! request or a clock.

mod bits;
mod compile;
mod decide;
mod document;
mod glob;
mod lint;
mod load;
mod shipped;
mod uri;

use std::sync::Arc;

use crate::model::exchange::DecisionKind;

pub use bits::BitSet;
pub use compile::{ItemPolicy, Policies, PolicyFile, Subject};
pub use decide::{Decision, Set, View};
pub use document::{
    Directory, Effect, Employee, Globs, LimitKey, LimitKind, LimitRule, Reach, RiskSet, Rule, Scope,
};
pub use glob::ItemGlob;
pub use lint::{KnownCaller, Surroundings};
pub use load::Loaded;
pub use shipped::shipped;

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
///     hangu::policy::Permit { view, target: todo!() }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Permit {
    view: Arc<View>,
    target: Target,
}

/// What is permitted.
#[derive(Debug, Clone)]
enum Target {
    /// What names no item.
    Listing,
    Item(ItemIndex),
    /// A resource that is in no catalog.
    Uri(Arc<decide::Uncatalogued>),
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

    /// The decision that this permit stands for.
    pub fn decision(&self) -> Option<Decision<'_>> {
        match &self.target {
            Target::Listing => None,
            Target::Item(item) => Some(self.view.decide(*item)),
            Target::Uri(uri) => Some(self.view.decided(uri)),
        }
    }
}

/// Policy does not let the call through. To the caller what it names does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy hides it: {}", .reason.as_str())]
pub struct Refusal {
    pub kind: DecisionKind,
    pub reason: Reason,
    /// The id of the rule that decided, if one did.
    pub rule: Option<Arc<str>>,
}

#[cfg(test)]
mod tests;
