//! Roles by a token's claims, and roles that come with others.

use super::*;
use crate::json::{Doc, Duplicates, Limits};

const LIMITS: Limits = Limits { depth: 16, duplicates: Duplicates::Refuse, outline: 2 };

fn policies(platform: &str, acme: &str) -> Policies {
    let document = |scope: &str, roles: &str| {
        format!("version: hangu/v1\nkind: Policy\nscope: {scope}\nroles: {{ {roles} }}\n")
    };
    compile(vec![
        file("p.yaml", &document("platform", platform)),
        file("a.yaml", &document("{ tenant: acme }", acme)),
        file("tools.yaml", TOOLS),
        file(
            "r.yaml",
            &policy("platform", &["{ id: r, effect: allow, roles: [member], risk: [read_low] }"]),
        ),
    ])
}

fn given(policies: &Policies, of: &str, claims: &str) -> Vec<String> {
    let doc = Doc::parse(bytes::Bytes::copy_from_slice(claims.as_bytes()), &LIMITS).unwrap();
    let roles = policies.roles_from_claims(&tenant(of), doc.root());
    roles.iter().map(|role| role.as_str().to_owned()).collect()
}

#[test]
fn a_claim_gives_the_roles_that_ask_for_one_of_its_values() {
    let policies = policies(
        "auditor: { claim: /realm/roles, any: [audit] }",
        "member: { claim: groups, any: [acme-users, acme-guests] }, \
         admin: { claim: groups, any: [acme-admins], includes: [member] }, \
         tool: { claim: scope, any: [mcp] }, \
         url: { claim: \"https://acme.example/role\", any: [x] }",
    );
    for (claims, expected) in [
        ("{}", &[][..]),
        (r#"{"groups":["acme-guests","other"]}"#, &["member"]),
        (r#"{"groups":"acme-users"}"#, &["member"]),
        (r#"{"groups":["acme-admins"]}"#, &["admin", "member"]),
        (r#"{"groups":"acme-users acme-admins"}"#, &[]),
        (r#"{"groups":[["acme-users"]],"group":["acme-users"]}"#, &[]),
        (r#"{"groups":{"acme-users":true}}"#, &[]),
        (r#"{"scope":"openid mcp"}"#, &["tool"]),
        (r#"{"scope":"openid mcps"}"#, &[]),
        (r#"{"realm":{"roles":["audit"]}}"#, &["auditor"]),
        (r#"{"https://acme.example/role":"x"}"#, &["url"]),
    ] {
        assert_eq!(given(&policies, "acme", claims), expected, "{claims}");
    }
    // Another tenant has the platform's roles alone.
    let claims = r#"{"groups":["acme-admins"],"realm":{"roles":["audit"]}}"#;
    assert_eq!(given(&policies, "globex", claims), ["auditor"]);
}

#[test]
fn a_role_brings_others_however_it_was_given() {
    let policies = policies("boss: { includes: [admin] }", "admin: { includes: [member] }");
    let set = bind(&policies);
    for (of, role, expected) in [
        ("acme", "boss", 2),
        ("acme", "admin", 2),
        ("acme", "member", 2),
        ("acme", "other", 0),
        ("globex", "boss", 0),
        ("globex", "member", 2),
    ] {
        let seen = set.view(&tenant(of), &caller("gate"), &roles(&[role]));
        assert_eq!(seen.visible().count(), expected, "{of} {role}");
    }
    let all = policies.with_included(&tenant("acme"), &roles(&["boss"]));
    assert_eq!(all, roles(&["admin", "boss", "member"]));
}
