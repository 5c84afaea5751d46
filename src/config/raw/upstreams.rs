//! `upstreams:` as it is written.

use std::time::Duration;

use super::{RawAuth, RawBreaker, RawPeerTls, RawRetries, SecretRef};
use crate::{
    fault::{FaultCode, Faults, Span},
    mcp::Version,
    model::server::DialectKind,
    yaml::{ByteSize, Entry, FromNode, MapReader, Node, Spanned, Value, Words},
};

#[derive(Debug)]
pub struct RawUpstream {
    /// As it is written: not yet a name.
    pub name: Spanned<String>,
    pub urls: Vec<Spanned<String>>,
    /// A server that is a child process.
    pub process: Option<RawProcess>,
    pub dialect: Option<Spanned<DialectKind>>,
    /// `Some(None)`: `auto`.
    pub protocol: Option<Spanned<Option<Version>>>,
    pub auth: Option<RawAuth>,
    pub tls: Option<RawPeerTls>,
    pub headers: Vec<RawHeader>,
    pub forward_headers: Vec<Spanned<String>>,
    pub inject_user: Option<Spanned<bool>>,
    pub stateless: Option<bool>,
    pub park: Option<Spanned<bool>>,
    pub session_idle: Option<Spanned<Duration>>,
    pub max_sessions: Option<Spanned<usize>>,
    pub timeout: Option<Spanned<Duration>>,
    pub max_time: Option<Spanned<Duration>>,
    pub connect_timeout: Option<Spanned<Duration>>,
    pub poll: Option<Spanned<Duration>>,
    pub max_concurrency: Option<Spanned<usize>>,
    pub max_request_bytes: Option<Spanned<ByteSize>>,
    pub max_response_bytes: Option<Spanned<ByteSize>>,
    pub retries: RawRetries,
    pub breaker: Option<RawBreaker>,
}

/// A command, and how its processes are kept.
#[derive(Debug)]
pub struct RawProcess {
    /// Program first; at least one word.
    pub command: Vec<String>,
    pub env: Vec<RawHeader>,
    pub stop_wait: Option<Spanned<Duration>>,
    pub max_processes: Option<Spanned<usize>>,
}

/// A header, from `headers` or from `options`.
#[derive(Debug)]
pub struct RawHeader {
    pub name: Spanned<String>,
    pub value: RawHeaderValue,
    pub value_at: Span,
}

#[derive(Debug)]
pub enum RawHeaderValue {
    Text(String),
    Secret(SecretRef),
}

const DIALECTS: Words<DialectKind> = Words {
    what: "dialect",
    code: FaultCode::BadValue,
    known: &[
        ("auto", DialectKind::Auto),
        ("mcp-lite", DialectKind::McpLite),
        ("sse", DialectKind::HttpSse),
        ("stdio", DialectKind::Stdio),
        ("streamable-http", DialectKind::StreamableHttp),
    ],
    later: &[],
};

const PROTOCOLS: Words<Option<Version>> = Words {
    what: "protocol revision",
    code: FaultCode::BadValue,
    known: &[
        ("auto", None),
        ("2026-07-28", Some(Version::V2026_07_28)),
        ("2025-11-25", Some(Version::V2025_11_25)),
        ("2025-06-18", Some(Version::V2025_06_18)),
        ("2025-03-26", Some(Version::V2025_03_26)),
        ("2024-11-05", Some(Version::V2024_11_05)),
    ],
    later: &[],
};

/// How an option that sets a header begins.
const HEADER_OPTION: &str = "mcp.headers.";

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<RawUpstream> {
    let entries = map.required_node("upstreams", faults).map(|node| node.named(faults));
    let entries = entries.unwrap_or_default().into_iter();
    entries.filter_map(|entry| RawUpstream::read(entry, faults)).collect()
}

impl RawUpstream {
    fn read(entry: &Entry, faults: &mut Faults) -> Option<Self> {
        let mut map = entry.value.map(faults)?;
        let process = RawProcess::read(&mut map, faults);
        let mut headers = read_named(&mut map, "headers", faults);
        headers.extend(read_options(&mut map, faults));
        let upstream = Self {
            name: Spanned::new(entry.key.clone(), &entry.key_at),
            urls: read_urls(&mut map, process.is_some(), faults),
            process,
            dialect: spanned(&mut map, "dialect", &DIALECTS, faults),
            protocol: spanned(&mut map, "protocol", &PROTOCOLS, faults),
            auth: map.optional("auth", faults),
            tls: map.optional("tls", faults),
            headers,
            forward_headers: map.optional("forward_headers", faults).unwrap_or_default(),
            inject_user: map.optional("inject_user", faults),
            stateless: map.optional("stateless", faults),
            park: map.optional("park", faults),
            session_idle: map.optional("session_idle", faults),
            max_sessions: map.optional("max_sessions", faults),
            timeout: map.optional("timeout", faults),
            max_time: map.optional("max_time", faults),
            connect_timeout: map.optional("connect_timeout", faults),
            poll: map.optional("poll", faults),
            max_concurrency: map.optional("max_concurrency", faults),
            max_request_bytes: map.optional("max_request_bytes", faults),
            max_response_bytes: map.optional("max_response_bytes", faults),
            retries: RawRetries::read(&mut map, faults),
            breaker: RawBreaker::read(&mut map, faults),
        };
        map.finish(faults);
        Some(upstream)
    }
}

