//! stdio: servers that are child processes, one for each session, and one for all calls of a
//! stateless server.
//!
//! What is started, and how often, is decided here; `child` minds one process. Commands come from
//! the operator's configuration alone.

mod child;
mod lines;
mod log;
mod pipes;
mod starts;

use std::{ffi::OsString, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use dashmap::DashMap;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use secrecy::SecretString;
use tokio::sync::{Mutex, Semaphore};

use self::{child::Child, pipes::Sent, starts::Starts};
use super::{
    calls::{Purpose, Users},
    message::{self, Message},
    reply::{self, Name},
    runtime::Channels,
};
use crate::{
    body::Body,
    error::{Code, Error},
    mcp::{self, header},
    upstream::{Carrier, Carrying, Upstreams},
};

/// A server that is a command.
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    /// The configured name: the only thing about an upstream that callers are told.
    pub name: Arc<str>,
    pub program: OsString,
    pub args: Vec<OsString>,
    /// All of the environment.
    pub env: Vec<(OsString, EnvValue)>,
    /// From closing its input to SIGTERM, and from that to SIGKILL. Default 2 s.
    pub stop_wait: Duration,
    /// Processes at a time. Default 32.
    pub max_processes: usize,
    /// The most that a message of it may hold.
    pub max_message: usize,
    /// How long the opening of a session may take.
    pub opening: Duration,
    /// Employees may share a session.
    pub shared: bool,
}

/// A variable's value.
#[derive(Debug, Clone)]
pub enum EnvValue {
    Plain(OsString),
    Secret(SecretString),
}

/// The processes of one upstream.
pub struct Processes {
    config: Arc<ProcessConfig>,
    channels: Arc<Channels>,
    starts: Arc<Starts>,
    places: Arc<Semaphore>,
    sessions: Arc<DashMap<Box<str>, Arc<Child>>>,
    /// Of a stateless server: every call's. Held while it is started, so that calls that come
    /// together start one.
    common: Mutex<Option<Arc<Child>>>,
}

impl Processes {
    pub fn new(config: ProcessConfig, channels: Arc<Channels>) -> Arc<Self> {
        Arc::new(Self {
            starts: Arc::new(Starts::new(config.name.clone())),
            places: Arc::new(Semaphore::new(config.max_processes)),
            config: Arc::new(config),
            channels,
            sessions: Arc::default(),
            common: Mutex::new(None),
        })
    }

    /// Processes that run, or are ending.
    pub fn running(&self) -> usize {
        self.config.max_processes.saturating_sub(self.places.available_permits())
    }

    fn name(&self) -> &Name {
        &self.config.name
    }

    async fn post(&self, request: Request<Body>) -> Result<Response<Body>, Error> {
        let session = request.headers().get(header::SESSION_ID).cloned();
        let line = line(request.into_body()).await?;
        // What is written here is the gateway's own.
        let mut messages = message::read(&line).unwrap_or_default();
        let Some((_, message)) = messages.pop().filter(|_| messages.is_empty()) else {
            return Ok(reply::status(StatusCode::BAD_REQUEST));
        };
        match (session, message) {
            (Some(session), message) => {
                let id = session.to_str().unwrap_or_default();
                let child = self.sessions.get(id).map(|child| child.clone());
                let Some(child) = child else { return Ok(reply::status(StatusCode::NOT_FOUND)) };
                self.in_session(&child, message, line).await
            }
            (None, Message::Request { id, method })
                if mcp::Method::parse(&method) == mcp::Method::Initialize =>
            {
                self.open(id, line).await
            }
            (None, Message::Request { id, method }) => {
                // A server that does not answer it well is of the handshake era, whose sessions
                // have processes of their own: this one then ends.
                let purpose = match mcp::Method::parse(&method) {
                    mcp::Method::Discover => Purpose::Opening,
                    _ => Purpose::Work,
                };
                self.in_common(id, purpose, line).await
            }
            (None, _) => {
                let common = self.common.lock().await.clone();
                if let Some(child) = common {
                    child.write(line).await;
                }
                Ok(reply::status(StatusCode::ACCEPTED))
            }
        }
    }

    async fn in_session(
        &self,
        child: &Arc<Child>,
        message: Message,
        line: Bytes,
    ) -> Result<Response<Body>, Error> {
        let Message::Request { id, .. } = message else {
            if matches!(&message, Message::Notification { method, .. }
                if mcp::Method::parse(method) == mcp::Method::Initialized)
            {
                child.opened();
            }
            return match child.write(line).await {
                Sent::Whole => Ok(reply::status(StatusCode::ACCEPTED)),
                Sent::Not => Ok(reply::status(StatusCode::NOT_FOUND)),
                Sent::Torn => Err(self.torn()),
            };
        };
        match child.ask(id, Purpose::Work, line).await {
            Ok(reading) => Ok(reply::events(reading)),
            // The layer that keeps sessions opens another, and sends it there.
            Err(Sent::Not) => Ok(reply::status(StatusCode::NOT_FOUND)),
            Err(_) => Err(self.torn()),
        }
    }

