//! `approvals:` as it is written.

use std::time::Duration;

use super::{SecretRef, part};
use crate::{
    fault::Faults,
    yaml::{ByteSize, MapReader, Spanned},
};

#[derive(Debug, Default)]
pub struct RawApprovals {
    pub keep: Option<Spanned<Duration>>,
    pub max_arguments: Option<Spanned<ByteSize>>,
    pub max_waiting: Option<Spanned<usize>>,
    pub max_waiting_each: Option<Spanned<usize>>,
    pub webhook: Option<RawWebhook>,
}

#[derive(Debug)]
pub struct RawWebhook {
    pub url: Spanned<String>,
    pub secret: Spanned<SecretRef>,
    pub timeout: Option<Spanned<Duration>>,
    pub give_up: Option<Spanned<Duration>>,
    pub queue: Option<Spanned<usize>>,
}

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> RawApprovals {
    part(map, "approvals", faults, |map, faults| {
        Some(RawApprovals {
            keep: map.optional("keep", faults),
            max_arguments: map.optional("max_arguments", faults),
            max_waiting: map.optional("max_waiting", faults),
            max_waiting_each: map.optional("max_waiting_each", faults),
            webhook: read_webhook(map, faults),
        })
    })
    .unwrap_or_default()
}

fn read_webhook(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<RawWebhook> {
    part(map, "webhook", faults, |map, faults| {
        let (url, secret) = (map.required("url", faults), map.required("secret", faults));
        let (timeout, give_up) = (map.optional("timeout", faults), map.optional("give_up", faults));
        let queue = map.optional("queue", faults);
        Some(RawWebhook { url: url?, secret: secret?, timeout, give_up, queue })
    })
}
