//! As which client the gateway asks for tokens, with what it proves that, and where it asks.

use std::sync::Arc;

use secrecy::ExposeSecret;
use url::Url;

use super::{name, needs_keyring};
use crate::{
    config::{
        raw::{RawClient, RawSigningKey, RawTokensAt, SecretRef},
        secret::Vault,
    },
    credential::oauth::{Client, ClientProof, Signer, secure},
    fault::{FaultCode, Faults, Span},
    yaml::Spanned,
};

/// As which client the gateway asks for tokens, and where.
#[derive(Debug, Clone)]
pub struct AsClient {
    pub client: Client,
    /// The client proves itself with the gateway's own key.
    pub own_key: bool,
    pub at: TokensAt,
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

/// A client that proves who it is. `kind` is the word for what needs it.
pub(super) fn build(
    raw: RawClient,
    tokens_at: RawTokensAt,
    kind: &str,
    at: &Span,
    vault: Vault<'_>,
    faults: &mut Faults,
) -> Option<AsClient> {
    let tokens_at = place(tokens_at, faults);
    if let (Some((_, secret)), Some(TokensAt::Discovered)) = (&raw.secret, &tokens_at) {
        unbound(secret, faults);
    }
    let own_key = matches!(raw.key, Some((RawSigningKey::Gateway, _)));
    if own_key {
        needs_keyring(at, vault, faults);
    }
    let (id, proof) = match raw.key {
        None => {
            let RawClient { id, secret, secret_in, is_broken, .. } = raw;
            let is_given = secret.is_some();
            let secret_in = secret_in.filter(|_| !is_broken);
            let proof = by_secret(secret, secret_in, vault, faults);
            if !is_given && !is_broken {
                let message = format!("`{kind}` needs a `client_secret` or a `key`");
                faults.add(FaultCode::MissingKey, at, message);
            }
            (id, proof.filter(|_| is_given))
        }
        Some((key, key_at)) => {
            if raw.secret.is_some() {
                let message = "either `client_secret` or `key`, not both";
                faults.add(FaultCode::GivenTwice, &key_at, message);
            }
            let proof = match key {
                _ if raw.secret.is_some() => None,
                // Put in its place when the keyring is open.
                RawSigningKey::Gateway => Some(ClientProof::None),
                RawSigningKey::Secret(secret) => {
                    let pem = vault.open(&secret, &key_at, faults);
                    pem.and_then(|pem| by_key(pem.expose_secret(), &key_at, faults))
                }
            };
            if let (Some(place), None) = (&raw.secret_in, &raw.secret) {
                without_secret(&place.at, faults);
            }
            (raw.id, proof)
        }
    };
    if id.is_none() {
        faults.add(FaultCode::MissingKey, at, "`client_id` is missing");
    }
    let id = name(id, faults);
    Some(AsClient { client: Client { id: id?, proof: proof? }, own_key, at: tokens_at? })
}

/// What a client proves itself with that may be a public one; nothing, where a secret cannot be
/// had.
pub(super) fn by_secret(
    secret: Option<(SecretRef, Span)>,
    secret_in: Option<Spanned<bool>>,
    vault: Vault<'_>,
    faults: &mut Faults,
) -> Option<ClientProof> {
    let Some((secret, at)) = secret else {
        if let Some(place) = &secret_in {
            without_secret(&place.at, faults);
        }
        return Some(ClientProof::None);
    };
    let secret = vault.open(&secret, &at, faults)?;
    Some(match secret_in {
        Some(place) if place.value => ClientProof::SecretInBody(secret),
        _ => ClientProof::Secret(secret),
    })
}

/// Nobody says to whom the secret belongs.
pub(super) fn unbound(secret: &Span, faults: &mut Faults) {
    let message = "the secret goes to whichever authorization server the server names first";
    faults.add(FaultCode::UnboundSecret, secret, message).suggest("write down its `issuer`");
}

fn without_secret(at: &Span, faults: &mut Faults) {
    let message = "`secret_in` is about `client_secret`, which is not given";
    faults.add(FaultCode::Contradiction, at, message);
}

fn by_key(pem: &str, at: &Span, faults: &mut Faults) -> Option<ClientProof> {
    match Signer::from_pem(pem) {
        Ok(signer) => Some(ClientProof::Key(Arc::new(signer))),
        Err(fault) => {
            faults.add(FaultCode::BadValue, at, fault.to_string());
            None
        }
    }
}

fn place(raw: RawTokensAt, faults: &mut Faults) -> Option<TokensAt> {
    match raw {
        RawTokensAt { issuer: None, token_url: None } => Some(TokensAt::Discovered),
        RawTokensAt { issuer: Some(_), token_url: Some(url) } => {
            let message = "either `issuer` or `token_url`, not both";
            faults.add(FaultCode::GivenTwice, &url.at, message);
            None
        }
        RawTokensAt { issuer: Some(issuer), token_url: None } => {
            trusted(&issuer, faults).map(|_| TokensAt::Issuer(issuer.value))
        }
        RawTokensAt { issuer: None, token_url: Some(url) } => {
            trusted(&url, faults).map(TokensAt::Url)
        }
    }
}

/// An address that the gateway proves itself at.
pub(super) fn trusted(raw: &Spanned<String>, faults: &mut Faults) -> Option<Url> {
    let url = secure(&raw.value);
    if url.is_none() {
        let message = "secrets are sent there: `https`, or `http` on this machine";
        faults.add(FaultCode::BadAddress, &raw.at, message).secret();
    }
    url
}
