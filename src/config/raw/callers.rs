//! `callers:` as it is written.

use super::SecretRef;
use crate::{
    fault::{FaultCode, Faults, Span},
    model::{
        call_source::{CallSource, CallSources},
        caller::{CallerId, EmployeeId, Role, TenantId},
    },
    yaml::{Entry, MapReader, Node, Spanned, Value, Words, check_name},
};

const CALL_SOURCES: Words<CallSource> = Words {
    what: "call source",
    code: FaultCode::BadValue,
    known: &[
        ("agent", CallSource::Agent),
        ("web", CallSource::Web),
        ("script", CallSource::Script),
        ("post_action", CallSource::PostAction),
        ("cli", CallSource::Cli),
    ],
    later: &[],
};

#[derive(Debug)]
pub struct RawCaller {
    pub id: Spanned<CallerId>,
    pub tenant: Spanned<TenantId>,
    pub keys: Vec<RawKey>,
    pub identity: Option<RawIdentity>,
    pub catalog_roles: Vec<Role>,
    pub call_sources: CallSources,
}

#[derive(Debug)]
pub struct RawKey {
    pub at: Span,
    pub source: RawKeySource,
    pub expires: Option<Spanned<jiff::Timestamp>>,
}

#[derive(Debug)]
pub enum RawKeySource {
    Secret(SecretRef),
    /// The digest itself.
    Sha256([u8; 32]),
}

#[derive(Debug)]
pub struct RawIdentity {
    pub at: Span,
    pub header: bool,
    pub fixed: Option<RawEmployee>,
}

#[derive(Debug)]
pub struct RawEmployee {
    pub id: Spanned<EmployeeId>,
    pub roles: Vec<Role>,
}

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<RawCaller> {
    let Some(node) = map.required_node("callers", faults) else { return Vec::new() };
    let entries = node.named(faults);
    if entries.is_empty() && matches!(node.value, Value::Null | Value::Map(_)) {
        faults.add(FaultCode::BadValue, &node.at, "without a caller nobody can call");
    }
    entries.into_iter().filter_map(|entry| RawCaller::read(entry, faults)).collect()
}

impl RawCaller {
    fn read(entry: &Entry, faults: &mut Faults) -> Option<Self> {
        let id = match check_name(&entry.key) {
            Ok(()) => Some(Spanned::new(CallerId::new(entry.key.as_str()), &entry.key_at)),
            Err(reason) => {
                let message = format!("`{}` {reason}", entry.key);
                faults.add(FaultCode::BadName, &entry.key_at, message);
                None
            }
        };
        let mut map = entry.value.map(faults)?;
        let keys = read_keys(&mut map, faults);
        let tenant = map.required("tenant", faults);
        let identity = map.node("identity").and_then(|node| RawIdentity::read(node, faults));
        let catalog_roles = map.optional("catalog_roles", faults).unwrap_or_default();
        let call_sources = read_call_sources(&mut map, faults);
        map.finish(faults);
        Some(Self { id: id?, tenant: tenant?, keys, identity, catalog_roles, call_sources })
    }
}

/// What may be said of where calls under `/v1` come from; nothing, where it is not written.
pub(super) fn read_call_sources(map: &mut MapReader<'_>, faults: &mut Faults) -> CallSources {
    let Some(node) = map.node("call_sources") else { return CallSources::default() };
    let items = node.items(faults).unwrap_or_default().iter();
    items.filter_map(|item| CALL_SOURCES.read(item, faults)).collect()
}

