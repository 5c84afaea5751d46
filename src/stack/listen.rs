//! Streams of notices, subscriptions and the log level of a session: what a client sets up here
//! and no upstream answers.
//!
//! What a caller may not see is not watched: a URI that is hidden answers like one that is not
//! there, or is left out of what a stream acknowledges. So are tasks (`listen/tasks.rs`). How a
//! stream is told is northbound's.

mod tasks;

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{Either, join_all};
use smallvec::SmallVec;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tower::{Layer, Service};

use super::{
    answer::no_credential,
    client_sessions::{ClientState, ClientStates},
    notices::{
        Full, Hears, Holder, Notices, Refused, Seen, Subscriber, Subscription, Topic, Wanted, Wish,
    },
    stage::{Beside, BoxFuture, Era, Permitted, Upstream, World},
};
use crate::{
    clock::Clock,
    dialect::{north, notices, task},
    error::{Code, Error},
    identity::task::TaskIds,
    mcp::{Capabilities, LogLevel, Method, Served, rpc},
    model::{
        call::{Call, Notices as Filter, Request, Surface, Target},
        caller::Caller,
        exchange::{LimitHit, LimitKind, NorthDialect, Outcome},
        reply::{Content, Final, Reply, ResultBody},
    },
    policy::View,
};

/// Over the upstream's own patience, for the way there.
const GRACE: Duration = Duration::from_secs(1);

/// Answers what is about listening.
#[derive(Clone)]
pub struct ListenLayer {
    notices: Arc<Notices>,
    states: Arc<ClientStates>,
    /// `None`: nobody has a task here.
    tasks: Option<tasks::Opener>,
}

impl ListenLayer {
    pub fn new(notices: Arc<Notices>, states: Arc<ClientStates>) -> Self {
        Self { notices, states, tasks: None }
    }

    /// Also watches tasks, whose ids these open.
    #[must_use]
    pub fn with_tasks(self, ids: Arc<TaskIds>, clock: Clock) -> Self {
        Self { tasks: Some(tasks::Opener { ids, clock }), ..self }
    }
}

impl<S> Layer<S> for ListenLayer {
    type Service = Listen<S>;

    fn layer(&self, inner: S) -> Listen<S> {
        Listen { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Listen<S> {
    inner: S,
    layer: Arc<ListenLayer>,
}

impl<S> Service<Permitted> for Listen<S>
where
    S: Service<Permitted, Response = Reply, Error = Error>,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<S::Future, BoxFuture<Reply>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, permitted: Permitted) -> Self::Future {
        let layer = || ListenLayer::clone(&self.layer);
        match &permitted.call.request {
            Request::Listen(filter) => {
                let (layer, filter) = (layer(), (**filter).clone());
                Either::Right(Box::pin(async move { layer.listen(permitted, filter).await }))
            }
            Request::Ask(ask) if matches!(ask.method, Method::Subscribe | Method::Unsubscribe) => {
                let (layer, ask) = (layer(), ask.clone());
                Either::Right(Box::pin(async move {
                    let Target::Resource(uri) = ask.target else {
                        return Err(Error::new(Code::Internal, "a subscription names no resource"));
                    };
                    if ask.method == Method::Subscribe {
                        layer.subscribe(&permitted, uri).await
                    } else {
                        layer.unsubscribe(&permitted, &uri)
                    }
                }))
            }
            Request::SetLevel(level) => {
                let set = layer().set_level(&permitted, *level);
                Either::Right(Box::pin(std::future::ready(set)))
            }
            _ => Either::Left(self.inner.call(permitted)),
        }
    }
}

// === Streams ===

impl ListenLayer {
    async fn listen(self, permitted: Permitted, filter: Filter) -> Result<Reply, Error> {
        let Permitted { call, permit, world, beside, .. } = permitted;
        if !filter.tasks.is_empty() && !call.client.capabilities.contains(Capabilities::TASKS) {
            return Err(task::undeclared().with_reason("undeclared_extension"));
        }
        let view = permit.view().clone();
        let seat = self.notices.seat(Holder::of(&call.caller)).map_err(|full| {
            let (id, error) = self.full(full);
            let hit = LimitHit { id: id.into(), kind: LimitKind::Concurrency };
            call.exchange.facts().limits.push(hit);
            error
        })?;
        let offered = offered(&world, beside.as_deref(), &call.surface);
        let wanted = Wanted {
            tools: filter.tools && offered.tools,
            prompts: filter.prompts && offered.prompts,
            resources: filter.resources && offered.resources,
        };
        let beside = beside.as_deref();
        let seen = Seen::of(&world, &view, beside, &call.surface);
        let (caller, surface) = (Caller::clone(&call.caller), call.surface.clone());
        let subscriber = Subscriber::new(caller, surface, wanted, seen);
        let subscriber = Arc::new(subscriber.following_links(call.links_have_ids()));
        if beside.is_some() {
            subscriber.note_own();
        }
        let mut subscriptions = Vec::new();
        if call.dialect == NorthDialect::Modern {
            let hears: Weak<dyn Hears> = Arc::downgrade(&(subscriber.clone() as Arc<dyn Hears>));
            let seen = Sight { world: &world, view: &view, beside };
            let (kept, honoured) = self.watch_all(&call, seen, &filter, &hears).await?;
            subscriptions = kept;
            let Wanted { tools, prompts, resources } = wanted;
            let honoured = Filter { tools, prompts, resources, ..honoured };
            subscriber.greet(notices::acknowledged(&honoured));
        } else {
            self.state(&call)?.attach(&subscriber);
        }
        // However it ends: whoever listens may leave when they like.
        {
            let mut facts = call.exchange.facts();
            facts.outcome = Some(Outcome::Ok);
            facts.acknowledged = Some(Instant::now());
        }
        let stream = self.notices.open(seat, subscriber, subscriptions, &world);
        Ok(Reply { headers: SmallVec::new(), content: Content::Stream(stream) })
    }

