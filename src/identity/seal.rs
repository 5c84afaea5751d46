//! Tokens that clients keep for the gateway and can neither read nor change.
//!
//! A token is an algorithm byte, a key id, a random nonce and the AES-256-GCM sealing of what it
//! says, in base64url. Each purpose has a key of its own, derived from the one secret, so a token
//! made for one is nothing to another. What a token says is its owner's business (`session.rs`).

use std::sync::atomic::{AtomicU64, Ordering};

use aes_gcm::{Aes256Gcm, Key, KeyInit, Nonce, Tag, aead::AeadInOut};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hkdf::Hkdf;
use rand::{TryRng, rngs::SysRng};
use secrecy::{ExposeSecret, SecretSlice};
use sha2::Sha256;
use smallvec::{SmallVec, smallvec};
use zeroize::Zeroizing;

/// The only algorithm so far: AES-256-GCM with a 96-bit random nonce and a 128-bit tag.
const AES_256_GCM: u8 = 1;
const NONCE: usize = 12;
const TAG: usize = 16;
const HEAD: usize = 2 + NONCE;

/// The shortest secret that a key is derived from.
pub const MIN_SECRET: usize = 32;

/// How many tokens one key may seal: random nonces of 96 bits are good for 2^32 of them (NIST SP
/// 800-38D), and half of that is kept in hand, for replicas count apart.
const MAX_SEALS: u64 = 1 << 31;

/// The longest token where nobody says otherwise, in characters.
const MAX_TOKEN: usize = 1_024;

/// What a token says, once it is opened.
pub(super) type Plain = SmallVec<[u8; 192]>;

/// Seals and opens the tokens of one purpose.
pub struct Sealer {
    cipher: Aes256Gcm,
    key_id: u8,
    /// Authenticated with each token: purpose, algorithm, key id.
    context: Box<[u8]>,
    sealed: AtomicU64,
    /// The longest token, in characters; a longer one is not looked at.
    max_token: usize,
}

/// Why there is no sealer, or no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealFault {
    #[error("the secret is shorter than {MIN_SECRET} bytes")]
    WeakSecret,
    #[error("the system has no random numbers to give")]
    NoRandomness,
    #[error("the key has sealed as many tokens as it may; it has to be replaced")]
    Exhausted,
    #[error("there is more to seal than a token holds")]
    TooLong,
}

// === impl Sealer ===

impl Sealer {
    /// For everybody who has the same secret: they open each other's tokens.
    pub fn new(
        purpose: &'static str,
        key_id: u8,
        secret: &SecretSlice<u8>,
    ) -> Result<Self, SealFault> {
        let secret = secret.expose_secret();
        if secret.len() < MIN_SECRET {
            return Err(SealFault::WeakSecret);
        }
        Ok(Self::derive(purpose, key_id, secret))
    }

    /// For this process alone.
    pub fn random(purpose: &'static str) -> Result<Self, SealFault> {
        let mut secret = Zeroizing::new([0; MIN_SECRET]);
        SysRng.try_fill_bytes(secret.as_mut()).map_err(|_| SealFault::NoRandomness)?;
        Ok(Self::derive(purpose, 0, secret.as_ref()))
    }

    fn derive(purpose: &'static str, key_id: u8, secret: &[u8]) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        // Fails for keys of more than 255 hashes only, and this one is as long as one.
        let expanded = Hkdf::<Sha256>::new(Some(b"hangu sealed tokens"), secret)
            .expand_multi_info(&[b"aes-256-gcm ", purpose.as_bytes()], key.as_mut());
        debug_assert!(expanded.is_ok());
        let mut context = purpose.as_bytes().to_vec();
        context.extend_from_slice(&[0, AES_256_GCM, key_id]);
        Self {
            cipher: Aes256Gcm::new(&Key::<Aes256Gcm>::from(*key)),
            key_id,
            context: context.into(),
            sealed: AtomicU64::new(0),
            max_token: MAX_TOKEN,
        }
    }

    /// For tokens that hold more than names.
    pub fn with_max_token(mut self, characters: usize) -> Self {
        self.max_token = characters;
        self
    }

