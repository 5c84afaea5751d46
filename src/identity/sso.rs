//! `SSO-Emp-Id`: for which employee a caller calls, and with which roles.
//!
//! Roles come the way the employee was named: for a header from the directory, for a fixed
//! identity from the caller's own configuration; never from the client's word. What those roles
//! may do is not decided here.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{
    api_key::{CallerEntry, Identity},
    token::Verified,
};
use crate::model::caller::{Auth, EmployeeId, Principal, Roles, TenantId};

/// The employees that `policies/directory.yaml` knows.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    employees: HashMap<Box<str>, Known, RandomState>,
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
    #[error("the header names another employee than the token")]
    OtherEmployee,
    /// Forbidden.
    #[error("the token belongs to another tenant than the key")]
    OtherKey,
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
    if let Some(employee) = &principal.employee {
        directory.check_tenant(employee, &caller.tenant)?;
    }
    Ok(principal.clone())
}

/// For whom a caller with a token calls: the token's employee, whom a header beside it may name
/// and not change.
pub fn resolve_token(
    caller: &CallerEntry,
    token: &Verified,
    header: HeaderState<'_>,
    directory: &Directory,
) -> Result<Principal, PrincipalFault> {
    if token.caller.tenant != caller.tenant {
        return Err(PrincipalFault::OtherKey);
    }
    let employee = token.principal.employee.as_ref();
    match header {
        HeaderState::Absent => {}
        HeaderState::Repeated => return Err(PrincipalFault::Repeated),
        HeaderState::Once(named) => {
            if employee.is_none_or(|employee| employee.as_str().as_bytes() != named) {
                return Err(PrincipalFault::OtherEmployee);
            }
        }
    }
    if let Some(employee) = employee {
        directory.check_tenant(employee, &caller.tenant)?;
    }
    Ok(token.principal.clone())
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
    ///
    /// # Errors
    /// The name is none, or one of another tenant's employee.
    pub fn named(&self, id: &[u8], tenant: &TenantId) -> Result<Principal, PrincipalFault> {
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
    ///
    /// # Errors
    /// The directory has him in another one.
    pub fn check_tenant(&self, id: &EmployeeId, tenant: &TenantId) -> Result<(), PrincipalFault> {
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
mod tests;
