//! A call that ends because its employee has granted the gateway nothing at a server yet, or too
//! little: his client is told the link under which he does, and the call is made again.
//!
//! A client of 2026-07-28 gets a result that asks and a state, as for a question of a server. The
//! state keeps what the call itself had brought. Its person may still be in the browser when the
//! call comes back: it waits for him for a while, then he is asked again, as often as any question
//! may be.
//!
//! A client of 2025-11-25 gets the error that its revision has for this (-32042), and hears on the
//! stream of its session when the link has been followed to its end. It could be asked in the
//! middle of its call, and is not: an answer says only that its person is willing, so the call
//! would be held open at this replica for as long as he takes, with its places and its time, for
//! something that comes back at any replica. The error holds nothing open.
//!
//! Whoever cannot be told a link in either way gets the error that has it in `connectUrl`.
//!
//! What ends like this has done nothing. The layers below see an error of a call that never left:
//! its key is free, it has cost nothing, and an approval is good for the next try.

mod ticket;

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::Either;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service};

use self::ticket::Ticket;
use super::{
    asked::Asked,
    parked::Holder,
    stage::{BoxFuture, Brought, Permitted, Upstream},
};
use crate::{
    clock::Clock,
    credential::{Vault, Whose, oauth::INVITED_MS},
    dialect::questions::{self, Asked as Question},
    error::{Code, Error, Next},
    identity::{session::Owner, state::States, ticket::name_of},
    mcp::{Method, rpc},
    model::{
        call::Call,
        caller::Caller,
        exchange::{Exchange, NorthDialect},
        reply::{Final, Reply, ResultBody},
    },
};

/// Under which the answer comes.
const KEY: &str = "connect";

/// Between two looks whether a grant has come. It may come at another replica.
const LOOK: Duration = Duration::from_secs(1);

/// Has employees asked for the grants that their calls lack.
#[derive(Clone)]
pub struct ConsentLayer {
    pub states: Arc<States>,
    pub asked: Arc<Asked>,
    /// Knows whether there is another grant than there was.
    pub vault: Arc<Vault>,
    pub clock: Clock,
}

impl<S> Layer<S> for ConsentLayer {
    type Service = Consent<S>;

    fn layer(&self, inner: S) -> Consent<S> {
        Consent { inner, layer: Arc::new(self.clone()) }
    }
}

#[derive(Clone)]
pub struct Consent<S> {
    inner: S,
    layer: Arc<ConsentLayer>,
}

impl<S> Service<Permitted> for Consent<S>
where
    S: Service<Permitted, Response = Reply, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<S::Future, BoxFuture<Reply>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, permitted: Permitted) -> Self::Future {
        let Some(upstream) = concerned(&permitted) else {
            return Either::Left(self.inner.call(permitted));
        };
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        Either::Right(Box::pin(self.layer.clone().seen_to(inner, permitted, upstream)))
    }
}

/// The server of a call that may end for want of a grant, and whose client can be told a link or
/// was told one.
fn concerned(permitted: &Permitted) -> Option<Arc<Upstream>> {
    let call = &permitted.call;
    let told = || Brought::of(&call.request).is_some();
    if !call.request.method().may_ask() || !(call.can_follow_links() || told()) {
        return None;
    }
    // A dry run ends before anybody looks for a grant.
    if permitted.trial.is_some() {
        return None;
    }
    let index = match (&permitted.tool, &permitted.asked) {
        (Some(tool), _) => tool.upstream_index,
        (None, Some(asked)) => asked.upstream_index,
        (None, None) => return None,
    };
    let upstream = permitted.world.upstreams.get(index)?;
    upstream.auth.is_granted().then(|| upstream.clone())
}

/// What a call is asked with, should it come to that.
struct Asking {
    layer: Arc<ConsentLayer>,
    exchange: Arc<Exchange>,
    caller: Arc<Caller>,
    upstream: Arc<Upstream>,
    /// `None`: its client can be told no link.
    dialect: Option<NorthDialect>,
    about: String,
    ticket: Ticket,
}

