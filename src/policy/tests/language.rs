//! The whole language, of which this version carries out a part.

use super::*;
use crate::model::{
    quota::{Action, Step, Window},
    server::IdempotencyMode,
    template::Part,
};

const CLASSES: &str = r#"
version: hangu/v1
kind: Tools
upstreams:
  crm:
    default: { risk: write_high }
    tools:
      contacts.search: { risk: read_low,   cost: 1,  pin: first_use, retry_safe: true }
      contacts.export: { risk: read_high,  cost: 20, pin: first_use }
      contacts.update: { risk: write_low,  cost: 2,  pin: approve, idempotency: optional }
      contacts.purge:  { risk: write_high, cost: 50, idempotency: required,
                         pin: "sha256:77b1f2c03e9d1a77309f2c41e5d0a3b8c6f4120798ab3cde55f01e7264d9b8aa" }
"#;

const PLATFORM: &str = r#"
version: hangu/v1
kind: Policy
scope: platform
rules:
  - id: plat-no-exec
    effect: deny
    tools: ["*/shell.*", "*/exec*"]
    say: Remote execution is not offered here.
  - id: plat-high-risk-approval
    effect: require_approval
    risk: [write_high]
    approval: { roles: [owner, security], count: 1, not_requester: true, expires: 15m }
"#;

const ACME: &str = r#"
version: hangu/v1
kind: Policy
scope: { tenant: acme }
mode: enforce
roles:
  member: { claim: groups, any: [acme-users] }
  admin:  { claim: groups, any: [acme-admins], includes: [member] }
rules:
  - id: member-read
    effect: allow
    roles: [member]
    risk: [read_low]
  - id: admin-some-write
    effect: allow
    roles: [admin]
    risk: [read_high, write_low]
    tools: ["crm/contacts.*", "tickets/*"]
  - id: admin-purge
    effect: allow
    roles: [admin]
    tools: [crm/contacts.purge]
  - id: eu-only
    effect: deny
    tools: ["crm/*"]
    when: { arg: /region, not_in: [eu-west, eu-north] }
limits:
  - { id: user-rate,  per: [principal],        rate: 60/1m, burst: 20 }
  - { id: crm-slots,  per: [tenant, upstream], upstreams: [crm], concurrency: 16, queue: 32, wait: 2s }
  - { id: purge-rate, per: [tenant, tool],     tools: [crm/contacts.purge], rate: 5/1h, store_down: closed }
quotas:
  - id: month-cost
    per: [tenant]
    budget: { cost: 100000, every: month, zone: Europe/Paris }
    steps:
      - { at: 80%,  do: warn }
      - { at: 100%, do: hide, cost_at_least: 5 }
      - { at: 110%, do: deny }
"#;

fn files() -> Vec<PolicyFile> {
    vec![
        file("tools.yaml", CLASSES),
        file("platform.yaml", PLATFORM),
        file("tenants/acme.yaml", ACME),
    ]
}

fn whole(files: Vec<PolicyFile>) -> Policies {
    let (policies, faults) = Library::new(Language::Whole).compile(files);
    policies.unwrap_or_else(|| panic!("{:#?}", told(&faults)))
}

/// What such a call is decided to be, for somebody of acme.
fn decided(set: &Set, role: &str, index: usize, arguments: &'static str) -> (DecisionKind, String) {
    let view = set.view(&tenant("acme"), &caller("gate"), &roles(&[role]));
    let raw = bytes::Bytes::from_static(arguments.as_bytes());
    let decision = view.decide_call(ItemIndex::new(index), Some(&raw));
    (decision.kind, decision.rule.map_or("", |rule| &rule.id).to_owned())
}

