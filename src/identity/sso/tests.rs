//! Every kind of caller against every kind of header.

use super::{super::api_key::Fixed, *};
use crate::model::{
    call_source::CallSources,
    caller::{CallerId, Role},
};

fn id(text: &str) -> EmployeeId {
    EmployeeId::parse(text).unwrap()
}

fn roles(names: &[&str]) -> Roles {
    Roles::new(names.iter().map(|name| Role::new(*name)))
}

fn directory() -> Directory {
    let entry = |tenant, names| DirectoryEntry {
        tenant: TenantId::new(tenant),
        roles: roles(names),
        teams: vec!["payments".into()],
    };
    Directory::new([
        (id("E1001"), entry("acme", &["member", "tester"])),
        (id("E2001"), entry("globex", &["member"])),
    ])
}

fn caller(identity: Identity) -> CallerEntry {
    CallerEntry {
        id: CallerId::new("gateway"),
        tenant: TenantId::new("acme"),
        keys: Vec::new(),
        identity,
        catalog_roles: roles(&["member"]),
        call_sources: CallSources::default(),
    }
}

fn fixed(employee: &str) -> Fixed {
    Fixed::new(id(employee), roles(&["fixed"]))
}

fn check(
    identity: Identity,
    values: &[&str],
    expected: Result<(Option<&str>, &[&str], Auth), PrincipalFault>,
) {
    let header = HeaderState::of(values.iter().map(|value| value.as_bytes()));
    let expected = expected.map(|(employee, names, auth)| Principal {
        employee: employee.map(id),
        roles: roles(names),
        auth,
    });
    assert_eq!(resolve(&caller(identity), header, &directory()), expected, "{values:?}");
}

#[test]
fn a_trusted_caller_names_the_employee() {
    let known = ["member", "tester"];
    for identity in [Identity::Header, Identity::HeaderOr(fixed("E0042"))] {
        check(identity.clone(), &["E1001"], Ok((Some("E1001"), &known, Auth::Header)));
        // Whom the directory does not know has no roles, not the fallback's.
        check(identity.clone(), &["E7777"], Ok((Some("E7777"), &[], Auth::Header)));
        check(identity.clone(), &["E2001"], Err(PrincipalFault::OtherTenant(id("E2001"))));
        check(identity.clone(), &["E1001", "E1001"], Err(PrincipalFault::Repeated));
        for bad in ["", " ", "E1001 ", "E1001,E1002", "E 1", "é", "E\n", &"x".repeat(65)] {
            check(identity.clone(), &[bad], Err(PrincipalFault::Malformed));
        }
    }
}

#[test]
fn from_any_other_caller_the_header_is_refused() {
    for identity in [Identity::Fixed(fixed("E0042")), Identity::None] {
        for values in [&["E0042"][..], &["E1001"], &[""], &["E1001", "E1001"], &["E2001"]] {
            check(identity.clone(), values, Err(PrincipalFault::NotTrusted));
        }
    }
}

#[test]
fn without_a_header_the_configuration_says_who_it_is() {
    check(Identity::Header, &[], Ok((None, &[], Auth::Key)));
    check(Identity::None, &[], Ok((None, &[], Auth::Key)));
    for identity in [Identity::Fixed(fixed("E0042")), Identity::HeaderOr(fixed("E0042"))] {
        check(identity, &[], Ok((Some("E0042"), &["fixed"], Auth::Fixed)));
    }
    // The roles are the configuration's, also for an employee the directory knows.
    check(Identity::Fixed(fixed("E1001")), &[], Ok((Some("E1001"), &["fixed"], Auth::Fixed)));
}

#[test]
fn a_fixed_employee_of_another_tenant_is_refused() {
    let fault = PrincipalFault::OtherTenant(id("E2001"));
    check(Identity::Fixed(fixed("E2001")), &[], Err(fault));
}

#[test]
fn bytes_that_are_no_text_are_malformed() {
    let header = HeaderState::Once(&[0xff]);
    let found = resolve(&caller(Identity::Header), header, &directory());
    assert_eq!(found, Err(PrincipalFault::Malformed));
}
