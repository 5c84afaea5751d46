//! `signed_jwt`: what the gateway says of the calling employee, signed with its own key.

use std::time::Duration;

use super::{name, needs_keyring, scope};
use crate::{
    config::{build::within, raw::RawSignedJwt, secret::Vault},
    credential::oauth::NamedAs,
    fault::{FaultCode, Faults, Span},
};

const SECOND: Duration = Duration::from_secs(1);
const LIFETIME: Duration = Duration::from_secs(300);

/// What the gateway signs for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedJwt {
    pub issuer: String,
    /// What the gateway is called.
    pub subject: String,
    /// `None`: the server's address.
    pub audience: Option<String>,
    pub employee_as: NamedAs,
    pub scope: Option<String>,
    pub lifetime: Duration,
}

pub(super) fn build(
    raw: RawSignedJwt,
    at: &Span,
    vault: Vault<'_>,
    faults: &mut Faults,
) -> Option<SignedJwt> {
    needs_keyring(at, vault, faults);
    let issuer = name(raw.issuer, faults).or_else(|| vault.public_url.map(ToString::to_string));
    if issuer.is_none() {
        let message = "whose word it is, is not said: the gateway's `public_url`, or `issuer`";
        faults.add(FaultCode::MissingKey, at, message);
    }
    let subject = name(raw.subject, faults);
    let audience = name(raw.audience, faults);
    let scope = scope(raw.scope, faults);
    let lifetime = within(raw.lifetime, LIFETIME, 30 * SECOND..=3_600 * SECOND, faults);
    let issuer = issuer?;
    Some(SignedJwt {
        subject: subject.unwrap_or_else(|| issuer.clone()),
        issuer,
        audience,
        employee_as: raw.employee_as.unwrap_or(NamedAs::Actor),
        scope,
        lifetime,
    })
}
