//! Who may register servers, where, and how their tools are treated.

use super::{faults::faults, *};
use crate::{fault::Span, model::server::UpstreamName};

const KEY: &str = "mcp_order-query_7f3a2c91";

/// Files of both scopes; an empty text says nothing.
pub(super) fn policies(platform: &str, acme: &str) -> Policies {
    compile(files(platform, acme))
}

fn files(platform: &str, acme: &str) -> Vec<PolicyFile> {
    let document = |scope: &str, said: &str| {
        let rules = "rules: [{ id: RULE, effect: allow, roles: [member], risk: [read_low] }]";
        let rules = rules.replace("RULE", if scope == "platform" { "p" } else { "t" });
        let said = if said.is_empty() { "" } else { &format!("self_service: {said}\n") };
        format!("version: hangu/v1\nkind: Policy\nscope: {scope}\n{said}{rules}\n")
    };
    vec![
        file("a.yaml", &document("platform", platform)),
        file("b.yaml", &document("{ tenant: acme }", acme)),
        file("tools.yaml", TOOLS),
    ]
}

#[test]
fn a_tenant_narrows_what_the_platform_says() {
    const OPEN: &str = "{ roles: [member], hosts: [\"*.example.com\"] }";
    for (platform, acme, held, host, expected) in [
        ("", "", "member", "a.example.com", "nothing"),
        (OPEN, "", "member", "a.example.com", "yes"),
        ("", OPEN, "member", "a.example.com", "yes"),
        (OPEN, "", "guest", "a.example.com", "a.yaml:4 none of your roles may register servers"),
        (
            OPEN,
            "",
            "member",
            "b.example.org",
            "a.yaml:4 `b.example.org:443` is not among the hosts that may be registered",
        ),
        // Where both say something, both hold.
        (
            OPEN,
            "{ hosts: [a.example.com] }",
            "member",
            "b.example.com",
            "b.yaml:4 `b.example.com:443` is not among the hosts that may be registered",
        ),
        (OPEN, "{ hosts: [a.example.com, b.example.org] }", "member", "a.example.com", "yes"),
        (
            OPEN,
            "{ hosts: [a.example.com, b.example.org] }",
            "member",
            "b.example.org",
            "a.yaml:4 `b.example.org:443` is not among the hosts that may be registered",
        ),
        (OPEN, "{ roles: [tester] }", "member", "a.example.com", "b.yaml:4 none of your roles"),
        // One may say who, the other where.
        ("{ hosts: [a.example.com] }", "{ roles: [member] }", "member", "a.example.com", "yes"),
        ("{ hosts: [a.example.com] }", "", "member", "a.example.com", "nothing"),
        (OPEN, "off", "member", "a.example.com", "nothing"),
        ("off", "", "member", "a.example.com", "nothing"),
    ] {
        let policies = policies(platform, acme);
        let answer = match policies.self_service(&tenant("acme")) {
            None => "nothing".to_owned(),
            Some(service) => match service.may_register(&roles(&[held]), host, 443) {
                Ok(()) => "yes".to_owned(),
                Err(no) => format!("{}:{} {no}", no.at.source.name, no.at.line),
            },
        };
        assert!(answer.starts_with(expected), "{platform} {acme} {held} {host}: {answer}");
    }
    // What a tenant opens is open to that tenant.
    assert!(policies("", OPEN).self_service(&tenant("globex")).is_none());
}

#[test]
fn roles_that_come_with_others_count() {
    let text = "version: hangu/v1\nkind: Policy\nscope: platform\n\
                roles: { admin: { includes: [member] } }\n\
                self_service: { roles: [member], hosts: [h.example], share: { roles: [admin] } }\n";
    let policies = compile(vec![file("a.yaml", text)]);
    let service = policies.self_service(&tenant("acme")).unwrap();
    for (held, registers, shares) in
        [("admin", true, true), ("member", true, false), ("guest", false, false)]
    {
        let held = roles(&[held]);
        assert_eq!(service.may_register(&held, "h.example", 443).is_ok(), registers, "{held:?}");
        assert_eq!(service.may_share(&held).is_ok(), shares, "{held:?}");
    }
}

