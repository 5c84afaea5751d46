//! Upstreams as they are meant: addresses that can be dialled, headers that can be sent, and no
//! secret in either.

use std::{collections::HashMap, num::NonZeroUsize, time::Duration};

use http::HeaderName;
use secrecy::ExposeSecret;
use url::Url;

use super::{
    Header, HeaderSource, HeaderTemplate, Upstream,
    build::{MAX_WAIT, size, within},
    credentials, failing, is_sensitive, peer_tls, process,
    raw::{RawHeader, RawHeaderValue, RawUpstream, SecretRef},
    secret::Vault,
};
use crate::{
    fault::{FaultCode, Faults, Span},
    mcp::Version,
    model::{
        address::{self, AddressFault},
        header::{self, fits},
        server::{DialectKind, UpstreamName},
    },
    yaml::Spanned,
};

/// What a call may take in all, unless said.
pub(super) const MAX_TIME: Duration = Duration::from_secs(120);

pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_secs(30);
const MS: Duration = Duration::from_millis(1);
const SESSION_IDLE: Duration = Duration::from_secs(600);
const MAX_SESSIONS: usize = 1_000;
const MAX_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// What names callers and employees to the gateway; it goes no further as it came.
const OURS: [&str; 2] = ["x-api-key", "sso-emp-id"];

pub(super) fn build(raw: Vec<RawUpstream>, vault: Vault<'_>, faults: &mut Faults) -> Vec<Upstream> {
    raw.into_iter().filter_map(|raw| build_one(raw, vault, faults)).collect()
}

fn build_one(raw: RawUpstream, vault: Vault<'_>, faults: &mut Faults) -> Option<Upstream> {
    let name = UpstreamName::parse(&raw.name.value)
        .map_err(|reason| {
            let message = format!("`{}` is no name here: {reason}", raw.name.value);
            faults.add(FaultCode::BadName, &raw.name.at, message);
        })
        .ok();
    without_effect(&raw, faults);
    process::agree(&raw, faults);
    let default = if raw.process.is_some() { DialectKind::Stdio } else { DialectKind::Auto };
    let dialect = match raw.dialect.map_or(default, |dialect| dialect.value) {
        DialectKind::Auto => default,
        dialect => dialect,
    };
    let urls = build_urls(&raw.urls, faults);
    let process = raw.process.map(|process| process::build(process, vault, faults));
    let auth = credentials::auth(raw.auth, process.is_some(), vault, faults);
    let tls = raw.tls.filter(|_| process.is_none());
    let tls = tls.and_then(|tls| peer_tls::build(tls, &urls, vault.folder, faults));
    let headers = build_headers(raw.headers, vault, faults);
    let forward_headers = build_forwarded(raw.forward_headers, &headers, faults);
    let (timeout, max_time) = build_times(raw.timeout, raw.max_time, faults);
    Some(Upstream {
        name: name?,
        urls,
        process,
        dialect,
        protocol: raw.protocol.and_then(|protocol| protocol.value),
        auth,
        tls,
        headers,
        forward_headers,
        inject_user: raw.inject_user.is_none_or(|inject| inject.value),
        stateless: raw.stateless.unwrap_or(false),
        park: raw.park.is_none_or(|park| park.value),
        session_idle: within(raw.session_idle, SESSION_IDLE, 1_000 * MS..=MAX_WAIT, faults),
        max_sessions: within(raw.max_sessions, MAX_SESSIONS, 1..=1_000_000, faults),
        timeout,
        max_time,
        connect_timeout: within(raw.connect_timeout, CONNECT_TIMEOUT, MS..=MAX_WAIT, faults),
        poll: within(raw.poll, POLL, 1_000 * MS..=MAX_WAIT, faults),
        max_concurrency: NonZeroUsize::new(within(
            raw.max_concurrency,
            MAX_CONCURRENCY.get(),
            1..=100_000,
            faults,
        ))
        .unwrap_or(MAX_CONCURRENCY),
        max_request_bytes: size(raw.max_request_bytes, 1 << 20, faults),
        max_response_bytes: size(raw.max_response_bytes, 4 << 20, faults),
        retries: failing::retries(raw.retries, faults),
        breaker: failing::breaker(raw.breaker, faults),
    })
}

