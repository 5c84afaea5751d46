//! Polls each upstream's listing through the lower stack, and finds out first how it speaks.
//!
//! It proposes what it found to the registry and never touches a pin; one upstream's trouble is
//! its own.

mod follow;
mod listing;
mod probe;

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use rand::RngExt;
use tower::Service;

pub use self::listing::Limits;
use self::listing::{Elements, Listed, Room};
use crate::{
    clock::Clock,
    error::Error,
    mcp::Family,
    model::{
        call::{Client, Meta},
        caller::Caller,
        exchange::{Closing, Exchange},
        reply::{Content, Event, Final, Reply},
        server::{DialectKind, UpstreamName},
        trace::TraceContext,
    },
    registry::{Change, Definition, Registry, store::Kept},
    stack::{
        session::Sessions,
        stage::{Era, Repeat, Routed, SouthRequest, Upstream},
    },
};

/// Called when what may be published has changed.
pub type OnChange = Arc<dyn Fn() + Send + Sync>;

/// What is kept of tools' definitions.
pub trait Pins: Send + Sync + 'static {
    /// Has what is new in a listing kept, before it is taken over.
    fn settle<'a>(
        &'a self,
        upstream: &'a UpstreamName,
        definitions: &'a [Arc<Definition>],
    ) -> BoxFuture<'a, Vec<Kept>>;

    /// A listing was taken over.
    fn changed(&self, upstream: &UpstreamName, change: &Change);
}

/// Watches one upstream.
pub struct Watcher<S> {
    pub upstream: Arc<Upstream>,
    pub registry: Arc<Registry>,
    /// Of the lower stack.
    pub sessions: Arc<Sessions>,
    /// The lower stack: southbound and below.
    pub service: S,
    /// Between two listings.
    pub interval: Duration,
    /// What it may list.
    pub limits: Limits,
    pub on_change: OnChange,
    /// `None`: what is seen first is what is approved first.
    pub pins: Option<Arc<dyn Pins>>,
    /// Takes the exchanges of the gateway's own requests.
    pub closing: Arc<dyn Closing>,
    /// For whom it is asked, with what opens it for him; `None`: for nobody in particular.
    pub caller: Option<Arc<Caller>>,
    pub clock: Clock,
}

/// What is remembered from poll to poll: what was logged already, so that it is said once, and
/// the last listing.
#[derive(Default)]
struct Told {
    /// The tools as they were read.
    tools: Vec<Arc<Definition>>,
    /// Of single elements.
    faults: HashSet<String>,
    /// Families whose listing failed the last time.
    failing: HashSet<Family>,
}

/// Faults of elements that are remembered as told.
const TOLD_MAX: usize = 1_000;

/// How long a listing that has come waits for those of other families.
const TOGETHER: Duration = Duration::from_millis(100);

/// The first waits after a failure; then the interval.
const RETRY: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

