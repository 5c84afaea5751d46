//! `/admin/api`: what operators ask of a running gateway, and tell it to do.
//!
//! Who asks is known by a token of the configuration; without one nothing is served here. What
//! changes something is recorded under the token's name. The routes are a table, which the
//! document about them is made of too.

mod approvals;
mod config;
mod connections;
mod control;
mod credentials;
mod explain;
mod failure;
mod keys;
mod openapi;
mod pins;
mod policy;
mod route;
mod secrets;
mod servers;
#[cfg(test)]
mod tests;
mod tokens;
mod tools;

use std::{net::IpAddr, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use secrecy::SecretString;
use serde_json::Value;

pub use self::tokens::{Role, Token};
use self::{
    failure::Failure,
    route::{Asked, Parameter, Route, find},
    tokens::{Refused, Tokens},
};
use crate::{
    approval::{self, Approval, ApprovalId, DecideFault},
    audit::{AdminAction, Audit},
    body,
    clock::Clock,
    credential::{Surveyed, VaultFault, Whose, store::Pick},
    error::Code,
    model::{
        caller::{EmployeeId, TenantId},
        server::Risk,
    },
    policy::Question,
    registry::{PinFault, PinPair, PinWish, store::Scope},
};

/// Everything of it begins with this.
pub(super) const PREFIX: &str = "/admin/api";

/// The largest body of a request: a log filter is the longest that is sent.
const MAX_BODY: usize = 16 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long whoever meets an audit log that fails is asked to wait.
const AUDIT_PAUSE: Duration = Duration::from_secs(5);

/// Whether a request for approval is wanted, at a time in milliseconds.
pub type Wanted = Box<dyn Fn(&Approval, u64) -> bool + Send + Sync>;

/// What the API asks of the gateway, which is put together elsewhere.
pub trait Gateway: Send + Sync + 'static {
    /// The configuration in effect, without its secrets.
    fn config(&self) -> Value;
    /// The policies in force, and what became of the last look at the files.
    fn policy(&self) -> Value;
    /// Why something is decided as it is; the error says what is wrong with the question.
    fn explain(&self, question: &Question) -> Result<Value, String>;
    /// The files of a kept revision: path and text. `None`: it is not kept.
    fn revision(&self, revision: &str) -> Result<Option<Vec<(String, String)>>, std::io::Error>;
    fn connections(&self) -> Value;
    /// Every server, with its health and the age of its listing.
    fn servers(&self) -> Vec<Value>;
    /// Every tool that is listed, and how it stands.
    fn tools(&self) -> Vec<Value>;
    /// The tools of a name, on the aggregate or their server's own, with all that is known.
    fn tool(&self, name: &str) -> Vec<Value>;
    /// How every tool's definition stands.
    fn pins(&self) -> Value;
    /// The same, of the servers that an employee registered.
    fn pins_of(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
    ) -> BoxFuture<'static, Result<Value, PinFault>>;
    /// Every definition of a tool that is kept, and its approvals.
    fn pin_history(
        &self,
        scope: Scope,
        tool: Arc<str>,
    ) -> BoxFuture<'static, Result<Value, PinFault>>;
    /// How two definitions of a tool differ.
    fn pin_diff(&self, pair: PinPair) -> BoxFuture<'static, Result<Value, PinFault>>;
    /// Approves a definition, durably, in the name of a token; says how the tool stands then.
    fn approve_pin(&self, wish: PinWish, by: &str) -> BoxFuture<'static, Result<Value, PinFault>>;
    /// What operators have given names to, without the values.
    fn secrets(&self) -> BoxFuture<'static, Result<Value, VaultFault>>;
    /// Keeps a secret, durably; requests use it from then on.
    fn put_secret(
        &self,
        name: &str,
        value: SecretString,
    ) -> BoxFuture<'static, Result<(), VaultFault>>;
    /// Whether there was one.
    fn delete_secret(&self, name: &str) -> BoxFuture<'static, Result<bool, VaultFault>>;
    /// What is known of credentials, whoever has them.
    fn credentials(&self, pick: Pick) -> BoxFuture<'static, Result<Vec<Surveyed>, VaultFault>>;
    /// Forgets a credential, durably. Whether there was one.
    fn revoke(&self, whose: Whose) -> BoxFuture<'static, Result<bool, VaultFault>>;
    /// Forgets all that an employee has; the servers that it was for.
    fn revoke_all(
        &self,
        tenant: TenantId,
        employee: EmployeeId,
    ) -> BoxFuture<'static, Result<Vec<Arc<str>>, VaultFault>>;
    /// For how long another replica may still use what was forgotten here.
    fn revocation_lag(&self) -> Duration;
    /// At most so many requests for approval that are wanted, and how to ask for older ones.
    fn approvals(
        &self,
        pick: approval::store::Pick,
        most: usize,
        wanted: Wanted,
    ) -> BoxFuture<'static, Result<Value, approval::store::StoreFault>>;
    fn approval(
        &self,
        id: ApprovalId,
    ) -> BoxFuture<'static, Result<Option<Value>, approval::store::StoreFault>>;
    /// Says no to a request, in the name of a token.
    fn refuse_approval(
        &self,
        id: ApprovalId,
        by: &str,
        comment: Option<String>,
    ) -> BoxFuture<'static, Result<Value, DecideFault>>;
    /// How the keyring stands, here and in the file; the error says why that is not known.
    fn keys(&self) -> BoxFuture<'static, Result<Value, String>>;
    /// Begins to take what is stored along to the primary key, unless that is under way; the error
    /// says why it cannot.
    fn rewrap(&self) -> Result<Value, &'static str>;
    /// Loads anew what can be, and says what became of it; an error says why nothing did.
    fn reload(&self) -> BoxFuture<'static, Result<Value, &'static str>>;
    /// Begins the end, as a signal would. False: it has begun already.
    fn drain(&self) -> bool;
    /// The filter of the log, as it is now.
    fn log_filter(&self) -> String;
    /// Another one; the error says what is wrong with it.
    fn set_log_filter(&self, filter: &str) -> Result<(), String>;
}

