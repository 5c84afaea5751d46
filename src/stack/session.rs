//! Opens and renews `Mcp-Session-Id` where the server's protocol version needs one.
//!
//! A session belongs to one employee at one upstream and is never shared, unless the operator
//! says that the server keeps nothing of a session. The gateway's own discovery has its own.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use dashmap::DashMap;
use futures_util::future::Either;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header as http_header};
use http_body_util::BodyExt;
use tokio::{sync::Mutex, time::Instant};
use tower::{Layer, Service};

use super::{
    answer::{self, Media},
    stage::{BoxFuture, Hop, Upstream},
};
use crate::{
    body::Body,
    dialect::{
        south::{self, Incoming},
        sse,
    },
    error::{Code, Error},
    json::{self, Doc, Value},
    mcp::{Version, header},
    model::{
        caller::{CallerId, EmployeeId, TenantId},
        reply::Final,
        server::UpstreamName,
    },
};

/// The most that an answer to `initialize` may hold.
const INITIALIZE_BYTES: usize = 256 * 1024;

/// Whose session at which upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    upstream: UpstreamName,
    /// `None`: the gateway itself, or everybody at a server that keeps nothing.
    owner: Option<(TenantId, CallerId, Option<EmployeeId>)>,
}

#[derive(Clone)]
struct Session {
    /// A server may do without.
    id: Option<HeaderValue>,
    version: Version,
    /// Tells one opening from the next.
    serial: u64,
}

struct Slot {
    /// Held while a session is opened, so that calls that come together open one.
    session: Mutex<Option<Session>>,
    /// Milliseconds after the pool's start.
    used: AtomicU64,
    upstream: Arc<Upstream>,
}

/// Sessions at upstreams, shared by all cores.
pub struct Sessions {
    slots: DashMap<Key, Arc<Slot>>,
    started: Instant,
    serial: AtomicU64,
    id: AtomicU64,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            slots: DashMap::new(),
            started: Instant::now(),
            serial: AtomicU64::new(1),
            id: AtomicU64::new(1),
        }
    }
}

impl Sessions {
    fn slot(&self, hop: &Hop) -> Arc<Slot> {
        let owner = hop.caller.as_ref().filter(|_| !hop.upstream.stateless).map(|caller| {
            (caller.tenant.clone(), caller.id.clone(), caller.principal.employee.clone())
        });
        let key = Key { upstream: hop.upstream.name.clone(), owner };
        let slot = self.slots.entry(key).or_insert_with(|| {
            Arc::new(Slot {
                session: Mutex::new(None),
                used: AtomicU64::new(0),
                upstream: hop.upstream.clone(),
            })
        });
        slot.used.store(self.now(), Ordering::Relaxed);
        slot.clone()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes out the sessions that were not used for a while; whoever calls this ends them at
    /// their servers.
    fn idle(&self, longer_than: Duration) -> Vec<Arc<Slot>> {
        let longest = u64::try_from(longer_than.as_millis()).unwrap_or(u64::MAX);
        let now = self.now();
        let mut gone = Vec::new();
        self.slots.retain(|_, slot| {
            // A slot that somebody holds is in use, whatever its clock says.
            let idle = now.saturating_sub(slot.used.load(Ordering::Relaxed)) > longest
                && Arc::strong_count(slot) == 1;
            if idle {
                gone.push(slot.clone());
            }
            !idle
        });
        gone
    }
}

/// Keeps sessions for those servers that want them.
#[derive(Clone)]
pub struct SessionLayer {
    sessions: Arc<Sessions>,
}

impl SessionLayer {
    pub fn new(sessions: Arc<Sessions>) -> Self {
        Self { sessions }
    }
}

impl<S> Layer<S> for SessionLayer {
    type Service = WithSession<S>;

    fn layer(&self, inner: S) -> WithSession<S> {
        WithSession { inner, sessions: self.sessions.clone() }
    }
}

#[derive(Clone)]
pub struct WithSession<S> {
    inner: S,
    sessions: Arc<Sessions>,
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
        let sessions = self.sessions.clone();
        Either::Right(Box::pin(in_session(inner, sessions, hop)))
    }
}

async fn in_session<S>(
    mut inner: S,
    sessions: Arc<Sessions>,
    hop: Hop,
) -> Result<Response<Body>, Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error>,
{
    let slot = sessions.slot(&hop);
    let session = current(&slot, &sessions, &mut inner, &hop, None).await?;
    let response = inner.call(within(&hop, &session)).await?;
    if response.status() != StatusCode::NOT_FOUND || session.id.is_none() {
        return Ok(response);
    }
    // The server forgot the session and so did not run the request: once more, in a new one.
    drop(response);
    let session = current(&slot, &sessions, &mut inner, &hop, Some(session.serial)).await?;
    inner.call(within(&hop, &session)).await
}

/// The slot's session, opened if there is none, or only the one that proved dead.
async fn current<S>(
    slot: &Slot,
    sessions: &Sessions,
    inner: &mut S,
    hop: &Hop,
    dead: Option<u64>,
) -> Result<Session, Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error>,
{
    let mut held = slot.session.lock().await;
    if let Some(session) = &*held
        && Some(session.serial) != dead
    {
        return Ok(session.clone());
    }
    *held = None;
    let session = open(sessions, inner, hop).await?;
    *held = Some(session.clone());
    Ok(session)
}