fn read_keys(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<RawKey> {
    let Some(node) = map.required_node("keys", faults) else { return Vec::new() };
    if let Value::Text(_) = &node.value {
        in_the_open(node, faults);
        return Vec::new();
    }
    let Some(items) = node.items(faults) else { return Vec::new() };
    if items.is_empty() {
        faults.add(FaultCode::BadValue, &node.at, "without a key nobody can call");
    }
    items.iter().filter_map(|item| RawKey::read(item, faults)).collect()
}

fn in_the_open(node: &Node, faults: &mut Faults) {
    let fault =
        faults.add(FaultCode::SecretInTheOpen, &node.at, "a key does not stand in the file");
    fault.suggest("`{ env: NAME }`, `{ file: PATH }` or `{ sha256: HEX }`").secret();
}

impl RawKey {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        if !matches!(&node.value, Value::Map(_) | Value::Unknown) {
            in_the_open(node, faults);
            return None;
        }
        let mut map = node.map(faults)?;
        let expires = map.node("expires").and_then(|node| read_time(node, faults));
        let source = match map.entry("sha256") {
            Some(entry) => {
                if let Some(other) = map.entry("env").or(map.entry("file")) {
                    let message = "either `sha256` or the key itself, not both";
                    faults.add(FaultCode::GivenTwice, &other.key_at, message);
                }
                read_digest(&entry.value, faults).map(RawKeySource::Sha256)
            }
            None => SecretRef::read(&mut map, faults).map(RawKeySource::Secret),
        };
        map.finish(faults);
        Some(Self { at: node.at.clone(), source: source?, expires })
    }
}

fn read_digest(node: &Node, faults: &mut Faults) -> Option<[u8; 32]> {
    // A digest of nothing but digits looks like a number.
    let text = match &node.value {
        Value::Text(text) => text.as_str(),
        Value::Int(_) | Value::Float(_) => node.raw.as_str(),
        _ => node.text(faults)?,
    };
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut digest = [0; 32];
    let whole = text.len() == 64
        && digest.iter_mut().zip(text.as_bytes().chunks_exact(2)).all(|(byte, pair)| {
            let (Some(high), Some(low)) =
                (pair.first().and_then(|b| digit(*b)), pair.get(1).and_then(|b| digit(*b)))
            else {
                return false;
            };
            *byte = high << 4 | low;
            true
        });
    if !whole {
        // It may be the key itself, put where its digest belongs.
        let message = "`sha256` is 64 hex digits: the SHA-256 of the key";
        faults.add(FaultCode::BadValue, &node.at, message).secret();
        return None;
    }
    Some(digest)
}

fn read_time(node: &Node, faults: &mut Faults) -> Option<Spanned<jiff::Timestamp>> {
    let time = node.text(faults)?.parse().ok();
    if time.is_none() {
        let message = format!("{} is not a time", node.quoted());
        faults
            .add(FaultCode::BadValue, &node.at, message)
            .suggest("such as `2027-01-31T00:00:00Z`");
    }
    time.map(|time| Spanned::new(time, &node.at))
}

impl RawIdentity {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let at = node.at.clone();
        if let Value::Text(text) = &node.value {
            if text == "header" {
                return Some(Self { at, header: true, fixed: None });
            }
            let message = format!("unknown identity {}", node.quoted());
            let fault = faults.add(FaultCode::BadValue, &node.at, message);
            fault.suggest(
                "`header`, `{ empId, roles }` or `{ header: true, fallback: { empId, roles } }`",
            );
            return None;
        }
        let mut map = node.map(faults)?;
        if map.entry("header").is_some() || map.entry("fallback").is_some() {
            let header: Option<bool> = map.required("header", faults);
            let fixed = map.node("fallback").and_then(|node| {
                let mut map = node.map(faults)?;
                let employee = RawEmployee::read(&mut map, faults);
                map.finish(faults);
                employee
            });
            if header == Some(false) {
                let message = "`header: false` with a `fallback`: write the employee alone";
                faults.add(FaultCode::Contradiction, &node.at, message);
            }
            map.finish(faults);
            return Some(Self { at, header: header?, fixed });
        }
        let fixed = RawEmployee::read(&mut map, faults);
        map.finish(faults);
        Some(Self { at, header: false, fixed: Some(fixed?) })
    }
}

impl RawEmployee {
    fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Self> {
        let id = map.required("empId", faults);
        let roles = map.optional("roles", faults).unwrap_or_default();
        Some(Self { id: id?, roles })
    }
}
