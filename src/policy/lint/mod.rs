//! Warnings: policies that are right, and yet hardly what somebody meant.
//!
//! What is warned of is certain, as far as the files and the configuration tell: a rule that
//! might be of use with a catalog nobody has seen is left alone.

mod arguments;
mod cover;
mod tools;
mod who;

use super::{Policies, Subject};
use crate::{
    fault::{Fault, Faults, Span},
    json,
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
    /// Conditions that do not fit the arguments of the tools they are about, by the tools'
    /// `inputSchema`s.
    pub fn check_arguments<'a>(
        &self,
        tools: impl IntoIterator<Item = (Subject<'a>, json::Value<'a>)>,
    ) -> Vec<Fault> {
        let mut faults = Faults::new();
        let policies = self.shadow.as_ref().unwrap_or(&self.enforced);
        arguments::check(policies, tools.into_iter(), &mut faults);
        faults.into_sorted()
    }

    /// The errors among what `lint` finds: what would be refused at every call.
    pub fn contradictions(&self, surroundings: &Surroundings) -> Vec<Fault> {
        let mut faults = Faults::new();
        let policies = self.shadow.as_ref().unwrap_or(&self.enforced);
        who::check_employees(policies, surroundings, &mut faults);
        faults.into_sorted()
    }

    /// What is hardly meant. Without `surroundings`, only what the files alone can tell.
    pub fn lint(&self, surroundings: Option<&Surroundings>) -> Vec<Fault> {
        let mut faults = Faults::new();
        // What is only looked at is looked at here too.
        let policies = self.shadow.as_ref().unwrap_or(&self.enforced);
        cover::check(policies, &mut faults);
        tools::check(policies, surroundings, &mut faults);
        if let Some(surroundings) = surroundings {
            who::check(policies, surroundings, &mut faults);
        }
        faults.into_sorted()
    }
}
