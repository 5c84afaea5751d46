//! The keyring in a gateway that runs: where the engines' secrets come from, and what happens
//! when the file changes.
//!
//! One thread looks at the file once in a second; whoever keeps keys elsewhere may take a while
//! to answer, and nobody else waits for it. A file that cannot be used changes nothing: the keys
//! that were read before stay in use.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use secrecy::SecretBox;

use super::{Options, StartError, keyring::InUse};
use crate::{
    clock::Clock,
    config::Config,
    credential::{
        Keeper, KeyId, KeyState, Keyring, KeyringFile, Kms, Purpose, RingFault, Vault,
        oauth::Identity,
    },
    identity::ticket::Tickets,
    model::keys::KeySecrets,
    stack::Engines,
    steps,
};

/// Between two looks at the file.
const LOOK: Duration = Duration::from_secs(1);
/// Looks until one that failed is made again though the file is the same.
const AGAIN: u32 = 30;

/// Where the secrets of this process come from.
pub(super) enum Source {
    /// From the keyring of the configuration.
    Ring(Keeper, Arc<Keyring>),
    /// From one secret that whoever starts the gateway shares with others.
    Shared([u8; 32]),
    /// From nowhere: they end with the process.
    Memory,
}

/// What is to be looked at while the gateway runs.
pub(super) struct Watch {
    pub used: Arc<InUse>,
    pub steps: Arc<steps::Keys>,
    pub tickets: Arc<Tickets>,
    pub identity: Option<Arc<Identity>>,
}

/// The thread.
pub(super) struct Watching {
    used: Arc<InUse>,
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

/// What of a file tells that it is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Glance {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

// === impl Source ===

impl Source {
    /// Reads the keyring that is named, if one is. May block.
    pub fn of(config: &Config, options: &Options, clock: &Clock) -> Result<Self, StartError> {
        let Some(keyring) = &config.keyring else {
            return Ok(options.secret.map_or(Source::Memory, Source::Shared));
        };
        let file = KeyringFile::new(&keyring.file);
        let keeper = Keeper::new(file, keyring.exec.clone(), keyring.cache, clock.clone());
        let ring = keeper.open().map_err(|fault| StartError::Keyring(fault.to_string()))?;
        let primary = ring.primary().map_err(|fault| StartError::Keyring(fault.to_string()))?;
        tracing::info!(
            key.id = %primary.id,
            keyring = %keyring.file.display(),
            "Keys come from the keyring"
        );
        Ok(Source::Ring(keeper, Arc::new(ring)))
    }

    pub fn secrets(&self, purpose: Purpose) -> Result<KeySecrets, StartError> {
        match self {
            Source::Ring(_, ring) => {
                ring.secrets(purpose).map_err(|fault| StartError::Keyring(fault.to_string()))
            }
            // What is derived further on parts the purposes.
            Source::Shared(secret) => Ok(KeySecrets::one(SecretBox::new(Box::new(*secret)))),
            Source::Memory => Ok(KeySecrets::random()),
        }
    }

    /// Who wraps the data keys of what is sealed; nobody without a keyring.
    pub fn kms(&self) -> Option<Arc<dyn Kms>> {
        match self {
            Source::Ring(keeper, ring) => Some(keeper.kms(ring.clone())),
            Source::Shared(_) | Source::Memory => None,
        }
    }

    /// Who the gateway is to others; nobody without a keyring, for its keys would change with
    /// each start.
    pub fn identity(&self) -> Result<Option<Arc<Identity>>, StartError> {
        if !matches!(self, Source::Ring(..)) {
            return Ok(None);
        }
        let identity = Identity::new(&self.secrets(Purpose::Identity)?);
        let identity = identity.map_err(|fault| StartError::Keyring(fault.to_string()))?;
        Ok(Some(Arc::new(identity)))
    }

    /// The keyring, for those who look after it; `None`: there is none.
    pub fn in_use(self, vault: Arc<Vault>, clock: &Clock) -> Option<Arc<InUse>> {
        match self {
            Source::Ring(keeper, ring) => {
                Some(Arc::new(InUse::new(keeper, ring, vault, clock.clone())))
            }
            Source::Shared(_) | Source::Memory => None,
        }
    }
}

// === impl Watch ===

impl Watch {
    pub fn start(self, engines: Engines) -> std::io::Result<Watching> {
        let (stop, stopped) = mpsc::channel();
        let used = self.used.clone();
        let thread = thread::Builder::new()
            .name("hangu-keys".into())
            .spawn(move || self.run(&engines, &stopped))?;
        Ok(Watching { used, stop, thread })
    }

