//! `issuers:` as it is written.

use std::time::Duration;

use crate::{
    fault::{FaultCode, Faults, Span},
    model::{
        call_source::CallSources,
        caller::{CallerId, TenantId},
    },
    yaml::{Entry, FromNode, MapReader, Spanned, Value, Words, check_name},
};

/// An algorithm that an issuer may sign with; secrets shared with it are none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

pub const ALGORITHMS: Words<Algorithm> = Words {
    what: "algorithm",
    code: FaultCode::BadValue,
    known: &[
        ("RS256", Algorithm::Rs256),
        ("RS384", Algorithm::Rs384),
        ("RS512", Algorithm::Rs512),
        ("PS256", Algorithm::Ps256),
        ("PS384", Algorithm::Ps384),
        ("PS512", Algorithm::Ps512),
        ("ES256", Algorithm::Es256),
        ("ES384", Algorithm::Es384),
        ("EdDSA", Algorithm::EdDsa),
    ],
    later: &[],
};

#[derive(Debug)]
pub struct RawIssuer {
    pub name: Spanned<CallerId>,
    pub issuer: Spanned<String>,
    pub jwks: Spanned<String>,
    pub audience: Vec<Spanned<String>>,
    pub algorithms: Option<Vec<Algorithm>>,
    pub tenant: Option<Spanned<TenantId>>,
    pub claims: RawClaims,
    pub leeway: Option<Spanned<Duration>>,
    pub refresh: Option<Spanned<Duration>>,
    pub min_refresh: Option<Spanned<Duration>>,
    pub stale: Option<Spanned<Duration>>,
    pub scopes: RawScopes,
    pub call_sources: CallSources,
}

/// Where in a token something stands.
#[derive(Debug, Default)]
pub struct RawClaims {
    pub at: Option<Span>,
    pub employee: Option<String>,
    pub tenant: Option<Spanned<String>>,
    pub roles: Option<String>,
}

#[derive(Debug, Default)]
pub struct RawScopes {
    pub base: Vec<Spanned<String>>,
    /// From `read_low` to `write_high`.
    pub by_risk: [Vec<Spanned<String>>; 4],
}

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<RawIssuer> {
    let entries = map.node("issuers").map(|node| node.named(faults)).unwrap_or_default();
    entries.into_iter().filter_map(|entry| RawIssuer::read(entry, faults)).collect()
}

impl RawIssuer {
    fn read(entry: &Entry, faults: &mut Faults) -> Option<Self> {
        let name = match check_name(&entry.key) {
            Ok(()) => Some(Spanned::new(CallerId::new(entry.key.as_str()), &entry.key_at)),
            Err(reason) => {
                let message = format!("`{}` {reason}", entry.key);
                faults.add(FaultCode::BadName, &entry.key_at, message);
                None
            }
        };
        let mut map = entry.value.map(faults)?;
        let issuer = map.required("issuer", faults);
        let jwks = map.required("jwks", faults);
        let audience = match map.required_node("audience", faults) {
            None => Vec::new(),
            Some(node) if matches!(node.value, Value::Text(_)) => {
                Spanned::from_node(node, faults).into_iter().collect()
            }
            Some(node) => {
                if node.items(faults).is_some_and(<[_]>::is_empty) {
                    faults.add(FaultCode::BadValue, &node.at, "without an audience no token fits");
                }
                Vec::from_node(node, faults).unwrap_or_default()
            }
        };
        let algorithms = map.node("algorithms").map(|node| {
            let items = node.items(faults).unwrap_or_default().iter();
            items.filter_map(|item| ALGORITHMS.read(item, faults)).collect()
        });
        let claims = map.node("claims").and_then(|node| {
            let mut claims = node.map(faults)?;
            let read = RawClaims {
                at: Some(node.at.clone()),
                employee: claims.optional("employee", faults),
                tenant: claims.optional("tenant", faults),
                roles: claims.optional("roles", faults),
            };
            claims.finish(faults);
            Some(read)
        });
        let raw = (|| {
            Some(Self {
                name: name?,
                issuer: issuer?,
                jwks: jwks?,
                audience,
                algorithms,
                tenant: map.optional("tenant", faults),
                claims: claims.unwrap_or_default(),
                leeway: map.optional("leeway", faults),
                refresh: map.optional("refresh", faults),
                min_refresh: map.optional("min_refresh", faults),
                stale: map.optional("stale", faults),
                scopes: read_scopes(&mut map, faults),
                call_sources: super::callers::read_call_sources(&mut map, faults),
            })
        })();
        if raw.is_some() {
            map.finish(faults);
        }
        raw
    }
}

fn read_scopes(map: &mut MapReader<'_>, faults: &mut Faults) -> RawScopes {
    let Some(mut scopes) = map.node("scopes").and_then(|node| node.map(faults)) else {
        return RawScopes::default();
    };
    let mut list = |key| scopes.optional(key, faults).unwrap_or_default();
    let read = RawScopes {
        base: list("base"),
        by_risk: ["read_low", "read_high", "write_low", "write_high"].map(list),
    };
    scopes.finish(faults);
    read
}
