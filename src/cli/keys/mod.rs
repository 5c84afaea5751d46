//! `hangu keys`: the keyring, and what is sealed under its keys.
//!
//! All of it works on the file, and on the store where something is counted or wrapped anew; no
//! gateway has to run, and one that does sees the change within a second. Gateways that run can be
//! asked how each of them stands (`asked.rs`).

mod asked;
mod change;
mod place;
mod rewrap;
mod status;

use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::Subcommand;

use self::place::Place;
use super::{
    ConfigFile,
    tell::{self, CommandError, Ending},
};
use crate::{credential::KeyId, fault::Format};

/// Makes, shows and rotates the keys that everything is sealed under
#[derive(Debug, clap::Args)]
#[command(after_help = "A rotation takes two steps, so that no replica meets a key that it does \
    not know:\n  \
    hangu keys rotate             adds a key; distribute the file to every replica\n  \
    hangu keys promote            uses it from now on\n  \
    hangu keys rewrap             takes stored credentials along\n  \
    hangu keys destroy 5f3a91c2   forgets the old one, once nothing needs it\n\n\
    Exit codes: 0 done, 1 not done because of what was found, 2 wrong usage, 4 a file or the \
    store cannot be used")]
pub struct Keys {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Makes a keyring with one key, where there is none
    New(At),
    /// Shows each key, its state, how much of its budget is used, and what is stored under it
    Status {
        #[command(flatten)]
        at: At,
        /// Ask a running gateway at its admin listener, with the token of HANGU_ADMIN_TOKEN; given
        /// once for each replica, it tells whether all of them use the keyring as it is
        #[arg(long = "url", value_name = "URL", conflicts_with = "keyring")]
        urls: Vec<String>,
    },
    /// The first step of a rotation: adds a key that opens and does not seal yet
    Rotate(At),
    /// The second step: the pending key seals from now on, the one before only opens
    Promote {
        /// Which one, if several are pending
        #[arg(value_name = "KEY", value_parser = parse_key)]
        key: Option<KeyId>,
        #[command(flatten)]
        at: At,
    },
    /// Wraps the data keys of stored credentials with the primary key
    Rewrap {
        #[command(flatten)]
        at: At,
        /// Let a running gateway do it, with the token of HANGU_ADMIN_TOKEN, and wait for its end
        #[arg(long, value_name = "URL", conflicts_with = "keyring")]
        url: Option<String>,
    },
    /// Forgets a key for good; refused while something is stored under it
    Destroy {
        /// Which one, as `status` shows it
        #[arg(value_name = "KEY", value_parser = parse_key)]
        key: KeyId,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Also if something is stored under it, which is then lost
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        at: At,
    },
}

/// Which keyring, and how to tell.
#[derive(Debug, clap::Args)]
struct At {
    #[command(flatten)]
    file: ConfigFile,
    /// A keyring alone, without a configuration and its store
    #[arg(long, value_name = "FILE")]
    keyring: Option<PathBuf>,
    /// How to tell: human, plain or json
    #[arg(long, default_value = "human", value_parser = tell::parse_format)]
    format: Format,
}

impl Keys {
    pub fn run(self) -> ExitCode {
        tell::run(|out| self.verb.run(out))
    }
}

impl Verb {
    fn run(self, out: &mut dyn Write) -> Result<Ending, CommandError> {
        match self {
            Verb::New(at) => change::new(&at.place()?, at.is_json(), out),
            Verb::Status { at, urls } if !urls.is_empty() => {
                asked::status(&urls, at.is_json(), out)
            }
            Verb::Status { at, .. } => status::run(&at.place()?, at.is_json(), out),
            Verb::Rotate(at) => change::rotate(&at.place()?, at.is_json(), out),
            Verb::Promote { key, at } => change::promote(&at.place()?, key, at.is_json(), out),
            Verb::Rewrap { at, url: Some(url) } => asked::rewrap(&url, at.is_json(), out),
            Verb::Rewrap { at, url: None } => rewrap::run(&at.place()?, at.is_json(), out),
            Verb::Destroy { key, yes, force, at } => {
                let how = change::Destroy { key, yes, force };
                change::destroy(&at.place()?, &how, at.is_json(), out)
            }
        }
    }
}

impl At {
    fn place(&self) -> Result<Place, CommandError> {
        match &self.keyring {
            Some(file) => Ok(Place::alone(file)),
            None => Place::of(&self.file.config),
        }
    }

    fn is_json(&self) -> bool {
        self.format == Format::Json
    }
}

fn parse_key(text: &str) -> Result<KeyId, String> {
    KeyId::parse(text).ok_or_else(|| "a key is eight hexadecimal digits, as `status` shows".into())
}
