//! The keyring as the one who keeps keys: data keys are wrapped in this process, under the
//! primary key.

use std::sync::Arc;

use aes_gcm::{Aes256Gcm, KeyInit, Nonce, Tag, aead::AeadInOut};
use arc_swap::ArcSwap;
use secrecy::{ExposeSecret, ExposeSecretMut, SecretBox};

use super::{
    Context, DataKey, Key, KeyId, KeyState, Keyring, KeyringFile, Kms, KmsFault, Purpose,
    RingFault, Wrapped, budget::Budget,
};

const NONCE: usize = 12;
const TAG: usize = 16;
const WRAPPED: usize = NONCE + 32 + TAG;

/// Authenticated with each wrapped data key, before the key's id and the record's context.
const LABEL: &[u8] = b"hangu data key v1";

/// Wraps under a keyring.
pub struct LocalKms {
    ring: ArcSwap<Keyring>,
    budget: Budget,
}

// === impl LocalKms ===

impl LocalKms {
    /// `file` is where use of the keys is counted.
    pub fn new(ring: Arc<Keyring>, file: KeyringFile) -> Self {
        Self { ring: ArcSwap::new(ring), budget: Budget::new(Some(file)) }
    }

    /// Under one key that ends with the process.
    pub fn in_process(now_ms: u64) -> Result<Self, RingFault> {
        let mut ring = Keyring::default();
        ring.add(None, now_ms)?;
        Ok(Self { ring: ArcSwap::from_pointee(ring), budget: Budget::new(None) })
    }

    /// Goes on with this keyring.
    pub fn replace(&self, ring: Arc<Keyring>) {
        self.ring.store(ring);
    }

    fn cipher(key: &Key) -> Result<Aes256Gcm, KmsFault> {
        let name = || key.id.to_string();
        if key.state == KeyState::Destroyed {
            return Err(KmsFault::Destroyed(name()));
        }
        let secret = key.secret(Purpose::Storage).ok_or_else(|| KmsFault::NoKey(name()))?;
        Ok(Aes256Gcm::new(&(*secret.expose_secret()).into()))
    }
}

impl Kms for LocalKms {
    fn key_id(&self) -> Result<String, KmsFault> {
        let ring = self.ring.load();
        let key = ring.primary().map_err(|fault| KmsFault::NoKey(fault.to_string()))?;
        Ok(key.id.to_string())
    }

    fn wrap(&self, key: &DataKey, context: &Context<'_>) -> Result<Wrapped, KmsFault> {
        let ring = self.ring.load();
        let primary = ring.primary().map_err(|fault| KmsFault::NoKey(fault.to_string()))?;
        let cipher = Self::cipher(primary)?;
        // Before: what is not counted does not happen.
        self.budget.take(primary.id)?;
        let name = primary.id.to_string();
        let mut bytes = vec![0; WRAPPED];
        let (nonce, rest) = bytes.split_at_mut(NONCE);
        rand::fill(nonce);
        let nonce: [u8; NONCE] = (&*nonce).try_into().map_err(|_| KmsFault::Mismatch)?;
        let (text, place) = rest.split_at_mut(32);
        text.copy_from_slice(key.expose_secret());
        let context = context.bytes(&[LABEL, name.as_bytes()]);
        let tag = cipher
            .encrypt_inout_detached(&Nonce::from(nonce), &context, text.into())
            .map_err(|_| KmsFault::Mismatch)?;
        place.copy_from_slice(&tag);
        Ok(Wrapped { key: name, bytes })
    }

    fn unwrap(&self, wrapped: &Wrapped, context: &Context<'_>) -> Result<DataKey, KmsFault> {
        let unknown = || KmsFault::UnknownKey(wrapped.key.clone());
        let id = KeyId::parse(&wrapped.key).ok_or_else(unknown)?;
        let ring = self.ring.load();
        let cipher = Self::cipher(ring.key(id).map_err(|_| unknown())?)?;
        let bytes: &[u8; WRAPPED] =
            wrapped.bytes.as_slice().try_into().map_err(|_| KmsFault::Mismatch)?;
        let (nonce, rest) = bytes.split_at(NONCE);
        let (text, tag) = rest.split_at(32);
        let nonce: [u8; NONCE] = nonce.try_into().map_err(|_| KmsFault::Mismatch)?;
        let tag: [u8; TAG] = tag.try_into().map_err(|_| KmsFault::Mismatch)?;
        let mut key: DataKey = SecretBox::new(Box::new([0; 32]));
        key.expose_secret_mut().copy_from_slice(text);
        cipher
            .decrypt_inout_detached(
                &Nonce::from(nonce),
                &context.bytes(&[LABEL, wrapped.key.as_bytes()]),
                key.expose_secret_mut().as_mut_slice().into(),
                &Tag::from(tag),
            )
            .map_err(|_| KmsFault::Mismatch)?;
        Ok(key)
    }

    fn is_local(&self) -> bool {
        true
    }

    fn health(&self) -> Result<(), KmsFault> {
        let ring = self.ring.load();
        let primary = ring.primary().map_err(|fault| KmsFault::NoKey(fault.to_string()))?;
        Self::cipher(primary).map(|_| ())
    }
}
