//! Call → Permitted, or refused: nothing below this layer runs without a permit.
//!
//! A tool the caller may not see answers exactly like one that does not exist. Until an
//! upstream's first listing has ended, this is where a call waits for it. What is asked of
//! prompts and resources is decided in `policy/ask.rs`, about tasks in `policy/task.rs`, and which
//! calls are about servers of an employee's own in `policy/own.rs`.

mod ask;
mod own;
mod task;

use std::{
    future::{Ready, ready},
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use tokio::time::{Duration, Instant};
use tower::{Layer, Service};

use super::{
    challenge::Challenges,
    stage::{BoxFuture, Own, Permitted, Personal, World, Worlds, may_be_own},
};
use crate::{
    clock::Clock,
    error::{Code, Error},
    identity::task::TaskIds,
    mcp::{Family, rpc},
    model::{
        argument_facts::ArgumentFacts,
        call::{Call, Request, Surface, Target},
        exchange::DecisionKind,
        reply::Reply,
        server::UpstreamName,
    },
    policy::{ItemIndex, Pending, Permit, Reason, Refusal, View},
    registry::{Listing, Tool},
};

/// Decides every call.
#[derive(Clone)]
pub struct PolicyLayer {
    worlds: Arc<Worlds>,
    /// How long a call waits for first listings, all of them together.
    wait: Duration,
    /// `None`: nobody has a task here.
    tasks: Option<task::Opener>,
    /// `None`: nobody has servers of his own.
    personal: Option<Arc<dyn Personal>>,
    /// What a token with too few scopes is told.
    challenges: Arc<Challenges>,
}

impl PolicyLayer {
    pub fn new(worlds: Arc<Worlds>, wait: Duration) -> Self {
        Self { worlds, wait, tasks: None, personal: None, challenges: Arc::default() }
    }

    /// Also says in the operator's terms what a token still needs.
    #[must_use]
    pub fn with_challenges(self, challenges: Arc<Challenges>) -> Self {
        Self { challenges, ..self }
    }

    /// Also about the servers that employees have of their own.
    #[must_use]
    pub fn with_personal(self, personal: Option<Arc<dyn Personal>>) -> Self {
        Self { personal, ..self }
    }

    /// Also decides about tasks, whose ids these open.
    #[must_use]
    pub fn with_tasks(self, ids: Arc<TaskIds>, clock: Clock) -> Self {
        Self { tasks: Some(task::Opener { ids, clock }), ..self }
    }
}

impl<S> Layer<S> for PolicyLayer {
    type Service = Policy<S>;

    fn layer(&self, inner: S) -> Policy<S> {
        Policy { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Policy<S> {
    inner: S,
    layer: Arc<PolicyLayer>,
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
        let layer = &self.layer;
        let world = layer.worlds.current();
        let tool = called(&world, &call);
        let own = match &layer.personal {
            Some(personal) if tool.is_none() && may_be_own(&call, &world) => {
                personal.of(&call.caller, &world)
            }
            _ => Own::Nothing,
        };
        let waits = tool.is_none() && must_wait(&world, &call);
        let own = match own {
            Own::Nothing if !waits => None,
            Own::There(own) if !waits => Some(own),
            own => {
                // Take the service that is ready, leave its clone.
                let clone = self.inner.clone();
                let mut inner = mem::replace(&mut self.inner, clone);
                let layer = self.layer.clone();
                return Either::Right(Either::Right(Box::pin(async move {
                    let permitted = layer.admit_late(call, world, own, waits).await?;
                    inner.call(permitted).await
                })));
            }
        };
        match layer.admit(call, world, tool, own) {
            Ok(permitted) => Either::Right(Either::Left(self.inner.call(permitted))),
            Err(error) => Either::Left(ready(Err(error))),
        }
    }
}

/// Says in the call's record which server its tool is of.
fn note_server(call: &Call, world: &World, tool: Option<&Arc<Tool>>) {
    if let Some(tool) = tool
        && let Some(upstream) = world.upstreams.get(tool.upstream_index)
    {
        call.exchange.facts().server_key = Some(upstream.server_key.clone());
    }
}

/// The tool that a call names, if the catalog has it.
fn called(world: &World, call: &Call) -> Option<Arc<Tool>> {
    let Request::CallTool(asked) = &call.request else { return None };
    world.catalog.resolve(&call.surface, &asked.name).cloned()
}

/// Whether the call's answer depends on a listing whose first attempt is still under way.
fn must_wait(world: &World, call: &Call) -> bool {
    pending(world, call).next().is_some()
}

/// The upstreams on whose first listing the call's answer depends.
fn pending<'a>(world: &'a World, call: &'a Call) -> impl Iterator<Item = &'a UpstreamName> {
    let catalog = &world.catalog;
    let family = match &call.request {
        Request::List { family, .. } => Some(Some(*family)),
        Request::CallTool(tool) => {
            catalog.resolve(&call.surface, &tool.name).is_none().then_some(Some(Family::Tools))
        }
        Request::Ask(asked) => {
            let found = ask::find(catalog, &call.surface, &asked.target);
            let is_listed = found.is_some_and(|found| found.item.is_some());
            (!is_listed).then_some(Some(ask::family(&asked.target)))
        }
        // What is declared now is all that a client will ever ask for, or a stream will tell.
        Request::Initialize { .. }
        | Request::Discover
        | Request::Listen(_)
        | Request::Misread(_) => Some(None),
        _ => None,
    };
    family.into_iter().flat_map(move |family| catalog.pending(&call.surface, family))
}

impl PolicyLayer {
    /// What policy permits may still need a token with more scopes. The caller sees the tool, and
    /// its client can ask for them.
    fn step_up(&self, permitted: Permitted) -> Result<Permitted, Error> {
        let Permitted { call, permit, .. } = &permitted;
        if permit.policy().is_none() {
            return Ok(permitted);
        }
        match call.caller.missing_scope(permitted.risk()) {
            Some(scope) => {
                let path = match &call.surface {
                    Surface::Aggregate => "/mcp".to_owned(),
                    Surface::Upstream(name) => format!("/mcp/{name}"),
                };
                Err(self.challenges.insufficient(&call.headers, &path, scope))
            }
            None => Ok(permitted),
        }
    }

    /// Waits until the listings that the call needs have ended, each within its upstream's
    /// timeout and all within one.
    async fn listed(&self, call: &Call) -> Arc<World> {
        let waiting = Instant::now();
        let mut changes = self.worlds.watch();
        let mut world = self.worlds.current();
        loop {
            // Of those that are still waited for, the one that may take longest.
            let timeout_of = |name: &UpstreamName| {
                let mut upstreams = world.upstreams.iter();
                upstreams.find(|upstream| upstream.name == *name).map(|upstream| upstream.timeout)
            };
            let longest = pending(&world, call).filter_map(timeout_of).max();
            let Some(longest) = longest else { break };
            let deadline = waiting + longest.min(self.wait);
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

/// `tool` is what `called` found in the same world.
fn decide(
    mut call: Call,
    world: Arc<World>,
    tool: Option<Arc<Tool>>,
    layer: &PolicyLayer,
) -> Result<Permitted, Error> {
    renew(&mut call, &world)?;
    let view = world.view_of(&call.caller);
    if let Surface::Upstream(name) = &call.surface
        && !world.catalog.knows(name)
    {
        let what = if name.is_key() { "server of yours with the key" } else { "upstream" };
        let message = format!("there is no {what} `{name}`");
        return Err(Error::http(Code::NotFound, 404, message));
    }
    {
        let mut facts = call.exchange.facts();
        facts.policy_revision = Some(world.rules.revision().clone());
        facts.dry_run = call.meta.dry_run;
    }
    not_to_be_tried(&call)?;
    let asked = match &call.request {
        Request::CallTool(asked) => asked,
        Request::Ask(asked) if matches!(asked.target, Target::Task(_)) => {
            return task::decide(call, world, &view, layer);
        }
        Request::Ask(_) => return ask::decide(call, world, &view),
        Request::Misread(misread) => return Err(ask::misread(&call.surface, &world, misread)),
        _ => {
            let permit = view.permit_listing();
            unlisted(&call, &world)?;
            let (tool, asked) = (None, None);
            return Ok(Permitted::new(call, permit, world, tool, asked));
        }
    };
    employee_named(&call)?;
    let Some(tool) = tool else {
        never_listed(&call, &world, Family::Tools, &asked.name)?;
        call.exchange.facts().tool_asked = Some(asked.name.chars().take(128).collect());
        return Err(unknown_tool(&asked.name).with_reason("unknown_tool"));
    };
    let index = ItemIndex::new(tool.index);
    let mut looked = ArgumentFacts::default();
    let decided = view.permit_noting(index, asked.arguments.as_ref(), &mut looked);
    let shadow = view.shadow_decision(index, asked.arguments.as_ref(), &mut looked);
    note(&call, &tool, &view, &decided);
    note_looked(&call, looked, shadow.map(|shadow| (shadow.kind, shadow.reason)));
    match held(decided) {
        Ok(permit) => Ok(Permitted::new(call, permit, world, Some(tool), None)),
        Err(refusal) => Err(refused(&refusal, || unknown_tool(&asked.name))),
    }
}

/// What waits for somebody's yes goes on, with a permit that says who asks: `approval` sees to
/// it, and `route` lets nothing by that still asks.
fn held(decided: Result<Permit, Refusal>) -> Result<Permit, Refusal> {
    match decided {
        Err(Refusal { pending: Some(pending), .. }) => Ok(pending.held()),
        decided => decided,
    }
}

/// Only of a tool call it can be said what would happen without anybody being asked.
fn not_to_be_tried(call: &Call) -> Result<(), Error> {
    match &call.request {
        Request::Ask(ask) if call.meta.dry_run => {
            let method = ask.method.as_str();
            let message = format!("a dry run is made of tools/call alone, not of {method}");
            Err(Error::new(Code::InvalidArgs, message).with_reason("dry_run"))
        }
        _ => Ok(()),
    }
}

/// Roles are of the policies that decide, also where those came into force since the caller was
/// established: while the body was read, or while the call waited for a listing.
fn renew(call: &mut Call, world: &World) -> Result<(), Error> {
    if !world.is_news_to(&call.caller) {
        return Ok(());
    }
    world.renew(Arc::make_mut(&mut call.caller)).map_err(|fault| {
        let error = Error::http(Code::PermissionDenied, 403, fault.to_string());
        error.with_reason("tenant_boundary")
    })?;
    call.exchange.facts().roles = call.caller.principal.roles.clone();
    Ok(())
}

/// What acts does so for an employee, where the caller has any.
fn employee_named(call: &Call) -> Result<(), Error> {
    if call.caller.names_employees && call.caller.principal.employee.is_none() {
        let message = "this caller must name the employee in the header SSO-Emp-Id";
        return Err(
            Error::http(Code::PermissionDenied, 403, message).with_reason("employee_missing")
        );
    }
    Ok(())
}

/// What is hidden answers like what does not exist. What the caller sees says why it may not be
/// used like this.
fn refused(refusal: &Refusal, unknown: impl FnOnce() -> Error) -> Error {
    let say = refusal.rule.as_ref().and_then(|rule| rule.say.as_deref());
    let error = match refusal.kind {
        DecisionKind::Hide | DecisionKind::Allow => unknown(),
        DecisionKind::Deny if refusal.reason == Reason::PinMismatch => {
            let message = "this tool's definition is not one that was approved: an operator has to \
                           look at it first";
            Error::new(Code::UnsafeActionBlocked, message)
        }
        DecisionKind::Deny if refusal.reason == Reason::ToolQuality => {
            let message = "this tool's definition is not as policy wants it: an operator has to \
                           look at it first";
            Error::new(Code::UnsafeActionBlocked, message)
        }
        // One that waits for approval is no refusal; see `held`.
        DecisionKind::Deny | DecisionKind::RequireApproval => {
            let usual = "policy does not allow this call with these arguments";
            Error::new(Code::PermissionDenied, say.unwrap_or(usual).to_owned())
        }
    };
    error.with_reason(refusal.reason.as_str())
}

/// What a record needs so that the call can be decided again, and what files in shadow say of it.
fn note_looked(call: &Call, looked: ArgumentFacts, shadow: Option<(DecisionKind, Reason)>) {
    if looked.is_empty() && shadow.is_none() {
        return;
    }
    let mut facts = call.exchange.facts();
    facts.arguments = looked;
    facts.shadow = shadow.map(|(kind, reason)| (kind, reason.as_str()));
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
    match (&call.request, &call.surface) {
        (Request::List { family, .. }, Surface::Upstream(name)) => {
            heard(world, name, Some(*family))
        }
        _ => Ok(()),
    }
}

/// Of an upstream that never listed a family, or any at all, nothing is known.
fn heard(world: &World, name: &UpstreamName, family: Option<Family>) -> Result<(), Error> {
    let listing = match family {
        Some(family) => world.catalog.listing_of(name, family),
        None => world.catalog.listing(name),
    };
    match listing {
        Some(Listing::Never(why)) => Err(unavailable(name.as_str(), why)),
        Some(Listing::Pending) => Err(unavailable(name.as_str(), "it has not answered yet")),
        _ => Ok(()),
    }
}

/// A name nobody knows may be one of an upstream that was never listed.
fn never_listed(call: &Call, world: &World, family: Family, asked: &str) -> Result<(), Error> {
    let owner = match &call.surface {
        Surface::Upstream(name) => Some(name),
        Surface::Aggregate => world.catalog.prefix_owner(asked).map(|(name, _)| name),
    };
    owner.map_or(Ok(()), |name| heard(world, name, Some(family)))
}

fn unavailable(upstream: &str, why: &str) -> Error {
    Error::new(Code::ExternalServiceError, format!("what `{upstream}` has is not known: {why}"))
        .with_kind("never_listed")
        .with_advice(true, crate::error::Next::Retry)
        .from_upstream()
}
