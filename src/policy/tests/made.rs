//! Rules and viewers that are made up, and what the rules say word by word.

use std::{collections::HashSet, sync::LazyLock};

use proptest::{prelude::*, sample::subsequence};
use serde_json::Value;

use super::*;

pub const ROLES: [&str; 2] = ["member", "admin"];
pub const CALLERS: [&str; 2] = ["gate", "robot"];
pub const TENANTS: [&str; 2] = ["acme", "globex"];
pub const EMPLOYEES: [&str; 2] = ["E1", "E2"];

pub const ITEMS: [Subject<'static>; 9] = [
    Subject { family: Family::Tools, upstream: "crm", name: "contacts.search" },
    Subject { family: Family::Tools, upstream: "crm", name: "contacts.export" },
    Subject { family: Family::Tools, upstream: "crm", name: "contacts.purge" },
    Subject { family: Family::Tools, upstream: "crm", name: "unheard.of" },
    Subject { family: Family::Tools, upstream: "wiki", name: "page.read" },
    Subject { family: Family::Prompts, upstream: "crm", name: "contacts.export" },
    Subject { family: Family::Prompts, upstream: "wiki", name: "summary" },
    Subject { family: Family::Resources, upstream: "crm", name: "crm://contacts/1" },
    Subject { family: Family::Resources, upstream: "crm", name: "crm://contacts/{id}" },
];

pub const CLASSES: &str = "
version: hangu/v1
kind: Tools
upstreams:
  crm:
    tools:
      contacts.search: { risk: read_low }
      contacts.export: { risk: read_high }
      contacts.purge: { risk: write_high }
    prompts: { contacts.export: { risk: read_low } }
    resources: { \"crm://contacts/1\": { risk: read_high }, \"crm://contacts/{id}\": { risk: read_low } }
  wiki:
    default: { risk: read_low }
---
version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, teams: [red] }
  E2: { tenant: globex, teams: [red] }
";

pub const GLOBS: [&str; 7] = [
    "crm/*",
    "wiki/*",
    "*/*",
    "crm/contacts.purge",
    "*/*contacts*e*",
    "c?m/*[ch]",
    "crm/crm://contacts/*",
];

type Holds = fn(&Value) -> bool;

/// Each is YAML, and what it says of arguments.
pub const CONDITIONS: [(&str, Holds); 5] = [
    ("{ arg: /region, eq: eu }", |args| args["region"] == "eu"),
    ("{ arg: /region, not_in: [eu, us] }", |args| {
        !matches!(args["region"].as_str(), Some("eu" | "us"))
    }),
    ("{ arg: /n, range: [2, 5] }", |args| {
        args["n"].as_f64().is_some_and(|n| (2.0..=5.0).contains(&n))
    }),
    ("{ arg: /region, regex: \"^.s$\" }", |args| {
        matches!(args["region"].as_str(), Some("us" | "as"))
    }),
    ("{ arg: /deep/0, prefix: x }", |args| {
        args.pointer("/deep/0").and_then(Value::as_str).is_some_and(|x| x.starts_with('x'))
    }),
];

pub const ARGUMENTS: [&str; 6] = [
    "{}",
    r#"{"region":"eu"}"#,
    r#"{"region":"us","n":3}"#,
    r#"{"n":9,"region":7}"#,
    r#"{"n":5.0,"region":"eu","deep":["xy"]}"#,
    r#"{"region":null,"deep":{"0":"x"}}"#,
];

/// Each is YAML, and whether it is open to E1 of acme and E2 of globex.
pub const ROLLOUTS: [(&str, [bool; 2]); 4] = [
    ("{ percent: 0, employees: [E1] }", [true, false]),
    ("{ percent: 100 }", [true, true]),
    ("{ percent: 0 }", [false, false]),
    ("{ teams: [red] }", [true, true]),
];

/// Which glob matches which item, by `globset` as it comes.
pub static MATCHES: LazyLock<HashSet<(&str, usize)>> = LazyLock::new(|| {
    let of = |glob: &'static str| {
        let matcher = globset::Glob::new(glob).unwrap().compile_matcher();
        let hits = ITEMS.iter().enumerate().filter(move |(_, item)| matcher.is_match(item.full()));
        hits.map(move |(index, _)| (glob, index)).collect::<Vec<_>>()
    };
    GLOBS.into_iter().flat_map(of).collect()
});

