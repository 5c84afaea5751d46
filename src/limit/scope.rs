//! Which limits are about which call.
//!
//! A call meets the limits of everybody and those of its tenant, so the number of tenants does
//! not matter to it. What a limit says of tools (`upstreams`, `tools`, `risks`) is a filter;
//! equal filters are kept once, and a row of bits per tool says which of them it passes, so the
//! number of tools does not matter either.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use smallvec::SmallVec;

use super::{
    RateLimit, SlotLimit,
    keys::{address_key, key},
    quota::{QuotaLimit, counts_alike},
    spec::{Dimension, Kind, LimitFault, LimitSpec, Other, Subject, Tool},
};
use crate::model::{
    caller::TenantId,
    server::{Risk, UpstreamName},
};

/// All limits, by whom they are about.
#[derive(Default)]
pub(super) struct Scopes {
    everybody: Group,
    tenants: HashMap<TenantId, Group, RandomState>,
    /// Rates of everybody that count by address and nothing else.
    addresses: Vec<Placed<RateLimit>>,
    filters: Filters,
    bound: ArcSwap<HashMap<Box<str>, Row, RandomState>>,
    known: HashMap<(Option<TenantId>, Arc<str>), Known>,
    next_number: u32,
    has_quotas: bool,
}

#[derive(Default)]
struct Group {
    rates: Vec<Placed<RateLimit>>,
    slots: Vec<Placed<SlotLimit>>,
    quotas: Vec<Placed<QuotaLimit>>,
}

/// A limit at its place.
pub(super) struct Placed<L> {
    /// Tells its keys from other limits', and gives the order in which counters are locked.
    pub number: u32,
    pub per: SmallVec<[Dimension; 3]>,
    /// `None`: about every call.
    filter: Option<usize>,
    pub limit: Arc<L>,
}

/// A limit as it was written, to be recognised when the same comes again.
struct Known {
    spec: LimitSpec,
    number: u32,
    built: Built,
}

#[derive(Clone)]
enum Built {
    Rate(Arc<RateLimit>),
    Slots(Arc<SlotLimit>),
    Quota(Arc<QuotaLimit>),
}

/// Which filters a tool of this risk passes.
struct Row {
    risk: Risk,
    bits: Bits,
}

/// The filters that something passes.
pub(super) type Bits = SmallVec<[u64; 2]>;

#[derive(Default)]
struct Filters {
    all: Vec<Filter>,
    /// Every glob of every filter, so that a tool is matched against them in one go.
    globs: GlobSet,
    /// The filter of each glob.
    owners: Vec<usize>,
}

#[derive(PartialEq, Eq, Hash, Clone)]
struct Filter {
    upstreams: Vec<UpstreamName>,
    tools: Vec<Box<str>>,
    risks: Vec<Risk>,
}

// === impl Scopes ===

impl Scopes {
    /// Puts every limit at its place; what `previous` already had keeps its number, and with it
    /// its counters.
    pub fn new(specs: Vec<LimitSpec>, previous: Option<&Scopes>) -> Result<Self, LimitFault> {
        let mut scopes = Self {
            everybody: Group::default(),
            tenants: HashMap::default(),
            addresses: Vec::new(),
            filters: Filters::new(&specs)?,
            bound: ArcSwap::default(),
            known: HashMap::new(),
            next_number: previous.map_or(0, |previous| previous.next_number),
            has_quotas: false,
        };
        for spec in specs {
            scopes.place(spec, previous)?;
        }
        scopes.check_ids()?;
        scopes.sort();
        Ok(scopes)
    }

    fn place(&mut self, spec: LimitSpec, previous: Option<&Scopes>) -> Result<(), LimitFault> {
        check(&spec)?;
        let name = (spec.tenant.clone(), spec.id.clone());
        if self.known.contains_key(&name) {
            return Err(LimitFault::RepeatedId(spec.id));
        }
        let kept = previous.and_then(|previous| previous.known.get(&name));
        let (number, built) = match kept {
            Some(kept) if kept.spec == spec => (kept.number, kept.built.clone()),
            Some(kept) if counts_alike(&kept.spec, &spec) => (kept.number, Built::new(&spec)?),
            _ => {
                self.next_number += 1;
                (self.next_number, Built::new(&spec)?)
            }
        };
        let filter = self.filters.index_of(&spec);
        let per = spec.per.clone();
        let by_address =
            spec.tenant.is_none() && filter.is_none() && per.as_slice() == [Dimension::Address];
        let group = match &spec.tenant {
            Some(tenant) => self.tenants.entry(tenant.clone()).or_default(),
            None => &mut self.everybody,
        };
        match built.clone() {
            Built::Rate(limit) if by_address => {
                self.addresses.push(Placed { number, per, filter, limit });
            }
            Built::Rate(limit) => group.rates.push(Placed { number, per, filter, limit }),
            Built::Slots(limit) => group.slots.push(Placed { number, per, filter, limit }),
            Built::Quota(limit) => {
                self.has_quotas = true;
                group.quotas.push(Placed { number, per, filter, limit });
            }
        }
        self.known.insert(name, Known { spec, number, built });
        Ok(())
    }

