//! What policies mean, case by case.

mod compared;
mod conditions;
mod explained;
mod families;
mod faults;
mod language;
mod library;
mod lints;
mod made;
mod own_compared;
mod properties;
mod roles;
mod schemas;
mod self_service;
mod shipped;
mod terms;
mod who;

use std::sync::Arc;

use super::*;
use crate::{
    fault::{Fault, Severity, Source},
    model::{
        caller::{CallerId, Role, Roles, TenantId},
        server::{IdempotencyMode, Risk},
    },
};

pub(super) const CATALOG: [(&str, &str); 6] = [
    ("crm", "contacts.search"),
    ("crm", "contacts.export"),
    ("crm", "contacts.update"),
    ("crm", "contacts.purge"),
    ("crm", "unheard.of"),
    ("wiki", "page.read"),
];

/// Classifies the catalog but for `crm/unheard.of`.
pub(super) const TOOLS: &str = "
version: hangu/v1
kind: Tools
upstreams:
  crm:
    tools:
      contacts.search: { risk: read_low }
      contacts.export: { risk: read_high }
      contacts.update: { risk: write_low, idempotency: optional }
      contacts.purge: { risk: write_high, timeout: 60s, idempotency_argument: requestId }
  wiki:
    default: { risk: read_low, max_time: 30s }
";

pub(super) fn file(path: &str, text: &str) -> PolicyFile {
    let source = Arc::new(Source { name: path.to_owned(), text: text.to_owned() });
    PolicyFile { path: path.to_owned(), source }
}

/// A `kind: Policy` document of the given scope and rules.
pub(super) fn policy(scope: &str, rules: &[&str]) -> String {
    let rules: String = rules.iter().map(|rule| format!("\n  - {rule}")).collect();
    let rules = if rules.is_empty() { " []" } else { &rules };
    format!("---\nversion: hangu/v1\nkind: Policy\nscope: {scope}\nrules:{rules}\n")
}

/// `code line:column message` of each fault.
pub(super) fn told(faults: &[Fault]) -> Vec<String> {
    let line = |f: &Fault| format!("{} {}:{} {}", f.code, f.at.line, f.at.column, f.message);
    faults.iter().map(line).collect()
}

pub(super) fn compile(files: Vec<PolicyFile>) -> Policies {
    let (policies, faults) = Policies::compile(files);
    policies.unwrap_or_else(|| panic!("{:#?}", told(&faults)))
}

pub(super) fn bind(policies: &Policies) -> Set {
    policies.bind(&CATALOG.map(|(upstream, name)| Subject::tool(upstream, name)))
}

/// The tools classified as above, and these rules of the platform.
fn set(rules: &[&str]) -> Set {
    let rules = policy("platform", rules);
    bind(&compile(vec![file("tools.yaml", TOOLS), file("rules.yaml", &rules)]))
}

pub(super) fn roles(names: &[&str]) -> Roles {
    Roles::new(names.iter().map(|name| Role::new(*name)))
}

/// What an employee with these roles sees, by the tools' own names.
fn sees(set: &Set, of: &str, by: &str, names: &[&str]) -> Vec<&'static str> {
    shown(&set.view(&tenant(of), &caller(by), &roles(names)))
}

pub(super) fn tenant(name: &str) -> TenantId {
    TenantId::new(name)
}

pub(super) fn caller(name: &str) -> CallerId {
    CallerId::new(name)
}

pub(super) fn shown(view: &View) -> Vec<&'static str> {
    view.visible().iter().map(|index| CATALOG[index].1).collect()
}

/// The id of the rule that decided.
pub(super) fn rule_of(refusal: &Refusal) -> Option<&str> {
    refusal.rule.as_ref().map(|rule| &*rule.id)
}

#[test]
fn nothing_is_allowed_unless_a_rule_says_so() {
    assert!(sees(&set(&[]), "acme", "gate", &["member"]).is_empty());
    assert!(bind(&Policies::none()).view_of_key(&tenant("a"), &caller("b")).visible().is_empty());
}

