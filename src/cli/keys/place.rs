//! Where a keyring is, and the store whose records are sealed under it.

use std::{path::Path, time::Duration};

use crate::{
    cli::tell::CommandError,
    clock::Clock,
    config::{self, Config},
    credential::{
        CacheLimits, FileFault, Keeper, KeyringFile, RingFault,
        store::{CredentialStore, KeyUse, ask_blocking},
    },
    fault::Report,
    store::{self, Opened, Store},
};

pub(super) struct Place {
    pub keeper: Keeper,
    pub store: Where,
}

/// What is known of the store.
pub(super) enum Where {
    /// Nothing: only a keyring was named.
    Unknown,
    /// Nothing is kept.
    Nowhere,
    At(store::Address),
}

/// An open store.
pub(super) struct Records {
    opened: Opened,
}

// === impl Place ===

impl Place {
    pub fn alone(file: &Path) -> Self {
        let cache = CacheLimits { age: Duration::ZERO, uses: 0 };
        let keeper = Keeper::new(KeyringFile::new(file), None, cache, Clock::system());
        Self { keeper, store: Where::Unknown }
    }

    /// What the configuration names. Its other faults do not matter here.
    pub fn of(file: &Path) -> Result<Self, CommandError> {
        let (keyring, store) = Config::keys(file, &config::process_env)
            .map_err(|faults| CommandError::Faults(Report { faults, files: 1 }))?;
        let Some(keyring) = keyring else {
            return Err(CommandError::Usage(format!(
                "`{}` names no keyring: add `keyring: {{ file: keyring.json }}`, or give \
                 `--keyring FILE`",
                file.display()
            )));
        };
        let file = KeyringFile::new(&keyring.file);
        let keeper = Keeper::new(file, keyring.exec, keyring.cache, Clock::system());
        let store = match store {
            config::Store::Memory => Where::Nowhere,
            // Nobody has written to it yet, and it is not made for a look.
            config::Store::Sqlite(path) if !path.exists() => Where::Nowhere,
            config::Store::Sqlite(path) => Where::At(store::Address::Sqlite(path)),
            config::Store::Postgres(url) => Where::At(store::Address::Postgres(url)),
        };
        Ok(Self { keeper, store })
    }

    /// `None`: there are none.
    pub fn records(&self) -> Result<Option<Records>, CommandError> {
        let Where::At(address) = &self.store else { return Ok(None) };
        let opened = Store::open(address, &Clock::system());
        let opened =
            opened.map_err(|fault| CommandError::Environment(format!("store: {fault}")))?;
        Ok(Some(Records { opened }))
    }
}

// === impl Records ===

impl Records {
    pub fn credentials(&self) -> &dyn CredentialStore {
        &*self.opened.credentials
    }

    /// What is stored under which key.
    pub fn uses(&self) -> Result<Vec<KeyUse>, CommandError> {
        ask_blocking(self.credentials(), |store, then| store.key_uses(then))
            .map_err(|fault| CommandError::Environment(fault.to_string()))
    }
}

/// What a keyring does not allow was found there; all else is the environment's.
pub(super) fn told(fault: FileFault) -> CommandError {
    match fault {
        FileFault::Refused(fault @ (RingFault::Kms { .. } | RingFault::Wrapped(_))) => {
            CommandError::Environment(fault.to_string())
        }
        FileFault::Refused(fault) => CommandError::Refused(fault.to_string()),
        fault @ FileFault::Exists(_) => CommandError::Refused(fault.to_string()),
        fault => CommandError::Environment(fault.to_string()),
    }
}
