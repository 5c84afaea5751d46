//! Every account of every quota, and what the store is asked about them.
//!
//! A call locks its accounts in the order of the quotas' numbers, as rates do, and takes from all
//! of them or from none. Nobody waits with a lock: who needs the store's word leaves, is woken,
//! and asks again. While the store is away the quotas' own rules say what goes through. What is
//! done beside the calls is in `upkeep.rs`.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::{
    sync::{futures::OwnedNotified, watch},
    time::{Instant, timeout},
};

use super::{
    Charge, Degraded, Due, Entry, QuotaLimit, Refused, Reservation, StoreDown, Use, Why,
    account::{Account, Source, State},
    store::{QuotaStore, Standing, StoreFault, Take, Taken},
};
use crate::{
    clock::Clock,
    limit::{MAX_KEYS, keys::Keys},
    model::{
        quota::{Action, Judgement, Step},
        server::Risk,
    },
};

/// How long a call waits for the store.
const PATIENCE: Duration = Duration::from_secs(2);

/// The accounts. One for the process.
pub struct Ledger {
    pub(super) clock: Clock,
    pub(super) store: Option<Arc<dyn QuotaStore>>,
    pub(super) accounts: Keys<Account>,
    /// Of those for whom there was no room.
    together: Mutex<Vec<Weak<Account>>>,
    /// The store is believed not to answer.
    away: AtomicBool,
    /// What of the catalog costs most: beyond that nobody notices what is stopped.
    dearest: AtomicU32,
    changes: watch::Sender<u64>,
    pub(super) ticks: AtomicU64,
    started: Instant,
}

/// A call that waits for the store.
pub struct Waiting(SmallVec<[OwnedNotified; 2]>);

/// Where a call's units come from, and by which rule where that is not the store.
type Paid = (Source, Option<StoreDown>);

/// A request that is to be made once the locks are given back.
struct Request {
    account: Arc<Account>,
    take: Take,
}

// === impl Ledger ===

impl Ledger {
    /// Counts in this process, for as long as it lives.
    pub fn in_process(clock: Clock) -> Arc<Self> {
        Self::new(clock, None, MAX_KEYS)
    }

    /// Counts in a store.
    pub fn durable(clock: Clock, store: Arc<dyn QuotaStore>) -> Arc<Self> {
        Self::new(clock, Some(store), MAX_KEYS)
    }

