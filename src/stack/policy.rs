//! Call → Permitted, or refused: nothing below this layer runs without a permit.
//!
//! A tool the caller may not see answers exactly like one that does not exist. Until an
//! upstream's first listing has ended, this is where a call waits for it.

use std::{
    future::{Ready, ready},
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use tokio::time::{Duration, Instant};
use tower::{Layer, Service};

use super::stage::{BoxFuture, Permitted, Upstreams, World, Worlds};
use crate::{
    error::{Code, Error},
    mcp::rpc,
    model::{
        call::{Call, Request, Surface},
        caller::Auth,
        exchange::DecisionKind,
        reply::Reply,
    },
    policy::{Approvers, ItemIndex, Pending, Permit, Reason, Refusal, View},
    registry::{Listing, Tool},
};

/// Decides every call.
#[derive(Clone)]
pub struct PolicyLayer {
    worlds: Arc<Worlds>,
    upstreams: Upstreams,
}

impl PolicyLayer {
    pub fn new(worlds: Arc<Worlds>, upstreams: Upstreams) -> Self {
        Self { worlds, upstreams }
    }
}

impl<S> Layer<S> for PolicyLayer {
    type Service = Policy<S>;

    fn layer(&self, inner: S) -> Policy<S> {
        Policy { inner, layer: self.clone() }
    }
}

#[derive(Clone)]
pub struct Policy<S> {
    inner: S,
    layer: PolicyLayer,
}

impl<S> Service<Call> for Policy<S>
where
    S: Service<Permitted, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<Ready<Result<Reply, Error>>, Either<S::Future, BoxFuture<Reply>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let world = self.layer.worlds.current();
        if let Request::CallTool(asked) = &call.request
            && let Some(tool) = world.catalog.resolve(&call.surface, &asked.name)
            && let Some(upstream) = self.layer.upstreams.get(tool.upstream_index)
        {
            call.exchange.facts().server_key = Some(upstream.server_key.clone());
        }
        if must_wait(&world, &call) {
            // Take the service that is ready, leave its clone.
            let clone = self.inner.clone();
            let mut inner = mem::replace(&mut self.inner, clone);
            let layer = self.layer.clone();
            return Either::Right(Either::Right(Box::pin(async move {
                let world = layer.listed(&call).await;
                let permitted = decide(call, world)?;
                inner.call(permitted).await
            })));
        }
        match decide(call, world) {
            Ok(permitted) => Either::Right(Either::Left(self.inner.call(permitted))),
            Err(error) => Either::Left(ready(Err(error))),
        }
    }
}

/// Whether the call's answer depends on a listing whose first attempt is still under way.
fn must_wait(world: &World, call: &Call) -> bool {
    let pending = |surface: &Surface| {
        world.catalog.listings(surface).any(|(_, listing)| *listing == Listing::Pending)
    };
    match &call.request {
        Request::ListTools { .. } => pending(&call.surface),
        Request::CallTool(tool) => {
            world.catalog.resolve(&call.surface, &tool.name).is_none() && pending(&call.surface)
        }
        _ => false,
    }
}

impl PolicyLayer {
    /// Waits until the listings that the call needs have ended, each within its upstream's
    /// timeout.
    async fn listed(&self, call: &Call) -> Arc<World> {
        let waiting = Instant::now();
        let mut changes = self.worlds.watch();
        let longest = self
            .upstreams
            .iter()
            .filter(|upstream| match &call.surface {
                Surface::Aggregate => true,
                Surface::Upstream(name) => upstream.name == *name,
            })
            .map(|upstream| upstream.timeout)
            .max()
            .unwrap_or(Duration::ZERO);
        let deadline = waiting + longest;
        let mut world = self.worlds.current();
        while must_wait(&world, call) {
            let changed = tokio::time::timeout_at(deadline, changes.changed()).await;
            world = self.worlds.current();
            if !matches!(changed, Ok(Ok(()))) {
                break;
            }
        }
        call.exchange.facts().waited += waiting.elapsed();
        world
    }
}

fn decide(call: Call, world: Arc<World>) -> Result<Permitted, Error> {
    let view = view(&call, &world);
    if let Surface::Upstream(name) = &call.surface
        && !world.catalog.knows(name)
    {
        let message = format!("there is no upstream `{name}`");
        return Err(Error::http(Code::NotFound, 404, message));
    }
    call.exchange.facts().policy_revision = Some(world.rules.revision().clone());
    let Request::CallTool(asked) = &call.request else {
        let permit = view.permit_listing();
        unlisted(&call, &world)?;
        return Ok(Permitted { call, permit, world, tool: None, idempotency_key: None });
    };
    if call.caller.names_employees && call.caller.principal.employee.is_none() {
        let message = "this caller must name the employee in the header SSO-Emp-Id";
        return Err(
            Error::http(Code::PermissionDenied, 403, message).with_reason("employee_missing")
        );
    }
    let Some(tool) = world.catalog.resolve(&call.surface, &asked.name).cloned() else {
        never_listed(&call, &world, &asked.name)?;
        call.exchange.facts().tool_asked = Some(asked.name.chars().take(128).collect());
        return Err(unknown_tool(&asked.name).with_reason("unknown_tool"));
    };
    let index = ItemIndex::new(tool.index);
    let decided = view.permit_call(index, asked.arguments.as_ref());
    let shadow = view.shadow_decision(index, asked.arguments.as_ref());
    note(&call, &tool, &view, &decided);
    call.exchange.facts().shadow = shadow.map(|shadow| (shadow.kind, shadow.reason.as_str()));
    match decided {
        Ok(permit) => {
            let tool = Some(tool);
            Ok(Permitted { call, permit, world, tool, idempotency_key: None })
        }
        Err(refusal) => Err(refused(&refusal, &asked.name)),
    }
}

