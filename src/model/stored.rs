//! What an engine is told by whoever keeps its records. Which records those are, and what is asked
//! of them, each engine says in a trait of its own.

/// Told how a request ended, on a thread of the store's or, where there is no room in its queue,
/// at once.
pub type Then<T> = Box<dyn FnOnce(Result<T, StoreFault>) + Send>;

/// Why a request was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// Nothing was written.
    #[error("the store cannot be used")]
    Unavailable,
    /// It was lost on the way: the store may have written it, or not.
    #[error("the store did not say whether it wrote")]
    Unclear,
}
