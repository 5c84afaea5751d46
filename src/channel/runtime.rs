//! The thread on which channels live: longer than any call, and beside no core's calls.
//!
//! It is started for the first channel. It ends when it is told to, after every channel has
//! ended in good order or the time for that is up.

use std::{future::Future, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    time::timeout,
};

use crate::{
    error::{Code, Error},
    upstream::{Transport, Upstreams},
};

/// What ends after its processes: the thread itself.
const SPARE: Duration = Duration::from_secs(2);

/// Where channels are opened.
pub struct Channels {
    transport: Transport,
    state: Mutex<State>,
}

enum State {
    Idle,
    Running { lounge: Lounge, stop: watch::Sender<bool>, thread: thread::JoinHandle<()> },
    Stopped,
}

/// The way to the thread.
#[derive(Clone)]
pub(super) struct Lounge {
    handle: Handle,
    /// Connections of its own, as a core has them.
    pub http: Upstreams,
    stopping: watch::Receiver<bool>,
    /// Held by each task: when the last is gone, all have ended.
    alive: mpsc::WeakSender<()>,
    longest: watch::Sender<Duration>,
}

impl Channels {
    pub fn new(transport: Transport) -> Arc<Self> {
        Arc::new(Self { transport, state: Mutex::new(State::Idle) })
    }

    /// The thread, started if it was not: a core waits for that once.
    ///
    /// # Errors
    /// `internal` where no thread can be started, or the gateway stops.
    pub(super) fn lounge(&self) -> Result<Lounge, Error> {
        let mut state = self.state.lock();
        match &*state {
            State::Running { lounge, .. } => return Ok(lounge.clone()),
            State::Stopped => return Err(Error::new(Code::Internal, "the gateway is stopping")),
            State::Idle => {}
        }
        let (stop, stopping) = watch::channel(false);
        let (lounge, thread) = start(self.transport.clone(), stopping).map_err(|cause| {
            Error::new(Code::Internal, "the thread for channels cannot be started")
                .with_cause(cause)
        })?;
        *state = State::Running { lounge: lounge.clone(), stop, thread };
        Ok(lounge)
    }

    /// Ends every channel in good order, and waits for that. Blocks.
    pub fn stop(&self) {
        let state = std::mem::replace(&mut *self.state.lock(), State::Stopped);
        let State::Running { stop, thread, .. } = state else { return };
        stop.send_replace(true);
        if thread.join().is_err() {
            tracing::error!("the thread of the channels ended in a panic");
        }
    }
}

fn start(
    transport: Transport,
    stopping: watch::Receiver<bool>,
) -> std::io::Result<(Lounge, thread::JoinHandle<()>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (hand_over, handed) = std::sync::mpsc::channel();
    let run = move || {
        runtime.block_on(async {
            let (alive, mut ended) = mpsc::channel(1);
            let longest = watch::Sender::new(Duration::ZERO);
            let lounge = Lounge {
                handle: Handle::current(),
                http: Upstreams::new(transport),
                stopping: stopping.clone(),
                alive: alive.downgrade(),
                longest: longest.clone(),
            };
            let mut stopping = stopping;
            // Whoever started the thread waits for this.
            let _ = hand_over.send(lounge);
            // An error is the same word: whoever could stop it is gone.
            let _ = stopping.wait_for(|stop| *stop).await;
            drop(alive);
            let patience = *longest.borrow() + SPARE;
            if timeout(patience, ended.recv()).await.is_err() {
                tracing::warn!("channels to servers did not end in time and are cut off");
            }
        });
        // What is left ends here: a process is killed with the task that minds it.
        drop(runtime);
    };
    let thread = thread::Builder::new().name("hangu-channels".into()).spawn(run)?;
    let lounge = handed.recv().map_err(std::io::Error::other)?;
    Ok((lounge, thread))
}

impl Lounge {
    /// Runs something there. Its end is waited for when the thread stops, for as long as it says
    /// that an orderly end takes.
    pub fn spawn(&self, ending: Duration, task: impl Future<Output = ()> + Send + 'static) {
        self.longest.send_if_modified(|longest| {
            let longer = ending > *longest;
            *longest = ending.max(*longest);
            longer
        });
        // Without it the thread stops already: the task is dropped, and whoever waits for its
        // word sees that.
        let Some(alive) = self.alive.upgrade() else { return };
        self.handle.spawn(async move {
            task.await;
            drop(alive);
        });
    }

    /// Resolves when the gateway stops.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stopping = self.stopping.clone();
        async move {
            let _ = stopping.wait_for(|stop| *stop).await;
        }
    }
}
