//! What holds for any policies at all. Rules are made up, written as YAML, compiled, and held
//! against a reading of the same rules that knows no bits.

use std::{collections::HashSet, sync::LazyLock};

use proptest::{prelude::*, sample::subsequence};

use super::*;

const ROLES: [&str; 3] = ["member", "clerk", "admin"];
const CALLERS: [&str; 2] = ["gate", "robot"];
const TENANTS: [&str; 2] = ["acme", "globex"];
const GLOBS: [&str; 8] = [
    "crm/*",
    "wiki/*",
    "*/*",
    "crm/contacts.purge",
    "*/contacts.e*",
    "crm/unheard.of",
    "*/*.update",
    "c?m/*[ch]",
];

/// Which glob matches which tool, by `globset` as it comes.
static MATCHES: LazyLock<HashSet<(&str, String)>> = LazyLock::new(|| {
    let tools = CATALOG.map(|(upstream, name)| format!("{upstream}/{name}"));
    let of = |glob: &'static str| {
        let matcher = globset::Glob::new(glob).unwrap().compile_matcher();
        let hits = tools.iter().filter(move |tool| matcher.is_match(tool.as_str()));
        hits.map(move |tool| (glob, tool.clone())).collect::<Vec<_>>()
    };
    GLOBS.into_iter().flat_map(of).collect()
});

/// A rule before it is written down.
#[derive(Debug, Clone)]
struct Made {
    allow: bool,
    /// `None`: the platform's.
    tenant: Option<&'static str>,
    roles: Vec<&'static str>,
    callers: Vec<&'static str>,
    risks: Vec<Risk>,
    globs: Vec<&'static str>,
}

