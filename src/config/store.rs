//! Where what must last is kept, from what the file says of it.
//!
//! Nothing is opened here: whether a database is there shows when the gateway starts.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{
    raw::{RawConfig, RawStore, RawStoreAddress},
    secret::Vault,
};
use crate::fault::{FaultCode, Faults, Span};

/// The file where nothing else is said, beside the configuration.
const DEFAULT: &str = "hangu.db";

/// Where what must last is kept.
#[derive(Debug, Clone)]
pub enum Store {
    /// Nowhere: it ends with the process.
    Memory,
    Sqlite(PathBuf),
    /// A `postgres://` URL.
    Postgres(SecretString),
}

/// Whether nothing of it is to outlive the process.
pub(super) fn is_memory(raw: &RawConfig) -> bool {
    let address = raw.store.as_ref().map(|store| &store.address);
    matches!(address, Some(RawStoreAddress::Text(text)) if text == "memory")
}

pub(super) fn build(raw: Option<RawStore>, vault: Vault<'_>, faults: &mut Faults) -> Store {
    // Where there is a fault nobody asks which store it would have been.
    let default = || Store::Sqlite(vault.folder.join(DEFAULT));
    let Some(RawStore { address, at }) = raw else { return default() };
    let read = match address {
        RawStoreAddress::Text(text) => read(&text, vault.folder, &at, true, faults),
        RawStoreAddress::Secret(secret) => vault
            .open(&secret, &at, faults)
            .and_then(|text| read(text.expose_secret(), vault.folder, &at, false, faults)),
    };
    read.unwrap_or_else(default)
}

/// The address may hold a password: no message repeats it.
fn read(text: &str, folder: &Path, at: &Span, open: bool, faults: &mut Faults) -> Option<Store> {
    if text == "memory" {
        return Some(Store::Memory);
    }
    let mut refuse = |code, message: &str, advice: &str| {
        faults.add(code, at, message.to_owned()).suggest(advice.to_owned()).secret();
        None
    };
    match text.split_once(':') {
        Some(("sqlite", file)) => match file.strip_prefix("//").unwrap_or(file) {
            "" => refuse(FaultCode::BadValue, "`sqlite:` names no file", "write `sqlite:hangu.db`"),
            ":memory:" => refuse(
                FaultCode::BadValue,
                "a database in memory is another one for each connection",
                "write `memory`",
            ),
            file if file.contains('?') => refuse(
                FaultCode::BadValue,
                "`sqlite:` takes a file and no options",
                "write `sqlite:hangu.db`",
            ),
            file => Some(Store::Sqlite(folder.join(file))),
        },
        Some(("postgres" | "postgresql", _)) => match Url::parse(text) {
            Ok(url) if open && has_password(&url) => refuse(
                FaultCode::SecretInTheOpen,
                "a password stands in the file",
                "put the whole address into a variable or a file: `store: { env: NAME }`",
            ),
            Ok(_) => Some(Store::Postgres(text.into())),
            Err(_) => refuse(
                FaultCode::BadAddress,
                "not a PostgreSQL address",
                "write `postgres://USER@HOST/DATABASE`",
            ),
        },
        _ => refuse(
            FaultCode::BadValue,
            "unknown store",
            "known are `memory`, `sqlite:FILE` and `postgres://HOST/DATABASE`",
        ),
    }
}

fn has_password(url: &Url) -> bool {
    url.password().is_some()
        || url.query_pairs().any(|(name, _)| name.to_ascii_lowercase().contains("password"))
}