    /// Watches what of these resources and tasks may be watched; gives those that are.
    async fn watch_all(
        &self,
        call: &Call,
        sight: Sight<'_>,
        filter: &Filter,
        hears: &Weak<dyn Hears>,
    ) -> Result<(Vec<Subscription>, Filter), Error> {
        let most = self.notices.limits.subscriptions;
        if filter.updates.len() + filter.tasks.len() > most {
            let message = format!("one stream watches at most {most} resources and tasks");
            return Err(Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 200, message));
        }
        let (mut uris, mut ids) = (HashSet::new(), HashSet::new());
        let resources =
            filter.updates.iter().filter(|uri| uris.insert(&***uri)).filter_map(|uri| {
                let (upstream, own) = sight.visible(call, uri)?;
                watchable(&upstream).then(|| wish(call, upstream, own, uri, hears.clone()))
            });
        let tasks =
            filter.tasks.iter().filter(|id| ids.insert(&***id)).filter_map(|id| {
                sight.worlds().find_map(|world| self.task(call, world, id, hears))
            });
        let pending = resources.chain(tasks).map(|wish| {
            let patience = wish.upstream.timeout + GRACE;
            let is_task = matches!(wish.topic, Topic::Task { .. });
            let public = wish.public.clone();
            let (subscription, answer) = self.notices.feeds.subscribe(wish);
            async move {
                let answer = answered(answer, patience).await;
                answer.is_ok().then_some((subscription, is_task, public))
            }
        });
        let (mut kept, mut honoured) = (Vec::new(), Filter::default());
        let pending: Vec<_> = pending.collect();
        for (subscription, is_task, public) in join_all(pending).await.into_iter().flatten() {
            kept.push(subscription);
            let list = if is_task { &mut honoured.tasks } else { &mut honoured.updates };
            list.push((*public).into());
        }
        Ok((kept, honoured))
    }

    fn full(&self, full: Full) -> (&'static str, Error) {
        let limits = self.notices.limits;
        let (id, message) = match full {
            Full::PerPrincipal => (
                "streams.per_principal",
                format!("as many streams are open as one may have: {}", limits.per_principal),
            ),
            Full::Total => {
                ("streams.total", "the gateway has as many streams open as it may".to_owned())
            }
        };
        let error = Error::new(Code::RateLimited, message)
            .with_limit(id)
            .with_reason("concurrency")
            .with_retry_after(Duration::from_secs(5));
        (id, error)
    }

    /// What is kept of the caller's session.
    fn state(&self, call: &Call) -> Result<Arc<ClientState>, Error> {
        let employee = call.caller.principal.employee.as_ref();
        let state = call.client.session.and_then(|session| self.states.find(session, employee));
        state.ok_or_else(|| {
            let message = "this belongs into a session: initialize one";
            Error::protocol(Code::InvalidArgs, rpc::INVALID_REQUEST, 400, message)
        })
    }
}

// === Subscriptions and the log level of a session ===

impl ListenLayer {
    async fn subscribe(self, permitted: &Permitted, uri: Box<str>) -> Result<Reply, Error> {
        let Permitted { call, permit, world, .. } = permitted;
        let state = self.state(call)?;
        if !world.catalog.served(&call.surface).contains(Served::SUBSCRIBE) {
            return Err(unserved(Method::Subscribe));
        }
        let (upstream, own) =
            visible(call, world, permit.view(), &uri).ok_or_else(|| unknown_resource(&uri))?;
        if !watchable(&upstream) {
            return Err(unserved(Method::Subscribe));
        }
        call.exchange.facts().upstream = Some(upstream.name.shared());
        if state.watches(&uri) {
            return Ok(empty());
        }
        let most = self.notices.limits.subscriptions;
        if state.watched() >= most {
            let message = format!("one session watches at most {most} resources");
            return Err(Error::new(Code::RateLimited, message)
                .with_limit("streams.subscriptions")
                .with_retry_after(Duration::from_secs(5)));
        }
        let hears: Weak<dyn Hears> = Arc::downgrade(&(state.clone() as Arc<dyn Hears>));
        let (subscription, answer) =
            self.notices.feeds.subscribe(wish(call, upstream.clone(), own, &uri, hears));
        match answered(answer, upstream.timeout + GRACE).await {
            Ok(()) => {
                state.watch(uri, subscription);
                Ok(empty())
            }
            Err(Refused::Rpc(error)) => {
                Ok(Reply { headers: SmallVec::new(), content: Content::Final(Final::Error(error)) })
            }
            Err(Refused::Declined | Refused::Gone) => Err(unknown_resource(&uri)),
            Err(Refused::Unset) => Err(no_credential(&upstream, &call.caller)),
            Err(Refused::Failed(why)) => {
                Err(Error::new(Code::ExternalServiceError, String::from(why)).from_upstream())
            }
        }
    }