/// A hidden tool answers like an unknown one. One that the caller sees says why it may not be
/// called like this.
fn refused(refusal: &Refusal, asked: &str) -> Error {
    let say = refusal.rule.as_ref().and_then(|rule| rule.say.as_deref());
    let error = match refusal.kind {
        DecisionKind::Hide | DecisionKind::Allow => unknown_tool(asked),
        DecisionKind::Deny => {
            let usual = "policy does not allow this call with these arguments";
            Error::new(Code::PermissionDenied, say.unwrap_or(usual).to_owned())
        }
        DecisionKind::RequireApproval => {
            let usual = "this call needs the approval of another person first";
            let usual = match refusal.rule.as_ref().and_then(|rule| rule.approval.as_ref()) {
                Some(approval) if approval.by == Approvers::Requester => {
                    "this call needs to be confirmed by the person it is made for"
                }
                _ => usual,
            };
            Error::new(Code::ApprovalRequired, say.unwrap_or(usual).to_owned())
        }
    };
    error.with_reason(refusal.reason.as_str())
}

/// Whose eyes the call sees with.
fn view(call: &Call, world: &World) -> Arc<View> {
    let caller = &call.caller;
    let rules = &world.rules;
    if caller.principal.auth != Auth::Key {
        let roles = &caller.principal.roles;
        return match &caller.principal.employee {
            Some(employee) => rules.view_of_employee(&caller.tenant, &caller.id, employee, roles),
            None => rules.view(&caller.tenant, &caller.id, roles),
        };
    }
    // Without an employee a fronting gateway sees what its configuration says; a caller of no
    // employees at all only what rules say that name it.
    if caller.names_employees {
        rules.view(&caller.tenant, &caller.id, &caller.catalog_roles)
    } else {
        rules.view_of_key(&caller.tenant, &caller.id)
    }
}

fn note(call: &Call, tool: &Arc<Tool>, view: &View, decided: &Result<Permit, Refusal>) {
    let mut facts = call.exchange.facts();
    facts.tool = Some(tool.qualified.clone());
    facts.upstream = Some(tool.upstream.shared());
    facts.risk = view.item(ItemIndex::new(tool.index)).map(|policy| policy.risk);
    facts.pin = Some(tool.definition.digest);
    facts.has_output_schema = tool.definition.has_output_schema;
    let (kind, reason) = match decided {
        Ok(permit) => {
            facts.rules.extend(permit.rule().map(|rule| rule.id.clone()));
            (DecisionKind::Allow, Reason::RuleAllow)
        }
        Err(refusal) => {
            let asks = refusal.pending.as_ref().map_or(&[][..], Pending::rules);
            let rules = if asks.is_empty() { refusal.rule.as_slice() } else { asks };
            facts.rules.extend(rules.iter().map(|rule| rule.id.clone()));
            (refusal.kind, refusal.reason)
        }
    };
    facts.decision = Some(kind);
    facts.reason = Some(reason.as_str());
    // The caller sees it, whatever becomes of this call.
    if kind != DecisionKind::Hide {
        facts.admitted = true;
        facts.tool_alias = Some(tool.name_on(&call.surface).clone());
    }
}

/// What both an unknown and a hidden tool answer. The two must stay alike to the byte.
fn unknown_tool(name: &str) -> Error {
    let shown: String = name.chars().take(128).collect();
    Error::protocol(Code::NotFound, rpc::INVALID_PARAMS, 200, format!("unknown tool: {shown}"))
}

/// A surface whose one upstream was never listed has nothing to list.
fn unlisted(call: &Call, world: &World) -> Result<(), Error> {
    let (Request::ListTools { .. }, Surface::Upstream(name)) = (&call.request, &call.surface)
    else {
        return Ok(());
    };
    match world.catalog.listing(name) {
        Some(Listing::Never(why)) => Err(unavailable(name.as_str(), why)),
        Some(Listing::Pending) => Err(unavailable(name.as_str(), "it has not answered yet")),
        _ => Ok(()),
    }
}

/// A tool nobody knows may be one of an upstream that was never listed.
fn never_listed(call: &Call, world: &World, asked: &str) -> Result<(), Error> {
    let owner = match &call.surface {
        Surface::Upstream(name) => world.catalog.listing(name).map(|listing| (name, listing)),
        Surface::Aggregate => world.catalog.prefix_owner(asked),
    };
    match owner {
        Some((name, Listing::Never(why))) => Err(unavailable(name.as_str(), why)),
        Some((name, Listing::Pending)) => {
            Err(unavailable(name.as_str(), "it has not answered yet"))
        }
        _ => Ok(()),
    }
}

fn unavailable(upstream: &str, why: &str) -> Error {
    Error::new(
        Code::ExternalServiceError,
        format!("the tools of `{upstream}` are not known: {why}"),
    )
    .with_kind("never_listed")
    .with_advice(true, crate::error::Next::Retry)
    .from_upstream()
}
