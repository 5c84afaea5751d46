//! Verdicts and changes in words, for everybody who explains a decision.

use super::{
    Approvers, Change, Family, Flip, ItemGlob, ItemPolicy, NotMeant, Rollout, Rule, Told, Verdict,
};
use crate::{
    model::{
        caller::EmployeeId,
        exchange::DecisionKind,
        quality::Demand,
        quota::{Action, Budget},
        server::Risk,
    },
    yaml::Spanned,
};

/// Why a rule has a say or has none: the first condition that fails.
pub fn reason_text(
    told: &Told<'_>,
    risk: Risk,
    family: Family,
    employee: Option<&EmployeeId>,
) -> String {
    let rule = told.rule;
    match &told.verdict {
        Verdict::Applies => "applies".to_owned(),
        Verdict::Depends(_) => format!("applies to calls with {}", conditions(rule)),
        Verdict::NotMeant(NotMeant::Employee) if rule.roles.is_none() => {
            "is for employees, and a key alone is none".to_owned()
        }
        Verdict::NotMeant(NotMeant::Employee) => {
            format!("needs an employee with {}", one_of("role", rule.roles.iter().flatten()))
        }
        Verdict::NotMeant(NotMeant::Role) => {
            format!("needs {}", one_of("role", rule.roles.iter().flatten()))
        }
        Verdict::NotMeant(NotMeant::Caller) => {
            format!("needs {}", one_of("caller", rule.callers.iter().flatten()))
        }
        Verdict::NotMeant(NotMeant::Rollout) => {
            let who = employee.map_or("an employee unknown".to_owned(), ToString::to_string);
            let open = rule.rollout.as_ref().map_or(String::new(), |open| rollout_text(open));
            format!("is open to {open} so far, and not to {who}")
        }
        Verdict::Family => {
            let families = Family::ALL.into_iter().filter(|own| rule.globs.is_about(*own));
            let families: Vec<_> = families.map(Family::key).collect();
            format!("is about {} only", families.join(" and "))
        }
        Verdict::Name => format!("names only {}", globs(rule, family)),
        Verdict::Risk => {
            let risks = rule.risk.iter().flat_map(|risks| risks.iter()).map(Risk::as_str);
            let risks: Vec<_> = risks.collect();
            format!("risk {} is not in [{}]", risk.as_str(), risks.join(", "))
        }
        Verdict::Condition(predicate) => format!("its condition does not hold: {predicate}"),
    }
}

/// The name that clients know a tool by, where it is not its upstream's own.
pub fn published_name(policy: &ItemPolicy) -> Option<&str> {
    let published = policy.published.as_ref()?;
    published.name.as_ref().map(|name| &*name.value)
}

/// The arguments of a tool that callers neither see nor send.
pub fn withheld(policy: &ItemPolicy) -> Vec<&str> {
    let injected = policy.inject.iter().flat_map(|all| all.iter());
    let injected: Vec<_> = injected.map(|injected| &*injected.argument).collect();
    let hidden = policy.published.iter().flat_map(|published| published.hidden());
    let hidden: Vec<_> =
        hidden.map(|(name, _)| name).filter(|name| !injected.contains(name)).collect();
    [injected, hidden].concat()
}

/// What clients see of a tool that its upstream does not say.
pub fn face_text(policy: &ItemPolicy) -> String {
    let mut text = String::new();
    if let Some(name) = published_name(policy) {
        text += &format!(" Clients know it as `{name}`.");
    }
    let withheld = withheld(policy);
    if !withheld.is_empty() {
        let names: Vec<_> = withheld.iter().map(|name| format!("`{name}`")).collect();
        text += &format!(" Callers neither see nor send {}.", names.join(", "));
    }
    text
}

/// What a tool's definition has to be like, where that is said.
pub fn quality_text(policy: &ItemPolicy) -> String {
    let Demand { min, block } = policy.quality;
    let score = (min > 0).then(|| format!("its definition scores at least {min}"));
    let flaws = (!block.is_empty()).then(|| format!("nothing in it is found {block}"));
    let parts: Vec<_> = score.into_iter().chain(flaws).collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!(" It is held unless {}, or somebody approves it.", parts.join(" and ")),
    }
}

/// All conditions of a rule.
pub fn conditions(rule: &Rule) -> String {
    let all: Vec<_> = rule.when.iter().map(ToString::to_string).collect();
    all.join(" and ")
}

fn one_of<'r, T: std::fmt::Display + 'r>(
    what: &str,
    names: impl Iterator<Item = &'r Spanned<T>>,
) -> String {
    let names: Vec<String> = names.map(|name| name.value.to_string()).collect();
    match names.as_slice() {
        [one] => format!("{what} {one}"),
        _ => format!("one of the {what}s {}", names.join(", ")),
    }
}

