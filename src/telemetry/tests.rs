//! Metrics and traces as others see them.

mod metrics;
mod settings;
mod traces;

use std::{sync::Arc, time::Duration};

use smallvec::smallvec;
use tokio::time::Instant;

use super::*;
use crate::{
    clock::Clock,
    error::Code,
    mcp::{Method, Version},
    model::{
        caller::{CallerId, EmployeeId, Role, Roles, TenantId},
        exchange::{
            Attempt, DecisionKind, HttpFacts, KeyedDigest, LimitHit, LimitKind, NorthDialect,
            Outcome,
        },
        server::Risk,
    },
};

/// 30 November 2026, 09:14:07.481 UTC.
const NOW: u64 = 1_796_030_047_481;

/// Settings of an environment with these variables.
fn read(pairs: &[(&str, &str)]) -> Settings {
    Settings::read(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

fn new_metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new(200, Clock::manual(NOW)))
}

/// A call of a tool that went well, as far as it is known without its attempts.
fn call_facts() -> Facts {
    Facts {
        http: Some(HttpFacts { method: "POST", route: "/mcp", version: http::Version::HTTP_2 }),
        dialect: Some(NorthDialect::Modern),
        method: Some(Method::CallTool),
        rpc_id: Some("\"req-1\"".into()),
        tenant: Some(TenantId::new("acme")),
        caller: Some(CallerId::new("corp-gateway")),
        employee: EmployeeId::parse("E1001"),
        employee_hash: Some(KeyedDigest { key: 0xa3, digest: [0x11; 32] }),
        roles: Roles::new(["tester", "member"].map(Role::new)),
        address: Some([10, 0, 0, 7].into()),
        port: Some(50_000),
        tool: Some("platform/start_test_run".into()),
        tool_alias: Some("platform__start_test_run".into()),
        upstream: Some("platform".into()),
        call_id: Some(0x0198_f2aa_bbcc_7ddd_8eee_ffff_0000_1111),
        risk: Some(Risk::WriteLow),
        decision: Some(DecisionKind::Allow),
        rules: smallvec!["tester-run".into()],
        policy_revision: Some("3f9a1c20b7d4".into()),
        outcome: Some(Outcome::Ok),
        status: Some(200),
        ..Facts::default()
    }
}

fn attempt(number: u8, started: Instant) -> Attempt {
    Attempt {
        upstream: "platform".into(),
        method: Method::CallTool,
        tool: Some("start_test_run".into()),
        version: Some(Version::V2025_11_25),
        span_id: [number; 8],
        started,
        ended: Some(started + Duration::from_millis(30)),
        server: Some(("127.0.0.1".into(), 7001)),
        http_version: Some(http::Version::HTTP_11),
        is_pipe: false,
        outcome: Outcome::Ok,
        error: None,
        rpc_code: None,
        code: None,
        number,
    }
}
