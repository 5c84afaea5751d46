//! `client_credentials`: tokens of the gateway's own (RFC 6749, 4.4).

use super::{
    client::{self, AsClient},
    resource, scope,
};
use crate::{
    config::{raw::RawClientCredentials, secret::Vault},
    fault::{Faults, Span},
};

/// As which client the gateway asks for tokens of its own, and for which.
#[derive(Debug, Clone)]
pub struct ClientCredentials {
    pub as_client: AsClient,
    pub scope: Option<String>,
    /// `None`: the server's own word for itself, or its address.
    pub resource: Option<String>,
}

pub(super) fn build(
    raw: RawClientCredentials,
    at: &Span,
    vault: Vault<'_>,
    faults: &mut Faults,
) -> Option<ClientCredentials> {
    let as_client =
        client::build(raw.client, raw.tokens_at, "client_credentials", at, vault, faults);
    let (scope, resource) = (scope(raw.scope, faults), resource(raw.resource, faults));
    Some(ClientCredentials { as_client: as_client?, scope, resource })
}
