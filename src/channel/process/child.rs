//! One child process, from its start to the end of whatever it started itself.
//!
//! A task minds it: reads what it says, writes what is asked of it, and sees to it that nothing
//! of it is left. When it may be started is not known here.

use std::{
    process::{ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::ExposeSecret;
use tokio::{
    process::{self, Command},
    sync::{OwnedSemaphorePermit, oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    EnvValue, ProcessConfig,
    log::Log,
    pipes::{self, Reader, Sent, Unread, WeakWriter, Writer},
    starts::Starts,
};
use crate::{
    channel::{
        calls::{Abandoned, Calls, Purpose, Reading, Users},
        reply,
        runtime::Lounge,
    },
    dialect::south,
    error::Error,
    model::mask::Mask,
};

/// How long the last words of a process that has ended may take.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A process as its callers know it.
pub(super) struct Child {
    calls: Arc<Calls>,
    writer: Writer,
    ending: watch::Sender<bool>,
    opened: AtomicBool,
    after_end: Mutex<AfterEnd>,
}

enum AfterEnd {
    Nothing,
    Then(Box<dyn FnOnce() + Send>),
    Ended,
}

/// Starts a process.
///
/// # Errors
/// `external_service_error` where the command cannot be run.
pub(super) async fn start(
    config: &Arc<ProcessConfig>,
    lounge: &Lounge,
    starts: Arc<Starts>,
    place: OwnedSemaphorePermit,
    users: Users,
    session: bool,
) -> Result<Arc<Child>, Error> {
    let (tell, told) = oneshot::channel();
    let config = config.clone();
    let (mind, name) = (lounge.clone(), config.name.clone());
    lounge.spawn(config.stop_wait * 2, async move {
        match Minder::start(config, starts.clone(), users, session) {
            Ok((child, minder)) => {
                if let Err(Ok(child)) = tell.send(Ok(child)) {
                    // Whoever wanted it has given up.
                    child.end();
                }
                minder.mind(mind.stopping()).await;
            }
            Err(cause) => {
                starts.failed(Duration::ZERO, false);
                let _ = tell.send(Err(cause));
            }
        }
        drop(place);
    });
    match told.await {
        Ok(Ok(child)) => Ok(child),
        Ok(Err(cause)) => {
            Err(reply::failure(&name, "cannot be started", "process_not_started").with_cause(cause))
        }
        Err(_) => Err(reply::failure(&name, "is stopping", "process_not_started")),
    }
}

// === impl Child ===

impl Child {
    /// Sends a request, and gives what comes for it.
    pub async fn ask(&self, id: Bytes, purpose: Purpose, line: Bytes) -> Result<Reading, Sent> {
        // Before it is sent: the answer may be there before the word that it was sent.
        let reading = self.calls.enter(id, purpose).ok_or(Sent::Not)?;
        match self.writer.write(line).await {
            Sent::Whole => Ok(reading),
            other => Err(other),
        }
    }

    /// Writes a message that has no answer.
    pub async fn write(&self, line: Bytes) -> Sent {
        self.writer.write(line).await
    }

    pub fn listen(&self) -> Option<Reading> {
        self.calls.listen()
    }

    /// Its client has ended the handshake.
    pub fn opened(&self) {
        self.opened.store(true, Ordering::Relaxed);
    }

    /// Takes no more requests, and ends when those under way have been answered.
    pub fn end(&self) {
        self.calls.close_to_new();
        self.ending.send_replace(true);
    }

    pub fn is_closed(&self) -> bool {
        self.calls.is_closed()
    }

    /// Called once, when it takes no more requests; at once if that is so already.
    pub fn after_end(&self, then: impl FnOnce() + Send + 'static) {
        let mut after = self.after_end.lock();
        if matches!(*after, AfterEnd::Ended) {
            drop(after);
            then();
        } else {
            *after = AfterEnd::Then(Box::new(then));
        }
    }

    fn ended(&self) {
        let then = std::mem::replace(&mut *self.after_end.lock(), AfterEnd::Ended);
        if let AfterEnd::Then(then) = then {
            then();
        }
    }
}

/// What is done when nobody waits for an answer any more.
fn abandoned(users: Users, writer: WeakWriter, ending: watch::Sender<bool>) -> Abandoned {
    Box::new(move |id, purpose| match (purpose, users) {
        // A session that nobody opened to its end.
        (Purpose::Opening, _) => {
            ending.send_replace(true);
        }
        // In a session, whoever gave up tells the server; of a stateless one, whoever closes the
        // stream has cancelled, and on a pipe only a word says so.
        (Purpose::Work, Users::Many) => {
            let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
            if let Some(id) = id {
                writer.word(&south::cancelled_body(id));
            }
        }
        (Purpose::Work, Users::One) => {}
    })
}

// === Minding ===

/// Whatever of the process's group is left is killed with it.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        // The number stays taken while anything of the group is there. Where nothing is, it could
        // only mean another group if the system had given it out again in this very moment.
        if let Some(pid) = self.0 {
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Why a process is ended.
enum Why {
    Asked,
    /// The gateway ends.
    Stopped,
    Exited(Option<ExitStatus>),
    /// It closed its output.
    Silent,
    Noise,
    /// The session was not opened in time.
    Unopened,
}

impl Why {
    /// Whether it ended by itself, or had to be ended for what it did.
    fn is_its_own(&self) -> bool {
        match self {
            Why::Exited(_) | Why::Silent | Why::Noise => true,
            Why::Asked | Why::Stopped | Why::Unopened => false,
        }
    }
}

struct Minder {
    config: Arc<ProcessConfig>,
    starts: Arc<Starts>,
    /// It serves one session, which has to be opened.
    session: bool,
    child: Arc<Child>,
    /// Something has come of it that was a message.
    answered: Arc<AtomicBool>,
    process: process::Child,
    group: Group,
    ending: watch::Receiver<bool>,
    reader: JoinSet<Unread>,
    writing: JoinSet<()>,
    logging: JoinSet<()>,
    born: Instant,
}

impl Minder {
    fn start(
        config: Arc<ProcessConfig>,
        starts: Arc<Starts>,
        users: Users,
        session: bool,
    ) -> std::io::Result<(Arc<Child>, Self)> {
        let mut command = Command::new(&config.program);
        command
            .args(&config.args)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for (name, value) in &config.env {
            match value {
                EnvValue::Plain(value) => command.env(name, value),
                // Opened for as long as the process is started: it has no other way in.
                EnvValue::Secret(value) => command.env(name, value.expose_secret()),
            };
        }
        let mut process = command.spawn()?;
        let pid = process.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let group = Group(pid);
        tracing::debug!(
            upstream.name = &*config.name,
            pid = process.id(),
            "a server's process was started"
        );
        let (writer, outbox) = pipes::writer();
        let (ending, asked) = watch::channel(false);
        let on_abandoned = abandoned(users, writer.weak(), ending.clone());
        let calls = Calls::new(config.name.clone(), users, config.max_message, on_abandoned);
        let answered = Arc::new(AtomicBool::new(false));
        let mut reader = JoinSet::new();
        let (mut writing, mut logging) = (JoinSet::new(), JoinSet::new());
        if let Some(stdin) = process.stdin.take() {
            writing.spawn(outbox.drain(stdin));
        }
        if let Some(stderr) = process.stderr.take() {
            let mut mask = Mask::default();
            for (_, value) in &config.env {
                if let EnvValue::Secret(value) = value {
                    mask.text(value.expose_secret());
                }
            }
            logging.spawn(Log::new(config.name.clone(), mask).copy(stderr));
        }
        if let Some(stdout) = process.stdout.take() {
            reader.spawn(
                Reader {
                    name: config.name.clone(),
                    calls: calls.clone(),
                    writer: writer.weak(),
                    ending: ending.clone(),
                    starts: starts.clone(),
                    answered: answered.clone(),
                }
                .read(stdout, config.max_message),
            );
        }
        let child = Arc::new(Child {
            calls,
            writer,
            ending,
            opened: AtomicBool::new(false),
            after_end: Mutex::new(AfterEnd::Nothing),
        });
        let born = Instant::now();
        let minder = Self {
            config,
            starts,
            session,
            child: child.clone(),
            answered,
            process,
            group,
            ending: asked,
            reader,
            writing,
            logging,
            born,
        };
        Ok((child, minder))
    }

    /// Until nothing of it is left.
    async fn mind(mut self, stopping: impl Future<Output = ()>) {
        let mut stopping = std::pin::pin!(stopping);
        let why = tokio::select! {
            why = self.runs() => why,
            () = &mut stopping => Why::Stopped,
        };
        let why = match why {
            // Most often that is how its exit shows first.
            Why::Silent => match timeout(LAST_WORDS, self.process.wait()).await {
                Ok(status) => Why::Exited(status.ok()),
                Err(_) => Why::Silent,
            },
            why => why,
        };
        self.child.calls.close_to_new();
        if why.is_its_own() {
            // Before whoever is told of it can ask for another.
            self.starts.failed(self.born.elapsed(), self.answered.load(Ordering::Relaxed));
        }
        if matches!(why, Why::Asked | Why::Unopened) {
            // Its calls under way may go on, for as long as their callers wait.
            let mut under_way = self.child.calls.under_way();
            tokio::select! {
                _ = under_way.wait_for(|calls| *calls == 0) => {}
                _ = self.reader.join_next() => {}
                () = &mut stopping => {}
            }
        }
        self.child.ended();
        let status = match why {
            Why::Exited(status) => status,
            _ => self.put_down().await,
        };
        // It may have answered with its last breath, or said why it ends.
        let last_words = async {
            self.reader.join_next().await;
            self.logging.join_next().await;
        };
        let _ = timeout(LAST_WORDS, last_words).await;
        self.close(&why, status);
    }

    /// Until there is a reason to end it.
    async fn runs(&mut self) -> Why {
        let unopened = async {
            sleep(self.config.opening).await;
            if !self.session || self.child.opened.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            status = self.process.wait() => Why::Exited(status.ok()),
            why = self.reader.join_next() => match why {
                Some(Ok(Unread::Noise)) => Why::Noise,
                _ => Why::Silent,
            },
            _ = self.ending.wait_for(|end| *end) => Why::Asked,
            () = unopened => Why::Unopened,
        }
    }

    /// In good order: its input is closed, then it is asked, then it is made to.
    async fn put_down(&mut self) -> Option<ExitStatus> {
        // The writer holds its input.
        self.writing.shutdown().await;
        for signal in [Signal::TERM, Signal::KILL] {
            if let Ok(status) = timeout(self.config.stop_wait, self.process.wait()).await {
                return status.ok();
            }
            self.group.signal(signal);
        }
        self.process.wait().await.ok()
    }

    fn close(&self, why: &Why, status: Option<ExitStatus>) {
        let name = &self.config.name;
        let how = status.map_or("its end is not known".to_owned(), |status| status.to_string());
        let lived = self.born.elapsed();
        let what = match why {
            Why::Asked | Why::Stopped => {
                tracing::debug!(upstream.name = &**name, %how, "a server's process was ended");
                "was stopped before it answered".to_owned()
            }
            Why::Unopened => "was not opened in time".to_owned(),
            Why::Exited(_) => format!("ended before it answered ({how})"),
            Why::Silent => format!("closed its output before it answered ({how})"),
            Why::Noise => "wrote too much that is no message".to_owned(),
        };
        if why.is_its_own() {
            tracing::warn!(
                upstream.name = &**name,
                %how,
                lived_ms = u64::try_from(lived.as_millis()).unwrap_or(u64::MAX),
                "a server's process ended that was not asked to"
            );
        }
        self.child
            .calls
            .close(|| reply::failure(name, &what, "process_exited").with_unknown_outcome());
    }
}
