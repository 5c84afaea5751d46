//! The arguments of calls that wait, for those who decide.
//!
//! Whoever decides must see what he decides on, and the store must not. Sealed arguments are bound
//! to the tenant and the id of their request, so moved to another one they do not open.

use bytes::Bytes;

use super::{Approval, ApprovalId};
use crate::model::{
    caller::TenantId,
    keys::KeySecrets,
    sealed::{TextSeal, Use},
};

const USE: Use =
    Use { purpose: b"hangu approval arguments", text: b"hangu approval record", kind: b"approval" };

/// Seals arguments, and opens them for those who may see the request.
#[derive(Debug)]
pub struct ArgumentSeal(TextSeal);

impl ArgumentSeal {
    /// For everybody who has the same secrets.
    pub fn new(secrets: &KeySecrets) -> Self {
        Self(TextSeal::new(USE, secrets))
    }

    /// For this process alone: what it seals nobody opens after it.
    pub fn random() -> Self {
        Self::new(&KeySecrets::random())
    }

    /// Goes on with other secrets.
    pub fn rekey(&self, secrets: &KeySecrets) {
        self.0.rekey(secrets);
    }

    /// Seals the arguments of a request.
    pub fn seal(&self, tenant: &TenantId, id: ApprovalId, arguments: &[u8]) -> Bytes {
        let sealed = with(tenant, id, |of| self.0.seal(of, &[arguments]));
        sealed.into()
    }

    /// The arguments of a request; `None` if none were kept, or under another secret, or for
    /// another request.
    pub fn open(&self, approval: &Approval) -> Option<Bytes> {
        let sealed = approval.request.sealed.as_ref()?;
        self.open_for(&approval.request.subject.tenant, approval.id, sealed)
    }

    fn open_for(&self, tenant: &TenantId, id: ApprovalId, sealed: &[u8]) -> Option<Bytes> {
        with(tenant, id, |of| self.0.open(of, sealed)).map(Into::into)
    }
}

/// What arguments are bound to.
fn with<T>(tenant: &TenantId, id: ApprovalId, run: impl FnOnce(&[&[u8]]) -> T) -> T {
    let tenant = tenant.as_str().as_bytes();
    let length = (tenant.len() as u64).to_be_bytes();
    run(&[&length, tenant, &id.to_bytes()])
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use secrecy::SecretBox;
    use serde::Deserialize;

    use super::*;
    use crate::model::{ids::from_hex, keys::KeySecret};

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
