//! `X-Api-Key`: which caller, and with it which tenant, a key belongs to.
//!
//! Only digests of keys are held. What a caller may do is not decided here.

use std::{collections::HashMap, fmt, sync::Arc};

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::model::caller::{Auth, CallerId, EmployeeId, Principal, Roles, TenantId};

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
    by_digest: HashMap<[u8; 32], Known>,
}

struct Known {
    key: KeyDigest,
    caller: Arc<CallerEntry>,
}

// === impl Callers ===

impl Callers {
    pub fn new(entries: Vec<CallerEntry>) -> Result<Self, CallersFault> {
        let mut by_digest: HashMap<[u8; 32], Known> = HashMap::new();
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
mod tests {
    use super::*;

    const NOW: u64 = 1_000;

    fn key(plain: &str, expires_ms: Option<u64>) -> KeyDigest {
        KeyDigest::of(&SecretString::from(plain), expires_ms)
    }

    fn caller(id: &str, keys: Vec<KeyDigest>) -> CallerEntry {
        CallerEntry {
            id: CallerId::new(id),
            tenant: TenantId::new("acme"),
            keys,
            identity: Identity::None,
            catalog_roles: Roles::default(),
        }
    }

    fn two() -> Callers {
        Callers::new(vec![
            caller("gateway", vec![key("old", Some(NOW + 1)), key("new", None)]),
            caller("script", vec![key("script key", Some(NOW))]),
        ])
        .unwrap()
    }

    fn check(presented: &[u8], expected: Result<&str, KeyFault>) {
        let callers = two();
        let found = callers.verify(presented, NOW).map(|caller| caller.id.as_str().to_owned());
        assert_eq!(found, expected.map(str::to_owned), "{}", presented.escape_ascii());
    }

    #[test]
    fn a_key_names_its_caller() {
        check(b"new", Ok("gateway"));
        // Rotation: both are good until the old one's time has come.
        check(b"old", Ok("gateway"));
        assert_eq!(two().verify(b"old", NOW + 1).err(), Some(KeyFault::Expired));
        assert!(two().verify(b"new", u64::MAX).is_ok());
    }

    #[test]
    fn nothing_else_names_anybody() {
        check(b"", Err(KeyFault::Missing));
        check(b"script key", Err(KeyFault::Expired));
        for wrong in ["ne", "newx", "new ", " new", "NEW", "script", "old,new", "\u{fffd}"] {
            check(wrong.as_bytes(), Err(KeyFault::Unknown));
        }
        check(&[0xff, 0x00], Err(KeyFault::Unknown));
        // The digest is no key.
        check(&key("new", None).sha256, Err(KeyFault::Unknown));
    }

    #[test]
    fn a_digest_can_be_configured_instead_of_the_key() {
        // SHA-256 of "abc", from FIPS 180-2.
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let mut sha256 = [0; 32];
        for (byte, pair) in sha256.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
        let keys = vec![KeyDigest { sha256, expires_ms: None }];
        let callers = Callers::new(vec![caller("abc", keys)]).unwrap();
        assert!(callers.verify(b"abc", NOW).is_ok());
    }

    #[test]
    fn a_key_of_two_callers_is_refused() {
        let both = |first, second| {
            Callers::new(vec![
                caller(first, vec![key("a", None), key("b", None)]),
                caller(second, vec![key("b", Some(NOW))]),
            ])
            .unwrap_err()
        };
        assert_eq!(
            both("one", "two"),
            CallersFault::SharedKey(CallerId::new("one"), CallerId::new("two"))
        );
        assert_eq!(both("one", "one"), CallersFault::RepeatedCaller(CallerId::new("one")));
        let twice = caller("one", vec![key("a", None), key("a", Some(NOW))]);
        assert_eq!(
            Callers::new(vec![twice]).unwrap_err(),
            CallersFault::RepeatedKey(CallerId::new("one"))
        );
    }

    #[test]
    fn a_digest_is_not_shown() {
        let shown = format!("{:?}", two());
        assert!(!shown.contains("sha256"), "{shown}");
        let shown = format!("{:?}", caller("a", vec![key("new", None)]));
        assert!(shown.contains("KeyDigest") && !shown.contains("sha256"), "{shown}");
    }
}
