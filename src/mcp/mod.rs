//! The protocol's own vocabulary: revisions, methods, header and `_meta` names.
//!
//! No framing and no decisions; `dialect/` has the former, the engines the latter.

mod method;
mod version;

pub use method::Method;
pub use version::{Version, header, meta, rpc};
