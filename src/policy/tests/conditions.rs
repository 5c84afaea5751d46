//! Rules about arguments, and rules that ask first.

use bytes::Bytes;

use super::*;
use crate::model::argument_facts::{ArgumentFacts, Fact};

fn view_of(rules: &[&str]) -> Arc<View> {
    set(rules).view(&tenant("acme"), &caller("gate"), &roles(&["member"]))
}

/// Kind, reason and rule of a call of `contacts.search`.
fn called(view: &Arc<View>, arguments: &'static str) -> (DecisionKind, Reason, Option<String>) {
    let raw = Bytes::from_static(arguments.as_bytes());
    let decision = view.decide_call(ItemIndex::new(0), Some(&raw));
    (decision.kind, decision.reason, decision.rule.map(|rule| rule.id.to_string()))
}

use DecisionKind::{Allow, Deny, Hide, RequireApproval};

#[test]
fn a_conditional_deny_does_not_hide_and_decides_the_call() {
    let view = view_of(&[
        "{ id: all, effect: allow }",
        "{ id: eu, effect: deny, tools: [\"crm/*\"], when: { arg: /region, not_in: [eu-west] }, say: Only in Europe. }",
    ]);
    assert!(view.visible().contains(0) && view.looks_at_arguments(ItemIndex::new(0)));
    assert!(!view.looks_at_arguments(ItemIndex::new(5)), "no condition is about the wiki");
    let eu = || Some("eu".to_owned());
    assert_eq!(
        called(&view, r#"{"region":"eu-west"}"#),
        (Allow, Reason::RuleAllow, Some("all".into()))
    );
    assert_eq!(called(&view, r#"{"region":"us"}"#), (Deny, Reason::RuleDeny, eu()));
    assert_eq!(called(&view, "{}"), (Deny, Reason::RuleDeny, eu()));
    // Of two, which a server might read either way, and of what is no JSON.
    assert_eq!(called(&view, r#"{"region":"us","region":"eu-west"}"#).0, Deny);
    assert_eq!(called(&view, "{").0, Deny);
    let refusal = view.permit(ItemIndex::new(0)).unwrap_err();
    assert_eq!(refusal.rule.unwrap().say.as_deref(), Some("Only in Europe."));
    let looked: Vec<_> = view.arguments_looked_at(ItemIndex::new(0)).map(Pointer::as_str).collect();
    assert_eq!(looked, ["/region"]);
}

#[test]
fn a_conditional_allow_shows_and_lets_through_what_it_is_about() {
    let view = view_of(&[
        "{ id: small, effect: allow, tools: [crm/contacts.search], when: [{ arg: /limit, range: [1, 10] }, { arg: /q, max_len: 5 }] }",
    ]);
    assert_eq!(shown(&view), ["contacts.search"]);
    assert_eq!(view.decide(ItemIndex::new(0)).kind, Allow);
    let small = Some("small".to_owned());
    assert_eq!(called(&view, r#"{"limit":10,"q":"abc"}"#), (Allow, Reason::RuleAllow, small));
    for arguments in [r#"{"limit":11,"q":"abc"}"#, r#"{"limit":10}"#, r#"{"limit":1,"q":"abcdef"}"#]
    {
        assert_eq!(called(&view, arguments), (Deny, Reason::DefaultDeny, None), "{arguments}");
    }
}

#[test]
fn one_sure_allow_is_enough() {
    let view = view_of(&[
        "{ id: a-small, effect: allow, when: { arg: /limit, range: [1, 10] } }",
        "{ id: b-all, effect: allow }",
    ]);
    assert!(!view.looks_at_arguments(ItemIndex::new(0)));
    assert_eq!(called(&view, r#"{"limit":1}"#), (Allow, Reason::RuleAllow, Some("b-all".into())));
}

#[test]
fn asking_grants_nothing_hides_nothing_and_yields_to_a_deny() {
    let ask =
        "{ id: ask, effect: require_approval, risk: [read_low], approval: { roles: [owner] } }";
    assert!(view_of(&[ask]).visible().is_empty());
    let view = view_of(&[ask, "{ id: all, effect: allow }"]);
    assert!(view.visible().contains(0));
    assert_eq!(view.decide(ItemIndex::new(0)).kind, RequireApproval);
    assert_eq!(called(&view, "{}"), (RequireApproval, Reason::RuleApproval, Some("ask".into())));
    let refusal = view.permit(ItemIndex::new(0)).unwrap_err();
    let pending = refusal.pending.unwrap();
    let asks: Vec<_> = pending.rules().iter().map(|rule| &*rule.id).collect();
    assert_eq!(asks, ["ask"]);
    let permit = pending.held();
    assert_eq!((permit.asks().len(), permit.rule().map(|rule| &*rule.id)), (1, Some("all")));
    // A call that nobody asks about needs nobody.
    assert!(view.permit(ItemIndex::new(1)).unwrap().asks().is_empty());
    let denied = view_of(&[ask, "{ id: all, effect: allow }", "{ id: no, effect: deny }"]);
    assert_eq!(called(&denied, "{}").0, Hide);
}

#[test]
fn what_is_asked_about_can_depend_on_the_arguments() {
    let view = view_of(&[
        "{ id: all, effect: allow }",
        "{ id: much, effect: require_approval, when: { arg: /n, range: [100, null] }, approval: { roles: [owner], count: 2, expires: 1h } }",
        "{ id: very, effect: require_approval, when: { arg: /n, range: [1000, null] }, approval: { confirm: requester } }",
    ]);
    assert_eq!(
        view.decide(ItemIndex::new(0)).kind,
        Allow,
        "a list shows what might be let through"
    );
    assert_eq!(called(&view, r#"{"n":99}"#).0, Allow);
    assert_eq!(
        called(&view, r#"{"n":100}"#),
        (RequireApproval, Reason::RuleApproval, Some("much".into()))
    );
    let raw = Bytes::from_static(br#"{"n":1e9}"#);
    let refusal = view.permit_call(ItemIndex::new(0), Some(&raw)).unwrap_err();
    let rules = refusal.pending.unwrap();
    let by: Vec<_> =
        rules.rules().iter().map(|r| r.approval.as_ref().unwrap().by.clone()).collect();
    let others = Approvers::Others { roles: [Role::new("owner")].into(), count: 2 };
    assert_eq!(by, [others, Approvers::Requester]);
}

#[test]
fn what_rules_look_at_is_kept_and_nothing_of_other_calls() {
    let view = view_of(&[
        "{ id: all, effect: allow }",
        "{ id: eu, effect: deny, tools: [\"crm/*\"], when: { arg: /region, not_in: [eu-west] } }",
        "{ id: few, effect: deny, tools: [\"crm/*\"], when: [{ arg: /n, range: [9, null] }, { arg: /region, eq: eu }] }",
        "{ id: own, effect: deny, tools: [\"crm/*\"], when: { arg: /access_token, max_len: 3 } }",
    ]);
    let looked = |item, arguments: &'static str| {
        let (mut looked, raw) =
            (ArgumentFacts::default(), Bytes::from_static(arguments.as_bytes()));
        let _ = view.permit_noting(ItemIndex::new(item), Some(&raw), &mut looked);
        looked.iter().map(|(name, fact)| (name.to_owned(), fact.clone())).collect::<Vec<_>>()
    };
    let text = |text: &str| Fact::Text(text.into());
    assert_eq!(
        looked(0, r#"{"region":"us","n":9.0,"access_token":"hush","other":1}"#),
        [
            ("/access_token".into(), Fact::Withheld),
            ("/n".into(), Fact::Number("9.0".into())),
            ("/region".into(), text("us")),
        ]
    );
    assert_eq!(looked(0, "{}").len(), 3);
    assert_eq!(looked(0, "{"), [], "what is no JSON has no arguments");
    assert_eq!(looked(5, r#"{"region":"us"}"#), [], "no condition is about the wiki");
}

#[test]
fn a_shadow_is_told_beside_what_is_enforced() {
    let allow = policy("platform", &["{ id: all, effect: allow }"]);
    let deny =
        policy("{ tenant: acme }", &["{ id: no, effect: deny, tools: [crm/contacts.search] }"]);
    let shadow = deny.replace("rules:", "mode: shadow\nrules:");
    let files =
        |deny: &str| vec![file("a.yaml", &allow), file("b.yaml", deny), file("tools.yaml", TOOLS)];
    let policies = compile(files(&shadow));
    assert!(policies.has_shadow() && policies.rules().count() == 1);
    let view = bind(&policies).view(&tenant("acme"), &caller("gate"), &roles(&[]));
    assert_eq!(view.decide(ItemIndex::new(0)).kind, Allow);
    let mut none = ArgumentFacts::default();
    let shadow = view.shadow_decision(ItemIndex::new(0), None, &mut none).unwrap();
    assert_eq!((shadow.kind, shadow.rule.map(|rule| &*rule.id)), (Hide, Some("no")));
    let plain = bind(&compile(files(&deny))).view(&tenant("acme"), &caller("gate"), &roles(&[]));
    assert!(plain.shadow_decision(ItemIndex::new(0), None, &mut none).is_none());
    assert_eq!(plain.decide(ItemIndex::new(0)).kind, Hide);
}
