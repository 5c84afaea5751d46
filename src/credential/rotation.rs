//! What belongs to a rotation of keys beside the file: how the keyring stands with what is stored
//! under it, and the data keys of stored credentials wrapped with the key that is used at present.
//!
//! What credentials hold is not opened. Everything here may block.

use serde::{Deserialize, Serialize};

use super::{
    Credential, CredentialRef, Key, Keyring, Kms, KmsFault, MAX_WRAPS, WARN_WRAPS, key_of,
    store::{Anew, CredentialStore, Held, KeyUse, StoreFault, ask_blocking},
};

/// How far a rewrapping has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rewrapped {
    /// Of the key that wraps from now on.
    pub key: String,
    pub rewrapped: u64,
    /// What cannot be taken along, and why.
    pub left: Vec<(CredentialRef, String)>,
}

/// Why a rewrapping ended before it was through. What was done stays done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RewrapFault {
    #[error("there is no keyring")]
    NoKeyring,
    #[error("{0}")]
    Kms(#[from] KmsFault),
    #[error("{0}")]
    Store(#[from] StoreFault),
    #[error("it was stopped")]
    Stopped,
    #[error("the keyring's file has changed, and is not used here yet")]
    Stale,
}

/// Wraps the data key of each credential that is under another key. One that is replaced
/// meanwhile is under the new key already.
pub fn rewrap_all(
    store: &dyn CredentialStore,
    kms: &dyn Kms,
    step: &mut dyn FnMut(&Rewrapped) -> bool,
) -> Result<Rewrapped, RewrapFault> {
    let mut done = Rewrapped { key: kms.key_id()?, ..Rewrapped::default() };
    let mut after = None;
    loop {
        let key = done.key.clone();
        let some = ask_blocking(store, |store, then| store.not_under(key, after, then))?;
        let Some(last) = some.last() else { return Ok(done) };
        after = Some(last.reference);
        for held in some {
            if !step(&done) {
                return Err(RewrapFault::Stopped);
            }
            match sealed_anew(kms, &held) {
                Ok(Some(anew)) => {
                    let was =
                        ask_blocking(store, |store, then| store.replace_sealed(held, anew, then))?;
                    done.rewrapped += u64::from(was);
                }
                Ok(None) => {}
                Err(reason) => done.left.push((held.reference, reason)),
            }
        }
    }
}

fn sealed_anew(kms: &dyn Kms, held: &Held) -> Result<Option<Anew>, String> {
    let sealed = Credential::rewrap(kms, &held.whose, &held.sealed).map_err(|it| it.to_string())?;
    let Some(sealed) = sealed else { return Ok(None) };
    let key = key_of(&sealed).map_err(|it| it.to_string())?;
    Ok(Some(Anew { key, sealed, renewed_ms: None }))
}

/// A keyring, as those who look after it see it: nothing that a key is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RingStatus {
    pub keys: Vec<KeyStatus>,
    /// What is stored under keys that are not in the ring.
    pub other_keys: Vec<UseStatus>,
    /// What somebody has to see to.
    pub findings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyStatus {
    pub id: String,
    pub state: String,
    pub created: String,
    pub since: String,
    pub wraps: u64,
    pub wrapped_by: Option<String>,
    /// `None`: nobody has looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<UseStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UseStatus {
    pub credentials: u64,
    pub replays: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replays_until: Option<String>,
}

// === impl RingStatus ===

impl RingStatus {
    /// `uses`: what is stored, where somebody has looked.
    pub fn of(ring: &Keyring, uses: Option<&[KeyUse]>) -> Self {
        let known = |used: &KeyUse| ring.keys().iter().any(|key| key.id.to_string() == used.key);
        let others = uses.unwrap_or_default().iter().filter(|used| !known(used));
        Self {
            keys: ring.keys().iter().map(|key| KeyStatus::of(key, uses)).collect(),
            other_keys: others.map(UseStatus::from).collect(),
            findings: findings(ring),
        }
    }
}

impl KeyStatus {
    fn of(key: &Key, uses: Option<&[KeyUse]>) -> Self {
        let id = key.id.to_string();
        let stored = uses.map(|uses| {
            let found = uses.iter().find(|found| found.key == id);
            found.map(UseStatus::from).unwrap_or_default()
        });
        Self {
            state: key.state.as_str().to_owned(),
            created: time(key.created_ms),
            since: time(key.since_ms),
            wraps: key.wraps,
            wrapped_by: key.wrapped_by().map(str::to_owned),
            stored,
            id,
        }
    }
}

impl From<&KeyUse> for UseStatus {
    fn from(found: &KeyUse) -> Self {
        Self {
            credentials: found.credentials,
            replays: found.replays,
            key: (!found.key.is_empty()).then(|| found.key.clone()),
            replays_until: (found.replays > 0).then(|| time(found.replays_until_ms)),
        }
    }
}

fn findings(ring: &Keyring) -> Vec<String> {
    let mut findings = Vec::new();
    if let Err(fault) = ring.primary() {
        findings.push(format!("No gateway starts with it: {fault}."));
    }
    for key in ring.keys().iter().filter(|key| key.wraps >= WARN_WRAPS) {
        findings.push(format!(
            "Key {} has wrapped {} of at most {MAX_WRAPS} data keys: rotate it.",
            key.id, key.wraps
        ));
    }
    findings
}

/// To the second.
fn time(ms: u64) -> String {
    let time = i64::try_from(ms / 1_000).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    time.map_or_else(String::new, |time| time.to_string())
}
