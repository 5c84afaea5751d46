//! The keyed digest of compiled steps: that they were compiled here, and for which tenant.
//!
//! Each tenant has a key of its own, so that steps of one are nothing to another. What is made is
//! made with the primary secret; what names another one that is still there is recognised.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::ExposeSecret;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::model::{
    caller::TenantId,
    exchange::KeyedDigest,
    ids::from_hex,
    keys::{KeySecret, KeySecrets},
};

/// Marks keys as made for this and nothing else.
const SALT: &[u8] = b"hangu.steps.v1";

/// Makes and recognises digests.
pub struct Keys(ArcSwap<KeySecrets>);

/// Why a digest is not one of these steps'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestFault {
    /// It has not the form of one.
    Form,
    /// Its key is not here.
    UnknownKey,
    /// Of other steps, of another tenant's, or made up.
    Differs,
}

// === impl Keys ===

impl Keys {
    pub fn new(secrets: KeySecrets) -> Self {
        Self(ArcSwap::from_pointee(secrets))
    }

    /// Goes on with these secrets: what was compiled under others has to be compiled again.
    pub fn rekey(&self, secrets: KeySecrets) {
        self.0.store(Arc::new(secrets));
    }

    /// The digest of a text, for a tenant.
    pub(super) fn digest(&self, tenant: &TenantId, text: &[u8]) -> KeyedDigest {
        let secrets = self.0.load();
        let primary = &secrets.primary;
        let digest = state(primary, tenant).chain_update(text).finalize().into_bytes().into();
        KeyedDigest { key: primary.id, digest }
    }

    /// Holds a digest, as it is written, against a text.
    pub(super) fn verify(
        &self,
        tenant: &TenantId,
        text: &[u8],
        written: &str,
    ) -> Result<(), DigestFault> {
        let digest = parse(written).ok_or(DigestFault::Form)?;
        let secrets = self.0.load();
        let secret = secrets.all().find(|secret| secret.id == digest.key);
        let secret = secret.ok_or(DigestFault::UnknownKey)?;
        // In constant time.
        let verified = state(secret, tenant).chain_update(text).verify_slice(&digest.digest);
        verified.map_err(|_| DigestFault::Differs)
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Keys").finish_non_exhaustive()
    }
}

fn state(KeySecret { secret, .. }: &KeySecret, tenant: &TenantId) -> Hmac<Sha256> {
    let mut key = Zeroizing::new([0; 64]);
    // Fails only above 255 times the digest's length.
    let expanded = Hkdf::<Sha256>::new(Some(SALT), secret.expose_secret())
        .expand(tenant.as_str().as_bytes(), key.as_mut_slice());
    debug_assert!(expanded.is_ok());
    Hmac::new(&(*key).into())
}

/// A digest in its one form: `hmac-sha256:<key id>:<hex>`.
fn parse(written: &str) -> Option<KeyedDigest> {
    let (key, digits) = written.strip_prefix("hmac-sha256:")?.split_once(':')?;
    let key = u32::from_str_radix(key, 16).ok()?;
    let digest = KeyedDigest { key, digest: from_hex(digits)? };
    (digest.to_string() == written).then_some(digest)
}
