//! Whether a server is called, and called again: what a failure says of the server, and which
//! calls go out once more after it.
//!
//! Sent again is what surely was not processed; and of what may have been, a read that its operator
//! calls safe, or a call under a key that its server honours. Each attempt is written anew, goes
//! through session and credential, and has a span of its own; the time of all together is the
//! call's. How many there may be is the upstream's budget.

use std::{future::poll_fn, sync::Arc};

use http::Response;
use tokio::time::{Instant, sleep};
use tower::Service;

use super::{
    super::stage::{Era, Hop, Repeat, Routed, SouthRequest, Upstream},
    marks,
    outgoing::write,
    southbound::{Request, SouthboundLayer, attempt},
    stream,
};
use crate::{
    body::Body,
    dialect::questions::{ANSWERS, STATE},
    error::{Code, Error, Next, Trouble},
    json::{self, Doc},
    model::reply::Reply,
    telemetry::Retried,
    upstream::{Probe, Tried},
};

/// Why an attempt at a request brought nothing, as the caller is told.
pub(super) struct Unserved {
    pub error: Error,
    /// The server says that the headers and arguments of a call disagree.
    pub disagrees: bool,
}

impl From<Error> for Unserved {
    fn from(error: Error) -> Self {
        Self { error, disagrees: false }
    }
}

/// Whether the request is a caller's call: what the gateway asks of its own has its own pace, and
/// a stream of notices lives as long as it likes.
pub(super) fn is_watched(routed: &Routed) -> bool {
    routed.caller.is_some()
        && matches!(routed.request, SouthRequest::CallTool { .. } | SouthRequest::Ask { .. })
}

/// Lets a call through to its server.
///
/// # Errors
/// The server keeps failing, and is left alone for a while: nothing of the call leaves.
pub(super) fn admit(layer: &SouthboundLayer, routed: &Routed) -> Result<Option<Probe>, Error> {
    if !is_watched(routed) {
        return Ok(None);
    }
    let upstream = &routed.upstream;
    upstream.retries.called();
    upstream.breaker.admit().map_err(|after| {
        let name = upstream.name.as_str();
        if let Some(metrics) = &layer.metrics {
            metrics.breaker_rejection(name);
        }
        let message = format!("`{name}` keeps failing and is not called for now");
        Error::new(Code::ExternalServiceError, message)
            .with_kind("breaker_open")
            .with_advice(true, Next::Wait)
            .with_retry_after(after.max(std::time::Duration::from_millis(1)))
    })
}

/// Where the attempts of a call are written down, if another address can be tried for it.
pub(super) fn elsewhere(routed: &Routed) -> Option<Arc<Tried>> {
    let wanted = routed.repeat != Repeat::Never
        && routed.upstream.reach.cluster().is_some_and(|cluster| cluster.has_choice());
    wanted.then(Arc::default)
}

/// How long a call may take, with all of its attempts.
pub(super) struct Times {
    /// For the beginning of an answer.
    pub deadline: Instant,
    /// In all.
    pub end: Instant,
}

/// What comes of a call whose first attempt brought nothing.
pub(super) async fn after<S>(
    mut inner: S,
    layer: &SouthboundLayer,
    routed: &Routed,
    first: Unserved,
    times: Times,
    tried: Option<Arc<Tried>>,
) -> Result<Reply, Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let Times { mut deadline, end } = times;
    let mut unserved = first;
    let mut params = None;
    let mut retries = 0;
    for number in 2.. {
        let mut probe = None;
        if unserved.disagrees {
            // The server has not begun with the call. What it wants repeated may have changed
            // since it was listed; if it has, the call goes out once more.
            if params.is_some() {
                break;
            }
            match marks::anew(&mut inner, routed).await {
                Some(anew) => params = Some(anew),
                None => break,
            }
        } else {
            retries += 1;
            match turn(layer, routed, &unserved.error, retries, deadline).await {
                Some(admitted) => probe = admitted,
                None => break,
            }
        }
        let (mut request, mut hop) = write(routed)?;
        request.numbered(number);
        (request.probe, request.end) = (probe, end);
        if let Some(params) = &params {
            marks::rewrite(&mut hop, routed, params);
        }
        hop.tried.clone_from(&tried);
        if unserved.disagrees {
            deadline = stream::deadline(&request);
        }
        poll_fn(|cx| inner.poll_ready(cx)).await?;
        match attempt(&mut inner, layer, routed, request, hop, deadline).await {
            Ok(reply) => return Ok(reply),
            Err(again) => unserved = again,
        }
    }
    Err(advised(unserved.error, routed))
}