#[test]
fn a_rule_is_narrowed_by_what_it_says_and_by_nothing_else() {
    for (rule, caller, who, expected) in [
        // Everybody, everything that is classified.
        (
            "{ id: r, effect: allow }",
            "gate",
            &[][..],
            &[
                "contacts.search",
                "contacts.export",
                "contacts.update",
                "contacts.purge",
                "page.read",
            ][..],
        ),
        (
            "{ id: r, effect: allow, risk: [read_low] }",
            "gate",
            &[],
            &["contacts.search", "page.read"],
        ),
        ("{ id: r, effect: allow, tools: [\"wiki/*\"] }", "gate", &[], &["page.read"]),
        (
            "{ id: r, effect: allow, tools: [crm/contacts.purge], risk: [read_low] }",
            "gate",
            &[],
            &[],
        ),
        (
            "{ id: r, effect: allow, tools: [\"wiki/*\"], roles: [member, admin] }",
            "gate",
            &["admin"],
            &["page.read"],
        ),
        ("{ id: r, effect: allow, tools: [\"wiki/*\"], roles: [member] }", "gate", &["admin"], &[]),
        (
            "{ id: r, effect: allow, tools: [\"wiki/*\"], callers: [gate] }",
            "gate",
            &[],
            &["page.read"],
        ),
        ("{ id: r, effect: allow, tools: [\"wiki/*\"], callers: [gate] }", "other", &[], &[]),
        (
            "{ id: r, effect: allow, tools: [\"wiki/*\"], callers: [gate], roles: [member] }",
            "gate",
            &["member"],
            &["page.read"],
        ),
        (
            "{ id: r, effect: allow, tools: [\"wiki/*\"], callers: [gate], roles: [member] }",
            "gate",
            &[],
            &[],
        ),
    ] {
        assert_eq!(sees(&set(&[rule]), "acme", caller, who), expected, "{rule} {caller} {who:?}");
    }
}

#[test]
fn deny_beats_allow_whoever_says_it() {
    let platform = policy("platform", &["{ id: p, effect: deny, tools: [crm/contacts.export] }"]);
    let tenant = policy(
        "{ tenant: acme }",
        &[
            "{ id: all, effect: allow, roles: [member] }",
            "{ id: own, effect: deny, risk: [write_low, write_high] }",
        ],
    );
    let files = vec![file("tools.yaml", TOOLS), file("a.yaml", &platform), file("b.yaml", &tenant)];
    let set = bind(&compile(files));
    assert_eq!(sees(&set, "acme", "gate", &["member"]), ["contacts.search", "page.read"]);
}

#[test]
fn a_tenants_rule_is_about_that_tenant_and_a_platform_rule_about_all() {
    let platform = policy("platform", &["{ id: p, effect: allow, tools: [\"wiki/*\"] }"]);
    let acme = policy("{ tenant: acme }", &["{ id: a, effect: allow, risk: [read_low] }"]);
    let files = vec![file("tools.yaml", TOOLS), file("a.yaml", &platform), file("b.yaml", &acme)];
    let set = bind(&compile(files));
    assert_eq!(sees(&set, "acme", "gate", &[]), ["contacts.search", "page.read"]);
    assert_eq!(sees(&set, "globex", "gate", &[]), ["page.read"]);
}

#[test]
fn an_unclassified_tool_is_hidden_whatever_the_rules() {
    let set = set(&["{ id: r, effect: allow, tools: [crm/unheard.of] }"]);
    let view = set.view(&tenant("acme"), &caller("gate"), &roles(&[]));
    let decision = view.decide(ItemIndex::new(4));
    assert_eq!((decision.kind, decision.reason), (DecisionKind::Hide, Reason::Unclassified));
    let policy = set.item(ItemIndex::new(4)).unwrap();
    assert_eq!((policy.risk, policy.classified), (Risk::WriteHigh, false));
}

