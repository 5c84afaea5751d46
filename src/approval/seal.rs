//! The arguments of calls that wait, for those who decide: sealed with AES-256-GCM.
//!
//! Whoever decides must see what he decides on, and the store must not. Each text has a key of
//! its own, derived from the secret and a random salt; it is bound to the tenant and the id of
//! its request, so moved to another one it does not open.

use std::sync::Arc;

use aes_gcm::{Aes256Gcm, Key, KeyInit, Nonce, Tag, aead::AeadInOut, aead::consts::U12};
use arc_swap::ArcSwap;
use bytes::Bytes;
use hkdf::Hkdf;
use secrecy::{ExposeSecret, SecretBox};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::{Approval, ApprovalId};
use crate::model::{
    caller::TenantId,
    keys::{KeySecret, KeySecrets},
};

/// The layout of what is sealed.
const FORMAT: u8 = 1;
/// AES-256-GCM under a key derived for the one text.
const ALGORITHM: u8 = 1;

const ID: usize = 4;
const SALT: usize = 16;
const NONCE: usize = 12;
const TAG: usize = 16;
const HEAD: usize = 2 + ID + SALT + NONCE;

const PURPOSE: &[u8] = b"hangu approval arguments";

/// Seals arguments, and opens them for those who may see the request.
pub struct ArgumentSeal {
    /// What is sealed is sealed with the first.
    keys: ArcSwap<Vec<SealKey>>,
}

/// What the keys of single texts are derived from.
struct SealKey {
    key: SecretBox<[u8; 32]>,
    id: [u8; ID],
}

// === impl ArgumentSeal ===

impl ArgumentSeal {
    /// For everybody who has the same secrets.
    pub fn new(secrets: &KeySecrets) -> Self {
        Self { keys: ArcSwap::from_pointee(SealKey::all(secrets)) }
    }

    /// For this process alone: what it seals nobody opens after it.
    pub fn random() -> Self {
        Self::new(&KeySecrets::random())
    }

    /// Goes on with other secrets.
    pub fn rekey(&self, secrets: &KeySecrets) {
        self.keys.store(Arc::new(SealKey::all(secrets)));
    }

    /// Seals the arguments of a request.
    pub fn seal(&self, tenant: &TenantId, id: ApprovalId, arguments: &[u8]) -> Bytes {
        let keys = self.keys.load();
        // There always is one; what is not sealed is not kept.
        let Some(key) = keys.first() else { return Bytes::new() };
        let mut sealed = Vec::with_capacity(HEAD + arguments.len() + TAG);
        sealed.extend_from_slice(&[FORMAT, ALGORITHM]);
        sealed.extend_from_slice(&key.id);
        let mut random = [0; SALT + NONCE];
        rand::fill(&mut random);
        sealed.extend_from_slice(&random);
        sealed.extend_from_slice(arguments);
        let (head, plain) = sealed.split_at_mut(HEAD);
        let (cipher, nonce) = key.cipher(head);
        let context = context(head, tenant, id);
        match cipher.encrypt_inout_detached(&nonce, &context, plain.into()) {
            Ok(tag) => sealed.extend_from_slice(&tag),
            // Only beyond 64 GiB; what is not sealed is not kept.
            Err(_) => sealed.clear(),
        }
        sealed.into()
    }

    /// The arguments of a request; `None` if none were kept, or under another secret, or for
    /// another request.
    pub fn open(&self, approval: &Approval) -> Option<Bytes> {
        let sealed = approval.request.sealed.as_ref()?;
        self.open_for(&approval.request.subject.tenant, approval.id, sealed)
    }

