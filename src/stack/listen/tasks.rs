//! Tasks that a stream is told of: only a caller's own, of tools that it may call.
//!
//! What answers "unknown" when it is asked about is left out of what a stream acknowledges, for
//! whatever reason.

use std::sync::{Arc, Weak};

use super::ListenLayer;
use crate::{
    clock::Clock,
    identity::{session::Owner, task::TaskIds},
    mcp::Served,
    model::call::Call,
    stack::{
        notices::{Hears, Topic, Wish},
        stage::{Era, Upstream, World},
    },
};

/// What task ids are opened with.
#[derive(Clone)]
pub(super) struct Opener {
    pub ids: Arc<TaskIds>,
    pub clock: Clock,
}

impl ListenLayer {
    /// The task that an id names, where this caller may watch it on this surface.
    pub(super) fn task(
        &self,
        call: &Call,
        world: &World,
        id: &str,
        hears: &Weak<dyn Hears>,
    ) -> Option<Wish> {
        let caller = &call.caller;
        if caller.names_employees && caller.principal.employee.is_none() {
            return None;
        }
        let opener = self.tasks.as_ref()?;
        let task = opener.ids.open(Owner::of(caller), id, opener.clock.now_ms()).ok()?;
        let tool = world.task_tool(&task.tool)?;
        let upstream = world.upstreams.get(tool.upstream_index)?.clone();
        let can = call.surface.shows(&tool.upstream)
            && world.knows_tasks_of(caller, tool)
            && tells_of_tasks(&upstream);
        let topic = Topic::Task { own: task.own.into(), tool: task.tool.into() };
        let hears = hears.clone();
        can.then(|| Wish { upstream, caller: (**caller).clone(), topic, public: id.into(), hears })
    }
}

/// A server that keeps tasks of this extension.
fn tells_of_tasks(upstream: &Upstream) -> bool {
    matches!(upstream.era(), Some(Era::Modern(_))) && upstream.served().contains(Served::TASKS)
}
