//! Warnings: policies that are right, and yet hardly what somebody meant.
//!
//! What is warned of is certain, as far as the files and the configuration tell: a rule that
//! might be of use with a catalog nobody has seen is left alone.

mod cover;
mod tools;
mod who;

use super::Policies;
use crate::{
    fault::{Fault, Faults, Span},
    model::{
        caller::{CallerId, EmployeeId, Roles, TenantId},
        server::UpstreamName,
    },
};

/// What is configured beside the policies.
#[derive(Debug, Default)]
pub struct Surroundings {
    pub callers: Vec<KnownCaller>,
    pub upstreams: Vec<(UpstreamName, Span)>,
}

/// A configured caller, as far as policies have to do with it.
#[derive(Debug)]
pub struct KnownCaller {
    pub id: CallerId,
    pub tenant: TenantId,
    pub at: Span,
    /// The fixed employee, if it has one, and what roles he is given.
    pub fixed: Option<(EmployeeId, Roles)>,
    pub catalog_roles: Roles,
}

impl Policies {
    /// What is hardly meant. Without `surroundings`, only what the files alone can tell.
    pub fn lint(&self, surroundings: Option<&Surroundings>) -> Vec<Fault> {
        let mut faults = Faults::new();
        let policies = &self.0;
        cover::check(&policies.rules, &mut faults);
        tools::check(policies, surroundings, &mut faults);
        if let Some(surroundings) = surroundings {
            who::check(policies, surroundings, &mut faults);
        }
        faults.into_sorted()
    }
}
