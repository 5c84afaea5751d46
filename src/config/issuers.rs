//! Issuers as they are meant: keys that can be fetched, and tokens that can be told apart.

use std::time::Duration;

use url::{Host, Url};

use super::{
    Issuer, IssuerScopes, IssuerTenant,
    build::{MAX_WAIT, within},
    is_sensitive,
    raw::{Algorithm, RawIssuer, RawScopes},
};
use crate::{
    fault::{FaultCode, Faults},
    yaml::Spanned,
};

const SECOND: Duration = Duration::from_secs(1);

/// The longest leeway: no more than minutes.
const MAX_LEEWAY: Duration = Duration::from_secs(300);

pub(super) fn build(raw: Vec<RawIssuer>, faults: &mut Faults) -> Vec<Issuer> {
    let mut built: Vec<Issuer> = Vec::with_capacity(raw.len());
    for raw in raw {
        let at = raw.issuer.at.clone();
        let Some(issuer) = build_one(raw, faults) else { continue };
        if let Some(other) = built.iter().find(|other| other.issuer == issuer.issuer) {
            let message = format!("`{}` has this `issuer` too", other.name);
            faults.add(FaultCode::GivenTwice, &at, message);
        }
        built.push(issuer);
    }
    built
}

fn build_one(raw: RawIssuer, faults: &mut Faults) -> Option<Issuer> {
    let jwks = keys_url(&raw.jwks, faults);
    let tenant = match (raw.tenant, raw.claims.tenant) {
        (Some(tenant), None) => Some(IssuerTenant::Always(tenant.value)),
        (None, Some(claim)) => Some(IssuerTenant::Claim(claim.value)),
        (Some(tenant), Some(_)) => {
            let message = "either `tenant` or `claims.tenant`, not both";
            faults.add(FaultCode::GivenTwice, &tenant.at, message);
            None
        }
        (None, None) => {
            let at = raw.claims.at.as_ref().unwrap_or(&raw.name.at);
            let message = "of which tenant its tokens are is not said";
            faults
                .add(FaultCode::MissingKey, at, message)
                .suggest("`tenant: NAME`, or `claims: { tenant: CLAIM }`");
            None
        }
    };
    if raw.algorithms.as_ref().is_some_and(Vec::is_empty) {
        faults.add(FaultCode::BadValue, &raw.name.at, "without an algorithm no token fits");
    }
    let refresh = within(raw.refresh, 600 * SECOND, 30 * SECOND..=MAX_WAIT, faults);
    Some(Issuer {
        name: raw.name.value,
        issuer: raw.issuer.value,
        jwks: jwks?,
        audience: raw.audience.into_iter().map(|audience| audience.value).collect(),
        algorithms: raw
            .algorithms
            .unwrap_or_else(|| vec![Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa]),
        tenant: tenant?,
        employee: raw.claims.employee.unwrap_or_else(|| "sub".to_owned()),
        roles: raw.claims.roles,
        leeway: within(raw.leeway, 60 * SECOND, Duration::ZERO..=MAX_LEEWAY, faults),
        refresh,
        min_refresh: within(raw.min_refresh, 30 * SECOND, SECOND..=MAX_WAIT, faults),
        stale: within(raw.stale, 86_400 * SECOND, refresh..=30 * MAX_WAIT, faults),
        scopes: build_scopes(raw.scopes, faults),
        call_sources: raw.call_sources,
    })
}

/// Keys come over TLS: whoever could change them on the way could sign for anybody.
fn keys_url(raw: &Spanned<String>, faults: &mut Faults) -> Option<Url> {
    let mut bad = |message: String| {
        faults.add(FaultCode::BadAddress, &raw.at, message).secret();
        None
    };
    let url = match Url::parse(&raw.value) {
        Ok(url) => url,
        Err(reason) => return bad(format!("this is not a URL: {reason}")),
    };
    let loopback = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if url.scheme() != "https" && !(url.scheme() == "http" && loopback) {
        return bad("keys are fetched over `https`; `http` only from this machine".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return bad("a URL must not hold a user or a password".to_owned());
    }
    if let Some((name, _)) = url.query_pairs().find(|(name, _)| is_sensitive(name)) {
        return bad(format!("the query parameter `{name}` looks like a secret"));
    }
    Some(url)
}

fn build_scopes(raw: RawScopes, faults: &mut Faults) -> IssuerScopes {
    let mut list = |scopes: Vec<Spanned<String>>| {
        let mut good: Vec<Box<str>> = Vec::with_capacity(scopes.len());
        for scope in scopes {
            // RFC 6749 section 3.3.
            let legal = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
            if scope.value.is_empty() || !scope.value.bytes().all(legal) {
                let message = "a scope is visible ASCII without quotes, backslashes and spaces";
                faults.add(FaultCode::BadValue, &scope.at, message);
            }
            good.push(scope.value.into());
        }
        good
    };
    IssuerScopes { base: list(raw.base), by_risk: raw.by_risk.map(list) }
}
