//! One execution for one key: what a replay key is, and what a call with one may be answered.
//!
//! The engine knows calls by their scope and the digest of their arguments, which the layer
//! computes. It neither runs a call nor renders an answer. Records are kept in this process
//! (`local.rs`) and end with it, or in a store that outlives it (`durable.rs`) and that is
//! somebody else's (`store.rs` says what is asked of it).

mod durable;
mod local;
mod seal;
pub mod store;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use sha2::{Digest, Sha256};

pub use self::{
    durable::{Inquiry, Saved},
    local::{Lease, Replays, Usage, Waiter},
    seal::Bodies,
};

use crate::{
    mcp::meta,
    model::{
        caller::{Caller, CallerId, EmployeeId, TenantId},
        exchange::KeyedDigest,
        reply::{Final, ResultBody, RpcError},
    },
};

/// Keys beside the one in use that a record may have been made under: a rotation has one, and a
/// second that begins before the first has ended two.
const OTHERS: usize = 3;

/// What a client calls one intended effect: 1 to 255 visible ASCII characters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ReplayKey(Box<str>);

/// Why a key is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error("an idempotency key is not empty")]
    Empty,
    #[error("an idempotency key is at most {} characters long", ReplayKey::MAX)]
    TooLong,
    #[error("an idempotency key is made of visible ASCII characters")]
    Illegal,
}

/// Within what a key means one thing.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    pub tenant: &'a TenantId,
    pub caller: &'a CallerId,
    /// The principal is the employee, else the caller.
    pub employee: Option<&'a EmployeeId>,
    /// `upstream/name`, whatever the caller calls it.
    pub tool: &'a str,
    pub key: &'a ReplayKey,
}

/// One call with a key.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    scope: ScopeId,
    /// Of the canonical arguments.
    fingerprint: KeyedDigest,
    /// The same under keys of before, for records that were made then.
    others: [Option<KeyedDigest>; OTHERS],
    /// The tool may be run again when the outcome of a run is not known.
    retry_safe: bool,
}

/// A scope with its key, of one size whatever the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ScopeId([u8; 32]);

/// What becomes of a call with a key.
#[derive(Debug)]
pub enum Begin {
    /// It is the first: run it.
    Run(Lease),
    /// It is the first here; the store has to be asked.
    Ask(Box<Inquiry>),
    /// It has been run; this is how it ended.
    Replay(Arc<Stored>),
    /// The key was used with other arguments.
    Conflict,
    /// The first is still running.
    InFlight(Waiter),
    /// It has been run, and nobody knows how it ended.
    Unknown,
    /// There is no room for another key.
    Full,
    /// The store cannot be asked, so nobody knows whether it is the first.
    Down,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub enum Stored {
    /// A tool's result, also one that says `isError`.
    Result(ResultBody),
    /// The server's own JSON-RPC error, which is its answer.
    Error(RpcError),
    /// Completed; the answer was too long to keep. SHA-256 and size of the result, or of the
    /// error's message and data.
    NotKept { sha256: [u8; 32], bytes: usize, is_error: bool },
    /// Completed; the answer was kept under a secret that is not this process's.
    Unreadable,
}

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long an answer is given again after the call has ended.
    pub keep: Duration,
    /// How long a second call waits for the first.
    pub wait: Duration,
    /// How many keys are kept at a time.
    pub max_keys: usize,
    /// How many bytes are kept at a time, answers and all.
    pub capacity: u64,
    /// The longest answer that is kept.
    pub max_answer: usize,
    /// How long a call is believed to run whose process does not say how it ended: longer than
    /// any does.
    pub lease: Duration,
    /// How long a call waits for the store.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keep: Duration::from_hours(24),
            wait: Duration::from_secs(2),
            max_keys: 200_000,
            capacity: 256 << 20,
            max_answer: 256 << 10,
            lease: Duration::from_mins(5),
            patience: Duration::from_secs(5),
        }
    }
}

// === impl ReplayKey ===

impl ReplayKey {
    /// The longest key, in characters.
    pub const MAX: usize = 255;

    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        if text.is_empty() {
            Err(KeyFault::Empty)
        } else if !text.bytes().all(|b| b.is_ascii_graphic()) {
            Err(KeyFault::Illegal)
        } else if text.len() > Self::MAX {
            Err(KeyFault::TooLong)
        } else {
            Ok(Self(text.into()))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Without the key: it is the client's, and may say what it should not.
impl fmt::Debug for ReplayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplayKey({} characters)", self.0.len())
    }
}

