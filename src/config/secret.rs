//! Opening secrets: from a variable or a file. What is in the credential store is opened when it
//! is used, elsewhere.

use std::{fs, path::Path};

use secrecy::SecretString;

use super::{Origin, raw::SecretRef};
use crate::{
    fault::{FaultCode, Faults, Span},
    yaml::Env,
};

/// The largest file that is taken for a secret, in bytes.
const MAX_FILE: u64 = 64 * 1024;

/// What is needed to open secrets.
#[derive(Clone, Copy)]
pub struct Vault<'a> {
    pub env: Env<'a>,
    /// Relative paths start here.
    pub folder: &'a Path,
    /// What is given to the credential store is there after a restart, or nobody expects it to be.
    pub is_kept: bool,
    /// There is one, and so keys that others can know the gateway by.
    pub has_keyring: bool,
    /// By which name browsers and servers reach the gateway, where the file tells it.
    pub public_url: Option<&'a Origin>,
}

impl Vault<'_> {
    /// Opens a secret, or tells why it cannot be. One that is empty is none.
    pub fn open(self, secret: &SecretRef, at: &Span, faults: &mut Faults) -> Option<SecretString> {
        let (name, found) = match secret {
            SecretRef::Env(name) => {
                let found = (self.env)(name).ok_or_else(|| "is not set".to_owned());
                (format!("the variable `{name}`"), found)
            }
            SecretRef::File(path) => (format!("the file `{path}`"), read(&self.folder.join(path))),
            SecretRef::Stored(name) => {
                let message = "only a header of an upstream can have its value in the store";
                let fault = faults.add(FaultCode::BadValue, &name.at, message);
                fault.suggest("write `{ env: NAME }` or `{ file: PATH }`");
                return None;
            }
        };
        let reason = match found {
            Ok(value) if value.is_empty() => "is empty".to_owned(),
            Ok(value) => return Some(value.into()),
            Err(reason) => reason,
        };
        faults.add(FaultCode::SecretMissing, at, format!("{name} {reason}"));
        None
    }
}

fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    if fs::metadata(path).map_err(cannot)?.len() > MAX_FILE {
        return Err("is too large for a secret".to_owned());
    }
    let mut text = fs::read_to_string(path).map_err(cannot)?;
    // Editors and `echo` end a file with a line break that belongs to nobody's secret.
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}
