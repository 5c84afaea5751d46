//! Streams of notices towards clients: each message of 2026-07-28 tagged with the id of its
//! request, those of the handshake revisions as they are.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, future::ready};

use crate::{
    dialect::notices,
    mcp::Method,
    model::{
        exchange::Exchange,
        reply::{Content, Event, Final, Notification, Reply, ResultBody},
    },
    telemetry::Telemetry,
};

/// A stream of 2026-07-28: every message carries the id of the request that opened it.
pub(super) fn tagged(reply: Reply, id: &Bytes, spans: Spans) -> Reply {
    let id = id.clone();
    map(reply, spans, move |event| match event {
        Event::Notification(Notification { method, params }) => {
            let params = Some(notices::tagged(params.as_ref(), &id));
            Some(Event::Notification(Notification { method, params }))
        }
        Event::End(Ok(Final::Result(_))) => {
            let end = ResultBody::own(notices::end_result(&id));
            Some(Event::End(Ok(Final::Result(end))))
        }
        other => Some(other),
    })
}

/// The stream of a session, which no request asked for: it ends without a response.
pub(super) fn bare(reply: Reply, spans: Spans) -> Reply {
    map(reply, spans, |event| match event {
        Event::End(_) => None,
        other => Some(other),
    })
}

/// What makes a span of each notice.
pub(super) struct Spans {
    pub telemetry: Arc<Telemetry>,
    pub exchange: Arc<Exchange>,
}

impl Spans {
    fn note(&self, event: &Event) {
        // That the stream has begun is told by the span of its request.
        if let Event::Notification(notification) = event
            && let method = Method::parse(&notification.method)
            && method != Method::Acknowledged
        {
            self.telemetry.told(&self.exchange, method);
        }
    }
}

fn map(
    mut reply: Reply,
    spans: Spans,
    change: impl FnMut(Event) -> Option<Event> + Send + 'static,
) -> Reply {
    reply.content = match reply.content {
        Content::Stream(stream) => {
            let changed = stream.inspect(move |event| spans.note(event)).map(change);
            Content::Stream(Box::pin(
                changed.take_while(|event| ready(event.is_some())).filter_map(ready),
            ))
        }
        other => other,
    };
    reply
}
