//! Instruments and the series they consist of.
//!
//! A known series is found without a lock: the table is read through a pointer that is swapped
//! when a series is added, which becomes rare soon after the start. What the series mean, and how
//! they are printed, is not known here.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use smallvec::SmallVec;

/// Most series of an instrument; what is new after that is counted under folded labels.
pub(super) const MAX_SERIES: usize = 2000;

/// The labels of a series, as they are kept and as they are looked up.
pub(super) trait Labels: Sized + Send + Sync {
    type Parts<'a>: Copy + Hash;

    fn own(parts: Self::Parts<'_>) -> Self;
    fn is(&self, parts: &Self::Parts<'_>) -> bool;
    /// The same labels with `_OTHER` for whatever has many values.
    fn fold<'a>(parts: Self::Parts<'a>) -> Self::Parts<'a>;
    /// Gives each label that has a value.
    fn each(&self, give: &mut dyn FnMut(&'static str, &str));
}

/// One series.
pub(super) struct Entry<L, S> {
    pub labels: L,
    pub series: S,
}

/// The series that share a hash; more than one would be a great coincidence.
type Slot<L, S> = SmallVec<[Arc<Entry<L, S>>; 1]>;
type Table<L, S> = HashMap<u64, Slot<L, S>, BuildHasherDefault<Ready>>;

/// An instrument with labels.
pub(super) struct Family<L, S> {
    table: ArcSwap<Table<L, S>>,
    /// Held to add a series; counts them.
    grow: Mutex<usize>,
    make: fn() -> S,
}

// === impl Family ===

impl<L: Labels, S> Family<L, S> {
    pub fn new(make: fn() -> S) -> Self {
        Self { table: ArcSwap::default(), grow: Mutex::new(0), make }
    }

    /// Lets `record` have the series of these labels.
    #[inline]
    pub fn with(&self, parts: L::Parts<'_>, record: impl Fn(&S)) {
        if self.known(parts, &record) {
            return;
        }
        let folded = L::fold(parts);
        if *self.grow.lock() >= MAX_SERIES {
            if !self.known(folded, &record) {
                self.add(folded, &record);
            }
        } else {
            self.add(parts, &record);
        }
    }

    #[inline]
    fn known(&self, parts: L::Parts<'_>, record: impl Fn(&S)) -> bool {
        let table = self.table.load();
        let slot = table.get(&hash(&parts));
        let entry = slot.and_then(|slot| slot.iter().find(|entry| entry.labels.is(&parts)));
        entry.inspect(|entry| record(&entry.series)).is_some()
    }

    fn add(&self, parts: L::Parts<'_>, record: impl Fn(&S)) {
        let mut count = self.grow.lock();
        // Somebody may have been faster.
        if self.known(parts, &record) {
            return;
        }
        let entry = Arc::new(Entry { labels: L::own(parts), series: (self.make)() });
        record(&entry.series);
        let mut table = Table::clone(&self.table.load());
        table.entry(hash(&parts)).or_default().push(entry);
        self.table.store(Arc::new(table));
        *count += 1;
    }

    /// Every series there is.
    pub fn all(&self) -> Vec<Arc<Entry<L, S>>> {
        self.table.load().values().flatten().cloned().collect()
    }

    /// Drops the series that `keep` does not want.
    pub fn retain(&self, keep: impl Fn(&L, &S) -> bool) {
        let mut count = self.grow.lock();
        let mut table = Table::clone(&self.table.load());
        for slot in table.values_mut() {
            slot.retain(|entry| keep(&entry.labels, &entry.series));
        }
        table.retain(|_, slot| !slot.is_empty());
        *count = table.values().map(SmallVec::len).sum();
        self.table.store(Arc::new(table));
    }
}

fn hash(parts: &impl Hash) -> u64 {
    BuildHasherDefault::<Mix>::default().hash_one(parts)
}

/// A quick hasher. Labels come from the configuration and the catalog, not from callers, so that
/// nobody can choose them to collide.
#[derive(Default)]
pub(super) struct Mix(u64);

impl Mix {
    #[inline]
    fn add(&mut self, word: u64) {
        const ODD: u64 = 0xf135_7aea_2e62_a9c5;
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(ODD);
    }
}

impl Hasher for Mix {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((word, more)) = rest.split_first_chunk() {
            self.add(u64::from_le_bytes(*word));
            rest = more;
        }
        // What is left, read as overlapping halves rather than byte by byte.
        if let (Some(low), Some(high)) = (rest.first_chunk(), rest.last_chunk()) {
            let (low, high) = (u32::from_le_bytes(*low), u32::from_le_bytes(*high));
            self.add(u64::from(low) << 32 | u64::from(high));
        } else if let (Some(first), Some(last)) = (rest.first(), rest.last()) {
            let middle = rest.get(rest.len() / 2).copied().unwrap_or_default();
            self.add(u64::from_be_bytes([0, 0, 0, 0, 0, *first, middle, *last]));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(value.into());
    }

    fn write_u16(&mut self, value: u16) {
        self.add(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

/// For keys that are hashes already.
#[derive(Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys of a table are u64");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Goes up.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Goes up and down.
#[derive(Default)]
pub(super) struct Gauge(AtomicI64);

impl Gauge {
    pub fn add(&self, count: i64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of a histogram's buckets, in nanoseconds.
pub(super) type Bounds = &'static [u64];

const fn micros<const N: usize>(bounds: [u64; N]) -> [u64; N] {
    let mut nanos = bounds;
    let mut at = 0;
    while at < N {
        nanos[at] *= 1000;
        at += 1;
    }
    nanos
}

/// Buckets M of the contract: operations.
pub(super) const OPERATION: Bounds = &micros([
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
]);

/// Buckets H of the contract: HTTP requests.
pub(super) const HTTP: Bounds = &micros([
    5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 250_000, 500_000, 750_000, 1_000_000,
    2_500_000, 5_000_000, 7_500_000, 10_000_000,
]);

/// Buckets U of the contract: what the gateway does itself.
pub(super) const OWN: Bounds =
    &micros([10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 50_000, 100_000]);

/// A trace that is an example of a bucket's values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exemplar {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub nanos: u64,
    pub ms: u64,
}

struct Bucket {
    count: AtomicU64,
    exemplar: Mutex<Option<Exemplar>>,
}

/// Durations.
pub(super) struct Histogram {
    pub bounds: Bounds,
    /// One more than there are bounds.
    buckets: Box<[Bucket]>,
    nanos: AtomicU64,
}

impl Histogram {
    pub fn new(bounds: Bounds) -> Self {
        let bucket = |_| Bucket { count: AtomicU64::new(0), exemplar: Mutex::new(None) };
        Self { bounds, buckets: (0..=bounds.len()).map(bucket).collect(), nanos: 0.into() }
    }

    /// Counts a duration; an exemplar's own is filled in.
    pub fn observe(&self, took: Duration, exemplar: Option<Exemplar>) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let index = self.bounds.iter().take_while(|bound| nanos > **bound).count();
        // There is a bucket above the last bound.
        let Some(bucket) = self.buckets.get(index) else { return };
        bucket.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        if let Some(exemplar) = exemplar {
            // Whoever holds it is putting in an exemplar that is as good.
            if let Some(mut slot) = bucket.exemplar.try_lock() {
                *slot = Some(Exemplar { nanos, ..exemplar });
            }
        }
    }

    /// Count and exemplar of each bucket, from the lowest.
    pub fn read(&self) -> impl Iterator<Item = (u64, Option<Exemplar>)> {
        self.buckets
            .iter()
            .map(|bucket| (bucket.count.load(Ordering::Relaxed), *bucket.exemplar.lock()))
    }

    pub fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }
}
