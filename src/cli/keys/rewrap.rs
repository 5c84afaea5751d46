//! `hangu keys rewrap`: the data keys of stored credentials, wrapped with the key that is used at
//! present. What they hold is not opened.

use std::{io::Write, sync::Arc};

use serde_json::json;

use super::place::{Place, Where, told};
use crate::{
    cli::tell::{CommandError, Ending, count},
    credential::{
        CredentialRef,
        rotation::{Rewrapped, rewrap_all},
    },
};

/// Findings if one of them cannot be taken along.
pub fn run(place: &Place, as_json: bool, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let ring = Arc::new(place.keeper.open().map_err(told)?);
    if matches!(place.store, Where::Unknown) {
        let reason = "credentials are in the store, which the configuration names: give `--config`";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    let environment = |fault: String| CommandError::Environment(fault);
    let kms = place.keeper.kms(ring);
    let Rewrapped { key, rewrapped, left } = match place.records()? {
        Some(records) => rewrap_all(records.credentials(), &*kms, &mut |_| true)
            .map_err(|fault| environment(fault.to_string()))?,
        None => {
            let key = kms.key_id().map_err(|fault| environment(fault.to_string()))?;
            Rewrapped { key, ..Rewrapped::default() }
        }
    };
    tell(as_json, out, &key, usize::try_from(rewrapped).unwrap_or(usize::MAX), &left)?;
    Ok(if left.is_empty() { Ending::Well } else { Ending::Findings })
}

fn tell(
    as_json: bool,
    out: &mut dyn Write,
    key: &str,
    rewrapped: usize,
    left: &[(CredentialRef, String)],
) -> Result<(), CommandError> {
    if as_json {
        let left: Vec<_> = left
            .iter()
            .map(|(reference, why)| json!({ "credential": reference.to_string(), "reason": why }))
            .collect();
        writeln!(out, "{}", json!({ "key": key, "rewrapped": rewrapped, "left": left }))?;
        return Ok(());
    }
    writeln!(out, "{} wrapped anew with key {key}.", count(rewrapped, "credential"))?;
    for (reference, reason) in left {
        writeln!(out, "{reference} stays as it is: {reason}.")?;
    }
    Ok(())
}
