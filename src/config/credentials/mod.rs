//! Credentials of servers as they are meant: how an upstream is authenticated, and what of sealed
//! ones is kept in memory.

use std::{sync::Arc, time::Duration};

use secrecy::ExposeSecret;
use url::Url;

use super::{
    build::within,
    raw::{RawAuth, RawAuthKind, RawCredentials, RawSigningKey},
    secret::Vault,
};
use crate::{
    credential::{
        VaultLimits,
        oauth::{Client, ClientProof, Signer},
    },
    fault::{FaultCode, Faults},
    model::caller::{EmployeeId, TenantId},
    yaml::Spanned,
};

const SECOND: Duration = Duration::from_secs(1);

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
}

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

/// As which client the gateway asks for tokens, and where (RFC 6749, 4.4).
#[derive(Debug, Clone)]
pub struct ClientCredentials {
    pub client: Client,
    /// The client proves itself with the gateway's own key.
    pub own_key: bool,
    pub at: TokensAt,
    pub scope: Option<String>,
    /// `None`: the server's own word for itself, or its address.
    pub resource: Option<String>,
}

/// Where tokens are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokensAt {
    Url(Url),
    /// Where this issuer says.
    Issuer(String),
    /// Where the server says.
    Discovered,
}

impl UpstreamAuth {
    /// The word for it in the file.
    pub fn word(&self) -> &'static str {
        match self {
            UpstreamAuth::None => "none",
            UpstreamAuth::Employee => "employee",
            UpstreamAuth::Client(_) => "client_credentials",
            UpstreamAuth::Consent(_) => "oauth",
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
    let Some(raw) = raw else { return UpstreamAuth::None };
    if raw.kind != RawAuthKind::None && is_process {
        let message = "a process is given its secrets by `env`, and has no headers for others";
        faults.add(FaultCode::Contradiction, &raw.at, message);
    }
    match raw.kind {
        RawAuthKind::None => UpstreamAuth::None,
        RawAuthKind::Employee => UpstreamAuth::Employee,
        RawAuthKind::ClientCredentials => match client(raw, vault, faults) {
            Some(client) => UpstreamAuth::Client(client),
            None => UpstreamAuth::None,
        },
        RawAuthKind::OAuth => consent(raw, vault, faults),
    }
}

fn consent(raw: RawAuth, vault: Vault<'_>, faults: &mut Faults) -> UpstreamAuth {
    if !vault.is_kept {
        let message = "grants are sealed under the keyring, and there is none";
        let fault = faults.add(FaultCode::Contradiction, &raw.at, message);
        fault.suggest("add `keyring: { file: … }`: `hangu keys new` makes one");
    }
    if !vault.is_public {
        let message = "employees come back to the gateway's `public_url`, which is missing";
        faults.add(FaultCode::MissingKey, &raw.at, message);
    }
    let secret = raw.client_secret.and_then(|(secret, at)| vault.open(&secret, &at, faults));
    if let (None, Some(_)) = (&raw.client_id, &secret) {
        faults.add(FaultCode::MissingKey, &raw.at, "`client_id` is missing");
    }
    let proof = secret.map_or(ClientProof::None, |secret| match raw.secret_in {
        Some(true) => ClientProof::SecretInBody(secret),
        _ => ClientProof::Secret(secret),
    });
    UpstreamAuth::Consent(Consent {
        client: raw.client_id.map(|id| Client { id: id.value, proof }),
        issuer: raw.issuer.map(|issuer| issuer.value),
        scope: raw.scope.map(|scope| scope.value),
        listing: raw.listing,
    })
}

fn client(raw: RawAuth, vault: Vault<'_>, faults: &mut Faults) -> Option<ClientCredentials> {
    let at = at(raw.issuer, raw.token_url, faults);
    let own_key = matches!(raw.key, Some((RawSigningKey::Gateway, _)));
    if own_key && !vault.is_kept {
        let message = "the gateway's own key comes from the keyring, and there is none";
        faults.add(FaultCode::Contradiction, &raw.at, message);
    }
    if let (Some(_), None) = (raw.secret_in, &raw.client_secret) {
        let message = "`secret_in` is about `client_secret`, which is not given";
        faults.add(FaultCode::Contradiction, &raw.at, message);
    }
    let proof = match (raw.client_secret, raw.key) {
        (Some((secret, at)), None) => {
            vault.open(&secret, &at, faults).map(|secret| match raw.secret_in {
                Some(true) => ClientProof::SecretInBody(secret),
                _ => ClientProof::Secret(secret),
            })
        }
        (None, Some((RawSigningKey::Secret(secret), at))) => {
            vault.open(&secret, &at, faults).and_then(|pem| {
                let signer = Signer::from_pem(pem.expose_secret());
                let signer = signer.map_err(|fault| {
                    faults.add(FaultCode::BadValue, &at, fault.to_string());
                });
                signer.ok().map(|signer| ClientProof::Key(Arc::new(signer)))
            })
        }
        // Put in its place when the keyring is open.
        (None, Some((RawSigningKey::Gateway, _))) => Some(ClientProof::None),
        (Some(_), Some((_, at))) => {
            let message = "either `client_secret` or `key`, not both";
            faults.add(FaultCode::GivenTwice, &at, message);
            None
        }
        (None, None) => {
            let message = "`client_credentials` needs a `client_secret` or a `key`";
            faults.add(FaultCode::MissingKey, &raw.at, message);
            None
        }
    };
    let Some(id) = raw.client_id else {
        faults.add(FaultCode::MissingKey, &raw.at, "`client_id` is missing");
        return None;
    };
    if let Some(resource) = &raw.resource
        && Url::parse(&resource.value).is_err()
    {
        faults.add(FaultCode::BadAddress, &resource.at, "a resource is named by its address");
    }
    Some(ClientCredentials {
        client: Client { id: id.value, proof: proof? },
        own_key,
        at: at?,
        scope: raw.scope.map(|scope| scope.value),
        resource: raw.resource.map(|resource| resource.value),
    })
}

fn at(
    issuer: Option<Spanned<String>>,
    token_url: Option<Spanned<String>>,
    faults: &mut Faults,
) -> Option<TokensAt> {
    let (at, text) = match (&issuer, &token_url) {
        (None, None) => return Some(TokensAt::Discovered),
        (Some(_), Some(url)) => {
            let message = "either `issuer` or `token_url`, not both";
            faults.add(FaultCode::GivenTwice, &url.at, message);
            return None;
        }
        (Some(one), None) | (None, Some(one)) => (&one.at, &one.value),
    };
    let Some(url) = crate::credential::oauth::secure(text) else {
        let message = "secrets are sent there: `https`, or `http` on this machine";
        faults.add(FaultCode::BadAddress, at, message);
        return None;
    };
    Some(match issuer {
        Some(issuer) => TokensAt::Issuer(issuer.value),
        None => TokensAt::Url(url),
    })
}
