//! Opens and renews `Mcp-Session-Id` where the server's protocol version needs one.
//!
//! A session belongs to one employee at one upstream, declares one set of capabilities, and is
//! never shared, unless the operator says that the server keeps nothing of a session. The
//! gateway's own discovery has its own.
//!
//! Any request goes through here, whatever its HTTP method: the stream that a session offers by
//! `GET` is a [`Hop::in_session`] like another. What it answers is looked at only where the server
//! may have forgotten the session (`forgotten.rs`).

mod forgotten;
mod opening;
mod pool;

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::Either;
use http::Response;
use tower::{Layer, Service};

use super::{
    answer,
    stage::{BoxFuture, HeldSession, Hop, UpstreamAuth},
};
use crate::{
    body::{Body, Pieces},
    credential::{
        Vault,
        oauth::{Asked, TokenFault},
        store::{Held, Stamp},
    },
    error::{Code, Error},
    mcp::{Capabilities, Served},
};

pub use pool::Sessions;

use self::pool::{Life, Session, Slot};

/// Keeps sessions for those servers that want them.
#[derive(Clone)]
pub struct SessionLayer {
    sessions: Arc<Sessions>,
    vault: Arc<Vault>,
}

impl SessionLayer {
    /// `vault` knows with which credential a session has to be opened.
    pub fn new(sessions: Arc<Sessions>, vault: Arc<Vault>) -> Self {
        Self { sessions, vault }
    }
}

impl<S> Layer<S> for SessionLayer {
    type Service = WithSession<S>;

    fn layer(&self, inner: S) -> WithSession<S> {
        WithSession { inner, layer: self.clone() }
    }
}

#[derive(Clone)]
pub struct WithSession<S> {
    inner: S,
    layer: SessionLayer,
}

impl<S> Service<Hop> for WithSession<S>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Error;
    type Future = Either<S::Future, BoxFuture<Response<Body>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, hop: Hop) -> Self::Future {
        if !hop.session {
            return Either::Left(self.inner.call(hop));
        }
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Either::Right(Box::pin(in_session(inner, layer, hop)))
    }
}

async fn in_session<S>(
    mut inner: S,
    SessionLayer { sessions, vault }: SessionLayer,
    mut hop: Hop,
) -> Result<Response<Body>, Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error>,
{
    hop.credential = employees(&vault, &hop).await?;
    if let Some(held) = hop.held.take() {
        return in_held(inner, hop, held).await;
    }
    let slot = sessions.slot(&hop)?;
    let (session, serial) = current(&slot, &sessions, &mut inner, &hop, None).await?;
    let response = inner.call(within(&hop, &session)).await?;
    let name = hop.upstream.name.as_str();
    if let Some(response) = forgotten::known(response, &session, name).await? {
        return Ok(holding(response, session));
    }
    // The server forgot the session and so did not run the request: once more, in a new one.
    session.lost.store(true, Ordering::Relaxed);
    let (session, _) = current(&slot, &sessions, &mut inner, &hop, Some(serial)).await?;
    let response = inner.call(within(&hop, &session)).await?;
    Ok(holding(response, session))
}

/// A request that means something in one session only.
async fn in_held<S>(mut inner: S, hop: Hop, held: HeldSession) -> Result<Response<Body>, Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error>,
{
    if held.credential != stamp(&hop) {
        held.lost.store(true, Ordering::Relaxed);
        return Err(answer::session_lost(hop.upstream.name.as_str()).with_known_outcome());
    }
    let response = inner.call(within(&hop, &held)).await?;
    let name = hop.upstream.name.as_str();
    match forgotten::known(response, &held, name).await? {
        Some(response) => Ok(holding(response, held)),
        None => {
            held.lost.store(true, Ordering::Relaxed);
            Err(answer::session_lost(name))
        }
    }
}

