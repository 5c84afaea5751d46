//! A server's own state on its way through a client: sealed, so that only the employee it was
//! given to brings it back, with the same call to the same server.
//!
//! With one credential for everybody a server sees one principal, and its own binding is void.
//! What the state says is the server's business; nothing here reads it.

use std::time::Duration;

use super::{
    seal::{SealFault, Sealer},
    session::Owner,
};
use crate::model::keys::KeySecrets;

/// The purpose of states, for `Sealer`.
pub const PURPOSE: &str = "request state";

/// The longest sealed state, in characters.
pub const MAX_STATE: usize = 64 * 1024;

/// Seals and opens states.
#[derive(Debug)]
pub struct States {
    sealer: Sealer,
    /// How long an answer to a server's question may take, in milliseconds.
    life_ms: u64,
}

/// The state is not one that was given to this employee for this call, or its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the state is unknown or has expired")]
pub struct StateFault;

impl States {
    pub fn new(sealer: Sealer, life: Duration) -> Self {
        let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        Self { sealer: sealer.with_max_token(MAX_STATE), life_ms }
    }

    /// Goes on with these secrets.
    pub fn rekey(&self, secrets: &KeySecrets) {
        self.sealer.rekey(secrets);
    }

    /// Seals a state of a server; `call` says which call it belongs to.
    pub fn seal(
        &self,
        owner: Owner<'_>,
        call: &str,
        state: &str,
        now_ms: u64,
    ) -> Result<String, SealFault> {
        self.seal_until(owner, call, state, now_ms.saturating_add(self.life_ms))
    }

    /// The same, for something that has a time of its own.
    pub fn seal_until(
        &self,
        owner: Owner<'_>,
        call: &str,
        state: &str,
        until_ms: u64,
    ) -> Result<String, SealFault> {
        let mut plain = bound_to(owner, call);
        plain.extend_from_slice(&until_ms.to_be_bytes());
        plain.extend_from_slice(state.as_bytes());
        self.sealer.seal(&plain)
    }

    /// The server's state, exactly as it gave it.
    pub fn open(
        &self,
        owner: Owner<'_>,
        call: &str,
        token: &str,
        now_ms: u64,
    ) -> Result<String, StateFault> {
        let plain = self.sealer.open(token).ok_or(StateFault)?;
        let rest = plain.strip_prefix(bound_to(owner, call).as_slice()).ok_or(StateFault)?;
        let (expires, state) = rest.split_first_chunk::<8>().ok_or(StateFault)?;
        if u64::from_be_bytes(*expires) <= now_ms {
            return Err(StateFault);
        }
        String::from_utf8(state.to_vec()).map_err(|_| StateFault)
    }
}

/// Whose state it is; each name after its length, so that none runs into the next.
fn bound_to(owner: Owner<'_>, call: &str) -> Vec<u8> {
    let employee = owner.employee.map_or("", |employee| employee.as_str());
    let mut out = Vec::with_capacity(256);
    for name in [owner.tenant.as_str(), owner.caller.as_str(), employee, call] {
        out.extend_from_slice(&(name.len() as u64).to_be_bytes());
        out.extend_from_slice(name.as_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::caller::{CallerId, EmployeeId, TenantId};

    #[test]
    fn a_state_comes_back_only_to_whom_it_was_given_and_in_time() {
        let states = States::new(Sealer::random(PURPOSE).unwrap(), Duration::from_secs(900));
        let (acme, other) = (TenantId::new("acme"), TenantId::new("globex"));
        let gateway = CallerId::new("gateway");
        let (e1, e2) = (EmployeeId::parse("E1").unwrap(), EmployeeId::parse("E2").unwrap());
        let owner = |tenant, employee| Owner { tenant, caller: &gateway, employee };
        let token = states.seal(owner(&acme, Some(&e1)), "u/t", "s\u{e9} \"1\"", 1_000).unwrap();
        let open = |owner, tool, now| states.open(owner, tool, &token, now);
        assert_eq!(open(owner(&acme, Some(&e1)), "u/t", 2_000).as_deref(), Ok("s\u{e9} \"1\""));
        for (who, tool, now) in [
            (owner(&acme, Some(&e2)), "u/t", 2_000),
            (owner(&acme, None), "u/t", 2_000),
            (owner(&other, Some(&e1)), "u/t", 2_000),
            (owner(&acme, Some(&e1)), "u/other", 2_000),
            (owner(&acme, Some(&e1)), "u/t", 901_000),
        ] {
            assert_eq!(open(who, tool, now), Err(StateFault));
        }
        assert_eq!(states.open(owner(&acme, Some(&e1)), "u/t", "AQAA", 0), Err(StateFault));
    }
}
