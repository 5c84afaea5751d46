//! A server's event stream: read as it comes, relayed as far as the caller asked for it.
//!
//! Progress goes on under the caller's own token, log messages from the level on that the caller
//! wants; what belongs to families that are not served is left out. A question that the caller can
//! be asked is kept; any other is answered with the refusal the server must expect.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use http::Response;
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    super::{
        answer,
        parked::ParkedCalls,
        stage::{BoxFuture, Upstream},
    },
    give_up::{GiveUp, Owed},
    park,
    reconnect::Resumption,
    side::{SideCall, SideQuestion},
    southbound::{Opened, Request, finish, open, timed_out},
};
use crate::{
    body::{Body, BoxError},
    dialect::{questions, south, sse},
    error::{Code, Error, Trouble},
    mcp::Method,
    model::reply::{Content, Event, Final, Notification, Reply, ReplyStream},
    telemetry::{Metrics, OpenStream},
};

/// An answer whose stream, if it is one, is counted as long as it is read.
pub(super) fn counted(mut reply: Reply, metrics: &Arc<Metrics>, upstream: &Upstream) -> Reply {
    if let Content::Stream(events) = reply.content {
        let open = metrics.stream(upstream.name.shared());
        reply.content = Content::Stream(Box::pin(Counted { events, _open: open }));
    }
    reply
}

struct Counted {
    events: ReplyStream,
    _open: OpenStream,
}

impl Stream for Counted {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.as_mut().poll_next(cx)
    }
}

/// How many questions of a server are refused or answered for it during one call: each costs a
/// request.
const REFUSED: usize = 64;

/// How many questions of a server may wait for answers at once.
const WAITING: usize = 16;

/// How long more questions are waited for after one has come: servers that ask several things
/// write them one after the other, and each round costs a human's time.
const MORE: Duration = Duration::from_millis(50);

/// Where messages of a call come from.
enum Source {
    /// The answer has not begun.
    Head(BoxFuture<Response<Body>>),
    Body(Body),
}

/// The events of one answer.
pub(crate) struct Events {
    source: Source,
    /// Questions that come on the session's own stream.
    side: Option<SideCall>,
    parser: sse::Parser,
    /// Read ahead of the stream's start: the notification that made a stream of it.
    first: VecDeque<Notification>,
    /// Bytes that may still come.
    left: usize,
    /// Questions that will still be refused.
    refusals: usize,
    /// How many questions have been kept so far.
    kept: usize,
    /// Until then more questions are waited for.
    more: Instant,
    resumption: Resumption,
    /// How often the call has asked.
    pub(super) rounds: usize,
}

/// A call that is under way.
pub(super) struct Live {
    pub request: Request,
    pub events: Events,
    pub give_up: GiveUp,
}

/// One step of a stream.
pub(super) enum Step {
    Notification(Notification),
    /// The server waits for answers to all that is owed.
    Asks,
    End(Final),
}

impl Events {
    /// Of an answer whose head has been read.
    pub(super) fn new(body: Body, cap: usize) -> Self {
        Self::of(Source::Body(body), None, cap)
    }

    /// Of an answer that is yet to come, while questions may come elsewhere.
    pub(super) fn awaited(head: BoxFuture<Response<Body>>, side: SideCall, cap: usize) -> Self {
        Self::of(Source::Head(head), Some(side), cap)
    }

    fn of(source: Source, side: Option<SideCall>, cap: usize) -> Self {
        Self {
            source,
            side,
            parser: sse::Parser::new(cap),
            first: VecDeque::new(),
            left: cap,
            refusals: REFUSED,
            kept: 0,
            more: Instant::now(),
            resumption: Resumption::default(),
            rounds: 0,
        }
    }

    /// Waits for more questions from now on, before those that are owed are asked.
    pub(super) fn wait_for_more(&mut self) {
        self.more = Instant::now() + MORE;
    }