fn without_effect(raw: &RawUpstream, faults: &mut Faults) {
    let lite = raw.dialect.as_ref().is_some_and(|d| d.value == DialectKind::McpLite);
    if let Some(inject) = raw.inject_user.as_ref().filter(|_| !lite) {
        let message = "`inject_user` is about `dialect: mcp-lite` only";
        faults.add(FaultCode::NoEffect, &inject.at, message);
    }
    let modern = |p: &Spanned<Option<Version>>| p.value.is_some_and(Version::is_modern);
    let stateless = lite || raw.protocol.as_ref().is_some_and(modern);
    for (key, at) in [
        ("park", raw.park.as_ref().map(|park| &park.at)),
        ("session_idle", raw.session_idle.as_ref().map(|idle| &idle.at)),
        ("max_sessions", raw.max_sessions.as_ref().map(|max| &max.at)),
    ] {
        if let Some(at) = at.filter(|_| stateless) {
            let message = format!("`{key}` is about servers that have sessions");
            faults.add(FaultCode::NoEffect, at, message);
        }
    }
    if let Some(protocol) = raw.protocol.as_ref().filter(|p| lite && p.value.is_some()) {
        let message = "`mcp-lite` has no protocol revisions";
        faults.add(FaultCode::Contradiction, &protocol.at, message);
    }
}

fn build_times(
    timeout: Option<Spanned<Duration>>,
    max_time: Option<Spanned<Duration>>,
    faults: &mut Faults,
) -> (Duration, Duration) {
    let at = timeout.as_ref().or(max_time.as_ref()).map(|time| time.at.clone());
    // A longer timeout alone stretches the default cap; a shorter cap alone cuts the timeout.
    let cap = timeout.as_ref().map_or(MAX_TIME, |timeout| timeout.value.max(MAX_TIME));
    let max_given = max_time.is_some();
    let timeout_given = timeout.is_some();
    let max_time = within(max_time, cap, MS..=MAX_WAIT, faults);
    let timeout = within(timeout, TIMEOUT.min(max_time), MS..=MAX_WAIT, faults);
    if let (true, true, Some(at)) = (max_given, timeout_given, at)
        && timeout > max_time
    {
        let message = "`timeout` is longer than `max_time`, which ends every call";
        faults.add(FaultCode::Contradiction, &at, message);
    }
    (timeout, max_time)
}

// === addresses ===

fn build_urls(raw: &[Spanned<String>], faults: &mut Faults) -> Vec<Url> {
    let mut urls: Vec<Url> = Vec::with_capacity(raw.len());
    for text in raw {
        match check_url(&text.value) {
            Ok(url) if urls.contains(&url) => {
                faults.add(FaultCode::GivenTwice, &text.at, "this address is here twice");
            }
            Ok(url) => urls.push(url),
            Err((message, suggestion)) => {
                // An address that is refused may hold what it is refused for.
                let fault = faults.add(FaultCode::BadAddress, &text.at, message).secret();
                if let Some(suggestion) = suggestion {
                    fault.suggest(suggestion);
                }
            }
        }
    }
    urls
}

fn check_url(text: &str) -> Result<Url, (String, Option<&'static str>)> {
    address::parse(text).map_err(|fault| {
        let advice = match &fault {
            AddressFault::NotOne(_) => Some("such as `http://127.0.0.1:7001/mcp`"),
            fault if fault.is_secret() => {
                Some("send it in a header: `headers: { NAME: { env: … } }`")
            }
            _ => None,
        };
        (fault.to_string(), advice)
    })
}

// === headers ===

