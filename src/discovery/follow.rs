//! Between two listings: the server may say that its lists have changed, and then the next
//! listing comes at once.
//!
//! Only where it declared that it would. Its word is a hint and no more: what has changed a
//! listing shows, and without its word the gateway lists all the same.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, sleep_until, timeout};
use tower::Service;

use super::Watcher;
use crate::{
    error::Error,
    mcp::{Method, Served},
    model::{
        call::Notices,
        reply::{Content, Event, Reply, ReplyStream},
    },
    stack::{
        notices::again,
        stage::{Era, Routed, SouthRequest},
    },
};

/// Changes that come together bring one listing.
const TOGETHER: Duration = Duration::from_millis(200);

/// A stream that lasted so long was no failure, however it ended.
const LASTING: Duration = Duration::from_secs(10);

/// Between two listings, however often a server says that something has changed.
const APART: Duration = Duration::from_secs(1);

/// A server's stream of notices, as far as discovery follows it.
#[derive(Default)]
pub(super) struct Follow {
    stream: Option<ReplyStream>,
    opened: Option<Instant>,
    failures: usize,
    /// Not to be tried before.
    not_before: Option<Instant>,
    /// In this era the server has said that it offers no stream.
    none_in: Option<Era>,
}

impl<S> Watcher<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + Sync,
    S::Future: Send,
{
    /// Waits until the next listing is due, or the server says that it is.
    pub(super) async fn wait(&self, follow: &mut Follow, pause: Duration) {
        let begun = Instant::now();
        let due = begun + pause;
        let told = async {
            loop {
                if follow.stream.is_none() {
                    self.open(follow).await;
                    if follow.stream.is_some() && follow.failures > 0 {
                        // What changed while there was none, nobody has said.
                        return;
                    }
                }
                let Some(stream) = &mut follow.stream else { continue };
                match stream.next().await {
                    Some(Event::Notification(notification)) => {
                        if is_change(Method::parse(&notification.method)) {
                            return;
                        }
                    }
                    Some(Event::Question(_) | Event::Answered) => {}
                    Some(Event::End(_)) | None => follow.failed(),
                }
            }
        };
        tokio::select! {
            () = sleep_until(due) => return,
            () = told => {}
        }
        let earliest = (Instant::now() + TOGETHER).max(begun + APART);
        sleep_until(earliest.min(due)).await;
        follow.drain().await;
    }

    /// Opens the stream when its time has come; never ready where there is none to be had.
    async fn open(&self, follow: &mut Follow) {
        let wanted = self.followed();
        let era = self.upstream.era();
        let none = wanted == Notices::default()
            || matches!(era, None | Some(Era::Lite))
            || follow.none_in == era;
        if none {
            return std::future::pending().await;
        }
        if let Some(not_before) = follow.not_before {
            sleep_until(not_before).await;
        }
        let patience = self.upstream.timeout;
        let opened = timeout(patience, self.send(SouthRequest::Listen(Box::new(wanted)))).await;
        match opened {
            Ok(Ok(reply)) => {
                if let Content::Stream(stream) = reply.content {
                    follow.stream = Some(stream);
                    follow.opened = Some(Instant::now());
                    follow.none_in = None;
                } else {
                    follow.none_in = era;
                }
            }
            Ok(Err(error)) if matches!(error.kind(), Some("404" | "405" | "501")) => {
                follow.none_in = era;
            }
            Ok(Err(_)) | Err(_) => follow.failed(),
        }
    }

    /// The lists of whose changes the server declared that it tells.
    fn followed(&self) -> Notices {
        let served = self.upstream.served();
        Notices {
            tools: served.contains(Served::TOOLS_CHANGED),
            prompts: served.contains(Served::PROMPTS_CHANGED),
            resources: served.contains(Served::RESOURCES_CHANGED),
            ..Notices::default()
        }
    }
}

impl Follow {
    fn failed(&mut self) {
        self.stream = None;
        let lasted = self.opened.take().is_some_and(|opened| opened.elapsed() > LASTING);
        self.failures = if lasted { 1 } else { self.failures + 1 };
        self.not_before = Some(Instant::now() + again(self.failures));
    }

    /// Takes what has come meanwhile: the listing that follows shows it too.
    async fn drain(&mut self) {
        while let Some(stream) = &mut self.stream {
            match timeout(Duration::ZERO, stream.next()).await {
                Ok(Some(Event::Notification(_) | Event::Question(_) | Event::Answered)) => {}
                Ok(Some(Event::End(_)) | None) => self.failed(),
                Err(_) => return,
            }
        }
    }
}

fn is_change(method: Method) -> bool {
    matches!(method, Method::ToolsChanged | Method::PromptsChanged | Method::ResourcesChanged)
}
