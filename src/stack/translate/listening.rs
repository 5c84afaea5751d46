//! A server's stream of notices: `subscriptions/listen` of 2026-07-28, or what a session of the
//! handshake era offers by `GET`.
//!
//! It lasts as long as somebody reads it: the clocks of calls do not apply, but one that says
//! nothing at all for long is taken for dead. What is no notice is not passed on; a question gets
//! the refusal that whoever declared no capability owes.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header as http_header};
use http_body_util::BodyExt;
use tokio::time::timeout;
use tower::Service;

use super::{
    super::{
        answer::{self, Media},
        stage::{HeldSession, Hop},
    },
    southbound::{Request, timed_out},
};
use crate::{
    body::{Body, Pieces},
    dialect::{
        notices,
        south::{self, Incoming, Speech},
        sse,
    },
    error::{Code, Error},
    mcp::{Method, rpc},
    model::reply::{Content, Event, Final, Reply, ReplyStream},
};

/// The largest event.
const EVENT_BYTES: usize = 1 << 20;

/// A stream on which not even a comment came for so long is opened anew.
const QUIET: Duration = Duration::from_secs(300);

/// Opens the stream.
pub(super) async fn open<S>(
    mut inner: S,
    mut request: Request,
    mut hop: Hop,
) -> Result<Reply, Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let name = request.upstream.name.as_str();
    if request.speech == Speech::Lite {
        let message = format!("`{name}` has no form for notices");
        return Err(Error::protocol(Code::NotFound, rpc::METHOD_NOT_FOUND, 404, message));
    }
    let aside = hop.clone();
    if let Speech::Legacy(_) = request.speech {
        hop.method = http::Method::GET;
        hop.body = Pieces::default();
        hop.headers.remove(http_header::CONTENT_TYPE);
        hop.headers.insert(http_header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    }
    let opened = timeout(request.timeout, async {
        let response = inner.call(hop).await?;
        begin(&request, response).await
    });
    let begun = opened.await.map_err(|_| timed_out(&request)).and_then(|begun| begun);
    let content = match begun {
        Ok(Begun::Stream(body, session)) => {
            let beside = Beside { hop: Hop { held: session, ..aside }, inner };
            Content::Stream(events(request, body, beside))
        }
        Ok(Begun::End(end)) => {
            request.close(Ok(&end));
            Content::Final(end)
        }
        Err(error) => {
            request.close(Err(&error));
            return Err(error);
        }
    };
    Ok(Reply { headers: smallvec::SmallVec::new(), content })
}

enum Begun {
    /// And the session that it is of, which is in use as long as the stream is read.
    Stream(Body, Option<HeldSession>),
    End(Final),
}

async fn begin(request: &Request, response: Response<Body>) -> Result<Begun, Error> {
    let name = request.upstream.name.as_str();
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        let end =
            answer::standard_failure(head.status, &head.headers, body, request.id, name).await?;
        return Ok(Begun::End(end));
    }
    match answer::media(&head.headers) {
        Media::EventStream => Ok(Begun::Stream(body, head.extensions.get().cloned())),
        Media::Json => {
            let text = answer::collect(body, EVENT_BYTES, name).await?;
            match south::read_message(text, request.id)? {
                Incoming::End(end) => Ok(Begun::End(end)),
                _ => Err(answer::failure(name, "opened no stream of notices")),
            }
        }
        Media::Html | Media::Other => Err(answer::failure(name, "opened no stream of notices")),
    }
}

/// The way to answer what a server asks on its stream.
struct Beside<S> {
    hop: Hop,
    inner: S,
}

impl<S> Beside<S>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    fn answer(&self, id: &[u8], method: &str) {
        let mut inner = self.inner.clone();
        let body = south::answer_body(id, method);
        let answer = self.hop.beside(self.hop.headers.clone(), body.into());
        let answer = async move {
            if std::future::poll_fn(|cx| inner.poll_ready(cx)).await.is_ok()
                && let Err(error) = inner.call(answer).await
            {
                tracing::debug!(%error, "an answer beside a stream did not reach its server");
            }
        };
        // One small request, bounded by the connection's own time-outs; the stream goes on.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(answer);
        }
    }
}

struct Listening<S> {
    request: Request,
    body: Body,
    parser: sse::Parser,
    beside: Beside<S>,
    over: bool,
}

fn events<S>(request: Request, body: Body, beside: Beside<S>) -> ReplyStream
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let parser = sse::Parser::new(EVENT_BYTES);
    let listening = Listening { request, body, parser, beside, over: false };
    Box::pin(stream::unfold(listening, |mut listening| async move {
        if listening.over {
            return None;
        }
        let event = match listening.next().await {
            Ok(event) => event,
            Err(error) => Event::End(Err(error)),
        };
        if let Event::End(end) = &event {
            listening.over = true;
            listening.request.close(end.as_ref());
        }
        Some((event, listening))
    }))
}

impl<S> Listening<S>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    async fn next(&mut self) -> Result<Event, Error> {
        let upstream = self.request.upstream.clone();
        let name = upstream.name.as_str();
        loop {
            while let Some(event) = self.parser.next() {
                let event = event.map_err(|cause| answer::broken(name, cause))?;
                if !event.data.is_empty()
                    && let Some(event) = self.take(event.data)?
                {
                    return Ok(event);
                }
            }
            match timeout(QUIET, self.body.frame()).await {
                Err(_) => return Err(timed_out(&self.request)),
                Ok(None) => {
                    return Err(answer::failure(name, "ended its stream of notices")
                        .with_kind("stream_ended"));
                }
                Ok(Some(Err(cause))) => return Err(answer::broken(name, cause)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.parser.push(data);
                    }
                }
            }
        }
    }

    /// What of a message concerns whoever listens.
    fn take(&mut self, text: Bytes) -> Result<Option<Event>, Error> {
        let id = self.request.id;
        match south::read_message(text, id)? {
            Incoming::End(end) => Ok(Some(Event::End(Ok(end)))),
            Incoming::Notification(notification) => {
                let is_notice = matches!(
                    Method::parse(&notification.method),
                    Method::Acknowledged
                        | Method::ToolsChanged
                        | Method::PromptsChanged
                        | Method::ResourcesChanged
                        | Method::ResourceUpdated
                        | Method::TaskStatus
                );
                let ours = is_notice && notices::is_of_stream(notification.params.as_ref(), id);
                Ok(ours.then_some(Event::Notification(notification)))
            }
            Incoming::Question { id, method, .. } => {
                if let Speech::Legacy(_) = self.request.speech {
                    self.beside.answer(&id, &method);
                }
                Ok(None)
            }
        }
    }
}
