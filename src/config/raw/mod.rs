//! `hangu.yaml` as it is written: each value with its place, each key known.
//!
//! Shapes and single values are checked here; what values mean together, and whether a secret is
//! there, in `build`.

mod admin;
mod approvals;
mod auth;
mod callers;
mod credentials;
mod egress;
mod failing;
mod issuers;
mod keyring;
mod peer_tls;
mod pins;
mod servers;
mod upstreams;

use std::{net::SocketAddr, time::Duration};

use super::{Names, Network, Origin, ToolsCallErrors, TraceTrust};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::server::Risk,
    yaml::{ByteSize, FromNode, MapReader, Node, Spanned, VERSION, Value, Words, check_name},
};

pub use admin::{AdminRole, RawAdmin, RawToken};
pub use approvals::{RawApprovals, RawWebhook};
pub use auth::{
    RawAuth, RawAuthKind, RawClient, RawClientCredentials, RawConsent, RawSignedJwt, RawSigningKey,
    RawTokenExchange, RawTokensAt,
};
pub use callers::{RawCaller, RawEmployee, RawIdentity, RawKey, RawKeySource};
pub use credentials::RawCredentials;
pub use egress::RawEgress;
pub use failing::{RawBreaker, RawRetries};
pub use issuers::{ALGORITHMS, Algorithm, RawIssuer, RawScopes};
pub use keyring::RawKeyring;
pub use peer_tls::RawPeerTls;
pub use pins::RawPins;
pub use servers::RawServers;
pub use upstreams::{RawHeader, RawHeaderValue, RawProcess, RawUpstream};

/// The whole file.
#[derive(Debug)]
pub struct RawConfig {
    pub at: Span,
    pub listen: Option<Spanned<SocketAddr>>,
    pub workers: Option<Spanned<usize>>,
    pub admin: RawAdmin,
    pub policies: Option<Spanned<String>>,
    pub audit: RawAudit,
    pub callers: Vec<RawCaller>,
    pub issuers: Vec<RawIssuer>,
    pub public_url: Option<Origin>,
    pub upstreams: Vec<RawUpstream>,
    pub tls: Option<RawTls>,
    pub origins: Vec<Origin>,
    pub trusted_proxies: Vec<Network>,
    pub trace_trust: Option<TraceTrust>,
    pub max_tenants: Option<Spanned<usize>>,
    pub tools_call_errors: Option<ToolsCallErrors>,
    pub sessions_required: Option<bool>,
    pub session_ttl: Option<Spanned<Duration>>,
    pub drain_delay: Option<Spanned<Duration>>,
    pub drain_timeout: Option<Spanned<Duration>>,
    pub streams: RawStreams,
    pub edge: RawEdge,
    pub idempotency: RawIdempotency,
    pub questions: RawQuestions,
    pub names: Option<Names>,
    pub lists: RawLists,
    pub store: Option<RawStore>,
    pub approvals: RawApprovals,
    pub egress: RawEgress,
    pub steps: RawSteps,
    pub pins: RawPins,
    pub keyring: Option<RawKeyring>,
    pub credentials: Option<RawCredentials>,
    pub servers: RawServers,
}

/// Where what must last is kept.
#[derive(Debug)]
pub struct RawStore {
    pub address: RawStoreAddress,
    pub at: Span,
}

#[derive(Debug)]
pub enum RawStoreAddress {
    Text(String),
    /// One that may hold a password.
    Secret(SecretRef),
}

#[derive(Debug, Default)]
pub struct RawAudit {
    pub file: Option<Spanned<String>>,
    pub strict: Option<Vec<Risk>>,
}

#[derive(Debug)]
pub struct RawTls {
    pub cert: Option<Spanned<String>>,
    pub key: Option<Spanned<String>>,
}

#[derive(Debug, Default)]
pub struct RawStreams {
    pub per_principal: Option<Spanned<usize>>,
    pub total: Option<Spanned<usize>>,
    pub subscriptions: Option<Spanned<usize>>,
    pub sessions: Option<Spanned<usize>>,
    pub resume_window: Option<Spanned<Duration>>,
    pub resume_bytes: Option<Spanned<ByteSize>>,
    pub resume_total: Option<Spanned<ByteSize>>,
}