impl ConsentLayer {
    /// Makes the call, once its person has had time to follow the link that he was told.
    async fn seen_to<S>(
        self: Arc<Self>,
        mut inner: S,
        mut permitted: Permitted,
        upstream: Arc<Upstream>,
    ) -> Result<Reply, Error>
    where
        S: Service<Permitted, Response = Reply, Error = Error>,
    {
        let call = &mut permitted.call;
        let about = ticket::about(call);
        let whose = upstream.credential_of(&call.caller);
        let told = self.open(call, &about)?;
        let (rounds, brought) = match told {
            Some((answer, ticket)) => {
                if let Some(brought) = ticket.brought.clone() {
                    let state = brought.state();
                    brought.put_back(&mut call.request, state);
                }
                if heard(answer.as_deref(), &upstream)? {
                    self.wait(call, &upstream, whose.as_ref(), ticket.grant.as_deref()).await;
                }
                (ticket.rounds, ticket.brought)
            }
            None => (0, Brought::of(&call.request)),
        };
        let grant = self.grant(whose.as_ref()).await;
        let asking = Asking {
            exchange: call.exchange.clone(),
            caller: call.caller.clone(),
            dialect: Some(call.dialect).filter(|_| call.can_follow_links()),
            layer: self,
            upstream,
            about,
            ticket: Ticket { rounds, grant, brought },
        };
        match inner.call(permitted).await {
            Ok(reply) => reply.map_end(move |end| match end {
                Err(error) => asking.tell(error).map(Final::Result),
                end => end,
            }),
            Err(error) => asking.tell(error).map(Reply::result),
        }
    }

    /// Waits for another grant than there was, for as long as the call would wait for its server.
    /// It takes a place among those that wait for people, and none among those that run.
    async fn wait(
        &self,
        call: &Call,
        upstream: &Upstream,
        whose: Option<&Whose>,
        before: Option<&str>,
    ) {
        let holder = Holder::new(&upstream.name, Some(&call.caller));
        // Where too many wait already, it is made at once.
        let Ok(_place) = self.asked.place(holder) else { return };
        let began = Instant::now();
        let until = began + upstream.timeout;
        while self.grant(whose).await.as_deref() == before {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            sleep(LOOK.min(left)).await;
        }
        call.exchange.facts().waited += began.elapsed();
    }

    /// Tells one grant from the next. What cannot be looked up the call will find out.
    async fn grant(&self, whose: Option<&Whose>) -> Option<Box<str>> {
        let held = self.vault.held(whose?).await.ok().flatten()?;
        Some(held.stamp().to_string().into())
    }
}

/// What a person said to the link: whether he went there. Who says nothing is not there yet.
fn heard(answer: Option<&str>, upstream: &Upstream) -> Result<bool, Error> {
    let name = &upstream.name;
    let (what, reason) = match answer {
        Some("decline") => ("declined to", "consent_declined"),
        Some("cancel") => ("did not", "consent_cancelled"),
        answer => return Ok(answer == Some("accept")),
    };
    let message = format!(
        "`{name}` needs the consent of the person this call is made for, who {what} give it: the \
         call was not made."
    );
    Err(Error::new(Code::ServerNotConfigured, message)
        .with_reason(reason)
        .with_advice(false, Next::Stop)
        .with_known_outcome())
}

impl Asking {
    /// What its client gets in the place of an error.
    fn tell(self, error: Error) -> Result<ResultBody, Error> {
        let (Some(url), Some(dialect)) = (error.connect(), self.dialect) else {
            return Err(error);
        };
        let message = format!(
            "`{}` needs your consent before this can be done. Follow the link to give it.",
            self.upstream.name
        );
        if dialect != NorthDialect::Modern {
            let link = questions::link(url, &message, Some(&name_of(url)));
            let links = [b"[", &*link, b"]"].concat();
            return Err(error.with_elicitations(rpc::URL_ELICITATION_REQUIRED, links));
        }
        // A person who does not get there is not asked for ever.
        if self.ticket.rounds >= self.layer.asked.limits().rounds {
            return Err(error);
        }
        let params = Some(questions::link(url, &message, None));
        let question = Question { key: KEY.into(), method: Method::Elicit, params };
        // What is too long to be kept cannot be gone on with: the error says where to go, too.
        let Some(state) = self.sealed() else { return Err(error) };
        self.exchange.facts().code = Some(error.code());
        Ok(questions::asking([&question], Some(&state)))
    }

    fn sealed(&self) -> Option<String> {
        let layer = &self.layer;
        let until_ms = layer.clock.now_ms().saturating_add(INVITED_MS);
        let text = Ticket { rounds: self.ticket.rounds + 1, ..self.ticket.clone() }.text()?;
        let owner = Owner::of(&self.caller);
        let sealed = layer.states.seal_until(owner, &self.about, &text, until_ms).ok()?;
        Some(format!("{}{sealed}", ticket::MARK))
    }
}
