//! From a file to the configuration.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Config, Keyring, Store, build, hidden::hide, keyring, raw::RawConfig, secret::Vault, store,
};
use crate::{
    fault::{Fault, FaultCode, Faults, Severity, Source, Span},
    model::{caller::CallerId, server::UpstreamName},
    yaml::{self, Env},
};

/// What a look at a configuration found.
#[derive(Debug)]
pub struct Loaded {
    /// `None` if there was an error.
    pub config: Option<Config>,
    pub faults: Vec<Fault>,
    /// The policy folder, as far as it is known even where there was an error.
    pub policies: Option<PathBuf>,
    /// The audit file, also where there are faults elsewhere.
    pub audit: Option<PathBuf>,
    pub places: Places,
}

/// Where things stand in the file, for faults that other files have a part in.
#[derive(Debug, Default)]
pub struct Places {
    pub callers: HashMap<CallerId, Span>,
    pub upstreams: HashMap<UpstreamName, Span>,
}

/// The environment of this process.
pub fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Config {
    /// Loads a file, or tells every fault in it. Warnings are told by [`Config::look`].
    pub fn load(file: &Path) -> Result<Config, Vec<Fault>> {
        let loaded = Self::look(file, &process_env);
        loaded.config.ok_or_else(|| {
            let errors = loaded.faults.into_iter();
            errors.filter(|fault| fault.severity() == Severity::Error).collect()
        })
    }

    /// Loads a file and tells everything about it.
    pub fn look(file: &Path, env: Env<'_>) -> Loaded {
        let name = file.display().to_string();
        match fs::read_to_string(file) {
            Ok(text) => {
                let folder = file.parent().unwrap_or(Path::new(""));
                Self::read(name, text, folder, env)
            }
            Err(error) => {
                let message = format!("cannot be read: {error}");
                let fault = Fault::new(FaultCode::Unreadable, &Span::file(name), message);
                let (faults, places) = (vec![fault], Places::default());
                Loaded { config: None, faults, policies: None, audit: None, places }
            }
        }
    }

    /// What a file says of keys, and of the store in which things are sealed under them. Its other
    /// faults do not matter.
    ///
    /// # Errors
    /// The faults of these two.
    pub fn keys(file: &Path, env: Env<'_>) -> Result<(Option<Keyring>, Store), Vec<Fault>> {
        let name = file.display().to_string();
        let text = fs::read_to_string(file).map_err(|error| {
            let at = Span::file(name.clone());
            vec![Fault::new(FaultCode::Unreadable, &at, format!("cannot be read: {error}"))]
        })?;
        let source = Arc::new(Source { name, text });
        let (mut others, mut faults) = (Faults::new(), Faults::new());
        let Some(raw) = read_raw(&source, env, &mut others) else {
            return Err(hide(others.into_sorted()));
        };
        let folder = file.parent().unwrap_or(Path::new(""));
        let keyring = keyring::build(raw.keyring, folder, false, &mut faults);
        let store = store::build(
            raw.store,
            Vault { env, folder, is_kept: false, has_keyring: false, public_url: None },
            &mut faults,
        );
        if faults.has_errors() {
            return Err(hide(faults.into_sorted()));
        }
        // It may be there and not have been understood.
        match keyring {
            None if others.has_errors() => Err(hide(others.into_sorted())),
            keyring => Ok((keyring, store)),
        }
    }

    /// Reads a configuration from its text. `name` is what faults call it; relative paths start
    /// at `folder`.
    pub fn read(name: impl Into<String>, text: String, folder: &Path, env: Env<'_>) -> Loaded {
        let source = Arc::new(Source { name: name.into(), text });
        let mut faults = Faults::new();
        let Some(raw) = read_raw(&source, env, &mut faults) else {
            let (faults, places) = (hide(faults.into_sorted()), Places::default());
            return Loaded { config: None, faults, policies: None, audit: None, places };
        };
        let places = Places::of(&raw);
        let config = build::build(raw, folder, env, &mut faults);
        let (policies, audit) = (config.policies.clone(), Some(config.audit.file.clone()));
        let config = (!faults.has_errors()).then_some(config);
        Loaded { config, faults: hide(faults.into_sorted()), policies, audit, places }
    }
}

impl Places {
    fn of(raw: &RawConfig) -> Self {
        let callers = raw.callers.iter();
        let upstreams = raw.upstreams.iter();
        Self {
            callers: callers.map(|raw| (raw.id.value.clone(), raw.id.at.clone())).collect(),
            upstreams: upstreams
                .filter_map(|raw| {
                    Some((UpstreamName::parse(&raw.name.value).ok()?, raw.name.at.clone()))
                })
                .collect(),
        }
    }
}

fn read_raw(source: &Arc<Source>, env: Env<'_>, faults: &mut Faults) -> Option<RawConfig> {
    let mut documents = match yaml::parse(source) {
        Ok(documents) => documents.into_iter(),
        Err(fault) => {
            faults.extend([fault]);
            return None;
        }
    };
    let Some(mut node) = documents.next() else {
        let at = Span::file(source.name.clone());
        faults.add(FaultCode::MissingKey, &at, "the file is empty");
        return None;
    };
    if let Some(second) = documents.next() {
        faults.add(FaultCode::Syntax, &second.at, "a configuration is one document");
    }
    yaml::expand(&mut node, env, faults);
    RawConfig::read(&node, faults)
}
