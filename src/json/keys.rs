//! Which names an object has had so far.
//!
//! Names of all open objects lie on one stack, so that the usual document needs no allocation.
//! An object with many names gets an index over them, so that the work stays linear in the
//! text; its hashes are keyed, as names come from strangers.

use std::hash::{BuildHasher, RandomState};

use smallvec::SmallVec;

use super::{scan::word, unescape};

/// Up to here comparing one by one is the faster way.
const FEW: usize = 48;

/// The names of all open objects.
pub(super) struct Keys<'t> {
    text: &'t [u8],
    names: SmallVec<[Name; FEW]>,
    /// Names that had escapes, without them.
    unescaped: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Name {
    /// Equal for equal names; in an index it is from the keyed hash.
    print: u32,
    start: u32,
    end: u32,
    /// In `unescaped`, not in the text.
    unescaped: bool,
}

/// The names of one object: the top of the stack, from here on.
#[derive(Default)]
pub(super) struct Scope {
    names: u32,
    unescaped: u32,
    /// A bit for each name, in a place that its print tells: no bit, no such name.
    seen: u64,
    index: Option<Box<Index>>,
}

/// Open addressing: 0 is a free slot, n the n-th name of the object.
struct Index {
    hasher: RandomState,
    slots: Vec<u32>,
}

impl<'t> Keys<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, names: SmallVec::new(), unescaped: Vec::new() }
    }

    /// An object opens.
    #[inline]
    pub(super) fn open(&self) -> Scope {
        // Both lie within the text's length, which fits.
        Scope {
            names: self.names.len() as u32,
            unescaped: self.unescaped.len() as u32,
            seen: 0,
            index: None,
        }
    }

    /// The innermost open object ends.
    #[inline]
    pub(super) fn close(&mut self, scope: &Scope) {
        self.names.truncate(scope.names as usize);
        self.unescaped.truncate(scope.unescaped as usize);
    }

    /// Notes a name of the innermost open object; false if the object has it already.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        scope: &mut Scope,
        start: u32,
        end: u32,
        escaped: bool,
    ) -> bool {
        let (print, bit) = print(self.text, start as usize, end as usize);
        let own = self.names.len() - scope.names as usize;
        if escaped || scope.seen & bit != 0 || own >= FEW {
            return self.insert_slow(scope, start, end, escaped);
        }
        scope.seen |= bit;
        self.names.push(Name { print, start, end, unescaped: false });
        true
    }

    #[inline(never)]
    fn insert_slow(&mut self, scope: &mut Scope, start: u32, end: u32, escaped: bool) -> bool {
        let mut name = Name { print: 0, start, end, unescaped: false };
        if escaped {
            let inside = self.text.get(start as usize..end as usize).unwrap_or_default();
            name.start = self.unescaped.len() as u32;
            unescape::to_wtf8(inside, &mut self.unescaped);
            name.end = self.unescaped.len() as u32;
            name.unescaped = true;
        }
        let own = self.names.len() - scope.names as usize;
        let new =
            if own < FEW { self.compare(scope, &mut name) } else { self.look_up(scope, &mut name) };
        self.names.push(name);
        new
    }

    /// Whether a name is new, found out one by one.
    fn compare(&self, scope: &mut Scope, name: &mut Name) -> bool {
        let from = if name.unescaped { &self.unescaped } else { self.text };
        let (print, bit) = print(from, name.start as usize, name.end as usize);
        name.print = print;
        scope.seen |= bit;
        let own = self.names.get(scope.names as usize..).unwrap_or_default();
        !own.iter().any(|other| other.print == print && self.read(other) == self.read(name))
    }

    /// Whether a name is new, found out by the index.
    fn look_up(&mut self, scope: &mut Scope, name: &mut Name) -> bool {
        let index = scope.index.get_or_insert_with(|| self.index(scope.names as usize));
        let bytes = self.read(name);
        name.print = index.hash(bytes);
        let own = self.names.get(scope.names as usize..).unwrap_or_default();
        if index.slots.len() < 2 * (own.len() + 1) {
            index.grow(own);
        }
        index.insert(name.print, own.len(), |other| {
            own.get(other)
                .is_some_and(|other| other.print == name.print && self.read(other) == bytes)
        })
    }

    /// Begins an index for the names from `first` on.
    #[cold]
    fn index(&mut self, first: usize) -> Box<Index> {
        let index = Index { hasher: RandomState::new(), slots: Vec::new() };
        for at in first..self.names.len() {
            let print = self.names.get(at).map_or(0, |name| index.hash(self.read(name)));
            if let Some(name) = self.names.get_mut(at) {
                name.print = print;
            }
        }
        Box::new(index)
    }

    #[inline]
    fn read(&self, name: &Name) -> &[u8] {
        let from = if name.unescaped { &self.unescaped } else { self.text };
        from.get(name.start as usize..name.end as usize).unwrap_or_default()
    }
}

// === impl Index ===

impl Index {
    fn hash(&self, name: &[u8]) -> u32 {
        self.hasher.hash_one(name) as u32
    }

    /// Makes room for at least as many names again.
    fn grow(&mut self, names: &[Name]) {
        self.slots = vec![0; (4 * (names.len() + 1)).next_power_of_two()];
        for (at, name) in names.iter().enumerate() {
            self.insert(name.print, at, |_| false);
        }
    }

    /// Enters the name at `at`, unless one that is the same is there. There is a free slot.
    fn insert(&mut self, hash: u32, at: usize, same: impl Fn(usize) -> bool) -> bool {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            match self.slots.get_mut(slot) {
                Some(free @ 0) => {
                    *free = at as u32 + 1;
                    return true;
                }
                Some(other) if same(*other as usize - 1) => return false,
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

/// What is equal for equal names and nearly always different for different ones, and one bit of
/// 64 that follows from it.
#[inline(always)]
fn print(text: &[u8], start: usize, end: usize) -> (u32, u64) {
    let len = end - start;
    let head = word(text, start);
    let ends = if len < 8 {
        head & !(u64::MAX << (8 * len))
    } else {
        head ^ word(text, end - 8).rotate_left(29)
    };
    let mixed = (ends ^ len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 32) as u32, 1 << (mixed >> 58))
}
