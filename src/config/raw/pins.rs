//! `pins:` as it is written.

use std::time::Duration;

use super::part;
use crate::{
    fault::Faults,
    yaml::{MapReader, Spanned},
};

#[derive(Debug, Default)]
pub struct RawPins {
    pub versions: Option<Spanned<usize>>,
    pub max_tools: Option<Spanned<usize>>,
    pub unlisted: Option<Spanned<Duration>>,
}

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> RawPins {
    part(map, "pins", faults, |map, faults| {
        Some(RawPins {
            versions: map.optional("versions", faults),
            max_tools: map.optional("max_tools", faults),
            unlisted: map.optional("unlisted", faults),
        })
    })
    .unwrap_or_default()
}
