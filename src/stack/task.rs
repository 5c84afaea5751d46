//! Calls that a server makes tasks of.
//!
//! A client that speaks the extension gets the task, under a sealed id, and asks for it by that.
//! For one that has no form for tasks the gateway declares the extension only where the server
//! refuses the call without it, and then sees the task through (`task/drive.rs`). A client of
//! 2026-07-28 that did not declare it is told what is missing, as the specification wants; it
//! can declare it on its next request.
//!
//! Not here: whether the caller may see the task. Policy has decided that, by the task's tool.

mod drive;

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use tower::{Layer, Service};

use self::drive::Drive;
use super::stage::{BoxFuture, Era, Routed, SouthRequest, Upstream};
use crate::{
    clock::Clock,
    dialect::task,
    error::{Code, Error},
    identity::{session::Owner, task::TaskIds},
    mcp::{Capabilities, Method, Served, rpc},
    model::{
        call::Target,
        caller::Caller,
        exchange::NorthDialect,
        reply::{Final, Reply, ResultBody, RpcError},
    },
};

/// Seals the ids of tasks, and sees tasks through for clients that cannot.
#[derive(Clone)]
pub struct TaskLayer {
    ids: Arc<TaskIds>,
    clock: Clock,
}

impl TaskLayer {
    pub fn new(ids: Arc<TaskIds>, clock: Clock) -> Self {
        Self { ids, clock }
    }
}

impl<S> Layer<S> for TaskLayer {
    type Service = Tasks<S>;

    fn layer(&self, inner: S) -> Tasks<S> {
        Tasks { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Tasks<S> {
    inner: S,
    layer: Arc<TaskLayer>,
}

impl<S> Service<Routed> for Tasks<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<S::Future, BoxFuture<Reply>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut routed: Routed) -> Self::Future {
        let Some(matter) = matter(&mut routed) else {
            return Either::Left(self.inner.call(routed));
        };
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Either::Right(Box::pin(async move {
            match matter {
                Matter::About => layer.about(&mut inner, routed).await,
                Matter::Handed => layer.hand_over(&mut inner, routed).await,
                Matter::Driven => Drive::call(layer, inner, routed).await,
            }
        }))
    }
}

/// What a request has to do with tasks.
enum Matter {
    /// It asks about one.
    About,
    /// It may become one, and its client takes it.
    Handed,
    /// It may become one, and its client has no form for it.
    Driven,
}

/// A handshake revision has no such extension, whatever its client declared; what a stateless
/// client wrote goes on where the server has it.
fn matter(routed: &mut Routed) -> Option<Matter> {
    match &routed.request {
        SouthRequest::Ask { ask, .. } if matches!(ask.target, Target::Task(_)) => {
            return Some(Matter::About);
        }
        SouthRequest::CallTool { .. } => {}
        _ => return None,
    }
    let serves = serves(&routed.upstream);
    if routed.dialect? == NorthDialect::Modern {
        let declared = routed.client.capabilities.contains(Capabilities::TASKS);
        return (serves && declared).then_some(Matter::Handed);
    }
    routed.client.capabilities = routed.client.capabilities.without(Capabilities::TASKS);
    serves.then_some(Matter::Driven)
}

/// Whether a server keeps tasks of this extension.
fn serves(upstream: &Upstream) -> bool {
    matches!(upstream.era(), Some(Era::Modern(_))) && upstream.served().contains(Served::TASKS)
}

/// Declares the extension for a client that does not, to see its task through.
fn declare(routed: &mut Routed) {
    routed.client.capabilities = routed.client.capabilities | Capabilities::TASKS;
}

impl TaskLayer {
    /// `tasks/get`, `tasks/update`, `tasks/cancel`.
    async fn about<S>(&self, inner: &mut S, mut routed: Routed) -> Result<Reply, Error>
    where
        S: Service<Routed, Response = Reply, Error = Error>,
    {
        let lost = || Error::new(Code::Internal, "the request lost its task on the way");
        let caller = routed.caller.clone().ok_or_else(lost)?;
        let SouthRequest::Ask { ask, .. } = &mut routed.request else { return Err(lost()) };
        let Target::Task(id) = &mut ask.target else { return Err(lost()) };
        let task = self.ids.open(Owner::of(&caller), id, self.clock.now_ms());
        let own = task.map_err(|_| task::unknown())?.own;
        let sealed = mem::replace(id, own.clone());
        let method = ask.method;
        // It has become another server since, which keeps no tasks of that one.
        if !serves(&routed.upstream) {
            return Err(task::unknown());
        }
        let reply = inner.call(routed).await?;
        reply.map_end(move |end| match end {
            Ok(Final::Result(body)) => Ok(Final::Result(task::renamed(&body, &sealed, true))),
            Ok(Final::Error(error)) if is_unknown(&error, method, &own) => Err(task::unknown()),
            other => other,
        })
    }

    /// A call whose client takes a task for an answer.
    async fn hand_over<S>(&self, inner: &mut S, routed: Routed) -> Result<Reply, Error>
    where
        S: Service<Routed, Response = Reply, Error = Error>,
    {
        let lost = || Error::new(Code::Internal, "the call lost its tool on the way");
        let SouthRequest::CallTool { tool, .. } = &routed.request else { return Err(lost()) };
        let tool = tool.qualified.clone();
        let caller = routed.caller.clone().ok_or_else(lost)?;
        let layer = self.clone();
        inner.call(routed).await?.map_end(move |end| match end {
            Ok(Final::Result(body)) if task::is_created(&body) => {
                layer.sealed(&body, &caller, &tool).map(Final::Result)
            }
            other => other,
        })
    }

    /// A task as its client gets it.
    fn sealed(&self, body: &ResultBody, caller: &Caller, tool: &str) -> Result<ResultBody, Error> {
        let task = task::read(body)?;
        let id = self.seal(&task, caller, tool)?;
        Ok(task::renamed(body, &id, false))
    }

    fn seal(&self, task: &task::Task, caller: &Caller, tool: &str) -> Result<String, Error> {
        let (owner, now) = (Owner::of(caller), self.clock.now_ms());
        self.ids.seal(owner, tool, &task.id, task.ttl_ms, now).map_err(|cause| {
            let what = "the server made a task of the call, but its id cannot be carried";
            Error::new(Code::ExternalServiceError, what)
                .with_kind("malformed")
                .with_cause(cause)
                .with_unknown_outcome()
                .from_upstream()
        })
    }
}

/// Whether a server's error says that there is no such task. Its own id is no business of the
/// client's, so an error that names it says no more than that either.
fn is_unknown(error: &RpcError, method: Method, own: &str) -> bool {
    let names = |text: &[u8]| memchr::memmem::find(text, own.as_bytes()).is_some();
    let invalid = error.code == i64::from(rpc::INVALID_PARAMS) && method != Method::UpdateTask;
    invalid || names(&error.message) || error.data.as_deref().is_some_and(names)
}
