//! `/admin/api`: what operators ask of a running gateway, and tell it to do.
//!
//! Who asks is known by a token of the configuration; without one nothing is served here. What
//! changes something is recorded under the token's name. The routes are a table, which the
//! document about them is made of too.

mod config;
mod connections;
mod control;
mod explain;
mod openapi;
mod pins;
mod policy;
mod secrets;
mod servers;
mod tokens;
mod tools;

use std::{borrow::Cow, net::IpAddr, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use secrecy::SecretString;
use serde_json::{Value, json};

use self::tokens::{Need, Refused, Tokens};
pub use self::tokens::{Role, Token};
use crate::{
    audit::{AdminAction, Audit},
    body,
    clock::Clock,
    credential::VaultFault,
    error::{Code, Next},
    model::caller::{EmployeeId, TenantId},
    policy::Question,
    registry::{PinFault, PinPair, PinWish, store::Scope},
};

/// Everything of it begins with this.
pub(super) const PREFIX: &str = "/admin/api";

/// The largest body of a request: a log filter is the longest that is sent.
const MAX_BODY: usize = 16 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Every definition of a tool that is kept, and its approvals.
    /// The same, of the servers that an employee registered.
    fn pins_of(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
    ) -> BoxFuture<'static, Result<Value, PinFault>>;
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

/// One thing that can be asked.
struct Route {
    method: Method,
    /// With `{name}` for a part that is given.
    path: &'static str,
    summary: &'static str,
    need: Need,
    /// What is recorded of it; nothing for what only looks.
    action: Option<&'static str>,
    query: &'static [Parameter],
    /// The JSON Schema of the body, where there is one.
    body: Option<&'static str>,
    run: for<'a> fn(&'a Api, Asked<'a>) -> BoxFuture<'a, Result<Value, Failure>>,
}

/// A parameter of a query.
#[derive(Clone, Copy)]
struct Parameter {
    name: &'static str,
    what: &'static str,
    required: bool,
}

/// What a request says beside its path.
struct Asked<'a> {
    query: &'a str,
    /// What stands for the `{name}` of the path.
    given: &'a str,
    body: Bytes,
    /// The token's name.
    who: Arc<str>,
}

/// Why a request is not carried out.
#[derive(Debug)]
struct Failure {
    code: Code,
    status: StatusCode,
    message: Cow<'static, str>,
    retry_after: Option<Duration>,
    /// The methods that have a meaning.
    allow: Option<Box<str>>,
}

/// Every route. Whatever is not here is not served.
static ROUTES: [Route; 21] = [
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
    secrets::LIST,
    secrets::PUT,
    secrets::DELETE,
    pins::ROLLBACK,
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
        let target = (!given.is_empty()).then_some(given);
        if !token.role.may(route.need) {
            let what = route.action.unwrap_or("look");
            self.record(Some(&name), what, target, StatusCode::FORBIDDEN, from);
            let message = format!("the role `{}` may not do this", token.role.as_str());
            return Failure::new(Code::PermissionDenied, message).response();
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
        let outcome = (route.run)(self, asked).await;
        if let Some(action) = route.action {
            let status = outcome.as_ref().err().map_or(StatusCode::OK, |failure| failure.status);
            // A body that nobody reads, or that was not understood, may be anything, a secret at
            // a wrong place, too.
            let understood = route.body.is_some() && status != StatusCode::BAD_REQUEST;
            let body = std::str::from_utf8(&text).ok().filter(|_| understood);
            let target = target.or(body).filter(|target| !target.is_empty());
            self.record(Some(&name), action, target, status, from);
        }
        match outcome {
            Ok(value) => super::json(StatusCode::OK, &value),
            Err(failure) => failure.response(),
        }
    }

    fn record(
        &self,
        who: Option<&str>,
        what: &'static str,
        target: Option<&str>,
        status: StatusCode,
        from: IpAddr,
    ) {
        tracing::info!(
            admin.token = who.unwrap_or_default(),
            admin.action = what,
            status = status.as_u16(),
            "An operator acts"
        );
        let status = status.as_u16();
        let action = AdminAction { who, what, target, status, address: from };
        self.audit.action(&action, self.clock.now_ms());
    }
}

/// The route of a path, and what is given in it.
fn find<'p>(method: &Method, path: &'p str) -> Result<(&'static Route, &'p str), Failure> {
    let mut allowed = Vec::new();
    for route in &ROUTES {
        let Some(given) = route.matches(path) else { continue };
        if route.method == *method || (route.method == Method::GET && *method == Method::HEAD) {
            return Ok((route, given));
        }
        allowed.push(route.method.as_str());
    }
    if allowed.is_empty() {
        return Err(Failure::new(Code::NotFound, "there is nothing at this path"));
    }
    Err(Failure {
        status: StatusCode::METHOD_NOT_ALLOWED,
        allow: Some(allowed.join(", ").into()),
        ..Failure::new(Code::InvalidArgs, "this method has no meaning here")
    })
}

// === impl Route ===

impl Route {
    /// What stands for the part that is given; nothing for another path.
    fn matches<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.path.split_once('{') {
            None => (path == self.path).then_some(""),
            Some((before, _)) => {
                path.strip_prefix(before).filter(|rest| !rest.is_empty() && !rest.contains('/'))
            }
        }
    }
}

// === impl Asked ===

impl Asked<'_> {
    /// The first value of that name in the query, unescaped.
    fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.query.as_bytes());
        pairs.find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
    }

    /// Names that the query has and the route does not know.
    fn unknown(&self, route: &Route) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.query.as_bytes());
        let known = |name: &str| route.query.iter().any(|parameter| parameter.name == name);
        pairs.find(|(name, _)| !known(name)).map(|(name, _)| name.chars().take(64).collect())
    }
}

// === impl Failure ===

impl Failure {
    fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        let status = StatusCode::from_u16(code.rest_status()).unwrap_or(StatusCode::BAD_REQUEST);
        Self { code, status, message: message.into(), retry_after: None, allow: None }
    }

    /// The error object that every dialect knows.
    fn response(&self) -> Response<Full<Bytes>> {
        let next = match self.code {
            Code::InvalidArgs => Next::RepairArgs,
            code => code.next(),
        };
        let mut error = json!({
            "code": self.code.as_str(),
            "message": self.message,
            "retryable": self.code.retryable(),
            "next": next.as_str(),
        });
        if let Some(after) = self.retry_after {
            error["retryAfterMs"] = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into();
        }
        let mut response = super::json(self.status, &json!({ "error": error }));
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs() + 1));
        }
        let allow = self.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok());
        if let Some(allow) = allow {
            headers.insert(header::ALLOW, allow);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"hangu-admin\"");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