    /// A call meets the limits of everybody and of its tenant: there, an id is to name one.
    fn check_ids(&self) -> Result<(), LimitFault> {
        for (tenant, id) in self.known.keys() {
            if tenant.is_some() && self.known.contains_key(&(None, id.clone())) {
                return Err(LimitFault::RepeatedId(id.clone()));
            }
        }
        Ok(())
    }

    /// By number, so that the limits of before a reload and of after it lock in one order: those
    /// of everybody first, then the tenant's.
    fn sort(&mut self) {
        self.addresses.sort_by_key(|placed| placed.number);
        for group in self.tenants.values_mut().chain([&mut self.everybody]) {
            group.rates.sort_by_key(|placed| placed.number);
            group.slots.sort_by_key(|placed| placed.number);
            group.quotas.sort_by_key(|placed| placed.number);
        }
    }

    pub fn bind<'a>(&self, tools: impl IntoIterator<Item = Tool<'a>>) {
        if self.filters.all.is_empty() {
            return;
        }
        let rows = tools.into_iter().map(|tool| {
            (tool.name.into(), Row { risk: tool.risk, bits: self.filters.passed_by(tool) })
        });
        self.bound.store(Arc::new(rows.collect()));
    }

    /// The rates that are about this call, and the key under which each counts it.
    pub fn rates<'a>(&'a self, subject: &Subject<'_>, found: impl FnMut(&'a RateLimit, &[u8])) {
        self.each(subject, |group| &group.rates, found);
    }

    /// The limits on concurrency that are about this call.
    pub fn slots<'a>(&'a self, subject: &Subject<'_>, found: impl FnMut(&'a SlotLimit, &[u8])) {
        self.each(subject, |group| &group.slots, found);
    }

    /// The quotas that are about this call.
    pub fn quotas<'a>(&'a self, subject: &Subject<'_>, found: impl FnMut(&'a QuotaLimit, &[u8])) {
        self.each(subject, |group| &group.quotas, found);
    }

    /// Asked for each call, and there may be thousands of tenants.
    pub fn is_without_quotas(&self) -> bool {
        !self.has_quotas
    }

    /// The quotas that a tenant's callers can meet.
    pub fn quotas_of(&self, tenant: &str) -> impl Iterator<Item = &Placed<QuotaLimit>> {
        let own = if self.tenants.is_empty() { None } else { self.tenants.get(tenant) };
        [Some(&self.everybody), own].into_iter().flatten().flat_map(|group| &group.quotas)
    }

    /// Every quota there is.
    pub fn all_quotas(&self) -> impl Iterator<Item = &Placed<QuotaLimit>> {
        let groups = [&self.everybody].into_iter().chain(self.tenants.values());
        groups.flat_map(|group| &group.quotas)
    }

    /// The filters that something passes.
    pub fn passed(&self, subject: &Subject<'_>) -> Bits {
        match (subject.tool, subject.other) {
            (Some(tool), _) => self.passed_by(tool),
            (None, Some(other)) => {
                let mut bits = Bits::from_elem(0, self.filters.all.len().div_ceil(64));
                for filter in 0..self.filters.all.len() {
                    if self.filters.lets_through(filter, other) {
                        set(&mut bits, filter);
                    }
                }
                bits
            }
            (None, None) => Bits::new(),
        }
    }

    /// The rates that are about every call from this address.
    pub fn address_rates<'a>(
        &'a self,
        address: IpAddr,
        mut found: impl FnMut(&'a RateLimit, &[u8]),
    ) {
        for placed in &self.addresses {
            found(&placed.limit, &address_key(placed.number, address));
        }
    }

    /// In the order in which they are locked.
    fn each<'a, L: 'a>(
        &'a self,
        subject: &Subject<'_>,
        part: impl Fn(&'a Group) -> &'a Vec<Placed<L>>,
        mut found: impl FnMut(&'a L, &[u8]),
    ) {
        let everybody = part(&self.everybody);
        let tenant = if self.tenants.is_empty() { None } else { self.tenants.get(subject.tenant) };
        let mut bits: Option<Bits> = None;
        for placed in everybody.iter().chain(tenant.map(part).into_iter().flatten()) {
            let passes = match (placed.filter, subject.tool) {
                (None, _) => true,
                (Some(filter), None) => {
                    subject.other.is_some_and(|other| self.filters.lets_through(filter, other))
                }
                (Some(filter), Some(tool)) => {
                    has(bits.get_or_insert_with(|| self.passed_by(tool)), filter)
                }
            };
            if passes && let Some(key) = key(placed.number, &placed.per, subject) {
                found(&placed.limit, &key);
            }
        }
    }

    fn passed_by(&self, tool: Tool<'_>) -> Bits {
        match self.bound.load().get(tool.name) {
            Some(row) if row.risk == tool.risk => row.bits.clone(),
            // Newer than the last `bind`.
            _ => self.filters.passed_by(tool),
        }
    }
}

impl<L> Placed<L> {
    /// Whether it is about what passes these filters.
    pub fn is_about(&self, passed: &Bits) -> bool {
        self.filter.is_none_or(|filter| has(passed, filter))
    }
}

impl Built {
    fn new(spec: &LimitSpec) -> Result<Self, LimitFault> {
        let id = spec.id.clone();
        match &spec.kind {
            Kind::Rate(rate) => RateLimit::new(id.clone(), *rate, &spec.per)
                .map(|limit| Built::Rate(Arc::new(limit)))
                .ok_or(LimitFault::Rate(id)),
            Kind::Concurrency(limit) => SlotLimit::new(id.clone(), *limit)
                .map(|limit| Built::Slots(Arc::new(limit)))
                .ok_or(LimitFault::Slots(id)),
            Kind::Quota(allowance) => Ok(Built::Quota(Arc::new(QuotaLimit::new(spec, allowance)))),
        }
    }
}

fn check(spec: &LimitSpec) -> Result<(), LimitFault> {
    let legal = (1..=64).contains(&spec.id.len()) && spec.id.bytes().all(|b| b.is_ascii_graphic());
    if !legal {
        return Err(LimitFault::Id(spec.id.clone()));
    }
    if spec.per.is_empty() {
        return Err(LimitFault::NothingCounted(spec.id.clone()));
    }
    Ok(())
}

// === impl Filters ===

impl Filters {
    fn new(specs: &[LimitSpec]) -> Result<Self, LimitFault> {
        let mut filters = Self::default();
        let mut globs = GlobSetBuilder::new();
        let mut seen = HashMap::new();
        for spec in specs {
            let Some(filter) = Filter::of(spec) else { continue };
            let index = filters.all.len();
            if seen.insert(filter.clone(), index).is_some() {
                continue;
            }
            for glob in &filter.tools {
                globs.add(compiled(glob).map_err(|_| bad_glob(spec, glob))?);
                filters.owners.push(index);
            }
            filters.all.push(filter);
        }
        // Each was compiled alone; together they can only be too much.
        filters.globs = globs.build().map_err(|_| LimitFault::TooManyGlobs)?;
        Ok(filters)
    }

    fn index_of(&self, spec: &LimitSpec) -> Option<usize> {
        let filter = Filter::of(spec)?;
        self.all.iter().position(|known| *known == filter)
    }

    /// Whether a filter is about a thing that is no tool; one that names tools is not.
    fn lets_through(&self, filter: usize, other: Other<'_>) -> bool {
        self.all.get(filter).is_some_and(|filter| {
            filter.tools.is_empty() && filter.suits(other.upstream, other.risk)
        })
    }

    fn passed_by(&self, tool: Tool<'_>) -> Bits {
        let mut named = Bits::from_elem(0, self.all.len().div_ceil(64));
        for glob in self.globs.matches(tool.name) {
            if let Some(owner) = self.owners.get(glob) {
                set(&mut named, *owner);
            }
        }
        let mut passed = Bits::from_elem(0, named.len());
        for (index, filter) in self.all.iter().enumerate() {
            let suits = filter.suits(tool.upstream, tool.risk);
            if suits && (filter.tools.is_empty() || has(&named, index)) {
                set(&mut passed, index);
            }
        }
        passed
    }
}

impl Filter {
    fn suits(&self, upstream: &str, risk: Risk) -> bool {
        let is_named = self.upstreams.iter().any(|named| named.as_str() == upstream);
        (self.upstreams.is_empty() || is_named)
            && (self.risks.is_empty() || self.risks.contains(&risk))
    }

    fn of(spec: &LimitSpec) -> Option<Self> {
        let mut filter = Self {
            upstreams: spec.upstreams.clone(),
            tools: spec.tools.clone(),
            risks: spec.risks.clone(),
        };
        filter.upstreams.sort();
        filter.tools.sort();
        filter.risks.sort();
        let any = filter.upstreams.is_empty() && filter.tools.is_empty() && filter.risks.is_empty();
        (!any).then_some(filter)
    }
}

/// As in the rules of policy: `*` is anything, also `/` and also twice; upper and lower case
/// differ.
fn compiled(glob: &str) -> Result<Glob, globset::Error> {
    let mut glob = glob.to_owned();
    // To `globset`, `**` between slashes is something else again.
    while !glob.contains(['?', '[', ']', '{', '}', '\\']) && glob.contains("**") {
        glob = glob.replace("**", "*");
    }
    GlobBuilder::new(&glob).literal_separator(false).backslash_escape(true).build()
}

fn bad_glob(spec: &LimitSpec, glob: &str) -> LimitFault {
    LimitFault::Glob { id: spec.id.clone(), glob: glob.into() }
}

fn has(bits: &Bits, index: usize) -> bool {
    bits.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
}

fn set(bits: &mut Bits, index: usize) {
    if let Some(word) = bits.get_mut(index / 64) {
        *word |= 1 << (index % 64);
    }
}
