//! A bounded map from what calls are told apart by to what has been counted.
//!
//! It does not know what is counted, only when a count may be forgotten: when nobody holds it
//! and its owner says that it is back where it began.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use dashmap::{DashMap, Entry};
use smallvec::SmallVec;

use super::spec::{Dimension, Subject};

/// The number of a limit and the call's value for each of its dimensions.
pub(super) type Key = SmallVec<[u8; 88]>;

/// Between values. No value but an address can hold this byte, and an address has a fixed
/// length, so two different calls never have the same key.
const END: u8 = 0xff;

/// The key under which limit `number` counts this call; `None` if the call lacks a dimension.
pub(super) fn key(number: u32, per: &[Dimension], subject: &Subject<'_>) -> Option<Key> {
    let mut key = Key::new();
    key.extend_from_slice(&number.to_be_bytes());
    for dimension in per {
        let value = match dimension {
            Dimension::Tenant => subject.tenant,
            Dimension::Caller => subject.caller,
            Dimension::Principal => {
                // An employee's id means something within his tenant only, and must not be
                // taken for a caller of the same name.
                key.extend_from_slice(subject.tenant.as_bytes());
                key.push(END);
                key.push(u8::from(subject.employee.is_some()));
                subject.employee.unwrap_or(subject.caller)
            }
            Dimension::Tool => subject.tool?.name,
            Dimension::Upstream => subject.upstream()?,
            Dimension::Risk => subject.risk()?.as_str(),
            Dimension::Address => {
                push_address(&mut key, subject.address);
                continue;
            }
        };
        key.extend_from_slice(value.as_bytes());
        key.push(END);
    }
    Some(key)
}

/// The key under which limit `number`, which counts by address alone, counts this address.
pub(super) fn address_key(number: u32, address: std::net::IpAddr) -> Key {
    let mut key = Key::new();
    key.extend_from_slice(&number.to_be_bytes());
    push_address(&mut key, address);
    key
}

fn push_address(key: &mut Key, address: std::net::IpAddr) {
    // Eight bytes either way; the first of an IPv4 one belong to no IPv6 network in use.
    match address.to_canonical() {
        std::net::IpAddr::V4(v4) => {
            key.extend_from_slice(&[0, 0, 0, 0]);
            key.extend_from_slice(&v4.octets());
        }
        std::net::IpAddr::V6(v6) => key.extend(v6.octets().into_iter().take(8)),
    }
}

/// Counters by key. Whoever uses one holds an `Arc` of it, taken while the map was locked
/// against removal; so one that only the map holds is used by nobody.
pub(super) struct Keys<V> {
    map: DashMap<Box<[u8]>, Arc<V>>,
    len: AtomicUsize,
    max: usize,
    /// Before this time, a full map is not searched again for what may be forgotten.
    next_search: AtomicU64,
}

impl<V> Keys<V> {
    pub fn new(max: usize) -> Self {
        Self { map: DashMap::new(), len: AtomicUsize::new(0), max, next_search: AtomicU64::new(0) }
    }

    /// The counter of `key`, made if there is none; `None` if there is no room for another.
    pub fn get_or_make(&self, key: &[u8], make: impl FnOnce() -> V) -> Option<Arc<V>> {
        if let Some(found) = self.map.get(key) {
            return Some(found.clone());
        }
        if self.len.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.len.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        match self.map.entry(key.into()) {
            Entry::Occupied(found) => {
                self.len.fetch_sub(1, Ordering::Relaxed);
                Some(found.get().clone())
            }
            Entry::Vacant(place) => Some(place.insert(Arc::new(make())).clone()),
        }
    }

    /// Forgets what nobody holds and `idle` agrees to.
    pub fn forget(&self, idle: impl Fn(&V) -> bool) {
        let mut gone = 0;
        self.map.retain(|_, counter| {
            let keep = Arc::strong_count(counter) > 1 || !idle(counter);
            gone += usize::from(!keep);
            keep
        });
        self.len.fetch_sub(gone, Ordering::Relaxed);
    }

    /// Looks at every counter.
    pub fn each(&self, mut look: impl FnMut(&Arc<V>)) {
        self.map.iter().for_each(|counter| look(counter.value()));
    }

    /// Whether a full map is worth searching again: once in a second, by one thread.
    pub fn search_due(&self, now: u64) -> bool {
        const SECOND: u64 = 1_000_000_000;
        let next = self.next_search.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        now >= next
            && self
                .next_search
                .compare_exchange(next, now.saturating_add(SECOND), order, order)
                .is_ok()
    }

    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}