/// The API of one gateway.
pub struct Api {
    tokens: Tokens,
    gateway: Arc<dyn Gateway>,
    audit: Arc<Audit>,
    clock: Clock,
}

/// Every route. Whatever is not here is not served.
static ROUTES: [Route; 29] = [
    config::SHOW,
    policy::SHOW,
    policy::REVISION,
    explain::EXPLAIN,
    control::RELOAD,
    control::DRAIN,
    control::LOG_LEVEL,
    connections::SHOW,
    servers::SHOW,
    servers::ONE,
    tools::SHOW,
    tools::ONE,
    pins::SHOW,
    pins::HISTORY,
    pins::DIFF,
    pins::APPROVE,
    pins::ROLLBACK,
    secrets::LIST,
    secrets::PUT,
    secrets::DELETE,
    credentials::LIST,
    credentials::REVOKE,
    credentials::REVOKE_ALL,
    approvals::LIST,
    approvals::SHOW,
    approvals::REFUSE,
    keys::SHOW,
    keys::REWRAP,
    openapi::SHOW,
];

// === impl Api ===

impl Api {
    /// `None` without tokens: then there is no such thing.
    pub fn new(
        tokens: Vec<Token>,
        gateway: Arc<dyn Gateway>,
        audit: Arc<Audit>,
        clock: Clock,
    ) -> Option<Self> {
        (!tokens.is_empty()).then(|| Self { tokens: Tokens::new(tokens), gateway, audit, clock })
    }

