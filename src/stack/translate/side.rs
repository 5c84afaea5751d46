//! The stream that a session of the handshake era offers by `GET`, for what servers ask on it.
//!
//! Many a server asks there and not on its call's own stream. Only sessions that declare that
//! somebody can be asked have it read, while calls are under way in them and a while longer; a
//! question goes to the call that began last, since nothing in it says to which it belongs. All of
//! them are one employee's. What is no question is nobody's here.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dashmap::DashMap;
use http::{HeaderValue, Response, StatusCode, header as http_header};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::{
    sync::{
        Notify,
        mpsc::{self, error::TrySendError},
        watch,
    },
    time::{Instant, sleep, timeout},
};
use tower::Service;

use super::{
    super::{
        answer::{self, Media},
        parked::Holder,
        stage::{HeldSession, Hop},
    },
    park::nobodys,
};
use crate::{
    body::{Body, Pieces},
    dialect::{
        south::{self, Incoming},
        sse,
    },
    error::Error,
    mcp::{Capabilities, Method, header},
    model::server::UpstreamName,
};

/// How long a call waits for the stream to be there: what is asked before that is lost, and most
/// servers ask nothing.
const OPENING: Duration = Duration::from_secs(1);
/// How long the stream is read on when no call is under way: the next one finds it there.
const LINGER: Duration = Duration::from_secs(30);
/// A server that offers no such stream is not asked for one again so soon.
const NONE_OFFERED: Duration = Duration::from_secs(300);
/// Before a stream that ended is opened again.
const WAIT: Duration = Duration::from_millis(500);
/// How often in a row it is opened again in vain.
const TRIES: usize = 3;
/// How many questions wait for a call to take them. One that is put aside takes none.
const WAITING: usize = 16;
/// The largest event.
const EVENT_BYTES: usize = 1 << 20;

/// Whose stream it is: as of sessions, one for each set of capabilities.
type Key = (Holder, Capabilities);

/// The streams that are read, of all cores.
#[derive(Default)]
pub struct SideStreams {
    sides: DashMap<Key, Arc<Side>>,
    /// Servers that offer none, and since when that is known.
    none: DashMap<UpstreamName, Instant>,
}

/// A question that came on such a stream.
pub(super) struct SideQuestion {
    pub id: Bytes,
    pub method: Box<str>,
    pub params: Option<Bytes>,
}

#[derive(Clone)]
enum State {
    Opening,
    Open(HeldSession),
    Over,
}

struct Side {
    state: watch::Sender<State>,
    /// The calls under way, in the order in which they began.
    calls: Mutex<Calls>,
    changed: Notify,
}

#[derive(Default)]
struct Calls {
    serial: u64,
    open: Vec<(u64, mpsc::Sender<SideQuestion>)>,
}

/// A call's share of its session's stream.
pub(super) struct SideCall {
    side: Arc<Side>,
    serial: u64,
    questions: mpsc::Receiver<SideQuestion>,
}

impl SideCall {
    /// The next question that is this call's.
    pub async fn next(&mut self) -> Option<SideQuestion> {
        self.questions.recv().await
    }

    /// The session that the stream is of.
    pub fn session(&self) -> Option<HeldSession> {
        match &*self.side.state.borrow() {
            State::Open(session) => Some(session.clone()),
            State::Opening | State::Over => None,
        }
    }
}

impl Drop for SideCall {
    fn drop(&mut self) {
        self.side.calls.lock().open.retain(|(serial, _)| *serial != self.serial);
        self.side.changed.notify_one();
    }
}

impl Side {
    fn is_over(&self) -> bool {
        match &*self.state.borrow() {
            State::Opening => false,
            State::Open(session) => session.lost.load(std::sync::atomic::Ordering::Relaxed),
            State::Over => true,
        }
    }

