//! The limits and quotas of policy files and of the configuration, in the limiter's terms; and what
//! may be listed.

use std::sync::Arc;

use crate::{
    config::Config,
    discovery,
    limit::{self, Allowance, LimitSpec, quota},
    model::caller::TenantId,
    policy::{self, LimitKey, LimitKind, LimitRule, Policies, Scope},
    yaml::Spanned,
};

pub(super) fn all_limits(own: &[LimitSpec], policies: &Policies) -> Vec<LimitSpec> {
    own.iter().cloned().chain(policies.limits().flat_map(|rule| specs(rule))).collect()
}

/// The limits that the configuration sets, beside those of policy files.
pub(super) fn own_limits(config: &Config) -> Vec<LimitSpec> {
    let slots = config.upstreams.iter().map(|upstream| LimitSpec {
        id: format!("{}.max_concurrency", upstream.name).into(),
        tenant: None,
        per: smallvec::smallvec![limit::Dimension::Upstream],
        upstreams: vec![upstream.name.clone()],
        tools: Vec::new(),
        risks: Vec::new(),
        kind: limit::Kind::Concurrency(limit::Concurrency {
            slots: u32::try_from(upstream.max_concurrency.get())
                .ok()
                .and_then(std::num::NonZeroU32::new)
                .unwrap_or(std::num::NonZeroU32::MAX),
            // As many again may wait, for as long as the upstream itself may take to answer.
            queue: u32::try_from(upstream.max_concurrency.get()).unwrap_or(u32::MAX),
            wait: upstream.timeout,
        }),
    });
    slots.collect()
}

/// Elements that an upstream of the operator's lists of one family.
const ELEMENTS_MAX: usize = 20_000;

/// What an upstream of the operator's may list, and what a server of an employee's may.
pub(super) fn listings(config: &Config) -> (discovery::Limits, discovery::Limits) {
    let limits = |bytes, elements| discovery::Limits {
        bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        elements,
    };
    let servers = &config.servers;
    (
        limits(config.lists.max_bytes, ELEMENTS_MAX),
        limits(servers.max_list_bytes, servers.max_tools),
    )
}

/// A limit of a platform file may name several tenants: each has its own.
fn specs(rule: &LimitRule) -> Vec<LimitSpec> {
    let tenants = tenants(&rule.scope, rule.tenants.as_deref());
    let spec = |tenant| LimitSpec {
        id: rule.id.clone(),
        tenant,
        per: rule.per.iter().copied().map(dimension).collect(),
        upstreams: rule.upstreams.iter().flatten().map(|upstream| upstream.value.clone()).collect(),
        tools: rule.tools.iter().flatten().map(|glob| glob.as_str().into()).collect(),
        risks: rule.risk.iter().flat_map(|risks| risks.iter()).collect(),
        kind: match rule.kind {
            LimitKind::Rate { count, period, burst } => {
                limit::Kind::Rate(limit::Rate { count, period, burst })
            }
            LimitKind::Concurrency { slots, queue, wait } => {
                limit::Kind::Concurrency(limit::Concurrency { slots, queue, wait })
            }
        },
    };
    tenants.into_iter().map(spec).collect()
}

/// Every quota of the policies, as the engine has them.
pub(super) fn all_quotas(policies: &Policies) -> Vec<LimitSpec> {
    let mut specs = Vec::new();
    for rule in policies.quotas() {
        let allowance = Arc::new(Allowance {
            budget: policies.priced(&rule.budget),
            store_down: rule.store_down.map(|rule| match rule {
                policy::StoreDown::Local => quota::StoreDown::Local,
                policy::StoreDown::Open => quota::StoreDown::Open,
                policy::StoreDown::Closed => quota::StoreDown::Closed,
            }),
        });
        let upstreams = rule.upstreams.iter().flatten();
        for tenant in tenants(&rule.scope, rule.tenants.as_deref()) {
            specs.push(LimitSpec {
                id: rule.id.clone(),
                tenant,
                per: rule.per.iter().copied().map(dimension).collect(),
                upstreams: upstreams.clone().map(|upstream| upstream.value.clone()).collect(),
                tools: rule.tools.iter().flatten().map(|glob| glob.as_str().into()).collect(),
                risks: rule.risk.iter().flat_map(|risks| risks.iter()).collect(),
                kind: limit::Kind::Quota(allowance.clone()),
            });
        }
    }
    specs
}

fn tenants(scope: &Scope, named: Option<&[Spanned<TenantId>]>) -> Vec<Option<TenantId>> {
    match (scope, named) {
        (Scope::Tenant(tenant), _) => vec![Some(tenant.clone())],
        (Scope::Platform, Some(named)) => {
            named.iter().map(|tenant| Some(tenant.value.clone())).collect()
        }
        (Scope::Platform, None) => vec![None],
    }
}

fn dimension(key: LimitKey) -> limit::Dimension {
    match key {
        LimitKey::Tenant => limit::Dimension::Tenant,
        LimitKey::Caller => limit::Dimension::Caller,
        LimitKey::Principal => limit::Dimension::Principal,
        LimitKey::Tool => limit::Dimension::Tool,
        LimitKey::Upstream => limit::Dimension::Upstream,
        LimitKey::Risk => limit::Dimension::Risk,
        LimitKey::Address => limit::Dimension::Address,
    }
}