    /// Answers one request under the prefix.
    pub(super) async fn answer<B>(&self, request: Request<B>, from: IpAddr) -> Response<Full<Bytes>>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin,
        B::Error: Into<body::BoxError>,
    {
        // Before anything else: what is here is nobody's business who has no token.
        let presented = request.headers().get(header::AUTHORIZATION);
        let token = match self.tokens.check(presented, from) {
            Ok(token) => token,
            Err(refused) => {
                if refused == Refused::Wrong {
                    self.record(None, "sign_in", None, StatusCode::UNAUTHORIZED, from);
                }
                return refused.failure().response();
            }
        };
        let (parts, body) = request.into_parts();
        let (route, given) = match find(&parts.method, parts.uri.path()) {
            Ok(found) => found,
            Err(failure) => return failure.response(),
        };
        let name = token.name.clone();
        let target = (!given.is_empty()).then(|| given.join("/"));
        if !token.role.may(route.need) {
            let what = route.action.unwrap_or("look");
            self.record(Some(&name), what, target.as_deref(), StatusCode::FORBIDDEN, from);
            let message = format!("the role `{}` may not do this", token.role.as_str());
            return Failure::new(Code::PermissionDenied, message).response();
        }
        if let Err(failure) = self.recordable(route) {
            return failure.response();
        }
        let asked = match body::read_body(body, MAX_BODY, BODY_TIMEOUT).await {
            Ok(body) => Asked {
                query: parts.uri.query().unwrap_or_default(),
                given,
                body,
                who: name.clone(),
            },
            Err(error) => {
                return Failure::new(error.code(), error.message().to_owned()).response();
            }
        };
        let text = asked.body.clone();
        let outcome = match asked.unknown(route) {
            None => (route.run)(self, asked).await,
            Some(unknown) => {
                let message = format!("`{unknown}` is no parameter of this");
                Err(Failure::new(Code::InvalidArgs, message))
            }
        };
        if let Some(action) = route.action {
            let status = outcome.as_ref().err().map_or(StatusCode::OK, |failure| failure.status);
            // A body that nobody reads, or that was not understood, may be anything, a secret at
            // a wrong place, too.
            let understood = route.body.is_some() && status != StatusCode::BAD_REQUEST;
            let body = || std::str::from_utf8(&text).ok().filter(|_| understood);
            let target = target.as_deref().or_else(body).filter(|target| !target.is_empty());
            if route.writes() {
                self.record_durably(&name, action, target, status, from).await;
            } else {
                self.record(Some(&name), action, target, status, from);
            }
        }
        match outcome {
            Ok(value) => super::json(StatusCode::OK, &value),
            Err(failure) => failure.response(),
        }
    }

    /// What changes rights is not done while nobody could prove who did it. What runs the gateway
    /// is: a full disk is mended that way.
    fn recordable(&self, route: &Route) -> Result<(), Failure> {
        let guarded = route.writes() && route.need.is_guarded();
        if !guarded || !self.audit.is_strict(Risk::WriteHigh) || self.audit.is_writable() {
            return Ok(());
        }
        Err(Failure {
            retry_after: Some(AUDIT_PAUSE),
            ..Failure::new(Code::Internal, "the audit log cannot be written, so nothing was done")
        })
    }

    fn record(
        &self,
        who: Option<&str>,
        what: &'static str,
        target: Option<&str>,
        status: StatusCode,
        from: IpAddr,
    ) {
        noted(who, what, status);
        let status = status.as_u16();
        let action = AdminAction { who, what, target, status, address: from };
        self.audit.action(&action, self.clock.now_ms());
    }

    /// The same, and whoever is told that it was done can rely on its record.
    async fn record_durably(
        &self,
        who: &str,
        what: &'static str,
        target: Option<&str>,
        status: StatusCode,
        from: IpAddr,
    ) {
        noted(Some(who), what, status);
        let (who, status) = (Some(who), status.as_u16());
        let action = AdminAction { who, what, target, status, address: from };
        let durable = self.audit.durable_action(&action, self.clock.now_ms());
        if let Err(error) = durable.await {
            tracing::error!(%error, admin.action = what, "What an operator did is not recorded");
        }
    }
}

fn noted(who: Option<&str>, what: &'static str, status: StatusCode) {
    tracing::info!(
        admin.token = who.unwrap_or_default(),
        admin.action = what,
        status = status.as_u16(),
        "An operator acts"
    );
}
