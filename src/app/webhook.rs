//! Sends notices of approvals to the webhook: beside the calls, signed, and again until they are
//! taken or nobody needs them any more.
//!
//! What waits is bounded, in number and in time. A receiver that fails costs nobody but those who
//! wait for its notices: requests stay in the store, and can be looked up.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use rand::RngExt;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tower::Service;

use super::StartError;
use crate::{
    approval::{
        Approval, Notice, Notify,
        webhook::{self, SigningKey},
    },
    body::{self, Body},
    clock::Clock,
    config,
    edge::{Phase, Shutdown},
    telemetry::{Metrics, NoticeResult},
    upstream::{
        Cluster, ClusterConfig, Destination, Egress, Endpoint, Guard, Outgoing, Transport,
        Upstreams,
    },
};

/// Attempts at once, whatever waits.
const AT_ONCE: usize = 4;
/// Before the second attempt; twice as long before each one after it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// What an answer may say; it is not looked at.
const MAX_ANSWER: usize = 64 * 1024;
/// What a shutdown leaves at the least for what is under way.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// A notice on its way.
struct Letter {
    id: String,
    body: Bytes,
    /// From then on nobody needs it.
    until_ms: u64,
    attempts: u32,
}

/// Where the engine leaves notices.
pub(super) struct Outbox {
    letters: mpsc::UnboundedSender<Letter>,
    /// All that have not been delivered or given up.
    open: Arc<AtomicUsize>,
    most: usize,
    give_up: Duration,
    /// What clients reach the gateway by.
    base: Option<String>,
    overflowing: AtomicBool,
    metrics: Arc<Metrics>,
    clock: Clock,
}

/// Delivers them.
pub(super) struct Courier {
    letters: mpsc::UnboundedReceiver<Letter>,
    open: Arc<AtomicUsize>,
    way: Way,
    key: SigningKey,
    timeout: Duration,
    drain: Duration,
    metrics: Arc<Metrics>,
    clock: Clock,
    /// The last attempt failed: it is told once.
    failing: bool,
    /// By the time of the next attempt; the number keeps apart what is due at once.
    due: BTreeMap<(Instant, u64), Letter>,
    number: u64,
}

/// Connections to the receiver. All of it is made anew when one fails: its name may stand for
/// another address by then.
struct Way {
    config: ClusterConfig,
    transport: Transport,
    to: Option<(Arc<Cluster>, Upstreams)>,
}

/// How an attempt ended, where it failed.
enum Trouble {
    /// There was an answer, and it was not a good one.
    Answered {
        status: u16,
        after: Option<Duration>,
    },
    NoAnswer(String),
}

/// Both ends of the way to the webhook of a configuration.
pub(super) fn webhook(
    config: &config::Config,
    transport: &Transport,
    egress: &Arc<Egress>,
    metrics: &Arc<Metrics>,
    clock: &Clock,
) -> Result<Option<(Outbox, Courier)>, StartError> {
    let Some(webhook) = &config.approvals.webhook else { return Ok(None) };
    let failed = StartError::Webhook;
    let endpoint = Endpoint::parse(webhook.url.as_str()).map_err(|e| failed(e.into()))?;
    let way = ClusterConfig {
        // A notice goes where it was said to go, or nowhere.
        redirects: false,
        on_demand: true,
        connect_timeout: webhook.timeout,
        ..ClusterConfig::new("approvals.webhook", vec![endpoint], Guard::written(egress))
    };
    // Whether it can be made at all shows at the start.
    Cluster::new(way.clone(), transport).map_err(failed)?;
    let (sender, letters) = mpsc::unbounded_channel();
    let open = Arc::new(AtomicUsize::new(0));
    let outbox = Outbox {
        letters: sender,
        open: open.clone(),
        most: webhook.queue,
        give_up: webhook.give_up,
        base: config.public_url.as_ref().map(|url| url.as_str().to_owned()),
        overflowing: AtomicBool::new(false),
        metrics: metrics.clone(),
        clock: clock.clone(),
    };
    let courier = Courier {
        letters,
        open,
        way: Way { config: way, transport: transport.clone(), to: None },
        key: webhook.key.clone(),
        timeout: webhook.timeout,
        drain: config.drain.timeout,
        metrics: metrics.clone(),
        clock: clock.clone(),
        failing: false,
        due: BTreeMap::new(),
        number: 0,
    };
    Ok(Some((outbox, courier)))
}

