//! A server's task id on its way through a client: sealed, so that only the employee whose call
//! became the task can ask for it, and with the tool, so that policy can decide each time.
//!
//! A task id may be all that a server asks for, and with one credential for everybody it sees
//! one principal. Whoever brings a sealed id is answered under the same one, so nothing has to
//! be sealed twice, or alike, for a client to know its task again.

use std::time::Duration;

use super::{
    seal::{SealFault, Sealer},
    session::Owner,
};
use crate::model::keys::KeySecrets;

/// The purpose of task ids, for `Sealer`.
pub const PURPOSE: &str = "task id";

/// The longest sealed id, in characters: it has to fit a header.
pub const MAX_ID: usize = 2048;

/// How long the id of a task is good that its server keeps for ever.
const LONGEST: Duration = Duration::from_hours(30 * 24);

/// Added to twice a task's time, which its server may prolong.
const GRACE: Duration = Duration::from_mins(1);

/// Seals and opens task ids.
#[derive(Debug)]
pub struct TaskIds(Sealer);

/// A task of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskId {
    /// The tool whose call it is, as `upstream/name`.
    pub tool: Box<str>,
    /// As the server names it.
    pub own: Box<str>,
}

/// The id is not one that was given to this employee, or its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the task is unknown or has expired")]
pub struct TaskFault;

impl TaskIds {
    pub fn new(sealer: Sealer) -> Self {
        Self(sealer.with_max_token(MAX_ID))
    }

    /// Goes on with these secrets.
    pub fn rekey(&self, secrets: &KeySecrets) {
        self.0.rekey(secrets);
    }

    /// Seals the id of a task that a call of `tool` became, and that its server keeps for
    /// `ttl_ms`.
    ///
    /// # Errors
    /// Where the id is too long to be carried, or the key is used up.
    pub fn seal(
        &self,
        owner: Owner<'_>,
        tool: &str,
        own: &str,
        ttl_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<String, SealFault> {
        let millis = |life: Duration| u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        let life = ttl_ms
            .map_or(millis(LONGEST), |ttl| ttl.saturating_mul(2).saturating_add(millis(GRACE)));
        let mut plain = whose(owner);
        plain.extend_from_slice(&now_ms.saturating_add(life).to_be_bytes());
        push(&mut plain, tool);
        plain.extend_from_slice(own.as_bytes());
        self.0.seal(&plain)
    }

    /// The task that an id names.
    ///
    /// # Errors
    /// For whatever was not given to this employee, or is too old.
    pub fn open(&self, owner: Owner<'_>, id: &str, now_ms: u64) -> Result<TaskId, TaskFault> {
        let plain = self.0.open(id).ok_or(TaskFault)?;
        let rest = plain.strip_prefix(whose(owner).as_slice()).ok_or(TaskFault)?;
        let (expires, rest) = rest.split_first_chunk::<8>().ok_or(TaskFault)?;
        if u64::from_be_bytes(*expires) <= now_ms {
            return Err(TaskFault);
        }
        let (length, rest) = rest.split_first_chunk::<8>().ok_or(TaskFault)?;
        let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| TaskFault)?;
        let (tool, own) = rest.split_at_checked(length).ok_or(TaskFault)?;
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(Into::into).map_err(|_| TaskFault);
        Ok(TaskId { tool: text(tool)?, own: text(own)? })
    }
}

/// Each name after its length, so that none runs into the next.
fn whose(owner: Owner<'_>) -> Vec<u8> {
    let employee = owner.employee.map_or("", |employee| employee.as_str());
    let mut out = Vec::with_capacity(256);
    for name in [owner.tenant.as_str(), owner.caller.as_str(), employee] {
        push(&mut out, name);
    }
    out
}

fn push(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(&(name.len() as u64).to_be_bytes());
    out.extend_from_slice(name.as_bytes());
}

#[cfg(test)]
mod tests {
    use secrecy::SecretBox;

    use super::*;
    use crate::model::caller::{CallerId, EmployeeId, TenantId};

