//! Unwrapped data keys that are kept for a while, so that whoever keeps the keys is not asked for
//! each use, and may be away for a moment.
//!
//! A key is good for so long and so often; after that it is asked for again, and if that cannot
//! be, nothing opens.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretBox};
use sha2::{Digest, Sha256};

use super::{Context, DataKey, Kms, KmsFault, Wrapped};
use crate::clock::Clock;

/// Keys that are kept at a time.
const MAX_KEPT: usize = 10_000;

/// How long an unwrapped key is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    pub age: Duration,
    pub uses: u32,
}

/// Another one who keeps keys, behind a cache.
pub struct Cached<K> {
    inner: K,
    limits: CacheLimits,
    clock: Clock,
    kept: Mutex<HashMap<[u8; 32], Kept>>,
}

struct Kept {
    key: DataKey,
    since_ms: u64,
    uses: u32,
}

impl<K: Kms> Cached<K> {
    pub fn new(inner: K, limits: CacheLimits, clock: Clock) -> Self {
        Self { inner, limits, clock, kept: Mutex::default() }
    }

    fn is_good(&self, kept: &Kept, now_ms: u64) -> bool {
        // Also a clock that was set back ends it.
        let age = Duration::from_millis(kept.since_ms.abs_diff(now_ms));
        age < self.limits.age && kept.uses < self.limits.uses
    }

    fn known(&self, name: &[u8; 32], now_ms: u64) -> Option<DataKey> {
        let mut all = self.kept.lock();
        let kept = all.get_mut(name)?;
        if !self.is_good(kept, now_ms) {
            all.remove(name);
            return None;
        }
        kept.uses += 1;
        Some(copy(&kept.key))
    }

    fn keep(&self, name: [u8; 32], key: &DataKey, now_ms: u64) {
        let mut all = self.kept.lock();
        if all.len() >= MAX_KEPT {
            all.retain(|_, kept| self.is_good(kept, now_ms));
        }
        if all.len() < MAX_KEPT {
            all.insert(name, Kept { key: copy(key), since_ms: now_ms, uses: 1 });
        }
    }
}

impl<K: Kms> Kms for Cached<K> {
    fn key_id(&self) -> Result<String, KmsFault> {
        self.inner.key_id()
    }

    fn wrap(&self, key: &DataKey, context: &Context<'_>) -> Result<Wrapped, KmsFault> {
        self.inner.wrap(key, context)
    }

    fn unwrap(&self, wrapped: &Wrapped, context: &Context<'_>) -> Result<DataKey, KmsFault> {
        let now_ms = self.clock.now_ms();
        // The context too: what was unwrapped for one record is not for another.
        let name = context.bytes(&[wrapped.key.as_bytes(), &wrapped.bytes]);
        let name: [u8; 32] = Sha256::digest(name).into();
        if let Some(key) = self.known(&name, now_ms) {
            return Ok(key);
        }
        let key = self.inner.unwrap(wrapped, context)?;
        self.keep(name, &key, now_ms);
        Ok(key)
    }

    fn health(&self) -> Result<(), KmsFault> {
        self.inner.health()
    }
}

fn copy(key: &DataKey) -> DataKey {
    SecretBox::new(Box::new(*key.expose_secret()))
}
