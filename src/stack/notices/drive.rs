//! Keeps each feed alive at its server: a stream of 2026-07-28 with all that is wanted, or
//! subscriptions in a session of the handshake era and that session's GET stream.
//!
//! Runs beside the calls, on connections of its own. A server that is away is asked again, later
//! each time; what changed meanwhile nobody knows. A feed of an employee's own server ends with that,
//! and one that is opened with his credential is opened anew with another and ends without one.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt};
use rand::RngExt;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tower::Service;

use super::{
    super::{
        answer::vault_failed,
        stage::{Era, Own, Personal, Repeat, Routed, SouthRequest, Upstream, World, Worlds},
    },
    Feeds, Refused, Topic, changed,
    feeds::{FeedKey, Task},
};
use crate::{
    credential::{Vault, store::Stamp},
    dialect::notices,
    error::{Code, Error},
    mcp::{Capabilities, Method},
    model::{
        call::{Client, Meta, Notices as Filter},
        caller::Caller,
        exchange::{Closing, Exchange},
        reply::{Content, Event, Final, Reply, ReplyStream},
        trace::TraceContext,
    },
};

/// Wishes that come together are told a server at once.
const TOGETHER: Duration = Duration::from_millis(20);
/// Between two looks at whether a credential is still the same, where another process may have
/// changed it.
const LOOK: Duration = Duration::from_secs(5);
/// The waits after failures; the last one stays.
const AGAIN: [Duration; 6] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(60),
];

/// The pause before the next attempt, a tenth shorter or longer so that nobody falls into step.
pub fn again(failures: usize) -> Duration {
    let pause = AGAIN[failures.saturating_sub(1).min(AGAIN.len() - 1)];
    pause.mul_f64(rand::rng().random_range(0.9..1.1))
}

/// What feeds rest on, beside their servers.
#[derive(Clone)]
pub struct Grounds {
    pub worlds: Arc<Worlds>,
    pub personal: Option<Arc<dyn Personal>>,
    pub vault: Arc<Vault>,
}

/// Drives every feed over the lower stack, until it is dropped.
pub async fn drive<S>(feeds: Arc<Feeds>, grounds: Grounds, service: S, closing: Arc<dyn Closing>)
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    let Some(mut starts) = feeds.starts() else { return };
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            key = starts.recv() => {
                let Some(key) = key else { return };
                let feed = Driven {
                    feeds: feeds.clone(),
                    upstream: key.upstream.clone(),
                    key,
                    world: grounds.worlds.current(),
                    changes: grounds.worlds.watch(),
                    own: grounds.personal.as_ref().map(|personal| personal.watch()),
                    grounds: grounds.clone(),
                    service: service.clone(),
                    closing: closing.clone(),
                };
                tasks.spawn(feed.run());
            }
            Some(_) = tasks.join_next() => {}
        }
    }
}

struct Driven<S> {
    feeds: Arc<Feeds>,
    key: FeedKey,
    upstream: Arc<Upstream>,
    grounds: Grounds,
    /// What says who may hear of what: everybody's, or what the employee has of his own.
    world: Arc<World>,
    changes: watch::Receiver<u64>,
    own: Option<watch::Receiver<u64>>,
    service: S,
    closing: Arc<dyn Closing>,
}

/// Why a feed goes on or not.
enum Ground {
    /// With this credential, where the server takes each employee's own.
    Firm(Option<Stamp>),
    /// The server is not this caller's any more.
    Gone,
    /// He has no credential for it.
    Unset,
}

/// What the server has been asked for, and its stream.
#[derive(Default)]
struct Held {
    wanted: HashSet<Topic>,
    stream: Option<ReplyStream>,
    /// The server has said that it offers no stream.
    no_stream: bool,
    /// What it was opened with.
    stamp: Option<Stamp>,
}