#[test]
fn the_drafts_load_as_they_stand_and_mean_what_they_say() {
    let policies = whole(files());
    let set = bind(&policies);
    let sees = |role: &str| shown(&set.view(&tenant("acme"), &caller("gate"), &roles(&[role])));
    assert_eq!(sees("member"), ["contacts.search"]);
    assert_eq!(
        sees("admin"),
        ["contacts.search", "contacts.export", "contacts.update", "contacts.purge"]
    );
    let eu = r#"{"region":"eu-west"}"#;
    for (role, index, arguments, kind, rule) in [
        ("member", 0, eu, DecisionKind::Allow, "member-read"),
        ("member", 0, r#"{"region":"us"}"#, DecisionKind::Deny, "eu-only"),
        ("member", 3, eu, DecisionKind::Hide, ""),
        ("admin", 2, eu, DecisionKind::Allow, "admin-some-write"),
        ("admin", 3, eu, DecisionKind::RequireApproval, "plat-high-risk-approval"),
        ("admin", 3, "{}", DecisionKind::Deny, "eu-only"),
    ] {
        assert_eq!(
            decided(&set, role, index, arguments),
            (kind, rule.to_owned()),
            "{role} {index}"
        );
    }
    let quotas: Vec<_> = policies.quotas().collect();
    let [quota] = &quotas[..] else { panic!("{quotas:?}") };
    assert_eq!(
        (quota.budget.cost.get(), quota.budget.every, quota.budget.zone.as_str()),
        (100_000, Window::Month, "Europe/Paris")
    );
    assert_eq!(
        quota.budget.steps[1],
        Step { percent: 100, action: Action::Hide { cost_at_least: 5 } }
    );
}

#[test]
fn what_is_asked_of_definitions_comes_from_the_default_where_a_tool_says_nothing() {
    use crate::model::quality::{Demand, Flaw};

    let text = r#"
version: hangu/v1
kind: Tools
upstreams:
  crm:
    default: { risk: read_low, quality: { min: 60, block: [poisoned, secret] } }
    tools:
      strict: { quality: { min: 90 } }
      lax: { quality: { block: [] } }
  hr: { default: { risk: read_low } }
"#;
    let (policies, faults) = Policies::compile(vec![file("tools.yaml", text)]);
    assert!(faults.is_empty(), "{faults:#?}");
    let policies = policies.unwrap();
    let quality = |upstream, name| policies.item(Subject::tool(upstream, name)).quality;
    let block = [Flaw::Poisoned, Flaw::Secret].into_iter().collect();
    assert_eq!(quality("crm", "any"), Demand { min: 60, block });
    assert_eq!(quality("crm", "strict"), Demand { min: 90, ..Demand::default() });
    assert!(quality("crm", "lax").is_nothing() && quality("hr", "any").is_nothing());
    let told = super::super::words::quality_text(&policies.item(Subject::tool("crm", "any")));
    assert_eq!(
        told,
        " It is held unless its definition scores at least 60 and nothing in it is found \
         poisoned, secret, or somebody approves it."
    );
    let prompts = text.replace("tools:", "prompts:");
    let (_, faults) = Policies::compile(vec![file("tools.yaml", &prompts)]);
    let told: Vec<_> = faults.iter().map(|fault| &*fault.message).collect();
    assert_eq!(told, ["`quality` is about tools, and this is a prompt"; 2]);
}

#[test]
fn everything_that_is_said_of_a_tool_is_there() {
    let text = r#"
version: hangu/v1
kind: Tools
upstreams:
  crm:
    default: { risk: write_low, cost: 7, screen: block, upstream_idempotent: true, inject: { tenantId: $ctx.tenant } }
    tools:
      contacts.search: { risk: read_low, retry_safe: true, inject: { by: $ctx.user.empId, id: $ctx.requestId } }
      contacts.export: { name: export, description: Exports., hide: [internal] }
      contacts.update: { override: { name: change, parameters: { mode: { description: How., enum: [soft, hard] }, raw: { hidden: true } } } }
"#;
    let policies = whole(vec![file("tools.yaml", text)]);
    let item = |name| policies.item(Subject::tool("crm", name));
    let search = item("contacts.search");
    assert_eq!((search.cost, search.retry_safe, search.screen), (7, true, Some(Screen::Block)));
    assert!(search.upstream_idempotent && search.idempotency == IdempotencyMode::Optional);
    let injected = |name| {
        let all = item(name).inject.unwrap();
        let all =
            all.iter().map(|i| (i.argument.to_string(), i.value.parts().to_vec(), i.if_known));
        all.collect::<Vec<_>>()
    };
    let of_all = ("tenantId".to_owned(), vec![Part::Tenant], true);
    assert_eq!(
        injected("contacts.search"),
        [
            ("by".to_owned(), vec![Part::Employee], false),
            ("id".to_owned(), vec![Part::RequestId], false),
            of_all.clone()
        ]
    );
    assert_eq!(injected("other"), [of_all]);
    let export = item("contacts.export").published.unwrap();
    assert_eq!(
        (export.name.as_ref().map(|name| &*name.value), export.description.as_deref()),
        (Some("export"), Some("Exports."))
    );
    assert!(export.parameters[0].hidden && &*export.parameters[0].name == "internal");
    let update = item("contacts.update").published.unwrap();
    let words = update.parameters[0].allowed.as_ref().map(|words| words.join(" "));
    assert_eq!((words.as_deref(), update.parameters[1].hidden), (Some("soft hard"), true));
    let pins = ["contacts.search", "contacts.update", "contacts.purge"];
    let drafts = whole(files());
    let pins = pins.map(|name| drafts.item(Subject::tool("crm", name)).pin);
    assert!(matches!(pins, [Pin::FirstUse, Pin::Approve, Pin::Exactly([0x77, 0xb1, ..])]));
}

#[test]
fn a_change_is_answered_as_is_said_of_the_tool_else_of_all() {
    use crate::model::change::{ChangeClass, ChangeClasses};
    let classes = "version: hangu/v1
kind: Tools
upstreams:
  a:
    default: { risk: read_low, on_change: { type_changed: keep } }
    tools:
      kept: { on_change: keep }
      held: { on_change: quarantine }
      some: { on_change: { default: keep, enum_widened: quarantine } }
      rest: { cost: 2 }
  b: { default: { risk: read_low } }
";
    let (policies, faults) = Policies::compile(vec![file("tools.yaml", classes)]);
    assert!(faults.is_empty(), "{:#?}", told(&faults));
    let policies = policies.unwrap();
    let (usual, dangerous) = (ChangeClasses::USUAL, ChangeClass::Dangerous);
    let none = ChangeClasses::NONE.with(dangerous);
    for (upstream, tool, hold) in [
        ("a", "kept", none),
        ("a", "held", ChangeClasses::ALL),
        ("a", "some", none.with(ChangeClass::EnumWidened)),
        ("a", "rest", usual.without(ChangeClass::TypeChanged)),
        ("b", "any", usual),
        ("c", "any", usual),
    ] {
        assert_eq!(policies.item(Subject::tool(upstream, tool)).hold, hold, "{upstream}/{tool}");
    }
}

/// The drafts are carried out as they stand, and all that is left out is refused.
#[test]
fn what_nothing_acts_on_yet_is_refused() {
    let (policies, faults) = Policies::compile(files());
    assert!(policies.is_some(), "{:#?}", told(&faults));
    let screened = CLASSES.replace("retry_safe: true", "screen: mark");
    let (policies, faults) = Policies::compile(vec![file("tools.yaml", &screened)]);
    assert!(policies.is_none());
    let told = told(&faults);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].starts_with("Y008"), "{told:#?}");
    assert!(told[0].ends_with("`screen` is not part of this version"), "{told:#?}");
}

