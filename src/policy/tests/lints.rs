//! What is warned of, and what is not. One case a row.

use super::*;
use crate::{
    fault::Span,
    model::{caller::EmployeeId, server::UpstreamName},
};

/// A configuration with two tenants and both upstreams.
fn surroundings() -> Surroundings {
    let known =
        |id: &str, of: &str, catalog: &[&str], fixed: Option<(&str, &[&str])>| KnownCaller {
            id: caller(id),
            tenant: tenant(of),
            at: Span::file("hangu.yaml"),
            fixed: fixed.map(|(id, held)| (EmployeeId::parse(id).unwrap(), roles(held))),
            catalog_roles: roles(catalog),
        };
    let upstream = |name: &str| (UpstreamName::parse(name).unwrap(), Span::file("hangu.yaml"));
    Surroundings {
        callers: vec![
            known("gate", "acme", &["member"], None),
            known("robot", "globex", &[], Some(("E9", &["clerk"]))),
        ],
        upstreams: vec![upstream("crm"), upstream("wiki")],
    }
}

/// Roles are asked for by two rules that are not in anybody's way.
const QUIET: [&str; 2] = [
    "{ id: q1, effect: allow, roles: [member], tools: [crm/contacts.search] }",
    "{ id: q2, effect: allow, roles: [clerk], tools: [crm/contacts.search] }",
];

/// `code message` of the warnings about `rules` of the platform.
fn warned(rules: &[&str]) -> Vec<String> {
    let rules: Vec<&str> = QUIET.iter().chain(rules).copied().collect();
    lint(vec![file("rules.yaml", &policy("platform", &rules))], Some(&surroundings()))
}

fn lint(mut files: Vec<PolicyFile>, surroundings: Option<&Surroundings>) -> Vec<String> {
    // The weak write of TOOLS is none of these tests' business.
    files.push(file("tools.yaml", &TOOLS.replace(", idempotency: optional", "")));
    let faults = compile(files).lint(surroundings);
    faults.iter().map(|fault| format!("{} {}", fault.code, fault.message)).collect()
}

#[test]
fn rules_that_are_of_use_are_not_warned_of() {
    for rules in [
        &[][..],
        &["{ id: a, effect: allow, roles: [member], tools: [\"wiki/*\"] }"],
        &["{ id: a, effect: deny, roles: [member], risk: [read_high] }"],
        &["{ id: a, effect: deny, tools: [\"*/shell*\"] }"],
        // Narrower, but also for a key without an employee.
        &[
            "{ id: a, effect: allow, risk: [read_high] }",
            "{ id: b, effect: allow, callers: [gate], risk: [read_high] }",
        ],
        &[
            "{ id: a, effect: deny, risk: [read_high] }",
            "{ id: b, effect: allow, roles: [member], risk: [read_low, read_high] }",
        ],
        &[
            "{ id: a, effect: allow, tools: [\"*/*.update\"] }",
            "{ id: b, effect: allow, roles: [clerk], tools: [\"*/*.export\"] }",
        ],
        &["{ id: a, effect: allow, roles: [clerk], tools: [\"wiki/some.page\"] }"],
    ] {
        assert_eq!(warned(rules), Vec::<String>::new(), "{rules:?}");
    }
}

#[test]
fn a_rule_that_can_do_nothing_is_dead() {
    for (rules, expected) in [
        (
            &[
                "{ id: a, effect: allow, roles: [member], tools: [wiki/page.read] }",
                "{ id: no, effect: deny, tools: [\"wiki/*\"] }",
            ][..],
            "P101 `a` is dead: `no` denies all that it allows",
        ),
        (
            &[
                "{ id: a, effect: allow, roles: [member], callers: [gate], risk: [read_high] }",
                "{ id: no, effect: deny, roles: [clerk, member], risk: [read_high, write_high] }",
            ],
            "P101 `a` is dead: `no` denies all that it allows",
        ),
        (
            &[
                "{ id: a, effect: allow, roles: [member], tools: [crm/contacts.purge], risk: [read_low] }",
            ],
            "P101 `a` is dead: nothing it names has a risk it names",
        ),
        (
            &[
                "{ id: a, effect: allow, tools: [\"wiki/*\"] }",
                "{ id: b, effect: allow, roles: [member], tools: [wiki/page.read] }",
            ],
            "P102 `b` adds nothing: `a` allows all of it",
        ),
        (
            &[
                "{ id: a, effect: deny, tools: [\"wiki/*\"] }",
                "{ id: b, effect: deny, tools: [\"wiki/*\"] }",
            ],
            "P102 `b` adds nothing: `a` denies all of it",
        ),
    ] {
        assert_eq!(warned(rules), [expected], "{rules:?}");
    }
}

