//! `token_exchange`: a token for each employee, for what the gateway says of him (RFC 8693).

use super::{
    client::{self, AsClient},
    name, needs_keyring, resource, scope,
};
use crate::{
    config::{
        raw::{RawSigningKey, RawTokenExchange},
        secret::Vault,
    },
    credential::oauth::TokenType,
    fault::{FaultCode, Faults, Span},
    model::caller::{EmployeeId, TenantId},
};

/// As which client the gateway exchanges what it says, and for what.
#[derive(Debug, Clone)]
pub struct TokenExchange {
    pub as_client: AsClient,
    /// Whose word it is that is exchanged: the gateway's.
    pub issuer: String,
    pub scope: Option<String>,
    /// `None`: the server's own word for itself, or its address, unless there is an audience.
    pub resource: Option<String>,
    pub audience: Option<String>,
    /// `None`: as the authorization server likes it, as long as it can be used.
    pub requested: Option<TokenType>,
    /// The gateway says beside it who acts: itself.
    pub actor_token: bool,
    /// As whom the gateway's own listings are made.
    pub listing: Option<(TenantId, EmployeeId)>,
}

pub(super) fn build(
    raw: RawTokenExchange,
    at: &Span,
    vault: Vault<'_>,
    faults: &mut Faults,
) -> Option<TokenExchange> {
    // Told already where the client proves itself with that key, too.
    if !matches!(raw.client.key, Some((RawSigningKey::Gateway, _))) {
        needs_keyring(at, vault, faults);
    }
    let as_client = client::build(raw.client, raw.tokens_at, "token_exchange", at, vault, faults);
    if vault.public_url.is_none() {
        let message = "whose word it is that is exchanged, says `public_url`, which is missing";
        faults.add(FaultCode::MissingKey, at, message);
    }
    let (scope, resource) = (scope(raw.scope, faults), resource(raw.resource, faults));
    let audience = name(raw.audience, faults);
    Some(TokenExchange {
        as_client: as_client?,
        issuer: vault.public_url?.to_string(),
        scope,
        resource,
        audience,
        requested: raw.requested,
        actor_token: raw.actor_token.unwrap_or(false),
        listing: raw.listing,
    })
}
