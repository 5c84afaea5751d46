//! What an employee may ask for under `/v1`: a resource a file.
//!
//! Who asks is established before a request gets here, and every call that is made here goes
//! through the same stack as one that came by MCP. Here stand the paths, and what all resources
//! share: who the person is, and the form of answers.

mod approvals;
pub mod calls;
mod connect;
mod input;
mod invoke;
mod servers;
mod steps;
#[cfg(test)]
mod tests;
mod tools;

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Method, Response, header};

pub use self::{
    approvals::{ApprovalsApi, OpenArguments, told_whole},
    calls::ToolCalls,
    servers::{Reach, SelfServiceOf, ServerParts, ServersApi},
    steps::StepsApi,
    tools::Adapted,
};
use crate::{
    audit::Audit,
    body::Body,
    error::{Code, Error, Next},
    model::{
        caller::{Caller, EmployeeId, Roles, TenantId},
        exchange::Outcome,
        server::Risk,
    },
    stack::{
        stage::{BoxFuture, Worlds},
        v1::{Api, ApiRequest, Calls},
    },
};

/// Everything under `/v1`.
pub struct V1(Arc<Resources>);

struct Resources {
    worlds: Arc<Worlds>,
    approvals: ApprovalsApi,
    tools: ToolCalls,
    servers: ServersApi,
    steps: StepsApi,
    invite: connect::Invite,
}

/// What a path and a method ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Approvals(approvals::Target),
    Invoke,
    Servers(servers::Target),
    Steps(steps::Target),
    Tools,
    Connect,
}

/// A path, with `{id}` in the place of one segment, and what a method does there.
struct Entry {
    template: &'static str,
    method: Method,
    target: Target,
}

const fn entry(method: Method, template: &'static str, target: Target) -> Entry {
    Entry { template, method, target }
}

/// Entries of one path stand together.
const ENTRIES: &[Entry] = {
    use self::{
        approvals::Target as Approval,
        servers::{Change, Target as Server},
        steps::Target as Step,
    };
    &[
        entry(Method::POST, "/v1/oauth/connect/{id}", Target::Connect),
        entry(Method::GET, "/v1/approvals", Target::Approvals(Approval::List)),
        entry(Method::GET, "/v1/approvals/{id}", Target::Approvals(Approval::Show)),
        entry(
            Method::POST,
            "/v1/approvals/{id}/approve",
            Target::Approvals(Approval::Decide { yes: true }),
        ),
        entry(
            Method::POST,
            "/v1/approvals/{id}/refuse",
            Target::Approvals(Approval::Decide { yes: false }),
        ),
        entry(Method::POST, "/v1/invoke", Target::Invoke),
        entry(Method::GET, "/v1/servers", Target::Servers(Server::List)),
        entry(Method::POST, "/v1/servers", Target::Servers(Server::Change(Change::Register))),
        entry(Method::POST, "/v1/servers/import", Target::Servers(Server::Change(Change::Import))),
        entry(Method::GET, "/v1/servers/{id}", Target::Servers(Server::Show)),
        entry(Method::DELETE, "/v1/servers/{id}", Target::Servers(Server::Change(Change::Delete))),
        entry(Method::GET, "/v1/servers/{id}/asset", Target::Servers(Server::Asset)),
        entry(
            Method::POST,
            "/v1/servers/{id}/refresh",
            Target::Servers(Server::Change(Change::Refresh)),
        ),
        entry(
            Method::PUT,
            "/v1/servers/{id}/credential",
            Target::Servers(Server::Change(Change::SetCredential)),
        ),
        entry(
            Method::DELETE,
            "/v1/servers/{id}/credential",
            Target::Servers(Server::Change(Change::DeleteCredential)),
        ),
        entry(
            Method::PUT,
            "/v1/servers/{id}/share",
            Target::Servers(Server::Change(Change::Share)),
        ),
        entry(
            Method::DELETE,
            "/v1/servers/{id}/share",
            Target::Servers(Server::Change(Change::Unshare)),
        ),
        entry(Method::POST, "/v1/steps/compile", Target::Steps(Step::Compile)),
        entry(Method::POST, "/v1/steps/run", Target::Steps(Step::Run)),
        entry(Method::GET, "/v1/tools", Target::Tools),
    ]
};

/// How long whoever meets an audit log that fails is asked to wait.
const AUDIT_PAUSE: Duration = Duration::from_secs(5);

/// Where a path leads.
struct Place<'p> {
    template: &'static str,
    /// What stands in the place of `{id}`.
    id: &'p str,
    /// What the method does there, or the methods that do something.
    target: Result<Target, Vec<Method>>,
}

/// The employee who asks, with the roles and teams that he has now.
#[derive(Clone)]
struct Person {
    tenant: TenantId,
    employee: EmployeeId,
    roles: Roles,
    /// Only the directory knows them, however he was named.
    teams: Vec<Arc<str>>,
}

// === impl V1 ===

impl V1 {
    pub fn new(
        worlds: Arc<Worlds>,
        approvals: ApprovalsApi,
        tools: ToolCalls,
        servers: ServersApi,
        steps: StepsApi,
        invite: connect::Invite,
    ) -> Self {
        Self(Arc::new(Resources { worlds, approvals, tools, servers, steps, invite }))
    }
}

