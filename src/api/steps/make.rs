//! Makes the calls of a run: each through the stack, with a record of its own.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout_at;

use crate::{
    api::calls::{Invocation, Made, Server, ToolCalls},
    error::{Code, Error},
    model::{
        call::Surface,
        exchange::{Exchange, Outcome},
        server::{IdempotencyMode, UpstreamName},
    },
    policy::{ItemIndex, ItemPolicy},
    registry::{KEY_ARGUMENT, Tool},
    stack::{
        stage::World,
        v1::{ApiRequest, Calls},
    },
    steps::{self, Asked, CallFacts, Called, Finding},
};

/// `error.type` of a call that a run had no more time for.
const BUDGET: &str = "run_budget";
/// And of one whose tool says that it failed.
const TOOL: &str = "tool_error";

/// Makes calls for the employee who runs the steps.
pub(super) struct Maker<'a> {
    pub within: Within<'a>,
    pub calls: Calls,
}

/// What the calls of a run have in common.
#[derive(Clone, Copy)]
pub(super) struct Within<'a> {
    pub tools: &'a ToolCalls,
    pub request: &'a ApiRequest,
}

impl steps::Calls for Maker<'_> {
    async fn call(&mut self, asked: Asked<'_>) -> Called {
        let (within, calls) = (self.within, self.calls.clone());
        let exchange = within.tools.part(within.request);
        let made = async {
            let server = within.server(&asked).await;
            let invocation = invocation(&asked, server.as_ref());
            let made = within.tools.make(calls, within.request, &exchange, invocation).await;
            let own = server.as_ref().filter(|(_, name)| name.is_key());
            let own = own.map(|(world, name)| of(world, name, &asked.call.tool).is_some());
            within.told(made, &asked, &exchange, own)
        };
        let end = match timeout_at(asked.deadline, made).await {
            Ok(end) => end,
            Err(_) => Err(Finding { error: out_of_time(&exchange), result: None }),
        };
        let facts = exchange.facts();
        let facts = CallFacts {
            call_id: facts.call_id,
            args_hash: facts.args_hash,
            result_ref: facts.result_ref,
            replayed: facts.idempotency == Some("replayed"),
            redefined: facts.pin.is_some() && facts.pin != asked.definition,
        };
        Called { facts, end }
    }
}

impl Within<'_> {
    /// The server that the call will go to, and what is known of it. Where that cannot be told,
    /// the call itself finds out why.
    async fn server(self, asked: &Asked<'_>) -> Option<(Arc<World>, UpstreamName)> {
        let (tools, caller, call) = (self.tools, &self.request.caller, asked.call);
        let world = tools.worlds.current();
        let own = tools.own_world(&world, caller).await.ok()?;
        if let (Some(own), Some(name)) = (own, UpstreamName::of_key(&call.server_key))
            && own.catalog.knows(&name)
        {
            return Some((own, name));
        }
        let found = tools.configured(&world, caller, &call.server_key, &call.tool)?;
        Some((world, found))
    }

    fn told(
        self,
        made: Made,
        asked: &Asked<'_>,
        exchange: &Exchange,
        own: Option<bool>,
    ) -> Result<Bytes, Finding> {
        match made.result {
            Ok(answer) if answer.is_error() => {
                let message = "the tool answered that it failed: `result` has its words";
                let error =
                    Error::new(Code::ExternalServiceError, message).with_kind(TOOL).from_upstream();
                Err(Finding { error, result: Some(answer.raw().clone()) })
            }
            Ok(answer) => Ok(answer.raw().clone()),
            // What is missing of one's own is no right, but for a tool that is there.
            Err(error)
                if own.is_some_and(|has_tool| !has_tool || error.code() != Code::NotFound) =>
            {
                Err(Finding { error, result: None })
            }
            Err(error) => {
                let error = self.no_right(error, asked, exchange, own.is_some());
                Err(Finding { error, result: None })
            }
        }
    }

    /// A tool that the employee may not use answers like none; but the step names it, and it was
    /// compiled for his tenant, so what he lacks is the right. Of one that he sees, it is what was
    /// said: a credential, or a grant.
    fn no_right(self, error: Error, asked: &Asked<'_>, exchange: &Exchange, is_own: bool) -> Error {
        if !matches!(error.code(), Code::NotFound | Code::ServerNotConfigured)
            || error.is_from_upstream()
            || exchange.facts().admitted
        {
            return error;
        }
        let world = self.tools.worlds.current();
        let call = asked.call;
        let mut keyed =
            self.tools.upstreams.iter().filter(|one| *one.server_key == *call.server_key);
        if !is_own && !keyed.any(|one| of(&world, &one.name, &call.tool).is_some()) {
            return error;
        }
        let message = format!("step {}: you may not use `{}`", call.index, call.tool);
        let reason = error.reason().unwrap_or("default_deny");
        let error = Error::new(Code::PermissionDenied, message).with_reason(reason);
        exchange.facts().failed(&error);
        error
    }
}

/// The call of a step, with its idempotency key where the tool wants it.
fn invocation(asked: &Asked<'_>, server: Option<&(Arc<World>, UpstreamName)>) -> Invocation {
    let mut arguments = asked.arguments.clone();
    let mut key = asked.key.clone();
    if let Some((world, name)) = server
        && let Some((tool, policy)) = of(world, name, &asked.call.tool)
    {
        let required = policy.idempotency == IdempotencyMode::Required;
        let own = required.then(|| asked.own_key.clone());
        let place = match &policy.idempotency_argument {
            Some(name) => Some(&**name),
            None if required && tool.definition.has_key_argument => Some(KEY_ARGUMENT),
            None => None,
        };
        match (place, key.clone().or(own)) {
            // A binding of the argument itself comes first; where both are bound and differ,
            // the stack says so.
            (Some(name), Some(text)) => arguments = asked.arguments_with(name, &text),
            (None, Some(text)) if !is_bound(asked, KEY_ARGUMENT) => key = Some(text),
            _ => {}
        }
    }
    Invocation {
        server: Server::Key(asked.call.server_key.clone()),
        tool: asked.call.tool.clone(),
        arguments: Some(arguments),
        idempotency_key: key,
        key_header: None,
        dry_run: false,
    }
}

fn of<'w>(
    world: &'w World,
    upstream: &UpstreamName,
    tool: &str,
) -> Option<(&'w Arc<Tool>, &'w ItemPolicy)> {
    let tool = world.catalog.resolve(&Surface::Upstream(upstream.clone()), tool)?;
    Some((tool, world.rules.item(ItemIndex::new(tool.index))?))
}

fn is_bound(asked: &Asked<'_>, input: &str) -> bool {
    asked.call.inputs.iter().any(|bound| *bound.name == *input)
}

/// The call was given up; what may have left of it is not known to have had no effect.
fn out_of_time(exchange: &Exchange) -> Error {
    let message = "the run's time was over before this call was";
    let error = Error::new(Code::Timeout, message).with_kind(BUDGET);
    let mut facts = exchange.facts();
    let left = !facts.attempts.is_empty();
    let error = if left { error.with_unknown_outcome() } else { error };
    facts.failed(&error);
    // No server's fault.
    facts.outcome = Some(Outcome::Cancelled);
    error
}