/// The one fault of a file that says the whole language.
fn fault(text: &str) -> String {
    let (_, faults) = Library::new(Language::Whole).compile(vec![file("a.yaml", text)]);
    let [one] = &faults[..] else { panic!("{text}: {:#?}", told(&faults)) };
    format!("{} {}", one.code, one.message)
}

#[test]
fn quotas_that_make_no_sense_are_told() {
    let quota = |rest: &str| {
        format!(
            "version: hangu/v1\nkind: Policy\nscope: platform\nquotas:\n  - {{ id: q, per: [tenant], {rest} }}\n"
        )
    };
    let budget = "budget: { cost: 10, every: day, zone: UTC }";
    for (rest, expected) in [
        ("steps: [{ at: 100%, do: deny }]".to_owned(), "Y005 `budget` is missing"),
        (
            format!("{budget}, steps: []"),
            "Y007 `steps` is empty: a budget at whose end nothing happens",
        ),
        (format!("{budget}, steps: [{{ at: 100%, do: stop }}]"), "Y007 unknown step `stop`"),
        (
            format!("{budget}, steps: [{{ at: 100, do: deny }}]"),
            "Y006 expected a text, found a number",
        ),
        (
            format!("{budget}, steps: [{{ at: 0%, do: deny }}]"),
            "Y007 `0%` is not between 1% and 1000%",
        ),
        (format!("{budget}, steps: [{{ at: 100%, do: degrade }}]"), "Y005 `to` is missing"),
        (
            format!("{budget}, steps: [{{ at: 100%, do: degrade, to: \"crm/*\" }}]"),
            "Y010 `crm/*` is not one tool, as in `crm/contacts.find`",
        ),
        (
            format!("{budget}, steps: [{{ at: 100%, do: deny, cost_at_least: 5 }}]"),
            "C009 `cost_at_least` says nothing here",
        ),
        (
            format!("{budget}, steps: [{{ at: 100%, do: deny }}, {{ at: 80%, do: warn }}]"),
            "C009 80% after 100%",
        ),
        (
            "budget: { cost: 10, every: fortnight, zone: UTC }, steps: [{ at: 100%, do: deny }]"
                .to_owned(),
            "Y007 unknown window `fortnight`",
        ),
        (
            "budget: { cost: 10, every: day, zone: 1/2 }, steps: [{ at: 100%, do: deny }]"
                .to_owned(),
            "Y007 `1/2` is no time zone such as `Europe/Paris` or `UTC`",
        ),
        (
            "budget: { cost: 10, every: day, zone: Europe/Pariss }, steps: [{ at: 100%, do: deny }]"
                .to_owned(),
            "Y007 there is no time zone `Europe/Pariss`",
        ),
        (
            "budget: { cost: 0, every: day, zone: UTC }, steps: [{ at: 100%, do: deny }]"
                .to_owned(),
            "Y007 a budget of nothing",
        ),
    ] {
        assert_eq!(fault(&quota(&rest)), expected, "{rest}");
    }
}

