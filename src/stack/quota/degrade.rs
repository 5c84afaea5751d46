//! A call that runs as a cheaper tool, because its own has become too dear.
//!
//! The cheaper tool is decided, limited and counted like any other: for this caller, with these
//! arguments. Where anything stands in the way the call is refused, as if there were no such tool.

use std::sync::Arc;

use super::{QuotaLayer, counted::Held, told};
use crate::{
    error::Error,
    limit::quota::{Charge, Degraded},
    mcp::meta,
    model::{
        call::Request,
        server::{IdempotencyMode, Risk},
    },
    policy::{ItemIndex, Permit},
    registry::Tool,
    stack::stage::Permitted,
};

impl QuotaLayer {
    /// The call as it is to run instead, charged and limited.
    pub(super) async fn degrade(
        &self,
        permitted: Permitted,
        degraded: &Degraded,
        cost: u32,
    ) -> Result<(Permitted, Held), Error> {
        let exchange = permitted.call.exchange.clone();
        let Degraded { to, refused } = degraded;
        let Some(from) = permitted.tool.clone() else {
            return Err(told::refusal(&exchange, refused, cost));
        };
        let no = |why: &str| told::undegraded(&exchange, refused, to, why);
        let (tool, permit) = stand_in(&permitted, &from, to).map_err(|why| no(&why))?;
        let permitted = Permitted { tool: Some(tool.clone()), permit, ..permitted };
        let world = permitted.world.clone();
        let own_cost = permitted.permit.policy().map_or(cost, |policy| policy.cost);
        let mut held = match world.quotas.charge_patiently(&permitted.subject(), own_cost).await {
            Charge::Free => Held::of(&exchange),
            Charge::In(reservation) => Held::new(&exchange, reservation, &self.metrics),
            _ => return Err(no("that is spent, too")),
        };
        let entry = world.limiter.enter(&permitted.subject()).await;
        let entry =
            entry.map_err(|exceeded| no(&format!("its limit `{}` is reached", exceeded.id())))?;
        held.keep(entry.slots);
        held.note(meta::DEGRADED, told::degraded(&from.qualified, to, &refused.standing.id));
        tell(&permitted, &tool);
        Ok((permitted, held))
    }
}

/// What the record says: the tool that was called, and where the call went.
fn tell(permitted: &Permitted, tool: &Tool) {
    let upstream = permitted.world.upstreams.get(tool.upstream_index);
    let mut facts = permitted.call.exchange.facts();
    facts.degraded_to = Some(tool.qualified.clone());
    facts.upstream = Some(tool.upstream.shared());
    facts.server_key = upstream.map(|upstream| upstream.server_key.clone());
    facts.pin = Some(tool.definition.digest);
}

/// The cheaper tool, and the permit to call it; or why not, for the caller to read.
fn stand_in(permitted: &Permitted, from: &Tool, to: &str) -> Result<(Arc<Tool>, Permit), String> {
    let Permitted { call, permit, world, .. } = permitted;
    let index = world.board.stand_in(from.index, to);
    let tool = index.and_then(|index| world.catalog.tools().get(index));
    let tool = tool.ok_or("it is not there, or takes other arguments")?;
    let Request::CallTool(asked) = &call.request else { return Err("it is no tool".to_owned()) };
    let item = ItemIndex::new(tool.index);
    let view = permit.view();
    // Hidden or not: nobody learns more of it than the policies' own words say.
    let unavailable = || "it is not available".to_owned();
    let permit = view.permit_call(item, asked.arguments.as_ref()).map_err(|_| unavailable())?;
    let policy = permit.policy();
    let risk = policy.map_or(Risk::WriteHigh, |policy| policy.risk);
    if call.caller.missing_scope(risk).is_some() {
        return Err(unavailable());
    }
    let needs_key = policy.is_some_and(|policy| policy.idempotency == IdempotencyMode::Required);
    if needs_key && permitted.idempotency_key.is_none() {
        return Err("it needs an idempotency key".to_owned());
    }
    let arguments = asked.arguments.as_deref().unwrap_or(b"{}");
    if tool.definition.arguments.check(arguments).is_err() {
        return Err("it takes other arguments".to_owned());
    }
    Ok((tool.clone(), permit))
}
