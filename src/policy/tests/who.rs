//! Staged rollouts: the same employees in lists and in calls, on every replica.

use super::*;
use crate::model::caller::EmployeeId;

const DIRECTORY: &str = "
version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member], teams: [payments] }
  E2: { tenant: acme, roles: [member] }
  E3: { tenant: globex, roles: [member], teams: [payments] }
";

fn staged(rollout: &str) -> Set {
    let rules = [
        "{ id: base, effect: allow, roles: [member], tools: [\"wiki/*\"] }".to_owned(),
        format!(
            "{{ id: staged, effect: allow, roles: [member], tools: [crm/contacts.search], rollout: {rollout} }}"
        ),
    ];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    bind(&compile(vec![
        file("d.yaml", DIRECTORY),
        file("tools.yaml", TOOLS),
        file("r.yaml", &policy("platform", &rules)),
    ]))
}

fn employee(id: &str) -> EmployeeId {
    EmployeeId::parse(id).unwrap()
}

fn seen_by(set: &Set, of: &str, id: &str) -> Vec<&'static str> {
    shown(&set.view_of_employee(&tenant(of), &caller("gate"), &employee(id), &roles(&["member"])))
}

const BOTH: [&str; 2] = ["contacts.search", "page.read"];
const BASE: [&str; 1] = ["page.read"];

#[test]
fn a_staged_rule_is_open_to_those_it_names_and_to_nobody_else() {
    let set = staged("{ employees: [E2], teams: [payments] }");
    assert_eq!(seen_by(&set, "acme", "E1"), BOTH);
    assert_eq!(seen_by(&set, "acme", "E2"), BOTH);
    assert_eq!(seen_by(&set, "acme", "E9"), BASE);
    assert_eq!(seen_by(&set, "globex", "E3"), BOTH);
    // The directory places E3 elsewhere: his team is not one of this tenant.
    assert_eq!(seen_by(&set, "acme", "E3"), BASE);
    // Nobody in particular, or no employee at all.
    assert_eq!(shown(&set.view(&tenant("acme"), &caller("gate"), &roles(&["member"]))), BASE);
    assert!(shown(&set.view_of_key(&tenant("acme"), &caller("gate"))).is_empty());
}

#[test]
fn a_percentage_opens_to_some_and_the_same_each_time() {
    let (set, again) = (staged("{ percent: 30 }"), staged("{ percent: 30 }"));
    let wider = staged("{ percent: 60 }");
    let mut open = 0;
    for number in 0..500 {
        let id = format!("E{number}");
        let seen = seen_by(&set, "acme", &id);
        assert_eq!(seen, seen_by(&again, "acme", &id));
        if seen == BOTH {
            open += 1;
            assert_eq!(seen_by(&wider, "acme", &id), BOTH);
        }
    }
    assert!((100..200).contains(&open), "{open}");
}

#[test]
fn views_are_shared_by_all_whom_a_rollout_treats_alike() {
    let set = staged("{ employees: [E1, E2] }");
    let view = |id: &str| {
        set.view_of_employee(&tenant("acme"), &caller("gate"), &employee(id), &roles(&["member"]))
    };
    assert!(Arc::ptr_eq(&view("E1"), &view("E2")) && Arc::ptr_eq(&view("E3"), &view("E4")));
    assert!(!Arc::ptr_eq(&view("E1"), &view("E3")));
    let nobody = set.view(&tenant("acme"), &caller("gate"), &roles(&["member"]));
    assert!(Arc::ptr_eq(&view("E3"), &nobody));
}

#[test]
fn a_tool_is_open_in_a_tenant_where_somebody_of_it_may_be_let_use_it() {
    let platform = policy(
        "platform",
        &[
            "{ id: owners, effect: allow, roles: [owner], tools: [\"crm/contacts.search\", \
             \"crm/contacts.export\", \"crm/contacts.update\", \"crm/unheard.of\"] }",
            "{ id: nobody, effect: deny, tools: [crm/contacts.export] }",
            "{ id: no-guests, effect: deny, roles: [guest], tools: [crm/contacts.search] }",
            "{ id: not-so, effect: deny, tools: [crm/contacts.update], when: { arg: /x, eq: 1 } }",
        ],
    );
    let acme = policy(
        "{ tenant: acme }",
        &["{ id: keys, effect: allow, callers: [gate], tools: [\"wiki/*\"] }"],
    );
    let set = bind(&compile(vec![
        file("tools.yaml", TOOLS),
        file("p.yaml", &platform),
        file("a.yaml", &acme),
    ]));
    let open = |of: &str| -> Vec<&str> {
        let is = |index: &usize| set.is_open_to_somebody(&tenant(of), ItemIndex::new(*index));
        (0..CATALOG.len() + 1).filter(is).map(|index| CATALOG[index].1).collect()
    };
    assert_eq!(open("acme"), ["contacts.search", "contacts.update", "page.read"]);
    assert_eq!(open("globex"), ["contacts.search", "contacts.update"]);
    // Before anything of it is listed.
    let may = |of: &str, upstream: &str| set.may_open_to_somebody(&tenant(of), upstream);
    for (of, upstream, expected) in [
        ("acme", "crm", true),
        ("acme", "wiki", true),
        ("acme", "internal", false),
        ("globex", "crm", true),
        ("globex", "wiki", false),
    ] {
        assert_eq!(may(of, upstream), expected, "{of} {upstream}");
    }
}
