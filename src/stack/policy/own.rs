//! Which world decides a call: everybody's, or what its employee has of his own.

use std::sync::Arc;

use super::{PolicyLayer, ask, called, decide, note_server, renew};
use crate::{
    error::Error,
    model::call::{Call, Request, Surface, Target},
    registry::Tool,
    stack::stage::{Beside, Keyed, Own, Permitted, World, is_of_both, server_of},
};

impl PolicyLayer {
    /// Decides a call; `tool` is what it names among everybody's.
    pub(super) fn admit(
        &self,
        mut call: Call,
        base: Arc<World>,
        tool: Option<Arc<Tool>>,
        own: Option<Arc<World>>,
    ) -> Result<Permitted, Error> {
        let is_key = matches!(&call.surface, Surface::Upstream(name) if name.is_key());
        if own.is_none() && !is_key {
            note_server(&call, &base, tool.as_ref());
            return self.step_up(decide(call, base, tool, self)?);
        }
        renew(&mut call, &base)?;
        if is_of_both(&call)
            && let Some(world) = own
        {
            let view = world.view_of(&call.caller);
            let mut permitted = decide(call, base, None, self)?;
            permitted.beside = Some(Box::new(Beside { world, view }));
            return Ok(permitted);
        }
        let world = match (&call.surface, own) {
            (Surface::Upstream(key), own) if !base.catalog.knows(key) => {
                let view = || Some(base.view_of(&call.caller));
                let (key, tool) = (key.as_str(), called_tool(&call));
                match (server_of(&base, view, own.as_deref(), &call.caller, key, tool), own) {
                    (Some(Keyed::Operators(name)), _) => {
                        call.surface = Surface::Upstream(name);
                        base
                    }
                    (Some(Keyed::Own), Some(own)) => own,
                    _ => base,
                }
            }
            (_, Some(own)) if self.is_about(&call, &own) => own,
            _ => base,
        };
        let tool = called(&world, &call);
        note_server(&call, &world, tool.as_ref());
        self.step_up(decide(call, world, tool, self)?)
    }

    /// Whether a call on the aggregate is about an employee's own servers, and not about everybody's.
    fn is_about(&self, call: &Call, own: &World) -> bool {
        match (&call.surface, &call.request) {
            (Surface::Aggregate, Request::CallTool(asked)) => {
                own.catalog.resolve(&call.surface, &asked.name).is_some()
            }
            (Surface::Aggregate, Request::Ask(ask)) => match &ask.target {
                Target::Task(id) => self
                    .tasks
                    .as_ref()
                    .is_some_and(|opener| opener.tool_of(call, id, own).is_some()),
                target => ask::find(&own.catalog, &call.surface, target).is_some(),
            },
            _ => false,
        }
    }

    /// The same as `admit`, of a call that has to wait for what is not known yet.
    pub(super) async fn admit_late(
        &self,
        call: Call,
        base: Arc<World>,
        own: Own,
        waits: bool,
    ) -> Result<Permitted, Error> {
        let base = if waits { self.listed(&call).await } else { base };
        let own = match own {
            Own::Nothing => None,
            Own::There(own) => Some(own),
            Own::Loading(loading) => match loading.await {
                Ok(own) => own,
                // What is everybody's is listed all the same.
                Err(_) if is_of_both(&call) => None,
                Err(error) => return Err(error),
            },
        };
        let tool = called(&base, &call);
        self.admit(call, base, tool, own)
    }
}

/// The tool that a call names.
fn called_tool(call: &Call) -> Option<&str> {
    match &call.request {
        Request::CallTool(asked) => Some(&asked.name),
        _ => None,
    }
}