/// A rule before it is written down.
#[derive(Debug, Clone)]
pub struct Made {
    pub effect: Effect,
    /// `None`: the platform's.
    pub tenant: Option<&'static str>,
    pub roles: Vec<&'static str>,
    pub callers: Vec<&'static str>,
    pub risks: Vec<Risk>,
    /// By family.
    pub globs: [Vec<&'static str>; 3],
    pub when: Vec<usize>,
    pub rollout: Option<usize>,
}

/// Who looks.
#[derive(Debug, Clone)]
pub struct Viewer {
    pub tenant: &'static str,
    pub caller: &'static str,
    /// `None`: no employee.
    pub roles: Option<Vec<&'static str>>,
    pub employee: Option<usize>,
}

pub fn made() -> impl Strategy<Value = Made> {
    let globs = || prop_oneof![2 => Just(vec![]), 1 => subsequence(GLOBS.to_vec(), 1..=2)];
    let effect = prop_oneof![
        5 => Just(Effect::Allow),
        2 => Just(Effect::Deny),
        1 => Just(Effect::RequireApproval)
    ];
    let who = (
        prop_oneof![Just(None), Just(Some(TENANTS[0])), Just(Some(TENANTS[1]))],
        subsequence(ROLES.to_vec(), 0..=1),
        subsequence(CALLERS.to_vec(), 0..=1),
    );
    let what = (subsequence(Risk::ALL.to_vec(), 0..=3), [globs(), globs(), globs()]);
    let when = prop_oneof![2 => Just(vec![]), 1 => subsequence(vec![0, 1, 2, 3, 4], 1..=2)];
    let rollout = prop_oneof![3 => Just(None), 1 => (0..ROLLOUTS.len()).prop_map(Some)];
    (effect, who, what, when, rollout).prop_map(
        |(effect, (tenant, roles, callers), (risks, globs), when, rollout)| Made {
            rollout: rollout.filter(|_| effect == Effect::Allow),
            when: if globs[2].is_empty() { when } else { vec![] },
            effect,
            tenant,
            roles,
            callers,
            risks,
            globs,
        },
    )
}

pub fn rules() -> impl Strategy<Value = Vec<Made>> {
    prop::collection::vec(made(), 0..10)
}

pub fn viewers() -> Vec<Viewer> {
    let mut viewers = Vec::new();
    for (number, tenant) in TENANTS.into_iter().enumerate() {
        for caller in CALLERS.into_iter().chain(["stranger"]) {
            viewers.push(Viewer { tenant, caller, roles: None, employee: None });
            for held in [&[][..], &ROLES[..1], &ROLES[1..], &ROLES[..]] {
                for employee in [None, Some(number)] {
                    viewers.push(Viewer { tenant, caller, roles: Some(held.to_vec()), employee });
                }
            }
        }
    }
    viewers
}

impl Made {
    pub fn yaml(&self, id: usize) -> String {
        let mut text = format!("{{ id: r{id}, effect: {}", self.effect.as_str());
        let mut list = |key: &str, words: Vec<&str>| {
            if !words.is_empty() {
                text.push_str(&format!(", {key}: [\"{}\"]", words.join("\", \"")));
            }
        };
        list("roles", self.roles.clone());
        list("callers", self.callers.clone());
        list("risk", self.risks.iter().map(|risk| risk.as_str()).collect());
        for family in Family::ALL {
            list(family.key(), self.globs[family as usize].clone());
        }
        let when: Vec<_> = self.when.iter().map(|index| CONDITIONS[*index].0).collect();
        if !when.is_empty() {
            text.push_str(&format!(", when: [{}]", when.join(", ")));
        }
        if let Some(rollout) = self.rollout {
            text.push_str(&format!(", rollout: {}", ROLLOUTS[rollout].0));
        }
        if self.effect == Effect::RequireApproval {
            text.push_str(", approval: { roles: [owner] }");
        }
        text + " }"
    }

    pub fn scope(&self) -> String {
        self.tenant.map_or("platform".to_owned(), |tenant| format!("{{ tenant: {tenant} }}"))
    }

    /// Whether the rule is about this viewer and this item, read word by word.
    pub fn is_about(&self, viewer: &Viewer, item: usize, risk: Risk) -> bool {
        let globs = &self.globs[ITEMS[item].family as usize];
        let names_none = self.globs.iter().all(Vec::is_empty);
        self.tenant.is_none_or(|own| own == viewer.tenant)
            && (self.callers.is_empty() || self.callers.contains(&viewer.caller))
            && match &viewer.roles {
                Some(held) => self.roles.is_empty() || self.roles.iter().any(|r| held.contains(r)),
                None => {
                    let grants = self.effect == Effect::Allow;
                    self.roles.is_empty() && !(grants && self.callers.is_empty())
                }
            }
            && self.rollout.is_none_or(|rollout| {
                viewer.employee.is_some_and(|employee| ROLLOUTS[rollout].1[employee])
            })
            && (self.risks.is_empty() || self.risks.contains(&risk))
            && (names_none || globs.iter().any(|glob| MATCHES.contains(&(*glob, item))))
    }

    pub fn holds(&self, arguments: &Value) -> bool {
        self.when.iter().all(|index| CONDITIONS[*index].1(arguments))
    }
}

/// The decision word by word, and whether a list shows it.
pub fn expected(
    rules: &[Made],
    viewer: &Viewer,
    item: usize,
    arguments: &str,
) -> (DecisionKind, bool) {
    let classes = [Some(Risk::ReadLow), Some(Risk::ReadHigh), Some(Risk::WriteHigh), None];
    let risk = match item {
        0..4 => classes[item],
        7 => Some(Risk::ReadHigh),
        _ => Some(Risk::ReadLow),
    };
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    let about: Vec<&Made> = rules
        .iter()
        .filter(|r| r.is_about(viewer, item, risk.unwrap_or(Risk::WriteHigh)))
        .collect();
    let has = |effect: Effect, test: &dyn Fn(&Made) -> bool| {
        about.iter().any(|rule| rule.effect == effect && test(rule))
    };
    let hidden = risk.is_none()
        || has(Effect::Deny, &|rule| rule.when.is_empty())
        || !has(Effect::Allow, &|_| true);
    let holds = |rule: &Made| rule.holds(&arguments);
    let kind = if hidden {
        DecisionKind::Hide
    } else if has(Effect::Deny, &holds) || !has(Effect::Allow, &holds) {
        DecisionKind::Deny
    } else if has(Effect::RequireApproval, &holds) {
        DecisionKind::RequireApproval
    } else {
        DecisionKind::Allow
    };
    (kind, !hidden)
}

/// Each rule in a file of its own.
pub fn files(rules: &[Made]) -> Vec<PolicyFile> {
    let rules = rules.iter().enumerate().map(|(id, rule)| {
        file(&format!("{id}.yaml"), &policy(&rule.scope(), &[rule.yaml(id).as_str()]))
    });
    rules.chain([file("tools.yaml", CLASSES)]).collect()
}