#[test]
fn a_decision_names_its_reason_and_its_rule() {
    let set = set(&[
        "{ id: read, effect: allow, risk: [read_low, read_high] }",
        "{ id: no-export, effect: deny, tools: [\"*/*.export\"], say: Not here. }",
    ]);
    let view = set.view(&tenant("acme"), &caller("gate"), &roles(&[]));
    for (index, kind, reason, rule) in [
        (0, DecisionKind::Allow, Reason::RuleAllow, Some("read")),
        (1, DecisionKind::Hide, Reason::RuleDeny, Some("no-export")),
        (2, DecisionKind::Hide, Reason::DefaultDeny, None),
        (4, DecisionKind::Hide, Reason::Unclassified, None),
        (99, DecisionKind::Hide, Reason::DefaultDeny, None),
        (usize::MAX, DecisionKind::Hide, Reason::DefaultDeny, None),
    ] {
        let decision = view.decide(ItemIndex::new(index));
        assert_eq!((decision.kind, decision.reason), (kind, reason), "{index}");
        assert_eq!(decision.rule.map(|rule| &*rule.id), rule, "{index}");
    }
    let said = view.decide(ItemIndex::new(1)).rule.and_then(|rule| rule.say.clone());
    assert_eq!(said.as_deref(), Some("Not here."));
}

#[test]
fn a_permit_is_given_for_what_is_visible_and_for_nothing_else() {
    let set = set(&["{ id: read, effect: allow, risk: [read_low] }"]);
    let view = set.view(&tenant("acme"), &caller("gate"), &roles(&[]));
    let permit = view.permit(ItemIndex::new(0)).unwrap();
    assert_eq!(permit.item(), Some(ItemIndex::new(0)));
    assert_eq!(permit.policy().map(|policy| policy.risk), Some(Risk::ReadLow));
    assert_eq!(permit.rule().map(|rule| &*rule.id), Some("read"));
    let refusal = view.permit(ItemIndex::new(2)).unwrap_err();
    assert_eq!((refusal.reason, rule_of(&refusal)), (Reason::DefaultDeny, None));
    let listing = view.permit_listing();
    assert!(listing.item().is_none() && listing.policy().is_none());
    assert_eq!(shown(listing.view()), ["contacts.search", "page.read"]);
}

#[test]
fn without_an_employee_only_rules_that_name_the_caller_grant() {
    let rules = [
        "{ id: all, effect: allow, tools: [\"wiki/*\"] }",
        "{ id: robot, effect: allow, callers: [robot], risk: [read_low, read_high] }",
        "{ id: both, effect: allow, callers: [robot], roles: [member] }",
        "{ id: no-export, effect: deny, tools: [crm/contacts.export] }",
        "{ id: no-member, effect: deny, roles: [member] }",
    ];
    let set = set(&rules);
    let of_key = |name: &str| shown(&set.view_of_key(&tenant("acme"), &caller(name)));
    assert_eq!(of_key("robot"), ["contacts.search", "page.read"]);
    assert!(of_key("gate").is_empty());
    // An employee of the same caller is denied by a rule that knows his role.
    assert!(sees(&set, "acme", "robot", &["member"]).is_empty());
}

#[test]
fn a_tool_is_treated_as_its_entry_or_its_upstreams_default_says() {
    let set = set(&[]);
    let tool = |index| set.item(ItemIndex::new(index)).unwrap();
    let secs = std::time::Duration::from_secs;
    assert_eq!(tool(3).timeout, Some(secs(60)));
    assert_eq!(tool(3).idempotency_argument.as_deref(), Some("requestId"));
    assert_eq!(tool(5).max_time, Some(secs(30)));
    // A write needs a key unless the file says otherwise, a read does not.
    assert_eq!(
        [0, 2, 3].map(|index| tool(index).idempotency),
        [IdempotencyMode::Optional, IdempotencyMode::Optional, IdempotencyMode::Required]
    );
    assert_eq!(set.item_name(ItemIndex::new(5)), Some("wiki/page.read"));
    assert!(set.item(ItemIndex::new(6)).is_none());
}

