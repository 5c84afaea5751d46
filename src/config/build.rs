//! As written to as meant: defaults, paths, and what only shows when values are seen together.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    Audit, Config, Drain, Edge, Errors, Idempotency, Lists, Pins, Questions, Sessions, Steps,
    Streams, Telemetry, Tls, ToolsCallErrors, Trace, TraceTrust, admin, approvals, callers,
    credentials, egress, issuers, keyring,
    raw::{
        RawConfig, RawEdge, RawIdempotency, RawLists, RawPins, RawQuestions, RawSteps, RawStreams,
        RawTls,
    },
    secret::Vault,
    servers, store, upstreams,
};
use crate::{
    fault::{FaultCode, Faults},
    model::server::Risk,
    yaml::{ByteSize, Env, Spanned, duration_text},
};

const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// The longest of any time that is not a lifetime.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// The longest lifetime.
pub(super) const MAX_LIFE: Duration = Duration::from_secs(30 * 86_400);

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn build(raw: RawConfig, folder: &Path, env: Env<'_>, faults: &mut Faults) -> Config {
    let public_url = raw.public_url.clone();
    let vault = Vault {
        env,
        folder,
        is_kept: raw.keyring.is_some() || store::is_memory(&raw),
        has_keyring: raw.keyring.is_some(),
        public_url: public_url.as_ref(),
    };
    let policies = policies(&raw, folder, faults);
    let listen = raw.listen.as_ref().map_or(LISTEN, |listen| listen.value);
    let admin_listen = admin_listen(&raw, listen, faults);
    let admin = admin::build(raw.admin, admin_listen, vault, faults);
    let callers = callers::build(raw.callers, listen, vault, faults);
    let issuers = issuers::build(raw.issuers, faults);
    let upstreams = upstreams::build(raw.upstreams, vault, faults);
    let longest = upstreams.iter().map(|upstream| upstream.max_time).max();
    Config {
        listen,
        workers: NonZeroUsize::new(within(raw.workers, 0, 0..=1_024, faults)),
        admin,
        policies,
        audit: Audit {
            file: folder.join(raw.audit.file.map_or("audit/hangu.jsonl".into(), |f| f.value)),
            strict: raw.audit.strict.unwrap_or_else(|| vec![Risk::WriteLow, Risk::WriteHigh]),
        },
        callers,
        issuers,
        public_url: raw.public_url,
        upstreams,
        tls: raw.tls.and_then(|tls| build_tls(tls, folder, faults)),
        origins: raw.origins,
        trusted_proxies: raw.trusted_proxies,
        trace: Trace { trust: raw.trace_trust.unwrap_or(TraceTrust::Authenticated) },
        telemetry: Telemetry { max_tenants: within(raw.max_tenants, 200, 1..=100_000, faults) },
        errors: Errors { tools_call: raw.tools_call_errors.unwrap_or(ToolsCallErrors::Result) },
        sessions: Sessions {
            required: raw.sessions_required.unwrap_or(false),
            ttl: within(raw.session_ttl, 8 * 3_600 * SECOND, SECOND..=MAX_LIFE, faults),
        },
        drain: Drain {
            delay: within(raw.drain_delay, Duration::ZERO, Duration::ZERO..=MAX_WAIT, faults),
            // Long enough for any call.
            timeout: within(
                raw.drain_timeout,
                longest.unwrap_or(upstreams::MAX_TIME),
                Duration::ZERO..=MAX_WAIT,
                faults,
            ),
        },
        streams: build_streams(raw.streams, faults),
        edge: build_edge(raw.edge, faults),
        idempotency: build_idempotency(raw.idempotency, faults),
        names: raw.names.unwrap_or_default(),
        lists: build_lists(raw.lists, faults),
        questions: build_questions(raw.questions, faults),
        store: store::build(raw.store, vault, faults),
        approvals: approvals::build(raw.approvals, vault, faults),
        egress: egress::build(raw.egress, faults),
        steps: build_steps(raw.steps, faults),
        pins: pins(raw.pins, faults),
        keyring: keyring::build(raw.keyring, folder, true, faults),
        credentials: credentials::limits(raw.credentials, faults),
        servers: servers::build(raw.servers, faults),
    }
}

/// The folder that is named, or the one beside the file if it is there.
fn policies(raw: &RawConfig, folder: &Path, faults: &mut Faults) -> Option<PathBuf> {
    if let Some(named) = &raw.policies {
        let path = folder.join(&named.value);
        if !path.is_dir() {
            let message = format!("`{}` is not a folder", path.display());
            faults.add(FaultCode::Unreadable, &named.at, message);
            return None;
        }
        return Some(path);
    }
    let path = folder.join("policies");
    if path.is_dir() {
        return Some(path);
    }
    let message = "there is no folder `policies/` beside this file: nothing is allowed";
    faults.add(FaultCode::NoPolicies, &raw.at, message).suggest("`hangu init` writes one");
    None
}

fn admin_listen(raw: &RawConfig, listen: SocketAddr, faults: &mut Faults) -> SocketAddr {
    let Some(admin) = &raw.admin.listen else { return ADMIN_LISTEN };
    if admin.value == listen && listen.port() != 0 {
        let message = "`admin.listen` and `listen` are the same address";
        faults.add(FaultCode::Contradiction, &admin.at, message);
    }
    admin.value
}

