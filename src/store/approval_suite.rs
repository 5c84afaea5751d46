//! The contract that every store of requests for approval passes, looked at through the engine:
//! in one process, and where the place outlives it, in several.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;

use super::{Store, suite::Place};
use crate::{
    approval::{
        ApprovalId, Approvals, Bounds, DecideFault, Demand, Ended, Local, Observer, Request,
        Standing, State, Subject, Use,
        store::{Pick, StoreFault},
    },
    model::{
        caller::{CallerId, EmployeeId, Role, Roles, TenantId},
        exchange::KeyedDigest,
        server::Risk,
    },
};

/// One process that uses the place.
struct Process {
    approvals: Approvals,
    _store: Option<Store>,
}

/// As many processes as the place can have, at most two.
fn processes(place: &Place) -> Vec<Process> {
    let Some(address) = &place.address else {
        let approvals = Approvals::new(Arc::new(Local::default()), place.clock.clone());
        return vec![Process { approvals, _store: None }];
    };
    let open = |_| {
        let opened = Store::open(address, &place.clock).unwrap();
        let approvals = Approvals::new(opened.approvals, place.clock.clone());
        Process { approvals, _store: Some(opened.store) }
    };
    (0..2).map(open).collect()
}

fn employee(id: &str) -> EmployeeId {
    EmployeeId::parse(id).unwrap()
}

fn acme() -> TenantId {
    TenantId::new("acme")
}

fn owner() -> Roles {
    Roles::new([Role::new("owner")])
}

fn request(place: &Place, tool: &str) -> Request {
    let now = place.clock.now_ms();
    Request {
        subject: Subject {
            tenant: acme(),
            caller: CallerId::new("corp"),
            requester: Some(employee("E1")),
            tool: tool.into(),
            arguments: KeyedDigest { key: 7, digest: [9; 32] },
            revision: "abc".into(),
        },
        demands: vec![Demand {
            rule: "r".into(),
            roles: [Role::new("owner"), Role::new("security")].into(),
            count: 1,
        }],
        risk: Risk::WriteHigh,
        sealed: Some(Bytes::from_static(b"\x00sealed\xff")),
        asked_ms: now,
        expires_ms: now + 60_000,
    }
}

async fn ask(process: &Process, request: &Request) -> Standing {
    process.approvals.ask(request.clone()).await.unwrap()
}

async fn waiting(process: &Process, request: &Request) -> ApprovalId {
    match ask(process, request).await {
        Standing::Waiting { approval, .. } => approval.id,
        other => panic!("{other:?}"),
    }
}

async fn decide(process: &Process, id: ApprovalId, who: &str, yes: bool) -> State {
    let decided =
        process.approvals.decide(&acme(), id, &employee(who), &owner(), yes, Some("so")).await;
    decided.unwrap().state(process.approvals.now_ms())
}

pub(super) async fn of_many_who_ask_at_once_one_asks_and_one_runs(place: Place) {
    let running = processes(&place);
    for round in 0..10 {
        let request = request(&place, &format!("up/t{round}"));
        let ask_all = || join_all((0..20).map(|n| ask(&running[n % running.len()], &request)));
        let mut ids: Vec<ApprovalId> = Vec::new();
        let mut fresh = 0;
        for standing in ask_all().await {
            let Standing::Waiting { approval, new } = standing else { panic!("{standing:?}") };
            ids.push(approval.id);
            fresh += usize::from(new);
        }
        ids.dedup();
        assert_eq!((ids.len(), fresh), (1, 1));
        let last = running.last().unwrap();
        assert_eq!(decide(last, ids[0], "E2", true).await, State::Approved);
        let standings = ask_all().await;
        let granted: Vec<_> =
            standings.iter().filter(|s| matches!(s, Standing::Granted(_))).collect();
        assert_eq!(granted.len(), 1, "{standings:?}");
        // The rest ask for the next time, together.
        let next = standings.iter().find_map(|standing| match standing {
            Standing::Waiting { approval, .. } => Some(approval.id),
            _ => None,
        });
        assert_eq!(next, Some(waiting(last, &request).await));
        assert_ne!(next, Some(ids[0]));
    }
}