    /// The next thing of the stream that concerns the caller.
    pub(super) async fn next(
        &mut self,
        request: &Request,
        give_up: &mut GiveUp,
    ) -> Result<Step, Error> {
        let name = request.upstream.name.as_str();
        loop {
            while let Some(event) = self.parser.next() {
                let event = event.map_err(|_| too_large(request))?;
                self.resumption.note(&event);
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
                    Ok(south::Incoming::Question { id, method, params }) => {
                        self.asked(request, give_up, id, &method, params)?;
                    }
                    Err(error) => {
                        let what = "sent an event that is no message";
                        return Err(answer::failure(name, what).with_cause(error));
                    }
                }
            }
            let broken = match self.wait(!give_up.owed.is_empty()).await {
                Woke::Enough => return Ok(Step::Asks),
                Woke::Question(SideQuestion { id, method, params }) => {
                    self.asked(request, give_up, id, &method, params)?;
                    continue;
                }
                Woke::Head(response) => match open(request, give_up, response?).await? {
                    Opened::End(end) => return Ok(Step::End(end)),
                    Opened::Body(body) => {
                        self.source = Source::Body(body);
                        continue;
                    }
                },
                Woke::Frame(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.left =
                        self.left.checked_sub(data.len()).ok_or_else(|| too_large(request))?;
                    self.parser.push(data);
                    continue;
                }
                Woke::Frame(Some(Err(cause))) => answer::broken(name, cause),
                Woke::Frame(None) => answer::failure(name, "ended its stream before the answer")
                    .with_kind("stream_ended")
                    .with_trouble(Trouble::Lost),
            };
            if give_up.is_lost() {
                return Err(answer::session_lost(name));
            }
            self.source = Source::Body(self.resumption.resume(name, give_up, broken).await?);
            // What came of an event that was cut off comes again.
            self.parser = sse::Parser::new(self.left);
        }
    }

    /// Waits for whatever comes first.
    async fn wait(&mut self, owes: bool) -> Woke {
        let more = self.more;
        let (source, side) = (&mut self.source, &mut self.side);
        let message = async {
            match source {
                Source::Head(head) => Woke::Head(head.await),
                Source::Body(body) => Woke::Frame(body.frame().await),
            }
        };
        if side.is_none() && !owes {
            return message.await;
        }
        let question = async {
            let question = match side {
                Some(side) => side.next().await,
                None => None,
            };
            match question {
                Some(question) => Woke::Question(question),
                None => std::future::pending().await,
            }
        };
        let enough = async {
            if !owes {
                return std::future::pending().await;
            }
            sleep_until(more).await;
            Woke::Enough
        };
        tokio::select! {
            woke = message => woke,
            woke = question => woke,
            woke = enough => woke,
        }
    }

    /// Keeps a question that the caller can be asked, and refuses any other.
    fn asked(
        &mut self,
        request: &Request,
        give_up: &mut GiveUp,
        id: Bytes,
        method: &str,
        params: Option<Bytes>,
    ) -> Result<(), Error> {
        let name = request.upstream.name.as_str();
        let too_much = || answer::failure(name, "asked too much during one call");
        let kind = Method::parse(method);
        let declared = request.upstream.declares(&request.client, request.dialect);
        if questions::needs(kind, params.as_ref()).is_some_and(|needed| declared.contains(needed)) {
            if give_up.owed.len() >= WAITING {
                return Err(too_much());
            }
            if give_up.owed.is_empty() {
                self.wait_for_more();
            }
            self.kept += 1;
            let key = format!("q{}", self.kept).into();
            give_up.owed.push(Owed { id, key, method: kind, params });
            return Ok(());
        }
        if kind != Method::Ping && request.caller.is_some() {
            tracing::warn!(
                upstream.name = name,
                "a server asked a question that no capability entitles it to"
            );
        }
        self.refusals = self.refusals.checked_sub(1).ok_or_else(too_much)?;
        give_up.answer(&id, method);
        Ok(())
    }
}

/// What a wait ended with.
enum Woke {
    Head(Result<Response<Body>, Error>),
    Frame(Option<Result<http_body::Frame<Bytes>, BoxError>>),
    Question(SideQuestion),
    /// No more questions are waited for.
    Enough,
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

/// What of a notification the caller gets: progress of its call, under its own token, and log
/// messages that are severe enough.
fn wanted(request: &Request, notification: Notification) -> Option<Notification> {
    match Method::parse(&notification.method) {
        Method::Progress => {
            let token = request.progress_token.as_ref()?;
            let params: Bytes = south::progress_for(&notification.params?, request.id, token)?;
            Some(Notification { method: notification.method, params: Some(params) })
        }
        Method::Message => {
            let least = request.client.log_level?;
            let level = south::level_of(notification.params.as_ref()?)?;
            (level >= least).then_some(notification)
        }
        _ => None,
    }
}

/// What a stream turned out to be, once the first of it was read.
pub(super) enum First {
    End(Final),
    Stream,
    Asks,
}

/// Reads up to the first thing that concerns the caller: an end is a plain answer, a
/// notification makes a stream.
pub(super) async fn first(
    request: &Request,
    events: &mut Events,
    give_up: &mut GiveUp,
) -> Result<First, Error> {
    match events.next(request, give_up).await? {
        Step::End(end) => Ok(First::End(end)),
        Step::Asks => Ok(First::Asks),
        Step::Notification(notification) => {
            events.first.push_back(notification);
            Ok(First::Stream)
        }
    }
}

/// The rest of a stream. Progress starts the clock anew, the end of the call does not move.
pub(super) fn relay(parked: std::sync::Arc<ParkedCalls>, live: Live) -> ReplyStream {
    Box::pin(stream::unfold(Some((parked, live)), |state| async move {
        // The last event took it.
        let (parked, mut live) = state?;
        if let Some(notification) = live.events.first.pop_front() {
            return Some((Event::Notification(notification), Some((parked, live))));
        }
        let deadline = deadline(&live.request);
        // A server that always has something to say would never be looked at the clock for.
        if Instant::now() >= live.request.end {
            let error = timed_out(&live.request);
            live.request.close(Err(&error));
            // Dropped with what is left of the stream, `give_up` tells the server.
            return Some((Event::End(Err(error)), None));
        }
        let Live { request, events, give_up } = &mut live;
        let step = match timeout_at(deadline, events.next(request, give_up)).await {
            Ok(Ok(Step::Notification(notification))) => {
                return Some((Event::Notification(notification), Some((parked, live))));
            }
            Ok(Ok(Step::Asks)) => {
                return Some((Event::End(park::park(&parked, live)), None));
            }
            Ok(Ok(Step::End(end))) => Ok(end),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(timed_out(&live.request)),
        };
        let Live { mut request, give_up, .. } = live;
        // A server that let its time run out is told; one that ended the stream knows.
        if !matches!(&step, Err(error) if error.code() == Code::Timeout) {
            give_up.disarm();
        }
        request.close(step.as_ref());
        let name = request.upstream.name.as_str();
        let step = step.and_then(|end| answer::not_ours(end, name));
        let step = step.and_then(|end| finish(&request, end));
        Some((Event::End(step), None))
    }))
}

pub(super) fn deadline(request: &Request) -> Instant {
    let quiet: Duration = request.timeout;
    (Instant::now() + quiet).min(request.end)
}
