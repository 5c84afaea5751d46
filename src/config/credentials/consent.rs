//! `oauth`: tokens that each employee grants (RFC 6749, 4.1).

use super::{client, name, scope};
use crate::{
    config::{raw::RawConsent, secret::Vault},
    credential::oauth::Client,
    fault::{FaultCode, Faults, Span},
    model::caller::{EmployeeId, TenantId},
};

/// How employees grant tokens for a server.
#[derive(Debug, Clone, Default)]
pub struct Consent {
    /// The client that was registered beforehand.
    pub client: Option<Client>,
    /// With whom; `None`: with whoever the server names.
    pub issuer: Option<String>,
    /// Asked for where the server names none.
    pub scope: Option<String>,
    /// Whose grant the gateway's own listings use.
    pub listing: Option<(TenantId, EmployeeId)>,
}

pub(super) fn build(raw: RawConsent, at: &Span, vault: Vault<'_>, faults: &mut Faults) -> Consent {
    if !vault.is_kept {
        let message = "grants are sealed under the keyring, and there is none";
        let fault = faults.add(FaultCode::Contradiction, at, message);
        fault.suggest("add `keyring: { file: … }`: `hangu keys new` makes one");
    }
    if vault.public_url.is_none() {
        let message = "employees come back to the gateway's `public_url`, which is missing";
        faults.add(FaultCode::MissingKey, at, message);
    }
    if raw.client.id.is_none() && raw.client.secret.is_some() {
        faults.add(FaultCode::MissingKey, at, "`client_id` is missing");
    }
    if let (Some((_, at)), None) = (&raw.client.secret, &raw.issuer) {
        client::unbound(at, faults);
    }
    let secret_in = raw.client.secret_in.filter(|_| !raw.client.is_broken);
    let proof = client::by_secret(raw.client.secret, secret_in, vault, faults);
    let id = name(raw.client.id, faults);
    if let Some(issuer) = &raw.issuer {
        client::trusted(issuer, faults);
    }
    Consent {
        client: id.zip(proof).map(|(id, proof)| Client { id, proof }),
        issuer: raw.issuer.map(|issuer| issuer.value),
        scope: scope(raw.scope, faults),
        listing: raw.listing,
    }
}
