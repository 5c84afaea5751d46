//! What `diff` finds, and that it agrees with what views show.

use super::*;

fn policies(rules: &[&str]) -> Policies {
    let own = policy("{ tenant: acme }", rules);
    compile(vec![file("tools.yaml", TOOLS), file("rules.yaml", &own)])
}

/// `kind roles item` of each difference in acme.
fn between(old: &[&str], new: &[&str]) -> Vec<String> {
    let found = diff(&policies(old), &policies(new), []);
    let own = found.iter().filter(|found| found.tenant.is_some());
    let told = own.map(|found| {
        let roles: Vec<_> = found.who.roles.iter().map(|role| role.as_str()).collect();
        let only = found.only.as_ref().map_or(String::new(), |only| format!(" where {only}"));
        format!("{:?} {} {}{only}", found.kind, roles.join("+"), found.item)
    });
    told.collect()
}

const SEARCH: &str = "{ id: a, effect: allow, roles: [m], tools: [crm/contacts.search] }";

#[test]
fn a_rule_more_widens_and_a_rule_less_narrows() {
    assert_eq!(between(&[], &[SEARCH]), ["Widened m crm/contacts.search"]);
    assert_eq!(between(&[SEARCH], &[]), ["Narrowed m crm/contacts.search"]);
    assert_eq!(between(&[SEARCH], &[SEARCH]), Vec::<String>::new());
}

#[test]
fn a_deny_for_one_role_that_goes_shows_with_another() {
    let deny = "{ id: d, effect: deny, roles: [x], tools: [crm/contacts.search] }";
    assert_eq!(between(&[SEARCH, deny], &[SEARCH]), ["Widened m+x crm/contacts.search"]);
    assert_eq!(between(&[SEARCH], &[SEARCH, deny]), ["Narrowed m+x crm/contacts.search"]);
}

