//! What quotas have to do with the things of one catalog: which of them cost something that
//! somebody counts, which cheaper tool can stand in for which, and what is stopped at the moment
//! for whoever looks.
//!
//! Lists and calls are judged by the same budgets over the same accounts. Whether the caller may
//! use a cheaper tool is not known here.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{Quotas, account::Account};
use crate::{
    limit::{
        keys::key,
        scope::{Bits, Placed},
        spec::{Other, Subject, Tool},
    },
    model::{
        quota::{Action, Judgement},
        server::Risk,
    },
};

/// Something of a catalog.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// `upstream/name`.
    pub name: &'a str,
    pub upstream: &'a str,
    pub is_tool: bool,
    pub risk: Risk,
    pub cost: u32,
}

/// A catalog, as quotas see it.
#[derive(Debug, Default)]
pub struct Board {
    rows: Vec<Row>,
    /// Which tool can stand in for which, by their indices.
    stand_ins: HashMap<(usize, Box<str>), usize>,
    dearest: u32,
}

#[derive(Debug)]
struct Row {
    name: Box<str>,
    upstream: Box<str>,
    is_tool: bool,
    risk: Risk,
    cost: u32,
    passed: Bits,
    /// Somebody's quota is about it.
    counted: bool,
}

/// What quotas stop at the moment, by index.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sight {
    pub stopped: Vec<usize>,
    /// What runs as another tool, if it runs at all.
    pub degraded: Vec<(usize, usize)>,
}

/// Accounts of which nobody here knows how they stand.
#[derive(Debug)]
pub struct Unknown(Vec<Arc<Account>>);

// === impl Board ===

impl Board {
    /// Whether some quota may be about this; what is in no catalog may always be.
    pub fn counts(&self, index: Option<usize>) -> bool {
        let row = index.map(|index| self.rows.get(index));
        row.is_none_or(|row| row.is_some_and(|row| row.counted))
    }

    /// The tool that stands in for this one where calls are to go to `to`.
    pub fn stand_in(&self, index: usize, to: &str) -> Option<usize> {
        // Rare enough for a copy of the name.
        self.stand_ins.get(&(index, to.into())).copied()
    }
}

impl Row {
    fn subject<'a>(&'a self, whose: &Subject<'a>) -> Subject<'a> {
        let (upstream, risk) = (&*self.upstream, self.risk);
        let tool = self.is_tool.then_some(Tool { name: &self.name, upstream, risk });
        let other = (!self.is_tool).then_some(Other { upstream, risk });
        Subject { tool, other, ..*whose }
    }
}

// === impl Quotas ===