    fn enter(self: &Arc<Self>) -> SideCall {
        let (sender, questions) = mpsc::channel(WAITING);
        let mut calls = self.calls.lock();
        calls.serial += 1;
        let serial = calls.serial;
        calls.open.push((serial, sender));
        drop(calls);
        self.changed.notify_one();
        SideCall { side: self.clone(), serial, questions }
    }

    /// Gives a question to the call that began last; gives it back where there is none, or where
    /// too many wait for that one already.
    fn give(&self, question: SideQuestion) -> Result<(), SideQuestion> {
        let mut question = question;
        for (_, call) in self.calls.lock().open.iter().rev() {
            match call.try_send(question) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back)) => return Err(back),
                Err(TrySendError::Closed(back)) => question = back,
            }
        }
        Err(question)
    }

    fn is_idle(&self) -> bool {
        self.calls.lock().open.is_empty()
    }

    /// Resolves when no call has been under way for a while.
    async fn idle(&self) {
        loop {
            if !self.is_idle() {
                self.changed.notified().await;
            } else if timeout(LINGER, self.changed.notified()).await.is_err() && self.is_idle() {
                return;
            }
        }
    }
}

impl SideStreams {
    /// Whether anything can be asked on a stream of a request's session: discovery, which reads
    /// the stream of its own, answers for nobody.
    pub(super) fn concerns(hop: &Hop) -> bool {
        hop.session && !hop.capabilities.is_empty() && hop.caller.is_some()
    }

    /// Takes part in the stream of a request's session, which is opened where it is not. `None`:
    /// nothing can be asked there.
    pub(super) async fn enter<S>(self: &Arc<Self>, hop: &Hop, inner: &S) -> Option<SideCall>
    where
        S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let name = &hop.upstream.name;
        if self.none.get(name).is_some_and(|since| since.elapsed() < NONE_OFFERED) {
            return None;
        }
        let owner = hop.caller.as_deref().filter(|_| !hop.upstream.shares_sessions());
        let key = (Holder::new(name, owner), hop.capabilities);
        let (call, is_new) = {
            let mut place = self.sides.entry(key.clone()).or_insert_with(Side::over);
            let is_new = place.is_over();
            if is_new {
                *place = Side::opening();
            }
            (place.enter(), is_new)
        };
        if is_new {
            let listening = Listening {
                sides: self.clone(),
                key,
                side: call.side.clone(),
                hop: get(hop),
                inner: inner.clone(),
            };
            // It outlives the call that needs it first, and ends when no call has needed it for a
            // while.
            tokio::runtime::Handle::current().spawn(listening.run());
        }
        let mut state = call.side.state.subscribe();
        let opened = state.wait_for(|state| !matches!(state, State::Opening));
        let over = match timeout(OPENING, opened).await {
            Ok(Ok(state)) => matches!(*state, State::Over),
            // It may yet come.
            Ok(Err(_)) | Err(_) => false,
        };
        (!over).then_some(call)
    }
}

impl Side {
    fn new(state: State) -> Arc<Self> {
        let (state, _) = watch::channel(state);
        Arc::new(Self { state, calls: Mutex::default(), changed: Notify::new() })
    }

    fn opening() -> Arc<Self> {
        Self::new(State::Opening)
    }

    fn over() -> Arc<Self> {
        Self::new(State::Over)
    }
}