#[derive(Debug, Default)]
pub struct RawEdge {
    pub header_timeout: Option<Spanned<Duration>>,
    pub idle_timeout: Option<Spanned<Duration>>,
    pub body_timeout: Option<Spanned<Duration>>,
    pub max_connections: Option<Spanned<usize>>,
    pub max_body: Option<Spanned<ByteSize>>,
    pub hold: Option<Spanned<Duration>>,
    pub max_batch: Option<Spanned<usize>>,
    pub batch_concurrency: Option<Spanned<usize>>,
}

#[derive(Debug, Default)]
pub struct RawIdempotency {
    pub capacity_bytes: Option<Spanned<ByteSize>>,
    pub max_keys: Option<Spanned<usize>>,
    pub ttl: Option<Spanned<Duration>>,
    pub wait: Option<Spanned<Duration>>,
    pub max_body: Option<Spanned<ByteSize>>,
}

#[derive(Debug, Default)]
pub struct RawQuestions {
    pub answer: Option<Spanned<Duration>>,
    pub rounds: Option<Spanned<usize>>,
    pub max_open: Option<Spanned<usize>>,
    pub max_open_each: Option<Spanned<usize>>,
}

#[derive(Debug, Default)]
pub struct RawLists {
    pub page_size: Option<Spanned<usize>>,
    pub wait: Option<Spanned<Duration>>,
    pub max_bytes: Option<Spanned<ByteSize>>,
}

#[derive(Debug, Default)]
pub struct RawSteps {
    pub max_time: Option<Spanned<Duration>>,
    pub max_steps: Option<Spanned<usize>>,
    pub max_variables: Option<Spanned<ByteSize>>,
}

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    Env(String),
    File(String),
    /// Under a name, in the credential store.
    Stored(Spanned<String>),
}

const SHARED: Words<()> = Words {
    what: "shared store",
    code: FaultCode::BadValue,
    known: &[("local", ())],
    later: &["redis"],
};

const EMPLOYEE_FORMS: Words<()> =
    Words { what: "form", code: FaultCode::BadValue, known: &[("plain", ())], later: &["hash"] };

const TRUSTS: Words<TraceTrust> = Words {
    what: "trust",
    code: FaultCode::BadValue,
    known: &[("authenticated", TraceTrust::Authenticated), ("never", TraceTrust::Never)],
    later: &[],
};

const TOOLS_CALL: Words<ToolsCallErrors> = Words {
    what: "form of errors",
    code: FaultCode::BadValue,
    known: &[
        ("result", ToolsCallErrors::Result),
        ("jsonrpc", ToolsCallErrors::JsonRpc),
        ("status", ToolsCallErrors::Status),
    ],
    later: &[],
};

const NAMES: Words<Names> = Words {
    what: "way of naming",
    code: FaultCode::BadValue,
    known: &[("always", Names::Always), ("conflict", Names::Conflict), ("never", Names::Never)],
    later: &[],
};

const SESSIONS: Words<bool> = Words {
    what: "way with sessions",
    code: FaultCode::BadValue,
    known: &[("optional", false), ("required", true)],
    later: &[],
};