impl Quotas {
    /// Works out what the quotas have to do with a catalog; an item's index is its place.
    /// `fits` says whether what is sent to the first tool can be sent to the second.
    pub fn bind<'a>(
        &self,
        items: impl IntoIterator<Item = Item<'a>>,
        fits: impl Fn(usize, usize) -> bool,
    ) -> Board {
        let mut board = Board::default();
        if self.is_empty() {
            return board;
        }
        for item in items {
            let Item { name, upstream, is_tool, risk, cost } = item;
            let mut row = Row {
                name: name.into(),
                upstream: upstream.into(),
                is_tool,
                risk,
                cost,
                passed: Bits::new(),
                counted: false,
            };
            let tool = is_tool.then_some(Tool { name, upstream, risk });
            let other = (!is_tool).then_some(Other { upstream, risk });
            row.passed = self.scopes.passed(&nobody(tool, other));
            row.counted =
                cost > 0 && self.scopes.all_quotas().any(|quota| quota.is_about(&row.passed));
            board.dearest = board.dearest.max(if row.counted { cost } else { 0 });
            board.rows.push(row);
        }
        self.find_stand_ins(&mut board, fits);
        self.ledger.set_dearest(board.dearest);
        let tools = board.rows.iter().filter(|row| row.is_tool);
        self.scopes.bind(tools.map(|row| Tool {
            name: &row.name,
            upstream: &row.upstream,
            risk: row.risk,
        }));
        board
    }

    fn find_stand_ins(&self, board: &mut Board, fits: impl Fn(usize, usize) -> bool) {
        let tools = board.rows.iter().enumerate().filter(|(_, row)| row.is_tool);
        let names: HashMap<&str, usize> = tools.map(|(at, row)| (&*row.name, at)).collect();
        let (mut found, mut seen) = (HashMap::new(), HashSet::new());
        for quota in self.scopes.all_quotas() {
            for step in &quota.limit.allowance.budget.steps {
                let Action::Degrade { to, .. } = &step.action else { continue };
                let Some((target, cheap)) =
                    names.get(&**to).and_then(|at| Some((*at, board.rows.get(*at)?)))
                else {
                    continue;
                };
                for (index, row) in board.rows.iter().enumerate() {
                    let costs_more = row.is_tool && row.cost > cheap.cost;
                    if costs_more
                        && quota.is_about(&row.passed)
                        && seen.insert((index, target))
                        && fits(index, target)
                    {
                        found.insert((index, to.clone()), target);
                    }
                }
            }
        }
        board.stand_ins = found;
    }

    /// The tools that are to be degraded and have nothing to stand in for them, with where their
    /// calls were to go: they will be refused instead.
    pub fn misfits(&self, board: &Board) -> Vec<(Box<str>, Box<str>)> {
        let mut misfits = Vec::new();
        for quota in self.scopes.all_quotas() {
            for step in &quota.limit.allowance.budget.steps {
                let Action::Degrade { to, .. } = &step.action else { continue };
                let about = board.rows.iter().enumerate().filter(|(_, row)| {
                    let is_dear = step.action.concerns(row.cost.into()) && *row.name != **to;
                    row.is_tool && row.counted && is_dear && quota.is_about(&row.passed)
                });
                let alone = about.filter(|(index, _)| board.stand_in(*index, to).is_none());
                misfits.extend(alone.map(|(_, row)| (row.name.clone(), to.clone())));
            }
        }
        misfits.sort();
        misfits.dedup();
        misfits
    }

    /// What is stopped for whoever this is about, whatever it is about.
    ///
    /// # Errors
    /// The store has to be asked first: [`Quotas::learn`].
    pub fn sight(&self, whose: &Subject<'_>, board: &Board) -> Result<Sight, Unknown> {
        let mut verdicts: HashMap<usize, Verdict> = HashMap::new();
        let mut unknown = Vec::new();
        let quotas = self.scopes.quotas_of(whose.tenant);
        for quota in quotas.filter(|quota| quota.limit.allowance.budget.stops_anything()) {
            if quota.per.iter().any(|dimension| dimension.is_of_item()) {
                for (index, row) in board.rows.iter().enumerate().filter(|(_, row)| row.counted) {
                    if quota.is_about(&row.passed) {
                        match self.standing(quota, &row.subject(whose)) {
                            Some(Ok(used)) => quota.judge(index, row, used, &mut verdicts),
                            Some(Err(account)) => unknown.push(account),
                            None => {}
                        }
                    }
                }
                continue;
            }
            match self.standing(quota, whose) {
                Some(Ok(used)) => {
                    let from = quota.limit.allowance.budget.stops_from(used);
                    if from.is_none_or(|from| from > u64::from(board.dearest)) {
                        continue;
                    }
                    let rows = board.rows.iter().enumerate().filter(|(_, row)| row.counted);
                    for (index, row) in rows.filter(|(_, row)| quota.is_about(&row.passed)) {
                        quota.judge(index, row, used, &mut verdicts);
                    }
                }
                Some(Err(account)) => unknown.push(account),
                None => {}
            }
        }
        if !unknown.is_empty() {
            return Err(Unknown(unknown));
        }
        Ok(Sight::of(verdicts, board))
    }

    /// Asks the store about these accounts, and waits for it.
    pub async fn learn(&self, unknown: Unknown) {
        self.ledger.load(unknown.0).await;
    }

    /// What is spent of the account of this key.
    fn standing(
        &self,
        quota: &Placed<super::QuotaLimit>,
        subject: &Subject<'_>,
    ) -> Option<Result<u64, Arc<Account>>> {
        let key = key(quota.number, &quota.per, subject)?;
        let account = self.ledger.account(&quota.limit, &key, subject.tenant);
        Some(self.ledger.standing(&account, &quota.limit).ok_or(account))
    }
}

/// What all quotas together say of an item: where one stops it, it is stopped.
enum Verdict {
    Stopped,
    Degraded(Box<str>),
}

impl Placed<super::QuotaLimit> {
    fn judge(&self, index: usize, row: &Row, used: u64, verdicts: &mut HashMap<usize, Verdict>) {
        match self.limit.allowance.budget.judge(used, u64::from(row.cost)) {
            Judgement::Passes => {}
            Judgement::Stops(_) => {
                verdicts.insert(index, Verdict::Stopped);
            }
            Judgement::Degrades(step) => {
                if let Action::Degrade { to, .. } = &step.action {
                    // The first quota says where to, as it does in a call.
                    verdicts.entry(index).or_insert_with(|| Verdict::Degraded(to.clone()));
                }
            }
        }
    }
}

impl Sight {
    fn of(verdicts: HashMap<usize, Verdict>, board: &Board) -> Self {
        let mut sight = Self::default();
        for (index, verdict) in verdicts {
            match verdict {
                Verdict::Stopped => sight.stopped.push(index),
                Verdict::Degraded(to) => match board.stand_in(index, &to) {
                    Some(target) => sight.degraded.push((index, target)),
                    None => sight.stopped.push(index),
                },
            }
        }
        sight.stopped.sort_unstable();
        sight.degraded.sort_unstable();
        sight
    }

    pub fn is_clear(&self) -> bool {
        self.stopped.is_empty() && self.degraded.is_empty()
    }
}

fn nobody<'a>(tool: Option<Tool<'a>>, other: Option<Other<'a>>) -> Subject<'a> {
    let address = std::net::Ipv4Addr::UNSPECIFIED.into();
    Subject { tenant: "", caller: "", employee: None, tool, other, address }
}
