//! An issuer's published keys: read, kept, asked for anew.
//!
//! The last good set stays in use while fetching fails, until it is too old to be believed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use tokio::sync::{Notify, watch};

/// The most keys of one issuer.
const MAX_KEYS: usize = 100;
/// The shortest RSA modulus that is believed, in bytes.
const MIN_RSA: usize = 256;

/// A set of public keys.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<Key>,
    generation: u64,
    fetched_ms: u64,
}

struct Key {
    id: Option<Box<str>>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// Why a document is no set of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeySetFault {
    #[error("it is no JSON Web Key Set")]
    NotASet,
    #[error("it holds no key that can verify a token")]
    Empty,
    #[error("it holds more than {MAX_KEYS} keys")]
    TooMany,
}

/// Where the keys in force are, and the wish for newer ones.
#[derive(Debug)]
pub struct KeySource {
    current: ArcSwapOption<KeySet>,
    generation: AtomicU64,
    /// How long a set is believed after it was fetched.
    stale: Duration,
    /// Between two fetches that somebody wanted.
    gap: Duration,
    attempted_ms: AtomicU64,
    wanted: Notify,
    attempts: watch::Sender<u64>,
}

// === impl KeySet ===

impl KeySet {
    /// Reads a JWK set. A key that is of no use here is left out: sets hold keys for others too.
    pub fn parse(text: &[u8]) -> Result<Vec<Jwk>, KeySetFault> {
        #[derive(serde::Deserialize)]
        struct Raw {
            keys: Vec<serde_json::Value>,
        }
        let raw: Raw = serde_json::from_slice(text).map_err(|_| KeySetFault::NotASet)?;
        if raw.keys.len() > MAX_KEYS {
            return Err(KeySetFault::TooMany);
        }
        let keys: Vec<Jwk> =
            raw.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect();
        let usable = keys.iter().any(|key| Key::read(key).is_some());
        usable.then_some(keys).ok_or(KeySetFault::Empty)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The key of this id for this algorithm; a token without an id is of the only key that fits.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&DecodingKey> {
        let mut fitting = self.keys.iter().filter(|key| {
            key.algorithms.contains(&algorithm) && (id.is_none() || key.id.as_deref() == id)
        });
        let first = fitting.next()?;
        // Of two that fit, which one was meant is not for us to guess.
        fitting.next().is_none().then_some(&first.key)
    }
}

// === impl Key ===

impl Key {
    fn read(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        if common.public_key_use.as_ref().is_some_and(|of| *of != PublicKeyUse::Signature)
            || common.key_operations.as_ref().is_some_and(|of| !of.contains(&KeyOperations::Verify))
        {
            return None;
        }
        let family: Vec<Algorithm> = match &jwk.algorithm {
            AlgorithmParameters::RSA(rsa) => {
                use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
                let modulus = URL_SAFE_NO_PAD.decode(rsa.n.trim_end_matches('=')).ok()?;
                let length = modulus.iter().skip_while(|byte| **byte == 0).count();
                (length >= MIN_RSA).then(|| AlgorithmFamily::Rsa.algorithms().to_vec())?
            }
            AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(pair) => match pair.curve {
                EllipticCurve::Ed25519 => vec![Algorithm::EdDSA],
                _ => return None,
            },
            // A secret that is published is none.
            _ => return None,
        };
        let algorithms = match common.key_algorithm {
            None => family,
            Some(named) => {
                let named: Algorithm = named.to_string().parse().ok()?;
                family.contains(&named).then(|| vec![named])?
            }
        };
        let key = DecodingKey::from_jwk(jwk).ok()?;
        Some(Self { id: common.key_id.as_deref().map(Into::into), algorithms, key })
    }
}

/// By its id: the key itself is public, and long.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

// === impl KeySource ===

impl KeySource {
    pub fn new(stale: Duration, gap: Duration) -> Self {
        Self {
            current: ArcSwapOption::empty(),
            generation: AtomicU64::new(0),
            stale,
            gap,
            attempted_ms: AtomicU64::new(0),
            wanted: Notify::new(),
            attempts: watch::Sender::new(0),
        }
    }

    /// Takes over a set that was fetched just now.
    pub fn replace(&self, keys: &[Jwk], now_ms: u64) {
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        let keys = keys.iter().filter_map(Key::read).collect();
        self.current.store(Some(Arc::new(KeySet { keys, generation, fetched_ms: now_ms })));
    }

    /// A fetch has ended, well or not: whoever waits for it looks again.
    pub fn attempted(&self, now_ms: u64) {
        self.attempted_ms.store(now_ms, Ordering::Release);
        self.attempts.send_modify(|attempts| *attempts += 1);
    }

    /// The keys in force, while they are believed.
    pub(super) fn current(&self, now_ms: u64) -> Option<Arc<KeySet>> {
        let stale_ms = u64::try_from(self.stale.as_millis()).unwrap_or(u64::MAX);
        self.current.load_full().filter(|keys| now_ms.saturating_sub(keys.fetched_ms) <= stale_ms)
    }

    pub(super) fn fresh(&self, now_ms: u64) -> bool {
        self.current(now_ms).is_some()
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Asks for newer keys and waits until somebody has tried to fetch them, or `longest`. At
    /// once, where that was tried a moment ago: a storm of unknown keys is no storm of fetches.
    pub async fn renewed(&self, now_ms: u64, longest: Duration) {
        let mut attempts = self.attempts.subscribe();
        let last = self.attempted_ms.load(Ordering::Acquire);
        if u128::from(now_ms.saturating_sub(last)) < self.gap.as_millis() {
            return;
        }
        self.wanted.notify_one();
        // Whether it came in time makes no difference: the token is looked at again either way.
        let _ = tokio::time::timeout(longest, attempts.changed()).await;
    }

    /// Resolves when somebody wants newer keys.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }
}
