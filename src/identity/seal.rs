//! Tokens that clients keep for the gateway and can neither read nor change.
//!
//! A token is an algorithm byte, the id of a key, a random nonce and the XAES-256-GCM sealing of
//! what it says, in base64url. Each purpose has a key of its own, derived from the one secret, so
//! a token made for one is nothing to another. Tokens are made with the primary key and opened
//! with the one that they name, as long as it is there. What a token says is its owner's business
//! (`session.rs`).

use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hkdf::Hkdf;
use rand::{TryRng, rngs::SysRng};
use secrecy::{ExposeSecret, ExposeSecretMut, SecretBox};
use sha2::Sha256;
use smallvec::{SmallVec, smallvec};
use zeroize::Zeroizing;

use super::xaes::{NONCE, TAG, XAes};
use crate::model::keys::{KeySecret, KeySecrets};

/// XAES-256-GCM: a 192-bit random nonce and a 128-bit tag. 1 was AES-256-GCM, whose nonces would
/// have to be counted over restarts and replicas.
const XAES_256_GCM: u8 = 2;
const KEY_ID: usize = 4;
const HEAD: usize = 1 + KEY_ID + NONCE;

/// The longest token where nobody says otherwise, in characters.
const MAX_TOKEN: usize = 1_024;

/// What a token says, once it is opened.
pub(super) type Plain = SmallVec<[u8; 192]>;

/// Seals and opens the tokens of one purpose.
pub struct Sealer {
    purpose: &'static str,
    /// The primary key, and after it the others.
    keys: ArcSwap<Vec<SealKey>>,
    /// The longest token, in characters; a longer one is not looked at.
    max_token: usize,
}

struct SealKey {
    id: u32,
    cipher: XAes,
    /// Authenticated with each token: purpose, algorithm, key id.
    context: Box<[u8]>,
}

/// Why there is no sealer, or no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealFault {
    #[error("the system has no random numbers to give")]
    NoRandomness,
    #[error("there is more to seal than a token holds")]
    TooLong,
}

// === impl Sealer ===

impl Sealer {
    /// For everybody who has the same secrets: they open each other's tokens.
    pub fn new(purpose: &'static str, secrets: &KeySecrets) -> Self {
        let keys = ArcSwap::from_pointee(SealKey::all(purpose, secrets));
        Self { purpose, keys, max_token: MAX_TOKEN }
    }

    /// For this process alone.
    pub fn random(purpose: &'static str) -> Result<Self, SealFault> {
        let mut secret: SecretBox<[u8; 32]> = SecretBox::new(Box::new([0; 32]));
        SysRng.try_fill_bytes(secret.expose_secret_mut()).map_err(|_| SealFault::NoRandomness)?;
        Ok(Self::new(purpose, &KeySecrets::one(secret)))
    }

    /// For tokens that hold more than names.
    pub fn with_max_token(mut self, characters: usize) -> Self {
        self.max_token = characters;
        self
    }

    /// Goes on with these secrets: tokens of keys that are not among them open no more.
    pub fn rekey(&self, secrets: &KeySecrets) {
        self.keys.store(Arc::new(SealKey::all(self.purpose, secrets)));
    }

    pub(super) fn seal(&self, plain: &[u8]) -> Result<String, SealFault> {
        if (HEAD + plain.len() + TAG).div_ceil(3) * 4 > self.max_token {
            return Err(SealFault::TooLong);
        }
        let keys = self.keys.load();
        let Some(key) = keys.first() else { return Err(SealFault::NoRandomness) };
        let mut nonce = [0; NONCE];
        rand::fill(&mut nonce);
        let mut token = Vec::with_capacity(HEAD + plain.len() + TAG);
        token.push(XAES_256_GCM);
        token.extend_from_slice(&key.id.to_be_bytes());
        token.extend_from_slice(&nonce);
        token.extend_from_slice(plain);
        let (_, body) = token.split_at_mut(HEAD);
        let tag = key.cipher.seal(&nonce, &key.context, body).map_err(|_| SealFault::TooLong)?;
        token.extend_from_slice(&tag);
        Ok(URL_SAFE_NO_PAD.encode(token))
    }

    /// What the token says; `None` if it is not one of ours, whatever the reason.
    pub(super) fn open(&self, token: &str) -> Option<Plain> {
        if token.len() > self.max_token {
            return None;
        }
        let mut bytes: Plain = smallvec![0; token.len().div_ceil(4) * 3];
        let len = URL_SAFE_NO_PAD.decode_slice(token, &mut bytes).ok()?;
        bytes.truncate(len);
        let (head, rest) = bytes.split_first_chunk_mut::<HEAD>()?;
        let [XAES_256_GCM, a, b, c, d, nonce @ ..] = *head else { return None };
        let id = u32::from_be_bytes([a, b, c, d]);
        // The one that is named and no other: GCM does not commit to its key.
        let keys = self.keys.load();
        let key = keys.iter().find(|key| key.id == id)?;
        let (body, tag) = rest.split_at_mut_checked(rest.len().checked_sub(TAG)?)?;
        let tag: [u8; TAG] = (&*tag).try_into().ok()?;
        key.cipher.open(&nonce, &key.context, body, tag).ok()?;
        bytes.truncate(len - TAG);
        bytes.drain(..HEAD);
        Some(bytes)
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("purpose", &self.purpose).finish_non_exhaustive()
    }
}

