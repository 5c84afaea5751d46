//! What `diff` finds of who registers servers, and of what their tools are open to.

use super::{self_service::policies, *};

/// What `diff` tells of a change, as `kind tenant roles about item`.
fn differences(old: (&str, &str), new: (&str, &str)) -> Vec<String> {
    let found = diff(&policies(old.0, old.1), &policies(new.0, new.1), []);
    let told = found.iter().map(|found| {
        let tenant = found.tenant.as_ref().map_or("others".to_owned(), ToString::to_string);
        let roles: Vec<_> = found.who.roles.iter().map(|role| role.as_str()).collect();
        let (kind, about, item) = (found.kind, found.about, &found.item);
        format!("{kind:?} {tenant} {} {about:?} {item}", roles.join("+"))
    });
    told.collect()
}

#[test]
fn a_change_of_who_brings_what_is_told() {
    let with = |more: &str| format!("{{ roles: [member], hosts: [a.example.com]{more} }}");
    let hosts = |hosts: &str| format!("{{ roles: [member], hosts: [{hosts}] }}");
    for (old, new, expected) in [
        (String::new(), hosts("a.example.com"), &["Widened acme member Hosts a.example.com"][..]),
        (hosts("a.example.com"), "off".to_owned(), &["Narrowed acme member Hosts a.example.com"]),
        (hosts("a.example.com"), hosts("a.example.com"), &[]),
        // Of what one covers, it alone is told, and what was covered before not at all.
        (
            hosts("a.example.com"),
            hosts("\"*.example.com\", b.example.com"),
            &["Widened acme member Hosts *.example.com"],
        ),
        (
            hosts("\"*.example.com\""),
            hosts("b.example.com, c.example.org"),
            &[
                "Widened acme member Hosts c.example.org",
                "Narrowed acme member Hosts *.example.com",
            ],
        ),
        (hosts("\"*\""), hosts("\"*:*\""), &["Widened acme member Hosts *:*"]),
        (
            hosts("\"a.example.com:*\""),
            hosts("a.example.com"),
            &["Narrowed acme member Hosts a.example.com:*"],
        ),
        (
            hosts("a.example.com"),
            hosts("\"a.example.com:443\""),
            &["Narrowed acme member Hosts a.example.com"],
        ),
        (hosts("a.example.com"), hosts("\"a.example.com:443\", \"a.example.com:80\""), &[]),
        (
            with(""),
            "{ roles: [member, guest], hosts: [a.example.com] }".to_owned(),
            &["Widened acme guest Hosts a.example.com"],
        ),
        (
            with(""),
            "{ roles: [guest], hosts: [a.example.com] }".to_owned(),
            &["Widened acme guest Hosts a.example.com", "Narrowed acme member Hosts a.example.com"],
        ),
        (
            with(""),
            with(", share: { roles: [lead] }"),
            &["Widened acme lead Sharing servers with teams of theirs"],
        ),
        (
            with(", share: { roles: [member] }"),
            with(", share: false"),
            &["Narrowed acme member Sharing servers with teams of theirs"],
        ),
        (
            with(""),
            with(", max_each: 50"),
            &["Widened acme member Number 50 servers instead of 20"],
        ),
        (
            with(", max_each: 5"),
            with(", max_each: 2"),
            &["Narrowed acme member Number 2 servers instead of 5"],
        ),
    ] {
        assert_eq!(differences(("", &old), ("", &new)), expected, "{old} -> {new}");
    }
}

#[test]
fn what_both_scopes_name_is_what_is_compared() {
    const ALL: &str = "{ roles: [member], hosts: [\"*.example.com\"] }";
    for (old, new, expected) in [
        // The tenant gains nothing by what the platform does not have.
        (
            (ALL, "{ hosts: [a.example.com] }"),
            (ALL, "{ hosts: [a.example.com, b.example.org] }"),
            &[][..],
        ),
        (
            (ALL, "{ hosts: [a.example.com] }"),
            (ALL, "{ hosts: [\"*:*\"] }"),
            &["Widened acme member Hosts *.example.com"],
        ),
        (
            (
                "{ hosts: [\"*.example.com:8443\"] }",
                "{ roles: [member], hosts: [\"a.example.com:*\"] }",
            ),
            ("{ hosts: [\"*.example.com\"] }", "{ roles: [member], hosts: [\"a.example.com:*\"] }"),
            &[
                "Widened acme member Hosts a.example.com",
                "Narrowed acme member Hosts a.example.com:8443",
            ],
        ),
        // All tenants, and those that are told by themselves.
        (
            ("", ""),
            (ALL, ""),
            &[
                "Widened others member Hosts *.example.com",
                "Widened acme member Hosts *.example.com",
            ],
        ),
        // Whoever has both roles alone.
        (
            ("", ""),
            ("{ roles: [member], hosts: [a.example.com] }", "{ roles: [lead] }"),
            &[
                "Widened others member Hosts a.example.com",
                "Widened acme lead+member Hosts a.example.com",
            ],
        ),
    ] {
        assert_eq!(differences(old, new), expected, "{old:?} -> {new:?}");
    }
}

/// What their tools are open to, and whether somebody looks first.
#[test]
fn how_tools_of_registered_servers_count_is_compared() {
    let with = |default: &str| {
        format!("{{ roles: [member], hosts: [a.example.com], default: {{ {default} }} }}")
    };
    for (old, new, expected) in [
        // The rules of both scopes let members read.
        ("risk: read_high", "risk: read_low", &["Widened acme member Item(Tools) mcp_*/*"][..]),
        ("risk: read_low", "risk: write_low", &["Narrowed acme member Item(Tools) mcp_*/*"]),
        (
            "risk: read_low",
            "risk: read_low, pin: first_use",
            &["Widened acme member Approving without an approval, once they are seen first"],
        ),
        (
            "risk: read_low, pin: first_use",
            "risk: read_low, pin: approve",
            &["Narrowed acme member Approving only after an approval"],
        ),
    ] {
        let told = differences(("", &with(old)), ("", &with(new)));
        let tools: Vec<_> = told
            .iter()
            .filter(|told| !told.contains("Item(Prompts)") && !told.contains("Item(Resources)"))
            .collect();
        assert_eq!(tools, expected, "{old} -> {new}");
    }
}