/// The globs of a rule, the first few of many.
fn globs(rule: &Rule, family: Family) -> String {
    const SHOWN: usize = 4;
    let globs = rule.globs.iter().filter(|(own, _)| *own == family);
    let globs: Vec<&str> = globs.map(|(_, glob)| ItemGlob::as_str(glob)).collect();
    let shown = globs.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match globs.len() {
        n if n > SHOWN => format!("{shown} and {} more", n - SHOWN),
        _ => shown,
    }
}

/// To whom a staged rule is open.
pub fn rollout_text(rollout: &Rollout) -> String {
    let mut parts = Vec::new();
    if rollout.percent > 0 {
        parts.push(format!("{} % of the employees", rollout.percent));
    }
    if !rollout.employees.is_empty() {
        let names: Vec<_> = rollout.employees.iter().map(|id| id.as_str()).collect();
        parts.push(names.join(", "));
    }
    if !rollout.teams.is_empty() {
        let names: Vec<_> = rollout.teams.iter().map(|team| &**team).collect();
        parts.push(format!("team {}", names.join(", ")));
    }
    if parts.is_empty() { "nobody".to_owned() } else { parts.join(" and ") }
}

/// Who approves, by which rule.
pub fn ask_text(rule: &Rule) -> String {
    let id = &rule.id;
    match rule.approval.as_ref().map(|approval| &approval.by) {
        Some(Approvers::Others { roles, count }) => {
            let roles: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
            format!("{id} asks {count} of {}", roles.join(", "))
        }
        Some(Approvers::Requester) => format!("{id} asks the requester himself"),
        None => format!("{id} asks"),
    }
}

/// A change in a sentence, and what follows from it.
pub fn change_text(flip: &Flip, now: DecisionKind, item: &str) -> String {
    let at = |rule: &Rule| format!("{} ({})", rule.id, place(rule));
    if matches!(now, DecisionKind::Allow | DecisionKind::RequireApproval) {
        let without = match &flip.change {
            Change::WithoutRole(role) => format!("without role {role}"),
            Change::OtherCaller => "through another caller".to_owned(),
            Change::WithoutRule(rule) => format!("without {}", at(rule)),
            Change::WithoutRules(rules) => {
                let rules: Vec<_> = rules.iter().map(|rule| at(rule)).collect();
                format!("without {}", rules.join(" and "))
            }
            _ => "with a rule that denies it".to_owned(),
        };
        return format!("It would close {without}.");
    }
    let change = match &flip.change {
        Change::Role(role) => format!("role {role}."),
        Change::WithoutRole(role) => format!("not to have role {role}."),
        Change::Caller(caller) => format!("caller {caller}."),
        Change::OtherCaller => "another caller.".to_owned(),
        Change::Employee => "an employee.".to_owned(),
        Change::Rollout(rule) => format!("to be among those {} is open to.", at(rule)),
        Change::Satisfy(rule) => format!("arguments with {}, for {}.", conditions(rule), at(rule)),
        Change::Avoid(rule) => {
            format!("arguments other than {}, which {} denies.", conditions(rule), at(rule))
        }
        Change::Classify => format!("a `risk` for `{item}` in a `kind: Tools` file."),
        Change::WithoutRule(rule) => format!("to take {} away or narrow it.", at(rule)),
        Change::WithoutRules(rules) => {
            let rules: Vec<_> = rules.iter().map(|rule| at(rule)).collect();
            format!("to take all of these away: {}.", rules.join(", "))
        }
        Change::NewRule => {
            "a rule that allows it; there is none for any other role or caller.".to_owned()
        }
    };
    let change = format!("Smallest change: {change}");
    let then: Vec<_> = flip.asks.iter().map(|rule| at(rule)).collect();
    match then.as_slice() {
        [] => change,
        [one] => format!("{change} Then {one} asks for approval."),
        many => format!("{change} Then {} ask for approval.", many.join(" and ")),
    }
}

/// What a quota does to something of this cost.
pub fn quota_text(budget: &Budget, cost: u32) -> String {
    let (of, every, zone) = (budget.cost, budget.every.as_str(), budget.zone.as_str());
    let window = format!("{of} per {every} ({zone})");
    let Some(step) = budget.first_stop(cost.into()) else {
        return format!("counted against {window}, never stopped");
    };
    let percent = step.percent;
    match &step.action {
        Action::Degrade { to, .. } => {
            format!("runs as {to} where it would go beyond {percent}% of {window}")
        }
        Action::Hide { .. } => format!("hidden where it would go beyond {percent}% of {window}"),
        Action::Deny | Action::Warn => {
            format!("refused where it would go beyond {percent}% of {window}")
        }
    }
}

/// `file:line` of a rule.
pub fn place(rule: &Rule) -> String {
    format!("{}:{}", rule.at.source.name, rule.at.line)
}