impl RawConfig {
    pub fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        if let Some(version) = map.required_node("version", faults) {
            VERSION.read(version, faults);
        }
        read_backend(&mut map, "shared", &SHARED, faults);
        let config = Self {
            at: node.at.clone(),
            listen: map.optional("listen", faults),
            workers: map.optional("workers", faults),
            admin: admin::read(&mut map, faults),
            policies: map.optional("policies", faults),
            audit: read_audit(&mut map, faults),
            callers: callers::read(&mut map, faults),
            issuers: issuers::read(&mut map, faults),
            public_url: map.optional("public_url", faults),
            upstreams: upstreams::read(&mut map, faults),
            tls: read_tls(&mut map, faults),
            origins: map.optional("origins", faults).unwrap_or_default(),
            trusted_proxies: map.optional("trusted_proxies", faults).unwrap_or_default(),
            trace_trust: part(&mut map, "trace", faults, |map, faults| {
                map.words("trust", &TRUSTS, faults)
            }),
            max_tenants: part(&mut map, "telemetry", faults, |map, faults| {
                map.optional("max_tenants", faults)
            }),
            tools_call_errors: part(&mut map, "errors", faults, |map, faults| {
                map.words("tools_call", &TOOLS_CALL, faults)
            }),
            sessions_required: map.words("sessions", &SESSIONS, faults),
            session_ttl: map.optional("session_ttl", faults),
            drain_delay: map.optional("drain_delay", faults),
            drain_timeout: map.optional("drain_timeout", faults),
            streams: read_streams(&mut map, faults),
            edge: read_edge(&mut map, faults),
            idempotency: read_idempotency(&mut map, faults),
            questions: read_questions(&mut map, faults),
            names: map.words("names", &NAMES, faults),
            lists: read_lists(&mut map, faults),
            store: map.optional("store", faults),
            approvals: approvals::read(&mut map, faults),
            egress: egress::read(&mut map, faults),
            steps: read_steps(&mut map, faults),
            pins: pins::read(&mut map, faults),
            keyring: map.optional("keyring", faults),
            credentials: map.optional("credentials", faults),
            servers: servers::read(&mut map, faults),
        };
        map.finish(faults);
        Some(config)
    }
}

