//! A decision told rule by rule.

use bytes::Bytes;

use super::*;
use crate::model::caller::EmployeeId;

#[test]
fn every_rule_is_told_with_the_first_condition_that_fails() {
    let platform = policy(
        "platform",
        &[
            "{ id: p-ask, effect: require_approval, risk: [write_high], approval: { roles: [owner] } }",
            "{ id: p-wiki, effect: deny, tools: [\"wiki/*\"] }",
        ],
    );
    let acme = policy(
        "{ tenant: acme }",
        &[
            "{ id: admin, effect: allow, roles: [admin] }",
            "{ id: few, effect: allow, rollout: { percent: 0 } }",
            "{ id: member, effect: allow, roles: [member], tools: [\"crm/*\"] }",
            "{ id: prompts, effect: allow, prompts: [\"*/*\"] }",
            "{ id: region, effect: deny, tools: [\"crm/*\"], when: [{ arg: /region, not_in: [eu] }, { arg: /x, eq: 1 }] }",
            "{ id: robot, effect: allow, callers: [robot] }",
        ],
    );
    let files = vec![file("p.yaml", &platform), file("a.yaml", &acme), file("tools.yaml", TOOLS)];
    let set = bind(&compile(files));
    let employee = EmployeeId::parse("E1").unwrap();
    let view =
        set.view_of_employee(&tenant("acme"), &caller("gate"), &employee, &roles(&["member"]));
    let told = |arguments: Option<&'static str>| {
        let raw = arguments.map(|text| Bytes::from_static(text.as_bytes()));
        let explained = view.explain(ItemIndex::new(0), raw.as_ref()).unwrap();
        let one = |told: &Told<'_>| {
            let line = told.rule.at.line;
            let verdict = match &told.verdict {
                Verdict::Depends(predicate) => format!("depends on {predicate}"),
                Verdict::Condition(predicate) => format!("not {predicate}"),
                other => format!("{other:?}"),
            };
            format!("{}:{line} {verdict}", told.rule.id)
        };
        (explained.decision.kind, explained.rules.iter().map(one).collect::<Vec<_>>())
    };
    let (kind, listed) = told(None);
    assert_eq!(kind, DecisionKind::Allow);
    assert_eq!(
        listed,
        [
            "p-ask:6 Risk",
            "p-wiki:7 Name",
            "admin:6 NotMeant(Role)",
            "few:7 NotMeant(Rollout)",
            "member:8 Applies",
            "prompts:9 Family",
            "region:10 depends on /region not_in [eu]",
            "robot:11 NotMeant(Caller)",
        ]
    );
    let (kind, called) = told(Some(r#"{"region":"us","x":2}"#));
    assert_eq!((kind, called[6].as_str()), (DecisionKind::Allow, "region:10 not /x eq 1"));
    let (kind, called) = told(Some(r#"{"region":"us","x":1}"#));
    assert_eq!((kind, called[6].as_str()), (DecisionKind::Deny, "region:10 Applies"));
    let alone = set.view_of_key(&tenant("acme"), &caller("gate"));
    let explained = alone.explain(ItemIndex::new(0), None).unwrap();
    assert!(matches!(explained.rules[2].verdict, Verdict::NotMeant(NotMeant::Employee)));
    assert!(view.explain(ItemIndex::new(99), None).is_none());
}