    /// Starts a process of the session's own.
    async fn open(&self, id: Bytes, line: Bytes) -> Result<Response<Body>, Error> {
        let session = reply::session_id();
        let users = if self.config.shared { Users::Many } else { Users::One };
        let child = self.start(users, Some(session.clone())).await?;
        match child.ask(id, Purpose::Opening, line).await {
            Ok(reading) => Ok(reply::opened(reading, &session)),
            Err(_) => {
                child.end();
                Err(self.torn().with_known_outcome())
            }
        }
    }

    /// Asks the process that all calls share.
    async fn in_common(
        &self,
        id: Bytes,
        purpose: Purpose,
        line: Bytes,
    ) -> Result<Response<Body>, Error> {
        // A process may be found to have ended when the request is written: nobody has seen it
        // then, and a new process may.
        for _ in 0..2 {
            let child = self.common().await?;
            match child.ask(id.clone(), purpose, line.clone()).await {
                Ok(reading) => return Ok(reply::events(reading)),
                Err(Sent::Not) => {}
                Err(_) => return Err(self.torn()),
            }
        }
        Err(self.torn().with_known_outcome())
    }

    async fn common(&self) -> Result<Arc<Child>, Error> {
        let mut common = self.common.lock().await;
        if let Some(child) = common.as_ref().filter(|child| !child.is_closed()) {
            return Ok(child.clone());
        }
        let child = self.start(Users::Many, None).await?;
        *common = Some(child.clone());
        Ok(child)
    }

    async fn start(&self, users: Users, session: Option<String>) -> Result<Arc<Child>, Error> {
        self.starts.allowed()?;
        let most = self.config.max_processes;
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            let name = self.name();
            let message = format!(
                "all {most} processes that `{name}` may have are in use (`max_processes`): try \
                 again when a session has ended"
            );
            return Err(Error::new(Code::RateLimited, message)
                .with_limit(format!("{name}.max_processes"))
                .with_retry_after(Duration::from_secs(10)));
        };
        let lounge = self.channels.lounge()?;
        let starts = self.starts.clone();
        let child =
            child::start(&self.config, &lounge, starts, place, users, session.is_some()).await?;
        if let Some(session) = session {
            let session: Box<str> = session.into();
            self.sessions.insert(session.clone(), child.clone());
            let sessions = self.sessions.clone();
            child.after_end(move || {
                sessions.remove(&session);
            });
        }
        Ok(child)
    }

    fn torn(&self) -> Error {
        reply::failure(self.name(), "stopped taking requests", "broken_pipe").with_unknown_outcome()
    }

    fn end(&self, request: &Request<Body>) -> Response<Body> {
        match self.of(request) {
            Some(child) => {
                child.end();
                reply::status(StatusCode::OK)
            }
            None => reply::status(StatusCode::NOT_FOUND),
        }
    }

    /// The stream of what belongs to no request of the session.
    fn listen(&self, request: &Request<Body>) -> Response<Body> {
        if !request.headers().contains_key(header::SESSION_ID) {
            return reply::status(StatusCode::METHOD_NOT_ALLOWED);
        }
        match self.of(request).and_then(|child| child.listen()) {
            Some(reading) => reply::events(reading),
            None => reply::status(StatusCode::NOT_FOUND),
        }
    }

    fn of(&self, request: &Request<Body>) -> Option<Arc<Child>> {
        let id = request.headers().get(header::SESSION_ID)?.to_str().ok()?;
        self.sessions.get(id).map(|child| child.clone())
    }
}

impl Carrier for Processes {
    fn carry(self: Arc<Self>, _: Upstreams, request: Request<Body>) -> Carrying {
        Box::pin(async move {
            match *request.method() {
                Method::POST => self.post(request).await,
                Method::GET => Ok(self.listen(&request)),
                Method::DELETE => Ok(self.end(&request)),
                _ => Ok(reply::status(StatusCode::METHOD_NOT_ALLOWED)),
            }
        })
    }

    fn is_pipe(&self) -> bool {
        true
    }

    fn healthy(&self) -> bool {
        self.starts.healthy()
    }
}

/// A message as one line: a client may have written its arguments over several, and between the
/// parts of JSON any white space is as good as another.
async fn line(mut body: Body) -> Result<Bytes, Error> {
    let known = body.len().and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
    let mut line = BytesMut::with_capacity(known + 1);
    // Its size was checked where it was written.
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|cause| {
            Error::new(Code::Internal, "a request's body could not be read").with_cause(cause)
        })?;
        if let Ok(piece) = frame.into_data() {
            line.extend_from_slice(&piece);
        }
    }
    for byte in &mut line[..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.put_u8(b'\n');
    Ok(line.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_goes_out_as_one_line() {
        let pieces =
            ["{\"a\":\r\n1,", "\"b\":\"x\\ny\"}"].map(|s| Bytes::from_static(s.as_bytes()));
        let line = line(Body::from_parts(pieces)).await.unwrap();
        assert_eq!(line, "{\"a\":  1,\"b\":\"x\\ny\"}\n");
    }
}
