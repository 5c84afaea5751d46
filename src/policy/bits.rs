//! Sets of tools, prompts and resources, as bits over the catalog.

/// A set of small numbers, all below a fixed length.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BitSet {
    words: Box<[u64]>,
    length: usize,
}

impl BitSet {
    pub fn new(length: usize) -> Self {
        Self { words: vec![0; length.div_ceil(64)].into(), length }
    }

    pub fn full(length: usize) -> Self {
        let mut set = Self::new(length);
        set.words.fill(u64::MAX);
        if let (Some(last), used @ 1..) = (set.words.last_mut(), length % 64) {
            *last = (1 << used) - 1;
        }
        set
    }

    /// How many numbers there could be in it.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Adds a number; one beyond the length is not added.
    pub fn insert(&mut self, index: usize) {
        if index < self.length
            && let Some(word) = self.words.get_mut(index / 64)
        {
            *word |= 1 << (index % 64);
        }
    }

    pub fn contains(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The numbers in it, from the smallest on.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(index * 64 + bit)
            })
        })
    }

    pub fn add_all(&mut self, other: &BitSet) {
        self.zip(other, |own, other| own | other);
    }

    pub fn keep_only(&mut self, other: &BitSet) {
        self.zip(other, |own, other| own & other);
    }

    pub fn remove_all(&mut self, other: &BitSet) {
        self.zip(other, |own, other| own & !other);
    }

    /// Both sets are over the same catalog.
    fn zip(&mut self, other: &BitSet, combine: impl Fn(u64, u64) -> u64) {
        debug_assert_eq!(self.length, other.length);
        for (own, other) in self.words.iter_mut().zip(&other.words) {
            *own = combine(*own, *other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_into_it() {
        for length in [0, 1, 63, 64, 65, 130] {
            let mut set = BitSet::new(length);
            let wanted: Vec<usize> = (0..length).filter(|i| i % 3 == 0).collect();
            wanted.iter().for_each(|i| set.insert(*i));
            set.insert(length);
            assert_eq!(set.iter().collect::<Vec<_>>(), wanted);
            assert_eq!(set.count(), wanted.len());
            assert!(!set.contains(length) && !set.contains(length + 1_000));
            assert_eq!(BitSet::full(length).count(), length);
            assert_eq!(BitSet::full(length).iter().count(), length);
        }
    }

    #[test]
    fn sets_are_joined_and_cut() {
        let of = |numbers: &[usize]| {
            let mut set = BitSet::new(100);
            numbers.iter().for_each(|i| set.insert(*i));
            set
        };
        let mut set = of(&[1, 70]);
        set.add_all(&of(&[2, 70]));
        assert_eq!(set, of(&[1, 2, 70]));
        set.remove_all(&of(&[1]));
        assert_eq!(set, of(&[2, 70]));
        set.keep_only(&of(&[70, 71]));
        assert_eq!(set, of(&[70]));
        assert!(!set.is_empty() && of(&[]).is_empty());
    }
}
