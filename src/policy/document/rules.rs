//! Rules: who may and who may not.

use std::sync::Arc;

use super::{Scope, narrowing, read_id};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::{
        caller::{CallerId, Role},
        server::Risk,
    },
    policy::{Family, glob::ItemGlob},
    yaml::{MapReader, Node, Spanned, Words},
};

/// A rule. What is absent does not narrow.
#[derive(Debug)]
pub struct Rule {
    pub id: Arc<str>,
    pub at: Span,
    pub scope: Scope,
    pub effect: Effect,
    pub roles: Option<Vec<Spanned<Role>>>,
    pub callers: Option<Vec<Spanned<CallerId>>>,
    pub risk: Option<RiskSet>,
    pub globs: Globs,
    /// Why, in a sentence for people.
    pub say: Option<Arc<str>>,
}

/// Which tools, prompts and resources a rule is about. With no list at all it is about all of
/// them, else only about the families that have one.
#[derive(Debug, Clone, Default)]
pub struct Globs {
    pub tools: Option<Vec<ItemGlob>>,
    pub prompts: Option<Vec<ItemGlob>>,
    pub resources: Option<Vec<ItemGlob>>,
}

/// What a rule is about within one family.
#[derive(Debug, Clone, Copy)]
pub enum Reach<'r> {
    All,
    Nothing,
    Globs(&'r [ItemGlob]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    Allow,
    Deny,
}

/// A set of risk classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RiskSet(u8);

const EFFECTS: Words<Effect> = Words {
    what: "effect",
    code: FaultCode::BadValue,
    known: &[("allow", Effect::Allow), ("deny", Effect::Deny)],
    later: &["require_approval"],
};

/// The longest `say`, in bytes.
const MAX_SAY: usize = 500;

impl Rule {
    pub(super) fn read(node: &Node, scope: &Scope, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        map.later(&["when", "approval"], faults);
        let id = read_id(&mut map, faults);
        let effect = map.required_node("effect", faults).and_then(|n| EFFECTS.read(n, faults));
        let roles = narrowing(&mut map, "roles", faults);
        let callers = narrowing(&mut map, "callers", faults);
        let risk = narrowing(&mut map, "risk", faults);
        let globs = Globs::read(&mut map, faults);
        let say = map.optional::<Spanned<String>>("say", faults);
        map.finish(faults);
        if let Some(say) = say.as_ref().filter(|say| say.value.len() > MAX_SAY) {
            faults.add(FaultCode::BadValue, &say.at, format!("longer than {MAX_SAY} bytes"));
        }
        let (id, at) = id?;
        Some(Self {
            id,
            at,
            scope: scope.clone(),
            effect: effect?,
            roles,
            callers,
            risk: risk.map(|risks: Vec<Risk>| risks.into_iter().collect()),
            globs,
            say: say.map(|say| say.value.into()),
        })
    }
}

// === impl Globs ===

impl Globs {
    fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Self {
        Self {
            tools: narrowing(map, Family::Tools.key(), faults),
            prompts: narrowing(map, Family::Prompts.key(), faults),
            resources: narrowing(map, Family::Resources.key(), faults),
        }
    }

    pub fn of(&self, family: Family) -> Reach<'_> {
        let own = match family {
            Family::Tools => &self.tools,
            Family::Prompts => &self.prompts,
            Family::Resources => &self.resources,
        };
        match own {
            Some(globs) => Reach::Globs(globs),
            None if self.is_empty() => Reach::All,
            None => Reach::Nothing,
        }
    }

    /// Whether the rule names no family.
    pub fn is_empty(&self) -> bool {
        self.tools.is_none() && self.prompts.is_none() && self.resources.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Family, &ItemGlob)> {
        Family::ALL.into_iter().flat_map(|family| match self.of(family) {
            Reach::Globs(globs) => globs.iter().map(|glob| (family, glob)).collect::<Vec<_>>(),
            Reach::All | Reach::Nothing => Vec::new(),
        })
    }

    /// Whether it reaches an item, by its `upstream/name`.
    pub fn matches(&self, family: Family, full: &str) -> bool {
        match self.of(family) {
            Reach::All => true,
            Reach::Nothing => false,
            Reach::Globs(globs) => globs.iter().any(|glob| glob.matches(full)),
        }
    }
}

// === impl RiskSet ===

impl RiskSet {
    pub fn contains(self, risk: Risk) -> bool {
        self.0 & Self::bit(risk) != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Risk> {
        Risk::ALL.into_iter().filter(move |risk| self.contains(*risk))
    }

    const fn bit(risk: Risk) -> u8 {
        1 << risk as u8
    }
}

impl FromIterator<Risk> for RiskSet {
    fn from_iter<I: IntoIterator<Item = Risk>>(risks: I) -> Self {
        Self(risks.into_iter().fold(0, |set, risk| set | Self::bit(risk)))
    }
}
