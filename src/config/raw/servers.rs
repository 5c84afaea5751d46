//! `servers:` as it is written.

use std::time::Duration;

use super::part;
use crate::{
    fault::Faults,
    yaml::{ByteSize, MapReader, Spanned},
};

#[derive(Debug, Default)]
pub struct RawServers {
    pub refresh: Option<Spanned<Duration>>,
    pub loaded: Option<Spanned<u64>>,
    pub idle: Option<Spanned<Duration>>,
    pub max_asked: Option<Spanned<usize>>,
    pub timeout: Option<Spanned<Duration>>,
    pub max_time: Option<Spanned<Duration>>,
    pub connect_timeout: Option<Spanned<Duration>>,
    pub max_request_bytes: Option<Spanned<ByteSize>>,
    pub max_response_bytes: Option<Spanned<ByteSize>>,
    pub max_list_bytes: Option<Spanned<ByteSize>>,
    pub max_tools: Option<Spanned<usize>>,
}

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> RawServers {
    part(map, "servers", faults, |map, faults| {
        Some(RawServers {
            refresh: map.optional("refresh", faults),
            loaded: map.optional("loaded", faults),
            idle: map.optional("idle", faults),
            max_asked: map.optional("max_asked", faults),
            timeout: map.optional("timeout", faults),
            max_time: map.optional("max_time", faults),
            connect_timeout: map.optional("connect_timeout", faults),
            max_request_bytes: map.optional("max_request_bytes", faults),
            max_response_bytes: map.optional("max_response_bytes", faults),
            max_list_bytes: map.optional("max_list_bytes", faults),
            max_tools: map.optional("max_tools", faults),
        })
    })
    .unwrap_or_default()
}