fn build_headers(raw: Vec<RawHeader>, vault: Vault<'_>, faults: &mut Faults) -> Vec<Header> {
    let mut seen: HashMap<HeaderName, Span> = HashMap::new();
    let mut headers = Vec::with_capacity(raw.len());
    for header in raw {
        let Some(name) = header_name(&header.name, faults) else { continue };
        if let Some(first) = seen.insert(name.clone(), header.name.at.clone()) {
            let message = format!("header `{}` is set twice", header.name.value);
            let fault = faults.add(FaultCode::GivenTwice, &header.name.at, message);
            fault.relate(&first, "here the first time");
            continue;
        }
        if let Some(value) = header_value(&name, header.value, &header.value_at, vault, faults) {
            headers.push(Header { name, value });
        }
    }
    headers
}

fn header_name(name: &Spanned<String>, faults: &mut Faults) -> Option<HeaderName> {
    header::settable(&name.value)
        .map_err(|fault| {
            let message = format!("`{}` {fault}", name.value);
            faults.add(FaultCode::BadHeader, &name.at, message);
        })
        .ok()
}

fn header_value(
    name: &HeaderName,
    value: RawHeaderValue,
    at: &Span,
    vault: Vault<'_>,
    faults: &mut Faults,
) -> Option<HeaderSource> {
    match value {
        RawHeaderValue::Secret(SecretRef::Stored(secret)) => {
            if !vault.is_kept {
                let message =
                    "a secret of the store is sealed under the keyring, and there is none";
                let fault = faults.add(FaultCode::Contradiction, &secret.at, message);
                fault.suggest("add `keyring: { file: … }`: `hangu keys new` makes one");
                return None;
            }
            Some(HeaderSource::Stored(secret.value.into()))
        }
        RawHeaderValue::Secret(secret) => {
            let value = vault.open(&secret, at, faults)?;
            let text = value.expose_secret();
            if !fits(text) {
                let message = "the value cannot be sent in a header: it is not visible ASCII";
                faults.add(FaultCode::BadHeader, at, message);
                return None;
            }
            Some(HeaderSource::Secret(value))
        }
        RawHeaderValue::Text(text) => {
            let template = match HeaderTemplate::parse(&text) {
                Ok(template) => template,
                Err(found) => {
                    let fault = faults.add(FaultCode::BadTemplate, at, found.message);
                    if let Some(suggestion) = found.suggestion {
                        fault.suggest(suggestion);
                    }
                    if is_sensitive(name.as_str()) {
                        fault.secret();
                    }
                    return None;
                }
            };
            if is_sensitive(name.as_str()) && !template.is_all_context() {
                let message = format!("the value of `{name}` is a secret: it does not stand here");
                let fault = faults.add(FaultCode::SecretInTheOpen, at, message);
                fault.suggest("write `{ env: NAME }` or `{ file: PATH }`").secret();
                return None;
            }
            if !fits(&text) {
                faults.add(FaultCode::BadHeader, at, "the value is empty, or begins or ends blank");
                return None;
            }
            Some(HeaderSource::Template(template))
        }
    }
}

fn build_forwarded(
    raw: Vec<Spanned<String>>,
    headers: &[Header],
    faults: &mut Faults,
) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = Vec::with_capacity(raw.len());
    for text in raw {
        let Some(name) = header_name(&text, faults) else { continue };
        if OURS.contains(&name.as_str()) {
            let message = format!("`{}` is for the gateway: it is never passed on", text.value);
            let fault = faults.add(FaultCode::BadHeader, &text.at, message);
            fault.suggest("set it in `headers`, such as `SSO-Emp-Id: $ctx.user.empId`");
        } else if names.contains(&name) {
            let message = format!("`{}` is here twice", text.value);
            faults.add(FaultCode::GivenTwice, &text.at, message);
        } else if headers.iter().any(|header| header.name == name) {
            let message = format!("`{}` is set by `headers` already", text.value);
            faults.add(FaultCode::Contradiction, &text.at, message);
        } else {
            if name == http::header::AUTHORIZATION {
                let message = "a client's token is passed on: it was issued for somebody else";
                faults.add(FaultCode::ForwardedToken, &text.at, message);
            }
            names.push(name);
        }
    }
    names
}
