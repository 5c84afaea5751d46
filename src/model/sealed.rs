//! Texts that are kept outside the process, sealed with AES-256-GCM under the secrets of one
//! purpose.
//!
//! Each text has a key of its own, derived from the secret and a random salt, so a key seals once
//! and nonces cannot meet. What is sealed names its secret by the id and is opened by no other; it
//! is bound to what it is kept for, so moved to another record it does not open.
//!
//! ```text
//! format 1 | algorithm 1 | key id 4 | salt 16 | nonce 12 | text | tag 16
//! ```

use std::sync::Arc;

use aes_gcm::{Aes256Gcm, Key, KeyInit, Nonce, Tag, aead::AeadInOut, aead::consts::U12};
use arc_swap::ArcSwap;
use hkdf::Hkdf;
use secrecy::{ExposeSecret, SecretBox};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::keys::{KeySecret, KeySecrets};

/// The layout of what is sealed.
const FORMAT: u8 = 1;
/// AES-256-GCM under a key derived for the one text.
const ALGORITHM: u8 = 1;

const ID: usize = 4;
const SALT: usize = 16;
const NONCE: usize = 12;
const TAG: usize = 16;
const HEAD: usize = 2 + ID + SALT + NONCE;

/// What parts one use from all others. Never to be changed: what was sealed would be lost.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// Of the key that comes from a secret.
    pub purpose: &'static [u8],
    /// Of the key of one text, which comes from that.
    pub text: &'static [u8],
    /// Authenticated with each text.
    pub kind: &'static [u8],
}

/// Seals texts of one use, and opens them.
pub struct TextSeal {
    what: Use,
    /// The primary key, which seals, and after it the others, which only open.
    keys: ArcSwap<Vec<SealKey>>,
}

struct SealKey {
    key: SecretBox<[u8; 32]>,
    id: [u8; ID],
}

// === impl TextSeal ===

impl TextSeal {
    /// For everybody who has the same secrets.
    pub fn new(what: Use, secrets: &KeySecrets) -> Self {
        Self { what, keys: ArcSwap::from_pointee(SealKey::all(what, secrets)) }
    }

    /// Goes on with other secrets.
    pub fn rekey(&self, secrets: &KeySecrets) {
        self.keys.store(Arc::new(SealKey::all(self.what, secrets)));
    }

    /// Seals the parts of a text, one behind the other; `of` is what it is bound to. Nothing, where
    /// it cannot be sealed.
    pub fn seal(&self, of: &[&[u8]], parts: &[&[u8]]) -> Vec<u8> {
        let keys = self.keys.load();
        // There always is one; what is not sealed is not kept.
        let Some(key) = keys.first() else { return Vec::new() };
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut sealed = Vec::with_capacity(HEAD + length + TAG);
        sealed.extend_from_slice(&[FORMAT, ALGORITHM]);
        sealed.extend_from_slice(&key.id);
        let mut random = [0; SALT + NONCE];
        rand::fill(&mut random);
        sealed.extend_from_slice(&random);
        parts.iter().for_each(|part| sealed.extend_from_slice(part));
        let (head, plain) = sealed.split_at_mut(HEAD);
        let (cipher, nonce) = key.cipher(self.what, head);
        let context = self.context(head, of);
        match cipher.encrypt_inout_detached(&nonce, &context, plain.into()) {
            Ok(tag) => sealed.extend_from_slice(&tag),
            // Only beyond 64 GiB; what is not sealed is not kept.
            Err(_) => sealed.clear(),
        }
        sealed
    }

    /// The text; `None` if it was sealed under another secret, or for something else, or is no
    /// longer what was sealed.
    pub fn open(&self, of: &[&[u8]], sealed: &[u8]) -> Option<Vec<u8>> {
        let (head, rest) = sealed.split_at_checked(HEAD)?;
        let id = head.strip_prefix(&[FORMAT, ALGORITHM])?.get(..ID)?;
        let keys = self.keys.load();
        let key = keys.iter().find(|key| key.id == id)?;
        let (body, tag) = rest.split_at_checked(rest.len().checked_sub(TAG)?)?;
        let tag: [u8; TAG] = tag.try_into().ok()?;
        let mut plain = body.to_vec();
        let (cipher, nonce) = key.cipher(self.what, head);
        let context = self.context(head, of);
        cipher
            .decrypt_inout_detached(&nonce, &context, plain.as_mut_slice().into(), &Tag::from(tag))
            .ok()?;
        Some(plain)
    }

    /// What is authenticated beside a text: how it is sealed, what it is, and whose.
    fn context(&self, head: &[u8], of: &[&[u8]]) -> Vec<u8> {
        [&[head, self.what.kind], of].concat().concat()
    }
}

impl std::fmt::Debug for TextSeal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextSeal").field("what", &self.what).finish_non_exhaustive()
    }
}

// === impl SealKey ===

impl SealKey {
    fn all(what: Use, secrets: &KeySecrets) -> Vec<Self> {
        let derived = secrets.all().map(|KeySecret { id, secret }| {
            let mut key = Zeroizing::new([0; 32]);
            derive(secret.expose_secret(), what.purpose, b"aes-256-gcm", key.as_mut());
            Self { key: SecretBox::new(Box::new(*key)), id: id.to_be_bytes() }
        });
        derived.collect()
    }

    /// The cipher of one text, by the salt and nonce in its head.
    fn cipher(&self, what: Use, head: &[u8]) -> (Aes256Gcm, Nonce<U12>) {
        let random = head.get(2 + ID..).unwrap_or_default();
        let (salt, nonce) = random.split_at(SALT.min(random.len()));
        let mut key = Zeroizing::new([0; 32]);
        derive(self.key.expose_secret(), salt, what.text, key.as_mut());
        let nonce: [u8; NONCE] = nonce.try_into().unwrap_or_default();
        (Aes256Gcm::new(&Key::<Aes256Gcm>::from(*key)), nonce.into())
    }
}

fn derive(secret: &[u8; 32], salt: &[u8], info: &[u8], to: &mut [u8]) {
    // Fails for keys of more than 255 hashes only.
    let expanded = Hkdf::<Sha256>::new(Some(salt), secret).expand(info, to);
    debug_assert!(expanded.is_ok());
}
