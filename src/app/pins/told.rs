//! Definitions of tools as operators are told of them.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    app::{
        faces,
        inventory::{self, digest_text as digest},
    },
    model::server::UpstreamName,
    policy::{Policies, Subject},
    registry::{
        Definition, Difference, FaceFault, Faced, PinFault, PinPair, PinState, Pinning,
        differences, read_kept,
        store::{Approved, History, Scope, Version},
    },
};

/// How a tool that is listed stands.
pub(super) fn state(
    pin: &PinState,
    policies: &Policies,
    server_keys: &HashMap<UpstreamName, Arc<str>>,
) -> Value {
    let held = pin.held.map(inventory::held_word);
    let policy = policies.item(Subject::tool(pin.upstream.as_str(), &pin.tool));
    let mut told = json!({
        "upstream": pin.upstream.as_str(),
        "serverKey": server_keys.get(&pin.upstream).map(|key| &**key),
        "tool": &*pin.tool,
        "risk": pin.care.risk.as_str(),
        // Nobody has said what it may do.
        "new": !policy.classified,
        "pin": match pin.care.pinning {
            Pinning::FirstUse => "first_use".to_owned(),
            Pinning::Approve => "approve".to_owned(),
            Pinning::Exactly(one) => digest(one),
        },
        "schemaVersion": { "ordinal": pin.version, "digest": digest(pin.seen) },
        "seen": digest(pin.seen),
        "firstSeenMs": pin.first_ms,
        "changes": pin.drift.iter().map(|class| class.as_str()).collect::<Vec<_>>(),
        "held": held,
        "approved": pin.approved.as_ref().map(|approved| digest(approved.digest)),
    });
    if let Some(approved) = &pin.approved {
        told["approvedVersion"] = approved.version.into();
        told["approvedHow"] = approved.how.as_str().into();
        told["approvedAtMs"] = approved.at_ms.into();
        if !approved.by.is_empty() {
            told["approvedBy"] = (*approved.by).into();
        }
    }
    told
}

fn approval(approved: &Approved) -> Value {
    let by = Some(&*approved.by).filter(|by| !by.is_empty());
    json!({
        "version": approved.version,
        "digest": digest(approved.digest),
        "how": approved.how.as_str(),
        "by": by,
        "atMs": approved.at_ms,
    })
}

/// What was approved just now, and how the tool stands with it.
pub(super) fn approved(approved: &Approved, state: Option<Value>) -> Value {
    let held = state.as_ref().map(|state| state["held"].clone());
    json!({
        "approved": digest(approved.digest),
        "version": approved.version,
        "listed": state.is_some(),
        "held": held,
        "state": state,
    })
}

/// All that is kept of a tool; `listed` is the digest of what its server lists now.
pub(super) fn history(
    scope: &Scope,
    tool: &str,
    history: &History,
    listed: Option<[u8; 32]>,
) -> Value {
    let in_force = history.approved().map(|approved| approved.version);
    let version = |version: &Version| {
        json!({
            "version": version.version,
            "digest": digest(version.digest),
            "firstSeenMs": version.first_ms,
            "lastSeenMs": version.last_ms,
            "listed": listed == Some(version.digest),
            "approved": in_force == Some(version.version),
            "approvedElsewhere": version.vouched,
            "definition": raw(&version.definition),
        })
    };
    json!({
        "upstream": scope.as_str(),
        "tool": tool,
        "versions": history.versions.iter().map(version).collect::<Vec<_>>(),
        "approvals": history.approvals.iter().map(approval).collect::<Vec<_>>(),
    })
}

/// JSON as it came, as far as that can be had in a larger one.
fn raw(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_default()
}

/// One of two definitions that are compared.
struct Side {
    /// `None`: it is listed, and could not be kept yet.
    version: Option<u64>,
    definition: Arc<Definition>,
}

/// How two definitions differ, as their server says them and as they are published.
pub(super) fn diff(
    pair: &PinPair,
    history: &History,
    listed: Option<Arc<Definition>>,
    policies: &Policies,
) -> Result<Value, PinFault> {
    let kept = |version: &Version| {
        let definition = read_kept(version.definition.clone())?;
        Some(Side { version: Some(version.version), definition: Arc::new(definition) })
    };
    let to = match pair.to {
        Some(which) => history.find(which).and_then(kept),
        None => match listed {
            Some(definition) => {
                let version =
                    history.versions.iter().find(|version| version.digest == definition.digest);
                Some(Side { version: version.map(|version| version.version), definition })
            }
            // The newest one: the tool is not listed.
            None => history.versions.last().and_then(kept),
        },
    };
    let to = to.ok_or(PinFault::Unknown)?;
    let from = match pair.from {
        Some(which) => history.find(which).ok_or(PinFault::Unknown)?,
        None => {
            let approved = history.approved().map(|approved| approved.version);
            let approved = approved.filter(|version| Some(*version) != to.version);
            // Where it is the approved one: the one that it followed.
            let version = approved.or_else(|| {
                let mut others = history.versions.iter().map(|version| version.version).rev();
                others.find(|version| to.version.is_none_or(|to| *version < to))
            });
            let version = version.ok_or(PinFault::Alone)?;
            history.versions.iter().find(|it| it.version == version).ok_or(PinFault::Unknown)?
        }
    };
    let from = kept(from).ok_or(PinFault::Unknown)?;
    let changes = differences(&from.definition.raw, &to.definition.raw);
    Ok(json!({
        "upstream": pair.scope.as_str(),
        "tool": &*pair.tool,
        "from": side(&from, history),
        "to": side(&to, history),
        "changes": told(&changes),
        "published": published(pair, &from, &to, policies),
    }))
}

fn side(side: &Side, history: &History) -> Value {
    let approved = history.approved().map(|approved| approved.version);
    json!({
        "version": side.version,
        "digest": digest(side.definition.digest),
        "approved": side.version.is_some() && side.version == approved,
        "definition": raw(&side.definition.raw),
    })
}

fn told(changes: &[Difference]) -> Value {
    let change = |change: &Difference| {
        json!({
            "class": change.class.as_str(),
            "pointer": change.pointer,
            "old": change.old,
            "new": change.new,
        })
    };
    changes.iter().map(change).collect::<Vec<_>>().into()
}

/// What is published instead, where anything is.
fn published(pair: &PinPair, from: &Side, to: &Side, policies: &Policies) -> Value {
    let policy = policies.item(Subject::tool(pair.scope.server(), &pair.tool));
    let Some(face) = faces::of(&policy) else { return Value::Null };
    let put_on = |side: &Side| Faced::new(&side.definition, &face);
    let (before, after) = (put_on(from), put_on(to));
    let shown = |faced: &Result<Faced, FaceFault>| match faced {
        Ok(faced) => json!({ "definition": raw(&faced.raw) }),
        Err(fault) => json!({ "fault": fault.to_string() }),
    };
    let changes = match (&before, &after) {
        (Ok(before), Ok(after)) => told(&differences(&before.raw, &after.raw)),
        _ => Value::Null,
    };
    json!({ "from": shown(&before), "to": shown(&after), "changes": changes })
}
