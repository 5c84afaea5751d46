//! What holds for any policies at all. Rules are made up, written as YAML, compiled, and held
//! against a reading of the same rules that knows no bits.

use bytes::Bytes;
use proptest::prelude::*;

use super::{made::*, *};
use crate::model::caller::EmployeeId;

fn bound(rules: &[Made]) -> Set {
    compile(files(rules)).bind(&ITEMS)
}

fn view(set: &Set, viewer: &Viewer) -> Arc<View> {
    let (of, by) = (tenant(viewer.tenant), caller(viewer.caller));
    match (&viewer.roles, viewer.employee) {
        (Some(held), Some(number)) => {
            let employee = EmployeeId::parse(EMPLOYEES[number]).unwrap();
            set.view_of_employee(&of, &by, &employee, &roles(held))
        }
        (Some(held), None) => set.view(&of, &by, &roles(held)),
        (None, _) => set.view_of_key(&of, &by),
    }
}

fn raw(arguments: &'static str) -> Bytes {
    Bytes::from_static(arguments.as_bytes())
}

/// Every decision that there is, in a fixed order: kind, reason, rule.
fn all_decisions(set: &Set) -> Vec<(DecisionKind, Reason, Option<Arc<str>>)> {
    let mut all = Vec::new();
    for viewer in viewers() {
        let view = view(set, &viewer);
        for item in 0..ITEMS.len() {
            for arguments in ARGUMENTS {
                let decision = view.decide_call(ItemIndex::new(item), Some(&raw(arguments)));
                let rule = decision.rule.map(|rule| rule.id.clone());
                all.push((decision.kind, decision.reason, rule));
            }
        }
    }
    all
}

fn kinds(set: &Set) -> Vec<DecisionKind> {
    all_decisions(set).into_iter().map(|(kind, _, _)| kind).collect()
}

/// Whatever `narrow` lets through or shows, `wide` does.
fn is_within(narrow: &Set, wide: &Set) -> bool {
    let pairs = kinds(narrow).into_iter().zip(kinds(wide));
    pairs.into_iter().all(|(narrow, wide)| {
        (narrow != DecisionKind::Allow || wide == DecisionKind::Allow)
            && (narrow == DecisionKind::Hide || wide != DecisionKind::Hide)
    })
}

fn with(rules: &[Made], rule: Made, at: usize) -> Vec<Made> {
    let mut more = rules.to_vec();
    more.insert(at.min(rules.len()), rule);
    more
}