/// Reads a mapping under a key, if it is there.
fn part<T>(
    map: &mut MapReader<'_>,
    key: &'static str,
    faults: &mut Faults,
    read: impl FnOnce(&mut MapReader<'_>, &mut Faults) -> Option<T>,
) -> Option<T> {
    let mut map = map.node(key)?.map(faults)?;
    let value = read(&mut map, faults);
    map.finish(faults);
    value
}

/// A backend is a word, or an address whose scheme is one.
fn read_backend(
    map: &mut MapReader<'_>,
    key: &'static str,
    words: &Words<()>,
    faults: &mut Faults,
) {
    let Some(node) = map.node(key) else { return };
    if let Value::Text(text) = &node.value
        && let Some((scheme, _)) = text.split_once(':')
        && words.later.iter().any(|later| scheme.starts_with(later))
    {
        // The address may hold a password: it is not repeated.
        let message = format!("`{key}: {scheme}:…` is not part of this version");
        let fault = faults.add(FaultCode::NotInThisVersion, &node.at, message);
        let known = words.known.first().map_or("", |(word, ())| word);
        fault.suggest(format!("only `{known}` is known")).secret();
        return;
    }
    words.read(node, faults);
}

fn read_audit(map: &mut MapReader<'_>, faults: &mut Faults) -> RawAudit {
    part(map, "audit", faults, |map, faults| {
        map.words("employee", &EMPLOYEE_FORMS, faults);
        Some(RawAudit {
            file: map.optional("file", faults),
            strict: map.optional("strict", faults),
        })
    })
    .unwrap_or_default()
}

fn read_tls(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<RawTls> {
    part(map, "tls", faults, |map, faults| {
        Some(RawTls { cert: map.required("cert", faults), key: map.required("key", faults) })
    })
}

fn read_streams(map: &mut MapReader<'_>, faults: &mut Faults) -> RawStreams {
    part(map, "streams", faults, |map, faults| {
        Some(RawStreams {
            per_principal: map.optional("per_principal", faults),
            total: map.optional("total", faults),
            subscriptions: map.optional("subscriptions", faults),
            sessions: map.optional("sessions", faults),
            resume_window: map.optional("resume_window", faults),
            resume_bytes: map.optional("resume_bytes", faults),
            resume_total: map.optional("resume_total", faults),
        })
    })
    .unwrap_or_default()
}

fn read_edge(map: &mut MapReader<'_>, faults: &mut Faults) -> RawEdge {
    part(map, "edge", faults, |map, faults| {
        Some(RawEdge {
            header_timeout: map.optional("header_timeout", faults),
            idle_timeout: map.optional("idle_timeout", faults),
            body_timeout: map.optional("body_timeout", faults),
            max_connections: map.optional("max_connections", faults),
            max_body: map.optional("max_body", faults),
            hold: map.optional("hold", faults),
            max_batch: map.optional("max_batch", faults),
            batch_concurrency: map.optional("batch_concurrency", faults),
        })
    })
    .unwrap_or_default()
}

fn read_idempotency(map: &mut MapReader<'_>, faults: &mut Faults) -> RawIdempotency {
    part(map, "idempotency", faults, |map, faults| {
        Some(RawIdempotency {
            capacity_bytes: map.optional("capacity_bytes", faults),
            max_keys: map.optional("max_keys", faults),
            ttl: map.optional("ttl", faults),
            wait: map.optional("wait", faults),
            max_body: map.optional("max_body", faults),
        })
    })
    .unwrap_or_default()
}

fn read_questions(map: &mut MapReader<'_>, faults: &mut Faults) -> RawQuestions {
    part(map, "questions", faults, |map, faults| {
        Some(RawQuestions {
            answer: map.optional("answer", faults),
            rounds: map.optional("rounds", faults),
            max_open: map.optional("max_open", faults),
            max_open_each: map.optional("max_open_each", faults),
        })
    })
    .unwrap_or_default()
}

fn read_lists(map: &mut MapReader<'_>, faults: &mut Faults) -> RawLists {
    part(map, "lists", faults, |map, faults| {
        Some(RawLists {
            page_size: map.optional("page_size", faults),
            wait: map.optional("wait", faults),
            max_bytes: map.optional("max_bytes", faults),
        })
    })
    .unwrap_or_default()
}

fn read_steps(map: &mut MapReader<'_>, faults: &mut Faults) -> RawSteps {
    part(map, "steps", faults, |map, faults| {
        Some(RawSteps {
            max_time: map.optional("max_time", faults),
            max_steps: map.optional("max_steps", faults),
            max_variables: map.optional("max_variables", faults),
        })
    })
    .unwrap_or_default()
}

// === impl RawStore ===

impl FromNode for RawStore {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let address = match &node.value {
            Value::Map(_) => RawStoreAddress::Secret(SecretRef::from_node(node, faults)?),
            _ => RawStoreAddress::Text(node.text(faults)?.to_owned()),
        };
        Some(Self { address, at: node.at.clone() })
    }
}

// === impl SecretRef ===

impl SecretRef {
    /// Reads `env`, `file` or `secret` of a mapping that may have other keys too.
    fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Self> {
        let stored: Option<Spanned<String>> = map.optional("secret", faults);
        let env: Option<String> = map.optional("env", faults);
        let file: Option<String> = map.optional("file", faults);
        match (env, file, stored) {
            (Some(env), None, None) => Some(SecretRef::Env(env)),
            (None, Some(file), None) => Some(SecretRef::File(file)),
            (None, None, Some(name)) => match check_name(&name.value) {
                Ok(()) => Some(SecretRef::Stored(name)),
                Err(reason) => {
                    let message = format!("`{}` {reason}", name.value);
                    faults.add(FaultCode::BadName, &name.at, message);
                    None
                }
            },
            (None, None, None) => {
                if ["env", "file", "secret"].iter().all(|key| map.entry(key).is_none()) {
                    // It may stand under another name.
                    let message = "a secret is `{ env: NAME }` or `{ file: PATH }`";
                    faults.add(FaultCode::MissingKey, map.at, message).secret();
                }
                None
            }
            _ => {
                let message = "one of `env`, `file` and `secret`, not more";
                faults.add(FaultCode::GivenTwice, map.at, message);
                None
            }
        }
    }
}

/// A secret alone, with nothing beside it.
impl FromNode for SecretRef {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        if !matches!(&node.value, Value::Map(_) | Value::Unknown) {
            let message = "a secret does not stand in the file";
            let fault = faults.add(FaultCode::SecretInTheOpen, &node.at, message);
            fault.suggest("`{ env: NAME }` or `{ file: PATH }`").secret();
            return None;
        }
        let mut map = node.map(faults)?;
        let secret = SecretRef::read(&mut map, faults);
        map.finish(faults);
        secret
    }
}
