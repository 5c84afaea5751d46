//! A call of a client that cannot take a question for an answer: a client of a handshake revision
//! is asked while its call runs, and a server that only wants to be called again is.
//!
//! The call is repeated below everything that decides on it, with the time that is left to it: it
//! stays one call.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, future::poll_fn, stream};
use tokio::time::{Instant, sleep, timeout_at};
use tower::Service;

use super::{
    super::{
        asked::{Answer, Asking},
        parked::{Holder, ParkedCalls},
        stage::{Era, Routed, SouthRequest},
    },
    ANSWERS, ContinuationLayer, STATE, broken, is, params_mut,
};
use crate::{
    dialect::questions::{self, Asked, CANCEL, Round},
    error::{CLIENT_SILENT, Code, Error},
    json,
    mcp::{Capabilities, Method, Version, rpc},
    model::{
        call::RawMember,
        exchange::NorthDialect,
        reply::{Content, Event, Final, Question, Reply, ReplyStream, ResultBody, RpcError, Shape},
    },
};

/// Before a server that only has a state is called again, at first; each time twice as long.
const BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// Makes the call, and again as often as it takes.
pub(super) async fn call<S>(
    mut inner: S,
    layer: Arc<ContinuationLayer>,
    routed: Routed,
) -> Result<Reply, Error>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    let again = routed.clone();
    let started = Instant::now();
    let mut reply = inner.call(routed).await?;
    let mut bridge = Bridge { inner, layer, again, started, rounds: 0, pauses: 0, held: None };
    let headers = std::mem::take(&mut reply.headers);
    let content = match reply.content {
        Content::Final(end) => match bridge.first(end).await? {
            At::End(end) => Content::Final(end?),
            at => Content::Stream(events(bridge, at)),
        },
        Content::Stream(stream) => Content::Stream(events(bridge, At::Relaying(stream))),
        Content::Nothing => Content::Nothing,
    };
    Ok(Reply { headers, content })
}

/// Where a call stands.
enum At {
    Relaying(ReplyStream),
    /// The client gets these questions, and answers them.
    Asking(Open),
    /// It has answered.
    Answered(Given),
    /// The call is to be made again with what it answered.
    Going(Given),
    End(Result<Final, Error>),
}

/// Questions that a client has been asked, or is about to be.
struct Open {
    asking: Asking,
    asked: Vec<Asked>,
    unsent: VecDeque<Question>,
    until: Instant,
}

/// What a client answered, and what it would not.
#[derive(Default)]
struct Given {
    answers: Vec<(Box<str>, Bytes)>,
    refusals: Vec<(Box<str>, RpcError)>,
}

struct Bridge<S> {
    inner: S,
    layer: Arc<ContinuationLayer>,
    /// The call, to be made again.
    again: Routed,
    started: Instant,
    /// How often the client was asked.
    rounds: usize,
    /// How often the server was only called again.
    pauses: u32,
    /// The state that the server has given and nobody has brought back.
    held: Option<Held>,
}

/// The state of a call that may be held open at its server; dropped, it lets go of that call.
struct Held {
    state: String,
    parked: Arc<ParkedCalls>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.parked.let_go(&self.state);
    }
}

impl Held {
    /// The state goes back to where it came from.
    fn bring(mut self) -> String {
        std::mem::take(&mut self.state)
    }
}

/// All that the client gets.
fn events<S>(bridge: Bridge<S>, at: At) -> ReplyStream
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    Box::pin(stream::unfold(Some((bridge, at)), |state| async move {
        let (mut bridge, mut at) = state?;
        loop {
            at = match at {
                At::Relaying(mut events) => match events.next().await? {
                    Event::End(Ok(end)) => bridge.next(end).await,
                    Event::End(Err(error)) => At::End(Err(error)),
                    event => return Some((event, Some((bridge, At::Relaying(events))))),
                },
                At::Asking(mut open) => {
                    if let Some(question) = open.unsent.pop_front() {
                        let event = Event::Question(question);
                        return Some((event, Some((bridge, At::Asking(open)))));
                    }
                    bridge.answered(open).await
                }
                At::Answered(given) => {
                    return Some((Event::Answered, Some((bridge, At::Going(given)))));
                }
                At::Going(given) => bridge.go_on(given).await,
                At::End(end) => return Some((Event::End(end), None)),
            };
        }
    }))
}

