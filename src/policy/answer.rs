//! An explained decision as one answer: what the command line prints as JSON, and the admin API
//! serves.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    Asker, Bench, Explanation, Family, Flip, ItemIndex, ItemPolicy, Named, Policies, QuotaRule,
    Told, Verdict,
    words::{change_text, published_name, quota_text, reason_text, withheld},
};
use crate::model::{caller::EmployeeId, exchange::DecisionKind, quality::Flaw, quota::Budget};

/// Who asks for what.
#[derive(Debug, Clone)]
pub struct Question {
    pub asker: Asker,
    pub item: Named,
    /// Of a call, a JSON object; without them the list is explained.
    pub arguments: Option<Bytes>,
}

/// What an answer is made of.
#[derive(Debug)]
pub struct Answered<'a, 'v> {
    pub explanation: &'a Explanation<'v>,
    pub item: &'a Named,
    pub cost: u32,
    pub revision: &'a str,
    pub flip: &'a Flip,
    pub employee: Option<&'a EmployeeId>,
    pub policy: &'a ItemPolicy,
    /// The quotas that it is paid from.
    pub quotas: &'a [(&'a QuotaRule, Budget)],
}

impl Policies {
    /// Explains a decision by the policies that are enforced. `known` is what there is to ask for.
    ///
    /// # Errors
    /// Nobody knows the item, in words.
    pub fn explained(
        &self,
        known: impl IntoIterator<Item = Named>,
        question: &Question,
    ) -> Result<Value, String> {
        let Question { asker, item, arguments } = question;
        let mut known: Vec<Named> = known.into_iter().collect();
        known.extend(self.named());
        if !known.contains(item) && !self.item(item.subject()).classified {
            return Err(format!("nobody knows the {} `{}`", item.family.one(), item.full()));
        }
        let bench = Bench::new(self, known.into_iter().chain([item.clone()]));
        let view = bench.view(asker);
        let index = bench.find(item).unwrap_or(ItemIndex::new(usize::MAX));
        let explanation = view.explain(index, arguments.as_ref());
        let explanation = explanation.ok_or_else(|| "it is in no catalog".to_owned())?;
        let policy = bench.set.item(index);
        let is_about =
            |quota: &QuotaRule| policy.is_some_and(|policy| quota.is_about(item, policy));
        let quotas = bench.set.quotas_of(&asker.tenant).filter(|quota| is_about(quota));
        let quotas: Vec<_> =
            quotas.map(|quota| (&**quota, bench.set.priced(&quota.budget))).collect();
        let answered = Answered {
            policy: &self.item(item.subject()),
            quotas: &quotas,
            explanation: &explanation,
            item,
            cost: view.item(index).map_or(1, |policy| policy.cost),
            revision: self.revision(),
            flip: &bench.smallest_change(asker, index, arguments.as_ref()),
            employee: asker.employee.as_ref(),
        };
        Ok(answered.as_json())
    }
}

impl Answered<'_, '_> {
    pub fn as_json(&self) -> Value {
        let decision = &self.explanation.decision;
        let full = self.item.full();
        let told = |told: &Told<'_>| {
            let rule = told.rule;
            json!({
                "id": &*rule.id,
                "scope": rule.scope.tenant().map_or("platform", |tenant| tenant.as_str()),
                "effect": rule.effect.as_str(),
                "file": rule.at.source.name,
                "line": rule.at.line,
                "applies": told.has_say(),
                "why": reason_text(told, self.explanation.risk, self.family(), self.employee),
            })
        };
        let ids = |rules: &[&Arc<super::Rule>]| {
            rules.iter().map(|rule| (*rule.id).to_owned()).collect::<Vec<_>>()
        };
        json!({
            "item": full,
            "family": self.family().key(),
            "decision": decision.kind.as_str(),
            "reason": decision.reason.as_str(),
            "rule": decision.rule.map(|rule| &*rule.id),
            "asks": ids(&decision.asks),
            "risk": self.explanation.risk.as_str(),
            "classified": self.explanation.classified,
            "cost": self.cost,
            "published": published_name(self.policy),
            "withheld": withheld(self.policy),
            "quality": {
                "min": self.policy.quality.min,
                "block": self.policy.quality.block.iter().map(Flaw::as_str).collect::<Vec<_>>(),
            },
            "quotas": self.quotas().map(|(quota, budget)| json!({
                "id": &*quota.id,
                "file": quota.at.source.name,
                "line": quota.at.line,
                "what": quota_text(budget, self.cost),
            })).collect::<Vec<_>>(),
            "revision": self.revision,
            "rules": self.explanation.rules.iter().map(told).collect::<Vec<_>>(),
            "change": change_text(self.flip, decision.kind, &full),
        })
    }

    /// What is never let through is paid from nothing.
    pub fn quotas(&self) -> impl Iterator<Item = &(&QuotaRule, Budget)> {
        let decided = self.explanation.decision.kind;
        let may = matches!(decided, DecisionKind::Allow | DecisionKind::RequireApproval);
        self.quotas.iter().filter(move |_| may)
    }

    fn family(&self) -> Family {
        self.item.family
    }
}

impl Told<'_> {
    /// Whether it decides, or may.
    pub fn has_say(&self) -> bool {
        matches!(self.verdict, Verdict::Applies | Verdict::Depends(_))
    }
}
