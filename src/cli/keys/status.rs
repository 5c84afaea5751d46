//! `hangu keys status`: each key, its state, its budget, and what is stored under it.

use std::io::Write;

use serde_json::{Value, json};

use super::place::{Place, told};
use crate::{
    cli::tell::{CommandError, Ending, count},
    credential::{Key, Keyring, MAX_WRAPS, WARN_WRAPS, store::KeyUse},
};

/// Findings if there is no primary key, or one is to be rotated.
pub fn run(place: &Place, as_json: bool, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let ring = place.keeper.file().read().map_err(told)?;
    let records = place.records()?;
    let uses = records.as_ref().map(|records| records.uses()).transpose()?;
    let findings = findings(&ring);
    if as_json {
        let keys: Vec<_> = ring.keys().iter().map(|key| as_object(key, uses.as_deref())).collect();
        let others: Vec<_> = strangers(&ring, uses.as_deref()).map(use_object).collect();
        let told = json!({
            "keyring": place.keeper.file().path().display().to_string(),
            "keys": keys,
            "otherKeys": others,
            "findings": findings,
        });
        writeln!(out, "{told}")?;
    } else {
        human(&ring, uses.as_deref(), out)?;
        findings.iter().try_for_each(|finding| writeln!(out, "{finding}"))?;
    }
    Ok(if findings.is_empty() { Ending::Well } else { Ending::Findings })
}

fn findings(ring: &Keyring) -> Vec<String> {
    let mut findings = Vec::new();
    if let Err(fault) = ring.primary() {
        findings.push(format!("No gateway starts with it: {fault}."));
    }
    for key in ring.keys().iter().filter(|key| key.wraps >= WARN_WRAPS) {
        findings.push(format!(
            "Key {} has wrapped {} of at most {MAX_WRAPS} data keys: rotate it.",
            key.id, key.wraps
        ));
    }
    findings
}

/// What is stored under keys that are not in the ring.
fn strangers<'a>(
    ring: &'a Keyring,
    uses: Option<&'a [KeyUse]>,
) -> impl Iterator<Item = &'a KeyUse> {
    let known = |key: &str| ring.keys().iter().any(|known| known.id.to_string() == key);
    uses.unwrap_or_default().iter().filter(move |found| !known(&found.key))
}

fn as_object(key: &Key, uses: Option<&[KeyUse]>) -> Value {
    let mut object = json!({
        "id": key.id.to_string(),
        "state": key.state.as_str(),
        "created": time(key.created_ms),
        "since": time(key.since_ms),
        "wraps": key.wraps,
        "wrappedBy": key.wrapped_by(),
    });
    if let Some(uses) = uses {
        let found = uses.iter().find(|found| found.key == key.id.to_string());
        object["stored"] = use_object(found.unwrap_or(&KeyUse::default()));
    }
    object
}

pub(super) fn use_object(found: &KeyUse) -> Value {
    let mut object = json!({ "credentials": found.credentials, "replays": found.replays });
    if !found.key.is_empty() {
        object["key"] = found.key.clone().into();
    }
    if found.replays > 0 {
        object["replaysUntil"] = time(found.replays_until_ms).into();
    }
    object
}

fn human(ring: &Keyring, uses: Option<&[KeyUse]>, out: &mut dyn Write) -> Result<(), CommandError> {
    writeln!(out, "KEY       STATE      SINCE                 WRAPS       STORED")?;
    for key in ring.keys() {
        let stored = match uses {
            None => "not looked at".to_owned(),
            Some(uses) => {
                let found = uses.iter().find(|found| found.key == key.id.to_string());
                found.map_or_else(|| "nothing".to_owned(), stored)
            }
        };
        let since = time(key.since_ms);
        let (id, state, wraps) = (key.id, key.state.as_str(), key.wraps);
        writeln!(out, "{id}  {state:<9}  {since:<20}  {wraps:<10}  {stored}")?;
    }
    for found in strangers(ring, uses) {
        writeln!(out, "{}  (not in this keyring)  {}", found.key, stored(found))?;
    }
    Ok(())
}

/// What is stored, in words.
pub(super) fn stored(found: &KeyUse) -> String {
    let n = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    if found.credentials > 0 {
        parts.push(count(n(found.credentials), "credential"));
    }
    if found.replays > 0 {
        let until = time(found.replays_until_ms);
        parts.push(format!("{}, until {until}", count(n(found.replays), "idempotency record")));
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
}

/// To the second.
fn time(ms: u64) -> String {
    let time = i64::try_from(ms / 1_000).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    time.map_or_else(String::new, |time| time.to_string())
}