pub(super) async fn what_is_kept_is_what_was_said(place: Place) {
    let running = processes(&place);
    let (one, other) = (running.first().unwrap(), running.last().unwrap());
    let mut wanted = request(&place, "up/pay");
    wanted.demands[0].count = 2;
    let id = waiting(one, &wanted).await;
    decide(other, id, "E2", true).await;
    place.clock.advance(Duration::from_secs(1));
    decide(one, id, "E3", false).await;
    for process in &running {
        let look = process.approvals.look(&acme(), id, &employee("E1"), &owner()).await;
        let kept = look.unwrap().unwrap();
        assert_eq!((kept.id, &kept.request), (id, &wanted));
        assert_eq!(kept.votes.len(), 2);
        let vote = &kept.votes[1];
        assert_eq!((vote.yes, vote.by.name(), vote.comment.as_deref()), (false, "E3", Some("so")));
        assert_eq!(vote.at_ms, kept.votes[0].at_ms + 1_000);
        assert_eq!(vote.rules, ["r".into()]);
        assert!(matches!(ask(process, &wanted).await, Standing::Refused(found) if found == kept));
        let newest = process.approvals.newest(&wanted.subject).await.unwrap();
        assert_eq!(newest, Some(kept));
    }
    // The newest first.
    place.clock.advance(Duration::from_secs(1));
    let second = waiting(other, &request(&place, "up/other")).await;
    let list = one.approvals.list(&acme(), &employee("E2"), &owner()).await.unwrap();
    assert_eq!(list.iter().map(|a| a.id).collect::<Vec<_>>(), [second, id]);
    let foreign = TenantId::new("globex");
    assert!(one.approvals.list(&foreign, &employee("E2"), &owner()).await.unwrap().is_empty());
}

pub(super) async fn a_grant_is_used_when_it_is_meant_to_be(place: Place) {
    let running = processes(&place);
    let (one, other) = (running.first().unwrap(), running.last().unwrap());
    let wanted = request(&place, "up/pay");
    let id = waiting(one, &wanted).await;
    decide(one, id, "E2", true).await;
    for when in [Use::Later, Use::Now] {
        let fresh = ApprovalId::new(place.clock.now_ms());
        let standing = other.approvals.ask_as(fresh, wanted.clone(), when).await.unwrap();
        assert!(matches!(standing, Standing::Granted(granted) if granted.id == id));
    }
    one.approvals.give_back(id).await.unwrap();
    assert!(matches!(ask(other, &wanted).await, Standing::Granted(_)));
    one.approvals.unused(Some(id), None);
    assert!(matches!(ask(one, &wanted).await, Standing::Granted(_)));
    assert!(matches!(ask(other, &wanted).await, Standing::Waiting { new: true, .. }));
}

pub(super) async fn a_token_is_good_once(place: Place) {
    let running = processes(&place);
    let expires = place.clock.now_ms() + 1_000;
    let takes = (0..10).map(|n| running[n % running.len()].approvals.take([5; 32], expires));
    let taken = join_all(takes).await.into_iter().filter(|taken| *taken == Ok(true)).count();
    assert_eq!(taken, 1);
    let (one, other) = (running.first().unwrap(), running.last().unwrap());
    one.approvals.unused(None, Some([5; 32]));
    assert_eq!(one.approvals.take([5; 32], expires).await, Ok(true));
    assert_eq!(other.approvals.take([6; 32], expires).await, Ok(true));
    one.approvals.sweep(0).await.unwrap();
    assert_eq!(other.approvals.take([5; 32], expires).await, Ok(false), "its time is not over");
}

pub(super) async fn what_waits_is_bounded(place: Place) {
    let mut running = processes(&place);
    let process = running.remove(0);
    let approvals = process.approvals.with_bounds(Bounds { total: 3, each: 2 });
    let ask = |who: &str, tool: &str| {
        let mut request = request(&place, tool);
        request.subject.requester = Some(employee(who));
        request
    };
    for (who, tool, fits) in [
        ("E1", "a", true),
        ("E1", "b", true),
        ("E1", "c", false),
        ("E1", "a", true),
        ("E2", "a", true),
        ("E3", "a", false),
    ] {
        let asked = approvals.ask(ask(who, tool)).await;
        assert_eq!(asked.is_ok(), fits, "{who} {tool}: {asked:?}");
        assert!(fits || asked == Err(StoreFault::Full));
    }
    place.clock.advance(Duration::from_secs(60));
    assert!(approvals.ask(ask("E3", "a")).await.is_ok());
}

#[derive(Default)]
struct Told(parking_lot::Mutex<Vec<(Ended, u64)>>);

impl Observer for Told {
    fn ended(&self, end: Ended, waited: Duration) {
        self.0.lock().push((end, u64::try_from(waited.as_millis()).unwrap()));
    }
}