/// The decision that the verdicts on the rules amount to.
fn told_by(explained: &Explanation<'_>) -> DecisionKind {
    let has = |effect: Effect, test: &dyn Fn(&Told<'_>) -> bool| {
        explained.rules.iter().any(|told| told.rule.effect == effect && test(told))
    };
    let applies = |told: &Told<'_>| matches!(told.verdict, Verdict::Applies);
    let sure = |told: &Told<'_>| applies(told) && told.rule.when.is_empty();
    let may = |told: &Told<'_>| {
        matches!(told.verdict, Verdict::Applies | Verdict::Condition(_) | Verdict::Depends(_))
    };
    if !explained.classified || has(Effect::Deny, &sure) || !has(Effect::Allow, &may) {
        DecisionKind::Hide
    } else if has(Effect::Deny, &applies) || !has(Effect::Allow, &applies) {
        DecisionKind::Deny
    } else if has(Effect::RequireApproval, &applies) {
        DecisionKind::RequireApproval
    } else {
        DecisionKind::Allow
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_decision_is_what_the_rules_say_word_by_word(rules in rules()) {
        let set = bound(&rules);
        for viewer in viewers() {
            let view = view(&set, &viewer);
            for item in 0..ITEMS.len() {
                for arguments in ARGUMENTS {
                    let (kind, shown) = expected(&rules, &viewer, item, arguments);
                    let decision = view.decide_call(ItemIndex::new(item), Some(&raw(arguments)));
                    prop_assert_eq!(decision.kind, kind, "{:?} {} {}", viewer, item, arguments);
                    prop_assert_eq!(view.visible().contains(item), shown);
                }
            }
        }
    }

    #[test]
    fn the_list_shows_exactly_what_a_call_may_get_through(rules in rules()) {
        let set = bound(&rules);
        for viewer in viewers() {
            let view = view(&set, &viewer);
            for index in 0..ITEMS.len() + 2 {
                let item = ItemIndex::new(index);
                let listed = view.visible().contains(index);
                prop_assert_eq!(view.decide(item).kind != DecisionKind::Hide, listed);
                for arguments in ARGUMENTS {
                    let decision = view.decide_call(item, Some(&raw(arguments)));
                    let kind = decision.kind;
                    prop_assert_eq!(kind != DecisionKind::Hide, listed);
                    // Where no argument matters, what is listed is let through.
                    if !view.looks_at_arguments(item) {
                        prop_assert_eq!(kind, view.decide(item).kind);
                    }
                    let permit = view.permit_call(item, Some(&raw(arguments)));
                    prop_assert_eq!(permit.is_ok(), kind == DecisionKind::Allow);
                    let pending = permit.err().and_then(|refusal| refusal.pending);
                    prop_assert_eq!(pending.is_some(), kind == DecisionKind::RequireApproval);
                    let reason = decision.reason;
                    prop_assert_eq!(kind == DecisionKind::Allow, reason == Reason::RuleAllow);
                    prop_assert_eq!(decision.asks.is_empty(), reason != Reason::RuleApproval);
                }
            }
        }
    }

    #[test]
    fn adding_a_deny_or_an_ask_never_widens(rules in rules(), mut deny in made(), at in 0..10_usize) {
        let before = bound(&rules);
        for effect in [Effect::Deny, Effect::RequireApproval] {
            deny.effect = effect;
            deny.rollout = None;
            prop_assert!(is_within(&bound(&with(&rules, deny.clone(), at)), &before));
        }
    }

    #[test]
    fn removing_an_allow_never_widens(rules in rules(), mut allow in made(), at in 0..10_usize) {
        allow.effect = Effect::Allow;
        prop_assert!(is_within(&bound(&rules), &bound(&with(&rules, allow, at))));
    }

    #[test]
    fn the_order_of_rules_and_files_never_matters(rules in rules(), seed in any::<u64>()) {
        let set = bound(&rules);
        // The same rules with the same ids, in one file and in another order.
        let mut numbered: Vec<(usize, &Made)> = rules.iter().enumerate().collect();
        numbered.sort_by_key(|(id, _)| (*id as u64).wrapping_mul(seed | 1).rotate_left(17));
        let mut one = String::new();
        for (id, rule) in &numbered {
            one.push_str(&policy(&rule.scope(), &[rule.yaml(*id).as_str()]));
        }
        let other = compile(vec![file("z.yaml", CLASSES), file("a.yaml", &one)]).bind(&ITEMS);
        prop_assert_eq!(all_decisions(&set), all_decisions(&other));
    }

    #[test]
    fn compiling_the_same_files_gives_the_same_whatever_was_compiled_before(rules in rules(), others in rules()) {
        let mut library = Library::default();
        library.compile(files(&others));
        let (again, _) = library.compile(files(&rules));
        let (again, fresh) = (again.unwrap(), compile(files(&rules)));
        prop_assert_eq!(again.revision(), fresh.revision());
        prop_assert_eq!(all_decisions(&again.bind(&ITEMS)), all_decisions(&fresh.bind(&ITEMS)));
    }

    #[test]
    fn a_tenants_rules_never_reach_another_tenant(rules in rules(), more in rules()) {
        let foreign = more.into_iter().map(|rule| Made { tenant: Some(TENANTS[0]), ..rule });
        let both: Vec<Made> = rules.iter().cloned().chain(foreign).collect();
        // Ids differ between the two, kinds may not.
        let (without, with) = (bound(&rules), bound(&both));
        for viewer in viewers().iter().filter(|viewer| viewer.tenant == TENANTS[1]) {
            let (without, with) = (view(&without, viewer), view(&with, viewer));
            prop_assert_eq!(without.visible(), with.visible());
            for item in (0..ITEMS.len()).map(ItemIndex::new) {
                for arguments in ARGUMENTS {
                    let kind = |view: &View| view.decide_call(item, Some(&raw(arguments))).kind;
                    prop_assert_eq!(kind(&without), kind(&with));
                }
            }
        }
    }

    #[test]
    fn a_tenants_rules_never_loosen_the_platforms(rules in rules()) {
        // The platform's ceiling: what it denies or asks about, beside a rule that allows all.
        let ceiling: Vec<Made> = rules
            .iter()
            .filter(|rule| rule.tenant.is_none() && rule.effect != Effect::Allow)
            .cloned()
            .collect();
        let all = |callers: Vec<&'static str>| Made {
            effect: Effect::Allow,
            tenant: None,
            roles: vec![],
            callers,
            risks: vec![],
            globs: Default::default(),
            when: vec![],
            rollout: None,
        };
        let everybody = [all(vec![]), all(vec!["gate", "robot", "stranger"])];
        let ceiling: Vec<Made> = ceiling.into_iter().chain(everybody).collect();
        prop_assert!(is_within(&bound(&rules), &bound(&ceiling)));
    }

    #[test]
    fn explaining_agrees_with_deciding(rules in rules()) {
        let set = bound(&rules);
        for viewer in viewers() {
            let view = view(&set, &viewer);
            for item in (0..ITEMS.len()).map(ItemIndex::new) {
                for arguments in ARGUMENTS {
                    let arguments = raw(arguments);
                    let explained = view.explain(item, Some(&arguments)).unwrap();
                    let decision = view.decide_call(item, Some(&arguments));
                    prop_assert_eq!(told_by(&explained), decision.kind);
                    prop_assert_eq!(explained.decision.kind, decision.kind);
                    // The rule that decided is one that applies.
                    let by = decision.rule.map(Arc::as_ptr);
                    let applies = explained.rules.iter().any(|told| {
                        by == Some(Arc::as_ptr(told.rule)) && matches!(told.verdict, Verdict::Applies)
                    });
                    prop_assert_eq!(applies, by.is_some());
                }
                let listed = view.explain(item, None).unwrap();
                let hidden = view.decide(item).kind == DecisionKind::Hide;
                let may = |effect: Effect, sure: bool| listed.rules.iter().any(|told| {
                    told.rule.effect == effect
                        && (matches!(told.verdict, Verdict::Applies)
                            || (!sure && matches!(told.verdict, Verdict::Depends(_))))
                });
                let told_hidden =
                    !listed.classified || may(Effect::Deny, true) || !may(Effect::Allow, false);
                prop_assert_eq!(told_hidden, hidden);
            }
        }
    }

    #[test]
    fn a_resource_is_decided_alike_in_the_catalog_and_by_its_uri(rules in rules()) {
        let set = bound(&rules);
        for viewer in viewers() {
            let view = view(&set, &viewer);
            let listed = view.permit(ItemIndex::new(7));
            let by_uri = view.permit_uri("crm", "crm://contacts/1");
            prop_assert_eq!(listed.is_ok(), by_uri.is_ok());
            if let (Err(listed), Err(by_uri)) = (listed, by_uri) {
                prop_assert_eq!(listed.pending.is_some(), by_uri.pending.is_some());
            }
        }
    }
}
