//! Session ids of the handshake revisions: sealed state, so that every replica knows every
//! session and none has to keep it.
//!
//! What a session cannot do without, its end by `DELETE`, is remembered until the id would have
//! expired anyway. Everything that is not a good session of this caller is one and the same
//! fault.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dashmap::DashMap;
use smallvec::SmallVec;

use super::seal::{SealFault, Sealer};
use crate::{
    mcp::{Capabilities, Version},
    model::{
        caller::{Caller, CallerId, EmployeeId, TenantId},
        keys::KeySecrets,
    },
};

/// The purpose of session ids, for `Sealer`.
pub const PURPOSE: &str = "session id";

/// How many ended sessions are remembered at most: some 10 MB.
pub const MAX_ENDED: usize = 200_000;

/// Form of what is sealed, so that it can change.
const FORM: u8 = 2;

/// Gives out session ids and knows them again.
#[derive(Debug)]
pub struct Sessions {
    sealer: Sealer,
    /// How long a session lasts, in milliseconds.
    life_ms: u64,
    ended: Ended,
}

/// Whose session it is.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    pub tenant: &'a TenantId,
    pub caller: &'a CallerId,
    pub employee: Option<&'a EmployeeId>,
}

/// A session, as its id tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// What was negotiated.
    pub version: Version,
    pub capabilities: Capabilities,
    /// The only employee it serves; `None` serves each of the caller's.
    pub employee: Option<EmployeeId>,
    pub expires_ms: u64,
    number: [u8; 16],
}

/// The id names no session that is open to this caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session is unknown or has ended")]
pub struct SessionFault;

/// Too many sessions have been ended that have not expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no further session can be ended at present")]
pub struct EndedFull;

// === impl Sessions ===

impl Sessions {
    pub fn new(sealer: Sealer, life: std::time::Duration) -> Self {
        let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        Self { sealer, life_ms, ended: Ended::new(MAX_ENDED) }
    }

    /// Goes on with these secrets.
    pub fn rekey(&self, secrets: &KeySecrets) {
        self.sealer.rekey(secrets);
    }

    /// The id of a new session.
    pub fn start(
        &self,
        owner: Owner<'_>,
        version: Version,
        capabilities: Capabilities,
        now_ms: u64,
    ) -> Result<String, SealFault> {
        let mut number = [0; 16];
        rand::fill(&mut number);
        let session = Session {
            version,
            capabilities,
            employee: owner.employee.cloned(),
            expires_ms: now_ms.saturating_add(self.life_ms),
            number,
        };
        self.sealer.seal(&encode(&session, owner)?)
    }

    /// The session of this id, if it is open to whoever asks.
    pub fn open(&self, id: &str, owner: Owner<'_>, now_ms: u64) -> Result<Session, SessionFault> {
        let plain = self.sealer.open(id).ok_or(SessionFault)?;
        let session = decode(&plain, owner).ok_or(SessionFault)?;
        let serves = session.employee.is_none() || session.employee.as_ref() == owner.employee;
        if !serves || session.expires_ms <= now_ms || self.ended.contains(&session.number) {
            return Err(SessionFault);
        }
        Ok(session)
    }

    /// Ends the session: its id opens nothing from now on.
    pub fn end(&self, session: &Session, now_ms: u64) -> Result<(), EndedFull> {
        self.ended.add(session.number, session.expires_ms, now_ms)
    }

    /// How long a session has lasted.
    pub fn age(&self, session: &Session, now_ms: u64) -> std::time::Duration {
        let started = session.expires_ms.saturating_sub(self.life_ms);
        std::time::Duration::from_millis(now_ms.saturating_sub(started))
    }

    /// Forgets the ended sessions that have expired. To be called now and then.
    pub fn sweep(&self, now_ms: u64) {
        self.ended.forget_expired(now_ms);
    }
}

impl<'a> Owner<'a> {
    pub fn of(caller: &'a Caller) -> Self {
        Self {
            tenant: &caller.tenant,
            caller: &caller.id,
            employee: caller.principal.employee.as_ref(),
        }
    }
}

// === impl Session ===

impl Session {
    /// A name for records: it tells sessions apart and does not open them.
    pub fn hash(&self) -> [u8; 8] {
        // The number is random and known to nobody but the gateway; half of it is as good as a
        // digest of all.
        let mut hash = [0; 8];
        hash.iter_mut().zip(self.number).for_each(|(to, from)| *to = from);
        hash
    }
}

// === what is sealed ===

// form, version, capabilities (2), expiry (8), number (16), then tenant, caller and employee,
// each with its length (1) before it; no employee has the length 0.