#[test]
fn settings_of_a_tool_that_make_no_sense_are_told() {
    let tool = |tool: &str| {
        format!("version: hangu/v1\nkind: Tools\nupstreams:\n  crm:\n    tools:\n      x: {tool}\n")
    };
    for (text, expected) in [
        (
            "{ risk: read_low, pin: \"sha256:00\" }",
            "Y007 not a digest: `sha256:` is followed by 64 digits of 0-9 and a-f",
        ),
        ("{ risk: read_low, screen: maybe }", "Y007 unknown screening `maybe`"),
        (
            "{ risk: read_low, inject: { a: $ctx.password } }",
            "Y007 unknown variable `$ctx.password`",
        ),
        ("{ risk: read_low, inject: { a: é } }", "Y007 a template is visible ASCII"),
        (
            "{ risk: read_low, name: \"a b\" }",
            "Y010 a published name is 1 to 64 of `A-Z`, `a-z`, `0-9`, `_`, `.` and `-`",
        ),
        (
            "{ risk: read_low, override: { parameters: { p: { enum: [] } } } }",
            "Y007 `enum` is empty: nothing could be sent",
        ),
        (
            "{ risk: read_low, override: { parameters: { p: { hidden: true, enum: [a] } } } }",
            "C009 `p` is hidden, and yet something is published of it",
        ),
        (
            "{ risk: read_low, inject: { p: x }, override: { parameters: { p: { description: d } } } }",
            "C009 `p` is injected, and yet something is published of it",
        ),
        (
            "{ risk: write_low, hide: [idempotencyKey] }",
            "C009 `idempotencyKey` carries the idempotency key, and is hidden",
        ),
        ("{ risk: read_low, cost: free }", "Y006 expected a number, found a text"),
        ("{ risk: read_low, retry_safe: yes }", "Y006 expected `true` or `false`, found a text"),
        (
            "{ risk: read_low, name: a, override: {} }",
            "C009 `name` beside `override`, which says the same",
        ),
        (
            "{ risk: read_low, idempotency_argument: k, inject: { k: $ctx.requestId } }",
            "C009 `k` carries the idempotency key, and is injected",
        ),
    ] {
        assert_eq!(fault(&tool(text)), expected, "{text}");
    }
}

#[test]
fn a_face_is_for_one_tool_and_for_tools_alone() {
    let upstream =
        |lines: &str| format!("version: hangu/v1\nkind: Tools\nupstreams:\n  crm:\n    {lines}\n");
    for (text, expected) in [
        (
            "default: { risk: read_low, name: x }",
            "C009 `name` in a `default` would call every tool the same",
        ),
        (
            "prompts: { p: { risk: read_low, inject: { a: b } } }",
            "C009 `inject` is about tools, and this is a prompt",
        ),
        (
            "resources: { \"file:///a\": { risk: read_low, description: d } }",
            "C009 `override` is about tools, and this is a resource",
        ),
        (
            "tools: { a: { risk: read_low, name: x }, b: { risk: read_low, name: x } }",
            "C009 two tools are to be published as `x`",
        ),
        // Neither says it alone.
        (
            "{ default: { inject: { k: $ctx.requestId } }, tools: { a: { risk: write_low, idempotency_argument: k } } }",
            "C009 `k` carries the idempotency key, and is injected",
        ),
    ] {
        assert_eq!(fault(&upstream(text)), expected, "{text}");
    }
    assert!(
        super::compile(vec![file(
            "t.yaml",
            &upstream(
                "{ default: { risk: write_low, idempotency: none, hide: [idempotencyKey] } }"
            )
        )])
        .has_faces()
    );
}
