//! `hangu keys status` and `rewrap` at gateways that run: how each replica stands with the
//! keyring, and one of them taking stored credentials along.

use std::{io::Write, thread, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};

use super::status;
use crate::{
    cli::{
        remote::{AdminAddress, Gateway, read},
        tell::{CommandError, Ending, count},
    },
    credential::rotation::{KeyStatus, UseStatus},
    fault::escape,
};

const PATH: &str = "/admin/api/keys";

/// Between two looks at a rewrapping.
const PAUSE: Duration = Duration::from_millis(300);

/// What a replica tells.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Replica {
    keyring: Option<String>,
    #[serde(default)]
    keys: Vec<KeyStatus>,
    #[serde(default)]
    other_keys: Vec<UseStatus>,
    #[serde(default)]
    findings: Vec<String>,
    fault: Option<String>,
    keeper_fault: Option<String>,
    ready: bool,
}

#[derive(Debug, Deserialize)]
struct Rewrap {
    state: String,
    key: Option<String>,
    rewrapped: usize,
    left: Vec<Left>,
    fault: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Left {
    credential_ref: String,
    reason: String,
}

/// Findings if one of the replicas does not use the keyring as it is there.
pub fn status(urls: &[String], as_json: bool, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let (mut ready, mut told) = (true, Vec::new());
    for url in urls {
        let answer = AdminAddress::new(url).gateway()?.get(PATH)?;
        let replica: Replica = read(&answer)?;
        ready &= replica.ready && replica.findings.is_empty();
        if as_json {
            told.push(json!({ "url": url, "status": read::<Value>(&answer)? }));
        } else {
            human(url, &replica, out)?;
        }
    }
    if as_json {
        writeln!(out, "{}", Value::from(told))?;
    }
    Ok(if ready { Ending::Well } else { Ending::Findings })
}

fn human(url: &str, replica: &Replica, out: &mut dyn Write) -> Result<(), CommandError> {
    let (url, ready) = (escape(url), if replica.ready { "ready" } else { "not ready" });
    let Some(keyring) = &replica.keyring else {
        return Ok(writeln!(out, "{url}: no keyring; keys end with the process")?);
    };
    writeln!(out, "{url}: {ready}, {}", escape(keyring))?;
    status::table(&replica.keys, &replica.other_keys, out)?;
    let faults = [
        ("The file as it is now is not used here", &replica.fault),
        ("Whoever wraps data keys cannot do so", &replica.keeper_fault),
    ];
    for (what, why) in faults {
        if let Some(why) = why {
            writeln!(out, "{what}: {}.", escape(why))?;
        }
    }
    replica.findings.iter().try_for_each(|finding| writeln!(out, "{}", escape(finding)))?;
    Ok(())
}

/// Begins it, and waits for its end. Findings if one of them cannot be taken along.
pub fn rewrap(url: &str, as_json: bool, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let gateway = AdminAddress::new(url).gateway()?;
    gateway.post(&format!("{PATH}/rewrap"), &json!({}))?;
    let (rewrap, raw) = ended(&gateway)?;
    if as_json {
        writeln!(out, "{raw}")?;
    } else {
        let key = rewrap.key.as_deref().map_or_else(|| "the primary key".to_owned(), escape);
        writeln!(out, "{} wrapped anew with key {key}.", count(rewrap.rewrapped, "credential"))?;
        for Left { credential_ref, reason } in &rewrap.left {
            writeln!(out, "{} stays as it is: {}.", escape(credential_ref), escape(reason))?;
        }
    }
    match rewrap.fault {
        Some(fault) => Err(CommandError::Environment(escape(&fault))),
        None if rewrap.left.is_empty() => Ok(Ending::Well),
        None => Ok(Ending::Findings),
    }
}

#[expect(clippy::disallowed_methods, reason = "a command has nobody else to serve")]
fn ended(gateway: &Gateway) -> Result<(Rewrap, Value), CommandError> {
    loop {
        let mut told: Value = read(&gateway.get(PATH)?)?;
        let raw = told["rewrap"].take();
        let rewrap: Rewrap = read(raw.to_string().as_bytes())?;
        if rewrap.state != "running" {
            return Ok((rewrap, raw));
        }
        thread::sleep(PAUSE);
    }
}
