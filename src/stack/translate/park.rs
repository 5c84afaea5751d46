//! A call at a server of the handshake era while somebody is asked: put aside as a result that
//! asks, and gone on with when the answers come.
//!
//! Above here such a server looks like one of 2026-07-28: its state is the key of the parked call.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::{
    super::{
        answer,
        parked::{Holder, ParkedCalls},
        stage::{Routed, SouthRequest},
    },
    give_up::{GiveUp, Given, Owed},
    southbound::{Request, timed_out},
    stream::{Live, deadline},
};
use crate::{
    dialect::questions::{self, ANSWERS, Asked, STATE},
    error::{Code, Error},
    json::{self, Doc},
    mcp::rpc,
    model::{
        call::RawMembers,
        exchange::Exchange,
        reply::{Final, RpcError},
    },
};

/// What a call brings for a server that asked.
#[derive(Default)]
pub(super) struct Brought {
    answers: Option<Bytes>,
    state: Option<Bytes>,
}

/// A call that waits, and whose it is.
struct Waiting {
    live: Live,
    holder: Holder,
    /// When the wait is over.
    end: Instant,
}

/// Takes out of a call what no server of the handshake era knows: answers and state.
pub(super) fn take(request: &mut SouthRequest) -> Brought {
    let mut brought = Brought::default();
    let members: &mut RawMembers = match request {
        SouthRequest::CallTool { others, .. } => others,
        SouthRequest::Ask { ask, .. } => &mut ask.params,
        SouthRequest::Probe
        | SouthRequest::List { .. }
        | SouthRequest::Listen(_)
        | SouthRequest::Subscribe { .. } => return brought,
    };
    members.retain(|member| {
        let place = if member.key == ANSWERS {
            &mut brought.answers
        } else if member.key == STATE {
            &mut brought.state
        } else {
            return true;
        };
        *place = Some(member.value.clone());
        false
    });
    brought
}

impl Brought {
    /// The call goes on with one that waits. Answers without a state belong to none: what they
    /// answer was an error, such as one that named links to follow.
    pub fn goes_on(&self) -> bool {
        self.state.is_some()
    }
}

/// Puts a call aside whose server asked something.
///
/// # Errors
/// The call asks too often, or as many wait as may; the server is then told that it is given up.
pub(super) fn park(parked: &Arc<ParkedCalls>, mut live: Live) -> Result<Final, Error> {
    let limits = parked.limits();
    live.events.rounds += 1;
    if live.events.rounds > limits.rounds {
        let what = format!("asked more than {} times during one call", limits.rounds);
        let error = answer::failure(live.request.upstream.name.as_str(), &what);
        live.request.close(Err(&error));
        return Err(error);
    }
    let asked: Vec<Asked> = live.give_up.owed.iter().map(in_modern_terms).collect();
    let end = (Instant::now() + limits.answer).min(live.request.end);
    let holder = Holder::new(&live.request.upstream.name, live.request.caller.as_deref());
    // The exchange ends with this answer, whatever becomes of the call.
    let exchange = live.request.exchange.clone();
    let attempt = live.request.attempt;
    live.adopt(Arc::new(nobodys(&exchange)));
    let key = parked.park(holder.clone(), end, Box::new(Waiting { live, holder, end }));
    let end = key.map(|key| Final::Result(questions::asking(&asked, Some(&key))));
    Request::close_at(&exchange, attempt, end.as_ref());
    end
}

fn in_modern_terms(owed: &Owed) -> Asked {
    Asked {
        key: owed.key.clone(),
        method: owed.method,
        params: questions::to_modern(owed.method, owed.params.clone()),
    }
}

/// An exchange that leaves no record, in the same trace.
pub(super) fn nobodys(exchange: &Exchange) -> Exchange {
    let trace = exchange.facts().trace.clone();
    Exchange::new(trace, Instant::now(), 0, None)
}

impl Live {
    fn adopt(&mut self, exchange: Arc<Exchange>) {
        self.give_up.adopt(exchange.clone());
        self.request.exchange = exchange;
    }
}

/// Goes on with the call that a state names: the server gets its answers, and what is still owed
/// is asked again.
///
/// # Errors
/// `-32602` where no such call waits, or the answers are none.
pub(super) async fn resume(
    parked: &Arc<ParkedCalls>,
    routed: Routed,
    brought: Brought,
) -> Result<Live, Error> {
    let key = brought.state.as_ref().and_then(text).unwrap_or_default();
    let waiting = parked.take(&key).and_then(|call| call.downcast::<Waiting>().ok());
    let Some(waiting) = waiting else { return Err(start_again()) };
    let given = match given(&waiting.live.give_up, &brought, routed.refusals.as_slice()) {
        Ok(given) => given,
        Err(error) => {
            // The client may say it better, under the same state only if it has another: the one
            // it has was for one use. So the call goes back under the key that it knows.
            let Waiting { holder, end, .. } = &*waiting;
            let (holder, end) = (holder.clone(), *end);
            parked.put_back(&key, holder, end, waiting);
            return Err(error);
        }
    };
    let mut live = waiting.live;
    live.request.go_on(routed);
    live.give_up.adopt(live.request.exchange.clone());
    match timeout_at(deadline(&live.request), give(&mut live, given)).await {
        Ok(Ok(())) => {
            live.events.wait_for_more();
            Ok(live)
        }
        failed => {
            let error = match failed {
                Ok(Err(error)) => error,
                _ => timed_out(&live.request),
            };
            live.request.close(Err(&error));
            Err(error)
        }
    }
}

/// What is given for each question that is answered, by the question's id.
fn given(
    give_up: &GiveUp,
    brought: &Brought,
    refusals: &[(Box<str>, RpcError)],
) -> Result<Vec<(Bytes, Given)>, Error> {
    let malformed =
        |what: &'static str| Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 200, what);
    let answers = match &brought.answers {
        Some(raw) => questions::answers(raw)
            .ok_or_else(|| malformed("`inputResponses` must be an object of objects"))?,
        None => Vec::new(),
    };
    let mut given = Vec::new();
    for owed in &give_up.owed {
        if let Some((_, error)) = refusals.iter().find(|(key, _)| *key == owed.key) {
            given.push((owed.id.clone(), Given::Refusal(error.clone())));
            continue;
        }
        let Some((_, answer)) = answers.iter().find(|(key, _)| *key == owed.key) else { continue };
        if !questions::answers_to(owed.method, answer) {
            return Err(malformed("an answer in `inputResponses` is none to its question"));
        }
        given.push((owed.id.clone(), Given::Result(answer.clone())));
    }
    Ok(given)
}

async fn give(live: &mut Live, given: Vec<(Bytes, Given)>) -> Result<(), Error> {
    let name = live.request.upstream.name.clone();
    for (id, given) in given {
        let status = live.give_up.give(&id, &given).await?;
        live.give_up.owed.retain(|owed| owed.id != id);
        if !status.is_success() {
            let what = format!("did not take the answer to its question (status {status})");
            return Err(answer::failure(name.as_str(), &what));
        }
    }
    Ok(())
}

pub(super) fn start_again() -> Error {
    let message = "the question that this call answers is not open here any more: start again \
                   without `requestState`";
    Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 200, message)
}

fn text(value: &Bytes) -> Option<String> {
    let limits = json::Limits { depth: 1, duplicates: json::Duplicates::Allow, outline: 0 };
    let doc = Doc::parse(value.clone(), &limits).ok()?;
    doc.root().as_str().map(Into::into)
}