#[test]
fn a_quota_that_stops_sooner_narrows() {
    let with = |cost: u32, percent: u32| {
        let own = policy("{ tenant: acme }", &[SEARCH]);
        let quota = format!(
            "{own}\nquotas:\n  - {{ id: q, per: [tenant], budget: {{ cost: {cost}, every: month, zone: UTC }}, \
             steps: [{{ at: {percent}%, do: deny }}] }}\n"
        );
        compile(vec![file("tools.yaml", TOOLS), file("rules.yaml", &quota)])
    };
    let none = || policies(&[SEARCH]);
    for (old, new, expected) in [
        (none(), with(100, 90), vec!["Narrowed m crm/contacts.search when q >= 90%"]),
        (with(100, 90), none(), vec!["Widened m crm/contacts.search when q >= 90%"]),
        (with(100, 90), with(50, 90), vec!["Narrowed m crm/contacts.search when q >= 90%"]),
        (with(100, 90), with(100, 100), vec!["Widened m crm/contacts.search when q >= 90%"]),
        (with(100, 100), with(200, 50), vec![]),
    ] {
        let found = diff(&old, &new, []);
        let own = found.iter().filter(|found| found.tenant.is_some());
        let told = own.map(|found| {
            let roles: Vec<_> = found.who.roles.iter().map(|role| role.as_str()).collect();
            let when = found.when.as_deref().unwrap_or_default();
            format!("{:?} {} {} when {when}", found.kind, roles.join("+"), found.item)
        });
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn conditions_are_compared_as_they_are_written() {
    let with = |when: &str| SEARCH.replace(" }", &format!(", when: {when} }}"));
    let eu = with("{ arg: /region, eq: eu }");
    let two = with("[{ arg: /region, eq: eu }, { arg: /limit, range: [1, 9] }]");
    assert_eq!(between(&[&eu], &[SEARCH]), ["Widened m crm/contacts.search"]);
    assert_eq!(between(&[&eu], &[&two]), ["Narrowed m crm/contacts.search where /region eq eu"]);
    let us = with("{ arg: /region, eq: us }");
    assert_eq!(
        between(&[&eu], &[&us]),
        [
            "Widened m crm/contacts.search where /region eq us",
            "Narrowed m crm/contacts.search where /region eq eu"
        ]
    );
}

#[test]
fn approval_is_told_apart() {
    let ask = |terms: &str| {
        format!("{{ id: q, effect: require_approval, tools: [\"crm/*\"], approval: {terms} }}")
    };
    let (one, two) = (ask("{ roles: [o] }"), ask("{ roles: [o], count: 2 }"));
    let kinds = |old: &[&str], new: &[&str]| -> Vec<String> {
        between(old, new).iter().filter_map(|t| Some(t.split_once(' ')?.0.to_owned())).collect()
    };
    assert_eq!(kinds(&[SEARCH, &one], &[SEARCH]), ["ApprovalRemoved"]);
    assert_eq!(kinds(&[SEARCH], &[SEARCH, &one]), ["ApprovalAdded"]);
    assert_eq!(kinds(&[SEARCH, &one], &[SEARCH, &two]), ["ApprovalChanged"]);
}

#[test]
fn a_rollout_that_grows_widens_and_one_that_shrinks_narrows() {
    let open =
        |percent: u32| SEARCH.replace(" }", &format!(", rollout: {{ percent: {percent} }} }}"));
    let (few, many) = (open(10), open(20));
    let told = "m crm/contacts.search where `a` is open to them";
    assert_eq!(between(&[&few], &[&many]), [format!("Widened {told}")]);
    assert_eq!(between(&[&many], &[&few]), [format!("Narrowed {told}")]);
    assert_eq!(between(&[&many], &[SEARCH]), ["Widened m crm/contacts.search"]);
}

#[test]
fn a_tool_of_another_risk_is_open_to_others() {
    let rule = policy("platform", &["{ id: a, effect: allow, roles: [m], risk: [read_low] }"]);
    let of = |risk: &str| {
        let tools = TOOLS.replace(
            "contacts.export: { risk: read_high",
            &format!("contacts.export: {{ risk: {risk}"),
        );
        compile(vec![file("tools.yaml", &tools), file("rules.yaml", &rule)])
    };
    let found = diff(&of("read_high"), &of("read_low"), []);
    let items: Vec<_> = found.iter().map(|found| (found.kind, found.item.as_str())).collect();
    assert_eq!(items, [(DifferenceKind::Widened, "crm/contacts.export")]);
}

#[test]
fn what_no_file_names_is_compared_by_its_glob() {
    let rule = "{ id: a, effect: allow, roles: [m], tools: [\"wiki/draft.*\"] }";
    assert_eq!(between(&[], &[rule]), ["Widened m wiki/draft.*"]);
    assert_eq!(
        between(&[], &["{ id: a, effect: allow, roles: [m], tools: [\"crm/draft.*\"] }"]),
        Vec::<String>::new()
    );
}

/// Taking an argument out of callers' hands narrows, and giving it back widens.
#[test]
fn whose_an_argument_is_makes_a_difference() {
    let tools = |face: &str| {
        let text = format!(
            "version: hangu/v1\nkind: Tools\nupstreams:\n  crm:\n    tools: {{ a: {{ risk: read_low{face} }} }}\n"
        );
        let rule = policy("{ tenant: acme }", &["{ id: r, effect: allow, roles: [m] }"]);
        compile(vec![file("tools.yaml", &text), file("rules.yaml", &rule)])
    };
    let between = |old: &str, new: &str| {
        let found = diff(&tools(old), &tools(new), []);
        let told = found.iter().map(|found| {
            let only = found.only.as_deref().unwrap_or_default();
            format!("{:?} {} {only}", found.kind, found.item)
        });
        told.collect::<Vec<_>>().join("; ")
    };
    let tenant = ", inject: { t: $ctx.tenant }";
    let words =
        |words: &str| format!(", override: {{ parameters: {{ t: {{ enum: [{words}] }} }} }}");
    for (old, new, told) in [
        ("", tenant, "Narrowed crm/a `t` is sent by the gateway"),
        (tenant, "", "Widened crm/a `t` is the caller's to choose"),
        (tenant, ", inject: { t: other }", "Widened crm/a `t` is sent by the gateway"),
        (tenant, ", hide: [t]", "Widened crm/a `t` is not sent"),
        ("", ", hide: [t]", "Narrowed crm/a `t` is not sent"),
        (&words("x"), &words("x, y"), "Widened crm/a `t` is one of x, y"),
        (&words("x, y"), &words("y"), "Narrowed crm/a `t` is one of y"),
        (&words("x, y"), &words("y, x"), ""),
        (&words("x"), "", "Widened crm/a `t` is the caller's to choose"),
        ("", ", name: b, description: d", ""),
    ] {
        assert_eq!(between(old, new), told, "{old} -> {new}");
    }
}

#[test]
fn an_employee_with_other_roles_may_do_something_else() {
    let people = |roles: &str| {
        let text = format!(
            "version: hangu/v1\nkind: Directory\nemployees: {{ E1: {{ tenant: acme, roles: [{roles}] }} }}\n"
        );
        let own = policy("{ tenant: acme }", &[SEARCH]);
        compile(vec![file("tools.yaml", TOOLS), file("r.yaml", &own), file("d.yaml", &text)])
    };
    let found = diff(&people("x"), &people("m"), []);
    let found: Vec<_> = found.iter().collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].kind, DifferenceKind::Widened);
    assert_eq!(found[0].who.employee.as_ref().map(|id| id.as_str()), Some("E1"));
}

