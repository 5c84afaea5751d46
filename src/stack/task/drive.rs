//! A task seen through in place of a client that has no form for one: asked for until it is
//! over, and cancelled at its server when nobody waits for it any more.
//!
//! What a task asks goes up like a question of its call; the state that goes with it brings the
//! answers back to the task.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};
use tower::Service;

use super::{TaskLayer, declare};
use crate::{
    dialect::task::{self, Standing},
    error::{Code, Error},
    identity::session::Owner,
    json::{Doc, Duplicates, Limits},
    mcp::{Capabilities, Method, rpc},
    model::{
        call::{Ask, Meta},
        caller::Caller,
        exchange::NorthDialect,
        reply::{Content, Event, Final, Reply, ReplyStream},
    },
    registry::Tool,
    stack::stage::{Repeat, Routed, SouthRequest},
};

/// Between two looks at a task whose server does not say how often it wants to be asked.
const POLL: Duration = Duration::from_secs(1);
/// However often or seldom a server wants it.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// Looks that may fail one after the other. Looking acts on nothing, so it may be repeated.
const FAILURES: u32 = 3;

const ANSWERS: &[u8] = b"inputResponses";
const STATE: &[u8] = b"requestState";

/// One call and the task that it may become.
pub(super) struct Drive<S> {
    layer: Arc<TaskLayer>,
    inner: S,
    caller: Arc<Caller>,
    tool: Arc<Tool>,
    /// The call, with the extension declared.
    call: Routed,
    timeout: Duration,
    /// When the call is over, whatever its task does.
    deadline: Instant,
}

/// What the client brings back to a task that asked.
struct Answers {
    id: Box<str>,
    responses: Bytes,
}