// === impl Outbox ===

impl Notify for Outbox {
    fn notify(&self, notice: Notice, approval: &Approval) {
        let room = |open: usize| (open < self.most).then_some(open + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.open.fetch_update(set, fetch, room).is_err() {
            self.metrics.approval_notice(NoticeResult::Dropped);
            if !self.overflowing.swap(true, Ordering::Relaxed) {
                tracing::warn!("Too many notices wait for the webhook of approvals: some are lost");
            }
            return;
        }
        self.overflowing.store(false, Ordering::Relaxed);
        let now_ms = self.clock.now_ms();
        let give_up_ms = u64::try_from(self.give_up.as_millis()).unwrap_or(u64::MAX);
        let letter = Letter {
            id: webhook::id(notice, approval),
            body: webhook::body(notice, approval, self.base.as_deref(), now_ms).into(),
            until_ms: now_ms.saturating_add(give_up_ms).min(approval.request.expires_ms),
            attempts: 0,
        };
        // The courier is gone only after everything else has ended.
        let _ = self.letters.send(letter);
    }
}

// === impl Courier ===

impl Courier {
    /// Delivers until it is stopped, and then for what is left of the time to drain.
    pub async fn run(mut self, shutdown: Shutdown, mut stopped: watch::Receiver<bool>) {
        let mut flying: JoinSet<(Letter, Result<(), Trouble>)> = JoinSet::new();
        let mut closing = Some(Box::pin(shutdown.reached(Phase::Closing)));
        let mut closed: Option<Instant> = None;
        let mut end: Option<Instant> = None;
        loop {
            self.depart(&mut flying);
            if end.is_some() && flying.is_empty() && self.due.is_empty() && self.letters.is_empty()
            {
                return;
            }
            let room = flying.len() < AT_ONCE;
            let next = self.due.first_key_value().filter(|_| room).map(|((at, _), _)| *at);
            tokio::select! {
                Some(letter) = self.letters.recv() => self.wait(letter, Instant::now()),
                Some(landed) = flying.join_next() => {
                    // One that panicked is not tried again; it counts as open for ever.
                    if let Ok((letter, result)) = landed {
                        self.landed(letter, result, end.is_some());
                    }
                }
                () = at(next) => {}
                () = reached(&mut closing) => {
                    closing = None;
                    closed = Some(Instant::now());
                }
                () = ended(&mut stopped), if end.is_none() => {
                    end = Some(self.last_moment(closed, &shutdown));
                    self.hurry();
                }
                () = at(end) => {
                    self.abandon(flying.len());
                    return;
                }
            }
        }
    }

    /// Until when what waits is still tried.
    fn last_moment(&self, closed: Option<Instant>, shutdown: &Shutdown) -> Instant {
        let now = Instant::now();
        if shutdown.phase() == Phase::Aborted {
            return now;
        }
        let drained = closed.unwrap_or(now) + self.drain;
        drained.clamp(now + LAST_MOMENT.min(self.drain), now + self.timeout)
    }

    /// Sends what is due, as far as there is room.
    fn depart(&mut self, flying: &mut JoinSet<(Letter, Result<(), Trouble>)>) {
        let now = Instant::now();
        while flying.len() < AT_ONCE
            && let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now
        {
            let letter = entry.remove();
            match self.way.get() {
                Ok((cluster, upstreams)) => {
                    let request = self.request(&letter);
                    let limit = self.timeout;
                    flying.spawn(async move {
                        let result = deliver(cluster, upstreams, request, limit).await;
                        (letter, result)
                    });
                }
                Err(what) => self.landed(letter, Err(Trouble::NoAnswer(what)), false),
            }
        }
    }

    fn request(&self, letter: &Letter) -> Request<Body> {
        let seconds = self.clock.now_ms() / 1000;
        let mut request = Request::new(Body::from(letter.body.clone()));
        *request.method_mut() = Method::POST;
        let agent = concat!("hangu/", env!("CARGO_PKG_VERSION"));
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        let signature = self.key.sign(&letter.id, seconds, &letter.body);
        for (name, value) in [
            ("webhook-id", letter.id.clone()),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-signature", signature),
        ] {
            // Ids, numbers and base64 are header values.
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        }
        request
    }

