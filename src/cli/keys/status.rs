//! `hangu keys status`: each key, its state, its budget, and what is stored under it.

use std::io::Write;

use serde_json::json;

use super::place::{Place, told};
use crate::{
    cli::tell::{CommandError, Ending, count},
    credential::rotation::{KeyStatus, RingStatus, UseStatus},
    fault::escape,
};

/// Findings if there is no primary key, or one is to be rotated.
pub fn run(place: &Place, as_json: bool, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let ring = place.keeper.file().read().map_err(told)?;
    let records = place.records()?;
    let uses = records.as_ref().map(|records| records.uses()).transpose()?;
    let status = RingStatus::of(&ring, uses.as_deref());
    if as_json {
        let told = json!({
            "keyring": place.keeper.file().path().display().to_string(),
            "keys": status.keys,
            "otherKeys": status.other_keys,
            "findings": status.findings,
        });
        writeln!(out, "{told}")?;
    } else {
        table(&status.keys, &status.other_keys, out)?;
        status.findings.iter().try_for_each(|finding| writeln!(out, "{finding}"))?;
    }
    Ok(if status.findings.is_empty() { Ending::Well } else { Ending::Findings })
}

/// Each key, and what is stored under others.
pub(super) fn table(
    keys: &[KeyStatus],
    others: &[UseStatus],
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    writeln!(out, "KEY       STATE      SINCE                 WRAPS       STORED")?;
    for key in keys {
        let stored = key.stored.as_ref().map_or_else(|| "not looked at".to_owned(), stored);
        let (id, state, since) = (escape(&key.id), escape(&key.state), escape(&key.since));
        let wraps = key.wraps;
        writeln!(out, "{id}  {state:<9}  {since:<20}  {wraps:<10}  {stored}")?;
    }
    for found in others {
        let key = found.key.as_deref().map(escape).unwrap_or_default();
        writeln!(out, "{key}  (not in this keyring)  {}", stored(found))?;
    }
    Ok(())
}

/// What is stored, in words.
pub(super) fn stored(found: &UseStatus) -> String {
    let n = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    if found.credentials > 0 {
        parts.push(count(n(found.credentials), "credential"));
    }
    if let Some(until) = &found.replays_until {
        let until = escape(until);
        parts.push(format!("{}, until {until}", count(n(found.replays), "idempotency record")));
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
}
