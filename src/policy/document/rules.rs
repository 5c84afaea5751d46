//! Rules: who may and who may not.

use std::sync::Arc;

use super::{
    Scope,
    approval::{Approval, Rollout},
    narrowing, read_id,
};
use crate::{
    fault::{FaultCode, Faults, Span},
    json,
    model::{
        caller::{CallerId, Role},
        server::Risk,
    },
    policy::{Family, glob::ItemGlob, predicate::Predicate},
    yaml::{MapReader, Node, Spanned, Words},
};

/// A rule. What is absent does not narrow.
#[derive(Debug)]
pub struct Rule {
    pub id: Arc<str>,
    pub at: Span,
    pub scope: Scope,
    pub effect: Effect,
    pub roles: Option<Box<[Spanned<Role>]>>,
    pub callers: Option<Box<[Spanned<CallerId>]>>,
    pub risk: Option<RiskSet>,
    pub globs: Globs,
    /// What the arguments must be like: all of it.
    pub when: Box<[Predicate]>,
    /// Why, in a sentence for people.
    pub say: Option<Arc<str>>,
    /// Who is asked: there if and only if the effect is to ask.
    pub approval: Option<Box<Approval>>,
    /// To whom of those it is about an allowing rule is open already.
    pub rollout: Option<Box<Rollout>>,
}

/// Which tools, prompts and resources a rule is about. With no list at all it is about all of
/// them, else only about the families that have one.
#[derive(Debug, Clone, Default)]
pub struct Globs {
    pub tools: Option<Box<[ItemGlob]>>,
    pub prompts: Option<Box<[ItemGlob]>>,
    pub resources: Option<Box<[ItemGlob]>>,
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
    /// Grants nothing: what is allowed is asked about first.
    RequireApproval,
    Deny,
}

/// A set of risk classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RiskSet(u8);

pub(in crate::policy) const EFFECTS: Words<Effect> = Words {
    what: "effect",
    code: FaultCode::BadValue,
    known: &[
        ("allow", Effect::Allow),
        ("deny", Effect::Deny),
        ("require_approval", Effect::RequireApproval),
    ],
    later: &[],
};

/// The longest `say`, in bytes.
const MAX_SAY: usize = 500;

impl Rule {
    pub(super) fn read(node: &Node, scope: &Scope, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let id = read_id(&mut map, faults);
        let effect = map.required_node("effect", faults).and_then(|n| EFFECTS.read(n, faults));
        let roles = narrowing(&mut map, "roles", faults);
        let callers = narrowing(&mut map, "callers", faults);
        let risk = narrowing(&mut map, "risk", faults);
        let globs = Globs::read(&mut map, faults);
        let when = read_when(&mut map, &globs, faults);
        let say = map.optional::<Spanned<String>>("say", faults);
        let (approval, rollout) = read_terms(&mut map, effect, faults);
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
            roles: roles.map(Vec::into_boxed_slice),
            callers: callers.map(Vec::into_boxed_slice),
            risk: risk.map(|risks: Vec<Risk>| risks.into_iter().collect()),
            globs,
            when: when?,
            say: say.map(|say| say.value.into()),
            approval,
            rollout,
        })
    }

    /// Whether the arguments satisfy its conditions.
    pub fn holds(&self, arguments: Option<json::Value<'_>>) -> bool {
        self.when.iter().all(|predicate| predicate.holds(arguments))
    }
}

/// `None` where there are conditions that could not be read: without them the rule would be about
/// more than was meant.
fn read_when(
    map: &mut MapReader<'_>,
    globs: &Globs,
    faults: &mut Faults,
) -> Option<Box<[Predicate]>> {
    let Some(entry) = map.entry("when") else { return Some(Box::default()) };
    if globs.resources.is_some() {
        let message = "`when` in a rule about `resources`: they are read without arguments";
        faults.add(FaultCode::Contradiction, &entry.key_at, message);
    }
    Predicate::read_all(&entry.value, faults)
}

/// What only rules of one effect have.
fn read_terms(
    map: &mut MapReader<'_>,
    effect: Option<Effect>,
    faults: &mut Faults,
) -> (Option<Box<Approval>>, Option<Box<Rollout>>) {
    let (approval, rollout) = (map.entry("approval"), map.entry("rollout"));
    for (entry, only) in [(approval, Effect::RequireApproval), (rollout, Effect::Allow)] {
        if let (Some(entry), Some(effect)) = (entry, effect)
            && effect != only
        {
            let message = format!("`{}` in a rule that does not `{}`", entry.key, only.as_str());
            faults.add(FaultCode::Contradiction, &entry.key_at, message);
        }
    }
    if effect == Some(Effect::RequireApproval) && approval.is_none() {
        let fault = faults.add(FaultCode::MissingKey, map.at, "`approval` is missing");
        fault.suggest("such as `approval: { roles: [owner] }`, or `{ confirm: requester }`");
    }
    let approval = approval.and_then(|entry| Approval::read(&entry.value, faults));
    let rollout = rollout.and_then(|entry| Rollout::read(&entry.value, faults));
    (approval.map(Box::new), rollout.map(Box::new))
}

// === impl Effect ===

impl Effect {
    pub const fn as_str(self) -> &'static str {
        match self {
            Effect::Allow => "allow",
            Effect::RequireApproval => "require_approval",
            Effect::Deny => "deny",
        }
    }
}

// === impl Globs ===

impl Globs {
    fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Self {
        let mut of = |family: Family| narrowing(map, family.key(), faults).map(Vec::into);
        Self {
            tools: of(Family::Tools),
            prompts: of(Family::Prompts),
            resources: of(Family::Resources),
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

    /// Whether a tool of this upstream can be meant.
    pub fn may_be_of(&self, upstream: &str) -> bool {
        match self.of(Family::Tools) {
            Reach::All => true,
            Reach::Nothing => false,
            Reach::Globs(globs) => globs.iter().any(|glob| glob.matches_upstream(upstream)),
        }
    }

    /// Whether anything of the family can be meant.
    pub fn is_about(&self, family: Family) -> bool {
        !matches!(self.of(family), Reach::Nothing)
    }

    /// Whether the rule names no family.
    pub fn is_empty(&self) -> bool {
        self.tools.is_none() && self.prompts.is_none() && self.resources.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Family, &ItemGlob)> {
        Family::ALL.into_iter().flat_map(|family| {
            let globs = match self.of(family) {
                Reach::Globs(globs) => globs,
                Reach::All | Reach::Nothing => &[],
            };
            globs.iter().map(move |glob| (family, glob))
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
