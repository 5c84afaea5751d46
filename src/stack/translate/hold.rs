//! How long the head of an answer is held back: its status depends on the first thing that comes,
//! but whoever stands between must not take a long silence for a dead connection.

use std::{
    future::{Future, ready},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use http::{HeaderMap, header as http_header};
use tokio::time::timeout;

use super::northbound::NorthboundConfig;
use crate::{
    error::Error,
    model::{
        call::Request,
        reply::{Content, Event, Reply, ReplyStream},
    },
};

/// What a call comes to.
type Outcome = Result<Reply, Error>;

/// How long the head of a request's answer is held, if not for ever: a client that takes no
/// stream gets the one answer, and what the gateway answers itself takes no time.
pub(super) fn hold_of(
    request: &Request,
    headers: &HeaderMap,
    config: &NorthboundConfig,
) -> Option<Duration> {
    let long = matches!(request, Request::CallTool(_) | Request::Ask(_));
    (long && takes_streams(headers)).then_some(config.hold)
}

/// Whether a client can take a stream instead of one answer: it has to say so.
fn takes_streams(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(http_header::ACCEPT).iter();
    let types = |value: &[u8]| {
        value.split(|byte| *byte == b',').any(|part| {
            let essence = part.split(|byte| *byte == b';').next().unwrap_or_default();
            essence.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
        })
    };
    values.any(|value| types(value.as_bytes()))
}

/// Waits for a call, for as long as the head may be held. After that the answer is a stream in
/// which the call's own follows.
pub(super) async fn held<F>(mut call: F, hold: Duration) -> Outcome
where
    F: Future<Output = Outcome> + Unpin + Send + 'static,
{
    match timeout(hold, &mut call).await {
        Ok(outcome) => outcome,
        Err(_) => Ok(late(call)),
    }
}

fn late(call: impl Future<Output = Outcome> + Send + 'static) -> Reply {
    let events = stream::once(call).flat_map(|outcome| -> ReplyStream {
        let end = match outcome {
            Ok(Reply { content: Content::Stream(events), .. }) => return events,
            Ok(Reply { content: Content::Final(end), .. }) => Ok(end),
            Ok(Reply { content: Content::Nothing, .. }) => return Box::pin(stream::empty()),
            Err(error) => Err(error),
        };
        Box::pin(stream::once(ready(Event::End(end))))
    });
    Reply { headers: smallvec::SmallVec::new(), content: Content::Stream(Box::pin(events)) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;

    use super::*;
    use crate::{
        error::Code,
        model::reply::{Final, ResultBody},
    };

    const HOLD: Duration = Duration::from_secs(10);

    fn reply() -> Outcome {
        Ok(Reply::result(ResultBody::own(Bytes::from_static(b"{}"))))
    }

    async fn after(seconds: u64, outcome: Outcome) -> Outcome {
        let call = async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            outcome
        };
        held(Box::pin(call), HOLD).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_time_is_answered_as_it_is() {
        let Ok(reply) = after(9, reply()).await else { panic!() };
        assert!(matches!(reply.content, Content::Final(Final::Result(_))));
        assert!(after(9, Err(Error::new(Code::Timeout, "t"))).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_later_follows_in_a_stream() {
        let late = async |outcome| {
            let begun = tokio::time::Instant::now();
            let Ok(reply) = after(30, outcome).await else { panic!() };
            assert_eq!(begun.elapsed(), HOLD);
            let Content::Stream(events) = reply.content else { panic!() };
            let events: Vec<Event> = events.collect().await;
            assert_eq!(begun.elapsed().as_secs(), 30);
            events
        };
        assert!(matches!(late(reply()).await[..], [Event::End(Ok(_))]));
        assert!(matches!(
            late(Err(Error::new(Code::Timeout, "t"))).await[..],
            [Event::End(Err(_))]
        ));
        // What has no answer ends without one.
        assert!(late(Ok(Reply::nothing())).await.is_empty());
    }

    #[test]
    fn a_client_takes_streams_where_it_says_so() {
        for (accept, takes) in [
            (&["application/json, text/event-stream"][..], true),
            (&["application/json", "Text/Event-Stream;q=0.5"], true),
            (&["application/json"], false),
            (&["*/*"], false),
            (&["text/event-streams"], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(http_header::ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(takes_streams(&headers), takes, "{accept:?}");
        }
    }
}