impl<S> Drive<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    pub async fn call(layer: Arc<TaskLayer>, inner: S, routed: Routed) -> Result<Reply, Error> {
        let lost = || Error::new(Code::Internal, "the call lost its tool on the way");
        let SouthRequest::CallTool { tool, timeout, max_time, .. } = &routed.request else {
            return Err(lost());
        };
        let (tool, timeout, max_time) = (tool.clone(), *timeout, *max_time);
        let caller = routed.caller.clone().ok_or_else(lost)?;
        let mut call = routed.clone();
        declare(&mut call);
        let deadline = Instant::now() + max_time;
        let mut drive = Self { layer, inner, caller, tool, call, timeout, deadline };
        if let Some(answers) = drive.answers(&routed) {
            return drive.go_on(answers).await.map(whole);
        }
        let reply = drive.inner.call(routed).await?;
        match reply.content {
            // The server refused before it did anything: with the extension it will.
            Content::Final(Final::Error(error)) if task::wants_extension(&error) => {
                let again = drive.call.clone();
                let reply = drive.send(again).await?;
                drive.finish(reply).await
            }
            _ => drive.finish(reply).await,
        }
    }

    /// Sends a request of the call's, within what is left of its time.
    async fn send(&mut self, mut routed: Routed) -> Result<Reply, Error> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.timed_out());
        }
        match &mut routed.request {
            SouthRequest::CallTool { max_time, .. } | SouthRequest::Ask { max_time, .. } => {
                *max_time = left;
            }
            _ => {}
        }
        std::future::poll_fn(|cx| self.inner.poll_ready(cx)).await?;
        self.inner.call(routed).await
    }

    /// The reply, in which a task is replaced by what becomes of it.
    async fn finish(self, reply: Reply) -> Result<Reply, Error> {
        let content = match reply.content {
            Content::Final(end) => Content::Final(self.end(end).await?),
            Content::Stream(events) => Content::Stream(self.relay(events)),
            Content::Nothing => Content::Nothing,
        };
        Ok(Reply { content, ..reply })
    }

    fn relay(self, events: ReplyStream) -> ReplyStream {
        Box::pin(stream::unfold(Some((self, events)), |state| async move {
            let (drive, mut events) = state?;
            match events.next().await? {
                Event::End(Ok(end)) => Some((Event::End(drive.end(end).await), None)),
                Event::End(Err(error)) => Some((Event::End(Err(error)), None)),
                event => Some((event, Some((drive, events)))),
            }
        }))
    }

    async fn end(mut self, end: Final) -> Result<Final, Error> {
        match end {
            Final::Result(body) if task::is_created(&body) => {
                let task = task::read(&body)?;
                self.see_through(task).await
            }
            end => Ok(end),
        }
    }

    // === The task ===

    async fn see_through(&mut self, task: task::Task) -> Result<Final, Error> {
        let cancel = Cancel::new(self, &task.id);
        let mut task = task;
        loop {
            self.pause(task.poll).await?;
            let seen = self.look(&task.id).await?;
            let (poll, ttl_ms) = (seen.poll.or(task.poll), seen.ttl_ms);
            task = task::Task { poll, ttl_ms, id: task.id, standing: seen.standing };
            match &task.standing {
                Standing::Working => {}
                Standing::Completed(result) => {
                    cancel.disarm();
                    return Ok(Final::Result(task::result(result.clone())));
                }
                Standing::Failed(error) => {
                    cancel.disarm();
                    return Ok(Final::Error(error.clone()));
                }
                Standing::Cancelled => {
                    cancel.disarm();
                    return Err(self.failed("cancelled the task of the call"));
                }
                Standing::InputRequired(questions) => {
                    let state = self.layer.seal(&task, &self.caller, &self.tool.qualified)?;
                    if self.can_ask() {
                        // It waits for the client now, and for no longer than its server keeps it.
                        cancel.disarm();
                    }
                    return Ok(Final::Result(task::question(questions, &state)));
                }
            }
        }
    }

    /// Whether its client can be asked anything; whoever cannot is told so further up.
    fn can_ask(&self) -> bool {
        let asks = self.call.client.capabilities.without(Capabilities::TASKS);
        matches!(self.call.dialect, Some(NorthDialect::Legacy(_))) && !asks.is_empty()
    }

    async fn pause(&self, poll: Option<Duration>) -> Result<(), Error> {
        let pause = poll.unwrap_or(POLL).clamp(SHORTEST, LONGEST);
        // Tasks that began together are not asked for together for ever.
        let pause = pause.mul_f64(rand::random_range(1.0..1.1));
        let began = Instant::now();
        sleep_until((began + pause).min(self.deadline)).await;
        self.call.exchange.facts().waited += began.elapsed();
        if Instant::now() >= self.deadline { Err(self.timed_out()) } else { Ok(()) }
    }

    async fn look(&mut self, id: &str) -> Result<task::Task, Error> {
        let mut failures = 0;
        loop {
            let before = self.call.exchange.facts().attempts.len();
            let seen = match self.ask(task::ask(Method::GetTask, id)).await {
                Ok(Final::Result(body)) => task::read(&body),
                Ok(Final::Error(error)) if error.code == i64::from(rpc::INVALID_PARAMS) => {
                    return Err(self.failed("lost the task of the call"));
                }
                Ok(Final::Error(error)) => {
                    let what = format!("does not say how the task stands (error {})", error.code);
                    Err(self.failed(&what))
                }
                Err(error) => Err(error.with_unknown_outcome()),
            };
            match seen {
                Ok(task) => {
                    // Of many looks the record keeps the one that told something.
                    if task.standing == Standing::Working {
                        self.call.exchange.facts().attempts.truncate(before);
                    }
                    return Ok(task);
                }
                Err(error) => {
                    failures += 1;
                    if failures == FAILURES || Instant::now() >= self.deadline {
                        return Err(error);
                    }
                    tracing::debug!(%error, "a task could not be looked at");
                    self.pause(Some(POLL * failures)).await?;
                }
            }
        }
    }

    async fn ask(&mut self, ask: Ask) -> Result<Final, Error> {
        let routed = about(&self.call, ask, self.timeout);
        last(self.send(routed).await?).await
    }

    // === Answers to what it asked ===

    /// The answers to a question of a task of this call, if that is what the call brings.
    fn answers(&self, routed: &Routed) -> Option<Answers> {
        let SouthRequest::CallTool { others, .. } = &routed.request else { return None };
        let find = |name: &[u8]| others.iter().find(|member| member.key.as_ref() == name);
        let state = text(&find(STATE)?.value)?;
        let (owner, now) = (Owner::of(&self.caller), self.layer.clock.now_ms());
        let task = self.layer.ids.open(owner, &state, now).ok()?;
        if task.tool.as_ref() != self.tool.qualified.as_ref() {
            return None;
        }
        let responses = find(ANSWERS).map(|member| member.value.clone());
        Some(Answers { id: task.own, responses: responses.unwrap_or(Bytes::from_static(b"{}")) })
    }

    async fn go_on(mut self, answers: Answers) -> Result<Final, Error> {
        let Answers { id, responses } = answers;
        match self.ask(task::update(&id, responses)).await? {
            Final::Result(_) => {
                let (standing, poll) = (Standing::Working, Some(SHORTEST));
                self.see_through(task::Task { id, ttl_ms: None, poll, standing }).await
            }
            error @ Final::Error(_) => Ok(error),
        }
    }

    // === Errors ===

    fn failed(&self, what: &str) -> Error {
        let message = format!("`{}` {what}", self.call.upstream.name);
        Error::new(Code::ExternalServiceError, message)
            .with_kind("task")
            .with_unknown_outcome()
            .from_upstream()
    }

    fn timed_out(&self) -> Error {
        let name = &self.call.upstream.name;
        let message = format!("`{name}` did not finish within the longest time a call may take");
        Error::new(Code::Timeout, message)
            .with_kind("timeout")
            .with_unknown_outcome()
            .from_upstream()
    }
}

