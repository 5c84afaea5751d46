//! The reference test platform: a provider that a company might have had before there was MCP.
//!
//! It keeps test tasks with their cases and runs them, in SQLite; what is neither an employee's
//! own nor shared with him does not exist for him. It is reached in two ways:
//!
//! - MCP-Lite, `POST /mcp/tools/list` and `POST /mcp/tools/call` (`lite.rs`),
//! - standard MCP, `POST /mcp/http`.
//!
//! Whoever calls must hold the gateway's key. Beside the key it believes, in this order, the
//! body member `user` (MCP-Lite), the header `SSO-Emp-Id`, and the employee that the key's
//! configuration names. Arguments never say who is calling.

mod catalog;
mod lite;
mod runs;
mod store;
mod tools;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub use self::store::Employee;
use self::{runs::Runs, store::Store};
use super::{
    http::{self as web, Running, StartError},
    journal::Journal,
    mcp_server,
    provider::{About, Failure, Provider, Toolbox},
};
use crate::{
    body::Body,
    clock::Clock,
    error::Code,
    mcp::header,
    model::caller::{EmployeeId, TenantId},
};

/// Path A, MCP-Lite: what a gateway is given as the provider's base URL.
pub const LITE_PATH: &str = "/mcp";
/// Path B, standard MCP.
pub const MCP_PATH: &str = "/mcp/http";

static ABOUT: About = About {
    name: "test-platform",
    title: "Test platform",
    instructions: "Test tasks have cases and can be run. A run is started with start_test_run and \
                   goes on by itself: ask get_test_run until its status is passed, failed or \
                   stopped, then get_execution_result.",
    // The same for everybody who holds the key, but for nobody else.
    cache_scope: "private",
};

/// What the platform needs to start.
#[derive(Debug)]
pub struct PlatformConfig {
    pub listen: SocketAddr,
    /// The key that whoever calls must show in `X-Api-Key`.
    pub gateway_key: SecretString,
    /// For whom the key's holder acts when a call names nobody.
    pub token_employee: Option<Employee>,
    /// How long a run takes for each step: to begin, and then for each case.
    pub run_step: Duration,
    /// The database's file; without one it is kept in memory.
    pub database: Option<PathBuf>,
    pub clock: Clock,
}

/// Starts the platform on the current runtime.
pub async fn start(config: PlatformConfig) -> Result<Running, StartError> {
    let store = Store::open(config.database.as_deref(), config.clock).await?;
    let runs = Runs::new(store.clone());
    let driven = runs.clone().drive(config.run_step);
    let platform = Arc::new(Platform {
        key_digest: Sha256::digest(config.gateway_key.expose_secret()).into(),
        token_employee: config.token_employee,
        toolbox: Toolbox::new(catalog::descriptors())?,
        journal: Arc::default(),
        store,
        runs,
    });
    let journal = platform.journal.clone();
    let mut running = web::serve(config.listen, journal, move |request| {
        let platform = platform.clone();
        async move { platform.answer(request).await }
    })
    .await?;
    running.run_beside(driven);
    Ok(running)
}

/// The platform's parts; its tools are in `tools.rs`.
#[derive(Debug)]
struct Platform {
    /// Digests have one length, so that comparing them tells nothing of the key's.
    key_digest: [u8; 32],
    token_employee: Option<Employee>,
    toolbox: Toolbox,
    journal: Arc<Journal>,
    store: Store,
    runs: Runs,
}

// === impl Platform ===

impl Platform {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match request.uri().path() {
            MCP_PATH => mcp_server::handle(self, request).await,
            _ => lite::handle(self, request).await,
        }
    }

    /// The employee a call is for; `claimed` is what the body of an MCP-Lite call says, which
    /// counts only because the key has been checked.
    async fn employee(
        &self,
        headers: &HeaderMap,
        claimed: Option<(EmployeeId, Option<TenantId>)>,
    ) -> Result<Employee, Failure> {
        let (emp_id, tenant) = match (claimed, employee_header(headers)?) {
            (Some((emp_id, tenant)), _) => (emp_id, tenant),
            (None, Some(emp_id)) => (emp_id, None),
            (None, None) => {
                return self.token_employee.clone().ok_or_else(|| {
                    Failure::new(Code::PermissionDenied, "the call is for no employee")
                });
            }
        };
        let tenant = match tenant {
            Some(tenant) => Some(tenant),
            None => self.store.tenant_of(&emp_id).await?,
        };
        Ok(Employee { emp_id, tenant })
    }
}

impl Provider for Platform {
    type Caller = Employee;

    fn about(&self) -> &About {
        &ABOUT
    }

    fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn admit(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let mut keys = headers.get_all(header::API_KEY).iter();
        let right = match (keys.next(), keys.next()) {
            (Some(key), None) => {
                let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
                bool::from(digest.ct_eq(&self.key_digest))
            }
            _ => false,
        };
        right
            .then_some(())
            .ok_or_else(|| Failure::new(Code::Unauthenticated, "X-Api-Key is missing or wrong"))
    }

    async fn caller(&self, headers: &HeaderMap) -> Result<Employee, Failure> {
        self.employee(headers, None).await
    }

    fn employee(caller: &Employee) -> Option<&str> {
        Some(caller.emp_id.as_str())
    }

    async fn call(
        &self,
        caller: Employee,
        tool: &str,
        arguments: &serde_json::Value,
    ) -> Result<serde_json::Value, Failure> {
        tools::call(&self.store, &self.runs, &caller, tool, arguments).await
    }
}

/// `SSO-Emp-Id`, sent once and well-formed, or not at all.
fn employee_header(headers: &HeaderMap) -> Result<Option<EmployeeId>, Failure> {
    let mut values = headers.get_all(header::EMPLOYEE).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let emp_id = value.to_str().ok().and_then(EmployeeId::parse);
    match (emp_id, values.next()) {
        (Some(emp_id), None) => Ok(Some(emp_id)),
        _ => Err(Failure::new(Code::InvalidArgs, "SSO-Emp-Id must be one employee's id")),
    }
}

// === impl Failure ===

/// The caller learns that the platform failed; why is for its log.
impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        tracing::error!(%error, "the platform's database failed");
        Failure::new(Code::Internal, "the platform failed to answer")
    }
}

#[cfg(test)]
mod tests;
