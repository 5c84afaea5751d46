//! What quotas promise, with a store that can be lost and processes that can be killed.

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::{
    store::{AccountId, Correction, QuotaStore, Standing, StoreFault, Take, Taken, Then},
    *,
};
use crate::{
    clock::Clock,
    limit::{Dimension, Kind, LimitSpec, Tool},
    model::quota::{Action, Budget, Period, Step, Window, Zone},
};

/// 2026-10-24T12:00Z: the day before clocks go back in Paris.
const NOW: u64 = 1_792_843_200_000;
const HOUR: Duration = Duration::from_hours(1);

/// A store as the trait wants it, in memory.
#[derive(Default)]
struct Model {
    rows: Mutex<HashMap<AccountId, Standing>>,
    down: AtomicBool,
}

impl Model {
    fn used(&self) -> u64 {
        self.rows.lock().values().map(|row| row.used).sum()
    }

    fn ask<T>(
        &self,
        account: &AccountId,
        period: Period,
        then: Then<T>,
        answer: impl FnOnce(&mut Standing) -> T,
    ) {
        if self.down.load(Ordering::Relaxed) {
            return then(Err(StoreFault::Unavailable));
        }
        let mut rows = self.rows.lock();
        let row = rows.entry(*account).or_insert(Standing { used: 0, period });
        if row.period.start_ms < period.start_ms {
            *row = Standing { used: 0, period };
        }
        let told = answer(row);
        drop(rows);
        then(Ok(told));
    }
}

impl QuotaStore for Model {
    fn take(&self, take: Take, then: Then<Taken>) {
        self.ask(&take.account, take.period, then, |row| {
            let left = take.ceiling.saturating_sub(row.used);
            let granted = if left >= take.least { left.min(take.most) } else { 0 };
            let granted = if row.period == take.period { granted } else { 0 };
            row.used += granted;
            Taken { granted, standing: *row }
        });
    }

    fn correct(&self, correction: Correction, then: Then<()>) {
        self.ask(&correction.account, correction.period, then, |row| {
            if row.period == correction.period {
                row.used = (row.used + correction.spent).saturating_sub(correction.unneeded);
            }
        });
    }

    fn look(&self, accounts: Vec<(AccountId, Period)>, then: Then<Vec<Standing>>) {
        if self.down.load(Ordering::Relaxed) {
            return then(Err(StoreFault::Unavailable));
        }
        let rows = self.rows.lock();
        let standing = |(id, period): &(AccountId, Period)| {
            let row = rows.get(id).filter(|row| row.period.start_ms >= period.start_ms);
            row.copied().unwrap_or(Standing { used: 0, period: *period })
        };
        let all = accounts.iter().map(standing).collect();
        drop(rows);
        then(Ok(all));
    }

    fn sweep(&self, before_ms: u64, then: Then<()>) {
        self.rows.lock().retain(|_, row| row.period.end_ms >= before_ms);
        then(Ok(()));
    }
}

fn steps(steps: &[(u32, Action)]) -> Vec<Step> {
    steps
        .iter()
        .map(|(percent, action)| Step { percent: *percent, action: action.clone() })
        .collect()
}

fn spec(id: &str, per: &[Dimension], cost: u64, all: &[(u32, Action)]) -> LimitSpec {
    let budget = Budget {
        cost: NonZeroU64::new(cost).unwrap(),
        every: Window::Day,
        zone: Zone::named("Europe/Paris").unwrap(),
        steps: steps(all),
    };
    let store_down = match id {
        "open" => Some(StoreDown::Open),
        "closed" => Some(StoreDown::Closed),
        "local" => Some(StoreDown::Local),
        _ => None,
    };
    LimitSpec {
        id: id.into(),
        tenant: None,
        per: per.iter().copied().collect(),
        upstreams: Vec::new(),
        tools: Vec::new(),
        risks: Vec::new(),
        kind: Kind::Quota(Arc::new(Allowance { budget, store_down })),
    }
}

fn tool(name: &str) -> Tool<'_> {
    Tool { name, upstream: "up", risk: Risk::ReadLow }
}

fn whose<'a>(employee: &'a str, tool: Option<Tool<'a>>) -> Subject<'a> {
    let address = Ipv4Addr::LOCALHOST.into();
    Subject { tenant: "acme", caller: "gate", employee: Some(employee), tool, other: None, address }
}

