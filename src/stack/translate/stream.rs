//! A server's event stream: read as it comes, relayed as far as the caller asked for it.
//!
//! Progress goes on under the caller's own token; what belongs to families that are not served
//! is left out; a question is answered with the refusal the server must expect.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::{
    super::answer,
    give_up::GiveUp,
    southbound::{Read, Request, timed_out},
};
use crate::{
    body::Body,
    dialect::{south, sse},
    error::{Code, Error},
    model::reply::{Event, Final, Notification, ReplyStream},
};

const PROGRESS: &str = "notifications/progress";

/// How many questions of a server are answered during one call: each costs a request.
const QUESTIONS: usize = 64;

/// The events of one answer.
pub(crate) struct Events {
    body: Body,
    parser: sse::Parser,
    /// Read ahead of the stream's start: the notification that made a stream of it.
    first: Option<Notification>,
    /// Bytes that may still come.
    left: usize,
    /// Questions that will still be answered.
    questions: usize,
}

/// One step of a stream.
enum Step {
    Notification(Notification),
    End(Final),
}

impl Events {
    pub(super) fn new(body: Body, cap: usize) -> Self {
        Self { body, parser: sse::Parser::new(cap), first: None, left: cap, questions: QUESTIONS }
    }

    /// The next thing of the stream that concerns the caller.
    async fn next(&mut self, request: &Request, give_up: &GiveUp) -> Result<Step, Error> {
        let name = request.upstream.name.as_str();
        loop {
            while let Some(event) = self.parser.next() {
                let event = event.map_err(|_| too_large(request))?;
                // A priming event has no data and is no message.
                if event.data.is_empty() {
                    continue;
                }
                match south::read_message(event.data, request.id) {
                    Ok(south::Incoming::End(end)) => return Ok(Step::End(end)),
                    Ok(south::Incoming::Notification(notification)) => {
                        if let Some(notification) = wanted(request, notification) {
                            return Ok(Step::Notification(notification));
                        }
                    }
                    Ok(south::Incoming::Question { id, method }) => {
                        if method.as_ref() != "ping" {
                            tracing::warn!(
                                upstream.name = name,
                                "a server asked a question that no capability entitles it to"
                            );
                        }
                        let Some(left) = self.questions.checked_sub(1) else {
                            return Err(answer::failure(name, "asked too much during one call"));
                        };
                        self.questions = left;
                        give_up.answer(&id, &method);
                    }
                    Err(error) => {
                        let what = "sent an event that is no message";
                        return Err(answer::failure(name, what).with_cause(error));
                    }
                }
            }
            match self.body.frame().await {
                None => {
                    return Err(answer::failure(name, "ended its stream before the answer")
                        .with_kind("stream_ended"));
                }
                Some(Err(cause)) => return Err(answer::broken(name, cause)),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.left =
                        self.left.checked_sub(data.len()).ok_or_else(|| too_large(request))?;
                    self.parser.push(data);
                }
            }
        }
    }
}

fn too_large(request: &Request) -> Error {
    let upstream = &request.upstream;
    let message = format!(
        "the answer of `{}` is larger than {} bytes",
        upstream.name, upstream.max_response_bytes
    );
    Error::new(Code::PayloadTooLarge, message)
        .with_kind("response_too_large")
        .with_unknown_outcome()
        .from_upstream()
}

/// What of a notification the caller gets: progress of its call, under its own token.
fn wanted(request: &Request, notification: Notification) -> Option<Notification> {
    let token = request.progress_token.as_ref()?;
    if &*notification.method != PROGRESS {
        return None;
    }
    let params: Bytes = south::progress_for(&notification.params?, request.id, token)?;
    Some(Notification { method: notification.method, params: Some(params) })
}

/// Reads up to the first thing that concerns the caller: an end is a plain answer, a
/// notification makes a stream.
pub(super) async fn first(
    request: &Request,
    mut events: Events,
    give_up: &GiveUp,
) -> Result<Read, Error> {
    match events.next(request, give_up).await? {
        Step::End(end) => Ok(Read::End(end)),
        Step::Notification(notification) => {
            events.first = Some(notification);
            Ok(Read::Stream(events))
        }
    }
}

/// Where a relayed stream stands.
struct Relay {
    request: Request,
    events: Events,
    /// Gone with the end of the stream.
    give_up: Option<GiveUp>,
}

/// The rest of a stream. Progress starts the clock anew, the end of the call does not move.
pub(super) fn relay(request: Request, events: Events, give_up: GiveUp) -> ReplyStream {
    let relay = Relay { request, events, give_up: Some(give_up) };
    Box::pin(stream::unfold(relay, |mut relay| async move {
        // The last event took it.
        let give_up = relay.give_up.take()?;
        if let Some(notification) = relay.events.first.take() {
            relay.give_up = Some(give_up);
            return Some((Event::Notification(notification), relay));
        }
        let deadline = deadline(&relay.request);
        // A server that always has something to say would never be looked at the clock for.
        if Instant::now() >= relay.request.end {
            let error = timed_out(&relay.request);
            relay.request.close(Err(&error));
            // Dropped with what is left of the stream, `give_up` tells the server.
            return Some((Event::End(Err(error)), relay));
        }
        let step = match timeout_at(deadline, relay.events.next(&relay.request, &give_up)).await {
            Ok(Ok(Step::Notification(notification))) => {
                relay.give_up = Some(give_up);
                return Some((Event::Notification(notification), relay));
            }
            Ok(Ok(Step::End(end))) => Ok(end),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(timed_out(&relay.request)),
        };
        // A server that let its time run out is told; one that ended the stream knows.
        if !matches!(&step, Err(error) if error.code() == Code::Timeout) {
            give_up.disarm();
        }
        relay.request.close(step.as_ref());
        Some((Event::End(step), relay))
    }))
}

fn deadline(request: &Request) -> Instant {
    let quiet: Duration = request.timeout;
    (Instant::now() + quiet).min(request.end)
}
