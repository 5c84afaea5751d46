//! Cursors of lists: where the next page begins, sealed, so that they lead on only for whom they
//! were given and only in the same list.
//!
//! What stands at that place, and what to do when it is gone, is not known here.

use std::time::Duration;

use super::{
    seal::{SealFault, Sealer},
    session::Owner,
};
use crate::{
    mcp::Family,
    model::{call::Surface, caller::Caller, keys::KeySecrets},
};

/// The purpose of cursors, for `Sealer`.
pub const PURPOSE: &str = "list cursor";

/// The longest cursor, in characters.
const MAX_CURSOR: usize = 2_048;

/// How long a client may take from one page to the next.
const LIFE: Duration = Duration::from_secs(3_600);

/// Seals and opens cursors.
#[derive(Debug)]
pub struct Cursors(Sealer);

/// A list of somebody's.
#[derive(Debug, Clone, Copy)]
pub struct List<'a> {
    pub owner: Owner<'a>,
    pub surface: &'a Surface,
    pub family: Family,
}

/// The cursor was not given to this caller for this list, or its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is unknown or has expired")]
pub struct CursorFault;

// === impl List ===

impl<'a> List<'a> {
    pub fn of(caller: &'a Caller, surface: &'a Surface, family: Family) -> Self {
        Self { owner: Owner::of(caller), surface, family }
    }

    /// Whose list it is; each name after its length, so that none runs into the next. An
    /// employee's is his, whichever program he calls through.
    fn bound(&self) -> Vec<u8> {
        let (kind, who) = match self.owner.employee {
            Some(employee) => ("employee", employee.as_str()),
            None => ("caller", self.owner.caller.as_str()),
        };
        // No upstream's name is empty.
        let surface = match self.surface {
            Surface::Aggregate => "",
            Surface::Upstream(name) => name.as_str(),
        };
        let mut out = Vec::with_capacity(192);
        for name in [self.owner.tenant.as_str(), kind, who, surface, self.family.member()] {
            out.extend_from_slice(&(name.len() as u64).to_be_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        out
    }
}

// === impl Cursors ===

impl Cursors {
    pub fn new(sealer: Sealer) -> Self {
        Self(sealer.with_max_token(MAX_CURSOR))
    }

    /// Goes on with these secrets.
    pub fn rekey(&self, secrets: &KeySecrets) {
        self.0.rekey(secrets);
    }

    /// A cursor for what follows this place.
    pub fn seal(&self, list: List<'_>, place: &str, now_ms: u64) -> Result<String, SealFault> {
        let life = u64::try_from(LIFE.as_millis()).unwrap_or(u64::MAX);
        let mut plain = list.bound();
        plain.extend_from_slice(&now_ms.saturating_add(life).to_be_bytes());
        plain.extend_from_slice(place.as_bytes());
        self.0.seal(&plain)
    }

    /// The place that the cursor was sealed with.
    pub fn open(&self, list: List<'_>, cursor: &str, now_ms: u64) -> Result<String, CursorFault> {
        let plain = self.0.open(cursor).ok_or(CursorFault)?;
        let rest = plain.strip_prefix(list.bound().as_slice()).ok_or(CursorFault)?;
        let (expires, place) = rest.split_first_chunk::<8>().ok_or(CursorFault)?;
        if u64::from_be_bytes(*expires) <= now_ms {
            return Err(CursorFault);
        }
        String::from_utf8(place.to_vec()).map_err(|_| CursorFault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        caller::{CallerId, EmployeeId, TenantId},
        server::UpstreamName,
    };

    #[test]
    fn a_cursor_leads_on_only_for_whom_it_was_given_and_in_its_list() {
        let cursors = Cursors::new(Sealer::random(PURPOSE).unwrap());
        let (acme, globex) = (TenantId::new("acme"), TenantId::new("globex"));
        let (gate, other_gate) = (CallerId::new("gate"), CallerId::new("other"));
        let (e1, e2) = (EmployeeId::parse("E1").unwrap(), EmployeeId::parse("E2").unwrap());
        let aggregate = Surface::Aggregate;
        let up = Surface::Upstream(UpstreamName::parse("up").unwrap());
        let owner = |tenant, caller, employee| Owner { tenant, caller, employee };
        let list = |owner, surface, family| List { owner, surface, family };
        let mine = list(owner(&acme, &gate, Some(&e1)), &aggregate, Family::Tools);
        let cursor = cursors.seal(mine, "up/t", 1_000).unwrap();
        assert_eq!(cursors.open(mine, &cursor, 2_000).as_deref(), Ok("up/t"));
        let through_another = list(owner(&acme, &other_gate, Some(&e1)), &aggregate, Family::Tools);
        assert_eq!(cursors.open(through_another, &cursor, 2_000).as_deref(), Ok("up/t"));
        for (other, now) in [
            (list(owner(&acme, &gate, Some(&e2)), &aggregate, Family::Tools), 2_000),
            (list(owner(&acme, &gate, None), &aggregate, Family::Tools), 2_000),
            (list(owner(&globex, &gate, Some(&e1)), &aggregate, Family::Tools), 2_000),
            (list(owner(&acme, &gate, Some(&e1)), &up, Family::Tools), 2_000),
            (list(owner(&acme, &gate, Some(&e1)), &aggregate, Family::Prompts), 2_000),
            (mine, 1_000 + 3_600_000),
        ] {
            assert_eq!(cursors.open(other, &cursor, now), Err(CursorFault), "{other:?}");
        }
        for bad in ["", "8", "AQAA", "null"] {
            assert_eq!(cursors.open(mine, bad, 2_000), Err(CursorFault), "{bad}");
        }
        // A caller of no employees has its own.
        let key_only = list(owner(&acme, &gate, None), &aggregate, Family::Tools);
        let cursor = cursors.seal(key_only, "up/t", 0).unwrap();
        let other = list(owner(&acme, &other_gate, None), &aggregate, Family::Tools);
        assert_eq!(cursors.open(other, &cursor, 1), Err(CursorFault));
    }
}