    fn run(self, engines: &Engines, stopped: &mpsc::Receiver<()>) {
        // Of no file: what changed since the start is seen at once.
        let (mut seen, mut told) = (None, None);
        let mut failed = 0;
        while stopped.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
            let now = Glance::at(self.used.keeper.file().path());
            let again = failed > 0 && failed % AGAIN == 0;
            if now == seen && !again {
                failed += u32::from(failed > 0);
                continue;
            }
            seen = now;
            let looked = self.look(engines);
            self.used.note(looked.as_ref().err().cloned());
            match looked {
                Ok(()) => (failed, told) = (0, None),
                Err(reason) => {
                    failed = 1;
                    if told.as_ref() != Some(&reason) {
                        tracing::error!(
                            error = reason,
                            "The keyring has changed and cannot be used: the keys that were read \
                             before stay in use"
                        );
                        told = Some(reason);
                    }
                }
            }
        }
    }

    fn look(&self, engines: &Engines) -> Result<(), String> {
        let keeper = &self.used.keeper;
        // Without the keys themselves: who keeps them elsewhere is asked only for what is new.
        let marks = keeper.file().read().map_err(|fault| fault.to_string())?.marks();
        if marks == self.used.ring().marks() {
            return Ok(());
        }
        let ring = keeper.open().map_err(|fault| fault.to_string())?;
        rekey(engines, &self.steps, &self.tickets, &ring).map_err(|fault| fault.to_string())?;
        if let Some(identity) = &self.identity {
            let secrets = ring.secrets(Purpose::Identity).map_err(|fault| fault.to_string())?;
            identity.rekey(&secrets).map_err(|fault| fault.to_string())?;
        }
        let ring = Arc::new(ring);
        engines.vault.rekey(keeper.kms(ring.clone()));
        let before = self.used.replace(ring.clone());
        tell(engines, &before.marks(), &ring.marks());
        Ok(())
    }
}

/// Every engine goes on with the secrets of this keyring, or, if one of them cannot be made, none.
fn rekey(
    engines: &Engines,
    steps: &steps::Keys,
    tickets: &Tickets,
    ring: &Keyring,
) -> Result<(), RingFault> {
    let (digests, tokens) = (ring.secrets(Purpose::Digests)?, ring.secrets(Purpose::Tokens)?);
    let (replays, approvals) = (ring.secrets(Purpose::Replays)?, ring.secrets(Purpose::Approvals)?);
    let of_steps = ring.secrets(Purpose::Steps)?;
    engines.keys.rekey(digests);
    steps.rekey(of_steps);
    engines.client_sessions.rekey(&tokens);
    engines.states.rekey(&tokens);
    engines.tasks.rekey(&tokens);
    tickets.rekey(&tokens);
    engines.cursors.rekey(&tokens);
    engines.replays.rekey(&replays);
    engines.argument_seal.rekey(&approvals);
    Ok(())
}

fn tell(engines: &Engines, before: &[(KeyId, KeyState)], after: &[(KeyId, KeyState)]) {
    let state = |marks: &[(KeyId, KeyState)], id| {
        marks.iter().find(|(other, _)| *other == id).map(|(_, state)| *state)
    };
    for (id, now) in after {
        let was = state(before, *id);
        if was != Some(*now) {
            let was = was.map_or("unknown", KeyState::as_str);
            tracing::info!(key.id = %id, "A key of the keyring is {now} now, it was {was}");
        }
    }
    let keys: Vec<(String, &str)> =
        after.iter().map(|(id, state)| (id.to_string(), state.as_str())).collect();
    engines.audit.keyring(&keys, engines.clock.now_ms());
}

// === impl Watching ===

impl Watching {
    pub fn stop(self) {
        self.used.stop();
        // It may have ended.
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::error!("the thread that watches the keyring ended in a panic");
        }
    }
}

// === impl Glance ===

impl Glance {
    fn at(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            inode: meta.ino(),
            size: meta.size(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}