#[test]
fn the_smallest_change_really_turns_the_decision() {
    let deny = "{ id: d, effect: deny, roles: [x], tools: [crm/contacts.search] }";
    let staged = "{ id: s, effect: allow, roles: [m], tools: [crm/contacts.export], rollout: { percent: 0 } }";
    let policies = policies(&[SEARCH, deny, staged]);
    let bench = Bench::new(&policies, policies.named());
    let flip = |names: &[&str], tool: &str| {
        let asker = Asker {
            tenant: tenant("acme"),
            caller: None,
            employee: None,
            roles: Some(roles(names)),
        };
        let item = bench.find(&Named::parse(Family::Tools, tool).unwrap()).unwrap();
        bench.smallest_change(&asker, item, None).change
    };
    let search = "crm/contacts.search";
    assert!(matches!(flip(&[], search), Change::Role(role) if role.as_str() == "m"));
    assert!(matches!(flip(&["m", "x"], search), Change::WithoutRole(role) if role.as_str() == "x"));
    assert!(matches!(flip(&["m"], search), Change::WithoutRole(role) if role.as_str() == "m"));
    assert!(
        matches!(flip(&["m"], "crm/contacts.export"), Change::Rollout(rule) if &*rule.id == "s")
    );
    assert!(matches!(flip(&["m"], "crm/contacts.purge"), Change::NewRule));
}

mod for_any_rules {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{
        super::made::{ARGUMENTS, EMPLOYEES, ITEMS, Viewer, files, rules, viewers},
        *,
    };
    use crate::model::{caller::EmployeeId, exchange::DecisionKind};

    /// How easily something is let through: not at all, after approval, at once.
    fn ease(kind: DecisionKind) -> u8 {
        match kind {
            DecisionKind::Hide | DecisionKind::Deny => 0,
            DecisionKind::RequireApproval => 1,
            DecisionKind::Allow => 2,
        }
    }

    fn eases(policies: &Policies) -> Vec<u8> {
        let set = policies.bind(&ITEMS);
        let mut all = Vec::new();
        for Viewer { tenant: of, caller: by, roles: held, employee } in viewers() {
            let (of, by) = (tenant(of), caller(by));
            let employee = employee.and_then(|number| EmployeeId::parse(EMPLOYEES[number]));
            let view = match (held.map(|held| roles(&held)), employee) {
                (Some(held), Some(id)) => set.view_of_employee(&of, &by, &id, &held),
                (Some(held), None) => set.view(&of, &by, &held),
                (None, _) => set.view_of_key(&of, &by),
            };
            for item in 0..ITEMS.len() {
                for arguments in ARGUMENTS {
                    let raw = Bytes::from_static(arguments.as_bytes());
                    all.push(ease(view.decide_call(ItemIndex::new(item), Some(&raw)).kind));
                }
            }
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn what_diff_does_not_find_wider_is_wider_for_nobody(old in rules(), new in rules()) {
            let (old, new) = (compile(files(&old)), compile(files(&new)));
            let items = ITEMS.map(|subject| Named {
                family: subject.family,
                upstream: subject.upstream.into(),
                name: subject.name.into(),
            });
            let found = diff(&old, &new, items);
            let (before, after) = (eases(&old), eases(&new));
            let mut pairs = before.iter().zip(&after);
            if !found.iter().any(|found| found.kind.widens()) {
                prop_assert!(pairs.clone().all(|(before, after)| after <= before), "{found:?}");
            }
            use DifferenceKind::{ApprovalAdded, ApprovalChanged, Narrowed};
            let narrows = [ApprovalAdded, ApprovalChanged, Narrowed];
            if !found.iter().any(|found| narrows.contains(&found.kind)) {
                prop_assert!(pairs.all(|(before, after)| before <= after), "{found:?}");
            }
        }

        #[test]
        fn the_same_policies_never_differ(rules in rules()) {
            let policies = compile(files(&rules));
            prop_assert!(diff(&policies, &policies, []).is_empty());
        }
    }
}