impl Api for V1 {
    fn answer(&self, request: ApiRequest, calls: Calls) -> BoxFuture<Response<Body>> {
        let resources = self.0.clone();
        Box::pin(async move {
            let answer = resources.answer(&request, calls).await?;
            request.exchange.facts().outcome.get_or_insert(Outcome::Ok);
            Ok(answer)
        })
    }
}

impl Resources {
    async fn answer(&self, request: &ApiRequest, calls: Calls) -> Result<Response<Body>, Error> {
        let path = request.parts.uri.path();
        let Some(place) = find(path, &request.parts.method) else {
            let shown = input::shown(path);
            return Err(Error::new(Code::NotFound, format!("nothing is served at {shown}")));
        };
        if let Some(http) = &mut request.exchange.facts().http {
            http.route = place.template;
        }
        let target = place.target.map_err(|methods| not_allowed(&methods))?;
        calls::note_source(request)?;
        match target {
            Target::Approvals(target) => {
                let person = self.person(&request.caller, "a person decides, not a program")?;
                self.approvals.answer(target, place.id, &person, request).await
            }
            Target::Steps(target) => self.steps.answer(&self.tools, target, request, calls).await,
            Target::Invoke => invoke::invoke(&self.tools, request, calls).await,
            Target::Servers(target) => {
                let why = "servers and credentials belong to a person";
                let person = self.person(&request.caller, why)?;
                self.servers.answer(target, place.id, person, request).await
            }
            Target::Tools => tools::tools(&self.tools, request, calls).await,
            Target::Connect => {
                // Only for a person who is known by now.
                let person = self.person(&request.caller, "a person grants what is his")?;
                let seen = self.servers.granted_for(place.id, &person, request);
                let url = match seen.and_then(|key| (self.invite)(&key, &request.caller)) {
                    Some(url) => Some(url),
                    None => self.servers.connect(place.id, person, request).await?,
                };
                connect::connect(url, place.id)
            }
        }
    }

    /// Who asks, by the policies that are in force by now: since they were looked at, a slow body
    /// may have come in. `why` there must be somebody is told where nobody is named.
    fn person(&self, caller: &Caller, why: &str) -> Result<Person, Error> {
        let world = self.worlds.look();
        let mut renewed = None;
        if world.is_news_to(caller) {
            let caller = renewed.insert(caller.clone());
            world.renew(caller).map_err(|fault| {
                Error::http(Code::PermissionDenied, 403, fault.to_string())
                    .with_reason("tenant_boundary")
            })?;
        }
        let caller = renewed.as_ref().unwrap_or(caller);
        let Some(employee) = &caller.principal.employee else {
            let message = match caller.names_employees {
                true => format!("name the employee in the header SSO-Emp-Id: {why}"),
                false => format!(
                    "this key stands for no employee: use one of a caller with an `identity`, or \
                     a token; {why}"
                ),
            };
            return Err(
                Error::http(Code::PermissionDenied, 403, message).with_reason("employee_missing")
            );
        };
        let known = world.directory.get(employee.as_str());
        let known = known.filter(|entry| entry.tenant == caller.tenant);
        let teams = known.map(|entry| entry.teams.iter().map(|team| Arc::from(&**team)));
        Ok(Person {
            tenant: caller.tenant.clone(),
            employee: employee.clone(),
            roles: caller.principal.roles.clone(),
            teams: teams.map(Iterator::collect).unwrap_or_default(),
        })
    }
}

/// Where a path leads; one slash at its end is forgiven.
fn find<'p>(path: &'p str, method: &Method) -> Option<Place<'p>> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut found: Option<Place<'p>> = None;
    for entry in ENTRIES {
        let Some(id) = captured(entry.template, path) else { continue };
        let place =
            found.get_or_insert(Place { template: entry.template, id, target: Err(Vec::new()) });
        if entry.method == *method {
            place.target = Ok(entry.target);
        } else if let Err(methods) = &mut place.target {
            methods.push(entry.method.clone());
        }
    }
    found
}

/// What stands in the place of `{id}`, in a path of this template; nothing where there is none.
fn captured<'p>(template: &str, path: &'p str) -> Option<&'p str> {
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    let mut id = "";
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(id),
            (Some("{id}"), Some(segment)) if !segment.is_empty() => id = segment,
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return None,
        }
    }
}

fn not_allowed(methods: &[Method]) -> Error {
    let allow = methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    let error = Error::http(Code::InvalidArgs, 405, format!("here one can only {allow}"));
    match HeaderValue::try_from(allow) {
        Ok(allow) => error.with_header(header::ALLOW, allow),
        Err(_) => error,
    }
}

/// Whether what is done now can be recorded, where it must be.
pub fn recordable(audit: &Audit, risk: Risk) -> Result<(), Error> {
    if !audit.is_strict(risk) || audit.is_writable() {
        return Ok(());
    }
    let message = "the audit log cannot be written, so nothing was done";
    Err(Error::new(Code::Internal, message)
        .with_kind("audit_unavailable")
        .with_reason("audit_unavailable")
        .with_advice(true, Next::Wait)
        .with_retry_after(AUDIT_PAUSE))
}

/// Whether a token is good for what is of this risk.
fn in_scope(caller: &Caller, risk: Risk) -> Result<(), Error> {
    let Some(scope) = caller.missing_scope(risk) else { return Ok(()) };
    let message = format!("the token needs the scopes: {scope}");
    Err(Error::http(Code::PermissionDenied, 403, message).with_reason("insufficient_scope"))
}

/// A good answer. What it says is this person's, and of this moment.
fn answer(json: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes::Bytes::from(json)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
