//! Runs the cases of `kind: PolicyTest` documents: the same decisions that calls get.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;

use super::{
    BitSet, Decision, Family, ItemIndex, Named, Policies, Rule, Set, Verdict, View,
    document::{Asked, Case, Expected},
    glob::ItemGlob,
    spent::Spent,
};
use crate::{
    fault::{Fault, FaultCode, Faults},
    model::{
        caller::{CallerId, EmployeeId, Roles, TenantId},
        exchange::DecisionKind,
    },
};

/// Threads that run cases at once.
const MAX_THREADS: usize = 8;

/// What became of every case.
#[derive(Debug)]
pub struct SuiteReport {
    /// In the order of files and lines.
    pub results: Vec<CaseResult>,
    /// Each rule, by scope and id, and how many cases it had a say in.
    pub coverage: Vec<(Arc<Rule>, usize)>,
}

#[derive(Debug)]
pub struct CaseResult {
    pub case: Arc<Case>,
    pub outcome: CaseOutcome,
}

#[derive(Debug, PartialEq, Eq)]
pub enum CaseOutcome {
    Passed,
    /// What was otherwise, in sentences.
    Failed(Vec<String>),
    /// Why this version cannot tell.
    NotRun(String),
}

/// Who asks, as far as policy tells people apart.
#[derive(Debug, Clone)]
pub struct Asker {
    pub tenant: TenantId,
    /// `None` is a caller that no rule names.
    pub caller: Option<CallerId>,
    pub employee: Option<EmployeeId>,
    /// `None`: those of the employee in the directory; without one, a key alone.
    pub roles: Option<Roles>,
}

/// A set bound to names, and which of them stands where.
#[derive(Debug)]
pub struct Bench {
    pub set: Set,
    pub items: Vec<Named>,
    /// Where servers of employees' own are among them: policies, and what they are for a tenant.
    personal: Option<Box<PersonalSets>>,
}

#[derive(Debug)]
struct PersonalSets {
    policies: Policies,
    by_tenant: Mutex<HashMap<TenantId, Arc<Set>>>,
}

// === impl Bench ===

impl Bench {
    /// Binds policies to these names.
    pub fn new(policies: &Policies, items: impl IntoIterator<Item = Named>) -> Self {
        let items: BTreeSet<Named> = items.into_iter().collect();
        let items: Vec<Named> = items.into_iter().collect();
        let subjects: Vec<_> = items.iter().map(Named::subject).collect();
        // No name of an operator's upstream has an underscore, and every serverKey has.
        let own = subjects.iter().any(|subject| subject.upstream.contains('_'));
        let personal = own.then(|| {
            Box::new(PersonalSets { policies: policies.clone(), by_tenant: Mutex::default() })
        });
        Self { set: policies.bind(&subjects), items, personal }
    }

    pub fn find(&self, item: &Named) -> Option<ItemIndex> {
        self.items.binary_search(item).ok().map(ItemIndex::new)
    }

    /// What somebody sees.
    pub fn view(&self, asker: &Asker) -> Arc<View> {
        // No caller's name is empty.
        let nobody = CallerId::new("");
        let caller = asker.caller.as_ref().unwrap_or(&nobody);
        let tenant = &asker.tenant;
        self.with_set(tenant, |set| match (self.roles(asker), &asker.employee) {
            (Some(roles), Some(id)) => set.view_of_employee(tenant, caller, id, &roles),
            (Some(roles), None) => set.view(tenant, caller, &roles),
            (None, _) => set.view_of_key(tenant, caller),
        })
    }

    /// What the names are to a tenant: each treats its employees' own servers in its way.
    pub(super) fn with_set<T>(&self, tenant: &TenantId, look: impl FnOnce(&Set) -> T) -> T {
        let Some(personal) = &self.personal else { return look(&self.set) };
        let mut sets = personal.by_tenant.lock();
        let set = sets.entry(tenant.clone()).or_insert_with(|| {
            let subjects: Vec<_> = self.items.iter().map(Named::subject).collect();
            Arc::new(personal.policies.personal(tenant).bind(&subjects))
        });
        let set = set.clone();
        drop(sets);
        look(&set)
    }

    /// The roles somebody has: those that are said, else those of the directory.
    pub fn roles(&self, asker: &Asker) -> Option<Roles> {
        let listed = |id: &EmployeeId| self.set.roles_in_directory(&asker.tenant, id);
        asker.roles.clone().or_else(|| asker.employee.as_ref().map(listed))
    }
}