impl<S> Driven<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    async fn run(mut self) {
        let mut held = Held::default();
        let mut failures = 0;
        while let Some(task) = self.feeds.task(&self.key) {
            let changed = task.changed.clone();
            if task.wanted.is_empty() {
                // A session would go on telling. What is wanted again meanwhile is asked anew.
                for topic in held.wanted.drain() {
                    if let Topic::Resource(own) = topic {
                        let _ = self.say(&task.caller, &own, false).await;
                    }
                }
                if self.feeds.forget(&self.key) {
                    return;
                }
                continue;
            }
            match self.ground(&task.caller).await {
                Ok(Ground::Firm(stamp)) => {
                    if held.is_open() && held.stamp != stamp {
                        held = Held::default();
                        self.feeds.lost(&self.key);
                    }
                    held.stamp = stamp;
                }
                Ok(ground @ (Ground::Gone | Ground::Unset)) => {
                    held = Held::default();
                    let is_gone = matches!(ground, Ground::Gone);
                    let why = if is_gone { Refused::Gone } else { Refused::Unset };
                    self.feeds.over(&self.key, &why);
                    continue;
                }
                // As before, until more is known.
                Err(error) => tracing::debug!(%error, "not known whether a feed may go on"),
            }
            let ready = held.is_open();
            if !ready || task.is_awaited || held.wanted != task.wanted {
                match self.bring(&mut held, &task).await {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        let name = &self.upstream.name;
                        tracing::debug!(upstream.name = %name, %error, "no notices of a server");
                        self.feeds.failed(&self.key, error.message());
                        failures += 1;
                        pause(again(failures), &changed).await;
                        continue;
                    }
                }
            }
            tokio::select! {
                event = next(&mut held.stream) => {
                    if !self.take(event) {
                        held = Held::default();
                        self.feeds.lost(&self.key);
                        failures += 1;
                        pause(again(failures), &changed).await;
                    }
                }
                () = changed.notified() => sleep(TOGETHER).await,
                () = self.shaken() => {}
            }
        }
    }

    /// Returns when what the feed rests on may be another. That of an operator's server which
    /// opens it for everybody alike is always the same.
    async fn shaken(&mut self) {
        let is_own = self.upstream.name.is_key();
        let has_credential = self.upstream.auth.is_employees();
        tokio::select! {
            () = changed(self.own.as_mut()), if is_own || has_credential => {}
            _ = self.changes.changed(), if is_own => {}
            () = sleep(LOOK), if has_credential => {}
            else => std::future::pending().await,
        }
    }

    /// What the feed rests on now.
    async fn ground(&mut self, caller: &Caller) -> Result<Ground, Error> {
        let base = self.grounds.worlds.current();
        if self.upstream.name.is_key() {
            let own = match &self.grounds.personal {
                Some(personal) => personal.of(caller, &base),
                None => Own::Nothing,
            };
            let own = match own {
                Own::Nothing => None,
                Own::There(own) => Some(own),
                Own::Loading(loading) => loading.await?,
            };
            let has = |own: &Arc<World>| {
                own.upstreams.iter().any(|upstream| Arc::ptr_eq(upstream, &self.upstream))
            };
            match own.filter(has) {
                Some(own) => self.world = own,
                None => return Ok(Ground::Gone),
            }
        } else {
            self.world = base;
        }
        if !self.upstream.auth.is_employees() {
            return Ok(Ground::Firm(None));
        }
        let Some(whose) = self.upstream.credential_of(caller) else { return Ok(Ground::Unset) };
        let held = self.grounds.vault.held(&whose).await;
        let held = held.map_err(|fault| vault_failed(&self.upstream, fault))?;
        Ok(held.map_or(Ground::Unset, |held| Ground::Firm(Some(held.stamp()))))
    }

    /// Brings what the server tells in line with what is wanted.
    async fn bring(&mut self, held: &mut Held, task: &Task) -> Result<(), Error> {
        match self.upstream.era() {
            Some(Era::Modern(_)) => self.reopen(held, task).await,
            Some(Era::Legacy) => self.resubscribe(held, task).await,
            Some(Era::Lite) | None => Err(unknown(&self.upstream)),
        }
    }

    /// A new stream with all that is wanted; the old one goes when the new one is there.
    async fn reopen(&mut self, held: &mut Held, task: &Task) -> Result<(), Error> {
        let mut filter = Filter::default();
        for topic in &task.wanted {
            match topic {
                Topic::Resource(own) => filter.updates.push((**own).into()),
                Topic::Task { own, .. } => filter.tasks.push((**own).into()),
            }
        }
        let patience = self.upstream.timeout;
        let opened = timeout(patience, async {
            let mut stream = self.listen(&task.caller, filter).await?;
            match stream.next().await {
                Some(Event::Notification(first))
                    if Method::parse(&first.method) == Method::Acknowledged =>
                {
                    let honoured = notices::read_acknowledged(first.params.as_ref());
                    Ok((stream, honoured.unwrap_or_default()))
                }
                Some(Event::End(Err(error))) => Err(error),
                _ => Err(unacknowledged(&self.upstream)),
            }
        });
        let (stream, honoured) = opened.await.map_err(|_| unacknowledged(&self.upstream))??;
        let names = |list: &[Box<str>]| list.iter().cloned().collect::<HashSet<_>>();
        let (updates, tasks) = (names(&honoured.updates), names(&honoured.tasks));
        for topic in &task.wanted {
            let is_honoured = match topic {
                Topic::Resource(own) => updates.contains(&**own),
                Topic::Task { own, .. } => tasks.contains(&**own),
            };
            let answer = if is_honoured { Ok(()) } else { Err(Refused::Declined) };
            self.feeds.answer(&self.key, topic, &answer);
        }
        // What the old one has told until now is not told again.
        if let Some(mut before) = held.stream.take() {
            while let Some(event) = before.next().now_or_never() {
                if !self.take(event) {
                    break;
                }
            }
        }
        let (wanted, stamp) = (task.wanted.clone(), held.stamp);
        *held = Held { wanted, stream: Some(stream), no_stream: false, stamp };
        Ok(())
    }

    /// First the stream, so that nothing is missed, then what is new and what has gone.
    async fn resubscribe(&mut self, held: &mut Held, task: &Task) -> Result<(), Error> {
        if held.stream.is_none() && !held.no_stream {
            match self.listen(&task.caller, Filter::default()).await {
                Ok(stream) => held.stream = Some(stream),
                // It takes subscriptions and has no way to tell: its affair.
                Err(error) if matches!(error.kind(), Some("404" | "405" | "501")) => {
                    held.no_stream = true;
                }
                Err(error) => return Err(error),
            }
            held.wanted.clear();
        }
        for topic in &task.wanted {
            let Topic::Resource(own) = topic else {
                // These revisions keep no such tasks: asked once, it is not asked again.
                self.feeds.answer(&self.key, topic, &Err(Refused::Declined));
                held.wanted.insert(topic.clone());
                continue;
            };
            let answer = if held.wanted.contains(topic) {
                Ok(())
            } else {
                match self.say(&task.caller, own, true).await? {
                    Final::Result(_) => Ok(()),
                    Final::Error(error) => Err(Refused::Rpc(error)),
                }
            };
            self.feeds.answer(&self.key, topic, &answer);
            if answer.is_ok() {
                held.wanted.insert(topic.clone());
            }
        }
        let gone: Vec<_> = held.wanted.difference(&task.wanted).cloned().collect();
        for topic in gone {
            if let Topic::Resource(own) = &topic {
                self.say(&task.caller, own, false).await?;
            }
            held.wanted.remove(&topic);
        }
        Ok(())
    }

    /// Whether the stream goes on.
    fn take(&self, event: Option<Event>) -> bool {
        let notification = match event {
            Some(Event::Notification(notification)) => notification,
            Some(Event::Question(_) | Event::Answered) => return true,
            Some(Event::End(_)) | None => return false,
        };
        // Policy as it is now, not as it was when somebody subscribed.
        let own = self.upstream.name.is_key();
        let world = if own { self.world.clone() } else { self.grounds.worlds.current() };
        match (Method::parse(&notification.method), &notification.params) {
            (Method::ResourceUpdated, params) => {
                if let Some(own) = notices::read_updated(params.as_ref()) {
                    let upstream = self.upstream.name.as_str();
                    self.feeds.updated(&self.key, &own, |caller| {
                        let view = world.view_by_now(caller);
                        view.is_some_and(|view| view.permit_uri(upstream, &own).is_ok())
                    });
                }
            }
            (Method::TaskStatus, Some(params)) => {
                self.feeds.stands(&self.key, params, |caller, tool| {
                    world.task_tool(tool).is_some_and(|tool| world.knows_tasks_of(caller, tool))
                });
            }
            _ => {}
        }
        true
    }

    async fn listen(&mut self, caller: &Caller, filter: Filter) -> Result<ReplyStream, Error> {
        match self.ask(caller, SouthRequest::Listen(Box::new(filter))).await?.content {
            Content::Stream(stream) => Ok(stream),
            Content::Final(Final::Error(error)) => {
                let message = format!(
                    "`{}` refused to tell of changes (JSON-RPC error {})",
                    self.upstream.name, error.code
                );
                Err(Error::new(Code::ExternalServiceError, message).from_upstream())
            }
            _ => Err(unacknowledged(&self.upstream)),
        }
    }

    /// Subscribes or unsubscribes in the holder's session.
    async fn say(&mut self, caller: &Caller, own: &str, on: bool) -> Result<Final, Error> {
        if self.upstream.era() != Some(Era::Legacy) {
            return Err(unknown(&self.upstream));
        }
        let request = SouthRequest::Subscribe { uri: own.into(), on };
        match self.ask(caller, request).await?.content {
            Content::Final(end) => Ok(end),
            Content::Stream(mut events) => loop {
                match events.next().await {
                    Some(Event::End(end)) => return end,
                    Some(_) => {}
                    None => return Err(unacknowledged(&self.upstream)),
                }
            },
            Content::Nothing => Err(unacknowledged(&self.upstream)),
        }
    }

    async fn ask(&mut self, caller: &Caller, request: SouthRequest) -> Result<Reply, Error> {
        let exchange = Exchange::new(
            TraceContext {
                trace_id: rand::random(),
                span_id: rand::random(),
                ..TraceContext::default()
            },
            tokio::time::Instant::now(),
            0,
            Some(self.closing.clone()),
        );
        let routed = Routed {
            exchange: Arc::new(exchange),
            caller: Some(Arc::new(caller.clone())),
            upstream: self.upstream.clone(),
            client: Client { capabilities: needed(&request), ..Client::default() },
            request,
            dialect: None,
            meta: Meta::default(),
            idempotency_key: None,
            repeat: Repeat::Never,
            refusals: Vec::new(),
            headers: Arc::default(),
        };
        std::future::poll_fn(|cx| self.service.poll_ready(cx)).await?;
        self.service.call(routed).await
    }
}

