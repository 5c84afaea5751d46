//! `X-Api-Key`: which caller, and with it which tenant, a key belongs to.
//!
//! Only digests of keys are held. What a caller may do is not decided here.

use std::{collections::HashMap, fmt, sync::Arc};

use foldhash::fast::RandomState;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::model::{
    call_source::CallSources,
    caller::{Auth, CallerId, EmployeeId, Principal, Roles, TenantId},
};

/// A program with API keys, as configured.
#[derive(Debug, Clone)]
pub struct CallerEntry {
    pub id: CallerId,
    pub tenant: TenantId,
    /// All live at once, so that one can be replaced by another without a gap.
    pub keys: Vec<KeyDigest>,
    pub identity: Identity,
    /// What a list without an employee shows.
    pub catalog_roles: Roles,
    /// What it may say of where its calls under `/v1` come from.
    pub call_sources: CallSources,
}

/// How a caller says for which employee it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// It is trusted to name him in a header.
    Header,
    /// It is always him.
    Fixed(Fixed),
    /// The header, or him where there is none.
    HeaderOr(Fixed),
    /// For nobody.
    None,
}

/// An employee that the configuration names, with the roles it gives him.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed(Principal);

/// SHA-256 of a key, and how long the key is good.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyDigest {
    pub sha256: [u8; 32],
    /// Milliseconds since 1970, from which on it is good no more.
    pub expires_ms: Option<u64>,
}

/// Why a key names nobody. A client is told the same of all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error("no key was given")]
    Missing,
    #[error("the key is unknown")]
    Unknown,
    #[error("the key has expired")]
    Expired,
}

/// Why a set of callers cannot be put in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallersFault {
    #[error("two callers are named `{0}`")]
    RepeatedCaller(CallerId),
    #[error("`{0}` and `{1}` have a key in common: whose call it is could not be told")]
    SharedKey(CallerId, CallerId),
    #[error("`{0}` has the same key twice")]
    RepeatedKey(CallerId),
}

/// Every caller, by the digests of its keys.
#[derive(Debug)]
pub struct Callers {
    by_digest: HashMap<[u8; 32], Known, RandomState>,
}

struct Known {
    key: KeyDigest,
    caller: Arc<CallerEntry>,
}

// === impl Callers ===

impl Callers {
    pub fn new(entries: Vec<CallerEntry>) -> Result<Self, CallersFault> {
        let mut by_digest = HashMap::<[u8; 32], Known, RandomState>::default();
        let mut names = std::collections::HashSet::new();
        for entry in entries {
            if !names.insert(entry.id.clone()) {
                return Err(CallersFault::RepeatedCaller(entry.id));
            }
            let caller = Arc::new(entry);
            for key in &caller.keys {
                let known = Known { key: key.clone(), caller: caller.clone() };
                match by_digest.insert(key.sha256, known) {
                    None => {}
                    Some(other) if other.caller.id == caller.id => {
                        return Err(CallersFault::RepeatedKey(caller.id.clone()));
                    }
                    Some(other) => {
                        return Err(CallersFault::SharedKey(
                            other.caller.id.clone(),
                            caller.id.clone(),
                        ));
                    }
                }
            }
        }
        Ok(Self { by_digest })
    }

    /// The caller whose key this is.
    ///
    /// The time it takes tells nothing of any key: what is looked up is a digest, whose bytes
    /// nobody can choose one by one, and what is found is compared in constant time.
    pub fn verify(&self, presented: &[u8], now_ms: u64) -> Result<&Arc<CallerEntry>, KeyFault> {
        if presented.is_empty() {
            return Err(KeyFault::Missing);
        }
        let digest: [u8; 32] = Sha256::digest(presented).into();
        let known = self.by_digest.get(&digest).ok_or(KeyFault::Unknown)?;
        if !bool::from(known.key.sha256.ct_eq(&digest)) {
            return Err(KeyFault::Unknown);
        }
        if known.key.expires_ms.is_some_and(|expires| expires <= now_ms) {
            return Err(KeyFault::Expired);
        }
        Ok(&known.caller)
    }
}

// === impl KeyDigest ===

impl KeyDigest {
    /// The digest of a key that the configuration holds in the plain.
    pub fn of(key: &SecretString, expires_ms: Option<u64>) -> Self {
        Self { sha256: Sha256::digest(key.expose_secret().as_bytes()).into(), expires_ms }
    }
}

/// Without the digest: a short key could be found from it.
impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyDigest").field("expires_ms", &self.expires_ms).finish_non_exhaustive()
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Known").field(&self.caller.id).finish()
    }
}

// === impl Fixed ===

impl Fixed {
    pub fn new(employee: EmployeeId, roles: Roles) -> Self {
        Self(Principal { employee: Some(employee), roles, auth: Auth::Fixed })
    }

    pub fn principal(&self) -> &Principal {
        &self.0
    }
}

#[cfg(test)]
mod tests;