impl<S> Watcher<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + Sync,
    S::Future: Send,
{
    /// Lists, waits and lists again, until it is dropped.
    pub async fn run(self) {
        let mut failures = 0;
        let mut follow = follow::Follow::default();
        let mut told = Told::default();
        loop {
            match self.look(&mut told).await {
                Ok(()) => {
                    self.registry.looked(&self.upstream.name, self.clock.now_ms());
                    if failures > 0 {
                        tracing::info!(upstream.name = %self.upstream.name, "listed again");
                    }
                    failures = 0;
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

    /// Looks once.
    ///
    /// # Errors
    /// Takes over a listing of tools, once what is new in it is kept.
    async fn listed(&self, definitions: Vec<Arc<Definition>>) -> Change {
        let name = &self.upstream.name;
        let Some(pins) = &self.pins else { return self.registry.listed(name, definitions) };
        let kept = pins.settle(name, &definitions).await;
        let change = self.registry.listed_kept(name, definitions, &kept);
        pins.changed(name, &change);
        change
    }

    /// Nothing of the server could be listed.
    pub async fn once(&self) -> Result<(), Error> {
        self.look(&mut Told::default()).await
    }

    /// One look at everything that the server declares. It is a failure where nothing at all
    /// could be listed; one family that fails keeps its last good listing.
    async fn look(&self, told: &mut Told) -> Result<(), Error> {
        let known = self.upstream.era();
        let (era, error) = match self.learn().await {
            Ok(era) => match self.list(told).await {
                None => return Ok(()),
                Some(error) => (era, error),
            },
            Err(error) => match self.upstream.era() {
                Some(era) => (era, error),
                None => return Err(error),
            },
        };
        if known.is_none() && era == Era::Legacy && self.over_event_stream(&error, told).await {
            return Ok(());
        }
        // What was believed of the server may be what is wrong.
        self.upstream.set_era(None);
        if known.is_none() && era == Era::Legacy {
            return Err(self.diagnose(error).await);
        }
        // Calls go on in the era that served so far, until a new probe says otherwise.
        if known.is_some() && !changed_its_mind(&error) {
            self.upstream.set_era(known);
        } else if self.upstream.dialect == DialectKind::Auto {
            self.upstream.reach.switch(false);
        }
        Err(error)
    }

    /// Lists each family that is declared, all at once; says what went wrong where all did.
    ///
    /// What comes together is published together: a catalog is bound to the rules anew for each
    /// change. A family that takes its time does not hold up the others.
    async fn list(&self, told: &mut Told) -> Option<Error> {
        let (name, served) = (&self.upstream.name, self.upstream.served());
        let mut changed = self.registry.declared(name, served, self.upstream.instructions());
        if !served.contains(Family::Tools.capability()) {
            // What it had is gone, as from a listing without it.
            changed |= self.listed(Vec::new()).await.changed;
        }
        let declared = Family::ALL.into_iter().filter(|f| served.contains(f.capability()));
        let (tools, room) = (told.tools.clone(), Room::new(self.limits));
        let pages = |family| {
            let (known, room) = (&tools, &room);
            async move { (family, self.pages(family, known, room).await) }
        };
        let mut listings: FuturesUnordered<_> = declared.map(pages).collect();
        let (mut good, mut failed) = (listings.is_empty(), Vec::new());
        loop {
            let patience = if changed { TOGETHER } else { Duration::MAX };
            let Ok(next) = tokio::time::timeout(patience, listings.next()).await else {
                (self.on_change)();
                changed = false;
                continue;
            };
            match next {
                Some((family, Ok(listing))) => {
                    good = true;
                    changed |= self.take(family, listing, told).await;
                }
                Some((family, Err(error))) => failed.push((family, error)),
                None => break,
            }
        }
        if good {
            for (family, error) in failed.drain(..) {
                changed |= self.failed_family(family, &error, told);
            }
        }
        if changed {
            (self.on_change)();
        }
        failed.into_iter().next().map(|(_, error)| error)
    }

    /// Takes over a listing; says whether it changes anything.
    async fn take(&self, family: Family, listing: Listed, told: &mut Told) -> bool {
        let name = &self.upstream.name;
        told.failing.remove(&family);
        // Whoever names everything anew each time does not fill the memory with it.
        if told.faults.len() > TOLD_MAX {
            told.faults.clear();
        }
        for fault in listing.faults {
            if told.faults.insert(fault.clone()) {
                tracing::warn!(upstream.name = %name, "of what is listed: {fault}");
            }
        }
        let change = match listing.elements {
            Elements::Tools(definitions) => {
                told.tools.clone_from(&definitions);
                self.listed(definitions).await
            }
            Elements::Others(entries) => {
                let changed = self.registry.listed_items(name, family, entries);
                Change { changed, ..Change::default() }
            }
        };
        if change.changed {
            tracing::info!(
                upstream.name = %name,
                era = self.upstream.era().map_or("unknown", Era::as_str),
                "the {} have changed", family.member()
            );
        }
        change.changed
    }

    /// Nothing of the server could be listed.
    fn failed(&self, error: &Error, first: bool) {
        let name = &self.upstream.name;
        let why = error.message();
        if first {
            tracing::warn!(upstream.name = %name, "listing failed: {why}");
        } else {
            tracing::debug!(upstream.name = %name, "listing failed again: {why}");
        }
        self.registry.not_looked(name, self.clock.now_ms(), why);
        let mut news = false;
        for family in Family::ALL {
            news |= self.registry.failed(name, family, why);
        }
        if news {
            (self.on_change)();
        }
    }

    /// One family of the server could not be listed; says whether that changes anything.
    fn failed_family(&self, family: Family, error: &Error, told: &mut Told) -> bool {
        let name = &self.upstream.name;
        let (what, why) = (family.list_method().as_str(), error.message());
        if told.failing.insert(family) {
            tracing::warn!(upstream.name = %name, "{what} failed: {why}");
        } else {
            tracing::debug!(upstream.name = %name, "{what} failed again: {why}");
        }
        self.registry.not_looked(name, self.clock.now_ms(), &format!("{what} failed: {why}"));
        self.registry.failed(name, family, why)
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
    async fn ask(&self, request: SouthRequest) -> Result<Final, Error> {
        match self.send(request).await?.content {
            Content::Final(end) => Ok(end),
            Content::Stream(mut events) => loop {
                match events.next().await {
                    Some(Event::Notification(_) | Event::Question(_) | Event::Answered) => {}
                    Some(Event::End(end)) => return end,
                    None => return Err(no_answer()),
                }
            },
            Content::Nothing => Err(no_answer()),
        }
    }

    async fn send(&self, request: SouthRequest) -> Result<Reply, Error> {
        let trace = TraceContext {
            trace_id: rand::random(),
            span_id: rand::random(),
            ..TraceContext::default()
        };
        let now = tokio::time::Instant::now();
        let exchange = Arc::new(Exchange::new(trace, now, 0, Some(self.closing.clone())));
        let routed = Routed {
            exchange,
            caller: self.caller.clone(),
            upstream: self.upstream.clone(),
            request,
            dialect: None,
            client: Client::default(),
            meta: Meta::default(),
            idempotency_key: None,
            repeat: Repeat::Never,
            refusals: Vec::new(),
            headers: Arc::default(),
        };
        let mut service = self.service.clone();
        std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(routed).await
    }
}

/// Whether a failure says that the server speaks otherwise than before, not merely that it is
/// away.
fn changed_its_mind(error: &Error) -> bool {
    matches!(error.kind(), Some("malformed" | "rpc_error" | "400" | "404" | "405" | "415"))
}

fn no_answer() -> Error {
    Error::new(crate::error::Code::ExternalServiceError, "there was no answer").from_upstream()
}
