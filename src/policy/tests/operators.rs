//! Servers of employees' own that have the address of an operator's upstream: nothing that he says
//! of his is loosened by bringing it once more.

use std::sync::Arc;

use super::*;
use crate::fault::Span;

const KEY: &str = "mcp_crm_7f3a2c91";

const SERVICE: &str = "version: hangu/v1
kind: Policy
scope: platform
self_service: { roles: [member], hosts: [h.example], default: { risk: read_low, pin: first_use } }
rules:
  - { id: look, effect: allow, roles: [member], risk: [read_low, read_high, write_low] }
";

/// What is seen of the own server, with its risk.
fn seen(files: &[&str], operators: &[&str]) -> Vec<String> {
    let texts = [&[SERVICE, TOOLS], files].concat();
    let files = texts.iter().enumerate().map(|(at, text)| file(&format!("{at}.yaml"), text));
    let policies = compile(files.collect());
    let names = operators.iter().map(|name| Arc::from(*name)).collect();
    let operators = Arc::new(Operators::from([(KEY.into(), names)]));
    let subjects: Vec<_> = CATALOG.iter().map(|(_, name)| Subject::tool(KEY, name)).collect();
    let personal = policies.personal(&tenant("acme")).beside(&operators);
    let set = personal.bind_raised(&subjects, &[], &[]);
    let view = set.view(&tenant("acme"), &caller("gate"), &roles(&["member"]));
    let told = view.visible().iter().map(|index| {
        let policy = view.item(ItemIndex::new(index)).unwrap();
        format!("{} {}", subjects[index].name, policy.risk.as_str())
    });
    told.collect()
}

#[test]
fn what_an_operator_says_of_his_upstream_holds_for_its_address() {
    const DENIES: &str = "version: hangu/v1
kind: Policy
scope: platform
rules: [{ id: none, effect: deny, tools: [NAME], roles: [member] }]
";
    // Another upstream of the same address, and what somebody says of the key.
    const WORSE: &str = "version: hangu/v1
kind: Tools
upstreams: { NAME: { tools: { contacts.search: { risk: read_high }, unheard.of: { risk: read_low } } } }
";
    let search = "contacts.search read_low";
    let (export, update) = ("contacts.export read_high", "contacts.update write_low");
    for (more, operators, expected) in [
        // As at the upstream itself: what nobody has classified is hidden.
        ("", &["crm"][..], &[search, export, update][..]),
        (&DENIES.replace("NAME", "crm/contacts.*e*"), &["crm"], &[]),
        (&DENIES.replace("NAME", "crm/contacts.export"), &["crm"], &[search, update]),
        (&DENIES.replace("NAME", "mcp_*/contacts.export"), &["crm"], &[search, update]),
        (&DENIES.replace("NAME", "wiki/*"), &["crm"], &[search, export, update]),
        (&WORSE.replace("NAME", KEY), &["crm"], &["contacts.search read_high", export, update]),
        (&WORSE.replace("NAME", "other"), &["crm", "other"], &["contacts.search read_high"]),
        (&WORSE.replace("NAME", "other"), &["other", "crm"], &["contacts.search read_high"]),
    ] {
        let more: Vec<&str> = if more.is_empty() { Vec::new() } else { vec![more] };
        assert_eq!(seen(&more, operators), expected, "{more:?} {operators:?}");
    }
}

#[test]
fn credentials_go_unencrypted_where_everybody_who_names_hosts_says_so() {
    let rule = |scope: &str, hosts: &str| {
        format!(
            "version: hangu/v1\nkind: Policy\nscope: {scope}\nself_service: {{ roles: [member], \
             hosts: [{hosts}] }}\nrules: []\n"
        )
    };
    const PLAIN: &str = "\"http://*.in.example:8080\"";
    for (platform, acme, host, port, registers, opens) in [
        (PLAIN, PLAIN, "a.in.example", 8080, true, true),
        (PLAIN, "\"*.in.example:8080\"", "a.in.example", 8080, true, false),
        ("\"*.in.example:8080\"", PLAIN, "a.in.example", 8080, true, false),
        (PLAIN, "\"*:*\", \"http://a.in.example:*\"", "a.in.example", 8080, true, true),
        (PLAIN, PLAIN, "a.in.example", 80, false, false),
        ("\"http://[::2]:9\"", "\"http://*:*\"", "[::2]", 9, true, true),
    ] {
        let files = [rule("platform", platform), rule("{ tenant: acme }", acme)];
        let files = files.iter().enumerate().map(|(at, text)| file(&format!("{at}.yaml"), text));
        let service = compile(files.collect()).self_service(&tenant("acme")).unwrap();
        let may = service.may_register(&roles(&["member"]), host, port).is_ok();
        let plain = service.may_open_plainly(host, port);
        assert_eq!((may, plain.is_ok()), (registers, opens), "{platform} {acme} {host}:{port}");
        let Err(no) = plain else { continue };
        assert!(no.to_string().contains("`http://"), "{no}");
    }
    for bad in ["http://", "https://h.example", "http://http://h.example", "http://h.example/x"] {
        assert!(HostGlob::parse(bad, &Span::file("t")).is_err(), "{bad}");
    }
}
