//! Who keeps key-encryption keys, as far as sealing is concerned: wraps a data key, and unwraps
//! it for whoever names the same context.

use std::fmt;

use secrecy::SecretBox;

/// Encrypts one record, once.
pub type DataKey = SecretBox<[u8; 32]>;

/// A data key as it is stored, and the name of the key that wrapped it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrapped {
    /// At most 255 bytes.
    pub key: String,
    pub bytes: Vec<u8>,
}

/// What a sealed text belongs to. It opens with the same context only.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub tenant: &'a str,
    /// What kind of record it is.
    pub kind: &'a str,
    /// Names the record within its kind.
    pub record: &'a [&'a str],
    /// Of the kind's schema.
    pub schema: u16,
}

/// Why a data key was not wrapped or unwrapped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KmsFault {
    #[error("there is no key `{0}`")]
    UnknownKey(String),
    #[error("key `{0}` was destroyed")]
    Destroyed(String),
    #[error("no key is there to wrap with: {0}")]
    NoKey(String),
    #[error("key `{0}` has wrapped as many data keys as it may: rotate it")]
    Exhausted(String),
    #[error("that a key was used cannot be written down, so it is not used: {0}")]
    Uncounted(String),
    /// It is not what was wrapped, or not for this context.
    #[error("the data key does not unwrap")]
    Mismatch,
    #[error("whoever keeps the keys does not answer: {0}")]
    Away(String),
    #[error("whoever keeps the keys refuses: {0}")]
    Refused(String),
}

/// Keeps keys. Its calls block, some of them for as long as a program may run: never on a core of
/// calls.
pub trait Kms: Send + Sync {
    /// The key that wraps at present.
    fn key_id(&self) -> Result<String, KmsFault>;

    fn wrap(&self, key: &DataKey, context: &Context<'_>) -> Result<Wrapped, KmsFault>;

    fn unwrap(&self, wrapped: &Wrapped, context: &Context<'_>) -> Result<DataKey, KmsFault>;

    /// Whether it unwraps at once, asking nobody; then a core of calls may do it.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether it could do its work at present.
    fn health(&self) -> Result<(), KmsFault>;
}

// === impl Context ===

impl Context<'_> {
    /// What is authenticated: each part behind its length, so that none runs into the next.
    pub(super) fn bytes(&self, head: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        let schema = self.schema.to_be_bytes();
        let record = u32::try_from(self.record.len()).unwrap_or(u32::MAX).to_be_bytes();
        let parts = head.iter().copied();
        let parts = parts.chain([self.tenant.as_bytes(), self.kind.as_bytes(), &record]);
        let parts = parts.chain(self.record.iter().map(|part| part.as_bytes()));
        for part in parts.chain([&schema[..]]) {
            out.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend_from_slice(part);
        }
        out
    }
}

impl fmt::Debug for dyn Kms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kms")
    }
}
