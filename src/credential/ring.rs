//! The keyring: keys and their states, and what may become of them.
//!
//! Rotation takes two steps, so that no replica meets a key that it does not know: a new key is
//! `pending` until every replica has it, and only then made the primary one. The one before is
//! `retiring`: it makes nothing any more and still opens, until it is destroyed.

use std::fmt;

use secrecy::SecretBox;

use super::{Context, Kms, KmsFault, Purpose, Wrapped};
use crate::model::keys::{KeySecret, KeySecrets};

/// Names a key: eight hexadecimal digits, of which the first is not zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(u32);

/// What a key may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// Opens; it may become the primary one.
    Pending,
    /// Makes and opens.
    Primary,
    /// Opens only.
    Retiring,
    /// Its material is gone.
    Destroyed,
}

/// One key of the ring.
pub struct Key {
    pub id: KeyId,
    pub state: KeyState,
    pub created_ms: u64,
    /// When it came to its state.
    pub since_ms: u64,
    /// Data keys that it may have wrapped: what processes have reserved.
    pub wraps: u64,
    pub(super) material: Material,
}

/// What a key is made of.
pub(super) enum Material {
    Gone,
    Open(SecretBox<[u8; 32]>),
    /// As whoever else keeps keys has wrapped it; open once that one has been asked.
    Wrapped(Wrapped, Option<SecretBox<[u8; 32]>>),
}

/// Every key.
#[derive(Default)]
pub struct Keyring {
    pub(super) keys: Vec<Key>,
}

/// What a keyring does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    #[error("there is no key {0}")]
    Unknown(KeyId),
    #[error("key {0} is already there")]
    Twice(KeyId),
    #[error("keys {0} and {1} are both `primary`: only one may be")]
    TwoPrimaries(KeyId, KeyId),
    #[error("no key is `primary`")]
    NoPrimary,
    #[error("key {0} is `{1}`: only a `pending` key can be promoted")]
    NotPending(KeyId, KeyState),
    #[error("no key is `pending`: `hangu keys rotate` adds one")]
    NonePending,
    #[error("keys {0} are `pending`: say which one")]
    SeveralPending(String),
    #[error("key {0} is already `pending`: promote or destroy it first")]
    AlreadyPending(KeyId),
    #[error("key {0} is the primary one: promote another before it is destroyed")]
    IsPrimary(KeyId),
    #[error("key {0} was destroyed before")]
    Gone(KeyId),
    #[error("key {0} has not been unwrapped")]
    Locked(KeyId),
    #[error("the material of key {0} is wrapped: `exec` has to name the program that unwraps it")]
    Wrapped(KeyId),
    #[error("key {id}: {fault}")]
    Kms { id: KeyId, fault: KmsFault },
}

// === impl KeyId ===

impl KeyId {
    pub fn parse(text: &str) -> Option<Self> {
        let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() != 8 || text.starts_with('0') || !text.bytes().all(lower) {
            return None;
        }
        u32::from_str_radix(text, 16).ok().map(Self)
    }

    pub fn random() -> Self {
        // So that a digest, which writes it without leading zeros, shows the same digits.
        Self(rand::random_range(0x1000_0000..=u32::MAX))
    }

    pub fn number(self) -> u32 {
        self.0
    }
}

impl From<u32> for KeyId {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl KeyState ===

impl KeyState {
    pub const ALL: [KeyState; 4] =
        [KeyState::Pending, KeyState::Primary, KeyState::Retiring, KeyState::Destroyed];

    pub const fn as_str(self) -> &'static str {
        match self {
            KeyState::Pending => "pending",
            KeyState::Primary => "primary",
            KeyState::Retiring => "retiring",
            KeyState::Destroyed => "destroyed",
        }
    }
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Key ===

impl Key {
    /// The secret of a purpose, unless the key is gone or locked.
    pub fn secret(&self, purpose: Purpose) -> Option<SecretBox<[u8; 32]>> {
        match &self.material {
            Material::Open(material) | Material::Wrapped(_, Some(material)) => {
                Some(purpose.derive(material))
            }
            Material::Gone | Material::Wrapped(_, None) => None,
        }
    }

    /// Who wrapped its material, if it does not stand in the file openly.
    pub fn wrapped_by(&self) -> Option<&str> {
        match &self.material {
            Material::Wrapped(wrapped, _) => Some(&wrapped.key),
            Material::Gone | Material::Open(_) => None,
        }
    }

    fn becomes(&mut self, state: KeyState, now_ms: u64) {
        (self.state, self.since_ms) = (state, now_ms);
    }
}

/// Without its material.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.keys).finish()
    }
}

// === impl Keyring ===

