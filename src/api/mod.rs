//! What an employee may ask for under `/v1`: a resource a file.
//!
//! Who asks is established before a request gets here, and every call that is made here goes
//! through the same stack as one that came by MCP. Here stand the paths, and what all resources
//! share: who the person is, and the form of answers.

mod approvals;
pub mod calls;
mod input;
mod invoke;
mod servers;
mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::{HeaderValue, Method, Response, header};

pub use self::{
    approvals::{ApprovalsApi, OpenArguments},
    calls::ToolCalls,
    servers::Reach,
    steps::StepsApi,
};
use crate::{
    body::Body,
    error::{Code, Error},
    model::{
        caller::{Caller, EmployeeId, Roles, TenantId},
        exchange::Outcome,
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
    steps: StepsApi,
}

/// What a path and a method ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Approvals(approvals::Target),
    Invoke,
    Steps(steps::Target),
}

/// A path, with `{id}` in the place of one segment, and what a method does there.
struct Entry {
    template: &'static str,
    method: Method,
    target: Target,
}

/// Entries of one path stand together.
const ENTRIES: &[Entry] = &[
    Entry {
        template: "/v1/approvals",
        method: Method::GET,
        target: Target::Approvals(approvals::Target::List),
    },
    Entry {
        template: "/v1/approvals/{id}",
        method: Method::GET,
        target: Target::Approvals(approvals::Target::Show),
    },
    Entry {
        template: "/v1/approvals/{id}/approve",
        method: Method::POST,
        target: Target::Approvals(approvals::Target::Decide { yes: true }),
    },
    Entry {
        template: "/v1/approvals/{id}/refuse",
        method: Method::POST,
        target: Target::Approvals(approvals::Target::Decide { yes: false }),
    },
    Entry { template: "/v1/invoke", method: Method::POST, target: Target::Invoke },
    Entry {
        template: "/v1/steps/compile",
        method: Method::POST,
        target: Target::Steps(steps::Target::Compile),
    },
    Entry {
        template: "/v1/steps/run",
        method: Method::POST,
        target: Target::Steps(steps::Target::Run),
    },
];

/// Where a path leads.
struct Place<'p> {
    template: &'static str,
    /// What stands in the place of `{id}`.
    id: &'p str,
    /// What the method does there, or the methods that do something.
    target: Result<Target, Vec<Method>>,
}

/// The employee who asks, with the roles that he has now.
struct Person {
    tenant: TenantId,
    employee: EmployeeId,
    roles: Roles,
}

// === impl V1 ===

impl V1 {
    pub fn new(
        worlds: Arc<Worlds>,
        approvals: ApprovalsApi,
        tools: ToolCalls,
        steps: StepsApi,
    ) -> Self {
        Self(Arc::new(Resources { worlds, approvals, tools, steps }))
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
        match target {
            Target::Approvals(target) => {
                let person = self.person(&request.caller)?;
                self.approvals.answer(target, place.id, &person, request).await
            }
            Target::Steps(target) => self.steps.answer(&self.tools, target, request, calls).await,
            Target::Invoke => invoke::invoke(&self.tools, request, calls).await,
        }
    }

    /// Who asks, by the policies that are in force by now: since they were looked at, a slow body
    /// may have come in.
    fn person(&self, caller: &Caller) -> Result<Person, Error> {
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
                true => {
                    "name the employee in the header SSO-Emp-Id: a person decides, not a program"
                }
                false => {
                    "this key stands for no employee, and a person decides: use one of a caller \
                     with an `identity`, or a token"
                }
            };
            return Err(
                Error::http(Code::PermissionDenied, 403, message).with_reason("employee_missing")
            );
        };
        Ok(Person {
            tenant: caller.tenant.clone(),
            employee: employee.clone(),
            roles: caller.principal.roles.clone(),
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

/// A good answer. What it says is this person's, and of this moment.
fn answer(json: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes::Bytes::from(json)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
