//! `auth:` of an upstream, as it is written: what each kind of it has.

use std::time::Duration;

use super::{SecretRef, part};
use crate::{
    credential::oauth::{NamedAs, TokenType},
    fault::{FaultCode, Faults, Span},
    model::caller::{EmployeeId, TenantId},
    yaml::{FromNode, MapReader, Node, Spanned, Value, Words},
};

/// How an upstream is authenticated.
#[derive(Debug)]
pub struct RawAuth {
    pub at: Span,
    pub kind: RawAuthKind,
}

#[derive(Debug)]
pub enum RawAuthKind {
    None,
    Employee,
    ClientCredentials(RawClientCredentials),
    OAuth(RawConsent),
    SignedJwt(RawSignedJwt),
    TokenExchange(RawTokenExchange),
}

/// As which client the gateway asks, and what it proves that with.
#[derive(Debug)]
pub struct RawClient {
    pub id: Option<Spanned<String>>,
    pub secret: Option<(SecretRef, Span)>,
    pub secret_in: Option<Spanned<bool>>,
    pub key: Option<(RawSigningKey, Span)>,
    /// There is something in the place of one of the two, and it has its fault.
    pub is_broken: bool,
}

/// What assertions are signed with.
#[derive(Debug)]
pub enum RawSigningKey {
    Secret(SecretRef),
    /// The gateway's own, of its keyring.
    Gateway,
}

/// Where tokens are given.
#[derive(Debug)]
pub struct RawTokensAt {
    pub issuer: Option<Spanned<String>>,
    pub token_url: Option<Spanned<String>>,
}

#[derive(Debug)]
pub struct RawClientCredentials {
    pub client: RawClient,
    pub tokens_at: RawTokensAt,
    pub scope: Option<Spanned<String>>,
    pub resource: Option<Spanned<String>>,
}

#[derive(Debug)]
pub struct RawConsent {
    pub client: RawClient,
    pub issuer: Option<Spanned<String>>,
    pub scope: Option<Spanned<String>>,
    pub listing: Option<(TenantId, EmployeeId)>,
}

#[derive(Debug)]
pub struct RawSignedJwt {
    pub issuer: Option<Spanned<String>>,
    pub subject: Option<Spanned<String>>,
    pub audience: Option<Spanned<String>>,
    pub employee_as: Option<NamedAs>,
    pub scope: Option<Spanned<String>>,
    pub lifetime: Option<Spanned<Duration>>,
}

#[derive(Debug)]
pub struct RawTokenExchange {
    pub client: RawClient,
    pub tokens_at: RawTokensAt,
    pub scope: Option<Spanned<String>>,
    pub resource: Option<Spanned<String>>,
    pub audience: Option<Spanned<String>>,
    pub requested: Option<TokenType>,
    pub actor_token: Option<bool>,
    pub listing: Option<(TenantId, EmployeeId)>,
}

#[derive(Clone, Copy)]
enum Kind {
    None,
    Employee,
    ClientCredentials,
    OAuth,
    SignedJwt,
    TokenExchange,
}

const KINDS: Words<Kind> = Words {
    what: "way to authenticate",
    code: FaultCode::BadValue,
    known: &[
        ("client_credentials", Kind::ClientCredentials),
        ("employee", Kind::Employee),
        ("none", Kind::None),
        ("oauth", Kind::OAuth),
        ("signed_jwt", Kind::SignedJwt),
        ("token_exchange", Kind::TokenExchange),
    ],
    later: &[],
};

/// Where a client's secret goes: `true` is the body.
const SECRET_IN: Words<bool> = Words {
    what: "place for a secret",
    code: FaultCode::BadValue,
    known: &[("body", true), ("header", false)],
    later: &[],
};

const NAMED_AS: Words<NamedAs> = Words {
    what: "claim for an employee",
    code: FaultCode::BadValue,
    known: &[("act", NamedAs::Actor), ("sub", NamedAs::Subject)],
    later: &[],
};