#[test]
fn views_are_kept_and_shared() {
    let set = set(&["{ id: r, effect: allow, roles: [member, clerk], tools: [\"wiki/*\"] }"]);
    let view =
        |of: &str, by: &str, names: &[&str]| set.view(&tenant(of), &caller(by), &roles(names));
    let first = view("acme", "gate", &["member"]);
    // No rule names a caller or is a tenant's own: neither makes a difference.
    assert!(Arc::ptr_eq(&first, &view("globex", "other", &["member"])));
    assert!(!Arc::ptr_eq(&first, &view("acme", "gate", &["clerk"])));
    assert!(Arc::ptr_eq(first.visible(), view("acme", "gate", &["clerk"]).visible()));
}

#[test]
fn more_kinds_of_callers_than_are_kept_are_still_decided() {
    let set = set(&["{ id: r, effect: allow, roles: [r7], tools: [\"wiki/*\"] }"]);
    for round in 0..2 {
        for number in 0..2_000 {
            let seen = sees(&set, "acme", "gate", &[&format!("r{number}")]);
            assert_eq!(!seen.is_empty(), number == 7, "{round} {number}");
        }
    }
}

#[test]
fn the_revision_is_that_of_the_files() {
    let one = compile(vec![file("a.yaml", TOOLS), file("b.yaml", &policy("platform", &[]))]);
    let other = compile(vec![file("b.yaml", &policy("platform", &[])), file("a.yaml", TOOLS)]);
    assert_eq!(one.revision(), other.revision());
    assert_eq!(one.revision().len(), 12);
    let changed = compile(vec![file("a.yaml", TOOLS), file("b.yaml", "# nothing\n")]);
    assert_ne!(one.revision(), changed.revision());
    assert_eq!(bind(&one).revision(), one.revision());
}

#[test]
fn limits_and_employees_are_read() {
    let text = "
version: hangu/v1
kind: Policy
scope: { tenant: acme }
limits:
  - { id: user-rate, per: [principal], rate: 60/1m, burst: 20 }
  - { id: crm-slots, per: [tenant, upstream], upstreams: [crm], concurrency: 16, queue: 32, wait: 2s }
  - { id: purge, per: [tenant, tool], tools: [crm/contacts.purge], risk: [write_high], rate: 5/1h }
---
version: hangu/v1
kind: Directory
employees:
  E1001: { tenant: acme, roles: [member, tester], teams: [payments] }
  E1002: { tenant: acme }
";
    let policies = compile(vec![file("tools.yaml", TOOLS), file("a.yaml", text)]);
    let limits: Vec<_> = policies.limits().collect();
    let [slots, purge, rate] = &limits[..] else { panic!("{limits:?}") };
    let LimitKind::Rate { count, burst, .. } = rate.kind else { panic!() };
    assert_eq!((count.get(), burst.get(), &rate.per[..]), (60, 20, &[LimitKey::Principal][..]));
    let LimitKind::Concurrency { slots: number, queue, wait } = slots.kind else { panic!() };
    assert_eq!((number.get(), queue, wait.as_secs()), (16, 32, 2));
    let LimitKind::Rate { count, burst, period } = purge.kind else { panic!() };
    assert_eq!((count, period.as_secs()), (burst, 3_600));
    assert_eq!(purge.scope.tenant().map(TenantId::as_str), Some("acme"));
    let directory = policies.directory();
    let employee = directory.find(&crate::model::caller::EmployeeId::parse("E1001").unwrap());
    let employee = employee.unwrap();
    assert_eq!(
        (employee.tenant.as_str(), &employee.teams[..]),
        ("acme", &["payments".to_owned()][..])
    );
    assert!(employee.roles.contains("tester"));
}

#[test]
fn the_error_severity_decides_whether_there_are_policies() {
    let dead = policy("platform", &["{ id: a, effect: allow }", "{ id: b, effect: deny }"]);
    let (policies, faults) = Policies::compile(vec![file("a.yaml", &dead)]);
    assert!(policies.is_some() && faults.is_empty());
    let broken = policy("platform", &["{ id: a, effect: perhaps }"]);
    let (policies, faults) = Policies::compile(vec![file("a.yaml", &broken)]);
    assert!(policies.is_none());
    assert_eq!(faults.iter().map(Fault::severity).collect::<Vec<_>>(), [Severity::Error]);
}