    fn open_for(&self, tenant: &TenantId, id: ApprovalId, sealed: &[u8]) -> Option<Bytes> {
        let (head, rest) = sealed.split_at_checked(HEAD)?;
        if !head.starts_with(&[FORMAT, ALGORITHM]) {
            return None;
        }
        let (keys, key_id) = (self.keys.load(), head.get(2..2 + ID)?);
        let key = keys.iter().find(|key| key.id == key_id)?;
        let (body, tag) = rest.split_at_checked(rest.len().checked_sub(TAG)?)?;
        let tag: [u8; TAG] = tag.try_into().ok()?;
        let mut plain = body.to_vec();
        let (cipher, nonce) = key.cipher(head);
        let context = context(head, tenant, id);
        cipher
            .decrypt_inout_detached(&nonce, &context, plain.as_mut_slice().into(), &Tag::from(tag))
            .ok()?;
        Some(plain.into())
    }
}

// === impl SealKey ===

impl SealKey {
    fn all(secrets: &KeySecrets) -> Vec<Self> {
        let derived = secrets.all().map(|KeySecret { id, secret }| {
            let mut key = Zeroizing::new([0; 32]);
            derive(secret.expose_secret(), PURPOSE, b"aes-256-gcm", key.as_mut());
            Self { key: SecretBox::new(Box::new(*key)), id: id.to_be_bytes() }
        });
        derived.collect()
    }

    /// The cipher of one text, by the salt and nonce in its head.
    fn cipher(&self, head: &[u8]) -> (Aes256Gcm, Nonce<U12>) {
        let random = head.get(2 + ID..).unwrap_or_default();
        let (salt, nonce) = random.split_at(SALT.min(random.len()));
        let mut key = Zeroizing::new([0; 32]);
        derive(self.key.expose_secret(), salt, b"hangu approval record", key.as_mut());
        let nonce: [u8; NONCE] = nonce.try_into().unwrap_or_default();
        (Aes256Gcm::new(&Key::<Aes256Gcm>::from(*key)), nonce.into())
    }
}

impl std::fmt::Debug for ArgumentSeal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArgumentSeal").finish_non_exhaustive()
    }
}

fn derive(secret: &[u8; 32], salt: &[u8], info: &[u8], to: &mut [u8]) {
    // Fails for keys of more than 255 hashes only.
    let expanded = Hkdf::<Sha256>::new(Some(salt), secret).expand(info, to);
    debug_assert!(expanded.is_ok());
}

/// What is authenticated beside the arguments: how they are sealed, what they are, and whose.
fn context(head: &[u8], tenant: &TenantId, id: ApprovalId) -> Vec<u8> {
    let tenant = tenant.as_str().as_bytes();
    let length = (tenant.len() as u64).to_be_bytes();
    [head, b"approval", &length, tenant, &id.to_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::Deserialize;

    use super::*;
    use crate::model::ids::from_hex;

    #[derive(Deserialize)]
    struct Vectors {
        vectors: Vec<Vector>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Vector {
        key_id: u32,
        secret: String,
        tenant: String,
        id: String,
        arguments: String,
        sealed: String,
    }

    /// The file is never made anew, and nothing in it is changed. Where the form changes, the next
    /// version adds `arguments-2.json` and reads both.
    #[test]
    fn arguments_of_format_1_open_as_ever() {
        let text = include_str!("../../tests/fixtures/sealing/arguments-1.json");
        let Vectors { vectors } = serde_json::from_str(text).unwrap();
        assert!(vectors.len() >= 3);
        for vector in vectors {
            let secret = SecretBox::new(Box::new(from_hex(&vector.secret).unwrap()));
            let primary = KeySecret { id: vector.key_id, secret };
            let seal = ArgumentSeal::new(&KeySecrets { primary, others: Vec::new() });
            let tenant = TenantId::new(&*vector.tenant);
            let id = ApprovalId::parse(&vector.id).unwrap();
            let sealed = STANDARD.decode(&vector.sealed).unwrap();
            let opened = seal.open_for(&tenant, id, &sealed).unwrap();
            assert_eq!(opened, vector.arguments.as_bytes(), "{id:?}");
            assert_eq!(seal.open_for(&TenantId::new("other"), id, &sealed), None);
        }
    }
}
