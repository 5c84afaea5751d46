//! Who must say yes first, and to whom something is open already. Nothing here asks anybody.

use std::time::Duration;

use super::narrowing;
use crate::{
    fault::{FaultCode, Faults},
    model::caller::{EmployeeId, Role},
    yaml::{Node, Spanned, Words},
};

/// How a call is approved that a rule asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub by: Approvers,
    /// From the asking on.
    pub expires: Duration,
}

/// Who says yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approvers {
    /// So many employees with one of the roles, and never the requester.
    Others { roles: Box<[Role]>, count: u32 },
    /// The requester himself, asked through his own client.
    Requester,
}

/// To whom an allowing rule is open already: whoever any of the three names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// Of a hundred employees.
    pub percent: u32,
    pub employees: Box<[EmployeeId]>,
    pub teams: Box<[Box<str>]>,
}

pub(in crate::policy) const CONFIRM: Words<()> = Words {
    what: "one to confirm",
    code: FaultCode::BadValue,
    known: &[("requester", ())],
    later: &[],
};

/// The usual and the longest time that a request for approval waits.
const EXPIRES: Duration = Duration::from_secs(15 * 60);
const MAX_EXPIRES: Duration = Duration::from_secs(7 * 86_400);

/// The most people whom one call needs.
const MAX_COUNT: u32 = 10;

impl Approval {
    pub(super) fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let roles: Option<Vec<Role>> = narrowing(&mut map, "roles", faults);
        let count: Option<Spanned<u32>> = map.optional("count", faults);
        let other: Option<Spanned<bool>> = map.optional("not_requester", faults);
        let expires: Option<Spanned<Duration>> = map.optional("expires", faults);
        let confirm = map.node("confirm");
        let confirms = confirm.map(|node| CONFIRM.read(node, faults));
        let given = map.entry("roles").is_some();
        map.finish(faults);
        if let Some(other) = other.filter(|other| !other.value && confirm.is_none()) {
            let message = "`not_requester: false`: nobody approves his own call";
            let fault = faults.add(FaultCode::Contradiction, &other.at, message);
            fault.suggest("`confirm: requester` asks him whether he means it");
        }
        if let Some(count) = count.as_ref().filter(|count| !(1..=MAX_COUNT).contains(&count.value))
        {
            let message = format!("a call is approved by 1 to {MAX_COUNT} people");
            faults.add(FaultCode::BadValue, &count.at, message);
        }
        if let Some(expires) = &expires
            && (expires.value.is_zero() || expires.value > MAX_EXPIRES)
        {
            faults.add(FaultCode::BadValue, &expires.at, "a request waits for 7 days at most");
        }
        let by = match (confirm, confirms, roles) {
            (Some(node), _, _) if given || count.is_some() => {
                let message = "`confirm` beside `roles` or `count`: either he is asked or others";
                let fault = faults.add(FaultCode::Contradiction, &node.at, message);
                fault.suggest("write two rules where both are wanted");
                return None;
            }
            (Some(_), confirms, _) => confirms?.map(|()| Approvers::Requester)?,
            (None, _, Some(roles)) => Approvers::Others {
                roles: roles.into(),
                count: count.map_or(1, |count| count.value),
            },
            (None, _, None) if given => return None,
            (None, _, None) => {
                let message = "neither `roles` nor `confirm`: nobody could approve";
                faults.add(FaultCode::MissingKey, &node.at, message);
                return None;
            }
        };
        Some(Self { by, expires: expires.map_or(EXPIRES, |expires| expires.value) })
    }
}

impl Rollout {
    pub(super) fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let percent: Option<Spanned<u32>> = map.optional("percent", faults);
        let employees: Option<Vec<EmployeeId>> = narrowing(&mut map, "employees", faults);
        let teams: Option<Vec<Spanned<String>>> = narrowing(&mut map, "teams", faults);
        let given = ["percent", "employees", "teams"].map(|key| map.entry(key).is_some());
        map.finish(faults);
        if let Some(percent) = percent.as_ref().filter(|percent| percent.value > 100) {
            faults.add(FaultCode::BadValue, &percent.at, "a hundred percent are everybody");
        }
        if given == [false; 3] {
            let message = "neither `percent`, `employees` nor `teams`: it is open to nobody";
            faults.add(FaultCode::MissingKey, &node.at, message);
        }
        Some(Self {
            percent: percent.map_or(0, |percent| percent.value.min(100)),
            employees: employees.unwrap_or_default().into(),
            teams: teams.into_iter().flatten().map(|team| team.value.into()).collect(),
        })
    }

    /// Whether it is open to an employee. `rule` is the rule's id: two rules reach different
    /// parts of the employees, and one rule always the same part.
    pub fn reaches(&self, rule: &str, employee: &EmployeeId, teams: &[String]) -> bool {
        bucket(rule, employee) < self.percent
            || self.employees.contains(employee)
            || self.teams.iter().any(|team| teams.iter().any(|own| **own == **team))
    }
}

/// A number from 0 to 99 that is always the same for a rule and an employee, on every replica and
/// in every version: FNV-1a over `rule`, a zero byte and the id, its halves folded, modulo 100.
fn bucket(rule: &str, employee: &EmployeeId) -> u32 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = rule.bytes().chain([0]).chain(employee.as_str().bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    // Neighbouring ids differ in few bits of the hash; its upper half is the better mixed one.
    let folded = (hash >> 32) ^ (hash >> 17);
    u32::try_from(folded % 100).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn employee(number: u32) -> EmployeeId {
        EmployeeId::parse(&format!("E{number:04}")).unwrap()
    }

    #[test]
    fn a_percentage_reaches_about_so_many_and_more_are_never_fewer() {
        for rule in ["open-stop", "r1", "r2"] {
            let count = |percent| {
                let rollout = Rollout { percent, employees: [].into(), teams: [].into() };
                let reached = (0..10_000).filter(|n| rollout.reaches(rule, &employee(*n), &[]));
                reached.collect::<Vec<_>>()
            };
            assert!(count(0).is_empty());
            assert_eq!(count(100).len(), 10_000);
            let (few, many) = (count(10), count(25));
            assert!((800..1_200).contains(&few.len()), "{} {rule}", few.len());
            assert!((2_200..2_800).contains(&many.len()), "{} {rule}", many.len());
            assert!(few.iter().all(|number| many.contains(number)), "nobody is shut out again");
        }
    }

    #[test]
    fn the_part_that_is_reached_never_changes() {
        // Fixed for good: a new version must not open a tool to other people.
        let buckets = ["E1001", "E1002", "E1003", "E1009"]
            .map(|id| bucket("open-stop", &EmployeeId::parse(id).unwrap()));
        assert_eq!(buckets, [21, 89, 81, 9]);
    }

    #[test]
    fn names_and_teams_are_reached_whatever_the_percentage() {
        let named = Rollout {
            percent: 0,
            employees: [employee(7)].into(),
            teams: ["payments".into()].into(),
        };
        assert!(named.reaches("r", &employee(7), &[]));
        assert!(named.reaches("r", &employee(8), &["payments".to_owned()]));
        assert!(!named.reaches("r", &employee(8), &["payroll".to_owned()]));
    }
}
