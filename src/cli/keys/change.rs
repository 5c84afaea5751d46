//! `hangu keys new`, `rotate`, `promote` and `destroy`: what changes the file.

use std::io::{self, BufRead, IsTerminal, Write};

use serde_json::json;

use super::{
    place::{Place, Where, told},
    status::stored,
};
use crate::{
    cli::tell::{CommandError, Ending},
    credential::{KeyId, rotation::UseStatus},
};

/// Which key to forget, and how sure that is.
pub(super) struct Destroy {
    pub key: KeyId,
    pub yes: bool,
    pub force: bool,
}

pub fn new(place: &Place, as_json: bool, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let id = place.keeper.create().map_err(told)?;
    let file = place.keeper.file().path().display();
    tell(as_json, out, id, "primary", &[], || {
        format!(
            "{file}: key {id} is there, and the primary one. Whoever reads the file reads \
             everything that is sealed: keep a copy where you keep such things."
        )
    })
}

pub fn rotate(place: &Place, as_json: bool, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let id = place.keeper.rotate().map_err(told)?;
    tell(as_json, out, id, "pending", &[], || {
        format!(
            "Key {id} is pending: it opens, and seals nothing yet. Let every replica have the \
             file, then `hangu keys promote {id}`."
        )
    })
}

pub fn promote(
    place: &Place,
    key: Option<KeyId>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<Ending, CommandError> {
    let id = place.keeper.promote(key).map_err(told)?;
    tell(as_json, out, id, "primary", &[], || {
        format!(
            "Key {id} is the primary one; the one before only opens. `hangu keys rewrap` takes \
             stored credentials along; idempotency records, sessions and cursors end by \
             themselves. Then `hangu keys destroy` forgets the old one."
        )
    })
}

/// Forgets a key, unless something needs it.
pub fn destroy(
    place: &Place,
    how: &Destroy,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<Ending, CommandError> {
    let id = how.key;
    let ring = place.keeper.file().read().map_err(told)?;
    ring.may_destroy(id).map_err(|fault| CommandError::Refused(fault.to_string()))?;
    let lost = match uses(place, id) {
        Ok(lost) => lost,
        Err(CommandError::Environment(reason)) if how.force => {
            writeln!(out, "What is stored under it is not known: {reason}")?;
            None
        }
        Err(error) => return Err(error),
    };
    if matches!(place.store, Where::Unknown) && !how.force {
        let reason = "what is stored under the key is not known without the configuration: give \
                      `--config`, or `--force`";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    if let Some(lost) = &lost
        && !how.force
    {
        return Err(CommandError::Refused(format!(
            "key {id} is in use: {}. `hangu keys rewrap` takes credentials along, idempotency \
             records end by themselves; `--force` destroys it all the same, and they are lost",
            stored(lost)
        )));
    }
    if !how.yes {
        confirm(id, lost.as_ref())?;
    }
    place.keeper.destroy(id).map_err(told)?;
    let lost: Vec<UseStatus> = lost.into_iter().collect();
    tell(as_json, out, id, "destroyed", &lost, || {
        let lost = match lost.first() {
            Some(lost) => format!(" Lost with it: {}.", stored(lost)),
            None => String::new(),
        };
        format!(
            "Key {id} is destroyed. Sessions, cursors and task ids that were made under it open \
             no more, and its digests in the audit log can be matched with nothing.{lost} \
             Destroy the copies of the file too."
        )
    })
}

fn uses(place: &Place, id: KeyId) -> Result<Option<UseStatus>, CommandError> {
    let Some(records) = place.records()? else { return Ok(None) };
    let name = id.to_string();
    Ok(records.uses()?.iter().find(|found| found.key == name).map(UseStatus::from))
}

fn confirm(id: KeyId, lost: Option<&UseStatus>) -> Result<(), CommandError> {
    let not = |reason: &str| CommandError::Usage(format!("nothing was destroyed: {reason}"));
    if !io::stdin().is_terminal() {
        return Err(not("give `--yes` where nobody can be asked"));
    }
    if let Some(lost) = lost {
        eprintln!("Stored under it, and lost with it: {}.", stored(lost));
    }
    eprint!("A destroyed key does not come back. Type {id} to destroy it: ");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    if line.trim() == id.to_string() { Ok(()) } else { Err(not("that was another word")) }
}

fn tell(
    as_json: bool,
    out: &mut dyn Write,
    id: KeyId,
    state: &str,
    lost: &[UseStatus],
    words: impl FnOnce() -> String,
) -> Result<Ending, CommandError> {
    if as_json {
        let mut told = json!({ "id": id.to_string(), "state": state });
        if let Some(lost) = lost.first() {
            told["lost"] = json!(lost);
        }
        writeln!(out, "{told}")?;
    } else {
        writeln!(out, "{}", words())?;
    }
    Ok(Ending::Well)
}