impl<S> Bridge<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    /// What comes of an answer that is not part of a stream: an error that no stream has begun
    /// for is the call's own.
    async fn first(&mut self, end: Final) -> Result<At, Error> {
        match self.next(end).await {
            At::End(Err(error)) => Err(error),
            at => Ok(at),
        }
    }

    /// What comes of an answer of the server.
    async fn next(&mut self, mut end: Final) -> At {
        loop {
            let Final::Result(body) = &end else { return At::End(Ok(end)) };
            if !body.shape.asks {
                return At::End(Ok(end));
            }
            let round = match questions::read(&body.raw) {
                Ok(round) => round,
                Err(what) => return At::End(Err(broken(self.name(), what))),
            };
            if !round.asked.is_empty() {
                return match self.ask(round) {
                    Ok(Some(open)) => At::Asking(open),
                    // MCP-Lite says itself that it cannot carry this.
                    Ok(None) => At::End(Ok(end)),
                    Err(error) => At::End(Err(error)),
                };
            }
            self.keep(round.state);
            let reply = match self.pause().await {
                Ok(()) => self.repeat(&[], Vec::new()).await,
                Err(error) => Err(error),
            };
            end = match reply.map(|reply| reply.content) {
                Ok(Content::Final(end)) => end,
                Ok(Content::Stream(stream)) => return At::Relaying(stream),
                Ok(Content::Nothing) => {
                    return At::End(Err(Error::new(Code::Internal, "the call had no answer")));
                }
                Err(error) => return At::End(Err(error)),
            };
        }
    }

    fn name(&self) -> &str {
        self.again.upstream.name.as_str()
    }

    fn legacy(&self) -> Option<Version> {
        match self.again.dialect {
            Some(NorthDialect::Legacy(version)) => Some(version),
            _ => None,
        }
    }

    /// When the call has taken as long as it may.
    fn end(&self) -> Instant {
        let max_time = match &self.again.request {
            SouthRequest::CallTool { max_time, .. } | SouthRequest::Ask { max_time, .. } => {
                *max_time
            }
            SouthRequest::Probe
            | SouthRequest::List { .. }
            | SouthRequest::Listen(_)
            | SouthRequest::Subscribe { .. } => self.again.upstream.max_time,
        };
        self.started + max_time
    }

    fn keep(&mut self, state: Option<String>) {
        let parked = &self.layer.parked;
        self.held = state.map(|state| Held { state, parked: parked.clone() });
    }

    async fn pause(&mut self) -> Result<(), Error> {
        let pause = BACKOFF.saturating_mul(1 << self.pauses.min(10)).min(LONGEST_BACKOFF);
        self.pauses += 1;
        if Instant::now() + pause >= self.end() {
            return Err(self.too_long());
        }
        let began = Instant::now();
        sleep(pause).await;
        self.waited_since(began);
        Ok(())
    }

    /// What others take is none of the gateway's own time.
    fn waited_since(&self, began: Instant) {
        self.again.exchange.facts().waited += began.elapsed();
    }

    fn too_long(&self) -> Error {
        let name = self.name();
        let message = format!("`{name}` did not finish within the longest time a call may take");
        Error::new(Code::Timeout, message)
            .with_kind("timeout")
            .with_unknown_outcome()
            .from_upstream()
    }

    // === Asking ===

    /// Opens the questions of a round. `None`: the client's dialect has no form for any.
    fn ask(&mut self, round: Round) -> Result<Option<Open>, Error> {
        // Whatever comes of it, the server's call is let go of if it is not gone on with.
        self.keep(round.state);
        let Some(version) = self.legacy() else { return Ok(None) };
        let client = &self.again.client;
        let mut lacking = Capabilities::NONE;
        for asked in &round.asked {
            match questions::needs(asked.method, asked.params.as_ref()) {
                Some(needed) => lacking = lacking | needed.without(client.capabilities),
                None => return Err(broken(self.name(), "what it asks nobody can be asked")),
            }
        }
        let Some(session) = client.session.filter(|_| lacking.is_empty()) else {
            let message = format!(
                "`{}` must ask something, and this client did not say that it can be asked",
                self.name()
            );
            return Err(Error::new(Code::CapabilityMissing, message)
                .with_required_capabilities(lacking.to_json(Version::LATEST).into()));
        };
        let limits = *self.layer.parked.limits();
        self.rounds += 1;
        if self.rounds > limits.rounds {
            let times = limits.rounds;
            return Err(broken(self.name(), &format!("it has asked {times} times already")));
        }
        let employee =
            self.again.caller.as_ref().and_then(|caller| caller.principal.employee.clone());
        let holder = Holder::new(&self.again.upstream.name, self.again.caller.as_deref());
        let asking = self.layer.asked.ask(holder, session, employee, round.asked.len())?;
        let unsent = round
            .asked
            .iter()
            .zip(asking.ids())
            .map(|(asked, id)| Question {
                id: id.clone(),
                method: asked.method,
                params: questions::to_legacy(asked.method, asked.params.clone(), version, id),
            })
            .collect();
        let until = (Instant::now() + limits.answer).min(self.end());
        Ok(Some(Open { asking, asked: round.asked, unsent, until }))
    }

    /// Waits for the answers to all that was asked.
    async fn answered(&mut self, open: Open) -> At {
        let Open { mut asking, asked, until, .. } = open;
        let began = Instant::now();
        let answers = timeout_at(until, asking.all()).await;
        self.waited_since(began);
        let Ok(answers) = answers else {
            let message = format!(
                "what `{}` asks was not answered within {} s",
                self.name(),
                self.layer.parked.limits().answer.as_secs()
            );
            return At::End(Err(Error::new(Code::Timeout, message).with_kind(CLIENT_SILENT)));
        };
        drop(asking);
        let legacy = self.again.upstream.era() == Some(Era::Legacy);
        let mut given = Given::default();
        for (asked, answer) in asked.iter().zip(answers) {
            let error = match answer {
                Answer::Result(result) if questions::answers_to(asked.method, &result) => {
                    given.answers.push((asked.key.clone(), result));
                    continue;
                }
                Answer::Result(_) => malformed(),
                Answer::Error(error) => error,
            };
            // A server of the same era is told as it is; any other has no form for it but this.
            if legacy {
                given.refusals.push((asked.key.clone(), error));
            } else if asked.method == Method::Elicit {
                given.answers.push((asked.key.clone(), CANCEL));
            } else {
                return At::End(self.client_refused(asked.method));
            }
        }
        At::Answered(given)
    }

    /// Makes the call again with what the client answered.
    async fn go_on(&mut self, given: Given) -> At {
        let reply = self.repeat(&given.answers, given.refusals).await;
        match reply.map(|reply| reply.content) {
            Ok(Content::Final(end)) => self.next(end).await,
            Ok(Content::Stream(stream)) => At::Relaying(stream),
            Ok(Content::Nothing) => {
                At::End(Err(Error::new(Code::Internal, "the call had no answer")))
            }
            Err(error) => At::End(Err(error)),
        }
    }

    /// The client would not do what the server asks, and the server's era has no word for that.
    fn client_refused(&self, method: Method) -> Result<Final, Error> {
        let name = self.name();
        let message =
            format!("The client refused what `{name}` asked of it ({}).", method.as_str());
        if !matches!(self.again.request, SouthRequest::CallTool { .. }) {
            return Err(Error::new(Code::CapabilityMissing, message).with_kind("client_refused"));
        }
        let mut raw = Vec::with_capacity(160);
        raw.extend_from_slice(b"{\"content\":[{\"type\":\"text\",\"text\":");
        json::write_str(&mut raw, &message);
        raw.extend_from_slice(b"}],\"isError\":true}");
        let shape = Shape { is_error: Some(true), ..Shape::default() };
        Ok(Final::Result(ResultBody { shape, ..ResultBody::own(raw.into()) }))
    }

    /// Makes the call again, with answers and the state.
    async fn repeat(
        &mut self,
        answers: &[(Box<str>, Bytes)],
        refusals: Vec<(Box<str>, RpcError)>,
    ) -> Result<Reply, Error> {
        let left = self.end().saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.too_long());
        }
        let mut routed = self.again.clone();
        routed.refusals = refusals;
        match &mut routed.request {
            SouthRequest::CallTool { max_time, .. } | SouthRequest::Ask { max_time, .. } => {
                *max_time = left;
            }
            SouthRequest::Probe
            | SouthRequest::List { .. }
            | SouthRequest::Listen(_)
            | SouthRequest::Subscribe { .. } => {}
        }
        if let Some(members) = params_mut(&mut routed.request) {
            members.retain(|member| !is(&member.key, ANSWERS) && !is(&member.key, STATE));
            if !answers.is_empty() {
                let key = Bytes::from_static(ANSWERS.as_bytes());
                members.push(RawMember { key, value: questions::write_answers(answers) });
            }
            if let Some(held) = self.held.take() {
                let mut value = Vec::new();
                json::write_str(&mut value, &held.bring());
                let key = Bytes::from_static(STATE.as_bytes());
                members.push(RawMember { key, value: value.into() });
            }
        }
        poll_fn(|cx| self.inner.poll_ready(cx)).await?;
        self.inner.call(routed).await
    }
}

/// What a server is told of an answer that is none.
fn malformed() -> RpcError {
    RpcError {
        code: i64::from(rpc::INVALID_PARAMS),
        message: Bytes::from_static(b"\"the client's answer is none to the question\""),
        data: None,
    }
}
