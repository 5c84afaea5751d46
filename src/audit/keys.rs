//! Keyed digests of what records must be able to recognise but must not tell.
//!
//! One master secret; from it a key for each tenant and purpose (HKDF-SHA-256), so that equal
//! arguments of two tenants cannot be matched with each other. Where the master secret is kept
//! is not known here.

use std::sync::Arc;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretBox};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::model::{
    caller::{EmployeeId, TenantId},
    exchange::KeyedDigest,
    keys::{KeySecret, KeySecrets},
};

/// Marks keys as made for these digests and nothing else.
const SALT: &[u8] = b"hangu.digest.v1";

/// The keyed digests of every tenant.
pub struct Keys {
    ring: ArcSwap<Ring>,
}

struct Ring {
    primary: Master,
    /// Under these nothing new is made, but what was made can be recognised.
    others: Vec<Master>,
}

/// One master secret, and what was derived from it so far.
struct Master {
    secret: SecretBox<[u8; 32]>,
    id: u32,
    tenants: DashMap<TenantId, Arc<Tenant>>,
}

/// The keys of one tenant, as HMAC states that have taken in their key already.
struct Tenant {
    arguments: Hmac<Sha256>,
    result: Hmac<Sha256>,
    principal: Hmac<Sha256>,
}

/// A digest in the making; what it is of comes piece by piece.
#[derive(Clone)]
pub struct Digester {
    state: Hmac<Sha256>,
    key: u32,
}

// === impl Keys ===

impl Keys {
    /// Keys of a new master secret, which is gone when the process ends.
    pub fn random() -> Self {
        Self::new(KeySecrets::random())
    }

    pub fn new(secrets: KeySecrets) -> Self {
        Self { ring: ArcSwap::from_pointee(Ring::new(secrets)) }
    }

    /// Goes on with these secrets.
    pub fn rekey(&self, secrets: KeySecrets) {
        self.ring.store(Arc::new(Ring::new(secrets)));
    }

    /// The digest of a call's arguments (`argsHash`), given in canonical form.
    pub fn args_hash(&self, tenant: &TenantId, canonical: &[u8]) -> KeyedDigest {
        self.args_digester(tenant).digest(canonical)
    }

    /// The same for arguments that are canonicalised piece by piece.
    pub fn args_digester(&self, tenant: &TenantId) -> Digester {
        self.ring.load().primary.digester(tenant, |tenant| &tenant.arguments)
    }

    /// Whether there are secrets beside the primary one.
    pub fn has_others(&self) -> bool {
        !self.ring.load().others.is_empty()
    }

    /// The digests of the same arguments under every other secret, for comparison with what was
    /// made under them; the latest first.
    pub fn other_args_hashes(&self, tenant: &TenantId, canonical: &[u8]) -> Vec<KeyedDigest> {
        let ring = self.ring.load();
        let digest =
            |master: &Master| master.digester(tenant, |tenant| &tenant.arguments).digest(canonical);
        ring.others.iter().map(digest).collect()
    }

    /// The digest of a result (`resultRef`), as the server wrote it.
    pub fn result_ref(&self, tenant: &TenantId, result: &[u8]) -> KeyedDigest {
        self.result_digester(tenant).digest(result)
    }

    /// The same for results that come in pieces.
    pub fn result_digester(&self, tenant: &TenantId) -> Digester {
        self.ring.load().primary.digester(tenant, |tenant| &tenant.result)
    }

    /// The pseudonym of an employee (`hangu.principal.hash`, `principal.hash`).
    pub fn principal(&self, tenant: &TenantId, employee: &EmployeeId) -> KeyedDigest {
        let digester = self.ring.load().primary.digester(tenant, |tenant| &tenant.principal);
        digester.digest(employee.as_str().as_bytes())
    }
}

// === impl Ring ===

impl Ring {
    fn new(secrets: KeySecrets) -> Self {
        let KeySecrets { primary, others } = secrets;
        Self {
            primary: Master::new(primary),
            others: others.into_iter().map(Master::new).collect(),
        }
    }
}

// === impl Master ===

impl Master {
    fn new(KeySecret { id, secret }: KeySecret) -> Self {
        Self { secret, id, tenants: DashMap::new() }
    }

    fn digester(&self, tenant: &TenantId, of: fn(&Tenant) -> &Hmac<Sha256>) -> Digester {
        // A tenant that is known is looked at where it lies: every core calls for the same few,
        // and a count of who holds it would go from core to core.
        let state = match self.tenants.get(tenant.as_str()) {
            Some(known) => of(known.value()).clone(),
            None => of(&self.tenant(tenant)).clone(),
        };
        Digester { state, key: self.id }
    }

