//! What employees may register and share of their own before and after: where, who, how many, and
//! whether somebody looks at the tools first.
//!
//! Hosts are compared as they are meant: where platform and tenant both have a list, what is in
//! both. A host that another one covers is not told beside it. What their tools are then open to is
//! compared with all others, as `mcp_*/…`.

use super::{About, Difference, DifferenceKind, Seer};
use crate::{
    model::caller::{Role, Roles, TenantId},
    policy::{
        Pin, Policies, SelfService,
        self_service::{HostGlob, default_of},
    },
};

/// What one set of policies says for a tenant.
struct Said {
    service: Option<SelfService>,
    hosts: Vec<HostGlob>,
    /// Whether definitions that are seen first are approved by that.
    trusts_first: bool,
}

/// What kind of difference it is, about what, and in which words.
type Told = (DifferenceKind, About, String);

/// The roles of which something is said.
pub(super) fn roles(policies: &Policies, tenant: Option<&TenantId>) -> Vec<Role> {
    let Some(service) = service(policies, tenant) else { return Vec::new() };
    service.roles().cloned().collect()
}

/// In which ways the second differs for these callers, from the smallest to the largest: what one
/// has been told is not told again of another who has all that he has.
pub(super) fn compare(
    old: &Policies,
    new: &Policies,
    tenant: Option<&TenantId>,
    seers: &[Seer],
) -> Vec<Difference> {
    let (old, new) = (Said::of(old, tenant), Said::of(new, tenant));
    let mut told: Vec<(Told, &Seer)> = Vec::new();
    // A key alone registers nothing, and a caller makes no difference.
    for seer in seers.iter().filter(|seer| !seer.key && seer.caller.is_none()) {
        let roles = Roles::new(seer.roles.iter().cloned());
        for found in between(&old, &new, &roles) {
            let is_known = told.iter().any(|(known, by)| *known == found && seer.includes(by));
            if !is_known {
                told.push((found, seer));
            }
        }
    }
    let difference = |((kind, about, item), seer): (Told, &Seer)| Difference {
        kind,
        tenant: tenant.cloned(),
        who: seer.clone(),
        about,
        item,
        only: None,
        when: None,
    };
    told.into_iter().map(difference).collect()
}

fn between(old: &Said, new: &Said, roles: &Roles) -> Vec<Told> {
    use DifferenceKind::{Narrowed, Widened};
    let mut found = Vec::new();
    let (before, after) = (old.hosts_for(roles), new.hosts_for(roles));
    for (kind, wide, narrow) in [(Widened, after, before), (Narrowed, before, after)] {
        let beyond: Vec<_> = wide.iter().filter(|glob| !glob.is_within(narrow)).collect();
        let largest = beyond.iter().enumerate().filter(|(at, glob)| {
            let mut others = beyond.iter().enumerate().filter(|(other, _)| other != at);
            !others.any(|(other, wider)| wider.covers(glob) && (!glob.covers(wider) || other < *at))
        });
        found.extend(largest.map(|(_, glob)| (kind, About::Hosts, glob.to_string())));
    }
    let (shared, shares) = (old.may_share(roles), new.may_share(roles));
    if shared != shares {
        let kind = if shares { Widened } else { Narrowed };
        found.push((kind, About::Sharing, "servers with teams of theirs".to_owned()));
    }
    // What follows is about those who may register something before and after.
    let (Some(before), Some(after)) = (&old.service, &new.service) else { return found };
    if old.hosts_for(roles).is_empty() || new.hosts_for(roles).is_empty() {
        return found;
    }
    let (most, now) = (before.max_each(), after.max_each());
    if most != now {
        let kind = if now > most { Widened } else { Narrowed };
        found.push((kind, About::Number, format!("{now} servers instead of {most}")));
    }
    if old.trusts_first != new.trusts_first {
        let (kind, what) = match new.trusts_first {
            true => (Widened, "without an approval, once they are seen first"),
            false => (Narrowed, "only after an approval"),
        };
        found.push((kind, About::Approving, what.to_owned()));
    }
    found
}

/// No tenant's name is empty.
fn service(policies: &Policies, tenant: Option<&TenantId>) -> Option<SelfService> {
    policies.self_service(tenant.unwrap_or(&TenantId::new("")))
}

// === impl Said ===

impl Said {
    fn of(policies: &Policies, tenant: Option<&TenantId>) -> Self {
        let service = service(policies, tenant);
        let hosts = service.as_ref().map(SelfService::hosts).unwrap_or_default();
        let compiled = &policies.enforced;
        let own = tenant.and_then(|tenant| compiled.tenants.get(tenant));
        let default = default_of(&compiled.platform, own.map(|own| &**own));
        let trusts_first = default.is_some_and(|class| class.pin == Some(Pin::FirstUse));
        Self { service, hosts, trusts_first }
    }

    fn hosts_for(&self, roles: &Roles) -> &[HostGlob] {
        match &self.service {
            Some(service) if service.may_register_any(roles).is_ok() => &self.hosts,
            _ => &[],
        }
    }

    fn may_share(&self, roles: &Roles) -> bool {
        self.service.as_ref().is_some_and(|service| service.may_share(roles).is_ok())
    }
}