fn encode(session: &Session, owner: Owner<'_>) -> Result<SmallVec<[u8; 192]>, SealFault> {
    let mut plain = SmallVec::new();
    plain.extend_from_slice(&[FORM, version_byte(session.version)]);
    plain.extend_from_slice(&session.capabilities.bits().to_be_bytes());
    plain.extend_from_slice(&session.expires_ms.to_be_bytes());
    plain.extend_from_slice(&session.number);
    let employee = session.employee.as_ref().map_or("", |employee| employee.as_str());
    for name in [owner.tenant.as_str(), owner.caller.as_str(), employee] {
        plain.push(u8::try_from(name.len()).map_err(|_| SealFault::TooLong)?);
        plain.extend_from_slice(name.as_bytes());
    }
    Ok(plain)
}

/// The session, if it is one of this tenant and caller.
fn decode(plain: &[u8], owner: Owner<'_>) -> Option<Session> {
    let mut rest = plain;
    let [form, version] = take(&mut rest)?;
    let capabilities = Capabilities::from_bits(u16::from_be_bytes(take(&mut rest)?));
    let expires_ms = u64::from_be_bytes(take(&mut rest)?);
    let number = take(&mut rest)?;
    let [tenant, caller, employee] = [name(&mut rest)?, name(&mut rest)?, name(&mut rest)?];
    if form != FORM
        || !rest.is_empty()
        || tenant != owner.tenant.as_str()
        || caller != owner.caller.as_str()
    {
        return None;
    }
    let employee = match employee {
        "" => None,
        // Nearly always the one who asks, so nothing need be allocated.
        id => match owner.employee.filter(|employee| employee.as_str() == id) {
            Some(employee) => Some(employee.clone()),
            None => Some(EmployeeId::parse(id)?),
        },
    };
    Some(Session { version: version_of(version)?, capabilities, employee, expires_ms, number })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn name<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let [len] = take(rest)?;
    let (taken, left) = rest.split_at_checked(usize::from(len))?;
    *rest = left;
    std::str::from_utf8(taken).ok()
}

/// Written out, since replicas of another release have to agree.
fn version_byte(version: Version) -> u8 {
    match version {
        // No client speaks it.
        Version::V2024_11_05 => 0,
        Version::V2025_03_26 => 1,
        Version::V2025_06_18 => 2,
        Version::V2025_11_25 => 3,
        Version::V2026_07_28 => 4,
    }
}

fn version_of(byte: u8) -> Option<Version> {
    Version::ALL.into_iter().find(|version| version_byte(*version) == byte)
}

// === Ended ===

/// The sessions that were ended before their time: number and expiry.
#[derive(Debug)]
struct Ended {
    numbers: DashMap<[u8; 16], u64>,
    len: AtomicUsize,
    max: usize,
    searched_ms: AtomicU64,
}

impl Ended {
    fn new(max: usize) -> Self {
        Self {
            numbers: DashMap::new(),
            len: AtomicUsize::new(0),
            max,
            searched_ms: AtomicU64::new(0),
        }
    }

    fn contains(&self, number: &[u8; 16]) -> bool {
        // Most gateways never see a DELETE; they need not look.
        self.len.load(Ordering::Acquire) > 0 && self.numbers.contains_key(number)
    }

    /// None is forgotten to make room: it would be open again.
    fn add(&self, number: [u8; 16], expires_ms: u64, now_ms: u64) -> Result<(), EndedFull> {
        if self.numbers.contains_key(&number) {
            return Ok(());
        }
        if !self.reserve() {
            // Once in a second: searching is long, and a full store is not to make it longer.
            let last = self.searched_ms.load(Ordering::Relaxed);
            let order = Ordering::Relaxed;
            if now_ms.abs_diff(last) < 1_000
                || self.searched_ms.compare_exchange(last, now_ms, order, order).is_err()
            {
                return Err(EndedFull);
            }
            self.forget_expired(now_ms);
            if !self.reserve() {
                return Err(EndedFull);
            }
        }
        if self.numbers.insert(number, expires_ms).is_some() {
            self.len.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }

    fn reserve(&self) -> bool {
        let room = self.len.fetch_add(1, Ordering::AcqRel) < self.max;
        if !room {
            self.len.fetch_sub(1, Ordering::AcqRel);
        }
        room
    }

    fn forget_expired(&self, now_ms: u64) {
        let mut gone = 0;
        self.numbers.retain(|_, expires_ms| {
            let keep = *expires_ms > now_ms;
            gone += usize::from(!keep);
            keep
        });
        self.len.fetch_sub(gone, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
