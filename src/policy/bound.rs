//! Policies bound to a catalog: which items each rule is about, as bits.
//!
//! A glob is matched when somebody first needs it, and once for all rules that say it, so that
//! the rules of ten thousand tenants cost nothing when the catalog changes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};

use super::{
    BitSet, Family, ItemPolicy, OnHold, Reach, Reason, RiskSet, Rule, Subject, compile::Compiled,
    glob::Glob,
};
use crate::model::server::Risk;

/// Sets of bits that are kept to be shared; beyond that the unused are forgotten.
const MAX_SHARED: usize = 4_096;

/// What every view of a set shares.
#[derive(Debug)]
pub struct Bound {
    pub policies: Arc<Compiled>,
    pub items: Vec<ItemPolicy>,
    /// Family and `upstream/name` of each item.
    pub names: Vec<(Family, Box<str>)>,
    pub classified: BitSet,
    /// What may not be called whatever the rules say: its definition is not an approved one.
    pub held: BitSet,
    /// Why, of each of these.
    pub held_for: HashMap<usize, Reason>,
    /// The items of each family, by name: what a glob can match stands side by side.
    sorted: [Vec<u32>; 3],
    /// Other names of items: of those that are an operator's, too.
    others: Vec<(Family, Box<str>, usize)>,
    families: [BitSet; 3],
    risks: [BitSet; 4],
    /// By family and the place of a glob, which the policies keep alive.
    globs: RwLock<HashMap<(Family, usize), Arc<BitSet>>>,
    shared: Mutex<HashSet<Arc<BitSet>>>,
}

impl Bound {
    pub fn new(
        policies: Arc<Compiled>,
        subjects: &[Subject<'_>],
        on_hold: &[OnHold],
        at_least: &[Option<Risk>],
    ) -> Self {
        let count = subjects.len();
        let mut held = BitSet::new(count);
        let held_for: HashMap<_, _> = on_hold
            .iter()
            .map(|(item, why)| (item.get(), *why))
            .filter(|(at, _)| *at < count)
            .collect();
        held_for.keys().for_each(|at| held.insert(*at));
        let said = at_least.iter().copied().chain(std::iter::repeat(None));
        let items = subjects.iter().zip(said);
        let items: Vec<_> =
            items.map(|(subject, said)| policies.item_raised(*subject, said)).collect();
        let names: Vec<(Family, Box<str>)> =
            subjects.iter().map(|subject| (subject.family, subject.full().into())).collect();
        let others = subjects.iter().enumerate().flat_map(|(index, subject)| {
            let operators = policies.operators.get(subject.upstream).into_iter().flatten();
            operators.map(move |name| {
                let full = Subject { upstream: name, ..*subject }.full();
                (subject.family, full.into(), index)
            })
        });
        let others = others.collect();
        let all_with = |wanted: &dyn Fn(usize) -> bool| {
            let mut bits = BitSet::new(count);
            (0..count).filter(|index| wanted(*index)).for_each(|index| bits.insert(index));
            bits
        };
        let item =
            |index: usize, test: &dyn Fn(&ItemPolicy) -> bool| items.get(index).is_some_and(test);
        let of =
            |index: usize, family: Family| names.get(index).is_some_and(|(own, _)| *own == family);
        let sorted = Family::ALL.map(|family| {
            let mut own: Vec<u32> = (0..count)
                .filter(|index| of(*index, family))
                .filter_map(|index| u32::try_from(index).ok())
                .collect();
            own.sort_by_key(|index| names.get(*index as usize).map(|(_, name)| name));
            own
        });
        Self {
            classified: all_with(&|index| item(index, &|item| item.classified)),
            families: Family::ALL.map(|family| all_with(&|index| of(index, family))),
            risks: Risk::ALL.map(|risk| all_with(&|index| item(index, &|item| item.risk == risk))),
            held,
            held_for,
            sorted,
            others,
            policies,
            items,
            names,
            globs: RwLock::default(),
            shared: Mutex::default(),
        }
    }

    /// The items that a rule is about, whatever the arguments.
    pub fn selected_by(&self, rule: &Rule) -> Arc<BitSet> {
        let mut bits = BitSet::new(self.names.len());
        for family in Family::ALL {
            match rule.globs.of(family) {
                Reach::All => bits.add_all(&self.families[family as usize]), // one for each family
                Reach::Nothing => {}
                Reach::Globs(globs) => {
                    for glob in globs {
                        bits.add_all(&self.matched_by(family, &glob.glob));
                    }
                }
            }
        }
        if let Some(risks) = rule.risk {
            bits.keep_only(&self.of_risks(risks));
        }
        self.share(bits)
    }

    fn of_risks(&self, risks: RiskSet) -> BitSet {
        let mut bits = BitSet::new(self.names.len());
        for risk in risks.iter() {
            bits.add_all(&self.risks[risk as usize]); // one for each risk
        }
        bits
    }

    fn matched_by(&self, family: Family, glob: &Arc<Glob>) -> Arc<BitSet> {
        let key = (family, Arc::as_ptr(glob) as usize);
        if let Some(known) = self.globs.read().get(&key) {
            return known.clone();
        }
        let mut bits = BitSet::new(self.names.len());
        let beginning = glob.plain_beginning();
        let own = &self.sorted[family as usize]; // one for each family
        let name = |index: &u32| self.names.get(*index as usize).map_or("", |(_, name)| name);
        let start = own.partition_point(|index| name(index) < beginning);
        for index in own.iter().skip(start) {
            let name = name(index);
            if !name.starts_with(beginning) {
                break;
            }
            if glob.matches(name) {
                bits.insert(*index as usize);
            }
        }
        for (of, name, index) in &self.others {
            if *of == family && glob.matches(name) {
                bits.insert(*index);
            }
        }
        let bits = self.share(bits);
        self.globs.write().insert(key, bits.clone());
        bits
    }

    /// The same bits, once for all who have them.
    pub fn share(&self, bits: BitSet) -> Arc<BitSet> {
        let mut shared = self.shared.lock();
        if let Some(known) = shared.get(&bits) {
            return known.clone();
        }
        // Views that were forgotten leave their bits behind.
        if shared.len() >= MAX_SHARED {
            shared.retain(|bits| Arc::strong_count(bits) > 1);
        }
        let bits = Arc::new(bits);
        shared.insert(bits.clone());
        bits
    }
}
