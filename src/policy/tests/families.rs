//! Prompts and resources beside tools: the same rules, the same bits.

use super::*;

const ITEMS: [Subject<'static>; 8] = [
    Subject { family: Family::Tools, upstream: "crm", name: "search" },
    Subject { family: Family::Prompts, upstream: "crm", name: "summary" },
    Subject { family: Family::Prompts, upstream: "crm", name: "apology" },
    Subject { family: Family::Resources, upstream: "crm", name: "crm://contacts/1" },
    Subject { family: Family::Resources, upstream: "crm", name: "crm://contacts/{id}" },
    Subject { family: Family::Resources, upstream: "crm", name: "crm://secrets/1" },
    Subject { family: Family::Tools, upstream: "files", name: "search" },
    Subject { family: Family::Resources, upstream: "files", name: "file:///a" },
];

const CLASSES: &str = "
version: hangu/v1
kind: Tools
upstreams:
  crm:
    default: { risk: read_low }
    prompts: { apology: { risk: write_low } }
    resources: { \"crm://secrets/1\": { risk: read_high } }
  files:
    tools: { search: { risk: read_low } }
";

fn view_of(rules: &[&str]) -> Arc<View> {
    let rules = policy("platform", rules);
    let policies = compile(vec![file("tools.yaml", CLASSES), file("rules.yaml", &rules)]);
    policies.bind(&ITEMS).view(&tenant("acme"), &caller("gate"), &roles(&[]))
}

#[test]
fn a_rule_is_about_the_families_it_names_or_else_about_all() {
    for (rule, expected) in [
        ("{ id: r, effect: allow }", &[0, 1, 2, 3, 4, 5, 6][..]),
        ("{ id: r, effect: allow, risk: [read_low] }", &[0, 1, 3, 4, 6]),
        ("{ id: r, effect: allow, tools: [\"*/*\"] }", &[0, 6]),
        ("{ id: r, effect: allow, prompts: [\"*/*\"] }", &[1, 2]),
        ("{ id: r, effect: allow, prompts: [\"*/sum*\"], tools: [\"files/*\"] }", &[1, 6]),
        ("{ id: r, effect: allow, resources: [\"crm/crm://contacts/*\"] }", &[3, 4]),
        ("{ id: r, effect: allow, resources: [\"*/*\"], risk: [read_high] }", &[5]),
    ] {
        let seen: Vec<_> = view_of(&[rule]).visible().iter().collect();
        assert_eq!(seen, expected, "{rule}");
    }
    let view = view_of(&[
        "{ id: all, effect: allow }",
        "{ id: no, effect: deny, prompts: [crm/apology], resources: [\"*/*secret*\"] }",
    ]);
    assert_eq!(view.visible().iter().collect::<Vec<_>>(), [0, 1, 3, 4, 6]);
    let refusal = view.permit(ItemIndex::new(5)).unwrap_err();
    assert_eq!((refusal.reason, rule_of(&refusal)), (Reason::RuleDeny, Some("no")));
}

#[test]
fn a_uri_of_no_catalog_is_decided_by_the_same_rules_and_refused_where_unsure() {
    let view = view_of(&[
        "{ id: all, effect: allow, resources: [\"*/*\"], risk: [read_low] }",
        "{ id: no, effect: deny, resources: [\"*/*secret*\"] }",
        "{ id: tools, effect: allow, tools: [\"*/*\"] }",
    ]);
    for (upstream, uri, expected) in [
        ("crm", "crm://contacts/77", Ok("all")),
        ("crm", "crm://secret", Err((Reason::RuleDeny, Some("no")))),
        // By its class, which is not the default's.
        ("crm", "crm://secrets/1", Err((Reason::RuleDeny, Some("no")))),
        // Another spelling of what is denied.
        ("crm", "crm://contacts/%73ecret", Err((Reason::DefaultDeny, None))),
        ("crm", "crm://contacts/../x", Err((Reason::DefaultDeny, None))),
        // Nothing classifies it.
        ("files", "file:///b", Err((Reason::Unclassified, None))),
        ("nowhere", "file:///b", Err((Reason::Unclassified, None))),
    ] {
        match (view.permit_uri(upstream, uri), expected) {
            (Ok(permit), Ok(rule)) => {
                assert_eq!(permit.rule().map(|rule| &*rule.id), Some(rule), "{uri}");
                assert_eq!(permit.policy().map(|policy| policy.risk), Some(Risk::ReadLow));
                assert_eq!(permit.item(), None);
            }
            (Err(refusal), Err((reason, rule))) => {
                assert_eq!((refusal.reason, rule_of(&refusal)), (reason, rule), "{uri}");
            }
            (got, _) => panic!("{uri}: {got:?}"),
        }
    }
    // By the template it may come from, where one is classified.
    let rules = policy("platform", &["{ id: all, effect: allow, risk: [read_low] }"]);
    let classes = CLASSES.replace(
        "tools: { search: { risk: read_low } }",
        "resources: { \"file:///pub/{name}\": { risk: read_low }, \"file:///{+any}\": { risk: read_low }, \"file:///pub/key{n}\": { risk: write_high } }",
    );
    let policies = compile(vec![file("tools.yaml", &classes), file("rules.yaml", &rules)]);
    let by_template = policies.bind(&ITEMS).view(&tenant("acme"), &caller("gate"), &roles(&[]));
    for (uri, expected) in [
        ("file:///pub/a", true),
        ("file:///x/y", true),
        ("file:///pub/key1", false),
        ("other:a", false),
    ] {
        assert_eq!(by_template.permit_uri("files", uri).is_ok(), expected, "{uri}");
    }
    let nothing = view_of(&["{ id: tools, effect: allow, tools: [\"*/*\"] }"]);
    let refusal = nothing.permit_uri("crm", "crm://contacts/77").unwrap_err();
    assert_eq!(refusal.reason, Reason::DefaultDeny);
}
