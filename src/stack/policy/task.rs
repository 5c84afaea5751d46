//! What is asked about tasks: opened to learn which tool's call a task was, and decided as that
//! tool is for this caller now.
//!
//! An id that was given to somebody else, a hidden tool's and an invented one all answer alike.

use std::sync::Arc;

use super::{PolicyLayer, ask::advertised, employee_named, note};
use crate::{
    clock::Clock,
    dialect::task,
    error::{Code, Error},
    identity::{session::Owner, task::TaskIds},
    mcp::{Capabilities, Served},
    model::call::{Call, Request, Target},
    policy::{ItemIndex, Refusal, View},
    registry::Tool,
    stack::stage::{Asked, Permitted, World},
};

/// What task ids are opened with.
#[derive(Clone)]
pub(super) struct Opener {
    pub ids: Arc<TaskIds>,
    pub clock: Clock,
}

/// Decides a call about a task.
pub(super) fn decide(
    call: Call,
    world: Arc<World>,
    view: &Arc<View>,
    layer: &PolicyLayer,
) -> Result<Permitted, Error> {
    let lost = || Error::new(Code::Internal, "a call was decided as what it is not");
    let Request::Ask(ask) = &call.request else { return Err(lost()) };
    let Target::Task(id) = &ask.target else { return Err(lost()) };
    advertised(world.catalog.served(&call.surface), Served::TASKS, ask.method)?;
    if !call.client.capabilities.contains(Capabilities::TASKS) {
        return Err(task::undeclared().with_reason("undeclared_extension"));
    }
    employee_named(&call)?;
    let tool = layer.tasks.as_ref().and_then(|opener| opener.tool_of(&call, id, &world));
    let Some(tool) = tool else {
        return Err(task::unknown().with_reason("unknown_task"));
    };
    let index = ItemIndex::new(tool.index);
    // A task was made by a call that was let through; that calls of its tool wait for approval
    // does not keep its maker from it.
    let decided = match view.permit(index) {
        Err(Refusal { pending: Some(pending), .. }) => Ok(pending.held().satisfied()),
        decided => decided,
    };
    note(&call, &tool, view, &decided);
    if let Some(upstream) = world.upstreams.get(tool.upstream_index) {
        call.exchange.facts().server_key = Some(upstream.server_key.clone());
    }
    match decided {
        Ok(permit) => {
            // The id stays sealed for as long as it need not be open.
            let asked = Some(Asked {
                item: None,
                upstream: tool.upstream.clone(),
                upstream_index: tool.upstream_index,
                own: id.clone(),
            });
            Ok(Permitted::new(call, permit, world, None, asked))
        }
        Err(refusal) => Err(task::unknown().with_reason(refusal.reason.as_str())),
    }
}

impl Opener {
    /// The tool whose call became the task, if this caller may know of it on this surface.
    pub fn tool_of(&self, call: &Call, id: &str, world: &World) -> Option<Arc<Tool>> {
        let task = self.ids.open(Owner::of(&call.caller), id, self.clock.now_ms()).ok()?;
        let tool = world.task_tool(&task.tool)?;
        call.surface.shows(&tool.upstream).then(|| tool.clone())
    }
}
