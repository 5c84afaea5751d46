//! Callers, tenants and roles that rules speak of and nobody has, and the other way round.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{Approvers, Scope, compile::Compiled},
    Surroundings,
};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::caller::{Role, Roles, TenantId},
};

pub(super) fn check(policies: &Compiled, surroundings: &Surroundings, faults: &mut Faults) {
    check_callers(policies, surroundings, faults);
    check_tenants(policies, surroundings, faults);
    check_employees(policies, surroundings, faults);
    let held = held_roles(policies, surroundings);
    check_rules_roles(policies, &held, faults);
    check_teams(policies, faults);
    check_held_roles(policies, &held, faults);
}

fn check_callers(policies: &Compiled, surroundings: &Surroundings, faults: &mut Faults) {
    let names = || surroundings.callers.iter().map(|caller| caller.id.as_str());
    for rule in policies.rules() {
        for caller in rule.callers.iter().flatten() {
            let known = surroundings.callers.iter().find(|known| known.id == caller.value);
            match known {
                None => {
                    let message = format!("there is no caller `{}`", caller.value);
                    let fault = faults.add(FaultCode::UnknownCaller, &caller.at, message);
                    fault.did_you_mean(caller.value.as_str(), names());
                }
                Some(known) if rule.scope.tenant().is_some_and(|own| *own != known.tenant) => {
                    let message =
                        format!("caller `{}` is of another tenant: `{}`", known.id, known.tenant);
                    faults.add(FaultCode::UnknownCaller, &caller.at, message);
                }
                Some(_) => {}
            }
        }
    }
}

/// A tenant is one that some caller belongs to.
fn check_tenants(policies: &Compiled, surroundings: &Surroundings, faults: &mut Faults) {
    let known: BTreeSet<&str> =
        surroundings.callers.iter().map(|caller| caller.tenant.as_str()).collect();
    let mut told = BTreeSet::new();
    let mut check = |tenant: &TenantId, at: &Span| {
        if !known.contains(tenant.as_str()) && told.insert(tenant.clone()) {
            let message = format!("no caller belongs to the tenant `{tenant}`");
            let fault = faults.add(FaultCode::UnknownTenant, at, message);
            fault.did_you_mean(tenant.as_str(), known.iter().copied());
        }
    };
    for rule in policies.rules() {
        rule.scope.tenant().into_iter().for_each(|tenant| check(tenant, &rule.at));
    }
    for limit in policies.limits() {
        limit.scope.tenant().into_iter().for_each(|tenant| check(tenant, &limit.at));
        for tenant in limit.tenants.iter().flatten() {
            check(&tenant.value, &tenant.at);
        }
    }
    let mut employees: Vec<_> = policies.directory.employees.values().collect();
    employees.sort_by(|a, b| a.id.cmp(&b.id));
    employees.iter().for_each(|employee| check(&employee.tenant, &employee.at));
}

/// A fixed employee whom the directory places elsewhere is refused at every call.
pub(super) fn check_employees(
    policies: &Compiled,
    surroundings: &Surroundings,
    faults: &mut Faults,
) {
    for caller in &surroundings.callers {
        let Some((id, _)) = &caller.fixed else { continue };
        let Some(employee) = policies.directory.employees.get(id) else { continue };
        if employee.tenant != caller.tenant {
            let message = format!(
                "caller `{}` of tenant `{}` acts as `{id}`, who belongs to `{}`",
                caller.id, caller.tenant, employee.tenant
            );
            let fault = faults.add(FaultCode::ForeignEmployee, &caller.at, message);
            fault.relate(&employee.at, "the directory's entry");
        }
    }
}

/// Who holds which role: by tenant and role, the first place that says so.
type Held = BTreeMap<TenantId, BTreeMap<Role, Span>>;

fn held_roles(policies: &Compiled, surroundings: &Surroundings) -> Held {
    let mut held = Held::new();
    let mut add = |tenant: &TenantId, roles: &Roles, at: &Span| {
        let own = held.entry(tenant.clone()).or_default();
        for role in roles.iter() {
            own.entry(role.clone()).or_insert_with(|| at.clone());
        }
    };
    let mut employees: Vec<_> = policies.directory.employees.values().collect();
    employees.sort_by(|a, b| a.id.cmp(&b.id));
    for employee in employees {
        add(&employee.tenant, &employee.roles, &employee.at);
    }
    for (tenant, scope) in &policies.tenants {
        for rule in &scope.roles {
            // By a token's claims, or along with another role.
            let included = rule.includes.iter().map(|role| role.value.clone());
            let given = rule.claim.as_ref().map(|_| rule.role.clone());
            add(tenant, &Roles::new(included.chain(given)), &rule.at);
        }
    }
    for caller in &surroundings.callers {
        add(&caller.tenant, &caller.catalog_roles, &caller.at);
        if let Some((_, roles)) = &caller.fixed {
            add(&caller.tenant, roles, &caller.at);
        }
    }
    held
}

