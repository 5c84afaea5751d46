//! Secrets that keys are derived from, each under the id that digests and sealed texts name.
//!
//! Where they are kept, and which of them is to be used, is decided elsewhere: an engine is given
//! the ones it needs, each time they change.

use secrecy::{ExposeSecret, SecretBox};
use sha2::{Digest, Sha256};

/// A secret of one purpose.
pub struct KeySecret {
    /// Of the key that it came from.
    pub id: u32,
    pub secret: SecretBox<[u8; 32]>,
}

/// Every secret of one purpose that is good at a time.
pub struct KeySecrets {
    /// What is made is made with this one.
    pub primary: KeySecret,
    /// What was made with these is still taken; the latest first.
    pub others: Vec<KeySecret>,
}

impl KeySecrets {
    /// A secret that is gone when the process ends.
    pub fn random() -> Self {
        // `rand::random` draws from a cryptographic generator.
        Self::one(SecretBox::init_with_mut(|secret: &mut [u8; 32]| rand::fill(secret)))
    }

    /// One secret, with an id that everybody who has it works out alike.
    pub fn one(secret: SecretBox<[u8; 32]>) -> Self {
        let digest = Sha256::new_with_prefix("hangu key id\0").chain_update(secret.expose_secret());
        let [a, b, c, d, ..] = <[u8; 32]>::from(digest.finalize());
        let primary = KeySecret { id: u32::from_be_bytes([a, b, c, d]), secret };
        Self { primary, others: Vec::new() }
    }

    /// The primary one and the others.
    pub fn all(&self) -> impl Iterator<Item = &KeySecret> {
        std::iter::once(&self.primary).chain(&self.others)
    }
}

impl std::fmt::Debug for KeySecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all().map(|key| format!("{:08x}", key.id))).finish()
    }
}
