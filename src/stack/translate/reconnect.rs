//! Going on with a server's event stream that ended before the answer, where the server has given
//! its events ids: only the handshake revisions do.

use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::{
    super::answer::{self, Media},
    give_up::GiveUp,
};
use crate::{body::Body, dialect::sse, error::Error};

/// Before a stream is asked for again, where the server does not say how long.
const WAIT: Duration = Duration::from_millis(500);
/// However short a time the server names: a server that ends each stream at once is not to be
/// asked in a circle.
const SHORTEST: Duration = Duration::from_millis(50);
/// However long a time it names; the call's own limits mostly come first.
const LONGEST: Duration = Duration::from_secs(30);
/// How often in a row a stream is asked for in vain. A stream that is given and ends again is a
/// server's way to let go of connections; the call's limits bound that.
const TRIES: usize = 3;

/// Where a stream could be gone on with.
#[derive(Default)]
pub(super) struct Resumption {
    last: Option<HeaderValue>,
    wait: Option<Duration>,
}

impl Resumption {
    /// Notes what an event says about going on behind it.
    pub fn note(&mut self, event: &sse::Event) {
        if let Some(id) = &event.id {
            // An empty id takes back what was said before.
            let id = (!id.is_empty()).then(|| HeaderValue::from_bytes(id).ok()).flatten();
            self.last = id;
        }
        if let Some(retry) = event.retry {
            self.wait = Some(Duration::from_millis(retry));
        }
    }

    /// The body that goes on where the last one ended.
    ///
    /// # Errors
    /// What the stream ended with, where there is no going on.
    pub async fn resume(
        &self,
        upstream: &str,
        give_up: &GiveUp,
        ended: Error,
    ) -> Result<Body, Error> {
        let Some(last) = &self.last else { return Err(ended) };
        let wait = self.wait.unwrap_or(WAIT).clamp(SHORTEST, LONGEST);
        for _ in 0..TRIES {
            tokio::time::sleep(wait).await;
            let Some(asked) = give_up.reopen(last) else { return Err(ended) };
            let response = match asked.await {
                Ok(response) => response,
                Err(error) if give_up.is_lost() => return Err(error),
                Err(error) => {
                    tracing::debug!(upstream.name = upstream, %error, "a stream is not there yet");
                    continue;
                }
            };
            let status = response.status();
            if status.is_success() && answer::media(response.headers()) == Media::EventStream {
                return Ok(response.into_body());
            }
            // It offers no streams, or does not know this one any more.
            if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
                return Err(ended);
            }
        }
        Err(ended)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_last_id_and_the_last_wait_count() {
        let mut resumption = Resumption::default();
        let event = |id: Option<&'static str>, retry| sse::Event {
            id: id.map(|id| Bytes::from_static(id.as_bytes())),
            retry,
            ..sse::Event::default()
        };
        resumption.note(&event(Some("a"), Some(20)));
        resumption.note(&event(None, None));
        assert_eq!(resumption.last, Some(HeaderValue::from_static("a")));
        assert_eq!(resumption.wait, Some(Duration::from_millis(20)));
        resumption.note(&event(Some(""), Some(40)));
        assert_eq!((resumption.last, resumption.wait), (None, Some(Duration::from_millis(40))));
    }
}
