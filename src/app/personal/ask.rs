//! Asking servers of employees what they have, beside the calls: on the thread that lists
//! everybody's, and not more of them at once than an operator allows.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinSet,
};
use tower::Service;

use super::upstream::spoken;
use crate::{
    clock::Clock,
    discovery::{Limits, Watcher},
    error::{Code, Error, Next},
    mcp::Family,
    model::{caller::Caller, exchange::Closing, reply::Reply},
    registry::{
        Catalog, Listing, Registry,
        server::{Archive, Failure, ServerInfo},
    },
    stack::{
        session::Sessions,
        stage::{Routed, Upstream},
    },
    upstream::EGRESS_DENIED,
};

/// Jobs that wait to be begun.
const WAITING: usize = 1_024;

/// Of one look at a server, whatever its own times are.
const LONGEST: Duration = Duration::from_secs(120);

pub(super) struct Jobs(mpsc::Sender<Job>);

enum Job {
    Ask {
        caller: Arc<Caller>,
        upstream: Arc<Upstream>,
        now_ms: u64,
        told: oneshot::Sender<Result<Archive, Error>>,
    },
    Beside(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// Does the jobs.
pub(in crate::app) struct Asker {
    jobs: mpsc::Receiver<Job>,
    at_once: usize,
}

/// What asking takes.
#[derive(Clone)]
pub(in crate::app) struct Means<S> {
    /// What a server may list.
    pub limits: Limits,
    /// Of the lower stack.
    pub sessions: Arc<Sessions>,
    /// The lower stack, with connections of this thread.
    pub service: S,
    pub closing: Arc<dyn Closing>,
}

pub(super) fn channel(at_once: usize) -> (Jobs, Asker) {
    let (give, jobs) = mpsc::channel(WAITING);
    (Jobs(give), Asker { jobs, at_once })
}

// === impl Jobs ===

impl Jobs {
    /// What a server has, as this caller sees it.
    ///
    /// # Errors
    /// It was not asked: no address of it may be dialled, or the gateway has no time for it.
    pub async fn ask(
        &self,
        caller: Arc<Caller>,
        upstream: Arc<Upstream>,
        now_ms: u64,
    ) -> Result<Archive, Error> {
        let (tell, told) = oneshot::channel();
        let job = Job::Ask { caller, upstream, now_ms, told: tell };
        self.0.try_send(job).map_err(|_| {
            let message = "too many servers are being asked at present";
            Error::new(Code::RateLimited, message)
                .with_limit("servers.max_asked")
                .with_retry_after(Duration::from_secs(5))
        })?;
        told.await.unwrap_or_else(|_| {
            let message = "the gateway stops, and asks nobody any more";
            Err(Error::new(Code::Internal, message).with_advice(true, Next::Retry))
        })
    }

    /// Something that asks by itself. Where too much waits already, it is left for another time.
    pub fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let _ = self.0.try_send(Job::Beside(Box::pin(work)));
    }
}

// === impl Asker ===

impl Asker {
    /// Asks, until it is dropped.
    pub async fn run<S>(mut self, means: Means<S>)
    where
        S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let turns = Arc::new(Semaphore::new(self.at_once));
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                job = self.jobs.recv() => {
                    let Some(job) = job else { return };
                    match job {
                        Job::Ask { caller, upstream, now_ms, told } => {
                            let (means, turns) = (means.clone(), turns.clone());
                            running.spawn(async move {
                                let _turn = turns.acquire().await;
                                let _ = told.send(look(means, caller, upstream, now_ms).await);
                            });
                        }
                        // It waits for jobs of its own, so it takes no turn.
                        Job::Beside(work) => _ = running.spawn(work),
                    }
                }
                Some(_) = running.join_next() => {}
            }
        }
    }
}

async fn look<S>(
    means: Means<S>,
    caller: Arc<Caller>,
    upstream: Arc<Upstream>,
    now_ms: u64,
) -> Result<Archive, Error>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + Sync,
    S::Future: Send,
{
    let registry = Arc::new(Registry::new([upstream.name.clone()]));
    let watcher = Watcher {
        upstream: upstream.clone(),
        registry: registry.clone(),
        sessions: means.sessions,
        service: means.service,
        interval: LONGEST,
        limits: means.limits,
        on_change: Arc::new(|| {}),
        pins: None,
        closing: means.closing,
        caller: Some(caller),
        // Of a registry that is gone in a moment.
        clock: Clock::system(),
    };
    let why = match tokio::time::timeout(LONGEST, watcher.once()).await {
        Ok(Ok(())) => return Ok(archive(&registry.catalog(), &upstream, now_ms)),
        Ok(Err(error)) if error.reason() == Some(EGRESS_DENIED) => return Err(error),
        // An invitation is one person's; what is kept of a listing, others are told.
        Ok(Err(error)) if error.connect().is_some() => {
            "its owner has to connect to it first: POST /v1/oauth/connect/{serverKey} says where"
                .into()
        }
        Ok(Err(error)) => error.message().into(),
        Err(_) => "it took too long to say what it has".into(),
    };
    Ok(Archive::failed(why, now_ms))
}

/// What was listed just now.
fn archive(catalog: &Catalog, upstream: &Upstream, now_ms: u64) -> Archive {
    let served = upstream.served();
    let introduced = upstream.introduced();
    let introduced = introduced.as_deref();
    let said = introduced.and_then(|it| Some((it.name.as_deref()?, it.version.as_deref()?)));
    let mut archive = Archive {
        server: said
            .map(|(name, version)| ServerInfo { name: name.into(), version: version.into() }),
        served: Some(served),
        instructions: upstream.instructions(),
        spoken: upstream.era().map(|era| spoken(era, introduced.and_then(|it| it.revision))),
        listed_ms: now_ms,
        ..Archive::default()
    };
    for family in Family::ALL {
        // Of one that could not be listed what was listed before stays.
        match catalog.listing_of(&upstream.name, family) {
            Some(Listing::Never(why)) => {
                archive.failure = Some(Failure { message: why.clone(), at_ms: now_ms });
            }
            _ if family == Family::Tools => {
                let tools = catalog.tools().iter().map(|tool| tool.definition.raw.clone());
                archive.set(family, tools.collect());
            }
            _ => {
                let items = catalog.items().iter().filter(|item| item.family == family);
                archive.set(family, items.map(|item| item.raw.clone()).collect());
            }
        }
    }
    archive
}