/// A process: without a store, or over one that others use, too.
fn process(specs: &[LimitSpec], clock: &Clock, store: Option<&Arc<Model>>) -> Quotas {
    let ledger = match store {
        Some(store) => Ledger::durable(clock.clone(), store.clone()),
        None => Ledger::in_process(clock.clone()),
    };
    Quotas::new(specs.to_vec(), ledger).unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// What becomes of a call of `up/tool` for E1.
fn charge(quotas: &Quotas, cost: u32) -> Charge {
    block_on(quotas.charge_patiently(&whose("E1", Some(tool("up/tool"))), cost))
}

#[track_caller]
fn spend(quotas: &Quotas, cost: u32) -> Reservation {
    match charge(quotas, cost) {
        Charge::In(reservation) => reservation,
        other => panic!("{other:?}"),
    }
}

fn word(charge: &Charge) -> &'static str {
    match charge {
        Charge::Free => "free",
        Charge::In(_) => "in",
        Charge::Out(refused) if refused.why == Why::StoreDown => "down",
        Charge::Out(_) => "out",
        Charge::Degrade(_) => "degrade",
        Charge::Wait(_) => "wait",
    }
}

const TENANT: &[Dimension] = &[Dimension::Tenant];

#[derive(Debug, Clone)]
enum Step1 {
    Spend {
        process: usize,
        cost: u32,
        keep: bool,
    },
    Tick {
        process: usize,
    },
    /// Dies at once, and starts again.
    Kill {
        process: usize,
    },
    /// Ends in good order, and starts again.
    Restart {
        process: usize,
    },
    Advance {
        hours: u64,
    },
}

