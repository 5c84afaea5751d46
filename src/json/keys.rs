//! Which names an object has had so far.
//!
//! Names of all open objects lie on one stack, so that the usual document needs no allocation.
//! An object with many names gets a hash set, so that the work stays linear in the text; its
//! hashes are keyed, as names come from strangers.

use std::{borrow::Cow, collections::HashSet};

use smallvec::SmallVec;

use super::unescape;

/// Up to here comparing one by one is the faster way.
const FEW: usize = 32;

/// The names of all open objects.
pub(super) struct Keys<'t> {
    text: &'t [u8],
    names: SmallVec<[Name; 24]>,
    /// Names that had escapes, without them.
    unescaped: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Name {
    print: u64,
    start: u32,
    end: u32,
    /// In `unescaped`, not in the text.
    unescaped: bool,
}

/// The names of one object: the top of the stack, or a set once they are many.
#[derive(Default)]
pub(super) struct Scope<'t> {
    names: u32,
    unescaped: u32,
    many: Option<Box<HashSet<Cow<'t, [u8]>>>>,
}

impl<'t> Keys<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, names: SmallVec::new(), unescaped: Vec::new() }
    }

    /// An object opens.
    #[inline]
    pub(super) fn open(&self) -> Scope<'t> {
        // Both lie within the text's length, which fits.
        Scope { names: self.names.len() as u32, unescaped: self.unescaped.len() as u32, many: None }
    }

    /// The innermost open object ends.
    #[inline]
    pub(super) fn close(&mut self, scope: &Scope<'t>) {
        self.names.truncate(scope.names as usize);
        self.unescaped.truncate(scope.unescaped as usize);
    }

    /// Notes a name of the innermost open object; false if the object has it already.
    #[inline]
    pub(super) fn insert(
        &mut self,
        scope: &mut Scope<'t>,
        start: u32,
        end: u32,
        escaped: bool,
    ) -> bool {
        if scope.many.is_some() || escaped {
            return self.insert_slow(scope, start, end, escaped);
        }
        let text = self.text;
        let name = text.get(start as usize..end as usize).unwrap_or_default();
        self.insert_few(scope, name, Name { print: print(name), start, end, unescaped: false })
    }

    #[inline(never)]
    fn insert_slow(&mut self, scope: &mut Scope<'t>, start: u32, end: u32, escaped: bool) -> bool {
        let text = self.text;
        let inside = text.get(start as usize..end as usize).unwrap_or_default();
        let name = unescape::wtf8(inside, escaped);
        if let Some(many) = &mut scope.many {
            return many.insert(name);
        }
        let start = self.unescaped.len() as u32;
        self.unescaped.extend_from_slice(&name);
        let end = self.unescaped.len() as u32;
        self.insert_few(scope, &name, Name { print: print(&name), start, end, unescaped: true })
    }

    #[inline]
    fn insert_few(&mut self, scope: &mut Scope<'t>, name: &[u8], entry: Name) -> bool {
        let own = self.names.get(scope.names as usize..).unwrap_or_default();
        if own.iter().any(|other| other.print == entry.print && self.read(other) == name) {
            return false;
        }
        let full = own.len() == FEW;
        self.names.push(entry);
        if full {
            self.grow(scope);
        }
        true
    }

    /// Moves the innermost object's names into a set.
    #[cold]
    fn grow(&mut self, scope: &mut Scope<'t>) {
        let text = self.text;
        let own = self.names.get(scope.names as usize..).unwrap_or_default();
        let mut many = Box::new(HashSet::with_capacity(4 * FEW));
        many.extend(own.iter().map(|name| {
            if name.unescaped {
                Cow::Owned(self.read(name).to_vec())
            } else {
                Cow::Borrowed(text.get(name.start as usize..name.end as usize).unwrap_or_default())
            }
        }));
        self.close(scope);
        scope.many = Some(many);
    }

    fn read(&self, name: &Name) -> &[u8] {
        let from = if name.unescaped { &self.unescaped } else { self.text };
        from.get(name.start as usize..name.end as usize).unwrap_or_default()
    }
}

/// Equal for equal names, and nearly always different for different ones.
#[inline]
fn print(name: &[u8]) -> u64 {
    let (head, tail) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => short_ends(name),
    };
    head ^ tail.rotate_left(29) ^ (name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline]
fn short_ends(name: &[u8]) -> (u64, u64) {
    if let (Some(head), Some(tail)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        return (u32::from_le_bytes(*head).into(), u32::from_le_bytes(*tail).into());
    }
    if let (Some(head), Some(tail)) = (name.first_chunk::<2>(), name.last_chunk::<2>()) {
        return (u16::from_le_bytes(*head).into(), u16::from_le_bytes(*tail).into());
    }
    (name.first().copied().unwrap_or(0).into(), 0)
}