// === impl SealKey ===

impl SealKey {
    fn all(purpose: &str, secrets: &KeySecrets) -> Vec<SealKey> {
        secrets.all().map(|secret| Self::derive(purpose, secret)).collect()
    }

    fn derive(purpose: &str, KeySecret { id, secret }: &KeySecret) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        // Fails for keys of more than 255 hashes only, and this one is as long as one.
        let expanded = Hkdf::<Sha256>::new(Some(b"hangu sealed tokens"), secret.expose_secret())
            .expand_multi_info(&[b"xaes-256-gcm ", purpose.as_bytes()], key.as_mut());
        debug_assert!(expanded.is_ok());
        let mut context = purpose.as_bytes().to_vec();
        context.extend_from_slice(&[0, XAES_256_GCM]);
        context.extend_from_slice(&id.to_be_bytes());
        Self { id: *id, cipher: XAes::new(&key), context: context.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(id: u32, byte: u8) -> KeySecrets {
        KeySecrets { primary: key(id, byte), others: Vec::new() }
    }

    fn key(id: u32, byte: u8) -> KeySecret {
        KeySecret { id, secret: SecretBox::new(Box::new([byte; 32])) }
    }

    #[test]
    fn what_one_seals_all_with_the_secret_open() {
        let one = Sealer::new("test", &secrets(7, 1));
        let other = Sealer::new("test", &secrets(7, 1));
        let token = one.seal(b"what it says").unwrap();
        assert_eq!(other.open(&token).as_deref(), Some(&b"what it says"[..]));
        assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
    }

    #[test]
    fn another_secret_purpose_or_key_id_opens_nothing() {
        let token = Sealer::new("test", &secrets(7, 1)).seal(b"plain").unwrap();
        for other in [
            Sealer::new("test", &secrets(7, 2)),
            Sealer::new("text", &secrets(7, 1)),
            Sealer::new("test", &secrets(8, 1)),
            Sealer::random("test").unwrap(),
        ] {
            assert_eq!(other.open(&token), None, "{other:?}");
        }
    }

    #[test]
    fn tokens_of_a_former_key_open_until_it_goes() {
        let sealer = Sealer::new("test", &secrets(1, 1));
        let old = sealer.seal(b"old").unwrap();
        sealer.rekey(&KeySecrets { primary: key(2, 2), others: vec![key(3, 3), key(1, 1)] });
        let new = sealer.seal(b"new").unwrap();
        assert_eq!(sealer.open(&old).as_deref(), Some(&b"old"[..]));
        // A replica that has promoted another one already.
        let ahead = Sealer::new("test", &secrets(3, 3)).seal(b"ahead").unwrap();
        assert_eq!(sealer.open(&ahead).as_deref(), Some(&b"ahead"[..]));
        sealer.rekey(&secrets(2, 2));
        assert_eq!(sealer.open(&old), None);
        assert_eq!(sealer.open(&new).as_deref(), Some(&b"new"[..]));
    }

    #[test]
    fn a_token_cannot_be_changed_anywhere() {
        let sealer = Sealer::random("test").unwrap();
        let token = sealer.seal(b"").unwrap();
        assert!(sealer.open(&token).is_some());
        for (index, original) in token.char_indices() {
            for other in ['A', 'z', '9', '_', '=', '.'] {
                let mut changed = token.clone();
                changed.replace_range(index..=index, &other.to_string());
                let opens = sealer.open(&changed).is_some();
                assert_eq!(opens, other == original, "{changed}");
            }
        }
        for cut in 0..token.len() {
            assert_eq!(sealer.open(&token[..cut]), None, "{cut}");
        }
        for added in ["A", "=", "AAAA", "\n", "é"] {
            assert_eq!(sealer.open(&format!("{token}{added}")), None);
        }
        assert_eq!(sealer.open(&"A".repeat(MAX_TOKEN * 2)), None);
    }

    #[test]
    fn the_same_thing_is_never_sealed_the_same() {
        let sealer = Sealer::random("test").unwrap();
        let tokens: std::collections::HashSet<String> =
            (0..1_000).map(|_| sealer.seal(b"same").unwrap()).collect();
        assert_eq!(tokens.len(), 1_000);
    }

    #[test]
    fn what_is_sealed_has_bounds() {
        let sealer = Sealer::random("test").unwrap();
        let longest = MAX_TOKEN / 4 * 3 - HEAD - TAG;
        let token = sealer.seal(&vec![b'x'; longest]).unwrap();
        assert_eq!(sealer.open(&token).map(|plain| plain.len()), Some(longest));
        assert_eq!(sealer.seal(&vec![b'x'; longest + 1]), Err(SealFault::TooLong));
    }
}