    fn tenant(&self, tenant: &TenantId) -> Arc<Tenant> {
        let made = Tenant {
            arguments: self.state("arguments", tenant),
            result: self.state("result", tenant),
            principal: self.state("principal", tenant),
        };
        self.tenants.entry(tenant.clone()).or_insert_with(|| Arc::new(made)).clone()
    }

    fn state(&self, purpose: &str, tenant: &TenantId) -> Hmac<Sha256> {
        let mut key = Zeroizing::new([0; 64]);
        expand(&self.secret, purpose, tenant.as_str(), key.as_mut_slice());
        Hmac::new(&(*key).into())
    }
}

/// Derives a key; the purposes are fixed words without a zero byte, so that it parts them from
/// the tenant.
fn expand(master: &SecretBox<[u8; 32]>, purpose: &str, tenant: &str, key: &mut [u8]) {
    Hkdf::<Sha256>::new(Some(SALT), master.expose_secret())
        .expand_multi_info(&[purpose.as_bytes(), b"\0", tenant.as_bytes()], key)
        // Fails only above 255 times the digest's length; every caller asks for 64 bytes or less.
        .expect("64 bytes are within HKDF's limit");
}

// === impl Digester ===

impl Digester {
    pub fn update(&mut self, piece: &[u8]) {
        self.state.update(piece);
    }

    pub fn finish(self) -> KeyedDigest {
        KeyedDigest { key: self.key, digest: self.state.finalize().into_bytes().into() }
    }

    fn digest(mut self, whole: &[u8]) -> KeyedDigest {
        self.update(whole);
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(byte: u8) -> Keys {
        Keys::new(KeySecrets::one(SecretBox::new(Box::new([byte; 32]))))
    }

    fn acme() -> TenantId {
        TenantId::new("acme")
    }

    #[test]
    fn equal_arguments_are_recognised_within_a_tenant_only() {
        let keys = keys(1);
        let one = keys.args_hash(&acme(), b"{}");
        assert_eq!(one, keys.args_hash(&acme(), b"{}"));
        assert_ne!(one, keys.args_hash(&acme(), b"{\"a\":1}"));
        assert_ne!(one, keys.args_hash(&TenantId::new("globex"), b"{}"));
    }

    #[test]
    fn purposes_and_master_secrets_part_digests() {
        let keys = keys(1);
        let employee = EmployeeId::parse("E1001").unwrap();
        let arguments = keys.args_hash(&acme(), b"E1001");
        assert_ne!(arguments.digest, keys.result_ref(&acme(), b"E1001").digest);
        assert_ne!(arguments.digest, keys.principal(&acme(), &employee).digest);
        let other = super::tests::keys(2);
        assert_ne!(arguments.digest, other.args_hash(&acme(), b"E1001").digest);
        assert_ne!(arguments.key, other.args_hash(&acme(), b"").key);
    }

    #[test]
    fn the_same_master_secret_makes_the_same_digests() {
        assert_eq!(keys(3).args_hash(&acme(), b"{}"), keys(3).args_hash(&acme(), b"{}"));
    }

    #[test]
    fn another_primary_secret_still_recognises_what_was_made_before() {
        let secret = |id, byte| KeySecret { id, secret: SecretBox::new(Box::new([byte; 32])) };
        let keys = Keys::new(KeySecrets { primary: secret(1, 1), others: Vec::new() });
        assert!(!keys.has_others());
        let old = keys.args_hash(&acme(), b"{}");
        keys.rekey(KeySecrets { primary: secret(2, 2), others: vec![secret(1, 1)] });
        let new = keys.args_hash(&acme(), b"{}");
        assert_eq!((old.key, new.key), (1, 2));
        assert_ne!(old.digest, new.digest);
        assert!(keys.has_others());
        assert_eq!(keys.other_args_hashes(&acme(), b"{}"), [old]);
    }

    #[test]
    fn pieces_and_whole_have_one_digest() {
        let keys = keys(1);
        let mut digester = keys.args_digester(&acme());
        digester.update(b"{\"a\"");
        digester.update(b":1}");
        assert_eq!(digester.finish(), keys.args_hash(&acme(), b"{\"a\":1}"));
    }

    #[test]
    fn a_digest_names_its_algorithm_and_key() {
        let digest = KeyedDigest { key: 0xa3, digest: [0x5d; 32] };
        assert_eq!(digest.to_string(), format!("hmac-sha256:a3:{}", "5d".repeat(32)));
    }
}