fn build_tls(tls: RawTls, folder: &Path, faults: &mut Faults) -> Option<Tls> {
    let mut file = |path: Option<Spanned<String>>| {
        let path = path?;
        let whole = folder.join(&path.value);
        if !whole.is_file() {
            let message = format!("`{}` is not a file", whole.display());
            faults.add(FaultCode::Unreadable, &path.at, message);
        }
        Some(whole)
    };
    let (cert, key) = (file(tls.cert), file(tls.key));
    Some(Tls { cert: cert?, key: key? })
}

fn build_streams(raw: RawStreams, faults: &mut Faults) -> Streams {
    Streams {
        per_principal: within(raw.per_principal, 32, 1..=1_000_000, faults),
        total: within(raw.total, 10_000, 1..=1_000_000, faults),
        subscriptions: within(raw.subscriptions, 256, 1..=1_000, faults),
        sessions: within(raw.sessions, 100_000, 1..=10_000_000, faults),
        resume_window: within(
            raw.resume_window,
            60 * SECOND,
            Duration::ZERO..=3_600 * SECOND,
            faults,
        ),
        resume_bytes: size(raw.resume_bytes, 1 << 20, faults),
        resume_total: size(raw.resume_total, 64 << 20, faults),
    }
}

fn build_edge(raw: RawEdge, faults: &mut Faults) -> Edge {
    let times = SECOND..=MAX_WAIT;
    Edge {
        header_timeout: within(raw.header_timeout, 10 * SECOND, times.clone(), faults),
        idle_timeout: within(raw.idle_timeout, 75 * SECOND, times.clone(), faults),
        body_timeout: within(raw.body_timeout, 30 * SECOND, times, faults),
        max_connections: within(raw.max_connections, 10_000, 1..=1_000_000, faults),
        max_body: size(raw.max_body, 4 << 20, faults),
        hold: within(raw.hold, 10 * SECOND, Duration::from_millis(1)..=MAX_WAIT, faults),
        max_batch: within(raw.max_batch, 50, 1..=1_000, faults),
        batch_concurrency: within(raw.batch_concurrency, 8, 1..=1_000, faults),
    }
}

fn build_idempotency(raw: RawIdempotency, faults: &mut Faults) -> Idempotency {
    Idempotency {
        capacity_bytes: size(raw.capacity_bytes, 256 << 20, faults),
        max_keys: within(raw.max_keys, 200_000, 1..=10_000_000, faults),
        ttl: within(raw.ttl, 86_400 * SECOND, SECOND..=MAX_LIFE, faults),
        wait: within(raw.wait, 2 * SECOND, Duration::ZERO..=60 * SECOND, faults),
        max_body: size(raw.max_body, 256 << 10, faults),
    }
}

fn build_questions(raw: RawQuestions, faults: &mut Faults) -> Questions {
    Questions {
        answer: within(raw.answer, 120 * SECOND, SECOND..=MAX_WAIT, faults),
        rounds: within(raw.rounds, 8, 1..=100, faults),
        max_open: within(raw.max_open, 1_000, 1..=1_000_000, faults),
        max_open_each: within(raw.max_open_each, 16, 1..=10_000, faults),
    }
}

fn build_lists(raw: RawLists, faults: &mut Faults) -> Lists {
    Lists {
        page_size: within(raw.page_size, 1_000, 1..=100_000, faults),
        wait: within(raw.wait, 20 * SECOND, Duration::ZERO..=MAX_WAIT, faults),
        max_bytes: size(raw.max_bytes, 32 << 20, faults),
    }
}

fn build_steps(raw: RawSteps, faults: &mut Faults) -> Steps {
    Steps {
        max_steps: within(raw.max_steps, 100, 1..=10_000, faults),
        limits: crate::steps::Limits {
            max_time: within(raw.max_time, 300 * SECOND, SECOND..=MAX_WAIT, faults),
            max_variables: usize::try_from(size(raw.max_variables, 4 << 20, faults))
                .unwrap_or(usize::MAX),
        },
    }
}

fn pins(raw: RawPins, faults: &mut Faults) -> Pins {
    const DAY: Duration = Duration::from_secs(86_400);
    Pins {
        versions: within(raw.versions, 20, 1..=10_000, faults),
        max_tools: within(raw.max_tools, 20_000, 1..=1_000_000, faults),
        unlisted: within(raw.unlisted, 90 * DAY, 3_600 * SECOND..=3_650 * DAY, faults),
    }
}

/// The value that is given, if it is one that makes sense, else the default.
pub(super) fn within<T: Copy + PartialOrd + Told>(
    given: Option<Spanned<T>>,
    default: T,
    range: std::ops::RangeInclusive<T>,
    faults: &mut Faults,
) -> T {
    let Some(given) = given else { return default };
    if !range.contains(&given.value) {
        let (least, most) = (range.start().told(), range.end().told());
        faults.add(FaultCode::BadValue, &given.at, format!("not between {least} and {most}"));
    }
    given.value
}

/// A size of at least one byte and at most 16 GiB.
pub(super) fn size(given: Option<Spanned<ByteSize>>, default: u64, faults: &mut Faults) -> u64 {
    let given = given.map(|size| Spanned { value: size.value.0, at: size.at });
    within(given, default, 1..=16 << 30, faults)
}

/// How a bound is told.
pub(super) trait Told {
    fn told(&self) -> String;
}

impl Told for Duration {
    fn told(&self) -> String {
        duration_text(*self)
    }
}

impl Told for usize {
    fn told(&self) -> String {
        self.to_string()
    }
}

impl Told for u64 {
    fn told(&self) -> String {
        self.to_string()
    }
}
