//! Warnings: policies that are right, and yet hardly what somebody meant.

use crate::model::{
    caller::{CallerId, Roles, TenantId},
    server::UpstreamName,
};

/// What is configured beside the policies.
#[derive(Debug, Default)]
pub struct Surroundings {
    pub callers: Vec<(CallerId, TenantId)>,
    pub upstreams: Vec<UpstreamName>,
    /// Roles that callers bring along.
    pub roles: Vec<Roles>,
}