const TOKEN_TYPES: Words<TokenType> = Words {
    what: "type of token",
    code: FaultCode::BadValue,
    known: &[("access_token", TokenType::AccessToken), ("jwt", TokenType::Jwt)],
    later: &[],
};

impl FromNode for RawAuth {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        // Which other keys there may be depends on it.
        let kind = map.required_node("type", faults).and_then(|kind| KINDS.read(kind, faults))?;
        let kind = match kind {
            Kind::None => RawAuthKind::None,
            Kind::Employee => RawAuthKind::Employee,
            Kind::ClientCredentials => RawAuthKind::ClientCredentials(RawClientCredentials {
                client: RawClient::read(&mut map, true, faults),
                tokens_at: RawTokensAt::read(&mut map, faults),
                scope: map.optional("scope", faults),
                resource: map.optional("resource", faults),
            }),
            Kind::OAuth => RawAuthKind::OAuth(RawConsent {
                client: RawClient::read(&mut map, false, faults),
                issuer: map.optional("issuer", faults),
                scope: map.optional("scope", faults),
                listing: listing(&mut map, faults),
            }),
            Kind::SignedJwt => RawAuthKind::SignedJwt(RawSignedJwt {
                issuer: map.optional("issuer", faults),
                subject: map.optional("subject", faults),
                audience: map.optional("audience", faults),
                employee_as: map.words("employee_as", &NAMED_AS, faults),
                scope: map.optional("scope", faults),
                lifetime: map.optional("lifetime", faults),
            }),
            Kind::TokenExchange => RawAuthKind::TokenExchange(RawTokenExchange {
                client: RawClient::read(&mut map, true, faults),
                tokens_at: RawTokensAt::read(&mut map, faults),
                scope: map.optional("scope", faults),
                resource: map.optional("resource", faults),
                audience: map.optional("audience", faults),
                requested: map.words("requested_token_type", &TOKEN_TYPES, faults),
                actor_token: map.optional("actor_token", faults),
                listing: listing(&mut map, faults),
            }),
        };
        map.finish(faults);
        Some(Self { at: node.at.clone(), kind })
    }
}

impl RawClient {
    /// `keyed`: it may prove itself with a key.
    fn read(map: &mut MapReader<'_>, keyed: bool, faults: &mut Faults) -> Self {
        let secret_node = map.node("client_secret");
        let secret = secret_node.and_then(|node| {
            SecretRef::from_node(node, faults).map(|secret| (secret, node.at.clone()))
        });
        let secret_in = map.node("secret_in").and_then(|node| {
            SECRET_IN.read(node, faults).map(|place| Spanned::new(place, &node.at))
        });
        let key_node = if keyed { map.node("key") } else { None };
        let key = key_node.and_then(|node| {
            let key = match &node.value {
                Value::Text(word) if word == "gateway" => RawSigningKey::Gateway,
                Value::Text(_) => {
                    let message = "a key does not stand in the file";
                    let fault = faults.add(FaultCode::SecretInTheOpen, &node.at, message);
                    fault.suggest("`gateway`, `{ env: NAME }` or `{ file: PATH }`").secret();
                    return None;
                }
                _ => RawSigningKey::Secret(SecretRef::from_node(node, faults)?),
            };
            Some((key, node.at.clone()))
        });
        let is_broken =
            (secret.is_none() && secret_node.is_some()) || (key.is_none() && key_node.is_some());
        Self { id: map.optional("client_id", faults), secret, secret_in, key, is_broken }
    }
}

impl RawTokensAt {
    fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Self {
        Self {
            issuer: map.optional("issuer", faults),
            token_url: map.optional("token_url", faults),
        }
    }
}

fn listing(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<(TenantId, EmployeeId)> {
    part(map, "listing", faults, |map, faults| {
        let tenant = map.required("tenant", faults);
        let employee = map.required("empId", faults);
        Some((tenant?, employee?))
    })
}