/// The sealed credential of the employee that a session is for, where it is opened with his own.
/// Tokens that he is given for each call bind it to nothing but himself.
async fn employees(vault: &Vault, hop: &Hop) -> Result<Option<Arc<Held>>, Error> {
    let Some(caller) = hop.caller.as_ref().filter(|_| hop.upstream.auth.is_kept()) else {
        return Ok(None);
    };
    let missing = || answer::no_credential(&hop.upstream, caller);
    let whose = hop.upstream.credential_of(caller).ok_or_else(missing)?;
    let held = vault.held(&whose).await;
    let held = held.map_err(|fault| answer::vault_failed(&hop.upstream, fault))?;
    match (held, &hop.upstream.auth) {
        (Some(held), _) => Ok(Some(held)),
        // Whoever brings tokens knows where one is granted.
        (None, UpstreamAuth::Tokens(source)) => {
            let session = hop.exchange.facts().session_hash;
            let asked = Asked { whose: Some(whose), refused: None, session };
            let refused = source.token(asked).await.err().unwrap_or(TokenFault::Nobody);
            Err(answer::no_token(&hop.upstream, refused))
        }
        (None, _) => Err(missing()),
    }
}

fn stamp(hop: &Hop) -> Option<Stamp> {
    hop.credential.as_ref().map(|held| held.stamp())
}

fn holding(mut response: Response<Body>, session: HeldSession) -> Response<Body> {
    response.extensions_mut().insert(session);
    response
}

/// The slot's session, opened if there is none, or only the one that proved dead; and its
/// serial.
async fn current<S>(
    slot: &Arc<Slot>,
    sessions: &Sessions,
    inner: &mut S,
    hop: &Hop,
    dead: Option<u64>,
) -> Result<(HeldSession, u64), Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error>,
{
    let mut open = slot.session.lock().await;
    // One that was opened with another credential serves nobody any more.
    if let Some(session) = open.take_if(|session| session.held.credential != stamp(hop)) {
        session.held.lost.store(true, Ordering::Relaxed);
    }
    if open.as_ref().is_none_or(|session| Some(session.serial) == dead) {
        *open = None;
        let opened = opening::open(inner, hop).await?;
        let held = HeldSession {
            id: opened.id,
            credential: stamp(hop),
            version: opened.version,
            served: opened.served,
            lost: Arc::new(AtomicBool::new(false)),
            // A place does not hold itself.
            place: Arc::new(()),
        };
        let life = Life::begin(sessions, &hop.exchange, &held);
        *open = Some(Session { held, serial: sessions.serial(), level: None, _life: life });
    }
    let Some(session) = open.as_mut() else {
        return Err(Error::new(Code::Internal, "a session was opened and is not there"));
    };
    let held = HeldSession { place: slot.clone(), ..session.held.clone() };
    if let Some(level) = hop.log_level
        && session.held.served.contains(Served::LOGGING)
        && session.level.is_none_or(|set| level < set)
    {
        session.level = Some(level);
        let beside = opening::beside(hop, opening::headers(), Pieces::default());
        opening::set_level(inner, within(&beside, &held), level).await;
    }
    Ok((held, session.serial))
}

fn within(hop: &Hop, session: &HeldSession) -> Hop {
    let mut hop = hop.clone();
    opening::mark(&mut hop.headers, session.id.as_ref(), session.version);
    hop
}

/// Between two looks for sessions that are idle.
const LOOK: Duration = Duration::from_secs(5);

/// Ends sessions that nobody has used for as long as their upstream allows, until it is dropped.
pub async fn close_idle<S>(sessions: Arc<Sessions>, mut inner: S)
where
    S: Service<Hop, Response = Response<Body>, Error = Error>,
{
    loop {
        let shortest = sessions.shortest_idle().unwrap_or(LOOK);
        tokio::time::sleep((shortest / 2).min(LOOK)).await;
        for slot in sessions.idle() {
            let session = slot.session.lock().await.take();
            let Some(session) = session.filter(|session| session.held.id.is_some()) else {
                continue;
            };
            let (upstream, caller) = (slot.upstream.clone(), slot.caller.clone());
            let end = Hop::in_session(upstream, caller, Capabilities::NONE, http::Method::DELETE);
            if let Err(error) = inner.call(within(&end, &session.held)).await {
                tracing::debug!(%error, "an idle session could not be ended");
            }
        }
    }
}