#[test]
fn names_that_nobody_has_are_told() {
    for (rule, expected) in [
        ("{ id: a, effect: deny, tools: [\"crn/*\"] }", "P108 there is no upstream `crn`"),
        (
            "{ id: a, effect: deny, tools: [crm/contacts.serach] }",
            "P107 `crm/contacts.serach` matches no tool in the catalog",
        ),
        (
            "{ id: a, effect: allow, roles: [member], tools: [\"*/invoices.*\"] }",
            "P107 `*/invoices.*` matches no tool in the catalog",
        ),
        ("{ id: a, effect: deny, roles: [membre] }", "P103 nobody has the role `membre`"),
        ("{ id: a, effect: deny, callers: [gat] }", "P105 there is no caller `gat`"),
    ] {
        assert_eq!(warned(&[rule]), [expected], "{rule}");
    }
}

#[test]
fn tenants_and_their_callers_belong_together() {
    let of = |scope: &str, rule: &str| {
        let quiet = policy("platform", &QUIET);
        let files = vec![file("q.yaml", &quiet), file("t.yaml", &policy(scope, &[rule]))];
        lint(files, Some(&surroundings()))
    };
    let deny = "{ id: a, effect: deny, risk: [write_high] }";
    assert!(of("{ tenant: acme }", deny).is_empty());
    assert_eq!(of("{ tenant: acmee }", deny), ["P106 no caller belongs to the tenant `acmee`"]);
    let foreign = "{ id: a, effect: deny, callers: [robot] }";
    assert_eq!(
        of("{ tenant: acme }", foreign),
        ["P105 caller `robot` is of another tenant: `globex`"]
    );
    let role = "{ id: a, effect: deny, roles: [clerk] }";
    assert_eq!(of("{ tenant: acme }", role), ["P103 nobody has the role `clerk`"]);
}

#[test]
fn roles_and_employees_of_the_directory_are_looked_at() {
    let directory = |employees: &str| {
        let text = format!("version: hangu/v1\nkind: Directory\nemployees: {employees}\n");
        let files = vec![file("q.yaml", &policy("platform", &QUIET)), file("d.yaml", &text)];
        lint(files, Some(&surroundings()))
    };
    assert!(directory("{ E1: { tenant: acme, roles: [member] } }").is_empty());
    assert_eq!(
        directory("{ E1: { tenant: acme, roles: [membr] }, E2: { tenant: acme, roles: [membr] } }"),
        ["P104 no rule of tenant `acme` asks for the role `membr`"]
    );
    assert_eq!(
        directory("{ E1: { tenant: nowhere, roles: [member] } }"),
        ["P106 no caller belongs to the tenant `nowhere`"]
    );
    assert_eq!(
        directory("{ E9: { tenant: acme, roles: [member] } }"),
        ["C010 caller `robot` of tenant `globex` acts as `E9`, who belongs to `acme`"]
    );
}

#[test]
fn upstreams_and_tools_without_a_class_are_told() {
    let mut around = surroundings();
    around.upstreams.push((UpstreamName::parse("new").unwrap(), Span::file("hangu.yaml")));
    let quiet = || file("q.yaml", &policy("platform", &QUIET));
    assert_eq!(
        lint(vec![quiet()], Some(&around)),
        ["P110 nothing classifies the tools of `new`: all are hidden"]
    );
    around.upstreams.remove(0);
    around.upstreams.pop();
    let told = lint(vec![], Some(&around));
    assert!(told.contains(&"P108 there is no upstream `crm`".to_owned()), "{told:?}");
    let more = "version: hangu/v1\nkind: Tools\nupstreams:\n  crm: { tools: { odd: { timeout: 1s }, loose: { risk: write_low, idempotency: none } } }\n";
    assert_eq!(
        lint(vec![quiet(), file("m.yaml", more)], None),
        [
            "P110 `crm/odd` has no risk: it stays hidden",
            "P109 `crm/loose` writes, and takes calls without an idempotency key",
        ]
    );
}

#[test]
fn a_folder_alone_is_held_against_itself() {
    let rules = policy(
        "platform",
        &["{ id: a, effect: allow, roles: [anybody], callers: [anyone], tools: [\"crn/*\"] }"],
    );
    assert_eq!(lint(vec![file("a.yaml", &rules)], None), ["P108 there is no upstream `crn`"]);
}

#[test]
fn conditions_and_stages_leave_a_rule_its_use() {
    for rules in [
        // A deny under conditions kills nothing, and a staged allow covers nothing.
        &[
            "{ id: a, effect: allow, tools: [\"wiki/*\"] }",
            "{ id: b, effect: deny, tools: [\"wiki/*\"], when: { arg: /a, eq: 1 } }",
        ][..],
        &[
            "{ id: a, effect: allow, tools: [\"wiki/*\"], rollout: { percent: 5 } }",
            "{ id: b, effect: allow, roles: [member], tools: [\"wiki/*\"] }",
        ],
        &[
            "{ id: a, effect: require_approval, risk: [read_low], approval: { roles: [clerk] } }",
            "{ id: b, effect: require_approval, roles: [member], risk: [read_low], approval: { confirm: requester } }",
        ],
    ] {
        assert_eq!(warned(rules), Vec::<String>::new(), "{rules:?}");
    }
    let dead = [
        "{ id: a, effect: deny, tools: [\"wiki/*\"] }",
        "{ id: b, effect: require_approval, tools: [wiki/page.read], approval: { roles: [clerk] } }",
    ];
    assert_eq!(warned(&dead), ["P101 `b` is dead: `a` denies all that it asks about"]);
}

