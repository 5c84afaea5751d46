//! Credentials of servers as they are meant: how an upstream is authenticated, each kind in a
//! file of its own, and what of sealed ones is kept in memory.

mod client;
mod client_credentials;
mod consent;
mod shown;
mod signed_jwt;
mod token_exchange;

use std::time::Duration;

use url::Url;

pub use self::{
    client::{AsClient, TokensAt},
    client_credentials::ClientCredentials,
    consent::Consent,
    signed_jwt::SignedJwt,
    token_exchange::TokenExchange,
};
use super::{
    build::within,
    raw::{RawAuth, RawAuthKind, RawCredentials},
    secret::Vault,
};
use crate::{
    credential::VaultLimits,
    fault::{FaultCode, Faults, Span},
    yaml::Spanned,
};

const SECOND: Duration = Duration::from_secs(1);

/// The longest name of a client, an audience or the like.
const MAX_NAME: usize = 512;

/// How requests to an upstream are authenticated, beside its `headers`.
#[derive(Debug, Clone)]
pub enum UpstreamAuth {
    None,
    /// Each employee has a credential of his own.
    Employee,
    /// The gateway has tokens of its own.
    Client(ClientCredentials),
    /// Each employee grants tokens.
    Consent(Consent),
    /// The gateway signs for each employee.
    Signed(SignedJwt),
    /// The gateway gets a token for each employee.
    Exchange(TokenExchange),
}

impl UpstreamAuth {
    /// The word for it in the file.
    pub fn word(&self) -> &'static str {
        match self {
            UpstreamAuth::None => "none",
            UpstreamAuth::Employee => "employee",
            UpstreamAuth::Client(_) => "client_credentials",
            UpstreamAuth::Consent(_) => "oauth",
            UpstreamAuth::Signed(_) => "signed_jwt",
            UpstreamAuth::Exchange(_) => "token_exchange",
        }
    }
}

pub(super) fn limits(raw: Option<RawCredentials>, faults: &mut Faults) -> VaultLimits {
    let raw = raw.unwrap_or_default();
    let default = VaultLimits::default();
    let entries = within(raw.cache_entries, 10_000, 1..=10_000_000, faults);
    VaultLimits {
        age: within(raw.cache_age, default.age, SECOND / 10..=3_600 * SECOND, faults),
        entries: u64::try_from(entries).unwrap_or(default.entries),
    }
}

pub(super) fn auth(
    raw: Option<RawAuth>,
    is_process: bool,
    vault: Vault<'_>,
    faults: &mut Faults,
) -> UpstreamAuth {
    let Some(RawAuth { at, kind }) = raw else { return UpstreamAuth::None };
    if !matches!(kind, RawAuthKind::None) && is_process {
        let message = "a process is given its secrets by `env`, and has no headers for others";
        faults.add(FaultCode::Contradiction, &at, message);
        return UpstreamAuth::None;
    }
    let built = match kind {
        RawAuthKind::None => Some(UpstreamAuth::None),
        RawAuthKind::Employee => Some(UpstreamAuth::Employee),
        RawAuthKind::ClientCredentials(raw) => {
            client_credentials::build(raw, &at, vault, faults).map(UpstreamAuth::Client)
        }
        RawAuthKind::OAuth(raw) => {
            Some(UpstreamAuth::Consent(consent::build(raw, &at, vault, faults)))
        }
        RawAuthKind::SignedJwt(raw) => {
            signed_jwt::build(raw, &at, vault, faults).map(UpstreamAuth::Signed)
        }
        RawAuthKind::TokenExchange(raw) => {
            token_exchange::build(raw, &at, vault, faults).map(UpstreamAuth::Exchange)
        }
    };
    // What is missing has a fault: nothing runs without it.
    built.unwrap_or(UpstreamAuth::None)
}

/// The gateway signs with keys of its keyring, which others have to know after a restart, too.
fn needs_keyring(at: &Span, vault: Vault<'_>, faults: &mut Faults) {
    if !vault.has_keyring {
        let message = "the gateway's own key comes from the keyring, and there is none";
        let fault = faults.add(FaultCode::Contradiction, at, message);
        fault.suggest("add `keyring: { file: … }`: `hangu keys new` makes one");
    }
}

/// Scopes in one text, as they are asked for (RFC 6749, 3.3).
fn scope(raw: Option<Spanned<String>>, faults: &mut Faults) -> Option<String> {
    let raw = raw?;
    let legal = |b: u8| b == b' ' || (b.is_ascii_graphic() && b != b'"' && b != b'\\');
    if raw.value.trim().is_empty() || !raw.value.bytes().all(legal) {
        let message = "scopes are visible ASCII without quotes and backslashes, parted by spaces";
        faults.add(FaultCode::BadValue, &raw.at, message);
    }
    Some(raw.value)
}

/// An address that tokens are for (RFC 8707, 2).
fn resource(raw: Option<Spanned<String>>, faults: &mut Faults) -> Option<String> {
    let raw = raw?;
    let is_one = |url: Url| url.has_host() && url.fragment().is_none();
    if !Url::parse(&raw.value).is_ok_and(is_one) {
        faults.add(FaultCode::BadAddress, &raw.at, "a resource is named by its address");
    }
    Some(raw.value)
}

/// What somebody is called in a token.
fn name(raw: Option<Spanned<String>>, faults: &mut Faults) -> Option<String> {
    let raw = raw?;
    let text = &raw.value;
    if text.is_empty() || text.len() > MAX_NAME || !text.bytes().all(|b| b.is_ascii_graphic()) {
        let message = format!("a name is 1 to {MAX_NAME} visible ASCII characters without spaces");
        faults.add(FaultCode::BadValue, &raw.at, message);
    }
    Some(raw.value)
}