/// Waits for the call's next turn; `None` if it has none.
async fn turn(
    layer: &SouthboundLayer,
    routed: &Routed,
    error: &Error,
    nth: usize,
    deadline: Instant,
) -> Option<Option<Probe>> {
    let upstream = &routed.upstream;
    if !is_watched(routed) || !(is_unsent(error) || may_repeat(routed, error)) {
        return None;
    }
    if nth > upstream.retries.max() {
        return None;
    }
    let tell = |what| {
        if let Some(metrics) = &layer.metrics {
            metrics.retry(upstream.name.as_str(), what);
        }
    };
    let pause = upstream.retries.pause(nth, rand::random());
    let pause = pause.max(error.retry_after().unwrap_or_default());
    let began = Instant::now();
    if began + pause >= deadline {
        tell(Retried::TooLate);
        return None;
    }
    if !upstream.retries.take() {
        tell(Retried::OverBudget);
        return None;
    }
    sleep(pause).await;
    routed.exchange.facts().waited += began.elapsed();
    let Ok(probe) = upstream.breaker.admit() else {
        tell(Retried::BreakerOpen);
        return None;
    };
    tell(Retried::Sent);
    Some(probe)
}

/// Whether nobody has seen the call, and it may be another time.
fn is_unsent(error: &Error) -> bool {
    use Trouble::{Lost, Unavailable, Unreached};
    !error.unknown_outcome() && matches!(error.trouble(), Some(Unreached | Lost | Unavailable))
}

/// Whether a call that may have been processed may be sent again.
fn may_repeat(routed: &Routed, error: &Error) -> bool {
    let passing = match error.trouble() {
        Some(Trouble::Lost | Trouble::Unavailable) => true,
        // A standard server has other words for what went wrong with a call.
        Some(Trouble::Broken) => routed.upstream.era() == Some(Era::Lite),
        _ => false,
    };
    error.unknown_outcome()
        && passing
        && error.kind() != Some("501")
        && !answers(routed)
        && match &routed.repeat {
            Repeat::Never => false,
            Repeat::Safe => true,
            Repeat::UnderKey { argument } => reaches(routed, argument.as_deref()),
        }
}

/// Whether a call brings answers to what its server asked: what became of them nobody knows.
fn answers(routed: &Routed) -> bool {
    let members = match &routed.request {
        SouthRequest::CallTool { others, .. } => others,
        SouthRequest::Ask { ask, .. } => &ask.params,
        _ => return false,
    };
    let brings = |key: &[u8]| key == ANSWERS.as_bytes() || key == STATE.as_bytes();
    !routed.refusals.is_empty() || members.iter().any(|member| brings(&member.key))
}

/// Whether the key of a call is where its server looks for it.
fn reaches(routed: &Routed, argument: Option<&str>) -> bool {
    let Some(key) = routed.idempotency_key.as_deref() else { return false };
    let Some(argument) = argument else { return !is_piped(&routed.upstream) };
    let SouthRequest::CallTool { arguments: Some(arguments), .. } = &routed.request else {
        return false;
    };
    let limits =
        json::Limits { depth: usize::MAX, duplicates: json::Duplicates::Allow, outline: 1 };
    Doc::parse(arguments.clone(), &limits)
        .is_ok_and(|doc| doc.root().get(argument).is_some_and(|value| value.is_str(key)))
}

/// A pipe has no headers.
fn is_piped(upstream: &Upstream) -> bool {
    upstream.reach.is_pipe()
}

/// Tells the caller whether the same call may simply be sent again.
fn advised(error: Error, routed: &Routed) -> Error {
    let safe = routed.repeat == Repeat::Safe
        && error.trouble().is_some_and(|trouble| trouble != Trouble::Unusable);
    if !is_watched(routed) || !(is_unsent(&error) || safe) {
        return error;
    }
    let next = if error.retry_after().is_some() { Next::Wait } else { Next::Retry };
    error.with_advice(true, next)
}

impl Request {
    /// The attempt's place among those of its call, from 1.
    fn numbered(&self, number: u8) {
        if let Some(attempt) = self.exchange.facts().attempts.get_mut(self.attempt) {
            attempt.number = number;
        }
    }

    /// The server has begun to answer.
    pub(super) fn answered(&mut self) {
        if !self.watched {
            return;
        }
        match self.probe.take() {
            Some(probe) => probe.succeeded(),
            None => self.upstream.breaker.succeeded(),
        }
    }

    /// What the end of an attempt says of the server. Neither an answer that nobody can read nor
    /// the gateway's own failure says anything.
    pub(super) fn judge(&mut self, error: Option<&Error>) {
        let Some(error) = error else { return self.answered() };
        if error.trouble().is_some() {
            if !self.watched {
                return;
            }
            match self.probe.take() {
                Some(probe) => probe.failed(),
                None => self.upstream.breaker.failed(),
            }
        } else if error.is_from_upstream()
            && !matches!(error.code(), Code::ExternalServiceError | Code::Timeout | Code::Internal)
        {
            self.answered();
        }
    }
}