/// A request about a task, beside its call.
fn about(call: &Routed, ask: Ask, timeout: Duration) -> Routed {
    let mut routed = call.clone();
    // Neither progress nor a key belongs to it.
    routed.meta = Meta::default();
    routed.idempotency_key = None;
    routed.repeat = Repeat::Never;
    let max_time = timeout;
    routed.request = SouthRequest::Ask { ask: Box::new(ask), timeout, max_time };
    routed
}

fn whole(end: Final) -> Reply {
    Reply { headers: smallvec::SmallVec::new(), content: Content::Final(end) }
}

async fn last(reply: Reply) -> Result<Final, Error> {
    let mut events = match reply.content {
        Content::Final(end) => return Ok(end),
        Content::Stream(events) => events,
        Content::Nothing => return Err(Error::new(Code::Internal, "the request had no answer")),
    };
    while let Some(event) = events.next().await {
        if let Event::End(end) = event {
            return end;
        }
    }
    Err(Error::new(Code::Internal, "the stream had no end"))
}

fn text(value: &Bytes) -> Option<String> {
    let limits = Limits { depth: 1, duplicates: Duplicates::Allow, outline: 0 };
    let doc = Doc::parse(value.clone(), &limits).ok()?;
    doc.root().as_str().map(Into::into)
}

// === impl Cancel ===

/// Tells the server that nobody waits for a task, when it is dropped before it is disarmed.
struct Cancel(Option<Box<dyn FnOnce() + Send>>);

impl Cancel {
    fn new<S>(drive: &Drive<S>, id: &str) -> Self
    where
        S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let routed = about(&drive.call, task::ask(Method::CancelTask, id), drive.timeout);
        let mut inner = drive.inner.clone();
        Self(Some(Box::new(move || {
            let cancel = async move {
                let ready = std::future::poll_fn(|cx| inner.poll_ready(cx)).await;
                if ready.is_ok()
                    && let Err(error) = inner.call(routed).await
                {
                    tracing::debug!(%error, "a task that nobody waits for could not be cancelled");
                }
            };
            // One small request, bounded by its own time-out; the call may be gone already.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(cancel);
            }
        })))
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        if let Some(cancel) = self.0.take() {
            cancel();
        }
    }
}