impl Held {
    fn is_open(&self) -> bool {
        self.stream.is_some() || self.no_stream
    }
}

/// What has to be declared with a request: a server tells of tasks only those who speak of them.
fn needed(request: &SouthRequest) -> Capabilities {
    match request {
        SouthRequest::Listen(filter) if !filter.tasks.is_empty() => Capabilities::TASKS,
        _ => Capabilities::NONE,
    }
}

/// The next event, where there is a stream.
async fn next(stream: &mut Option<ReplyStream>) -> Option<Event> {
    match stream {
        Some(stream) => stream.next().await,
        None => std::future::pending().await,
    }
}

/// Waits, unless what is wanted changes: a new wish is tried at once.
async fn pause(time: Duration, changed: &Notify) {
    tokio::select! {
        () = sleep(time) => {}
        () = changed.notified() => sleep(TOGETHER).await,
    }
}

fn unknown(upstream: &Upstream) -> Error {
    let message = format!("`{}` has no form for notices", upstream.name);
    Error::new(Code::ExternalServiceError, message).from_upstream()
}

fn unacknowledged(upstream: &Upstream) -> Error {
    let message = format!("`{}` did not acknowledge what it was asked to tell of", upstream.name);
    Error::new(Code::ExternalServiceError, message).from_upstream()
}