// === impl Claim ===

impl Claim {
    /// One whose fingerprint is comparable with those made under the same key.
    pub fn new(scope: Scope<'_>, fingerprint: KeyedDigest, retry_safe: bool) -> Self {
        Self { scope: scope.id(), fingerprint, others: [None; OTHERS], retry_safe }
    }

    /// Also comparable with those made under other keys, as far as there is room for them.
    pub fn or(mut self, others: impl IntoIterator<Item = KeyedDigest>) -> Self {
        self.others.iter_mut().zip(others).for_each(|(place, other)| *place = Some(other));
        self
    }

    /// Whether a record is of the same arguments; `None` if the key it was made under is not
    /// one of these.
    fn agrees(&self, record: KeyedDigest) -> Option<bool> {
        let mut known = std::iter::once(self.fingerprint).chain(self.others.into_iter().flatten());
        known.find(|known| known.key == record.key).map(|known| known == record)
    }
}

impl<'a> Scope<'a> {
    pub fn of(caller: &'a Caller, tool: &'a str, key: &'a ReplayKey) -> Self {
        Self {
            tenant: &caller.tenant,
            caller: &caller.id,
            employee: caller.principal.employee.as_ref(),
            tool,
            key,
        }
    }

    fn id(&self) -> ScopeId {
        ScopeId(self.digest(""))
    }

    /// The key as a server is told it that knows the gateway alone: what two callers call the
    /// same is not the same to it.
    pub fn for_server(&self) -> String {
        self.digest("hangu.upstream").iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn digest(&self, purpose: &str) -> [u8; 32] {
        // An employee is not to be taken for a caller of the same name.
        let (kind, principal) = match self.employee {
            Some(employee) => ("employee", employee.as_str()),
            None => ("caller", self.caller.as_str()),
        };
        let mut hash = Sha256::new();
        hash.update(purpose);
        for part in [self.tenant.as_str(), kind, principal, self.tool, self.key.as_str()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

// === impl Stored ===

impl Stored {
    /// What is kept of an answer: all of it, or, if it is longer than `max`, its digest.
    fn of(answer: &Final, max: usize) -> Self {
        match answer {
            Final::Result(body) if body.raw.len() <= max => {
                let mut stored = ResultBody::upstream(own(&body.raw), body.shape.clone());
                // Which tool ran is told with each replay; the rest was of that one moment.
                let kept = body.added_meta.iter().filter(|(key, _)| *key == meta::DEGRADED);
                stored.added_meta.extend(kept.cloned());
                Stored::Result(stored)
            }
            Final::Error(error) if error_len(error) <= max => Stored::Error(RpcError {
                code: error.code,
                message: own(&error.message),
                data: error.data.as_ref().map(own),
            }),
            Final::Result(body) => Self::not_kept(&[&body.raw], body.is_error()),
            Final::Error(RpcError { message, data, .. }) => {
                Self::not_kept(&[message, data.as_deref().unwrap_or_default()], true)
            }
        }
    }

    fn not_kept(parts: &[&[u8]], is_error: bool) -> Self {
        let mut hash = Sha256::new();
        parts.iter().for_each(|part| hash.update(part));
        let bytes = parts.iter().map(|part| part.len()).sum();
        Stored::NotKept { sha256: hash.finalize().into(), bytes, is_error }
    }

    /// The answer, to be given again; `None` if it was not kept.
    pub fn answer(&self) -> Option<Final> {
        match self {
            Stored::Result(body) => Some(Final::Result(body.clone())),
            Stored::Error(error) => Some(Final::Error(error.clone())),
            Stored::NotKept { .. } | Stored::Unreadable => None,
        }
    }

    fn len(&self) -> usize {
        match self {
            Stored::Result(body) => body.raw.len(),
            Stored::Error(error) => error_len(error),
            Stored::NotKept { .. } | Stored::Unreadable => 0,
        }
    }
}

/// A copy: what came in is a slice of a buffer that may be much larger, and would stay with it.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn error_len(error: &RpcError) -> usize {
    error.message.len() + error.data.as_ref().map_or(0, Bytes::len)
}