pub(super) async fn what_nobody_decides_expires_once_and_is_forgotten(place: Place) {
    let told = Arc::new(Told::default());
    let running: Vec<Process> = processes(&place)
        .into_iter()
        .map(|Process { approvals, _store }| {
            let approvals = approvals.observed(told.clone());
            Process { approvals, _store }
        })
        .collect();
    let (one, other) = (running.first().unwrap(), running.last().unwrap());
    let wanted = request(&place, "up/pay");
    let id = waiting(one, &wanted).await;
    let decided = waiting(one, &request(&place, "up/other")).await;
    decide(one, decided, "E2", true).await;
    place.clock.advance(Duration::from_secs(60));
    for process in [one, other, one] {
        process.approvals.sweep(10_000).await.unwrap();
    }
    assert_eq!(*told.0.lock(), [(Ended::Granted, 0), (Ended::Expired, 60_000)]);
    let late = one.approvals.decide(&acme(), id, &employee("E2"), &owner(), true, None).await;
    assert!(late.is_err());
    let look = || async { other.approvals.look(&acme(), id, &employee("E1"), &owner()).await };
    let expired = look().await.unwrap().unwrap();
    assert_eq!(expired.state(place.clock.now_ms()), State::Expired);
    assert_eq!(expired.request.sealed, None, "nobody decides on its arguments any more");
    let granted = other.approvals.look(&acme(), decided, &employee("E1"), &owner()).await.unwrap();
    assert_eq!(granted.unwrap().request.sealed, wanted.sealed);
    let mut again = request(&place, "up/pay");
    again.asked_ms = place.clock.now_ms();
    assert_ne!(waiting(other, &again).await, id);
    place.clock.advance(Duration::from_secs(11));
    other.approvals.sweep(10_000).await.unwrap();
    assert!(look().await.unwrap().is_none());
}

pub(super) async fn who_looks_after_them_sees_all_and_says_no(place: Place) {
    let told = Arc::new(Told::default());
    let running: Vec<Process> = processes(&place)
        .into_iter()
        .map(|Process { approvals, _store }| {
            let approvals = approvals.observed(told.clone());
            Process { approvals, _store }
        })
        .collect();
    let (one, other) = (running.first().unwrap(), running.last().unwrap());
    let mut ids = Vec::new();
    for (tenant, tool) in [("acme", "a"), ("globex", "b"), ("acme", "c")] {
        let mut wanted = request(&place, tool);
        wanted.subject.tenant = TenantId::new(tenant);
        ids.push(waiting(one, &wanted).await);
        place.clock.advance(Duration::from_millis(2));
    }
    let some = async |pick: Pick, most| {
        let found = other.approvals.survey(pick, most, |_| true).await.unwrap();
        (found.some.iter().map(|one| one.id).collect::<Vec<_>>(), found.next)
    };
    let all = Pick::default();
    assert_eq!(some(all.clone(), 9).await, (vec![ids[2], ids[1], ids[0]], None));
    assert_eq!(some(all, 2).await, (vec![ids[2], ids[1]], Some(ids[1])));
    let rest = Pick { before: Some(ids[1]), ..Pick::default() };
    assert_eq!(some(rest, 2).await, (vec![ids[0]], None));
    let own = Pick { tenant: Some(acme()), before: None };
    assert_eq!(some(own, 9).await.0, [ids[2], ids[0]]);

    // One that waits, and one whose yes is not used yet.
    decide(one, ids[0], "E2", true).await;
    for id in [ids[0], ids[2]] {
        let refused = one.approvals.refuse(id, "sec", Some("a lost laptop")).await.unwrap();
        assert_eq!(refused.state(place.clock.now_ms()), State::Refused);
        let kept = other.approvals.find(id).await.unwrap().unwrap();
        assert_eq!(kept, refused);
        let vote = kept.votes.last().unwrap();
        assert_eq!((vote.by.to_string(), vote.yes), ("token:sec".to_owned(), false));
        assert!(!kept.has_said(&employee("sec")), "no employee is meant");
        let again = one.approvals.refuse(id, "sec", None).await;
        assert_eq!(again, Err(DecideFault::Over(State::Refused)));
        let late = other.approvals.decide(&acme(), id, &employee("E3"), &owner(), true, None).await;
        assert_eq!(late, Err(DecideFault::Over(State::Refused)));
    }
    assert!(matches!(ask(other, &request(&place, "a")).await, Standing::Refused(_)));
    let ends: Vec<_> = told.0.lock().iter().map(|(end, _)| *end).collect();
    assert_eq!(ends, [Ended::Granted, Ended::Refused], "each has one end");
    let nobody = ApprovalId::new(place.clock.now_ms());
    assert_eq!(one.approvals.refuse(nobody, "sec", None).await, Err(DecideFault::Unknown));
}

// === Across processes, where the place outlives them ===

pub(super) async fn a_restart_keeps_requests(place: Place) {
    let wanted = request(&place, "up/pay");
    let running = processes(&place);
    let id = waiting(&running[0], &wanted).await;
    drop(running);
    let running = processes(&place);
    assert_eq!(waiting(&running[0], &wanted).await, id);
    decide(&running[0], id, "E2", true).await;
    drop(running);
    let running = processes(&place);
    assert!(matches!(ask(&running[1], &wanted).await, Standing::Granted(found) if found.id == id));
}
