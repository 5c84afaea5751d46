//! SSO-Emp-Id or a token → the employee, by the rules of who may name one.
//!
//! Nothing in a body is ever an identity; this layer does not see bodies.

use std::{
    future::{Ready, ready},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use http::Request;
use tower::{Layer, Service};

use super::stage::Worlds;
use crate::{
    error::{Code, Error},
    identity::{
        api_key::{CallerEntry, Identity},
        sso::{HeaderState, PrincipalFault, resolve, resolve_token},
        token::Verified,
    },
    mcp::header,
    model::{
        call::ClientAddr,
        caller::{Caller, Principal},
        exchange::Exchange,
    },
};

/// Establishes whom a request is made for.
#[derive(Clone)]
pub struct PrincipalLayer {
    worlds: Arc<Worlds>,
}

impl PrincipalLayer {
    pub fn new(worlds: Arc<Worlds>) -> Self {
        Self { worlds }
    }
}

impl<S> Layer<S> for PrincipalLayer {
    type Service = Employee<S>;

    fn layer(&self, inner: S) -> Employee<S> {
        Employee { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Employee<S> {
    inner: S,
    layer: Arc<PrincipalLayer>,
}

impl<S, B> Service<Request<B>> for Employee<S>
where
    S: Service<Request<B>, Error = Error>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = Either<Ready<Result<S::Response, Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Some(entry) = request.extensions_mut().remove::<Arc<CallerEntry>>() else {
            let error = Error::new(Code::Internal, "the request passed no key check");
            return Either::Left(ready(Err(error)));
        };
        let token = request.extensions_mut().remove::<Arc<Verified>>();
        let sent = request.headers().get_all(header::EMPLOYEE).iter();
        let state = HeaderState::of(sent.map(http::HeaderValue::as_bytes));
        // Nothing below waits for anything before the world is let go.
        let world = self.layer.worlds.look();
        let resolved = match &token {
            Some(token) => resolve_token(&entry, token, state, &world.directory),
            None => resolve(&entry, state, &world.directory),
        };
        let mut principal = match resolved {
            Ok(principal) => principal,
            Err(fault) => return Either::Left(ready(Err(refusal(&fault)))),
        };
        if let Some(token) = &token {
            world.add_claimed(&mut principal, &entry.tenant, &token.granted);
        }
        if let Some(exchange) = request.extensions().get::<Arc<Exchange>>() {
            let mut facts = exchange.facts();
            facts.employee.clone_from(&principal.employee);
            facts.roles = principal.roles.clone();
            facts.auth = Some(principal.auth);
        }
        let address = request
            .extensions()
            .get::<ClientAddr>()
            .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |client| client.ip);
        let mut caller = caller(&entry, principal, address);
        caller.policies = world.policies();
        drop(world);
        if let Some(token) = token {
            caller.names_employees = false;
            caller.missing_scopes = token.missing_scopes();
            caller.granted = Some(token.granted.clone());
        }
        request.extensions_mut().insert(caller);
        Either::Right(self.inner.call(request))
    }
}

fn caller(entry: &CallerEntry, principal: Principal, address: IpAddr) -> Caller {
    Caller {
        tenant: entry.tenant.clone(),
        id: entry.id.clone(),
        names_employees: matches!(entry.identity, Identity::Header | Identity::HeaderOr(_)),
        catalog_roles: entry.catalog_roles.clone(),
        call_sources: entry.call_sources,
        principal,
        address,
        policies: 0,
        granted: None,
        missing_scopes: None,
    }
}

fn refusal(fault: &PrincipalFault) -> Error {
    let (code, status, reason) = match fault {
        PrincipalFault::NotTrusted => (Code::PermissionDenied, 403, "header_not_trusted"),
        PrincipalFault::OtherTenant(_) | PrincipalFault::OtherKey => {
            (Code::PermissionDenied, 403, "tenant_boundary")
        }
        PrincipalFault::OtherEmployee => (Code::PermissionDenied, 403, "employee_mismatch"),
        PrincipalFault::Repeated | PrincipalFault::Malformed => {
            (Code::InvalidArgs, 400, "employee_malformed")
        }
    };
    Error::http(code, status, fault.to_string()).with_reason(reason)
}
