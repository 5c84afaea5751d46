//! How often a key may wrap: random nonces of 96 bits are good for 2^32 texts under one key (NIST
//! SP 800-38D). Half of that is kept in hand, for copies of a keyring count apart.
//!
//! A block is written into the file before any of it is used: what a process that was killed did
//! not use of it counts as used.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{FileFault, KeyId, KeyringFile, KmsFault};

/// A key that has wrapped so often is to be rotated.
pub const WARN_WRAPS: u64 = 1 << 30;
/// A key that has wrapped so often wraps no more.
pub const MAX_WRAPS: u64 = 1 << 31;

/// What is reserved at a time: not often a write, and not much lost with a process.
pub(super) const BLOCK: u64 = 1 << 12;

/// What of it is reserved and not used yet.
pub(super) struct Budget {
    /// `None`: the keys end with the process, and so does what is counted.
    file: Option<KeyringFile>,
    left: Mutex<HashMap<KeyId, u64>>,
}

impl Budget {
    pub fn new(file: Option<KeyringFile>) -> Self {
        Self { file, left: Mutex::default() }
    }

    /// Counts one use.
    pub fn take(&self, id: KeyId) -> Result<(), KmsFault> {
        let mut left = self.left.lock();
        let left = left.entry(id).or_default();
        if *left == 0 {
            *left = self.reserve(id)?;
        }
        *left -= 1;
        Ok(())
    }

    fn reserve(&self, id: KeyId) -> Result<u64, KmsFault> {
        // Such a process never lives to use one up.
        let Some(file) = &self.file else { return Ok(MAX_WRAPS) };
        let reserved = file.update(|ring| {
            let key = ring.keys.iter_mut().find(|key| key.id == id);
            let Some(key) = key else { return Ok(None) };
            if key.wraps.saturating_add(BLOCK) > MAX_WRAPS {
                return Ok(None);
            }
            key.wraps += BLOCK;
            Ok(Some(key.wraps))
        });
        match reserved {
            Ok(Some(wraps)) => {
                // Once, as it is passed.
                if wraps >= WARN_WRAPS && wraps - BLOCK < WARN_WRAPS {
                    tracing::warn!(
                        key.id = %id,
                        "The key has wrapped 2^30 data keys: rotate it; at 2^31 it wraps no more"
                    );
                }
                Ok(BLOCK)
            }
            Ok(None) => Err(KmsFault::Exhausted(id.to_string())),
            Err(FileFault::Missing(_)) => Err(KmsFault::UnknownKey(id.to_string())),
            Err(fault) => Err(KmsFault::Uncounted(fault.to_string())),
        }
    }
}
