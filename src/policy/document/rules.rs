//! Rules: who may and who may not.

use std::sync::Arc;

use super::{Scope, narrowing, read_id};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::{
        caller::{CallerId, Role},
        server::Risk,
    },
    policy::glob::ToolGlob,
    yaml::{Node, Spanned, Words},
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
    pub tools: Option<Vec<ToolGlob>>,
    /// Why, in a sentence for people.
    pub say: Option<Arc<str>>,
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
        map.later(&["prompts", "resources", "when", "approval"], faults);
        let id = read_id(&mut map, faults);
        let effect = map.required_node("effect", faults).and_then(|n| EFFECTS.read(n, faults));
        let roles = narrowing(&mut map, "roles", faults);
        let callers = narrowing(&mut map, "callers", faults);
        let risk = narrowing(&mut map, "risk", faults);
        let tools = narrowing(&mut map, "tools", faults);
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
            tools,
            say: say.map(|say| say.value.into()),
        })
    }
}

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
