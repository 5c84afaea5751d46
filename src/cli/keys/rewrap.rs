//! `hangu keys rewrap`: the data keys of stored credentials, wrapped with the key that is used at
//! present. What they hold is not opened.

use std::{io::Write, sync::Arc};

use serde_json::json;

use super::place::{Place, Where, told};
use crate::{
    cli::tell::{CommandError, Ending, count},
    credential::{Credential, CredentialRef, Kms, key_of, store::Held},
};

/// Findings if one of them cannot be taken along.
pub fn run(place: &Place, as_json: bool, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let ring = Arc::new(place.keeper.open().map_err(told)?);
    if matches!(place.store, Where::Unknown) {
        let reason = "credentials are in the store, which the configuration names: give `--config`";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    let kms = place.keeper.kms(ring);
    let key = kms.key_id().map_err(|fault| CommandError::Environment(fault.to_string()))?;
    let (mut rewrapped, mut left) = (0, Vec::new());
    if let Some(records) = place.records()? {
        let mut after = None;
        loop {
            let name = key.clone();
            let some = records.ask(|store, then| store.not_under(name, after, then))?;
            let Some(last) = some.last() else { break };
            after = Some(last.reference);
            for held in some {
                let reference = held.reference;
                let sealed = match sealed_anew(&*kms, &held) {
                    Ok(Some((key, sealed))) => {
                        records.ask(|store, then| store.replace_sealed(held, key, sealed, then))
                    }
                    Ok(None) => continue,
                    Err(reason) => {
                        left.push((reference, reason));
                        continue;
                    }
                };
                // One that was replaced meanwhile is under the new key already.
                rewrapped += usize::from(sealed?);
            }
        }
    }
    tell(as_json, out, &key, rewrapped, &left)?;
    Ok(if left.is_empty() { Ending::Well } else { Ending::Findings })
}

fn sealed_anew(kms: &dyn Kms, held: &Held) -> Result<Option<(String, Vec<u8>)>, String> {
    let anew = Credential::rewrap(kms, &held.whose, &held.sealed).map_err(|it| it.to_string())?;
    anew.map(|sealed| Ok((key_of(&sealed).map_err(|it| it.to_string())?, sealed))).transpose()
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