impl Keyring {
    /// Every key, in the order in which they came.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    pub fn key(&self, id: KeyId) -> Result<&Key, RingFault> {
        self.keys.iter().find(|key| key.id == id).ok_or(RingFault::Unknown(id))
    }

    pub fn primary(&self) -> Result<&Key, RingFault> {
        let mut all = self.keys.iter().filter(|key| key.state == KeyState::Primary);
        all.next().ok_or(RingFault::NoPrimary)
    }

    /// Adds a key, as the primary one if it is the first, else `pending`. With somebody else who
    /// keeps keys its material stands in the file as wrapped by that one.
    pub fn add(&mut self, kms: Option<&dyn Kms>, now_ms: u64) -> Result<KeyId, RingFault> {
        let pending = self.keys.iter().find(|key| key.state == KeyState::Pending);
        if let Some(pending) = pending {
            return Err(RingFault::AlreadyPending(pending.id));
        }
        let state = if self.primary().is_ok() { KeyState::Pending } else { KeyState::Primary };
        let mut id = KeyId::random();
        while self.key(id).is_ok() {
            id = KeyId::random();
        }
        // `rand::fill` draws from a cryptographic generator.
        let material = SecretBox::init_with_mut(|material: &mut [u8; 32]| rand::fill(material));
        let material = match kms {
            Some(kms) => {
                let wrapped = with_context(id, |context| kms.wrap(&material, context));
                let wrapped = wrapped.map_err(|fault| RingFault::Kms { id, fault })?;
                Material::Wrapped(wrapped, Some(material))
            }
            None => Material::Open(material),
        };
        let (created_ms, since_ms) = (now_ms, now_ms);
        self.keys.push(Key { id, state, created_ms, since_ms, wraps: 0, material });
        Ok(id)
    }

    /// Asks for the material of every key that is wrapped and not open yet. May block.
    pub fn unlock(&mut self, kms: Option<&dyn Kms>) -> Result<(), RingFault> {
        for Key { id, material, .. } in &mut self.keys {
            let id = *id;
            let Material::Wrapped(wrapped, open @ None) = material else { continue };
            let kms = kms.ok_or(RingFault::Wrapped(id))?;
            let key = with_context(id, |context| kms.unwrap(wrapped, context));
            *open = Some(key.map_err(|fault| RingFault::Kms { id, fault })?);
        }
        Ok(())
    }

    /// Makes a pending key the primary one, which retires. Which one it was.
    pub fn promote(&mut self, id: Option<KeyId>, now_ms: u64) -> Result<KeyId, RingFault> {
        let id = match id {
            Some(id) => id,
            None => self.only_pending()?,
        };
        let state = self.key(id)?.state;
        if state != KeyState::Pending {
            return Err(RingFault::NotPending(id, state));
        }
        for key in &mut self.keys {
            if key.state == KeyState::Primary {
                key.becomes(KeyState::Retiring, now_ms);
            } else if key.id == id {
                key.becomes(KeyState::Primary, now_ms);
            }
        }
        Ok(id)
    }

    fn only_pending(&self) -> Result<KeyId, RingFault> {
        let pending: Vec<_> = self
            .keys
            .iter()
            .filter(|key| key.state == KeyState::Pending)
            .map(|key| key.id)
            .collect();
        match pending.as_slice() {
            [] => Err(RingFault::NonePending),
            [one] => Ok(*one),
            several => {
                let names: Vec<_> = several.iter().map(ToString::to_string).collect();
                Err(RingFault::SeveralPending(names.join(", ")))
            }
        }
    }

    /// Whether a key could be destroyed.
    pub fn may_destroy(&self, id: KeyId) -> Result<(), RingFault> {
        match self.key(id)?.state {
            KeyState::Primary => Err(RingFault::IsPrimary(id)),
            KeyState::Destroyed => Err(RingFault::Gone(id)),
            KeyState::Pending | KeyState::Retiring => Ok(()),
        }
    }

    /// Forgets what a key is made of, for good. That it was there is remembered.
    pub fn destroy(&mut self, id: KeyId, now_ms: u64) -> Result<(), RingFault> {
        self.may_destroy(id)?;
        if let Some(key) = self.keys.iter_mut().find(|key| key.id == id) {
            key.becomes(KeyState::Destroyed, now_ms);
            key.material = Material::Gone;
        }
        Ok(())
    }

    /// Every secret of a purpose: the primary one, and those that still open, the latest first.
    pub fn secrets(&self, purpose: Purpose) -> Result<KeySecrets, RingFault> {
        let of = |key: &Key| {
            let secret = key.secret(purpose).ok_or(RingFault::Locked(key.id))?;
            Ok(KeySecret { id: key.id.number(), secret })
        };
        let opens = |key: &&Key| matches!(key.state, KeyState::Pending | KeyState::Retiring);
        let mut others: Vec<&Key> = self.keys.iter().filter(opens).collect();
        others.sort_by_key(|key| std::cmp::Reverse(key.since_ms));
        Ok(KeySecrets {
            primary: of(self.primary()?)?,
            others: others.into_iter().map(of).collect::<Result<_, _>>()?,
        })
    }

    /// What users of the keys have to know of: two rings with the same marks are used alike.
    pub fn marks(&self) -> Vec<(KeyId, KeyState)> {
        self.keys.iter().map(|key| (key.id, key.state)).collect()
    }

    /// What can be said of the keys together.
    pub(super) fn verify(&self) -> Result<(), RingFault> {
        let mut primary = None;
        for (index, key) in self.keys.iter().enumerate() {
            if self.keys.iter().take(index).any(|other| other.id == key.id) {
                return Err(RingFault::Twice(key.id));
            }
            if key.state == KeyState::Primary
                && let Some(other) = primary.replace(key.id)
            {
                return Err(RingFault::TwoPrimaries(other, key.id));
            }
        }
        Ok(())
    }
}

/// What wrapped material belongs to.
fn with_context<T>(id: KeyId, run: impl FnOnce(&Context<'_>) -> T) -> T {
    let id = id.to_string();
    run(&Context { tenant: "", kind: "keyring", record: &[&id], schema: 1 })
}