fn within(hop: &Hop, session: &Session) -> Hop {
    let mut hop = hop.clone();
    if let Some(id) = &session.id {
        hop.headers.insert(header::SESSION_ID, id.clone());
    }
    let version = HeaderValue::from_static(session.version.as_str());
    hop.headers.insert(header::PROTOCOL_VERSION, version);
    hop
}

async fn open<S>(sessions: &Sessions, inner: &mut S, hop: &Hop) -> Result<Session, Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error>,
{
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
    let name = hop.upstream.name.as_str();
    let id = sessions.id.fetch_add(1, Ordering::Relaxed);
    let asked = hop.upstream.pinned.unwrap_or(Version::LATEST_LEGACY);
    let mut headers = HeaderMap::new();
    headers.insert(http_header::CONTENT_TYPE, JSON);
    headers.insert(http_header::ACCEPT, BOTH);
    let initialize = hop.beside(headers.clone(), south::initialize_body(id, asked).into());
    let response = inner.call(initialize).await.map_err(not_called)?;
    let session_id = response.headers().get(header::SESSION_ID).cloned();
    let version = agreed(response, id, name).await.map_err(not_called)?;
    if hop.upstream.pinned.is_some_and(|pinned| pinned != version) {
        let what = format!("speaks {version}, and the configuration pins {asked}");
        return Err(not_called(answer::failure(name, &what)));
    }
    let serial = sessions.serial.fetch_add(1, Ordering::Relaxed);
    let session = Session { id: session_id, version, serial };
    let initialized = hop.beside(headers, south::INITIALIZED.into());
    let accepted = inner.call(within(&initialized, &session)).await.map_err(not_called)?;
    if !accepted.status().is_success() {
        return Err(not_called(answer::failure(name, "refused `notifications/initialized`")));
    }
    Ok(session)
}

/// The call itself has not left: whatever failed, it did not run.
fn not_called(error: Error) -> Error {
    error.with_known_outcome()
}

async fn agreed(response: Response<Body>, id: u64, upstream: &str) -> Result<Version, Error> {
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        let failure =
            answer::standard_failure(head.status, &head.headers, body, id, upstream).await?;
        return Err(refused(&failure, upstream));
    }
    let end = match answer::media(&head.headers) {
        Media::EventStream => first_answer(body, id, upstream).await?,
        Media::Json => {
            let text = answer::collect(body, INITIALIZE_BYTES, upstream).await?;
            match south::read_message(text, id)? {
                Incoming::End(end) => end,
                _ => return Err(answer::failure(upstream, "gave `initialize` no answer")),
            }
        }
        Media::Html => {
            return Err(answer::failure(upstream, "answered with a web page: no MCP endpoint"));
        }
        Media::Other => return Err(answer::failure(upstream, "gave `initialize` no answer")),
    };
    let Final::Result(result) = end else { return Err(refused(&end, upstream)) };
    let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 1 };
    let version = Doc::parse(result.raw, &limits).ok().and_then(|doc| {
        let version = doc.root().get("protocolVersion").and_then(Value::as_str)?;
        Version::of_server(&version)
    });
    version
        .filter(|version| !version.is_modern())
        .ok_or_else(|| answer::failure(upstream, "agreed on no protocol version that is spoken"))
}

fn refused(end: &Final, upstream: &str) -> Error {
    let code = if let Final::Error(error) = end { error.code } else { 0 };
    answer::failure(upstream, &format!("refused `initialize` (JSON-RPC error {code})"))
}

/// The answer on an event stream, which servers of this era like to use for everything.
async fn first_answer(mut body: Body, id: u64, upstream: &str) -> Result<Final, Error> {
    let mut parser = sse::Parser::new(INITIALIZE_BYTES);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|cause| answer::broken(upstream, cause))?;
        let Ok(data) = frame.into_data() else { continue };
        parser.push(data);
        while let Some(event) = parser.next() {
            let event = event.map_err(|cause| answer::broken(upstream, cause))?;
            if event.data.is_empty() {
                continue;
            }
            if let Incoming::End(end) = south::read_message(event.data, id)? {
                return Ok(end);
            }
        }
    }
    Err(answer::failure(upstream, "ended its stream before the answer to `initialize`"))
}

/// Ends sessions that nobody has used for `idle`, until it is dropped.
pub async fn close_idle<S>(sessions: Arc<Sessions>, mut inner: S, idle: Duration)
where
    S: Service<Hop, Response = Response<Body>, Error = Error>,
{
    loop {
        tokio::time::sleep(idle / 2).await;
        for slot in sessions.idle(idle) {
            let session = slot.session.lock().await.take();
            let Some(session) = session.filter(|session| session.id.is_some()) else { continue };
            let end = Hop::own(slot.upstream.clone(), http::Method::DELETE);
            if let Err(error) = inner.call(within(&end, &session)).await
                && error.code() != Code::ExternalServiceError
            {
                tracing::debug!(%error, "an idle session could not be ended");
            }
        }
    }
}
