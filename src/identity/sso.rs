//! `SSO-Emp-Id`: for which employee a caller calls, and with which roles.
//!
//! Roles come the way the employee was named: for a header from the directory, for a fixed
//! identity from the caller's own configuration; never from the client's word. What those roles
//! may do is not decided here.

use std::collections::HashMap;

use super::api_key::{CallerEntry, Identity};
use crate::model::caller::{Auth, EmployeeId, Principal, Roles, TenantId};

/// The employees that `policies/directory.yaml` knows.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    employees: HashMap<Box<str>, Known>,
}

/// What the directory says of an employee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub tenant: TenantId,
    pub roles: Roles,
    pub teams: Vec<Box<str>>,
}

#[derive(Debug, Clone)]
struct Known {
    id: EmployeeId,
    entry: DirectoryEntry,
}

/// What came as `SSO-Emp-Id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderState<'a> {
    Absent,
    Once(&'a [u8]),
    Repeated,
}

/// Why nobody can be called for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalFault {
    /// Forbidden.
    #[error("this caller may not name an employee")]
    NotTrusted,
    /// A bad request.
    #[error("the employee was named more than once")]
    Repeated,
    /// A bad request.
    #[error("an employee's id is 1 to 64 of letters, digits and `._@-`")]
    Malformed,
    /// Forbidden.
    #[error("the employee belongs to another tenant")]
    OtherTenant(EmployeeId),
}

/// For whom `caller` calls: the employee of the header if it may name one, else the one its
/// configuration fixes, else nobody.
///
/// Whether a call can do without an employee is for policy to say.
pub fn resolve(
    caller: &CallerEntry,
    header: HeaderState<'_>,
    directory: &Directory,
) -> Result<Principal, PrincipalFault> {
    let fixed = match (&caller.identity, header) {
        (Identity::Header | Identity::HeaderOr(_), HeaderState::Once(id)) => {
            return directory.named(id, &caller.tenant);
        }
        (Identity::Header | Identity::HeaderOr(_), HeaderState::Repeated) => {
            return Err(PrincipalFault::Repeated);
        }
        // Ignoring it would let a caller believe that it had called for somebody else.
        (_, HeaderState::Once(_) | HeaderState::Repeated) => {
            return Err(PrincipalFault::NotTrusted);
        }
        (Identity::Header | Identity::None, HeaderState::Absent) => {
            return Ok(Principal { employee: None, roles: Roles::default(), auth: Auth::Key });
        }
        (Identity::Fixed(fixed) | Identity::HeaderOr(fixed), HeaderState::Absent) => fixed,
    };
    let principal = fixed.principal();
    match &principal.employee {
        Some(employee) => directory.check_tenant(employee, &caller.tenant)?,
        None => {}
    }
    Ok(principal.clone())
}

// === impl Directory ===

impl Directory {
    pub fn new(employees: impl IntoIterator<Item = (EmployeeId, DirectoryEntry)>) -> Self {
        let known =
            |(id, entry): (EmployeeId, DirectoryEntry)| (id.as_str().into(), Known { id, entry });
        Self { employees: employees.into_iter().map(known).collect() }
    }

    pub fn get(&self, id: &str) -> Option<&DirectoryEntry> {
        self.employees.get(id).map(|known| &known.entry)
    }

    /// The employee that a trusted caller of `tenant` named. Unknown ones are legal; they have
    /// no roles.
    fn named(&self, id: &[u8], tenant: &TenantId) -> Result<Principal, PrincipalFault> {
        let id = std::str::from_utf8(id).map_err(|_| PrincipalFault::Malformed)?;
        let (employee, roles) = match self.employees.get(id) {
            Some(Known { id, entry }) if entry.tenant == *tenant => {
                (id.clone(), entry.roles.clone())
            }
            Some(Known { id, .. }) => return Err(PrincipalFault::OtherTenant(id.clone())),
            None => {
                let id = EmployeeId::parse(id).ok_or(PrincipalFault::Malformed)?;
                (id, Roles::default())
            }
        };
        Ok(Principal { employee: Some(employee), roles, auth: Auth::Header })
    }

    /// A fixed employee is one of the caller's tenant too.
    fn check_tenant(&self, id: &EmployeeId, tenant: &TenantId) -> Result<(), PrincipalFault> {
        match self.get(id.as_str()) {
            Some(entry) if entry.tenant != *tenant => Err(PrincipalFault::OtherTenant(id.clone())),
            _ => Ok(()),
        }
    }
}

impl<'a> HeaderState<'a> {
    /// From the values of the header, in the order in which they came.
    pub fn of(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (None, _) => HeaderState::Absent,
            (Some(value), None) => HeaderState::Once(value),
            (Some(_), Some(_)) => HeaderState::Repeated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::api_key::Fixed;
    use super::*;
    use crate::model::caller::{CallerId, Role};

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
            let check = |values, expected| check(identity.clone(), values, expected);
            check(&["E1001"], Ok((Some("E1001"), &known, Auth::Header)));
            // Whom the directory does not know has no roles, not the fallback's.
            check(&["E7777"], Ok((Some("E7777"), &[], Auth::Header)));
            check(&["E2001"], Err(PrincipalFault::OtherTenant(id("E2001"))));
            check(&["E1001", "E1001"], Err(PrincipalFault::Repeated));
            for bad in ["", " ", "E1001 ", "E1001,E1002", "E 1", "é", "E\n", &"x".repeat(65)] {
                check(&[bad], Err(PrincipalFault::Malformed));
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
}