    pub(super) fn seal(&self, plain: &[u8]) -> Result<String, SealFault> {
        if (HEAD + plain.len() + TAG).div_ceil(3) * 4 > self.max_token {
            return Err(SealFault::TooLong);
        }
        if self.sealed.fetch_add(1, Ordering::Relaxed) >= MAX_SEALS {
            // Never to wrap around.
            self.sealed.fetch_sub(1, Ordering::Relaxed);
            return Err(SealFault::Exhausted);
        }
        let mut nonce = [0; NONCE];
        rand::fill(&mut nonce);
        let mut token = Vec::with_capacity(HEAD + plain.len() + TAG);
        token.extend_from_slice(&[AES_256_GCM, self.key_id]);
        token.extend_from_slice(&nonce);
        token.extend_from_slice(plain);
        let (_, body) = token.split_at_mut(HEAD);
        let tag = self
            .cipher
            .encrypt_inout_detached(&Nonce::from(nonce), &self.context, body.into())
            .map_err(|_| SealFault::TooLong)?;
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
        let (head, rest) = bytes.split_at_mut_checked(HEAD)?;
        let nonce: [u8; NONCE] = match head {
            [AES_256_GCM, key_id, nonce @ ..] if *key_id == self.key_id => {
                (&*nonce).try_into().ok()?
            }
            _ => return None,
        };
        let (body, tag) = rest.split_at_mut_checked(rest.len().checked_sub(TAG)?)?;
        let tag: [u8; TAG] = (&*tag).try_into().ok()?;
        self.cipher
            .decrypt_inout_detached(
                &Nonce::from(nonce),
                &self.context,
                body.into(),
                &Tag::from(tag),
            )
            .ok()?;
        bytes.truncate(len - TAG);
        bytes.drain(..HEAD);
        Some(bytes)
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> SecretSlice<u8> {
        SecretSlice::from(vec![byte; MIN_SECRET])
    }

    #[test]
    fn what_one_seals_all_with_the_secret_open() {
        let one = Sealer::new("test", 7, &secret(1)).unwrap();
        let other = Sealer::new("test", 7, &secret(1)).unwrap();
        let token = one.seal(b"what it says").unwrap();
        assert_eq!(other.open(&token).as_deref(), Some(&b"what it says"[..]));
        assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
    }

    #[test]
    fn another_secret_purpose_or_key_id_opens_nothing() {
        let token = Sealer::new("test", 7, &secret(1)).unwrap().seal(b"plain").unwrap();
        for other in [
            Sealer::new("test", 7, &secret(2)).unwrap(),
            Sealer::new("text", 7, &secret(1)).unwrap(),
            Sealer::new("test", 8, &secret(1)).unwrap(),
            Sealer::random("test").unwrap(),
        ] {
            assert_eq!(other.open(&token), None, "{other:?}");
        }
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
    fn a_key_seals_no_more_than_it_may() {
        let sealer = Sealer::random("test").unwrap();
        sealer.sealed.store(MAX_SEALS - 1, Ordering::Relaxed);
        let last = sealer.seal(b"last").unwrap();
        for _ in 0..2 {
            assert_eq!(sealer.seal(b"one more"), Err(SealFault::Exhausted));
        }
        assert_eq!(sealer.open(&last).as_deref(), Some(&b"last"[..]));
    }

    #[test]
    fn what_is_sealed_has_bounds() {
        let sealer = Sealer::random("test").unwrap();
        let longest = MAX_TOKEN / 4 * 3 - HEAD - TAG;
        let token = sealer.seal(&vec![b'x'; longest]).unwrap();
        assert_eq!(sealer.open(&token).map(|plain| plain.len()), Some(longest));
        assert_eq!(sealer.seal(&vec![b'x'; longest + 1]), Err(SealFault::TooLong));
        assert_eq!(
            Sealer::new("test", 0, &SecretSlice::from(vec![1; 31])).err(),
            Some(SealFault::WeakSecret)
        );
    }
}
