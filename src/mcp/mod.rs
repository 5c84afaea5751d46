//! The protocol's own vocabulary: revisions, methods, families, capabilities, header and `_meta`
//! names.
//!
//! No framing and no decisions; `dialect/` has the former, the engines the latter.

mod capabilities;
mod family;
mod log_level;
mod method;
mod version;

pub use capabilities::{Capabilities, Served};
pub use family::Family;
pub use log_level::LogLevel;
pub use method::Method;
pub use version::{Version, header, meta, rpc};
