//! Where keys are, from what the file says of it; and whether there are any.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::{build::within, raw::RawKeyring};
use crate::{
    credential::{CacheLimits, Exec, KeyringFile},
    fault::{FaultCode, Faults},
};

const SECOND: Duration = Duration::from_secs(1);

/// Where keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyring {
    pub file: PathBuf,
    /// Who else keeps keys: the material in the file is wrapped by it.
    pub exec: Option<Exec>,
    /// How long keys that it unwrapped for records are kept.
    pub cache: CacheLimits,
}

/// `look`: the file has to be there, with keys that can be used.
pub(super) fn build(
    raw: Option<RawKeyring>,
    folder: &Path,
    look: bool,
    faults: &mut Faults,
) -> Option<Keyring> {
    let raw = raw?;
    let file = folder.join(&raw.file.value);
    let timeout = within(raw.timeout, 5 * SECOND, SECOND / 10..=60 * SECOND, faults);
    let cache = CacheLimits {
        age: within(raw.cache_age, 300 * SECOND, SECOND..=86_400 * SECOND, faults),
        uses: u32::try_from(within(raw.cache_uses, 1_000, 1..=1_000_000, faults))
            .unwrap_or(u32::MAX),
    };
    let mut words = raw.exec.into_iter();
    let exec = words.next().map(|program| {
        let program = PathBuf::from(program);
        // A name is looked up; a path starts at the file's folder, as every path here.
        let is_path = program.components().count() > 1 || program.starts_with(".");
        let program = if is_path { folder.join(program) } else { program };
        Exec { program, args: words.collect(), timeout }
    });
    if look {
        let found = KeyringFile::new(&file).read().map_err(|fault| fault.to_string());
        let usable = found.and_then(|ring| {
            ring.primary().map_err(|fault| format!("`{}`: {fault}", file.display()))?;
            match ring.keys().iter().find(|key| key.wrapped_by().is_some()) {
                Some(key) if exec.is_none() => Err(format!(
                    "the material of key {} is wrapped: `exec` has to name the \
                                 program that unwraps it",
                    key.id
                )),
                _ => Ok(()),
            }
        });
        if let Err(reason) = usable {
            faults.add(FaultCode::Unreadable, &raw.file.at, reason);
        }
    }
    Some(Keyring { file, exec, cache })
}