    fn unsubscribe(&self, permitted: &Permitted, uri: &str) -> Result<Reply, Error> {
        let call = &permitted.call;
        let state = self.state(call)?;
        if !permitted.world.catalog.served(&call.surface).contains(Served::SUBSCRIBE) {
            return Err(unserved(Method::Unsubscribe));
        }
        // Letting go of what one does not have changes nothing, and is no fault.
        state.unwatch(uri);
        Ok(empty())
    }

    fn set_level(&self, permitted: &Permitted, level: LogLevel) -> Result<Reply, Error> {
        let call = &permitted.call;
        if !permitted.world.catalog.served(&call.surface).contains(Served::LOGGING) {
            return Err(unserved(Method::SetLevel));
        }
        self.state(call)?.set_level(level);
        Ok(empty())
    }
}

/// What a stream's caller sees: of everybody's, and of his own beside it.
#[derive(Clone, Copy)]
struct Sight<'a> {
    world: &'a World,
    view: &'a Arc<View>,
    beside: Option<&'a Beside>,
}

impl<'a> Sight<'a> {
    fn worlds(self) -> impl Iterator<Item = &'a World> {
        [self.world].into_iter().chain(self.beside.map(|beside| &*beside.world))
    }

    fn visible(self, call: &Call, uri: &str) -> Option<(Arc<Upstream>, String)> {
        let own = || self.beside.and_then(|own| visible(call, &own.world, &own.view, uri));
        visible(call, self.world, self.view, uri).or_else(own)
    }
}

fn empty() -> Reply {
    Reply::result(ResultBody::own(Bytes::from_static(b"{}")))
}

/// Lists whose changes are told on a surface: those that it has at all. The gateway lists them
/// again and again, so it notices whether or not a server would tell.
fn offered(world: &World, beside: Option<&Beside>, surface: &Surface) -> Wanted {
    let own = beside.map_or(Served::NONE, |beside| beside.world.catalog.served(surface));
    let served = world.catalog.served(surface) | own;
    Wanted {
        tools: served.contains(Served::TOOLS),
        prompts: served.contains(Served::PROMPTS),
        resources: served.contains(Served::RESOURCES),
    }
}

/// A server that tells of its resources. One that keeps nothing of a session cannot.
fn watchable(upstream: &Upstream) -> bool {
    let declared = upstream.served().contains(Served::SUBSCRIBE);
    match upstream.era() {
        Some(Era::Modern(_)) => declared,
        Some(Era::Legacy) => declared && !upstream.stateless,
        Some(Era::Lite) | None => false,
    }
}

/// Whose resource a URI names, and how that one has it, where the caller may read it.
fn visible(
    call: &Call,
    world: &World,
    view: &Arc<View>,
    uri: &str,
) -> Option<(Arc<Upstream>, String)> {
    if call.caller.names_employees && call.caller.principal.employee.is_none() {
        return None;
    }
    let (index, own, _) = world.catalog.resource(&call.surface, uri)?;
    let (name, _) = world.catalog.listings(&Surface::Aggregate).nth(index)?;
    view.permit_uri(name.as_str(), &own).ok()?;
    Some((world.upstreams.get(index)?.clone(), own))
}

fn wish(
    call: &Call,
    upstream: Arc<Upstream>,
    own: String,
    uri: &str,
    hears: Weak<dyn Hears>,
) -> Wish {
    let (caller, topic) = (Caller::clone(&call.caller), Topic::Resource(own.into()));
    Wish { upstream, caller, topic, public: uri.into(), hears }
}

async fn answered(
    answer: oneshot::Receiver<Result<(), Refused>>,
    patience: Duration,
) -> Result<(), Refused> {
    match timeout(patience, answer).await {
        Ok(Ok(answer)) => answer,
        _ => Err(Refused::Failed("the server did not say in time whether it will tell".into())),
    }
}

fn unserved(method: Method) -> Error {
    let message = format!("method not found: {}", method.as_str());
    Error::protocol(Code::NotFound, rpc::METHOD_NOT_FOUND, 404, message)
}

/// What a resource answers that is not there, or not for this caller.
fn unknown_resource(uri: &str) -> Error {
    let message = north::not_found_message(uri);
    Error::protocol(Code::NotFound, rpc::RESOURCE_NOT_FOUND, 200, message)
        .with_data(north::not_found_data(uri))
}