/// The request for the stream of a call's session.
fn get(hop: &Hop) -> Hop {
    let mut get = Hop {
        method: http::Method::GET,
        exchange: Arc::new(nobodys(&hop.exchange)),
        ..hop.beside(http::HeaderMap::new(), Pieces::default())
    };
    get.headers.insert(http_header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    get
}

/// One stream being read.
struct Listening<S> {
    sides: Arc<SideStreams>,
    key: Key,
    side: Arc<Side>,
    hop: Hop,
    inner: S,
}

impl<S> Listening<S>
where
    S: Service<Hop, Response = Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    async fn run(mut self) {
        let side = self.side.clone();
        tokio::select! {
            () = self.listen() => {}
            () = side.idle() => {}
        }
        self.side.state.send_replace(State::Over);
        // A new one may be in its place.
        self.sides.sides.remove_if(&self.key, |_, place| Arc::ptr_eq(place, &self.side));
    }

    async fn listen(&mut self) {
        let name = self.hop.upstream.name.clone();
        let mut failures = 0;
        while failures < TRIES {
            match self.open().await {
                Ok((body, session)) => {
                    failures = 0;
                    self.hop.held = Some(session.clone());
                    self.side.state.send_replace(State::Open(session));
                    self.read(body).await;
                }
                // Whatever it says: it has no stream to give.
                Err(Some(status))
                    if !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS =>
                {
                    self.sides.none.insert(name, Instant::now());
                    return;
                }
                Err(_) => failures += 1,
            }
            sleep(WAIT).await;
        }
    }

    /// The stream, and the session that it is of; else the status that came instead of it.
    async fn open(&mut self) -> Result<(Body, HeldSession), Option<StatusCode>> {
        let name = self.hop.upstream.name.as_str();
        if std::future::poll_fn(|cx| self.inner.poll_ready(cx)).await.is_err() {
            return Err(None);
        }
        let response = self.inner.call(self.hop.clone()).await.map_err(|error| {
            tracing::debug!(upstream.name = name, %error, "a session's stream could not be opened");
            None
        })?;
        let status = response.status();
        let (head, body) = response.into_parts();
        match head.extensions.get::<HeldSession>() {
            Some(session)
                if status.is_success() && answer::media(&head.headers) == Media::EventStream =>
            {
                Ok((body, session.clone()))
            }
            _ => Err(Some(status)),
        }
    }

    /// Reads the stream to its end.
    async fn read(&mut self, mut body: Body) {
        let mut parser = sse::Parser::new(EVENT_BYTES);
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            parser.push(data);
            while let Some(Ok(event)) = parser.next() {
                if let Some(id) = event.id.and_then(|id| HeaderValue::from_bytes(&id).ok()) {
                    self.hop.headers.insert(header::LAST_EVENT_ID, id);
                }
                if event.data.is_empty() {
                    continue;
                }
                // Answers to calls belong on the calls' own streams.
                if let Ok(Incoming::Question { id, method, params }) =
                    south::read_message(event.data, 0)
                {
                    self.asked(SideQuestion { id, method, params }).await;
                }
            }
        }
    }

    async fn asked(&mut self, question: SideQuestion) {
        let question = if Method::parse(&question.method) == Method::Ping {
            question
        } else {
            match self.side.give(question) {
                Ok(()) => return,
                Err(question) => question,
            }
        };
        let body = south::answer_body(&question.id, &question.method);
        let mut answer = self.hop.beside(super::give_up::aside_headers(), body.into());
        answer.method = http::Method::POST;
        let answered = timeout(self.hop.upstream.timeout, async {
            std::future::poll_fn(|cx| self.inner.poll_ready(cx)).await?;
            self.inner.call(answer).await
        });
        if !matches!(answered.await, Ok(Ok(_))) {
            tracing::debug!("an answer beside a session's stream did not reach its server");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: usize) -> SideQuestion {
        let id = Bytes::from(id.to_string());
        SideQuestion { id, method: "elicitation/create".into(), params: None }
    }

    #[tokio::test]
    async fn a_call_that_takes_no_questions_keeps_only_so_many() {
        let side = Side::opening();
        assert!(side.give(question(0)).is_err(), "there is nobody");
        let (mut older, newer) = (side.enter(), side.enter());
        for id in 0..WAITING {
            assert!(side.give(question(id)).is_ok(), "{id}");
        }
        // Its server is told no; nobody else is asked in its place.
        assert!(side.give(question(WAITING)).is_err_and(|back| back.id == "16"));
        drop(newer);
        assert!(side.give(question(17)).is_ok());
        assert!(older.next().await.is_some_and(|question| question.id == "17"));
    }
}
