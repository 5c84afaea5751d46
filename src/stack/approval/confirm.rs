//! The person a call is made for is asked whether it is meant, through his own client.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tower::Service;

use super::{ApprovalLayer, Used, held::Held, told};
use crate::{
    approval::Use,
    dialect::questions::{self, Asked},
    error::{Code, Error},
    json,
    mcp::{Capabilities, Method, Version},
    model::{
        call::Call,
        exchange::NorthDialect,
        reply::{Content, Event, Final, Question, Reply, ReplyStream},
    },
    stack::{
        asked::{Answer, Asking},
        parked::Holder,
        stage::Permitted,
    },
};

/// Under which the answer comes.
const KEY: &str = "confirm";

/// The most that a question shows of the arguments, in characters: more nobody reads.
const SHOWN: usize = 4_000;

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Yes,
    No,
    /// He did not choose.
    Nothing,
    TooLate,
    /// The client answered what is no answer.
    Unreadable,
}

/// Whether the client of a call can be asked at all.
pub fn can_ask(call: &Call) -> bool {
    let declared = call.client.capabilities.contains(Capabilities::ELICITATION);
    match call.dialect {
        NorthDialect::Modern => declared,
        NorthDialect::Legacy(version) => {
            declared && version >= Version::V2025_06_18 && call.client.session.is_some()
        }
        NorthDialect::McpLite => false,
    }
}

/// The question, as 2026-07-28 has it: whoever accepts confirms, there is nothing to fill in.
pub fn question(held: &Held) -> Asked {
    let mut canonical = Vec::new();
    json::canonical(&held.arguments, &mut canonical);
    let whole = String::from_utf8_lossy(&canonical);
    let mut shown: String = whole.chars().take(SHOWN).map(plain).collect();
    let rest = whole.chars().count().saturating_sub(SHOWN);
    if rest > 0 {
        shown.push_str(&format!("… ({rest} characters more)"));
    }
    let why = held.say_confirm.as_deref().map(|say| format!("{say} ")).unwrap_or_default();
    let tool = &held.subject.tool;
    let message =
        format!("{why}`{tool}` is about to be called with {shown}. Is that what you want?");
    let params = json!({
        "mode": "form",
        "message": message,
        "requestedSchema": { "type": "object", "properties": {} },
    });
    let params = Some(Bytes::from(params.to_string()));
    Asked { key: KEY.into(), method: Method::Elicit, params }
}

/// What would show a person another text than there is.
fn plain(c: char) -> char {
    match c {
        '\u{7f}'..='\u{9f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}'
        | '\u{feff}' => '\u{fffd}',
        c => c,
    }
}

/// What the answers of a call say to the question.
pub fn said(answers: Option<&Bytes>) -> Said {
    let answers = answers.and_then(questions::answers).unwrap_or_default();
    let answer = answers.iter().find(|(key, _)| **key == *KEY);
    answer.map_or(Said::Unreadable, |(_, answer)| said_by(answer))
}

fn said_by(answer: &Bytes) -> Said {
    if !questions::answers_to(Method::Elicit, answer) {
        return Said::Unreadable;
    }
    match questions::action(answer).as_deref() {
        Some("accept") => Said::Yes,
        Some("decline") => Said::No,
        _ => Said::Nothing,
    }
}

/// Asks a client of the handshake era in the middle of its call, which goes on with its answer.
pub(super) fn in_the_call<S>(
    layer: Arc<ApprovalLayer>,
    inner: S,
    permitted: Permitted,
    held: Held,
) -> Result<Reply, Error>
where
    S: Service<Permitted, Response = Reply, Error = Error> + Send + 'static,
    S::Future: Send,
{
    let call = &permitted.call;
    let (NorthDialect::Legacy(version), Some(session)) = (call.dialect, call.client.session) else {
        return Err(told::cannot_be_asked(&held));
    };
    let upstream = match (&permitted.tool, &permitted.asked) {
        (Some(tool), _) => &tool.upstream,
        (None, Some(asked)) => &asked.upstream,
        (None, None) => return Err(told::cannot_be_asked(&held)),
    };
    let holder = Holder::new(upstream, Some(&call.caller));
    let employee = call.caller.principal.employee.clone();
    let asking = layer.asked.ask(holder, session, employee, 1)?;
    let Asked { method, params, .. } = question(&held);
    let id = asking.ids().first().cloned().unwrap_or_default();
    let params = questions::to_legacy(method, params, version, &id);
    let first = Event::Question(Question { id, method, params });
    let rest = async move {
        match heard(&layer, &permitted, asking).await {
            // Its place among the calls that run it has to take again before it goes on.
            Ok(()) => {
                let run = stream::once(run(layer, inner, permitted, held)).flatten();
                let events: ReplyStream = Box::pin(stream::iter([Event::Answered]).chain(run));
                events
            }
            Err(error) => ended(Err(error)),
        }
    };
    let events = stream::iter([first]).chain(stream::once(rest).flatten());
    let content = Content::Stream(Box::pin(events));
    Ok(Reply { headers: smallvec::SmallVec::new(), content })
}

fn ended(end: Result<Final, Error>) -> ReplyStream {
    Box::pin(stream::iter([Event::End(end)]))
}

/// Waits for what the client says to the question.
async fn heard(
    layer: &ApprovalLayer,
    permitted: &Permitted,
    mut asking: Asking,
) -> Result<(), Error> {
    let exchange = &permitted.call.exchange;
    let began = Instant::now();
    let answer = timeout(layer.asked.limits().answer, asking.all()).await;
    let waited = began.elapsed();
    exchange.facts().waited += waited;
    let said = match answer.as_deref() {
        Err(_) => Said::TooLate,
        Ok([Answer::Result(result)]) => said_by(result),
        Ok(_) => Said::Unreadable,
    };
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    layer.heard(exchange, said, waited_ms)
}

/// Makes the call that was confirmed, if nobody else is to say yes, or has.
async fn run<S>(
    layer: Arc<ApprovalLayer>,
    inner: S,
    permitted: Permitted,
    held: Held,
) -> ReplyStream
where
    S: Service<Permitted, Response = Reply, Error = Error> + Send + 'static,
    S::Future: Send,
{
    let mut used = Used::default();
    if !held.demands.is_empty() {
        match layer.ask(&permitted, &held, Use::Now).await {
            Ok(id) => used.approval = Some(id),
            Err(error) => return ended(Err(error)),
        }
    }
    match layer.run(inner, permitted, held, used).await.map(|reply| reply.content) {
        Ok(Content::Stream(events)) => events,
        Ok(Content::Final(end)) => ended(Ok(end)),
        Ok(Content::Nothing) => ended(Err(Error::new(Code::Internal, "the call had no answer"))),
        Err(error) => ended(Err(error)),
    }
}
