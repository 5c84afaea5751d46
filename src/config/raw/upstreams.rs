//! `upstreams:` as it is written.

use std::time::Duration;

use super::SecretRef;
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
    pub dialect: Option<Spanned<DialectKind>>,
    /// `Some(None)`: `auto`.
    pub protocol: Option<Spanned<Option<Version>>>,
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
        ("streamable-http", DialectKind::StreamableHttp),
    ],
    later: &["sse", "stdio"],
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
    ],
    later: &["2024-11-05"],
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
        map.later(&["command", "args", "env"], faults);
        let mut headers = read_headers(&mut map, faults);
        headers.extend(read_options(&mut map, faults));
        let upstream = Self {
            name: Spanned::new(entry.key.clone(), &entry.key_at),
            urls: read_urls(&mut map, faults),
            dialect: spanned(&mut map, "dialect", &DIALECTS, faults),
            protocol: spanned(&mut map, "protocol", &PROTOCOLS, faults),
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
        };
        map.finish(faults);
        Some(upstream)
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
fn read_urls(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<Spanned<String>> {
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
            faults.add(FaultCode::MissingKey, map.at, "`url` is missing");
            Vec::new()
        }
    }
}

fn read_headers(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<RawHeader> {
    let entries = map.node("headers").map(|node| node.named(faults)).unwrap_or_default();
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