#[test]
fn roles_that_a_token_can_give_are_held() {
    let text = "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\nroles: { boss: { claim: groups, any: [b], includes: [chief] } }\nrules:\n  - { id: r, effect: deny, roles: [boss, chief, cheif], risk: [write_high] }\n";
    let files = vec![file("q.yaml", &policy("platform", &QUIET)), file("t.yaml", text)];
    assert_eq!(lint(files, Some(&surroundings())), ["P103 nobody has the role `cheif`"]);
    // The platform's roles are everybody's, and one that brings another is asked for with it.
    let platform = "version: hangu/v1\nkind: Policy\nscope: platform\nroles: { boss: { claim: groups, any: [b], includes: [member] } }\n";
    let own = "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\nroles: { head: { claim: groups, any: [h], includes: [member] } }\nrules:\n  - { id: r, effect: deny, roles: [boss], risk: [write_high] }\n";
    let files = vec![
        file("q.yaml", &policy("platform", &QUIET)),
        file("p.yaml", platform),
        file("t.yaml", own),
    ];
    assert_eq!(lint(files, Some(&surroundings())), Vec::<String>::new());
}

#[test]
fn conditions_are_held_against_the_arguments_of_each_tool() {
    use crate::json::{Doc, Duplicates, Limits};
    let limits = Limits { depth: 16, duplicates: Duplicates::Refuse, outline: 2 };
    let doc = |text: &'static str| {
        Doc::parse(bytes::Bytes::from_static(text.as_bytes()), &limits).unwrap()
    };
    let region = doc(r#"{"type":"object","properties":{"region":{"type":"string"}}}"#);
    let number = doc(r#"{"type":"object","properties":{"region":{"type":"integer"}}}"#);
    let none = doc(r#"{"type":"object","properties":{}}"#);
    let rules = policy(
        "platform",
        &["{ id: r, effect: deny, tools: [\"crm/*\"], when: { arg: /region, eq: eu } }"],
    );
    let policies = compile(vec![file("r.yaml", &rules), file("tools.yaml", TOOLS)]);
    assert!(policies.has_conditions());
    let found = policies.check_arguments([
        (Subject::tool("crm", "a"), region.root()),
        (Subject::tool("crm", "b"), number.root()),
        (Subject::tool("crm", "c"), none.root()),
        (Subject::tool("wiki", "d"), none.root()),
    ]);
    assert_eq!(
        told(&found),
        [
            "P015 6:52 `/region` of `crm/b` is of type integer, and never string",
            "P112 6:52 `crm/c` has no argument `/region`",
        ]
    );
}

#[test]
fn somebody_must_be_there_to_approve() {
    let ask = |roles: &str| {
        format!(
            "{{ id: a, effect: require_approval, tools: [\"crm/*\"], approval: {{ roles: [{roles}] }} }}"
        )
    };
    assert_eq!(
        warned(&[&ask("owner, security")]),
        ["P103 nobody can approve: nobody has `owner` or `security`"]
    );
    assert_eq!(warned(&[&ask("owner, clerk")]), Vec::<String>::new(), "one of them is enough");
    // A role that only approves is asked for all the same.
    let people =
        "version: hangu/v1\nkind: Directory\nemployees: { E1: { tenant: acme, roles: [owner] } }";
    let rules: Vec<String> =
        QUIET.iter().map(|rule| (*rule).to_owned()).chain([ask("owner")]).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let files = vec![file("d.yaml", people), file("r.yaml", &policy("platform", &rules))];
    assert_eq!(lint(files, Some(&surroundings())), Vec::<String>::new());
}

#[test]
fn a_quota_is_over_tools_that_there_are() {
    let quota = |tools: &str, to: &str| {
        let text = format!(
            "version: hangu/v1\nkind: Policy\nscope: platform\nquotas:\n  - id: q\n    per: [tenant]\n    \
             tools: [{tools}]\n    budget: {{ cost: 1, every: day, zone: UTC }}\n    \
             steps: [{{ at: 100%, do: degrade, to: {to} }}]\n"
        );
        let files = vec![file("tools.yaml", TOOLS), file("q.yaml", &text)];
        let (policies, faults) = Library::new(Language::Whole).compile(files);
        let policies = policies.unwrap_or_else(|| panic!("{:#?}", told(&faults)));
        let faults = policies.lint(None);
        let faults =
            faults.iter().filter(|fault| fault.code != crate::fault::FaultCode::WeakIdempotency);
        faults.map(|fault| format!("{} {}", fault.code, fault.message)).collect::<Vec<_>>()
    };
    assert_eq!(quota("crm/contacts.export", "crm/contacts.search"), Vec::<String>::new());
    assert_eq!(quota("crm/contacts.export", "wiki/anything"), Vec::<String>::new(), "a default");
    assert_eq!(
        quota("crm/contacts.exprot", "crm/contacts.serch"),
        [
            "P107 calls are to go to `crm/contacts.serch`, which nobody has classified",
            "P107 `crm/contacts.exprot` matches no tool in the catalog",
        ]
    );
}
