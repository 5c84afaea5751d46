//! The directory: which employee belongs to which tenant, with which roles and teams.

use std::{collections::HashMap, sync::Arc};

use crate::{
    fault::{FaultCode, Faults, Span},
    model::caller::{EmployeeId, Role, Roles, TenantId},
    yaml::{Entry, MapReader, Spanned},
};

/// Everybody the operator wrote down. Who looks up an employee by an id that came from outside
/// gets `None` for a stranger, who has no roles.
#[derive(Debug, Default)]
pub struct Directory {
    pub employees: HashMap<EmployeeId, Arc<Employee>>,
}

/// One employee.
#[derive(Debug)]
pub struct Employee {
    pub id: EmployeeId,
    pub at: Span,
    pub tenant: TenantId,
    pub roles: Roles,
    pub teams: Vec<String>,
}

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<Employee> {
    let entries = map.required_node("employees", faults).map(|node| node.named(faults));
    let entries = entries.unwrap_or_default().into_iter();
    entries.filter_map(|entry| Employee::read(entry, faults)).collect()
}

impl Employee {
    fn read(entry: &Entry, faults: &mut Faults) -> Option<Self> {
        let id = EmployeeId::parse(&entry.key);
        if id.is_none() {
            let message = format!(
                "`{}` is not an employee's id: 1 to 64 of `A-Z a-z 0-9 . _ @ -`",
                entry.key
            );
            faults.add(FaultCode::BadName, &entry.key_at, message);
        }
        let mut map = entry.value.map(faults)?;
        let tenant: Option<TenantId> = map.required("tenant", faults);
        let roles: Vec<Role> = map.optional("roles", faults).unwrap_or_default();
        let teams: Vec<Spanned<String>> = map.optional("teams", faults).unwrap_or_default();
        map.finish(faults);
        for team in &teams {
            if let Err(reason) = crate::yaml::check_name(&team.value) {
                faults.add(FaultCode::BadName, &team.at, format!("`{}` {reason}", team.value));
            }
        }
        Some(Self {
            id: id?,
            at: entry.key_at.clone(),
            tenant: tenant?,
            roles: Roles::new(roles),
            teams: teams.into_iter().map(|team| team.value).collect(),
        })
    }
}