    pub(super) fn new(
        clock: Clock,
        store: Option<Arc<dyn QuotaStore>>,
        max_keys: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            store,
            accounts: Keys::new(max_keys),
            together: Mutex::default(),
            away: AtomicBool::new(false),
            dearest: AtomicU32::new(u32::MAX),
            changes: watch::Sender::new(0),
            ticks: AtomicU64::new(0),
            started: Instant::now(),
        })
    }

    /// Hears whenever quotas stop something that they did not, or the other way round.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether accounts outlive the process.
    pub(super) fn has_store(&self) -> bool {
        self.store.is_some()
    }

    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    pub(super) fn set_dearest(&self, cost: u32) {
        self.dearest.store(cost, Ordering::Relaxed);
    }

    /// The account of a quota's key: what follows its number.
    pub(super) fn account(&self, limit: &QuotaLimit, key: &[u8], tenant: &str) -> Arc<Account> {
        let make = |values: &[u8]| {
            let (id, now_ms) = (limit.account_id(values), self.clock.now_ms());
            let allowance = limit.allowance.clone();
            Account::new(id, limit.id.clone(), tenant, allowance, now_ms, self.has_store())
        };
        // The number is this process's own.
        let values = key.get(size_of::<u32>()..).unwrap_or_default();
        if let Some(account) = self.accounts.get_or_make(key, || make(values)) {
            return account;
        }
        let since = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.accounts.search_due(since) {
            self.forget(Duration::ZERO);
            if let Some(account) = self.accounts.get_or_make(key, || make(values)) {
                return account;
            }
        }
        // Those for whom there is no room are counted together: too much rather than too little.
        let together = limit.overflow.get_or_init(|| {
            let account = Arc::new(make(b"\xff"));
            self.together.lock().push(Arc::downgrade(&account));
            account
        });
        together.clone()
    }

    /// Looks at every account.
    pub(super) fn each(&self, mut look: impl FnMut(&Arc<Account>)) {
        self.accounts.each(&mut look);
        let mut together = self.together.lock();
        together.retain(|account| account.strong_count() > 0);
        together.iter().filter_map(Weak::upgrade).for_each(|account| look(&account));
    }

    /// Takes from all accounts, or says why not.
    pub(super) fn charge(self: &Arc<Self>, due: &Due<'_>, cost: u64, risk: Option<Risk>) -> Charge {
        let now_ms = self.clock.now_ms();
        let mut held: SmallVec<[MutexGuard<'_, State>; 2]> = SmallVec::new();
        for (limit, account) in due {
            held.push(self.enter(account, limit, now_ms));
        }
        let charge = self.weigh(due, &mut held, cost, risk, now_ms);
        let (charge, requests) = match charge {
            Ok(charge) => (charge, SmallVec::new()),
            Err(lacking) => self.request(due, &mut held, &lacking, cost),
        };
        for ((_, account), state) in due.iter().zip(&mut held) {
            self.notice(account, state);
        }
        drop(held);
        self.send(requests);
        charge
    }

    fn enter<'a>(
        &self,
        account: &'a Account,
        limit: &QuotaLimit,
        now_ms: u64,
    ) -> MutexGuard<'a, State> {
        let mut state = account.state.lock();
        if !Arc::ptr_eq(&state.allowance, &limit.allowance) {
            state.allowance = limit.allowance.clone();
        }
        state.turn(now_ms, self.has_store());
        state.touched = Instant::now();
        state
    }

    /// What the accounts say together, charged if they agree; or which of them have to ask first.
    fn weigh(
        self: &Arc<Self>,
        due: &Due<'_>,
        held: &mut [MutexGuard<'_, State>],
        cost: u64,
        risk: Option<Risk>,
        now_ms: u64,
    ) -> Result<Charge, SmallVec<[usize; 2]>> {
        let (has_store, away) = (self.has_store(), self.is_away());
        let mut lacking = SmallVec::new();
        let mut unknown = false;
        let mut degrades: Option<(usize, Step)> = None;
        for (index, state) in held.iter().enumerate() {
            if !state.known && !away {
                unknown = true;
                lacking.push(index);
                continue;
            }
            match state.budget().judge(state.used(), cost) {
                Judgement::Stops(step) => {
                    let why = Why::Spent(step.clone());
                    return Ok(Charge::Out(refused(due, held, index, why, now_ms)));
                }
                Judgement::Degrades(step) if degrades.is_none() => {
                    degrades = Some((index, step.clone()));
                }
                Judgement::Degrades(_) | Judgement::Passes => {}
            }
            if has_store && !away && state.block < cost {
                lacking.push(index);
            }
        }
        if unknown {
            return Err(lacking);
        }
        if let Some((index, step)) = degrades
            && let Action::Degrade { to, .. } = &step.action
        {
            let (to, why) = (to.clone(), Why::Spent(step.clone()));
            let refused = refused(due, held, index, why, now_ms);
            return Ok(Charge::Degrade(Degraded { to, refused }));
        }
        if !lacking.is_empty() {
            return Err(lacking);
        }
        let source = |(limit, state): (&QuotaLimit, &State)| match has_store {
            false => Some((Source::Process, None)),
            true if state.block >= cost => Some((Source::Block, None)),
            true => {
                let rule = limit.allowance.without_store(risk);
                let may = match rule {
                    StoreDown::Open => true,
                    StoreDown::Closed => false,
                    StoreDown::Local => state.alone() >= cost,
                };
                may.then_some((Source::Debt, Some(rule)))
            }
        };
        let sources = due.iter().zip(held.iter()).map(|((limit, _), state)| source((limit, state)));
        let sources: SmallVec<[Option<Paid>; 2]> = sources.collect();
        if let Some(index) = sources.iter().position(Option::is_none) {
            return Ok(Charge::Out(refused(due, held, index, Why::StoreDown, now_ms)));
        }
        let mut reservation = Reservation {
            ledger: self.clone(),
            entries: SmallVec::new(),
            cost,
            uses: SmallVec::new(),
            fallbacks: SmallVec::new(),
        };
        let all = due.iter().zip(held.iter_mut()).zip(sources.into_iter().flatten());
        for (((limit, account), state), (source, rule)) in all {
            state.spend(source, cost, rule);
            let (account, start_ms) = (account.clone(), state.period.start_ms);
            reservation.entries.push(Entry { account, start_ms, source });
            reservation.uses.push(usage(limit, state));
            reservation.fallbacks.extend(rule.map(|rule| (limit.id.clone(), rule)));
        }
        Ok(Charge::In(reservation))
    }

    fn request(
        &self,
        due: &Due<'_>,
        held: &mut [MutexGuard<'_, State>],
        lacking: &[usize],
        cost: u64,
    ) -> (Charge, SmallVec<[Request; 2]>) {
        let (mut waiting, mut requests) = (SmallVec::new(), SmallVec::new());
        for index in lacking {
            let (Some((_, account)), Some(state)) = (due.get(*index), held.get_mut(*index)) else {
                continue;
            };
            // Before the lock is given back, so that the word is not missed.
            waiting.push(account.news.clone().notified_owned());
            if state.asking {
                state.wanted = state.wanted.saturating_add(cost);
                continue;
            }
            state.asking = true;
            state.version += 1;
            let least = cost.saturating_sub(state.block);
            // Those who waited meanwhile get theirs with it.
            let most = state.block_for(cost).max(state.wanted.saturating_add(least));
            state.wanted = 0;
            let take = Take {
                account: account.id,
                period: state.period,
                least,
                most,
                ceiling: state.budget().ceiling(cost),
            };
            requests.push(Request { account: account.clone(), take });
        }
        (Charge::Wait(Waiting(waiting)), requests)
    }

    /// Never with a lock: the answer may come at once.
    fn send(self: &Arc<Self>, requests: SmallVec<[Request; 2]>) {
        let Some(store) = &self.store else { return };
        for Request { account, take } in requests {
            let ledger = self.clone();
            let then = move |taken: Result<Taken, StoreFault>| {
                let mut state = account.state.lock();
                state.asking = false;
                match taken {
                    Ok(Taken { granted, standing }) => {
                        state.learn(standing, granted);
                        if granted > 0 {
                            state.alone = None;
                            ledger.is_back();
                        }
                    }
                    Err(_) => ledger.give_up(),
                }
                ledger.notice(&account, &mut state);
                drop(state);
                account.news.notify_waiters();
            };
            store.take(take, Box::new(then));
        }
    }

    /// Waits for the store's word.
    pub(super) async fn wait(&self, waiting: Waiting) {
        let all = futures_util::future::join_all(waiting.0);
        if timeout(PATIENCE, all).await.is_err() {
            self.give_up();
        }
    }

    /// The store does not answer: from here on the rules for that count.
    pub(super) fn give_up(&self) {
        if !self.away.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "The store cannot be used for quotas: until it can, each counts by its own \
                 `store_down`"
            );
        }
    }

    pub(super) fn is_back(&self) {
        if self.away.swap(false, Ordering::Relaxed) {
            tracing::info!("The store can be used for quotas again");
        }
    }

    pub(super) fn refund(&self, entries: &[Entry], cost: u64) {
        for Entry { account, start_ms, source } in entries {
            let mut state = account.state.lock();
            if state.period.start_ms != *start_ms {
                continue;
            }
            match source {
                Source::Process => state.total = state.total.saturating_sub(cost),
                Source::Block => state.block = state.block.saturating_add(cost).min(state.total),
                Source::Debt if state.debt >= cost => state.debt -= cost,
                // It has been written meanwhile: what was taken is held again.
                Source::Debt => state.block = state.block.saturating_add(cost).min(state.total),
            }
            self.notice(account, &mut state);
        }
    }

    /// Tells whoever follows what is stopped, if that is another cost than before; and the log,
    /// if a step was reached that wants it.
    pub(super) fn notice(&self, account: &Account, state: &mut State) {
        let used = state.used();
        let dearest = u64::from(self.dearest.load(Ordering::Relaxed));
        let from = state.budget().stops_from(used).filter(|from| *from <= dearest);
        if state.told != from {
            state.told = from;
            self.changes.send_modify(|number| *number += 1);
        }
        let warned = state.budget().warned(used).map_or(0, |step| step.percent);
        if warned > state.warned {
            state.warned = warned;
            tracing::warn!(
                limit.name = %account.quota,
                tenant.id = %account.tenant,
                used,
                budget = state.budget().cost.get(),
                "A quota has reached {warned}%"
            );
        }
    }

    /// Where an account stands; `None` if the store has to be asked first.
    pub(super) fn standing(&self, account: &Account, limit: &QuotaLimit) -> Option<u64> {
        let mut state = self.enter(account, limit, self.clock.now_ms());
        self.notice(account, &mut state);
        (state.known || self.is_away()).then(|| state.used())
    }

    /// Asks the store what stands in these accounts, and waits for it.
    pub(super) async fn load(self: &Arc<Self>, accounts: Vec<Arc<Account>>) {
        let (told, answer) = tokio::sync::oneshot::channel();
        self.look(accounts, move || {
            // Whoever asked may be gone.
            let _ = told.send(());
        });
        if timeout(PATIENCE, answer).await.is_err() {
            self.give_up();
        }
    }

    pub(super) fn look(
        self: &Arc<Self>,
        accounts: Vec<Arc<Account>>,
        then: impl FnOnce() + Send + 'static,
    ) {
        let Some(store) = &self.store else { return then() };
        let asked: Vec<_> = accounts
            .iter()
            .map(|account| {
                let state = account.state.lock();
                ((account.id, state.period), state.version)
            })
            .collect();
        let (ids, versions): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        let ledger = self.clone();
        let told = move |standings: Result<Vec<Standing>, StoreFault>| {
            match standings {
                Ok(standings) => {
                    let all = accounts.iter().zip(versions).zip(standings);
                    for ((account, version), standing) in all {
                        let mut state = account.state.lock();
                        if state.version == version && !state.asking {
                            state.learn(standing, 0);
                            ledger.notice(account, &mut state);
                        }
                    }
                }
                Err(_) => ledger.give_up(),
            }
            then();
        };
        store.look(ids, Box::new(told));
    }

    /// How many accounts are known here.
    pub fn keys(&self) -> usize {
        self.accounts.len()
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("keys", &self.keys()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

fn usage(limit: &QuotaLimit, state: &State) -> Use {
    let (budget, used) = (state.budget(), state.used());
    Use {
        id: limit.id.clone(),
        used,
        budget: budget.cost.get(),
        warned: budget.warned(used).map(|step| step.percent),
        until_ms: state.period.end_ms,
    }
}

fn refused(
    due: &Due<'_>,
    held: &[MutexGuard<'_, State>],
    index: usize,
    why: Why,
    now_ms: u64,
) -> Refused {
    let (limit, state) = (due[index].0, &held[index]); // an index of both
    let budget = state.budget();
    Refused {
        standing: usage(limit, state),
        why,
        until: budget.zone.written(state.period.end_ms),
        every: budget.every.as_str(),
        left_ms: state.period.end_ms.saturating_sub(now_ms),
    }
}