    fn landed(&mut self, mut letter: Letter, result: Result<(), Trouble>, is_last: bool) {
        let Err(trouble) = result else {
            self.open.fetch_sub(1, Ordering::Relaxed);
            self.metrics.approval_notice(NoticeResult::Delivered);
            if std::mem::take(&mut self.failing) {
                tracing::info!("The webhook of approvals takes notices again");
            }
            return;
        };
        let (what, after) = match trouble {
            Trouble::Answered { status, after } => (format!("it answered {status}"), after),
            Trouble::NoAnswer(what) => {
                self.way.to = None;
                (what, None)
            }
        };
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                error = what,
                "The webhook of approvals does not take a notice; it is tried again"
            );
        }
        let doubled = FIRST_PAUSE.saturating_mul(1 << letter.attempts.min(10));
        // At least half of it, so that what failed together does not come again together.
        let pause = doubled.min(LONGEST_PAUSE).mul_f64(rand::rng().random_range(0.5..1.0));
        let pause = pause.max(after.unwrap_or_default());
        letter.attempts += 1;
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        if is_last || self.clock.now_ms().saturating_add(pause_ms) >= letter.until_ms {
            self.open.fetch_sub(1, Ordering::Relaxed);
            self.metrics.approval_notice(NoticeResult::GivenUp);
            tracing::debug!(id = letter.id, "A notice of approvals is given up");
            return;
        }
        self.metrics.approval_notice(NoticeResult::Failed);
        self.wait(letter, Instant::now() + pause);
    }

    fn wait(&mut self, letter: Letter, until: Instant) {
        self.number += 1;
        self.due.insert((until, self.number), letter);
    }

    /// Whatever waits for its next attempt has it now.
    fn hurry(&mut self) {
        let now = Instant::now();
        for letter in std::mem::take(&mut self.due).into_values() {
            self.wait(letter, now);
        }
    }

    fn abandon(&mut self, flying: usize) {
        let mut left = flying + self.due.len();
        while self.letters.try_recv().is_ok() {
            left += 1;
        }
        if left > 0 {
            tracing::warn!(
                notices = left,
                "Notices of approvals were not delivered before the end"
            );
        }
        (0..left).for_each(|_| self.metrics.approval_notice(NoticeResult::GivenUp));
    }
}

/// Waits for a moment; for ever where there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn reached<F: Future<Output = ()> + Unpin>(phase: &mut Option<F>) {
    match phase {
        Some(phase) => phase.await,
        None => std::future::pending().await,
    }
}

async fn ended(stopped: &mut watch::Receiver<bool>) {
    // An error is the same word: whoever could stop it is gone.
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// One attempt.
async fn deliver(
    cluster: Arc<Cluster>,
    mut upstreams: Upstreams,
    request: Request<Body>,
    limit: Duration,
) -> Result<(), Trouble> {
    let outgoing = Outgoing { to: Destination::Cluster(cluster), suffix: "", request, tried: None };
    let sent = timeout(limit, async {
        let response = upstreams.call(outgoing).await.map_err(|error| {
            let kind = error.kind().unwrap_or("failed").replace('_', " ");
            Trouble::NoAnswer(kind)
        })?;
        let status = response.status();
        let after = response.headers().get(header::RETRY_AFTER);
        let after = after.and_then(|value| value.to_str().ok()?.parse().ok());
        let after = after.map(|seconds| Duration::from_secs(seconds).min(LONGEST_PAUSE));
        // Read to its end, so that the connection can be used again; what it says is not asked.
        let _ = body::collect(response.into_body(), MAX_ANSWER).await;
        match status.is_success() {
            true => Ok(()),
            false => Err(Trouble::Answered { status: status.as_u16(), after }),
        }
    });
    sent.await.unwrap_or_else(|_| Err(Trouble::NoAnswer("no answer in time".to_owned())))
}

// === impl Way ===

impl Way {
    fn get(&mut self) -> Result<(Arc<Cluster>, Upstreams), String> {
        if let Some(to) = &self.to {
            return Ok(to.clone());
        }
        let cluster = Cluster::new(self.config.clone(), &self.transport);
        let cluster = cluster.map_err(|error| error.to_string())?;
        let to = (cluster, Upstreams::new(self.transport.clone()));
        Ok(self.to.insert(to).clone())
    }
}
