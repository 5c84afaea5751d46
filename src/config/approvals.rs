//! Approvals as they are meant: whom to tell that a call waits for somebody's yes.

use std::time::Duration;

use secrecy::ExposeSecret;
use url::Url;

use super::{
    Approvals, Webhook,
    build::{MAX_LIFE, size, within},
    is_sensitive,
    raw::{RawApprovals, RawWebhook},
    secret::Vault,
};
use crate::{
    approval::webhook::SigningKey,
    fault::{FaultCode, Faults},
    yaml::Spanned,
};

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn build(raw: RawApprovals, vault: Vault<'_>, faults: &mut Faults) -> Approvals {
    Approvals {
        keep: within(raw.keep, 7 * 86_400 * SECOND, SECOND..=MAX_LIFE, faults),
        max_arguments: size(raw.max_arguments, 64 << 10, faults),
        max_waiting: within(raw.max_waiting, 10_000, 1..=1_000_000, faults),
        max_waiting_each: within(raw.max_waiting_each, 100, 1..=1_000_000, faults),
        webhook: raw.webhook.and_then(|raw| build_webhook(raw, vault, faults)),
    }
}

fn build_webhook(raw: RawWebhook, vault: Vault<'_>, faults: &mut Faults) -> Option<Webhook> {
    let url = receiver(&raw.url, faults);
    let at = &raw.secret.at;
    let key = vault.open(&raw.secret.value, at, faults).and_then(|text| {
        let key = SigningKey::parse(text.expose_secret());
        let fault = key.as_ref().err().map(|no_key| format!("the secret {no_key}"));
        if let Some(message) = fault {
            faults
                .add(FaultCode::BadValue, at, message)
                .suggest("`echo whsec_$(openssl rand -base64 32)` makes one");
        }
        key.ok()
    });
    let timeout = within(raw.timeout, 10 * SECOND, SECOND..=60 * SECOND, faults);
    let give_up = within(raw.give_up, 900 * SECOND, SECOND..=86_400 * SECOND, faults);
    let queue = within(raw.queue, 1_000, 1..=100_000, faults);
    Some(Webhook { url: url?, key: key?, timeout, give_up, queue })
}

fn receiver(raw: &Spanned<String>, faults: &mut Faults) -> Option<Url> {
    // An address that is refused may hold what it is refused for.
    let mut bad = |message: String| {
        faults.add(FaultCode::BadAddress, &raw.at, message).secret();
        None
    };
    let url = match Url::parse(&raw.value) {
        Ok(url) => url,
        Err(reason) => return bad(format!("not an address: {reason}")),
    };
    if !matches!(url.scheme(), "http" | "https") {
        return bad("a webhook is reached by `http` or `https`".to_owned());
    }
    if url.host_str().is_none_or(str::is_empty) || url.port() == Some(0) {
        return bad("the address has no host and port that can be dialled".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return bad(
            "the address holds a user's name or password: receivers check the signature".to_owned()
        );
    }
    if let Some((name, _)) = url.query_pairs().find(|(name, _)| is_sensitive(name)) {
        return bad(format!(
            "the address holds a secret in its parameter `{name}`: receivers check the signature"
        ));
    }
    if url.fragment().is_some() {
        return bad("an address has no `#`: servers never see what follows".to_owned());
    }
    Some(url)
}