// === impl Policies ===

impl Policies {
    /// The cases that do not hold, as faults: policies that say otherwise than their own tables
    /// are not what somebody meant.
    pub fn failed_cases(&self) -> Vec<Fault> {
        let mut faults = Faults::new();
        if self.cases().is_empty() {
            return Vec::new();
        }
        for CaseResult { case, outcome } in self.run_cases([]).results {
            if let CaseOutcome::Failed(why) = outcome {
                let message = format!("the case `{}` does not hold: {}", case.name, why.join("; "));
                faults.add(FaultCode::FailedCase, &case.at, message);
            }
        }
        faults.into_sorted()
    }

    /// Runs every case. `more` are names of the catalog that no file has.
    pub fn run_cases(&self, more: impl IntoIterator<Item = Named>) -> SuiteReport {
        let bench = Bench::new(self, self.named().into_iter().chain(more));
        let cases = self.cases();
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(cases.len())));
        let work = || {
            while let Some((at, case)) = nth(&next, cases) {
                let mut heard = BTreeSet::new();
                let outcome = judge(&bench, case, &mut heard);
                done.lock().push((at, outcome, heard));
            }
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // A thread of its own is worth some cases.
        let threads = cores.min(MAX_THREADS).min(cases.len() / 16 + 1);
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        let mut done = done.into_inner();
        done.sort_by_key(|(at, ..)| *at);
        let mut heard: BTreeMap<(&super::Scope, &str), usize> = BTreeMap::new();
        let rules: Vec<_> = self.rules().collect();
        for (_, _, own) in &done {
            for rule in &rules {
                if own.contains(&Arc::as_ptr(rule).addr()) {
                    *heard.entry((&rule.scope, &rule.id)).or_default() += 1;
                }
            }
        }
        let count = |rule: &Arc<Rule>| heard.get(&(&rule.scope, &*rule.id)).copied().unwrap_or(0);
        let coverage = rules.iter().map(|rule| (Arc::clone(rule), count(rule))).collect();
        let results = done.into_iter().filter_map(|(at, outcome, _)| {
            Some(CaseResult { case: cases.get(at)?.clone(), outcome })
        });
        SuiteReport { results: results.collect(), coverage }
    }
}

fn nth<'c>(next: &AtomicUsize, cases: &'c [Arc<Case>]) -> Option<(usize, &'c Arc<Case>)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    cases.get(at).map(|case| (at, case))
}

impl Case {
    /// Who asks.
    pub fn asker(&self) -> Asker {
        Asker {
            tenant: self.tenant.clone(),
            caller: self.caller.clone(),
            employee: self.employee.clone(),
            roles: self.roles.clone(),
        }
    }
}

/// The places of the rules that had a say; rules of one policy do not move.
type Heard = BTreeSet<usize>;

fn judge(bench: &Bench, case: &Case, heard: &mut Heard) -> CaseOutcome {
    let spent = match bench.spent(&case.tenant, &case.spent) {
        Ok(spent) => spent,
        Err(why) => return CaseOutcome::Failed(vec![why]),
    };
    let view = bench.view(&case.asker());
    let failures = match &case.asks {
        Asked::Call { item, arguments, expect } => match bench.find(item) {
            // Nobody is let into another tenant, whatever its rules.
            Some(_) if case.foreign.is_some() => {
                compare(expect, DecisionKind::Deny, "tenant_boundary", &[])
            }
            Some(index) => {
                hear(&view, index, arguments.as_ref(), heard);
                let decision = view.decide_call(index, arguments.as_ref());
                let stops = (decision.kind == DecisionKind::Allow)
                    .then(|| spent.stops(bench, &view, index.get()))
                    .flatten();
                match stops {
                    Some(quota) => {
                        compare(expect, DecisionKind::Deny, "quota_exhausted", &[&*quota.id])
                    }
                    None => {
                        let rules: Vec<&str> = decided_by(&decision);
                        compare(expect, decision.kind, decision.reason.as_str(), &rules)
                    }
                }
            }
            None => vec![format!("`{}` is in no catalog", item.full())],
        },
        Asked::List { .. } if case.foreign.is_some() => {
            vec!["a list is always that of one's own tenant: leave `at` out".to_owned()]
        }
        Asked::List { only_risk, visible, hidden } => {
            let shown = spent.shown(bench, &view);
            let list = Listed { view: &view, bench, spent: &spent, shown: &shown };
            let mut failures = Vec::new();
            if let Some(risks) = only_risk {
                failures.extend(list.check_risks(*risks, heard));
            }
            for (globs, wanted) in [(visible, true), (hidden, false)] {
                for glob in globs {
                    failures.extend(list.check_glob(glob, wanted, heard));
                }
            }
            failures
        }
    };
    if failures.is_empty() { CaseOutcome::Passed } else { CaseOutcome::Failed(failures) }
}