impl RawProcess {
    fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Self> {
        let command = map.entry("command");
        let args = map.node("args").map(|node| Vec::<String>::from_node(node, faults));
        let env = read_named(map, "env", faults);
        let stop_wait: Option<Spanned<Duration>> = map.optional("stop_wait", faults);
        let max_processes: Option<Spanned<usize>> = map.optional("max_processes", faults);
        let Some(command) = command else {
            if args.is_some() || !env.is_empty() || stop_wait.is_some() || max_processes.is_some() {
                let message = "`args`, `env`, `stop_wait` and `max_processes` are of a `command`";
                faults.add(FaultCode::MissingKey, map.at, message);
            }
            return None;
        };
        let at = command.value.at.clone();
        let mut words = match &command.value.value {
            Value::Text(program) => vec![program.clone()],
            _ => Vec::from_node(&command.value, faults).unwrap_or_default(),
        };
        match words.first() {
            None => {
                faults.add(FaultCode::BadValue, &at, "`command` is empty");
            }
            Some(program) if program.trim() != program || program.is_empty() => {
                faults.add(FaultCode::BadValue, &at, "the program's name is empty or blank");
            }
            // No shell takes it apart.
            Some(program)
                if words.len() == 1 && program.contains(' ') && !program.contains('/') =>
            {
                let fault = faults.add(
                    FaultCode::BadValue,
                    &at,
                    "a command is a program and its arguments, one by one",
                );
                fault.suggest("write `command: [PROGRAM, ARGUMENT, …]`");
            }
            Some(_) => {}
        }
        words.extend(args.flatten().unwrap_or_default());
        if words.iter().any(|word| word.contains('\0')) {
            faults.add(FaultCode::BadValue, &at, "no program can be given a NUL");
        }
        Some(Self { command: words, env, stop_wait, max_processes })
    }
}

fn spanned<T: Copy>(
    map: &mut MapReader<'_>,
    key: &'static str,
    words: &Words<T>,
    faults: &mut Faults,
) -> Option<Spanned<T>> {
    let node = map.node(key)?;
    words.read(node, faults).map(|value| Spanned::new(value, &node.at))
}

/// `url: X`, or `urls: [X, Y]`.
fn read_urls(
    map: &mut MapReader<'_>,
    has_command: bool,
    faults: &mut Faults,
) -> Vec<Spanned<String>> {
    let one = map.node("url");
    let many = map.entry("urls");
    match (one, many) {
        (Some(node), None) => Spanned::from_node(node, faults).into_iter().collect(),
        (None, Some(entry)) => {
            if matches!(&entry.value.value, Value::Seq(items) if items.is_empty()) {
                faults.add(FaultCode::BadValue, &entry.value.at, "`urls` is empty");
            }
            Vec::from_node(&entry.value, faults).unwrap_or_default()
        }
        (Some(_), Some(entry)) => {
            let message = "either `url` or `urls`, not both";
            faults.add(FaultCode::GivenTwice, &entry.key_at, message);
            Vec::new()
        }
        (None, None) => {
            if !has_command {
                let message = "`url` is missing, or `command` for a server that is a process";
                faults.add(FaultCode::MissingKey, map.at, message);
            }
            Vec::new()
        }
    }
}

/// A mapping of names to values that may be secrets.
fn read_named(map: &mut MapReader<'_>, key: &'static str, faults: &mut Faults) -> Vec<RawHeader> {
    let entries = map.node(key).map(|node| node.named(faults)).unwrap_or_default();
    let read = entries.into_iter().filter_map(|entry| {
        let name = Spanned::new(entry.key.clone(), &entry.key_at);
        RawHeader::read(name, &entry.value, faults)
    });
    read.collect()
}

/// Server options in the form of enterprise gateways: a mapping, or a list of `NAME=VALUE`.
fn read_options(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<RawHeader> {
    let Some(node) = map.node("options") else { return Vec::new() };
    if let Value::Seq(items) = &node.value {
        return items.iter().filter_map(|item| read_property(item, faults)).collect();
    }
    let read = node.named(faults).into_iter().filter_map(|entry| {
        let name = option_header(&entry.key, &entry.key_at, faults)?;
        RawHeader::read(Spanned::new(name, &entry.key_at), &entry.value, faults)
    });
    read.collect()
}

fn read_property(node: &Node, faults: &mut Faults) -> Option<RawHeader> {
    let text = node.text(faults)?;
    let Some((option, value)) = text.split_once('=') else {
        let message = "an option is `NAME=VALUE`";
        faults.add(FaultCode::BadValue, &node.at, message).secret();
        return None;
    };
    let name = option_header(option.trim(), &node.at, faults)?;
    Some(RawHeader {
        name: Spanned::new(name, &node.at),
        value: RawHeaderValue::Text(value.trim().to_owned()),
        value_at: node.at.clone(),
    })
}

/// The header that an option sets.
fn option_header(option: &str, at: &Span, faults: &mut Faults) -> Option<String> {
    match option.strip_prefix(HEADER_OPTION) {
        Some(name) => Some(name.to_owned()),
        None => {
            let fault = faults.add(FaultCode::UnknownKey, at, format!("unknown option `{option}`"));
            fault.suggest(format!("known is `{HEADER_OPTION}NAME`")).secret();
            None
        }
    }
}

impl RawHeader {
    fn read(name: Spanned<String>, node: &Node, faults: &mut Faults) -> Option<Self> {
        let value = match &node.value {
            Value::Text(text) => RawHeaderValue::Text(text.clone()),
            Value::Unknown => return None,
            Value::Map(_) => RawHeaderValue::Secret(SecretRef::from_node(node, faults)?),
            _ => {
                // A number would be sent as it happens to be written.
                let message = format!("expected a text, found {}", node.describe());
                let fault = faults.add(FaultCode::WrongType, &node.at, message);
                fault.suggest("put it in quotes").secret();
                return None;
            }
        };
        Some(Self { name, value, value_at: node.at.clone() })
    }
}