#[test]
fn as_many_and_shared_as_both_scopes_say() {
    let with = |more: &str| format!("{{ roles: [member], hosts: [h.example]{more} }}");
    for (platform, acme, most, shares) in [
        ("", "", 20, false),
        (", max_each: 5", "", 5, false),
        (", max_each: 5", ", max_each: 50", 5, false),
        (", max_each: 50", ", max_each: 7, share: { roles: [member] }", 7, true),
        (", share: { roles: [member] }", "", 20, true),
        (", share: { roles: [member] }", ", share: false", 20, false),
        (", share: false", ", share: { roles: [member] }", 20, false),
        (", share: { roles: [member] }", ", share: { roles: [lead] }", 20, false),
    ] {
        let policies = policies(&with(platform), &with(acme));
        let service = policies.self_service(&tenant("acme")).unwrap();
        let may = service.may_share(&roles(&["member"])).is_ok();
        assert_eq!((service.max_each(), may), (most, shares), "{platform} {acme}");
    }
}

#[test]
fn a_host_is_meant_with_its_port() {
    for (glob, hits, misses) in [
        (
            "*.example.com",
            &["a.example.com:443", "A.B.Example.com.:80"][..],
            &["example.com:443", "a.example.com:8443", "badexample.com:443", ".example.com:443"][..],
        ),
        (
            "tools.partner.dev:8443",
            &["tools.partner.dev:8443"],
            &["tools.partner.dev:443", "x.tools.partner.dev:8443"],
        ),
        ("h.example:*", &["h.example:1", "h.example:65535"], &["g.example:1"]),
        ("B\u{fc}cher.example", &["xn--bcher-kva.example:443"], &["bucher.example:443"]),
        ("10.1.2.3", &["10.1.2.3:80"], &["10.1.2.30:80"]),
        ("[::1]:9", &["[::1]:9"], &["[::1]:443"]),
        // An address is no name below another.
        ("*.2.3", &[], &["10.1.2.3:443"]),
        ("*", &["a.example:443", "10.0.0.1:80"], &["a.example:8080"]),
    ] {
        let Ok(glob) = HostGlob::parse(glob, &Span::file("t")) else {
            assert_eq!(glob, "*.2.3");
            continue;
        };
        for (list, expected) in [(hits, true), (misses, false)] {
            for place in list {
                let (host, port) = place.rsplit_once(':').unwrap();
                let found = glob.matches(host, port.parse().unwrap());
                assert_eq!(found, expected, "{} {place}", glob.as_str());
            }
        }
    }
    for bad in
        ["", "a*.example", "*.*.example", "h.example:0", "h.example:x", "h/x", "*.[::1]", "u@h"]
    {
        assert!(HostGlob::parse(bad, &Span::file("t")).is_err(), "{bad}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let with = |service: &str| {
        format!("version: hangu/v1\nkind: Policy\nscope: platform\nself_service: {service}\n")
    };
    for (service, expected) in [
        ("on", "Y006 4:15 expected a mapping or `off`, found a text"),
        ("{ role: [a] }", "Y004 4:17 unknown key `role`: did you mean `roles`?"),
        (
            "{ roles: [] }",
            "Y007 4:24 `roles` is empty: nothing matches: leave the key out to match everything",
        ),
        (
            "{ max_each: 0 }",
            "Y007 4:27 `max_each` is 1 to 1000: `self_service: off`, if nobody is to register \
             anything",
        ),
        (
            "{ share: true }",
            "Y006 4:24 expected `false` or a mapping with `roles`, found a truth value",
        ),
        (
            "{ share: {} }",
            "Y005 4:24 `roles` is missing: say who may share: `share: { roles: [member] }`",
        ),
        (
            "{ default: { risk: write_low, retry_safe: true } }",
            "C009 4:57 `retry_safe` is about reads, and this is a write: `upstream_idempotent: \
             true`, if the server carries out one key once",
        ),
    ] {
        assert_eq!(faults(&with(service)), [expected], "{service}");
    }
    let open = "{ roles: [member], hosts: [h.example] }";
    for (platform, acme, expected) in [
        ("off", open, "C009 4:1 the platform says `self_service: off`, which no tenant loosens"),
        (
            "",
            "{ roles: [member] }",
            "Y005 4:1 `self_service` without `hosts`: nobody may register anything",
        ),
    ] {
        let (_, faults) = Policies::compile(files(platform, acme));
        assert_eq!(told(&faults), [expected]);
    }
    let (_, faults) =
        Policies::compile(vec![file("a.yaml", &with(open)), file("b.yaml", &with("off"))]);
    assert_eq!(told(&faults), ["C008 4:1 `self_service` is given twice in one scope"]);
}

fn personal_sees(policies: &Policies, at_least: &[Option<Risk>]) -> Vec<String> {
    let names = ["a", "b", "c"].map(|name| Subject::tool(KEY, name));
    let subjects = [&names[..], &[Subject::tool("crm", "unheard.of")]].concat();
    let set = policies.personal(&tenant("acme")).bind_raised(&subjects, &[], at_least);
    let view = set.view(&tenant("acme"), &caller("gate"), &roles(&["member"]));
    let told = view.visible().iter().map(|index| {
        let policy = view.item(ItemIndex::new(index)).unwrap();
        format!("{} {}", subjects[index].name, policy.risk.as_str())
    });
    told.collect()
}

#[test]
fn tools_of_registered_servers_take_the_tenants_default() {
    let service =
        |default: &str| format!("{{ roles: [member], hosts: [h.example], default: {default} }}");
    let low = policies("", &service("{ risk: read_low, cost: 3, timeout: 5s }"));
    assert_eq!(personal_sees(&low, &[]), ["a read_low", "b read_low", "c read_low"]);
    let policy = low.personal(&tenant("acme")).item(Subject::tool(KEY, "a"));
    assert_eq!((policy.cost, policy.pin, policy.classified), (3, Pin::Approve, true));
    // A server may say that a tool is worse than that, and never that it is better.
    let said = [Some(Risk::WriteHigh), None, Some(Risk::ReadLow)];
    assert_eq!(personal_sees(&low, &said), ["b read_low", "c read_low"]);
    let high = policies("", &service("{ risk: read_high }"));
    assert_eq!(personal_sees(&high, &[Some(Risk::ReadLow); 3]), [""; 0]);
    // Without a default nothing is seen, nor by another tenant's.
    assert_eq!(personal_sees(&policies("", "{ roles: [a], hosts: [h.example] }"), &[]), [""; 0]);
    let none = low.personal(&tenant("globex")).item(Subject::tool(KEY, "a"));
    assert!(!none.classified);
    // Where everybody's upstreams are bound, it is no default of theirs.
    assert!(!low.item(Subject::tool(KEY, "a")).classified);
    assert!(!low.personal(&tenant("acme")).item(Subject::tool("crm", "unheard.of")).classified);
}

#[test]
fn a_tenants_default_does_not_loosen_the_platforms() {
    let service =
        |default: &str| format!("{{ roles: [member], hosts: [h.example], default: {default} }}");
    let both = policies(
        &service("{ risk: read_high, pin: approve, cost: 5, timeout: 5s, max_time: 20s }"),
        &service("{ risk: read_low, pin: first_use, cost: 1, timeout: 9s, max_time: 10s }"),
    );
    let policy = both.personal(&tenant("acme")).item(Subject::tool(KEY, "a"));
    assert_eq!((policy.risk, policy.pin, policy.cost), (Risk::ReadHigh, Pin::Approve, 5));
    let ms = |time: Option<std::time::Duration>| time.map(|time| time.as_millis());
    assert_eq!((ms(policy.timeout), ms(policy.max_time)), (Some(5_000), Some(10_000)));
    let stricter =
        policies(&service("{ risk: read_low, pin: first_use }"), &service("{ risk: write_low }"));
    let policy = stricter.personal(&tenant("acme")).item(Subject::tool(KEY, "a"));
    assert_eq!((policy.risk, policy.pin), (Risk::WriteLow, Pin::FirstUse));
    assert_eq!(policy.idempotency, IdempotencyMode::Required);
}

#[test]
fn an_operators_word_on_a_server_key_is_the_last() {
    let mut files =
        files("", "{ roles: [member], hosts: [h.example], default: { risk: read_high, cost: 4 } }");
    let classes = format!(
        "version: hangu/v1\nkind: Tools\nupstreams:\n  {KEY}:\n    tools:\n      \
         a: {{ risk: read_low }}\n      b: {{ cost: 9 }}\n"
    );
    files.push(file("keys.yaml", &classes));
    let policies = compile(files);
    assert_eq!(personal_sees(&policies, &[Some(Risk::WriteHigh); 3]), ["a read_low"]);
    let personal = policies.personal(&tenant("acme"));
    let b = personal.item(Subject::tool(KEY, "b"));
    assert_eq!((b.risk, b.cost, b.classified), (Risk::ReadHigh, 9, true));
    // It is a name in these files wherever an upstream's is.
    assert_eq!(UpstreamName::of_key(KEY).unwrap().as_str(), KEY);
    let (_, faults) = Policies::compile(vec![file(
        "l.yaml",
        &format!(
            "version: hangu/v1\nkind: Policy\nscope: platform\n\
             limits: [{{ id: l, per: [tool], upstreams: [{KEY}], rate: 1/1s }}]\n"
        ),
    )]);
    assert_eq!(told(&faults), [""; 0]);
}

#[test]
fn rules_and_cases_speak_of_registered_servers() {
    let text = format!(
        "version: hangu/v1\nkind: Policy\nscope: {{ tenant: acme }}\n\
         self_service: {{ roles: [member], hosts: [h.example], default: {{ risk: read_low }} }}\n\
         rules:\n  - {{ id: own, effect: allow, roles: [member], tools: [\"mcp_*/*\"] }}\n  \
         - {{ id: not, effect: deny, tools: [\"mcp_*/purge*\"] }}\n\
         ---\nversion: hangu/v1\nkind: PolicyTest\ncases:\n  \
         - {{ name: reads, as: {{ tenant: acme, roles: [member] }}, call: {KEY}/query, \
         expect: {{ decision: allow, rule: own }} }}\n  \
         - {{ name: purges, as: {{ tenant: acme, roles: [member] }}, call: {KEY}/purge_all, \
         expect: {{ decision: hide, rule: not }} }}\n  \
         - {{ name: elsewhere, as: {{ tenant: globex, roles: [member] }}, call: {KEY}/query, \
         expect: {{ decision: hide, reason: unclassified }} }}\n"
    );
    let policies = compile(vec![file("a.yaml", &text), file("tools.yaml", TOOLS)]);
    assert_eq!(told(&policies.failed_cases()), [""; 0]);
}

#[test]
fn lints_know_what_no_file_can() {
    let lint = |service: &str, rules: &[&str]| {
        let text = policy("{ tenant: acme }", rules);
        let text = format!("{}\nself_service: {service}\n", text.trim_end());
        let tools = TOOLS.replace(", idempotency: optional", "");
        let policies = compile(vec![file("a.yaml", &text), file("tools.yaml", &tools)]);
        let faults = policies.lint(Some(&Surroundings {
            callers: Vec::new(),
            upstreams: ["crm", "wiki"]
                .map(|name| (UpstreamName::parse(name).unwrap(), Span::file("h")))
                .into(),
        }));
        let about = |fault: &&Fault| {
            ["P107", "P108", "P110", "P116"].contains(&fault.code.as_str())
                && !fault.message.contains("unheard")
        };
        let told = faults.iter().filter(about).map(|f| format!("{} {}", f.code, f.message));
        told.collect::<Vec<_>>()
    };
    let good = "{ roles: [member], hosts: [\"*.example.com\"], default: { risk: read_low } }";
    for tools in
        ["mcp_*/*", "mcp_order-query_7f3a2c91/query_order", "mcp_order*/x", "*/query*", "m*/q"]
    {
        let rule = format!("{{ id: a, effect: allow, tools: [\"{tools}\"] }}");
        assert_eq!(lint(good, &[&rule]), [""; 0], "{tools}");
    }
    let rule = "{ id: a, effect: allow, tools: [\"mcp_*/*\"] }";
    assert_eq!(lint("off", &[rule]), [""; 0]);
    let other = "{ id: a, effect: allow, tools: [\"*/query*\"] }";
    assert_eq!(lint("off", &[other]), ["P107 `*/query*` matches no tool in the catalog"]);
    for (service, expected) in [
        (
            "{ roles: [member], hosts: [\"*\"], default: { risk: read_low } }",
            "P116 `*`: whatever there is may be registered",
        ),
        (
            "{ roles: [member], hosts: [\"*.com:*\"], default: { risk: read_low } }",
            "P116 `*.com:*`: whatever there is may be registered",
        ),
        (
            "{ roles: [member], hosts: [h.example] }",
            "P110 no tool of a registered server is seen: nothing says what they may do",
        ),
    ] {
        assert_eq!(lint(service, &[rule]), [expected]);
    }
}