fn decided_by<'v>(decision: &Decision<'v>) -> Vec<&'v str> {
    let rules = decision.asks.iter().copied().chain(decision.rule);
    rules.map(|rule| &*rule.id).collect()
}

fn compare(expect: &Expected, kind: DecisionKind, reason: &str, rules: &[&str]) -> Vec<String> {
    let decision = expect.decision.is_met_by(kind);
    let because = expect.reason.is_none_or(|wanted| wanted == reason);
    let rule = expect.rule.as_ref().is_none_or(|wanted| rules.contains(&&**wanted));
    if decision && because && rule {
        return Vec::new();
    }
    let by = rules.first().map_or(String::new(), |rule| format!(" by `{rule}`"));
    let mut wanted = expect.decision.as_str().to_owned();
    if let Some(reason) = expect.reason {
        wanted += &format!(" ({reason})");
    }
    if let Some(rule) = &expect.rule {
        wanted += &format!(" by `{rule}`");
    }
    vec![format!("expected {wanted}, got {} ({reason}){by}", kind.as_str())]
}

/// A list, with what quotas leave of it.
struct Listed<'a> {
    view: &'a View,
    bench: &'a Bench,
    spent: &'a Spent<'a>,
    shown: &'a BitSet,
}

impl Listed<'_> {
    fn check_risks(&self, risks: super::RiskSet, heard: &mut Heard) -> Option<String> {
        let Self { view, bench, shown, .. } = *self;
        let mut seen = 0;
        let mut wrong = Vec::new();
        for (index, item) in bench.items.iter().enumerate() {
            if !shown.contains(index) {
                continue;
            }
            seen += 1;
            let place = ItemIndex::new(index);
            hear(view, place, None, heard);
            if let Some(risk) = view.item(place).map(|policy| policy.risk)
                && !risks.contains(risk)
            {
                wrong.push(format!("`{}` ({})", item.full(), risk.as_str()));
            }
        }
        let words: Vec<_> = risks.iter().map(|risk| risk.as_str()).collect();
        let words = words.join(", ");
        match (seen, wrong.as_slice()) {
            // A list without anything in it proves nothing.
            (0, _) => Some(format!("expected something of [{words}], the list is empty")),
            (_, []) => None,
            (_, wrong) => {
                Some(format!("expected only [{words}], the list has {}", wrong.join(", ")))
            }
        }
    }

    fn check_glob(&self, glob: &ItemGlob, wanted: bool, heard: &mut Heard) -> Option<String> {
        let Self { view, bench, spent, shown } = *self;
        let mut wrong = Vec::new();
        let mut any = false;
        for (index, item) in bench.items.iter().enumerate() {
            let full = item.full();
            if item.family != Family::Tools || !glob.matches(&full) {
                continue;
            }
            any = true;
            hear(view, ItemIndex::new(index), None, heard);
            if shown.contains(index) != wanted {
                let decision = view.decide(ItemIndex::new(index));
                let by = decision.rule.map_or(String::new(), |rule| format!(" by `{}`", rule.id));
                let stops = (view.visible().contains(index) && !shown.contains(index))
                    .then(|| spent.stops(bench, view, index))
                    .flatten();
                wrong.push(match stops {
                    Some(quota) => format!("`{full}` (quota_exhausted by `{}`)", quota.id),
                    None => format!("`{full}` ({}{by})", decision.reason.as_str()),
                });
            }
        }
        let (should, does) = if wanted { ("see", "hidden") } else { ("not see", "visible") };
        if !any {
            return Some(format!("`{}` matches no tool that the files name", glob.as_str()));
        }
        (!wrong.is_empty()).then(|| format!("expected to {should} {}: {does}", wrong.join(", ")))
    }
}

/// Notes which rules are about the viewer and the item.
fn hear(view: &View, item: ItemIndex, arguments: Option<&bytes::Bytes>, heard: &mut Heard) {
    let Some(explanation) = view.explain(item, arguments) else { return };
    for told in &explanation.rules {
        if matches!(told.verdict, Verdict::Applies | Verdict::Depends(_)) {
            heard.insert(Arc::as_ptr(told.rule).addr());
        }
    }
}
