//! Callers as they are meant: keys opened and hashed, none naming two callers.

use std::{collections::HashMap, net::SocketAddr};

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use super::{
    ApiKey, Caller, FixedEmployee, Identity,
    raw::{RawCaller, RawEmployee, RawIdentity, RawKey, RawKeySource},
    secret::Vault,
};
use crate::{
    clock::Clock,
    fault::{FaultCode, Faults, Span},
    model::caller::Roles,
};

/// The longest key, in bytes: it has to fit into a header.
const MAX_KEY: usize = 512;

pub(super) fn build(
    raw: Vec<RawCaller>,
    listen: SocketAddr,
    vault: Vault<'_>,
    faults: &mut Faults,
) -> Vec<Caller> {
    let now_ms = Clock::system().now_ms();
    let mut seen = HashMap::new();
    raw.into_iter()
        .map(|raw| {
            let identity = raw.identity.map(|identity| build_identity(identity, listen, faults));
            let mut keys = Vec::with_capacity(raw.keys.len());
            for key in raw.keys {
                let at = key.at.clone();
                if let Some(key) = build_key(key, now_ms, vault, faults) {
                    unique(&key, raw.id.value.as_str(), &at, &mut seen, faults);
                    keys.push(key);
                }
            }
            Caller {
                id: raw.id.value,
                tenant: raw.tenant.value,
                keys,
                identity: identity.unwrap_or_default(),
                catalog_roles: Roles::new(raw.catalog_roles),
                call_sources: raw.call_sources,
            }
        })
        .collect()
}

fn build_identity(raw: RawIdentity, listen: SocketAddr, faults: &mut Faults) -> Identity {
    if raw.header && raw.fixed.is_some() && !listen.ip().is_loopback() {
        let message = "whoever reaches this listener with the key and no header is this employee";
        let fault = faults.add(FaultCode::OpenFallback, &raw.at, message);
        fault.suggest("listen on 127.0.0.1, or drop the `fallback`");
    }
    let fixed = raw
        .fixed
        .map(|RawEmployee { id, roles }| FixedEmployee { id: id.value, roles: Roles::new(roles) });
    Identity { header: raw.header, fixed }
}

fn build_key(raw: RawKey, now_ms: u64, vault: Vault<'_>, faults: &mut Faults) -> Option<ApiKey> {
    let expires_ms = raw.expires.map(|expires| {
        let ms = u64::try_from(expires.value.as_millisecond()).unwrap_or(0);
        if ms <= now_ms {
            let message = "this key has expired: it is no longer accepted";
            faults.add(FaultCode::ExpiredKey, &expires.at, message);
        }
        ms
    });
    let digest = match raw.source {
        RawKeySource::Sha256(digest) => digest,
        RawKeySource::Secret(secret) => {
            let key: SecretString = vault.open(&secret, &raw.at, faults)?;
            let text = key.expose_secret();
            if text.len() > MAX_KEY || !text.bytes().all(|b| b.is_ascii_graphic()) {
                let message =
                    format!("a key is 1 to {MAX_KEY} visible ASCII characters without spaces");
                faults.add(FaultCode::BadValue, &raw.at, message);
                return None;
            }
            Sha256::digest(text).into()
        }
    };
    Some(ApiKey { digest, expires_ms })
}

/// A key names one caller, or it would name whoever stands first in the file.
fn unique(
    key: &ApiKey,
    caller: &str,
    at: &Span,
    seen: &mut HashMap<[u8; 32], (String, Span)>,
    faults: &mut Faults,
) {
    if let Some((other, first)) = seen.insert(key.digest, (caller.to_owned(), at.clone())) {
        let message = match other == caller {
            true => format!("caller `{caller}` has this key twice"),
            false => format!("callers `{other}` and `{caller}` have the same key"),
        };
        faults.add(FaultCode::SharedKey, at, message).relate(&first, "here the first time");
    }
}
