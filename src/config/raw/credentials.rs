//! `credentials:`, and `auth:` of an upstream, as they are written.

use std::time::Duration;

use super::{SecretRef, part};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::caller::{EmployeeId, TenantId},
    yaml::{FromNode, MapReader, Node, Spanned, Value, Words},
};

/// How much of what is sealed is kept in memory.
#[derive(Debug, Default)]
pub struct RawCredentials {
    pub cache_age: Option<Spanned<Duration>>,
    pub cache_entries: Option<Spanned<usize>>,
}

/// How an upstream is authenticated.
#[derive(Debug)]
pub struct RawAuth {
    pub kind: RawAuthKind,
    pub at: Span,
    pub client_id: Option<Spanned<String>>,
    pub client_secret: Option<(SecretRef, Span)>,
    pub key: Option<(RawSigningKey, Span)>,
    pub secret_in: Option<bool>,
    pub issuer: Option<Spanned<String>>,
    pub token_url: Option<Spanned<String>>,
    pub scope: Option<Spanned<String>>,
    pub resource: Option<Spanned<String>>,
    pub listing: Option<(TenantId, EmployeeId)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawAuthKind {
    None,
    Employee,
    ClientCredentials,
    OAuth,
}

/// What assertions are signed with.
#[derive(Debug)]
pub enum RawSigningKey {
    Secret(SecretRef),
    /// The gateway's own, of its keyring.
    Gateway,
}

const KINDS: Words<RawAuthKind> = Words {
    what: "way to authenticate",
    code: FaultCode::BadValue,
    known: &[
        ("client_credentials", RawAuthKind::ClientCredentials),
        ("employee", RawAuthKind::Employee),
        ("none", RawAuthKind::None),
        ("oauth", RawAuthKind::OAuth),
    ],
    later: &["token_exchange"],
};

/// Where a client's secret goes: `true` is the body.
const SECRET_IN: Words<bool> = Words {
    what: "place for a secret",
    code: FaultCode::BadValue,
    known: &[("body", true), ("header", false)],
    later: &[],
};

impl FromNode for RawCredentials {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let credentials = Self {
            cache_age: map.optional("cache_age", faults),
            cache_entries: map.optional("cache_entries", faults),
        };
        map.finish(faults);
        Some(credentials)
    }
}

impl FromNode for RawAuth {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let kind = map.required_node("type", faults).and_then(|kind| KINDS.read(kind, faults));
        let mut auth = Self {
            kind: kind.unwrap_or(RawAuthKind::None),
            at: node.at.clone(),
            client_id: None,
            client_secret: None,
            key: None,
            secret_in: None,
            issuer: None,
            token_url: None,
            scope: None,
            resource: None,
            listing: None,
        };
        match kind {
            Some(RawAuthKind::None | RawAuthKind::Employee) => {}
            Some(RawAuthKind::OAuth) => auth.consent(&mut map, faults),
            Some(RawAuthKind::ClientCredentials) | None => auth.client(&mut map, faults),
        }
        map.finish(faults);
        kind.map(|_| auth)
    }
}

impl RawAuth {
    fn consent(&mut self, map: &mut MapReader<'_>, faults: &mut Faults) {
        self.common(map, faults);
        self.listing = part(map, "listing", faults, |map, faults| {
            let tenant = map.required("tenant", faults);
            Some((tenant?, map.required("empId", faults)?))
        });
    }

    fn common(&mut self, map: &mut MapReader<'_>, faults: &mut Faults) {
        self.client_id = map.optional("client_id", faults);
        self.client_secret = map.node("client_secret").and_then(|node| {
            SecretRef::from_node(node, faults).map(|secret| (secret, node.at.clone()))
        });
        self.secret_in = map.words("secret_in", &SECRET_IN, faults);
        self.issuer = map.optional("issuer", faults);
        self.scope = map.optional("scope", faults);
    }

    fn client(&mut self, map: &mut MapReader<'_>, faults: &mut Faults) {
        self.common(map, faults);
        self.key = map.node("key").and_then(|node| {
            let key = match &node.value {
                Value::Text(word) if word == "gateway" => RawSigningKey::Gateway,
                _ => RawSigningKey::Secret(SecretRef::from_node(node, faults)?),
            };
            Some((key, node.at.clone()))
        });
        self.token_url = map.optional("token_url", faults);
        self.resource = map.optional("resource", faults);
    }
}