fn check_rules_roles(policies: &Compiled, held: &Held, faults: &mut Faults) {
    let anybody: BTreeSet<&str> =
        held.values().flat_map(BTreeMap::keys).map(Role::as_str).collect();
    // Those that the platform's files give, to anybody.
    let by_platform = || {
        let given = policies.platform.roles.iter().flat_map(|rule| {
            let own = rule.claim.as_ref().map(|_| &rule.role);
            own.into_iter().chain(rule.includes.iter().map(|role| &role.value))
        });
        given.map(Role::as_str)
    };
    let anybody: BTreeSet<&str> = anybody.into_iter().chain(by_platform()).collect();
    let of = |tenant| -> BTreeSet<&str> {
        let own = held.get(tenant).into_iter().flat_map(BTreeMap::keys).map(Role::as_str);
        own.chain(by_platform()).collect()
    };
    for rule in policies.rules() {
        if let Some(Approvers::Others { roles, .. }) = rule.approval.as_ref().map(|ask| &ask.by) {
            let holders = rule.scope.tenant().map(of);
            let holders = holders.as_ref().unwrap_or(&anybody);
            if !roles.iter().any(|role| holders.contains(role.as_str())) {
                let names: Vec<_> = roles.iter().map(|role| format!("`{role}`")).collect();
                let message = format!("nobody can approve: nobody has {}", names.join(" or "));
                faults.add(FaultCode::RoleWithoutHolder, &rule.at, message);
            }
        }
    }
    let asked = policies
        .rules()
        .flat_map(|rule| rule.roles.iter().flatten().map(|role| (&rule.scope, role)));
    let services = policies.scopes().filter_map(|scope| scope.self_service.as_deref());
    let services = services.flat_map(|rule| rule.asked_roles().map(|role| (&rule.scope, role)));
    for (scope, role) in asked.chain(services) {
        let name = role.value.as_str();
        let holders = scope.tenant().map(of);
        let holders = holders.as_ref().unwrap_or(&anybody);
        if !holders.contains(name) {
            let message = format!("nobody has the role `{name}`");
            let fault = faults.add(FaultCode::RoleWithoutHolder, &role.at, message);
            fault.did_you_mean(name, holders.iter().copied());
        }
    }
}

/// Teams are those of the directory.
fn check_teams(policies: &Compiled, faults: &mut Faults) {
    let employees = policies.directory.employees.values();
    let known: BTreeSet<&str> =
        employees.flat_map(|employee| employee.teams.iter().map(String::as_str)).collect();
    for rule in policies.rules() {
        let teams = rule.rollout.iter().flat_map(|rollout| rollout.teams.iter());
        for team in teams.filter(|team| !known.contains(&***team)) {
            let message =
                format!("`{}` is open to the team `{team}`, and nobody is in it", rule.id);
            let fault = faults.add(FaultCode::TeamWithoutMember, &rule.at, message);
            fault.did_you_mean(team, known.iter().copied());
        }
    }
}

fn check_held_roles(policies: &Compiled, held: &Held, faults: &mut Faults) {
    let mut asked: BTreeMap<&Scope, BTreeSet<&str>> = BTreeMap::new();
    for rule in policies.rules() {
        let roles = rule.roles.iter().flatten().map(|role| role.value.as_str());
        let own = asked.entry(&rule.scope).or_default();
        own.extend(roles);
        if let Some(Approvers::Others { roles, .. }) = rule.approval.as_ref().map(|ask| &ask.by) {
            own.extend(roles.iter().map(Role::as_str));
        }
    }
    for rule in policies.scopes().filter_map(|scope| scope.self_service.as_ref()) {
        let roles = rule.asked_roles().map(|role| role.value.as_str());
        asked.entry(&rule.scope).or_default().extend(roles);
    }
    for (tenant, roles) in held {
        let own = Scope::Tenant(tenant.clone());
        let asked = || {
            let scopes = [asked.get(&Scope::Platform), asked.get(&own)];
            scopes.into_iter().flatten().flatten().copied()
        };
        for (role, at) in roles {
            // Or for one that comes with it.
            let all = policies.roles_of(tenant).with_included(&Roles::new([role.clone()]));
            if !asked().any(|asked| all.contains(asked)) {
                let message = format!("no rule of tenant `{tenant}` asks for the role `{role}`");
                let fault = faults.add(FaultCode::RoleWithoutRule, at, message);
                fault.did_you_mean(role.as_str(), asked());
            }
        }
    }
}
