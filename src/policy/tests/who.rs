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