    struct Names {
        tenants: [TenantId; 2],
        callers: [CallerId; 2],
        employees: [Option<EmployeeId>; 3],
    }

    impl Names {
        fn new() -> Self {
            Self {
                tenants: [TenantId::new("acme"), TenantId::new("globex")],
                callers: [CallerId::new("gateway"), CallerId::new("desk")],
                employees: [EmployeeId::parse("E1"), EmployeeId::parse("E2"), None],
            }
        }

        fn owner(&self, tenant: usize, caller: usize, employee: usize) -> Owner<'_> {
            let employee = self.employees[employee].as_ref();
            Owner { tenant: &self.tenants[tenant], caller: &self.callers[caller], employee }
        }
    }

    #[test]
    fn an_id_is_good_for_whom_it_was_given_to_and_in_its_time() {
        let names = Names::new();
        let ids = TaskIds::new(Sealer::random(PURPOSE).unwrap());
        let id = ids.seal(names.owner(0, 0, 0), "u/t", "7-\u{e9}", Some(10_000), 1_000).unwrap();
        let task = TaskId { tool: "u/t".into(), own: "7-\u{e9}".into() };
        for now in [1_000, 11_000, 80_999] {
            assert_eq!(ids.open(names.owner(0, 0, 0), &id, now), Ok(task.clone()), "{now}");
        }
        for (owner, now) in [
            ((0, 0, 0), 81_000),
            ((1, 0, 0), 1_000),
            ((0, 1, 0), 1_000),
            ((0, 0, 1), 1_000),
            ((0, 0, 2), 1_000),
        ] {
            let owner = names.owner(owner.0, owner.1, owner.2);
            assert_eq!(ids.open(owner, &id, now), Err(TaskFault), "{owner:?}");
        }
        for other in ["", "7-\u{e9}", "AQAA"] {
            assert_eq!(ids.open(names.owner(0, 0, 0), other, 1_000), Err(TaskFault));
        }
    }

    #[test]
    fn a_task_that_is_kept_for_ever_has_an_id_for_a_month() {
        let names = Names::new();
        let ids = TaskIds::new(Sealer::random(PURPOSE).unwrap());
        let id = ids.seal(names.owner(0, 0, 2), "u/t", "1", None, 0).unwrap();
        let month = 30 * 24 * 3_600_000;
        assert!(ids.open(names.owner(0, 0, 2), &id, month - 1).is_ok());
        assert!(ids.open(names.owner(0, 0, 2), &id, month).is_err());
        let eternal = ids.seal(names.owner(0, 0, 2), "u/t", "1", Some(u64::MAX), 1).unwrap();
        assert!(ids.open(names.owner(0, 0, 2), &eternal, month).is_ok());
    }

    #[test]
    fn ids_outlive_a_process_only_with_its_secret() {
        let names = Names::new();
        let owner = names.owner(0, 0, 0);
        let secret = || KeySecrets::one(SecretBox::new(Box::new([7; 32])));
        let of = TaskIds::new;
        let shared = || of(Sealer::new(PURPOSE, &secret()));
        let id = shared().seal(owner, "u/t", "1", None, 0).unwrap();
        assert!(shared().open(owner, &id, 1).is_ok(), "a restart, or another replica");
        assert_eq!(of(Sealer::random(PURPOSE).unwrap()).open(owner, &id, 1), Err(TaskFault));
        let states = of(Sealer::new(crate::identity::state::PURPOSE, &secret()));
        assert_eq!(states.open(owner, &id, 1), Err(TaskFault), "of another purpose");
    }

    #[test]
    fn an_id_that_no_header_could_hold_is_not_sealed() {
        let names = Names::new();
        let ids = TaskIds::new(Sealer::random(PURPOSE).unwrap());
        let long = "x".repeat(MAX_ID);
        let sealed = ids.seal(names.owner(0, 0, 0), "u/t", &long, None, 0);
        assert_eq!(sealed, Err(SealFault::TooLong));
    }
}
