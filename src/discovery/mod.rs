//! Polls each upstream's listing through the lower stack, and finds out first how it speaks.
//!
//! It proposes what it found to the registry and never touches a pin; one upstream's trouble is
//! its own.

mod follow;
mod listing;
mod probe;

use std::{collections::HashSet, sync::Arc, time::Duration};

use rand::RngExt;
use tower::Service;

use crate::{
    error::Error,
    mcp::Family,
    model::{
        call::{Client, Meta},
        exchange::{Closing, Exchange},
        reply::{Content, Event, Final, Reply},
        trace::TraceContext,
    },
    registry::Registry,
    stack::stage::{Era, Routed, SouthRequest, Upstream},
};

/// Called when what may be published has changed.
pub type OnChange = Arc<dyn Fn() + Send + Sync>;

/// Watches one upstream.
pub struct Watcher<S> {
    pub upstream: Arc<Upstream>,
    pub registry: Arc<Registry>,
    /// The lower stack: southbound and below.
    pub service: S,
    /// Between two listings.
    pub interval: Duration,
    pub on_change: OnChange,
    /// Takes the exchanges of the gateway's own requests.
    pub closing: Arc<dyn Closing>,
}

/// The first waits after a failure; then the interval.
const RETRY: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

impl<S> Watcher<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send,
    S::Future: Send,
{
    /// Lists, waits and lists again, until it is dropped.
    pub async fn run(mut self) {
        let mut failures = 0;
        let mut follow = follow::Follow::default();
        // What was said of single tools, so that it is said once and not at each poll.
        let mut told = HashSet::new();
        loop {
            match self.list().await {
                Ok(listing) => {
                    if failures > 0 {
                        tracing::info!(upstream.name = %self.upstream.name, "listed again");
                    }
                    failures = 0;
                    self.take(listing, &mut told);
                }
                Err(error) => {
                    self.failed(&error, failures == 0);
                    failures += 1;
                }
            }
            let pause = self.pause(failures);
            self.wait(&mut follow, pause).await;
        }
    }

    fn take(&self, listing: listing::Listed, told: &mut HashSet<String>) {
        let name = &self.upstream.name;
        for fault in listing.faults {
            if told.insert(fault.clone()) {
                tracing::warn!(upstream.name = %name, "a listed tool is left out: {fault}");
            }
        }
        let change = self.registry.listed(name, listing.definitions);
        for drift in &change.drifted {
            tracing::warn!(
                upstream.name = %name,
                tool.name = %drift.tool,
                "a definition has changed under way; its first form stays in use"
            );
        }
        if change.changed {
            tracing::info!(
                upstream.name = %name,
                era = self.upstream.era().map_or("unknown", Era::as_str),
                "the tools have changed"
            );
            (self.on_change)();
        }
    }

    fn failed(&self, error: &Error, first: bool) {
        let name = &self.upstream.name;
        let why = error.message();
        if first {
            tracing::warn!(upstream.name = %name, "listing failed: {why}");
        } else {
            tracing::debug!(upstream.name = %name, "listing failed again: {why}");
        }
        if self.registry.failed(name, Family::Tools, why) {
            (self.on_change)();
        }
    }

    fn pause(&self, failures: usize) -> Duration {
        let pause = match failures.checked_sub(1) {
            Some(index) => RETRY.get(index).copied().unwrap_or(self.interval).min(self.interval),
            None => self.interval,
        };
        // A tenth either way, so that replicas and upstreams do not fall into step.
        pause.mul_f64(rand::rng().random_range(0.9..1.1))
    }

    /// One request of the gateway's own, and its one answer.
    async fn ask(&mut self, request: SouthRequest) -> Result<Final, Error> {
        match self.send(request).await?.content {
            Content::Final(end) => Ok(end),
            Content::Stream(mut events) => loop {
                match futures_util::StreamExt::next(&mut events).await {
                    Some(Event::Notification(_) | Event::Question(_)) => {}
                    Some(Event::End(end)) => return end,
                    None => return Err(no_answer()),
                }
            },
            Content::Nothing => Err(no_answer()),
        }
    }

    async fn send(&mut self, request: SouthRequest) -> Result<Reply, Error> {
        let trace = TraceContext {
            trace_id: rand::random(),
            span_id: rand::random(),
            ..TraceContext::default()
        };
        let now = tokio::time::Instant::now();
        let exchange = Arc::new(Exchange::new(trace, now, 0, Some(self.closing.clone())));
        let routed = Routed {
            exchange,
            caller: None,
            upstream: self.upstream.clone(),
            request,
            dialect: None,
            client: Client::default(),
            meta: Meta::default(),
            idempotency_key: None,
            refusals: Vec::new(),
            headers: Arc::default(),
        };
        std::future::poll_fn(|cx| self.service.poll_ready(cx)).await?;
        self.service.call(routed).await
    }
}

fn no_answer() -> Error {
    Error::new(crate::error::Code::ExternalServiceError, "there was no answer").from_upstream()
}