fn step() -> impl Strategy<Value = Step1> {
    prop_oneof![
        8 => (0..3_usize, 1..40_u32, prop::bool::weighted(0.8))
            .prop_map(|(process, cost, keep)| Step1::Spend { process, cost, keep }),
        1 => (0..3_usize).prop_map(|process| Step1::Tick { process }),
        1 => (0..3_usize).prop_map(|process| Step1::Kill { process }),
        1 => (0..3_usize).prop_map(|process| Step1::Restart { process }),
        1 => (1..9_u64).prop_map(|hours| Step1::Advance { hours }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Three processes over one store: what was let through is never more than the budget, and
    /// the store never knows of less than was let through.
    #[test]
    fn no_more_than_the_budget_goes_through(
        budget in 1..3_000_u64,
        all in prop::collection::vec(step(), 1..120),
    ) {
        let specs = [spec("q", TENANT, budget, &[(50, Action::Warn), (100, Action::Deny)])];
        let (clock, store) = (Clock::manual(NOW), Arc::new(Model::default()));
        let mut processes = [(); 3].map(|()| process(&specs, &clock, Some(&store)));
        let terms = match &specs[0].kind { Kind::Quota(a) => a.budget.clone(), _ => unreachable!() };
        let (mut spent, mut period) = (0_u64, terms.period(NOW));
        for step in all {
            match step {
                Step1::Spend { process, cost, keep } => {
                    if let Charge::In(reservation) = charge(&processes[process], cost) {
                        if keep { spent += u64::from(cost) } else { reservation.refund() }
                    }
                }
                Step1::Tick { process } => drop(processes[process].ledger().tick()),
                Step1::Kill { process: at } => processes[at] = process(&specs, &clock, Some(&store)),
                Step1::Restart { process: at } => {
                    processes[at].ledger().close();
                    processes[at] = process(&specs, &clock, Some(&store));
                }
                Step1::Advance { hours } => clock.advance(HOUR * u32::try_from(hours).unwrap()),
            }
            if terms.period(clock.now_ms()) != period {
                (spent, period) = (0, terms.period(clock.now_ms()));
            }
            prop_assert!(spent <= budget, "{spent} of {budget}");
            let known = store.rows.lock().values().find(|row| row.period == period).map_or(0, |r| r.used);
            prop_assert!(spent <= known, "{spent} were spent, {known} are known");
        }
    }

    /// What lists leave out is what calls do not get, for every cost.
    #[test]
    fn lists_and_calls_agree(
        used in 0..130_u32,
        costs in prop::collection::vec(0..40_u32, 1..12),
        least in 0..20_u32,
        hide in 1..100_u32,
    ) {
        let hide_step = Action::Hide { cost_at_least: least };
        let specs = [spec("q", &[Dimension::Principal], 100, &[(hide, hide_step), (110, Action::Deny)])];
        let quotas = process(&specs, &Clock::manual(NOW), None);
        for _ in 0..used {
            drop(charge(&quotas, 1));
        }
        let names: Vec<String> = (0..costs.len()).map(|n| format!("up/t{n}")).collect();
        let board = quotas.bind(
            names.iter().zip(&costs).map(|(name, cost)| Item {
                name, upstream: "up", is_tool: true, risk: Risk::ReadLow, cost: *cost,
            }),
            |_, _| false,
        );
        let sight = quotas.sight(&whose("E1", None), &board).unwrap();
        for (index, cost) in costs.iter().enumerate() {
            let charged = quotas.charge(&whose("E1", Some(tool(&names[index]))), *cost);
            let stopped = sight.stopped.contains(&index);
            prop_assert_eq!(stopped, word(&charged) == "out", "{} after {}", cost, used);
            if let Charge::In(reservation) = charged {
                reservation.refund();
            }
        }
        // Another employee's quota is another's.
        prop_assert!(quotas.sight(&whose("E2", None), &board).unwrap().stopped.iter().all(|at| costs[*at] > hide));
    }
}

#[test]
fn what_never_left_costs_nothing() {
    let specs = [spec("q", TENANT, 10, &[(100, Action::Deny)])];
    for store in [None, Some(Arc::new(Model::default()))] {
        let quotas = process(&specs, &Clock::manual(NOW), store.as_ref());
        let first = spend(&quotas, 6);
        assert_eq!(word(&charge(&quotas, 6)), "out");
        first.refund();
        let second = spend(&quotas, 6);
        assert_eq!(second.uses[0].used, 6);
        // Dropped without a word it is spent.
        drop(second);
        assert_eq!(word(&charge(&quotas, 6)), "out");
        assert_eq!(word(&charge(&quotas, 4)), "in");
        assert_eq!(word(&charge(&quotas, 0)), "free");
    }
}

#[test]
fn a_call_is_charged_by_all_quotas_or_by_none() {
    let specs = [
        spec("wide", TENANT, 100, &[(100, Action::Deny)]),
        spec("narrow", &[Dimension::Principal], 5, &[(100, Action::Deny)]),
    ];
    for store in [None, Some(Arc::new(Model::default()))] {
        let quotas = process(&specs, &Clock::manual(NOW), store.as_ref());
        drop(spend(&quotas, 5));
        for _ in 0..10 {
            match charge(&quotas, 1) {
                Charge::Out(refused) => assert_eq!(&*refused.standing.id, "narrow"),
                other => panic!("{other:?}"),
            }
        }
        let other = whose("E2", Some(tool("up/tool")));
        let Charge::In(other) = block_on(quotas.charge_patiently(&other, 1)) else { panic!() };
        assert_eq!(other.uses[0].used, 6);
    }
}

#[test]
fn a_window_begins_anew_by_the_clock_of_its_zone() {
    let specs = [spec("q", TENANT, 10, &[(100, Action::Deny)])];
    for store in [None, Some(Arc::new(Model::default()))] {
        let clock = Clock::manual(NOW);
        let quotas = process(&specs, &clock, store.as_ref());
        let heard = quotas.ledger().watch();
        drop(spend(&quotas, 10));
        // Midnight in Paris, by summer time, is 22:00Z; the day that then begins has 25 hours.
        clock.advance(HOUR * 10 - Duration::from_millis(1));
        let Charge::Out(refused) = charge(&quotas, 1) else { panic!() };
        assert_eq!(refused.left_ms, 1);
        assert_eq!(refused.until, "2026-10-25 00:00 (Europe/Paris)");
        clock.advance(Duration::from_millis(1));
        assert!(heard.has_changed().unwrap(), "it stopped something");
        let mut heard = quotas.ledger().watch();
        heard.mark_unchanged();
        drop(quotas.ledger().tick());
        assert!(heard.has_changed().unwrap(), "and does not any more");
        let late = spend(&quotas, 10);
        clock.advance(HOUR * 25 - Duration::from_millis(1));
        assert_eq!(word(&charge(&quotas, 1)), "out");
        clock.advance(Duration::from_millis(1));
        drop(spend(&quotas, 4));
        // What was reserved in a window that is over is not given back to the next.
        late.refund();
        assert_eq!(word(&charge(&quotas, 7)), "out");
        assert_eq!(word(&charge(&quotas, 6)), "in");
    }
}

#[test]
fn a_kill_forgets_nothing_and_takes_little() {
    let specs = [spec("q", TENANT, 10_000, &[(100, Action::Deny)])];
    let (clock, store) = (Clock::manual(NOW), Arc::new(Model::default()));
    let quotas = process(&specs, &clock, Some(&store));
    (0..50).for_each(|_| drop(spend(&quotas, 7)));
    let known = store.used();
    assert!((350..=450).contains(&known), "{known}");
    drop(quotas);
    let quotas = process(&specs, &clock, Some(&store));
    assert!(spend(&quotas, 1).uses[0].used > known);
    // In good order nothing is lost at all.
    quotas.ledger().close();
    assert_eq!(store.used(), known + 1);
}

#[test]
fn without_the_store_each_quota_does_what_was_declared() {
    for (id, risk, first, through) in [
        ("open", Risk::ReadLow, "in", 100),
        ("closed", Risk::ReadLow, "down", 0),
        ("local", Risk::ReadLow, "in", 8),
        ("usual", Risk::ReadLow, "in", 8),
        ("usual", Risk::WriteHigh, "down", 0),
    ] {
        let specs = [spec(id, TENANT, 100, &[(100, Action::Deny)])];
        let (clock, store) = (Clock::manual(NOW), Arc::new(Model::default()));
        let quotas = process(&specs, &clock, Some(&store));
        let call = |cost| {
            let subject = whose("E1", Some(Tool { risk, ..tool("up/tool") }));
            block_on(quotas.charge_patiently(&subject, cost))
        };
        assert_eq!(word(&call(20)), "in");
        store.down.store(true, Ordering::Relaxed);
        // What the process holds it may spend; of a budget this small that is nothing.
        assert_eq!(word(&call(1)), first, "{id}");
        let more = (0..200).filter(|_| word(&call(1)) == "in").count();
        let through_before = usize::from(first == "in");
        let expected = if id == "open" { 80 } else { through };
        assert_eq!(more + through_before, expected, "{id}");
        // It is written once it can be, and counts like everything else.
        store.down.store(false, Ordering::Relaxed);
        drop(quotas.ledger().tick());
        drop(quotas.ledger().tick());
        assert_eq!(store.used(), 20 + expected as u64, "{id}");
        let left = u32::try_from(80 - expected).unwrap();
        assert_eq!(word(&call(left + 1)), "out", "{id}");
        if left > 0 {
            assert_eq!(word(&call(left)), "in", "{id}");
        }
    }
}

#[test]
fn a_larger_budget_is_more_room_and_no_fresh_start() {
    let clock = Clock::manual(NOW);
    let deny: &[(u32, Action)] = &[(100, Action::Deny)];
    let quotas = process(&[spec("q", TENANT, 10, deny)], &clock, None);
    drop(spend(&quotas, 10));
    let quotas = quotas.replaced_by(vec![spec("q", TENANT, 15, deny)]).unwrap();
    assert_eq!(word(&charge(&quotas, 6)), "out");
    drop(spend(&quotas, 5));
    let quotas = quotas.replaced_by(vec![spec("q", TENANT, 15, deny)]).unwrap();
    assert_eq!(word(&charge(&quotas, 1)), "out");
    // What counts otherwise is another quota.
    let by_caller = spec("q", &[Dimension::Caller], 15, deny);
    let quotas = quotas.replaced_by(vec![by_caller]).unwrap();
    assert_eq!(word(&charge(&quotas, 1)), "in");
}

#[test]
fn costly_calls_are_sent_to_what_stands_in_for_them() {
    let mut quota = spec(
        "q",
        TENANT,
        100,
        &[(50, Action::Degrade { to: "up/cheap".into(), price: 1 }), (100, Action::Deny)],
    );
    quota.tools = vec!["up/*".into()];
    let quotas = process(&[quota], &Clock::manual(NOW), None);
    let names = ["up/dear", "up/cheap", "up/odd"];
    let costs = [10, 1, 10];
    let items = names.iter().zip(costs).map(|(name, cost)| Item {
        name,
        upstream: "up",
        is_tool: true,
        risk: Risk::ReadLow,
        cost,
    });
    let board = quotas.bind(items, |dear, cheap| (dear, cheap) == (0, 1));
    assert_eq!(board.stand_in(0, "up/cheap"), Some(1));
    assert_eq!(quotas.misfits(&board), [("up/odd".into(), "up/cheap".into())]);
    let whose_tool = |name| whose("E1", Some(tool(name)));
    for _ in 0..5 {
        assert_eq!(word(&quotas.charge(&whose_tool("up/dear"), 10)), "in");
    }
    let Charge::Degrade(degraded) = quotas.charge(&whose_tool("up/dear"), 10) else { panic!() };
    assert_eq!((&*degraded.to, degraded.refused.standing.used), ("up/cheap", 50));
    let sight = quotas.sight(&whose("E1", None), &board).unwrap();
    assert_eq!(sight, Sight { stopped: vec![2], degraded: vec![(0, 1)] });
    // The cheap one goes on, until nothing does.
    for _ in 0..50 {
        assert_eq!(word(&quotas.charge(&whose_tool("up/cheap"), 1)), "in");
    }
    assert_eq!(word(&quotas.charge(&whose_tool("up/cheap"), 1)), "out");
    let sight = quotas.sight(&whose("E1", None), &board).unwrap();
    assert_eq!(sight.stopped, [0, 1, 2]);
}

#[test]
fn those_for_whom_there_is_no_room_are_counted_together() {
    let ledger = Ledger::new(Clock::manual(NOW), None, 3);
    let specs = vec![spec("q", &[Dimension::Principal], 4, &[(100, Action::Deny)])];
    let quotas = Quotas::new(specs, ledger).unwrap();
    let through = (0..40).filter(|n| {
        let employee = format!("E{n}");
        word(&quotas.charge(&whose(&employee, Some(tool("up/tool"))), 4)) == "in"
    });
    assert_eq!(through.count(), 4);
    assert_eq!(quotas.ledger().keys(), 3);
}