/// Who looks: a tenant, a caller, and roles if there is an employee.
type Viewer = (&'static str, &'static str, Option<Vec<&'static str>>);

fn made() -> impl Strategy<Value = Made> {
    (
        any::<bool>(),
        prop_oneof![Just(None), Just(Some(TENANTS[0])), Just(Some(TENANTS[1]))],
        subsequence(ROLES.to_vec(), 0..=2),
        subsequence(CALLERS.to_vec(), 0..=1),
        subsequence(Risk::ALL.to_vec(), 0..=3),
        subsequence(GLOBS.to_vec(), 0..=2),
    )
        .prop_map(|(allow, tenant, roles, callers, risks, globs)| Made {
            allow,
            tenant,
            roles,
            callers,
            risks,
            globs,
        })
}

fn rules() -> impl Strategy<Value = Vec<Made>> {
    prop::collection::vec(made(), 0..12)
}

fn viewers() -> Vec<Viewer> {
    let mut viewers = Vec::new();
    for tenant in TENANTS {
        for caller in CALLERS.into_iter().chain(["stranger"]) {
            viewers.push((tenant, caller, None));
            for mask in 0..8_usize {
                let held = (0..3).filter(|bit| mask & (1 << bit) != 0).map(|bit| ROLES[bit]);
                viewers.push((tenant, caller, Some(held.collect())));
            }
        }
    }
    viewers
}

impl Made {
    fn yaml(&self, id: usize) -> String {
        let mut text =
            format!("{{ id: r{id}, effect: {}", if self.allow { "allow" } else { "deny" });
        let mut list = |key: &str, words: Vec<&str>| {
            if !words.is_empty() {
                text.push_str(&format!(", {key}: [\"{}\"]", words.join("\", \"")));
            }
        };
        list("roles", self.roles.clone());
        list("callers", self.callers.clone());
        list("risk", self.risks.iter().map(|risk| risk.as_str()).collect());
        list("tools", self.globs.clone());
        text + " }"
    }

    fn scope(&self) -> String {
        self.tenant.map_or("platform".to_owned(), |tenant| format!("{{ tenant: {tenant} }}"))
    }

    /// Whether the rule is about this viewer and this tool, read word by word.
    fn is_about(&self, (tenant, caller, held): &Viewer, tool: &str, risk: Risk) -> bool {
        let glob = |glob: &str| MATCHES.contains(&(glob, tool.to_owned()));
        self.tenant.is_none_or(|own| own == *tenant)
            && (self.callers.is_empty() || self.callers.contains(caller))
            && match held {
                Some(held) => self.roles.is_empty() || self.roles.iter().any(|r| held.contains(r)),
                None => self.roles.is_empty() && !(self.allow && self.callers.is_empty()),
            }
            && (self.risks.is_empty() || self.risks.contains(&risk))
            && (self.globs.is_empty() || self.globs.iter().any(|text| glob(text)))
    }
}

/// Each rule in a file of its own.
fn files(rules: &[Made]) -> Vec<PolicyFile> {
    let rules = rules.iter().enumerate().map(|(id, rule)| {
        file(&format!("{id}.yaml"), &policy(&rule.scope(), &[rule.yaml(id).as_str()]))
    });
    rules.chain([file("tools.yaml", TOOLS)]).collect()
}

fn view(set: &Set, (of, by, held): &Viewer) -> Arc<View> {
    match held {
        Some(held) => set.view(&tenant(of), &caller(by), &roles(held)),
        None => set.view_of_key(&tenant(of), &caller(by)),
    }
}

fn all_visible(set: &Set) -> Vec<BitSet> {
    viewers().iter().map(|viewer| view(set, viewer).visible().as_ref().clone()).collect()
}

fn is_within(narrow: &[BitSet], wide: &[BitSet]) -> bool {
    narrow.iter().zip(wide).all(|(narrow, wide)| narrow.iter().all(|tool| wide.contains(tool)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_decision_is_what_the_rules_say_word_by_word(rules in rules()) {
        let policies = compile(files(&rules));
        let set = bind(&policies);
        for viewer in viewers() {
            let view = view(&set, &viewer);
            for (index, (upstream, name)) in CATALOG.into_iter().enumerate() {
                let tool = policies.item(Subject::tool(upstream, name));
                let full = format!("{upstream}/{name}");
                let about = |allow: bool| {
                    rules.iter().any(|r| r.allow == allow && r.is_about(&viewer, &full, tool.risk))
                };
                let expected = tool.classified && about(true) && !about(false);
                let decision = view.decide(ItemIndex::new(index));
                prop_assert_eq!(decision.kind == DecisionKind::Allow, expected, "{:?} {}", viewer, full);
                prop_assert_eq!(decision.reason == Reason::RuleDeny, about(false));
            }
        }
    }

    #[test]
    fn the_list_shows_exactly_what_a_call_gets_through(rules in rules()) {
        let set = bind(&compile(files(&rules)));
        for viewer in viewers() {
            let view = view(&set, &viewer);
            for index in 0..CATALOG.len() + 2 {
                let tool = ItemIndex::new(index);
                let allowed = view.decide(tool).kind == DecisionKind::Allow;
                prop_assert_eq!(view.visible().contains(index), allowed);
                prop_assert_eq!(view.permit(tool).is_ok(), allowed);
                prop_assert_eq!(allowed, view.decide(tool).reason == Reason::RuleAllow);
            }
        }
    }

    #[test]
    fn adding_a_deny_never_widens(rules in rules(), mut deny in made(), at in 0..12_usize) {
        deny.allow = false;
        let before = all_visible(&bind(&compile(files(&rules))));
        let mut more = rules.clone();
        more.insert(at.min(rules.len()), deny);
        let after = all_visible(&bind(&compile(files(&more))));
        prop_assert!(is_within(&after, &before));
    }

    #[test]
    fn removing_an_allow_never_widens(rules in rules(), mut allow in made(), at in 0..12_usize) {
        allow.allow = true;
        let mut more = rules.clone();
        more.insert(at.min(rules.len()), allow);
        let with = all_visible(&bind(&compile(files(&more))));
        let without = all_visible(&bind(&compile(files(&rules))));
        prop_assert!(is_within(&without, &with));
    }

    #[test]
    fn the_order_of_rules_and_files_never_matters(rules in rules().prop_shuffle(), seed in any::<u64>()) {
        let set = bind(&compile(files(&rules)));
        // The same rules with the same ids, in one file a scope and in another order.
        let mut numbered: Vec<(usize, &Made)> = rules.iter().enumerate().collect();
        numbered.sort_by_key(|(id, _)| (*id as u64).wrapping_mul(seed | 1).rotate_left(17));
        let mut one = String::new();
        for (id, rule) in &numbered {
            one.push_str(&policy(&rule.scope(), &[rule.yaml(*id).as_str()]));
        }
        let other = bind(&compile(vec![file("z.yaml", TOOLS), file("a.yaml", &one)]));
        for viewer in viewers() {
            let (one, other) = (view(&set, &viewer), view(&other, &viewer));
            for index in 0..CATALOG.len() {
                let (one, other) = (one.decide(ItemIndex::new(index)), other.decide(ItemIndex::new(index)));
                prop_assert_eq!((one.kind, one.reason), (other.kind, other.reason));
                prop_assert_eq!(one.rule.map(|rule| &rule.id), other.rule.map(|rule| &rule.id));
            }
        }
    }

    #[test]
    fn a_tenants_rules_never_reach_another_tenant(rules in rules(), more in rules()) {
        let foreign = more.into_iter().map(|rule| Made { tenant: Some(TENANTS[0]), ..rule });
        let both: Vec<Made> = rules.iter().cloned().chain(foreign).collect();
        let (set, other) = (bind(&compile(files(&rules))), bind(&compile(files(&both))));
        for viewer in viewers().iter().filter(|(tenant, _, _)| *tenant == TENANTS[1]) {
            let (without, with) = (view(&set, viewer), view(&other, viewer));
            prop_assert_eq!(without.visible(), with.visible());
        }
    }
}
